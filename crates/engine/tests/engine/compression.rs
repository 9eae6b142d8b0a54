//! Texts are compressed by helpers from their second request on. No request waits for that.

use flash_engine::limits::{COMPRESSED_BYTES_MAX, COMPRESSED_FROM_BYTES};
use flash_http::negotiate::Coding;

use crate::machine::client::request;
use crate::machine::response::Response;
use crate::machine::store::compress;
use crate::machine::world::rules;
use crate::machine::{Content, KIB, World};

const SIZE_BYTES: u64 = 20 * KIB;

fn world() -> World {
    let mut rules = rules();
    rules.sites[0].compress = true;
    World::with(rules)
}

fn text(seed: u64) -> Content {
    Content::Pattern(seed, SIZE_BYTES)
}

fn get(world: &mut World, path: &str, accept: &str) -> Response {
    ask(world, path, &format!("Accept-Encoding: {accept}\r\n"))
}

fn ask(world: &mut World, path: &str, fields: &str) -> Response {
    world.ask(request("GET", path, fields)).1
}

/// Asks for a file until it has a form. Returns an answer with the form.
fn made(world: &mut World, path: &str, accept: &str) -> Response {
    for _ in 0..2 {
        assert_eq!(get(world, path, accept).field("Content-Encoding"), None);
    }
    get(world, path, accept)
}

#[test]
fn a_text_is_compressed_from_its_second_request_on() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    for (accept, coding) in
        [("gzip, br", Coding::Br), ("gzip", Coding::Gzip), ("zstd;q=1, br;q=0.5", Coding::Zstd)]
    {
        let plain = get(&mut world, "/a.txt", accept);
        assert_eq!((plain.field("Content-Encoding"), plain.field("Vary")), (None, Some("Accept-Encoding")));
        assert!(plain.body == text(1).whole() && plain.field("Accept-Ranges").is_some());
        get(&mut world, "/a.txt", accept);
        for _ in 0..4 {
            let coded = get(&mut world, "/a.txt", accept);
            assert_eq!(coded.field("Content-Encoding"), Some(coding.token()), "{accept}");
            assert_eq!(coded.field("Vary"), Some("Accept-Encoding"));
            assert_eq!(coded.field("Accept-Ranges"), None);
            assert_eq!(coded.field("Content-Type"), plain.field("Content-Type"));
            assert_eq!(coded.field("Last-Modified"), plain.field("Last-Modified"));
            let tag = plain.field("ETag").unwrap().trim_end_matches('"');
            assert_eq!(coded.field("ETag"), Some(&*format!("W/{tag}-{}\"", coding.token())));
            assert!(coded.body == compress(&text(1), coding));
        }
    }
    for accept in ["identity", "br;q=0", "deflate"] {
        assert!(get(&mut world, "/a.txt", accept).body == text(1).whole(), "{accept}");
    }
    assert!(ask(&mut world, "/a.txt", "").body == text(1).whole());
    world.end();
}

#[test]
fn a_hit_with_a_form_is_known_by_its_bytes_and_makes_no_look_up() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    made(&mut world, "/a.txt", "br");
    let client = world.connect();
    let hit = || request("GET", "/a.txt", "Accept-Encoding: br\r\n");
    for number in 0..6 {
        let (calls, counters) = (world.machine.calls, world.engine.counters());
        client.send(hit());
        world.run();
        assert!(client.take_one().body == compress(&text(1), Coding::Br));
        let (after, counters_after) = (world.machine.calls, world.engine.counters());
        if number > 2 {
            assert_eq!((after.recvs - calls.recvs, after.sends - calls.sends), (1, 1));
            assert_eq!((after.look_ups, after.blocks), (calls.look_ups, calls.blocks));
            assert_eq!(counters_after.known_hits - counters.known_hits, 1);
        }
    }
    world.end();
}

#[test]
fn plain_answers_are_not_repeated_once_there_is_a_form() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    world.auto = false;
    for _ in 0..6 {
        assert!(get(&mut world, "/a.txt", "br").body == text(1).whole(), "no request waits for a form");
    }
    world.auto = true;
    world.run();
    assert_eq!(get(&mut world, "/a.txt", "br").field("Content-Encoding"), Some("br"));
    world.end();
}

#[test]
fn a_changed_file_gets_another_form() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    let old = made(&mut world, "/a.txt", "br");
    world.machine.files.tick();
    world.machine.files.add("a.txt", text(2));
    world.advance(2_000);
    let new = made(&mut world, "/a.txt", "br");
    assert!(new.body == compress(&text(2), Coding::Br));
    assert_ne!(new.field("ETag"), old.field("ETag"));
    world.end();
}

#[test]
fn conditions_compare_with_the_tag_of_the_form() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    let tag = made(&mut world, "/a.txt", "br").field("ETag").unwrap().to_owned();
    let status = |world: &mut World, fields: &str| {
        ask(world, "/a.txt", &format!("Accept-Encoding: br\r\n{fields}\r\n")).status
    };
    for _ in 0..3 {
        assert_eq!(status(&mut world, &format!("If-None-Match: {tag}")), 304);
        assert_eq!(status(&mut world, &format!("If-None-Match: {}", &tag[2..])), 304);
        assert_eq!(status(&mut world, "If-None-Match: \"x\""), 200);
        assert_eq!(status(&mut world, &format!("If-Match: {tag}")), 412, "a weak tag never matches strongly");
    }
    // A client still has the form when the store no longer does.
    let stat = world.machine.files.look("a.txt").stat;
    world.store().borrow_mut().set_bytes_max(0);
    world.run();
    world.hear_keeper();
    world.hear_keeper();
    assert!(!world.store().borrow().has_block(&stat, flash_engine::block_of_form(Coding::Br)));
    let not_modified = ask(&mut world, "/a.txt", &format!("Accept-Encoding: br\r\nIf-None-Match: {tag}\r\n"));
    assert_eq!((not_modified.status, not_modified.field("ETag")), (304, Some(&*tag)));
    assert!(get(&mut world, "/a.txt", "br").body == text(1).whole());
    world.end();
}

#[test]
fn a_range_is_one_of_the_file() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    made(&mut world, "/a.txt", "br");
    for _ in 0..3 {
        let part = ask(&mut world, "/a.txt", "Accept-Encoding: br\r\nRange: bytes=5-9\r\n");
        assert_eq!((part.status, part.field("Content-Encoding")), (206, None));
        assert!(part.body == text(1).slice(5, 10));
    }
    world.end();
}

#[test]
fn a_text_that_would_not_become_shorter_stays_plain_and_is_not_tried_again() {
    let mut world = world();
    let noise = Content::Bytes([&b"!"[..], &[7; 4_000]].concat());
    world.machine.files.add("a.txt", noise.clone());
    for _ in 0..3 {
        assert!(get(&mut world, "/a.txt", "br").body == noise.whole());
    }
    let given = world.store().borrow().tally.given;
    for _ in 0..3 {
        world.advance(5_000);
        assert!(get(&mut world, "/a.txt", "br").body == noise.whole());
    }
    assert_eq!(world.store().borrow().tally.given, given);
    assert!(get(&mut world, "/a.txt", "gzip, br;q=0.5").body == noise.whole());
    world.end();
}

#[test]
fn only_texts_of_a_sensible_size_are_compressed() {
    let mut world = world();
    let of = |bytes| Content::Pattern(3, bytes);
    for (name, content) in [
        ("small.txt", of(COMPRESSED_FROM_BYTES - 1)),
        ("large.txt", of(COMPRESSED_BYTES_MAX + 1)),
        ("picture.png", of(SIZE_BYTES)),
    ] {
        world.machine.files.add(name, content.clone());
        for _ in 0..4 {
            let answer = get(&mut world, &format!("/{name}"), "br");
            assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None), "{name}");
            assert!(answer.body == content.whole());
        }
    }
    world.machine.files.add("long.txt", of(600 * KIB));
    assert_eq!(made(&mut world, "/long.txt", "br").field("Content-Encoding"), Some("br"));
    world.end();
}

#[test]
fn a_precompressed_sibling_wins() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    world.machine.files.add("a.txt.gz", "of the owner");
    for _ in 0..4 {
        assert_eq!(get(&mut world, "/a.txt", "br, gzip").text(), "of the owner");
    }
    get(&mut world, "/a.txt", "br");
    assert_eq!(get(&mut world, "/a.txt", "br").field("Content-Encoding"), Some("br"));
    world.end();
}

#[test]
fn a_client_that_takes_only_a_coding_gets_it_as_soon_as_there_is_one() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    for coding in [None, None, Some("br")] {
        let answer = get(&mut world, "/a.txt", "br, identity;q=0");
        assert_eq!((answer.status, answer.field("Content-Encoding")), (200, coding));
    }
    world.end();
}

#[test]
fn a_head_is_that_of_the_form() {
    let mut world = world();
    world.machine.files.add("a.txt", text(1));
    let coded = made(&mut world, "/a.txt", "br");
    let client = world.connect();
    client.send(request("HEAD", "/a.txt", "Accept-Encoding: br\r\n"));
    world.run();
    let head = client.take_head();
    assert_eq!(head.field("Content-Length"), coded.field("Content-Length"));
    assert_eq!(head.field("ETag"), coded.field("ETag"));
    world.end();
}

#[test]
fn nothing_is_compressed_unless_the_site_says_so() {
    let mut world = World::new();
    world.machine.files.add("a.txt", text(1));
    for _ in 0..4 {
        let answer = get(&mut world, "/a.txt", "br");
        assert_eq!((answer.field("Content-Encoding"), answer.field("Vary")), (None, None));
    }
    world.end();
}

#[test]
fn a_listing_comes_in_the_coding_that_its_client_prefers() {
    let mut world = world();
    world.machine.files.add_directory("d");
    for (accept, coding) in
        [("br, gzip", "br"), ("gzip", "gzip"), ("br, gzip", "br"), ("identity, gzip;q=0.5", "")]
    {
        let listing = get(&mut world, "/d/", accept);
        assert_eq!(listing.field("Content-Encoding"), Some(coding).filter(|coding| !coding.is_empty()));
        assert_eq!(listing.field("Vary"), Some("Accept, Accept-Encoding"));
        assert!(listing.text().starts_with(&format!("{coding}HTML of /d/")), "{}", listing.text());
    }
    assert_eq!(world.machine.helpers.started, 3, "one listing for each coding");
    assert!(ask(&mut world, "/d/", "").text().starts_with("HTML"));
    world.end();
    let mut world = World::new();
    world.machine.files.add_directory("d");
    let plain = get(&mut world, "/d/", "br");
    assert_eq!((plain.field("Content-Encoding"), plain.field("Vary")), (None, Some("Accept")));
    world.end();
}
