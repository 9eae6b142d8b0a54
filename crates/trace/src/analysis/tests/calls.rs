//! Which calls blocked, why, and for which file and request.

use super::*;

#[test]
fn a_call_that_blocks_is_told_from_one_that_works_and_one_that_was_pushed_aside() {
    let mut story = Story::new();
    story.enter(0, "pread64", [5, 0, 4096]).off(10, DISK).look(15).on(2010).exit(2020, "pread64", 4096);
    story.enter(2030, "pread64", [5, 0, 4096]).at(2040, What::Off { runnable: true }).on(2540);
    story.exit(2550, "pread64", 4096);
    story.call(2600, "pread64", 5, -11);
    let trace = story.end(3000);
    let total = total(&trace, "pread64");
    assert_eq!((total.count, total.errors, total.blocked), (3, 1, 1));
    assert_eq!((total.blocked_ns, total.runnable_ns, total.on_cpu_ns), (2 * MS, 500_000, 41_000));
    assert_eq!(total.duration_ns, total.blocked_ns + total.runnable_ns + total.on_cpu_ns);
    assert_eq!(total.longest_ns, 2_020_000);
    assert_eq!((total.reasons[0].reason, total.reasons[0].stalls), (Reason::DiskRead, 1));
    let [call] = &trace.blocked[..] else { panic!("{:?}", trace.blocked) };
    assert_eq!((call.start_ns, call.duration_ns, call.switches), (0, 2_020_000, 1));
    assert_eq!((call.fd, call.size_bytes, call.result), (Some(5), Some(4096), 4096));
    let target = call.target.as_ref().unwrap();
    assert_eq!((target.name.as_str(), target.is_uncertain), ("/5", false), "it was still blocked when asked");
    assert_eq!(call.stack, ["folio_wait_bit_common"]);
    assert!(!call.in_loop && call.batch.is_none());
    assert_eq!(trace.targets[0].blocked_ns, 2 * MS);
}

#[test]
fn waiting_for_events_is_no_blocking_and_makes_a_loop() {
    let mut story = Story::new();
    story.wait(0, 1000, 1).call(1010, "recvfrom", 9, 10).wait(1020, 2000, 1).call(2010, "recvfrom", 9, 10);
    let trace = story.end(3000);
    assert!(trace.threads[0].is_loop);
    assert_eq!((trace.threads[0].waits, trace.threads[0].ready), (2, 2));
    assert_eq!(trace.threads[0].wait_call.as_deref(), Some("epoll_pwait"));
    assert!(trace.blocked.is_empty());
    let wait = total(&trace, "epoll_pwait");
    assert!(wait.is_wait && wait.blocked_ns == 1_980_000 && wait.loop_share == 0.0);
    let time = trace.threads[0].time;
    assert_eq!(time.waiting_ns, 1_980_000);
    assert_eq!(time.total_ns(), 3 * MS);
    let segments = &trace.timelines[0].segments;
    assert_eq!(segments.iter().map(|segment| segment.duration_ns).sum::<u64>(), 3 * MS);
}

#[test]
fn a_poll_in_a_loop_that_waits_by_epoll_blocks_it() {
    let mut story = Story::new();
    story.wait(0, 10, 1).wait(20, 30, 1);
    story.enter(40, "ppoll", [0x1000, 1, 0]).off(41, 0).on(5041).exit(5042, "ppoll", 1).wait(5050, 5060, 0);
    let trace = story.end(6000);
    assert_eq!(trace.blocked[0].call, "ppoll");
    assert!(trace.blocked[0].in_loop);
    assert!(total(&trace, "ppoll").loop_share > 0.5);
}

#[test]
fn the_request_of_a_call_is_what_its_loop_received_last_and_for_the_same_one() {
    let blocked = |before: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.world.sockets = vec![11, 12];
        story.world.request = Some("GET /x HTTP/1.1");
        story.wait(0, 100, 2);
        before(&mut story);
        story.enter(220, "sendfile", [11, 30, 0]).off(221, DISK).look(230).on(320).exit(321, "sendfile", 9);
        story.end(2000).blocked[0].request.clone()
    };
    let mut late = Story::new();
    late.world.request = Some("GET /y HTTP/1.1");
    late.wait(0, 100, 1).call(110, "recvfrom", 11, 80);
    late.enter(120, "sendfile", [11, 30, 0]).off(121, DISK).look(500).on(220).exit(221, "sendfile", 9);
    assert_eq!(late.end(2000).blocked[0].request, None, "read when it was over");
    let own = blocked(&|story| {
        story.call(110, "recvfrom", 11, 80);
    });
    assert_eq!(own.as_deref(), Some("GET /x HTTP/1.1"));
    let of_another = blocked(&|story| {
        story.call(110, "recvfrom", 11, 80).call(120, "recvfrom", 12, 80);
    });
    assert_eq!(of_another, None);
    let of_an_earlier_batch = blocked(&|story| {
        story.call(110, "recvfrom", 11, 80).wait(130, 140, 1);
    });
    assert_eq!(of_an_earlier_batch, None);
}

#[test]
fn a_descriptor_that_is_used_again_is_named_anew() {
    let mut story = Story::new();
    story.world.path = Some("/www/a");
    story.enter(0, "openat", [0, 0x2000, 0]).off(1, DISK).look(500).on(1000).exit(1001, "openat", 5);
    let read = |story: &mut Story, us: u64| {
        story.enter(us, "pread64", [5, 0, 10]).off(us + 1, DISK).on(us + 100).exit(us + 101, "pread64", 10);
    };
    read(&mut story, 1100);
    story.call(1300, "close", 5, 0);
    story.enter(1400, "openat", [0, 0x2000, 0]).exit(1401, "openat", 5);
    read(&mut story, 1500);
    story.look(1700);
    let trace = story.end(2000);
    let names: Vec<_> = trace
        .blocked
        .iter()
        .map(|call| call.target.as_ref().map(|t| (t.name.as_str(), t.is_uncertain)))
        .collect();
    // The last was asked for when it was over.
    assert_eq!(names, [Some(("/www/a", false)), Some(("/www/a", false)), Some(("/5", true))]);
    assert_eq!(trace.blocked[0].path.as_deref(), Some("/www/a"));
    assert_eq!(trace.blocked[0].fd, Some(5));
}

#[test]
fn a_path_that_was_read_too_late_is_none() {
    let mut story = Story::new();
    story.world.path = Some("/www/other");
    story.enter(0, "newfstatat", [0, 0x2000, 0]).off(1, DISK).look(3000).on(1000).exit(1001, "newfstatat", 0);
    let trace = story.end(4000);
    assert_eq!((&trace.blocked[0].path, &trace.blocked[0].target), (&None, &None));
}

#[test]
fn who_is_stopped_does_not_wait() {
    let mut story = Story::new();
    story.call(0, "close", 5, 0).off(10, STOP).on(2010);
    story.enter(2100, "read", [5, 0x1000, 10]).off(2110, STOP).on(3110).exit(3120, "read", 10);
    let trace = story.end(4000);
    assert!(trace.blocked.is_empty(), "{:?}", trace.blocked);
    let read = total(&trace, "read");
    assert_eq!((read.blocked, read.runnable_ns), (0, MS));
    assert_eq!((trace.threads[0].time.blocked_ns, trace.threads[0].time.runnable_ns), (0, 3 * MS));
}

#[test]
fn what_blocks_outside_of_calls_is_a_page_fault_or_what_a_call_left() {
    let mut story = Story::new();
    story.call(0, "close", 5, 0).off(10, TASK_WORK).on(2010);
    story.off(2100, FAULT).on(5100).off(5200, FAULT).on(5300);
    let trace = story.end(6000);
    let fault = total(&trace, "page fault");
    assert_eq!((fault.count, fault.blocked, fault.blocked_ns), (2, 2, 3_100_000));
    let close = total(&trace, "close");
    assert_eq!((close.count, close.blocked, close.blocked_ns), (1, 1, 2 * MS));
    assert_eq!(
        trace.blocked.iter().map(|call| call.call.as_ref()).collect::<Vec<_>>(),
        ["close", "page fault", "page fault"]
    );
    assert_eq!(trace.threads[0].time.blocked_ns, 5_100_000);
}

#[test]
fn pending_calls_are_bounded() {
    let mut story = Story::new();
    for at in 0..PENDING_MAX as u64 + 5 {
        let us = at * 10;
        story.enter(us, "fsync", [5, 0, 0]).off(us + 1, DISK).on(us + 2).exit(us + 3, "fsync", 0);
    }
    let trace = story.end(PENDING_MAX as u64 * 10 + 100);
    assert_eq!(trace.missing.blocked_dropped as usize + trace.blocked.len(), PENDING_MAX + 5);
    assert_eq!(total(&trace, "fsync").blocked as usize, PENDING_MAX + 5, "sums are complete");
}
