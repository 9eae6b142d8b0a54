//! A name is checked at most once per freshness interval, and the check never blocks.

use crate::machine::world::{FRESHNESS_MS, STALE_MS};
use crate::machine::{Client, World};
use flash_engine::limits::{FILE_IDLE_MS, SHORT_WAIT_MS, SIBLINGS_MS, WAITED_IN_VAIN_MS};

#[test]
fn an_entry_is_checked_once_per_freshness_interval() {
    let mut world = World::new();
    world.machine.files.add("f.bin", "x");
    let client = world.connect();
    let get = |world: &mut World| {
        let before = world.machine.calls.look_ups;
        client.get("/f.bin");
        world.run();
        assert_eq!(client.take_one().text(), "x");
        world.machine.calls.look_ups - before
    };
    assert_eq!(get(&mut world), 1);
    for _ in 0..5 {
        world.pass(FRESHNESS_MS + 1);
        assert_eq!(get(&mut world), 1, "one check");
        assert_eq!(get(&mut world), 0);
        world.pass(FRESHNESS_MS);
        assert_eq!(get(&mut world), 0);
    }
    assert_eq!(world.machine.calls.reads, 1, "the content stays");
    world.end();
}

#[test]
fn a_check_that_would_block_goes_to_a_helper_and_the_entry_is_served() {
    let mut world = World::by_hand();
    world.machine.files.add("f", "x");
    world.get("/f");
    // The job brings the content into the store.
    world.finish_job();
    world.machine.helpers.history.clear();
    world.machine.files.forget_name("f");
    world.pass(FRESHNESS_MS + 1);
    for _ in 0..3 {
        assert_eq!(world.get("/f").text(), "x");
    }
    assert_eq!(world.machine.helpers.history, ["find /f"]);
    world.machine.files.tick();
    world.machine.files.add("f", "new");
    world.finish_job();
    assert_eq!(world.get("/f").text(), "new");
    world.end();
}

#[test]
fn a_check_that_a_helper_loses_is_made_again() {
    let mut world = World::by_hand();
    world.machine.files.add("f", "x");
    world.get("/f");
    // The job brings the content into the store.
    world.finish_job();
    world.machine.helpers.history.clear();
    world.machine.files.forget_name("f");
    world.pass(FRESHNESS_MS + 1);
    world.get("/f");
    let id = world.job();
    world.lose(id);
    assert_eq!(world.get("/f").text(), "x");
    world.pass(FRESHNESS_MS + 1);
    assert_eq!(world.get("/f").text(), "x");
    assert_eq!(world.machine.helpers.history, ["find /f", "find /f"]);
    world.end();
}

#[test]
fn missing_names_are_kept_and_noticed_when_they_appear() {
    let mut world = World::new();
    assert_eq!(world.get("/f").status, 404);
    let before = world.machine.calls.look_ups;
    assert_eq!(world.get("/f").status, 404);
    assert_eq!(world.machine.calls.look_ups, before);
    world.machine.files.add("f", "x");
    world.advance(FRESHNESS_MS + 1);
    assert_eq!(world.get("/f").text(), "x");
    world.end();
}

#[test]
fn a_precompressed_sibling_that_appears_is_noticed() {
    let mut world = World::new();
    world.machine.files.add("a.html", "plain");
    let request = "GET /a.html HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n";
    for _ in 0..3 {
        let (_, response) = world.ask(request);
        assert_eq!((response.text(), response.field("Vary")), ("plain".into(), None));
    }
    world.machine.files.add("a.html.gz", "zipped");
    world.advance(SIBLINGS_MS + FRESHNESS_MS + 1);
    for _ in 0..3 {
        let (_, response) = world.ask(request);
        assert_eq!((response.text(), response.field("Content-Encoding")), ("zipped".into(), Some("gzip")));
    }
    let response = world.get("/a.html");
    assert_eq!((response.text(), response.field("Vary")), ("plain".into(), Some("Accept-Encoding")));
    world.machine.files.remove("a.html.gz");
    world.advance(FRESHNESS_MS + 1);
    let (_, response) = world.ask(request);
    assert_eq!((response.text(), response.field("Vary")), ("plain".into(), None));
    world.end();
}

#[test]
fn an_entry_that_cannot_be_checked_is_served_up_to_the_stale_limit() {
    let mut world = World::by_hand();
    world.machine.files.add("f", "x");
    world.get("/f");
    // The job brings the content into the store.
    world.finish_job();
    world.machine.helpers.history.clear();
    world.machine.files.names_thrash = true;
    world.pass(FRESHNESS_MS + STALE_MS);
    assert_eq!(world.get("/f").text(), "x");
    // The check has begun, but has no result.
    world.pass(FRESHNESS_MS + 1);
    let client = world.connect();
    client.get("/f");
    world.run();
    assert_eq!(client.received_len(), 0, "a stale entry was served past the limit");
    world.machine.files.remove("f");
    world.finish_job();
    world.run();
    assert_eq!(client.take_one().status, 404);
    world.end();
}

/// Makes a world by hand, whose file is in memory and open.
fn with_file() -> World {
    let mut world = World::by_hand();
    world.machine.files.add("f", "x");
    world.get("/f");
    // The job brings the content into the store.
    world.finish_job();
    assert_eq!(world.get("/f").text(), "x");
    world.machine.helpers.history.clear();
    world
}

/// The same with a file that is not open any more, and whose name has left memory since.
fn with_closed_file() -> World {
    let mut world = with_file();
    world.advance(2 * FILE_IDLE_MS);
    assert_eq!(world.get("/f").text(), "x");
    assert_eq!((world.engine.counters().contents, world.engine.counters().files), (1, 0));
    world.machine.files.forget_name("f");
    world.pass(2 * FRESHNESS_MS + 1);
    world
}

fn asking(world: &mut World) -> Client {
    let client = world.connect();
    client.get("/f");
    world.run();
    client
}

#[test]
fn a_file_that_lost_its_name_is_never_served_stale_while_it_is_open() {
    for replaced in [false, true] {
        let mut world = with_file();
        world.machine.files.missing_cached = false;
        world.machine.files.remove("f");
        if replaced {
            world.machine.files.add_cold("f", "new");
        }
        world.pass(FRESHNESS_MS + 1);
        let clients = [asking(&mut world), asking(&mut world)];
        assert!(clients.iter().all(|client| client.received_len() == 0), "served stale");
        world.pass(SHORT_WAIT_MS);
        world.turn();
        assert!(clients.iter().all(|client| client.received_len() == 0), "served stale after a moment");
        world.finish_job();
        for client in clients {
            let response = client.take_one();
            let expected = if replaced { (200, "new") } else { (404, "") };
            assert_eq!(response.status, expected.0);
            assert!(!replaced || response.text() == expected.1);
        }
        world.end();
    }
}

#[test]
fn an_open_file_that_has_not_changed_confirms_its_entry() {
    let mut world = with_file();
    world.machine.files.forget_name("f");
    for _ in 0..3 {
        world.pass(FRESHNESS_MS + 1);
        assert_eq!(world.get("/f").text(), "x");
        // The helper's check stays under way.
        assert_eq!(world.machine.helpers.history, ["find /f"]);
    }
    world.end();
}

#[test]
fn a_file_in_use_stays_open() {
    let mut world = World::new();
    world.machine.files.add("f", "x");
    for _ in 0..3 * FILE_IDLE_MS / FRESHNESS_MS {
        assert_eq!(world.get("/f").text(), "x");
        world.advance(FRESHNESS_MS + 1);
    }
    assert_eq!((world.engine.counters().files, world.machine.calls.reads), (1, 1));
    world.end();
}

#[test]
fn where_nothing_is_open_one_request_waits_a_moment_for_the_helper() {
    for deleted in [false, true] {
        let mut world = with_closed_file();
        if deleted {
            world.machine.files.missing_cached = false;
            world.machine.files.remove("f");
        }
        let client = asking(&mut world);
        assert_eq!(client.received_len(), 0);
        assert_eq!(world.get("/f").text(), "x", "only one request waits");
        world.finish_job();
        assert_eq!(client.take_one().status, if deleted { 404 } else { 200 });
        world.end();
    }
}

#[test]
fn after_a_moment_the_stale_entry_is_served_and_no_request_waits_for_a_while() {
    let mut world = with_closed_file();
    let client = asking(&mut world);
    world.advance(SHORT_WAIT_MS - 1);
    assert_eq!(client.received_len(), 0);
    world.advance(1);
    assert_eq!(client.take_one().text(), "x");
    world.finish_job();
    world.machine.files.forget_name("f");
    world.advance(WAITED_IN_VAIN_MS / 2);
    assert_eq!(world.get("/f").text(), "x", "the disk was slow a short while ago");
    world.end();
}

#[test]
fn a_file_in_use_is_checked_meanwhile_and_no_request_waits() {
    let mut world = with_closed_file();
    world.get_auto("/f");
    world.machine.helpers.history.clear();
    for second in 1..10 {
        world.machine.files.names_thrash = true;
        world.machine.files.places = vec!["f".into()];
        world.pass(FRESHNESS_MS + 1);
        assert_eq!(world.get("/f").text(), "x");
        assert_eq!(world.machine.helpers.history.len(), second);
        world.finish_job();
    }
    world.end();
}

#[test]
fn a_short_wait_whose_helper_dies_ends_with_the_stale_entry() {
    let mut world = with_closed_file();
    let client = asking(&mut world);
    let id = world.job();
    world.lose(id);
    world.run();
    assert_eq!(client.take_one().text(), "x");
    world.end();
}

#[test]
fn no_request_waits_for_a_disk_that_is_busy() {
    let mut world = with_closed_file();
    world.machine.files.add_cold("other", "y");
    let other = world.connect();
    other.get("/other");
    world.run();
    world.pass(SHORT_WAIT_MS + 1);
    assert_eq!(world.get("/f").text(), "x");
    world.auto = true;
    world.run();
    world.end();
}

#[test]
fn ten_thousand_hot_names_cost_one_look_up_each_per_freshness_interval() {
    let mut world = World::new();
    let names: Vec<String> = (0..10_000).map(|n| format!("{n}.html")).collect();
    for name in &names {
        world.machine.files.add(name, "x");
    }
    let client = world.connect();
    let ask_all = |world: &mut World| {
        for name in &names {
            client.get(&format!("/{name}"));
            world.run();
        }
        client.take_bytes();
    };
    ask_all(&mut world);
    for _ in 0..2 {
        world.pass(FRESHNESS_MS + 1);
        let before = world.machine.calls.look_ups;
        ask_all(&mut world);
        ask_all(&mut world);
        let look_ups = world.machine.calls.look_ups - before;
        assert!(look_ups <= names.len() as u64, "{look_ups} look-ups");
    }
    world.end();
}
