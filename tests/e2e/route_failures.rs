//! Servers of routes that are dead, silent or broken cost their own requests only, and leave nothing behind.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::harness::documented::block;
use crate::harness::upstream::{Ended, Peer, Running, Upstream, framed, ok, post_head, proxy, start};
use crate::harness::{Folder, Server, film, kill, not_http2, pattern, wait_until};

/// An address of this machine at which no process listens.
const DEAD: &str = "127.0.0.1:1";

/// Checks that files and another route are served.
#[track_caller]
fn assert_serves(server: &Server) {
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    assert_eq!(server.get("/unheard-of").status, 404);
    assert_eq!(Peer::client(server).get("/sound/x").brief(), (200, "/sound/x".into()));
}

/// An upstream in order, for `/sound/`.
fn sound() -> (Running, String) {
    let upstream = Upstream::tcp().answer(|request| ok(request.target()));
    let route = proxy("/sound/", &upstream.address, "");
    (upstream, route)
}

#[test]
fn a_dead_server_is_502_and_reported() {
    let folder = Folder::with_hello();
    let (_sound, route) = sound();
    let no_socket = format!("unix:{}", folder.path("not-there.sock").display());
    let routes = route + &proxy("/dead/", DEAD, "") + &proxy("/nowhere/", &no_socket, "");
    let server = start(&folder, &routes);
    let mut client = server.client();
    for (target, address, why) in
        [("/dead/x", DEAD, "Connection refused"), ("/nowhere/x", &no_socket, "No such file or directory")]
    {
        for _ in 0..5 {
            // The strict client checks the page and its fields.
            let page = client.get(target);
            assert_eq!(page.status, 502, "{target}");
            assert!(page.must("Content-Type").starts_with("text/html"), "{page:?}");
            assert!(
                page.text().contains("502") && page.text().contains("cannot be reached"),
                "{}",
                page.text()
            );
        }
        server.wait_for_stderr(&format!("upstream {address}: cannot connect: {why}"));
    }
    assert_serves(&server);
}

#[test]
fn with_one_dead_server_of_two_every_request_succeeds() {
    let folder = Folder::with_hello();
    let alive = Upstream::tcp().answer(|request| ok(format!("{} {}", request.target(), request.text())));
    let route = format!("[[route]]\nprefix = \"/app/\"\nproxy = [{DEAD:?}, {:?}]\n", alive.address);
    let server = start(&folder, &route);
    for number in 0..20 {
        let target = format!("/app/{number}");
        assert_eq!(Peer::client(&server).get(&target).brief(), (200, format!("{target} ")));
        assert_eq!(Peer::client(&server).post(&target, b"body").brief(), (200, format!("{target} body")));
    }
    // At once, so that one server alone has not the fewest requests all the time.
    let mut clients: Vec<Peer> = (0..40).map(|_| Peer::client(&server)).collect();
    clients.iter_mut().for_each(|client| client.send(framed(&post_head("/app/many"), b"body", None)));
    for client in &mut clients {
        assert_eq!(client.message().brief(), (200, "/app/many body".into()));
    }
    let documented = block("docs/applications.md", "with_one_dead_server_of_two_every_request_succeeds");
    server.wait_for_stderr(&documented.replace("127.0.0.1:3000", DEAD));
    assert!(!server.stderr().contains(&alive.address), "{}", server.stderr());
}

/// The number of open descriptors of a process.
fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// How often an upstream misbehaves: a leak of one descriptor each time is more than other things vary.
const ROUNDS: usize = 12;

/// Starts a server with a route to this misbehaving upstream, checks what its clients get, and that nothing is left behind.
#[track_caller]
fn misbehaves(serve: impl Fn(Peer) + Send + Sync + 'static, check: impl Fn(&Server)) {
    let folder = Folder::with_hello();
    let (_sound, route) = sound();
    let upstream = Upstream::tcp().run(serve);
    let server = start(&folder, &(route + &proxy("/bad/", &upstream.address, "")));
    assert_serves(&server);
    let pids = [server.sole("worker"), server.sole("gateway")];
    let before = pids.map(descriptors);
    for _ in 0..ROUNDS {
        check(&server);
        assert_serves(&server);
    }
    assert!(upstream.connections() >= ROUNDS);
    wait_until("the descriptors to be closed", || {
        pids.map(descriptors).iter().zip(before).all(|(now, before)| *now < before + ROUNDS)
    });
    assert_eq!([server.sole("worker"), server.sole("gateway")], pids, "none of them was replaced");
    server.wait_for_stderr(&format!("upstream {}: ", upstream.address));
}

#[track_caller]
fn assert_bad_gateway(server: &Server) {
    let page = server.get("/bad/get");
    assert!(page.status == 502 && page.text().contains("did not answer properly"), "{page:?}");
    assert_eq!(Peer::client(server).post("/bad/post", b"body").status(), 502);
}

#[test]
fn a_server_that_closes_without_an_answer_is_502() {
    misbehaves(|mut peer| drop(peer.receive()), assert_bad_gateway);
    misbehaves(drop, assert_bad_gateway);
}

#[test]
fn a_server_that_resets_without_an_answer_is_502() {
    misbehaves(
        |mut peer| {
            let _ = peer.receive();
            peer.reset();
        },
        assert_bad_gateway,
    );
}

#[test]
fn garbage_is_502() {
    misbehaves(
        |mut peer| {
            let _ = peer.receive();
            let _ = peer.try_send([&b"\x16\x03\x01\0\r\n\r\n"[..], &pattern(100_000, 1)].concat());
            peer.wait_for_end();
        },
        assert_bad_gateway,
    );
}

#[test]
fn an_endless_head_is_502() {
    misbehaves(
        |mut peer| {
            let _ = peer.receive();
            let mut sent = peer.try_send("HTTP/1.1 200 OK\r\n");
            while sent.is_ok() {
                sent = peer.try_send(format!("X-More: {}\r\n", "x".repeat(1_000)));
            }
        },
        assert_bad_gateway,
    );
}

#[test]
fn a_reset_within_an_answer_cuts_it() {
    for chunk_bytes in [None, Some(10_000)] {
        // The upstream resets when the client has the beginning: a reset can destroy bytes on their way.
        let barrier = Arc::new(Barrier::new(2));
        let met = barrier.clone();
        misbehaves(
            move |mut peer| {
                let _ = peer.receive();
                let answer = framed("HTTP/1.1 200 OK\r\n", &pattern(1_000_000, 2), chunk_bytes);
                peer.send(&answer[..50_000]);
                met.wait();
                peer.reset();
            },
            |server| {
                let mut client = Peer::client(server);
                client.ask("/bad/cut");
                assert_eq!(client.head().unwrap().status(), 200);
                let mut got = client.exactly(1_000);
                barrier.wait();
                got.extend(client.rest());
                // A client cannot take it for complete: it is shorter than its length, or has no last chunk.
                assert!(got.len() < 1_000_000 && !got.ends_with(b"\r\n0\r\n\r\n"), "{}", got.len());
                assert!(chunk_bytes.is_some() || pattern(1_000_000, 2).starts_with(&got));
            },
        );
    }
}

#[test]
fn an_answer_that_ends_early_is_cut() {
    for chunk_bytes in [None, Some(10_000)] {
        misbehaves(
            move |mut peer| {
                let _ = peer.receive();
                let answer = framed("HTTP/1.1 200 OK\r\n", &pattern(300_000, 3), chunk_bytes);
                let _ = peer.try_send(&answer[..answer.len() - 7]);
            },
            |server| {
                let mut client = Peer::client(server);
                client.ask("/bad/cut");
                match client.receive() {
                    Err(Ended::InBody(part)) => {
                        assert_eq!(part.status(), 200);
                        assert!(pattern(300_000, 3).starts_with(&part.body), "{}", part.body.len());
                        client.assert_ended();
                    }
                    other => panic!("not cut: {other:?}"),
                }
            },
        );
    }
}

#[test]
fn an_answer_before_the_end_of_the_body_reaches_a_client_that_still_sends() {
    if not_http2("its connections always persist") {
        return;
    }
    let folder = Folder::with_hello();
    let (_sound, route) = sound();
    let upstream = Upstream::tcp().run(|mut peer| {
        let _ = peer.head();
        // Closed with unread bytes, so the connection is reset.
        let _ = peer.try_send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    });
    let server = start(
        &folder,
        &(route + &proxy("/bad/", &upstream.address, "body_max = \"1GiB\"\nstream_bodies = true")),
    );
    assert_serves(&server);
    let pids = [server.sole("worker"), server.sole("gateway")];
    let before = pids.map(descriptors);
    for round in 0..ROUNDS {
        let mut client = Peer::client(&server);
        let mut sender = client.sender();
        let chunk_bytes = (round % 2 == 0).then_some(30_000);
        // More than the sockets hold, so that a part of it is always left.
        let request = framed(&post_head("/bad/early"), film(), chunk_bytes);
        // The sending fails when the connection ends.
        let sends = std::thread::spawn(move || drop(std::io::Write::write_all(&mut sender, &request)));
        let answer = client.message();
        assert_eq!(answer.brief(), (403, "no".into()));
        assert_eq!(answer.field("Connection"), Some("close"));
        client.wait_for_end();
        sends.join().unwrap();
        assert_serves(&server);
    }
    drop(upstream);
    wait_until("the descriptors to be closed", || {
        pids.map(descriptors).iter().zip(before).all(|(now, before)| *now < before + ROUNDS)
    });
}

#[test]
fn a_server_that_says_nothing_is_504() {
    let folder = Folder::with_hello();
    let (_sound, route) = sound();
    let upstream = Upstream::tcp();
    let routes = route + &proxy("/silent/", &upstream.address, "answer_timeout = \"1s\"");
    let server = start(&folder, &routes);
    let mut client = server.client();
    client.ask("/silent/x");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/silent/x");
    let page = client.page();
    assert!(page.status == 504 && page.text().contains("did not answer in time"), "{page:?}");
    peer.assert_ended();
    server.wait_for_stderr(&format!("upstream {}: The server said nothing for too long", upstream.address));
    // The client's connection continues. A server that stops within its answer costs the connection.
    client.ask("/silent/y");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/silent/y");
    peer.send(
        "HTTP/1.1 200 OK\r\nContent-Type: x\r\nX-Content-Type-Options: x\r\nContent-Length: 9\r\n\r\nabc",
    );
    assert!(client.receive(crate::harness::Answer::Whole).is_err());
    peer.assert_ended();
    assert_serves(&server);
}

/// Fills the backlog of a listener: the kernel then drops further connections without an answer.
#[track_caller]
fn fill(listener: &TcpListener) -> Vec<TcpStream> {
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the kernel does not bound the backlog");
    }
    waiting
}

#[test]
fn a_server_that_accepts_no_connection_costs_its_requests_only() {
    let folder = Folder::with_hello();
    let (_sound, route) = sound();
    let listening: OwnedFd = flash_prompt::net::listen("127.0.0.1:0".parse().unwrap(), 0).unwrap();
    let listener = TcpListener::from(listening);
    let waiting = fill(&listener);
    let upstream = Upstream::of_tcp(listener);
    let routes = route + &proxy("/full/", &upstream.address, "connect_timeout = \"1s\"");
    let server = start(&folder, &routes);
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.ask("/full/x"));
    assert_serves(&server);
    for client in &mut clients {
        let page = client.page();
        assert!(page.status == 504 && page.text().contains("did not answer in time"), "{page:?}");
    }
    // The gateway and the worker both watch the time.
    let whys = ["cannot connect: Connection timed out", "The connection was not made in time"];
    wait_until("a report", || {
        whys.iter().any(|why| server.stderr().contains(&format!("upstream {}: {why}", upstream.address)))
    });
    assert_serves(&server);
    drop(waiting);
    let _upstream = upstream.answer(|request| ok(request.target()));
    wait_until("an answer, now that it accepts", || {
        Peer::client(&server).get("/full/y").brief() == (200, "/full/y".into())
    });
}

#[test]
fn requests_continue_while_the_gateway_is_dead_and_new_connections_afterwards() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let fresh = Upstream::tcp().answer(|request| ok(request.target()));
    // Each request of the second route needs a new connection.
    let routes = proxy("/app/", &upstream.address, "")
        + &proxy("/new/", &fresh.address, "idle_max = 0\nconnect_timeout = \"1m\"");
    let server = start(&folder, &routes);
    let mut slow = Peer::client(&server);
    slow.ask("/app/slow");
    let mut slow_peer = upstream.accept();
    assert_eq!(slow_peer.message().target(), "/app/slow");
    let mut client = Peer::client(&server);
    client.ask("/app/1");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/1");
    peer.send(ok("1"));
    assert_eq!(client.message().text(), "1");
    let old = server.sole("gateway");
    kill("KILL", old);
    wait_until("its end", || !server.role("gateway").contains(&old));
    for number in 2..10 {
        let target = format!("/app/{number}");
        client.ask(&target);
        assert_eq!(peer.message().target(), target, "over the connection that it had");
        peer.send(ok(&target));
        assert_eq!(client.message().brief(), (200, target));
    }
    slow_peer.send(ok("slow"));
    assert_eq!(slow.message().brief(), (200, "slow".into()));
    // They wait for the next gateway.
    let mut waiting: Vec<Peer> = (0..10).map(|_| Peer::client(&server)).collect();
    waiting.iter_mut().for_each(|client| client.ask("/new/x"));
    for client in &mut waiting {
        assert_eq!(client.message().brief(), (200, "/new/x".into()));
    }
    assert_ne!(server.sole("gateway"), old);
    for _ in 0..10 {
        assert_eq!(Peer::client(&server).get("/new/y").brief(), (200, "/new/y".into()));
    }
    server.wait_for_stderr("the gateway ended");
}
