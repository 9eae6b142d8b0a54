//! Requests: which came, when their answers began to leave, whose thread sent them, and for how much of that time
//! calls for other connections blocked the thread.
//!
//! The analysis tells it of each segment, in the order of times between the events of threads. An answer leaves
//! in the call that sends it: so the thread that is in such a call at that moment, on a core, is the one that
//! serves the connection, or works for the one loop of its process that does. Where several are in such a call, it
//! is the one that has served the connection before, otherwise the thread is unknown.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;

use hdrhistogram::Histogram;

use super::pollers::Pollers;
use super::pools::Exhausted;
use super::thread::Thread;
use crate::model::{self, READY_SHARE_MIN, Request, RequestTotal, STALL_NS, Times};
use crate::segment::{Begins, Segment};

/// Connections that are remembered, at most.
const CONNECTIONS_MAX: usize = 65_536;
/// Requests that wait for their answers at once and are followed, at most.
const AWAITED_MAX: usize = CONNECTIONS_MAX / 2;
/// Requests that are kept.
const COSTLIEST_MAX: usize = 2_048;
/// A request counts as held up if its loop was blocked by others for one part of its wait in this many, or more.
const HELD_UP_PART: u64 = 10;
/// Times are recorded from a microsecond to an hour, with three digits.
const TIME_NS: (u64, u64, u8) = (1_000, 3_600_000_000_000, 3);

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
    /// The result without its totals; times do not count from the start of the trace yet.
    found: model::Requests,
    /// Requests below this are not kept: how long they were held up, and how long they waited.
    least_ns: (u64, u64),
    pub(super) dropped: u64,
    /// How far exhausted pools had got when the segment passed.
    pub(super) exhausted: Exhausted,
    /// Those who serve, with how often they turned from one connection to another.
    turns: HashMap<Owner, (u64, (SocketAddr, SocketAddr))>,
    /// Those of them who came back to a connection: they serve several at once.
    several: HashSet<Owner>,
}

/// Who serves: a thread, or a process whose threads share an epoll instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Thread(u32),
    Process(u32),
}

#[derive(Debug)]
struct Connection {
    /// The number of the first byte of its last request.
    sequence: u32,
    tid: Option<u32>,
    /// The descriptor by which it was answered last.
    fd: Option<i32>,
    /// Who answered it last, and how often they had turned to another connection by then.
    turned: Option<(Owner, u64)>,
    awaited: Option<Awaited>,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Awaited {
    line: String,
    start_ns: u64,
    /// The number of the first byte of its answer.
    answer: u32,
    /// How long each thread that may serve it had been blocked when it came.
    blocked_ns: Vec<(u32, Clock)>,
    /// How far exhausted pools had got by then.
    exhausted: Exhausted,
}

/// A connection, the thread that served a request on it and by which descriptor.
#[derive(Clone, Copy, Debug)]
struct Served {
    key: (SocketAddr, SocketAddr),
    tid: Option<u32>,
    fd: Option<i32>,
    /// When the answer began, or nothing more was seen.
    end_ns: u64,
    is_answered: bool,
}

/// The total of a process, and the times that are yet to be summed up in it.
#[derive(Debug, Default)]
struct Sums {
    total: RequestTotal,
    held_up: Option<Histogram<u64>>,
    others: Option<Histogram<u64>>,
}

/// How long a thread was blocked until now, alone and together with those that share its epoll instance.
#[derive(Clone, Copy, Debug)]
struct Clock {
    own_ns: u64,
    shared_ns: u64,
}

/// The threads, and which of them are event loops as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threads<'a> {
    pub(super) all: &'a BTreeMap<u32, Thread>,
    pub(super) loops: &'a [u32],
    pub(super) pollers: &'a Pollers,
}

impl Threads<'_> {
    fn is_loop(self, tid: u32) -> bool {
        self.loops.contains(&tid) && self.all.get(&tid).is_some_and(Thread::is_loop)
    }

    fn is_shared(self, tid: u32) -> bool {
        self.pollers.is_shared(self.all.get(&tid).and_then(|thread| thread.polls_at))
    }

    fn owner(self, tid: u32) -> Owner {
        match self.all.get(&tid) {
            Some(thread) if self.is_shared(tid) => Owner::Process(thread.data.pid),
            _ => Owner::Thread(tid),
        }
    }

    fn clock(self, tid: u32, now_ns: u64) -> Option<Clock> {
        let thread = self.all.get(&tid)?;
        let shared_ns = self.pollers.held_up_ns(thread.polls_at);
        Some(Clock { own_ns: thread.blocked_until_ns(now_ns), shared_ns })
    }

    fn sends_to(self, tid: u32) -> Option<i32> {
        self.all.get(&tid)?.open.as_ref()?.argument_fd().map(|fd| fd as i32)
    }

    /// Who serves the requests whose answers this thread sends: the loop that it works for, where its process has
    /// one and no more, or itself.
    fn server(self, tid: u32) -> u32 {
        let Some(thread) = self.all.get(&tid).filter(|_| !self.is_loop(tid)) else { return tid };
        let is_beside = |other: &&u32| {
            self.is_loop(**other)
                && self.all.get(*other).is_some_and(|beside| beside.data.pid == thread.data.pid)
        };
        only(self.loops.iter().filter(is_beside)).unwrap_or(tid)
    }
}

impl Requests {
    pub(super) fn passed(&mut self, segment: &Segment, now_ns: u64, threads: Threads<'_>) {
        match &segment.begins {
            Begins::Request(line) => self.asked(segment, line, now_ns, threads),
            Begins::Answer => self.answered(segment, now_ns, threads),
        }
    }

    fn asked(&mut self, segment: &Segment, line: &str, now_ns: u64, threads: Threads<'_>) {
        let key = (segment.server, segment.client);
        let known = self.connections.get_mut(&key);
        let (mut tid, mut fd, mut turned) = (None, None, None);
        if let Some(connection) = known {
            // It came by another interface as well, or again.
            let is_again = connection.sequence == segment.sequence;
            // One that its client sent before it had the answer to the last, or a part of a body.
            let is_more = connection.awaited.as_ref().is_some_and(|awaited| awaited.answer == segment.wanted);
            if is_again || is_more {
                return;
            }
            (tid, fd, turned) = (connection.tid, connection.fd, connection.turned);
            if connection.awaited.take().is_some() {
                self.awaited -= 1;
                self.found.answers_missed += 1;
            }
        }
        self.found.seen += 1;
        if self.awaited >= AWAITED_MAX {
            self.dropped += 1;
            return;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.connections.retain(|_, connection| connection.awaited.is_some());
        }
        let may_serve = match &tid {
            Some(tid) if !threads.is_shared(*tid) => std::slice::from_ref(tid),
            _ => threads.loops,
        };
        let blocked_ns =
            may_serve.iter().filter_map(|tid| Some((*tid, threads.clock(*tid, now_ns)?))).collect();
        let awaited = Awaited {
            line: line.to_owned(),
            start_ns: now_ns,
            answer: segment.wanted,
            blocked_ns,
            exhausted: self.exhausted,
        };
        self.awaited += 1;
        let sequence = segment.sequence;
        self.connections.insert(key, Connection { sequence, tid, fd, turned, awaited: Some(awaited) });
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
        let sole = if self.sending.is_empty() { sole_server(&self.answerers, threads) } else { None };
        connection.tid = sender.or(connection.tid).or(sole);
        let tid = connection.tid;
        connection.fd = only(self.sending.iter()).and_then(|tid| threads.sends_to(tid)).or(connection.fd);
        let key = (segment.server, segment.client);
        let served = Served { key, tid, fd: connection.fd, end_ns: now_ns, is_answered: true };
        self.answerers.extend(sender);
        if let Some(tid) = sender.or(sole) {
            self.turned(served.key, threads.owner(tid));
        }
        self.done(served, awaited, threads);
    }

    /// Someone answers on a connection: one who has answered on another one since the last time serves several at once.
    fn turned(&mut self, key: (SocketAddr, SocketAddr), owner: Owner) {
        let (turns, last) = self.turns.entry(owner).or_insert((0, key));
        if *last != key {
            (*turns, *last) = (*turns + 1, key);
        }
        let Some(connection) = self.connections.get_mut(&key) else { return };
        if connection.turned.is_some_and(|(before, at)| before == owner && at < *turns) {
            self.several.insert(owner);
        }
        connection.turned = Some((owner, *turns));
    }

    /// How many requests wait for their answers.
    pub(super) fn awaited(&self) -> usize {
        self.awaited
    }

    /// Whether a thread has answered on several connections in turn.
    pub(super) fn serves_several(&self, tid: u32, pid: u32) -> bool {
        self.several.contains(&Owner::Thread(tid)) || self.several.contains(&Owner::Process(pid))
    }

    /// Nothing more is heard of a request.
    fn done(
        &mut self,
        Served { key: (server, client), tid, fd, end_ns, is_answered }: Served,
        awaited: Awaited,
        threads: Threads<'_>,
    ) {
        self.found.unattributed += u64::from(tid.is_none());
        let of_loop =
            tid.filter(|tid| threads.is_loop(*tid)).and_then(|tid| Some((tid, threads.all.get(&tid)?)));
        let held_up_ns = of_loop.map_or(0, |(tid, thread)| {
            let before = awaited.blocked_ns.iter().find(|(other, _)| *other == tid);
            // If it is not known how long it was blocked before, nothing is claimed.
            let (Some((_, before)), Some(now)) = (before, threads.clock(tid, end_ns)) else { return 0 };
            let own_ns = fd.map_or(0, |fd| thread.blocked_for_ns(fd, awaited.start_ns, end_ns));
            let blocked_ns = if threads.is_shared(tid) {
                now.shared_ns - before.shared_ns
            } else {
                now.own_ns.saturating_sub(before.own_ns)
            };
            blocked_ns.saturating_sub(own_ns)
        });
        let waited_ns = end_ns.saturating_sub(awaited.start_ns);
        let held_up_ns = held_up_ns.min(waited_ns);
        let (before, now) = (awaited.exhausted, self.exhausted);
        let has_queued = now.ns - before.ns > STALL_NS && now.ends - before.ends >= now.threads / 2;
        self.found.behind_pools += u64::from(has_queued);
        let sums = self.sums.entry(of_loop.map_or(0, |(_, thread)| thread.data.pid)).or_default();
        let is_held_up = held_up_ns > STALL_NS && held_up_ns >= waited_ns / HELD_UP_PART;
        if is_answered {
            sums.add(waited_ns, held_up_ns, is_held_up);
        } else {
            sums.total.unanswered += 1;
            sums.total.unanswered_held_up += u64::from(is_held_up);
        }
        if (held_up_ns, waited_ns) < self.least_ns {
            return;
        }
        self.found.costliest.push(Request {
            connection: format!("{server} - {client}"),
            line: awaited.line,
            start_ns: awaited.start_ns,
            waited_ns,
            is_answered,
            tid,
            held_up_ns,
        });
        // Sorted only when twice as many have come together.
        if self.found.costliest.len() >= 2 * COSTLIEST_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let costliest = &mut self.found.costliest;
        costliest.sort_by_key(|request| std::cmp::Reverse((request.held_up_ns, request.waited_ns)));
        costliest.truncate(COSTLIEST_MAX);
        if let Some(last) = costliest.get(COSTLIEST_MAX - 1) {
            self.least_ns = (last.held_up_ns, last.waited_ns);
        }
    }

    /// All of it, for a trace from `start_ns` to `end_ns`.
    pub(super) fn finish(&mut self, start_ns: u64, end_ns: u64, threads: Threads<'_>) -> model::Requests {
        let sole = sole_server(&self.answerers, threads);
        for (key, connection) in std::mem::take(&mut self.connections) {
            if let Some(awaited) = connection.awaited {
                let tid = connection.tid.or(sole);
                let served = Served { key, tid, fd: connection.fd, end_ns, is_answered: false };
                self.done(served, awaited, threads);
            }
        }
        self.cut();
        let mut found = std::mem::take(&mut self.found);
        for request in &mut found.costliest {
            request.start_ns = request.start_ns.saturating_sub(start_ns);
        }
        found.totals = self.sums.iter().map(|(pid, sums)| sums.total(*pid)).collect();
        found
    }
}

/// The thread that serves all requests, where only one has sent answers and no other loop handles a share of the
/// events that counts.
fn sole_server(answerers: &HashSet<u32>, threads: Threads<'_>) -> Option<u32> {
    let sole = only(answerers.iter())?;
    let ready = |tid: &u32| threads.all.get(tid).map_or(0, |thread| thread.data.ready) as f64;
    let mut others = threads.loops.iter().filter(|tid| **tid != sole);
    others.all(|tid| ready(tid) < ready(&sole) * READY_SHARE_MIN).then_some(sole)
}

fn only<'a>(mut tids: impl Iterator<Item = &'a u32>) -> Option<u32> {
    let first = tids.next().copied();
    first.filter(|_| tids.next().is_none())
}

impl Sums {
    fn add(&mut self, waited_ns: u64, held_up_ns: u64, is_held_up: bool) {
        let times = if is_held_up { &mut self.held_up } else { &mut self.others };
        if is_held_up {
            self.total.waited_ns += waited_ns;
            self.total.held_up_ns += held_up_ns;
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
        let (held_up, others) = (times(self.held_up.as_ref()), times(self.others.as_ref()));
        RequestTotal { pid, held_up, others, ..self.total }
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
