//! A name is checked at most once per freshness interval, and the check never blocks.

use crate::machine::World;
use crate::machine::world::{FRESHNESS_MS, STALE_MS};
use flash_engine::limits::SIBLINGS_MS;

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
