//! Clients that send the body of a request slowly: how little and for how long they may, and what is not their fault.
//! The room of their bodies goes back to the file system.

use flash_engine::limits::{SPOOL_IDLE_MS, SPOOL_KEPT_SLOTS, SPOOL_PIECE_BYTES_MAX, TICK_MS};
use flash_engine::{BodyRules, Rules};

use super::relays::{ask, bytes, proxying, status, with_scripts};
use crate::machine::client::request;
use crate::machine::world::{HEAD_MS, JOB_MS, LEAST_RATE};
use crate::machine::{Client, World};

const RATE: u64 = 500;
const GRACE_MS: u64 = 30_000;
const TOTAL_MS: u64 = 120_000;

/// The pause between two pieces of a slow body.
const STEP_MS: u64 = HEAD_MS / 2;

/// A world whose routes gather bodies, or pass them on while they come.
fn world(streams: bool) -> World {
    let bodies = BodyRules { least_rate_bytes_per_s: RATE, grace_ms: GRACE_MS, total_ms: TOTAL_MS };
    let mut rules = Rules { bodies, ..proxying() };
    for route in &mut rules.sites[0].routes {
        (route.streams_bodies, route.body_bytes_max) = (streams, 16 << 20);
    }
    let mut world = with_scripts(rules);
    world.give_spool(1_000);
    world
}

fn post(length: usize) -> String {
    request("POST", "/one/", &format!("Content-Length: {length}\r\n"))
}

/// Sends a piece every [`STEP_MS`], until there is an answer or enough time has passed. Returns how long that took.
fn trickle(world: &mut World, client: &Client, piece_bytes: usize, for_ms: u64) -> u64 {
    let begun_ms = world.elapsed_ms();
    while !client.is_ended() && client.received_len() == 0 && world.elapsed_ms() < begun_ms + for_ms {
        client.send(vec![b'x'; piece_bytes]);
        world.advance(STEP_MS);
    }
    world.elapsed_ms() - begun_ms
}

#[test]
fn a_body_that_trickles_is_refused_after_the_grace() {
    for (streams, first_bytes) in [(false, 0), (false, 300_000), (true, 0), (true, 300_000)] {
        let mut world = world(streams);
        let client = world.connect();
        client.send(post(400_000));
        client.send(bytes(first_bytes));
        world.run();
        let server = streams.then(|| world.link());
        world.run();
        let took_ms = trickle(&mut world, &client, 1, 2 * TOTAL_MS);
        assert!((GRACE_MS..=GRACE_MS + STEP_MS).contains(&took_ms), "{took_ms} ms, {streams} {first_bytes}");
        let page = client.take_one();
        assert_eq!((page.status, page.field("Connection")), (408, Some("close")));
        assert!(server.is_none_or(|server| server.is_closed()), "it has only a part");
        let left = world.engine.counters();
        assert_eq!((left.bodies, left.spool_slots, left.exchanges), (0, 0, 0));
        world.end();
    }
}

#[test]
fn a_body_that_keeps_the_rate_is_taken() {
    for streams in [false, true] {
        let mut world = world(streams);
        let piece_bytes = (RATE * STEP_MS / 1_000) as usize;
        let pieces = (TOTAL_MS / STEP_MS) as usize - 1;
        let client = world.connect();
        client.send(post(pieces * piece_bytes));
        world.run();
        let before = streams.then(|| world.link());
        trickle(&mut world, &client, piece_bytes, TOTAL_MS - STEP_MS);
        let server = before.unwrap_or_else(|| world.link());
        world.run();
        server.send("HTTP/1.1 204 No Content\r\n\r\n");
        world.run();
        assert_eq!(status(&client), 204, "{streams}");
        world.end();
    }
}

#[test]
fn a_body_ends_after_the_total_time_however_fast_it_comes() {
    for streams in [false, true] {
        let mut world = world(streams);
        let client = world.connect();
        client.send(post(1 << 20));
        world.run();
        let _server = streams.then(|| world.link());
        let took_ms = trickle(&mut world, &client, 10_000, 2 * TOTAL_MS);
        assert!((TOTAL_MS..=TOTAL_MS + STEP_MS).contains(&took_ms), "{took_ms} ms, {streams}");
        assert_eq!(status(&client), 408);
        world.end();
    }
}

#[test]
fn time_in_which_the_server_takes_nothing_does_not_count() {
    let mut world = world(true);
    let (client, server) = ask(&mut world, post(1 << 20));
    server.set_room(0);
    let body = bytes(1 << 20);
    for piece in body.chunks(1 << 17) {
        client.send(piece);
        // Some of it is there at once, most of it waits for the server.
        world.advance(40_000);
        server.add_room(1 << 17);
        world.run();
    }
    assert!(world.elapsed_ms() > 2 * TOTAL_MS);
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    world.end();
}

#[test]
fn time_in_which_a_helper_writes_does_not_count() {
    let mut world = world(false);
    world.auto = false;
    let client = world.connect();
    client.send(post(1 << 20));
    let body = bytes(1 << 20);
    for piece in body.chunks(1 << 17) {
        client.send(piece);
        world.run();
        if !world.machine.helpers.running.is_empty() {
            world.advance(JOB_MS - 1_000);
            world.finish_job();
        }
    }
    assert!(world.elapsed_ms() > TOTAL_MS + GRACE_MS);
    world.auto = true;
    world.run();
    let server = world.link();
    world.run();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    world.end();
}

#[test]
fn time_in_which_a_server_is_sought_does_not_count() {
    let mut world = world(true);
    // As many requests as the server can have, and one that waits.
    let busy: Vec<Client> = (0..4).map(|_| ask(&mut world, request("GET", "/one/", "")).1).collect();
    let client = world.connect();
    client.send(post(100));
    world.advance(4_000);
    busy[0].send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    for _ in 1..GRACE_MS / 1_000 {
        client.send("x");
        world.advance(1_000);
    }
    assert_eq!(client.received_len(), 0, "all of the grace was left");
    world.advance(2_000);
    assert_eq!(status(&client), 408);
    world.end();
}

#[test]
fn a_body_that_trickles_while_its_answer_comes_ends_both() {
    let mut world = world(true);
    let (client, server) = ask(&mut world, post(400_000));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\nhello");
    world.run();
    client.take_bytes();
    let begun_ms = world.elapsed_ms();
    while !client.is_ended() && world.elapsed_ms() < begun_ms + 2 * TOTAL_MS {
        client.send("x");
        // The client does not read fast enough to have everything, but faster than it must.
        client.set_room((2 * LEAST_RATE * STEP_MS / 1_000) as usize);
        server.send(bytes(1 << 16));
        world.advance(STEP_MS);
    }
    let took_ms = world.elapsed_ms() - begun_ms;
    assert!((GRACE_MS..=GRACE_MS + STEP_MS + TICK_MS).contains(&took_ms), "{took_ms} ms");
    assert!(client.is_ended() && server.is_closed());
    assert_eq!(world.engine.counters().links.failures, 0, "the server is not to blame");
    world.end();
}

#[test]
fn an_upgraded_connection_has_no_body() {
    let mut world = world(true);
    let (client, server) =
        ask(&mut world, request("GET", "/one/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"));
    server.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst");
    world.run();
    client.take_bytes();
    for _ in 0..2 * TOTAL_MS / STEP_MS {
        client.send("x");
        world.advance(STEP_MS);
    }
    assert!(!client.is_ended() && !server.is_closed());
    server.send("last");
    world.run();
    assert_eq!(client.take_bytes(), b"last");
    world.end();
}

#[test]
fn a_body_that_is_discarded_has_the_time_of_a_head() {
    let mut world = world(false);
    let client = world.connect();
    client.send(request("GET", "/a", "Content-Length: 100000\r\n"));
    let took_ms = trickle(&mut world, &client, 1, 2 * TOTAL_MS);
    assert!((HEAD_MS..=HEAD_MS + STEP_MS).contains(&took_ms), "{took_ms} ms");
    assert_eq!(client.take_one().status, 408);
    world.end();
}

/// The bytes of the spool's file, and the end of the last one that is not in a hole.
fn file_bytes(world: &World) -> (usize, usize) {
    let content = world.spool.as_ref().expect("a file").borrow().content.whole();
    (content.len(), content.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1))
}

#[test]
fn the_room_of_a_body_goes_back_to_the_file_system() {
    for has_no_holes in [false, true] {
        let mut world = world(false);
        world.machine.helpers.has_no_holes = has_no_holes;
        for round in 0..3 {
            let client = world.connect();
            client.send(post(4 << 20 >> round));
            client.send(vec![b'x'; 3 << 20 >> round]);
            world.run();
            let (length, end) = file_bytes(&world);
            assert!(length >= end && end > 2 << 20 >> round, "{end} bytes");
            client.reset();
            world.run();
            assert_eq!(world.engine.counters().spool_slots, 0);
            assert_eq!(file_bytes(&world), (length, end), "it could be needed again soon");
            world.advance(4 * SPOOL_IDLE_MS);
            let (length, end) = file_bytes(&world);
            let kept = if has_no_holes { SPOOL_KEPT_SLOTS as usize * SPOOL_PIECE_BYTES_MAX } else { 0 };
            assert!(end <= kept && (length <= kept || !has_no_holes), "{end} of {length} bytes");
            assert_eq!(world.engine.poll_next_ms(), None, "there is nothing more to do");
        }
        world.end();
    }
}

#[test]
fn room_that_is_used_again_is_kept() {
    let mut world = world(false);
    for _ in 0..20 {
        let client = world.connect();
        client.send(post(400_000));
        client.send(bytes(300_000));
        world.run();
        world.advance(SPOOL_IDLE_MS / 2);
        client.reset();
        world.run();
    }
    let given_back = world.machine.helpers.history.iter().filter(|job| job.starts_with("give back"));
    assert_eq!(given_back.count(), 0);
    world.end();
}

#[test]
fn a_body_gets_no_room_that_a_lost_helper_may_give_back() {
    let mut world = world(false);
    let client = world.connect();
    client.send(post(1 << 20));
    client.send(bytes(900_000));
    world.run();
    client.reset();
    world.run();
    world.auto = false;
    world.machine.helpers.uninterruptible = true;
    world.advance(3 * SPOOL_IDLE_MS);
    let late = world.machine.helpers.task(world.job()).expect("a job that gives room back");
    world.advance(JOB_MS);
    world.auto = true;
    let body = bytes(1 << 20);
    let client = world.connect();
    client.send(post(body.len()));
    client.send(&body);
    world.run();
    world.write_late(&late);
    let server = world.link();
    world.run();
    assert!(server.take_bytes().ends_with(&body), "no byte of it was given back");
    world.machine.helpers.uninterruptible = false;
    world.run();
    client.reset();
    world.advance(4 * SPOOL_IDLE_MS);
    assert_eq!(file_bytes(&world).1, 0, "the helper has ended");
    world.end();
}
