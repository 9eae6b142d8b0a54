//! Rules that bound how many requests are answered at once: a request counts from the gate until its answer ends.

use flash_engine::{Concurrency, PathRule, PathRules, Rules, Target};

use super::h2::{connect, exchange};
use super::relays::{ask, proxying, status};
use crate::machine::{Client, Content, MIB, World};

const LARGE_BYTES: u64 = 8 * MIB;

/// Two requests at once of each client beneath `/two/`, and three of all; one of each client beneath `/one/`, which is a route.
fn bounded() -> Rules {
    let mut rules = proxying();
    let bound = |of_client, of_all| Concurrency { of_client, of_all };
    rules.sites[0].paths = PathRules::new(vec![
        PathRule { concurrency: bound(Some(2), Some(3)), ..PathRule::new("/two/*") },
        PathRule { concurrency: bound(Some(1), None), ..PathRule::new("/one/*") },
        PathRule { rewrite: Some(Target::new("/two/$1")), ..PathRule::new("/new/*") },
    ])
    .into();
    rules
}

/// A client at this address.
fn from(world: &mut World, address: [u8; 4]) -> Client {
    world.only_address = Some(address.into());
    world.connect()
}

/// The statuses of answers to a client at this address.
fn statuses(world: &mut World, address: [u8; 4], paths: &[&str]) -> Vec<u16> {
    let client = from(world, address);
    let mut ask = |path: &&str| {
        client.get(path);
        world.run();
        client.take_one().status
    };
    paths.iter().map(&mut ask).collect()
}

const ONE: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];
const THIRD: [u8; 4] = [192, 0, 2, 3];

/// A client that asks for a large file and reads nothing.
fn slow(world: &mut World, address: [u8; 4]) -> Client {
    let client = from(world, address);
    client.set_room(1_000);
    client.get("/two/large");
    world.run();
    client
}

fn world() -> World {
    let mut world = World::with(bounded());
    world.machine.files.add("two/large", Content::Pattern(1, LARGE_BYTES));
    world.machine.files.add("two/small", "content");
    world.machine.files.add("b", "content");
    world
}

#[test]
fn requests_of_other_workers_count_too() {
    let mut world = world();
    world.machine.others_answering = 2;
    assert_eq!(statuses(&mut world, ONE, &["/two/small", "/one/x", "/b"]), [429, 429, 200]);
    world.machine.others_answering = 1;
    let first = slow(&mut world, ONE);
    assert_eq!(statuses(&mut world, ONE, &["/two/small"]), [429]);
    let second = slow(&mut world, OTHER);
    assert_eq!(statuses(&mut world, THIRD, &["/two/small"]), [503]);
    let announced = |world: &World| {
        let all = world.machine.answering.iter();
        all.filter_map(|(key, count)| key.client.is_none().then_some(*count)).collect::<Vec<_>>()
    };
    assert_eq!(announced(&world), [2], "those that were refused are not among them");
    first.reset();
    world.run();
    assert_eq!(announced(&world), [1]);
    assert_eq!(statuses(&mut world, THIRD, &["/two/small"]), [200]);
    second.reset();
    world.run();
    world.end();
}

#[test]
fn a_client_has_as_many_requests_at_once_as_a_rule_admits() {
    let mut world = world();
    let all = ["/two/small", "/new/small", "/b"];
    assert_eq!(statuses(&mut world, ONE, &all), [200, 200, 200], "these end at once");
    let (first, second) = (slow(&mut world, ONE), slow(&mut world, ONE));
    assert_eq!(statuses(&mut world, ONE, &all), [429, 429, 200]);
    assert_eq!(statuses(&mut world, OTHER, &all), [200, 200, 200]);
    // Another client takes the last place of all.
    let third = slow(&mut world, OTHER);
    assert_eq!(statuses(&mut world, THIRD, &all), [503, 503, 200]);
    let refused = from(&mut world, ONE);
    refused.get("/two/small");
    world.run();
    assert_eq!(refused.take_one().field("Retry-After"), Some("1"));
    assert_eq!(world.engine.counters().limited, 5);
    // One leaves, one reads all.
    first.reset();
    world.run();
    assert_eq!(statuses(&mut world, ONE, &all), [200, 200, 200]);
    assert_eq!(statuses(&mut world, THIRD, &all), [200, 200, 200]);
    second.set_room(usize::MAX / 2);
    world.run();
    assert_eq!(second.take_one().body.len() as u64, LARGE_BYTES);
    let _again = [slow(&mut world, ONE), slow(&mut world, ONE)];
    assert_eq!(statuses(&mut world, ONE, &all), [429, 429, 200]);
    third.reset();
    world.run();
    world.end();
}

#[test]
fn a_request_that_waits_for_a_disk_counts() {
    let mut world = World::with(bounded());
    for number in 0..3 {
        world.machine.files.add_cold(&format!("two/{number}"), "content");
    }
    world.auto = false;
    let clients: Vec<Client> = (0..3)
        .map(|number| {
            let client = from(&mut world, ONE);
            client.get(&format!("/two/{number}"));
            world.run();
            client
        })
        .collect();
    assert_eq!(clients[2].take_one().status, 429);
    world.auto = true;
    world.run();
    assert_eq!((clients[0].take_one().status, clients[1].take_one().status), (200, 200));
    assert_eq!(statuses(&mut world, ONE, &["/two/0", "/two/1"]), [200, 200]);
    world.end();
}

#[test]
fn a_request_that_a_server_answers_counts_until_the_end_of_the_answer() {
    let mut world = World::with(bounded());
    world.only_address = Some(ONE.into());
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    world.run();
    let other = world.connect();
    other.send("POST /one/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    world.run();
    assert_eq!((status(&other), world.machine.asked.len()), (429, 0), "no server gets it");
    server.send("lo");
    world.run();
    assert_eq!(status(&client), 200);
    client.get("/one/x");
    world.run();
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 204);
    // A file in place of the server's answer counts as long as that.
    world.machine.files.add("large", Content::Pattern(1, LARGE_BYTES));
    client.set_room(10_000);
    client.get("/one/x");
    world.run();
    server.send("HTTP/1.1 200 OK\r\nX-Accel-Redirect: /large\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(statuses(&mut world, ONE, &["/one/y"]), [429]);
    client.reset();
    world.run();
    world.only_address = Some(ONE.into());
    let again = world.connect();
    again.get("/one/x");
    world.run();
    assert_eq!(again.received_len(), 0, "a server has it");
    world.end();
}

#[test]
fn streams_of_one_connection_are_requests_of_one_client() {
    let mut world = world();
    world.only_address = Some(ONE.into());
    let mut streams = connect(&mut world);
    // The connection has room, and the windows of streams are smaller than the file.
    streams.codec.grows_windows = false;
    let grown = streams.codec.grow(0, 1 << 20);
    streams.client.send(grown);
    let large = [streams.get("/two/large"), streams.get("/two/large")];
    exchange(&mut world, &mut streams);
    let (refused, open) = (streams.get("/two/small"), streams.get("/b"));
    exchange(&mut world, &mut streams);
    assert_eq!((streams.take(refused).status(), streams.take(open).status()), (429, 200));
    let reset = streams.codec.reset(large[0]);
    streams.client.send(reset);
    exchange(&mut world, &mut streams);
    let small = streams.get("/two/small");
    exchange(&mut world, &mut streams);
    assert_eq!(streams.take(small).status(), 200);
    world.end();
}
