//! Listings of directories: made by helpers, bounded in memory.

use crate::machine::client::request;
use crate::machine::world::{FRESHNESS_MS, rules};
use crate::machine::{Client, Content, KIB, MIB, World};
use flash_engine::limits::LISTINGS_MAX;
use flash_engine::{Access, ListingOrder, PathRule, PathRules};

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
    assert_eq!(world.machine.helpers.history, ["list HTML of /d0/ by name with README"]);
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
fn each_order_is_a_listing_of_its_own_and_any_other_query_is_ignored() {
    let mut world = directories(1);
    for _ in 0..2 {
        for order in ListingOrder::ALL.map(ListingOrder::word) {
            let text = world.get(&format!("/d0/?sort={order}")).text();
            assert!(text.starts_with(&format!("HTML of /d0/ by {order} ")), "{text}");
        }
        for query in ["sort=", "sort=Size", "sort=-Time", "sort=%2Dsize", "x=1", "", "sort=name&x=2"] {
            let text = world.get(&format!("/d0/?{query}")).text();
            assert!(text.starts_with("HTML of /d0/ by name "), "{query}: {text}");
        }
    }
    assert_eq!(world.machine.helpers.started, 6, "each is made once");
    let (_, json) = world.ask(request("GET", "/d0/?x=1&sort=-size", "Accept: application/json\r\n"));
    assert!(json.text().starts_with("JSON of /d0/ by -size "));
    assert_eq!(world.machine.helpers.history[6], "list JSON of /d0/ by -size");
    world.advance(FRESHNESS_MS + 1);
    world.get("/d0/?sort=-size");
    assert_eq!(world.machine.helpers.started, 8, "all are old");
    world.end();
}

#[test]
fn other_orders_make_room_before_any_listing_in_the_default_order() {
    const DIRECTORIES: usize = LISTINGS_MAX / 2;
    let mut world = directories(DIRECTORIES);
    for n in 0..DIRECTORIES {
        world.get(&format!("/d{n}/"));
    }
    for n in 0..DIRECTORIES {
        for order in ListingOrder::ALL.map(ListingOrder::word) {
            assert_eq!(world.get(&format!("/d{n}/?sort={order}")).status, 200);
        }
    }
    let open = world.machine.files.open.get();
    assert!(open <= LISTINGS_MAX, "{open} listings in memory");
    let made = world.machine.helpers.started;
    for n in 0..DIRECTORIES {
        world.get(&format!("/d{n}/"));
    }
    assert_eq!(world.machine.helpers.started, made, "they are still there");
    world.get("/d0/?sort=-size");
    assert_eq!(world.machine.helpers.started, made + 1, "it made room");
    world.end();
}

#[test]
fn a_closed_listing_is_made_again_alone() {
    let mut rules = rules();
    rules.open_files_max = 1;
    let mut world = World::with(rules);
    world.machine.files.add_directory("d0");
    world.get("/d0/");
    world.get("/d0/?sort=size");
    // Other files take the places of both.
    for n in 0..10 {
        world.machine.files.add(&format!("f{n}"), Content::Pattern(1, 2 * MIB));
        world.get(&format!("/f{n}"));
    }
    let before = world.machine.helpers.history.len();
    for query in ["", "?sort=size", "", "?sort=size"] {
        assert_eq!(world.get(&format!("/d0/{query}")).status, 200);
    }
    let made = &world.machine.helpers.history[before..];
    assert_eq!(made, ["list HTML of /d0/ by name with README", "list HTML of /d0/ by size with README"]);
    world.end();
}

#[test]
fn a_readme_that_a_rule_keeps_from_some_clients_is_not_shown() {
    let denying = |pattern: &str| {
        let deny = vec!["192.0.2.0/24".parse().expect("a network")];
        PathRule { access: Access { deny, ..Access::default() }, ..PathRule::new(pattern) }
    };
    for (pattern, shown) in [("*", true), ("/d0/", true), ("/e/*", true), ("*.txt", false), ("/d0/R*", false)]
    {
        let mut rules = rules();
        rules.sites[0].paths = PathRules::new(vec![denying(pattern)]).into();
        let mut world = World::with(rules);
        world.machine.files.add_directory("d0");
        world.get("/d0/");
        let listed = ["list HTML of /d0/ by name", if shown { " with README" } else { "" }].concat();
        assert_eq!(world.machine.helpers.history, [listed], "{pattern}");
        world.end();
    }
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
