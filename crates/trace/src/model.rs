//! A kernel trace as data: the content of the JSON file, and the source of tables, pages and verdicts.
//!
//! `analysis` fills it, `table`, `page` and `doctor` read it. Plain data: it computes nothing but sums
//! of itself. Times count in nanoseconds from the start of the trace.

mod reason;
mod requests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use reason::Reason;
pub use requests::{Request, RequestTotal, Requests, Times};

/// The version of the JSON file; raised when a field changes its meaning or goes.
pub const VERSION: u32 = 2;

/// A call that blocked for longer than this is a stall.
pub const STALL_NS: u64 = 1_000_000;

/// A loop that handled a smaller share of events than this, compared with the busiest loop, serves no requests: its
/// process manages the others.
pub(crate) const READY_SHARE_MIN: f64 = 0.01;

/// A name that is mostly known when the program is compiled, such as that of a system call.
pub type Name = Cow<'static, str>;

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// [`VERSION`].
    pub version: u32,
    /// The arguments of `flash trace`.
    pub command_line: Vec<String>,
    /// The kernel's release, such as `6.18.1`.
    pub kernel: String,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long events were recorded.
    pub duration_ns: u64,
    /// Why it ended.
    pub ending: Ending,
    /// The events and lists that are incomplete.
    pub missing: Missing,
    /// By process id. Those that did nothing are in it, too.
    pub processes: Vec<Process>,
    /// By thread id.
    pub threads: Vec<Thread>,
    /// By process, then event loops before other threads, then by time blocked, the longest first. Complete
    /// except for lost events, however many calls there were.
    pub calls: Vec<CallTotal>,
    /// Which files, sockets and so on blocked calls were for; the longest time blocked first.
    pub targets: Vec<TargetTotal>,
    /// Each call that blocked, by start. When there were too many, the longest of them; those of
    /// event loops are kept before others.
    pub blocked: Vec<BlockedCall>,
    /// One for each thread that is an event loop, by thread id.
    pub timelines: Vec<Timeline>,
    /// HTTP/1 requests in the clear that came over TCP.
    pub requests: Requests,
    /// Pools of threads that waited for the disk, those that were exhausted longest first.
    pub pools: Vec<PoolTotal>,
    /// How many events were recorded: each costs the traced process some time.
    pub events: u64,
}

/// Threads of one process, or processes of one thread that one process has started, that waited for the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolTotal {
    /// The process, or that which started them.
    pub pid: u32,
    /// They are processes, not threads.
    pub is_processes: bool,
    /// The threads, those that waited for the disk at least once.
    pub tids: Vec<u32>,
    /// How long all of them waited for the disk at once.
    pub full_ns: u64,
    /// For how much of that more requests than there are threads waited for their answers.
    pub queued_ns: u64,
}

/// Why a trace ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Its time was over.
    #[default]
    Duration,
    /// INT or TERM.
    Interrupted,
    /// All that was traced has ended.
    TargetEnded,
}

/// The missing parts of a kernel trace. It is complete if all are zero and empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Events that the kernel dropped because the buffer was full: counts and times are too low.
    pub events_lost: u64,
    /// Calls whose begin or end was not seen, apart from those at both ends of the trace.
    pub calls_broken: u64,
    /// Calls that had begun before the trace did, or not ended when it did. Only those that blocked are counted,
    /// for the time within it; of those from before, not what idle threads wait for.
    pub calls_cut: u64,
    /// Calls that blocked and are not in `blocked`, which was full.
    pub blocked_dropped: u64,
    /// Targets that are not in `targets`, which was full.
    pub targets_dropped: u64,
    /// Threads that were not followed, because there were too many.
    pub threads_dropped: u64,
    /// Packets that the kernel dropped because the buffer was full: each was the begin of a request or of an answer.
    #[serde(default)]
    pub packets_lost: u64,
    /// Requests that were not followed, because too many waited for their answers at once.
    #[serde(default)]
    pub requests_dropped: u64,
    /// Notes for the operator, such as that the kernel hides its symbols.
    pub notes: Vec<String>,
}

/// A process that was traced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The process that started it, 0 when not known.
    pub parent: u32,
    /// Its name (proc(5), `comm`).
    pub name: String,
    /// Its command line; empty when not known.
    pub command: String,
}

/// A thread that was traced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// It waits for events of many descriptors, again and again: an event loop.
    pub is_loop: bool,
    /// It turned from one connection to another and back. An event loop that does not serves one connection at a
    /// time, and no request waits behind its calls.
    pub serves_several: bool,
    /// The call by which it waits for events, most often.
    pub wait_call: Option<Name>,
    /// How many waits for events ended.
    pub waits: u64,
    /// Descriptors that these waits returned as ready, all together.
    pub ready: u64,
    /// The most that one wait returned.
    pub ready_max: u32,
    /// Where its time went.
    pub time: Shares,
    /// Descriptors that were ready and waited behind blocked calls ([`Batch::held_up`]), all together; one
    /// that waited behind two counts twice. 0 of threads that are no event loop.
    pub held_up: u64,
    /// How long these waited, together: those of the same batch for all of the time that the call was blocked,
    /// those that became ready meanwhile for half of it, since the moment is unknown.
    pub held_up_ns: u64,
    /// The longest time that one of them waited behind one call.
    pub held_up_longest_ns: u64,
}

/// Where the time of a thread, or of a part of it, went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Waiting for events, by a call that is there for that.
    pub waiting_ns: u64,
    /// On a core, in the program itself.
    pub user_ns: u64,
    /// On a core, in a system call (also in one that waits for events).
    pub call_ns: u64,
    /// Off the core, in a call that waited for something. The time from being woken until there is a
    /// core is in it.
    pub blocked_ns: u64,
    /// Off the core, though it could have run.
    pub runnable_ns: u64,
}

impl Shares {
    /// All of it.
    pub fn total_ns(&self) -> u64 {
        self.waiting_ns + self.user_ns + self.call_ns + self.blocked_ns + self.runnable_ns
    }
}

/// All calls of one kind that the event loops of a process made, or its other threads, and that began and
/// ended within the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallTotal {
    /// The process.
    pub pid: u32,
    /// Made by event loops, not by other threads.
    pub in_loop: bool,
    /// The call, such as `openat`. `page fault` and `no call` are none: what blocked outside of calls.
    pub call: Name,
    /// It waits for events: its waiting is no blocking.
    pub is_wait: bool,
    /// How many.
    pub count: u64,
    /// How many of them failed (EAGAIN is such a failure).
    pub errors: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// On a core.
    pub on_cpu_ns: u64,
    /// Off the core, waiting; of a call that waits for events, that.
    pub blocked_ns: u64,
    /// Off the core, though it could have run.
    pub runnable_ns: u64,
    /// How many of them left the core to wait.
    pub blocked: u64,
    /// The longest, from begin to end.
    pub longest_ns: u64,
    /// `blocked_ns` as a part of all the time of this process's event loops, 0 to 1; 0 of other threads, and
    /// of calls that wait for events.
    pub loop_share: f64,
    /// The reasons of blocked calls, the longest first.
    pub reasons: Vec<ReasonTotal>,
}

/// How often and how long calls blocked for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonTotal {
    /// The reason.
    pub reason: Reason,
    /// How many calls.
    pub count: u64,
    /// How many of them took over 1 ms ([`STALL_NS`]).
    pub stalls: u64,
    /// Blocked, together.
    pub blocked_ns: u64,
    /// The longest of these calls, from begin to end.
    pub longest_ns: u64,
}

/// The file, socket or other thing behind a descriptor or a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Its kind.
    pub kind: TargetKind,
    /// A path; of a connection `LOCAL - PEER`, of a listening socket its address, of a UNIX socket its path.
    /// As /proc/PID/fd has it (proc(5)) when no better name is known.
    pub name: String,
    /// It was asked for after the call, so another thing may have taken its place meanwhile.
    pub is_uncertain: bool,
}

/// Kinds of what is behind a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetKind {
    /// A regular file, a directory or a device: what has a path.
    File,
    /// A socket.
    Socket,
    /// A pipe.
    Pipe,
    /// An eventfd, a timer, epoll, io_uring and the like.
    Anonymous,
    /// Not known.
    #[default]
    Unknown,
}

/// All blocked calls of one kind for one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetTotal {
    /// The process.
    pub pid: u32,
    /// In event loops, not in other threads.
    pub in_loop: bool,
    /// The call.
    pub call: Name,
    /// The file or socket.
    pub target: Target,
    /// How many of them blocked.
    pub blocked: u64,
    /// How long, together.
    pub blocked_ns: u64,
    /// The longest of them, from begin to end.
    pub longest_ns: u64,
    /// The reasons of the waits, the longest first.
    pub reasons: Vec<ReasonTotal>,
}

/// A call that left the core to wait, and was not made to wait for events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedCall {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// That thread is an event loop.
    pub in_loop: bool,
    /// The call, such as `pread64`.
    pub call: Name,
    /// When it began.
    pub start_ns: u64,
    /// From begin to end.
    pub duration_ns: u64,
    /// On a core.
    pub on_cpu_ns: u64,
    /// Off the core, waiting.
    pub blocked_ns: u64,
    /// Off the core, though it could have run.
    pub runnable_ns: u64,
    /// How often it left the core to wait: voluntary context switches.
    pub switches: u32,
    /// The reason of most of that time.
    pub reason: Reason,
    /// The kernel's functions when the longest of these waits began, the innermost first. Empty when the
    /// kernel hides its symbols.
    pub stack: Vec<String>,
    /// The descriptor that it was for, of `openat` and the like the one that it gave.
    pub fd: Option<i32>,
    /// The file or socket behind that, or behind the path.
    pub target: Option<Target>,
    /// The path that was given to `openat`, `stat` and the like, as it was given.
    pub path: Option<String>,
    /// Bytes that were asked for.
    pub size_bytes: Option<u64>,
    /// Its result; an error is negative (errno(3)).
    pub result: i64,
    /// It had begun before the trace, or not ended when it did: it was longer than it says here.
    pub is_cut: bool,
    /// The request that the thread was working on, as far as it can be known: the first line of what it had
    /// received last, if it has turned to no other descriptor since then; read while it was still blocked.
    pub request: Option<String>,
    /// The connections that waited behind it; only in event loops.
    pub batch: Option<Batch>,
}

/// The connections that waited behind a call that blocked in an event loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Descriptors that the last wait for events returned as ready.
    pub ready: u32,
    /// Those of `ready` that the loop had turned to before the call, its own one included: descriptors it had
    /// received from, sent to or accepted at. Descriptors that it opened or accepted after that wait do not count.
    pub turned_to: u32,
    /// How many others the loop turned to after the call and before it waited for events again: each had
    /// waited behind the call.
    pub behind: u32,
    /// Descriptors that the next wait for events returned at once: they had become ready meanwhile. Of several
    /// blocked calls in one batch only the longest has them.
    pub arrived: u32,
    /// The part of the blocked time in which no other thread waited for events in its place; 0 where
    /// none arrived.
    pub unpolled_ns: u64,
    /// Those behind, then those that arrived, as far as they are known, up to a bound, in the order in which
    /// the loop turned to them.
    pub waiters: Vec<Waiter>,
}

impl Batch {
    /// How long together those were held up behind a call that was blocked for so long: in the mean, who became ready
    /// meanwhile waited for half of it.
    pub fn held_up_ns(&self, blocked_ns: u64) -> u64 {
        blocked_ns * u64::from(self.behind) + blocked_ns / 2 * u64::from(self.arrived)
    }

    /// All whose turn came later because of the call.
    pub fn held_up(&self) -> u32 {
        self.behind + self.arrived
    }
}

/// A descriptor that waited behind a blocked call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The descriptor.
    pub fd: i32,
    /// It had become ready while the call was blocked; else it was in the same batch.
    pub arrived: bool,
    /// Its file or socket.
    pub target: Option<Target>,
    /// From the beginning of the blocked call until the loop turned to it.
    pub waited_ns: u64,
}

/// The states of an event loop over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Shorter segments were merged with their neighbours; 0 if none were. Segments blocked for
    /// over 1 ms are never merged.
    pub resolution_ns: u64,
    /// Without overlaps, by start; where there is a gap, nothing is known (lost events).
    pub segments: Vec<Segment>,
}

/// A stretch of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segment {
    /// When it begins.
    pub start_ns: u64,
    /// How long it is.
    pub duration_ns: u64,
    /// Its state, or that of most of it.
    pub state: State,
    /// In `Call`, `Blocked` and `Waiting`, the call.
    pub call: Option<Name>,
    /// In `Blocked`, what for.
    pub reason: Option<Reason>,
    /// In `Blocked`, the call's place in `Trace::blocked`, if it is there.
    pub blocked: Option<u32>,
    /// Where the time of a merged stretch went.
    pub shares: Option<Shares>,
}

/// The state of a thread at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for events.
    #[default]
    Waiting,
    /// On a core, in the program.
    User,
    /// On a core, in a system call.
    Call,
    /// Off the core in a call that is not for waiting.
    Blocked,
    /// Off the core, though it could run.
    Runnable,
}
