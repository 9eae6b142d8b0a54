//! `flash trace` on real programs: whether its counts are right, what it says of who waits, and that nobody is
//! harmed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Ended, FLASH, Folder, flash, is_installed, skip, start};

/// Whether this user may trace here; else the reason is printed.
fn may_trace() -> bool {
    let ended = flash(["trace", "--", "/bin/true"]);
    let refused =
        ended.code == Some(1) && ["CAP_PERFMON", "tracefs"].iter().any(|why| ended.stderr.contains(why));
    if refused {
        skip(&format!("no right to trace here: {}", ended.stderr));
    } else {
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    !refused
}

/// The interpreter itself (`python3` may be a script that starts it), where there is one and it may be traced.
fn python() -> Option<String> {
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    match found {
        Ok(found) if found.status.success() => {
            may_trace().then(|| String::from_utf8_lossy(&found.stdout).trim_end().to_owned())
        }
        _ => {
            skip("python3 is not installed");
            None
        }
    }
}

#[track_caller]
fn traced(folder: &Folder, more: &[&str], command: &[&str]) -> (Ended, Value) {
    let json = folder.text("trace.json");
    let words = ["trace", "--json", &json].into_iter().chain(more.iter().copied()).chain(["--"]);
    let ended = flash(words.chain(command.iter().copied()));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = std::fs::read_to_string(json).unwrap();
    (ended, serde_json::from_str(&text).unwrap())
}

/// How many calls of this name all processes made together.
fn count(trace: &Value, call: &str) -> u64 {
    let all = trace["calls"].as_array().unwrap().iter();
    all.filter(|total| total["call"] == call).map(|total| total["count"].as_u64().unwrap()).sum()
}

/// Makes a known number of calls, which nothing else uses, in each of two processes and in a thread.
const CALLS: &str = "
import os, threading
def calls():
    for _ in range(1234): os.sched_yield()
thread = threading.Thread(target=calls)
thread.start(); thread.join()
child = os.fork()
calls()
if child == 0: os._exit(0)
os.waitpid(child, 0)
";

#[test]
fn each_call_of_each_thread_and_child_is_counted_as_strace_does() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let (_, trace) = traced(&folder, &[], &[&python, "-S", "-c", CALLS]);
    assert_eq!(trace["missing"]["events_lost"], 0, "{}", trace["missing"]);
    assert_eq!(count(&trace, "sched_yield"), 3 * 1234);
    assert_eq!(trace["ending"], "target_ended");
    assert_eq!(trace["processes"].as_array().unwrap().len(), 2);
    if !is_installed("strace") {
        return skip("strace is not installed");
    }
    let summary = folder.text("strace");
    let strace = ["-f", "-c", "-U", "name,calls", "-o", &summary, &python, "-S", "-c", CALLS];
    assert!(Command::new("strace").args(strace).status().unwrap().success());
    let summary = std::fs::read_to_string(summary).unwrap();
    for call in ["openat", "read", "newfstatat", "getdents64", "wait4", "close"] {
        let line = summary.lines().find(|line| line.split_ascii_whitespace().next() == Some(call));
        let theirs = line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok()).unwrap_or(0);
        assert_eq!(count(&trace, call), theirs, "{call}: {summary}");
    }
}

#[test]
fn who_is_blocked_on_what_is_named() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let pipe = folder.text("the-pipe");
    // Opening the pipe blocks until the child opens its other end. The child does that once its parent sleeps.
    let script = format!(
        "import os, time\nos.mkfifo({pipe:?})\nif os.fork() == 0:\n  \
         while open(f'/proc/{{os.getppid()}}/stat').read().split()[2] != 'S': time.sleep(0.01)\n  time.sleep(0.3)\n  \
         open({pipe:?}, 'w')\n  os._exit(0)\nopen({pipe:?})\nos.wait()\n"
    );
    let (_, trace) = traced(&folder, &[], &[&python, "-S", "-c", &script]);
    let blocked = trace["blocked"].as_array().unwrap();
    let call = blocked.iter().find(|call| call["path"] == pipe.as_str());
    let call = call.unwrap_or_else(|| panic!("{blocked:#?}"));
    assert_eq!((&call["call"], &call["target"]["name"]), (&Value::from("openat"), &Value::from(pipe)));
    assert_eq!(call["target"]["is_uncertain"], false);
    let parts = ["on_cpu_ns", "blocked_ns", "runnable_ns"].map(|part| call[part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), call["duration_ns"].as_u64().unwrap());
    let hides =
        trace["missing"]["notes"].as_array().unwrap().iter().any(|note| note.to_string().contains("symbols"));
    if hides {
        return skip("the kernel hides its symbols");
    }
    assert_eq!(call["reason"], "pipe", "{call:#}");
}

#[test]
fn what_found_no_room_is_counted_and_told() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let calls = "import os\nfor _ in range(100000): os.sched_yield()";
    let run = || traced(&folder, &["--buffer", "4KiB"], &[&python, "-S", "-c", calls]);
    let lost_of = |trace: &Value| trace["missing"]["events_lost"].as_u64().unwrap();
    // A reader that always comes in time loses nothing.
    let (ended, trace) = (0..20).map(|_| run()).find(|(_, trace)| lost_of(trace) > 0).expect("a full buffer");
    let (lost, counted) = (lost_of(&trace), count(&trace, "sched_yield"));
    // Two events for each call; some are of other calls. Before Linux 6.0 those that were lost last are not known.
    let kernel = trace["kernel"].as_str().unwrap();
    let counts_all = kernel.split('.').next().unwrap().parse::<u32>().unwrap() >= 6;
    let calls = lost / 2 + counted;
    assert!(calls <= 110_000, "{lost} lost, {counted} counted");
    assert!(!counts_all || calls >= 90_000, "{lost} lost, {counted} counted");
    assert!(ended.stdout.contains("lost: counts and times are too low"), "{ended:?}");
}

/// Its first thread waits for a second one, which executes a program that makes a known number of calls, after the
/// time at which the tracer looks for threads that ended unnoticed.
const EXECUTES: &str = "
import os, sys, threading
calls = 'import os, time; time.sleep(2.5); [os.sched_yield() for _ in range(1234)]'
def execute():
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, '-S', '-c', calls])
thread = threading.Thread(target=execute)
thread.start(); thread.join()
";

#[test]
fn a_program_that_another_thread_than_the_first_one_executes_is_traced_to_its_end() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let (ended, trace) = traced(&folder, &[], &[&python, "-S", "-c", EXECUTES]);
    assert_eq!((&trace["ending"], count(&trace, "sched_yield")), (&Value::from("target_ended"), 1234));
    assert_eq!(ended.stderr, "");
}

#[test]
fn it_is_traced_to_its_end_as_well_when_it_was_running_before() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let mut child = Command::new(python).args(["-S", "-c", EXECUTES]).stdin(Stdio::piped()).spawn().unwrap();
    wait_for_two_threads(&mut child);
    let json = folder.text("trace.json");
    let mut trace = start(["trace", "--duration", "300s", "--json", &json, &child.id().to_string()]);
    trace.wait_until_it_records();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(trace.wait().code, Some(0));
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!((&trace["ending"], count(&trace, "sched_yield")), (&Value::from("target_ended"), 1234));
}

fn wait_for_two_threads(child: &mut Child) {
    while std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count() < 2 {
        assert_eq!(child.try_wait().unwrap(), None);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn threads_that_cannot_be_followed_are_counted_and_nothing_is_said_of_them() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    let script =
        "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); time.sleep(600)";
    let mut child = Command::new(python).args(["-S", "-c", script]).spawn().unwrap();
    wait_for_two_threads(&mut child);
    // Descriptors for the events of one thread, and 256 for other things.
    let limited = "ulimit -n $((256 + 4 * $(getconf _NPROCESSORS_ONLN))); exec \"$@\"";
    let json = folder.text("trace.json");
    let (pid, trace) = (child.id().to_string(), [FLASH, "trace", "--duration", "100ms", "--json", &json]);
    let traced = Command::new("sh").args(["-c", limited, "sh"]).args(trace).arg(pid).output().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(traced.status.success(), "{traced:?}");
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(
        (&trace["missing"]["threads_dropped"], trace["threads"].as_array().unwrap().len()),
        (&Value::from(1), 1)
    );
}

#[test]
fn a_command_that_still_runs_when_the_time_is_over_hears_of_it() {
    if !may_trace() {
        return;
    }
    let ended = flash(["trace", "--duration", "200ms", "--", "sleep", "600"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

/// Counts its turns aloud.
const TURNS: &str = "
import time
for turn in range(100000):
    print(turn, flush=True)
    time.sleep(0.01)
";

#[test]
fn a_trace_that_is_killed_harms_nobody() {
    let Some(python) = python() else { return };
    let mut child = Command::new(python).args(["-S", "-c", TURNS]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let mut trace = start(["trace", "--duration", "300s", &child.id().to_string()]);
    trace.wait_until_it_records();
    trace.signal("KILL");
    assert_eq!(trace.wait().code, None);
    for _ in 0..20 {
        lines.next().unwrap().unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    // One that is asked to end shows what it has.
    let mut trace = start(["trace", "--duration", "300s", &child.id().to_string()]);
    trace.wait_until_it_records();
    for _ in 0..20 {
        lines.next().unwrap().unwrap();
    }
    trace.signal("INT");
    let ended = trace.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert!(ended.stdout.contains("clock_nanosleep"), "{ended:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn without_the_right_to_trace_it_says_what_is_needed() {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|found| std::os::unix::fs::MetadataExt::uid(&found) == 0);
    if !is_root || !is_installed("setpriv") {
        return skip("needs root and setpriv, to be nobody");
    }
    let nobody =
        ["--reuid", "65534", "--regid", "65534", "--clear-groups", FLASH, "trace", "--", "/bin/true"];
    let output = Command::new("setpriv").args(nobody).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("failed to execute") {
        return skip("nobody can't reach the program here");
    }
    assert_eq!(output.status.code(), Some(1), "{text}");
    // If tracefs is not mounted, mounting it is refused first; both errors name the capability.
    assert!(["CAP_PERFMON", "mount tracefs"].iter().any(|what| text.contains(what)), "{text}");
}

#[test]
fn what_cannot_be_traced_is_said() {
    if !may_trace() {
        return;
    }
    let ended = flash(["trace", "4194304"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), "error: there is no process 4194304\n"));
    let ended = flash(["trace", "--", "/no/such/program"]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("cannot start /no/such/program"), "{ended:?}");
    for words in [&["trace"][..], &["trace", "1", "--", "true"], &["trace", "--duration", "0s", "1"]] {
        assert_eq!(flash(words.iter().copied()).code, Some(2), "{words:?}");
    }
}
