//! Counters of a backend, for `flash stats`. No decision may depend on them.

use crate::counters::{JobCounters, JobKind};
use crate::histogram::Histogram;

/// The counters of a backend since its start, and the amounts that it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackendCounters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused: at a limit, of another version, or of a user who is not allowed.
    pub refused: u64,
    /// Connections ended because a message did not follow the protocol.
    pub malformed: u64,
    /// Requests for names.
    pub names: u64,
    /// Requests for names that were answered from memory, without a job.
    pub from_memory: u64,
    /// Requests for ranges.
    pub ranges: u64,
    /// Files received to be closed.
    pub closes: u64,
    /// Requests withdrawn.
    pub cancels: u64,
    /// Requests that joined the job of another.
    pub joined: u64,
    /// Requests whose name or range is in memory now.
    pub ready: u64,
    /// Requests that failed, except for their deadlines.
    pub errors: u64,
    /// Requests whose deadlines passed.
    pub timed_out: u64,
    /// Requests refused at their client's own limit.
    pub busy_quota: u64,
    /// Requests refused because the queue was full.
    pub busy_queue: u64,
    /// Requests refused because their expected wait was too long.
    pub busy_wait: u64,
    /// Requests refused because too many were unanswered.
    pub busy_bounds: u64,
    /// Time from a request to its reply, in milliseconds, except for refusals.
    pub waits_ms: Histogram,
    /// Connections open now.
    pub connections: usize,
    /// Unanswered requests now.
    pub pending: usize,
    /// Jobs, in the order of [`JobKind::ALL`]: a name is a `Find`, a range a `Load`.
    pub jobs: [JobCounters; JobKind::ALL.len()],
    /// The queue length whenever a job was added, including that job.
    pub queue_lengths: Histogram,
    /// Jobs that wait for a helper.
    pub jobs_queued: usize,
    /// Jobs that helpers work on.
    pub jobs_running: usize,
    /// Jobs that were given up and whose helpers have not ended yet.
    pub jobs_given_up: usize,
    /// The present clients by their names.
    pub clients: Vec<ClientCounters>,
}

/// The present connections of one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCounters {
    /// The name.
    pub name: String,
    /// Its connections.
    pub connections: usize,
    /// Its unanswered requests.
    pub pending: usize,
}
