//! The findings of a diagnosis, as data.

use serde::Serialize;

use crate::model::{BlockedCall, CallTotal, Request, RequestTotal, Shares, TargetTotal};
use crate::pools::{Cost, PoolFinding};

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// No event loop blocked for long, or no other request waited behind it.
    NoWait,
    /// An event loop waited for the disk, and other requests waited behind it.
    LoopWaitsForDisk,
    /// An event loop was blocked, but not by the disk, and other requests waited behind it.
    LoopWaits,
    /// No event loop serves several connections at once. Threads waited for the disk, each for its own request.
    ThreadsWaitForDisk,
    /// All threads of a pool waited for the disk while requests waited for a thread.
    PoolExhausted,
    /// The kernel trace does not show it.
    Unknown,
}

impl Verdict {
    /// The exit status of `flash doctor`: 0 no request waited behind another one, 1 some did, 2 unknown.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::NoWait | Self::ThreadsWaitForDisk => 0,
            Self::LoopWaitsForDisk | Self::LoopWaits | Self::PoolExhausted => 1,
            Self::Unknown => 2,
        }
    }
}

/// The diagnosis of a server.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// 2.
    pub version: u32,
    /// In one word.
    pub verdict: Verdict,
    /// Why the verdict is unknown; empty if it is known.
    pub unknown: Vec<String>,
    /// The limits of the figures.
    pub warnings: Vec<String>,
    /// How long was watched.
    pub duration_ns: u64,
    /// Processes with event loops, those that lost most time first.
    pub loops: Vec<LoopFinding>,
    /// All threads that are no event loops, together.
    pub others: OthersFinding,
    /// Pools of threads that were exhausted for some time, the worst first.
    pub pools: Vec<PoolFinding>,
    /// The cost of the kernel trace to the server.
    pub cost: Cost,
}

/// The event loops of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LoopFinding {
    /// The process.
    pub pid: u32,
    /// Its name and id.
    pub name: String,
    /// How many of its threads are event loops.
    pub threads: u32,
    /// It handled a share of the events that counts; if not, it is no part of the verdict.
    pub is_judged: bool,
    /// Enough requests of other connections waited behind its calls; where no request was seen, connections did.
    pub delays_others: bool,
    /// The call by which it waits for events.
    pub wait_call: String,
    /// Waits for events that ended, and descriptors that they returned as ready.
    pub waits: u64,
    /// See `waits`.
    pub ready: u64,
    /// The most that one wait returned.
    pub ready_max: u32,
    /// Where its time went.
    pub time: Shares,
    /// The share of its time in which it stood still in calls, 0 to 1.
    pub blocked_share: f64,
    /// How many of its calls blocked.
    pub blocked: u64,
    /// And how many of them for over 1 ms.
    pub stalls: u64,
    /// The part of `stalls` that waited for the disk.
    pub disk_stalls: u64,
    /// The part of the blocked time spent waiting for the disk.
    pub disk_ns: u64,
    /// The longest of those calls, from begin to end.
    pub longest_ns: u64,
    /// The calls that blocked, those that cost most first.
    pub calls: Vec<CallTotal>,
    /// Their files and sockets, the longest first.
    pub targets: Vec<TargetTotal>,
    /// How many there are.
    pub targets_in_all: usize,
    /// The longest blocked calls.
    pub longest: Vec<BlockedCall>,
    /// How often a ready descriptor was held up by them (`Thread::held_up`).
    pub held_up: u64,
    /// For how long, together.
    pub held_up_ns: u64,
    /// The longest time that one waited behind one call.
    pub held_up_longest_ns: u64,
    /// The connections that paid most, as far as they are known.
    pub payers: Vec<Payer>,
    /// The requests that were delayed; all 0 if none was seen.
    pub requests: RequestTotal,
    /// The worst-affected requests, by how long they were held up.
    pub paid: Vec<Paid>,
}

/// A request that was held up.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Paid {
    /// The request.
    pub request: Request,
    /// The calls that it waited for.
    pub behind: Behind,
}

/// The blocked calls of its loop that a request waited for, as far as they are in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Behind {
    /// How many.
    pub calls: u64,
    /// The one that kept it waiting for longest, and what that was for.
    pub longest: String,
    /// For how long that did.
    pub longest_ns: u64,
}

/// A connection that waited behind blocked calls of the loop that served it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Payer {
    /// The peer.
    pub name: String,
    /// Behind how many calls it waited.
    pub times: u64,
    /// How long together, at most: one that became ready in mid-call counts the whole call.
    pub waited_ns: u64,
    /// The call that it waited for longest, and what that was for.
    pub behind: String,
}

/// The threads that are no event loops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OthersFinding {
    /// How many.
    pub threads: usize,
    /// How many of them waited for the disk, as far as the list of blocked calls goes.
    pub disk_threads: usize,
    /// The most of them that waited for the disk at one moment, likewise.
    pub disk_threads_at_once: usize,
    /// How many of their calls waited for the disk.
    pub disk_blocked: u64,
    /// How long, together.
    pub disk_ns: u64,
    /// The longest of those calls.
    pub longest_ns: u64,
    /// These calls, those of all processes together (`pid` 0), those that waited longest first; only the
    /// part for the disk is counted above.
    pub calls: Vec<CallTotal>,
    /// Their files, the longest first.
    pub targets: Vec<TargetTotal>,
    /// The longest blocked calls for the disk.
    pub longest: Vec<BlockedCall>,
}
