//! Several requests on one connection: answered in order, and each connection gets its turn.

use crate::machine::client::request;
use crate::machine::world::HEAD_MS;
use crate::machine::{Client, Content, KIB, MIB, World};
use flash_engine::limits::{
    CONTINUED_PER_TURN_MAX, READ_BYTES_MAX, REQUESTS_PER_TURN_MAX, SEND_BYTES_PER_TURN_MAX,
};

fn gets(paths: &[&str]) -> String {
    paths.iter().map(|path| request("GET", path, "")).collect()
}

#[test]
fn hits_misses_and_errors_are_answered_in_order() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    world.machine.files.add_cold("cold", "cold");
    world.machine.files.add("big", Content::Pattern(1, 300 * KIB));
    world.get("/hot");
    let client = world.connect();
    client.send(gets(&["/hot", "/cold", "/none", "/big", "/hot", "/a%00", "/cold"]));
    world.run();
    let seen: Vec<(u16, usize)> = client.take().iter().map(|r| (r.status, r.body.len().min(1000))).collect();
    let errors: Vec<usize> = vec![seen[2].1, seen[5].1];
    assert_eq!(
        seen,
        [(200, 3), (200, 4), (404, errors[0]), (200, 1000), (200, 3), (400, errors[1]), (200, 4)]
    );
    world.end();
}

#[test]
fn a_bounded_number_of_requests_is_answered_in_a_turn() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    world.get("/hot");
    let client = world.connect();
    let other = world.connect();
    client.send(request("GET", "/hot", "").repeat(100));
    other.get("/hot");
    world.turn();
    // One turn for its event, one because it is continued.
    let whole = client.take();
    assert!(!whole.is_empty() && whole.len() <= 2 * REQUESTS_PER_TURN_MAX as usize, "{}", whole.len());
    assert_eq!(other.take_one().text(), "hot");
    world.run();
    assert_eq!(whole.len() + client.take().len(), 100);
    world.end();
}

#[test]
fn a_bounded_number_of_bytes_is_sent_in_a_turn() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, 8 * MIB));
    let client = world.connect();
    client.get("/big");
    world.turn();
    let most = 2 * (SEND_BYTES_PER_TURN_MAX + READ_BYTES_MAX);
    let mut seen = client.received_len();
    assert!(seen > 0 && seen <= most);
    while (seen as u64) < 8 * MIB {
        let other = world.connect();
        other.send(request("HEAD", "/big", ""));
        world.turn();
        assert_eq!(other.take_head().status, 200, "other connections get their turn");
        other.end();
        let now = client.received_len();
        assert!(now > seen && now - seen <= most);
        seen = now;
    }
    world.run();
    world.end();
}

#[test]
fn every_continued_connection_gets_its_turn() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, 1_700 * KIB));
    let clients: Vec<Client> = (0..CONTINUED_PER_TURN_MAX + 40).map(|_| world.connect()).collect();
    for client in &clients {
        client.get("/big");
    }
    // Not all connections fit in one turn, so twice the turns of a single connection must be enough.
    for _ in 0..2 + 2 * 1_700 * KIB as usize / SEND_BYTES_PER_TURN_MAX {
        world.turn();
    }
    assert!(
        clients.iter().all(|client| client.received_len() as u64 > 1_700 * KIB),
        "a connection did not get its turn"
    );
    for client in &clients {
        client.reset();
    }
    world.end();
}

#[test]
fn requests_in_single_bytes() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    world.machine.files.add_cold("cold", "cold");
    let client = world.connect();
    let bytes = gets(&["/hot", "/cold", "/none", "/hot"]).into_bytes();
    client.send_pieces(bytes.iter().map(|byte| vec![*byte]));
    world.run();
    let statuses: Vec<u16> = client.take().iter().map(|r| r.status).collect();
    assert_eq!(statuses, [200, 200, 404, 200]);
    world.end();
}

#[test]
fn large_heads_after_a_cut_one_are_all_answered() {
    // A cut head, followed by more whole heads than one receive holds.
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    let of = |bytes: usize| request("GET", "/hot", &format!("X: {}\r\n", "x".repeat(bytes)));
    for (cut, first, others) in [(100, 20_000, 20_000), (15_000, 20_000, 10_000), (9_000, 10_000, 8_000)] {
        for count in 0..8 {
            let all = (of(first) + &of(others).repeat(count)).into_bytes();
            let client = world.connect();
            client.send(&all[..cut]);
            world.run();
            client.send(&all[cut..]);
            world.run();
            assert_eq!(
                client.take().len(),
                1 + count,
                "{first} bytes cut at {cut}, {others} bytes {count} times"
            );
        }
    }
    world.end();
}

#[test]
fn each_head_has_its_own_timeout() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    let client = world.connect();
    let one = request("GET", "/hot", "").into_bytes();
    client.send(&one[..5]);
    for n in 0..8 {
        world.advance(HEAD_MS / 4);
        // The rest of one head, and the beginning of the next.
        client.send([&one[5..], &one[..5]].concat());
        world.run();
        assert_eq!(client.take_one().status, 200, "request {n}");
    }
    world.end();
}

#[test]
fn a_client_that_never_stops_asking_is_not_considered_idle() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    world.get("/hot");
    let client = world.connect();
    let batch = request("GET", "/hot", "").repeat(40);
    let mut answered = 0;
    // There is more to receive whenever a turn ends, for longer than any timeout.
    client.send(&batch);
    for _ in 0..8 {
        client.send(&batch);
        world.turn();
        world.pass(HEAD_MS / 4);
        answered += client.take().len();
        assert!(!client.is_closed(), "closed in the middle of its requests, after {answered}");
    }
    world.run();
    assert_eq!(answered + client.take().len(), 9 * 40);
    world.end();
}

#[test]
fn a_half_closed_connection_is_answered_and_closed() {
    let mut world = World::new();
    world.machine.files.add_cold("cold", "cold");
    world.machine.files.add("big", Content::Pattern(1, MIB));
    for path in ["/cold", "/big", "/none"] {
        let client = world.connect();
        client.get(path);
        client.end();
        world.run();
        assert_eq!(client.take().len(), 1);
        assert!(client.is_closed());
    }
    // The client closes its side while the answer waits.
    world.machine.files.add_cold("cold2", "cold");
    let client = world.connect();
    client.get("/cold2");
    world.turn();
    client.end();
    world.run();
    assert_eq!(client.take_one().text(), "cold");
    assert!(client.is_closed());
    world.end();
}

#[test]
fn a_reset_in_any_phase_leaves_nothing_behind() {
    for steps in 0..8 {
        let mut world = World::by_hand();
        world.machine.files.add_cold("big", Content::Pattern(1, 3 * MIB));
        let client = world.connect();
        client.set_room(200_000);
        client.send(gets(&["/big", "/big"]));
        world.turn();
        for _ in 0..steps {
            if let Some((id, _)) = world.machine.helpers.running.first() {
                let id = *id;
                world.finish(id);
            }
            client.add_room(300_000);
            world.turn();
        }
        client.reset();
        world.end();
    }
}
