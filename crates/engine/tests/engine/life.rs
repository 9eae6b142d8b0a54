//! Limits of connections, draining, panics, the access log, and leaks.

use crate::machine::client::request;
use crate::machine::world::{FRESHNESS_MS, HEAD_MS, Told};
use crate::machine::{Client, Content, KIB, MIB, STORE, StoreSize, World, at_most, rules};
use flash_engine::limits::{
    FILES_OF_NAME_MAX, HEADS_BYTES_MAX, HEADS_BYTES_PER_CLIENT_MAX, NEWCOMER_GRACE_MS, RATE_WINDOW_MS,
};
use flash_engine::{LogFormat, LogRules, Readiness, Rules};

#[test]
fn connections_are_bounded() {
    let mut world = World::with(Rules { admission: at_most(3), ..rules() });
    let clients: Vec<Client> = (0..3).map(|_| world.connect()).collect();
    for client in &clients {
        client.send("GET /");
    }
    world.run();
    assert!(world.try_connect().is_none());
    assert_eq!(world.machine.sockets_open.get(), 3, "the refused socket was returned");
    clients[0].reset();
    world.run();
    assert!(world.try_connect().is_some());
    world.end();
}

#[test]
fn the_oldest_idle_connection_makes_room_for_a_new_one() {
    let mut world = World::with(Rules { admission: at_most(3), ..rules() });
    world.machine.files.add("a", "x");
    let [busy, older, newer] = [(); 3].map(|()| world.connect());
    busy.send("GET /a HTTP/1.1\r\n");
    for client in [&older, &newer] {
        client.get("/a");
        world.advance(1_000);
        assert_eq!(client.take_one().text(), "x");
    }
    let next = world.connect();
    assert!(older.is_closed() && !newer.is_closed() && !busy.is_closed());
    assert_eq!(world.engine.counters().evicted, 1);
    next.get("/a");
    busy.send("Host: h\r\n\r\n");
    world.run();
    assert_eq!((next.take_one().text(), busy.take_one().text()), ("x".into(), "x".into()));
    world.end();
}

#[test]
fn idle_connections_of_one_client_do_not_lock_out_others() {
    let mut world = World::with(Rules { admission: at_most(1_000), ..rules() });
    world.machine.files.add("a", "x");
    world.only_address = Some([10, 0, 0, 1].into());
    for _ in 0..1_000 {
        world.connect();
    }
    world.advance(NEWCOMER_GRACE_MS);
    world.only_address = None;
    for _ in 0..2_000 {
        let client = world.connect();
        client.get("/a");
        world.run();
        assert_eq!(client.take_one().text(), "x");
    }
    world.end();
}

#[test]
fn unfinished_heads_are_bounded_per_client_and_in_total() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let head = format!("GET /a HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(31 * 1024));
    let mut clients = Vec::new();
    for address in 1..=2 * (HEADS_BYTES_MAX / HEADS_BYTES_PER_CLIENT_MAX) as u8 {
        world.only_address = Some([10, 0, 0, address].into());
        let before = world.engine.counters().input_bytes;
        for _ in 0..HEADS_BYTES_PER_CLIENT_MAX / head.len() + 20 {
            let client = world.connect();
            client.send(&head);
            clients.push(client);
        }
        world.run();
        let counters = world.engine.counters();
        assert!(counters.input_bytes - before <= HEADS_BYTES_PER_CLIENT_MAX);
        assert!(counters.input_bytes <= HEADS_BYTES_MAX);
    }
    let refused = clients.iter().filter(|client| !client.take().is_empty()).count();
    assert!(refused > 20, "{refused}");
    assert_eq!(world.get("/a").text(), "x");
    clients.iter().for_each(Client::reset);
    world.run();
    assert_eq!(world.engine.counters().input_bytes, 0);
    world.end();
}

#[test]
fn a_stale_key_reaches_no_connection() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let gone = world.connect();
    gone.reset();
    world.run();
    let client = world.connect();
    client.get("/a");
    let broken = Readiness { broken: true, ..Readiness::default() };
    world.engine.handle_ready(&mut world.machine, gone.key, broken);
    world.run();
    assert_eq!(client.take_one().text(), "x");
    world.end();
}

#[test]
fn draining_finishes_requests_under_way() {
    let mut world = World::by_hand();
    world.machine.files.add("hot", "hot");
    world.machine.files.add_cold("cold", "cold");
    world.machine.files.add("big", Content::Pattern(1, MIB));
    let [idle, waiting, sending, partial] = [(); 4].map(|()| world.connect());
    idle.get("/hot");
    world.run();
    idle.take_one();
    world.finish_job();
    waiting.get("/cold");
    sending.set_room(1_000);
    sending.get("/big");
    partial.send("GET /hot HT");
    world.run();
    world.engine.handle_drain(&mut world.machine);
    assert!(idle.is_closed() && !world.engine.is_drained());
    world.auto = true;
    world.run();
    world.auto = false;
    assert_eq!(waiting.take_one().text(), "cold");
    sending.set_room(usize::MAX);
    partial.send("TP/1.1\r\nHost: h\r\n\r\n");
    world.run();
    assert_eq!(sending.take_one().body.len() as u64, MIB);
    let response = partial.take_one();
    assert_eq!((response.text(), response.closes()), ("hot".into(), true));
    assert!(waiting.is_closed() && sending.is_closed() && partial.is_closed());
    assert!(world.engine.is_drained());
    world.end();
}

#[test]
fn awaited_events_are_those_not_reported_yet() {
    let mut world = World::new();
    world.told = Told::Levels;
    world.machine.files.add("big", Content::Pattern(1, MIB));
    let client = world.connect();
    let awaited = |world: &World| {
        let awaited = world.engine.awaited(client.key)?;
        Some((awaited.readable, awaited.writable, awaited.hung_up, awaited.broken))
    };
    assert_eq!(awaited(&world), Some((true, false, true, true)), "a new connection is known to have room");
    client.set_room(1_000);
    client.get("/big");
    world.run();
    assert_eq!(awaited(&world), Some((true, true, true, true)), "the send came short");
    client.get("/big");
    client.end();
    world.run();
    assert_eq!(awaited(&world), Some((false, true, false, true)), "there is more to read, later");
    client.set_room(usize::MAX);
    world.run();
    assert_eq!(client.take().len(), 2);
    assert!(client.is_closed());
    assert_eq!(awaited(&world), None);
    world.end();
}

#[test]
fn draining_answers_a_request_that_has_already_arrived() {
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    let client = world.connect();
    world.run();
    // The event of this request comes after the order to drain, in the same batch.
    client.get("/hot");
    world.engine.handle_drain(&mut world.machine);
    world.turn();
    world.run();
    assert_eq!(client.take_one().text(), "hot", "a request was lost to a reload");
    world.end();
}

#[test]
fn draining_ends_even_if_clients_stay() {
    let mut world = World::new();
    world.machine.files.add("big", Content::Pattern(1, 3 * MIB));
    let [silent, slow, partial] = [(); 3].map(|()| world.connect());
    slow.set_room(10);
    slow.get("/big");
    partial.send("GET");
    world.run();
    world.engine.handle_drain(&mut world.machine);
    world.advance(3 * HEAD_MS + RATE_WINDOW_MS);
    assert!(silent.is_closed() && slow.is_closed() && partial.is_closed());
    assert!(world.engine.is_drained());
    world.end();
}

/// Makes a world in which panics are not printed.
fn quiet() -> World {
    std::panic::set_hook(Box::new(|_| {}));
    let mut world = World::new();
    world.machine.files.add("hot", "hot");
    world.machine.files.add("big", Content::Pattern(1, MIB));
    world.get("/hot");
    world
}

fn check_panic(mut world: World, client: &Client, path: &str) {
    let other = world.connect();
    other.get("/hot");
    world.run();
    let hook = std::panic::take_hook();
    drop(hook);
    assert_eq!(world.engine.counters().panics, 1);
    assert!(client.is_closed());
    assert_eq!(other.take_one().text(), "hot");
    assert_eq!(world.get("/big").body.len() as u64, MIB);
    assert_eq!(world.machine.reports.len(), 1);
    assert!(
        world.machine.reports[0].contains(&format!("GET {path} HTTP/1.1")),
        "{:?}",
        world.machine.reports
    );
    assert!(world.engine.connection(client.key).is_none());
}

#[test]
fn a_panic_while_a_hit_is_sent_costs_its_connection_only() {
    let mut world = quiet();
    let client = world.connect();
    client.wire().panic_on_send = true;
    client.get("/hot");
    world.run();
    check_panic(world, &client, "/hot");
}

#[test]
fn a_panic_while_a_file_is_sent_is_reported_with_its_request() {
    let mut world = quiet();
    let client = world.connect();
    client.set_room(100);
    client.get("/big");
    world.run();
    // Another request comes in between.
    world.get("/hot");
    client.wire().panic_on_send = true;
    client.set_room(usize::MAX);
    world.run();
    check_panic(world, &client, "/big");
}

#[test]
fn a_panic_while_a_miss_is_answered_is_reported_with_its_request() {
    let mut world = quiet();
    world.machine.files.add_cold("cold", "cold");
    let client = world.connect();
    client.wire().panic_on_send = true;
    client.get("/cold");
    world.turn();
    world.engine.handle_continued(&mut world.machine);
    world.get("/hot");
    world.run();
    check_panic(world, &client, "/cold");
}

#[test]
fn a_panic_on_receiving_blames_no_other_request() {
    let mut world = quiet();
    let client = world.connect();
    client.wire().panic_on_recv = true;
    client.get("/big");
    world.run();
    assert_eq!(world.engine.counters().panics, 1);
    assert!(!world.machine.reports[0].contains("/hot"), "{:?}", world.machine.reports);
    assert!(client.is_closed());
    assert_eq!(world.get("/hot").text(), "hot");
}

#[test]
fn each_request_is_logged_once() {
    let mut world = World::with(Rules { log: LogRules::of(LogFormat::Json), ..rules() });
    world.machine.files.add("hot", "hot");
    world.machine.files.add_cold("cold", "cold");
    world.machine.files.add("big", Content::Pattern(1, MIB));
    for path in ["/hot", "/hot", "/hot", "/cold", "/none", "/big"] {
        world.get(path);
    }
    let cut = world.connect();
    cut.set_room(5_000);
    cut.get("/big");
    world.run();
    cut.reset();
    let slow = world.connect();
    slow.set_room(50);
    slow.get("/hot");
    world.run();
    slow.set_room(usize::MAX);
    world.run();
    let log = &world.machine.log;
    assert_eq!(log.len(), 8, "{log:#?}");
    for (line, part) in log.iter().zip([
        "\"GET /hot HTTP/1.1\",\"status\":200,\"bytes\":3,\"whole\":true",
        "\"GET /hot HTTP/1.1\",\"status\":200,\"bytes\":3,\"whole\":true",
        "\"GET /hot HTTP/1.1\",\"status\":200,\"bytes\":3,\"whole\":true",
        "\"GET /cold HTTP/1.1\",\"status\":200,\"bytes\":4,\"whole\":true",
        "\"GET /none HTTP/1.1\",\"status\":404",
        "\"GET /big HTTP/1.1\",\"status\":200,\"bytes\":1048576,\"whole\":true",
        "\"whole\":false",
        "\"GET /hot HTTP/1.1\",\"status\":200,\"bytes\":3,\"whole\":true",
    ]) {
        assert!(line.contains(part), "{line} has not {part}");
    }
    world.end();
}

#[test]
fn a_client_that_leaves_while_a_helper_works_is_logged() {
    let mut world = World::with(Rules { log: LogRules::of(LogFormat::Json), ..rules() });
    world.auto = false;
    world.machine.files.add_cold("cold", "cold");
    let client = world.connect();
    client.get("/cold");
    world.run();
    client.reset();
    world.run();
    world.auto = true;
    world.run();
    assert_eq!(world.machine.log.len(), 1, "{:#?}", world.machine.log);
    let line = &world.machine.log[0];
    assert!(line.contains("\"GET /cold HTTP/1.1\",\"status\":499,\"bytes\":0,\"whole\":false"), "{line}");
    world.end();
}

#[test]
fn a_hit_that_fails_to_be_sent_is_logged() {
    let mut world = World::with(Rules { log: LogRules::of(LogFormat::Json), ..rules() });
    world.machine.files.add("hot", "hot");
    world.get("/hot");
    let client = world.connect();
    client.get("/hot");
    // The send notices the reset before its event arrives.
    client.reset();
    client.wire().take_edge();
    let readable = Readiness { readable: true, ..Readiness::default() };
    world.engine.handle_ready(&mut world.machine, client.key, readable);
    world.run();
    assert!(client.is_closed());
    assert_eq!(world.machine.log.len(), 2, "{:#?}", world.machine.log);
    assert!(world.machine.log[1].contains("\"whole\":false"));
    world.end();
}

#[test]
fn open_files_are_bounded_and_contents_need_none_of_them() {
    let mut world = World::with(Rules { open_files_max: 10, ..rules() });
    for n in 0..100 {
        world.machine.files.add(&format!("small{n}"), "x");
        world.machine.files.add(&format!("large{n}"), Content::Pattern(n, 200 * KIB));
    }
    for n in 0..100 {
        // First from the page cache, then from the store.
        for _ in 0..2 {
            world.get(&format!("/small{n}"));
        }
    }
    let most = 10 + FILES_OF_NAME_MAX;
    assert!(world.machine.files.open.get() <= most);
    let look_ups = world.machine.calls.look_ups;
    for n in 0..100 {
        assert_eq!(world.get(&format!("/small{n}")).text(), "x");
    }
    assert_eq!(world.machine.calls.look_ups, look_ups, "a content in memory needs no open file");
    for n in 0..100 {
        world.get(&format!("/large{n}"));
    }
    assert!(world.machine.files.open.get() <= most);
    world.end();
}

#[test]
fn the_memory_of_contents_is_bounded_and_evicted_blocks_are_dropped() {
    let mut world = World::with_store(rules(), StoreSize { bytes_max: 1_000_000, ..STORE });
    for n in 0..100 {
        world.machine.files.add(&format!("{n}"), Content::Pattern(n, 50_000));
        assert_eq!(world.get(&format!("/{n}")).body.len(), 50_000);
        assert_eq!(world.get(&format!("/{n}")).body.len(), 50_000);
    }
    let (totals, tally) = (world.store().borrow().totals().expect("a keeper"), world.store().borrow().tally);
    assert!(totals.held_bytes > 500_000 && totals.held_bytes <= 1_000_000, "{totals:?}");
    assert!(tally.evicted >= 80, "{tally:?}");
    assert!(
        world.engine.counters().contents as u64 <= totals.blocks,
        "a content is kept although its block was evicted"
    );
    world.end();
}

#[test]
fn without_a_store_everything_is_sent_from_files() {
    let mut world = World::with(Rules { has_store: false, ..rules() });
    world.machine.files.add("small", "x");
    world.machine.files.add_cold("cold", "cold");
    world.machine.files.add("unknown", "unknown");
    world.machine.files.inode("unknown").residency = crate::machine::files::Residency::Unknown;
    for _ in 0..3 {
        assert_eq!(world.get("/small").text(), "x");
        assert_eq!(world.get("/cold").text(), "cold");
        assert_eq!(world.get("/unknown").text(), "unknown");
        world.advance(FRESHNESS_MS + 1);
    }
    assert_eq!((world.engine.counters().contents, world.machine.calls.blocks), (0, 0));
    world.end();
}

#[test]
fn hosts_choose_sites() {
    let mut sites = rules().sites;
    sites[0].hosts = vec!["a.example".into()];
    let mut world = World::with(Rules { sites, ..rules() });
    world.machine.files.add("a", "x");
    let (_, response) = world.ask("GET /a HTTP/1.1\r\nHost: A.example:8080\r\n\r\n");
    assert_eq!(response.text(), "x");
    let (_, response) = world.ask(request("GET", "/a", ""));
    assert_eq!(response.status, 421);
    world.end();
}

#[test]
fn a_body_that_times_out_is_logged_once_with_its_request() {
    let mut world = World::with(Rules { log: LogRules::of(LogFormat::Json), ..rules() });
    let client = world.connect();
    client.send(request("GET", "/a", "Content-Length: 1000\r\n"));
    world.advance(HEAD_MS + 100);
    assert_eq!(client.take_one().status, 408);
    client.reset();
    world.run();
    assert_eq!(world.machine.log.len(), 1, "{:#?}", world.machine.log);
    assert!(world.machine.log[0].contains("\"GET /a HTTP/1.1\",\"status\":408"), "{}", world.machine.log[0]);
    world.end();
}

#[test]
fn idle_connections_are_drained_over_several_turns() {
    let mut world = World::new();
    world.machine.files.add("a", "x");
    let clients: Vec<Client> = (0..1_000).map(|_| world.connect()).collect();
    for client in &clients {
        client.get("/a");
    }
    world.run();
    let mut before = clients.len();
    world.engine.handle_drain(&mut world.machine);
    while before > 0 {
        let open = clients.iter().filter(|client| !client.is_closed()).count();
        assert!(before - open <= 256, "{} closed at once", before - open);
        before = open;
        world.turn();
    }
    assert!(world.engine.is_drained());
    world.end();
}

#[test]
fn a_new_connection_is_not_evicted_before_its_first_request() {
    let mut world = World::with(Rules { admission: at_most(20), ..rules() });
    world.machine.files.add("a", "x");
    let idle: Vec<Client> = (0..20).map(|_| world.connect()).collect();
    for client in &idle {
        client.get("/a");
    }
    world.run();
    world.advance(5_000);
    // Several connect in one turn, before any of them has sent a request.
    let newcomers: Vec<Client> = (0..5).map(|_| world.connect()).collect();
    assert!(newcomers.iter().all(|client| !client.is_closed()));
    assert_eq!(idle.iter().filter(|client| client.is_closed()).count(), 5);
    // When only newcomers are left, further ones are refused until those had time to send a request.
    let newcomers: Vec<Client> = newcomers.into_iter().chain((0..15).map(|_| world.connect())).collect();
    assert!(idle.iter().all(Client::is_closed) && newcomers.iter().all(|client| !client.is_closed()));
    assert!(world.try_connect().is_none());
    world.advance(NEWCOMER_GRACE_MS);
    assert!(world.try_connect().is_some());
    assert_eq!(newcomers.iter().filter(|client| client.is_closed()).count(), 1);
    world.end();
}

#[test]
fn busy_connections_do_not_hide_the_idle_ones() {
    let mut world = World::with(Rules { admission: at_most(1_000), ..rules() });
    world.machine.files.add("a", "x");
    let busy: Vec<Client> = (0..900).map(|_| world.connect()).collect();
    for client in &busy {
        client.send("GET /a");
    }
    let idle: Vec<Client> = (0..100).map(|_| world.connect()).collect();
    for client in &idle {
        client.get("/a");
    }
    world.run();
    let taken = (0..100).filter(|_| world.try_connect().is_some()).count();
    assert!(taken >= 20, "{taken} of 100 found an idle one to replace");
    assert!(busy.iter().all(|client| !client.is_closed()));
    world.end();
}
