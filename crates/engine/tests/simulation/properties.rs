//! What must hold after each turn and at the end of a run.

use flash_engine::limits::{
    BLOCKS_AHEAD, DEADLINES_PER_TURN_MAX, FILES_OF_NAME_MAX, HEADS_BYTES_PER_CLIENT_MAX, JOBS_PER_CLIENT_MAX,
    JOBS_QUEUED_MAX, LINGER_MS, NAME_CACHE_BYTES_MAX, NAME_ENTRY_BYTES, READ_BYTES_MAX, RECEIVE_BYTES,
    REQUESTS_PER_TURN_MAX, SEND_BYTES_PER_TURN_MAX, SMALL_FILE_BYTES_MAX, TICK_MS,
};

use crate::client::{Peer, STREAMS_MAX};
use crate::run::Run;

/// What a run may use, and how long its engine waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) freshness_ms: u64,
    pub(crate) stale_ms: u64,
    pub(crate) head_ms: u64,
    pub(crate) idle_ms: u64,
    pub(crate) job_ms: u64,
    pub(crate) connections_max: usize,
    pub(crate) open_files_max: usize,
    pub(crate) cache_memory_bytes: u64,
    pub(crate) name_cache: bool,
    pub(crate) head_align_bytes: usize,
    /// How long a client may take nothing.
    pub(crate) stuck_ms: u64,
}

impl Limits {
    /// A file up to this size is kept as a content.
    pub(crate) const CACHED_BYTES: u64 = SMALL_FILE_BYTES_MAX;
    /// A turn ends with the send that uses up its share; one send is a read or a content, and a head.
    pub(crate) const TURN_BYTES: u64 = (SEND_BYTES_PER_TURN_MAX + READ_BYTES_MAX + 8 * 1024) as u64;

    /// In one turn of the loop a connection has up to three turns of its own: it is ready, it is
    /// continued, and its pace is looked at.
    pub(crate) const BYTES: u64 = 3 * Self::TURN_BYTES;
    pub(crate) const ANSWERS: u64 = 3 * (REQUESTS_PER_TURN_MAX as u64 + 1);

    /// Turns after the first in which an answer of so many bytes is whole.
    pub(crate) fn turns(bytes: u64) -> u64 {
        if bytes <= Self::CACHED_BYTES { 0 } else { bytes / SEND_BYTES_PER_TURN_MAX as u64 + 1 }
    }
}

impl Run {
    /// Fails the run when a property does not hold.
    #[track_caller]
    pub(crate) fn require(&self, holds: bool, property: &str, what: impl FnOnce() -> String) {
        assert!(holds, "property: {property}: {} (turn {})", what(), self.turn);
    }

    /// After each turn: every bound, and nothing that was passed over.
    pub(crate) fn check_turn(&self) {
        let counters = self.engine.counters();
        let limits = &self.limits;
        let report = || self.machine.reports.join("; ");
        self.require(counters.panics == 0, "no panic", report);
        let bound = |name: &str, value: u64, max: u64| {
            self.require(value <= max, "bounds", || format!("{name}: {value}, at most {max}"));
        };
        bound("connections", counters.connections as u64, limits.connections_max as u64);
        bound("content bytes", counters.content_bytes, limits.cache_memory_bytes);
        // An answer under way may queue one more; those of the crowd never get so far.
        let open = || self.peers.iter().filter(|peer| !peer.closed);
        let answers = |peer: &Peer| if peer.streams { STREAMS_MAX } else { 1 };
        let under_way: usize = open().filter(|peer| !peer.crowd).map(answers).sum();
        bound("jobs queued", counters.jobs_queued as u64, (JOBS_QUEUED_MAX + under_way) as u64);
        if self.plan.crowd_is_one {
            // Each of the others may have what it waits for, and what is loaded ahead; each name may be checked.
            let others = under_way * (1 + BLOCKS_AHEAD as usize) + self.targets;
            bound("jobs of one client", counters.jobs_queued as u64, (JOBS_PER_CLIENT_MAX + others) as u64);
        }
        // The others have more addresses than one, and no more to say than one receive holds.
        let hoarders = if self.plan.hoard > 0 { HEADS_BYTES_PER_CLIENT_MAX } else { 0 };
        bound("input", counters.input_bytes as u64, (hoarders + under_way * RECEIVE_BYTES) as u64);
        bound("names", (counters.names * NAME_ENTRY_BYTES) as u64, NAME_CACHE_BYTES_MAX);
        let running = self.machine.helpers.running.len();
        self.require(counters.jobs_running == running, "jobs", || {
            format!("{} jobs at helpers, and {running} known to them", counters.jobs_running)
        });
        let hung = self.hung.len();
        self.require(counters.jobs_given_up == hung, "jobs", || {
            format!("{} helpers given up, and {hung} hang", counters.jobs_given_up)
        });
        let open = self.peers.iter().filter(|peer| !peer.closed).count();
        self.require(counters.connections == open, "connections", || {
            format!("{} connections, and {open} clients", counters.connections)
        });
        self.require(self.machine.sockets_open.get() == open, "sockets", || {
            format!("{} sockets for {open} clients", self.machine.sockets_open.get())
        });
        // One for each answer under way and each job; what helpers have found and not told yet.
        let files = limits.open_files_max
            + FILES_OF_NAME_MAX
            + open
            + under_way
            + counters.jobs_queued
            + 5 * (running + self.calls.len());
        bound("open files", self.machine.files.open.get() as u64, files as u64);
        let now_ms = self.now_ms();
        let next_ms = self.engine.poll_next_ms();
        self.require(next_ms.is_none_or(|ms| ms == 0 || ms > now_ms), "timers", || {
            format!("{next_ms:?} is past at {now_ms} and was not acted on")
        });
    }

    /// Whether the server may have closed this connection now.
    pub(crate) fn judge_close(&self, peer: &Peer) -> Result<(), String> {
        let facts = self.facts();
        if peer.reset || peer.evicted || (peer.last_heard && !peer.has_part()) {
            return Ok(());
        }
        let idle_ms = facts.now_ms - peer.active_ms;
        let patience_ms = self.limits.idle_ms.min(self.limits.head_ms);
        let Some(ask) = peer.next_ask() else {
            let may =
                idle_ms >= patience_ms || peer.ended || self.drained || self.excuse_ms >= peer.active_ms;
            return if may { Ok(()) } else { Err(format!("closed after {idle_ms} ms without a request")) };
        };
        if peer.streams {
            let begun = peer.asks.iter().filter(|ask| ask.first_ms != u64::MAX);
            let mut cut = begun.filter(|ask| {
                let incomplete = ask.whole_turn.is_none() && (peer.ended || idle_ms >= patience_ms);
                let may = incomplete || self.drained || (peer.ended && self.behind);
                !facts.is_excused(ask) && !peer.slow && (peer.has_part_of(ask) || !may)
            });
            // Those who wait for a job seem to have left: what else they have asked for is dropped with it.
            let abandoned = peer.ended && self.behind;
            return match cut.next() {
                Some(ask) if !abandoned => Err(format!("cut {}", ask.bytes.escape_ascii())),
                _ => Ok(()),
            };
        }
        let excused = facts.is_excused(ask) || peer.slow;
        let incomplete = ask.whole_turn.is_none() && (peer.ended || facts.is_late(ask));
        let abandoned = peer.ended && self.behind;
        let came_late = self.drained && !peer.has_part();
        if excused || (!peer.has_part() && (incomplete || abandoned || came_late)) {
            return Ok(());
        }
        let part = if peer.has_part() { "in the middle of" } else { "before" };
        Err(format!("cut {part} the answer to {}", ask.bytes.escape_ascii()))
    }

    /// Whether more may have been due in this turn than a turn does, and the rest is due in the next.
    fn is_behind_with_deadlines(&self) -> bool {
        let many = self.plan.crowd + self.plan.hoard > DEADLINES_PER_TURN_MAX as u64;
        many && self.engine.poll_next_ms() == Some(0)
    }

    /// For how long a request has been under way that is not whole, if that is too long.
    pub(crate) fn overdue_head_ms(&self, peer: &Peer) -> Option<u64> {
        let ask = peer.next_ask().filter(|ask| ask.whole_turn.is_none())?;
        if peer.streams || peer.slow || peer.last_heard || peer.has_part() || self.is_behind_with_deadlines()
        {
            return None;
        }
        // A head, and then a body, have this time each.
        let parts = if ask.has_body { 2 } else { 1 };
        let ms = self.now_ms() - ask.first_ms.max(peer.answered_ms);
        (ms > parts * (self.limits.head_ms + 2 * TICK_MS)).then_some(ms)
    }

    /// How long a client may go without sending or being answered anything.
    pub(crate) fn patience_ms(&self, peer: &Peer) -> u64 {
        let limits = &self.limits;
        let waits = peer.asks.iter().any(|ask| ask.whole_turn.is_some());
        if self.is_behind_with_deadlines() {
            return u64::MAX;
        }
        // What it waits for has deadlines of its own; what it does not read may keep it for ever.
        if waits || peer.slow || peer.has_part() {
            return u64::MAX;
        }
        let timeout_ms = if peer.last_heard { LINGER_MS } else { limits.head_ms.max(limits.idle_ms) };
        // A turn of the loop comes when the next timer is due, so there is no more than that to it.
        timeout_ms + 2 * TICK_MS
    }

    /// Everybody has left at once: nothing is looked for any more.
    pub(crate) fn check_walk_out(&self) {
        let counters = self.engine.counters();
        // While all that is known is fresh, each job has somebody who waits for it.
        let all_fresh = self.limits.freshness_ms > self.plan.chaos_ms && !self.plan.jumps;
        let forgotten = all_fresh && counters.connections == 0 && counters.jobs_queued > 0;
        self.require(!forgotten, "leaks", || format!("{} jobs queued for nobody", counters.jobs_queued));
    }

    /// When nothing is to happen any more: everybody was answered or told, and nothing is left.
    pub(crate) fn check_end(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            let ask = peer.next_ask().map(|ask| ask.bytes.escape_ascii().to_string());
            self.require(peer.closed, "progress", || format!("client {number} waits for ever for {ask:?}"));
        }
        let counters = self.engine.counters();
        self.require(counters.connections == 0, "leaks", || format!("{} connections", counters.connections));
        let (counted, sent) = (counters.sends.sum(), self.machine.calls.sent_bytes);
        self.require(counted == sent, "counters", || format!("{counted} bytes counted, {sent} sent"));
        let answers: u64 = counters.responses.iter().sum();
        self.require(answers <= counters.requests, "counters", || format!("{answers} answers to fewer"));
        let jobs = (counters.jobs_queued, counters.jobs_running);
        self.require(jobs == (0, 0), "leaks", || format!("jobs queued and running: {jobs:?}"));
        self.require(counters.jobs_given_up == 0, "leaks", || "helpers given up and gone still count".into());
        self.require(self.engine.is_drained(), "leaks", || "is not drained".into());
        let open = self.machine.files.open.get();
        self.require(open <= self.limits.open_files_max + FILES_OF_NAME_MAX, "leaks", || {
            format!("{open} files open")
        });
        self.require(self.machine.sockets_open.get() == 0, "leaks", || "sockets".into());
        self.require(self.engine.poll_next_ms().is_none(), "timers", || "one is left".into());
    }
}
