//! Runs against small servers that do what real ones do on bad days.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::*;
use crate::files::content;
use crate::files::layout::File;
use crate::record::{NEVER_NS, Outcome, QUEUED, REUSED, Record};
use crate::workload::Arrival;

#[path = "connection_tests.rs"]
mod connections;
#[path = "message_tests.rs"]
mod messages;
#[path = "user_tests.rs"]
mod users;
#[path = "wire_tests.rs"]
mod wire;

const SEED: u64 = 11;
const MS: u64 = 1_000_000;

/// Serves each connection by `serve` on a thread of its own; gives the server.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = target(&listener);
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    target
}

fn target(listener: &TcpListener) -> Target {
    Target::parse(&format!("http://{}", listener.local_addr().unwrap()), false).unwrap()
}

/// Reads one request head; gives the number of the file that it asks for.
fn request(reader: &mut impl BufRead) -> Option<u32> {
    let (mut first, mut line) = (String::new(), String::new());
    reader.read_line(&mut first).ok().filter(|&n| n > 0)?;
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1)?;
    (0..36).find(|&id| path.ends_with(&File::from_path_id(id).path()))
}

fn body(path_id: u32) -> Vec<u8> {
    let mut body = Vec::new();
    content::fill(SEED, path_id, &mut body);
    body
}

/// The right answer for a file.
fn answer(path_id: u32) -> Vec<u8> {
    let mut body = body(path_id);
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.append(&mut body);
    bytes
}

/// Answers each request of a connection by `reply`, and ends it where that gives nothing.
fn answer_all(stream: TcpStream, reply: impl Fn(u32) -> Option<Vec<u8>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(bytes) = request(&mut reader).and_then(&reply) {
        if stream.write_all(&bytes).is_err() {
            break;
        }
    }
}

fn good_server() -> Target {
    server(|stream| answer_all(stream, |id| Some(answer(id))))
}

/// A number of requests, `gap_ns` apart, for the files `first` to 17 in turn, which have up to 9 KiB.
struct Steady {
    next: u64,
    count: u64,
    gap_ns: u64,
    first: u32,
}

impl Demand for Steady {
    fn next_due_ns(&self) -> Option<u64> {
        (self.next < self.count).then_some(self.next * self.gap_ns)
    }

    fn take(&mut self) -> Option<Arrival> {
        let intended_ns = self.next_due_ns()?;
        let path_id = self.first + (self.next % u64::from(18 - self.first)) as u32;
        self.next += 1;
        Some(Arrival { path_id, intended_ns })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.take().map(|arrival| arrival.path_id)
    }
}

fn steady(count: u64, gap_ns: u64) -> Steady {
    Steady { next: 0, count, gap_ns, first: 0 }
}

pub(super) fn setup(target: Target) -> Setup {
    Setup {
        target,
        protocol: Protocol::Http1,
        tls: None,
        catalogue: Arc::new(Catalogue::specweb99(1, Some(SEED))),
        message: Arc::default(),
        verify: true,
        connections_max: 8,
        requests_per_connection: None,
        abort_after_ns: None,
        retries_max: 0,
        read_bytes_per_s: None,
    }
}

fn drive(setup: Setup, demand: Steady, pace: Pace, duration_ms: u64, drain_ms: u64) -> (StreamRan, Ran) {
    let stream = Stream { setup, demand: Box::new(demand), pace };
    let phase = Phase::new(duration_ms * MS, drain_ms * MS);
    let mut ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
    let stream = ran.streams.remove(0);
    for record in &stream.records {
        assert!(
            record.intended_ns <= record.begun_ns && record.begun_ns <= record.last_byte_ns,
            "{record:?}"
        );
        if record.outcome == Outcome::Answered {
            let times = [record.begun_ns, record.connected_ns, record.first_byte_ns, record.last_byte_ns];
            assert!(times.is_sorted() && record.last_byte_ns < NEVER_NS, "{record:?}");
            assert_eq!(record.body_bytes, File::from_path_id(record.path_id).file_bytes());
        }
    }
    (stream, ran)
}

fn open(setup: Setup, demand: Steady) -> (StreamRan, Ran) {
    drive(setup, demand, Pace::Open, 30_000, 10_000)
}

fn closed(clients: u32, think_ms: u64) -> Pace {
    Pace::Closed { clients, think_ns: think_ms * MS }
}

fn count(ran: &StreamRan, outcome: Outcome) -> usize {
    ran.records.iter().filter(|record| record.outcome == outcome).count()
}

fn flagged(ran: &StreamRan, flag: u8) -> usize {
    ran.records.iter().filter(|record| record.flags & flag != 0).count()
}

#[test]
fn being_busy_is_counted_while_requests_start_and_not_for_a_thread_without_any() {
    let target = server(|stream| {
        let asked = AtomicUsize::new(0);
        answer_all(stream, |id| {
            // The third answer is late: the run waits for it when nothing starts any more.
            thread::sleep(Duration::from_millis(if asked.fetch_add(1, Relaxed) < 2 { 750 } else { 3000 }));
            Some(answer(id))
        });
    });
    let stream = |clients| Stream {
        setup: setup(target.clone()),
        demand: Box::new(steady(1000, 0)),
        pace: closed(clients, 0),
    };
    let phase = Phase::new(2000 * MS, 5000 * MS);
    let ran = run(vec![vec![stream(1)], vec![stream(0)]], &phase, &Stop::default(), None).unwrap();
    // On a busy machine the phase may end before the third.
    assert!((1..=3).contains(&ran.streams[0].records.len()));
    assert!((0.0..0.5).contains(&ran.busy_share), "one client that waits: {}", ran.busy_share);
}

#[test]
fn each_arrival_of_a_batch_has_its_own_time() {
    // All are due at once, so they are taken in one batch.
    let (ran, _) = open(setup(good_server()), steady(32, 0));
    let begun: std::collections::BTreeSet<u64> = ran.records.iter().map(|record| record.begun_ns).collect();
    assert_eq!((ran.records.len(), begun.len()), (32, 32), "{begun:?}");
}

#[test]
fn records_every_request_once() {
    let (ran, whole) = open(setup(good_server()), steady(3000, 0));
    assert_eq!((ran.records.len(), count(&ran, Outcome::Answered)), (3000, 3000));
    assert!(flagged(&ran, QUEUED) >= 3000 - 40, "8 connections may be opened, the other arrivals wait");
    assert_eq!((ran.connections, flagged(&ran, REUSED)), (8, 3000 - 8));
    assert!(ran.records.iter().all(|record| record.tries == 1 && record.status == 200));
    assert!(whole.duration_ns < 30_000 * MS, "it ends with the demand");
    assert!(whole.busy_share > 0.0 && whole.busy_share <= 1.0, "{}", whole.busy_share);
    assert_eq!((whole.ended_early, whole.local_limit), (None, None));
}

#[test]
fn a_stall_shows_in_every_request_that_it_touched() {
    // 100 requests/s for 3 s. From the first request that comes after half a second on, nothing is
    // answered for two seconds.
    let gate = Arc::new(Mutex::new(()));
    let (start, stalled) = (std::time::Instant::now(), Arc::new(Mutex::new(None)));
    let seen = Arc::clone(&stalled);
    let target = server(move |stream| {
        let (gate, stalled) = (Arc::clone(&gate), Arc::clone(&stalled));
        answer_all(stream, move |id| {
            let _held = gate.lock().unwrap();
            let begins = start.elapsed() > Duration::from_millis(500) && stalled.lock().unwrap().is_none();
            if begins {
                *stalled.lock().unwrap() = Some(clock::monotonic_ns());
                thread::sleep(Duration::from_secs(2));
            }
            Some(answer(id))
        });
    });
    let before_ns = clock::monotonic_ns();
    let (ran, whole) = open(Setup { connections_max: 300, ..setup(target) }, steady(300, 10 * MS));
    let took_ns = clock::monotonic_ns() - before_ns;
    // The phase begins a little after `before_ns`, so a stall ends at this or earlier in its time.
    let stall_end_ns = seen.lock().unwrap().unwrap() - before_ns + 2000 * MS;
    // Earlier by at most what the run took besides the phase and its drain.
    let start_slack_ns = took_ns - (whole.duration_ns + whole.drain_ns);
    assert_eq!(count(&ran, Outcome::Answered), 300);
    let in_stall: Vec<_> = (ran.records.iter())
        .filter(|r| r.intended_ns > stall_end_ns - 2000 * MS && r.intended_ns < stall_end_ns)
        .collect();
    assert!(in_stall.len() > 20, "{}", in_stall.len());
    for record in in_stall {
        let left_ns = (stall_end_ns - record.intended_ns).saturating_sub(start_slack_ns);
        assert!(record.latency_ns() >= left_ns, "{record:?}");
    }
    assert!(ran.records.iter().map(|record| record.latency_ns()).max().unwrap() >= 1980 * MS);
    let late = ran.records.iter().filter(|record| record.begun_ns > record.intended_ns + 100 * MS).count();
    // A busy machine delays some; a stall that did would delay the two hundred that come in it.
    assert!(late < 180, "the stall must not delay arrivals: {late}");
    assert_eq!(flagged(&ran, QUEUED), 0, "a connection was left for each");
}

#[test]
fn refused_and_hanging_servers_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = target(&listener);
    drop(listener);
    let (ran, _) = open(setup(refusing.clone()), steady(20, 0));
    assert_eq!(count(&ran, Outcome::Refused), 20);
    let (ran, _) = drive(setup(refusing), steady(1_000_000, 0), closed(2, 0), 300, 0);
    // Waits of 10, 20, 40, 80, 160 ms come before the seventh try of each.
    assert!((2..=14).contains(&ran.records.len()), "{}", ran.records.len());
    // The end of the phase can cut the last try of each.
    let cut = count(&ran, Outcome::Unanswered);
    assert!(cut <= 2 && count(&ran, Outcome::Refused) + cut == ran.records.len(), "{cut}");

    let hang = || server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let (ran, whole) = drive(setup(hang()), steady(20, 0), Pace::Open, 1000, 200);
    assert_eq!(count(&ran, Outcome::Unanswered), 20);
    assert!(ran.records.iter().all(|record| record.latency_ns() >= 190 * MS && record.status == 0));
    assert!(whole.drain_ns >= 200 * MS);
    let (ran, _) = drive(setup(hang()), steady(20, 0), closed(3, 0), 100, 100);
    assert_eq!((count(&ran, Outcome::Unanswered), ran.records.len()), (3, 3));
}

#[test]
fn a_stop_ends_it_and_keeps_what_was_measured() {
    let stop = Stop::default();
    let stopping = stop.clone();
    // Stopped by the hundredth request, so that both streams have begun by then.
    let asked = AtomicUsize::new(0);
    let good = server(move |stream| {
        answer_all(stream, |id| {
            if asked.fetch_add(1, Ordering::SeqCst) == 100 {
                stopping.stop();
            }
            Some(answer(id))
        });
    });
    let hang = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let streams = [good, hang].map(|target| Stream {
        setup: setup(target),
        demand: Box::new(steady(1_000_000, 5 * MS)),
        pace: Pace::Open,
    });
    let phase = Phase::new(3_600_000 * MS, 3_600_000 * MS);
    let ran = run(vec![streams.into()], &phase, &stop, None).unwrap();
    assert_eq!(ran.ended_early.as_deref(), Some("stopped"));
    assert!(ran.duration_ns < 60_000 * MS && (900 * MS..60_000 * MS).contains(&ran.drain_ns));
    assert!(count(&ran.streams[0], Outcome::Answered) > 10);
    assert!(count(&ran.streams[1], Outcome::Unanswered) > 10);
}

#[test]
fn threads_share_a_run_and_records_go_out_meanwhile() {
    struct Count(Mutex<Vec<(usize, Vec<Record>)>>);
    impl Keep for Count {
        fn keep(&self, stream: usize, records: &[Record]) {
            self.0.lock().unwrap().push((stream, records.to_vec()));
        }
    }
    let target = good_server();
    let stream = |count| Stream {
        setup: setup(target.clone()),
        demand: Box::new(steady(count, 0)),
        pace: closed(2, 0),
    };
    let keep = Count(Mutex::default());
    let phase = Phase::new(30_000 * MS, 5000 * MS);
    let threads = vec![vec![stream(1500), stream(10)], vec![stream(2000), stream(20)]];
    let ran = run(threads, &phase, &Stop::default(), Some(&keep)).unwrap();
    assert_eq!(ran.streams.iter().map(|s| s.records.len()).collect::<Vec<_>>(), [3500, 30]);
    assert_eq!(ran.streams[0].clients.len(), 4);
    let of_thread = |thread| ran.streams[0].records.iter().filter(|r| r.thread == thread).count();
    assert_eq!((of_thread(0), of_thread(1), ran.threads), (1500, 2000, 2));
    let chunks = keep.0.into_inner().unwrap();
    assert!(chunks.iter().all(|(_, records)| records.len() <= 1024));
    for stream in 0..2 {
        let kept = chunks.iter().filter(|chunk| chunk.0 == stream).flat_map(|chunk| chunk.1.clone());
        assert_eq!(kept.collect::<Vec<_>>(), ran.streams[stream].records);
    }
}

#[test]
fn a_run_is_followed_while_it_goes_on() {
    /// Notes how many records had come at each look.
    #[derive(Default)]
    struct Follow {
        came: AtomicUsize,
        looks: Mutex<Vec<(u64, usize)>>,
    }
    impl Keep for Follow {
        fn keep(&self, _: usize, records: &[Record]) {
            self.came.fetch_add(records.len(), Relaxed);
        }

        fn next_look_ns(&self, after_ns: u64) -> Option<u64> {
            Some(after_ns + 400 * MS)
        }

        fn look(&self, now_ns: u64) {
            self.looks.lock().unwrap().push((now_ns, self.came.load(Relaxed)));
        }
    }
    let follow = Follow::default();
    // Far fewer than fill a chunk, and a server that says nothing more after 20 of them.
    let asked = AtomicUsize::new(0);
    let target = server(move |stream| {
        answer_all(stream, |id| (asked.fetch_add(1, Relaxed) < 20).then(|| answer(id)));
    });
    let setup = Setup { connections_max: 1, ..setup(target) };
    let stream = Stream { setup, demand: Box::new(steady(30, 100 * MS)), pace: Pace::Open };
    let phase = Phase::new(4000 * MS, 1000 * MS);
    let ran = run(vec![vec![stream]], &phase, &Stop::default(), Some(&follow)).unwrap();
    let looks = follow.looks.into_inner().unwrap();
    let times: Vec<u64> = looks.iter().map(|look| look.0).collect();
    let expected: Vec<u64> = (1..=times.len() as u64).map(|i| i * 400 * MS).collect();
    assert_eq!(times, expected);
    assert!(looks.len() >= 5, "{looks:?}");
    let before_the_end = looks[looks.len() - 1].1;
    assert!(before_the_end > 0 && follow.came.into_inner() == ran.streams[0].records.len(), "{looks:?}");
}

#[test]
fn refuses_what_it_has_no_room_for() {
    let bad = |change: fn(&mut Stream)| {
        let target = Target::parse("http://127.0.0.1:9", false).unwrap();
        let mut stream = Stream { setup: setup(target), demand: Box::new(steady(1, 0)), pace: Pace::Open };
        change(&mut stream);
        let phase = Phase::new(1, 1);
        run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap_err().exit_code()
    };
    assert_eq!(bad(|s| s.setup.abort_after_ns = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.requests_per_connection = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.read_bytes_per_s = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.connections_max = 0), 2);
    assert_eq!(bad(|s| s.pace = closed(CLIENTS_MAX + 1, 0)), 2);
    let phase = Phase::new(1, 1);
    assert_eq!(run(Vec::new(), &phase, &Stop::default(), None).unwrap_err().exit_code(), 2);
}
