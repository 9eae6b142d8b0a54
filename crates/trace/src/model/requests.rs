//! Requests, as a kernel trace shows them: how long they waited for the first byte of their answers, and behind whom.

use serde::{Deserialize, Serialize};

/// The requests that arrived during the trace, counted from the network packets. When a client sends several requests
/// before it has an answer (pipelining), only the first is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    pub(crate) seen: u64,
    /// Requests whose clients went on although the start of the answer was not seen: they are in no total.
    pub(crate) answers_missed: u64,
    pub(crate) unattributed: u64,
    /// Those that waited while a pool of threads was exhausted for over 1 ms, and until its threads had ended half as many
    /// waits for the disk as there are threads, or more: requests that need no thread of it are answered before.
    pub(crate) behind_pools: u64,
    /// By process; requests that no known event loop answered have process 0.
    pub(crate) totals: Vec<RequestTotal>,
    /// The worst-affected requests: by how long they were held up, then by how long they waited.
    pub(crate) costliest: Vec<Request>,
}

/// Requests that the event loops of a process answered. How long: from their arrival until the first byte of the
/// answer left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestTotal {
    /// The process, or 0.
    pub(crate) pid: u32,
    /// Those that were held up: before they were answered the event loop was blocked for over 1 ms (`STALL_NS`), and
    /// for a tenth of their wait or more, in calls for other connections.
    pub(crate) held_up: Times,
    /// How long these waited, together.
    pub(crate) waited_ns: u64,
    /// For how much of that the event loop was blocked in calls for others.
    pub(crate) held_up_ns: u64,
    pub(crate) others: Times,
    /// Those that had no answer when the trace ended; their clients may have gone.
    pub(crate) unanswered: u64,
    pub(crate) unanswered_held_up: u64,
}

impl RequestTotal {
    pub(crate) fn count(&self) -> u64 {
        self.held_up.count + self.others.count + self.unanswered
    }
}

/// How long some requests waited for the first byte of their answers; with a precision of three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    pub(crate) count: u64,
    /// Half of them waited no longer.
    pub p50_ns: u64,
    /// 99 % of them waited no longer.
    pub p99_ns: u64,
    pub(crate) longest_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// `LOCAL - PEER`, as `Target::name` has it.
    pub(crate) connection: String,
    /// Its first line without the version, or the begin of it.
    pub(crate) line: String,
    /// When it came to this machine.
    pub(crate) start_ns: u64,
    /// Until the first byte of its answer left; where there was none, until the trace ended.
    pub(crate) waited_ns: u64,
    pub(crate) is_answered: bool,
    /// The event loop that served it, or the thread that answered where there is none; none when it is not known.
    pub(crate) tid: Option<u32>,
    /// For how much of that time this thread was blocked in calls for other connections; 0 if it is no event loop.
    pub(crate) held_up_ns: u64,
}
