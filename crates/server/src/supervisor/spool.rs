//! The files for request bodies, one for each worker of a generation with routes.
//!
//! A child creates each, because the folder's disk may hang. A worker that starts waits for its file only briefly: without
//! it, long bodies are passed on while they come, and it gets the file as soon as there is one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_waiting::child_call::UnnamedFile;
use flash_worker::control::Order;

use super::poller::{Poller, Watched};
use super::process::Process;
use super::processes::Processes;
use crate::config::{FilePath, Settings};
use crate::convert::spool_slots;

/// Maximum time that a starting worker waits for its file.
const PATIENCE_MS: u64 = 500;

/// The files that workers still want, and the child that creates the next one.
#[derive(Debug)]
pub(super) struct Spool {
    /// None without routes, or without held bodies.
    folder: Option<FilePath>,
    slots: u32,
    waiting: VecDeque<Waiting>,
    creation: Option<FileCreation>,
    /// Whether the folder did not answer in time, or no file could be created, the last time.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Waiting {
    /// The token of its process.
    worker: u64,
    /// When it must begin without the file; None once it has begun.
    begin_ms: Option<u64>,
}

#[derive(Debug)]
struct FileCreation {
    file: Watched<UnnamedFile>,
    late_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    Late,
    Failed,
}

impl Spool {
    /// Without files.
    pub(super) fn none() -> Self {
        Self { folder: None, slots: 0, waiting: VecDeque::new(), creation: None, trouble: None }
    }

    /// The files for workers with these settings.
    pub(super) fn of(settings: &Settings) -> Self {
        let slots = spool_slots(settings);
        let is_wanted = slots > 0 && settings.routes().next().is_some();
        let folder = settings.spool_folder.clone().filter(|_| is_wanted);
        Self { folder, slots, ..Self::none() }
    }

    /// Lets a worker begin that has all its other orders: now, or when it has its file.
    pub(super) fn begin(&mut self, worker: &mut Process, now_ms: u64) -> io::Result<()> {
        if self.folder.is_none() {
            return worker.orders.give_at_start(Order::Begin);
        }
        let mut begin_ms = Some(now_ms + PATIENCE_MS);
        if self.trouble == Some(Trouble::Late) {
            worker.orders.give_at_start(Order::Begin)?;
            begin_ms = None;
        }
        self.waiting.push_back(Waiting { worker: worker.token(), begin_ms });
        Ok(())
    }

    /// Hands out a file that has come, lets workers begin that have waited long enough, and starts the next child.
    /// Returns a message for the operator.
    pub(super) fn advance(
        &mut self,
        now_ms: u64,
        workers: &mut Processes,
        poller: &mut Poller,
    ) -> Option<String> {
        self.waiting.retain(|waiting| workers.has(waiting.worker));
        let message = match self.creation.as_ref().map(|creation| creation.file.item.take()) {
            Some(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => self.judge(now_ms),
            Some(made) => self.take(made, poller, workers),
            None => None,
        };
        for waiting in &mut self.waiting {
            let is_due = waiting.begin_ms.is_some_and(|ms| ms <= now_ms) || self.trouble.is_some();
            if is_due && waiting.begin_ms.take().is_some() {
                // A worker that takes no orders is killed when they are sent again.
                let worker = workers.get_mut(waiting.worker);
                let _ = worker.map(|worker| worker.orders.give_at_start(Order::Begin));
            }
        }
        if self.trouble == Some(Trouble::Failed) {
            self.waiting.clear();
        }
        if self.creation.is_none() && !self.waiting.is_empty() {
            match self.start(now_ms, poller) {
                Ok(creation) => self.creation = Some(creation),
                // The next turn tries again; the workers begin when their time has come.
                Err(_) if self.waiting.iter().any(|waiting| waiting.begin_ms.is_some()) => {}
                Err(_) => self.waiting.clear(),
            }
        }
        message
    }

    fn start(&self, now_ms: u64, poller: &mut Poller) -> io::Result<FileCreation> {
        let file = UnnamedFile::start(self.folder.as_deref().ok_or(io::ErrorKind::NotFound)?)?;
        Ok(FileCreation { file: poller.watch(file)?, late_ms: now_ms + PATIENCE_MS })
    }

    /// Notes that the child has not answered in time.
    fn judge(&mut self, now_ms: u64) -> Option<String> {
        let is_late = self.creation.as_ref().is_some_and(|creation| creation.late_ms <= now_ms);
        if !is_late || self.trouble.replace(Trouble::Late) == Some(Trouble::Late) {
            return None;
        }
        let folder = self.folder.as_deref()?.display();
        Some(format!(
            "the spool directory {folder} does not answer; until it does, long request bodies are passed on while they come"
        ))
    }

    /// Gives the next worker its file.
    fn take(
        &mut self,
        made: io::Result<OwnedFd>,
        poller: &Poller,
        workers: &mut Processes,
    ) -> Option<String> {
        if let Some(creation) = self.creation.take() {
            poller.forget(&creation.file);
        }
        let folder = self.folder.as_deref()?.display();
        let before = self.trouble.take();
        match made {
            Ok(file) => {
                if let Some(waiting) = self.waiting.pop_front()
                    && let Some(worker) = workers.get_mut(waiting.worker)
                {
                    let order = Order::Spool(self.slots, Arc::new(file));
                    // As for `Begin` above.
                    let _ = worker.orders.give_at_start(order);
                    if waiting.begin_ms.is_some() {
                        let _ = worker.orders.give_at_start(Order::Begin);
                    }
                }
                before.map(|_| format!("the spool directory {folder} answers now"))
            }
            Err(e) => {
                self.trouble = Some(Trouble::Failed);
                (before != Some(Trouble::Failed)).then(|| {
                    format!(
                        "passes long request bodies on while they come: cannot create a file in {folder}: {e}; set spool to \
                         another directory, or to \"off\""
                    )
                })
            }
        }
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        let late_ms =
            self.creation.as_ref().filter(|_| self.trouble.is_none()).map(|creation| creation.late_ms);
        self.waiting.iter().filter_map(|waiting| waiting.begin_ms).chain(late_ms).min()
    }
}
