//! The sites' roots, opened once for all processes of a configuration.
//!
//! Only child processes open them, and may hang in the supervisor's place: a root that does not answer delays no start, and
//! the other roles get descriptors instead of paths. Nothing here asks a file system.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::{AsFd, BorrowedFd, clock};
use flash_waiting::root::{Opening, Root};
use flash_waiting::successor::Bequest;

use super::estate::Estate;
use super::outbox::{Outbox, Shared};
use super::poller::{Poller, Watched};
use super::prepare::{FoundRoot, root_paths};
use crate::config::{FilePath, Settings};
use flash_worker::control::Order;

/// The interval between checks of local roots.
const CHECK_MS: u64 = 5_000;
/// Maximum roots checked at once; the next ones follow after a pause.
const CHECKS_MAX: usize = 8;
/// The pause between two such groups.
const CHECK_PAUSE_MS: u64 = 1_000;
/// Minimum interval between two attempts to open roots again.
const RENEWAL_PAUSE_MS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Roots {
    /// Each path once.
    slots: Vec<Slot>,
    /// The slot of each site.
    of_sites: Vec<usize>,
    /// The time of the last attempt to open them again.
    renewed_ms: u64,
    /// The next slot to check, and the time.
    next_check: (usize, u64),
}

/// One path.
#[derive(Debug)]
struct Slot {
    path: FilePath,
    /// The last opened root, if known.
    root: Option<OpenRoot>,
    /// An attempt without an answer yet.
    attempt: Option<Watched<Opening>>,
    /// A check of the path's current target. It changes nothing else.
    check: Option<Watched<Opening>>,
    /// The difference that the last check found; reported once.
    changed: Option<Changed>,
}

/// A change of a local root's path.
#[derive(Debug, PartialEq, Eq)]
enum Changed {
    /// It leads to the folder of this identity; None for one on a file system that may hang, which is not asked.
    Replaced(Option<(u64, u64)>),
    /// It leads nowhere.
    Gone,
}

#[derive(Debug)]
struct OpenRoot {
    folder: Shared,
    is_local: bool,
    reports_changes: bool,
    /// See [`Root::identity`].
    identity: (u64, u64),
}

/// [`Roots`] as the next program takes them over.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftRoots {
    slots: Vec<LeftRoot>,
    of_sites: Vec<usize>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LeftRoot {
    path: FilePath,
    /// The folder, and whether it is local.
    open: Option<(usize, bool)>,
}

impl From<Root> for OpenRoot {
    fn from(root: Root) -> Self {
        let Root { folder, is_local, reports_changes, identity } = root;
        Self { folder: Arc::new(folder), is_local, reports_changes, identity }
    }
}

impl Roots {
    /// The roots of these settings, as they were found. Returns messages for the operator.
    ///
    /// Errors: those of starting another attempt at a root that hangs.
    pub(super) fn of(
        settings: &Settings,
        found: Vec<FoundRoot>,
        poller: &mut Poller,
    ) -> io::Result<(Self, Vec<String>)> {
        let paths = root_paths(settings);
        let slot_of = |root| paths.binary_search(root).unwrap_or(0);
        let of_sites = settings.folders().map(slot_of).collect();
        let next_check = (0, clock::monotonic_ms() + CHECK_MS);
        let mut roots = Self { slots: Vec::new(), of_sites, renewed_ms: 0, next_check };
        let mut messages = Vec::new();
        for (path, found) in paths.into_iter().zip(found) {
            let mut slot = Slot { path, root: None, attempt: None, check: None, changed: None };
            match found {
                FoundRoot::Open(root) => slot.root = Some(root.into()),
                FoundRoot::Hangs => {
                    messages.push(format!(
                        "root {} does not answer; requests for it get 503 until it does",
                        slot.path.display()
                    ));
                    slot.attempt = Some(poller.watch(Opening::start(&slot.path)?)?);
                }
                FoundRoot::Failed(why) => messages.push(slot.failed(&why)),
            }
            roots.slots.push(slot);
        }
        Ok((roots, messages))
    }

    /// Leaves them to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftRoots> {
        let mut leave = |slot: &Slot| {
            let open =
                slot.root.as_ref().map(|root| io::Result::Ok((bequest.add(&*root.folder)?, root.is_local)));
            Ok(LeftRoot { path: slot.path.clone(), open: open.transpose()? })
        };
        let slots = self.slots.iter().map(&mut leave).collect::<io::Result<_>>()?;
        Ok(LeftRoots { slots, of_sites: self.of_sites.clone() })
    }

    /// Takes over the roots of an earlier program, which are only given to helpers.
    pub(super) fn adopt(left: LeftRoots, estate: &mut Estate) -> io::Result<Self> {
        let mut slots = Vec::with_capacity(left.slots.len());
        for LeftRoot { path, open } in left.slots {
            let open = open.map(|(number, is_local)| {
                let folder = Arc::new(estate.take(number)?);
                io::Result::Ok(OpenRoot { folder, is_local, reports_changes: false, identity: (0, 0) })
            });
            slots.push(Slot { path, root: open.transpose()?, attempt: None, check: None, changed: None });
        }
        Ok(Self { slots, of_sites: left.of_sites, renewed_ms: 0, next_check: (0, u64::MAX) })
    }

    /// Opens roots again that may have been remounted, while others continue: called when a helper found a root gone
    /// or missing.
    pub(super) fn renew(&mut self, now_ms: u64, poller: &mut Poller) {
        if now_ms < self.renewed_ms + RENEWAL_PAUSE_MS {
            return;
        }
        self.renewed_ms = now_ms;
        let may_have_gone = |slot: &Slot| slot.root.as_ref().is_none_or(|root| !root.is_local);
        for slot in self.slots.iter_mut().filter(|slot| slot.attempt.is_none() && may_have_gone(slot)) {
            // If this fails for lack of processes or memory, the next helper that needs the root causes another
            // attempt.
            let opening = Opening::start(&slot.path);
            slot.attempt = opening.and_then(|opening| poller.watch(opening)).ok();
        }
    }

    /// Checks whether the paths of local roots still lead to the served folders, a few at once. A root that hangs has
    /// no other check until it answers.
    pub(super) fn check_when_due(&mut self, now_ms: u64, poller: &mut Poller) {
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
                // If this fails for lack of processes or memory, the next round checks it.
                let opening = Opening::start(&slot.path);
                slot.check = opening.and_then(|opening| poller.watch(opening)).ok();
                room -= 1;
            }
        }
        self.next_check = (0, now_ms + CHECK_MS);
    }

    pub(super) fn next_ms(&self) -> u64 {
        self.next_check.1
    }

    /// Sends a role the known roots, in the order of the sites.
    pub(super) fn give(&self, orders: &mut Outbox) -> io::Result<()> {
        for (site, slot) in self.of_sites.iter().enumerate() {
            if let Some(OpenRoot { is_local, folder, .. }) = &self.slots[*slot].root {
                let folder = Arc::clone(folder);
                orders.give_at_start(Order::Root { site, is_local: *is_local, folder })?;
            }
        }
        Ok(())
    }

    /// Handles a late answer, if `token` is that of an attempt or a check. Returns a message for the operator.
    pub(super) fn handle(&mut self, token: u64, poller: &Poller) -> Option<String> {
        for slot in &mut self.slots {
            if let Some(answer) = take_answer(&mut slot.check, token, poller) {
                return slot.handle_check(answer);
            }
            if let Some(answer) = take_answer(&mut slot.attempt, token, poller) {
                return slot.handle_attempt(answer);
            }
        }
        None
    }

    /// The number of roots that may hang, or do.
    pub(super) fn others_len(&self) -> usize {
        let is_local = |slot: &&Slot| slot.root.as_ref().is_some_and(|root| root.is_local);
        self.slots.len() - self.slots.iter().filter(is_local).count()
    }

    /// The roots whose file systems report every change.
    pub(super) fn reporting(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let roots = self.slots.iter().filter_map(|slot| slot.root.as_ref());
        roots.filter(|root| root.reports_changes).map(|root| root.folder.as_fd())
    }

    /// The number of roots, and of those whose file systems report every change.
    pub(super) fn reporting_len(&self) -> (usize, usize) {
        let tells = |slot: &&Slot| slot.root.as_ref().is_some_and(|root| root.reports_changes);
        (self.slots.len(), self.slots.iter().filter(tells).count())
    }
}

impl Slot {
    /// Handles the answer of an attempt. Returns a message for the operator.
    fn handle_attempt(&mut self, answer: io::Result<Root>) -> Option<String> {
        match answer {
            Ok(root) => {
                let is_new = self.root.replace(root.into()).is_none();
                is_new.then(|| format!("root {} answers now", self.path.display()))
            }
            Err(e) => self.root.take().map(|_| self.failed(&e.to_string())),
        }
    }

    /// Handles the answer of a check. Returns a message for the operator.
    fn handle_check(&mut self, answer: io::Result<Root>) -> Option<String> {
        let served = self.root.as_ref()?;
        let path = self.path.display();
        let (changed, text) = match answer {
            Ok(found) if found.is_local && found.identity == served.identity => (None, None),
            Ok(found) => {
                let text = format!("root {path} was replaced; Flash serves the old folder until HUP");
                (Some(Changed::Replaced(found.is_local.then_some(found.identity))), Some(text))
            }
            Err(e) => {
                let text =
                    format!("cannot open root {path} any more: {e}; Flash still serves the old folder");
                (Some(Changed::Gone), Some(text))
            }
        };
        let is_known = self.changed == changed;
        self.changed = changed;
        text.filter(|_| !is_known)
    }

    fn failed(&self, error: &str) -> String {
        format!("cannot open root {}: {error}; requests for it get 503 until it opens", self.path.display())
    }
}

/// The answer of a child, if it has this token and has answered; then it is forgotten.
fn take_answer(
    child: &mut Option<Watched<Opening>>,
    token: u64,
    poller: &Poller,
) -> Option<io::Result<Root>> {
    let opening = child.as_ref().filter(|opening| opening.token == token)?;
    let answer = opening.item.take();
    if answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) {
        return None;
    }
    poller.forget(opening);
    *child = None;
    Some(answer)
}
