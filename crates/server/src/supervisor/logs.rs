//! The log writers of a generation: the current one, its successor while that starts, and earlier ones that still write their
//! last lines.
//!
//! A log writer opens its file before it gives up its rights, and can open nothing later. So another log writer takes its place
//! when the file must be reopened.

use std::io;

use flash_prompt::epoll::Epoll;

use super::child::Ending;
use super::crew::{Role, Worker, connect_log};
use super::outbox::Shared;
use super::restart::{Need, Restart};
use crate::sandbox::Role as Part;

/// Maximum log writers that write last lines beside the current one; one more ends the oldest.
const OLD_MAX: usize = 4;

/// The log writers of a generation.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) current: Option<Role>,
    /// The successor, which opens the file again.
    next: Option<Role>,
    /// Whether the file must be opened once more after that: it may have been renamed since the successor opened it.
    reopens_again: bool,
    /// Whether a successor ends after the lines of the current workers.
    draining: bool,
    /// Log writers that end after their last lines, in the order of their start.
    old: Vec<Role>,
    /// The restart of the current one, which has ended.
    restart: Restart,
}

/// The end of a log writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The current one has ended unexpectedly; another one follows if `again`.
    Current { again: bool, end: Ending },
    /// The current one has written its last line.
    Done,
    /// The successor was not ready.
    Next,
}

impl Logs {
    /// Starts the first one.
    pub(super) fn start(&mut self, settings: &Shared, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        self.current = Some(Role::start_watched(Part::Log, settings, epoll, numbers)?);
        Ok(())
    }

    /// All log writers.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.current.iter().chain(&self.next).chain(&self.old)
    }

    /// All log writers, to send them orders.
    pub(super) fn roles_mut(&mut self) -> impl Iterator<Item = &mut Role> {
        self.current.iter_mut().chain(&mut self.next).chain(&mut self.old)
    }

    /// Whether the current one, if there is one, is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.current.as_ref().is_none_or(|log| log.ready.is_some())
    }

    /// Starts a successor that opens the file again. It takes over when it is ready.
    pub(super) fn reopen(&mut self, settings: &Shared, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        self.reopens_again = self.next.is_some();
        // One that has ended opens the file when it starts again.
        if self.current.is_some() && self.next.is_none() {
            self.next = Some(Role::start_watched(Part::Log, settings, epoll, numbers)?);
        }
        Ok(())
    }

    /// Switches to the successor if it is ready. The previous one writes its pending lines and ends.
    pub(super) fn take_over(&mut self, workers: &mut [Worker]) -> io::Result<()> {
        let Some(mut next) = self.next.take_if(|next| next.ready.is_some()) else { return Ok(()) };
        let connected = workers.iter_mut().try_for_each(|worker| connect_log(&mut next, &mut worker.role));
        if let Some(mut old) = self.current.replace(next) {
            old.drain();
            self.old.push(old);
        }
        if self.draining {
            self.current.iter_mut().for_each(Role::drain);
        }
        self.restart.cancel();
        if self.old.len() > OLD_MAX {
            self.old[0].child.kill();
        }
        connected
    }

    /// Reaps log writers; the current one is restarted if it is needed.
    pub(super) fn reap(&mut self, need: Need) -> Option<Ended> {
        self.old.retain_mut(|log| log.child.ending().is_none());
        if self.next.as_mut().is_some_and(|log| log.child.ending().is_some()) {
            self.next = None;
            return Some(Ended::Next);
        }
        let end = self.current.as_mut()?.child.ending()?;
        let log = self.current.take()?;
        let again = need.wants_another(end);
        if again {
            self.restart.plan(&log);
        }
        Some(if need != Need::ToServe && end.is_success() {
            Ended::Done
        } else {
            Ended::Current { again, end }
        })
    }

    /// Restarts the current one when its time has come, and connects every worker to it. One for workers that drain
    /// drains too. Starts another successor if one must follow.
    pub(super) fn restart_when_due(
        &mut self,
        (now_ms, need): (u64, Need),
        workers: &mut [Worker],
        settings: &Shared,
        (epoll, numbers): (&Epoll, &mut u64),
    ) -> io::Result<()> {
        if self.reopens_again && self.next.is_none() {
            self.reopen(settings, epoll, numbers)?;
        }
        if !self.restart.take_due(now_ms) {
            return Ok(());
        }
        let restarted = Role::start_watched(Part::Log, settings, epoll, numbers).and_then(|mut log| {
            let connected = workers.iter_mut().try_for_each(|worker| connect_log(&mut log, &mut worker.role));
            if need == Need::ToDrain {
                log.drain();
            }
            self.current = Some(log);
            connected
        });
        if restarted.is_err() {
            self.restart.plan_again(now_ms);
        }
        restarted
    }

    /// Makes them end after the lines of the current workers.
    pub(super) fn drain(&mut self) {
        self.restart.cancel();
        (self.draining, self.reopens_again) = (true, false);
        if let Some(next) = self.next.take() {
            next.child.kill();
        }
        self.roles_mut().for_each(Role::drain);
    }

    /// Kills all and forgets them.
    pub(super) fn end(&mut self) {
        let logs = [self.current.take(), self.next.take()].into_iter().flatten();
        logs.chain(self.old.drain(..)).for_each(|log| log.child.kill());
    }

    /// Kills all at once.
    pub(super) fn kill(&self) {
        self.roles().for_each(|log| log.child.kill());
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.roles().next().is_none()
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.roles().filter_map(Role::begin_ms).chain(self.restart.next_ms()).min()
    }
}
