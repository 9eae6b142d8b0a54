//! A worker's counters as they are reported: in the message to the supervisor, and in the answer to a client
//! of the control socket.

use flash_engine::JobKind;
use flash_engine::limits::SPOOL_PIECE_BYTES_MAX;

use super::backend::Backend;
use super::calls::Calls;
use super::figures::{Cutoffs, Figures, Gauge, Histogram, Shared, figures};

figures! {
    /// The counters of a worker, or of several workers together, since their start.
    Counters {
        /// Requests begun.
        requests: u64,
        /// Answers.
        responses: Responses,
        /// Connections of clients.
        connections: Connections,
        /// Look-ups in the caches.
        caches: Caches,
        /// Bytes of bodies sent from the store.
        stored_bytes: u64,
        /// Response heads that were encoded. Every other head was stored with its content.
        heads_made: u64,
        /// Jobs for helpers, by kind.
        jobs: Jobs,
        /// The time spent in each state.
        times: Times,
        /// The queue of jobs.
        queue: Queue,
        /// The processes or threads that do the jobs.
        helpers: Helpers,
        /// Parts of files that were loaded and were evicted before they were sent.
        loads_in_vain: u64,
        /// The schedule: which connection's bytes go first.
        schedule: Schedule,
        /// The uplink of known rate.
        egress: Egress,
        /// Connections to the servers of routes.
        upstreams: Upstreams,
        /// Panics that were caught.
        panics: u64,
        /// The requests of other servers; only for a backend.
        #[serde(skip_serializing_if = "Option::is_none")]
        backend: Option<Backend>,
        /// Events of each dispatch.
        dispatches: Histogram,
        /// Bytes of each send to a client.
        sends: Histogram,
        /// The times of each call of the event loop that could block.
        calls: Calls,
    }
}

figures! {
    /// The schedule: which connection's bytes go first. Empty if the schedule is fair.
    Schedule {
        /// The cutoffs in use.
        cutoffs: Cutoffs,
        /// The bands, most urgent first.
        bands: Bands,
        /// How often a connection got another band.
        changes: u64,
    }
}

figures! {
    /// Connections at an uplink of known rate.
    Egress {
        /// Connections that wait for their turn now.
        waiting: Gauge,
    }
}

figures! {
    /// Connections to the servers of routes.
    Upstreams {
        /// Connections asked for.
        connects: u64,
        /// Connections that a server did not accept.
        refused: u64,
        /// Connections that were not made because this machine had no descriptors, memory or ports left, or had no gateway.
        shortages: u64,
        /// Requests that an idle connection served.
        reused: u64,
        /// Requests that waited for a connection.
        queued: u64,
        /// Failures of servers: connections not made, and answers that failed or did not come in time.
        failures: u64,
        /// Connections now.
        connections: Gauge,
        /// Requests that wait for a connection now.
        waiting: Gauge,
        /// Request bodies that are held now: they are not complete, or their server does not have all of them.
        bodies: Gauge,
        /// Bytes that their files hold room for now.
        spool_bytes: Gauge,
        /// Servers whose probes fail now.
        probed_down: Shared,
    }
}

figures! {
    /// The work of one band.
    Band {
        /// Answers that began in it.
        answers: u64,
        /// Bytes sent while the connection was in it.
        bytes: u64,
    }
}

/// The bands, most urgent first; none if the schedule is fair.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Bands(pub Vec<Band>);

impl Figures for Bands {
    fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Band::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(ours, theirs)| ours.add(theirs));
    }

    fn since(&self, before: &Self) -> Self {
        let none = Band::default();
        let before = before.0.iter().chain(std::iter::repeat(&none));
        Self(self.0.iter().zip(before).map(|(now, before)| now.since(before)).collect())
    }

    fn ended(&self) -> Self {
        self.clone()
    }
}

figures! {
    /// Answers, by their status.
    Responses {
        /// Status 200 to 299.
        #[serde(rename = "2xx")]
        of_2xx: u64,
        /// Status 300 to 399.
        #[serde(rename = "3xx")]
        of_3xx: u64,
        /// Status 400 to 499.
        #[serde(rename = "4xx")]
        of_4xx: u64,
        /// Status 500 to 599.
        #[serde(rename = "5xx")]
        of_5xx: u64,
        /// Answers of which only a part was sent.
        cut: u64,
    }
}

figures! {
    /// Connections of clients.
    Connections {
        /// Open now.
        open: Gauge,
        /// The most that were open at once. For several workers, the sum of their maxima.
        most: Gauge,
        /// Accepted.
        accepted: u64,
        /// Refused at a limit.
        refused: u64,
        /// Idle connections closed to make room for new ones.
        evicted: u64,
        /// Client addresses that have connections now. For several workers, the sum of their numbers.
        clients: Gauge,
        /// The refused connections, by reason.
        refused_by: RefusedBy,
    }
}

figures! {
    /// Refused connections, by reason.
    RefusedBy {
        /// The limit of connections.
        limit: u64,
        /// The share of one client address.
        client: u64,
        /// New connections that waited too long.
        overload: u64,
        /// No more descriptors or memory.
        descriptors: u64,
    }
}

figures! {
    /// Look-ups in each cache.
    Caches {
        /// Request heads known by their bytes.
        known: Known,
        /// Path look-ups in the name cache.
        names: Names,
        /// Names taken over from those that all workers share.
        names_shared: u64,
        /// One-block files in the store, with their response heads.
        contents: Names,
        /// Blocks of larger files in the store.
        blocks: Known,
        /// Files kept open.
        files: Names,
    }
}

figures! {
    /// Look-ups in a cache whose entries are not counted.
    Known {
        /// Look-ups.
        lookups: u64,
        /// Look-ups that found an entry.
        hits: u64,
    }
}

figures! {
    /// Look-ups in a cache whose entries are counted.
    Names {
        /// Look-ups.
        lookups: u64,
        /// Look-ups that found an entry.
        hits: u64,
        /// Entries now.
        entries: Gauge,
    }
}

figures! {
    /// Jobs by kind.
    Jobs {
        /// Look up a path.
        find: Job,
        /// List a directory.
        list: Job,
        /// Bring a block of a file into the store.
        fill: Job,
        /// Bring a part of a file into the page cache.
        load: Job,
        /// Read a part of a file and hand it over.
        read: Job,
        /// Close a deleted file.
        close: Job,
        /// Write or read a part of a request body.
        spool: Job,
    }
}

figures! {
    /// How the jobs of one kind ended.
    Job {
        /// Jobs handed to helpers.
        started: u64,
        /// Requests refused because the queue was full.
        refused: u64,
        /// Requests refused because their expected wait was too long.
        refused_wait: u64,
        /// Jobs without a result.
        lost: u64,
    }
}

figures! {
    /// The time spent in each state, summed over all that were in it, in milliseconds.
    Times {
        /// Time for which connections were open.
        connections_ms: u64,
        /// Time for which requests waited for a job, or had their answers sent piece by piece.
        requests_ms: u64,
        /// Time for which jobs waited for a helper.
        queue_ms: u64,
        /// Time for which helpers worked on jobs.
        helpers_ms: u64,
        /// Time for which connections waited for the uplink.
        uplink_ms: u64,
    }
}

figures! {
    /// The queue of jobs.
    Queue {
        /// Jobs waiting now.
        now: Gauge,
        /// Length of the queue whenever a job was added, including that job.
        lengths: Histogram,
    }
}

figures! {
    /// The processes or threads that do jobs.
    Helpers {
        /// Helpers that exist now.
        now: Gauge,
        /// Helpers that have a job now.
        busy: Gauge,
        /// Helpers that were given up and have not ended.
        given_up: Gauge,
    }
}

impl Job {
    pub(super) fn of(counters: flash_engine::JobCounters) -> Self {
        let flash_engine::JobCounters { started, refused, refused_wait, lost } = counters;
        Self { started, refused, refused_wait, lost }
    }
}

fn upstreams(engine: &flash_engine::Counters) -> Upstreams {
    let links = &engine.links;
    Upstreams {
        connects: links.asked,
        refused: links.refused,
        shortages: links.shortages,
        reused: links.reused,
        queued: links.queued,
        failures: links.failures,
        connections: Gauge(links.links as u64),
        waiting: Gauge(links.waiting as u64),
        bodies: Gauge(engine.bodies as u64),
        spool_bytes: Gauge((engine.spool_slots * SPOOL_PIECE_BYTES_MAX) as u64),
        probed_down: Shared(links.down as u64),
    }
}

fn jobs(engine: &flash_engine::Counters) -> Jobs {
    let job = |kind: JobKind| Job::of(engine.jobs[kind as usize]);
    Jobs {
        find: job(JobKind::Find),
        list: job(JobKind::List),
        fill: job(JobKind::Fill),
        load: job(JobKind::Load),
        read: job(JobKind::Read),
        close: job(JobKind::Close),
        spool: job(JobKind::Spool),
    }
}

fn schedule(schedule: &flash_engine::ScheduleCounters) -> Schedule {
    let Some(cutoffs) = schedule.cutoffs else { return Schedule::default() };
    let band = |band: &flash_engine::BandCounters| Band { answers: band.answers, bytes: band.bytes };
    Schedule {
        cutoffs: Cutoffs(cutoffs.iter().collect()),
        bands: Bands(schedule.bands.iter().map(band).collect()),
        changes: schedule.changes,
    }
}

impl Counters {
    /// Combines the counters of an engine, the numbers of helpers and of busy helpers, and the times of its
    /// calls.
    #[must_use]
    pub fn of(engine: &flash_engine::Counters, (helpers, busy): (usize, usize), calls: Calls) -> Self {
        let gauge = |number: usize| Gauge(number as u64);
        let [limit, client, overload, descriptors] = engine.refused;
        let [_, of_2xx, of_3xx, of_4xx, of_5xx] = engine.responses;
        Self {
            requests: engine.requests,
            responses: Responses { of_2xx, of_3xx, of_4xx, of_5xx, cut: engine.responses_cut },
            connections: Connections {
                open: gauge(engine.connections),
                most: gauge(engine.connections_most),
                accepted: engine.accepted,
                refused: engine.refused_all(),
                evicted: engine.evicted,
                clients: gauge(engine.clients),
                refused_by: RefusedBy { limit, client, overload, descriptors },
            },
            caches: Caches {
                known: Known { lookups: engine.known_hits + engine.known_misses, hits: engine.known_hits },
                names: Names {
                    lookups: engine.name_hits + engine.name_misses,
                    hits: engine.name_hits,
                    entries: gauge(engine.names),
                },
                names_shared: engine.names_shared,
                contents: Names {
                    lookups: engine.content_hits + engine.content_misses,
                    hits: engine.content_hits,
                    entries: gauge(engine.contents),
                },
                blocks: Known { lookups: engine.block_hits + engine.block_misses, hits: engine.block_hits },
                files: Names {
                    lookups: engine.file_hits + engine.file_misses,
                    hits: engine.file_hits,
                    entries: gauge(engine.files),
                },
            },
            stored_bytes: engine.stored_bytes,
            heads_made: engine.heads_made,
            jobs: jobs(engine),
            times: Times {
                connections_ms: engine.times.connections_ms,
                requests_ms: engine.times.exchanges_ms,
                queue_ms: engine.times.jobs_queued_ms,
                helpers_ms: engine.times.jobs_running_ms,
                uplink_ms: engine.times.egress_waiting_ms,
            },
            queue: Queue { now: gauge(engine.jobs_queued), lengths: Histogram(engine.queue_lengths) },
            helpers: Helpers {
                now: gauge(helpers),
                busy: gauge(busy),
                given_up: gauge(engine.jobs_given_up),
            },
            loads_in_vain: engine.loads_in_vain,
            schedule: schedule(&engine.schedule),
            egress: Egress { waiting: gauge(engine.egress_waiting) },
            upstreams: upstreams(engine),
            panics: engine.panics,
            backend: None,
            dispatches: Histogram(engine.dispatches),
            sends: Histogram(engine.sends),
            calls,
        }
    }

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
