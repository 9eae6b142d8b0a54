//! Links to servers over TLS: the handshake as a state of a link, and both of its ends.

use flash_engine::limits::{HANDSHAKES_PER_TURN_MAX, LINK_IDLE_MS, SERVER_FAILURES_MAX, TICK_MS};
use flash_engine::{ServerId, UpstreamId};

use crate::machine::{Client, World};
use crate::relays::{get, proxying, status, text, whole, with_scripts};

const CONNECT_MS: u64 = 5_000;

/// `/one/` leads to one server over TLS, `/p/` to one over TLS and one without.
fn world() -> World {
    let mut rules = proxying();
    let mut encrypted = Vec::new();
    for upstream in [0, 1] {
        rules.upstreams[usize::from(upstream)].servers[0].is_encrypted = true;
        encrypted.push(ServerId { upstream: UpstreamId(upstream), server: 0 });
    }
    let mut world = with_scripts(rules);
    world.machine.encrypted.extend(encrypted);
    world
}

/// Sends a request and lets the gateway connect to an application that speaks TLS or not.
fn ask(world: &mut World, is_encrypted: bool) -> (Client, Client) {
    let client = world.connect();
    client.send(get("/one/x"));
    world.run();
    let server = world.link_through(0, is_encrypted);
    world.run();
    (client, server)
}

#[test]
fn a_link_is_used_again_and_says_goodbye() {
    let mut world = world();
    let (client, server) = ask(&mut world, true);
    for _ in 0..3 {
        assert!(text(&server.take_bytes()).starts_with("GET /one/x HTTP/1.1\r\n"));
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        world.run();
        assert_eq!(whole(&client.take_bytes()).1, b"hi");
        client.send(get("/one/x"));
        world.run();
    }
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!((status(&client), world.engine.counters().links.links), (204, 1));
    assert!(!server.wire().encrypted().expect("encrypted").has_ended);
    world.advance(LINK_IDLE_MS + 2_000);
    assert_eq!(world.engine.counters().links.links, 0);
    assert!(server.is_closed() && !server.wire().was_closed_rudely());
    world.end();
}

#[test]
fn a_handshake_without_an_end_is_a_failure_of_the_server() {
    let mut world = world();
    for failures in 1..=SERVER_FAILURES_MAX.into() {
        let (client, server) = ask(&mut world, false);
        world.advance(CONNECT_MS - 2 * TICK_MS);
        assert_eq!((client.received_len(), server.is_closed()), (0, false));
        world.advance(3 * TICK_MS);
        assert_eq!((status(&client), server.is_closed()), (504, true));
        assert_eq!(world.engine.counters().links.failures, failures);
    }
    let said = world.machine.reports.join("\n");
    assert!(said.contains("did not complete the TLS handshake within `connect_timeout`"), "{said}");
    world.end();
}

#[test]
fn a_server_without_tls_gets_nothing_of_a_request() {
    for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "\u{1}\u{2}\u{3} is no record either"] {
        let mut world = world();
        let (client, server) = ask(&mut world, false);
        server.send(answer);
        world.run();
        assert_eq!((status(&client), server.is_closed()), (502, true));
        assert!(!text(&server.take_bytes()).contains("/one/"), "clear text");
        assert_eq!(world.engine.counters().links.failures, 1);
        world.end();
    }
}

#[test]
fn another_server_gets_the_request_of_a_failed_handshake() {
    let mut world = world();
    let client = world.connect();
    client.send(get("/p/x"));
    world.run();
    let (_, first) = world.machine.asked[0];
    if first.server == 0 {
        world.link_through(0, false).end();
        world.run();
    }
    let server = world.link();
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /p/x HTTP/1.1\r\n"));
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!((first.server, status(&client)), (0, 204));
    world.end();
}

#[test]
fn a_client_that_leaves_takes_its_handshake_with_it() {
    let mut world = world();
    let (client, server) = ask(&mut world, false);
    client.reset();
    world.run();
    assert!(server.is_closed());
    assert_eq!(world.engine.counters().links.links, 0);
    // The gateway is late.
    let client = world.connect();
    client.send(get("/one/x"));
    world.run();
    client.reset();
    world.run();
    assert!(world.link().is_closed());
    assert_eq!(world.engine.counters().links.links, 0);
    world.end();
}

#[test]
fn an_answer_that_is_cut_breaks_off() {
    for is_cut in [false, true] {
        let mut world = world();
        let (client, server) = ask(&mut world, true);
        server.send("HTTP/1.1 200 OK\r\n\r\nall of it");
        if is_cut {
            server.cut();
        } else {
            server.end();
        }
        world.run();
        let bytes = client.take_bytes();
        if is_cut {
            assert!(text(&bytes).contains("all of it") && client.is_closed(), "{}", text(&bytes));
            assert!(!bytes.ends_with(b"0\r\n\r\n"), "{}", text(&bytes));
        } else {
            assert_eq!(whole(&bytes).1, b"all of it");
        }
        world.end();
    }
}

#[test]
fn handshakes_of_many_links_are_spread_over_turns() {
    let mut world = world();
    let clients: Vec<_> = (0..4).map(|_| world.connect()).collect();
    clients.iter().for_each(|client| client.send(get("/one/x")));
    world.run();
    let servers: Vec<_> = clients.iter().map(|_| world.link_through(0, true)).collect();
    let shaken = || servers.iter().filter(|server| server.received_len() > 0).count();
    let mut before = shaken();
    assert_eq!(before, 0);
    while before < servers.len() {
        world.turn();
        let now = shaken();
        assert!((before..=before + HANDSHAKES_PER_TURN_MAX).contains(&now), "{before} and then {now}");
        assert!(now > before || world.is_busy());
        before = now;
    }
    world.run();
    servers.iter().for_each(|server| server.send("HTTP/1.1 204 No Content\r\n\r\n"));
    world.run();
    assert!(clients.iter().all(|client| status(client) == 204));
    world.end();
}
