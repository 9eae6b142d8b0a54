//! Listings of directories: made by helpers, bounded in memory.

use crate::machine::client::request;
use crate::machine::world::FRESHNESS_MS;
use crate::machine::{Client, KIB, World};
use flash_engine::limits::LISTINGS_MAX;

fn directories(count: usize) -> World {
    let mut world = World::new();
    for n in 0..count {
        world.machine.files.add_directory(&format!("d{n}"));
    }
    world
}

#[test]
fn a_listing_is_made_by_a_helper_and_kept_for_a_freshness_interval() {
    let mut world = directories(1);
    for _ in 0..3 {
        assert!(world.get("/d0/").text().starts_with("HTML of /d0/"));
    }
    assert_eq!(world.machine.helpers.history, ["list /d0/ false"]);
    let (_, json) = world.ask(request("GET", "/d0/", "Accept: application/json\r\n"));
    assert!(json.text().starts_with("JSON of /d0/"));
    assert_eq!((json.field("Content-Type"), json.field("Vary")), (Some("application/json"), Some("Accept")));
    world.advance(FRESHNESS_MS + 1);
    world.get("/d0/");
    assert_eq!(world.machine.helpers.started, 3, "the listing is made again");
    assert_eq!(world.get("/d0").status, 301);
    assert_eq!(world.get("/d0").field("Location"), Some("/d0/"));
    world.end();
}

#[test]
fn more_directories_than_listings_can_be_browsed_one_after_the_other() {
    let mut world = directories(LISTINGS_MAX + 10);
    for n in 0..LISTINGS_MAX + 10 {
        world.advance(2 * FRESHNESS_MS);
        assert_eq!(world.get(&format!("/d{n}/")).status, 200, "directory {n}");
    }
    world.end();
}

#[test]
fn listings_in_memory_are_bounded() {
    let mut world = directories(3 * LISTINGS_MAX);
    world.auto = false;
    world.machine.helpers.listing_bytes = 300 * KIB;
    let clients: Vec<Client> = (0..3 * LISTINGS_MAX)
        .map(|n| {
            let client = world.connect();
            client.set_room(1_000);
            client.get(&format!("/d{n}/"));
            client
        })
        .collect();
    world.auto = true;
    world.run();
    let open = world.machine.files.open.get();
    assert!(open <= LISTINGS_MAX, "{open} listings in memory");
    for client in &clients {
        client.set_room(usize::MAX);
    }
    world.run();
    let refused = clients.iter().filter(|client| client.take_one().status == 503).count();
    assert!(refused >= 2 * LISTINGS_MAX);
    world.end();
}

#[test]
fn a_large_listing_is_streamed_to_a_slow_client() {
    let mut world = directories(1);
    world.machine.helpers.listing_bytes = 900 * KIB;
    let client = world.connect();
    client.set_room(0);
    client.get("/d0/");
    for _ in 0..100 {
        client.add_room(10_000);
        world.run();
    }
    assert_eq!(client.take_one().body.len() as u64, 900 * KIB);
    world.end();
}

#[test]
fn a_head_of_a_listing_and_a_lost_listing() {
    let mut world = directories(2);
    world.auto = false;
    let client = world.connect();
    client.send(request("HEAD", "/d0/", ""));
    world.run();
    world.finish_job();
    assert_eq!(client.take_head().length(), Some(100));
    client.get("/d1/");
    world.run();
    let id = world.job();
    world.lose(id);
    world.run();
    assert_eq!(client.take_one().status, 503);
    world.end();
}

#[test]
fn an_index_comes_before_a_listing() {
    let mut world = directories(1);
    world.machine.files.add("d0/index.html", "index");
    let response = world.get("/d0/");
    assert_eq!(
        (response.text(), response.field("Content-Type")),
        ("index".into(), Some("text/html; charset=utf-8"))
    );
    world.machine.files.remove("d0/index.html");
    world.advance(FRESHNESS_MS + 1);
    assert!(world.get("/d0/").text().starts_with("HTML"));
    world.end();
}
