//! What a trace found, as data: what the JSON file holds, and all that tables, pages and verdicts are
//! made from.
//!
//! `analysis` fills it, `table`, `page` and `doctor` read it. Plain data: it computes nothing but sums
//! of itself. Times count in nanoseconds from the start of the trace.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The version of the JSON file; raised when a field changes its meaning or goes.
pub const VERSION: u32 = 1;

/// A call that blocked for longer than this is a stall.
pub const STALL_NS: u64 = 1_000_000;

/// A loop that handled a smaller share of the events than this of those of the busiest loop serves nobody:
/// it is that of a process that looks after the others.
pub(super) const READY_SHARE_MIN: f64 = 0.01;

/// A name that is mostly known when the program is compiled, such as that of a system call.
pub type Name = Cow<'static, str>;

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// [`VERSION`].
    pub version: u32,
    /// What was asked for: the arguments of `flash trace`.
    pub command_line: Vec<String>,
    /// The kernel's release, such as `6.18.1`.
    pub kernel: String,
    /// When it began, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long events were recorded.
    pub duration_ns: u64,
    /// Why it ended.
    pub ending: Ending,
    /// What is missing from this trace.
    pub missing: Missing,
    /// By process id. Those that did nothing are in it, too.
    pub processes: Vec<Process>,
    /// By thread id.
    pub threads: Vec<Thread>,
    /// By process, then event loops before other threads, then by time blocked, the longest first. Complete
    /// but for lost events, however many calls there were.
    pub calls: Vec<CallTotal>,
    /// Which files, sockets and so on blocked calls were for; the longest time blocked first.
    pub targets: Vec<TargetTotal>,
    /// Each call that blocked, by start. When there were too many, the longest of them; those of
    /// event loops are kept before others.
    pub blocked: Vec<BlockedCall>,
    /// One for each thread that is an event loop, by thread id.
    pub timelines: Vec<Timeline>,
    /// HTTP/1 requests in the clear that came over TCP.
    #[serde(default)]
    pub requests: Requests,
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

/// What a trace lacks. All zero and empty: it is whole.
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
    /// What could not be found out, in words for the operator, such as that the kernel hides its symbols.
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
    /// those that became ready meanwhile for half of it, since nobody knows when they did.
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
    /// What those that blocked waited for, the longest first.
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

/// What a call waited for, from the kernel's stack when it left the core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Contents of a file, read from the disk.
    DiskRead,
    /// A name, an inode, an extent, a directory: what the file system needs before it gets to contents.
    Metadata,
    /// Data on its way to the disk, or the journal.
    Writeback,
    /// The journal, to note that a file was read: its access time.
    AccessTime,
    /// Room in the queue of the disk.
    DiskQueue,
    /// A lock of the kernel that another one holds.
    Lock,
    /// Every core, to have left what it does in the kernel (RCU), as when several threads share a table of descriptors
    /// and it grows.
    GracePeriod,
    /// Memory that must be freed first.
    MemoryReclaim,
    /// A peer on the network: data, or room in a socket.
    Network,
    /// The other end of a pipe.
    Pipe,
    /// A lock or a condition of the program itself (futex(2)).
    Futex,
    /// A time that the program asked to sleep for.
    Sleep,
    /// A child.
    Child,
    /// A daemon or a server that serves a file system (FUSE, NFS).
    RemoteFileSystem,
    /// Events: what an event loop is there for.
    Events,
    /// The stack tells nothing that is known here.
    #[default]
    Unknown,
}

impl Reason {
    /// In words, to stand after "waited for".
    pub fn words(self) -> &'static str {
        match self {
            Self::DiskRead => "a read of the disk",
            Self::Metadata => "metadata of the file system",
            Self::Writeback => "writeback",
            Self::AccessTime => "the journal, to note the access time",
            Self::DiskQueue => "room in the disk's queue",
            Self::Lock => "a lock in the kernel",
            Self::GracePeriod => "every core to leave the kernel once (RCU)",
            Self::MemoryReclaim => "memory to be freed",
            Self::Network => "the network",
            Self::Pipe => "a pipe",
            Self::Futex => "a lock of the program",
            Self::Sleep => "a time it asked for",
            Self::Child => "a child",
            Self::RemoteFileSystem => "the server of a file system",
            Self::Events => "events",
            Self::Unknown => "something unknown",
        }
    }

    /// Whether threads wait for it that have nothing to do.
    pub fn may_be_idle(self) -> bool {
        matches!(
            self,
            Self::Network
                | Self::Pipe
                | Self::Futex
                | Self::Sleep
                | Self::Child
                | Self::Events
                | Self::Unknown
        )
    }

    /// Whether it is the disk, what stands before it, or who serves files in its place.
    pub fn is_disk(self) -> bool {
        matches!(
            self,
            Self::DiskRead
                | Self::Metadata
                | Self::Writeback
                | Self::AccessTime
                | Self::DiskQueue
                | Self::RemoteFileSystem
        )
    }
}

/// What is behind a descriptor or a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// What kind of thing.
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
    /// What it was for.
    pub target: Target,
    /// How many of them blocked.
    pub blocked: u64,
    /// How long, together.
    pub blocked_ns: u64,
    /// The longest of them, from begin to end.
    pub longest_ns: u64,
    /// What they waited for, the longest first.
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
    /// What most of that time was for.
    pub reason: Reason,
    /// The kernel's functions when the longest of these waits began, the innermost first. Empty when the
    /// kernel hides its symbols.
    pub stack: Vec<String>,
    /// The descriptor that it was for, of `openat` and the like the one that it gave.
    pub fd: Option<i32>,
    /// What is behind that, or behind the path.
    pub target: Option<Target>,
    /// The path that was given to `openat`, `stat` and the like, as it was given.
    pub path: Option<String>,
    /// Bytes that were asked for.
    pub size_bytes: Option<u64>,
    /// What it answered; an error is negative (errno(3)).
    pub result: i64,
    /// It had begun before the trace, or not ended when it did: it was longer than it says here.
    pub is_cut: bool,
    /// The request that the thread was working on, as far as it can be known: the first line of what it had
    /// received last, if it has turned to no other descriptor since then; read while it was still blocked.
    pub request: Option<String>,
    /// What waited behind it; only in event loops.
    pub batch: Option<Batch>,
}

/// What waited behind a call that blocked in an event loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Descriptors that the last wait for events returned as ready.
    pub ready: u32,
    /// Of these, how many the loop had turned to before the call, that one included: descriptors it had
    /// received from, sent to or accepted at. What it opened or accepted after that wait is none of them.
    pub turned_to: u32,
    /// How many others the loop turned to after the call and before it waited for events again: each had
    /// waited behind the call.
    pub behind: u32,
    /// Descriptors that the next wait for events returned at once: they had become ready meanwhile. Of several
    /// blocked calls in one batch only the longest has them.
    pub arrived: u32,
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
    /// What is behind it.
    pub target: Option<Target>,
    /// From the beginning of the blocked call until the loop turned to it.
    pub waited_ns: u64,
}

/// The requests that came while the trace went on, as the network showed them. Of those that a client sends before
/// it has the answer to its last (pipelining) only the first is told of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// How many.
    pub seen: u64,
    /// Of these, those whose clients went on, though the begin of the answer was not seen: they are in no total.
    pub answers_missed: u64,
    /// Those of which nobody knows which thread served them.
    pub unattributed: u64,
    /// By process; those that no event loop answered, or nobody knows which, have process 0.
    pub totals: Vec<RequestTotal>,
    /// Those that paid most: by how long the loop stood still, then by how long they waited; the first of them.
    pub costliest: Vec<Request>,
}

/// Requests that the event loops of a process answered. How long: from their arrival until the first byte of the
/// answer left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestTotal {
    /// The process, or 0.
    pub pid: u32,
    /// Those that were held up: before they were answered the loop stood still for over 1 ms ([`STALL_NS`]).
    pub held_up: Times,
    /// How long these waited, together.
    pub held_up_ns: u64,
    /// And for how much of that the loop stood still.
    pub stood_still_ns: u64,
    /// The others.
    pub others: Times,
    /// Those that had no answer when the trace ended; their clients may have gone.
    pub unanswered: u64,
    /// And how many of them were held up.
    pub unanswered_held_up: u64,
}

impl RequestTotal {
    /// All requests, answered or not.
    pub fn count(&self) -> u64 {
        self.held_up.count + self.others.count + self.unanswered
    }
}

/// How long some requests waited for the first byte of their answers; times as they are told apart by three digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Half of them waited no longer.
    pub p50_ns: u64,
    /// 99 % of them waited no longer.
    pub p99_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `LOCAL - PEER`, as [`Target::name`] has it.
    pub connection: String,
    /// Its first line without the version, or the begin of it.
    pub line: String,
    /// When it came to this machine.
    pub start_ns: u64,
    /// Until the first byte of its answer left; where there was none, until the trace ended.
    pub waited_ns: u64,
    /// It was answered.
    pub is_answered: bool,
    /// The event loop that served it, or the thread that answered where there is none; none when it is not known.
    pub tid: Option<u32>,
    /// For how much of that time this thread stood still in calls that blocked; 0 when it is no event loop.
    pub stood_still_ns: u64,
}

/// What an event loop did, from begin to end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// What is shorter than this was put together with its neighbours; 0 when all is there. What was blocked
    /// for over 1 ms is there by itself.
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
    /// What it was, or most of it.
    pub state: State,
    /// In `Call`, `Blocked` and `Waiting`, the call.
    pub call: Option<Name>,
    /// In `Blocked`, what for.
    pub reason: Option<Reason>,
    /// In `Blocked`, the call's place in `Trace::blocked`, if it is there.
    pub blocked: Option<u32>,
    /// Of a stretch that was put together, where its time went.
    pub shares: Option<Shares>,
}

/// What a thread does at one time.
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
