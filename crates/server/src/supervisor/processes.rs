//! A table of processes, by their tokens, and of the processes that must be replaced.

use std::collections::BTreeMap;
use std::io;

use flash_prompt::clock;

use super::life::{Duty, End, Restart, State};
use super::poller::Poller;
use super::process::Process;

/// The processes of a configuration, or the keeper of the store.
#[derive(Debug, Default)]
pub(super) struct Processes {
    all: BTreeMap<u64, Process>,
    restarts: BTreeMap<Duty, Restart>,
}

/// A process that was killed before its time, with the reason.
#[derive(Debug)]
pub(super) struct Kill {
    pub(super) token: u64,
    pub(super) why: String,
}

/// A process that has ended or was abandoned.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) process: Process,
    pub(super) end: End,
}

impl Processes {
    /// Watches a process for messages, and keeps it.
    pub(super) fn insert(&mut self, mut process: Process, poller: &Poller) -> io::Result<()> {
        process.orders.watch(&poller.epoll)?;
        if let Some(restart) = self.restarts.get_mut(&process.duty) {
            restart.due_ms = None;
        }
        self.put(process);
        Ok(())
    }

    pub(super) fn has(&self, token: u64) -> bool {
        self.all.contains_key(&token)
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Process> {
        self.all.get_mut(&token)
    }

    /// All, in the order of their start.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.all.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.all.values_mut()
    }

    pub(super) fn of(&self, duty: Duty) -> Option<&Process> {
        self.iter().find(|process| process.duty == duty)
    }

    pub(super) fn of_mut(&mut self, duty: Duty) -> Option<&mut Process> {
        self.iter_mut().find(|process| process.duty == duty)
    }

    pub(super) fn workers(&self) -> impl Iterator<Item = &Process> {
        self.iter().filter(|process| matches!(process.duty, Duty::Worker(_)))
    }

    pub(super) fn workers_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.iter_mut().filter(|process| matches!(process.duty, Duty::Worker(_)))
    }

    pub(super) fn helpers(&self) -> impl Iterator<Item = &Process> {
        self.iter().filter(|process| matches!(process.duty, Duty::Helper(_)))
    }

    /// Takes out the process with this duty. Its events are ignored until it is put back.
    pub(super) fn take(&mut self, duty: Duty) -> Option<Process> {
        let token = self.of(duty)?.token();
        self.all.remove(&token)
    }

    pub(super) fn put(&mut self, process: Process) {
        self.all.insert(process.token(), process);
    }

    /// Takes out the process of this token if it has ended.
    pub(super) fn take_ended(&mut self, token: u64) -> Option<Ended> {
        let end = self.all.get_mut(&token)?.end()?;
        self.all.remove(&token).map(|process| Ended { process, end })
    }

    /// Continues sending orders, and acts on deadlines. Returns the processes that had to be killed.
    pub(super) fn advance(&mut self, now_ms: u64, poller: &Poller) -> Vec<Kill> {
        let killed = |process: &mut Process| {
            process.advance(now_ms, poller).map(|why| Kill { token: process.token(), why })
        };
        self.iter_mut().filter_map(killed).collect()
    }

    pub(super) fn take_abandoned(&mut self) -> Vec<Ended> {
        let abandoned = self.iter().filter(|process| process.state == State::Abandoned);
        let tokens: Vec<u64> = abandoned.map(Process::token).collect();
        tokens.into_iter().filter_map(|token| self.take_ended(token)).collect()
    }

    /// Plans the replacement of a process that has ended. Returns the pause in milliseconds.
    pub(super) fn replace(&mut self, ended: &Ended) -> u64 {
        let (duty, now_ms) = (ended.process.duty, clock::monotonic_ms());
        let lived_ms = now_ms.saturating_sub(ended.process.started_ms);
        self.restarts.entry(duty).or_default().plan(lived_ms, duty.pauses_after(ended.end), now_ms)
    }

    /// Plans another attempt to start a process, which could not be started.
    pub(super) fn start_later(&mut self, duty: Duty, now_ms: u64) {
        self.restarts.entry(duty).or_default().plan(0, duty.rules().pauses, now_ms);
    }

    /// Plans to start a process of this duty at once.
    pub(super) fn start_now(&mut self, duty: Duty) {
        self.restarts.entry(duty).or_default().due_ms = Some(clock::monotonic_ms());
    }

    /// The processes that must be started now. Each is returned once.
    pub(super) fn take_due(&mut self, now_ms: u64) -> Vec<Duty> {
        let is_due = |restart: &mut Restart| restart.due_ms.take_if(|ms| *ms <= now_ms).is_some();
        self.restarts.iter_mut().filter_map(|(duty, restart)| is_due(restart).then_some(*duty)).collect()
    }

    /// Starts no process again.
    pub(super) fn cancel_restarts(&mut self, of: impl Fn(Duty) -> bool) {
        self.restarts.retain(|duty, _| !of(*duty));
    }

    /// Whether a worker exists or will be started.
    pub(super) fn has_workers(&self) -> bool {
        let planned =
            |(duty, restart): (&Duty, &Restart)| matches!(duty, Duty::Worker(_)) && restart.due_ms.is_some();
        self.workers().next().is_some() || self.restarts.iter().any(planned)
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        let restarts = self.restarts.values().filter_map(|restart| restart.due_ms);
        restarts.chain(self.iter().filter_map(Process::next_ms)).min()
    }
}
