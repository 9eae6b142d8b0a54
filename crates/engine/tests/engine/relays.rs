//! Requests that an upstream answers: what its servers get, what clients get, whatever either of them does.

use flash_engine::limits::{
    ANSWER_HEAD_BYTES_MAX, GATEWAY_LATE_MS, LINK_AGE_MAX_MS, LINK_IDLE_MS, LINK_PAUSE_MS, PASSED_ON_BYTES,
    RECEIVE_BYTES, SEND_BYTES_PER_TURN_MAX, SERVER_DOWN_MS, SERVER_FAILURES_MAX,
};
use flash_engine::{
    LogFormat, LogRules, Outcome, Policy, Route, RoutePaths, Rules, ServerId, ServerRules, Task, UpstreamId,
    UpstreamProtocol, UpstreamRules,
};
use flash_http::body::Chunked;
use proptest::prelude::*;

use crate::machine::client::request;
use crate::machine::response::parse_head;
use crate::machine::world::{HEAD_MS, JOB_MS, LEAST_RATE, Told, rules};
use crate::machine::{Client, World};

const CONNECT_MS: u64 = 5_000;
pub(crate) const ANSWER_MS: u64 = 60_000;
const BODY_BYTES_MAX: u64 = 1 << 20;

fn server(number: usize, weight: u32) -> ServerRules {
    ServerRules { name: format!("server {number}"), weight, is_unix: false, is_encrypted: false }
}

fn upstream(protocol: UpstreamProtocol, servers: usize) -> UpstreamRules {
    UpstreamRules {
        protocol,
        servers: (0..servers).map(|number| server(number, 1)).collect(),
        connections_max: 4,
        idle_max: 2,
        queue_max: 2,
        connect_ms: CONNECT_MS,
        answer_ms: ANSWER_MS,
    }
}

/// `/p/` leads to two HTTP servers, `/one/` to one, and `.php` to a FastCGI application.
pub(crate) fn proxying() -> Rules {
    let mut rules = rules();
    rules.upstreams = vec![
        upstream(UpstreamProtocol::Http, 2),
        upstream(UpstreamProtocol::Http, 1),
        upstream(UpstreamProtocol::FastCgi, 1),
    ];
    let route = |paths, number| Route {
        paths,
        files_first: false,
        upstream: UpstreamId(number),
        has_own_files: false,
        body_bytes_max: BODY_BYTES_MAX,
        streams_bodies: true,
        compresses: false,
        streams_answers: false,
    };
    rules.sites[0].routes = vec![
        route(RoutePaths::Prefix(b"/p/".to_vec()), 0),
        route(RoutePaths::Prefix(b"/one/".to_vec()), 1),
        route(RoutePaths::Extension(b"php".to_vec()), 2),
    ];
    rules
}

fn world() -> World {
    with_scripts(proxying())
}

pub(crate) fn with_scripts(rules: Rules) -> World {
    let mut world = World::with(rules);
    ["a.php", "b.php", "d/a.php"].iter().for_each(|path| world.machine.files.add(path, "source"));
    world
}

/// Sends a request and lets the gateway connect. Returns the client and the server.
pub(crate) fn ask(world: &mut World, request: impl AsRef<[u8]>) -> (Client, Client) {
    let client = world.connect();
    client.send(request);
    world.run();
    let server = world.link();
    world.run();
    (client, server)
}

pub(crate) fn get(path: &str) -> String {
    request("GET", path, "")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The head and the body of the one answer in these bytes, which a client that knows chunks has received.
pub(crate) fn whole(bytes: &[u8]) -> (String, Vec<u8>) {
    let (response, at) = parse_head(bytes).expect("a head");
    let mut body = bytes[at..].to_vec();
    if response.field("Transfer-Encoding") == Some("chunked") {
        let progress = Chunked::new().decode(&mut body).expect("chunks");
        assert!(progress.done, "the body ends: {}", text(bytes));
        assert_eq!(progress.consumed, body.len(), "nothing follows");
        body.truncate(progress.data_bytes);
    } else if let Some(length) = response.length() {
        assert_eq!(body.len(), length, "{}", text(bytes));
    }
    (response.head, body)
}

pub(crate) fn status(client: &Client) -> u16 {
    parse_head(&client.take_bytes()).expect("a head").0.status
}

#[test]
fn a_request_is_forwarded_and_answered_and_the_link_is_used_again() {
    let mut world = world();
    let (client, server) =
        ask(&mut world, request("GET", "/one/a%20b?c=d", "X-A: 1\r\nConnection: X-B\r\nX-B: 2\r\n"));
    let forwarded = text(&server.take_bytes());
    assert!(forwarded.starts_with("GET /one/a%20b?c=d HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n"), "{forwarded}");
    assert!(forwarded.contains("\r\nX-Forwarded-For: 127.0.0.") && !forwarded.contains("X-B"), "{forwarded}");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: x\r\nX-C: 3\r\n\r\nhello");
    world.run();
    let (head, body) = whole(&client.take_bytes());
    assert!(head.contains("Server: flash\r\n") && head.contains("X-C: 3\r\n"), "{head}");
    assert_eq!(body, b"hello");
    client.send(get("/one/second"));
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/second "));
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    let counters = world.engine.counters().links;
    assert_eq!((counters.asked, counters.reused, counters.links), (1, 1, 1));
    // A path without a route is a file's.
    world.machine.files.add("f", "file");
    client.get("/f");
    world.run();
    assert_eq!(client.take_one().body, b"file");
    world.end();
}

#[test]
fn bodies_of_every_framing_arrive() {
    for (answer, ends, body) in [
        ("Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: 1\r\n\r\n", false, "abcde"),
        ("Content-Length: 5\r\n\r\nabcde", false, "abcde"),
        ("Content-Length: 0\r\n\r\n", false, ""),
        ("X: 1\r\n\r\nabcde", true, "abcde"),
        ("\r\n", true, ""),
    ] {
        for version in ["1.1", "1.0"] {
            let mut world = world();
            let request = format!("GET /p/ HTTP/{version}\r\nHost: h\r\n\r\n");
            let (client, server) = ask(&mut world, request);
            server.send_pieces(format!("HTTP/1.1 200 OK\r\n{answer}").bytes().map(|byte| vec![byte]));
            if ends {
                server.end();
            }
            world.run();
            let (head, got) = whole(&client.take_bytes());
            assert_eq!(text(&got), body, "{answer:?} {version}");
            let is_unbounded = !answer.contains("Content-Length");
            assert_eq!(head.contains("chunked"), is_unbounded && version == "1.1", "{head}");
            assert_eq!(client.is_ended(), version == "1.0");
            world.end();
        }
    }
}

#[test]
fn interim_answers_are_left_out_and_head_has_no_body() {
    let mut world = world();
    let (client, server) = ask(&mut world, request("HEAD", "/one/", ""));
    server.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    world.run();
    let (response, at) = parse_head(&client.received()).expect("a head");
    assert_eq!((response.status, response.length(), at), (200, Some(9), client.received_len()));
    client.take_bytes();
    client.send(get("/one/"));
    world.run();
    assert!(text(&server.take_bytes()).contains("GET /one/ "), "the link is used again");
    world.end();
}

#[test]
fn a_body_follows_its_head_and_is_framed_as_it_came() {
    for (fields, sent, expected) in [
        ("Content-Length: 5\r\n", "hello", "Content-Length: 5\r\n"),
        (
            "Transfer-Encoding: chunked\r\n",
            "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
            "Transfer-Encoding: chunked\r\n",
        ),
    ] {
        let mut world = world();
        let (client, server) =
            ask(&mut world, request("POST", "/one/", &format!("{fields}Expect: 100-continue\r\n")));
        let head = text(&server.take_bytes());
        assert!(head.contains(expected) && head.ends_with("\r\n\r\n") && !head.contains("Expect"), "{head}");
        assert_eq!(text(&client.take_bytes()), "HTTP/1.1 100 Continue\r\n\r\n");
        client.send_pieces(sent.bytes().map(|byte| vec![byte]));
        client.send(get("/one/next"));
        world.run();
        let mut body = server.take_bytes();
        if expected.starts_with("Transfer") {
            let progress = Chunked::new().decode(&mut body).expect("chunks");
            assert!(progress.done);
            body.truncate(progress.data_bytes);
        }
        assert_eq!(text(&body), "hello");
        server.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        world.run();
        assert_eq!(status(&client), 201);
        assert!(
            text(&server.take_bytes()).starts_with("GET /one/next "),
            "the next request is not part of the body"
        );
        world.end();
    }
}

#[test]
fn without_gathering_a_slow_reader_slows_its_sender_down() {
    let mut rules = proxying();
    rules.sites[0].routes.iter_mut().for_each(|route| route.streams_answers = true);
    let mut world = World::with(rules);
    let (client, server) = ask(&mut world, get("/p/"));
    client.set_room(1000);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n");
    server.send_pieces((0..100).map(|_| vec![b'x'; 100_000]));
    world.run();
    let received = world.machine.calls.recvs;
    world.advance(1_000);
    assert_eq!(world.machine.calls.recvs, received, "nothing is received while the client does not read");
    for _ in 0..10_100 {
        client.add_room(1000);
        world.run();
    }
    assert_eq!(whole(&client.take_bytes()).1.len(), 10_000_000);
    // The other way round.
    let (client, server) = ask(&mut world, request("POST", "/one/", "Content-Length: 1000000\r\n"));
    server.take_bytes();
    server.set_room(10);
    client.send_pieces((0..10).map(|_| vec![b'y'; 100_000]));
    world.run();
    assert_eq!(server.received_len(), 10);
    server.set_room(usize::MAX);
    world.run();
    assert_eq!(server.received_len(), 1_000_000);
    world.end();
}

#[test]
fn a_client_that_reads_too_slowly_is_cut_off() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/p/"));
    client.set_room(300);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    server.send(vec![b'x'; 100_000]);
    world.run();
    const { assert!(LEAST_RATE > 0) };
    client.wire().unacknowledged = 300;
    world.advance(60_000);
    assert!(client.is_closed());
    assert_eq!(world.engine.counters().bodies, 0);
    world.end();
}

#[test]
fn another_server_is_tried_when_one_accepts_no_connection() {
    let mut world = world();
    let client = world.connect();
    client.send(request("POST", "/p/", "Content-Length: 2\r\n"));
    client.send("ab");
    world.run();
    let first = world.machine.asked[0].1;
    world.refuse_link();
    world.run();
    let second = world.machine.asked[0].1;
    assert_ne!(first.server, second.server);
    let server = world.link();
    world.run();
    assert!(text(&server.take_bytes()).ends_with("\r\n\r\nab"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    assert!(world.machine.reports[0].contains("server 0: cannot connect"), "{:?}", world.machine.reports);
    world.end();
}

/// A link to the server of `/one/` that has answered a request, and its client.
fn used_link(world: &mut World, path: &str) -> (Client, Client) {
    let (client, server) = ask(world, get(path));
    server.take_bytes();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    client.take_bytes();
    (client, server)
}

#[test]
fn a_request_that_its_server_may_have_read_is_never_repeated() {
    for method in ["GET", "HEAD", "PUT", "DELETE", "POST"] {
        for resets in [false, true] {
            let mut world = world();
            let (client, server) = ask(&mut world, request(method, "/p/", ""));
            if resets {
                server.reset();
            } else {
                server.end();
            }
            world.run();
            assert_eq!((status(&client), world.machine.asked.len()), (502, 0), "{method}");
            assert_eq!(world.engine.counters().links.failures, 1);
            world.end();
        }
    }
}

#[test]
fn a_request_on_a_link_that_its_server_has_just_closed_gets_one_new_link() {
    for (method, is_repeated) in [("GET", true), ("PUT", true), ("POST", false), ("PATCH", false)] {
        let mut world = world();
        let (client, server) = used_link(&mut world, "/one/");
        client.send(request(method, "/one/again", ""));
        // The request and the close meet.
        world.turn();
        server.end();
        world.run();
        assert_eq!(world.machine.asked.len(), usize::from(is_repeated), "{method}");
        assert_eq!(world.engine.counters().links.failures, 0);
        assert!(world.machine.reports.is_empty());
        if is_repeated {
            let server = world.link();
            world.run();
            assert!(text(&server.take_bytes()).starts_with(&format!("{method} /one/again ")));
            // This one has the request, and ends.
            server.end();
            world.run();
            assert_eq!((world.machine.asked.len(), world.engine.counters().links.failures), (0, 1));
        }
        assert_eq!(status(&client), 502);
        world.end();
    }
}

#[test]
fn a_repeated_request_gets_no_other_used_link() {
    let mut world = world();
    let links: Vec<_> = ["/one/a", "/one/b"].map(|path| ask(&mut world, get(path))).into();
    for (client, server) in &links {
        server.take_bytes();
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        world.run();
        client.take_bytes();
    }
    let (client, server) = &links[1];
    client.send(get("/one/again"));
    world.turn();
    assert!(server.received_len() > 0, "the link used last");
    server.end();
    world.run();
    assert_eq!((links[0].1.received_len(), world.machine.asked.len()), (0, 1));
    world.end();
}

#[test]
fn bytes_on_an_idle_link_are_no_answer() {
    for (bytes, links_first) in
        [("", false), ("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison", false), ("x", true)]
    {
        for method in ["GET", "POST"] {
            let mut world = world();
            world.links_first = links_first;
            let (client, server) = used_link(&mut world, "/one/");
            // Both are there before the next turn.
            client.send(request(method, "/one/next", ""));
            if bytes.is_empty() {
                server.end();
            } else {
                server.send(bytes);
            }
            world.run();
            assert!(server.is_closed() && server.received_len() == 0, "{method} {bytes:?}");
            let server = world.link();
            world.run();
            assert!(text(&server.take_bytes()).starts_with(&format!("{method} /one/next ")));
            server.send("HTTP/1.1 204 No Content\r\n\r\n");
            world.run();
            assert_eq!((status(&client), world.engine.counters().links.reused), (204, 0));
            world.end();
        }
    }
}

#[test]
fn a_link_that_waited_for_its_request_is_looked_at_again() {
    let mut rules = proxying();
    rules.upstreams[1].connections_max = 1;
    let mut world = World::with(rules);
    let (client, server) = ask(&mut world, get("/one/a"));
    let waiting = world.connect();
    waiting.send(get("/one/b"));
    world.run();
    // The link is granted to the one that waits, and its server ends it in the same turn.
    server.take_bytes();
    server.send_pieces(["HTTP/1.1 204 No Content\r\n\r\n".into(), b"late".to_vec()]);
    world.run();
    assert_eq!(status(&client), 204);
    assert!(server.is_closed() && server.received_len() == 0);
    let server = world.link();
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/b "));
    world.end();
}

#[test]
fn idle_links_stay_as_long_as_they_were_of_use_in_the_last_minute() {
    let mut rules = proxying();
    rules.upstreams[1].idle_max = 4;
    let mut world = World::with(rules);
    let answer = |world: &mut World, links: &[(Client, Client)]| {
        for (client, server) in links {
            server.take_bytes();
            server.send("HTTP/1.1 204 No Content\r\n\r\n");
            world.run();
            client.take_bytes();
        }
    };
    let links: Vec<_> = (0..4).map(|_| ask(&mut world, get("/one/"))).collect();
    answer(&mut world, &links);
    assert_eq!(world.engine.counters().links.links, 4);
    world.advance(LINK_IDLE_MS / 2);
    // One at a time is enough: the same link serves them all.
    for _ in 0..3 {
        links[0].0.send(get("/one/"));
        world.run();
        answer(&mut world, &[links[0].clone(), links[3].clone()]);
    }
    world.advance(LINK_IDLE_MS / 2);
    assert_eq!(world.engine.counters().links.links, 1);
    world.advance(LINK_IDLE_MS);
    assert_eq!(world.engine.counters().links.links, 0);
    assert!(links.iter().all(|(_, server)| server.is_closed() && !server.wire().was_reset));
    world.end();
}

#[test]
fn a_process_that_serves_one_connection_at_a_time_is_left_to_others_now_and_then() {
    let mut rules = proxying();
    (rules.upstreams[2].idle_max, rules.upstreams[2].connections_max) = (0, 1);
    let mut world = with_scripts(rules);
    let (_first, server) = ask(&mut world, get("/a.php"));
    let waiting: Vec<_> = (0..2).map(|_| world.connect()).collect();
    waiting.iter().for_each(|client| client.send(get("/a.php")));
    world.run();
    let answer = || [fcgi(6, b"X: 1\r\n\r\nok"), fcgi(3, &[0; 8])].concat();
    server.take_bytes();
    server.send(answer());
    world.run();
    assert!(!server.take_bytes().is_empty(), "the next request has the same connection");
    world.advance(LINK_AGE_MAX_MS);
    server.send(answer());
    world.run();
    assert_eq!(status(&waiting[0]), 200);
    assert!(server.is_closed());
    let another = world.link();
    world.run();
    another.take_bytes();
    another.send(answer());
    world.run();
    assert_eq!(status(&waiting[1]), 200);
    world.end();
}

#[test]
fn a_connection_that_is_not_kept_waits_a_moment_for_the_next_request() {
    let mut rules = proxying();
    rules.upstreams[2].idle_max = 0;
    let mut world = with_scripts(rules);
    let answer = |world: &mut World, client: &Client, server: &Client| {
        assert!(!server.take_bytes().is_empty());
        server.send([fcgi(6, b"X: 1\r\n\r\nok"), fcgi(3, &[0; 8])].concat());
        world.run();
        assert_eq!(status(client), 200);
    };
    let (client, server) = ask(&mut world, get("/a.php"));
    answer(&mut world, &client, &server);
    world.advance(LINK_PAUSE_MS - 1);
    client.send(get("/a.php"));
    world.run();
    answer(&mut world, &client, &server);
    // A process that is about to end could have read a request that must not be repeated.
    client.send(request("POST", "/a.php", "Content-Length: 0\r\n"));
    world.run();
    let another = world.link();
    world.run();
    answer(&mut world, &client, &another);
    world.advance(LINK_PAUSE_MS);
    assert!(server.is_closed() && another.is_closed());
    assert_eq!(world.engine.counters().links.links, 0);
    world.end();
}

#[test]
fn a_link_that_is_closed_after_its_answer_leaves_no_port_in_use() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let without_idle = || {
        let mut rules = proxying();
        rules.upstreams[2].idle_max = 0;
        with_scripts(rules)
    };
    for (path, records, ends, is_reset) in [
        ("/one/", answer.as_bytes().to_vec(), false, true),
        ("/one/", answer.as_bytes().to_vec(), true, false),
        ("/a.php", [fcgi(6, b"X: 1\r\n\r\nok"), fcgi(3, &[0; 8])].concat(), false, true),
    ] {
        let mut world = without_idle();
        let (client, server) = ask(&mut world, get(path));
        server.take_bytes();
        server.send(records);
        if ends {
            server.end();
        }
        world.run();
        assert_eq!(whole(&client.take_bytes()).1, b"ok");
        world.advance(LINK_PAUSE_MS);
        assert!(server.is_closed());
        assert_eq!(server.wire().was_reset, is_reset, "the one that closes second keeps nothing");
        world.end();
    }
    // A reset would discard what the server has not received.
    let mut world = without_idle();
    let (client, server) = ask(&mut world, request("POST", "/one/", "Content-Length: 2\r\n"));
    server.wire().unacknowledged = 2;
    client.reset();
    world.run();
    assert!(server.is_closed() && !server.wire().was_reset);
    world.end();
}

#[test]
fn a_shortage_of_this_machine_is_no_failure_of_a_server() {
    let mut world = world();
    let client = world.connect();
    for _ in 0..2 * SERVER_FAILURES_MAX {
        client.send(get("/p/"));
        world.run();
        while !world.machine.asked.is_empty() {
            world.refuse_link_at(0, &std::io::Error::other("Too many open files"));
            world.run();
        }
        assert_eq!(status(&client), 503);
    }
    let counters = world.engine.counters().links;
    assert_eq!((counters.refused, counters.failures, counters.links), (0, 0, 0));
    assert_eq!(counters.shortages, u64::from(4 * SERVER_FAILURES_MAX));
    assert_eq!(world.machine.reports.len(), 1, "{:?}", world.machine.reports);
    assert!(world.machine.reports[0].contains("Too many open files"));
    world.end();
}

#[test]
fn equal_servers_take_turns_and_each_worker_begins_at_another_one() {
    for worker in 0..5 {
        let mut rules = proxying();
        rules.worker = worker;
        rules.upstreams[0].servers.push(server(2, 1));
        let mut world = World::with(rules);
        let chosen: Vec<usize> = (0..6).map(|_| next_server(&mut world).into()).collect();
        assert_eq!(chosen, (0..6).map(|step| (worker + step) % 3).collect::<Vec<_>>());
        world.end();
    }
}

#[test]
fn a_gateway_that_does_not_answer_costs_the_time_to_connect() {
    let mut world = world();
    let client = world.connect();
    client.send(get("/p/"));
    world.advance(CONNECT_MS - 1);
    assert_eq!(client.received_len(), 0);
    world.advance(2 * GATEWAY_LATE_MS);
    assert_eq!(status(&client), 504);
    assert_eq!(world.engine.counters().links.failures, 0, "the server is not at fault");
    world.end();
}

#[test]
fn a_link_that_ended_with_its_answer_is_not_used_again() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/one/"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    server.end();
    world.run();
    assert_eq!(client.take_one().body, b"ok");
    assert!(server.is_closed());
    // A POST on it would be lost.
    client.send(request("POST", "/one/", ""));
    world.run();
    assert_eq!(world.machine.asked.len(), 1);
    let server = world.link();
    world.run();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    world.end();
}

#[test]
fn a_link_that_fails_before_its_first_byte_is_not_used_again() {
    let mut world = world();
    let client = world.connect();
    client.send(request("POST", "/one/", ""));
    world.run();
    let first = world.link();
    first.reset();
    world.run();
    assert!(first.is_closed());
    let second = world.link();
    world.run();
    second.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    world.end();
}

#[test]
fn requests_are_shared_by_weight() {
    let mut rules = proxying();
    rules.upstreams[0].servers = vec![server(0, 1), server(1, 3)];
    let mut world = World::with(rules);
    let mut clients = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..8 {
        let client = world.connect();
        client.send(get("/p/"));
        world.run();
        asked.push(world.machine.asked.last().map(|(_, server)| server.server));
        clients.push(client);
    }
    // At most four connections to each, so the last two have to go to the first server.
    assert_eq!(asked.into_iter().flatten().collect::<Vec<_>>(), [1, 1, 0, 1, 1, 0, 0, 0]);
    world.end();
}

#[test]
fn every_server_is_tried_once() {
    let mut rules = proxying();
    rules.upstreams[0].servers.push(server(2, 1));
    let mut world = World::with(rules);
    let client = world.connect();
    client.send(get("/p/"));
    world.run();
    let mut tried = Vec::new();
    for _ in 0..3 {
        tried.push(world.machine.asked[0].1.server);
        // Each has its own time.
        world.advance(CONNECT_MS);
        world.refuse_link();
        world.run();
    }
    tried.sort_unstable();
    assert_eq!(tried, [0, 1, 2]);
    assert_eq!((status(&client), world.machine.asked.len()), (502, 0));
    world.end();
}

#[test]
fn a_link_that_a_leaving_client_gives_back_wakes_the_next() {
    let mut world = world();
    let mut clients: Vec<Client> = (0..5)
        .map(|_| {
            let client = world.connect();
            client.send(get("/one/"));
            world.run();
            client
        })
        .collect();
    // The link is made, and before the request is sent, its client is gone.
    let server = world.link();
    clients.remove(0).reset();
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/ "), "the one that waited has it");
    world.end();
}

#[test]
fn a_server_that_keeps_failing_is_left_alone_for_a_while() {
    let mut world = world();
    let server_of = |world: &mut World| {
        let client = world.connect();
        client.send(request("POST", "/p/", ""));
        world.run();
        let server = world.machine.asked[0].1.server;
        client.reset();
        world.run();
        let link = world.link();
        world.run();
        link.reset();
        world.run();
        server
    };
    fail_first(&mut world);
    for _ in 0..3 {
        assert_eq!(server_of(&mut world), 1, "the first server is left alone");
    }
    world.advance(SERVER_DOWN_MS);
    assert_eq!(server_of(&mut world), 0);
    world.end();
}

/// Sends requests until the first server of `/p/` has failed so often that it is left alone. The second one answers.
fn fail_first(world: &mut World) {
    let mut failures = 0;
    while failures < SERVER_FAILURES_MAX {
        let client = world.connect();
        client.send(request("POST", "/p/", ""));
        world.run();
        let is_first = world.machine.asked[0].1.server == 0;
        let server = world.link();
        world.run();
        if is_first {
            server.reset();
        } else {
            server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        }
        world.run();
        assert_eq!(status(&client), if is_first { 502 } else { 204 });
        failures += u32::from(is_first);
        client.end();
    }
    world.run();
}

/// Two servers with one connection each, of which the first one is to be left alone for a while.
fn with_a_pause() -> World {
    let mut rules = proxying();
    rules.upstreams[0].connections_max = 1;
    let mut world = World::with(rules);
    fail_first(&mut world);
    world
}

#[test]
fn a_pause_that_ends_serves_the_queue_without_another_event() {
    let mut world = with_a_pause();
    world.advance(SERVER_DOWN_MS - CONNECT_MS / 2);
    let (_busy, _server) = ask(&mut world, get("/p/"));
    let waiting = world.connect();
    waiting.send(get("/p/"));
    world.run();
    assert_eq!((world.machine.asked.len(), world.engine.counters().links.waiting), (0, 1));
    world.advance(CONNECT_MS / 2);
    assert_eq!(world.machine.asked.iter().map(|(_, server)| server.server).collect::<Vec<_>>(), [0]);
    let server = world.link();
    world.run();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&waiting), 204);
    world.end();
}

/// Reports the result of probes of a server of `/p/`.
fn probe(world: &mut World, server: u16, is_up: bool) {
    let server = ServerId { upstream: UpstreamId(0), server };
    world.engine.handle_probed(&mut world.machine, server, is_up);
    world.run();
}

/// The server that the next request of `/p/` goes to.
fn next_server(world: &mut World) -> u16 {
    let client = world.connect();
    client.send(get("/p/"));
    world.run();
    let server = world.machine.asked[0].1.server;
    client.reset();
    world.run();
    world.link().reset();
    world.run();
    server
}

#[test]
fn a_server_whose_probes_fail_gets_no_requests_until_they_succeed() {
    let mut world = world();
    probe(&mut world, 0, false);
    assert_eq!(world.engine.counters().links.down, 1);
    for _ in 0..5 {
        assert_eq!(next_server(&mut world), 1);
    }
    world.advance(10 * SERVER_DOWN_MS);
    assert_eq!(next_server(&mut world), 1, "only a probe ends it");
    // A server is better than none.
    probe(&mut world, 1, false);
    assert_eq!((next_server(&mut world), world.engine.counters().links.down), (0, 2));
    probe(&mut world, 1, true);
    assert_eq!(next_server(&mut world), 1);
    probe(&mut world, 0, true);
    assert_eq!((next_server(&mut world), world.engine.counters().links.down), (0, 0));
    world.end();
}

#[test]
fn a_probe_serves_the_queue() {
    // With success, and with the failure that leaves all servers down.
    for (first, server, is_up) in [(Some(0), 0, true), (None, 1, false)] {
        let mut world = with_a_pause();
        if let Some(first) = first {
            world.advance(SERVER_DOWN_MS);
            probe(&mut world, first, false);
        }
        let (_busy, _server) = ask(&mut world, get("/p/"));
        let waiting = world.connect();
        waiting.send(get("/p/"));
        world.run();
        assert_eq!(world.machine.asked.len(), 0);
        probe(&mut world, server, is_up);
        assert_eq!(world.machine.asked.iter().map(|(_, server)| server.server).collect::<Vec<_>>(), [0]);
        world.end();
    }
}

#[test]
fn a_probe_ends_a_pause_and_one_of_an_unknown_server_does_nothing() {
    let mut world = with_a_pause();
    assert_eq!(next_server(&mut world), 1);
    probe(&mut world, 0, true);
    assert_eq!(next_server(&mut world), 0);
    for (upstream, server) in [(0, 2), (3, 0), (u16::MAX, u16::MAX)] {
        let server = ServerId { upstream: UpstreamId(upstream), server };
        world.engine.handle_probed(&mut world.machine, server, false);
    }
    assert_eq!(world.engine.counters().links.down, 0);
    world.end();
}

#[test]
fn bad_answers_are_502() {
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(ANSWER_HEAD_BYTES_MAX));
    let interim = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let only_interim = interim.repeat(ANSWER_HEAD_BYTES_MAX / interim.len() + 1);
    for answer in [
        "garbage\r\n\r\n",
        "",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        "HTTP/1.1 200 OK\nX: y\n\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Le",
        endless.as_str(),
        only_interim.as_str(),
    ] {
        let mut world = world();
        let (client, server) = ask(&mut world, request("POST", "/p/", ""));
        server.send(answer);
        server.end();
        world.run();
        assert_eq!(status(&client), 502, "{answer:.60}");
        assert_eq!(world.machine.reports.len(), 1, "{:?}", world.machine.reports);
        assert!(server.is_closed());
        world.end();
    }
}

#[test]
fn an_answer_that_breaks_off_breaks_off_for_the_client() {
    for answer in [
        "Content-Length: 5\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeX",
        "Transfer-Encoding: chunked\r\n\r\nx\r\n",
    ] {
        let mut world = world();
        let (client, server) = ask(&mut world, get("/p/"));
        server.send("HTTP/1.1 200 OK\r\n");
        server.send(&answer[..answer.find("\r\n\r\n").expect("a head") + 4]);
        world.run();
        server.send(&answer[answer.find("\r\n\r\n").expect("a head") + 4..]);
        server.end();
        world.run();
        assert!(client.is_closed(), "{answer:?}");
        assert!(!text(&client.received()).ends_with("0\r\n\r\n"), "{answer:?}");
        world.end();
    }
    // A reset is no end of a body that ends with its connection.
    let mut world = world();
    let (client, server) = ask(&mut world, request("GET", "/p/", ""));
    server.send("HTTP/1.1 200 OK\r\n\r\nabc");
    world.run();
    server.reset();
    world.run();
    assert!(client.is_closed() && !text(&client.received()).ends_with("0\r\n\r\n"));
    world.end();
}

#[test]
fn what_follows_an_answer_is_never_an_answer() {
    for answer in [
        "Content-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    ] {
        let mut world = world();
        let (client, server) = ask(&mut world, get("/one/"));
        server.send(format!("HTTP/1.1 200 OK\r\n{answer}"));
        world.run();
        assert!(!text(&client.take_bytes()).contains("poison"));
        assert!(server.is_closed(), "the link is not used again");
        world.end();
    }
    // An answer that nobody asked for closes its link.
    let mut world = world();
    let (client, server) = ask(&mut world, get("/one/"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    client.take_bytes();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
    world.run();
    assert!(server.is_closed());
    world.end();
}

#[test]
fn a_server_that_says_nothing_is_504() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/p/"));
    world.advance(ANSWER_MS - 1_000);
    assert_eq!(client.received_len(), 0);
    world.advance(2_000);
    assert_eq!(status(&client), 504);
    assert!(server.is_closed());
    // One that stops within its answer is cut off.
    let (client, server) = ask(&mut world, get("/one/"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
    world.advance(ANSWER_MS + 2_000);
    assert!(client.is_closed() && server.is_closed());
    world.end();
}

#[test]
fn a_server_that_comes_back_serves_those_that_wait() {
    let mut world = with_a_pause();
    // The second server is in use.
    let _held = ask(&mut world, get("/p/held"));
    let wait = |world: &mut World| {
        let client = world.connect();
        client.send(get("/p/waits"));
        world.run();
        client
    };
    let _first = wait(&mut world);
    world.advance(SERVER_DOWN_MS - CONNECT_MS / 2);
    let _second = wait(&mut world);
    assert!(world.machine.asked.is_empty());
    world.advance(CONNECT_MS);
    let _third = wait(&mut world);
    assert!(!world.machine.asked.is_empty(), "the first server has room for those that wait");
    world.end();
}

#[test]
fn a_piece_that_uses_up_a_turn_renews_the_deadline() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/one/"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n");
    world.advance(ANSWER_MS * 3 / 4);
    const { assert!(SEND_BYTES_PER_TURN_MAX.is_multiple_of(RECEIVE_BYTES)) };
    server.send_pieces((0..SEND_BYTES_PER_TURN_MAX / RECEIVE_BYTES).map(|_| vec![b'x'; RECEIVE_BYTES]));
    world.advance(ANSWER_MS * 3 / 4);
    assert!(!client.is_closed(), "the server was silent for less than its time");
    world.advance(ANSWER_MS);
    assert!(client.is_closed());
    world.end();
}

#[test]
fn the_queue_is_bounded_in_length_and_time_and_keeps_its_order() {
    let mut world = world();
    let clients: Vec<Client> = (0..7)
        .map(|number| {
            let client = world.connect();
            client.send(get(&format!("/one/{number}")));
            world.run();
            client
        })
        .collect();
    assert_eq!(world.machine.asked.len(), 4);
    assert_eq!(status(&clients[6]), 503, "two wait, the third does not fit");
    let servers: Vec<Client> = (0..4).map(|_| world.link()).collect();
    world.run();
    servers[2].send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert!(text(&servers[2].take_bytes()).contains("GET /one/4 "), "the one that waited first");
    // The next one leaves, so nobody gets its place.
    clients[5].reset();
    world.run();
    servers[1].send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert!(!text(&servers[1].take_bytes()).contains("GET /one/5 "));
    let (late, _) = (world.connect(), ());
    let _fills: Vec<Client> = (0..2)
        .map(|_| {
            let client = world.connect();
            client.send(get("/one/fill"));
            world.run();
            client
        })
        .collect();
    late.send(get("/one/late"));
    world.run();
    world.advance(CONNECT_MS + 1_000);
    assert_eq!(status(&late), 503);
    world.end();
}

/// A request of a client with this address.
fn ask_from(world: &mut World, last: u8, path: &str) -> Client {
    world.only_address = Some([10, 0, 0, last].into());
    let client = world.connect();
    world.only_address = None;
    client.send(get(path));
    world.run();
    client
}

#[test]
fn a_client_has_a_share_of_the_connections_and_of_the_queue() {
    let mut world = world();
    let mut clients: Vec<Client> = (0..4).map(|_| ask_from(&mut world, 1, "/one/a")).collect();
    let counters = world.engine.counters().links;
    assert_eq!((counters.links, counters.waiting), (2, 1), "half of four connections, and of two places");
    assert_eq!(status(&clients[3]), 503);
    // Another one passes by those that wait.
    let other = ask_from(&mut world, 2, "/one/b");
    assert_eq!(world.engine.counters().links.links, 3);
    let servers: Vec<Client> = (0..3).map(|_| world.link()).collect();
    world.run();
    servers[2].send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&other), 204);
    // The one that waits is served when another of its client has ended.
    servers[0].take_bytes();
    servers[0].send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!((status(&clients.remove(0)), world.engine.counters().links.waiting), (204, 0));
    world.end();
}

#[test]
fn an_exempt_client_has_all_connections() {
    let mut rules = proxying();
    rules.admission.exempt = vec!["10.0.0.1/32".parse().expect("a network")];
    let mut world = World::with(rules);
    let clients: Vec<Client> = (0..7).map(|_| ask_from(&mut world, 1, "/one/a")).collect();
    let counters = world.engine.counters().links;
    assert_eq!((counters.links, counters.waiting), (4, 2));
    assert_eq!(status(&clients[6]), 503);
    world.end();
}

#[test]
fn a_client_that_leaves_gives_its_share_back() {
    let mut world = world();
    for _ in 0..3 {
        // A link in the making counts until it is made: the gateway works for its client.
        let clients: Vec<Client> = (0..3).map(|_| ask_from(&mut world, 1, "/one/a")).collect();
        assert_eq!(world.engine.counters().links.waiting, 1);
        clients.iter().for_each(Client::reset);
        world.run();
        assert_eq!(world.engine.counters().links.waiting, 0);
        while !world.machine.asked.is_empty() {
            world.link();
        }
        world.run();
    }
    let _clients: Vec<Client> = (0..2).map(|_| ask_from(&mut world, 1, "/one/a")).collect();
    assert_eq!(world.engine.counters().links.waiting, 0);
}

#[test]
fn a_link_that_comes_too_late_serves_the_next_request() {
    let mut world = world();
    let client = world.connect();
    client.send(get("/one/"));
    world.advance(2 * CONNECT_MS + 1_000);
    assert_eq!(status(&client), 504);
    let server = world.link();
    world.run();
    client.send(get("/one/next"));
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/next "));
    world.end();
}

#[test]
fn a_link_that_is_late_counts_for_its_client_until_it_is_made() {
    let mut rules = proxying();
    (rules.upstreams[1].connections_max, rules.upstreams[1].queue_max) = (2, 0);
    let mut world = World::with(rules);
    let late = ask_from(&mut world, 1, "/one/a");
    world.advance(CONNECT_MS + GATEWAY_LATE_MS + 1_000);
    assert_eq!(status(&late), 504);
    late.send(get("/one/b"));
    world.run();
    assert_eq!(status(&late), 503, "its client has half of the connections, and there is no queue");
    let _other = ask_from(&mut world, 2, "/one/c");
    assert_eq!(world.machine.asked.len(), 2, "the rest is for others");
    let server = world.link();
    world.run();
    late.send(get("/one/d"));
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/d "));
    world.end();
}

#[test]
fn bodies_that_are_late_or_too_long_are_refused() {
    let mut world = world();
    let (client, server) = ask(&mut world, request("POST", "/p/", "Content-Length: 5\r\n"));
    client.send("ab");
    world.advance(HEAD_MS + 1_000);
    assert_eq!(status(&client), 408);
    assert!(server.is_closed() && client.is_ended());
    let client = world.connect();
    client.send(request("POST", "/p/", &format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1)));
    world.run();
    assert_eq!(status(&client), 413);
    let (client, server) = ask(&mut world, request("POST", "/p/", "Transfer-Encoding: chunked\r\n"));
    client.send(format!("{:x}\r\n", 2 * BODY_BYTES_MAX));
    client.send_pieces((0..40).map(|_| vec![b'x'; 30_000]));
    world.run();
    assert_eq!(status(&client), 413);
    assert!(server.is_closed());
    let (client, _server) = ask(&mut world, request("POST", "/p/", "Transfer-Encoding: chunked\r\n"));
    client.send("nonsense\r\n");
    world.run();
    assert_eq!(status(&client), 400);
    world.end();
}

#[test]
fn an_answer_before_the_end_of_the_body_is_the_last_one() {
    let mut world = world();
    let (client, server) = ask(&mut world, request("POST", "/p/", "Content-Length: 100\r\n"));
    server.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    world.run();
    let (head, body) = whole(&client.take_bytes());
    assert!(head.contains("Connection: close"), "{head}");
    assert_eq!(body, b"no");
    assert!(client.is_ended() && server.is_closed());
    world.end();
}

#[test]
fn the_application_notices_when_its_client_leaves() {
    for leaves in [Client::end, Client::reset] {
        let mut world = world();
        let (client, server) = ask(&mut world, get("/p/"));
        leaves(&client);
        world.run();
        assert!(client.is_closed() && server.is_closed());
        // Also in mid-answer.
        let (client, server) = ask(&mut world, get("/p/"));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
        world.run();
        assert!(text(&client.received()).ends_with("half"));
        leaves(&client);
        world.run();
        assert!(client.is_closed() && server.is_closed());
        // Also while it waits for a link: the link then is for others.
        let client = world.connect();
        client.send(get("/p/"));
        world.run();
        leaves(&client);
        world.run();
        assert!(client.is_closed());
        let server = world.link();
        world.run();
        assert!(!server.is_closed());
        world.end();
    }
}

#[test]
fn a_connection_that_changes_its_protocol_carries_anything_both_ways() {
    let mut world = world();
    let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let (client, server) = ask(&mut world, request("GET", "/p/ws", fields));
    let head = text(&server.take_bytes());
    assert!(head.contains("Upgrade: websocket\r\n") && head.contains("Connection: upgrade\r\n"), "{head}");
    server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst");
    world.run();
    let bytes = text(&client.take_bytes());
    assert!(bytes.contains("Upgrade: websocket\r\n") && bytes.contains("Connection: upgrade\r\n"), "{bytes}");
    assert!(bytes.ends_with("\r\n\r\nfirst") && !bytes.contains("chunked"), "{bytes}");
    for _ in 0..3 {
        client.send("ping");
        world.run();
        assert_eq!(server.take_bytes(), b"ping");
        server.send("pong");
        world.run();
        assert_eq!(client.take_bytes(), b"pong");
    }
    client.end();
    world.run();
    assert!(server.is_ended() && !client.is_closed());
    server.send("bye");
    server.end();
    world.run();
    assert_eq!(client.take_bytes(), b"bye");
    assert!(client.is_ended());
    world.end();
}

#[test]
fn the_end_of_a_changed_protocol_is_no_failure_of_its_server() {
    for resets in [false, true] {
        let mut world = world();
        for _ in 0..4 {
            let fields = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
            let (client, server) = ask(&mut world, request("GET", "/one/ws", fields));
            server.send(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            );
            world.run();
            if resets {
                server.reset();
                world.run();
            } else {
                world.advance(2 * ANSWER_MS);
            }
            assert_eq!((client.is_closed(), server.is_closed()), (true, true), "{resets}");
        }
        let links = world.engine.counters().links;
        assert_eq!((links.failures, links.down, world.machine.reports.len()), (0, 0, 0));
        world.end();
    }
}

#[test]
fn no_request_passes_by_the_rules_of_the_server() {
    let mut world = world();
    for protocol in ["h2c", "HTTP/2.0", "websocket, h2c"] {
        let fields =
            format!("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: {protocol}\r\nHTTP2-Settings: x\r\n");
        let client = world.connect();
        client.send(request("POST", "/p/", &fields));
        world.run();
        let server = world.link();
        world.run();
        let head = text(&server.take_bytes());
        assert!(!head.contains("Upgrade") && !head.contains("HTTP2-Settings"), "{head}");
        server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n");
        world.run();
        assert_eq!(status(&client), 502);
    }
    for method in ["CONNECT h:80", "TRACE /p/"] {
        let client = world.connect();
        client.send(format!("{method} HTTP/1.1\r\nHost: h\r\n\r\n"));
        world.run();
        assert_eq!(status(&client), 405, "{method}");
    }
    assert!(world.machine.asked.is_empty());
    world.end();
}

#[test]
fn an_upstream_can_hand_a_request_back_for_a_file() {
    for field in ["X-Accel-Redirect: /private%20file?x", "X-Sendfile: /private file"] {
        let mut world = world();
        world.machine.files.add("private file", "content");
        let (client, server) = ask(&mut world, get("/p/x"));
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{field}\r\n\r\n"));
        world.run();
        assert_eq!(client.take_one().body, b"content", "{field}");
        client.get("/private%20file");
        world.run();
        assert_eq!(client.take_one().body, b"content");
        world.end();
    }
}

#[test]
fn only_a_get_that_is_handed_back_has_ranges() {
    for (method, expected) in [("GET", 206), ("POST", 200), ("HEAD", 200)] {
        let mut world = world();
        world.machine.files.add("file", "content");
        let (client, server) = ask(&mut world, request(method, "/p/x", "Range: bytes=0-1\r\n"));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: /file\r\n\r\n");
        world.run();
        assert_eq!(status(&client), expected, "{method}");
        world.end();
    }
}

#[test]
fn the_longest_length_of_an_answer_is_no_overflow() {
    for policy in [Policy::Fair, Policy::Srpt { fixed: None }] {
        let mut rules = proxying();
        rules.policy = policy;
        let mut world = World::with(rules);
        let (client, server) = ask(&mut world, get("/p/"));
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", u64::MAX));
        world.run();
        server.send("begin");
        world.run();
        assert!(text(&client.received()).ends_with("\r\n\r\nbegin"));
        server.end();
        world.run();
        assert!(client.is_closed());
        world.end();
    }
}

#[test]
fn options_that_may_not_be_forwarded_are_answered() {
    let mut world = world();
    let client = world.connect();
    client.send(request("OPTIONS", "/p/", "Max-Forwards: 0\r\n"));
    world.run();
    let answer = client.take_one();
    assert_eq!(
        (answer.status, answer.field("Allow"), world.machine.asked.len()),
        (204, Some("GET, HEAD, OPTIONS"), 0)
    );
    let (client, server) = ask(&mut world, request("OPTIONS", "/p/", "Max-Forwards: 1\r\n"));
    let forwarded = text(&server.take_bytes());
    assert!(
        forwarded.contains("\r\nMax-Forwards: 0\r\n") && forwarded.contains("\r\nVia: 1.1 flash\r\n"),
        "{forwarded}"
    );
    client.reset();
    world.end();
}

#[test]
fn a_client_that_leaves_before_its_answer_is_logged_and_counted() {
    for is_told in [false, true] {
        let mut rules = proxying();
        rules.log = LogRules::of(LogFormat::Json);
        let mut world = World::with(rules);
        let (client, server) = ask(&mut world, get("/p/left"));
        if is_told {
            client.end();
        } else {
            client.reset();
        }
        world.run();
        assert!(client.is_closed() && server.is_closed());
        assert_eq!(world.machine.log.len(), 1);
        let line = &world.machine.log[0];
        assert!(
            line.contains("\"GET /p/left HTTP/1.1\",\"status\":499,\"bytes\":0,\"whole\":false"),
            "{line}"
        );
        let counters = world.engine.counters();
        assert_eq!((counters.requests, counters.responses[3], counters.responses_cut), (1, 1, 1));
        world.end();
    }
}

#[test]
fn an_application_learns_the_port_of_the_socket() {
    let mut world = world();
    let (client, server) = ask(&mut world, "GET /a.php HTTP/1.1\r\nHost: h:4711\r\n\r\n");
    let records = text(&server.take_bytes());
    assert!(records.contains("SERVER_PORT8080") && records.contains("SERVER_ADDR192.0.2.80"), "{records}");
    assert!(records.contains("SERVER_NAMEh") && records.contains("HTTP_HOSTh:4711"), "{records}");
    client.reset();
    world.end();
}

#[test]
fn no_answer_hands_out_a_script() {
    for path in ["/private.php", "/private.PHP", "/private%2ephp", "/x/../private.php", "/private.php/", "/"]
    {
        let mut world = World::with({
            let mut rules = proxying();
            rules.sites[0].index = vec!["private.php".to_owned()];
            rules
        });
        world.machine.files.add("private.php", "source");
        let (client, server) = ask(&mut world, request("POST", "/p/x", ""));
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Accel-Redirect: {path}\r\n\r\n"));
        world.run();
        assert_eq!(status(&client), 502, "{path}");
        let [report] = &world.machine.reports[..] else { panic!("{:?}", world.machine.reports) };
        assert!(report.contains("names a script"), "{report}");
        world.end();
    }
}

#[test]
fn draining_lets_requests_end() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/p/"));
    world.engine.handle_drain(&mut world.machine);
    world.run();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    world.run();
    let (head, body) = whole(&client.take_bytes());
    assert!(head.contains("Connection: close"));
    assert_eq!(body, b"ok");
    assert!(world.engine.is_drained() || client.is_ended());
    world.end();
}

/// A FastCGI record.
pub(crate) fn fcgi(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

#[test]
fn a_fastcgi_application_answers() {
    let mut world = world();
    let (client, server) = ask(&mut world, request("POST", "/d/a.php/info?q=1", "Content-Length: 3\r\n"));
    client.send("abc");
    world.run();
    let records = server.take_bytes();
    for variable in
        ["SCRIPT_NAME/d/a.php", "PATH_INFO/info", "QUERY_STRINGq=1", "CONTENT_LENGTH3", "REQUEST_METHODPOST"]
    {
        assert!(text(&records).contains(variable), "{variable} in {}", records.escape_ascii());
    }
    assert!(records.ends_with(&fcgi(5, b"")), "the body ends");
    server.send_pieces(
        [
            fcgi(6, b"Status: 404 Not Found\r\nContent-Type: text/x\r\n\r\nhel"),
            fcgi(7, b"a warning"),
            fcgi(6, b"lo"),
            fcgi(6, b""),
            fcgi(3, &[0; 8]),
        ]
        .concat()
        .chunks(3)
        .map(<[u8]>::to_vec),
    );
    world.run();
    let (head, body) = whole(&client.take_bytes());
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && head.contains("text/x"), "{head}");
    assert_eq!(body, b"hello");
    assert!(world.machine.reports[0].contains("a warning"), "{:?}", world.machine.reports);
    client.send(get("/b.php"));
    world.run();
    assert!(!server.take_bytes().is_empty(), "the link is used again");
    server.send([fcgi(6, b"Content-Length: 2\n\nok"), fcgi(3, &[0; 8])].concat());
    world.run();
    assert_eq!(client.take_one().body, b"ok");
    // Chunks have no length that CGI could tell.
    client.send(request("POST", "/a.php", "Transfer-Encoding: chunked\r\n"));
    world.run();
    assert_eq!(status(&client), 411);
    world.end();
}

#[test]
fn bad_fastcgi_answers_are_502() {
    for records in [
        fcgi(3, &[0; 8]),
        fcgi(3, &[0, 0, 0, 0, 2, 0, 0, 0]),
        fcgi(9, b"x"),
        vec![2, 6, 0, 1, 0, 0, 0, 0],
        vec![1, 6, 0, 9, 0, 0, 0, 0],
        [fcgi(6, b"\n\n"), fcgi(3, &[0; 8])].concat(),
        fcgi(6, b"Status: x\n\n"),
    ] {
        let mut world = world();
        let (client, server) = ask(&mut world, request("POST", "/a.php", ""));
        server.send(&records);
        server.end();
        world.run();
        assert_eq!(status(&client), 502, "{}", records.escape_ascii());
        world.end();
    }
}

/// Something that happens while an answer of a known body is under way.
#[derive(Clone, Copy, Debug)]
enum Step {
    ClientRoom(usize),
    ServerRoom(usize),
    ClientSends(usize),
    ServerSends(usize),
    Wait(u64),
    Turn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1usize..200_000).prop_map(Step::ClientRoom),
        (1usize..100_000).prop_map(Step::ServerRoom),
        (1usize..80_000).prop_map(Step::ClientSends),
        (1usize..80_000).prop_map(Step::ServerSends),
        (1u64..500).prop_map(Step::Wait),
        Just(Step::Turn),
    ]
}

/// The bytes of a message with this body, framed in chunks or by its length.
fn framed(head: &str, body: &[u8], is_chunked: bool, chunk_bytes: usize) -> Vec<u8> {
    let mut bytes = head.as_bytes().to_vec();
    if !is_chunked {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        bytes.extend_from_slice(body);
        return bytes;
    }
    bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
    for chunk in body.chunks(chunk_bytes) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((at >> 8) as u8))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn both_bodies_arrive_whatever_the_pace(
        steps in prop::collection::vec(step(), 1..120),
        (body_bytes, answer_bytes) in (0usize..300_000, 0usize..900_000),
        (is_chunked, answers_chunked, chunk_bytes) in (any::<bool>(), any::<bool>(), 1usize..70_000),
        told in prop_oneof![Just(Told::Edges), Just(Told::Levels), Just(Told::LevelsOfTwoKinds)],
        slots in prop_oneof![Just(0u32), 1u32..60],
    ) {
        let mut world = world();
        world.give_spool(slots);
        world.told = told;
        let (body, answer) = (pattern(body_bytes, 1), pattern(answer_bytes, 2));
        let asks = framed("POST /one/x HTTP/1.1\r\nHost: h\r\n", &body, is_chunked, chunk_bytes);
        let says = framed("HTTP/1.1 200 OK\r\n", &answer, answers_chunked, chunk_bytes);
        let client = world.connect();
        client.set_room(0);
        let (mut asked, mut said) = (0, 0);
        let mut server: Option<Client> = None;
        let patience = steps.iter().copied().chain((0..40).flat_map(|_| {
            [Step::ClientSends(1 << 20), Step::ServerRoom(1 << 20), Step::ServerSends(1 << 20), Step::ClientRoom(1 << 20), Step::Turn]
        }));
        for step in patience {
            if server.is_none() && !world.machine.asked.is_empty() {
                let link = world.link();
                link.set_room(0);
                server = Some(link);
            }
            match (step, &server) {
                (Step::ClientRoom(bytes), _) => client.add_room(bytes),
                (Step::ServerRoom(bytes), Some(server)) => server.add_room(bytes),
                (Step::ClientSends(bytes), _) => {
                    let end = asks.len().min(asked + bytes);
                    client.send(&asks[asked..end]);
                    asked = end;
                }
                // The server answers when it has everything, so that no answer is the last one.
                (Step::ServerSends(bytes), Some(server)) if asked == asks.len() => {
                    let has_all = if is_chunked {
                        server.received().windows(5).any(|end| end == b"0\r\n\r\n")
                    } else {
                        server.received_len() >= body.len() + 100
                    };
                    if has_all {
                        let end = says.len().min(said + bytes);
                        server.send(&says[said..end]);
                        said = end;
                    }
                }
                (Step::Wait(ms), _) => world.advance(ms),
                _ => world.turn(),
            }
        }
        world.run();
        let server = server.expect("a link");
        let received = server.take_bytes();
        let head_end = received.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        let mut got = received[head_end..].to_vec();
        if is_chunked {
            let progress = Chunked::new().decode(&mut got).expect("chunks");
            prop_assert!(progress.done && progress.consumed == got.len());
            got.truncate(progress.data_bytes);
        }
        prop_assert!(got == body, "{} bytes of {}", got.len(), body.len());
        let (_, got) = whole(&client.take_bytes());
        prop_assert!(got == answer, "{} bytes of {}", got.len(), answer.len());
        prop_assert_eq!((client.is_ended(), world.engine.counters().links.links), (false, 1));
        world.end();
    }
}

// Some pieces are sent from the buffer.
const _: () = assert!(PASSED_ON_BYTES < RECEIVE_BYTES);

/// [`proxying`], with bodies that are gathered first.
fn gathering() -> World {
    let mut rules = proxying();
    rules.sites[0].routes.iter_mut().for_each(|route| route.streams_bodies = false);
    with_scripts(rules)
}

/// Bytes that differ from place to place.
pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

/// The head and the body of the one request in these bytes.
fn received(bytes: &[u8]) -> (String, Vec<u8>) {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    (text(&bytes[..end]), bytes[end..].to_vec())
}

/// A POST with the first part of its body.
fn post(path: &str, framing: &str, body: &[u8]) -> Vec<u8> {
    [format!("POST {path} HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n").as_bytes(), body].concat()
}

#[test]
fn a_server_is_asked_for_once_the_body_is_complete() {
    let mut world = gathering();
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 6", b"abc"));
    world.run();
    world.advance(HEAD_MS - 1_000);
    assert!(world.machine.asked.is_empty(), "no server is kept busy");
    client.send("def");
    world.run();
    let server = world.link();
    world.run();
    let (head, body) = received(&server.take_bytes());
    assert!(head.contains("Content-Length: 6\r\n") && body == b"abcdef", "{head}");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    assert_eq!(world.engine.counters().bodies, 0);
    world.end();
}

#[test]
fn a_long_body_goes_through_the_file() {
    for framing in ["Content-Length: 500000", "Transfer-Encoding: chunked"] {
        let mut world = gathering();
        world.give_spool(100);
        let client = world.connect();
        let data = bytes(500_000);
        let sent = match framing {
            "Transfer-Encoding: chunked" => {
                [format!("{:x}\r\n", data.len()).as_bytes(), &data, b"\r\n0\r\n\r\n"].concat()
            }
            _ => data.clone(),
        };
        client.send(post("/one/", framing, &sent));
        world.run();
        let held = world.engine.counters();
        assert!(held.spool_slots >= 3 && held.input_bytes <= 2 * RECEIVE_BYTES, "{held:?}");
        let server = world.link();
        world.run();
        let (head, body) = received(&server.take_bytes());
        assert!(head.contains("Content-Length: 500000\r\n") && !head.contains("chunked"), "{head}");
        assert!(body == data, "{} bytes arrived", body.len());
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        world.run();
        assert_eq!(status(&client), 200);
        let left = world.engine.counters();
        assert_eq!((left.bodies, left.spool_slots, left.input_bytes), (0, 0, 0));
        world.end();
    }
}

#[test]
fn an_application_learns_the_length_of_a_chunked_body() {
    let mut world = gathering();
    world.give_spool(1);
    let (_client, server) =
        ask(&mut world, post("/a.php", "Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"));
    let records = text(&server.take_bytes());
    assert!(records.contains("CONTENT_LENGTH3") && records.contains("abc"), "{records}");
    // Without a file, its length cannot become known.
    let mut world = gathering();
    let (_, refused) = world.ask(post("/a.php", "Transfer-Encoding: chunked", b"3\r\nabc\r\n0\r\n\r\n"));
    assert_eq!(refused.status, 411);
}

#[test]
fn a_request_with_a_whole_body_can_be_sent_again() {
    let mut world = gathering();
    let (client, first) = used_link(&mut world, "/one/");
    client.send("PUT /one/ HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
    world.turn();
    assert_eq!(received(&first.take_bytes()).1, b"abc");
    first.end();
    world.run();
    let second = world.link();
    world.run();
    assert_eq!(received(&second.take_bytes()).1, b"abc", "all of it again");
    second.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
}

#[test]
fn a_full_file_refuses_long_bodies_only() {
    let mut world = gathering();
    world.give_spool(2);
    let first = world.connect();
    first.send(post("/one/", "Content-Length: 300000", &bytes(150_000)));
    world.run();
    assert_eq!(world.engine.counters().spool_slots, 1);
    let second = world.connect();
    second.send(post("/one/", "Content-Length: 900000", &bytes(600_000)));
    world.run();
    assert_eq!(status(&second), 503);
    let third = world.connect();
    third.send(post("/one/", "Content-Length: 3", b"abc"));
    world.run();
    assert_eq!(world.machine.asked.len(), 1, "a short body needs no file");
    // The client of a body leaves.
    first.reset();
    world.run();
    assert_eq!(world.engine.counters().spool_slots, 0);
}

#[test]
fn a_slot_is_not_used_again_while_a_lost_helper_may_write() {
    let mut world = gathering();
    world.give_spool(2);
    world.auto = false;
    world.machine.helpers.uninterruptible = true;
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 300000", &bytes(150_000)));
    world.run();
    let late = world.machine.helpers.task(world.job()).expect("a job that writes");
    world.advance(60_000);
    assert_eq!(status(&client), 503);
    assert_eq!(world.engine.counters().spool_slots, 1, "it is kept");
    world.auto = true;
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 150000", &bytes(150_000)));
    world.run();
    world.write_late(&late);
    let server = world.link();
    world.run();
    assert!(received(&server.take_bytes()).1 == bytes(150_000), "no byte of another body");
    world.machine.helpers.uninterruptible = false;
    client.reset();
    world.run();
    assert_eq!(world.engine.counters().spool_slots, 0, "its helper has ended");
}

#[test]
fn nobody_gets_the_slot_of_a_write_whose_request_has_ended_before_it_is_back() {
    // It comes late, or only its helper ends.
    for is_given_up in [false, true] {
        let mut world = gathering();
        world.give_spool(1);
        world.auto = false;
        world.machine.helpers.uninterruptible = true;
        let client = world.connect();
        client.send(post("/one/", "Content-Length: 300000", &bytes(150_000)));
        world.run();
        let (job, late) = (world.job(), world.machine.helpers.task(world.job()).expect("a job that writes"));
        client.reset();
        world.run();
        if is_given_up {
            world.advance(JOB_MS);
            assert!(world.machine.helpers.running.is_empty());
        }
        let held = world.engine.counters();
        assert_eq!((held.bodies, held.spool_slots, held.input_bytes), (0, 1, 0));
        let other = world.connect();
        other.send(post("/one/", "Content-Length: 150000", &bytes(150_000)));
        world.run();
        assert_eq!(status(&other), 503, "the helper may still write");
        if is_given_up {
            world.write_late(&late);
            world.machine.helpers.uninterruptible = false;
        } else {
            world.finish(job);
        }
        world.run();
        assert_eq!(world.engine.counters().spool_slots, 0, "it is back");
        world.auto = true;
        let (_client, server) = ask(&mut world, post("/one/", "Content-Length: 150000", &bytes(150_000)));
        assert!(received(&server.take_bytes()).1 == bytes(150_000));
    }
}

#[test]
fn a_read_that_is_late_gives_its_bytes_to_no_other_request() {
    let mut world = gathering();
    world.give_spool(1);
    let others: Vec<u8> = bytes(150_000).into_iter().rev().collect();
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 150000", &others));
    world.run();
    world.auto = false;
    let server = world.link();
    world.run();
    let late = world.job();
    let Some(Task::Read { file, length_bytes, .. }) = world.machine.helpers.task(late) else {
        panic!("a helper reads the first piece");
    };
    client.reset();
    world.run();
    assert!(server.is_closed());
    // The next body is written to the same slot, and read while the first read is under way.
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 150000", &bytes(150_000)));
    world.run();
    let write = world.machine.helpers.running.iter().map(|(id, _)| *id).find(|id| *id != late);
    world.finish(write.expect("a job that writes"));
    world.run();
    let server = world.link();
    world.run();
    assert_eq!(world.machine.helpers.running.len(), 2, "two reads of one slot");
    drop(world.machine.helpers.finish(late));
    world.deliver(late, Outcome::Bytes(others[..length_bytes as usize].to_vec(), file.stat()));
    world.run();
    let early = server.take_bytes();
    world.auto = true;
    world.run();
    let all = [early, server.take_bytes()].concat();
    assert!(received(&all).1 == bytes(150_000), "no byte of another body");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    let left = world.engine.counters();
    assert_eq!((left.bodies, left.spool_slots, left.jobs_running), (0, 0, 0));
    world.end();
}

#[test]
fn a_link_on_which_a_part_of_a_held_body_is_missing_is_not_used_again() {
    let mut world = gathering();
    world.give_spool(10);
    let client = world.connect();
    client.send(post("/one/", "Content-Length: 300000", &bytes(300_000)));
    world.run();
    world.auto = false;
    let server = world.link();
    world.run();
    assert_eq!(world.machine.helpers.running.len(), 1, "a helper reads the first piece");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    assert!(server.is_closed(), "it would take the next request for the body");
    let left = world.engine.counters();
    assert_eq!((left.bodies, left.spool_slots), (0, 0));
}
