//! Tests with clients of all kinds at a control socket without workers; `tests/e2e/stats.rs` has the others.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use super::client::REQUEST_BYTES_MAX;
use super::*;

const NOW_MS: u64 = 1_000_000;

/// A control socket, and the work of its supervisor.
struct Bench {
    control: ControlSocket,
    poller: Poller,
    path: PathBuf,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let mut poller = Poller::new(0).expect("a poller");
        let wanted = Wanted::At(path.clone().into());
        let (control, warning) =
            ControlSocket::open(&wanted, &["127.0.0.1:0".parse().unwrap()], &mut poller).expect("a socket");
        assert_eq!(warning, None);
        Self { control, poller, path, _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.path).expect("connected");
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
        client
    }

    /// Handles all pending events.
    fn run(&mut self, now_ms: u64) {
        loop {
            let ready = self.poller.events(Some(0)).expect("a wait");
            for token in &ready {
                self.control.handle(*token, now_ms, &mut self.poller);
            }
            let subject = Subject {
                generations: &[],
                started_ms: NOW_MS - 5,
                ended: &Counters::default(),
                store: None,
            };
            self.control.settle(now_ms, &self.poller, &subject);
            if ready.is_empty() {
                return;
            }
        }
    }

    /// The answer to a client that sends this.
    fn ask(&mut self, request: &[u8]) -> Answer {
        let mut client = self.connect();
        client.write_all(request).expect("sent");
        self.run(NOW_MS);
        answer(client)
    }
}

/// Reads an answer, which ends with the connection.
fn answer(mut client: UnixStream) -> Answer {
    let mut text = Vec::new();
    client.read_to_end(&mut text).expect("an answer and its end");
    assert_eq!(text.last(), Some(&b'\n'), "{}", text.escape_ascii());
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{e}: {}", text.escape_ascii()))
}

#[test]
fn a_request_is_answered_and_the_connection_closed() {
    let mut bench = Bench::new();
    for request in [&b"stats\n"[..], b"stats\r\n", b"stats\nmore"] {
        let answer = bench.ask(request);
        let stats = answer.stats.expect("figures");
        assert_eq!(
            (answer.version, stats.pid, stats.uptime_ms),
            (crate::stats::VERSION, std::process::id(), 5)
        );
        assert!(bench.control.clients.is_empty());
        bench.control.next_gathering_ms = 0;
    }
}

#[test]
fn clients_that_want_different_things_are_answered_one_kind_after_the_other() {
    let mut bench = Bench::new();
    let mut clients: Vec<UnixStream> = (0..4).map(|_| bench.connect()).collect();
    for (client, request) in clients.iter_mut().zip(["stats\n", "stalls\n", "stats\n", "stalls\n"]) {
        client.write_all(request.as_bytes()).expect("sent");
    }
    bench.run(NOW_MS);
    assert_eq!(bench.control.next_ms(), Some(NOW_MS + PAUSE_MS), "one kind is left");
    bench.run(NOW_MS + PAUSE_MS);
    for (number, client) in clients.into_iter().enumerate() {
        let Answer { stats, stalls, error, .. } = answer(client);
        assert_eq!((stats.is_some(), stalls.is_some()), (number % 2 == 0, number % 2 == 1), "{error:?}");
        assert!(stalls.is_none_or(|stalls| stalls.stall_ns == STALL_NS && stalls.workers.is_empty()));
    }
}

#[test]
fn what_is_no_request_is_told_so() {
    let mut bench = Bench::new();
    let mut why = |request: &[u8]| bench.ask(request).error.expect("a refusal");
    let unknown = |what: &str| format!("unknown request `{what}`; expected `stats`, `stalls` or `upgrade`");
    assert_eq!(why(b"\n"), unknown(""));
    assert_eq!(why(b"Stats\n"), unknown("Stats"));
    assert_eq!(why(b"\x1b[2J\xff\0\n"), unknown("\\u{1b}[2J\u{fffd}\\0"));
    let long = "a request must be a line of less than 256 bytes";
    assert_eq!(why(&[b'x'; REQUEST_BYTES_MAX]), long);
    assert_eq!(why(&[0xff; 1000]), long);
}

#[test]
fn a_request_may_come_in_pieces() {
    let mut bench = Bench::new();
    let mut client = bench.connect();
    for piece in [&b"s"[..], b"tat", b"s", b"\n"] {
        bench.run(NOW_MS);
        client.write_all(piece).expect("sent");
    }
    bench.run(NOW_MS);
    assert!(answer(client).stats.is_some());
}

#[test]
fn clients_that_ask_together_are_answered_by_one_question() {
    let mut bench = Bench::new();
    let mut clients: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| bench.connect()).collect();
    clients.iter_mut().for_each(|client| client.write_all(b"stats\n").expect("sent"));
    bench.run(NOW_MS);
    clients.into_iter().for_each(|client| assert!(answer(client).stats.is_some()));
    let questions = bench.control.questions;
    assert!(questions <= CLIENTS_MAX as u64);
    // The next question waits for the interval.
    let mut late = bench.connect();
    late.write_all(b"stats\n").expect("sent");
    bench.run(NOW_MS);
    assert_eq!(bench.control.questions, questions);
    assert_eq!(bench.control.next_ms(), Some(NOW_MS + PAUSE_MS));
    bench.run(NOW_MS + PAUSE_MS);
    assert!(answer(late).stats.is_some());
}

#[test]
fn one_that_says_nothing_is_let_go_and_one_too_many_is_told() {
    let mut bench = Bench::new();
    let mut silent: Vec<UnixStream> = (0..CLIENTS_MAX).map(|_| bench.connect()).collect();
    bench.run(NOW_MS);
    let why = bench.ask(b"").error.expect("a refusal");
    assert_eq!(why, "too many clients; try again");
    // Half a request gets no answer, and a client that leaves frees its place at once.
    silent[0].write_all(b"sta").expect("sent");
    // Closing it would not do: a process that another test starts has a copy until it executes its program.
    silent.pop().expect("a client").shutdown(Shutdown::Both).expect("shut down");
    bench.run(NOW_MS + CLIENT_MS - 1);
    assert_eq!(bench.control.clients.len(), CLIENTS_MAX - 1);
    assert_eq!(bench.control.next_ms(), Some(NOW_MS + CLIENT_MS));
    bench.run(NOW_MS + CLIENT_MS);
    assert!(bench.control.clients.is_empty());
    for mut client in silent {
        assert_eq!(client.read_to_end(&mut Vec::new()).unwrap_or(0), 0);
    }
}

#[test]
fn one_that_takes_its_answer_slowly_gets_all_of_it_in_time_or_is_let_go() {
    let mut bench = Bench::new();
    let (client, never) = (bench.connect(), bench.connect());
    bench.run(NOW_MS);
    let long = Answer::refusal("x".repeat(4 << 20));
    bench.control.clients.iter_mut().for_each(|client| client.answer(long.to_line()));
    assert!(bench.control.clients.iter().all(|client| !client.is_done()), "too long for the socket");
    let reader = std::thread::spawn(|| answer(client));
    while !reader.is_finished() {
        bench.run(NOW_MS);
        std::thread::yield_now();
    }
    assert_eq!(reader.join().expect("read"), long);
    assert_eq!(bench.control.clients.len(), 1);
    bench.run(NOW_MS + CLIENT_MS);
    assert!(bench.control.clients.is_empty());
    drop(never);
}

#[test]
fn the_socket_goes_with_its_server_unless_it_is_anothers_by_then() {
    let bench = Bench::new();
    assert!(bench.path.exists());
    drop(bench.control);
    assert!(!bench.path.exists());
    let bench = Bench::new();
    fs::remove_file(&bench.path).expect("removed");
    fs::write(&bench.path, "another's").expect("a file");
    drop(bench.control);
    assert!(bench.path.exists());
}

#[test]
fn a_place_that_cannot_be_had_is_an_error_that_says_why() {
    let mut poller = Poller::new(0).expect("a poller");
    let mut why = |path: PathBuf| {
        ControlSocket::open(&Wanted::At(path.into()), &[], &mut poller).expect_err("no socket").to_string()
    };
    let bench = Bench::new();
    assert!(why(bench.path.clone()).ends_with("another server uses it; choose another path"));
    assert!(why("/proc/self/none/x.sock".into()).contains("its folder does not exist"));
    assert!(why(std::env::temp_dir()).ends_with("it exists and is not a socket; choose another path"));
    assert!(why(std::env::temp_dir().join("x".repeat(200))).starts_with("cannot create the control socket"));
    let (none, warning) = ControlSocket::open(&Wanted::Off, &[], &mut poller).expect("none");
    assert!(none.listening.is_empty() && warning.is_none());
}

impl Bench {
    fn admin(&self) -> TcpStream {
        let address = self.control.admin_addresses().next();
        TcpStream::connect(address.expect("an address")).expect("connected")
    }
}

/// The status and body of an answer in HTTP.
fn http_answer(mut client: impl Read) -> (String, String) {
    let mut text = String::new();
    client.read_to_string(&mut text).expect("an answer and its end");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).expect("a status").to_owned(), body.to_owned())
}

#[test]
fn both_sockets_speak_http() {
    let mut bench = Bench::new();
    let cases = [
        ("/health", "200", "alive\n"),
        ("/ready", "503", "starting or draining\n"),
        ("/x", "404", "There are /"),
    ];
    for (path, status, begin) in cases {
        let (mut own, mut admin) = (bench.connect(), bench.admin());
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        own.write_all(request.as_bytes()).expect("sent");
        admin.write_all(request.as_bytes()).expect("sent");
        bench.run(NOW_MS);
        for (found, text) in [http_answer(own), http_answer(admin)] {
            assert!(found == status && text.starts_with(begin), "{path}: {found} {text}");
        }
    }
    for (path, begin) in
        [("/metrics", "# HELP flash_build_info"), ("/stats.json", "{\"version\":2,\"stats\"")]
    {
        let mut admin = bench.admin();
        admin.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).expect("sent");
        bench.run(NOW_MS);
        let (status, text) = http_answer(admin);
        assert!(status == "200" && text.starts_with(begin), "{path}: {status} {text}");
        bench.control.next_gathering_ms = 0;
    }
}

#[test]
fn clients_of_an_address_get_no_lines_and_take_no_place_of_the_user() {
    let mut bench = Bench::new();
    let mut line = bench.admin();
    line.write_all(b"stats\n\n").expect("sent");
    bench.run(NOW_MS);
    assert_eq!(http_answer(line).0, "400");
    let silent: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| bench.admin()).collect();
    bench.run(NOW_MS);
    let (one_more, mut own) = (bench.admin(), bench.connect());
    bench.run(NOW_MS);
    assert_eq!(http_answer(one_more).0, "503");
    own.write_all(b"stats\n").expect("sent");
    bench.run(NOW_MS);
    assert!(answer(own).stats.is_some());
    drop(silent);
}
