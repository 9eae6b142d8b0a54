//! Requests that other servers answer arrive there and come back as they were sent, and hold up nothing else.

use std::fs;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use flate2::read::GzDecoder;

use crate::harness::upstream::{Ended, Message, Peer, Upstream, config, framed, ok, post_head, proxy, start};
use crate::harness::{
    Client, Folder, Launch, adapted, film, kill, not_http2, only_plain, pattern, raise_own_descriptor_limit,
    skip, stats_at, wait_for, wait_until,
};

const BODY_BYTES: usize = 3_000_000;
/// The server gets bodies while they come.
const STREAM: &str = "stream_bodies = true";
/// So that chunks and the pieces that Flash receives end in different places.
const CHUNK_BYTES: usize = 50_021;

/// Fails with a short message, unlike `assert_eq`, which would print both.
#[track_caller]
fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    let differs = got.iter().zip(expected).position(|(one, other)| one != other);
    assert!(
        got == expected,
        "{what}: {} bytes of {}, the first difference at {differs:?}",
        got.len(),
        expected.len()
    );
}

#[test]
fn long_bodies_arrive_byte_for_byte_over_one_connection() {
    let folder = Folder::with_hello();
    let received: Arc<Mutex<Vec<Message>>> = Arc::default();
    let keep = received.clone();
    let upstream = Upstream::tcp().answer(move |request| {
        keep.lock().unwrap().push(request.clone());
        let chunk_bytes = request.target().contains("chunked").then_some(CHUNK_BYTES);
        framed("HTTP/1.1 200 OK\r\nX-Kept: yes\r\n", &pattern(BODY_BYTES, 1), chunk_bytes)
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, STREAM));
    let mut client = Peer::client(&server);
    for target in ["/app/length", "/app/chunked"] {
        let answer = client.get(target);
        assert_eq!((answer.status(), answer.field("X-Kept")), (200, Some("yes")));
        assert_eq!(answer.is_chunked(), target.ends_with("chunked"));
        assert_same(&answer.body, &pattern(BODY_BYTES, 1), target);
        for (seed, chunk_bytes) in [(2, None), (3, Some(CHUNK_BYTES))] {
            let sent = pattern(BODY_BYTES, seed);
            client.send(framed(&post_head(target), &sent, chunk_bytes));
            assert_same(&client.message().body, &pattern(BODY_BYTES, 1), target);
            let request = received.lock().unwrap().pop().unwrap();
            assert_eq!(request.line, format!("POST {target} HTTP/1.1"));
            assert_eq!(request.is_chunked(), chunk_bytes.is_some());
            assert_same(&request.body, &sent, "the request body");
        }
    }
    assert_eq!(Peer::client(&server).get("/app/length").status(), 200, "another client");
    assert_eq!(upstream.connections(), 1);
    assert_eq!(server.stderr(), "");
}

#[test]
fn bodies_pass_in_both_directions_at_once() {
    let folder = Folder::with_hello();
    // Each piece comes back before the next one is read.
    let upstream = Upstream::tcp().run(|mut peer| {
        peer.head().unwrap();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n"));
        for _ in 0..BODY_BYTES / 10_000 {
            let piece = peer.exactly(10_000);
            peer.send(piece);
        }
        peer.wait_for_end();
    });
    let server = start(&folder, &proxy("/echo", &upstream.address, STREAM));
    let mut client = Peer::client(&server);
    let sent = pattern(BODY_BYTES, 4);
    let mut sender = client.sender();
    let request = framed(&post_head("/echo"), &sent, None);
    let sends = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &request));
    let answer = client.message();
    assert_eq!(answer.status(), 200);
    assert_same(&answer.body, &sent, "the echo");
    sends.join().unwrap().unwrap();
}

#[test]
fn a_unix_socket_is_a_server() {
    let folder = Folder::with_hello();
    let upstream = Upstream::unix(&folder.path("app.sock"))
        .answer(|request| ok(format!("{} {}", request.target(), request.body.len())));
    // Started by root, the gateway connects as nobody.
    let config = config(&folder, &proxy("/app/", &upstream.address, ""));
    let server = Launch::configured(&folder, &config).user(None).start();
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/app/x?y").brief(), (200, "/app/x?y 0".into()));
    assert_eq!(client.post("/app/z", &pattern(300_000, 1)).brief(), (200, "/app/z 300000".into()));
    assert_eq!(upstream.connections(), 1);
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_trace_goes_on_behind_flash() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp().answer(|request| {
        let fields = ["traceparent", "tracestate"].map(|name| request.field(name).unwrap_or("none"));
        ok(fields.join(" "))
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    let mut client = Peer::client(&server);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    client.send(format!(
        "GET /app/ HTTP/1.1\r\nHost: a\r\ntraceparent: {parent}\r\ntracestate: a=1,b=2\r\n\r\n"
    ));
    assert_eq!(client.message().brief(), (200, format!("{parent} a=1,b=2")));
    assert_eq!(client.get("/app/").brief(), (200, "none none".into()));
}

#[test]
fn requests_that_wait_for_an_upstream_hold_up_nothing_else() {
    if only_plain("its requests take a carrier minutes on a busy machine") {
        return;
    }
    const CLIENTS: usize = 500;
    const CONNECTIONS: usize = 300;
    if !raise_own_descriptor_limit((CLIENTS + CONNECTIONS) as u64 + 700) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    let gate = Arc::new(RwLock::new(()));
    let closed = gate.write().unwrap();
    let waits = gate.clone();
    let silent = Upstream::tcp().answer(move |request| {
        // A test that fails poisons it.
        drop(waits.read().unwrap_or_else(PoisonError::into_inner));
        ok(request.target())
    });
    let other = Upstream::tcp().answer(|request| ok(request.target()));
    let patient = format!(
        "connections_max = {CONNECTIONS}\nqueue_max = {}\nconnect_timeout = \"1h\"\nanswer_timeout = \"1h\"",
        CLIENTS - CONNECTIONS
    );
    let control = folder.path("control.sock");
    let routes = proxy("/silent/", &silent.address, &patient) + &proxy("/other/", &other.address, "");
    let launch = Launch::configured(&folder, &config(&folder, &routes));
    let server = launch.arg("--control").arg(&control).start();
    let mut clients: Vec<Peer> = (0..CLIENTS).map(|_| Peer::client(&server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.ask(&format!("/silent/{number}"));
    }
    wait_until("all to wait", || {
        let upstreams = &stats_at(&control)["sum"]["upstreams"];
        upstreams["waiting"] == CLIENTS - CONNECTIONS && silent.connections() == CONNECTIONS
    });
    let mut kept = server.client();
    for number in 0..30 {
        assert_eq!(kept.get("/hello.txt").brief(), (200, "hello\n".into()));
        let unheard_of = format!("/unheard-of-{number}");
        assert_eq!(server.get(&unheard_of).status, 404, "also with a helper");
        let target = format!("/other/{number}");
        assert_eq!(Peer::client(&server).get(&target).brief(), (200, target));
    }
    // The bound is exact: one more does not fit.
    assert_eq!(server.get("/silent/500").status, 503);
    drop(closed);
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.message().brief(), (200, format!("/silent/{number}")));
    }
    assert_eq!(silent.connections(), CONNECTIONS, "those that waited use the connections of others");
    assert_eq!(server.stderr(), "");
}

#[test]
fn the_upstream_notices_a_client_that_leaves() {
    const PIECES: usize = 100;
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let server = start(&folder, &proxy("/app/", &upstream.address, STREAM));
    // Before the answer.
    let mut client = Peer::client(&server);
    client.ask("/app/1");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/1");
    drop(client);
    peer.assert_ended();
    // Within the request body.
    let mut client = Peer::client(&server);
    client.send(post_head("/app/2") + "Content-Length: 1000\r\n\r\npart");
    let mut peer = upstream.accept();
    assert_eq!(peer.head().unwrap().target(), "/app/2");
    assert_eq!(peer.exactly(4), b"part");
    drop(client);
    peer.assert_ended();
    if not_http2("its carrier can take all of an answer before its client leaves") {
        return;
    }
    // Within the answer, which is far longer than what sockets hold.
    let mut client = Peer::client(&server);
    client.ask("/app/3");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/3");
    let sends = std::thread::spawn(move || {
        let piece = film();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PIECES * piece.len());
        let sent = peer.try_send(head).and_then(|()| (0..PIECES).try_for_each(|_| peer.try_send(piece)));
        (peer, sent)
    });
    assert_eq!(client.head().unwrap().status(), 200);
    drop(client);
    let (mut peer, sent) = sends.join().unwrap();
    assert!(sent.is_err(), "all of it was accepted");
    peer.assert_ended();
    // That is no failure of the server.
    assert_eq!(server.stderr(), "");
    let mut client = Peer::client(&server);
    client.ask("/app/4");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/4");
    peer.send(ok("served"));
    assert_eq!(client.message().brief(), (200, "served".into()));
}

#[test]
fn a_connection_that_changes_its_protocol_passes_bytes_both_ways() {
    if not_http2("it has no upgrades") {
        return;
    }
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let server = start(&folder, &proxy("/ws", &upstream.address, ""));
    let mut client = Peer::client(&server);
    let fields = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="];
    client.send(Client::request_bytes("GET", "/ws", &fields));
    let mut peer = upstream.accept();
    let request = peer.message();
    assert_eq!(request.field("Upgrade"), Some("websocket"));
    assert_eq!(request.field("Sec-WebSocket-Key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
    peer.send(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x01first",
    );
    let answer = client.message();
    assert_eq!((answer.status(), answer.field("Upgrade")), (101, Some("websocket")));
    assert_eq!(client.exactly(6), b"\x01first");
    for round in 0..20 {
        // Among them are bytes that would be heads or chunks.
        let ping =
            [&b"GET / HTTP/1.1\r\n\r\n0\r\n\r\n"[..], &pattern(1 + 3_000 * round, round as u64)].concat();
        client.send(&ping);
        assert_same(&peer.exactly(ping.len()), &ping, "to the upstream");
        let pong = pattern(1 + 2_500 * round, 100 + round as u64);
        peer.send(&pong);
        assert_same(&client.exactly(pong.len()), &pong, "to the client");
    }
    assert_eq!(server.get("/hello.txt").status, 200);
    client.end_sending();
    peer.assert_ended();
    peer.send("the last word");
    peer.end_sending();
    assert_eq!(client.exactly(13), b"the last word");
    client.assert_ended();
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_reload_changes_routes_and_cuts_no_request() {
    let folder = Folder::with_hello();
    let slow = Upstream::tcp();
    let old = Upstream::tcp().answer(|_| ok("old"));
    let new = Upstream::tcp().answer(|_| ok("new"));
    let control = folder.path("control.sock");
    // The second slow request waits in the queue of the old configuration.
    let one = "connections_max = 1\nconnect_timeout = \"1h\"\nstream_bodies = true";
    let routes = proxy("/slow/", &slow.address, one) + &proxy("/app/", &old.address, "");
    let launch = Launch::configured(&folder, &config(&folder, &routes));
    let server = launch.arg("--control").arg(&control).start();
    assert_eq!(Peer::client(&server).get("/app/x").text(), "old");
    let mut client = Peer::client(&server);
    client.ask("/slow/1");
    let mut peer = slow.accept();
    assert_eq!(peer.message().target(), "/slow/1");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nbegin");
    assert_eq!(client.head().unwrap().status(), 200);
    let mut queued = Peer::client(&server);
    queued.send(post_head("/slow/2") + "Expect: 100-continue\r\nContent-Length: 1\r\n\r\n");
    wait_until("it to wait", || stats_at(&control)["sum"]["upstreams"]["waiting"] == 1);
    let (worker, gateway) = (server.sole("worker"), server.sole("gateway"));
    let routes = proxy("/slow/", &new.address, "") + &proxy("/app/", &new.address, "");
    fs::write(folder.path("flash.toml"), adapted(&config(&folder, &routes))).unwrap();
    server.signal("HUP");
    wait_until("the new routes alone", || {
        (0..10).all(|_| Peer::client(&server).get("/app/x").brief() == (200, "new".into()))
    });
    assert_eq!(Peer::client(&server).get("/slow/x").text(), "new");
    assert!(server.role("worker").contains(&worker) && server.role("gateway").contains(&gateway));
    // The old configuration still needs its gateway.
    kill("KILL", gateway);
    server.wait_for_stderr("the gateway ended");
    wait_until("another gateway", || {
        server.role("gateway").iter().filter(|pid| **pid != gateway).count() == 2
    });
    let gateways = server.role("gateway");
    peer.send("ended");
    assert_eq!(client.exactly(10), b"beginended");
    client.assert_ended();
    drop(peer);
    let mut peer = slow.accept();
    assert_eq!(peer.head().unwrap().target(), "/slow/2");
    assert_eq!(queued.message().status(), 100);
    queued.send("q");
    assert_eq!(peer.exactly(1), b"q");
    peer.send(ok("queued"));
    assert_eq!(queued.message().brief(), (200, "queued".into()));
    queued.assert_ended();
    wait_until("the end of the old processes", || {
        !server.role("worker").contains(&worker) && server.role("gateway").len() == 1
    });
    assert!(gateways.contains(&server.sole("gateway")));
    assert_eq!(Peer::client(&server).get("/app/x").brief(), (200, "new".into()));
    assert_eq!(server.stderr().lines().count(), 1, "{}", server.stderr());
}

#[test]
fn a_stop_lets_relayed_requests_finish() {
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp();
    let mut server = start(&folder, &proxy("/app/", &upstream.address, ""));
    let mut client = Peer::client(&server);
    client.ask("/app/slow");
    let mut peer = upstream.accept();
    assert_eq!(peer.message().target(), "/app/slow");
    server.signal("TERM");
    wait_until("new connections to be refused", || Client::try_to(server.addresses[0]).is_err());
    assert!(!server.has_ended());
    peer.send(ok("slow"));
    assert_eq!(client.message().brief(), (200, "slow".into()));
    client.assert_ended();
    peer.assert_ended();
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    assert_eq!(server.stderr(), "");
}

#[test]
fn an_upstream_hands_requests_back_for_files_of_the_site() {
    let folder = Folder::with_hello();
    let content = pattern(400_000, 5);
    folder.www("private/large file.bin", &content);
    let inside = folder.served("private/large file.bin");
    let outside = folder.write("www-not/secret", "secret");
    let beneath = folder.served("../www-not/secret");
    let field = move |target: &str| match target {
        "/app/accel" => "X-Accel-Redirect: /private/large%20file.bin".to_owned(),
        "/app/sendfile" => format!("X-Sendfile: {}", inside.display()),
        "/app/outside" => format!("X-Sendfile: {}", outside.display()),
        "/app/beneath" => format!("X-Sendfile: {}", beneath.display()),
        "/app/dots" => "X-Accel-Redirect: /../www-not/secret".to_owned(),
        "/app/gone" => "X-Accel-Redirect: /private/gone".to_owned(),
        // A path of the route leads to a file, and not back to it.
        other => format!("X-Accel-Redirect: {other}"),
    };
    let upstream = Upstream::tcp().answer(move |request| {
        format!("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 6\r\n\r\nunseen", field(request.target()))
            .into_bytes()
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    // The first failure is reported, the next ones seconds later.
    assert_eq!(server.get("/app/outside").status, 502);
    server
        .wait_for_stderr(&format!("upstream {}: The answer names a path that is no file", upstream.address));
    let mut client = server.client();
    for target in ["/app/accel", "/app/sendfile"] {
        let page = client.get(target);
        assert_eq!((page.status, page.must("Accept-Ranges")), (200, "bytes"), "{target}");
        assert_same(&page.body, &content, target);
        let part = client.request("GET", target, &["Range: bytes=100000-299999"]);
        assert_eq!(part.status, 206, "{target}");
        assert_eq!(part.must("Content-Range"), "bytes 100000-299999/400000", "{target}");
        assert_same(&part.body, &content[100_000..300_000], target);
        let tag = format!("If-None-Match: {}", page.must("ETag"));
        assert_eq!(client.request("GET", target, &[&tag]).status, 304, "{target}");
    }
    assert_eq!(client.get("/app/gone").status, 404);
    assert_eq!(client.get("/app/loop").status, 404);
    // Nothing above the root is sent, whatever the path is.
    for target in ["/app/beneath", "/app/dots"] {
        let page = client.get(target);
        assert!(page.status >= 400 && !page.text().contains("secret"), "{target}: {page:?}");
    }
}

#[test]
fn a_file_above_the_root_is_the_fault_of_the_upstream() {
    let folder = Folder::with_hello();
    folder.write("www-not/secret", "secret");
    let beneath = folder.served("../www-not/secret");
    let field = move |target: &str| match target {
        "/app/accel" => "X-Accel-Redirect: /../www-not/secret".to_owned(),
        _ => format!("X-Sendfile: {}", beneath.display()),
    };
    let upstream = Upstream::tcp().answer(move |request| {
        format!("HTTP/1.1 200 OK\r\n{}\r\nContent-Length: 0\r\n\r\n", field(request.target())).into_bytes()
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, ""));
    for target in ["/app/accel", "/app/sendfile"] {
        assert_eq!(server.get(target).status, 502, "{target}");
    }
}

/// The lines of a JSON log by the targets of their requests, once there are this many.
#[track_caller]
fn log_lines(folder: &Folder, count: usize) -> Vec<serde_json::Value> {
    wait_for(&format!("{count} lines in the log"), || {
        let text = fs::read_to_string(folder.path("access.log")).unwrap_or_default();
        let lines =
            text.ends_with('\n').then(|| text.lines().map(|line| serde_json::from_str(line).unwrap()));
        lines.map(Iterator::collect::<Vec<_>>).filter(|lines| lines.len() >= count)
    })
}

#[test]
fn the_access_log_has_relayed_requests() {
    if not_http2("the log has another version") {
        return;
    }
    let folder = Folder::with_hello();
    let upstream = Upstream::tcp().run(|mut peer| {
        while let Ok(request) = peer.receive() {
            match request.target() {
                "/app/chunks" => peer.send(framed("HTTP/1.1 200 OK\r\n", &pattern(100_000, 1), Some(999))),
                "/app/made" => peer.send("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\nmade"),
                "/app/nothing" => peer.send("HTTP/1.1 204 No Content\r\n\r\n"),
                "/app/file" => {
                    peer.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /hello.txt\r\nContent-Length: 0\r\n\r\n");
                }
                "/app/bad" => return peer.send("nonsense\r\n\r\n"),
                "/app/cut" => return peer.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
                other => panic!("{other}"),
            }
        }
    });
    let log = format!("log_format = \"json\"\nlog_file = {:?}\n", folder.path("access.log"));
    let server = start(&folder, &(log + &proxy("/app/", &upstream.address, "body_max = \"10B\"")));
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/app/chunks").body.len(), 100_000);
    assert_eq!(client.post("/app/made", b"hello").brief(), (201, "made".into()));
    assert_eq!(client.get("/app/nothing").status(), 204);
    assert_eq!(client.get("/app/file").brief(), (200, "hello\n".into()));
    let bad = client.post("/app/bad", b"");
    assert_eq!(bad.status(), 502);
    let large = Peer::client(&server).post("/app/large", b"hello hello");
    assert_eq!(large.status(), 413);
    let mut client = Peer::client(&server);
    client.ask("/app/cut");
    match client.receive() {
        Err(Ended::InBody(part)) => assert_eq!(part.brief(), (200, "abc".into())),
        other => panic!("not cut: {other:?}"),
    }
    let expected = [
        ("GET /app/chunks HTTP/1.1", 200, 100_000, true),
        ("POST /app/made HTTP/1.1", 201, 4, true),
        ("GET /app/nothing HTTP/1.1", 204, 0, true),
        ("GET /app/file HTTP/1.1", 200, 6, true),
        ("POST /app/bad HTTP/1.1", 502, bad.body.len(), true),
        ("POST /app/large HTTP/1.1", 413, large.body.len(), true),
        ("GET /app/cut HTTP/1.1", 200, 3, false),
    ];
    let lines = log_lines(&folder, expected.len());
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, (request, status, bytes, whole)) in lines.iter().zip(expected) {
        assert_eq!(line["request"], request, "{line}");
        assert_eq!(
            (&line["status"], &line["bytes"], &line["whole"]),
            (&status.into(), &bytes.into(), &whole.into()),
            "{line}"
        );
        assert_eq!(line["peer"], "127.0.0.1", "{line}");
    }
}

#[test]
fn answers_are_compressed_for_clients_that_accept_it() {
    let folder = Folder::with_hello();
    let page: Vec<u8> = (0..60_000).flat_map(|line| format!("<p>line {line}</p>\n").into_bytes()).collect();
    let body = page.clone();
    let upstream = Upstream::tcp().answer(move |request| {
        let kind = if request.target().ends_with(".png") { "image/png" } else { "text/html" };
        let chunk_bytes = request.target().contains("chunked").then_some(CHUNK_BYTES);
        framed(&format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n"), &body, chunk_bytes)
    });
    let server = start(&folder, &proxy("/app/", &upstream.address, "compress = true"));
    for target in ["/app/length", "/app/chunked"] {
        let mut client = Peer::client(&server);
        for _ in 0..3 {
            let answer = client.get_with(target, &["Accept-Encoding: gzip, br"]);
            assert_eq!((answer.status(), answer.field("Content-Encoding")), (200, Some("gzip")), "{target}");
            assert_eq!(answer.field("Vary"), Some("Accept-Encoding"));
            assert!(answer.body.len() < page.len() / 4, "{} of {} bytes", answer.body.len(), page.len());
            let mut plain = Vec::new();
            GzDecoder::new(&answer.body[..]).read_to_end(&mut plain).expect("valid gzip");
            assert_same(&plain, &page, target);
            assert_same(&client.get(target).body, &page, target);
        }
    }
    let picture = Peer::client(&server).get_with("/app/x.png", &["Accept-Encoding: gzip"]);
    assert_eq!((picture.field("Content-Encoding"), picture.field("Vary")), (None, None));
    assert_same(&picture.body, &page, "a picture");
    assert_eq!(server.stderr(), "");
}
