//! `flash doctor` on real processes: a loop that waits, one that does not, and what is no trace.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Ended, Folder, flash, skip};

/// An event loop of two connections: another process sends a byte on each of them every 2 ms. If it is told to, the
/// loop sleeps 5 ms in every tenth turn.
const LOOP: &str = "
import os, select, socket, sys, time
pairs = [socket.socketpair() for _ in range(2)]
if os.fork() == 0:
    for here, _ in pairs: here.close()
    try:
        while True:
            for _, there in pairs: there.send(b'x')
            time.sleep(0.002)
    except OSError:
        os._exit(0)
poll = select.epoll()
sockets = {}
for here, there in pairs:
    there.close()
    poll.register(here.fileno(), select.EPOLLIN)
    sockets[here.fileno()] = here
print('ready', flush=True)
turns = 0
while True:
    for fd, _ in poll.poll():
        sockets[fd].recv(64)
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
    let verdict = "blocks, but not on the disk, in clock_nanosleep: ";
    assert!(ended.stdout.contains(verdict), "{ended:?}");
    assert!(ended.stdout.contains("a timer (sleep)"), "{ended:?}");
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
    assert!(ended.stdout.starts_with("The event loop "), "{ended:?}");
}

/// An HTTP server of one loop, that stands still for a while before it answers a request for /slow.
const SERVER: &str = "
import select, socket, time
listener = socket.create_server(('127.0.0.1', 0))
poll = select.epoll()
poll.register(listener.fileno(), select.EPOLLIN)
clients = {}
print(listener.getsockname()[1], flush=True)
while True:
    for fd, _ in poll.poll():
        if fd == listener.fileno():
            client, _ = listener.accept()
            clients[client.fileno()] = client
            poll.register(client.fileno(), select.EPOLLIN)
            continue
        request = clients[fd].recv(4096)
        if not request:
            clients.pop(fd).close()
            continue
        if request.startswith(b'GET /slow'):
            time.sleep(0.05)
        clients[fd].sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n')
";

/// Asks for this on one connection, again and again, until it is told to stop: how often, and the longest time that an
/// answer took.
fn ask(port: u16, path: &'static str, stop: &Arc<AtomicBool>) -> JoinHandle<(u64, Duration)> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut count, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let begin = Instant::now();
            client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
            assert!(client.read(&mut [0; 512]).unwrap() > 0);
            (count, longest) = (count + 1, longest.max(begin.elapsed()));
            std::thread::sleep(Duration::from_millis(3));
        }
        (count, longest)
    })
}

#[test]
fn the_requests_that_paid_are_named_with_what_they_paid() {
    let folder = Folder::new();
    let mut python = Command::new("python3");
    let spawned = python.args(["-c", SERVER]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else { return skip("python3 is not installed") };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = Loop(child);
    let port = line.trim().parse().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let clients = [ask(port, "/slow", &stop), ask(port, "/fast?x", &stop)];
    let trace = folder.text("trace.json");
    let ended = server.doctor(&["--trace", &trace]);
    stop.store(true, Ordering::Relaxed);
    let [_, (fast, fast_longest)] = clients.map(|client| client.join().unwrap());
    let Some(ended) = ended else { return };
    if ended.stdout.contains("a packet socket was refused") {
        return skip(&format!("no right to see requests here: {}", ended.stdout));
    }
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for words in ["worst-affected requests", "GET /fast?x"] {
        assert!(ended.stdout.contains(words), "no '{words}': {ended:?}");
    }
    let json: Value = serde_json::from_str(&flash(["doctor", &trace, "--json"]).stdout).unwrap();
    let found = &json["loops"][0];
    assert!(found["requests"]["held_up"]["count"].as_u64().unwrap() >= 2, "{found:#}");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(&trace).unwrap()).unwrap();
    assert_eq!(kept["missing"]["packets_lost"], 0);
    let requests = kept["requests"]["costliest"].as_array().unwrap();
    let number = |request: &Value, name: &str| request[name].as_u64().unwrap();
    let held_up = |request: &&Value| {
        request["line"] == "GET /fast?x"
            && request["is_answered"] == true
            && number(request, "held_up_ns") > 1_000_000
    };
    let held_up: Vec<&Value> = requests.iter().filter(held_up).collect();
    assert!(!held_up.is_empty() && held_up.len() as u64 <= fast, "{} of {fast}", held_up.len());
    for request in held_up {
        let waited_ns = number(request, "waited_ns");
        assert!(number(request, "held_up_ns") <= waited_ns, "{request}");
        assert!(
            u128::from(waited_ns) <= fast_longest.as_nanos(),
            "{request}: its client waited {fast_longest:?}"
        );
        assert_eq!(request["tid"], json["loops"][0]["pid"], "{request}");
    }
    assert_eq!(
        found["paid"][0]["behind"]["longest"].as_str().map(|call| call.starts_with("clock_nanosleep")),
        Some(true)
    );
}

#[test]
fn what_is_no_trace_has_no_verdict() {
    let folder = Folder::new();
    let other = folder.write("other.json", "{\"version\": 99, \"processes\": []}");
    let broken = folder.write("broken.json", "{\"version\": 2, \"processes\": 7}");
    let none = folder.text("none.json");
    for (file, why) in
        [(&other, "has version 99"), (&broken, "is not a kernel trace"), (&none, "cannot open")]
    {
        let ended = flash(["doctor", file]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
    assert_eq!(flash(["doctor", "0"]).code, Some(2));
}
