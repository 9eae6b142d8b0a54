//! Which verdict a trace gets, and what stands in the diagnosis.

use super::super::fixture::{MS, PID, POOL, helped_server, total, wait, waiting_server};
use super::super::model::{Reason, Requests, Trace};
use super::*;

fn verdict(trace: &Trace) -> Verdict {
    diagnose(trace).verdict
}

/// A server one of whose requests waited behind calls of the event loop.
fn delaying_server() -> Trace {
    let mut trace = helped_server();
    trace.requests.totals[0].held_up.count = 1;
    trace
}

#[test]
fn a_loop_is_not_blamed_if_hardly_any_request_waited_behind_it() {
    let mut trace = waiting_server();
    trace.requests.totals[0].others.count = 1_000;
    assert_eq!((verdict(&trace), verdict(&trace).exit_code()), (Verdict::NoWait, 0));
    trace.requests = Requests::default();
    assert_eq!(verdict(&trace), Verdict::LoopWaitsForDisk, "no request was seen, but connections waited");
    trace.threads[0].held_up.times = 0;
    assert_eq!(verdict(&trace), Verdict::NoWait);
}

#[test]
fn a_loop_that_waits_for_the_disk_is_found_with_its_calls_files_and_cost() {
    let found = diagnose(&waiting_server());
    assert_eq!((found.verdict, found.verdict.exit_code()), (Verdict::LoopWaitsForDisk, 1));
    let [one] = &found.loops[..] else { panic!("{:?}", found.loops) };
    assert_eq!((one.name.as_str(), one.blocked, one.stalls, one.disk_stalls), ("nginx 71", 2, 2, 2));
    assert_eq!((one.disk_ns, one.longest_ns, one.blocked_share), (250 * MS, 200 * MS, 0.25));
    let calls: Vec<&str> = one.calls.iter().map(|call| &*call.call).collect();
    assert_eq!(calls, ["sendfile", "openat"], "neither the pool's calls nor those that wait for events");
    assert_eq!(one.targets[0].target.name, "/srv/cold/big");
    assert_eq!(one.longest[1].target.as_ref().unwrap().name, "/srv/cold/deep/name");
    // The first was behind both calls, and behind each no longer than that was blocked.
    let payers: Vec<(&str, u64, u64)> =
        one.payers.iter().map(|payer| (payer.name.as_str(), payer.times, payer.waited_ns / MS)).collect();
    assert_eq!(payers, [("10.0.0.1:5", 2, 250), ("10.0.0.2:6", 1, 150)]);
    assert_eq!(one.payers[0].behind, "sendfile of /srv/cold/big");
    let paid: Vec<(&str, u64, &str, u64)> = one
        .paid
        .iter()
        .map(|Paid { request, behind }| {
            (request.line.as_str(), behind.calls, behind.longest.as_str(), behind.longest_ns / MS)
        })
        .collect();
    assert_eq!(
        paid,
        [
            ("GET /hot/a", 2, "sendfile of /srv/cold/big", 200),
            // It came when the call had begun.
            ("GET /hot/b", 1, "openat of /srv/cold/deep/name", 30)
        ]
    );
    assert_eq!(one.requests.count(), 4);
}

#[test]
fn waits_of_other_threads_are_none_of_the_loop() {
    let found = diagnose(&helped_server());
    assert_eq!((found.verdict, found.verdict.exit_code()), (Verdict::NoWait, 0));
    let others = &found.others;
    assert_eq!((others.threads, others.disk_threads, others.disk_threads_at_once), (1, 1, 1));
    assert_eq!((others.disk_blocked, others.disk_ns, others.longest[0].tid), (1, 300 * MS, POOL));
}

#[test]
fn calls_of_several_helpers_are_told_together() {
    let mut trace = helped_server();
    trace.calls.push(CallTotal { pid: 99, ..total("pread64", false, Reason::DiskRead, &[400]) });
    trace.calls.push(CallTotal { pid: 99, ..total("openat", false, Reason::Lock, &[900]) });
    let others = diagnose(&trace).others;
    let calls: Vec<(&str, u64, u64)> =
        others.calls.iter().map(|call| (&*call.call, call.blocked, call.blocked_ns / MS)).collect();
    assert_eq!(calls, [("pread64", 2, 700)]);
    assert_eq!(
        (others.calls[0].reasons.len(), others.calls[0].reasons[0].count, others.longest_ns),
        (1, 2, 400 * MS)
    );
}

#[test]
fn waits_for_other_things_are_told_from_those_for_the_disk() {
    let mut trace = helped_server();
    trace.calls.push(total("futex", true, Reason::Futex, &[20]));
    trace.threads[0].time.blocked_ns = 20 * MS;
    assert_eq!(verdict(&trace), Verdict::NoWait, "no request waited behind it");
    trace.requests.totals[0].held_up.count = 1;
    assert_eq!(verdict(&trace), Verdict::LoopWaits);
    // Short ones that are few do not make a verdict; many do.
    let mut trace = delaying_server();
    trace.calls.push(total("sendto", true, Reason::Lock, &[1]));
    trace.threads[0].time.blocked_ns = MS;
    assert_eq!(verdict(&trace), Verdict::NoWait);
    trace.threads[0].time.blocked_ns = 20 * MS;
    assert_eq!(verdict(&trace), Verdict::LoopWaits);
    let mut trace = delaying_server();
    trace.calls.push(total("pread64", true, Reason::DiskRead, &[1; 30]));
    trace.threads[0].time.blocked_ns = 30 * MS;
    assert_eq!(verdict(&trace), Verdict::LoopWaitsForDisk, "each short, together 3 %");
}

#[test]
fn a_server_without_a_loop_is_said_to_have_none() {
    let mut trace = helped_server();
    trace.threads.retain(|thread| !thread.is_loop);
    assert_eq!((verdict(&trace), verdict(&trace).exit_code()), (Verdict::ThreadsWaitForDisk, 0));
    trace.calls.retain(|call| call.is_wait);
    assert_eq!(verdict(&trace), Verdict::NoWait);
}

#[test]
fn what_was_not_seen_is_not_called_no_wait() {
    let mut trace = helped_server();
    trace.missing.events_lost = 1;
    assert_eq!((verdict(&trace), verdict(&trace).exit_code()), (Verdict::Unknown, 2));
    let mut trace = waiting_server();
    trace.missing.events_lost = 1;
    assert_eq!(verdict(&trace), Verdict::LoopWaitsForDisk, "what was seen was there");
    let mut trace = helped_server();
    trace.threads[0].ready = 0;
    assert_eq!(verdict(&trace), Verdict::Unknown, "it had nothing to do");
    assert_eq!(verdict(&Trace::default()), Verdict::Unknown);
}

#[test]
fn a_process_that_looks_after_the_others_is_not_judged() {
    let mut trace = helped_server();
    let mut master = trace.threads[0].clone();
    (master.tid, master.pid, master.ready, master.held_up.times) = (70, 70, 0, 1);
    master.time.blocked_ns = 500 * MS;
    trace.threads.insert(0, master);
    trace.calls.push(CallTotal { pid: 70, ..total("clone3", true, Reason::Child, &[500]) });
    let found = diagnose(&trace);
    assert_eq!(found.verdict, Verdict::NoWait);
    assert_eq!([found.loops[0].pid, found.loops[1].pid], [PID, 70]);
    assert!(found.loops[0].is_judged && !found.loops[1].is_judged);
    // One that serves counts, however many serve more.
    trace.threads[0].ready = 1;
    assert_eq!(diagnose(&trace).verdict, Verdict::NoWait, "it serves no request, and others do");
    trace.requests = Requests::default();
    assert_eq!(diagnose(&trace).verdict, Verdict::LoopWaits);
    // One that stands still for the disk has handled nothing because of that.
    trace.threads[0].ready = 0;
    assert_eq!(diagnose(&trace).verdict, Verdict::NoWait);
    trace.calls.push(CallTotal { pid: 70, ..total("read", true, Reason::DiskRead, &[500]) });
    assert_eq!(diagnose(&trace).verdict, Verdict::LoopWaitsForDisk);
}

#[test]
fn loops_that_share_their_work_may_wait_for_some_by_a_futex() {
    let mut trace = helped_server();
    let mut other = trace.threads[0].clone();
    other.tid = 72;
    trace.threads.insert(1, other);
    trace.calls.push(total("futex", true, Reason::Futex, &[500]));
    let mut call = total("write", true, Reason::Futex, &[100]);
    call.reasons.extend(total("write", true, Reason::Lock, &[1]).reasons);
    (call.blocked, call.blocked_ns) = (2, 101 * MS);
    trace.calls.push(call);
    for thread in &mut trace.threads[..2] {
        (thread.time.blocked_ns, thread.held_up.times) = (301 * MS, 9);
    }
    let one = &diagnose(&trace).loops[0];
    let calls: Vec<_> = one.calls.iter().map(|call| (&*call.call, call.blocked, call.blocked_ns)).collect();
    assert_eq!(calls, [("write", 1, MS)]);
    assert_eq!((one.time.blocked_ns, one.stalls, one.held_up.times), (2 * MS, 0, 0));
}

#[test]
fn what_was_not_all_seen_or_has_ended_is_not_acquitted() {
    let mut trace = helped_server();
    trace.missing.threads_dropped = 1;
    assert_eq!(verdict(&trace), Verdict::Unknown);
    let trace = Trace { ending: Ending::TargetEnded, ..helped_server() };
    assert_eq!(verdict(&trace), Verdict::Unknown);
}

#[test]
fn the_most_threads_that_waited_at_once_are_counted() {
    let call = |start_ms: u64, ms: u64| wait("pread64", start_ms, ms, Reason::DiskRead, "/f");
    // The third begins when the first ends.
    let calls = [call(0, 10), call(5, 10), call(10, 10), call(30, 1)];
    assert_eq!(at_once(calls.iter()), 2);
    assert_eq!(at_once([].iter()), 0);
}
