//! Encrypted connections, with a toy in the place of TLS.

use crate::machine::client::request;
use crate::machine::world::{HEAD_MS, IDLE_MS, Told};
use crate::machine::{Client, Content, KIB, MIB, World, rules};
use flash_engine::limits::{
    EARLY_BYTES, ENCRYPTED_BYTES_MAX, HANDSHAKES_PER_CLIENT_MAX, HANDSHAKES_PER_TURN_MAX, LINGER_MS,
    RATE_WINDOW_MS, RECORD_BYTES_EARLY, RECORD_BYTES_MAX, TICK_MS,
};

/// A client whose handshake is complete.
fn established(world: &mut World) -> Client {
    let client = world.connect_encrypted();
    world.run();
    assert!(client.wire().encrypted().is_some_and(|seal| seal.is_established()));
    client
}

#[test]
fn a_request_is_answered_over_records() {
    for told in [Told::Edges, Told::Levels, Told::LevelsOfTwoKinds] {
        let mut world = World::new();
        world.told = told;
        world.machine.files.add("a", Content::Pattern(1, 100 * KIB));
        world.machine.files.add("empty", "");
        let client = world.connect_encrypted();
        // The first request comes along with the end of the handshake, and no event reports it.
        client.get("/a");
        world.run();
        assert_eq!(client.take_one().body, Content::Pattern(1, 100 * KIB).whole(), "{told:?}");
        for _ in 0..2 {
            client.get("/a");
            client.get("/empty");
            world.run();
            assert_eq!(client.take().len(), 2);
        }
        let tls = world.engine.counters().tls;
        assert_eq!((tls.handshakes, tls.failed), (1, 0));
        client.end();
        world.run();
        assert!(client.is_closed() && !client.wire().was_closed_rudely());
        world.end();
    }
}

#[test]
fn a_hit_is_one_record_and_one_send() {
    let mut world = World::new();
    world.machine.files.add("a", Content::Pattern(1, KIB));
    let client = established(&mut world);
    for _ in 0..3 {
        client.get("/a");
        world.run();
        client.take_one();
    }
    let before = world.machine.calls;
    client.get("/a");
    world.run();
    assert_eq!(client.take_one().status, 200);
    let calls = world.machine.calls;
    assert_eq!((calls.sends - before.sends, calls.reads - before.reads), (1, 0));
    client.end();
    world.run();
    world.end();
}

#[test]
fn records_are_short_at_the_start_of_an_answer() {
    let mut world = World::new();
    let bytes = MIB as usize;
    world.machine.files.add("a", Content::Pattern(1, bytes as u64));
    let client = established(&mut world);
    for _ in 0..2 {
        let before = world.machine.calls.encrypted_bytes;
        client.get("/a");
        world.run();
        let plaintext = client.received_len();
        assert_eq!(client.take_one().status, 200);
        // The toy's record has a head of 11 bytes.
        let records = ((world.machine.calls.encrypted_bytes - before) as usize - plaintext) / 11;
        let least = EARLY_BYTES / RECORD_BYTES_EARLY + (bytes - EARLY_BYTES) / RECORD_BYTES_MAX;
        // Each batch of records can end with a short one.
        assert!((least..least + bytes / ENCRYPTED_BYTES_MAX + 12).contains(&records), "{records}, {least}");
    }
    client.end();
    world.run();
    world.end();
}

#[test]
fn ciphertext_that_waits_is_sent_when_there_is_room() {
    let mut world = World::new();
    world.machine.files.add("a", Content::Pattern(1, 40 * KIB));
    let client = established(&mut world);
    client.set_room(10_000);
    client.get("/a");
    world.run();
    // All of the answer is encrypted, so the connection waits for a request and has nothing of it left.
    assert_eq!(world.engine.counters().exchanges, 0);
    client.set_room(usize::MAX);
    world.run();
    assert_eq!(client.take_one().body.len(), 40 * KIB as usize);
    client.end();
    world.run();
    world.end();
}

#[test]
fn a_slow_client_holds_a_bounded_part_of_an_answer() {
    let mut world = World::new();
    world.machine.files.add("a", Content::Pattern(1, 8 * MIB));
    let client = established(&mut world);
    client.set_room(100_000);
    client.get("/a");
    world.run();
    let reads = world.machine.calls.read_bytes;
    for _ in 0..50 {
        client.add_room(20_000);
        world.run();
    }
    assert!(client.received_len() > 1_000_000);
    assert!(world.machine.calls.read_bytes <= reads + 2 * MIB, "no more is read than is sent");
    client.reset();
    world.run();
    world.end();
}

#[test]
fn the_last_answer_and_the_end_reach_a_slow_client() {
    for fields in ["Connection: close\r\n", ""] {
        let mut world = World::new();
        world.machine.files.add("a", Content::Pattern(1, 50 * KIB));
        let client = established(&mut world);
        client.set_room(10_000);
        client.send(request("GET", "/a", fields));
        if fields.is_empty() {
            // The client has sent all it wants, and still reads.
            client.end();
        }
        world.run();
        assert!(!client.is_closed(), "there is more to send");
        for _ in 0..50 {
            client.add_room(1_500);
            world.run();
        }
        assert_eq!(client.take_one().body.len(), 50 * KIB as usize);
        assert!(client.is_closed() && !client.wire().was_closed_rudely());
        world.end();
    }
}

#[test]
fn a_closing_connection_whose_client_does_not_read_is_reset() {
    for least_rate in [0, 1024] {
        let mut world = World::with(flash_engine::Rules { least_rate_bytes_per_s: least_rate, ..rules() });
        world.machine.files.add("a", Content::Pattern(1, 50 * KIB));
        let client = established(&mut world);
        client.set_room(10_000);
        client.send(request("GET", "/a", "Connection: close\r\n"));
        world.advance(2 * RATE_WINDOW_MS + IDLE_MS + 4 * TICK_MS);
        assert!(client.is_closed() && client.wire().was_reset, "{least_rate}");
        world.end();
    }
}

#[test]
fn a_failed_request_ends_with_an_announced_half_close() {
    let mut world = World::new();
    let client = established(&mut world);
    client.send("nonsense\r\n\r\n");
    world.run();
    assert_eq!(client.take_one().status, 400);
    assert!(client.is_ended() && !client.is_closed());
    assert!(client.wire().encrypted().is_some_and(|seal| seal.has_ended));
    client.end();
    world.run();
    assert!(client.is_closed());
    world.end();
}

#[test]
fn a_silent_handshake_has_the_timeout_of_a_head() {
    let mut world = World::new();
    let silent = world.connect_by_mistake();
    world.advance(HEAD_MS - 1);
    assert!(!silent.is_closed());
    world.advance(TICK_MS + 1);
    assert!(silent.is_closed() && silent.received_len() == 0);
    assert_eq!(world.engine.counters().tls.failed, 1);
    world.end();
}

#[test]
fn an_established_client_without_a_request_has_the_same() {
    let mut world = World::new();
    let client = established(&mut world);
    world.advance(HEAD_MS - 1);
    assert!(!client.is_closed());
    world.advance(TICK_MS + 1);
    assert!(client.is_closed() && !client.wire().was_closed_rudely());
    world.end();
}

#[test]
fn plain_http_on_a_port_with_tls_gets_a_plain_400() {
    let mut world = World::new();
    let client = world.connect_by_mistake();
    client.get("/");
    world.run();
    let answer = client.take_one();
    assert_eq!((answer.status, answer.closes()), (400, true));
    assert!(String::from_utf8_lossy(&answer.body).contains("https://"));
    assert_eq!(world.engine.counters().tls.plain_requests, 1);
    world.advance(LINGER_MS + TICK_MS);
    assert!(client.is_closed());
    world.end();
}

#[test]
fn garbage_on_a_port_with_tls_gets_an_alert() {
    let mut world = World::new();
    let client = world.connect_by_mistake();
    client.send([0, 1, 2, 3].repeat(10));
    world.run();
    assert!(client.is_closed() && client.received_len() > 0);
    assert_eq!(world.engine.counters().tls.failed, 1);
    world.end();
}

#[test]
fn tls_on_a_plain_port_is_closed_and_counted() {
    let mut world = World::new();
    let client = world.connect();
    client.send([22, 3, 1, 0, 200, 1, 0]);
    world.run();
    assert!(client.is_closed() && client.received_len() == 0);
    let counters = world.engine.counters();
    assert_eq!((counters.tls.on_plain, counters.requests), (1, 0));
    world.end();
}

#[test]
fn a_broken_record_costs_only_its_connection() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let [broken, other] = [(); 2].map(|()| established(&mut world));
    broken.wire().come_raw(vec![23, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    world.run();
    assert!(broken.is_closed());
    other.get("/a");
    world.run();
    assert_eq!(other.take_one().status, 200);
    other.end();
    world.run();
    world.end();
}

#[test]
fn handshakes_take_turns_behind_requests() {
    let mut world = World::new();
    world.machine.files.add("ab", "x");
    let client = established(&mut world);
    let newcomers: Vec<_> = (0..10 * HANDSHAKES_PER_TURN_MAX).map(|_| world.connect_encrypted()).collect();
    let is_established =
        |client: &Client| client.wire().encrypted().is_some_and(|seal| seal.is_established());
    let (mut before, mut turns) = (0, 0);
    while newcomers.iter().any(|newcomer| !is_established(newcomer)) {
        client.get("/ab");
        world.turn();
        assert_eq!(client.take_one().status, 200, "handshakes do not delay a request");
        let done = newcomers.iter().filter(|newcomer| is_established(newcomer)).count();
        assert!(done <= before + HANDSHAKES_PER_TURN_MAX);
        (before, turns) = (done, turns + 1);
        assert!(turns < 1_000, "the handshakes do not come to an end");
    }
    newcomers.iter().chain([&client]).for_each(Client::end);
    world.run();
    world.end();
}

#[test]
fn a_client_has_a_bounded_number_of_unfinished_handshakes() {
    let mut world = World::new();
    world.only_address = Some([192, 0, 2, 7].into());
    let unfinished: Vec<_> = (0..HANDSHAKES_PER_CLIENT_MAX).map(|_| world.connect_by_mistake()).collect();
    assert!(world.try_connect_encrypted().is_err());
    unfinished[0].reset();
    world.run();
    let client = established(&mut world);
    assert!(world.try_connect_encrypted().is_ok(), "a finished handshake does not count");
    world.advance(HEAD_MS + 2 * TICK_MS);
    assert!(client.is_closed());
    world.end();
}

#[test]
fn a_drain_lets_handshakes_end() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let idle = established(&mut world);
    idle.get("/a");
    world.run();
    idle.take_one();
    let client = world.connect_encrypted();
    client.get("/a");
    world.engine.handle_drain(&mut world.machine);
    world.run();
    assert!(idle.is_closed() && !idle.wire().was_closed_rudely());
    let answer = client.take_one();
    assert_eq!((answer.status, answer.closes()), (200, true));
    world.end();
}

#[test]
fn parts_of_files_are_read_where_others_use_sendfile() {
    let mut rules = rules();
    rules.optimizations.send_file = true;
    let mut world = World::with(rules);
    world.machine.files.add("a", Content::Pattern(1, MIB));
    let client = established(&mut world);
    client.get("/a");
    world.run();
    assert_eq!(client.take_one().body, Content::Pattern(1, MIB).whole());
    assert_eq!(world.machine.calls.file_sends, 0);
    client.end();
    world.run();
    world.end();
}

#[test]
fn room_too_small_for_an_event_is_used_when_the_rate_is_checked() {
    let mut world = World::new();
    world.machine.files.add("a", Content::Pattern(1, 90 * KIB));
    let client = established(&mut world);
    client.set_room(10_000);
    client.wire().room_event_bytes = usize::MAX;
    client.get("/a");
    world.run();
    for _ in 0..20 {
        client.add_room(KIB as usize * 31);
        world.advance(RATE_WINDOW_MS + TICK_MS);
        if client.received_len() > 90 * KIB as usize {
            break;
        }
    }
    assert_eq!(client.take_one().body.len(), 90 * KIB as usize);
    client.reset();
    world.run();
    world.end();
}
