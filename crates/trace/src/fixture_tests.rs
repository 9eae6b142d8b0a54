//! A made-up trace for tests: a server with one loop that waits for the disk, and a pool of threads.

use crate::model::{
    Batch, BlockedCall, CallTotal, HeldUp, Process, Reason, ReasonTotal, Request, RequestTotal, Requests,
    Segment, Shares, State, Target, TargetKind, TargetTotal, Thread, Timeline, Times, Trace, VERSION, Waiter,
};

/// The process of the loop.
pub(crate) const PID: u32 = 71;
/// A thread of the pool.
pub(crate) const POOL: u32 = 80;
pub(crate) const MS: u64 = 1_000_000;

fn file(name: &str) -> Target {
    Target { kind: TargetKind::File, name: name.to_owned(), is_uncertain: false }
}

fn waiter(peer: &str, waited_ms: u64, arrived: bool) -> Waiter {
    let target =
        Target { kind: TargetKind::Socket, name: format!("127.0.0.1:80 - {peer}"), is_uncertain: false };
    Waiter { fd: 9, arrived, target: Some(target), waited_ns: waited_ms * MS }
}

/// A call of the loop that waited from `start_ms` on.
pub(crate) fn wait(
    call: &'static str,
    start_ms: u64,
    blocked_ms: u64,
    reason: Reason,
    name: &str,
) -> BlockedCall {
    BlockedCall {
        pid: PID,
        tid: PID,
        in_loop: true,
        call: call.into(),
        start_ns: start_ms * MS,
        duration_ns: blocked_ms * MS,
        blocked_ns: blocked_ms * MS,
        switches: 1,
        reason,
        stack: vec!["io_schedule".to_owned(), "folio_wait_bit_common".to_owned()],
        fd: Some(12),
        target: Some(file(name)),
        request: Some(format!("GET {name} HTTP/1.1")),
        batch: Some(Batch::default()),
        ..BlockedCall::default()
    }
}

pub(crate) fn total(call: &'static str, in_loop: bool, reason: Reason, blocked_ms: &[u64]) -> CallTotal {
    let sum = blocked_ms.iter().sum::<u64>() * MS;
    let longest_ns = blocked_ms.iter().max().unwrap_or(&0) * MS;
    let stalls = blocked_ms.iter().filter(|ms| **ms > 1).count() as u64;
    let count = blocked_ms.len() as u64;
    CallTotal {
        pid: PID,
        in_loop,
        call: call.into(),
        count: 1000,
        duration_ns: sum + 2 * MS,
        on_cpu_ns: 2 * MS,
        blocked_ns: sum,
        blocked: count,
        longest_ns,
        loop_share: if in_loop { sum as f64 / 1e9 } else { 0.0 },
        reasons: vec![ReasonTotal { reason, count, stalls, blocked_ns: sum, longest_ns }],
        ..CallTotal::default()
    }
}

fn target_of(call: &BlockedCall) -> TargetTotal {
    TargetTotal {
        pid: PID,
        in_loop: call.in_loop,
        call: call.call.clone(),
        target: call.target.clone().unwrap_or_default(),
        blocked: 1,
        blocked_ns: call.blocked_ns,
        longest_ns: call.duration_ns,
        reasons: vec![ReasonTotal {
            reason: call.reason,
            count: 1,
            stalls: 1,
            blocked_ns: call.blocked_ns,
            longest_ns: call.duration_ns,
        }],
    }
}

/// A second of a loop that waited 200 ms in sendfile and 50 ms in openat, and of a pool that waited 300 ms.
pub(crate) fn waiting_server() -> Trace {
    let mut send = wait("sendfile", 100, 200, Reason::DiskRead, "/srv/cold/big");
    send.batch = Some(Batch {
        ready: 2,
        turned_to: 1,
        behind: 1,
        arrived: 1,
        unpolled_ns: 200 * MS,
        waiters: vec![waiter("10.0.0.1:5", 260, false), waiter("10.0.0.2:6", 150, true)],
    });
    let mut open = wait("openat", 305, 50, Reason::Metadata, "/srv/cold/deep/name");
    open.batch = Some(Batch {
        ready: 2,
        turned_to: 1,
        behind: 1,
        waiters: vec![waiter("10.0.0.1:5", 52, false)],
        ..Batch::default()
    });
    let mut pool = wait("pread64", 400, 300, Reason::DiskRead, "/srv/cold/other");
    (pool.tid, pool.in_loop, pool.batch) = (POOL, false, None);
    let blocked = vec![send, open, pool];
    let time = Shares {
        waiting_ns: 700 * MS,
        user_ns: 20 * MS,
        call_ns: 30 * MS,
        blocked_ns: 250 * MS,
        runnable_ns: 0,
    };
    let thread = Thread {
        tid: PID,
        pid: PID,
        name: "nginx".to_owned(),
        is_loop: true,
        serves_several: true,
        wait_call: Some("epoll_wait".into()),
        waits: 90,
        ready: 100,
        ready_max: 2,
        time,
        held_up: HeldUp { times: 3, ns: 350 * MS, longest_ns: 200 * MS },
    };
    let pool = Thread { tid: POOL, pid: PID, name: "nginx".to_owned(), ..Thread::default() };
    let waits = CallTotal { is_wait: true, ..total("epoll_wait", true, Reason::Events, &[700]) };
    Trace {
        version: VERSION,
        command_line: vec!["flash".to_owned(), "trace".to_owned(), PID.to_string()],
        kernel: "6.18".to_owned(),
        duration_ns: 1000 * MS,
        processes: vec![Process {
            pid: PID,
            parent: 1,
            name: "nginx".to_owned(),
            command: "nginx: worker".to_owned(),
        }],
        threads: vec![thread, pool],
        calls: vec![
            waits,
            total("sendfile", true, Reason::DiskRead, &[200]),
            total("openat", true, Reason::Metadata, &[50]),
            total("pread64", false, Reason::DiskRead, &[300]),
        ],
        targets: blocked.iter().map(target_of).collect(),
        timelines: vec![timeline()],
        requests: requests(),
        blocked,
        ..Trace::default()
    }
}

/// One request waited behind both calls, one behind the second, one behind none and one for its answer still.
fn requests() -> Requests {
    let request = |line: &str, start_ms: u64, waited_ms: u64, still_ms: u64| Request {
        connection: format!("127.0.0.1:80 - 10.0.0.1:{start_ms}"),
        line: line.to_owned(),
        start_ns: start_ms * MS,
        waited_ns: waited_ms * MS,
        is_answered: true,
        tid: Some(PID),
        held_up_ns: still_ms * MS,
    };
    let times = |count: u64, p50_ms: u64, longest_ms: u64| Times {
        count,
        p50_ns: p50_ms * MS,
        p99_ns: longest_ms * MS,
        longest_ns: longest_ms * MS,
    };
    let total = RequestTotal {
        pid: PID,
        held_up: times(2, 60, 270),
        waited_ns: 330 * MS,
        held_up_ns: 280 * MS,
        others: times(1, 1, 1),
        unanswered: 1,
        unanswered_held_up: 0,
    };
    let costliest = vec![
        request("GET /hot/a", 95, 270, 250),
        request("GET /hot/b", 325, 60, 30),
        Request { is_answered: false, ..request("GET /late", 990, 10, 0) },
        request("GET /hot/c", 500, 1, 0),
    ];
    Requests { seen: 4, totals: vec![total], costliest, ..Requests::default() }
}

/// Waits 100 ms, sendfile 200, works 5, openat 50, waits 645.
fn timeline() -> Timeline {
    let segment =
        |start_ms: u64, ms: u64, state: State, call: Option<&'static str>, reason: Option<Reason>| Segment {
            start_ns: start_ms * MS,
            duration_ns: ms * MS,
            state,
            call: call.map(Into::into),
            reason,
            ..Segment::default()
        };
    Timeline {
        tid: PID,
        pid: PID,
        resolution_ns: 0,
        segments: vec![
            segment(0, 100, State::Waiting, Some("epoll_wait"), None),
            segment(100, 200, State::Blocked, Some("sendfile"), Some(Reason::DiskRead)),
            segment(300, 5, State::User, None, None),
            segment(305, 50, State::Blocked, Some("openat"), Some(Reason::Metadata)),
            segment(355, 645, State::Waiting, Some("epoll_wait"), None),
        ],
    }
}

/// The same server, when only its pool waits.
pub(crate) fn helped_server() -> Trace {
    let mut trace = waiting_server();
    trace.blocked.retain(|call| !call.in_loop);
    trace.calls.retain(|call| !call.in_loop || call.is_wait);
    trace.targets.retain(|total| !total.in_loop);
    let thread = &mut trace.threads[0];
    thread.time.waiting_ns += thread.time.blocked_ns;
    let requests = &mut trace.requests;
    requests.costliest.retain(|request| request.held_up_ns == 0);
    requests.totals[0].held_up = Times::default();
    (thread.time.blocked_ns, thread.held_up) = (0, HeldUp::default());
    trace.timelines[0].segments.retain(|segment| segment.state != State::Blocked);
    trace
}
