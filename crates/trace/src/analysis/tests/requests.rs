//! How long requests and pools of threads waited, and for whom.

use super::*;

#[test]
fn a_request_is_held_up_for_as_long_as_its_loop_stands_still_before_its_answer() {
    let mut story = Story::new();
    story.wait(0, 10, 1).wait(20, 100, 1);
    // One request arrives while the event loop is blocked, and again before a second wait; another arrives after both.
    story.enter(200, "openat", [0, 0x1000, 0]).off(200, DISK).at(4200, asks(1, 50, 90, "GET /a"));
    story.on(10_200).exit(10_200, "openat", 5).stands_still(11_000, 13_000);
    story.at(14_000, asks(2, 7, 7, "GET /b")).answers(14_100, 1, 90).answers(14_200, 2, 7);
    story.wait(14_300, 15_000, 0);
    let trace = story.end(16_000);
    assert_eq!(
        summary(&trace),
        [("GET /a", 4200, 9901, true, Some(7), 8000), ("GET /b", 14_000, 201, true, Some(7), 0)]
    );
    assert_eq!(trace.requests.costliest[0].connection, "127.0.0.1:80 - 127.0.0.1:1");
    let [total] = &trace.requests.totals[..] else { panic!("{:?}", trace.requests.totals) };
    assert_eq!((total.pid, total.held_up.count, total.others.count, total.unanswered), (7, 1, 1, 0));
    assert_eq!((total.waited_ns, total.held_up_ns), (9_901_000, 8_000_000));
    // As exact as three digits.
    assert_eq!([total.held_up.p50_ns, total.held_up.longest_ns].map(|ns| ns / 10_000), [990, 990]);
    assert_eq!((trace.requests.seen, trace.requests.answers_missed), (2, 0));
}

#[test]
fn of_two_loops_the_one_that_sends_the_answer_served_it() {
    let mut story = Story::new();
    story.analysis.add_thread(7, 8, "server", None);
    for tid in [7, 8] {
        story.tid = tid;
        story.wait(0, 10, 1).wait(20, 100, 1);
    }
    story.at(200, asks(1, 1, 1, "GET /a"));
    // 7 waits for the disk in a call that sends, while 8 answers.
    story.tid = 7;
    story.enter(300, "sendfile", [9, 4, 0]).off(301, DISK);
    story.tid = 8;
    story.answers(5000, 1, 1);
    // Both are in such calls: it is known who served this connection before, but not who a new one.
    story.at(6000, asks(1, 30, 2, "GET /b")).at(6001, asks(2, 1, 1, "GET /c"));
    story.enter(6100, "sendto", [9, 0, 1]);
    story.tid = 7;
    story.on(6101).at(6102, answers(1, 2)).at(6103, answers(2, 1));
    let trace = story.end(7000);
    let mut by: Vec<_> = summary(&trace).iter().map(|(line, .., tid, still)| (*line, *tid, *still)).collect();
    by.sort_unstable();
    assert_eq!(by, [("GET /a", Some(8), 0), ("GET /b", Some(8), 0), ("GET /c", None, 0)]);
    assert_eq!(trace.requests.totals.iter().map(|total| total.pid).collect::<Vec<_>>(), [0, 7]);
    assert_eq!(trace.requests.unattributed, 1);
}

#[test]
fn a_request_whose_answer_a_pool_sends_waits_for_the_loop() {
    let mut story = Story::new();
    story.analysis.add_thread(7, 8, "pool", None);
    story.wait(0, 10, 1).wait(20, 100, 1).at(100, asks(1, 1, 1, "GET /a")).stands_still(200, 5200);
    story.tid = 8;
    story.answers(6000, 1, 1);
    let trace = story.end(7000);
    assert_eq!(summary(&trace), [("GET /a", 100, 5901, true, Some(7), 5000)]);
}

#[test]
fn what_is_seen_twice_or_not_at_all_is_no_answer() {
    let mut story = Story::new();
    story.wait(0, 10, 1).wait(20, 100, 1);
    story.at(100, asks(1, 10, u32::MAX, "GET /a"));
    // By another interface; then one more before the answer.
    story.at(101, asks(1, 10, u32::MAX, "GET /a")).at(102, asks(1, 30, u32::MAX, "GET /pipelined"));
    // Bytes sent before the request are no answer, even if they begin like one.
    story.answers(200, 1, u32::MAX - 5).answers(300, 1, 4).answers(310, 1, 4).answers(320, 2, 4);
    // Its answer is missed, so the next one is not taken for it.
    story.at(400, asks(1, 50, 20, "GET /missed")).at(500, asks(1, 70, 40, "GET /b")).answers(600, 1, 40);
    story.at(700, asks(1, 90, 60, "GET /never"));
    story.stands_still(8000, 10_000);
    let trace = story.end(10_000);
    let lines: Vec<_> = summary(&trace).iter().map(|(line, _, us, is, ..)| (*line, *us, *is)).collect();
    assert_eq!(lines, [("GET /never", 9300, false), ("GET /a", 201, true), ("GET /b", 101, true)]);
    assert_eq!((trace.requests.seen, trace.requests.answers_missed), (4, 1));
    let total = &trace.requests.totals[0];
    assert_eq!((total.unanswered, total.unanswered_held_up, total.others.count), (1, 0, 2));
}

#[test]
fn requests_beyond_the_bound_are_counted() {
    let mut story = Story::new();
    let sent = 40_000_u32;
    for number in 0..sent {
        let client = SocketAddr::from(([10, 0, (number >> 8) as u8, number as u8], 5));
        let server = SocketAddr::from(([10, 0, 0, 1], 80));
        let begins = Begins::Request(format!("GET /{number}"));
        let segment = Segment { server, client, sequence: 1, wanted: 1, begins };
        story.at(u64::from(number), What::Passed(Box::new(segment)));
    }
    let trace = story.end(50_000);
    let followed = trace.requests.totals[0].unanswered;
    assert_eq!(followed + trace.missing.requests_dropped, u64::from(sent));
    assert!(trace.missing.requests_dropped > 0);
    // The longest are kept.
    assert_eq!(trace.requests.costliest.len(), 2048);
    assert!(trace.requests.costliest.iter().any(|request| request.line == "GET /0"));
}

#[test]
fn who_answers_on_a_connection_and_another_and_the_first_again_serves_several() {
    let served = |ports: &[u16]| {
        let mut story = Story::new();
        story.wait(0, 10, 1).wait(20, 100, 1);
        for (number, port) in (1..).zip(ports) {
            let us = 1000 * u64::from(number);
            story.at(us, asks(*port, number, number, "GET /a")).answers(us + 100, *port, number);
        }
        story.end(100_000).threads[0].serves_several
    };
    assert!(served(&[1, 2, 1]));
    assert!(!served(&[1, 1, 2, 2, 3]), "one after the other");
}

#[test]
fn the_only_one_who_answers_serves_several_although_the_network_keeps_its_answers() {
    let mut story = Story::new();
    story.wait(0, 10, 1).wait(20, 100, 1).at(900, asks(9, 9, 9, "GET /a")).answers(950, 9, 9);
    for (number, port) in (1..).zip([1, 2, 1]) {
        let us = 1000 * u64::from(number);
        story.at(us, asks(port, number, number, "GET /a")).at(us + 100, answers(port, number));
    }
    assert!(story.end(100_000).threads[0].serves_several);
}

#[test]
fn without_requests_descriptors_show_whether_a_thread_serves_several() {
    let served = |sockets: &[i32]| {
        let mut story = Story::new();
        story.world.sockets = sockets.to_vec();
        story.wait(0, 10, 1).call(11, "recvfrom", 11, 1).wait(20, 100, 1).call(101, "recvfrom", 12, 1);
        story.wait(110, 200, 1).call(201, "recvfrom", 11, 1).look(205);
        story.end(1000).threads[0].serves_several
    };
    assert!(served(&[11, 12]));
    assert!(!served(&[11]), "the other one is no connection");
}

#[test]
fn a_pool_is_full_while_all_its_threads_wait_for_the_disk() {
    let mut story = Story::new();
    for tid in [8, 9] {
        story.analysis.add_thread(7, tid, "pool", None);
    }
    story.wait(0, 10, 1).wait(20, 100, 1);
    for port in 1..=3 {
        story.at(100, asks(port, 1, 1, "GET /a"));
    }
    let read = |story: &mut Story, tid: u32, us: u64| {
        story.tid = tid;
        story.enter(us, "pread64", [5, 0, 4096]).off(us, DISK);
    };
    read(&mut story, 8, 1000);
    read(&mut story, 9, 2000);
    for tid in [8, 9] {
        story.tid = tid;
        story.on(9000 + u64::from(tid)).exit(9100, "pread64", 4096);
    }
    story.tid = 7;
    for port in 1..=3 {
        story.answers(10_000 + u64::from(port) * 10, port, 1);
    }
    let trace = story.end(20_000);
    let [pool] = &trace.pools[..] else { panic!("{:?}", trace.pools) };
    assert_eq!((pool.pid, pool.is_processes, &pool.tids[..]), (7, false, &[8, 9][..]));
    assert_eq!((pool.full_ns, pool.queued_ns), (7_008_000, 7_008_000));
    assert_eq!((trace.requests.seen, trace.requests.behind_pools), (3, 3));
}

#[test]
fn a_request_was_behind_a_pool_if_half_of_its_threads_ended_before_its_answer() {
    let behind = |ended: usize| {
        let mut story = Story::new();
        let tids = [8, 9, 10, 11];
        for tid in tids {
            story.analysis.add_thread(7, tid, "pool", None);
        }
        story.wait(0, 10, 1).wait(20, 100, 1);
        for port in 1..=5 {
            story.at(100, asks(port, 1, 1, "GET /a"));
        }
        for tid in tids {
            story.tid = tid;
            let us = 1000 + u64::from(tid);
            story.enter(us, "pread64", [5, 0, 4096]).off(us, DISK);
        }
        for (at, tid) in tids.into_iter().enumerate() {
            story.tid = tid;
            let us = if at < ended { 9000 } else { 11_000 } + 10 * at as u64;
            if at == ended {
                story.tid = 7;
                for port in 1..=5 {
                    story.answers(10_000 + u64::from(port), port, 1);
                }
                story.tid = tid;
            }
            story.on(us).exit(us + 1, "pread64", 4096);
        }
        story.end(20_000).requests.behind_pools
    };
    assert_eq!([1, 2, 3].map(behind), [0, 5, 5]);
}

#[test]
fn calls_for_the_connection_that_had_the_descriptor_before_are_calls_for_others() {
    let mut story = Story::new();
    story.world.sockets = vec![9];
    story.wait(0, 10, 1).wait(20, 100, 1).call(101, "recvfrom", 9, 80);
    // Another connection's request waits in the backlog, and is accepted with the same number.
    story.at(110, asks(1, 1, 1, "GET /a")).at(120, asks(2, 1, 1, "GET /b")).stands_still(200, 5200);
    story
        .answers(5300, 1, 1)
        .call(5310, "close", 9, 0)
        .enter(5320, "accept4", [4, 0, 0])
        .exit(5321, "accept4", 9);
    story.call(5330, "recvfrom", 9, 80).answers(5400, 2, 1).wait(5500, 5600, 0);
    let trace = story.end(6000);
    let by: Vec<_> = summary(&trace).iter().map(|(line, .., still)| (*line, *still)).collect();
    assert_eq!(by, [("GET /b", 5000), ("GET /a", 0)]);
}
