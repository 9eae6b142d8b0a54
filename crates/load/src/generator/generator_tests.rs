//! Runs against small servers that do what real ones do on bad days.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::*;
use crate::files::content;
use crate::files::layout::File;
use crate::record::{NEVER_NS, OpenConnections, Outcome, QUEUED, REUSED, Record};
use crate::workload::Arrival;
use crate::workload::catalogue::Listed;

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
        self.take().map(|ask| ask.path_id)
    }
}

fn steady(count: u64, gap_ns: u64) -> Steady {
    Steady { next: 0, count, gap_ns, first: 0 }
}

fn setup(target: Target) -> Setup {
    Setup {
        target,
        protocol: Protocol::Http1,
        tls: None,
        catalogue: Arc::new(Catalogue::specweb99(1, Some(SEED))),
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
    let phase = Phase { duration_ns: duration_ms * MS, drain_max_ns: drain_ms * MS };
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
    let phase = Phase { duration_ns: 2000 * MS, drain_max_ns: 5000 * MS };
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

/// The outcomes that a server earns that ends each connection after one reply, made by `reply`.
fn outcomes(reply: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Vec<Outcome> {
    let target = server(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let _ = request(&mut reader).map(|id| stream.write_all(&reply(id)));
    });
    let (ran, _) = open(setup(target), steady(5, 0));
    assert_eq!(ran.records.len(), 5);
    let mut outcomes: Vec<_> = ran.records.iter().map(|record| record.outcome).collect();
    outcomes.dedup();
    outcomes
}

#[test]
fn bad_answers_are_told_by_kind() {
    assert_eq!(outcomes(|_| b"NOT HTTP\r\n\r\n".to_vec()), [Outcome::Garbage]);
    assert_eq!(outcomes(|id| [answer(id), b"x".to_vec()].concat()), [Outcome::Garbage]);
    assert_eq!(outcomes(|_| b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec()), [Outcome::WrongLength]);
    assert!(outcomes(|id| answer((id + 1) % 18)).contains(&Outcome::WrongLength));
    assert_eq!(outcomes(|id| answer(id)[..answer(id).len() - 1].to_vec()), [Outcome::ClosedEarly]);
    assert_eq!(outcomes(|_| Vec::new()), [Outcome::ClosedEarly]);
    let flipped = |id: u32| {
        let mut bytes = answer(id);
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    assert_eq!(outcomes(flipped), [Outcome::WrongContent]);
    assert_eq!(outcomes(|_| b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno".to_vec()), [Outcome::Status]);
}

#[test]
fn a_server_that_hangs_up_at_once_is_told() {
    let (ran, _) = open(setup(server(drop)), steady(50, 0));
    assert_eq!(count(&ran, Outcome::Reset) + count(&ran, Outcome::ClosedEarly), 50);
}

#[test]
fn takes_bodies_of_every_framing() {
    let until_close = |id: u32| [b"HTTP/1.0 200 OK\r\n\r\n".to_vec(), body(id)].concat();
    assert_eq!(outcomes(until_close), [Outcome::Answered]);
    let chunked = |id: u32| {
        let mut bytes = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n".to_vec();
        bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in body(id).chunks(1000) {
            bytes.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nX: y\r\n\r\n");
        Some(bytes)
    };
    let (ran, _) = open(setup(server(move |stream| answer_all(stream, chunked))), steady(200, 0));
    assert_eq!((count(&ran, Outcome::Answered), ran.connections), (200, 8));
}

#[test]
fn asks_again_when_an_idle_connection_was_closed_under_it() {
    // Each connection answers one request as if it would stay, and ends as the next one comes.
    let target = server(|stream| {
        let told = AtomicUsize::new(0);
        answer_all(stream, move |id| (told.fetch_add(1, Ordering::SeqCst) == 0).then(|| answer(id)));
    });
    for pace in [Pace::Open, closed(3, 0)] {
        let (ran, _) = drive(setup(target.clone()), steady(100, 5 * MS), pace, 30_000, 5000);
        assert_eq!(count(&ran, Outcome::Answered), 100);
        assert!(ran.retried > 0);
        assert!(ran.records.iter().all(|record| record.tries == 1), "the user knows nothing of it");
    }
}

#[test]
fn a_connection_is_not_used_after_connection_close() {
    let target = server(|stream| {
        answer_all(stream, |id| {
            let text = answer(id);
            let mut bytes = b"HTTP/1.1 200 OK\r\nConnection: close\r\n".to_vec();
            bytes.extend_from_slice(&text[17..]);
            Some(bytes)
        });
    });
    for pace in [Pace::Open, closed(3, 0)] {
        let (ran, _) = drive(setup(target.clone()), steady(50, 0), pace, 30_000, 5000);
        assert_eq!((count(&ran, Outcome::Answered), ran.retried, ran.connections), (50, 0, 50));
    }
}

#[test]
fn connections_carry_so_many_requests_and_no_more() {
    let (most, accepted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (max, count_accepted) = (Arc::clone(&most), Arc::clone(&accepted));
    let target = server(move |stream| {
        count_accepted.fetch_add(1, Ordering::SeqCst);
        let told = AtomicUsize::new(0);
        let most = Arc::clone(&max);
        answer_all(stream, move |id| {
            most.fetch_max(told.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            Some(answer(id))
        });
    });
    for (pace, each) in [(Pace::Open, 5), (closed(4, 0), 5), (closed(4, 0), 1)] {
        most.store(0, Ordering::SeqCst);
        accepted.store(0, Ordering::SeqCst);
        let setup = Setup { requests_per_connection: Some(each), ..setup(target.clone()) };
        let (ran, _) = drive(setup, steady(200, 0), pace, 30_000, 5000);
        assert_eq!((count(&ran, Outcome::Answered), ran.retried), (200, 0));
        assert_eq!(most.load(Ordering::SeqCst), each as usize);
        // The server's threads may begin after their connections have ended.
        let patience = std::time::Instant::now() + Duration::from_secs(60);
        while accepted.load(Ordering::SeqCst) as u64 != ran.connections
            && std::time::Instant::now() < patience
        {
            thread::sleep(Duration::from_millis(5));
        }
        let connections = accepted.load(Ordering::SeqCst);
        // The last connection of each client is perhaps not used up.
        assert!((200 / each as usize..=200 / each as usize + 8).contains(&connections), "{connections}");
        assert_eq!(connections as u64, ran.connections);
    }
}

#[test]
fn a_closed_loop_has_no_more_outstanding_than_clients() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let max = Arc::clone(&most);
    // The first requests wait for each other: however busy the machine is, all are outstanding once.
    let all = Arc::new(Barrier::new(6));
    let target = server(move |stream| {
        let (now, most, all) = (Arc::clone(&now), Arc::clone(&max), Arc::clone(&all));
        let is_first = Cell::new(true);
        answer_all(stream, move |id| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if is_first.take() {
                all.wait();
            }
            thread::sleep(Duration::from_millis(5));
            now.fetch_sub(1, Ordering::SeqCst);
            Some(answer(id))
        });
    });
    let (ran, whole) = drive(setup(target), steady(1_000_000, 0), closed(6, 20), 500, 1000);
    assert_eq!(most.load(Ordering::SeqCst), 6);
    assert_eq!((ran.connections, ran.clients.len()), (6, 6));
    assert_eq!(count(&ran, Outcome::Answered), ran.records.len());
    assert!(whole.duration_ns >= 500 * MS);
    for client in &ran.clients {
        // An answer takes 5 ms and thinking 20, so at most 20 in half a second and the one under way.
        assert!((1..=21).contains(&client.answered), "{client:?}");
        assert!(client.active_ns >= client.answered * 5 * MS);
    }
    assert_eq!(ran.clients.iter().map(|client| client.answered).sum::<u64>(), ran.records.len() as u64);
    let bytes: u64 = ran.records.iter().map(|record| record.body_bytes).sum();
    assert_eq!(ran.clients.iter().map(|client| client.body_bytes).sum::<u64>(), bytes);
}

#[test]
fn users_give_up_and_try_again() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let hang = server(move |stream| {
        let asked = Arc::clone(&counted);
        answer_all(stream, move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            thread::sleep(Duration::from_secs(20));
            None
        });
    });
    for pace in [Pace::Open, closed(5, 0)] {
        asked.store(0, Ordering::SeqCst);
        let setup = Setup { abort_after_ns: Some(1000 * MS), retries_max: 2, ..setup(hang.clone()) };
        let (ran, _) = drive(setup, steady(5, 0), pace, 20_000, 20_000);
        assert_eq!((count(&ran, Outcome::Aborted), ran.retried), (5, 10));
        // A server thread that the machine kept waiting reads its request after the user has given up.
        let patience = std::time::Instant::now() + Duration::from_secs(60);
        while asked.load(Ordering::SeqCst) < 15 && std::time::Instant::now() < patience {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 15);
        for record in &ran.records {
            assert_eq!(record.tries, 3);
            assert!(record.latency_ns() >= 3000 * MS && record.latency_ns() < 30_000 * MS, "{record:?}");
        }
    }
}

#[test]
fn a_second_try_counts_from_the_first_start() {
    let asked = AtomicUsize::new(0);
    let target = server(move |stream| {
        let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        answer_all(stream, |id| {
            thread::sleep(Duration::from_millis(if first { 60_000 } else { 0 }));
            Some(answer(id))
        });
    });
    // The time that the second try has, on a busy machine too.
    let setup = Setup { abort_after_ns: Some(5000 * MS), retries_max: 1, ..setup(target) };
    let (ran, _) = drive(setup, steady(1, 0), Pace::Open, 20_000, 20_000);
    let record = &ran.records[0];
    assert_eq!((record.outcome, record.tries, record.flags), (Outcome::Answered, 2, 0));
    assert!(record.latency_ns() >= 5000 * MS, "{record:?}");
}

#[test]
fn users_who_wait_for_a_connection_give_up_too() {
    let hang = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let setup = Setup { abort_after_ns: Some(5000 * MS), connections_max: 1, ..setup(hang) };
    let (ran, whole) = drive(setup, steady(30, 0), Pace::Open, 10_000, 10_000);
    assert_eq!((count(&ran, Outcome::Aborted), flagged(&ran, QUEUED)), (30, 29));
    assert!(whole.duration_ns + whole.drain_ns < 9000 * MS);
}

#[test]
fn slow_readers_are_slow_and_bodies_whole() {
    // Files 9 to 17 have 1 to 9 KiB; at 10,000 bytes/s they take 0.1 to 0.9 s.
    let demand = || Steady { first: 9, ..steady(18, 0) };
    for pace in [Pace::Open, closed(9, 0)] {
        let setup = Setup { connections_max: 18, read_bytes_per_s: Some(10_000), ..setup(good_server()) };
        let (ran, _) = drive(setup, demand(), pace, 20_000, 20_000);
        assert_eq!(count(&ran, Outcome::Answered), 18);
        for record in &ran.records {
            let took_ns = record.last_byte_ns - record.first_byte_ns;
            let least_ns = record.body_bytes * 100_000;
            assert!(took_ns >= least_ns, "{record:?}");
        }
    }
}

#[test]
fn a_slow_reader_slows_the_server_down() {
    // 32 MiB at 32 MiB/s take a second. Of that the server can put some megabytes into the kernel's
    // buffers, and must wait with the rest.
    const BYTES: usize = 32 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = target(&listener);
    let serving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = request(&mut BufReader::new(stream.try_clone().unwrap()));
        let start = std::time::Instant::now();
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes());
        let _ = stream.write_all(&vec![b'x'; BYTES]);
        start.elapsed()
    });
    let file = Listed { path: "/large".into(), file_bytes: Some(BYTES as u64) };
    let setup = Setup {
        read_bytes_per_s: Some(BYTES as u64),
        catalogue: Arc::new(Catalogue::listed(vec![file])),
        ..setup(target)
    };
    let stream = Stream { setup, demand: Box::new(steady(1, 0)), pace: Pace::Open };
    let phase = Phase { duration_ns: 1, drain_max_ns: 20_000 * MS };
    let ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
    let record = ran.streams[0].records[0];
    assert_eq!(record.outcome, Outcome::Answered);
    assert!(record.last_byte_ns - record.first_byte_ns >= 1000 * MS);
    // Joined, because the reader may be done before the server has looked at its clock.
    let sent = serving.join().unwrap();
    assert!(sent > Duration::from_millis(400), "{sent:?}");
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
    let phase = Phase { duration_ns: 3_600_000 * MS, drain_max_ns: 3_600_000 * MS };
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
    let phase = Phase { duration_ns: 30_000 * MS, drain_max_ns: 5000 * MS };
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
fn refuses_what_it_has_no_room_for() {
    let bad = |change: fn(&mut Stream)| {
        let target = Target::parse("http://127.0.0.1:9", false).unwrap();
        let mut stream = Stream { setup: setup(target), demand: Box::new(steady(1, 0)), pace: Pace::Open };
        change(&mut stream);
        let phase = Phase { duration_ns: 1, drain_max_ns: 1 };
        run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap_err().exit_code()
    };
    assert_eq!(bad(|s| s.setup.abort_after_ns = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.requests_per_connection = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.read_bytes_per_s = Some(0)), 2);
    assert_eq!(bad(|s| s.setup.connections_max = 0), 2);
    assert_eq!(bad(|s| s.pace = closed(CLIENTS_MAX + 1, 0)), 2);
    let phase = Phase { duration_ns: 1, drain_max_ns: 1 };
    assert_eq!(run(Vec::new(), &phase, &Stop::default(), None).unwrap_err().exit_code(), 2);
}

/// Users who come back `times` times each, `think_ns` after their answer.
struct ComingBack {
    arrivals: Steady,
    times: u64,
    think_ns: u64,
    returned: u64,
}

impl Demand for ComingBack {
    fn next_due_ns(&self) -> Option<u64> {
        self.arrivals.next_due_ns()
    }

    fn take(&mut self) -> Option<Arrival> {
        self.arrivals.take()
    }

    fn next_path(&mut self) -> Option<u32> {
        Some(3)
    }

    fn has_returning_users(&self) -> bool {
        true
    }

    fn returns_ns(&mut self, answered_ns: u64) -> Option<u64> {
        let comes = self.returned < self.times * self.arrivals.count;
        self.returned += u64::from(comes);
        comes.then(|| answered_ns + self.think_ns)
    }
}

/// 10 users arrive at once, come back three times in all on average, and think for 20 ms.
fn coming_back(target: Target, duration_ms: u64) -> (StreamRan, Ran) {
    let demand = ComingBack { arrivals: steady(10, 0), times: 3, think_ns: 20 * MS, returned: 0 };
    let stream = Stream { setup: setup(target), demand: Box::new(demand), pace: Pace::Open };
    let phase = Phase { duration_ns: duration_ms * MS, drain_max_ns: 10_000 * MS };
    let mut ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
    (ran.streams.remove(0), ran)
}

#[test]
fn users_come_back_after_their_answer() {
    let (ran, whole) = coming_back(good_server(), 60_000);
    assert_eq!((ran.records.len(), count(&ran, Outcome::Answered)), (40, 40), "10 arrive, 30 come back");
    assert!(whole.duration_ns < 60_000 * MS, "it ends when no user is left");
    let back: Vec<_> = ran.records.iter().filter(|record| record.intended_ns > 0).collect();
    assert_eq!(back.len(), 30);
    for record in back {
        let answered = |other: &&Record| other.last_byte_ns + 20 * MS == record.intended_ns;
        assert!(ran.records.iter().any(|other| answered(&other)), "{record:?}");
        assert!(record.path_id == 3 && record.begun_ns >= record.intended_ns);
    }
}

#[test]
fn users_without_an_answer_and_those_after_the_end_do_not_come_back() {
    let busy = |_| Some(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_vec());
    let (ran, _) = coming_back(server(move |stream| answer_all(stream, busy)), 60_000);
    assert_eq!((ran.records.len(), count(&ran, Outcome::Status)), (10, 10));
    // They would come back 20 ms after their answers.
    let (ran, _) = coming_back(good_server(), 10);
    assert_eq!(ran.records.len(), 10);
}

#[test]
fn open_connections_are_counted_from_the_start_to_the_end() {
    let hang = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let (ran, whole) = drive(setup(hang), steady(5, 0), Pace::Open, 1000, 1000);
    assert_eq!(ran.open[0], OpenConnections::default(), "the first look comes before the first request");
    let looks = (whole.duration_ns + whole.drain_ns) / crate::record::OPEN_STEP_NS + 1;
    assert_eq!(ran.open.len() as u64, looks);
    let last = ran.open.last().unwrap();
    assert_eq!((last.established, last.connecting), (5, 0));
}

#[test]
fn a_user_who_gives_up_while_connecting_reloads_with_a_new_attempt() {
    // The queue of a listener that accepts nothing takes a few connections; SYNs after these are dropped.
    let listener = flash_prompt::net::listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    let address = flash_prompt::net::local_address(&listener).unwrap();
    let target = Target::parse(&format!("http://{address}"), false).unwrap();
    let patient = Setup { abort_after_ns: Some(200 * MS), retries_max: 2, ..setup(target) };
    let (ran, _) = drive(patient, steady(8, 0), Pace::Open, 2000, 10_000);
    assert_eq!((ran.records.len(), count(&ran, Outcome::Aborted), ran.retried), (8, 8, 16));
    assert!(ran.records.iter().all(|record| record.tries == 3 && record.latency_ns() >= 600 * MS));
    let never = ran.records.iter().filter(|record| record.connected_ns == NEVER_NS).count();
    assert!(never > 0, "not all were taken into the queue");
    let last = ran.open.last().unwrap();
    assert!(last.connecting <= 8, "{last:?}: an attempt that was given up is closed");
}
