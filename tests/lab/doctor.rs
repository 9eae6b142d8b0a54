//! `flash doctor` on real processes: a loop that waits, one that does not, and what is no trace.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Ended, Folder, flash, skip};

/// An event loop that is sent a byte each 2 ms by another process, and sleeps 5 ms for each tenth of them if
/// it is told to.
const LOOP: &str = "
import os, select, socket, sys, time
here, there = socket.socketpair()
if os.fork() == 0:
    here.close()
    try:
        while True:
            there.send(b'x')
            time.sleep(0.002)
    except OSError:
        os._exit(0)
there.close()
poll = select.epoll()
poll.register(here.fileno(), select.EPOLLIN)
print('ready', flush=True)
turns = 0
while True:
    for _ in poll.poll():
        here.recv(64)
    turns += 1
    if sys.argv[1] == 'waits' and turns % 10 == 0:
        time.sleep(0.005)
";

/// The loop under way; it ends with this, and its child with it.
struct Loop(Child);

impl Loop {
    fn start(how: &str) -> Option<Self> {
        let mut python = Command::new("python3");
        let spawned = python.args(["-c", LOOP, how]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let Ok(mut child) = spawned else {
            skip("python3 is not installed");
            return None;
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(Self(child))
    }

    /// The verdict of `flash doctor`, where this user may trace.
    fn doctor(&self, more: &[&str]) -> Option<Ended> {
        let pid = self.0.id().to_string();
        let words = ["doctor", &pid, "--duration", "1s"];
        let ended = flash(words.into_iter().chain(more.iter().copied()));
        if ended.code == Some(2) && ["CAP_PERFMON", "tracefs"].iter().any(|why| ended.stderr.contains(why)) {
            skip(&format!("no right to trace here: {}", ended.stderr));
            return None;
        }
        Some(ended)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_loop_that_waits_is_found_and_its_trace_says_the_same_later() {
    let folder = Folder::new();
    let Some(server) = Loop::start("waits") else { return };
    let (trace, page) = (folder.text("trace.json"), folder.text("page.html"));
    let Some(ended) = server.doctor(&["--trace", &trace, "--html", &page]) else { return };
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let verdict = "does not wait for the disk in its event loop, but for other things: in clock_nanosleep.";
    assert!(ended.stdout.contains(verdict), "{ended:?}");
    assert!(ended.stdout.contains("for a time it asked for"), "{ended:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("clock_nanosleep") && page.contains("<svg"), "{} bytes", page.len());
    let again = flash(["doctor", &trace]);
    assert_eq!((again.code, again.stdout), (ended.code, ended.stdout));
    let json: Value = serde_json::from_str(&flash(["doctor", &trace, "--json"]).stdout).unwrap();
    assert_eq!(json["verdict"], "loop_waits");
    assert_eq!(json["loops"][0]["calls"][0]["call"], "clock_nanosleep");
    assert!(json["loops"][0]["stalls"].as_u64().unwrap() >= 10, "{}", json["loops"][0]["stalls"]);
}

#[test]
fn a_loop_that_only_waits_for_events_is_none_that_waits() {
    let Some(server) = Loop::start("works") else { return };
    let Some(ended) = server.doctor(&[]) else { return };
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("This server did not wait in its event loop"), "{ended:?}");
}

#[test]
fn what_is_no_trace_has_no_verdict() {
    let folder = Folder::new();
    let other = folder.write("other.json", "{\"version\": 99, \"processes\": []}");
    let broken = folder.write("broken.json", "{\"version\": 1, \"processes\": 7}");
    let none = folder.text("none.json");
    for (file, why) in [(&other, "has version 99"), (&broken, "is no trace"), (&none, "cannot open")] {
        let ended = flash(["doctor", file]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
    assert_eq!(flash(["doctor", "0"]).code, Some(2));
}
