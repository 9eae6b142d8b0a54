//! Counters of an engine: plain numbers that it counts as it goes.
//!
//! The steps count here; the server reads all of it through
//! [`Engine::counters`](crate::Engine::counters). Nothing may be decided by these numbers.

use flash_http::response::Status;

use crate::histogram::Histogram;

/// The counts of an engine since its start, and the amounts it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests begun: every head that was read whole, or refused.
    pub requests: u64,
    /// Requests answered from the content cache.
    pub content_hits: u64,
    /// Files small enough for the content cache that were not in it.
    pub content_misses: u64,
    /// Those among the hits that were known by the bytes of their head.
    pub known_hits: u64,
    /// Requests whose heads were looked for by their bytes in vain.
    pub known_misses: u64,
    /// Response heads made for an answer. All others were kept with their contents.
    pub heads_made: u64,
    /// Look-ups answered by the name cache.
    pub name_hits: u64,
    /// Look-ups that it could not answer.
    pub name_misses: u64,
    /// Requests for which a file was needed that was open still.
    pub file_hits: u64,
    /// Those for which it was opened.
    pub file_misses: u64,
    /// Answers by the hundreds of their status: 1xx first, which are none, to 5xx.
    pub responses: [u64; 5],
    /// Those among them of which only a part was sent.
    pub responses_cut: u64,
    /// Bytes of each send to a client; 0 when its connection took nothing.
    pub sends: Histogram,
    /// Events of each dispatch: ready descriptors that the kernel gave at once.
    pub dispatches: Histogram,
    /// Jobs, in the order of [`JobKind::ALL`].
    pub jobs: [JobCounters; JobKind::ALL.len()],
    /// Jobs waiting for a helper whenever one was added, that one included.
    pub queue_lengths: Histogram,
    /// Files, or blocks of them, that a helper had loaded and that were gone again when they were to be
    /// sent.
    pub loads_in_vain: u64,
    /// Panics caught.
    pub panics: u64,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused at a limit.
    pub refused: u64,
    /// Idle connections closed to make room for another one.
    pub evicted: u64,
    /// The most connections that were open at once.
    pub connections_most: usize,
    /// Connections open.
    pub connections: usize,
    /// Requests that wait, or whose answers are being sent piece by piece.
    pub exchanges: usize,
    /// Bytes of input that connections hold.
    pub input_bytes: usize,
    /// Names in the cache.
    pub names: usize,
    /// Bytes in the content cache.
    pub content_bytes: u64,
    /// Files kept open.
    pub files: usize,
    /// Jobs that wait for a helper.
    pub jobs_queued: usize,
    /// Jobs at helpers.
    pub jobs_running: usize,
    /// Jobs given up whose helpers are not gone yet.
    pub jobs_given_up: usize,
}

/// Kinds of jobs for helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Find what a path leads to.
    Find,
    /// List a directory.
    List,
    /// Bring a part of a file into memory.
    Load,
    /// Hand bytes over.
    Read,
    /// Close a deleted file.
    Close,
}

impl JobKind {
    /// All of them.
    pub const ALL: [JobKind; 5] =
        [JobKind::Find, JobKind::List, JobKind::Load, JobKind::Read, JobKind::Close];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Find => "find",
            JobKind::List => "list",
            JobKind::Load => "load",
            JobKind::Read => "read",
            JobKind::Close => "close",
        }
    }
}

/// The fates of jobs of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCounters {
    /// Handed to helpers.
    pub started: u64,
    /// Requests refused because their root's share of the queue was full.
    pub refused: u64,
    /// Without a result: the helper died or passed the deadline, or none was to be had by then.
    pub lost: u64,
}

impl Counters {
    /// Requests refused because their root's share of the queue of jobs was full.
    pub fn jobs_refused(&self) -> u64 {
        self.jobs.iter().map(|kind| kind.refused).sum()
    }

    /// An answer has ended, sent to its end or not.
    #[inline]
    pub(crate) fn count_response(&mut self, status: Status, whole: bool) {
        if let Some(class) = self.responses.get_mut(usize::from(status.0 / 100).wrapping_sub(1)) {
            *class += 1;
        }
        self.responses_cut += u64::from(!whole);
    }
}
