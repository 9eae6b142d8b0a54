//! Each optimization switched off alone: its cache is not used, and the answers stay the same.

use flash_engine::limits::{HEAD_ALIGN_BYTES, SAMPLE_BYTES_MAX};
use flash_engine::{Optimizations, Rules};

use crate::machine::client::request;
use crate::machine::files::Residency;
use crate::machine::response::Response;
use crate::machine::{Client, Content, KIB, MIB, World, rules};

fn world(optimizations: Optimizations, has_store: bool) -> World {
    let mut world = World::with(Rules { optimizations, has_store, ..rules() });
    for (path, content) in contents() {
        world.machine.files.add(path, content);
    }
    world.machine.files.add_directory("d");
    world
}

fn contents() -> [(&'static str, Content); 5] {
    [
        ("a.html", Content::Pattern(1, 5_000)),
        ("a.html.gz", Content::Pattern(2, 900)),
        ("b", Content::Pattern(3, 128 * KIB)),
        ("empty", Content::Pattern(4, 0)),
        ("big", Content::Pattern(5, MIB + 17)),
    ]
}

const ALL: Optimizations =
    Optimizations { name_cache: true, head_cache: true, align_heads: false, send_file: false };

/// Every combination, with and without a store.
fn combinations() -> Vec<(Optimizations, bool)> {
    let bits = |n: u32| [0, 1, 2, 3, 4].map(|bit| n >> bit & 1 == 1);
    let combination = |n| {
        let [name_cache, head_cache, has_store, align_heads, send_file] = bits(n);
        let optimizations = Optimizations { name_cache, head_cache, align_heads, send_file };
        (optimizations, has_store)
    };
    (0..32).map(combination).collect()
}

fn requests() -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    for path in ["/a.html", "/b", "/empty", "/big", "/none", "/d", "/d/", "/../x"] {
        for method in ["GET", "HEAD", "OPTIONS", "POST"] {
            all.push((method, request(method, path, "").into_bytes()));
        }
    }
    for fields in [
        "Range: bytes=10-99\r\n",
        "Range: bytes=0-0,4000-\r\n",
        "Range: bytes=9999999-\r\n",
        "Accept-Encoding: gzip\r\n",
        "If-Modified-Since: Fri, 15 Jan 2027 08:00:00 GMT\r\n",
        "If-None-Match: *\r\n",
        "If-Match: \"x\"\r\n",
    ] {
        for path in ["/a.html", "/b", "/big"] {
            all.push(("GET", request("GET", path, fields).into_bytes()));
        }
    }
    all
}

/// A response without its variable parts: the padding, and the boundary between parts.
fn essence(response: &Response) -> (String, Vec<u8>) {
    let (mut head, mut body) = (response.head.clone(), response.body.clone());
    if let Some((before, rest)) = response.head.split_once("Server: flash (") {
        let (_, after) = rest.split_once(')').expect("the end of the comment");
        head = format!("{before}Server: flash{after}");
    }
    if let Some((before, rest)) = head.clone().split_once("boundary=") {
        let (boundary, after) = rest.split_once("\r\n").expect("the end of the line");
        head = format!("{before}boundary=\r\n{after}");
        body = String::from_utf8_lossy(&body).replace(boundary, "").into_bytes();
    }
    (head, body)
}

/// The answers of a world with these settings, with each request sent twice.
fn answers(optimizations: Optimizations, has_store: bool) -> Vec<(String, Vec<u8>)> {
    let mut world = world(optimizations, has_store);
    let mut all = Vec::new();
    for _ in 0..2 {
        for (method, bytes) in requests() {
            let client = world.connect();
            client.send(bytes);
            world.run();
            let response = if method == "HEAD" { client.take_head() } else { client.take_one() };
            if optimizations.align_heads {
                assert!(response.head.len().is_multiple_of(HEAD_ALIGN_BYTES), "{}", response.head);
            }
            all.push(essence(&response));
            client.end();
            world.run();
        }
    }
    world.end();
    all
}

#[test]
fn every_combination_answers_the_same_bytes() {
    let expected = answers(ALL, true);
    assert!(expected.iter().any(|(head, _)| head.starts_with("HTTP/1.1 206")));
    for (optimizations, has_store) in combinations() {
        let found = answers(optimizations, has_store);
        for ((number, found), expected) in found.iter().enumerate().zip(&expected) {
            assert!(found == expected, "request {number} of {optimizations:?}, {has_store}: {}", found.0);
        }
    }
}

/// A client of a world in which these paths were requested three times each.
fn asked(world: &mut World, paths: &[&str]) -> Client {
    let client = world.connect();
    for path in paths.iter().flat_map(|path| [path; 3]) {
        client.get(path);
        world.run();
        assert_eq!(client.take_one().status, 200);
    }
    client
}

#[test]
fn a_head_is_known_only_if_its_bytes_alone_admit_it() {
    let mut world = world(ALL, true);
    let client = asked(&mut world, &["/a.html"]);
    for (fields, known) in [("", 3), ("Content-Length: 0\r\n", 0)] {
        let before = world.engine.counters().known_hits;
        for _ in 0..3 {
            client.send(request("GET", "/a.html", fields));
            world.run();
            assert_eq!(client.take_one().status, 200);
        }
        assert_eq!(world.engine.counters().known_hits - before, known, "{fields}");
    }
}

#[test]
fn with_all_optimizations_a_hit_makes_no_file_calls() {
    let mut world = world(ALL, true);
    let client = asked(&mut world, &["/a.html"]);
    let (before, counters) = (world.machine.calls, world.engine.counters());
    client.get("/a.html");
    world.run();
    client.take_one();
    let (after, now) = (world.machine.calls, world.engine.counters());
    assert_eq!((after.look_ups - before.look_ups, after.sends - before.sends), (0, 1));
    assert_eq!((now.known_hits - counters.known_hits, now.heads_made - counters.heads_made), (1, 0));
    assert_eq!(now.names, 1);
}

#[test]
fn without_the_name_cache_every_request_is_looked_up_and_contents_are_still_found() {
    let optimizations = Optimizations { name_cache: false, ..ALL };
    let mut world = world(optimizations, true);
    let client = asked(&mut world, &["/a.html", "/b", "/empty"]);
    for path in ["/a.html", "/b", "/empty"] {
        let (before, hits) = (world.machine.calls, world.engine.counters().content_hits);
        client.get(path);
        world.run();
        client.take_one();
        let after = world.machine.calls;
        assert!(after.look_ups > before.look_ups, "{path}");
        // An empty file has no block in the store; a check of its state shows that it is still empty.
        let is_stored = u64::from(path != "/empty");
        let stats = before.stats + 1 - is_stored;
        assert_eq!((after.reads, after.stats), (before.reads, stats), "{path} is not read again");
        assert_eq!(world.engine.counters().content_hits - hits, is_stored, "{path}");
    }
    let counters = world.engine.counters();
    assert_eq!((counters.name_hits, counters.known_hits, counters.names), (0, 0, 0));
    assert_eq!(counters.heads_made, 0, "heads are made with their contents");
    // A change is noticed at once, because no entry is used without a check.
    world.machine.files.tick();
    world.machine.files.add("b", "new");
    client.get("/b");
    world.run();
    assert_eq!(client.take_one().text(), "new");
    world.machine.files.remove("empty");
    client.get("/empty");
    world.run();
    assert_eq!(client.take_one().status, 404);
    world.end();
}

#[test]
fn without_the_name_cache_a_cold_name_goes_through_a_helper_each_time() {
    let mut world = world(Optimizations { name_cache: false, ..ALL }, true);
    for round in 1..=3 {
        world.machine.files.forget_name("b");
        assert_eq!(world.get("/b").status, 200);
        assert_eq!(world.machine.helpers.started, round, "{:?}", world.machine.helpers.history);
    }
    // The finding is kept while the content is loaded.
    world.machine.files.add_cold("cold", Content::Pattern(9, 3_000));
    assert_eq!(world.get("/cold").body.len(), 3_000);
    let finds = world.machine.helpers.history.iter().filter(|task| *task == "find /cold").count();
    assert_eq!(finds, 1);
    world.end();
}

#[test]
fn without_the_name_cache_a_replaced_file_is_not_confused_with_the_old_one() {
    // One file has two names with different types, and is also the coded form of another file.
    let mut world = world(Optimizations { name_cache: false, ..ALL }, true);
    world.machine.files.link("a.html", "a.txt");
    for _ in 0..3 {
        for (path, content_type) in
            [("/a.html", "text/html; charset=utf-8"), ("/a.txt", "text/plain; charset=utf-8")]
        {
            let response = world.get(path);
            assert_eq!(response.field("Content-Type"), Some(content_type));
            assert!(response.body == Content::Pattern(1, 5_000).whole());
        }
        let (_, coded) = world.ask(request("GET", "/a.html", "Accept-Encoding: gzip\r\n"));
        assert_eq!(coded.field("Content-Encoding"), Some("gzip"));
        let plain = world.get("/a.html.gz");
        assert_eq!((plain.field("Content-Encoding"), &plain.body), (None, &coded.body));
    }
    world.end();
}

#[test]
fn without_the_head_cache_each_answer_has_a_new_head() {
    let mut with = world(ALL, true);
    let mut without = world(Optimizations { head_cache: false, ..ALL }, true);
    asked(&mut with, &["/a.html"]);
    let client = asked(&mut without, &["/a.html"]);
    assert_eq!((with.engine.counters().heads_made, without.engine.counters().heads_made), (0, 3));
    assert_eq!(without.engine.counters().known_hits, 0);
    assert_eq!((with.engine.counters().contents, without.engine.counters().contents), (1, 1));
    assert!(without.engine.counters().name_hits >= 2);
    // There is still one send with head and content, and the date is that of the answer.
    let before = without.machine.calls;
    without.pass(5_000);
    client.get("/a.html");
    without.run();
    assert_eq!(client.take_one().field("Date"), Some("Fri, 15 Jan 2027 08:00:05 GMT"));
    assert_eq!(without.machine.calls.sends - before.sends, 1);
    // A slow reader gets all of it, wherever a send ends.
    for room in [1, 100, 300, 1_000, 5_200] {
        let slow = without.connect();
        slow.set_room(room);
        slow.get("/a.html");
        without.run();
        slow.set_room(usize::MAX);
        without.run();
        assert!(slow.take_one().body == Content::Pattern(1, 5_000).whole(), "cut at {room}");
    }
    with.end();
    without.end();
}

#[test]
fn without_a_store_every_answer_is_read() {
    let mut world = world(ALL, false);
    asked(&mut world, &["/a.html"]);
    let counters = world.engine.counters();
    assert_eq!((counters.content_hits, counters.known_hits, counters.contents), (0, 0, 0));
    assert_eq!((world.machine.calls.reads, counters.name_hits), (3, 2));
    world.end();
}

#[test]
fn files_sent_by_the_system_are_not_read_except_for_a_sample_of_each_part() {
    let optimizations = Optimizations { send_file: true, ..ALL };
    for (has_store, paths) in [(false, &["/a.html", "/b", "/big"][..]), (true, &["/big"][..])] {
        let mut world = world(optimizations, has_store);
        asked(&mut world, paths);
        let calls = world.machine.calls;
        assert!(calls.file_sends >= 3 * paths.len() as u64, "{calls:?}");
        assert!(calls.reads <= calls.file_sends, "{calls:?}");
        assert!(calls.read_bytes <= calls.reads * SAMPLE_BYTES_MAX as u64, "{calls:?}");
        world.end();
    }
    let mut world = world(optimizations, true);
    asked(&mut world, &["/a.html", "/b"]);
    assert_eq!(world.machine.calls.file_sends, 0, "small files are contents");
    world.end();
}

/// Makes a world in which the system sends files, with one large file.
fn sending(content: &Content) -> World {
    let mut world = World::with(Rules {
        optimizations: Optimizations { send_file: true, ..ALL },
        has_store: false,
        ..rules()
    });
    world.machine.files.add("file", content.clone());
    world
}

#[test]
fn absent_bytes_are_loaded_before_the_system_sends_them() {
    let content = Content::Pattern(6, MIB + 17);
    for residency in
        [Residency::Pages([0, 1, 5, 200].into()), Residency::Pages([].into()), Residency::Unknown]
    {
        for thrash in [false, true] {
            let mut world = sending(&content);
            world.machine.files.inode("file").residency = residency.clone();
            world.machine.helpers.thrash = thrash;
            assert!(world.get("/file").body == content.whole(), "{residency:?}, thrash: {thrash}");
            assert!(world.machine.helpers.started > 0);
            world.end();
        }
    }
}

#[test]
fn a_slow_reader_of_a_file_sent_by_the_system_gets_every_byte() {
    let content = Content::Pattern(7, 300 * KIB + 5);
    for room in [1, 97, 300, 4_096, 33_000, 150_000] {
        let mut world = sending(&content);
        world.machine.files.inode("file").residency = Residency::Pages((3..20).collect());
        let client = world.connect();
        client.set_room(room);
        client.get("/file");
        for _ in 0..20 {
            world.run();
            client.add_room(room);
        }
        client.set_room(usize::MAX);
        world.run();
        assert!(client.take_one().body == content.whole(), "{room} at a time");
        world.end();
    }
}

#[test]
fn a_file_that_changes_while_the_system_sends_it_is_cut_or_answered_again() {
    let old = Content::Pattern(8, 600 * KIB);
    for new in [Content::Pattern(9, 600 * KIB), Content::Pattern(8, 200 * KIB), Content::Pattern(8, 0)] {
        let mut world = sending(&old);
        let client = world.connect();
        client.set_room(100_000);
        client.get("/file");
        world.run();
        let sent = client.received_len();
        world.machine.files.overwrite("file", new.clone());
        client.set_room(usize::MAX);
        world.run();
        assert!(client.is_closed() && client.received_len() == sent, "no byte of another state was sent");
        // Before its first byte, the request is answered again.
        assert!(world.get("/file").body == new.whole());
        world.end();
    }
}

#[test]
fn a_file_that_fails_while_the_system_sends_it_is_answered_500() {
    let mut world = sending(&Content::Pattern(8, 1_000));
    world.machine.files.inode("file").fails = true;
    assert_eq!(world.get("/file").status, 500);
    world.end();
}
