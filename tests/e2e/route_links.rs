//! Connections to the servers of routes: whose requests they carry, how long they are kept, and what is left of them.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use crate::harness::upstream::{Peer, Upstream, ok, proxy, start};
use crate::harness::{Folder, kill, skip, wait_until};

#[test]
fn a_request_that_ends_its_server_is_sent_to_no_other() {
    let folder = Folder::with_hello();
    let crashes = Arc::new(AtomicUsize::new(0));
    let servers: Vec<_> = (0..4)
        .map(|_| {
            let crashes = Arc::clone(&crashes);
            Upstream::tcp().run(move |mut peer| {
                while let Ok(request) = peer.receive() {
                    if request.target() == "/app/crash" {
                        crashes.fetch_add(1, Ordering::AcqRel);
                        return;
                    }
                    peer.send(ok(request.target()));
                }
            })
        })
        .collect();
    let addresses: Vec<&str> = servers.iter().map(|server| server.address.as_str()).collect();
    let server = start(&folder, &format!("[[route]]\nprefix = \"/app/\"\nproxy = {addresses:?}\n"));
    assert_eq!(Peer::client(&server).get("/app/crash").status(), 502);
    assert_eq!(crashes.load(Ordering::Acquire), 1);
    // Over links that were used, one new link is the most.
    for _ in 0..8 {
        assert_eq!(Peer::client(&server).get("/app/x").brief(), (200, "/app/x".into()));
    }
    assert_eq!(Peer::client(&server).get("/app/crash").status(), 502);
    assert_eq!(crashes.load(Ordering::Acquire), 3);
}

#[test]
fn bytes_on_an_idle_link_are_nobodys_answer() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    let worker = server.sole("worker");
    let (mut first, mut second) = (Peer::client(&server), Peer::client(&server));
    first.ask("/app/first");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/first");
    peer.send(ok("first"));
    assert_eq!(first.message().text(), "first");
    // The worker hears of the request and of the bytes at once.
    kill("STOP", worker);
    second.ask("/app/second");
    peer.send(ok("poison"));
    kill("CONT", worker);
    let mut fresh = upstream.accept();
    assert_eq!(fresh.message().target(), "/app/second");
    fresh.send(ok("second"));
    assert_eq!(second.message().text(), "second");
    peer.assert_ended();
}

#[test]
fn as_many_links_are_kept_as_requests_were_under_way() {
    const CLIENTS: usize = 40;
    let folder = Folder::with_hello();
    let together = Arc::new(Barrier::new(CLIENTS));
    let upstream = Upstream::tcp().answer(move |request| {
        together.wait();
        ok(request.target())
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    let mut clients: Vec<Peer> = (0..CLIENTS).map(|_| Peer::client(&server)).collect();
    for round in 0..5 {
        let target = format!("/app/{round}");
        clients.iter_mut().for_each(|client| client.ask(&target));
        for client in &mut clients {
            assert_eq!(client.message().brief(), (200, target.clone()));
        }
    }
    assert_eq!(upstream.connections(), CLIENTS);
}

/// A record of FastCGI.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// Answers one FastCGI request, and leaves the connection to Flash.
fn answer_by_fastcgi(mut peer: Peer) {
    const STDIN: u8 = 5;
    loop {
        let header = peer.exactly(8);
        let length = usize::from(u16::from_be_bytes([header[4], header[5]])) + usize::from(header[6]);
        peer.exactly(length);
        if header[1] == STDIN && length == 0 {
            break;
        }
    }
    peer.send([record(6, b"Content-Type: text/plain\r\n\r\nok"), record(3, &[0; 8])].concat());
    peer.wait_for_end();
}

/// States of connections in `/proc/net/tcp` (`include/net/tcp_states.h`).
const ESTABLISHED: &str = "01";
const TIME_WAIT: &str = "06";

/// How many connections with this port, at either end, are in a state.
fn connections(port: u16, state: &str) -> usize {
    let table = fs::read_to_string("/proc/net/tcp").expect("a table");
    let suffix = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[3] == state && (words[1].ends_with(&suffix) || words[2].ends_with(&suffix))
    };
    table.lines().skip(1).filter(is_one).count()
}

#[test]
fn links_that_are_not_kept_leave_no_port_in_use() {
    let folder = Folder::with_hello();
    folder.www("x.php", "the test answers for it");
    let fastcgi = Upstream::tcp().run(answer_by_fastcgi);
    let http = Upstream::tcp().answer(|request| ok(request.target()));
    let routes = format!("[[route]]\nextension = \"php\"\nfastcgi = {:?}\n", fastcgi.address)
        + &proxy("/app/", &http.address, "idle_max = 0");
    let server = start(&folder, &routes);
    let ports = [&fastcgi, &http].map(|upstream| {
        let (_, port) = upstream.address.rsplit_once(':').expect("a port");
        port.parse().expect("a number")
    });
    // An earlier owner of the port can have left some.
    let before = ports.map(|port| connections(port, TIME_WAIT));
    // Requests that must not be repeated get a new connection each.
    for _ in 0..20 {
        assert_eq!(Peer::client(&server).post("/x.php", b"").brief(), (200, "ok".into()));
        assert_eq!(Peer::client(&server).post("/app/x", b"").brief(), (200, "/app/x".into()));
    }
    assert_eq!([fastcgi.connections(), http.connections()], [20, 20]);
    wait_until("the connections to end", || ports.iter().all(|port| connections(*port, ESTABLISHED) == 0));
    for (port, before) in ports.into_iter().zip(before) {
        let now = connections(port, TIME_WAIT);
        assert!(now <= before, "{now} connections of port {port}, and {before} before");
    }
}

#[test]
fn a_gateway_without_descriptors_is_no_fault_of_a_server() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp().answer(|request| ok(request.target()));
    let server = start(&folder, &proxy("/app/", &upstream.address, "idle_max = 0"));
    let gateway = server.sole("gateway").to_string();
    let limit = |files: &str| {
        let words = ["--pid", &gateway, &format!("--nofile={files}:")];
        Command::new("prlimit").args(words).status().is_ok_and(|status| status.success())
    };
    assert_eq!(Peer::client(&server).get("/app/x").status(), 200);
    if !limit("3") {
        return skip("needs prlimit");
    }
    for _ in 0..10 {
        assert_eq!(Peer::client(&server).post("/app/x", b"").status(), 503);
    }
    server.wait_for_stderr("cannot connect to servers of routes: Too many open files");
    assert!(limit("1000"));
    // No pause follows.
    assert_eq!(Peer::client(&server).get("/app/x").brief(), (200, "/app/x".into()));
    assert!(!server.stderr().contains(&upstream.address), "{}", server.stderr());
}

#[test]
fn a_gateway_that_hangs_costs_the_time_to_connect() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp().answer(|request| ok(request.target()));
    let server = start(&folder, &proxy("/app/", &upstream.address, "connect_timeout = \"200ms\""));
    let gateway = server.sole("gateway");
    kill("STOP", gateway);
    assert_eq!(Peer::client(&server).get("/app/x").status(), 504);
    kill("CONT", gateway);
    wait_until("an answer", || Peer::client(&server).get("/app/x").status() == 200);
    assert!(!server.stderr().contains(&upstream.address), "{}", server.stderr());
}
