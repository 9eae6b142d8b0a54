//! A worker's counters as they are reported: in the message to the supervisor, and in the answer to a client
//! of the control socket.

use std::collections::BTreeMap;

use flash_engine::limits::SPOOL_PIECE_BYTES_MAX;
use flash_engine::{BandCounters, JobCounters, JobKind, Times, TlsCounters};

use super::backend::Backend;
use super::calls::Calls;
use super::figures::{Cutoffs, Figures, Gauge, Histogram, Shared, figures};
use super::latencies::Latency;

figures! {
    /// The counters of a worker, or of several workers together, since their start.
    Counters(engine: &flash_engine::Counters, helpers: HelperCounts, calls: Calls) {
        /// Requests begun.
        requests: u64 = engine.requests,
        /// Answers.
        responses: Responses = Responses::of(engine),
        /// Connections of clients.
        connections: Connections = Connections::of(engine),
        /// Look-ups in the caches.
        caches: Caches = Caches::of(engine),
        /// Bytes of bodies sent from the store.
        stored_bytes: u64 = engine.stored_bytes,
        /// Response heads that were encoded. Every other head was stored with its content.
        heads_made: u64 = engine.heads_made,
        /// Jobs for helpers, by kind.
        jobs: BTreeMap<String, JobCounters> = jobs(&engine.jobs),
        /// The time spent in each state.
        times: Times = engine.times,
        /// The queue of jobs.
        queue: Queue = Queue::of(engine.jobs_queued, engine.queue_lengths),
        /// The processes or threads that do the jobs.
        helpers: Helpers = Helpers::of(helpers, engine.jobs_given_up),
        /// Parts of files that were loaded and were evicted before they were sent.
        loads_in_vain: u64 = engine.loads_in_vain,
        /// The schedule: which connection's bytes go first.
        schedule: Schedule = Schedule::of(&engine.schedule),
        /// The uplink of known rate.
        egress: Egress = Egress::of(engine.egress_waiting),
        /// Connections to the servers of routes.
        upstreams: Upstreams = Upstreams::of(engine, &engine.links),
        /// Encrypted connections.
        tls: TlsCounters = engine.tls,
        /// Panics that were caught.
        panics: u64 = engine.panics,
        /// The requests of other servers; only for a backend.
        #[serde(skip_serializing_if = "Option::is_none")]
        backend: Option<Backend> = None,
        /// Events of each dispatch.
        dispatches: Histogram = Histogram(engine.dispatches),
        /// Times to the first bytes of answers, by where these come from.
        latencies: BTreeMap<String, Latency> = Latency::of_all(&engine.latencies),
        /// Bytes of each send to a client.
        sends: Histogram = Histogram(engine.sends),
        /// The times of each call of the event loop that could block.
        calls: Calls = calls,
    }
}

figures! {
    /// The schedule: which connection's bytes go first. Empty if the schedule is fair.
    Schedule(schedule: &flash_engine::ScheduleCounters) {
        /// The cutoffs in use.
        cutoffs: Cutoffs = Cutoffs(schedule.cutoffs.iter().flat_map(|cutoffs| cutoffs.iter()).collect()),
        /// The bands, most urgent first.
        bands: Bands = Bands::of(schedule),
        /// How often a connection got another band.
        changes: u64 = schedule.changes,
    }
}

figures! {
    /// Connections at an uplink of known rate.
    Egress(waiting: usize) {
        /// Connections that wait for their turn now.
        waiting: Gauge = Gauge::of(waiting),
    }
}

figures! {
    /// Connections to the servers of routes.
    Upstreams(engine: &flash_engine::Counters, links: &flash_engine::LinkCounters) {
        /// Connections asked for.
        connects: u64 = links.asked,
        /// Connections that a server did not accept.
        refused: u64 = links.refused,
        /// Connections that were not made because this machine had no descriptors, memory or ports left, or had no gateway.
        shortages: u64 = links.shortages,
        /// Requests that an idle connection served.
        reused: u64 = links.reused,
        /// Requests that waited for a connection.
        queued: u64 = links.queued,
        /// Failures of servers: connections not made, and answers that failed or did not come in time.
        failures: u64 = links.failures,
        /// Connections now.
        connections: Gauge = Gauge::of(links.links),
        /// Requests that wait for a connection now.
        waiting: Gauge = Gauge::of(links.waiting),
        /// Request bodies that are held now: they are not complete, or their server does not have all of them.
        bodies: Gauge = Gauge::of(engine.bodies),
        /// Bytes that their files hold room for now.
        spool_bytes: Gauge = Gauge::of(engine.spool_slots * SPOOL_PIECE_BYTES_MAX),
        /// Servers whose probes fail now.
        probed_down: Shared = Shared(links.down as u64),
    }
}

/// The bands, most urgent first; none if the schedule is fair.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Bands(pub Vec<BandCounters>);

impl Bands {
    fn of(schedule: &flash_engine::ScheduleCounters) -> Self {
        // A fair schedule has counters for bands, and no cutoffs.
        let is_fair = schedule.cutoffs.is_none();
        Self(schedule.bands.iter().filter(|_| !is_fair).copied().collect())
    }
}

impl Figures for Bands {
    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), BandCounters::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| ours.add(theirs));
    }

    fn since(&self, before: &Self) -> Self {
        let none = BandCounters::default();
        let before = before.0.iter().chain(std::iter::repeat(&none));
        Self(self.0.iter().zip(before).map(|(now, before)| now.since(before)).collect())
    }
}

figures! {
    /// Answers, by their status.
    Responses(engine: &flash_engine::Counters) {
        /// Status 200 to 299.
        #[serde(rename = "2xx")]
        of_2xx: u64 = engine.responses[1],
        /// Status 300 to 399.
        #[serde(rename = "3xx")]
        of_3xx: u64 = engine.responses[2],
        /// Status 400 to 499.
        #[serde(rename = "4xx")]
        of_4xx: u64 = engine.responses[3],
        /// Status 500 to 599.
        #[serde(rename = "5xx")]
        of_5xx: u64 = engine.responses[4],
        /// Answers of which only a part was sent.
        cut: u64 = engine.responses_cut,
        /// Answers 429 and 503 to requests that a rule did not admit because of its rate.
        limited: u64 = engine.limited,
    }
}

figures! {
    /// Connections of clients.
    Connections(engine: &flash_engine::Counters) {
        /// Open now.
        open: Gauge = Gauge::of(engine.connections),
        /// The most that were open at once. For several workers, the sum of their maxima.
        most: Gauge = Gauge::of(engine.connections_most),
        /// Accepted.
        accepted: u64 = engine.accepted,
        /// Refused at a limit.
        refused: u64 = engine.refused_all(),
        /// Idle connections closed to make room for new ones.
        evicted: u64 = engine.evicted,
        /// Client addresses that have connections now. For several workers, the sum of their numbers.
        clients: Gauge = Gauge::of(engine.clients),
        /// The refused connections, by reason.
        refused_by: RefusedBy = RefusedBy::of(engine.refused),
    }
}

figures! {
    /// Refused connections, by reason.
    RefusedBy(refused: [u64; 5]) {
        /// The limit of connections.
        limit: u64 = refused[0],
        /// The share of one client address.
        client: u64 = refused[1],
        /// New connections that waited too long.
        overload: u64 = refused[2],
        /// No more descriptors or memory.
        descriptors: u64 = refused[3],
        /// A proxy that did not introduce the client.
        introduction: u64 = refused[4],
    }
}

figures! {
    /// Look-ups in each cache.
    Caches(engine: &flash_engine::Counters) {
        /// Request heads known by their bytes.
        known: Known = Known::of(engine.known_hits, engine.known_misses),
        /// Path look-ups in the name cache.
        names: Names = Names::of(engine.name_hits, engine.name_misses, engine.names),
        /// Names taken over from those that all workers share.
        names_shared: u64 = engine.names_shared,
        /// Names used without a check because their changes are reported; not those of requests known by their heads.
        names_watched: u64 = engine.names_watched,
        /// One-block files in the store, with their response heads.
        contents: Names = Names::of(engine.content_hits, engine.content_misses, engine.contents),
        /// Blocks of larger files in the store.
        blocks: Known = Known::of(engine.block_hits, engine.block_misses),
        /// Files kept open.
        files: Names = Names::of(engine.file_hits, engine.file_misses, engine.files),
    }
}

figures! {
    /// Look-ups in a cache whose entries are not counted.
    Known(found: u64, missed: u64) {
        /// Look-ups.
        lookups: u64 = found + missed,
        /// Look-ups that found an entry.
        hits: u64 = found,
    }
}

figures! {
    /// Look-ups in a cache whose entries are counted.
    Names(found: u64, missed: u64, entries: usize) {
        /// Look-ups.
        lookups: u64 = found + missed,
        /// Look-ups that found an entry.
        hits: u64 = found,
        /// Entries now.
        entries: Gauge = Gauge::of(entries),
    }
}

figures! {
    /// The queue of jobs.
    Queue(jobs: usize, counted: flash_engine::Histogram) {
        /// Jobs waiting now.
        now: Gauge = Gauge::of(jobs),
        /// Length of the queue whenever a job was added, including that job.
        lengths: Histogram = Histogram(counted),
    }
}

figures! {
    /// The processes or threads that do jobs.
    Helpers(helpers: HelperCounts, lost: usize) {
        /// Helpers that exist now.
        now: Gauge = Gauge::of(helpers.all),
        /// Helpers that have a job now.
        busy: Gauge = Gauge::of(helpers.busy),
        /// Helpers that were given up and have not ended.
        given_up: Gauge = Gauge::of(lost),
    }
}

figures! { impl BandCounters { answers, bytes } }
figures! { impl JobCounters { started, refused, refused_wait, lost } }
figures! { impl TlsCounters { handshakes, resumed, failed, plain_requests, on_plain } }
figures! { impl Times { connections_ms, exchanges_ms, jobs_queued_ms, jobs_running_ms, egress_waiting_ms } }

/// Jobs by the names of their kinds.
pub(super) fn jobs(jobs: &[JobCounters; JobKind::ALL.len()]) -> BTreeMap<String, JobCounters> {
    JobKind::ALL.iter().zip(jobs).map(|(kind, job)| (kind.name().to_owned(), *job)).collect()
}

/// The helpers of a worker: all, and those that have a job.
#[derive(Clone, Copy, Debug)]
pub struct HelperCounts {
    /// All helpers.
    pub all: usize,
    /// Those that have a job.
    pub busy: usize,
}

impl Counters {
    /// As JSON, for the supervisor.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A struct of numbers always has a JSON form, so this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Adds the counters of another worker.
    pub fn merge(&mut self, other: &Counters) {
        Figures::add(self, other);
    }

    /// The counts since `before`. A gauge keeps its present value.
    #[must_use]
    pub fn after(&self, before: &Counters) -> Self {
        Figures::since(self, before)
    }

    /// The counts of a worker that has ended: every gauge is 0.
    #[must_use]
    pub fn ended(&self) -> Self {
        Figures::ended(self)
    }

    /// Bytes sent to clients.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.sends.0.sum()
    }
}
