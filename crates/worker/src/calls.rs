//! Measures every call of the event loop that could block, by call site, and records stalls. DeBox (Ruan and
//! Pai, *Making the "Box" Transparent*) has the kernel return such figures with each call; this module
//! collects as much as a process can measure by itself. It is always on.
//!
//! The functions of this crate that make such calls report them here, and architectures report their jobs. A
//! process has one worker, so there is one set of counters, which threads share. Nothing here may block: the
//! clock is read in the vDSO, reading the context switches copies a number in the kernel, and only stalls
//! take a lock.
//!
//! - [`note_call`] is for sockets and messages, which every hit uses. Its time begins where the previous call or
//!   wait for events ended, so it includes a few µs of the loop's own work.
//! - [`timed`] is for files and jobs. Its time begins where the call began.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};

use flash_engine::{SiteId, SiteRules, Task};
use flash_prompt::{clock, usage};

use super::site_file::SiteFile;
use crate::stats::{BUCKETS, CallTimes, Calls, STALL_NS, STALLS_MAX, Stall, Stalls, bucket_of, kept_path};

/// The context switches are read after a call of at least this length. A shorter call is not known to have
/// waited, and its switches can be charged to the next call of the turn. Reading them is a system call, but a
/// cheap one compared with this time.
const LONG_NS: u64 = 50_000;
/// The switches are read at the beginning of a turn if the loop has been idle for this long: at most 10,000
/// times a second.
const IDLE_NS: u64 = 100_000;
/// They are also read if the turn has this many events, which share the cost.
const EVENTS_WORTH_A_LOOK: usize = 16;

/// A call site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// accept4(2).
    Accept,
    /// Adding a connection to the event mechanism: epoll_ctl(2).
    Watch,
    /// recv(2) from a client.
    Receive,
    /// send(2), sendmsg(2) and shutdown(2) to a client.
    Send,
    /// Setting the priority of a connection: setsockopt(2).
    Prioritize,
    /// Sending a part of a file: sendfile(2), or sendmsg(2) from a mapping, with the residency checks.
    SendFile,
    /// Looking up and opening a file: openat2(2), fstat(2), fadvise(2).
    LookUp,
    /// Reading a part of a file: cachestat(2) and preadv2(2), or pread(2).
    Read,
    /// The state of an open file: fstat(2).
    Stat,
    /// Closing a file, and checking before whether it was deleted.
    CloseFile,
    /// Closing a connection.
    CloseConnection,
    /// Messages to and from helpers, the gateway, the log writer and the supervisor.
    Message,
    /// A complete job, in architectures without helpers.
    Job,
}

/// The names, in the order of [`Call`].
const NAMES: [&str; Call::Job as usize + 1] = [
    "accept",
    "watch",
    "receive",
    "send",
    "prioritize",
    "send_file",
    "look_up",
    "read",
    "stat",
    "close_file",
    "close_connection",
    "message",
    "job",
];

#[derive(Debug)]
struct Times {
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
    stalls: AtomicU64,
    waited: AtomicU64,
    counts: [AtomicU64; BUCKETS],
}

/// The counters of a worker.
#[derive(Debug)]
struct Counted {
    times: [Times; NAMES.len()],
    stalls: Mutex<Last>,
}

/// The last stalls.
#[derive(Debug)]
struct Last {
    count: u64,
    stalls: VecDeque<Stall>,
}

/// The measurements of a thread.
struct Thread {
    /// When its last call or its last wait for events ended.
    last_ns: Cell<u64>,
    /// Its number of voluntary context switches, if it was read since its last wait for events or for a lock.
    switches: Cell<Option<u64>>,
}

/// The measurements at the beginning of a call.
#[derive(Clone, Copy)]
struct Began {
    at_ns: u64,
    switches: u64,
}

static COUNTED: Counted = Counted::new();
/// The roots of the sites.
static ROOTS: OnceLock<Vec<Box<[u8]>>> = OnceLock::new();

thread_local! {
    static THREAD: Thread = const { Thread { last_ns: Cell::new(0), switches: Cell::new(None) } };
}

/// Stores the sites' roots, so that stalls name files by their full paths.
pub(super) fn know_roots(sites: &[SiteRules]) {
    let bytes = |site: &SiteRules| site.root.as_os_str().as_encoded_bytes().into();
    // A process has one worker, which starts once, so this cannot fail.
    let _ = ROOTS.set(sites.iter().map(bytes).collect());
}

/// Begins a turn of the calling thread at `now_ns` of the monotonic clock, with this many events. Called
/// after every wait for events or for a lock.
#[inline]
pub(super) fn begin_turn(now_ns: u64, events: usize) {
    THREAD.with(|thread| {
        let idle_ns = now_ns.saturating_sub(thread.last_ns.replace(now_ns));
        let is_worth_it = idle_ns >= IDLE_NS || events >= EVENTS_WORTH_A_LOOK;
        thread.switches.set(is_worth_it.then(usage::voluntary_switches));
    });
}

/// Records a call that has just ended and that only one thread at a time makes.
#[inline]
pub fn note_call(call: Call) {
    let took_ns = THREAD.with(Thread::since_previous);
    COUNTED.times[call as usize].count_alone(took_ns);
    if took_ns >= LONG_NS {
        COUNTED.note_long(call, None, took_ns);
    }
}

/// When the last call of the calling thread ended, or its wait for events, in nanoseconds of the monotonic clock.
#[inline]
pub(super) fn last_call_ns() -> u64 {
    THREAD.with(|thread| thread.last_ns.get())
}

/// Makes and times a call about a file. `name` returns the file; it is called only after a stall.
#[inline]
pub fn timed<'n, T>(
    call: Call,
    name: impl FnOnce() -> Option<(SiteId, &'n [u8])>,
    make: impl FnOnce() -> T,
) -> T {
    let began = THREAD.with(Thread::begin);
    let result = make();
    let took_ns = THREAD.with(|thread| thread.end(began));
    COUNTED.times[call as usize].count(took_ns);
    if took_ns >= LONG_NS {
        let path = if took_ns >= STALL_NS { name().map(|(site, path)| whole_path(site, path)) } else { None };
        COUNTED.note_long(call, path, took_ns);
    }
    result
}

/// The file or directory of a job.
pub fn of_job(task: &Task<SiteFile>) -> Option<(SiteId, &[u8])> {
    match task {
        Task::Find { site, path } | Task::List { site, path, .. } | Task::Warm { site, path, .. } => {
            Some((*site, path))
        }
        Task::Fill { file, .. } | Task::Load { file, .. } | Task::Read { file, .. } => file.name(),
        // The file for request bodies has no name.
        Task::Write { .. }
        | Task::GiveBack { .. }
        | Task::Close { .. }
        | Task::Touch { .. }
        | Task::WarmFile { .. }
        | Task::Verify { .. }
        | Task::Deflate { .. } => None,
    }
}

/// The counters of all calls.
pub(super) fn counted() -> Calls {
    COUNTED.calls()
}

/// The last stalls.
pub(super) fn stalls() -> Stalls {
    COUNTED.stalls()
}

/// The absolute path of a file of a site. `path` may begin with a slash.
fn whole_path(site: SiteId, path: &[u8]) -> String {
    let root = ROOTS.get().and_then(|roots| roots.get(usize::from(site.0)));
    let root = root.map(|root| root.strip_suffix(b"/").unwrap_or(root)).unwrap_or_default();
    kept_path(&[root, b"/", path.strip_prefix(b"/").unwrap_or(path)].concat())
}

impl Thread {
    /// Ends a call. Returns the time since the end of the previous one, in nanoseconds.
    #[inline]
    fn since_previous(&self) -> u64 {
        let now_ns = clock::monotonic_ns();
        now_ns.saturating_sub(self.last_ns.replace(now_ns))
    }

    /// Begins a call whose exact cost is needed. It can contain other calls, for example when a file is
    /// dropped. The known number of switches is taken out, so that an inner call cannot be charged with
    /// earlier switches.
    #[inline]
    fn begin(&self) -> Began {
        let switches = self.switches.take().unwrap_or_else(usage::voluntary_switches);
        Began { at_ns: clock::monotonic_ns(), switches }
    }

    /// Ends the call and returns its duration in nanoseconds. The cost of inner calls is included.
    #[inline]
    fn end(&self, began: Began) -> u64 {
        let now_ns = clock::monotonic_ns();
        self.last_ns.set(now_ns);
        self.switches.set(Some(began.switches));
        now_ns.saturating_sub(began.at_ns)
    }

    /// The switches since they were last read in this turn, if they were read.
    fn switches(&self) -> Option<u64> {
        let now = usage::voluntary_switches();
        self.switches.replace(Some(now)).map(|before| now.saturating_sub(before))
    }
}

impl Times {
    const fn new() -> Self {
        Self {
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            counts: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    /// Counts a call that no other thread makes at the same time. Unlike [`Times::count`], this needs no
    /// locked instructions.
    #[inline]
    fn count_alone(&self, took_ns: u64) {
        let add = |to: &AtomicU64, number: u64| to.store(to.load(Relaxed).wrapping_add(number), Relaxed);
        add(&self.counts[bucket_of(took_ns)], 1);
        add(&self.sum_ns, took_ns);
        if took_ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(took_ns, Relaxed);
        }
    }

    fn count(&self, took_ns: u64) {
        self.counts[bucket_of(took_ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(took_ns, Relaxed);
        self.max_ns.fetch_max(took_ns, Relaxed);
    }

    fn times(&self) -> CallTimes {
        CallTimes {
            sum_ns: self.sum_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
            stalls: self.stalls.load(Relaxed),
            waited: self.waited.load(Relaxed),
            counts: std::array::from_fn(|at| self.counts[at].load(Relaxed)),
        }
    }
}

impl Counted {
    const fn new() -> Self {
        let stalls = Mutex::new(Last { count: 0, stalls: VecDeque::new() });
        Self { times: [const { Times::new() }; NAMES.len()], stalls }
    }

    /// Checks the cost of a long call, and records it if it was a stall.
    #[cold]
    fn note_long(&self, call: Call, path: Option<String>, took_ns: u64) {
        let switches = THREAD.with(Thread::switches);
        let times = &self.times[call as usize];
        if switches.is_some_and(|switches| switches > 0) {
            times.waited.fetch_add(1, Relaxed);
        }
        if took_ns < STALL_NS {
            return;
        }
        times.stalls.fetch_add(1, Relaxed);
        let began_ms = (clock::wall_ns() - i128::from(took_ns)) / 1_000_000;
        let mut last = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        last.count += 1;
        if last.stalls.len() == STALLS_MAX {
            last.stalls.pop_front();
        }
        let number = last.count;
        last.stalls.push_back(Stall {
            number,
            call: NAMES[call as usize].to_owned(),
            path,
            began_unix_ms: u64::try_from(began_ms).unwrap_or(0),
            took_ns,
            switches,
        });
    }

    fn calls(&self) -> Calls {
        let times = NAMES.iter().zip(&self.times).map(|(name, times)| ((*name).to_owned(), times.times()));
        Calls(times.filter(|(_, times)| times.count() > 0).collect())
    }

    fn stalls(&self) -> Stalls {
        let last = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        Stalls { count: last.count, last: last.stalls.iter().cloned().collect() }
    }
}

#[cfg(test)]
#[path = "calls_tests.rs"]
mod tests;
