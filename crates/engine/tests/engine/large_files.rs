//! Files too large to be read at once, without a store: sent from the page cache, loaded and read ahead by
//! helpers.

use crate::machine::client::request;
use crate::machine::files::{PAGE_BYTES, Residency};
use crate::machine::response::{parse_head, parse_parts};
use crate::machine::{Client, Content, KIB, MIB, STORE, StoreSize, World, rules};
use flash_engine::Rules;
use flash_engine::limits::{BLOCKS_AHEAD, HAND_OVER_BYTES_MAX, LOAD_BYTES, READ_BYTES_MAX};

/// Makes a world with one cached name for `content`, of which no page is in memory.
fn cold(content: &Content) -> World {
    let mut world = World::new();
    world.machine.files.add("big", content.clone());
    world.machine.files.inode("big").evict();
    world
}

#[test]
fn a_resident_file_needs_no_helper() {
    let content = Content::Pattern(1, 3 * MIB + 17);
    let mut world = World::new();
    world.machine.files.add("big", content.clone());
    world.auto = false;
    assert!(world.get("/big").body == content.whole());
    // A job copies a block into the store, but the request does not wait for it.
    assert_eq!(world.machine.helpers.history, ["fill 0"]);
    world.finish_job();
    assert!(world.get("/big").body == content.whole());
    let counters = world.engine.counters();
    assert!(counters.block_hits > 0 && counters.block_misses > 0, "{counters:?}");
    world.end();
}

#[test]
fn byte_exact_over_residency_patterns_and_send_rooms() {
    let size = LOAD_BYTES + 130 * KIB + 5;
    let content = Content::Pattern(2, size);
    let whole = content.whole();
    let pages = size.div_ceil(PAGE_BYTES);
    let patterns: [&dyn Fn(u64) -> bool; 7] = [
        &|_| false,
        &|page| page % 2 == 0,
        &|page| page % 2 == 1,
        &|page| page < 3,
        &|page| page >= LOAD_BYTES / PAGE_BYTES,
        &|page| page < LOAD_BYTES / PAGE_BYTES - 1,
        &|page| page != 40,
    ];
    for (number, pattern) in patterns.iter().enumerate() {
        for room in [97, 4_096, 33_000, 300_000, usize::MAX] {
            let mut world = World::new();
            world.machine.files.add("big", content.clone());
            world.machine.files.inode("big").residency =
                Residency::Pages((0..pages).filter(|page| pattern(*page)).collect());
            let client = world.connect();
            client.set_room(room);
            client.get("/big");
            world.run();
            let mut turns = 0;
            while room < usize::MAX && client.received_len() < whole.len() + 100 && turns < 100 {
                client.set_room(room);
                world.run();
                turns += 1;
            }
            // With the smallest rooms, this would take thousands of rounds, so the rest is sent at once.
            client.set_room(usize::MAX);
            world.run();
            assert!(client.take_one().body == whole, "pattern {number}, room {room}");
            world.end();
        }
    }
}

#[test]
fn resident_bytes_are_sent_before_the_rest_is_loaded() {
    let content = Content::Pattern(3, 2 * MIB);
    let mut world = cold(&content);
    world.auto = false;
    world.machine.files.inode("big").load(0, 100 * KIB);
    let client = world.connect();
    client.get("/big");
    world.run();
    let bytes = client.received();
    let (_, head_bytes) = parse_head(&bytes).expect("a head");
    assert_eq!((bytes.len() - head_bytes) as u64, 100 * KIB);
    assert_eq!(world.machine.helpers.history[0], "fill 0");
    world.end();
}

#[test]
fn thrashing_ends_with_a_hand_over() {
    let content = Content::Pattern(4, 1_500 * KIB + 3);
    // Without a store, and with a store that never has room.
    for (has_store, bytes_max) in [(false, 0), (true, 64 * KIB)] {
        let mut world = World::with_store(Rules { has_store, ..rules() }, StoreSize { bytes_max, ..STORE });
        world.machine.files.add("big", content.clone());
        world.machine.files.inode("big").evict();
        world.machine.helpers.thrash = true;
        assert!(world.get("/big").body == content.whole());
        let count =
            |kind| world.machine.helpers.history.iter().filter(|task| task.starts_with(kind)).count() as u64;
        assert_eq!(count("read"), (1_500 * KIB + 3).div_ceil(HAND_OVER_BYTES_MAX), "has_store: {has_store}");
        assert_eq!(count("fill") > 0, has_store);
        world.end();
    }
}

#[test]
fn a_large_file_whose_blocks_are_in_the_store_needs_no_disk() {
    let content = Content::Pattern(12, 2 * MIB + 5);
    let mut world = cold(&content);
    assert!(world.get("/big").body == content.whole());
    assert!(world.machine.helpers.history.iter().all(|task| task.starts_with("fill")));
    world.auto = false;
    let (started, reads) = (world.machine.helpers.started, world.machine.calls.reads);
    for _ in 0..2 {
        assert!(world.get("/big").body == content.whole());
    }
    assert_eq!((world.machine.helpers.started, world.machine.calls.reads), (started, reads));
    world.end();
}

#[test]
fn a_slow_client_pins_only_the_content_that_it_receives() {
    let mut world = World::with_store(rules(), StoreSize { bytes_max: MIB, ..STORE });
    let content = Content::Pattern(13, 400 * KIB);
    world.machine.files.add_cold("pinned", content.clone());
    world.get("/pinned");
    let slow = world.connect();
    slow.set_room(1_000);
    slow.get("/pinned");
    world.run();
    for n in 0..40 {
        world.machine.files.add_cold(&format!("{n}"), Content::Pattern(n, 100 * KIB));
        assert_eq!(world.get(&format!("/{n}")).body.len() as u64, 100 * KIB);
        world.advance(200);
    }
    let pinned_bytes = world.store().borrow().totals().expect("a keeper").pinned_bytes;
    assert_eq!(pinned_bytes, 400 * KIB, "the block was evicted while a transfer sends it");
    slow.set_room(usize::MAX);
    world.run();
    assert!(slow.take_one().body == content.whole());
    world.advance(1);
    world.turn();
    assert_eq!(world.store().borrow().totals().expect("a keeper").pinned_bytes, 0);
    world.end();
}

#[test]
fn unknown_residency_is_handed_over() {
    let content = Content::Pattern(5, MIB + 1);
    let mut world = World::new();
    world.machine.files.add("big", content.clone());
    world.machine.files.inode("big").residency = Residency::Unknown;
    let client = world.connect();
    client.set_room(0);
    client.get("/big");
    for _ in 0..2_000 {
        client.add_room(1_000);
        world.run();
    }
    assert!(client.take_one().body == content.whole());
    world.end();
}

#[test]
fn reading_ahead_is_bounded_and_ends_with_its_client() {
    let content = Content::Pattern(6, 64 * MIB);
    let mut world = cold(&content);
    world.auto = false;
    world.machine.helpers.idle = 1;
    let client = world.connect();
    client.get("/big");
    world.run();
    let counters = world.engine.counters();
    assert_eq!((counters.jobs_running, counters.jobs_queued as u64), (1, BLOCKS_AHEAD));
    client.reset();
    world.run();
    assert_eq!(world.engine.counters().jobs_queued, 0);
    world.auto = true;
    world.run();
    assert_eq!(world.machine.helpers.started, 1);
    world.end();
}

#[test]
fn a_slow_client_does_not_have_the_whole_file_read_ahead() {
    let content = Content::Pattern(7, 64 * MIB);
    let mut world = cold(&content);
    let client = world.connect();
    client.set_room(1_000);
    client.get("/big");
    world.run();
    assert!(world.machine.helpers.started as u64 <= 1 + BLOCKS_AHEAD, "{:?}", world.machine.helpers.history);
    for _ in 0..20 {
        client.add_room(1_000);
        world.run();
    }
    assert!(world.machine.helpers.started as u64 <= 1 + BLOCKS_AHEAD, "{:?}", world.machine.helpers.history);
    // Reads are no larger than the client accepts, down to the smallest read.
    assert!(world.machine.calls.read_bytes <= 2 * READ_BYTES_MAX as u64 + 22 * 16 * KIB);
    world.end();
}

#[test]
fn ranges_far_apart_do_not_load_the_blocks_between() {
    let mut world = cold(&Content::Pattern(8, 900 * MIB));
    world.auto = false;
    world.machine.helpers.idle = 1;
    let client = world.connect();
    client.send(request("GET", "/big", "Range: bytes=0-0,300000000-300000009\r\n"));
    world.run();
    for _ in 0..3 {
        if !world.machine.helpers.running.is_empty() {
            world.finish_job();
        }
        let queued = world.engine.counters().jobs_queued as u64;
        assert!(queued <= 1 + BLOCKS_AHEAD, "{queued} jobs queued by one request for eleven bytes");
    }
    let parts = parse_parts(&client.take_one());
    assert_eq!(parts.len(), 2);
    world.end();
}

#[test]
fn ranges_of_a_cold_file_are_byte_exact() {
    let content = Content::Pattern(9, 5 * MIB);
    let mut world = cold(&content);
    let client = world.connect();
    let ranges = [(4 * MIB, 4 * MIB + 700_000), (10, 20), (MIB - 3, MIB + 3), (2 * MIB, 2 * MIB + 1)];
    let specs: Vec<String> = ranges.iter().map(|(start, end)| format!("{start}-{}", end - 1)).collect();
    client.send(request("GET", "/big", &format!("Range: bytes={}\r\n", specs.join(","))));
    world.run();
    let response = client.take_one();
    assert_eq!(response.status, 206);
    let parts = parse_parts(&response);
    for (part, (start, end)) in parts.iter().zip(ranges) {
        assert_eq!(part.0, format!("bytes {start}-{}/{}", end - 1, 5 * MIB));
        assert!(part.1 == content.slice(start, end));
    }
    assert_eq!(parts.len(), ranges.len());
    world.end();
}

#[test]
fn reading_ahead_continues_after_a_jump_back() {
    // From the end of the file to its front. The second part is long and should be sent at the disk's speed.
    let content = Content::Pattern(10, 20 * MIB);
    let mut world = cold(&content);
    world.auto = false;
    world.machine.helpers.idle = 8;
    let client = world.connect();
    client.send(request("GET", "/big", "Range: bytes=20971500-20971510,0-9999999\r\n"));
    world.run();
    let mut most = 0;
    while !world.machine.helpers.running.is_empty() {
        most = most.max(world.machine.helpers.running.len());
        let ids: Vec<_> = world.machine.helpers.running.iter().map(|(id, _)| *id).collect();
        for id in ids {
            world.finish(id);
        }
        world.run();
    }
    assert_eq!(parse_parts(&client.take_one())[1].1.len(), 10_000_000);
    assert!(most as u64 >= BLOCKS_AHEAD, "no block was read ahead: at most {most} jobs at once");
    world.end();
}

#[test]
fn a_transfer_under_way_survives_a_full_queue() {
    let content = Content::Pattern(11, 3 * MIB);
    let mut world = cold(&content);
    world.auto = false;
    world.machine.files.inode("big").load(0, MIB);
    let big = world.connect();
    big.set_room(MIB as usize / 2);
    big.get("/big");
    world.run();
    assert!(big.received_len() > 0);
    let mut others: Vec<Client> = Vec::new();
    for n in 0..flash_engine::limits::JOBS_QUEUED_MAX + 2 {
        world.machine.files.add_cold(&format!("{n}"), "cold");
        let client = world.connect();
        client.get(&format!("/{n}"));
        world.run();
        others.push(client);
    }
    assert_eq!(world.engine.counters().jobs_queued, flash_engine::limits::JOBS_QUEUED_MAX);
    big.set_room(usize::MAX);
    world.run();
    assert!(!big.is_closed(), "the transfer was cut because others wait");
    world.auto = true;
    world.run();
    assert!(big.take_one().body == content.whole());
    assert!(others[0].take_one().status == 200);
    world.end();
}
