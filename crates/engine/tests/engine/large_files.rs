//! Files larger than the content cache takes: sent from the page cache, loaded and read ahead by
//! helpers.

use crate::machine::client::request;
use crate::machine::files::{PAGE_BYTES, Residency};
use crate::machine::response::{parse_head, parse_parts};
use crate::machine::{Client, Content, KIB, MIB, World};
use flash_engine::limits::{BLOCKS_AHEAD, HAND_OVER_BYTES_MAX, LOAD_BYTES, READ_BYTES_MAX};

/// A world with one cached name of `content`, of which nothing is in memory.
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
    assert!(world.get("/big").body == content.whole());
    assert_eq!(world.machine.helpers.started, 0);
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
            // The smallest rooms would take thousands of rounds; what is left goes at once.
            client.set_room(usize::MAX);
            world.run();
            assert!(client.take_one().body == whole, "pattern {number}, room {room}");
            world.end();
        }
    }
}

#[test]
fn what_is_resident_is_sent_before_the_rest_is_loaded() {
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
    assert_eq!(world.machine.helpers.history[0], format!("load 0+{LOAD_BYTES}"));
    world.end();
}

#[test]
fn thrash_is_ended_by_handing_over() {
    let content = Content::Pattern(4, 1_500 * KIB + 3);
    let mut world = cold(&content);
    world.machine.helpers.thrash = true;
    assert!(world.get("/big").body == content.whole());
    let reads = world.machine.helpers.history.iter().filter(|task| task.starts_with("read")).count() as u64;
    assert_eq!(reads, (1_500 * KIB + 3).div_ceil(HAND_OVER_BYTES_MAX));
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
fn reading_ahead_is_bounded_and_left_with_its_client() {
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
    // No more is read at once than a client takes, within the least that is worth a call.
    assert!(world.machine.calls.read_bytes <= 2 * READ_BYTES_MAX as u64 + 22 * 16 * KIB);
    world.end();
}

#[test]
fn ranges_far_apart_do_not_load_what_lies_between() {
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
fn reading_ahead_goes_on_after_a_jump_back() {
    // From the far end to the front: the second part is long, and should run at the disk's speed.
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
    assert!(most as u64 >= BLOCKS_AHEAD, "nothing was read ahead: at most {most} jobs at once");
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
    assert!(!big.is_closed(), "cut in the middle because others wait");
    world.auto = true;
    world.run();
    assert!(big.take_one().body == content.whole());
    assert!(others[0].take_one().status == 200);
    world.end();
}
