//! The analysis, fed with made-up sequences of events.

use std::net::SocketAddr;

use super::*;
use crate::calls::number;
use crate::event::InCall;
use crate::model::{self, Ending, Process, Reason, State, Target, Trace};
use crate::segment::{Begins, Segment};

const START: u64 = 1_000_000;
const MS: u64 = 1_000_000;

/// A world in which descriptor N of any process is `/N`, unless it is said to be something else.
#[derive(Default)]
struct Table {
    now_ns: u64,
    sockets: Vec<i32>,
    functions: Vec<(u64, &'static str)>,
    path: Option<&'static str>,
    request: Option<&'static str>,
    asked: Vec<i32>,
}

impl World for Table {
    fn now_ns(&mut self) -> u64 {
        self.now_ns
    }
    fn descriptor(&mut self, _: u32, fd: i32) -> Option<Target> {
        self.asked.push(fd);
        let kind = if self.sockets.contains(&fd) { TargetKind::Socket } else { TargetKind::File };
        Some(Target { kind, name: format!("/{fd}"), is_uncertain: false })
    }
    fn path(&mut self, _: u32, _: u64) -> Option<String> {
        self.path.map(str::to_owned)
    }
    fn request(&mut self, _: u32, _: u64, _: usize) -> Option<String> {
        self.request.map(str::to_owned)
    }
    fn socket(&self, name: &str) -> Option<String> {
        (name == "/12").then(|| "here - there".to_owned())
    }
    fn process(&mut self, pid: u32) -> Option<Process> {
        Some(Process { pid, parent: 1, name: "server".to_owned(), command: "server -x".to_owned() })
    }
    fn function(&self, address: u64) -> Option<&str> {
        self.functions.iter().find(|(at, _)| *at == address).map(|(_, name)| *name)
    }
}

/// Feeds events by hand; times count in microseconds from the start.
struct Story {
    analysis: Analysis,
    world: Table,
    tid: u32,
}

const DISK: u64 = 0x10;
const FAULT: u64 = 0x20;
const TASK_WORK: u64 = 0x30;
const STOP: u64 = 0x40;

impl Story {
    fn new() -> Self {
        let functions = vec![
            (DISK, "folio_wait_bit_common"),
            (FAULT, "exc_page_fault"),
            (TASK_WORK, "task_work_run"),
            (STOP, "ptrace_stop"),
        ];
        let mut analysis = Analysis::new(START);
        analysis.add_thread(7, 7, "server", None);
        Self { analysis, world: Table { functions, ..Table::default() }, tid: 7 }
    }

    fn at(&mut self, us: u64, what: What) -> &mut Self {
        let event = Event { time_ns: START + us * 1000, core: 0, pid: 7, tid: self.tid, what };
        self.analysis.feed(event, &self.world);
        self
    }

    fn enter(&mut self, us: u64, name: &str, args: [u64; 3]) -> &mut Self {
        let [a, b, c] = args;
        self.at(us, What::Enter { call: number(name), args: [a, b, c, 0, 0, 0] })
    }

    fn exit(&mut self, us: u64, name: &str, result: i64) -> &mut Self {
        self.at(us, What::Exit { call: number(name), result })
    }

    fn off(&mut self, us: u64, frame: u64) -> &mut Self {
        self.at(us, What::Stack { frames: vec![frame] }).at(us, What::Off { runnable: false })
    }

    fn on(&mut self, us: u64) -> &mut Self {
        self.at(us, What::On)
    }

    fn look(&mut self, us: u64) -> &mut Self {
        self.world.now_ns = START + us * 1000;
        self.analysis.look(&mut self.world);
        self
    }

    /// A wait for events that ends after a while, with this many.
    fn wait(&mut self, from_us: u64, to_us: u64, ready: i64) -> &mut Self {
        self.enter(from_us, "epoll_pwait", [3, 0, 512]);
        if to_us > from_us + 1 {
            self.off(from_us, 0).on(to_us);
        }
        self.exit(to_us, "epoll_pwait", ready)
    }

    fn call(&mut self, us: u64, name: &str, fd: u64, result: i64) -> &mut Self {
        self.enter(us, name, [fd, 0x1000, 4096]).exit(us + 1, name, result)
    }

    fn end(mut self, us: u64) -> Trace {
        self.world.now_ns = START + us * 1000;
        self.analysis.finish(START + us * 1000, Ending::Duration, None, &mut self.world)
    }
}

fn total<'a>(trace: &'a Trace, call: &str) -> &'a crate::model::CallTotal {
    trace
        .calls
        .iter()
        .find(|total| total.call == call)
        .unwrap_or_else(|| panic!("no {call}: {:?}", trace.calls))
}

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
    assert_eq!((thread.held_up, thread.held_up_ns), (3, 10 * MS));
    assert_eq!(thread.held_up_longest_ns, 4 * MS);
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
fn nobody_arrived_when_the_loop_had_to_wait_again() {
    let mut story = Story::new();
    story.wait(0, 100, 1).enter(110, "fsync", [5, 0, 0]).off(111, DISK).on(900).exit(901, "fsync", 0);
    story.wait(910, 2000, 1).call(2010, "recvfrom", 9, 1).wait(2020, 2030, 0);
    let trace = story.end(3000);
    let batch = trace.blocked[0].batch.as_ref().unwrap();
    assert_eq!((batch.behind, batch.arrived, batch.waiters.len()), (0, 0, 0));
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

/// A request of a client at this port, or the answer to it.
fn passed(port: u16, sequence: u32, wanted: u32, begins: Begins) -> What {
    let client = SocketAddr::from(([127, 0, 0, 1], port));
    let server = SocketAddr::from(([127, 0, 0, 1], 80));
    What::Passed(Box::new(Segment { server, client, sequence, wanted, begins }))
}

fn asks(port: u16, sequence: u32, wanted: u32, line: &str) -> What {
    passed(port, sequence, wanted, Begins::Request(line.to_owned()))
}

fn answers(port: u16, sequence: u32) -> What {
    passed(port, sequence, 0, Begins::Answer)
}

impl Story {
    /// A loop's openat that waits for the disk.
    fn stands_still(&mut self, from_us: u64, to_us: u64) -> &mut Self {
        self.enter(from_us, "openat", [0, 0x1000, 0]).off(from_us, DISK).on(to_us).exit(to_us, "openat", 5)
    }

    fn answers(&mut self, us: u64, port: u16, sequence: u32) -> &mut Self {
        self.enter(us, "sendto", [9, 0, 100]).at(us + 1, answers(port, sequence)).exit(us + 2, "sendto", 100)
    }
}

/// Line, when, how long, whether it was answered, by whom and for how much of it that one stood still, in microseconds.
type Told<'a> = (&'a str, u64, u64, bool, Option<u32>, u64);

fn told(trace: &Trace) -> Vec<Told<'_>> {
    let one = |request: &'_ model::Request| {
        (request.start_ns / 1000, request.waited_ns / 1000, request.held_up_ns / 1000)
    };
    let all = trace.requests.costliest.iter();
    all.map(|request| {
        let (start_us, waited_us, still_us) = one(request);
        (request.line.as_str(), start_us, waited_us, request.is_answered, request.tid, still_us)
    })
    .collect()
}

#[test]
fn a_request_is_held_up_for_as_long_as_its_loop_stands_still_before_its_answer() {
    let mut story = Story::new();
    story.wait(0, 10, 1).wait(20, 100, 1);
    // It comes while the loop stands still, and again before a second wait; another one after both.
    story.enter(200, "openat", [0, 0x1000, 0]).off(200, DISK).at(4200, asks(1, 50, 90, "GET /a"));
    story.on(10_200).exit(10_200, "openat", 5).stands_still(11_000, 13_000);
    story.at(14_000, asks(2, 7, 7, "GET /b")).answers(14_100, 1, 90).answers(14_200, 2, 7);
    story.wait(14_300, 15_000, 0);
    let trace = story.end(16_000);
    assert_eq!(
        told(&trace),
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
    let mut by: Vec<_> = told(&trace).iter().map(|(line, .., tid, still)| (*line, *tid, *still)).collect();
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
    assert_eq!(told(&trace), [("GET /a", 100, 5901, true, Some(7), 5000)]);
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
    let lines: Vec<_> = told(&trace).iter().map(|(line, _, us, is, ..)| (*line, *us, *is)).collect();
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
    let mut all = told(&trace);
    all.sort_unstable();
    assert_eq!(
        all.iter().map(|(line, .., still)| (*line, *still)).collect::<Vec<_>>(),
        [("GET /a", 0), ("GET /b", 0)]
    );
    assert!(trace.threads[0].is_loop && !trace.threads[0].serves_several);
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
    let by: Vec<_> = told(&trace).iter().map(|(line, .., still)| (*line, *still)).collect();
    assert_eq!(by, [("GET /b", 5000), ("GET /a", 0)]);
}
