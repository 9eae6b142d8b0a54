//! Framing, bodies, versions, ranges: the answer to a single request.

use flash_engine::limits::REQUEST_BODY_BYTES_MAX;
use flash_engine::{Optimizations, Rules};
use flash_http::response::ServerField;

use super::h2::{connect, exchange};
use super::relays::{ask, get, proxying};
use crate::machine::client::request;
use crate::machine::response::{parse_all, parse_parts};
use crate::machine::{Content, KIB, MIB, World};

fn world() -> World {
    let mut world = World::new();
    world.machine.files.add("a.txt", "hello");
    world
}

const NEXT: &str = "GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n";

#[test]
fn a_request_without_clear_framing_is_refused_and_the_connection_closed() {
    for (bytes, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
        ("GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\nContent-Length: 1\r\n\r\n", 417),
        ("garbage\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nx", 400),
    ] {
        let mut world = world();
        let client = world.connect();
        client.send(format!("{NEXT}{bytes}{NEXT}"));
        world.run();
        let all = client.take();
        assert_eq!(all.iter().map(|r| r.status).collect::<Vec<_>>(), [200, status], "{bytes:?}");
        assert!(all[1].closes() && client.is_ended(), "{bytes:?}");
        client.end();
        world.run();
        assert!(client.is_closed());
        world.end();
    }
}

#[test]
fn no_answer_names_the_program_if_none_shall() {
    let optimizations = Optimizations { align_heads: true, ..Optimizations::default() };
    let server_field = ServerField::Absent;
    let mut world = World::with(Rules { server_field, optimizations, ..proxying() });
    world.machine.files.add("a.txt", "hello");
    for request in [
        request("GET", "/a.txt", ""),
        request("GET", "/a.txt", ""),
        request("GET", "/none", ""),
        request("OPTIONS", "/a.txt", ""),
        request("GET", "/a.txt", "Range: bytes=1-2\r\n"),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "garbage\r\n\r\n".to_owned(),
    ] {
        let (_, answer) = world.ask(&request);
        assert_eq!((answer.field("Server"), answer.field("Date").is_some()), (None, true), "{request}");
    }
    let mut streams = connect(&mut world);
    for path in ["/a.txt", "/none"] {
        let stream = streams.get(path);
        exchange(&mut world, &mut streams);
        let head = streams.take(stream).head;
        assert!(!head.contains("server:") && head.contains("\r\ndate: "), "{head}");
    }
    let (client, server) = ask(&mut world, get("/p/x"));
    server.send("HTTP/1.1 200 OK\r\nServer: application\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(client.take_one().field("Server"), None);
    world.end();
}

#[test]
fn heads_are_bounded() {
    let mut world = world();
    for (bytes, status) in [
        (request("GET", "/a.txt", &format!("X: {}\r\n", "x".repeat(33_000))), 431),
        (request("GET", "/a.txt", &"X: x\r\n".repeat(101)), 431),
        (request("GET", &format!("/{}", "x".repeat(9_000)), ""), 414),
    ] {
        let (client, response) = world.ask(&bytes);
        assert_eq!((response.status, response.closes()), (status, true));
        assert!(client.is_ended());
    }
    world.end();
}

#[test]
fn methods() {
    let mut world = world();
    let (_, response) = world.ask(request("OPTIONS", "*", ""));
    assert_eq!((response.status, response.field("Allow")), (204, Some("GET, HEAD, OPTIONS")));
    for (method, status) in [("POST", 405), ("DELETE", 405), ("get", 501), ("BREW", 501)] {
        let (client, response) = world.ask(request(method, "/a.txt", ""));
        assert_eq!(response.status, status, "{method}");
        assert_eq!(response.field("Allow").is_some(), status == 405);
        client.send(NEXT);
        world.run();
        assert_eq!(client.take_one().status, 200, "the connection is kept");
    }
    let (client, response) = world.ask(request("POST", "/a.txt", "Content-Length: 5\r\n") + "hello");
    assert_eq!((response.status, response.closes(), client.is_ended()), (405, true, true));
    world.end();
}

#[test]
fn bodies_are_skipped() {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let cases = [
        request("GET", "/a.txt", "Content-Length: 0\r\n"),
        request("GET", "/a.txt", "Content-Length: 5\r\n") + "12345",
        request("GET", "/a.txt", chunked) + "3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n",
        request("GET", "/a.txt", "Content-Length: 100000\r\n") + &"x".repeat(100_000),
    ];
    for case in &cases {
        let bytes = format!("{case}{NEXT}").into_bytes();
        for step in [1, 7, 70_000] {
            if bytes.len() / step > 10_000 {
                continue;
            }
            let mut world = world();
            let client = world.connect();
            client.send_pieces(bytes.chunks(step).map(<[u8]>::to_vec));
            world.run();
            let all = client.take();
            assert_eq!(
                all.iter().map(|r| (r.status, r.text())).collect::<Vec<_>>(),
                vec![(200, "hello".into()); 2]
            );
            world.end();
        }
    }
}

#[test]
fn bodies_are_bounded() {
    let mut world = world();
    let too_long = format!("Content-Length: {}\r\n", REQUEST_BODY_BYTES_MAX + 1);
    let (_, response) = world.ask(request("GET", "/a.txt", &format!("{too_long}Expect: 100-continue\r\n")));
    assert_eq!((response.status, response.closes()), (413, true));
    let client = world.connect();
    client.send(request("GET", "/a.txt", "Transfer-Encoding: chunked\r\n"));
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(65_536));
    client.send_pieces((0..20).map(|_| chunk.clone().into_bytes()));
    world.run();
    assert_eq!(client.take_one().status, 413);
    world.end();
}

#[test]
fn one_turn_reads_a_bounded_part_of_a_body() {
    // Each data byte has the longest extension allowed: much to read, but within the bound.
    let mut world = world();
    let client = world.connect();
    client.send(request("GET", "/a.txt", "Transfer-Encoding: chunked\r\n"));
    world.run();
    let chunk = format!("1;{}\r\nx\r\n", "e".repeat(255));
    client.send(chunk.repeat(40_000));
    let before = world.machine.calls.recvs;
    world.turn();
    let recvs = world.machine.calls.recvs - before;
    assert!(recvs <= 32, "{recvs} receives of 64 KiB in one turn");
    world.end();
}

#[test]
fn continue_is_sent_when_the_client_waits_for_it() {
    let mut world = world();
    let client = world.connect();
    client.send(request("GET", "/a.txt", "Content-Length: 5\r\nExpect: 100-continue\r\n"));
    world.run();
    assert_eq!(client.received(), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("12345");
    world.run();
    let (all, _) = parse_all(&client.received(), |_| false);
    assert_eq!(all.iter().map(|r| r.status).collect::<Vec<_>>(), [100, 200]);
    world.end();
}

#[test]
fn http_1_0() {
    let mut world = world();
    let (client, response) = world.ask("GET /a.txt HTTP/1.0\r\n\r\n");
    assert_eq!((response.text(), response.closes()), ("hello".into(), true));
    assert!(client.is_ended());
    let keep = "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let (client, response) = world.ask(keep);
    assert_eq!((response.text(), response.field("Connection")), ("hello".into(), Some("keep-alive")));
    for _ in 0..3 {
        client.send(keep);
        world.run();
        assert_eq!(client.take_one().field("Connection"), Some("keep-alive"));
    }
    world.end();
}

#[test]
fn connection_close_is_honoured_and_later_requests_are_not_answered() {
    for path in ["/a.txt", "/none"] {
        let mut world = world();
        let client = world.connect();
        client.send(request("GET", path, "Connection: close\r\n") + NEXT);
        world.run();
        assert!(client.take_one().closes());
        assert!(client.is_ended());
        client.end();
        world.run();
        assert!(client.is_closed());
        world.end();
    }
}

#[test]
fn the_answer_to_head_has_the_head_of_get() {
    let mut world = world();
    world.machine.files.add("big", Content::Pattern(1, MIB));
    for path in ["/a.txt", "/big", "/none", "/a%00"] {
        let (_, get) = world.ask(request("GET", path, ""));
        let client = world.connect();
        client.send(request("HEAD", path, ""));
        world.run();
        assert_eq!(client.take_head().head, get.head, "{path}");
    }
    world.end();
}

#[test]
fn ranges_from_memory_and_from_a_file() {
    for size in [5_000, 300 * KIB] {
        let content = Content::Pattern(1, size);
        let mut world = World::new();
        world.machine.files.add("f", content.clone());
        let mut ask = |range: &str| world.ask(request("GET", "/f", &format!("Range: bytes={range}\r\n"))).1;
        let response = ask("10-19");
        assert_eq!(
            (response.status, response.field("Content-Range")),
            (206, Some(&*format!("bytes 10-19/{size}")))
        );
        assert!(response.body == content.slice(10, 20));
        assert!(ask("-7").body == content.slice(size - 7, size));
        assert!(ask("4000-").body == content.slice(4_000, size));
        let response = ask(&format!("{size}-"));
        assert_eq!(
            (response.status, response.field("Content-Range")),
            (416, Some(&*format!("bytes */{size}")))
        );
        assert_eq!(ask("5-4").status, 200);
        let parts = parse_parts(&ask("0-9,4000-4009,-1"));
        let expected = [(0, 10), (4_000, 4_010), (size - 1, size)];
        assert_eq!(parts.len(), 3);
        for (part, (start, end)) in parts.iter().zip(expected) {
            assert_eq!(part.0, format!("bytes {start}-{}/{size}", end - 1));
            assert!(part.1 == content.slice(start, end));
        }
        world.end();
    }
}

#[test]
fn a_multipart_body_in_small_rooms() {
    for size in [5_000, 300 * KIB] {
        let content = Content::Pattern(1, size);
        for room in [1, 13, 100, 1_000] {
            let mut world = World::new();
            world.machine.files.add("f", content.clone());
            let client = world.connect();
            client.set_room(0);
            client.send(request("GET", "/f", "Range: bytes=0-99,200-299,4000-4999\r\n"));
            for _ in 0..3_000 / room {
                client.add_room(room);
                world.run();
            }
            client.set_room(usize::MAX);
            world.run();
            let parts = parse_parts(&client.take_one());
            assert!(parts[2].1 == content.slice(4_000, 5_000) && parts[0].1 == content.slice(0, 100));
            world.end();
        }
    }
}

#[test]
fn precompressed_siblings_are_negotiated() {
    let mut world = world();
    world.machine.files.add("b.html", "plain");
    world.machine.files.add("b.html.br", "brotli");
    world.machine.files.add("b.html.gz", "gzip");
    for (accept, text) in
        [("gzip, br", "brotli"), ("gzip", "gzip"), ("deflate", "plain"), ("br;q=0", "plain")]
    {
        for _ in 0..3 {
            let (_, response) =
                world.ask(request("GET", "/b.html", &format!("Accept-Encoding: {accept}\r\n")));
            assert_eq!(
                (&*response.text(), response.field("Vary")),
                (text, Some("Accept-Encoding")),
                "{accept}"
            );
        }
    }
    let (_, response) = world.ask(request("GET", "/b.html", "Accept-Encoding: identity;q=0, zstd\r\n"));
    assert_eq!(response.status, 406);
    world.end();
}
