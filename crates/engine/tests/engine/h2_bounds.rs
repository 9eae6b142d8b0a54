//! HTTP/2: what a client can cause for nothing is bounded. Each test is a flood, and a client close to the bound that is
//! served.

use flash_engine::limits::{
    H2_CONTINUATIONS_MAX, H2_FRAMES_MAX, H2_OUT_BYTES, H2_RESETS_MAX, H2_STREAMS_MAX, HEAD_BYTES_MAX,
    SEND_BYTES_PER_TURN_MAX,
};

use super::h2::{connect, exchange};
use crate::machine::h2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, PRIORITY_UPDATE, SETTINGS,
    WINDOW_UPDATE, frame,
};
use crate::machine::{Content, MIB, World};

const ENHANCE_YOUR_CALM: u32 = 11;

fn world() -> World {
    let mut world = World::new();
    world.machine.files.add("a", "a");
    world
}

#[test]
fn frames_that_ask_for_nothing_have_a_budget() {
    let settings = frame(SETTINGS, 0, 0, &[]);
    for (what, flood) in [
        ("PING", frame(PING, 0, 0, b"12345678")),
        ("SETTINGS", settings),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 9, 1])),
        ("PRIORITY_UPDATE", frame(PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1")),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("unknown", frame(0x77, 0, 0, b"x")),
        ("empty DATA", frame(DATA, 0, 1, &[])),
    ] {
        let mut world = world();
        let mut client = connect(&mut world);
        let stream = client.begin(("GET", "/a"), &[], false);
        // Some were used by the settings.
        client.client.send(flood.repeat(H2_FRAMES_MAX as usize - 10));
        exchange(&mut world, &mut client);
        assert_eq!(client.goaway(), None, "{what}");
        client.send(DATA, END_STREAM, stream, b"");
        exchange(&mut world, &mut client);
        assert!(client.take(stream).is_whole, "{what}");
        let stream = client.begin(("GET", "/a"), &[], false);
        let flood = if what == "empty DATA" { frame(DATA, 0, stream, &[]) } else { flood };
        client.client.send(flood.repeat(100));
        world.run();
        assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM), "{what}");
        assert_eq!(world.engine.counters().http2.flooding, 1, "{what}");
        assert_eq!(world.engine.counters().exchanges, 0, "{what}");
        world.end();
    }
}

#[test]
fn a_rapid_reset_ends_the_connection_and_leaves_no_work() {
    let mut world = World::by_hand();
    let mut client = connect(&mut world);
    for number in 0..H2_RESETS_MAX + 1 {
        world.machine.files.add_cold(&format!("c{number}"), "cold");
        let stream = client.get(&format!("/c{number}"));
        let reset = client.codec.reset(stream);
        client.client.send(reset);
    }
    world.run();
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    assert_eq!((world.engine.counters().exchanges, world.engine.counters().jobs_queued), (0, 0));
    world.end();
}

#[test]
fn malformed_streams_count_as_resets() {
    let mut world = world();
    let mut client = connect(&mut world);
    for _ in 0..H2_RESETS_MAX + 1 {
        client.ask("GET", "/a", &[("connection", "x")]);
    }
    exchange(&mut world, &mut client);
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    world.end();
}

#[test]
fn header_blocks_have_bounds() {
    let mut world = world();
    // Many frames without bytes.
    let mut client = connect(&mut world);
    client.send(HEADERS, END_STREAM, 1, &[]);
    client.client.send(frame(CONTINUATION, 0, 1, &[]).repeat(H2_CONTINUATIONS_MAX + 1));
    world.run();
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    // Many bytes.
    let mut client = connect(&mut world);
    client.send(HEADERS, END_STREAM, 1, &[0; 16_000]);
    client.client.send(frame(CONTINUATION, 0, 1, &[0; 10_000]).repeat(2));
    world.run();
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    assert!(world.engine.counters().input_bytes <= HEAD_BYTES_MAX);
    // Few bytes that stand for many: the request is refused, and the connection goes on.
    let mut client = connect(&mut world);
    let mut fields = vec![(":method", "GET"), (":scheme", "http"), (":path", "/a"), (":authority", "h")];
    let value = "x".repeat(900);
    fields.extend(std::iter::repeat_n(("bomb", &value[..]), 90));
    let (stream, frame) = client.codec.open(&fields, true);
    assert!(frame.len() < 1_100, "{}", frame.len());
    client.client.send(frame);
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).status(), 431);
    let stream = client.get("/a");
    exchange(&mut world, &mut client);
    assert_eq!(client.take(stream).body, b"a");
    // A block that cannot be decoded ends the connection.
    client.send(HEADERS, END_STREAM | END_HEADERS, stream + 2, &[0x80]);
    world.run();
    assert_eq!(client.goaway(), Some(9));
    world.end();
}

#[test]
fn many_settings_in_one_frame_are_refused() {
    let mut world = world();
    let mut client = connect(&mut world);
    client.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 1, 0].repeat(65));
    world.run();
    assert_eq!(client.goaway(), Some(ENHANCE_YOUR_CALM));
    world.end();
}

#[test]
fn a_client_that_reads_nothing_makes_the_server_hold_little() {
    let mut world = world();
    world.machine.files.add("big", Content::Pattern(1, MIB));
    world.get("/big");
    let mut client = connect(&mut world);
    let grow = client.codec.grow(0, 100 << 20);
    client.client.send(grow);
    let settings = client.codec.settings(1 << 20);
    client.client.send(settings);
    exchange(&mut world, &mut client);
    client.client.set_room(0);
    let reads = world.machine.calls.reads;
    for _ in 0..H2_STREAMS_MAX {
        client.get("/big");
    }
    client.client.send(frame(PING, 0, 0, b"12345678").repeat(1_000));
    world.run();
    let read = world.machine.calls.reads - reads;
    assert!(read <= 2, "{read} reads for a client that reads nothing");
    assert!(!client.client.is_received() || world.engine.counters().input_bytes < H2_OUT_BYTES);
    // Each turn sends a bounded amount.
    client.client.set_room(usize::MAX);
    for _ in 0..20 {
        let before = client.client.received_len();
        world.turn();
        let sent = client.client.received_len() - before;
        // The last frame can exceed the bound, and a connection that is continued has a second one.
        assert!(sent <= 2 * (SEND_BYTES_PER_TURN_MAX + 17_000), "{sent}");
    }
    world.end();
}
