//! Requests for files in memory are answered at once, whatever else happens.

use crate::machine::client::request;
use crate::machine::{Content, KIB, World};

#[test]
fn a_hit_is_one_receive_and_one_send_and_no_look_up() {
    let mut world = World::new();
    world.machine.files.add("a.html", "hello");
    let client = world.connect();
    client.get("/a.html");
    world.run();
    assert_eq!(client.take_one().text(), "hello");
    for _ in 0..5 {
        let before = world.machine.calls;
        client.get("/a.html");
        world.run();
        assert_eq!(client.take_one().text(), "hello");
        let after = world.machine.calls;
        assert_eq!((after.recvs - before.recvs, after.sends - before.sends), (1, 1));
        assert_eq!(
            (after.look_ups, after.reads, after.stats),
            (before.look_ups, before.reads, before.stats),
            "a hit makes no call to the file system"
        );
    }
    world.end();
}

#[test]
fn a_hit_is_answered_in_its_turn_while_every_helper_hangs() {
    let mut world = World::by_hand();
    world.machine.files.add("hot", "hot");
    world.auto = true;
    world.get("/hot");
    world.auto = false;
    let cold: Vec<_> = (0..10)
        .map(|n| {
            world.machine.files.add_cold(&format!("cold{n}"), "cold");
            let client = world.connect();
            client.get(&format!("/cold{n}"));
            client
        })
        .collect();
    world.run();
    assert_eq!((world.engine.counters().jobs_running, world.engine.counters().jobs_queued), (2, 8));
    let client = world.connect();
    for _ in 0..20 {
        world.pass(400);
        client.get("/hot");
        world.turn();
        assert_eq!(client.take_one().text(), "hot");
    }
    assert!(cold.iter().all(|client| client.received_len() == 0));
    world.end();
}

#[test]
fn a_cached_head_has_the_date_of_its_answer() {
    let mut world = World::new();
    world.machine.files.add("a", "hello");
    let client = world.connect();
    let mut dates = Vec::new();
    for _ in 0..3 {
        client.get("/a");
        world.run();
        dates.push(client.take_one().field("Date").expect("a date").to_owned());
        world.pass(1_000);
    }
    assert_eq!(
        dates,
        ["Fri, 15 Jan 2027 08:00:00 GMT", "Fri, 15 Jan 2027 08:00:01 GMT", "Fri, 15 Jan 2027 08:00:02 GMT"]
    );
}

#[test]
fn a_half_sent_head_keeps_its_date() {
    let mut world = World::new();
    world.machine.files.add("a", "hello");
    world.get("/a");
    for cut in [1, 30, 45, 60, 80, 150] {
        let slow = world.connect();
        slow.set_room(cut);
        slow.get("/a");
        world.run();
        let date = String::from_utf8(
            flash_http::date::http_date((world.machine.now.wall_ns / 1_000_000_000) as i64).to_vec(),
        )
        .expect("ASCII");
        world.pass(2_000);
        assert_ne!(world.get("/a").field("Date"), Some(&*date), "another answer has the new date");
        slow.set_room(usize::MAX);
        world.run();
        let response = slow.take_one();
        assert_eq!((response.field("Date"), &*response.body), (Some(&*date), &b"hello"[..]), "cut at {cut}");
    }
    world.end();
}

#[test]
fn a_hit_for_a_slow_client_is_byte_exact() {
    let content = Content::Pattern(7, 100 * KIB);
    let mut world = World::new();
    world.machine.files.add("a", content.clone());
    world.get("/a");
    for step in [1_000, 4_096, 65_537] {
        let slow = world.connect();
        slow.set_room(0);
        slow.get("/a");
        for _ in 0..(110 * KIB as usize).div_ceil(step) {
            slow.add_room(step);
            world.run();
        }
        assert_eq!(slow.take_one().body, content.whole(), "{step} at a time");
    }
    world.end();
}

#[test]
fn head_requests_and_not_modified_need_no_content() {
    let mut world = World::by_hand();
    world.machine.files.add("a.txt", "hello");
    world.machine.files.inode("a.txt").evict();
    let client = world.connect();
    client.send(request("HEAD", "/a.txt", ""));
    world.run();
    let head = client.take_head();
    assert_eq!((head.status, head.length()), (200, Some(5)));
    client.send(request(
        "GET",
        "/a.txt",
        &format!("If-None-Match: {}\r\n", head.field("ETag").expect("a tag")),
    ));
    world.run();
    let response = client.take_one();
    assert_eq!((response.status, response.field("ETag")), (304, head.field("ETag")));
    assert_eq!(world.machine.helpers.started, 0);
    world.end();
}

#[test]
fn an_empty_file_is_answered() {
    let mut world = World::new();
    world.machine.files.add("a", "");
    for _ in 0..2 {
        let response = world.get("/a");
        assert_eq!((response.status, response.length()), (200, Some(0)));
    }
    world.end();
}
