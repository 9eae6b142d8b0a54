//! Answers of upstreams that helpers compress: the stream is valid gzip whatever the helpers, the server and the client do.

use std::io::Read;

use flash_engine::limits::DEFLATE_BYTES_MAX;
use flash_engine::{JobId, JobKind, Outcome, Rules};

use super::h2::{connect, exchange};
use super::relays::{ask, get, proxying, text, whole, with_scripts};
use crate::machine::client::request;
use crate::machine::{Client, FileHandle, World};

const HTML: &str = "Content-Type: text/html\r\n";

fn rules() -> Rules {
    let mut rules = proxying();
    rules.sites[0].routes.iter_mut().for_each(|route| route.compresses = true);
    rules
}

fn world() -> World {
    let mut world = with_scripts(rules());
    world.give_spool(100);
    world
}

/// A text of this length.
fn page(bytes: usize) -> Vec<u8> {
    (0..).flat_map(|number: u32| format!("<p>line {number}</p>\n").into_bytes()).take(bytes).collect()
}

fn unzipped(stream: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(stream);
    decoder.read_to_end(&mut plain).expect("a valid stream");
    assert!(decoder.into_inner().is_empty(), "nothing follows");
    plain
}

fn accepting(path: &str) -> String {
    request("GET", path, "Accept-Encoding: br, gzip\r\n")
}

/// How many pieces helpers were given.
fn deflated(world: &World) -> u64 {
    let place = JobKind::ALL.iter().position(|kind| *kind == JobKind::Deflate).expect("a kind");
    world.engine.counters().jobs[place].started
}

/// An answer of a server with these fields and this body, which the server ends by closing if `closes`.
fn answer(fields: &str, body: &[u8], closes: bool) -> Vec<u8> {
    let length = if closes { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    [format!("HTTP/1.1 200 OK\r\n{fields}{length}\r\n").as_bytes(), body].concat()
}

fn asked(world: &mut World, request: &str, answer: &[u8], closes: bool) -> (Client, Client) {
    let (client, server) = ask(world, request);
    server.take_bytes();
    server.send(answer);
    if closes {
        server.end();
    }
    world.run();
    (client, server)
}

#[test]
fn texts_become_streams_of_gzip() {
    for bytes in [1024, DEFLATE_BYTES_MAX - 1, DEFLATE_BYTES_MAX, DEFLATE_BYTES_MAX + 1, 1_000_000] {
        let body = page(bytes);
        for closes in [false, true] {
            let mut world = world();
            let fields = format!("{HTML}ETag: \"a\"\r\nAccept-Ranges: bytes\r\n");
            let (client, _server) =
                asked(&mut world, &accepting("/one/x"), &answer(&fields, &body, closes), closes);
            let (head, stream) = whole(&client.take_bytes());
            assert!(unzipped(&stream) == body, "{bytes} bytes");
            assert!(stream.len() < bytes / 2, "{} of {bytes} bytes", stream.len());
            for field in [
                "Content-Encoding: gzip",
                "Vary: Accept-Encoding",
                "ETag: W/\"a\"",
                "Transfer-Encoding: chunked",
            ] {
                assert!(head.contains(&format!("\r\n{field}\r\n")), "{head}");
            }
            assert!(!head.contains("Content-Length") && !head.contains("Accept-Ranges"), "{head}");
            assert_eq!(deflated(&world), bytes.div_ceil(DEFLATE_BYTES_MAX) as u64);
            // The connection continues.
            client.send(get("/a.html"));
            world.run();
            assert_eq!(client.take_one().status, 404);
            world.end();
        }
    }
}

#[test]
fn other_answers_stay_as_they_are() {
    let body = page(5_000);
    for (request, fields, varies) in [
        (get("/one/x"), HTML, true),
        (request("GET", "/one/x", "Accept-Encoding: br\r\n"), HTML, true),
        (request("GET", "/one/x", "Accept-Encoding: gzip;q=0\r\n"), HTML, true),
        ("GET /one/x HTTP/1.0\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n".to_owned(), HTML, true),
        (accepting("/one/x"), "Content-Type: image/png\r\n", false),
        (accepting("/one/x"), "Content-Type: text/html\r\nContent-Encoding: br\r\n", false),
        (accepting("/one/x"), "Content-Type: text/html\r\nCache-Control: no-transform\r\n", false),
        (accepting("/one/x"), "Content-Type: text/html\r\nX-Accel-Buffering: no\r\n", false),
        (accepting("/one/x"), "", false),
    ] {
        let mut world = world();
        let (client, _server) = asked(&mut world, &request, &answer(fields, &body, false), false);
        let (head, got) = whole(&client.take_bytes());
        assert!(got == body, "{request} {fields}");
        assert_eq!(head.contains("\r\nVary: Accept-Encoding\r\n"), varies, "{head}");
        assert_eq!(deflated(&world), 0);
        world.end();
    }
    let mut world = world();
    let (client, _server) =
        asked(&mut world, &accepting("/one/x"), &answer(HTML, &page(1_023), false), false);
    assert!(whole(&client.take_bytes()).1 == page(1_023), "a short answer");
    world.end();
}

#[test]
fn answers_without_a_body_say_the_same() {
    let mut world = world();
    let head = request("HEAD", "/one/x", "Accept-Encoding: gzip\r\n");
    let (client, server) = ask(&mut world, head);
    server.send(format!("HTTP/1.1 200 OK\r\n{HTML}ETag: \"a\"\r\nContent-Length: 5000\r\n\r\n"));
    world.run();
    let head = text(&client.take_bytes());
    for field in ["Content-Encoding: gzip", "Vary: Accept-Encoding", "ETag: W/\"a\""] {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{head}");
    }
    assert!(!head.contains("Content-Length"), "{head}");
    client.send(request("GET", "/one/x", "Accept-Encoding: gzip\r\nIf-None-Match: W/\"a\"\r\n"));
    world.run();
    server.send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
    world.run();
    let head = text(&client.take_bytes());
    assert!(head.starts_with("HTTP/1.1 304 ") && head.contains("\r\nETag: W/\"a\"\r\n"), "{head}");
    assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{head}");
    // The connection continues after both.
    client.send(get("/none.html"));
    world.run();
    assert_eq!(client.take_one().status, 404);
    world.end();
}

/// Ends a job with this outcome.
fn give(world: &mut World, job: JobId, outcome: Outcome<FileHandle>) {
    drop(world.machine.helpers.finish(job));
    world.deliver(job, outcome);
}

#[test]
fn a_piece_that_no_helper_compresses_is_stored() {
    let body = page(200_000);
    for trouble in ["lost", "failed", "grown", "some lost"] {
        let mut world = world();
        world.auto = false;
        let (client, _server) = asked(&mut world, &accepting("/one/x"), &answer(HTML, &body, false), false);
        let mut number = 0;
        while !world.machine.helpers.running.is_empty() {
            let job = world.job();
            number += 1;
            match trouble {
                "some lost" if number % 2 == 0 => world.finish(job),
                "lost" | "some lost" => world.lose(job),
                "failed" => give(&mut world, job, Outcome::Failed(5)),
                _ => give(&mut world, job, Outcome::Deflated(vec![0; DEFLATE_BYTES_MAX + 1])),
            }
            world.run();
        }
        let (head, stream) = whole(&client.take_bytes());
        assert!(head.contains("Content-Encoding: gzip\r\n") && unzipped(&stream) == body, "{trouble}");
        assert_eq!(number, 7, "{trouble}");
        world.end();
    }
}

#[test]
fn what_a_server_sends_is_not_held_back() {
    let mut world = world();
    let (client, server) = ask(&mut world, accepting("/one/x"));
    server.take_bytes();
    server.send(format!("HTTP/1.1 200 OK\r\n{HTML}Transfer-Encoding: chunked\r\n\r\n"));
    world.run();
    let mut stream = Vec::new();
    let mut decoder = flate2::write::GzDecoder::new(Vec::new());
    for part in ["first ", "second ", "third"] {
        server.send(format!("{:x}\r\n{part}\r\n", part.len()));
        world.run();
        let got = client.take_bytes();
        assert!(!got.is_empty(), "{part}");
        stream.extend_from_slice(&got);
    }
    server.send("0\r\n\r\n");
    world.run();
    stream.extend_from_slice(&client.take_bytes());
    std::io::Write::write_all(&mut decoder, &whole(&stream).1).unwrap();
    assert_eq!(decoder.finish().unwrap(), b"first second third");
    world.end();
}

#[test]
fn a_slow_reader_keeps_neither_server_nor_helper_busy() {
    let mut world = world();
    let body = page(3_000_000);
    let (client, server) = ask(&mut world, accepting("/one/x"));
    server.take_bytes();
    client.set_room(1_000);
    server.send(answer(HTML, &body, false));
    world.run();
    assert_eq!(world.engine.counters().links.links, 1);
    assert!(world.machine.helpers.running.is_empty());
    let mut got = client.take_bytes();
    while client.wire().wants_room() {
        client.set_room(30_000);
        world.run();
        got.extend(client.take_bytes());
    }
    assert!(unzipped(&whole(&got).1) == body);
    world.end();
}

#[test]
fn an_answer_that_breaks_off_breaks_off_for_the_client() {
    let mut world = world();
    let (client, server) = ask(&mut world, accepting("/one/x"));
    let whole = answer(HTML, &page(100_000), false);
    server.send(&whole[..50_000]);
    world.run();
    server.end();
    world.run();
    assert!(client.is_closed() && !client.take_bytes().ends_with(b"0\r\n\r\n"), "the last chunk never comes");
    // A client that leaves takes its job along.
    world.auto = false;
    let (client, server) = ask(&mut world, accepting("/one/x"));
    server.send(&whole);
    world.run();
    let job = world.job();
    client.reset();
    world.run();
    world.finish(job);
    world.run();
    world.end();
}

#[test]
fn streams_of_http_2_and_scripts_are_compressed_too() {
    let mut world = world();
    let body = page(300_000);
    let mut client = connect(&mut world);
    let stream = client.ask("GET", "/one/x", &[("accept-encoding", "gzip, deflate, br, zstd")]);
    world.run();
    let server = world.link();
    world.run();
    server.send(answer(HTML, &body, false));
    exchange(&mut world, &mut client);
    let answer = client.take(stream);
    assert!(answer.is_whole && answer.head.contains("\r\ncontent-encoding: gzip\r\n"), "{}", answer.head);
    assert!(!answer.head.contains("content-length"), "{}", answer.head);
    assert!(unzipped(&answer.body) == body);
    let mut records = super::relays::fcgi(6, b"Content-Type: application/json\r\n\r\n");
    body.chunks(60_000).for_each(|part| records.extend(super::relays::fcgi(6, part)));
    records.extend([super::relays::fcgi(6, b""), super::relays::fcgi(3, &[0; 8])].concat());
    let (client, _server) = asked(&mut world, &accepting("/a.php"), &records, false);
    assert!(unzipped(&whole(&client.take_bytes()).1) == body);
    world.end();
}
