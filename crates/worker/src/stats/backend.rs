//! The counters of a backend as they are reported.

use std::collections::BTreeMap;

use flash_engine::backend::{BackendCounters, ClientCounters};

use super::calls::Calls;
use super::counters::{Connections, Counters, HelperCounts, Helpers, Queue, jobs};
use super::figures::{Gauge, Histogram, figures};

figures! {
    /// The requests of other servers, since the start of the backend's worker.
    Backend(backend: &BackendCounters, looked_up: u64) {
        /// Requests for names.
        names: u64 = backend.names,
        /// Requests for names that were answered from memory, without a job.
        from_memory: u64 = backend.from_memory,
        /// Names that were looked up at the start (`--names`).
        looked_up: u64 = looked_up,
        /// Requests for ranges.
        ranges: u64 = backend.ranges,
        /// Files received to be closed.
        closes: u64 = backend.closes,
        /// Requests withdrawn.
        cancels: u64 = backend.cancels,
        /// Requests that joined the job of another.
        joined: u64 = backend.joined,
        /// Requests whose name or range was brought into memory.
        ready: u64 = backend.ready,
        /// Requests that failed, except for their deadlines.
        errors: u64 = backend.errors,
        /// Requests whose deadlines passed.
        timed_out: u64 = backend.timed_out,
        /// Requests that were not begun.
        busy: Busy = Busy::of(backend),
        /// Connections ended because a message did not follow the protocol.
        malformed: u64 = backend.malformed,
        /// Unanswered requests now.
        pending: Gauge = Gauge::of(backend.pending),
        /// Time from a request to its reply in milliseconds, except for refusals.
        waits_ms: Histogram = Histogram(backend.waits_ms),
        /// The present clients by their names.
        clients: BTreeMap<String, Client> = {
            backend.clients.iter().map(|client| (client.name.clone(), Client::of(client))).collect()
        },
    }
}

figures! {
    /// Requests that were not begun, by the cause.
    Busy(backend: &BackendCounters) {
        /// Their client's own limit was reached.
        quota: u64 = backend.busy_quota,
        /// The queue was full.
        queue: u64 = backend.busy_queue,
        /// Their expected wait was too long.
        wait: u64 = backend.busy_wait,
        /// Too many were unanswered.
        bounds: u64 = backend.busy_bounds,
    }
}

figures! {
    /// The present connections of clients with one name.
    Client(client: &ClientCounters) {
        /// Connections.
        connections: Gauge = Gauge::of(client.connections),
        /// Unanswered requests.
        pending: Gauge = Gauge::of(client.pending),
    }
}

impl Counters {
    /// Combines the counters of a backend, the number of names looked up at its start, its helpers, and the times of its calls.
    #[must_use]
    pub fn of_backend(
        backend: &BackendCounters,
        looked_up: u64,
        helpers: HelperCounts,
        calls: Calls,
    ) -> Self {
        Self {
            requests: backend.names + backend.ranges,
            connections: Connections {
                open: Gauge::of(backend.connections),
                accepted: backend.accepted,
                refused: backend.refused,
                ..Connections::default()
            },
            jobs: jobs(&backend.jobs),
            queue: Queue::of(backend.jobs_queued, backend.queue_lengths),
            helpers: Helpers::of(helpers, backend.jobs_given_up),
            backend: Some(Backend::of(backend, looked_up)),
            calls,
            ..Self::default()
        }
    }
}
