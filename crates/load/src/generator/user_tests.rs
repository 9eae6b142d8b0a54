//! Runs with users: clients of closed loops, users who give up, come back or read slowly.

use std::cell::Cell;
use std::sync::Barrier;

use super::*;
use crate::workload::catalogue::Listed;

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
    // 32 MiB at 32 MiB/s take a second. The server can put some megabytes into the kernel's
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
    let phase = Phase::new(1, 20_000 * MS);
    let ran = run(vec![vec![stream]], &phase, &Stop::default(), None).unwrap();
    let record = ran.streams[0].records[0];
    assert_eq!(record.outcome, Outcome::Answered);
    assert!(record.last_byte_ns - record.first_byte_ns >= 1000 * MS);
    // Joined, because the reader may be done before the server has looked at its clock.
    let sent = serving.join().unwrap();
    assert!(sent > Duration::from_millis(400), "{sent:?}");
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
    let phase = Phase::new(duration_ms * MS, 10_000 * MS);
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
