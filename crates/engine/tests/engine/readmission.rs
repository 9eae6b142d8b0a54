//! Requests under rules are known by the bytes of their heads, too. The conditions of the rules hold for each of them.

use std::net::IpAddr;
use std::sync::Arc;

use flash_engine::limits::RIGHT_PASSWORD_MS;
use flash_engine::{Access, JobKind, PathRule, PathRules, Rate, Rates, Rules, Users};

use super::h2::{connect, exchange};
use crate::machine::world::rules;
use crate::machine::{Client, World};

const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";

/// Clients of 192.0.2.0/24 beneath `/guarded/`, Ann beneath `/private/`, and four requests at once of each client and ten of all
/// beneath `/limited/`.
fn ruled() -> Rules {
    let mut rules = rules();
    let access = Access { allow: vec!["192.0.2.0/24".parse().expect("a network")], deny: vec![] };
    let rate = |burst| Some(Rate { interval_us: 10_000_000, burst });
    let users = Users::new([("ann".to_owned(), "secret".to_owned())]).map(Arc::new);
    rules.sites[0].paths = PathRules::new(vec![
        PathRule { access, ..PathRule::new("/guarded/*") },
        PathRule { users, ..PathRule::new("/private/*") },
        PathRule { rates: Rates { of_client: rate(4), of_all: rate(10) }, ..PathRule::new("/limited/*") },
    ])
    .into();
    rules
}

fn world() -> World {
    let mut world = World::with(ruled());
    for name in ["guarded/a", "private/a", "limited/a"] {
        world.machine.files.add(name, "content");
    }
    world
}

fn client_at(world: &mut World, address: &str) -> Client {
    world.only_address = Some(address.parse::<IpAddr>().expect("an address"));
    world.connect()
}

fn status(world: &mut World, client: &Client, path: &str, fields: &str) -> u16 {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    world.run();
    client.take_one().status
}

#[test]
fn a_known_head_of_another_client_is_not_admitted() {
    let mut world = world();
    let admitted = client_at(&mut world, "192.0.2.1");
    for _ in 0..4 {
        assert_eq!(status(&mut world, &admitted, "/guarded/a", ""), 200);
    }
    assert_eq!(world.engine.counters().known_hits, 2);
    let other = client_at(&mut world, "198.51.100.1");
    for _ in 0..3 {
        assert_eq!(status(&mut world, &other, "/guarded/a", ""), 403);
    }
    let neighbour = client_at(&mut world, "192.0.2.2");
    assert_eq!(status(&mut world, &neighbour, "/guarded/a", ""), 200);
    assert_eq!(world.engine.counters().known_hits, 3);
    world.end();
}

#[test]
fn each_known_request_counts_for_rates() {
    let mut world = world();
    let mut ask = |address: &str, statuses: &[u16]| {
        let client = client_at(&mut world, address);
        let found: Vec<_> = statuses.iter().map(|_| status(&mut world, &client, "/limited/a", "")).collect();
        assert_eq!(found, statuses, "{address}");
        world.engine.counters().known_hits
    };
    assert_eq!(ask("192.0.2.1", &[200, 200, 200, 200, 429, 429]), 2);
    assert_eq!(ask("192.0.2.2", &[200, 200, 200, 200, 429]), 6);
    // A request that all together are refused for costs its client no token.
    assert_eq!(ask("192.0.2.3", &[200, 200, 503, 503, 503]), 8);
    world.advance(20_000);
    let client = client_at(&mut world, "192.0.2.3");
    let statuses = [0, 1, 2].map(|_| status(&mut world, &client, "/limited/a", ""));
    assert_eq!(statuses, [200, 200, 503]);
    world.end();
}

#[test]
fn a_known_password_is_compared_again_after_its_time() {
    let mut world = world();
    let verify = JobKind::ALL.iter().position(|kind| *kind == JobKind::Verify).expect("a kind");
    let client = client_at(&mut world, "192.0.2.1");
    for (compared, known) in [(1, 0), (1, 0), (1, 0), (1, 1), (1, 2)] {
        assert_eq!(status(&mut world, &client, "/private/a", ANN), 200);
        let counters = world.engine.counters();
        assert_eq!((counters.jobs[verify].started, counters.known_hits), (compared, known));
    }
    assert_eq!(status(&mut world, &client, "/private/a", ""), 401);
    world.pass(RIGHT_PASSWORD_MS);
    let client = client_at(&mut world, "192.0.2.1");
    assert_eq!(status(&mut world, &client, "/private/a", ANN), 200);
    assert_eq!(world.engine.counters().jobs[verify].started, 2);
    world.end();
}

#[test]
fn streams_of_http2_are_known_on_the_same_conditions() {
    let mut world = world();
    world.only_address = Some("192.0.2.1".parse().expect("an address"));
    let mut streams = connect(&mut world);
    let mut statuses = Vec::new();
    for path in ["/limited/a", "/guarded/a"] {
        for _ in 0..6 {
            let stream = streams.get(path);
            exchange(&mut world, &mut streams);
            statuses.push(streams.take(stream).status());
        }
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429, 200, 200, 200, 200, 200, 200]);
    assert!(world.engine.counters().known_hits >= 4, "{}", world.engine.counters().known_hits);
    world.only_address = Some("198.51.100.1".parse().expect("an address"));
    let mut streams = connect(&mut world);
    for _ in 0..2 {
        let stream = streams.get("/guarded/a");
        exchange(&mut world, &mut streams);
        assert_eq!(streams.take(stream).status(), 403);
    }
    world.end();
}
