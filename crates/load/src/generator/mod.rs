//! Driving a server: streams of requests in open and closed loops, and a record of each request.
//!
//! The commands that generate load call [`run`] with streams and get records, which other modules evaluate. In an open loop an arrival never waits for a reply and its latency counts
//! from when it was meant to start, so a server that stalls can't hide it by slowing its own clients.
//! System calls only through `flash_prompt` and `flash_waiting`.
//!
//! A run has threads, a thread has a generator with a flow for each stream. Failures are counted like this:
//!
//! * A request that a user gives up (`abort_after_ns`) is tried again `retries_max` times, over another connection; its
//!   record is that of the last try, its latency counts from the first intended start.
//! * A request on a connection that the server had closed while it was idle is sent again unseen:
//!   neither a failure nor a try, but counted. A request whose method is not idempotent, such as POST, fails instead: the
//!   server may have handled it. One that HTTP/2 declares unhandled is sent again whatever its method is.
//! * A request for which no connection can be made fails at once: refused, or a local limit.
//! * A request without a whole answer at the end of the run is unanswered, with the time that it waited.
//!
//! A client that closes a connection first leaves its port in TIME-WAIT for a minute. Loads of
//! loopback spread their connections over [`SOURCES`] addresses of it, so that Linux finds free ports
//! without a search; other targets have the ports
//! of one address, and `EADDRNOTAVAIL` shows as a local limit.

mod chunked;
mod client;
mod collect;
mod connection;
mod event_loop;
mod h2;
mod loop_io;
pub mod message;
mod polling;
mod pool;
mod request;
mod response;
mod slow_reader;
mod stream;
mod timers;
mod transport;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use flash_prompt::clock;

use crate::record::{Handshake, OpenConnections, Record};
use crate::target::Target;
use crate::tls;
use crate::workload::{Catalogue, Demand};
use collect::{Outbox, Shared, collect};
use event_loop::Generator;
use flash_kit::{Error, Result, Stop};
use flash_waiting::network::{self, OnTime};
use message::Message;

/// The most requests of a run: they are kept in memory, 64 bytes each.
pub const RECORDS_MAX: u64 = 32_000_000;
/// The most requests of a stream that wait for a connection, on one thread. A server that is so far
/// behind does not catch up, and the run ends early.
pub const WAITING_MAX: usize = 1_000_000;
/// The most threads: records have a byte for the number.
pub const THREADS_MAX: usize = 256;
/// The most streams of a thread: their numbers are in a byte.
pub const STREAMS_MAX: usize = MULTIPLEXER as usize;
/// The most requests at once on a connection of HTTP/2.
pub const STREAMS_PER_CONNECTION_MAX: u32 = 10_000;
/// The number of the connections that all streams share.
const MULTIPLEXER: u8 = u8::MAX;
/// The most clients of a closed loop on one thread.
pub const CLIENTS_MAX: u32 = 1_000_000;
/// Addresses of loopback that connections come from: 127.0.0.1 and those that follow.
pub const SOURCES: u8 = 16;
/// How long the last answers are waited for when a run was stopped.
pub const STOPPED_DRAIN_NS: u64 = 1_000_000_000;
/// From making the threads to the start of the phase.
const START_NS_PER_THREAD: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// They start when the demand says, whatever the answers do; users of a partly-open demand come back when it says.
    Open,
    /// Clients, each on a connection of its own: each asks `think_ns` after its answer. One
    /// whose request failed waits 10 ms, doubled with each failure in a row up to 1.28 s.
    Closed {
        clients: u32,
        /// Nanoseconds from an answer to the next request.
        think_ns: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: a connection carries one request at a time, and those of one stream of requests only.
    Http1,
    /// HTTP/2, by ALPN over TLS and by prior knowledge without: all streams of a thread share its connections.
    Http2 {
        /// The most requests at once on a connection.
        streams_max: u32,
    },
}

/// The settings of a stream of requests.
#[derive(Clone, Debug)]
pub struct Setup {
    pub target: Target,
    pub protocol: Protocol,
    /// Begins TLS connections, for a server that speaks TLS.
    pub tls: Option<tls::Client>,
    /// The files that the demand's numbers stand for.
    pub catalogue: Arc<Catalogue>,
    /// The method, fields and body of the requests.
    pub message: Arc<Message>,
    /// Compare every byte with [`Catalogue::content_matches`].
    pub verify: bool,
    /// The most connections at once in an open loop, per thread and stream. An arrival that finds
    /// none waits with its clock running.
    pub connections_max: usize,
    /// After this many requests the client closes the connection; 1 opens a connection for each request.
    pub requests_per_connection: Option<u32>,
    /// How long a user waits for each try.
    pub abort_after_ns: Option<u64>,
    pub retries_max: u8,
    /// A slow reader: from the first byte of an answer on, a body of n bytes takes n over this.
    pub read_bytes_per_s: Option<u64>,
}

pub struct Stream {
    pub setup: Setup,
    /// Which files are requested, and in an open loop when.
    pub demand: Box<dyn Demand>,
    pub pace: Pace,
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// How long requests start; less if all demands end.
    pub duration_ns: u64,
    /// How long to wait for the last answers then, at most.
    pub drain_max_ns: u64,
    /// For streams of an open loop, whose requests are to start on time.
    pub priority: Priority,
    /// For them, too.
    pub waiting: Waiting,
}

/// How the threads of a run are scheduled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// As all others.
    #[default]
    Ordinary,
    /// Before all ordinary threads, if the process has the right: for threads with cores of their own.
    RealTime,
}

/// How the threads of a run wait while a request or an answer is near.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// By looking again and again.
    #[default]
    Polling,
    /// In the kernel: with less CPU time, and later by the time that waking takes.
    Sleeping,
}

impl Phase {
    /// One of an ordinary priority that polls.
    pub fn new(duration_ns: u64, drain_max_ns: u64) -> Self {
        Self { duration_ns, drain_max_ns, priority: Priority::Ordinary, waiting: Waiting::Polling }
    }
}

/// Receives the records while a run goes on.
pub trait Keep: Send + Sync {
    /// Takes some records of a stream. Called by one thread at a time, which is none of the
    /// generator's: it may wait for a disk.
    fn keep(&self, stream: usize, records: &[Record]);

    /// When [`Keep::look`] is to be called after this time, in nanoseconds since the start of the phase; none if never. Then
    /// records come within [`crate::record::OPEN_STEP_NS`] of their end.
    fn next_look_ns(&self, _after_ns: u64) -> Option<u64> {
        None
    }

    /// Takes a look at the records that came so far, by the same thread.
    fn look(&self, _now_ns: u64) {}
}

#[derive(Debug)]
pub struct Ran {
    pub streams: Vec<StreamRan>,
    /// How long requests started, really.
    pub duration_ns: u64,
    /// How long the last answers then took, or were waited for.
    pub drain_ns: u64,
    /// The share of the time in which requests started, in which the busiest thread had something to do.
    pub busy_share: f64,
    pub threads: u32,
    /// The lowest that a thread got.
    pub priority: Priority,
    pub ended_early: Option<String>,
    /// Why the first connection failed that this machine's limits did not allow, or that came to no TLS session, if any.
    pub local_limit: Option<String>,
}

#[derive(Debug, Default)]
pub struct StreamRan {
    /// Every request once, in the order in which they ended, roughly.
    pub records: Vec<Record>,
    /// With HTTP/2, the first stream has those that all share.
    pub connections: u64,
    /// Their TLS handshakes, at most a million.
    pub handshakes: Vec<Handshake>,
    /// Requests sent again, after an abort or on a connection that the server had closed.
    pub retried: u64,
    pub clients: Vec<ClientTotals>,
    /// The open connections of all threads, every [`crate::record::OPEN_STEP_NS`] from the start of the phase to the end of
    /// the drain.
    pub open: Vec<OpenConnections>,
}

impl StreamRan {
    /// Adds the part of another thread, without its records.
    fn add(&mut self, other: Self) {
        self.connections += other.connections;
        self.handshakes.extend(other.handshakes);
        self.retried += other.retried;
        self.clients.extend(other.clients);
        if self.open.len() < other.open.len() {
            self.open.resize(other.open.len(), OpenConnections::default());
        }
        for (all, one) in self.open.iter_mut().zip(other.open) {
            all.established += one.established;
            all.connecting += one.connecting;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientTotals {
    pub body_bytes: u64,
    pub answered: u64,
    /// The rest.
    pub failed: u64,
    /// How long it had a request under way.
    pub active_ns: u64,
}

/// Runs the streams: `threads[i]` are those of thread i, stream k of all threads belong together.
///
/// Errors: usage, for streams beyond the bounds above or unlike on threads; run, when the system gives
/// no thread or no epoll. Nothing that a server does is an error.
pub fn run(threads: Vec<Vec<Stream>>, phase: &Phase, stop: &Stop, keep: Option<&dyn Keep>) -> Result<Ran> {
    let streams = threads.first().map_or(0, Vec::len);
    check(&threads, streams)?;
    // A descriptor short shows as a local limit.
    let _ = flash_waiting::process::raise_descriptor_limit();
    let count = threads.len() as u32;
    let shared = Shared {
        start_ns: clock::monotonic_ns() + START_NS_PER_THREAD * u64::from(count),
        phase: *phase,
        stop: stop.clone(),
        requests_kept: AtomicU64::new(0),
        ending: AtomicBool::new(false),
        ended_early: Mutex::new(None),
        local_limit: Mutex::new(None),
        is_followed: keep.is_some_and(|keep| keep.next_look_ns(0).is_some()),
    };
    let start_ns = shared.start_ns;
    let (sender, receiver) = mpsc::channel();
    let (ended, records) = thread::scope(|scope| {
        let collector = scope.spawn(move || collect(&receiver, streams, keep, start_ns));
        let mut handles = Vec::new();
        for (number, streams) in threads.into_iter().enumerate() {
            let (shared, outbox) = (&shared, Outbox::new(sender.clone()));
            let work = move || {
                let priority = take_priority(&streams, shared.phase.priority);
                let ended = Generator::new(number as u8, streams, shared, outbox, priority)?.run();
                ended.map(|ended| (ended, priority))
            };
            match thread::Builder::new().spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(why) => {
                    drop(sender);
                    shared.ending.store(true, Ordering::Relaxed);
                    return Err(Error::run(format!("cannot start a thread: {why}; use fewer")));
                }
            }
        }
        drop(sender);
        let ended: Vec<_> = handles.into_iter().map(thread::ScopedJoinHandle::join).collect();
        Ok((ended, collector.join()))
    })?;
    let broken = |_| Error::run("a thread of the load broke off: a fault of Flash, please report it");
    let mut streams: Vec<StreamRan> = (records.map_err(broken)?.into_iter())
        .map(|records| StreamRan { records, ..StreamRan::default() })
        .collect();
    let (mut duration_ns, mut drain_ns, mut busy_ns) = (0, 0, 0);
    let mut priority = phase.priority;
    for ended in ended {
        let (ended, own_priority) = ended.map_err(broken)?.map_err(|why| wait_failed(&why))?;
        if own_priority == Priority::Ordinary {
            priority = Priority::Ordinary;
        }
        duration_ns = duration_ns.max(ended.duration_ns);
        drain_ns = drain_ns.max(ended.drain_ns);
        busy_ns = busy_ns.max(ended.busy_ns);
        streams.iter_mut().zip(ended.streams).for_each(|(all, one)| all.add(one));
    }
    let busy_share = busy_ns as f64 / duration_ns.max(1) as f64;
    let reason = |text: Mutex<_>| text.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (ended_early, local_limit) = (reason(shared.ended_early), reason(shared.local_limit));
    Ok(Ran { streams, duration_ns, drain_ns, busy_share, threads: count, priority, ended_early, local_limit })
}

/// Takes the wished priority for the calling thread; gives the one that it has then. Clients of a closed loop have no time at
/// which they are to start, and could keep a core from all other threads.
fn take_priority(streams: &[Stream], wished: Priority) -> Priority {
    let is_open = streams.iter().all(|stream| stream.pace == Pace::Open);
    if wished == Priority::RealTime && is_open && network::wake_on_time(OnTime::Load) {
        Priority::RealTime
    } else {
        Priority::Ordinary
    }
}

fn wait_failed(why: &io::Error) -> Error {
    Error::run(format!("cannot wait for answers by epoll: {why}"))
}

/// Refuses what a run has no room for.
fn check<'s>(threads: &'s [Vec<Stream>], streams: usize) -> Result<()> {
    let refuse = |text: String| Err(Error::usage(text));
    if threads.is_empty() || threads.len() > THREADS_MAX {
        return refuse(format!("{} threads: there must be 1 to {THREADS_MAX}", threads.len()));
    }
    if streams == 0 || streams > STREAMS_MAX || threads.iter().any(|thread| thread.len() != streams) {
        return refuse(format!("every thread must have the same streams, 1 to {STREAMS_MAX}"));
    }
    for thread in threads {
        let of = |stream: &'s Stream| (&stream.setup.target, stream.setup.protocol);
        let is_shared = thread.iter().any(|stream| stream.setup.protocol != Protocol::Http1);
        let first = thread.first().map(of);
        if is_shared && thread.iter().any(|stream| Some(of(stream)) != first) {
            return refuse(
                "streams of HTTP/2 share connections: all need the same server and version".to_owned(),
            );
        }
    }
    for stream in threads.iter().flatten() {
        if matches!(stream.pace, Pace::Closed { clients, .. } if clients > CLIENTS_MAX) {
            return refuse(format!("more than {CLIENTS_MAX} clients on a thread: use fewer"));
        }
        let setup = &stream.setup;
        if setup.protocol != Protocol::Http1 && setup.read_bytes_per_s.is_some() {
            return refuse("users read at a rate over HTTP/1.1 only: leave out one of the two".to_owned());
        }
        let zero = [
            setup.protocol == Protocol::Http2 { streams_max: 0 },
            setup.read_bytes_per_s == Some(0),
            setup.requests_per_connection == Some(0),
            setup.abort_after_ns == Some(0),
            setup.connections_max == 0,
        ];
        if zero.contains(&true) {
            return refuse(
                "a pace, patience, number of connections, or of requests or streams on one of 0: give more"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
