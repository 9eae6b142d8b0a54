//! HTTP/2: requests that an upstream of HTTP/1.1 answers, with flow control in both directions.

use flash_engine::limits::H2_STREAM_WINDOW_BYTES;

use super::h2::{connect, exchange};
use super::relays::{proxying, text, with_scripts};
use crate::machine::h2::{DATA, END_HEADERS, END_STREAM, H2Client, HEADERS, Heard};
use crate::machine::{Client, World};

fn world() -> (World, H2Client) {
    let mut world = with_scripts(proxying());
    let client = connect(&mut world);
    (world, client)
}

/// Lets the gateway connect.
pub(crate) fn link(world: &mut World) -> Client {
    world.run();
    let server = world.link();
    world.run();
    server
}

#[test]
fn a_request_is_forwarded_in_the_words_of_http_1_1() {
    let (mut world, mut client) = world();
    let fields = [
        ("cookie", "a=1"),
        ("x-a", "1"),
        ("cookie", "b=2"),
        ("te", "trailers"),
        ("priority", "u=1"),
        ("x-forwarded-for", "evil"),
    ];
    let stream = client.ask("GET", "/one/a%20b?c=d", &fields);
    let server = link(&mut world);
    let forwarded = text(&server.take_bytes());
    assert!(forwarded.starts_with("GET /one/a%20b?c=d HTTP/1.1\r\nHost: h\r\nx-a: 1\r\n"), "{forwarded}");
    assert!(forwarded.contains("\r\ncookie: a=1; b=2\r\n"), "{forwarded}");
    assert!(forwarded.contains("\r\nVia: 2.0 flash\r\n"), "{forwarded}");
    assert!(!forwarded.contains("\r\nte:") && !forwarded.contains("evil"), "{forwarded}");
    server
        .send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\nX-C: 3\r\nSet-Cookie: s=1\r\n\r\nhello");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert_eq!((answer.status(), &answer.body[..], answer.is_whole), (200, &b"hello"[..], true));
    assert!(
        answer.head.contains("\r\ncontent-length: 5\r\nx-c: 3\r\nset-cookie: s=1\r\n"),
        "{}",
        answer.head
    );
    // The link serves the next request, whatever its stream.
    let head = client.ask("HEAD", "/one/x", &[]);
    world.run();
    assert!(text(&server.take_bytes()).starts_with("HEAD /one/x HTTP/1.1\r\n"));
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(head);
    assert!(
        answer.is_whole && answer.body.is_empty() && !answer.head.contains("transfer-encoding"),
        "{answer:?}"
    );
    world.end();
}

#[test]
fn answers_of_unknown_length_end_their_stream_and_broken_ones_reset_it() {
    let (mut world, mut client) = world();
    let stream = client.get("/one/x");
    let server = link(&mut world);
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert_eq!((&answer.body[..], answer.is_whole), (&b"hello"[..], false));
    server.send("6\r\n world\r\n0\r\nTrailer: x\r\n\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert_eq!((&answer.body[..], answer.is_whole), (&b" world"[..], true));
    let stream = client.get("/one/x");
    world.run();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    server.end();
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert_eq!((&answer.body[..], answer.reset), (&b"hello"[..], Some(2)));
    let stream = client.get("/one/x");
    world.run();
    world.refuse_link();
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).status(), 502);
    world.end();
}

#[test]
fn an_upload_flows_as_the_server_takes_it() {
    let (mut world, mut client) = world();
    let stream = client.begin(("POST", "/one/x"), &[("content-length", "200000")], false);
    let server = link(&mut world);
    server.take_bytes();
    server.set_room(10_000);
    let window = H2_STREAM_WINDOW_BYTES as usize;
    for piece in [16_384, 16_384, 16_384, window - 3 * 16_384] {
        client.send(DATA, 0, stream, &vec![b'x'; piece]);
    }
    exchange(&mut world, &mut client);
    let granted = |client: &mut H2Client| -> usize {
        client.hear();
        let mut sum = 0;
        client.heard.retain(|heard| match heard {
            Heard::WindowUpdate(of, bytes) if *of == stream => {
                sum += *bytes as usize;
                false
            }
            _ => true,
        });
        sum
    };
    let first = granted(&mut client);
    assert!(first <= window, "{first}");
    server.set_room(usize::MAX);
    let (mut sent, mut may_send) = (window, first);
    while sent < 200_000 {
        exchange(&mut world, &mut client);
        may_send += granted(&mut client);
        assert!(may_send > 0, "the window opens as the server takes the body");
        let piece = may_send.min(16_384).min(200_000 - sent);
        let flags = if sent + piece == 200_000 { END_STREAM } else { 0 };
        client.send(DATA, flags, stream, &vec![b'x'; piece]);
        (sent, may_send) = (sent + piece, may_send - piece);
    }
    exchange(&mut world, &mut client);
    let taken = server.take_bytes();
    assert_eq!(taken.iter().filter(|byte| **byte == b'x').count(), 200_000);
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert!(answer.is_whole && answer.status() == 204);
    // More than the window is an error of the stream.
    let stream = client.begin(("POST", "/one/x"), &[], false);
    world.run();
    server.set_room(0);
    for _ in 0..6 {
        client.send(DATA, 0, stream, &[b'y'; 16_384]);
    }
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).reset, Some(3));
    world.end();
}

#[test]
fn the_body_of_unknown_length_is_chunked_and_trailers_are_dropped() {
    let (mut world, mut client) = world();
    let stream = client.begin(("POST", "/one/x"), &[("expect", "100-continue")], false);
    let server = link(&mut world);
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).status(), 100);
    client.send(DATA, 0, stream, b"hello");
    world.run();
    client.send(HEADERS, END_STREAM | END_HEADERS, stream, b"\x00\x01t\x01r");
    world.run();
    let forwarded = text(&server.take_bytes());
    assert!(
        forwarded.contains("\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        "{forwarded}"
    );
    assert!(!forwarded.contains("expect") && !forwarded.contains("t: r"), "{forwarded}");
    server.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert!(answer.is_whole && answer.status() == 201);
    world.end();
}

#[test]
fn a_body_shorter_or_longer_than_its_length_never_looks_whole() {
    for (pieces, name) in
        [(&[&b"ab"[..]][..], "shorter"), (&[&b"abc"[..], b"GET /evil HTTP/1.1\r\n\r\n"], "longer")]
    {
        let (mut world, mut client) = world();
        let stream = client.begin(("POST", "/one/x"), &[("content-length", "3")], false);
        let server = link(&mut world);
        for (at, piece) in pieces.iter().enumerate() {
            let flags = if at + 1 == pieces.len() { END_STREAM } else { 0 };
            client.send(DATA, flags, stream, piece);
        }
        exchange(&mut world, &mut client);
        assert_eq!(client.take(stream).reset, Some(1), "{name}");
        assert!(!text(&server.take_bytes()).contains("evil"), "{name}");
        assert!(server.is_closed(), "{name}: the link is of no use any more");
        world.end();
    }
}

#[test]
fn a_client_that_does_not_read_slows_its_server_down() {
    let (mut world, mut client) = world();
    client.codec.grows_windows = false;
    let stream = client.get("/one/x");
    let server = link(&mut world);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    for _ in 0..20 {
        server.send(vec![b'z'; 50_000]);
        exchange(&mut world, &mut client);
    }
    let first = client.take(stream).body.len();
    assert_eq!(first, 65_535);
    // A hot stream is not held up, because only this one is blocked.
    let grow = [client.codec.grow(0, 1 << 20), client.codec.grow(stream, 1 << 20)].concat();
    client.client.send(grow);
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert!(answer.is_whole && first + answer.body.len() == 1_000_000, "{}", answer.body.len());
    world.end();
}

#[test]
fn a_reset_frees_the_server() {
    let (mut world, mut client) = world();
    let stream = client.get("/one/x");
    let server = link(&mut world);
    let reset = client.codec.reset(stream);
    client.client.send(reset);
    exchange(&mut world, &mut client);
    assert!(server.is_closed());
    assert_eq!(world.engine.counters().exchanges, 0);
    world.end();
}

#[test]
fn many_requests_are_on_their_way_at_once() {
    let (mut world, mut client) = world();
    let streams: Vec<_> = (0..3).map(|number| client.get(&format!("/p/{number}"))).collect();
    world.run();
    let servers: Vec<_> = (0..3).map(|_| link(&mut world)).collect();
    for server in servers.iter().rev() {
        let asked = text(&server.take_bytes());
        let path = asked.split(' ').nth(1).expect("a path").to_owned();
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()));
        world.run();
    }
    exchange(&mut world, &mut client);
    for (number, stream) in streams.into_iter().enumerate() {
        assert_eq!(client.take(stream).body, format!("/p/{number}").into_bytes());
    }
    world.end();
}
