//! The warm endpoint's questions as requests of a client of the backend: joined, ordered and bounded like those
//! of the modules. Called by the worker's loop.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;

use super::file_systems::FileSystems;
use super::protocol::{Reply, Request};
use super::warm::{FileRange, WarmRequest, WarmResult};
use super::{Backend, ClientFile, ETIMEDOUT};
use crate::jobs::{JobKey, Urgency, Wanted};
use crate::machine::Task;
use crate::slab::Key;

/// The error number of a file that is not beneath a warm root.
const EXDEV: u32 = 18;

/// How long a file counts as in memory after a helper has loaded it, in milliseconds. If the loop cannot test
/// a file itself, a file that is asked for often costs a job in this time, not one for each question.
const LOADED_MS: u64 = 1000;
/// Maximum number of such files.
const LOADED_MAX: usize = 4096;

/// The answer of the loop's own look at a file, which must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// The name and the part are in memory, or the look-up failed without the disk.
    InMemory,
    /// They are not, or only a helper can find out.
    Unknown,
}

/// The path of a file, and the part of its content.
type LoadedRange = (Box<[u8]>, FileRange);

/// The files that helpers loaded a moment ago.
#[derive(Debug, Default)]
pub(super) struct LoadedFiles {
    until_ms: HashMap<LoadedRange, u64>,
    /// In the order of their times. A file that was loaded again is in it more than once.
    order: VecDeque<(u64, LoadedRange)>,
}

impl LoadedFiles {
    pub(super) fn add(&mut self, path: &[u8], part: FileRange, now_ms: u64) {
        self.forget(now_ms);
        let until_ms = now_ms.saturating_add(LOADED_MS);
        let key = (Box::from(path), part);
        self.order.push_back((until_ms, key.clone()));
        self.until_ms.insert(key, until_ms);
    }

    fn has(&mut self, ask: &WarmRequest, now_ms: u64) -> bool {
        self.forget(now_ms);
        !self.until_ms.is_empty() && self.until_ms.contains_key(&(ask.path.as_slice().into(), ask.part))
    }

    fn forget(&mut self, now_ms: u64) {
        while let Some((until_ms, _)) = self.order.front()
            && (*until_ms <= now_ms || self.order.len() >= LOADED_MAX)
            && let Some((until_ms, key)) = self.order.pop_front()
        {
            if self.until_ms.get(&key) == Some(&until_ms) {
                self.until_ms.remove(&key);
            }
        }
    }
}

impl<F> Backend<F> {
    /// Whether a question of the endpoint is answered at once with [`WarmResult::Done`]: without a job and whatever
    /// waits for one. `look` is called only if the answer depends on it. Otherwise pass the question to
    /// [`Backend::handle_warm_request`].
    pub fn answers_at_once(&mut self, ask: &WarmRequest, look: impl FnOnce() -> Residency) -> bool {
        // The delay for tests holds every reply back.
        let is_known =
            self.delay_ms == 0 && (self.loaded.has(ask, self.now_ms) || look() == Residency::InMemory);
        if is_known {
            self.counters.names += 1;
            self.counters.from_memory += 1;
        }
        is_known
    }

    /// Adds the endpoint as a client that has sent its HELLO. `root` is the backend's own root directory. None at
    /// the limit of connections, which a new backend has not reached.
    pub fn handle_endpoint(&mut self, user: u32, root: ClientFile<F>) -> Option<Key> {
        let client = self.handle_accept(user, true)?;
        let hello = Request::Hello { waiters_max: 0, group: 0, name: b"warm" };
        match self.handle_message(client, hello, Some(root)) {
            ControlFlow::Continue(()) => Some(client),
            ControlFlow::Break(()) => None,
        }
    }

    /// Handles a question of the endpoint, with a number that no other unanswered question has. Its reply comes
    /// from [`Backend::poll_reply`].
    pub fn handle_warm_request(&mut self, client: Key, id: u32, ask: WarmRequest) -> ControlFlow<()> {
        let Some(root) = self.clients.welcomed(client).map(|welcomed| welcomed.root_id) else {
            return ControlFlow::Break(());
        };
        self.counters.names += 1;
        let device = FileSystems::device_of(&self.file_systems, root, &ask.path);
        let share = self.share_of(device);
        let path: Box<[u8]> = ask.path.into();
        let wanted = Wanted {
            key: JobKey::WarmFile(share, path.clone(), ask.part),
            task: Task::WarmFile { path: path.into(), part: ask.part },
            urgency: Urgency::Bounded,
            subject: None,
            remaining_bytes: 0,
        };
        self.ask(client, (id, 0), wanted)
    }
}

/// The answer that a reply of the backend means. An error of the file system is not the endpoint's: the server
/// finds it too.
pub fn answer_of(reply: Reply) -> WarmResult {
    match reply {
        Reply::Errno { number: ETIMEDOUT, .. } => WarmResult::Busy { retry_after_ms: 0 },
        Reply::Errno { number: EXDEV, .. } => WarmResult::Refused,
        Reply::Busy { retry_after_ms, .. } => WarmResult::Busy { retry_after_ms },
        Reply::Ready { .. } | Reply::Errno { .. } | Reply::Hello(_) => WarmResult::Done,
    }
}
