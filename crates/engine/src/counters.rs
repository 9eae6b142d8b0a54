//! Counters of an engine: plain numbers that every module increments as it works.
//!
//! The worker reads all of them through [`Engine::counters`](crate::Engine::counters) for `flash stats`. No
//! decision may depend on them.

use flash_http::response::Status;
use serde::{Deserialize, Serialize};

use crate::admission::WhyRefused;
use crate::histogram::Histogram;
use crate::schedule::ScheduleCounters;
use crate::timing::{CacheResult, Latencies};

/// The counters of an engine since its start, and the amounts it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests begun: every head that was read completely or refused.
    pub requests: u64,
    /// Requests answered from the store.
    pub content_hits: u64,
    /// Requests for one-block files whose block was not in the store.
    pub content_misses: u64,
    /// Body bytes sent from the store.
    pub stored_bytes: u64,
    /// Parts of larger files that were sent from the store.
    pub block_hits: u64,
    /// Parts of larger files that were not in the store.
    pub block_misses: u64,
    /// Hits (a part of `content_hits`) whose head was recognized by its bytes.
    pub known_hits: u64,
    /// Requests whose head was looked up by its bytes but was not known.
    pub known_misses: u64,
    /// Response heads that were encoded. Every other head was stored with its content.
    pub heads_made: u64,
    /// Look-ups answered by the name cache.
    pub name_hits: u64,
    /// Look-ups that the name cache could not answer.
    pub name_misses: u64,
    /// Names that were taken over from those that all workers share.
    pub names_shared: u64,
    /// Names used without a check because their changes are reported; not those of requests known by their heads.
    pub names_watched: u64,
    /// Requests that needed a file which was still open.
    pub file_hits: u64,
    /// Requests that needed a file which had to be opened.
    pub file_misses: u64,
    /// Answers by the first digit of their status: 1xx (always 0) to 5xx.
    pub responses: [u64; 5],
    /// Answers of which only a part was sent.
    pub responses_cut: u64,
    /// Requests that a rule refused because they came too soon.
    pub limited: u64,
    /// Times to the first bytes of answers, in the order of [`CacheResult::ALL`].
    pub latencies: [Latencies; CacheResult::ALL.len()],
    /// Bytes of each send to a client; 0 when the connection accepted nothing.
    pub sends: Histogram,
    /// Events of each dispatch: the number of ready descriptors that the kernel returned at once.
    pub dispatches: Histogram,
    /// Jobs, in the order of [`JobKind::ALL`].
    pub jobs: [JobCounters; JobKind::ALL.len()],
    /// Length of the job queue whenever a job was added, including that job.
    pub queue_lengths: Histogram,
    /// Files or blocks that a helper had loaded and that were evicted before they were sent.
    pub loads_in_vain: u64,
    /// The time spent in each state.
    pub times: Times,
    /// Connections that wait for the uplink.
    pub egress_waiting: usize,
    /// How long the longest of these has waited, in milliseconds.
    pub egress_wait_ms: u64,
    /// The bands of the schedule.
    pub schedule: ScheduleCounters,
    /// Connections to upstreams.
    pub links: LinkCounters,
    /// Connections of HTTP/2.
    pub http2: Http2Counters,
    /// Encrypted connections.
    pub tls: TlsCounters,
    /// Panics that were caught.
    pub panics: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused, in the order of [`WhyRefused::ALL`].
    pub refused: [u64; WhyRefused::ALL.len()],
    /// Idle connections closed to make room for new ones.
    pub evicted: u64,
    /// The most connections that were open at once.
    pub connections_most: usize,
    /// Connections open now.
    pub connections: usize,
    /// Clients that have these connections; 0 without a bound for clients.
    pub clients: usize,
    /// Requests that wait for a job, or whose answers are being sent piece by piece.
    pub exchanges: usize,
    /// Bytes of input in memory: unread input of connections, and request bodies that are held.
    pub input_bytes: usize,
    /// Request bodies that are held until they are complete, or until their server has them.
    pub bodies: usize,
    /// Slots of the file for request bodies that are in use.
    pub spool_slots: usize,
    /// Names in the cache.
    pub names: usize,
    /// Contents in the cache, each with its head.
    pub contents: usize,
    /// Files kept open.
    pub files: usize,
    /// Jobs that wait for a helper.
    pub jobs_queued: usize,
    /// Jobs that helpers work on.
    pub jobs_running: usize,
    /// Jobs that were given up and whose helpers have not ended yet.
    pub jobs_given_up: usize,
}

/// Connections of HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2Counters {
    /// Connections that have begun with its preface, or agreed on it.
    pub connections: u64,
    /// Connections that were ended because the client violated the protocol.
    pub failed: u64,
    /// Connections that were ended because the client sent too many frames that ask for nothing.
    pub flooding: u64,
}

/// Encrypted connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsCounters {
    /// Handshakes completed in full, each with a signature.
    pub handshakes: u64,
    /// Handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Handshakes that failed, were late, or were given up by the client.
    pub failed: u64,
    /// Connections without TLS to a listener with TLS, answered 400.
    pub plain_requests: u64,
    /// Connections with TLS to a listener without, closed.
    pub on_plain: u64,
}

/// Connections to the servers of upstreams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Connections asked for.
    pub asked: u64,
    /// Connections that a server did not accept.
    pub refused: u64,
    /// Connections that were not made because this machine had no descriptors, memory or ports left, or had no gateway.
    pub shortages: u64,
    /// Requests that an idle connection served.
    pub reused: u64,
    /// Requests that waited for a connection.
    pub queued: u64,
    /// Answers that failed before their head was complete.
    pub failures: u64,
    /// Connections open or in the making.
    pub links: usize,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Servers whose probes have failed.
    pub down: usize,
}

/// The time that connections, requests and jobs have spent in each state: of each state the sum over all that were in it,
/// in milliseconds. Divided by the time that passed it is their average number (Little's law).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Times {
    /// Time for which connections were open.
    pub connections_ms: u64,
    /// Time for which requests waited for a job, or had their answers sent piece by piece.
    #[serde(rename = "requests_ms")]
    pub exchanges_ms: u64,
    /// Time for which jobs waited for a helper.
    #[serde(rename = "queue_ms")]
    pub jobs_queued_ms: u64,
    /// Time for which helpers worked on jobs.
    #[serde(rename = "helpers_ms")]
    pub jobs_running_ms: u64,
    /// Time for which connections waited for the uplink.
    #[serde(rename = "uplink_ms")]
    pub egress_waiting_ms: u64,
}

impl Times {
    /// Adds the time that has passed since the last turn, in which the numbers did not change.
    pub(crate) fn pass(
        &mut self,
        passed_ms: u64,
        [connections, exchanges, queued, running, waiting]: [usize; 5],
    ) {
        self.connections_ms += passed_ms * connections as u64;
        self.exchanges_ms += passed_ms * exchanges as u64;
        self.jobs_queued_ms += passed_ms * queued as u64;
        self.jobs_running_ms += passed_ms * running as u64;
        self.egress_waiting_ms += passed_ms * waiting as u64;
    }
}

/// Kinds of jobs for helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Look up a path.
    Find,
    /// List a directory.
    List,
    /// Bring a block of a file into the store.
    Fill,
    /// Bring a part of a file into the page cache.
    Load,
    /// Read bytes and hand them over.
    Read,
    /// Close a deleted file.
    Close,
    /// Write or read a part of a request body that waits until it is complete.
    Spool,
    /// Compare a password with a stored one.
    Verify,
    /// Compress a piece of an answer.
    Deflate,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [JobKind; 9] = [
        JobKind::Find,
        JobKind::List,
        JobKind::Fill,
        JobKind::Load,
        JobKind::Read,
        JobKind::Close,
        JobKind::Spool,
        JobKind::Verify,
        JobKind::Deflate,
    ];

    /// The name of the kind, as `flash stats` prints it.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Find => "find",
            JobKind::List => "list",
            JobKind::Fill => "fill",
            JobKind::Load => "load",
            JobKind::Read => "read",
            JobKind::Close => "close",
            JobKind::Spool => "spool",
            JobKind::Verify => "verify",
            JobKind::Deflate => "deflate",
        }
    }
}

/// How the jobs of one kind ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobCounters {
    /// Jobs handed to helpers.
    pub started: u64,
    /// Requests refused because their root's share of the queue was full.
    pub refused: u64,
    /// Requests refused because they would have waited for a helper longer than
    /// [`Rules::queue_wait_ms`](crate::Rules::queue_wait_ms).
    pub refused_wait: u64,
    /// Jobs without a result: the helper died or passed the deadline, or no helper was free before the
    /// deadline.
    pub lost: u64,
}

impl Counters {
    /// Connections refused for any reason.
    pub fn refused_all(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Requests refused because their root's share of the job queue was full, or because the expected wait
    /// was too long.
    pub fn jobs_refused(&self) -> u64 {
        self.jobs.iter().map(|kind| kind.refused + kind.refused_wait).sum()
    }

    /// Counts a request answered from the store, and its bytes.
    #[inline]
    pub(crate) fn count_content(&mut self, bytes: u64) {
        self.content_hits += 1;
        self.stored_bytes += bytes;
    }

    /// Counts an answer that has ended, whether all of it was sent or not.
    #[inline]
    pub(crate) fn count_response(&mut self, status: Status, whole: bool) {
        if let Some(class) = self.responses.get_mut(usize::from(status.0 / 100).wrapping_sub(1)) {
            *class += 1;
        }
        self.responses_cut += u64::from(!whole);
    }
}
