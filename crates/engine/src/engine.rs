//! The engine of one worker: its state, what it is told, and what it is asked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;

use flash_http::date::http_date;
use flash_http::request::HeadLimits;
use flash_http::response::Status;

use crate::access_log::Record;
use crate::cache::{Contents, KnownRequests, Names, OpenFiles, Version, VersionId, Versions};
use crate::connection::{Connection, Next, Phase};
use crate::counters::Counters;
use crate::exchange::Pace;
use crate::jobs::{Job, JobId, Jobs, Outcome};
use crate::limits::{
    ABANDONED_MS, CONTINUED_PER_TURN_MAX, FIELDS_MAX, HEAD_BYTES_MAX, RATE_WINDOW_MS, READ_BYTES_MAX,
    RECEIVE_BYTES, TARGET_BYTES_MAX, TICK_MS,
};
use crate::rules::{Router, Rules, SiteId, root_numbers};
use crate::slab::{Key, Slab};
use crate::system::{Moment, System};
use crate::timers::Timers;

/// The engine of one worker.
///
/// * Told what happened: [`handle_turn`](Engine::handle_turn) first in each turn, then
///   [`handle_accept`](Engine::handle_accept), [`handle_ready`](Engine::handle_ready),
///   [`handle_job`](Engine::handle_job), [`handle_helper_ready`](Engine::handle_helper_ready),
///   [`handle_helper_gone`](Engine::handle_helper_gone),
///   [`handle_drain`](Engine::handle_drain), and last
///   [`handle_continued`](Engine::handle_continued) and
///   [`handle_timeouts`](Engine::handle_timeouts). What it cannot see itself, it is told to count:
///   [`count_dispatch`](Engine::count_dispatch), [`count_refused`](Engine::count_refused).
/// * Asked what is next: [`poll_next_ms`](Engine::poll_next_ms),
///   [`is_continued`](Engine::is_continued), [`is_drained`](Engine::is_drained).
/// * Getters: [`counters`](Engine::counters), [`connection`](Engine::connection),
///   [`awaited`](Engine::awaited).
///
/// No method waits; each does a bounded amount of work. A panic in a connection's turn is
/// reported with its request line and costs that connection only.
pub struct Engine<S: System> {
    pub(crate) rules: Rules,
    pub(crate) router: Router,
    pub(crate) head_limits: HeadLimits,
    pub(crate) now: Moment,
    pub(crate) date: [u8; 29],
    date_s: i64,

    pub(crate) connections: Slab<Connection<S>>,
    pub(crate) timers: Timers,
    continued: VecDeque<Key>,
    pub(crate) draining: bool,

    pub(crate) known: KnownRequests,
    pub(crate) names: Names,
    pub(crate) contents: Contents,
    pub(crate) files: OpenFiles<S::File>,
    /// Empty where names are kept, which lead to them.
    pub(crate) versions_by_file: Versions,
    versions: u64,
    /// Boundaries used in multipart bodies.
    pub(crate) boundaries: u64,
    /// Listings in memory, with the names that they were made for.
    pub(crate) listings: VecDeque<(SiteId, Box<[u8]>, Weak<Version>)>,
    pub(crate) jobs: Jobs<S::File>,

    /// The request being read, for its log line.
    pub(crate) record: Record,
    pub(crate) receive_buffer: Vec<u8>,
    pub(crate) file_buffer: Vec<u8>,
    pub(crate) counters: Counters,
}

/// What a connection's socket is ready for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is input, or its end.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The client has closed its sending side; it may still read.
    pub hung_up: bool,
    /// The connection failed, or both sides are closed.
    pub broken: bool,
}

/// Room in front of file data for a response head, and for those of contents without one.
pub(crate) const HEAD_ROOM_BYTES: usize = 4096;

impl<S: System> Engine<S> {
    /// An engine that knows nothing yet.
    pub fn new(rules: Rules, now: Moment) -> Self {
        let mut engine = Self {
            router: Router::new(&rules.sites),
            head_limits: HeadLimits {
                head_bytes: HEAD_BYTES_MAX,
                fields: FIELDS_MAX,
                target_bytes: TARGET_BYTES_MAX,
            },
            now,
            date: http_date(0),
            date_s: i64::MIN,
            connections: Slab::new(),
            timers: Timers::new(now.monotonic_ms),
            continued: VecDeque::new(),
            draining: false,
            known: KnownRequests::new(rules.known_requests_max()),
            names: Names::new(rules.name_cache_bytes_max()),
            contents: Contents::new(rules.cache_memory_bytes),
            files: OpenFiles::new(rules.open_files_max),
            versions_by_file: Versions::new(rules.versions_max()),
            versions: 0,
            boundaries: 0,
            listings: VecDeque::new(),
            jobs: Jobs::new(rules.timeouts.job_ms, rules.helpers_max, root_numbers(&rules.sites)),
            record: Record::default(),
            receive_buffer: vec![0; RECEIVE_BYTES],
            file_buffer: vec![0; HEAD_ROOM_BYTES + READ_BYTES_MAX],
            counters: Counters::default(),
            rules,
        };
        engine.handle_turn(now);
        engine
    }

    /// A turn of the loop begins.
    pub fn handle_turn(&mut self, now: Moment) {
        self.now = now;
        // Nanoseconds since 1970 fit 64 bits until 2262.
        let wall_s = (now.wall_ns as i64).div_euclid(1_000_000_000);
        if wall_s != self.date_s {
            self.date_s = wall_s;
            self.date = http_date(wall_s);
        }
    }

    /// A client has connected. Gives the connection's key, or the socket back when there are
    /// as many connections as allowed.
    ///
    /// # Errors
    /// The socket, to be told so and closed.
    pub fn handle_accept(&mut self, socket: S::Socket, peer: SocketAddr) -> Result<Key, S::Socket> {
        if self.connections.len() >= self.rules.connections_max {
            return Err(socket);
        }
        let key = self.connections.insert(Connection::new(socket, peer));
        self.counters.accepted += 1;
        self.counters.connections_most = self.counters.connections_most.max(self.connections.len());
        // The first head is due like any other: a client that says nothing is not kept idle.
        self.set_deadline(key, self.now.monotonic_ms + self.rules.timeouts.head_ms);
        Ok(key)
    }

    /// The kernel gave so many events at once, at least one.
    #[inline]
    pub fn count_dispatch(&mut self, events: usize) {
        self.counters.dispatches.add(events as u64);
    }

    /// A client was refused at a limit.
    pub fn count_refused(&mut self) {
        self.counters.refused += 1;
    }

    /// A connection's socket is ready; one that is closed already is passed over.
    #[inline]
    pub fn handle_ready(&mut self, sys: &mut S, key: Key, ready: Readiness) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if ready.broken {
            return self.close(sys, key);
        }
        connection.readable |= ready.readable;
        connection.writable |= ready.writable;
        connection.hung_up |= ready.hung_up;
        self.guarded_turn(sys, key);
    }

    /// A job is done, or lost.
    pub fn handle_job(&mut self, sys: &mut S, id: JobId, outcome: Outcome<S::File>) {
        self.finish_job(id, outcome);
        self.start_jobs(sys);
    }

    /// A helper has become idle.
    pub fn handle_helper_ready(&mut self, sys: &mut S) {
        self.start_jobs(sys);
    }

    /// The helper of a job that was given up is gone: only now is its place in its root's share
    /// free again, so a root whose disk hangs for good holds no more helpers than its share.
    pub fn handle_helper_gone(&mut self, sys: &mut S, id: JobId) {
        self.jobs.helper_gone(id);
        self.start_jobs(sys);
    }

    /// Goes on with connections that used up their turn, or whose job is done.
    pub fn handle_continued(&mut self, sys: &mut S) {
        for _ in 0..self.continued.len().min(CONTINUED_PER_TURN_MAX) {
            let Some(key) = self.continued.pop_front() else { break };
            if let Some(connection) = self.connections.get_mut(key) {
                connection.queued = false;
                self.guarded_turn(sys, key);
            }
        }
        self.start_jobs(sys);
    }

    /// Acts on every deadline that has passed.
    pub fn handle_timeouts(&mut self, sys: &mut S) {
        while let Some(id) = self.jobs.overdue(self.now.monotonic_ms) {
            if self.jobs.is_running(id) {
                sys.abandon_job(id);
                self.jobs.give_up(id);
            }
            self.finish_job(id, Outcome::Lost);
        }
        self.start_jobs(sys);
        while let Some((tick, keys)) = self.timers.due(self.now.monotonic_ms) {
            for key in keys {
                let Some(connection) = self.connections.get_mut(key) else { continue };
                if connection.filed_tick != Some(tick) {
                    continue;
                }
                connection.filed_tick = None;
                let deadline_ms = connection.deadline_ms;
                if deadline_ms > self.now.monotonic_ms {
                    self.set_deadline(key, deadline_ms);
                } else {
                    self.time_out(sys, key);
                }
            }
        }
    }

    /// Finishes what is under way and takes nothing new: idle connections are closed, the
    /// others after their response, also those whose first request is still to come.
    pub fn handle_drain(&mut self, sys: &mut S) {
        self.draining = true;
        let idle: Vec<Key> = self
            .connections
            .keys()
            .filter(|key| {
                self.connections
                    .get(*key)
                    .is_some_and(|c| c.phase == Phase::Head { begun: false } && !c.queued)
            })
            .collect();
        for key in idle {
            // A request may have arrived that no event has told of yet.
            if let Some(connection) = self.connections.get_mut(key) {
                connection.readable = true;
                self.guarded_turn(sys, key);
            }
        }
    }

    /// Whether nothing is under way any more.
    pub fn is_drained(&self) -> bool {
        self.connections.len() == 0
    }

    /// When the engine wants its next turn without any event, in milliseconds of the monotonic
    /// clock: 0 for at once, None for never.
    pub fn poll_next_ms(&self) -> Option<u64> {
        if !self.continued.is_empty() {
            return Some(0);
        }
        [self.timers.next_ms(), self.jobs.next_ms()].into_iter().flatten().min()
    }

    /// Whether a connection has used up its turn and goes on in the next one.
    pub fn is_continued(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.queued)
    }

    /// The socket of a connection.
    pub fn connection(&self, key: Key) -> Option<&S::Socket> {
        self.connections.get(key).map(|connection| &connection.socket)
    }

    /// The site that a job under way is for.
    pub fn site_of(&self, job: JobId) -> Option<SiteId> {
        self.jobs.site_of(job)
    }

    /// Which events of a connection the engine does not know of yet: what a loop that hears of levels, not
    /// of edges, is to ask for. None for one that is closed.
    pub fn awaited(&self, key: Key) -> Option<Readiness> {
        self.connections.get(key).map(|connection| Readiness {
            readable: !connection.readable,
            writable: !connection.writable,
            hung_up: !connection.hung_up,
            broken: true,
        })
    }

    /// What the engine has done and holds.
    pub fn counters(&self) -> Counters {
        Counters {
            connections: self.connections.len(),
            names: self.names.len(),
            content_bytes: self.contents.memory_bytes(),
            files: self.files.len(),
            jobs: self.jobs.counters,
            queue_lengths: self.jobs.lengths,
            jobs_queued: self.jobs.queued_len(),
            jobs_running: self.jobs.running_len(),
            jobs_given_up: self.jobs.given_up_len(),
            ..self.counters
        }
    }

    /// Has a connection continued in this turn or the next.
    pub(crate) fn continue_later(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key)
            && !connection.queued
        {
            connection.queued = true;
            self.continued.push_back(key);
        }
    }

    /// Hands queued jobs to helpers while there are idle ones.
    pub(crate) fn start_jobs(&mut self, sys: &mut S) {
        while let Some((id, job)) = self.jobs.next_startable() {
            if self.is_abandoned(id, job) {
                for waiter in job.waiters.clone() {
                    self.close(sys, waiter);
                }
                continue;
            }
            if !sys.start_job(id, &job.task, self.jobs.startable_len()) {
                return;
            }
            self.jobs.started(id, self.now.monotonic_ms);
        }
    }

    /// Whether everybody who waits for a job seems to have gone away. A client may close its
    /// side and still read, so this counts only where the disk is behind.
    fn is_abandoned(&self, id: JobId, job: &Job<S::File>) -> bool {
        let gone = |key: &Key| {
            self.connections.get(*key).is_some_and(|connection| {
                connection.hung_up
                    && connection.phase == Phase::Answer
                    && connection.exchange.as_ref().is_some_and(|e| e.waiting == Some(id))
            })
        };
        self.now.monotonic_ms >= job.since_ms + ABANDONED_MS
            && !job.unasked
            && !job.waiters.is_empty()
            && job.waiters.iter().all(gone)
    }

    pub(crate) fn next_version(&mut self) -> VersionId {
        self.versions += 1;
        VersionId(self.versions)
    }

    pub(crate) fn wall_s(&self) -> i64 {
        self.date_s
    }

    fn guarded_turn(&mut self, sys: &mut S, key: Key) {
        // A connection's state may be half changed after a panic, so it is closed; the caches
        // only ever change in single steps.
        if catch_unwind(AssertUnwindSafe(|| self.turn(sys, key))).is_ok() {
            return;
        }
        self.counters.panics += 1;
        self.receive_buffer.resize(RECEIVE_BYTES, 0);
        self.file_buffer.resize(HEAD_ROOM_BYTES + READ_BYTES_MAX, 0);
        let line = String::from_utf8_lossy(&self.record.line).into_owned();
        self.jobs.leave_all(key);
        sys.report(&format!("a bug: panic while serving {line:?}; the connection was closed, others go on"));
        self.close(sys, key);
    }

    fn time_out(&mut self, sys: &mut S, key: Key) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.queued {
            // Not its fault: its turn has not come yet.
            return self.set_deadline(key, self.now.monotonic_ms + TICK_MS);
        }
        match connection.phase {
            Phase::Head { begun: false } | Phase::Linger { .. } => self.close(sys, key),
            Phase::Head { begun: true } | Phase::Body => {
                connection.exchange = None;
                self.begin_record(b"-", None);
                let refusal = (Status::REQUEST_TIMEOUT, "The request did not arrive in time.");
                if self.refuse_and_close(key, None, refusal, false) == Next::Again {
                    self.guarded_turn(sys, key);
                }
            }
            Phase::Answer => {}
            Phase::Send => self.judge_pace(sys, key),
        }
    }

    /// Cuts a client that takes less than the least rate.
    fn judge_pace(&mut self, sys: &mut S, key: Key) {
        if self.rules.least_rate_bytes_per_s == 0 {
            return;
        }
        // The kernel tells of room only when there is much of it: what there is counts, too.
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.writable = true;
        self.guarded_turn(sys, key);
        let Some(exchange) = self.connections.get_mut(key).and_then(|c| c.exchange.as_mut()) else { return };
        if exchange.pace.since_ms.is_none() {
            return;
        }
        let wanted = self.rules.least_rate_bytes_per_s * RATE_WINDOW_MS / 1000;
        if exchange.sent_bytes - exchange.pace.sent_bytes < wanted {
            return self.close(sys, key);
        }
        exchange.pace = Pace { since_ms: Some(self.now.monotonic_ms), sent_bytes: exchange.sent_bytes };
        self.set_deadline(key, self.now.monotonic_ms + RATE_WINDOW_MS);
    }
}
