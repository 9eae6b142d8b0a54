//! The log writers of a generation: the one that the workers send their lines to, the one that is to follow it,
//! and those that still write the last lines of before.
//!
//! A log writer can open its file again only in the folders that it was started with: the sandbox sees to that.
//! Where the folder was replaced, another log writer takes its place.

use std::io;

use flash_prompt::epoll::Epoll;
use flash_waiting::process;

use super::crew::{RESTART_PAUSE_MS, Role, Worker, connect_log, end, has_ended};
use super::outbox::Shared;
use crate::sandbox::Role as Part;
use flash_worker::control::Order;

/// Log writers that write last lines while another one is at work; of more, the oldest is ended.
const OLD_MAX: usize = 4;

/// The log writers of a generation.
#[derive(Debug, Default)]
pub(super) struct Logs {
    pub(super) current: Option<Role>,
    /// Starts because the current one could not open its file again.
    next: Option<Role>,
    /// Told to end once their last lines are written, in the order of their start.
    old: Vec<Role>,
    /// When the current one, which has ended, is to be started again.
    restart_ms: Option<u64>,
}

/// What has become of a log writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The one at work has ended although it is needed.
    Current,
    /// One that was to take its place did not begin.
    Next,
}

impl Logs {
    /// Starts the first one.
    pub(super) fn start(&mut self, settings: &Shared, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        self.current = Some(start_role(settings, epoll, numbers)?);
        Ok(())
    }

    /// All there are.
    pub(super) fn roles(&self) -> impl Iterator<Item = &Role> {
        self.current.iter().chain(&self.next).chain(&self.old)
    }

    /// All there are, to be given orders.
    pub(super) fn roles_mut(&mut self) -> impl Iterator<Item = &mut Role> {
        self.current.iter_mut().chain(&mut self.next).chain(&mut self.old)
    }

    /// Whether the one at work has begun, if there is one.
    pub(super) fn is_ready(&self) -> bool {
        self.current.as_ref().is_none_or(|log| log.ready.is_some())
    }

    /// Has the file opened again.
    ///
    /// Errors: it does not take its orders.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        self.current.iter_mut().chain(&mut self.next).try_for_each(|log| log.orders.give(Order::Reopen))
    }

    /// Starts one that opens the file anew, since the one at work cannot. It takes over when it has begun.
    pub(super) fn start_next(
        &mut self,
        settings: &Shared,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        if self.next.is_none() {
            self.next = Some(start_role(settings, epoll, numbers)?);
        }
        Ok(())
    }

    /// Has the next one take over if it has begun. The one before it writes what it was sent, and ends.
    pub(super) fn take_over(&mut self, workers: &mut [Worker]) -> io::Result<()> {
        let Some(mut next) = self.next.take_if(|next| next.ready.is_some()) else { return Ok(()) };
        let connected = workers.iter_mut().try_for_each(|worker| connect_log(&mut next, &mut worker.role));
        if let Some(mut old) = self.current.replace(next) {
            if old.orders.give(Order::Drain).is_err() {
                process::kill(&old.child);
            }
            self.old.push(old);
        }
        self.restart_ms = None;
        if self.old.len() > OLD_MAX {
            process::kill(&self.old[0].child);
        }
        connected
    }

    /// Takes note of those that have ended; the one at work is started again if it is `needed`.
    pub(super) fn reap(&mut self, needed: bool) -> Option<Ended> {
        self.old.retain_mut(|log| !has_ended(&mut log.child));
        if self.next.as_mut().is_some_and(|log| has_ended(&mut log.child)) {
            self.next = None;
            return Some(Ended::Next);
        }
        let log = self.current.take_if(|log| has_ended(&mut log.child))?;
        self.restart_ms = needed.then(|| log.restart_ms());
        Some(Ended::Current)
    }

    /// Starts the one at work again when its time has come, and connects every worker to it.
    pub(super) fn restart_when_due(
        &mut self,
        now_ms: u64,
        workers: &mut [Worker],
        settings: &Shared,
        (epoll, numbers): (&Epoll, &mut u64),
    ) -> io::Result<()> {
        if self.restart_ms.is_none_or(|ms| ms > now_ms) {
            return Ok(());
        }
        self.restart_ms = None;
        let restarted = start_role(settings, epoll, numbers).and_then(|mut log| {
            let connected = workers.iter_mut().try_for_each(|worker| connect_log(&mut log, &mut worker.role));
            self.current = Some(log);
            connected
        });
        if restarted.is_err() {
            self.restart_ms = Some(now_ms + RESTART_PAUSE_MS);
        }
        restarted
    }

    /// Has them end when the lines of the workers that there are have come.
    pub(super) fn drain(&mut self) {
        self.restart_ms = None;
        if let Some(next) = self.next.take() {
            end(next.child);
        }
        for log in self.roles_mut() {
            if log.orders.give(Order::Drain).is_err() {
                process::kill(&log.child);
            }
        }
    }

    /// Ends those that could not be told what they need, and waits for it.
    pub(super) fn end(&mut self) {
        let logs = [self.current.take(), self.next.take()].into_iter().flatten();
        logs.chain(self.old.drain(..)).for_each(|log| end(log.child));
    }

    /// Ends all at once.
    pub(super) fn kill(&self) {
        self.roles().for_each(|log| process::kill(&log.child));
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.roles().next().is_none()
    }

    /// When they want attention.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.roles().filter_map(Role::begin_ms).chain(self.restart_ms).min()
    }
}

fn start_role(settings: &Shared, epoll: &Epoll, numbers: &mut u64) -> io::Result<Role> {
    *numbers += 1;
    let mut role = Role::start(Part::Log, settings, *numbers)?;
    if let Err(e) = role.orders.watch(epoll) {
        end(role.child);
        return Err(e);
    }
    Ok(role)
}
