//! Servers that refuse, reset, hang, close early, send wrong lengths or garbage: what went wrong is
//! counted by its kind, and no run outlasts its time.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{Folder, flash, run_json};

const GOOD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A server that answers the first request properly and treats all later ones, which it has not
/// received yet, with `later`. Its thread ends with the test program.
fn server(later: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let asked = std::sync::Arc::new(AtomicU32::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (asked, later) = (asked.clone(), later.clone());
            thread::spawn(move || {
                let mut stream = stream;
                let mut request = [0; 4096];
                while stream.peek(&mut request).is_ok_and(|length| length > 0) {
                    if asked.fetch_add(1, Ordering::SeqCst) > 0 {
                        return later(stream);
                    }
                    let _ = stream.read(&mut request);
                    if stream.write_all(GOOD).is_err() {
                        return;
                    }
                }
            });
        }
    });
    url
}

/// Longer than any of these servers takes, however busy the machine is; a run ends as soon as nothing is open.
const LONG: &str = "30s";

/// Receives the request, so that closing later does not reset the connection.
fn receive(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
}

/// Loads a server for a second; gives the counts of failures by kind. A run waits this long for what is open at its end.
#[track_caller]
fn failures(
    drain: &str,
    later: impl Fn(TcpStream) + Send + Sync + Clone + 'static,
) -> serde_json::Map<String, serde_json::Value> {
    let url = server(later);
    let folder = Folder::new();
    let out = folder.text("out");
    let words = ["load", &url, "--rate", "40", "--duration", "1s", "--warm-up", "0s", "--out", &out];
    let ended = flash(words.iter().chain(&["--drain", drain]).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(folder.path("out/report.html").exists());
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    let counts = &level["counts"];
    let failed = counts["failed"].as_object().unwrap().clone();
    let all: u64 = failed.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(all + counts["answered"].as_u64().unwrap(), counts["asked"].as_u64().unwrap(), "{counts}");
    assert!(all > 10, "{counts}");
    failed
}

#[test]
fn hangs() {
    // For longer than `flash` is waited for: a run that waited for the server would be noticed.
    let failed = failures("1s", |_stream| thread::sleep(Duration::from_secs(600)));
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["unanswered"]);
}

#[test]
fn closes_early() {
    let failed = failures(LONG, |mut stream| {
        receive(&mut stream);
        let _ = stream.write_all(&GOOD[..GOOD.len() - 2]);
    });
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["closed early"]);
}

#[test]
fn resets() {
    // Closed with something unread, a connection is reset (RFC 1122 §4.2.2.13).
    let failed = failures(LONG, drop);
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["reset"]);
}

#[test]
fn sends_garbage() {
    let failed = failures(LONG, |mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\r\n");
        thread::sleep(Duration::from_secs(2));
    });
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["garbage"]);
}

#[test]
fn sends_more_than_it_said() {
    let failed = failures(LONG, |mut stream| {
        let _ = stream.write_all(&[GOOD, b"and more"].concat());
        thread::sleep(Duration::from_secs(2));
    });
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["garbage"]);
}

#[test]
fn fails_with_a_status() {
    let failed = failures(LONG, |mut stream| {
        receive(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["status 503"]);
}

/// A server that stalls for 2 s shows it in every percentile that the stall touches: latency counts
/// from the intended start.
#[test]
fn a_stall_shows_in_every_percentile_that_it_touches() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    thread::spawn(move || {
        // The stall counts from the first client: a busy machine may take its time to start one.
        let first = OnceLock::new();
        let stall = Duration::from_secs(2);
        for stream in listener.incoming().flatten() {
            let started = *first.get_or_init(Instant::now);
            thread::spawn(move || {
                let mut stream = stream;
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|length| length > 0) {
                    // From 2 s to 4 s after its first client the server answers nobody.
                    let since = started.elapsed();
                    if since > stall && since < 2 * stall {
                        thread::sleep(2 * stall - since);
                    }
                    if stream.write_all(GOOD).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let folder = Folder::new();
    let out = folder.text("out");
    // One connection only: all that arrive in the stall wait behind one request.
    let words = ["load", &url, "--rate", "100", "--arrivals", "fixed", "--duration", "8s", "--drain", "5s"];
    let more = ["--warm-up", "0s", "--connections", "1", "--out", &out];
    let ended = flash(words.iter().chain(&more).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    let counts = &level["counts"];
    assert_eq!(counts["answered"], 800, "{counts}");
    assert!(counts["queued"].as_u64().unwrap() >= 150, "{counts}");
    // A quarter of the requests, 200 of 800, were meant to start in the stall; the k-th of them waited
    // 2 s - k × 10 ms. So a share s of the slowest waited at least 2 s × (1 - 4 s).
    let ms = |name: &str| level["latency"][name].as_f64().unwrap();
    for (name, slowest_share) in [("p90_ms", 0.10), ("p95_ms", 0.05), ("p99_ms", 0.01), ("p999_ms", 0.001)] {
        let expected_ms = 2000.0 * (1.0 - 4.0 * slowest_share);
        assert!(ms(name) > expected_ms - 150.0, "{name}: {} of {expected_ms}", ms(name));
    }
    assert!(ms("max_ms") > 1850.0);
}
