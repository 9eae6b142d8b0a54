//! The analysis of events: which threads blocked in which calls, why, and which connections waited behind them.
//!
//! `recorder` feeds it events in the order of their times, asks it now and then to look at the world for
//! what events do not tell, and takes the [`Trace`](super::model::Trace) at the end. It makes no system call
//! and reads no clock but by [`World`]. Events may be missing, and begin and end anywhere. Everything it
//! keeps has a bound; what does not fit is counted.

mod begin;
mod descriptors;
mod finish;
mod keep;
mod look;
mod pollers;
mod pools;
mod requests;
mod stacks;
mod switches;
mod thread;
mod timeline;
mod waits;

use std::collections::{BTreeMap, HashMap, HashSet};

use super::calls::{self, Call, Effect};
use super::event::{Event, What};
use super::model::{Batch, BlockedCall, Missing, Process, Reason, TargetKind};
use super::world::World;
use descriptors::{Descriptors, Slot};
use keep::Kept;
use pollers::Pollers;
use pools::Pools;
use requests::{Requests, Threads};
use stacks::Stacks;
use thread::{Blocked, Ended, Mode, Open, Received, Thread, is_error};
use timeline::Timeline;
use waits::Handled;

/// Threads that are followed, at most, those that have ended included.
const THREADS_MAX: usize = 16_384;
/// Threads that are not followed and counted, at most.
const DROPPED_MAX: usize = 1 << 17;
/// Threads that have a timeline, at most.
const TIMELINES_MAX: usize = 64;
/// Processes that are remembered, at most.
const PROCESSES_MAX: usize = 16_384;
/// Blocked calls that wait to be completed, at most.
const PENDING_MAX: usize = 8_192;
/// Stands for the descriptor of calls that wait for events at none; with the number of the thread.
const NO_DESCRIPTOR: u64 = 1 << 63;
/// Those that waited behind a call and are named, at most.
const WAITERS_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Analysis {
    start_ns: u64,
    threads: BTreeMap<u32, Thread>,
    processes: BTreeMap<u32, Process>,
    /// Processes whose names are to be looked up.
    unnamed: HashSet<u32>,
    stacks: Stacks,
    descriptors: Descriptors,
    /// Threads that are off their core in a call now, and were not looked at yet.
    blocked_now: HashSet<u32>,
    /// Threads that are not followed, as there are too many.
    dropped: HashSet<u32>,
    /// Blocked calls that have ended, and whose cost or target is not known yet.
    pending: HashMap<u64, Pending>,
    next_id: u64,
    kept: Kept,
    timelines: Vec<u32>,
    requests: Requests,
    pollers: Pollers,
    pools: Pools,
    processes_of_threads: HashSet<u32>,
    /// Threads that turned from one descriptor to another and back: whether both are connections is yet to be looked up.
    alternating: HashMap<u32, (i32, i32)>,
    missing: Missing,
}

/// A blocked call that is not complete yet.
#[derive(Debug)]
struct Pending {
    call: BlockedCall,
    stack: Option<u32>,
    end_ns: u64,
    /// Its batch goes on.
    is_open: bool,
    has_looked: bool,
    /// The descriptor of the connection that the thread worked for.
    works_for: Option<i32>,
}

impl Analysis {
    pub(crate) fn new(start_ns: u64) -> Self {
        Self { start_ns, ..Self::default() }
    }

    /// A thread that waits for events has a timeline, as long as there are not too many.
    fn draw(&mut self, tid: u32) {
        if let Some(thread) = self.threads.get_mut(&tid)
            && thread.open.as_ref().is_some_and(|open| open.is_wait)
            && thread.timeline.is_none()
            && self.timelines.len() < TIMELINES_MAX
        {
            thread.timeline = Some(Timeline::default());
            self.timelines.push(tid);
        }
    }

    /// The threads that have not ended as far as events tell: process and thread.
    pub(crate) fn running(&self) -> Vec<(u32, u32)> {
        let running = self.threads.iter().filter(|(_, thread)| !thread.has_ended);
        running.map(|(tid, thread)| (thread.data.pid, *tid)).collect()
    }

    pub(crate) fn has_running_threads(&self) -> bool {
        self.threads.values().any(|thread| !thread.has_ended)
    }

    fn add_process(&mut self, pid: u32, parent: u32) {
        if self.processes.len() < PROCESSES_MAX && !self.processes.contains_key(&pid) {
            self.processes.insert(pid, Process { pid, parent, ..Process::default() });
            self.unnamed.insert(pid);
        }
    }

    fn thread(&mut self, pid: u32, tid: u32, name: &str, may_be_cut: bool) -> Option<&mut Thread> {
        if !self.threads.contains_key(&tid) {
            if self.threads.len() >= THREADS_MAX {
                if self.dropped.len() < DROPPED_MAX && self.dropped.insert(tid) {
                    self.missing.threads_dropped += 1;
                }
                return None;
            }
            self.threads.insert(tid, Thread::new(pid, tid, name, may_be_cut));
            if pid != tid {
                self.processes_of_threads.insert(pid);
            }
        }
        self.threads.get_mut(&tid)
    }

    /// The next event.
    pub(crate) fn feed(&mut self, event: Event, world: &impl World) {
        let Event { time_ns, core, pid, tid, what } = event;
        let has_begun = time_ns >= self.start_ns;
        match what {
            What::Lost { count } => return self.lost(core, count, time_ns),
            What::Passed(segment) => {
                let threads = Threads { all: &self.threads, loops: &self.timelines, pollers: &self.pollers };
                self.requests.exhausted = self.pools.exhausted(time_ns);
                self.requests.passed(&segment, time_ns, threads);
                return self.pools.requests(self.requests.awaited(), time_ns);
            }
            _ => {}
        }
        let stacks = &mut self.stacks;
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.core = core;
            thread.account(time_ns, |stack, call| stacks.reason(stack, call));
        } else if self.thread(pid, tid, "", true).is_none() {
            return;
        } else {
            self.add_process(pid, 0);
        }
        match what {
            What::Enter { .. } | What::Exit { .. } | What::Off { .. } | What::On if !has_begun => {
                self.before(tid, &what);
            }
            What::Enter { call, args } => self.enter(tid, time_ns, call, args),
            What::Exit { call, result } => self.exit(tid, time_ns, call, result),
            What::Stack { frames } => {
                let number = self.stacks.number(frames, world);
                self.change(tid, |thread| thread.stack = number);
            }
            What::Off { runnable } => self.off(tid, time_ns, runnable),
            What::On => self.on(tid, time_ns),
            What::Fork { child_pid, child_tid } => self.fork(pid, tid, child_pid, child_tid),
            What::End => self.end(pid, tid),
            What::Name { name, executed } => self.named(pid, tid, name, executed),
            What::Lost { .. } | What::Passed(_) => {}
        }
    }

    fn change(&mut self, tid: u32, change: impl FnOnce(&mut Thread)) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            change(thread);
        }
    }

    /// Events of a core were lost: the states of threads that ran on it are unknown.
    fn lost(&mut self, core: u32, count: u64, now_ns: u64) {
        self.missing.events_lost += count;
        let mut closed = Vec::new();
        self.requests.sending.clear();
        // One that has no core may have had this one meanwhile.
        let may_be_there = |thread: &Thread| thread.core == core || thread.mode != Mode::On;
        let mut unknown = Vec::new();
        for (tid, thread) in self.threads.iter_mut().filter(|(_, thread)| may_be_there(thread)) {
            let in_call = thread.open.take().is_some_and(|open| !open.is_outside);
            self.missing.calls_broken += u64::from(in_call);
            thread.is_known = false;
            thread.mode = Mode::Unknown;
            thread.stack = None;
            (thread.may_be_cut, thread.sends) = (false, false);
            closed.extend(thread.batch.take());
            unknown.push(*tid);
        }
        closed.into_iter().for_each(|batch| self.close(batch));
        unknown.into_iter().for_each(|tid| self.polls_no_more(tid, now_ns));
    }

    fn enter(&mut self, tid: u32, now_ns: u64, number: u64, args: [u64; 6]) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match thread.open.take() {
            // A call seen in progress at the start had ended when the recording began.
            Some(open) if open.began_before => self.missing.calls_cut += 1,
            Some(open) if !open.is_outside => self.missing.calls_broken += 1,
            _ => {}
        }
        (thread.is_known, thread.may_be_cut, thread.mode, thread.since_ns) = (true, false, Mode::On, now_ns);
        thread.sends = false;
        let call = calls::call(number);
        let is_wait = thread.is_wait(call, &args);
        thread.open = Some(Open::new(number, args, now_ns, is_wait));
        self.draw(tid);
        if is_wait {
            self.polls(tid, now_ns);
        }
        // A call may block before it gets anywhere, and the descriptor has had its turn then.
        self.requests.sending.remove(&tid);
        if let Some(at) = call.fd.filter(|_| call.effect != Effect::OpensSocket) {
            let fd = args[at] as i32;
            let pid = self.threads.get(&tid).map_or(0, |thread| thread.data.pid);
            if call.sends && !self.descriptors.is_file(pid, fd) {
                self.requests.sending.insert(tid);
                self.change(tid, |thread| thread.sends = true);
            }
            self.handle(tid, call, Handled { ready: fd, works_for: fd }, now_ns);
        }
    }

    fn exit(&mut self, tid: u32, now_ns: u64, number: u64, result: i64) {
        self.blocked_now.remove(&tid);
        self.requests.sending.remove(&tid);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let open = thread.open.take();
        let was_known = std::mem::replace(&mut thread.is_known, true);
        (thread.mode, thread.since_ns, thread.last_call) = (Mode::On, now_ns, Some(number));
        let is_first = std::mem::take(&mut thread.may_be_cut);
        thread.sends = false;
        let Some(open) = open.filter(|open| open.call == number) else {
            // The first that is heard of a thread may be the end of a call.
            if is_first {
                self.missing.calls_cut += 1;
            } else if was_known {
                self.missing.calls_broken += 1;
            }
            return;
        };
        let ended = Ended { at_ns: now_ns, result };
        if open.began_before {
            return self.ended_from_before(tid, &open, ended);
        }
        let reason = open.has_blocked().then(|| self.stacks.reason(open.stack, number));
        thread.count(&open, ended, reason);
        let call = calls::call(number);
        if open.is_wait {
            return self.waited(tid, &open, ended);
        }
        if open.has_blocked() {
            self.blocked(tid, &open, ended, false);
        }
        self.follow(tid, &open, call, ended);
        if let (Effect::OpensSocket, Some(at), Ok(accepted @ 0..)) =
            (call.effect, call.fd, i32::try_from(result))
        {
            // The ready descriptor is the listening socket; the one who waited is the new connection.
            self.handle(tid, call, Handled { ready: open.args[at] as i32, works_for: accepted }, now_ns);
        }
        if let (Some(at), Some(fd)) = (call.filled, call.fd) {
            let length = usize::try_from(result).unwrap_or(0);
            self.received(tid, Received { fd: open.args[fd] as i32, address: open.args[at], length }, now_ns);
        }
    }

    /// A call that had begun before the trace has ended. It is counted only if it has blocked on what nobody
    /// waits for idly.
    fn ended_from_before(&mut self, tid: u32, open: &Open, ended: Ended) {
        self.missing.calls_cut += 1;
        let reason = self.stacks.reason(open.stack, open.call);
        if open.is_wait {
            self.waited(tid, open, ended);
        } else if !reason.may_be_idle() {
            self.change(tid, |thread| thread.count(open, ended, Some(reason)));
            self.blocked(tid, open, ended, true);
        }
    }

    fn fork(&mut self, pid: u32, tid: u32, child_pid: u32, child_tid: u32) {
        let name = self.threads.get(&tid).map(|thread| thread.data.name.clone()).unwrap_or_default();
        if self.threads.get(&child_tid).is_some_and(|thread| thread.has_ended) {
            // The number is used again.
            self.change(child_tid, |thread| (thread.data.pid, thread.has_ended) = (child_pid, false));
        }
        self.thread(child_pid, child_tid, &name, false);
        if child_pid != pid {
            self.add_process(child_pid, pid);
            self.descriptors.forked(pid, child_pid);
        }
    }

    /// A thread has ended; its event of that may be lost.
    pub(crate) fn end(&mut self, pid: u32, tid: u32) {
        self.blocked_now.remove(&tid);
        self.requests.sending.remove(&tid);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        // exit(2) and the call that a signal ended have no end of their own.
        (thread.open, thread.is_known, thread.mode, thread.has_ended) = (None, false, Mode::Unknown, true);
        let (batch, now_ns) = (thread.batch.take(), thread.since_ns);
        batch.into_iter().for_each(|batch| self.close(batch));
        self.polls_no_more(tid, now_ns);
        if pid == tid {
            self.descriptors.forget(pid);
        }
    }

    fn named(&mut self, pid: u32, tid: u32, name: String, executed: bool) {
        self.change(tid, |thread| thread.data.name = name);
        if executed {
            self.descriptors.forget(pid);
            // Another thread than the first one executes it: that one has ended, and this has its number now.
            self.change(tid, |thread| thread.has_ended = false);
        }
        if pid == tid {
            self.unnamed.insert(pid);
        }
    }

    /// A call has blocked, and ended.
    fn blocked(&mut self, tid: u32, open: &Open, ended: Ended, is_cut: bool) {
        let Ended { at_ns: end_ns, result } = ended;
        let reason = self.stacks.reason(open.stack, open.call);
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        let id = self.next_id;
        self.next_id += 1;
        let start_ns = open.start_ns;
        let mut call = BlockedCall {
            pid: thread.data.pid,
            tid,
            call: calls::name(open.call),
            start_ns: start_ns.saturating_sub(self.start_ns),
            duration_ns: end_ns.saturating_sub(start_ns),
            on_cpu_ns: open.on_cpu_ns,
            blocked_ns: open.blocked_ns,
            runnable_ns: open.runnable_ns,
            switches: open.switches,
            reason,
            result,
            is_cut,
            ..BlockedCall::default()
        };
        let mut is_open = false;
        if let Some(batch) = &mut thread.batch {
            let turned_to = batch.ready.min(batch.handled.len() as u32);
            call.batch = Some(Batch { ready: batch.ready, turned_to, ..Batch::default() });
            is_open = batch.add(id);
        }
        look::arguments(&mut call, open, &self.descriptors, end_ns);
        let has_looked = call.target.is_some() || call.fd.is_none();
        let works_for = thread.works_for;
        if !matches!(reason, Reason::Futex) {
            thread.remember(Blocked { start_ns, end_ns, blocked_ns: open.blocked_ns, works_for });
        }
        let pending = Pending { call, stack: open.stack, end_ns, is_open, has_looked, works_for };
        if !is_open && has_looked {
            self.keep(pending);
        } else if self.pending.len() < PENDING_MAX {
            self.pending.insert(id, pending);
        } else {
            self.missing.blocked_dropped += 1;
        }
    }

    /// Bytes were received that may be a request.
    fn received(&mut self, tid: u32, received: Received, now_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        if received.length > 0 && !self.descriptors.is_file(thread.data.pid, received.fd) {
            thread.received = Some(received);
            thread.has_received(received.fd, now_ns);
        }
    }

    /// Keeps the table of descriptors as the process has it.
    fn follow(&mut self, tid: u32, open: &Open, call: Call, Ended { at_ns: now_ns, result }: Ended) {
        let pid = self.threads.get(&tid).map_or(0, |thread| thread.data.pid);
        let anonymous = |kind| Slot { kind, name: None };
        let result_fd = i32::try_from(result).ok().filter(|fd| *fd >= 0);
        match (call.effect, result_fd) {
            (Effect::OpensFile, Some(fd)) => {
                let path = open.looked.as_ref().filter(|looked| looked.at_ns <= now_ns);
                let name = path.and_then(|looked| looked.target.as_ref()).map(|t| (t.name.clone(), now_ns));
                self.descriptors.opened(pid, fd, Slot { kind: TargetKind::File, name });
            }
            (Effect::OpensSocket, Some(fd)) => {
                self.descriptors.opened(pid, fd, anonymous(TargetKind::Socket));
            }
            (Effect::OpensAnonymous, Some(fd)) => {
                self.descriptors.opened(pid, fd, anonymous(TargetKind::Anonymous));
            }
            (Effect::Duplicates, Some(fd)) => self.descriptors.duplicated(pid, open.args[0] as i32, fd),
            (Effect::Closes, _) => {
                let fd = open.args[0] as i32;
                self.descriptors.closed(pid, fd);
                self.change(tid, |thread| thread.closed(fd));
            }
            (Effect::ClosesRange, _) => self.descriptors.closed_range(pid, open.args[0], open.args[1]),
            // Those it brought are new numbers, which nothing is known of.
            _ => {}
        }
        if let Some(fd) = result_fd.filter(|_| call.effect.opens())
            && let Some(batch) = self.threads.get_mut(&tid).and_then(|thread| thread.batch.as_mut())
        {
            batch.opened.insert(fd);
        }
        debug_assert!(!is_error(result) || result_fd.is_none());
    }
}

#[cfg(test)]
mod tests;
