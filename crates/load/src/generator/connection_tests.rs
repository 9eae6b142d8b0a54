//! Runs that show what becomes of connections and of the answers on them.

use super::*;
use crate::record::OpenConnections;

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
fn open_connections_are_counted_from_the_start_to_the_end() {
    let hang = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let (ran, whole) = drive(setup(hang), steady(5, 0), Pace::Open, 1000, 1000);
    assert_eq!(ran.open[0], OpenConnections::default(), "the first look comes before the first request");
    let looks = (whole.duration_ns + whole.drain_ns) / crate::record::OPEN_STEP_NS + 1;
    assert_eq!(ran.open.len() as u64, looks);
    let last = ran.open.last().unwrap();
    assert_eq!((last.established, last.connecting), (5, 0));
}
