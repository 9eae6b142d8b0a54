//! Threads that begin, end, are too many or whose events are lost.

use super::*;

#[test]
fn a_thread_that_begins_and_one_that_ends_in_a_call() {
    let mut story = Story::new();
    // Off and on of a call that nobody saw begin.
    story.off(0, DISK).on(1000).exit(1001, "pread64", 1);
    story.call(1010, "pread64", 5, 1);
    story.enter(1100, "fsync", [5, 0, 0]).off(1101, DISK);
    let trace = story.end(9101);
    assert_eq!(total(&trace, "pread64").count, 1);
    assert_eq!(trace.missing.calls_cut, 2);
    assert_eq!(trace.missing.calls_broken, 0);
    let [call] = &trace.blocked[..] else { panic!("{:?}", trace.blocked) };
    assert!(call.is_cut && call.call == "fsync" && call.blocked_ns == 8 * MS);
    assert_eq!(trace.threads[0].time.total_ns(), 8_100_000, "nothing is known of before");
}

#[test]
fn lost_events_make_a_gap_and_no_nonsense() {
    let mut story = Story::new();
    story.wait(0, 100, 1).wait(110, 200, 1).enter(210, "pread64", [5, 0, 10]);
    story.at(300, What::Lost { count: 3 });
    // The next event belongs to a later call, in the middle of it.
    story.on(5000).exit(5001, "openat", 7).call(5100, "pread64", 7, 1);
    let trace = story.end(6000);
    assert_eq!((trace.missing.events_lost, trace.missing.calls_broken), (3, 1));
    assert_eq!(total(&trace, "pread64").count, 1);
    assert!(trace.blocked.is_empty());
    let segments = &trace.timelines[0].segments;
    assert!(segments.windows(2).any(|two| two[0].start_ns + two[0].duration_ns < two[1].start_ns), "a gap");
    assert!(segments.iter().all(|segment| segment.state != State::Blocked));
    assert!(trace.threads[0].time.total_ns() < 2 * MS);
}

#[test]
fn an_end_without_its_beginning_in_the_middle_is_broken() {
    let mut story = Story::new();
    story.call(0, "read", 5, 1).exit(10, "read", 1).enter(20, "read", [5, 0, 1]).enter(30, "read", [5, 0, 1]);
    let trace = story.end(100);
    assert_eq!((trace.missing.calls_broken, trace.missing.calls_cut), (2, 1));
    assert_eq!(total(&trace, "read").count, 1);
}

#[test]
fn processes_and_threads_are_followed() {
    let mut story = Story::new();
    story.at(0, What::Fork { child_pid: 7, child_tid: 8 });
    story.at(1, What::Fork { child_pid: 9, child_tid: 9 });
    story.tid = 8;
    // A child returns from the call that made it.
    story.exit(2, "clone", 0).call(5, "getpid", 0, 7);
    story.at(9, What::End);
    story.look(10);
    assert!(story.analysis.has_running_threads());
    for tid in [7, 9] {
        story.tid = tid;
        story.at(20, What::End);
    }
    assert!(!story.analysis.has_running_threads());
    let trace = story.end(30);
    let tids: Vec<_> = trace.threads.iter().map(|thread| (thread.pid, thread.tid)).collect();
    assert_eq!(tids, [(7, 7), (7, 8), (9, 9)]);
    let parents: Vec<_> = trace.processes.iter().map(|process| (process.pid, process.parent)).collect();
    assert_eq!(parents, [(7, 1), (9, 7)]);
    assert_eq!(trace.processes[0].command, "server -x");
    assert_eq!((trace.missing.calls_broken, trace.missing.calls_cut), (0, 0));
}

#[test]
fn what_a_thread_was_in_when_the_trace_began() {
    let story = |name: &str, functions: &[&str]| {
        let mut story = Story::new();
        let functions = functions.iter().map(|name| (*name).to_owned()).collect();
        let in_call = InCall { call: number(name), args: [5, 0, 1, 0, 0, 0], functions };
        story.analysis.add_thread(7, 8, "server", Some(in_call));
        story.tid = 8;
        story
    };
    let mut waits = story("epoll_pwait", &["ep_poll"]);
    waits.on(2000).exit(2001, "epoll_pwait", 1).wait(2010, 3000, 1).wait(3010, 3500, 0);
    let trace = waits.end(4000);
    assert_eq!(trace.threads[1].time.total_ns(), 4 * MS, "from the beginning on");
    assert_eq!(trace.timelines[0].segments[0].state, State::Waiting);
    assert_eq!((trace.missing.calls_cut, total(&trace, "epoll_pwait").count), (1, 2));

    let mut hangs = story("pread64", &["folio_wait_bit_common", "filemap_read"]);
    hangs.look(1);
    let trace = hangs.end(4000);
    let [call] = &trace.blocked[..] else { panic!("{:?}", trace.blocked) };
    assert!(call.is_cut && call.reason == Reason::DiskRead && call.blocked_ns == 4 * MS);
    assert_eq!(call.target.as_ref().unwrap().name, "/5");

    // An idle thread is not blocked; one whose call ended before its events began is as any other.
    let idle = story("futex", &["futex_wait"]).end(4000);
    assert!(idle.blocked.is_empty());
    assert_eq!((idle.threads[1].time.blocked_ns, idle.threads[1].time.waiting_ns), (0, 4 * MS));
    let mut late = story("futex", &["futex_wait"]);
    late.call(1000, "read", 5, 1);
    let trace = late.end(2000);
    assert_eq!((trace.missing.calls_broken, trace.missing.calls_cut, total(&trace, "read").count), (0, 1, 1));
}

#[test]
fn what_comes_before_it_begins_tells_where_a_thread_is_and_counts_for_nothing() {
    let mut story = Story::new();
    let early = |what| Event { time_ns: START - 1000, core: 0, pid: 7, tid: 7, what };
    let enter = |name: &str| early(What::Enter { call: number(name), args: [5, 0, 4096, 0, 0, 0] });
    let exit = |name: &str| early(What::Exit { call: number(name), result: 1 });
    // It waits for the disk in one call, and is off its core in another when it begins.
    let stack = || early(What::Stack { frames: vec![DISK] });
    let off = || early(What::Off { runnable: false });
    for event in
        [enter("read"), stack(), off(), early(What::On), exit("read"), enter("pread64"), stack(), off()]
    {
        story.analysis.feed(event, &story.world);
    }
    story.look(10).on(2000).exit(2000, "pread64", 4096);
    let trace = story.end(2000);
    let counts: Vec<_> =
        trace.calls.iter().map(|total| (&*total.call, total.count, total.blocked_ns)).collect();
    assert_eq!(counts, [("pread64", 1, 2 * MS)]);
    assert_eq!((trace.blocked.len(), trace.blocked[0].is_cut), (1, true));
    assert_eq!((trace.blocked[0].start_ns, trace.blocked[0].duration_ns), (0, 2 * MS));
    assert_eq!((trace.missing.calls_cut, trace.missing.calls_broken), (1, 0));
    assert_eq!(trace.threads[0].time.total_ns(), 2 * MS);
}

#[test]
fn one_that_executes_a_program_has_not_ended_though_its_number_has() {
    let mut story = Story::new();
    story.at(1, What::Fork { child_pid: 7, child_tid: 8 });
    story.at(5, What::End);
    story.at(6, What::Name { name: "server".to_owned(), executed: true });
    story.analysis.end(7, 8);
    assert_eq!(story.analysis.running(), [(7, 7)]);
    story.exit(7, "execve", 0).call(10, "pread64", 5, 1);
    let trace = story.end(20);
    assert_eq!(total(&trace, "pread64").count, 1);
    assert_eq!(trace.missing.calls_broken, 0);
}

#[test]
fn threads_that_are_too_many_are_counted_not_their_events() {
    let mut story = Story::new();
    for tid in 8..THREADS_MAX as u32 + 10 {
        story.tid = tid;
        story.call(1, "getpid", 0, 1).call(2, "getpid", 0, 1);
    }
    let trace = story.end(10);
    assert_eq!(trace.threads.len(), THREADS_MAX);
    assert_eq!(trace.missing.threads_dropped, 3);
}
