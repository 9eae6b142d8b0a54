//! The findings of a diagnosis, as data.

use serde::Serialize;

use crate::model::{BlockedCall, CallTotal, HeldUp, Request, RequestTotal, Shares, TargetTotal};
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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Diagnosis {
    /// 2.
    pub(crate) version: u32,
    pub(crate) verdict: Verdict,
    /// Why the verdict is unknown; empty if it is known.
    pub(crate) unknown: Vec<String>,
    /// The limits of the figures.
    pub(crate) warnings: Vec<String>,
    pub(crate) duration_ns: u64,
    /// Processes with event loops, those that lost most time first.
    pub(crate) loops: Vec<LoopFinding>,
    /// All threads that are no event loops, together.
    pub(crate) others: OthersFinding,
    /// Pools of threads that were exhausted for some time, the worst first.
    pub(crate) pools: Vec<PoolFinding>,
    pub(crate) cost: Cost,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LoopFinding {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// How many of its threads are event loops.
    pub(crate) threads: u32,
    /// It handled a share of the events that counts; if not, it is no part of the verdict.
    pub(crate) is_judged: bool,
    /// Enough requests of other connections waited behind its calls; where no request was seen, connections did.
    pub(crate) delays_others: bool,
    pub(crate) wait_call: String,
    /// Waits for events that ended, and descriptors that they returned as ready.
    pub(crate) waits: u64,
    /// See `waits`.
    pub(crate) ready: u64,
    pub(crate) ready_max: u32,
    pub(crate) time: Shares,
    /// The share of its time in which it stood still in calls, 0 to 1.
    pub(crate) blocked_share: f64,
    pub(crate) blocked: u64,
    /// And how many of them for over 1 ms.
    pub(crate) stalls: u64,
    /// The part of `stalls` that waited for the disk.
    pub(crate) disk_stalls: u64,
    /// The part of the blocked time spent waiting for the disk.
    pub(crate) disk_ns: u64,
    /// The longest of those calls, from begin to end.
    pub(crate) longest_ns: u64,
    pub(crate) calls: Vec<CallTotal>,
    /// Their files and sockets, the longest first.
    pub(crate) targets: Vec<TargetTotal>,
    /// How many there are.
    pub(crate) targets_in_all: usize,
    pub(crate) longest: Vec<BlockedCall>,
    /// How often a ready descriptor was held up by them.
    #[serde(flatten)]
    pub(crate) held_up: HeldUp,
    /// The connections that paid most, as far as they are known.
    pub(crate) payers: Vec<Payer>,
    /// The requests that were delayed; all 0 if none was seen.
    pub(crate) requests: RequestTotal,
    /// The worst-affected requests, by how long they were held up.
    pub(crate) paid: Vec<Paid>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Paid {
    pub(crate) request: Request,
    pub(crate) behind: Behind,
}

/// The blocked calls of its loop that a request waited for, as far as they are in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Behind {
    pub(crate) calls: u64,
    /// The one that kept it waiting for longest, and what that was for.
    pub(crate) longest: String,
    /// For how long that did.
    pub(crate) longest_ns: u64,
}

/// A connection that waited behind blocked calls of the loop that served it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Payer {
    pub(crate) name: String,
    /// Behind how many calls it waited.
    pub(crate) times: u64,
    /// How long together, at most: one that became ready in mid-call counts the whole call.
    pub(crate) waited_ns: u64,
    /// The call that it waited for longest, and what that was for.
    pub(crate) behind: String,
}

/// The threads that are no event loops.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct OthersFinding {
    pub(crate) threads: usize,
    /// How many of them waited for the disk, as far as the list of blocked calls goes.
    pub(crate) disk_threads: usize,
    /// The most of them that waited for the disk at one moment, likewise.
    pub(crate) disk_threads_at_once: usize,
    /// How many of their calls waited for the disk.
    pub(crate) disk_blocked: u64,
    /// How long, together.
    pub(crate) disk_ns: u64,
    pub(crate) longest_ns: u64,
    /// These calls, those of all processes together (`pid` 0), those that waited longest first; only the
    /// part for the disk is counted above.
    pub(crate) calls: Vec<CallTotal>,
    /// Their files, the longest first.
    pub(crate) targets: Vec<TargetTotal>,
    pub(crate) longest: Vec<BlockedCall>,
}
