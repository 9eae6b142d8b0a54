//! The properties that must hold after each turn and at the end of a run.

use flash_engine::Task;
use flash_engine::limits::{
    BLOCKS_AHEAD, DEADLINES_PER_TURN_MAX, ENCRYPTED_BYTES_MAX, FILES_OF_NAME_MAX, HEADS_BYTES_PER_CLIENT_MAX,
    JOBS_AHEAD_MAX, JOBS_PER_CLIENT_MAX, JOBS_QUEUED_MAX, LINGER_MS, NAME_ENTRY_BYTES, NAMES_BYTES,
    READ_BYTES_MAX, RECEIVE_BYTES, REQUESTS_PER_TURN_MAX, SEND_BYTES_PER_TURN_MAX, SMALL_FILE_BYTES_MAX,
    TICK_MS,
};

use crate::client::{Peer, STREAMS_MAX};
use crate::machine::FileHandle;
use crate::machine::store::WorkerStore;
use crate::run::Run;

/// The limits of a run: the resources that it can use, and how long its engine waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) freshness_ms: u64,
    pub(crate) stale_ms: u64,
    pub(crate) head_ms: u64,
    pub(crate) idle_ms: u64,
    pub(crate) job_ms: u64,
    /// The expected wait in the queue above which requests are refused; 0 for no limit.
    pub(crate) queue_wait_ms: u64,
    pub(crate) connections_max: usize,
    pub(crate) open_files_max: usize,
    pub(crate) name_cache: bool,
    pub(crate) send_file: bool,
    pub(crate) head_align_bytes: usize,
    /// How long a client can read nothing before it must be closed.
    pub(crate) stuck_ms: u64,
}

impl Limits {
    /// A file up to this size is cached as a content.
    pub(crate) const CACHED_BYTES: u64 = SMALL_FILE_BYTES_MAX;
    /// A turn ends with the send that uses up its budget. One send is a read or a content, and a head.
    pub(crate) const TURN_BYTES: u64 = (SEND_BYTES_PER_TURN_MAX + READ_BYTES_MAX + 8 * 1024) as u64;
    /// The same of an encrypted connection: records have heads, and ciphertext that had to wait comes first.
    pub(crate) const SEALED_BYTES: u64 = Self::TURN_BYTES + ENCRYPTED_BYTES_MAX as u64 + 4 * 1024;

    /// In one turn of the loop, a connection can have three turns of its own: it is ready, it is continued,
    /// and its rate is checked.
    pub(crate) const BYTES: u64 = 3 * Self::TURN_BYTES;
    pub(crate) const ANSWERS: u64 = 3 * (REQUESTS_PER_TURN_MAX as u64 + 1);

    /// How many turns after the first one complete an answer of this length.
    pub(crate) fn turns(bytes: u64) -> u64 {
        if bytes <= Self::CACHED_BYTES { 0 } else { bytes / SEND_BYTES_PER_TURN_MAX as u64 + 1 }
    }
}

impl Run {
    /// Fails the run if a property does not hold.
    #[track_caller]
    pub(crate) fn require(&self, holds: bool, property: &str, what: impl FnOnce() -> String) {
        assert!(holds, "property: {property}: {} (turn {})", what(), self.turn);
    }

    /// Checks every bound after each turn, and that no deadline was missed.
    pub(crate) fn check_turn(&self) {
        let counters = self.engine.counters();
        let limits = &self.limits;
        let report = || self.machine.reports.join("; ");
        self.require(counters.panics == 0, "no panic", report);
        let bound = |name: &str, value: u64, max: u64| {
            self.require(value <= max, "bounds", || format!("{name}: {value}, at most {max}"));
        };
        bound("connections", counters.connections as u64, limits.connections_max as u64);
        let known = self.machine.store.as_ref().map_or(0, WorkerStore::known_len);
        bound("contents", counters.contents as u64, known as u64);
        // Each answer under way can queue one more job. The clients of the crowd never get that far.
        let open = || self.peers.iter().filter(|peer| !peer.closed);
        let answers = |peer: &Peer| if peer.h2.is_some() { STREAMS_MAX } else { 1 };
        let under_way: usize = open().filter(|peer| !peer.crowd).map(answers).sum();
        // Each of these clients can have the job that it waits for and the jobs that load ahead; each name can have a
        // check.
        let others = under_way * (1 + BLOCKS_AHEAD as usize) + self.targets;
        let ahead = others.min(JOBS_AHEAD_MAX + under_way);
        bound("jobs queued", counters.jobs_queued as u64, (JOBS_QUEUED_MAX + ahead) as u64);
        if self.plan.crowd_is_one {
            bound("jobs of one client", counters.jobs_queued as u64, (JOBS_PER_CLIENT_MAX + others) as u64);
        }
        // The other clients have more than one address, and none sends more than one receive holds.
        let hoarders = if self.plan.hoard > 0 { HEADS_BYTES_PER_CLIENT_MAX } else { 0 };
        bound("input", counters.input_bytes as u64, (hoarders + under_way * RECEIVE_BYTES) as u64);
        bound("names", (counters.names * NAME_ENTRY_BYTES) as u64, NAMES_BYTES);
        let too_slow: u64 = counters.jobs.iter().map(|kind| kind.refused_wait).sum();
        let is_bounded = limits.queue_wait_ms > 0;
        self.require(is_bounded || too_slow == 0, "jobs", || {
            "a request was refused for its wait, although the wait has no bound".into()
        });
        let running = self.machine.helpers.running.len();
        self.require(counters.jobs_running == running, "jobs", || {
            format!("the engine has {} running jobs, the helpers {running}", counters.jobs_running)
        });
        let hung = self.hung.len();
        self.require(counters.jobs_given_up == hung, "jobs", || {
            format!("the engine has {} helpers given up, but {hung} hang", counters.jobs_given_up)
        });
        let open = self.peers.iter().filter(|peer| !peer.closed).count();
        self.require(counters.connections == open, "connections", || {
            format!("{} connections, and {open} clients", counters.connections)
        });
        self.require(self.machine.sockets_open.get() == open, "sockets", || {
            format!("{} sockets for {open} clients", self.machine.sockets_open.get())
        });
        // One for each answer under way and each job, and those that helpers have found and not reported yet.
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
            format!("the deadline {next_ms:?} was not handled at {now_ms}")
        });
    }

    /// Checks that the server had a reason to close this connection now.
    pub(crate) fn judge_close(&self, peer: &Peer) -> Result<(), String> {
        let facts = self.facts();
        if peer.reset || peer.evicted || (peer.last_heard && !peer.has_part()) {
            return Ok(());
        }
        let idle_ms = facts.now_ms - peer.active_ms;
        let patience_ms = self.limits.idle_ms.min(self.limits.head_ms);
        let Some(ask) = peer.next_ask() else {
            // To the server, an answer has ended when all of it is encrypted.
            let reads_late = peer.slow && peer.client.wire().encrypted().is_some();
            let may = idle_ms >= patience_ms
                || peer.ended
                || self.drained
                || self.excuse_ms >= peer.active_ms
                || reads_late;
            return if may { Ok(()) } else { Err(format!("closed after {idle_ms} ms without a request")) };
        };
        if peer.h2.is_some() {
            let begun = peer.asks.iter().filter(|ask| ask.first_ms != u64::MAX);
            let mut cut = begun.filter(|ask| {
                let incomplete = ask.whole_turn.is_none() && (peer.ended || idle_ms >= patience_ms);
                let may = incomplete || self.drained || (peer.ended && self.behind);
                !facts.is_excused(ask) && !peer.slow && (peer.has_part_of(ask) || !may)
            });
            // If the clients of a job seem to have left, their other requests are dropped with it.
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

    /// Whether more deadlines can be due in this turn than a turn handles.
    fn is_behind_with_deadlines(&self) -> bool {
        let plan = &self.plan;
        let clients = plan.clients + plan.hot_clients + plan.crowd + plan.hoard + plan.rush;
        let many = clients > DEADLINES_PER_TURN_MAX as u64;
        many && self.engine.poll_next_ms() == Some(0)
    }

    /// How long an incomplete request has been under way, if that is too long.
    pub(crate) fn overdue_head_ms(&self, peer: &Peer) -> Option<u64> {
        let ask = peer.next_ask().filter(|ask| ask.whole_turn.is_none())?;
        if peer.h2.is_some()
            || peer.slow
            || peer.last_heard
            || peer.has_part()
            || self.is_behind_with_deadlines()
        {
            return None;
        }
        // A head and a body have this time each. The turn after a jump hears a client before its deadline: a head that is
        // complete then leaves its body all of its time.
        let (parts, from_ms) = if ask.has_body { (2, self.jumped_at_ms) } else { (1, 0) };
        let ms = self.now_ms() - ask.first_ms.max(peer.answered_ms).max(from_ms);
        (ms > parts * (self.limits.head_ms + 2 * TICK_MS)).then_some(ms)
    }

    /// How long a client can go without sending anything or getting an answer.
    pub(crate) fn patience_ms(&self, peer: &Peer) -> u64 {
        let limits = &self.limits;
        let waits = peer.asks.iter().any(|ask| ask.whole_turn.is_some());
        if self.is_behind_with_deadlines() {
            return u64::MAX;
        }
        // A job has a deadline of its own, and unread bytes can keep a connection open forever.
        if waits || peer.slow || peer.has_part() {
            return u64::MAX;
        }
        let timeout_ms = if peer.last_heard { LINGER_MS } else { limits.head_ms.max(limits.idle_ms) };
        // The loop runs a turn when the next timer is due, so a delay cannot be longer than this.
        timeout_ms + 2 * TICK_MS
    }

    /// All clients have left at once: no queued job is kept for them. Fills of the store continue.
    pub(crate) fn check_all_left(&mut self) {
        // While every known entry is fresh, each job except a fill has a client that waits for it. Names that can be watched
        // are looked up once more so that they are.
        let all_fresh = self.limits.freshness_ms > self.plan.chaos_ms && !self.plan.jumps;
        let all_fresh = all_fresh && self.store.watcher.is_none();
        let counters = self.engine.counters();
        self.deserted = all_fresh && counters.connections == 0;
        let forgotten = self.deserted && self.store.host.is_none() && counters.jobs_queued > 0;
        self.require(!forgotten, "leaks", || {
            format!("{} jobs queued although no client waits", counters.jobs_queued)
        });
    }

    /// Checks that a job that starts after all clients have left was not waited for by any of them.
    pub(crate) fn check_wanted(&self, task: &Task<FileHandle>) {
        let unwanted = self.deserted && !matches!(task, Task::Fill { .. } | Task::Warm { .. });
        self.require(!unwanted, "leaks", || format!("a job was started although no client waits: {task:?}"));
    }

    /// At the end, every client was answered or closed, and nothing is left.
    pub(crate) fn check_end(&self) {
        for (number, peer) in self.peers.iter().enumerate() {
            let ask = peer.next_ask().map(|ask| ask.bytes.escape_ascii().to_string());
            self.require(peer.closed, "progress", || format!("client {number} waits forever for {ask:?}"));
        }
        let counters = self.engine.counters();
        let left = (counters.connections, counters.exchanges);
        self.require(left == (0, 0), "leaks", || format!("connections and exchanges: {left:?}"));
        let (counted, sent) = (counters.sends.sum(), self.machine.calls.sent_bytes);
        self.require(self.machine.calls.agree_with(counted), "counters", || {
            format!("{counted} bytes counted, {sent} sent")
        });
        let answers: u64 = counters.responses.iter().sum();
        self.require(answers <= counters.requests, "counters", || {
            format!("{answers} answers to fewer requests")
        });
        let jobs = (counters.jobs_queued, counters.jobs_running);
        self.require(jobs == (0, 0), "leaks", || format!("jobs queued and running: {jobs:?}"));
        self.require(counters.jobs_given_up == 0, "leaks", || {
            "helpers that have ended still count as given up".into()
        });
        self.require(self.engine.is_drained(), "leaks", || "the engine is not drained".into());
        let open = self.machine.files.open.get();
        self.require(open <= self.limits.open_files_max + FILES_OF_NAME_MAX, "leaks", || {
            format!("{open} files open")
        });
        self.require(self.machine.sockets_open.get() == 0, "leaks", || "sockets".into());
        let announced = self.machine.answering.values().all(|count| *count == 0);
        self.require(announced, "leaks", || "other workers count requests that have ended".into());
        self.require(self.engine.poll_next_ms().is_none(), "timers", || "a timer is left".into());
        if let Some(store) = &self.store.host {
            store.borrow().check_end();
        }
    }
}
