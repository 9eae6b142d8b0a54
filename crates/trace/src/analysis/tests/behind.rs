//! Who waits behind a blocked call.

use super::*;

#[test]
fn who_waited_behind_a_blocked_call() {
    let mut story = Story::new();
    story.world.sockets = vec![11, 12, 13, 14];
    story.wait(0, 100, 3);
    story.call(110, "recvfrom", 11, 80);
    story.enter(120, "openat", [0, 0x2000, 0]).off(121, DISK).on(4121).exit(4122, "openat", 20);
    story.call(4130, "recvfrom", 12, 80).call(4140, "writev", 12, 80).call(4150, "recvfrom", 13, 80);
    // A read of the opened file, which is no ready descriptor.
    story.call(4155, "read", 20, 80);
    // Two more had become ready while it was blocked, and are returned at once.
    story.wait(4160, 4161, 2).call(4170, "recvfrom", 14, 80).call(4180, "recvfrom", 11, 80).look(4185);
    story.wait(4190, 5000, 1);
    let trace = story.end(6000);
    let [call] = &trace.blocked[..] else { panic!("{:?}", trace.blocked) };
    let batch = call.batch.as_ref().unwrap();
    assert_eq!((batch.ready, batch.turned_to, batch.behind), (3, 1, 2));
    assert_eq!(batch.arrived, 1, "11 is the connection that the call was made for");
    let waiters: Vec<_> = batch.waiters.iter().map(|w| (w.fd, w.arrived, w.waited_ns / 1000)).collect();
    assert_eq!(waiters, [(12, false, 4010), (13, false, 4030), (14, true, 4050)]);
    assert_eq!(batch.waiters[0].target.as_ref().unwrap().name, "here - there", "known at the end");
    let thread = &trace.threads[0];
    assert_eq!((thread.held_up.times, thread.held_up.ns), (3, 10 * MS));
    assert_eq!(thread.held_up.longest_ns, 4 * MS);
}

#[test]
fn what_was_accepted_after_a_wait_was_not_ready_in_it() {
    let mut story = Story::new();
    story.world.sockets = vec![4, 11, 21, 22, 23];
    let accept = |story: &mut Story, us: u64, fd: i64| {
        story.enter(us, "accept4", [4, 0, 0]).exit(us + 1, "accept4", fd);
    };
    let disk = |story: &mut Story, us: u64| {
        story.enter(us, "openat", [0, 0x2000, 0]).off(us + 1, DISK).on(us + 101).exit(us + 102, "openat", 30);
    };
    story.wait(0, 100, 2).call(110, "recvfrom", 11, 80);
    disk(&mut story, 120);
    // All at once, as with nginx's multi_accept; the last has the number of one that was ready.
    accept(&mut story, 230, 21);
    accept(&mut story, 232, 22);
    story.call(234, "close", 11, 0);
    accept(&mut story, 236, 11);
    story.call(240, "recvfrom", 21, 80).call(250, "recvfrom", 22, 80).call(260, "recvfrom", 11, 80);
    disk(&mut story, 300);
    story.look(410).wait(500, 1000, 0);
    let trace = story.end(2000);
    let [first, second] = [0, 1].map(|at: usize| trace.blocked[at].batch.as_ref().unwrap());
    assert_eq!((first.ready, first.turned_to, first.behind), (2, 1, 1));
    let waiters: Vec<_> = first.waiters.iter().map(|waiter| waiter.fd).collect();
    assert_eq!(waiters, [21], "the socket that listens had its turn, for the first of them");
    assert_eq!((second.turned_to, second.behind), (2, 0));
}

#[test]
fn a_file_is_none_that_waits() {
    let mut story = Story::new();
    story.world.sockets = vec![11, 12];
    story.wait(0, 100, 2).call(110, "recvfrom", 11, 80);
    story.enter(120, "openat", [0, 0x2000, 0]).off(121, DISK).on(220).exit(221, "openat", 30);
    // 5 is a log that was open before.
    story.call(230, "write", 5, 80).call(240, "recvfrom", 12, 80).look(250).wait(260, 500, 0);
    let trace = story.end(2000);
    let batch = trace.blocked[0].batch.as_ref().unwrap();
    assert_eq!((batch.behind, batch.waiters.len(), batch.waiters[0].fd), (1, 1, 12));
}

#[test]
fn nobody_arrived_when_the_loop_had_to_wait_again() {
    let mut story = Story::new();
    story.wait(0, 100, 1).enter(110, "fsync", [5, 0, 0]).off(111, DISK).on(900).exit(901, "fsync", 0);
    story.wait(910, 2000, 1).call(2010, "recvfrom", 9, 1).wait(2020, 2030, 0);
    let trace = story.end(3000);
    let batch = trace.blocked[0].batch.as_ref().unwrap();
    assert_eq!((batch.behind, batch.arrived, batch.waiters.len()), (0, 0, 0));
}

#[test]
fn a_call_for_the_only_connection_delays_nobody() {
    let mut story = Story::new();
    story.world.sockets = vec![9];
    story.wait(0, 10, 1).wait(20, 100, 1).call(101, "recvfrom", 9, 80);
    story.at(100, asks(1, 1, 1, "GET /a")).stands_still(200, 5200).answers(5300, 1, 1);
    // Its next request is there before the loop waits again.
    story
        .at(5310, asks(1, 30, 2, "GET /b"))
        .wait(5320, 5321, 1)
        .call(5330, "recvfrom", 9, 80)
        .answers(5400, 1, 2);
    story.wait(5500, 6000, 0);
    let trace = story.end(6000);
    assert_eq!(trace.blocked[0].batch.as_ref().unwrap().held_up(), 0);
    let mut all = summary(&trace);
    all.sort_unstable();
    assert_eq!(
        all.iter().map(|(line, .., still)| (*line, *still)).collect::<Vec<_>>(),
        [("GET /a", 0), ("GET /b", 0)]
    );
    assert!(trace.threads[0].is_loop && !trace.threads[0].serves_several);
}

#[test]
fn another_thread_that_waits_at_the_same_epoll_takes_the_place_of_a_blocked_one() {
    let held_up = |other_waits: bool| {
        let mut story = Story::new();
        story.world.sockets = vec![11, 12, 13];
        story.analysis.add_thread(7, 8, "server", None);
        story.wait(0, 10, 1);
        story.tid = 8;
        story.wait(0, 20, 1);
        if other_waits {
            story.enter(30, "epoll_pwait", [3, 0, 512]).off(31, 0);
        } else {
            story.enter(30, "futex", [0, 0, 0]).off(31, 0);
        }
        story.tid = 7;
        story.wait(100, 110, 2).call(120, "recvfrom", 11, 80).stands_still(200, 39_200);
        // This one is of the batch, but another thread could have taken it.
        story
            .call(39_210, "recvfrom", 12, 80)
            .wait(39_220, 39_221, 1)
            .call(39_230, "recvfrom", 13, 80)
            .look(39_240);
        story.wait(39_300, 39_400, 0);
        let trace = story.end(40_000);
        let call = trace.blocked.iter().find(|call| call.call == "openat").unwrap();
        let batch = call.batch.as_ref().unwrap();
        (batch.behind, batch.arrived)
    };
    assert_eq!(held_up(true), (0, 0));
    assert_eq!(held_up(false), (0, 1));
}
