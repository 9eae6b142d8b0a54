//! A kernel trace as data: the content of the JSON file, and the source of tables, pages and verdicts.
//!
//! `analysis` fills it, `table`, `page` and `doctor` read it. Plain data: it computes nothing but sums
//! of itself. Times count in nanoseconds from the start of the trace.

mod reason;
mod requests;

use std::borrow::Cow;
use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

pub(crate) use reason::Reason;
pub(crate) use requests::{Request, RequestTotal, Requests, Times};

/// The version of the JSON file; raised when a field changes its meaning or goes.
pub(crate) const VERSION: u32 = 2;

/// A call that blocked for longer than this is a stall.
pub(crate) const STALL_NS: u64 = 1_000_000;

/// A loop that handled a smaller share of events than this, compared with the busiest loop, serves no requests: its
/// process manages the others.
pub(crate) const READY_SHARE_MIN: f64 = 0.01;

/// A share, 0 of nothing.
pub(crate) fn per(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A name that is mostly known when the program is compiled, such as that of a system call.
pub(crate) type Name = Cow<'static, str>;

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trace {
    pub(crate) version: u32,
    pub(crate) command_line: Vec<String>,
    /// The kernel's release, such as `6.18.1`.
    pub(crate) kernel: String,
    /// When it began, milliseconds since 1970.
    pub(crate) started_unix_ms: u64,
    /// How long events were recorded.
    pub(crate) duration_ns: u64,
    pub(crate) ending: Ending,
    /// The events and lists that are incomplete.
    pub(crate) missing: Missing,
    /// By process id. Those that did nothing are in it, too.
    pub(crate) processes: Vec<Process>,
    pub(crate) threads: Vec<Thread>,
    /// By process, then event loops before other threads, then by time blocked, the longest first. Complete
    /// except for lost events, however many calls there were.
    pub(crate) calls: Vec<CallTotal>,
    /// Which files, sockets and so on blocked calls were for; the longest time blocked first.
    pub(crate) targets: Vec<TargetTotal>,
    /// Each call that blocked, by start. When there were too many, the longest of them; those of
    /// event loops are kept before others.
    pub(crate) blocked: Vec<BlockedCall>,
    /// One for each thread that is an event loop, by thread id.
    pub(crate) timelines: Vec<Timeline>,
    /// HTTP/1 requests in the clear that came over TCP.
    pub(crate) requests: Requests,
    /// Pools of threads that waited for the disk, those that were exhausted longest first.
    pub(crate) pools: Vec<PoolTotal>,
    /// How many events were recorded: each costs the traced process some time.
    pub(crate) events: u64,
}

/// Threads of one process, or processes of one thread that one process has started, that waited for the disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolTotal {
    /// The process, or that which started them.
    pub(crate) pid: u32,
    pub(crate) is_processes: bool,
    /// The threads, those that waited for the disk at least once.
    pub(crate) tids: Vec<u32>,
    /// How long all of them waited for the disk at once.
    pub(crate) full_ns: u64,
    /// For how much of that more requests than there are threads waited for their answers.
    pub(crate) queued_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
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
pub(crate) struct Missing {
    /// Events that the kernel dropped because the buffer was full: counts and times are too low.
    pub(crate) events_lost: u64,
    /// Calls whose begin or end was not seen, apart from those at both ends of the trace.
    pub(crate) calls_broken: u64,
    /// Calls that had begun before the trace did, or not ended when it did. Only those that blocked are counted,
    /// for the time within it; of those from before, not what idle threads wait for.
    pub(crate) calls_cut: u64,
    /// Calls that blocked and are not in `blocked`, which was full.
    pub(crate) blocked_dropped: u64,
    /// Targets that are not in `targets`, which was full.
    pub(crate) targets_dropped: u64,
    /// Threads that were not followed, because there were too many.
    pub(crate) threads_dropped: u64,
    /// Packets that the kernel dropped because the buffer was full: each was the begin of a request or of an answer.
    #[serde(default)]
    pub(crate) packets_lost: u64,
    /// Requests that were not followed, because too many waited for their answers at once.
    #[serde(default)]
    pub(crate) requests_dropped: u64,
    /// Notes for the operator, such as that the kernel hides its symbols.
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The process that started it, 0 when not known.
    pub(crate) parent: u32,
    /// Its name (proc(5), `comm`).
    pub(crate) name: String,
    /// Its command line; empty when not known.
    pub(crate) command: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Thread {
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// It waits for events of many descriptors, again and again: an event loop.
    pub(crate) is_loop: bool,
    /// It turned from one connection to another and back. An event loop that does not serves one connection at a
    /// time, and no request waits behind its calls.
    pub(crate) serves_several: bool,
    /// The call by which it waits for events, most often.
    pub(crate) wait_call: Option<Name>,
    /// How many waits for events ended.
    pub(crate) waits: u64,
    /// Descriptors that these waits returned as ready, all together.
    pub(crate) ready: u64,
    pub(crate) ready_max: u32,
    pub(crate) time: Shares,
    /// 0 of threads that are no event loop: no connection waits for these.
    #[serde(flatten)]
    pub(crate) held_up: HeldUp,
}

/// Descriptors that were ready and waited behind blocked calls ([`Batch::held_up`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldUp {
    /// All together; one that waited behind two counts twice.
    #[serde(rename = "held_up")]
    pub(crate) times: u64,
    /// How long these waited, together: those of the same batch for all of the time that the call was blocked,
    /// those that became ready meanwhile for half of it in the mean, since the moment is unknown.
    #[serde(rename = "held_up_ns")]
    pub(crate) ns: u64,
    /// The longest time that one of them waited behind one call.
    #[serde(rename = "held_up_longest_ns")]
    pub(crate) longest_ns: u64,
}

impl HeldUp {
    /// Adds those behind one call.
    pub(crate) fn add(&mut self, call: &BlockedCall) {
        let Some(batch) = call.batch.as_ref().filter(|batch| batch.held_up() > 0) else { return };
        self.times += u64::from(batch.held_up());
        self.ns += call.blocked_ns * u64::from(batch.behind) + call.blocked_ns / 2 * u64::from(batch.arrived);
        self.longest_ns = self.longest_ns.max(call.blocked_ns);
    }
}

/// Where the time of a thread, or of a part of it, went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shares {
    /// Waiting for events, by a call that is there for that.
    pub(crate) waiting_ns: u64,
    /// On a core, in the program itself.
    pub(crate) user_ns: u64,
    /// On a core, in a system call (also in one that waits for events).
    pub(crate) call_ns: u64,
    /// Off the core, in a call that waited for something. The time from being woken until there is a
    /// core is in it.
    pub(crate) blocked_ns: u64,
    /// Off the core, though it could have run.
    pub(crate) runnable_ns: u64,
}

impl Shares {
    /// This time in one state.
    pub(crate) fn of(state: State, ns: u64) -> Self {
        let mut shares = Self::default();
        *shares.share(state) = ns;
        shares
    }

    pub(crate) fn share(&mut self, state: State) -> &mut u64 {
        match state {
            State::Waiting => &mut self.waiting_ns,
            State::User => &mut self.user_ns,
            State::Call => &mut self.call_ns,
            State::Blocked => &mut self.blocked_ns,
            State::Runnable => &mut self.runnable_ns,
        }
    }

    pub(crate) fn on_core_ns(&self) -> u64 {
        self.user_ns.saturating_add(self.call_ns)
    }

    pub(crate) fn each(&self) -> [(State, u64); 5] {
        [
            (State::Blocked, self.blocked_ns),
            (State::Call, self.call_ns),
            (State::User, self.user_ns),
            (State::Waiting, self.waiting_ns),
            (State::Runnable, self.runnable_ns),
        ]
    }

    pub(crate) fn total_ns(&self) -> u64 {
        self.each().into_iter().map(|(_, ns)| ns).sum()
    }
}

impl std::ops::Add for Shares {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        other.each().into_iter().for_each(|(state, ns)| *self.share(state) += ns);
        self
    }
}

/// All calls of one kind that the event loops of a process made, or its other threads, and that began and
/// ended within the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallTotal {
    pub(crate) pid: u32,
    /// Made by event loops, not by other threads.
    pub(crate) in_loop: bool,
    /// The call, such as `openat`. `page fault` and `no call` are none: what blocked outside of calls.
    pub(crate) call: Name,
    /// It waits for events: its waiting is no blocking.
    pub(crate) is_wait: bool,
    pub(crate) count: u64,
    /// How many of them failed (EAGAIN is such a failure).
    pub(crate) errors: u64,
    /// From begin to end.
    pub(crate) duration_ns: u64,
    /// On a core.
    pub(crate) on_cpu_ns: u64,
    /// Off the core, waiting; of a call that waits for events, that.
    pub(crate) blocked_ns: u64,
    /// Off the core, though it could have run.
    pub(crate) runnable_ns: u64,
    /// How many of them left the core to wait.
    pub(crate) blocked: u64,
    /// The longest, from begin to end.
    pub(crate) longest_ns: u64,
    /// `blocked_ns` as a part of all the time of this process's event loops, 0 to 1; 0 of other threads, and
    /// of calls that wait for events.
    pub(crate) loop_share: f64,
    /// The reasons of blocked calls, the longest first.
    pub(crate) reasons: Vec<ReasonTotal>,
}

impl CallTotal {
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_wait |= other.is_wait;
        self.count += other.count;
        self.errors += other.errors;
        self.duration_ns += other.duration_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.blocked_ns += other.blocked_ns;
        self.runnable_ns += other.runnable_ns;
        self.blocked += other.blocked;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        ReasonTotal::merge(&mut self.reasons, &other.reasons);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ReasonTotal {
    pub(crate) reason: Reason,
    pub(crate) count: u64,
    /// How many of them took over 1 ms ([`STALL_NS`]).
    pub(crate) stalls: u64,
    /// Blocked, together.
    pub(crate) blocked_ns: u64,
    /// The longest of these calls, from begin to end.
    pub(crate) longest_ns: u64,
}

impl ReasonTotal {
    pub(crate) fn of(reason: Reason, blocked_ns: u64, duration_ns: u64) -> Self {
        let stalls = u64::from(blocked_ns > STALL_NS);
        Self { reason, count: 1, stalls, blocked_ns, longest_ns: duration_ns }
    }

    pub(crate) fn merge(totals: &mut Vec<Self>, others: &[Self]) {
        for other in others {
            let Some(total) = totals.iter_mut().find(|total| total.reason == other.reason) else {
                totals.push(*other);
                continue;
            };
            total.count += other.count;
            total.stalls += other.stalls;
            total.blocked_ns += other.blocked_ns;
            total.longest_ns = total.longest_ns.max(other.longest_ns);
        }
    }

    /// The longest first.
    pub(crate) fn sort(totals: &mut [Self]) {
        totals.sort_by_key(|total| (Reverse(total.blocked_ns), total.reason));
    }
}

/// The file, socket or other thing behind a descriptor or a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: TargetKind,
    /// A path; of a connection `LOCAL - PEER`, of a listening socket its address, of a UNIX socket its path.
    /// As /proc/PID/fd has it (proc(5)) when no better name is known.
    pub(crate) name: String,
    /// It was asked for after the call, so another thing may have taken its place meanwhile.
    pub(crate) is_uncertain: bool,
}

/// Kinds of what is behind a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetKind {
    /// A regular file, a directory or a device: what has a path.
    File,
    Socket,
    Pipe,
    /// An eventfd, a timer, epoll, io_uring and the like.
    Anonymous,
    #[default]
    Unknown,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetTotal {
    pub(crate) pid: u32,
    pub(crate) in_loop: bool,
    pub(crate) call: Name,
    pub(crate) target: Target,
    pub(crate) blocked: u64,
    /// How long, together.
    pub(crate) blocked_ns: u64,
    /// The longest of them, from begin to end.
    pub(crate) longest_ns: u64,
    /// The reasons of the waits, the longest first.
    pub(crate) reasons: Vec<ReasonTotal>,
}

/// A call that left the core to wait, and was not made to wait for events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockedCall {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) in_loop: bool,
    pub(crate) call: Name,
    pub(crate) start_ns: u64,
    /// From begin to end.
    pub(crate) duration_ns: u64,
    /// On a core.
    pub(crate) on_cpu_ns: u64,
    /// Off the core, waiting.
    pub(crate) blocked_ns: u64,
    /// Off the core, though it could have run.
    pub(crate) runnable_ns: u64,
    /// How often it left the core to wait: voluntary context switches.
    pub(crate) switches: u32,
    /// The reason of most of that time.
    pub(crate) reason: Reason,
    /// The kernel's functions when the longest of these waits began, the innermost first. Empty when the
    /// kernel hides its symbols.
    pub(crate) stack: Vec<String>,
    /// The descriptor that it was for, of `openat` and the like the one that it gave.
    pub(crate) fd: Option<i32>,
    /// The file or socket behind that, or behind the path.
    pub(crate) target: Option<Target>,
    /// The path that was given to `openat`, `stat` and the like, as it was given.
    pub(crate) path: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    /// Its result; an error is negative (errno(3)).
    pub(crate) result: i64,
    /// It had begun before the trace, or not ended when it did: it was longer than it says here.
    pub(crate) is_cut: bool,
    /// The request that the thread was working on, as far as it can be known: the first line of what it had
    /// received last, if it has turned to no other descriptor since then; read while it was still blocked.
    pub(crate) request: Option<String>,
    /// The connections that waited behind it; only in event loops.
    pub(crate) batch: Option<Batch>,
}

/// The connections that waited behind a call that blocked in an event loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// Descriptors that the last wait for events returned as ready.
    pub(crate) ready: u32,
    /// Those of `ready` that the loop had turned to before the call, its own one included: descriptors it had
    /// received from, sent to or accepted at. Descriptors that it opened or accepted after that wait do not count.
    pub(crate) turned_to: u32,
    /// How many others the loop turned to after the call and before it waited for events again: each had
    /// waited behind the call.
    pub(crate) behind: u32,
    /// Descriptors that the next wait for events returned at once: they had become ready meanwhile. Of several
    /// blocked calls in one batch only the longest has them.
    pub(crate) arrived: u32,
    /// The part of the blocked time in which no other thread waited for events in its place; 0 where
    /// none arrived.
    pub(crate) unpolled_ns: u64,
    /// Those behind, then those that arrived, as far as they are known, up to a bound, in the order in which
    /// the loop turned to them.
    pub(crate) waiters: Vec<Waiter>,
}

impl Batch {
    /// All whose turn came later because of the call.
    pub(crate) fn held_up(&self) -> u32 {
        self.behind + self.arrived
    }
}

/// A descriptor that waited behind a blocked call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiter {
    pub(crate) fd: i32,
    /// It had become ready while the call was blocked; else it was in the same batch.
    pub(crate) arrived: bool,
    pub(crate) target: Option<Target>,
    /// From the beginning of the blocked call until the loop turned to it.
    pub(crate) waited_ns: u64,
}

/// The states of an event loop over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timeline {
    pub(crate) tid: u32,
    pub(crate) pid: u32,
    /// Shorter segments were merged with their neighbours; 0 if none were. Segments blocked for
    /// over 1 ms are never merged.
    pub(crate) resolution_ns: u64,
    /// Without overlaps, by start; where there is a gap, nothing is known (lost events).
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Segment {
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
    /// Its state, or that of most of it.
    pub(crate) state: State,
    /// In `Call`, `Blocked` and `Waiting`, the call.
    pub(crate) call: Option<Name>,
    /// In `Blocked`, what for.
    pub(crate) reason: Option<Reason>,
    /// In `Blocked`, the call's place in `Trace::blocked`, if it is there.
    pub(crate) blocked: Option<u32>,
    /// Where the time of a merged stretch went.
    pub(crate) shares: Option<Shares>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
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
