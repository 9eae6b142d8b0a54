//! Requests: which came, when their answers began to leave, whose thread sent them, and for how much of that time
//! the thread stood still.
//!
//! The analysis tells it of each segment, in the order of times between the events of threads. An answer leaves
//! in the call that sends it: so the thread that is in such a call at that moment, on a core, is the one that
//! serves the connection, or works for the one loop of its process that does. Where several are in such a call, it
//! is the one that has served the connection before, else nobody is named.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use hdrhistogram::Histogram;

use super::thread::Thread;
use crate::trace::model::{self, READY_SHARE_MIN, Request, RequestTotal, STALL_NS, Times};
use crate::trace::segment::{Begins, Segment};

/// Connections that are remembered, at most.
const CONNECTIONS_MAX: usize = 65_536;
/// Requests that wait for their answers at once and are followed, at most.
const AWAITED_MAX: usize = CONNECTIONS_MAX / 2;
/// Requests that are kept.
const COSTLIEST_MAX: usize = 2_048;
/// Times are told apart from a microsecond to an hour, by three digits.
const TIME_NS: (u64, u64, u8) = (1_000, 3_600_000_000_000, 3);

/// What has been seen of requests.
#[derive(Debug, Default)]
pub(super) struct Requests {
    connections: HashMap<(SocketAddr, SocketAddr), Connection>,
    awaited: usize,
    /// Threads that are in a call that may send, on a core.
    pub(super) sending: HashSet<u32>,
    /// Threads that have served a request.
    answerers: HashSet<u32>,
    /// By process; 0 where no event loop answered.
    sums: BTreeMap<u32, Sums>,
    costliest: Vec<Request>,
    /// What paid less than this is not among them: how long its loop stood still, and how long it waited.
    least_ns: (u64, u64),
    seen: u64,
    answers_missed: u64,
    unattributed: u64,
    pub(super) dropped: u64,
}

#[derive(Debug)]
struct Connection {
    /// The number of the first byte of its last request.
    sequence: u32,
    /// The thread that served it last.
    tid: Option<u32>,
    awaited: Option<Awaited>,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Awaited {
    line: String,
    start_ns: u64,
    /// The number of the first byte of its answer.
    answer: u32,
    /// How long each thread that may serve it had stood still when it came.
    stood_still_ns: Vec<(u32, u64)>,
}

#[derive(Debug, Default)]
struct Sums {
    held_up: Option<Histogram<u64>>,
    held_up_ns: u64,
    stood_still_ns: u64,
    others: Option<Histogram<u64>>,
    unanswered: u64,
    unanswered_held_up: u64,
}

/// The threads, and which of them are event loops as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads<'a> {
    pub(super) all: &'a BTreeMap<u32, Thread>,
    pub(super) loops: &'a [u32],
}

impl Threads<'_> {
    fn is_loop(self, tid: u32) -> bool {
        self.loops.contains(&tid) && self.all.get(&tid).is_some_and(Thread::is_loop)
    }

    /// Who serves the requests whose answers this thread sends: the loop that it works for, where its process has
    /// one and no more, or itself.
    fn server(self, tid: u32) -> u32 {
        let Some(thread) = self.all.get(&tid).filter(|_| !self.is_loop(tid)) else { return tid };
        let is_beside = |other: &&u32| {
            self.is_loop(**other) && self.all.get(*other).is_some_and(|beside| beside.pid == thread.pid)
        };
        only(self.loops.iter().filter(is_beside)).unwrap_or(tid)
    }
}

impl Requests {
    /// A segment has passed.
    pub(super) fn passed(&mut self, segment: &Segment, now_ns: u64, threads: Threads<'_>) {
        match &segment.begins {
            Begins::Request(line) => self.asked(segment, line, now_ns, threads),
            Begins::Answer => self.answered(segment, now_ns, threads),
        }
    }

    fn asked(&mut self, segment: &Segment, line: &str, now_ns: u64, threads: Threads<'_>) {
        let key = (segment.server, segment.client);
        let known = self.connections.get_mut(&key);
        let mut tid = None;
        if let Some(connection) = known {
            // It came by another interface as well, or again.
            let is_again = connection.sequence == segment.sequence;
            // One that its client sent before it had the answer to the last, or a part of a body.
            let is_more = connection.awaited.as_ref().is_some_and(|awaited| awaited.answer == segment.wanted);
            if is_again || is_more {
                return;
            }
            tid = connection.tid;
            if connection.awaited.take().is_some() {
                self.awaited -= 1;
                self.answers_missed += 1;
            }
        }
        self.seen += 1;
        if self.awaited >= AWAITED_MAX {
            self.dropped += 1;
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.connections.retain(|_, connection| connection.awaited.is_some());
        }
        let may_serve = match &tid {
            Some(tid) => std::slice::from_ref(tid),
            None => threads.loops,
        };
        let stood_still_ns = may_serve
            .iter()
            .filter_map(|tid| Some((*tid, threads.all.get(tid)?.stood_still_ns(now_ns))))
            .collect();
        let awaited =
            Awaited { line: line.to_owned(), start_ns: now_ns, answer: segment.wanted, stood_still_ns };
        self.awaited += 1;
        self.connections.insert(key, Connection { sequence: segment.sequence, tid, awaited: Some(awaited) });
    }

    fn answered(&mut self, segment: &Segment, now_ns: u64, threads: Threads<'_>) {
        let Some(connection) = self.connections.get_mut(&(segment.server, segment.client)) else { return };
        // Numbers begin anew after 2^32 (RFC 9293, section 3.4): what is less than half of that ahead is later.
        let is_its = |awaited: &Awaited| segment.sequence.wrapping_sub(awaited.answer) <= u32::MAX / 2;
        if !connection.awaited.as_ref().is_some_and(is_its) {
            return;
        }
        let Some(awaited) = connection.awaited.take() else { return };
        self.awaited -= 1;
        let sender = only(self.sending.iter()).map(|tid| threads.server(tid));
        // A queue of the network may have kept it until after the call.
        let nobody = || if self.sending.is_empty() { sole_server(&self.answerers, threads) } else { None };
        connection.tid = sender.or(connection.tid).or_else(nobody);
        let tid = connection.tid;
        self.answerers.extend(sender);
        self.done((segment.server, segment.client), awaited, tid, (now_ns, true), threads);
    }

    /// Nothing more is heard of a request.
    fn done(
        &mut self,
        (server, client): (SocketAddr, SocketAddr),
        awaited: Awaited,
        tid: Option<u32>,
        (end_ns, is_answered): (u64, bool),
        threads: Threads<'_>,
    ) {
        self.unattributed += u64::from(tid.is_none());
        let of_loop =
            tid.filter(|tid| threads.is_loop(*tid)).and_then(|tid| Some((tid, threads.all.get(&tid)?)));
        let stood_still_ns = of_loop.map_or(0, |(tid, thread)| {
            let before = awaited.stood_still_ns.iter().find(|(other, _)| *other == tid);
            // Where it is not known how it was before, nothing is claimed.
            before.map_or(0, |(_, before_ns)| thread.stood_still_ns(end_ns).saturating_sub(*before_ns))
        });
        let waited_ns = end_ns.saturating_sub(awaited.start_ns);
        let stood_still_ns = stood_still_ns.min(waited_ns);
        let sums = self.sums.entry(of_loop.map_or(0, |(_, thread)| thread.pid)).or_default();
        let is_held_up = stood_still_ns > STALL_NS;
        if is_answered {
            sums.add(waited_ns, stood_still_ns, is_held_up);
        } else {
            sums.unanswered += 1;
            sums.unanswered_held_up += u64::from(is_held_up);
        }
        if (stood_still_ns, waited_ns) < self.least_ns {
            return;
        }
        self.costliest.push(Request {
            connection: format!("{server} - {client}"),
            line: awaited.line,
            start_ns: awaited.start_ns,
            waited_ns,
            is_answered,
            tid,
            stood_still_ns,
        });
        // Sorted only when twice as many have come together.
        if self.costliest.len() >= 2 * COSTLIEST_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        self.costliest.sort_by_key(|request| std::cmp::Reverse((request.stood_still_ns, request.waited_ns)));
        self.costliest.truncate(COSTLIEST_MAX);
        if let Some(last) = self.costliest.get(COSTLIEST_MAX - 1) {
            self.least_ns = (last.stood_still_ns, last.waited_ns);
        }
    }

    /// All of it, for a trace from `start_ns` to `end_ns`.
    pub(super) fn finish(&mut self, start_ns: u64, end_ns: u64, threads: Threads<'_>) -> model::Requests {
        let sole = sole_server(&self.answerers, threads);
        for (key, connection) in std::mem::take(&mut self.connections) {
            if let Some(awaited) = connection.awaited {
                self.done(key, awaited, connection.tid.or(sole), (end_ns, false), threads);
            }
        }
        self.cut();
        let mut costliest = std::mem::take(&mut self.costliest);
        for request in &mut costliest {
            request.start_ns = request.start_ns.saturating_sub(start_ns);
        }
        model::Requests {
            seen: self.seen,
            answers_missed: self.answers_missed,
            unattributed: self.unattributed,
            totals: self.sums.iter().map(|(pid, sums)| sums.total(*pid)).collect(),
            costliest,
        }
    }
}

/// The thread that serves all requests, where only one has sent answers and no other loop handles a share of the
/// events that counts.
fn sole_server(answerers: &HashSet<u32>, threads: Threads<'_>) -> Option<u32> {
    let sole = only(answerers.iter())?;
    let ready = |tid: &u32| threads.all.get(tid).map_or(0, |thread| thread.ready) as f64;
    let mut others = threads.loops.iter().filter(|tid| **tid != sole);
    others.all(|tid| ready(tid) < ready(&sole) * READY_SHARE_MIN).then_some(sole)
}

/// The one that there is.
fn only<'a>(mut tids: impl Iterator<Item = &'a u32>) -> Option<u32> {
    let first = tids.next().copied();
    first.filter(|_| tids.next().is_none())
}

impl Sums {
    fn add(&mut self, waited_ns: u64, stood_still_ns: u64, is_held_up: bool) {
        let times = if is_held_up { &mut self.held_up } else { &mut self.others };
        if is_held_up {
            self.held_up_ns += waited_ns;
            self.stood_still_ns += stood_still_ns;
        }
        if times.is_none() {
            let (least_ns, most_ns, digits) = TIME_NS;
            // Made of constants, it is made or never was.
            *times = Histogram::new_with_bounds(least_ns, most_ns, digits).ok();
        }
        if let Some(times) = times {
            times.saturating_record(waited_ns);
        }
    }

    fn total(&self, pid: u32) -> RequestTotal {
        RequestTotal {
            pid,
            held_up: times(self.held_up.as_ref()),
            held_up_ns: self.held_up_ns,
            stood_still_ns: self.stood_still_ns,
            others: times(self.others.as_ref()),
            unanswered: self.unanswered,
            unanswered_held_up: self.unanswered_held_up,
        }
    }
}

fn times(times: Option<&Histogram<u64>>) -> Times {
    times.map_or_else(Times::default, |times| Times {
        count: times.len(),
        p50_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        longest_ns: times.max(),
    })
}
