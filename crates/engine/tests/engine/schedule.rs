//! SRPT: the band of a connection follows the bytes that its answer has left, and changes cost no more calls
//! than there are bands to pass.

use flash_engine::limits::CUTOFFS_LEARNED_FROM_MIN;
use flash_engine::{Band, Cutoffs, EgressRules, Policy, Rules};

use crate::machine::files::Residency;
use crate::machine::{Client, Content, KIB, World, rules};
use crate::relays::{ask, bytes, get, proxying, whole};

/// The cutoffs of these tests, in bytes.
const CUTOFFS: [u64; 2] = [10 * KIB, 100 * KIB];

fn srpt() -> World {
    let fixed = Some(Cutoffs::new(&CUTOFFS).expect("cutoffs in order"));
    let mut world = World::with(Rules { policy: Policy::Srpt { fixed }, ..rules() });
    for (name, size) in [("small", 1), ("middle", 50), ("large", 600)] {
        world.machine.files.add(name, Content::Pattern(7, size * KIB));
        world.get(&format!("/{name}"));
    }
    world.machine.calls.bands = 0;
    world
}

/// The bands of a client's connection in order, each with the bytes sent in it.
fn bands(client: &Client) -> Vec<(usize, u64)> {
    client.wire().sent_in_bands.iter().map(|(band, bytes)| (band.number(), *bytes)).collect()
}

/// Requests a file over a connection that takes 16 KiB at a time.
fn read_slowly(world: &mut World, client: &Client, path: &str) {
    client.set_room(0);
    client.get(path);
    world.run();
    while client.wire().wants_room() {
        client.set_room(16 * KIB as usize);
        world.run();
    }
    assert_eq!(client.take_one().status, 200);
}

#[test]
fn a_large_answer_becomes_more_urgent_as_it_is_sent() {
    let mut world = srpt();
    let client = world.connect();
    read_slowly(&mut world, &client, "/large");
    let sent = bands(&client);
    assert_eq!(sent.iter().map(|(band, _)| *band).collect::<Vec<_>>(), [2, 1, 0]);
    // A band changes only between two sends, so each may be passed by one send.
    let [largest, middle, smallest] = [sent[0].1, sent[1].1, sent[2].1];
    assert!((500 * KIB..517 * KIB).contains(&largest), "{sent:?}");
    assert!((74 * KIB..107 * KIB).contains(&middle) && smallest <= 10 * KIB, "{sent:?}");
    assert_eq!(world.machine.calls.bands, 3);
    world.end();
}

#[test]
fn small_answers_cost_no_call() {
    let mut world = srpt();
    let client = world.connect();
    for _ in 0..3 {
        client.get("/small");
        client.get("/missing");
        world.run();
        assert_eq!(client.take().len(), 2);
    }
    assert_eq!(world.machine.calls.bands, 0);
    let counters = world.engine.counters().schedule;
    assert_eq!(counters.bands[0].answers, 7, "and the first of each file");
    world.end();
}

#[test]
fn an_answer_starts_from_the_band_that_its_connection_has() {
    let mut world = srpt();
    let client = world.connect();
    for path in ["/middle", "/middle", "/small", "/small"] {
        client.get(path);
        world.run();
        client.take_one();
    }
    let sent = bands(&client);
    assert_eq!(sent.iter().map(|(band, _)| *band).collect::<Vec<_>>(), [1, 0]);
    assert_eq!(world.machine.calls.bands, 2, "one call up, one down, for four answers");
    world.end();
}

#[test]
fn a_connection_keeps_the_band_of_its_last_piece() {
    // Otherwise the bytes that the kernel still holds would go before all others.
    let mut world = srpt();
    let client = world.connect();
    client.set_room(0);
    client.get("/middle");
    world.run();
    client.set_room(usize::MAX);
    world.run();
    assert_eq!(client.take_one().status, 200);
    assert_eq!(bands(&client).last().map(|(band, _)| *band), Some(1));
    assert_eq!(world.machine.calls.bands, 1, "no band for no bytes");
    world.end();
}

#[test]
fn an_answer_that_is_made_anew_counts_once() {
    let mut world = srpt();
    world.machine.files.add("f", Content::Pattern(8, 50 * KIB));
    world.machine.files.inode("f").residency = Residency::Unknown;
    world.auto = false;
    let before = world.engine.counters().schedule.bands.map(|band| band.answers);
    let client = world.connect();
    client.get("/f");
    world.run();
    world.machine.files.overwrite("f", Content::Pattern(9, 51 * KIB));
    world.auto = true;
    world.run();
    assert_eq!(client.take_one().body, Content::Pattern(9, 51 * KIB).whole());
    let after = world.engine.counters().schedule.bands.map(|band| band.answers);
    assert_eq!([after[0] - before[0], after[1] - before[1], after[2] - before[2]], [0, 1, 0]);
    world.end();
}

/// A relayed answer whose client reads 8 KiB at a time. Returns the bands in their order.
fn relay_slowly(world: &mut World, head: &str, body: &[u8]) -> Vec<usize> {
    let (client, server) = ask(world, get("/one/x"));
    client.set_room(0);
    server.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n"));
    for piece in body.chunks(20_000) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        server.send(if head.contains("chunked") { &chunk } else { piece });
        world.run();
        // The client has nearly all before more comes.
        while client.wire().wants_room() {
            client.set_room(8 * KIB as usize);
            world.run();
        }
    }
    if head.contains("chunked") {
        server.send("0\r\n\r\n");
    }
    client.set_room(usize::MAX);
    world.run();
    assert!(whole(&client.take_bytes()).1 == body);
    bands(&client).iter().map(|(band, _)| *band).collect()
}

fn relaying(policy: Policy) -> World {
    World::with(Rules { policy, ..proxying() })
}

#[test]
fn a_relayed_answer_follows_the_schedule() {
    let fixed = Some(Cutoffs::new(&CUTOFFS).expect("cutoffs in order"));
    let body = bytes(300 * KIB as usize);
    let length = format!("Content-Length: {}", body.len());
    // A known length becomes shorter; of an unknown one, what was sent counts, until the end is known.
    for (head, order) in [(&length[..], &[2, 1, 0][..]), ("Transfer-Encoding: chunked", &[0, 1, 2, 0])] {
        let mut world = relaying(Policy::Srpt { fixed });
        assert_eq!(relay_slowly(&mut world, head, &body), order, "{head}");
        let counted = world.engine.counters().schedule.bands;
        assert_eq!([counted[0].answers, counted[1].answers, counted[2].answers], [0, 0, 1]);
        world.end();
    }
}

#[test]
fn answers_of_unknown_length_do_not_lower_the_cutoffs() {
    let mut world = relaying(Policy::Srpt { fixed: None });
    let body = bytes(30_000);
    let chunk = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    let answer = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &chunk[..]].concat();
    let (client, server) = ask(&mut world, get("/one/x"));
    for _ in 0..CUTOFFS_LEARNED_FROM_MIN {
        server.send(&answer);
        world.run();
        client.take_bytes();
        client.send(get("/one/x"));
        world.run();
    }
    let cutoffs = world.engine.counters().schedule.cutoffs.expect("cutoffs");
    assert!(cutoffs.iter().all(|bytes| bytes > 20_000), "{cutoffs:?}: all answers have 30,000 bytes");
    world.end();
}

#[test]
fn a_relayed_answer_waits_for_its_turn_at_the_uplink() {
    let egress = Some(EgressRules { bytes_per_s: 1_000_000, workers: 1 });
    for head in ["Content-Length: 400000", "Transfer-Encoding: chunked"] {
        let mut world = World::with(Rules { egress, ..proxying() });
        let (long, server) = ask(&mut world, get("/one/x"));
        server.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n"));
        let body = bytes(400_000);
        let framed = [b"61a80\r\n", &body[..], b"\r\n0\r\n\r\n"].concat();
        server.send(if head.contains("chunked") { &framed } else { &body });
        world.run();
        world.advance(100);
        assert!(long.received_len() > 50_000 && long.received_len() < 200_000, "{head}");
        assert_eq!(world.engine.counters().links.links, 1, "{head}");
        // A short one passes it.
        let (short, server) = ask(&mut world, get("/p/y"));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
        server.send(bytes(1_000));
        world.run();
        world.advance(10);
        assert!(whole(&short.take_bytes()).1 == bytes(1_000), "{head}");
        assert!(long.received_len() < 300_000);
        world.advance(1_000);
        assert!(whole(&long.take_bytes()).1 == body, "{head}");
        world.end();
    }
}

#[test]
fn a_fair_schedule_never_sets_a_band() {
    let mut world = World::new();
    world.machine.files.add("large", Content::Pattern(7, 600 * KIB));
    let client = world.connect();
    read_slowly(&mut world, &client, "/large");
    assert_eq!(bands(&client).iter().map(|(band, _)| *band).collect::<Vec<_>>(), [Band::FIRST.number()]);
    assert_eq!(world.machine.calls.bands, 0);
    assert_eq!(world.engine.counters().schedule, flash_engine::ScheduleCounters::default());
    world.end();
}

#[test]
fn every_byte_is_counted_in_its_band() {
    let mut world = srpt();
    let before = world.machine.calls.sent_bytes;
    let counted = |world: &World| world.engine.counters().schedule.bands.map(|band| band.bytes);
    let at_first = counted(&world);
    let client = world.connect();
    for path in ["/large", "/small", "/middle"] {
        read_slowly(&mut world, &client, path);
    }
    let mut in_bands = [0; flash_engine::BANDS];
    bands(&client).into_iter().for_each(|(band, bytes)| in_bands[band] += bytes);
    let new: Vec<u64> = counted(&world).iter().zip(at_first).map(|(now, then)| now - then).collect();
    assert_eq!(new, in_bands);
    assert_eq!(new.iter().sum::<u64>(), world.machine.calls.sent_bytes - before);
    world.end();
}
