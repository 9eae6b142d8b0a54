//! Clients that are slow, silent or gone, and jumps of the clock.

use crate::machine::client::request;
use crate::machine::world::{HEAD_MS, IDLE_MS, JOB_MS, LEAST_RATE};
use crate::machine::{Content, KIB, MIB, World, rules};
use flash_engine::limits::{DEADLINES_PER_TURN_MAX, LINGER_MS, RATE_WINDOW_MS, TICK_MS};
use flash_engine::{EgressRules, Optimizations, Rules};

#[test]
fn a_silent_client_is_closed() {
    let mut world = World::new();
    let client = world.connect();
    world.advance(HEAD_MS - 1);
    assert!(!client.is_closed());
    world.advance(TICK_MS + 1);
    assert!(client.is_closed() && client.received_len() == 0);
    world.end();
}

#[test]
fn a_slowly_arriving_head_has_one_timeout() {
    let mut world = World::new();
    let client = world.connect();
    let head = request("GET", "/", &"X: y\r\n".repeat(50));
    for piece in head.as_bytes().chunks(4).take(60) {
        client.send(piece);
        world.advance(200);
    }
    let response = client.take_one();
    assert_eq!((response.status, response.closes()), (408, true));
    assert!(world.elapsed_ms() >= HEAD_MS);
    world.advance(LINGER_MS + TICK_MS);
    assert!(client.is_closed());
    world.end();
}

#[test]
fn an_idle_connection_is_closed_and_a_used_one_is_not() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let client = world.connect();
    for _ in 0..4 {
        client.get("/a");
        world.run();
        client.take_one();
        world.advance(IDLE_MS - TICK_MS);
        assert!(!client.is_closed());
    }
    world.advance(3 * TICK_MS);
    assert!(client.is_closed());
    world.end();
}

#[test]
fn a_body_has_a_timeout() {
    let mut world = World::new();
    let client = world.connect();
    client.send(request("GET", "/a", "Content-Length: 1000\r\n"));
    world.advance(HEAD_MS + TICK_MS);
    assert_eq!(client.take_one().status, 408);
    world.end();
}

#[test]
fn a_client_that_reads_too_slowly_is_closed_and_a_faster_one_is_not() {
    for (rate, is_kept) in [(0, false), (LEAST_RATE / 2, false), (2 * LEAST_RATE, true)] {
        for size in [MIB, 3 * MIB] {
            let mut world = World::new();
            world.machine.files.add("f", Content::Pattern(1, size));
            let client = world.connect();
            client.set_room(1_000);
            client.get("/f");
            world.run();
            for _ in 0..4 * RATE_WINDOW_MS / 1000 {
                world.advance(1_000);
                client.add_room(rate as usize);
            }
            world.run();
            assert_eq!(!client.is_closed(), is_kept, "{rate} bytes/s of {size}");
            world.end();
        }
    }
}

#[test]
fn room_that_comes_without_an_event_counts() {
    // A kernel reports room only when a third of the send buffer is free: 800 KiB of 2.5 MiB. A client that
    // reads 50 KiB/s is not too slow, although 16 s pass between two events.
    let mut world = World::new();
    world.machine.files.add("f", Content::Pattern(1, 20 * MIB));
    let client = world.connect();
    client.wire().room_event_bytes = 800 * KIB as usize;
    client.set_room(2_560 * KIB as usize);
    client.get("/f");
    world.run();
    for _ in 0..40 {
        world.advance(1_000);
        client.add_room(50 * KIB as usize);
        world.run();
        assert!(!client.is_closed(), "cut after {} ms at 50 KiB/s", world.elapsed_ms());
    }
    world.end();
}

#[test]
fn waiting_for_the_disk_does_not_count_as_slow_reading() {
    let mut world = World::by_hand();
    world.machine.files.add("f", Content::Pattern(1, 3 * MIB));
    world.machine.files.inode("f").evict();
    world.machine.files.inode("f").load(0, 600 * KIB);
    let client = world.connect();
    client.set_room(10_000);
    client.get("/f");
    world.run();
    world.advance(RATE_WINDOW_MS / 2);
    client.set_room(usize::MAX);
    world.run();
    world.advance(JOB_MS - 1_000);
    assert!(!client.is_closed());
    world.auto = true;
    world.run();
    assert_eq!(client.take_one().body.len() as u64, 3 * MIB);
    world.end();
}

/// Each check of the rate tries to send, which can find that the rest of the file has left memory.
#[test]
fn a_client_that_stops_reading_is_closed_although_its_file_leaves_memory() {
    // Wherever in a piece or a record its buffer is full.
    for room_bytes in (1..10).map(|eighths| 8 * KIB as usize * eighths) {
        for (is_encrypted, send_file) in [(false, true), (false, false), (true, false)] {
            let optimizations = Optimizations { send_file, ..rules().optimizations };
            let mut world = World::with(Rules { optimizations, ..rules() });
            world.machine.files.add("f", Content::Pattern(1, 3 * MIB));
            let client = if is_encrypted { world.connect_encrypted() } else { world.connect() };
            world.run();
            client.set_room(room_bytes);
            client.get("/f");
            world.run();
            for _ in 0..4 {
                world.machine.files.inode("f").evict();
                world.advance(RATE_WINDOW_MS + 2 * TICK_MS);
            }
            assert!(
                client.is_closed(),
                "{room_bytes} bytes, encrypted: {is_encrypted}, send_file: {send_file}"
            );
            world.end();
        }
    }
}

#[test]
fn a_client_that_stops_reading_is_closed_also_at_a_busy_uplink() {
    let egress = Some(EgressRules { bytes_per_s: 200_000, workers: 1 });
    let mut world = World::with(Rules { egress, least_rate_bytes_per_s: 1_000, ..rules() });
    world.machine.files.add("f", Content::Pattern(1, 3 * MIB));
    let [stopped, patient] = [(); 2].map(|()| world.connect());
    stopped.set_room(1_000);
    for client in [&stopped, &patient] {
        client.get("/f");
    }
    // There is always an answer that goes first and is not yet complete.
    let mut busy = Vec::new();
    world.machine.files.add("small", Content::Pattern(2, 100 * KIB));
    for _ in 0..4 * RATE_WINDOW_MS / 1_000 {
        for client in [(); 2].map(|()| world.connect()) {
            client.get("/small");
            busy.push(client);
        }
        (0..10).for_each(|_| world.advance(100));
    }
    assert!(world.engine.counters().egress_waiting > 0, "the uplink is busy");
    assert!(stopped.is_closed() && !patient.is_closed(), "{} {}", stopped.is_closed(), patient.is_closed());
    world.end();
}

#[test]
fn the_check_of_the_rate_can_be_switched_off() {
    let mut world = World::with(Rules { least_rate_bytes_per_s: 0, ..rules() });
    world.machine.files.add("f", Content::Pattern(1, MIB));
    let client = world.connect();
    client.set_room(10);
    client.get("/f");
    world.advance(100 * RATE_WINDOW_MS);
    assert!(!client.is_closed());
    world.end();
}

#[test]
fn the_connection_of_a_refused_client_lingers() {
    let mut world = World::new();
    let client = world.connect();
    client.send("garbage\r\n\r\n");
    world.run();
    assert!(client.is_ended() && !client.is_closed());
    client.send(vec![b'x'; 100_000]);
    world.run();
    assert!(!client.is_closed(), "the connection must linger, so that the answer is not lost");
    world.advance(LINGER_MS + TICK_MS);
    assert!(client.is_closed());
    let client = world.connect();
    client.send("garbage\r\n\r\n");
    client.send(vec![b'x'; 10_000_000]);
    world.run();
    assert!(client.is_closed(), "lingering must be bounded");
    world.end();
}

#[test]
fn clock_jumps_are_survived() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let clients: Vec<_> = (0..10).map(|_| world.connect()).collect();
    for client in &clients {
        client.get("/a");
    }
    world.run();
    for _ in 0..3 {
        world.pass(86_400_000);
        world.run();
        let late = world.connect();
        late.get("/a");
        world.run();
        assert_eq!(late.take_one().text(), "x");
        world.advance(IDLE_MS + 2 * TICK_MS);
        assert!(late.is_closed());
    }
    assert!(clients.iter().all(crate::machine::Client::is_closed));
    world.end();
}

#[test]
fn an_idle_engine_sleeps_forever_and_a_busy_one_wakes_rarely() {
    let mut world = World::new();
    assert_eq!(world.engine.poll_next_ms(), None);
    world.machine.files.add("a", "x");
    let client = world.connect();
    let before = world.turns;
    for _ in 0..600 {
        client.get("/a");
        world.run();
        client.take_one();
        world.advance(100);
    }
    // One turn each second is for the file, which is open.
    assert!(world.turns - before < 680, "{} turns for 600 requests in a minute", world.turns - before);
    client.end();
    world.run();
    world.advance(2 * IDLE_MS);
    assert_eq!(world.engine.poll_next_ms(), None, "a timer is left");
    world.end();
}

#[test]
fn a_slow_reader_is_reset_so_that_the_kernel_keeps_no_bytes_for_it() {
    let mut world = World::new();
    world.machine.files.add("f", Content::Pattern(1, MIB));
    let client = world.connect();
    client.set_room(1_000);
    client.get("/f");
    world.advance(2 * RATE_WINDOW_MS);
    assert!(client.is_closed() && client.wire().was_reset);
    world.end();
}

#[test]
fn a_client_is_judged_by_its_acknowledged_bytes() {
    // The kernel's buffers accept far more than the client reads.
    for (acknowledged, is_kept) in [(LEAST_RATE / 2, false), (2 * LEAST_RATE, true)] {
        let mut world = World::new();
        world.machine.files.add("f", Content::Pattern(1, 3 * MIB));
        let client = world.connect();
        client.set_room(MIB as usize);
        client.wire().unacknowledged = u64::MAX;
        client.get("/f");
        world.run();
        let mut sent = MIB;
        client.wire().unacknowledged = sent;
        for _ in 0..4 * RATE_WINDOW_MS / 1000 {
            world.advance(1_000);
            if client.is_closed() {
                break;
            }
            // The client acknowledges at this rate, and the same number of bytes stays in flight.
            client.add_room(20 * KIB as usize);
            world.run();
            sent += 20 * KIB - acknowledged;
            client.wire().unacknowledged = sent;
        }
        assert_eq!(!client.is_closed(), is_kept, "{acknowledged} bytes/s");
        world.end();
    }
}

#[test]
fn a_client_that_reads_fast_enough_is_sent_nothing_by_a_check() {
    let mut world = World::new();
    world.machine.files.add("f", Content::Pattern(1, 3 * MIB));
    let client = world.connect();
    client.set_room(MIB as usize);
    client.wire().unacknowledged = u64::MAX;
    client.get("/f");
    world.run();
    client.wire().unacknowledged = MIB;
    // As in the kernel, a little room is no event.
    client.wire().room_event_bytes = 800 * KIB as usize;
    let sent = client.received_len();
    for _ in 0..RATE_WINDOW_MS / 1_000 + 1 {
        client.add_room(KIB as usize);
        world.advance(1_000);
        let left = client.wire().unacknowledged - 2 * LEAST_RATE;
        client.wire().unacknowledged = left;
    }
    assert!(!client.is_closed());
    assert_eq!(client.received_len(), sent);
    client.reset();
    world.run();
    world.end();
}

#[test]
fn an_idle_client_that_does_not_read_its_last_answer_is_reset() {
    let mut world = World::new();
    world.machine.files.add("f", Content::Pattern(1, MIB));
    let [stuck, slow] = [(); 2].map(|()| world.connect());
    for client in [&stuck, &slow] {
        client.get("/f");
        world.run();
        client.wire().unacknowledged = MIB / 2;
    }
    for _ in 0..(IDLE_MS + 5 * RATE_WINDOW_MS) / 1_000 {
        world.advance(1_000);
        if !slow.is_closed() {
            let left = slow.wire().unacknowledged.saturating_sub(2 * LEAST_RATE);
            slow.wire().unacknowledged = left;
        }
    }
    assert!(stuck.is_closed() && stuck.wire().was_reset);
    assert!(!slow.is_closed(), "the client reads its answer, although slowly");
    slow.reset();
    world.run();
    world.end();
}

#[test]
fn simultaneous_deadlines_are_spread_over_turns() {
    let mut world = World::new();
    let clients: Vec<_> = (0..5 * DEADLINES_PER_TURN_MAX).map(|_| world.connect()).collect();
    world.run();
    world.pass(HEAD_MS + TICK_MS);
    let mut open = clients.len();
    while open > 0 {
        world.turn();
        let left = clients.iter().filter(|client| !client.is_closed()).count();
        assert!(open - left <= DEADLINES_PER_TURN_MAX, "{} closed in one turn", open - left);
        assert!(left < open || world.is_busy(), "no deadline is due although {left} connections are open");
        open = left;
    }
    world.end();
}
