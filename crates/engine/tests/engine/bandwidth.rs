//! Rules that bound the bandwidth: answers are sent no faster, all of them make progress, and every byte arrives.

use flash_engine::{Bandwidth, Concurrency, PathRule, PathRules, Rules};

use super::h2::{connect, exchange};
use super::relays::{ask, proxying};
use crate::machine::{Client, Content, World};

/// The bound in bytes per second, and what is sent at once before it counts: a quarter of a second.
const RATE: u64 = 1_000_000;
const BURST: u64 = RATE / 4 + 64 * 1024;

/// All answers beneath `/all/` and `/one/`, which is a route, together; those to each client beneath `/each/`.
fn bounded() -> Rules {
    let mut rules = proxying();
    let all = Bandwidth { of_client: None, of_all: Some(RATE) };
    let each = Bandwidth { of_client: Some(RATE), of_all: None };
    rules.sites[0].paths = PathRules::new(vec![
        PathRule { bandwidth: all, ..PathRule::new("/all/*") },
        PathRule { bandwidth: all, ..PathRule::new("/one/*") },
        PathRule { bandwidth: each, ..PathRule::new("/each/*") },
    ])
    .into();
    rules
}

fn world_of(rules: Rules) -> World {
    let mut world = World::with(rules);
    for folder in ["all", "each", "free"] {
        world.machine.files.add(&format!("{folder}/large"), Content::Pattern(1, RATE));
        world.machine.files.add(&format!("{folder}/small"), Content::Pattern(2, 20_000));
    }
    world
}

fn world() -> World {
    world_of(bounded())
}

/// A client at an address of its own that asks for a file.
fn get(world: &mut World, number: u8, path: &str) -> Client {
    world.only_address = Some([192, 0, 2, number].into());
    let client = world.connect();
    client.get(path);
    world.run();
    client
}

/// How many bytes clients have received.
fn received(clients: &[Client]) -> Vec<u64> {
    clients.iter().map(|client| client.received_len() as u64).collect()
}

/// Asserts that bytes came at the rate, from a full bucket on.
#[track_caller]
fn assert_at_rate(bytes: u64, ms: u64) {
    let of_rate = RATE * ms / 1_000;
    assert!(bytes <= of_rate + BURST, "{bytes} bytes in {ms} ms");
    assert!(bytes + 64 * 1024 >= of_rate, "{bytes} bytes in {ms} ms");
}

#[test]
fn large_answers_share_the_rate() {
    let mut world = world();
    let clients: Vec<Client> = (1..5).map(|number| get(&mut world, number, "/all/large")).collect();
    for seconds in 1..4 {
        world.advance(1_000);
        let received = received(&clients);
        assert_at_rate(received.iter().sum(), seconds * 1_000);
        let (least, most) = (received.iter().min(), received.iter().max());
        assert!(least.zip(most).is_some_and(|(least, most)| most - least < BURST), "{received:?}");
    }
    world.advance(2_000);
    for client in &clients {
        assert_eq!(client.take_one().body.len() as u64, RATE);
    }
    // Nobody else waits.
    let free = get(&mut world, 9, "/free/large");
    assert_eq!(free.take_one().body.len() as u64, RATE);
    world.end();
}

#[test]
fn many_small_answers_share_the_rate_too() {
    let mut world = world();
    let client = get(&mut world, 1, "/all/small");
    (0..500).for_each(|_| client.get("/all/small"));
    let mut bytes = 0;
    for tenths in 1..=20 {
        world.advance(100);
        bytes += client.take_bytes().len() as u64;
        assert_at_rate(bytes, tenths * 100);
    }
    world.end();
}

#[test]
fn each_client_has_the_rate() {
    let mut world = world();
    let clients: Vec<Client> =
        [1, 1, 2].iter().map(|number| get(&mut world, *number, "/each/large")).collect();
    world.advance(1_000);
    let received = received(&clients);
    assert_at_rate(received[0] + received[1], 1_000);
    assert_at_rate(received[2], 1_000);
    world.end();
}

#[test]
fn clients_that_leave_while_they_wait_delay_nobody() {
    let mut world = world();
    let first = get(&mut world, 1, "/all/large");
    let leaving: Vec<Client> = (2..200).map(|number| get(&mut world, number, "/all/large")).collect();
    let last = get(&mut world, 200, "/all/large");
    leaving.iter().for_each(Client::reset);
    world.run();
    world.advance(1_000);
    let received = received(&[first, last]);
    assert!(received.iter().all(|bytes| *bytes >= RATE / 3), "{received:?}");
    world.end();
}

#[test]
fn a_client_with_many_answers_leaves_others_their_part() {
    let mut rules = bounded();
    let bandwidth = Bandwidth { of_client: Some(RATE / 2), of_all: Some(RATE) };
    rules.sites[0].paths = PathRules::new(vec![PathRule { bandwidth, ..PathRule::new("/all/*") }]).into();
    let mut world = world_of(rules);
    let _many: Vec<Client> = (0..50).map(|_| get(&mut world, 1, "/all/large")).collect();
    let one = get(&mut world, 2, "/all/large");
    world.advance(1_000);
    assert!(one.received_len() as u64 >= RATE * 2 / 5, "{}", one.received_len());
    world.end();
}

#[test]
fn streams_of_http_2_share_the_rate() {
    let mut world = world();
    world.only_address = Some([192, 0, 2, 1].into());
    let mut streams = connect(&mut world);
    let grown = streams.codec.grow(0, 1 << 24);
    streams.client.send(grown);
    let large = [streams.get("/all/large"), streams.get("/all/large")];
    let small = streams.get("/all/small");
    let free = streams.get("/free/small");
    exchange(&mut world, &mut streams);
    assert_eq!(streams.take(free).body.len(), 20_000, "it does not wait for the others");
    let mut bytes = [0; 3];
    for step in 1..=30 {
        world.advance(100);
        exchange(&mut world, &mut streams);
        for (bytes, stream) in bytes.iter_mut().zip([large[0], large[1], small]) {
            *bytes += streams.take(stream).body.len() as u64;
        }
        if step <= 15 {
            assert_at_rate(bytes.iter().sum(), step * 100 + 100);
        }
    }
    assert_eq!(bytes, [RATE, RATE, 20_000]);
    world.end();
}

#[test]
fn an_answer_of_a_server_is_sent_at_the_rate_and_its_server_is_free() {
    let mut world = world();
    world.give_spool(100);
    world.only_address = Some([192, 0, 2, 1].into());
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
    let body = vec![b'x'; RATE as usize];
    server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {RATE}\r\n\r\n"));
    server.send(&body);
    world.run();
    assert!(client.received_len() < body.len() / 2);
    server.take_bytes();
    // The next request gets the same connection.
    let next = world.connect();
    next.send("GET /one/y HTTP/1.1\r\nHost: a\r\n\r\n");
    world.run();
    assert_eq!((world.machine.asked.len(), server.received_len() > 0), (0, true), "the server is free");
    for half_seconds in 1..=2 {
        world.advance(500);
        assert_at_rate(client.received_len() as u64, half_seconds * 500);
    }
    world.advance(500);
    assert_eq!(client.take_one().body, body);
    world.end();
}

#[test]
fn a_client_that_does_not_read_is_closed_although_its_answer_is_paced() {
    let mut world = world_of(Rules { least_rate_bytes_per_s: 1_000, ..bounded() });
    let stuck = get(&mut world, 1, "/all/large");
    stuck.set_room(1);
    world.advance(120_000);
    assert!(stuck.is_closed(), "it reads nothing");
    world.end();
}

#[test]
fn a_paced_answer_counts_until_its_end() {
    let mut rules = bounded();
    let bandwidth = Bandwidth { of_client: None, of_all: Some(RATE) };
    let concurrency = Concurrency { of_client: Some(1), of_all: None };
    let rule = PathRule { bandwidth, concurrency, ..PathRule::new("/all/*") };
    rules.sites[0].paths = PathRules::new(vec![rule]).into();
    let mut world = world_of(rules);
    let large = get(&mut world, 1, "/all/large");
    assert_eq!(get(&mut world, 1, "/all/small").take_one().status, 429);
    world.advance(1_500);
    assert_eq!(large.take_one().status, 200);
    assert_eq!(get(&mut world, 1, "/all/small").take_one().status, 200);
    world.end();
}
