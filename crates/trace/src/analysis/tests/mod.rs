//! Tests of the analysis: each feeds it a made-up sequence of events and checks the trace.

mod behind;
mod calls;
mod requests;
mod threads;

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
type Summary<'a> = (&'a str, u64, u64, bool, Option<u32>, u64);

fn summary(trace: &Trace) -> Vec<Summary<'_>> {
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
