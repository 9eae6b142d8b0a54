//! Answers of upstreams that their clients take slowly: the spool has them, and their servers are free.

use flash_engine::Outcome;
use flash_engine::limits::{RATE_WINDOW_MS, RECEIVE_BYTES, SPOOL_ANSWER_MEMORY_BYTES_MAX};

use crate::machine::client::request;
use crate::machine::world::LEAST_RATE;
use crate::machine::{Client, World};
use crate::relays::{ANSWER_MS, ask, bytes, fcgi, get, proxying, status, whole, with_scripts};

/// ENOSPC.
const NO_SPACE: i32 = 28;

/// A world with a spool's file of this many slots.
fn world(slots: u32) -> World {
    let mut world = with_scripts(proxying());
    world.give_spool(slots);
    world
}

/// An answer with this body in each framing, and whether the server closes the connection after it.
fn framings(body: &[u8]) -> [(&'static str, Vec<u8>, bool); 4] {
    let http = |head: &str, body: &[u8]| [format!("HTTP/1.1 200 OK\r\n{head}\r\n").as_bytes(), body].concat();
    let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\nT: 1\r\n\r\n"].concat();
    let mut records = fcgi(6, b"Content-Type: text/x\r\n\r\n");
    body.chunks(60_000).for_each(|part| records.extend(fcgi(6, part)));
    records.extend([fcgi(6, b""), fcgi(3, &[0; 8])].concat());
    [
        ("/one/x", http(&format!("Content-Length: {}\r\n", body.len()), body), false),
        ("/one/x", http("Transfer-Encoding: chunked\r\n", &chunk), false),
        ("/one/x", http("", body), true),
        ("/a.php", records, false),
    ]
}

/// A request whose client has read a little of an answer that is complete for its server.
fn slow(world: &mut World, path: &str, answer: &[u8], closes: bool) -> (Client, Client) {
    let (client, server) = ask(world, get(path));
    server.take_bytes();
    client.set_room(1_000);
    server.send(answer);
    if closes {
        server.end();
    }
    world.run();
    (client, server)
}

/// Reads the rest in small parts.
fn read_all(world: &mut World, client: &Client) -> Vec<u8> {
    let mut got = Vec::new();
    while client.wire().wants_room() {
        client.set_room(30_000);
        world.run();
        got.extend(client.take_bytes());
    }
    got
}

#[test]
fn a_server_is_free_once_it_has_answered() {
    let body = bytes(1_000_000);
    for slots in [100, 0] {
        // Without a file, memory has room for short answers.
        let body = if slots > 0 { &body[..] } else { &body[..200_000] };
        for (path, answer, closes) in framings(body) {
            let mut world = world(slots);
            let (client, server) = slow(&mut world, path, &answer, closes);
            let links = world.engine.counters().links;
            assert_eq!((links.links, server.is_closed()), (usize::from(!closes), closes), "{path}");
            if !closes {
                // Its connection has the next request.
                let other = world.connect();
                other.send(get(path));
                world.run();
                assert!(server.received_len() > 0, "{path}: the server is free");
                other.reset();
                world.run();
            }
            let held = world.engine.counters();
            assert_eq!(held.bodies, 1);
            assert!(held.input_bytes <= SPOOL_ANSWER_MEMORY_BYTES_MAX, "{held:?}");
            assert_eq!(held.spool_slots > 0, slots > 0);
            let (_, got) = whole(&read_all(&mut world, &client));
            assert!(got == body, "{path}: {} bytes of {}", got.len(), body.len());
            let left = world.engine.counters();
            assert_eq!((left.bodies, left.spool_slots, left.input_bytes), (0, 0, 0));
            client.send(get("/hot"));
            world.run();
            assert_eq!(status(&client), 404, "the connection serves its next request");
            world.end();
        }
    }
}

#[test]
fn a_client_that_keeps_up_costs_no_copy() {
    let mut world = world(100);
    let (client, server) = ask(&mut world, get("/one/x"));
    let body = bytes(3_000_000);
    server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
    for piece in body.chunks(50_000) {
        server.send(piece);
        world.turn();
        assert_eq!(world.engine.counters().bodies, 0);
    }
    world.run();
    assert!(whole(&client.take_bytes()).1 == body);
    world.end();
}

#[test]
fn an_answer_that_finds_no_room_slows_its_server_down() {
    for slots in [0, 8] {
        let mut world = world(slots);
        let body = bytes(10_000_000);
        let (client, server) = slow(&mut world, "/one/x", &framings(&body)[0].1, false);
        let held = world.engine.counters();
        assert!(held.input_bytes <= SPOOL_ANSWER_MEMORY_BYTES_MAX);
        assert_eq!(held.spool_slots, usize::from(slots > 0), "a quarter of the half that answers can have");
        let left = server.wire().unread();
        assert!(left > 9_000_000, "{left} bytes wait at the server");
        // Its silence is no fault of the server.
        for _ in 0..20 {
            client.add_room(20 * LEAST_RATE as usize);
            world.advance(ANSWER_MS / 10);
        }
        assert!(!client.is_closed());
        let got = read_all(&mut world, &client);
        assert!(whole(&got).1 == body);
        world.end();
    }
}

#[test]
fn streams_pass_as_they_come() {
    for field in ["X-Accel-Buffering: no", "Content-Type: Text/Event-Stream;charset=utf-8", "route"] {
        let mut rules = proxying();
        rules.sites[0].routes[1].streams_answers = field == "route";
        let mut world = World::with(rules);
        world.give_spool(100);
        let (client, server) = ask(&mut world, get("/one/x"));
        client.set_room(1_000);
        let field = if field == "route" { "X: 1" } else { field };
        server.send(format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 1000000\r\n\r\n"));
        server.send_pieces((0..10).map(|_| vec![b'x'; 100_000]));
        world.run();
        assert!(server.wire().unread() >= 1_000_000 - 2 * RECEIVE_BYTES, "{field}");
        assert_eq!(world.engine.counters().bodies, 0);
        let got = read_all(&mut world, &client);
        let (head, body) = whole(&got);
        assert!(body.len() == 1_000_000 && !head.contains("X-Accel"), "{head}");
        world.end();
    }
}

#[test]
fn a_break_is_seen_after_gathering() {
    let body = bytes(500_000);
    for (number, (path, answer, _)) in framings(&body).into_iter().enumerate() {
        let mut world = world(100);
        let (client, server) = slow(&mut world, path, &answer[..answer.len() - 2_000], false);
        server.reset();
        world.run();
        client.set_room(usize::MAX);
        world.run();
        assert!(client.is_ended(), "{path}");
        let got = client.take_bytes();
        assert!(!got.ends_with(b"0\r\n\r\n") && got.len() < body.len(), "{number}: {path}");
        let left = world.engine.counters();
        assert_eq!((left.bodies, left.spool_slots, left.input_bytes), (0, 0, 0));
        world.end();
    }
    // A client that takes the end of the connection for that of the body.
    let mut world = world(100);
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.0\r\nHost: h\r\n\r\n");
    client.set_room(100);
    server.send("HTTP/1.1 200 OK\r\n\r\n");
    server.send(&body);
    world.run();
    server.reset();
    world.run();
    assert!(client.wire().was_reset);
    world.end();
}

#[test]
fn a_full_disk_costs_the_file_only() {
    let mut world = world(100);
    world.auto = false;
    let body = bytes(1_000_000);
    let (client, server) = slow(&mut world, "/one/x", &framings(&body)[0].1, false);
    let job = world.job();
    drop(world.machine.helpers.finish(job));
    world.deliver(job, Outcome::Failed(NO_SPACE));
    world.run();
    assert_eq!(world.engine.counters().spool_slots, 0);
    assert!(world.machine.helpers.running.is_empty(), "it is not tried again for this answer");
    assert!(server.wire().unread() > 300_000, "the server waits");
    world.auto = true;
    assert!(whole(&read_all(&mut world, &client)).1 == body, "no byte is lost");
    world.end();
}

#[test]
fn helpers_that_die_cost_a_try() {
    let body = bytes(1_000_000);
    let losing = |times| {
        let mut world = world(100);
        let (client, _) = slow(&mut world, "/one/x", &framings(&body)[0].1, false);
        world.auto = false;
        client.set_room(300_000);
        world.run();
        for _ in 0..times {
            let job = world.job();
            world.lose(job);
            world.run();
        }
        (world, client)
    };
    let (mut world, client) = losing(2);
    assert!(!client.is_closed());
    world.finish_job();
    world.auto = true;
    client.set_room(usize::MAX);
    world.run();
    assert!(whole(&client.take_bytes()).1 == body);
    world.end();
    // A part that cannot be read at all breaks the answer off.
    let (mut world, client) = losing(3);
    assert!(client.is_ended());
    world.end();
}

#[test]
fn a_client_that_leaves_gives_everything_back() {
    let mut world = world(100);
    world.auto = false;
    let body = bytes(1_000_000);
    let (client, server) = slow(&mut world, "/one/x", &framings(&body)[0].1, false);
    let job = world.job();
    client.reset();
    world.run();
    assert!(server.is_closed());
    let left = world.engine.counters();
    assert_eq!((left.bodies, left.input_bytes, left.spool_slots), (0, 0, 1), "a helper writes");
    world.finish(job);
    world.run();
    assert_eq!(world.engine.counters().spool_slots, 0);
    world.end();
}

#[test]
fn silent_servers_and_slow_readers_have_their_own_limits() {
    let body = bytes(200_000);
    let answer = &framings(&body)[0].1;
    // The server says nothing more; its client reads.
    let mut world = world(100);
    let (client, server) = slow(&mut world, "/one/x", &answer[..100_000], false);
    for _ in 0..ANSWER_MS / RATE_WINDOW_MS {
        assert!(!server.is_closed());
        client.add_room(2 * (LEAST_RATE * RATE_WINDOW_MS / 1_000) as usize);
        world.advance(RATE_WINDOW_MS);
    }
    world.advance(RATE_WINDOW_MS);
    assert!(server.is_closed() && client.is_ended());
    world.end();
    // The server has said everything.
    let mut world = self::world(100);
    let (client, server) = slow(&mut world, "/one/x", answer, false);
    for _ in 0..3 * ANSWER_MS / RATE_WINDOW_MS / 4 {
        client.add_room((LEAST_RATE * RATE_WINDOW_MS / 1_000) as usize + 100);
        world.advance(RATE_WINDOW_MS + 100);
        assert!(!client.is_closed());
    }
    assert!(!server.is_closed());
    client.wire().unacknowledged = 1_000;
    world.advance(3 * RATE_WINDOW_MS);
    assert!(client.is_closed(), "it reads too slowly");
    assert_eq!(world.engine.counters().bodies, 0);
    world.end();
}

#[test]
fn a_drain_waits_for_gathered_answers() {
    let mut world = world(100);
    let body = bytes(600_000);
    let (client, _) = slow(&mut world, "/one/x", &framings(&body)[1].1, false);
    world.engine.handle_drain(&mut world.machine);
    world.run();
    assert!(!world.engine.is_drained());
    assert!(whole(&read_all(&mut world, &client)).1 == body);
    world.run();
    assert!(world.engine.is_drained());
    world.end();
}

#[test]
fn head_has_no_body_and_the_next_request_waits_its_turn() {
    let mut world = world(100);
    let body = bytes(600_000);
    let (client, server) = slow(&mut world, "/one/x", &framings(&body)[0].1, false);
    client.send(request("HEAD", "/one/y", ""));
    world.run();
    assert_eq!(server.received_len(), 0, "the client still reads");
    let first = read_all(&mut world, &client);
    assert!(whole(&first).1 == body);
    client.set_room(usize::MAX);
    assert!(String::from_utf8_lossy(&server.take_bytes()).starts_with("HEAD /one/y "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    world.end();
}
