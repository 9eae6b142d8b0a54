//! The sites' roots, opened once for all processes of a configuration.
//!
//! Only the supervisor opens them, through children that may hang in its place: a root that does not
//! answer delays no start, and the other roles get descriptors, never a path to walk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flash_sys::OwnedFd;
use flash_sys::prompt::epoll::{Epoll, Watch};
use flash_sys::waiting::root::{Opening, Root, Unopened, open_roots};

use super::outbox::{Outbox, Shared};
use crate::config::{ROOT_PATIENCE, Site};
use crate::control::Order;

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
}

/// One path.
#[derive(Debug)]
struct Slot {
    path: PathBuf,
    /// What was opened last, if that is known.
    root: Option<KnownRoot>,
    /// An attempt that was not answered yet, and the number under which it is heard.
    attempt: Option<(u64, Opening)>,
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
        let mut roots = Self { slots: Vec::new(), of_sites, renewed_ms: 0 };
        let mut news = Vec::new();
        for (path, opened) in paths.iter().zip(open_roots(&paths, ROOT_PATIENCE)) {
            let mut slot = Slot { path: path.to_path_buf(), root: None, attempt: None };
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
        self.slots.iter().filter_map(|slot| slot.attempt.as_ref()).map(|(_, opening)| opening.pid())
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
    fn failed(&self, error: &io::Error) -> String {
        format!("cannot open {}: {error}; until it can be opened it gets 503", self.path.display())
    }
}

fn watch(opening: Opening, epoll: &Epoll, numbers: &mut u64) -> io::Result<(u64, Opening)> {
    *numbers += 1;
    epoll.add(&opening, *numbers, Watch::Input)?;
    Ok((*numbers, opening))
}
