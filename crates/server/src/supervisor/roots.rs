//! The sites' roots, opened once for all processes of a configuration.
//!
//! Only the supervisor opens them, through children that may hang in its place: a root that does not
//! answer delays no start, and the other roles get descriptors, never a path to walk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::root::{Opening, Root, Unopened, is_same, open_roots};

use super::outbox::{Outbox, Shared};
use crate::config::{ROOT_PATIENCE, Site};
use flash_worker::control::Order;

/// How often local roots are looked at.
const CHECK_MS: u64 = 5_000;
/// Roots that are looked at at once; the next ones have their turn after a pause.
const CHECKS_MAX: usize = 8;
/// That pause.
const CHECK_PAUSE_MS: u64 = 1_000;
/// Roots are opened anew no sooner than this after the last time.
const RENEWAL_PAUSE_MS: u64 = 1_000;

/// The roots of a configuration.
#[derive(Debug)]
pub(super) struct Roots {
    /// Each path once.
    slots: Vec<Slot>,
    /// The slot of each site.
    of_sites: Vec<usize>,
    /// When they were opened anew last.
    renewed_ms: u64,
    /// The slot that is looked at next, and when.
    next_check: (usize, u64),
}

/// One path.
#[derive(Debug)]
struct Slot {
    path: PathBuf,
    /// What was opened last, if that is known.
    root: Option<KnownRoot>,
    /// An attempt that was not answered yet, and the number under which it is heard.
    attempt: Option<(u64, Opening)>,
    /// A look at what its path leads to now, and the number under which it is heard. It changes nothing here.
    check: Option<(u64, Opening)>,
    /// What the last look found other than what is served; said once.
    changed: Option<Changed>,
}

/// What has become of the path of a local root.
#[derive(Debug)]
enum Changed {
    /// It leads to this folder; None for one on a file system that may wait, which nobody asks.
    Replaced(Option<OwnedFd>),
    /// It leads nowhere.
    Gone,
}

/// A root that was opened.
#[derive(Debug)]
struct KnownRoot {
    folder: Shared,
    is_local: bool,
}

impl From<Root> for KnownRoot {
    fn from(root: Root) -> Self {
        Self { folder: Arc::new(root.folder), is_local: root.is_local }
    }
}

impl Roots {
    /// Opens the roots of `sites`. Gives what the operator should know of them.
    pub(super) fn open(sites: &[Site], epoll: &Epoll, numbers: &mut u64) -> io::Result<(Self, Vec<String>)> {
        let mut paths: Vec<&Path> = sites.iter().map(|site| site.root.as_path()).collect();
        paths.sort_unstable();
        paths.dedup();
        let slot_of = |site: &Site| paths.binary_search(&site.root.as_path()).unwrap_or(0);
        let of_sites = sites.iter().map(slot_of).collect();
        let next_check = (0, clock::monotonic_ms() + CHECK_MS);
        let mut roots = Self { slots: Vec::new(), of_sites, renewed_ms: 0, next_check };
        let mut news = Vec::new();
        for (path, opened) in paths.iter().zip(open_roots(&paths, ROOT_PATIENCE)) {
            let path_buf = path.to_path_buf();
            let mut slot = Slot { path: path_buf, root: None, attempt: None, check: None, changed: None };
            match opened {
                Ok(root) => slot.root = Some(root.into()),
                Err(Unopened::Hangs(opening)) => {
                    news.push(format!("{} does not answer; until it does, it gets 503", path.display()));
                    slot.attempt = Some(watch(opening, epoll, numbers)?);
                }
                Err(Unopened::Failed(e)) => news.push(slot.failed(&e)),
            }
            roots.slots.push(slot);
        }
        Ok((roots, news))
    }

    /// Opens anew what may have been mounted again since, while others go on: called when a helper
    /// met a root that is gone, or lacked one.
    pub(super) fn renew(&mut self, now_ms: u64, epoll: &Epoll, numbers: &mut u64) {
        if now_ms < self.renewed_ms + RENEWAL_PAUSE_MS {
            return;
        }
        self.renewed_ms = now_ms;
        let may_have_gone = |slot: &Slot| slot.root.as_ref().is_none_or(|root| !root.is_local);
        for slot in self.slots.iter_mut().filter(|slot| slot.attempt.is_none() && may_have_gone(slot)) {
            // Without processes or memory for it, the next helper that needs it has it tried again.
            let opening = Opening::start(&slot.path);
            slot.attempt = opening.and_then(|opening| watch(opening, epoll, numbers)).ok();
        }
    }

    /// Looks whether the paths of local roots still lead to what is served, a few at once. One that hangs has no
    /// other look until it answers.
    pub(super) fn check_when_due(&mut self, now_ms: u64, epoll: &Epoll, numbers: &mut u64) {
        let (first, due_ms) = self.next_check;
        if now_ms < due_ms {
            return;
        }
        let mut room = CHECKS_MAX.saturating_sub(self.slots.iter().filter(|s| s.check.is_some()).count());
        for (number, slot) in self.slots.iter_mut().enumerate().skip(first) {
            if room == 0 {
                self.next_check = (number, now_ms + CHECK_PAUSE_MS);
                return;
            }
            if slot.check.is_none() && slot.root.as_ref().is_some_and(|root| root.is_local) {
                // Without processes or memory for it, the next turn looks.
                let opening = Opening::start(&slot.path);
                slot.check = opening.and_then(|opening| watch(opening, epoll, numbers)).ok();
                room -= 1;
            }
        }
        self.next_check = (0, now_ms + CHECK_MS);
    }

    /// When the next look is due.
    pub(super) fn next_ms(&self) -> u64 {
        self.next_check.1
    }

    /// Gives a role the roots that there are, in the order of the sites.
    pub(super) fn give(&self, orders: &mut Outbox) -> io::Result<()> {
        for (site, slot) in self.of_sites.iter().enumerate() {
            if let Some(KnownRoot { is_local, folder }) = &self.slots[*slot].root {
                let folder = Arc::clone(folder);
                orders.give_at_start(Order::Root { site, is_local: *is_local, folder })?;
            }
        }
        Ok(())
    }

    /// Takes a late answer, if `number` is the one of an attempt. Gives what the operator should know.
    pub(super) fn hear(&mut self, number: u64, epoll: &Epoll) -> Option<String> {
        let is_looked_at = |slot: &&mut Slot| slot.check.as_ref().is_some_and(|(other, _)| *other == number);
        if let Some(slot) = self.slots.iter_mut().find(is_looked_at) {
            return slot.hear_check(epoll);
        }
        let is_heard = |slot: &&mut Slot| slot.attempt.as_ref().is_some_and(|(other, _)| *other == number);
        let slot = self.slots.iter_mut().find(is_heard)?;
        let (_, opening) = slot.attempt.as_mut()?;
        let answer = opening.take();
        if answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            return None;
        }
        let _ = epoll.remove(&*opening);
        slot.attempt = None;
        match answer {
            Ok(root) => {
                let news = slot.root.is_none().then(|| format!("{} answers", slot.path.display()));
                slot.root = Some(root.into());
                news
            }
            Err(e) => {
                let news = slot.root.is_some().then(|| slot.failed(&e));
                slot.root = None;
                news
            }
        }
    }

    /// The processes that open some.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let openings = self.slots.iter().flat_map(|slot| slot.attempt.iter().chain(&slot.check));
        openings.map(|(_, opening)| opening.pid())
    }

    /// Those under which workers look files up by themselves.
    pub(super) fn local(&self) -> impl Iterator<Item = &OwnedFd> {
        let local = self.slots.iter().filter_map(|slot| slot.root.as_ref()).filter(|root| root.is_local);
        local.map(|root| &*root.folder)
    }

    /// How many there are that may wait for somebody else, or do.
    pub(super) fn others_len(&self) -> usize {
        self.slots.len() - self.local().count()
    }
}

impl Slot {
    /// Takes the answer to a look. Gives what the operator should know.
    fn hear_check(&mut self, epoll: &Epoll) -> Option<String> {
        let (_, opening) = self.check.as_mut()?;
        let answer = opening.take();
        if answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
            return None;
        }
        let _ = epoll.remove(&*opening);
        self.check = None;
        let served = self.root.as_ref()?;
        let same = |one: &OwnedFd, other: &OwnedFd| is_same(one, other).unwrap_or(false);
        let path = self.path.display();
        match answer {
            Ok(found) if found.is_local && same(&found.folder, &served.folder) => {
                self.changed = None;
                None
            }
            Ok(found) => {
                let folder = found.is_local.then_some(found.folder);
                let is_known = match (&self.changed, &folder) {
                    (Some(Changed::Replaced(Some(before))), Some(now)) => same(before, now),
                    (Some(Changed::Replaced(None)), None) => true,
                    _ => false,
                };
                self.changed = Some(Changed::Replaced(folder));
                (!is_known).then(|| format!("{path} was replaced; what it was before is served until HUP"))
            }
            Err(e) => {
                let is_known = matches!(self.changed, Some(Changed::Gone));
                self.changed = Some(Changed::Gone);
                let text =
                    || format!("{path} cannot be opened any more: {e}; what it was before is still served");
                (!is_known).then(text)
            }
        }
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("cannot open {}: {error}; until it can be opened it gets 503", self.path.display())
    }
}

fn watch(opening: Opening, epoll: &Epoll, numbers: &mut u64) -> io::Result<(u64, Opening)> {
    *numbers += 1;
    epoll.add(&opening, *numbers, Watch::Input)?;
    Ok((*numbers, opening))
}
