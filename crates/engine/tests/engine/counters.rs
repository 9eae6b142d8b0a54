//! The engine's counters match the events of the test.

use flash_engine::{Counters, JobCounters, JobKind, Rules, Times};

use crate::machine::client::request;
use crate::machine::{Content, KIB, MIB, World, rules};

fn job(counters: &Counters, kind: JobKind) -> JobCounters {
    counters.jobs[kind as usize]
}

#[test]
fn hits_are_counted_in_the_cache_that_gave_them() {
    let mut world = World::new();
    world.machine.files.add("a.html", "hello");
    let client = world.connect();
    for _ in 0..5 {
        client.get("/a.html");
        world.run();
        client.take_one();
    }
    let c = world.engine.counters();
    assert_eq!((c.requests, c.responses, c.responses_cut), (5, [0, 5, 0, 0, 0], 0));
    // The worker itself opened the file. Its head is known from the third request on.
    assert_eq!((c.name_misses, c.file_misses, c.content_misses, c.known_misses), (1, 1, 1, 2));
    // The first request read the page cache; meanwhile the file was brought into the store.
    assert_eq!((c.name_hits, c.file_hits, c.content_hits, c.known_hits), (1, 0, 4, 3));
    assert_eq!((c.sends.count(), c.sends.sum()), (5, world.machine.calls.sent_bytes));
    assert_eq!((c.accepted, c.connections, c.connections_most, c.refused_all()), (1, 1, 1, 0));
    assert_eq!((c.names, c.files, c.contents), (1, 1, 1));
    assert_eq!(job(&c, JobKind::Fill), JobCounters { started: 1, refused: 0, refused_wait: 0, lost: 0 });
    assert_eq!(c.jobs.iter().map(|kind| kind.started).sum::<u64>(), 1);
    world.end();
}

#[test]
fn a_file_that_needs_several_jobs_is_one_miss() {
    let mut world = World::new();
    world.machine.files.add("cold", "cold");
    world.machine.files.inode("cold").evict();
    for _ in 0..2 {
        assert_eq!(world.get("/cold").text(), "cold");
    }
    let c = world.engine.counters();
    assert_eq!((c.content_misses, c.content_hits, c.file_misses, c.file_hits), (1, 1, 1, 0));
    assert_eq!(job(&c, JobKind::Fill), JobCounters { started: 1, refused: 0, refused_wait: 0, lost: 0 });
    assert_eq!((c.queue_lengths.count(), c.queue_lengths.max()), (1, 1));
    assert_eq!(world.machine.helpers.started as u64, c.jobs.iter().map(|kind| kind.started).sum::<u64>());
    world.end();
}

#[test]
fn a_large_file_is_found_open_the_second_time() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, MIB));
    for _ in 0..3 {
        assert_eq!(world.get("/big").body.len() as u64, MIB);
    }
    let c = world.engine.counters();
    assert_eq!((c.file_misses, c.file_hits, c.content_misses, c.content_hits), (1, 2, 0, 0));
    assert!(c.sends.max() >= 64 * KIB && c.sends.sum() > 3 * MIB, "{:?}", c.sends);
    world.end();
}

#[test]
fn the_first_load_is_not_counted_as_in_vain() {
    let mut world = World::with(Rules { has_store: false, ..rules() });
    world.machine.files.add("big", Content::Pattern(2, 200 * KIB));
    world.machine.files.inode("big").evict();
    world.get("/big");
    assert_eq!(world.engine.counters().loads_in_vain, 0);
    world.machine.files.inode("big").evict();
    world.machine.helpers.thrash = true;
    world.get("/big");
    let c = world.engine.counters();
    assert!(c.loads_in_vain > 0 && job(&c, JobKind::Read).started > 0, "{c:?}");
    world.end();
}

#[test]
fn refused_lost_and_cut_requests_are_counted() {
    let mut world = World::by_hand();
    for n in 0..4 {
        world.machine.files.add_cold(&format!("{n}"), "cold");
    }
    let clients: Vec<_> = (0..4).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate() {
        client.get(&format!("/{n}"));
        world.run();
    }
    // Two helpers are busy. The other jobs wait; when the first of them was added, the queue had a length of
    // 1.
    let c = world.engine.counters();
    let lengths: Vec<u64> = c.queue_lengths.buckets().flat_map(|b| vec![b.from; b.count as usize]).collect();
    assert_eq!(lengths, [1, 1, 1, 2]);
    world.lose(world.machine.helpers.running[0].0);
    world.run();
    assert_eq!(clients[0].take_one().status, 503);
    let c = world.engine.counters();
    assert_eq!((c.responses, job(&c, JobKind::Find).lost), ([0, 0, 0, 0, 1], 1));
    world.auto = true;
    world.run();

    world.machine.files.add("large", Content::Pattern(3, MIB));
    let client = world.connect();
    client.set_room(50_000);
    client.get("/large");
    world.run();
    client.reset();
    world.run();
    let (_, missing) = world.ask(request("GET", "/none", ""));
    let (_, method) = world.ask(request("PUT", "/large", ""));
    assert_eq!((missing.status, method.status), (404, 405));
    let c = world.engine.counters();
    assert_eq!((c.responses, c.responses_cut), ([0, 4, 0, 2, 1], 1));
    assert_eq!(c.requests, 7);
    world.end();
}

#[test]
fn time_is_counted_in_the_state_that_it_is_spent_in() {
    let mut world = World::by_hand();
    for n in 0..4 {
        world.machine.files.add_cold(&format!("{n}"), "cold");
    }
    let clients: Vec<_> = (0..4).map(|_| world.connect()).collect();
    let before = world.engine.counters().times;
    world.advance(10);
    for (n, client) in clients.iter().enumerate() {
        client.get(&format!("/{n}"));
        world.run();
    }
    world.advance(100);
    let times = world.engine.counters().times;
    // Two helpers are busy, and two jobs wait for them.
    let spent = Times {
        connections_ms: before.connections_ms + 440,
        exchanges_ms: before.exchanges_ms + 400,
        jobs_queued_ms: 200,
        jobs_running_ms: 200,
        egress_waiting_ms: 0,
    };
    assert_eq!(times, spent);
    world.auto = true;
    world.run();
    world.end();
}
