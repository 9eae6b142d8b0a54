//! The settings that decide whose bytes go to the network first: they work within each architecture's sandbox, and clients get the same bytes.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{Folder, Launch, adapted, pattern, skips, stats_at, wait_for, wait_until};

#[test]
fn srpt_gives_connections_the_band_of_their_response() {
    let folder = Folder::with_hello();
    let large = pattern(300_000, 1);
    folder.www("large", &large);
    let path = folder.path("control.sock");
    let cutoffs = ["--srpt-cutoffs", "10kB", "--srpt-cutoffs", "100kB"];
    let launch = Launch::new(&folder).args(["--schedule", "srpt", "--srpt-dscp"]).args(cutoffs);
    let server = launch.arg("--control").arg(&path).start();
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
        assert!(client.get("/large").body == large);
    }
    drop(client);
    let schedule = wait_for("the answers in their bands", || {
        let schedule = stats_at(&path)["sum"]["schedule"].clone();
        let answers = |band: usize| schedule["bands"][band]["answers"].as_u64();
        (answers(0) == Some(2) && answers(2) == Some(2)).then_some(schedule)
    });
    assert_eq!(schedule["cutoffs"], serde_json::json!([10_000, 100_000]));
    let changes = schedule["changes"].as_u64().unwrap();
    // Each large answer passes all bands, unless its last piece is larger than one.
    assert!((3..=8).contains(&changes), "{schedule}");
    let bytes = |band: &Value| band["bytes"].as_u64().unwrap();
    let sent: u64 = schedule["bands"].as_array().unwrap().iter().map(bytes).sum();
    assert!(sent > 600_000, "{schedule}");
}

#[test]
fn a_capped_connection_gets_every_byte() {
    let folder = Folder::with_hello();
    let large = pattern(700_000, 2);
    folder.www("large", &large);
    let server = Launch::new(&folder).args(["--cwnd-cap", "16KiB"]).start();
    let mut client = server.client();
    for _ in 0..2 {
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
        assert!(client.get("/large").body == large);
    }
}

#[test]
fn a_connection_gets_no_more_than_its_rate() {
    let folder = Folder::with_hello();
    // The kernel spaces all packets but the first ten of a connection, which have 64 KiB each at most here.
    let large = pattern(1_600_000, 5);
    folder.www("large", &large);
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n";
    let [slow, quick] = [8, 800].map(|rate| format!("{config}connection_rate = \"{rate}Mbit\"\n"));
    let server = Launch::configured(&folder, &slow).start();
    let get_slowly = || {
        let began = Instant::now();
        assert!(server.client().get("/large").body == large);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(800), "a connection of 8 Mbit/s carried 1.6 MB in {took:?}");
    };
    get_slowly();
    for (number, text) in [quick, slow].iter().enumerate() {
        folder.write("flash.toml", adapted(text));
        server.signal("HUP");
        wait_until("the next configuration", || server.in_force().len() > number);
        assert!(server.client().get("/large").body == large);
    }
    get_slowly();
}

#[test]
fn workers_together_send_no_faster_than_a_rule_lets_them() {
    let folder = Folder::with_hello();
    let large = pattern(1_000_000, 5);
    folder.www("videos/large", &large);
    let rule = "[[rule]]\npath = \"/videos/*\"\ntotal_bandwidth = \"8Mbit\"\n";
    let config = format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 2\n{rule}");
    let server = Launch::configured(&folder, &adapted(&config)).start();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert!(server.get("/videos/large").body == large));
        }
        assert_eq!(server.get("/hello.txt").text(), "hello\n");
    });
    // A quarter of a second's bytes go at once.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_500), "8 Mbit/s carried 2 MB in {took:?}");
}

#[test]
fn answers_share_an_uplink_of_known_rate() {
    if skips(&["mp", "mt"], "only event loops see all connections") {
        return;
    }
    let folder = Folder::with_hello();
    let large = pattern(600_000, 3);
    folder.www("large", &large);
    let server = Launch::new(&folder).args(["--egress", "10Mbit"]).start();
    assert!(server.client().get("/large").body == large);
    let mut first = server.client();
    first.ask("/large");
    assert_eq!(server.client().get("/hello.txt").text(), "hello\n");
    assert!(first.page().body == large);
}

#[test]
fn workers_together_send_no_faster_than_their_uplink() {
    if skips(&["mp", "mt"], "only event loops see all connections") {
        return;
    }
    let folder = Folder::with_hello();
    let large = pattern(300_000, 4);
    folder.www("large", &large);
    let server = Launch::with_workers(&folder, 3).args(["--egress", "10Mbit"]).start();
    let began = Instant::now();
    // The kernel chooses a worker for each of these.
    let mut clients: Vec<_> = (0..6).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.ask("/large"));
    for client in &mut clients {
        assert!(client.page().body == large);
    }
    // 1.8 MB at 10 Mbit/s are 1.44 s, of which each worker can have sent 4 ms at once, at first or on another's behalf.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_300), "the uplink carried 1.8 MB in {took:?}");
}
