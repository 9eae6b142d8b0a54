//! The log writers of a configuration: the current one, the next one while that starts, and earlier ones that still write their
//! last lines.
//!
//! A log writer opens its file before it gives up its rights, and can open nothing later. So another log writer takes its place
//! when the file must be reopened.

use std::io;

use flash_worker::control::Order;

use super::Generation;
use crate::supervisor::Resources;
use crate::supervisor::life::{Duty, State};
use crate::supervisor::outbox;
use crate::supervisor::process::Process;

/// Maximum log writers that write last lines beside the current one; one more ends the oldest.
const OLD_MAX: usize = 4;

impl Process {
    /// Connects a log writer with a worker.
    pub(super) fn link_log(&mut self, worker: &mut Process) -> io::Result<()> {
        let bytes = 8 * flash_worker::BATCH_BYTES_MAX;
        outbox::link(&mut self.orders, &mut worker.orders, Order::Log, bytes)
    }
}

impl Generation {
    /// Starts a log writer: the current one, connected with every worker, or the next one.
    pub(super) fn start_log(&mut self, duty: Duty, resources: &mut Resources) -> io::Result<()> {
        let mut log = Process::start(duty, &self.settings_file, &mut resources.poller)?;
        if duty == Duty::Log {
            self.processes.workers_mut().try_for_each(|worker| log.link_log(worker))?;
            self.drain_if_late(&mut log);
        }
        self.processes.insert(log, &resources.poller)
    }

    /// Opens the access log again, if it is a file and there still are lines to write: starts the next log writer, which takes
    /// over when it is ready.
    pub(in crate::supervisor) fn reopen_log(&mut self, resources: &mut Resources) {
        if let Err(e) = self.start_next_log(resources) {
            resources
                .report(format!("cannot start a log writer: {e}; the access log continues in the old file"));
        }
    }

    fn start_next_log(&mut self, resources: &mut Resources) -> io::Result<()> {
        if !self.settings.has_log_file() || self.state == State::Killed || self.is_over() {
            return Ok(());
        }
        self.reopens_log_again = self.processes.of(Duty::NextLog).is_some();
        // A current one that has ended opens the file when it starts again.
        if self.processes.of(Duty::Log).is_none() || self.reopens_log_again {
            return Ok(());
        }
        self.start_log(Duty::NextLog, resources)
    }

    /// Lets the next log writer take over if it is ready, and starts another one if one must follow.
    pub(super) fn advance_logs(&mut self, resources: &mut Resources) {
        if self.processes.of(Duty::NextLog).is_some_and(|next| next.is_ready)
            && let Err(e) = self.replace_log()
        {
            let text = format!("cannot connect a worker to the log writer: {e}; its log lines are lost");
            resources.report(text);
        }
        if self.reopens_log_again && self.processes.of(Duty::NextLog).is_none() {
            self.reopen_log(resources);
        }
    }

    /// Puts the next log writer in place of the current one, which writes its pending lines and ends.
    fn replace_log(&mut self) -> io::Result<()> {
        let Some(mut next) = self.processes.take(Duty::NextLog) else { return Ok(()) };
        let connected = self.processes.workers_mut().try_for_each(|worker| next.link_log(worker));
        if let Some(old) = self.processes.of_mut(Duty::Log) {
            old.duty = Duty::OldLog;
            old.drain(None);
        }
        self.processes.cancel_restarts(|duty| duty == Duty::Log);
        let old = self.processes.iter_mut().filter(|process| process.duty == Duty::OldLog);
        let mut old: Vec<_> = old.collect();
        if old.len() > OLD_MAX {
            old[0].kill();
        }
        next.duty = Duty::Log;
        self.drain_if_late(&mut next);
        self.processes.put(next);
        connected
    }

    /// Gives up the next log writer.
    pub(super) fn drop_next_log(&mut self) {
        self.reopens_log_again = false;
        drop(self.processes.take(Duty::NextLog));
    }
}
