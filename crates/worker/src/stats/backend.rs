//! The counters of a backend as they are reported.

use std::collections::BTreeMap;

use flash_engine::JobKind;
use flash_engine::backend::BackendCounters;

use super::calls::Calls;
use super::counters::{Connections, Counters, Helpers, Job, Jobs, Queue};
use super::figures::{Gauge, Histogram, figures};

figures! {
    /// The requests of other servers, since the start of the backend's worker.
    Backend {
        /// Requests for names.
        names: u64,
        /// Requests for names that were answered from memory, without a job.
        from_memory: u64,
        /// Names that were looked up at the start (`--names`).
        looked_up: u64,
        /// Requests for ranges.
        ranges: u64,
        /// Files received to be closed.
        closes: u64,
        /// Requests withdrawn.
        cancels: u64,
        /// Requests that joined the job of another.
        joined: u64,
        /// Requests whose name or range was brought into memory.
        ready: u64,
        /// Requests that failed, except for their deadlines.
        errors: u64,
        /// Requests whose deadlines passed.
        timed_out: u64,
        /// Requests that were not begun.
        busy: Busy,
        /// Connections ended because a message did not follow the protocol.
        malformed: u64,
        /// Unanswered requests now.
        pending: Gauge,
        /// Time from a request to its reply in milliseconds, except for refusals.
        waits_ms: Histogram,
        /// The present clients by their names.
        clients: BTreeMap<String, Client>,
    }
}

figures! {
    /// Requests that were not begun, by the cause.
    Busy {
        /// Their client's own limit was reached.
        quota: u64,
        /// The queue was full.
        queue: u64,
        /// Their expected wait was too long.
        wait: u64,
        /// Too many were unanswered.
        bounds: u64,
    }
}

figures! {
    /// The present connections of clients with one name.
    Client {
        /// Connections.
        connections: Gauge,
        /// Unanswered requests.
        pending: Gauge,
    }
}

impl Counters {
    /// Combines the counters of a backend, the number of names looked up at its start, the numbers of helpers and of busy helpers, and the times of its
    /// calls.
    #[must_use]
    pub fn of_backend(
        (backend, looked_up): (&BackendCounters, u64),
        (helpers, busy): (usize, usize),
        calls: Calls,
    ) -> Self {
        let gauge = |number: usize| Gauge(number as u64);
        let job = |kind: JobKind| Job::of(backend.jobs[kind as usize]);
        let clients = backend.clients.iter().map(|client| {
            let counted = Client { connections: gauge(client.connections), pending: gauge(client.pending) };
            (client.name.clone(), counted)
        });
        Self {
            requests: backend.names + backend.ranges,
            connections: Connections {
                open: gauge(backend.connections),
                accepted: backend.accepted,
                refused: backend.refused,
                ..Connections::default()
            },
            jobs: Jobs { find: job(JobKind::Find), load: job(JobKind::Load), ..Jobs::default() },
            queue: Queue { now: gauge(backend.jobs_queued), lengths: Histogram(backend.queue_lengths) },
            helpers: Helpers {
                now: gauge(helpers),
                busy: gauge(busy),
                given_up: gauge(backend.jobs_given_up),
            },
            backend: Some(Backend {
                names: backend.names,
                from_memory: backend.from_memory,
                looked_up,
                ranges: backend.ranges,
                closes: backend.closes,
                cancels: backend.cancels,
                joined: backend.joined,
                ready: backend.ready,
                errors: backend.errors,
                timed_out: backend.timed_out,
                busy: Busy {
                    quota: backend.busy_quota,
                    queue: backend.busy_queue,
                    wait: backend.busy_wait,
                    bounds: backend.busy_bounds,
                },
                malformed: backend.malformed,
                pending: gauge(backend.pending),
                waits_ms: Histogram(backend.waits_ms),
                clients: clients.collect(),
            }),
            calls,
            ..Self::default()
        }
    }
}
