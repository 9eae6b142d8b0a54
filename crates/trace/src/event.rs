//! Decoded kernel events: the input of the analysis.
//!
//! `decode` makes them from records and `tap` from packets, tests by hand. Times are of `CLOCK_MONOTONIC`, in nanoseconds.

use crate::segment::Segment;

/// One thing that happened to one thread, to a core's ring or on the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) time_ns: u64,
    /// The core that it happened on; 0 in `Passed`.
    pub(crate) core: u32,
    /// The process of the thread; 0 in `Lost` and `Passed`.
    pub(crate) pid: u32,
    /// The thread; 0 in `Lost` and `Passed`.
    pub(crate) tid: u32,
    pub(crate) what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A system call begins.
    Enter { call: u64, args: [u64; 6] },
    /// It ends.
    Exit { call: u64, result: i64 },
    /// The thread is about to leave its core to wait, here in the kernel; innermost first.
    Stack { frames: Vec<u64> },
    /// It leaves its core, to wait or although it could run.
    Off { runnable: bool },
    /// It has a core.
    On,
    /// It starts a thread or a process.
    Fork { child_pid: u32, child_tid: u32 },
    /// It ends.
    End,
    /// It has a name; also when it begins another program.
    Name { name: String, executed: bool },
    /// The core's ring was full: this many events are missing before this.
    Lost { count: u64 },
    /// A request came, or an answer left.
    Passed(Box<Segment>),
}

/// The call that a thread was blocked in when the recording began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InCall {
    pub(crate) call: u64,
    pub(crate) args: [u64; 6],
    /// The kernel's functions, the innermost first.
    pub(crate) functions: Vec<String>,
}
