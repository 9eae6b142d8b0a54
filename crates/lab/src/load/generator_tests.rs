//! The generator against small servers that do what real ones do on bad days.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::*;
use crate::fileset::content;
use crate::load::tally::Fault;
use crate::target::Target;

const SEED: u64 = 11;

/// Serves each connection by `serve` on a thread of its own; gives the server.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    Target::parse(&url, false).unwrap()
}

/// Reads one request head; gives the number of the file that it asks for.
fn request(reader: &mut impl BufRead) -> Option<u32> {
    let (mut first, mut line) = (String::new(), String::new());
    reader.read_line(&mut first).ok().filter(|&n| n > 0)?;
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    let path = first.split(' ').nth(1)?;
    (0..36 * 4).find(|&id| path.ends_with(&crate::fileset::layout::File::from_path_id(id).path()))
}

/// The right answer for a file.
fn answer(path_id: u32) -> Vec<u8> {
    let mut body = Vec::new();
    content::fill(SEED, path_id, &mut body);
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

/// Asks for small files over at most 8 connections.
fn drive(target: Target, arrivals: Arrivals, drain_ms: u64) -> (Tally, Report) {
    let setup = Setup { target, connections_max: 8, verify_seed: Some(SEED) };
    let mut generator = Generator::new(vec![setup]).unwrap();
    let mut next = 0;
    let choose = Box::new(move || {
        next = (next + 1) % 18;
        next
    });
    let report = generator.run(&mut [Flow { arrivals, choose }], drain_ms * 1_000_000).unwrap();
    (generator.take_tally(0), report)
}

fn at_once(left: u64) -> Arrivals {
    Arrivals::AtOnce { left }
}

#[test]
fn counts_proper_answers() {
    let target = server(|stream| answer_all(stream, |id| Some(answer(id))));
    let (tally, _) = drive(target, at_once(200), 10_000);
    assert_eq!((tally.asked, tally.answered, tally.failed()), (200, 200, 0), "{:?}", tally.faults);
    assert_eq!(tally.queued, 192, "8 connections may be opened, the other arrivals wait");
    assert_eq!(tally.latency_ns.len(), 200);
}

#[test]
fn an_open_loop_shows_a_stall_in_every_percentile_it_touched() {
    // 500 requests in a second; the server stalls for 600 ms at the first and then goes on. All
    // who came meanwhile waited for what was left of it: 600 ms times a uniform share, so at
    // least a quarter of all requests waited for 300 ms and more.
    let gate = Arc::new(Mutex::new(()));
    let first = Arc::new(AtomicUsize::new(0));
    let target = server(move |stream| {
        let (gate, first) = (Arc::clone(&gate), Arc::clone(&first));
        answer_all(stream, move |id| {
            let _held = gate.lock().unwrap();
            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                thread::sleep(Duration::from_millis(600));
            }
            Some(answer(id))
        });
    });
    let (tally, report) = drive(target, Arrivals::poisson(1, 500.0, 1_000_000_000), 10_000);
    assert_eq!(tally.answered, tally.asked);
    assert!(tally.queued > 200, "{}", tally.queued);
    let at = |q: f64| tally.latency_ns.value_at_quantile(q) / 1_000_000;
    assert!(at(1.0) >= 595, "max {} ms", at(1.0));
    assert!((250..500).contains(&at(0.75)), "p75 {} ms", at(0.75));
    assert!(report.late_ns.value_at_quantile(0.5) < 5_000_000, "the stall must not delay arrivals");
}

#[test]
fn refused_and_hanging_servers_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (tally, _) = drive(Target::parse(&url, false).unwrap(), at_once(20), 5_000);
    assert_eq!(tally.faults.get(&Fault::Refused), Some(&20));

    let hanging = server(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    let (tally, report) = drive(hanging, at_once(20), 200);
    assert_eq!(tally.faults.get(&Fault::Unanswered), Some(&20));
    assert_eq!(tally.latency_ns.len(), 20, "the time that they waited counts");
    assert!(tally.latency_ns.min() >= 190_000_000 && report.drain_ns >= 200_000_000);
}

/// The faults that a server earns that ends each connection after one reply, made by `reply`.
fn faults(reply: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Vec<(Fault, u64)> {
    let target = server(move |mut stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let _ = request(&mut reader).map(|id| stream.write_all(&reply(id)));
    });
    let (tally, _) = drive(target, at_once(5), 5_000);
    assert_eq!(tally.answered + tally.failed(), tally.asked);
    tally.faults.into_iter().collect()
}

#[test]
fn bad_answers_are_counted_by_kind() {
    assert_eq!(faults(|_| b"NOT HTTP\r\n\r\n".to_vec()), [(Fault::Garbage, 5)]);
    assert_eq!(faults(|_| b"HTTP/1.1 200 OK\r\n\r\nabc".to_vec()), [(Fault::NoLength, 5)]);
    let wrong_file = faults(|id| answer((id + 1) % 18));
    assert!(wrong_file.iter().any(|f| f.0 == Fault::WrongLength), "{wrong_file:?}");
    let length = |id: u32| answer(id).len();
    assert_eq!(faults(move |id| answer(id)[..length(id) - 1].to_vec()), [(Fault::ClosedEarly, 5)]);
    let flipped = |id: u32| {
        let mut bytes = answer(id);
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    assert_eq!(faults(flipped), [(Fault::WrongContent, 5)]);
    let busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno";
    assert_eq!(faults(|_| busy.to_vec()), [(Fault::Status(503), 5)]);
}

#[test]
fn asks_again_when_an_idle_connection_was_closed_under_it() {
    // Each connection answers one request as if it would stay, and ends as the next one comes.
    let target = server(|stream| {
        let told = AtomicUsize::new(0);
        answer_all(stream, move |id| (told.fetch_add(1, Ordering::SeqCst) == 0).then(|| answer(id)));
    });
    let (tally, _) = drive(target, Arrivals::poisson(2, 200.0, 500_000_000), 5_000);
    assert_eq!(tally.answered, tally.asked, "{:?}", tally.faults);
    assert!(tally.retried > 0);
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
    let (tally, _) = drive(target, at_once(50), 5_000);
    assert_eq!((tally.answered, tally.retried, tally.failed()), (50, 0, 0));
}
