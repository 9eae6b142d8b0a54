//! Requests for files that are not in memory go through a helper and do not delay others.

use crate::machine::client::request;
use crate::machine::world::JOB_MS;
use crate::machine::{Client, Content, MIB, STORE, StoreSize, World, rules};
use flash_engine::limits::JOBS_QUEUED_MAX;
use flash_engine::{LookUpError, Outcome};

fn cold_world(names: usize) -> World {
    let mut world = World::by_hand();
    for n in 0..names {
        world.machine.files.add_cold(&format!("{n}"), &*format!("cold {n}"));
    }
    world
}

#[test]
fn a_cold_file_is_answered_when_its_job_is_done() {
    let mut world = cold_world(1);
    let client = world.connect();
    client.get("/0");
    world.run();
    assert_eq!((client.received_len(), &*world.machine.helpers.history), (0, &["find /0".to_owned()][..]));
    world.finish_job();
    assert_eq!(client.take_one().text(), "cold 0");
    client.get("/0");
    world.run();
    assert_eq!(client.take_one().text(), "cold 0");
    assert_eq!(world.machine.helpers.started, 1);
    world.end();
}

#[test]
fn a_known_name_whose_content_left_memory_is_loaded() {
    let mut world = World::by_hand();
    world.machine.files.add("a", "cold");
    world.machine.files.inode("a").evict();
    let client = world.connect();
    client.get("/a");
    world.run();
    assert_eq!(world.machine.helpers.history, ["fill 0"]);
    world.finish_job();
    assert_eq!(client.take_one().text(), "cold");
    world.end();
}

/// The store can lack room because all of it is being sent.
#[test]
fn a_content_for_which_the_store_has_no_room_is_loaded_and_sent() {
    let mut world = World::with_store(rules(), StoreSize { bytes_max: 0, ..STORE });
    world.machine.files.add("a", "cold");
    world.machine.files.inode("a").evict();
    assert_eq!(world.get("/a").text(), "cold");
    assert_eq!(world.machine.helpers.history, ["fill 0", "fill 0", "load 0+4", "fill 0"]);
    world.end();
}

#[test]
fn a_thrashing_small_file_is_handed_over() {
    for bytes_max in [0, MIB] {
        let mut world = World::with_store(rules(), StoreSize { bytes_max, ..STORE });
        world.machine.files.add_cold("a", "cold");
        world.machine.helpers.thrash = true;
        assert_eq!(world.get("/a").text(), "cold");
        // Blocks in the store cannot be evicted before they are sent.
        let last = if bytes_max > 0 { "fill 0" } else { "read 0+4" };
        assert_eq!(world.machine.helpers.history.last().map(String::as_str), Some(last));
        assert!(world.machine.helpers.started < 8, "{:?}", world.machine.helpers.history);
        world.end();
    }
}

#[test]
fn requests_for_the_same_cold_file_share_a_job() {
    let mut world = cold_world(1);
    let clients: Vec<Client> = (0..20).map(|_| world.connect()).collect();
    for client in &clients {
        client.get("/0");
    }
    world.run();
    world.finish_job();
    for client in &clients {
        assert_eq!(client.take_one().text(), "cold 0");
    }
    assert_eq!(world.machine.helpers.started, 1);
    world.end();
}

#[test]
fn a_queued_job_is_dropped_when_its_client_leaves() {
    let mut world = cold_world(4);
    let clients: Vec<Client> = (0..4).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate() {
        client.get(&format!("/{n}"));
        world.run();
    }
    assert_eq!(world.engine.counters().jobs_queued, 2);
    clients[2].reset();
    world.run();
    assert_eq!(world.engine.counters().jobs_queued, 1);
    world.auto = true;
    world.run();
    assert_eq!(world.machine.helpers.history, ["find /0", "find /1", "find /3"]);
    assert_eq!(clients[3].take_one().text(), "cold 3");
    world.end();
}

#[test]
fn a_full_queue_is_answered_503_and_hits_continue() {
    let mut world = cold_world(JOBS_QUEUED_MAX + 3);
    world.machine.files.add("hot", "hot");
    world.get_auto("/hot");
    let clients: Vec<Client> = (0..JOBS_QUEUED_MAX + 3).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate().take(2) {
        client.get(&format!("/{n}"));
    }
    world.run();
    for (n, client) in clients.iter().enumerate().skip(2) {
        client.get(&format!("/{n}"));
    }
    world.run();
    let response = clients[JOBS_QUEUED_MAX + 2].take_one();
    assert_eq!((response.status, response.field("Retry-After"), response.closes()), (503, Some("2"), false));
    assert_eq!(world.engine.counters().jobs_refused(), 1);
    assert_eq!(world.get("/hot").text(), "hot");
    world.auto = true;
    world.run();
    for (n, client) in clients.iter().enumerate().take(JOBS_QUEUED_MAX + 2) {
        assert_eq!(client.take_one().text(), format!("cold {n}"));
    }
    world.end();
}

#[test]
fn a_job_past_its_deadline_is_given_up() {
    let mut world = cold_world(1);
    let client = world.connect();
    client.get("/0");
    world.run();
    let id = world.job();
    world.advance(JOB_MS - 1);
    assert_eq!(client.received_len(), 0);
    world.advance(1);
    let response = client.take_one();
    assert_eq!((response.status, response.field("Retry-After")), (503, Some("2")));
    assert_eq!(world.machine.helpers.abandoned, [id]);
    // A late result is ignored.
    world.deliver(id, Outcome::Loaded);
    world.run();
    assert_eq!(client.received_len(), 0);
    assert_eq!(world.get_auto("/0").text(), "cold 0");
    world.end();
}

#[test]
fn a_job_past_its_deadline_in_the_queue_is_given_up() {
    let mut world = cold_world(3);
    world.machine.helpers.idle = 0;
    let client = world.connect();
    client.get("/0");
    world.run();
    world.advance(JOB_MS);
    assert_eq!(client.take_one().status, 503);
    assert_eq!((world.machine.helpers.abandoned.len(), world.engine.counters().jobs_queued), (0, 0));
    world.end();
}

#[test]
fn the_queue_moves_on_when_an_abandoned_job_has_no_waiters() {
    let mut world = cold_world(2);
    world.machine.helpers.idle = 1;
    let gone = world.connect();
    gone.get("/0");
    world.run();
    gone.reset();
    world.advance(JOB_MS - 5_000);
    let client = world.connect();
    client.get("/1");
    world.run();
    assert_eq!(world.engine.counters().jobs_queued, 1);
    // The first job passes its deadline. Its helper is replaced and does the second job.
    world.advance(5_000);
    assert_eq!(world.machine.helpers.abandoned.len(), 1);
    assert_eq!(
        (world.machine.helpers.running.len(), world.engine.counters().jobs_queued),
        (1, 0),
        "the queued job waits although a helper is free"
    );
    world.auto = true;
    world.run();
    assert_eq!(client.take_one().text(), "cold 1");
    world.end();
}

#[test]
fn a_lost_helper_costs_its_requests_a_503_and_the_next_helper_works() {
    let mut world = cold_world(2);
    let clients: Vec<Client> = (0..2).map(|_| world.connect()).collect();
    clients[0].get("/0");
    clients[1].get("/1");
    world.run();
    let id = world.machine.helpers.running[0].0;
    world.lose(id);
    world.run();
    assert_eq!(clients[0].take_one().status, 503);
    assert_eq!(clients[1].received_len(), 0);
    world.auto = true;
    world.run();
    assert_eq!(clients[1].take_one().text(), "cold 1");
    assert_eq!(world.get("/0").text(), "cold 0");
    world.end();
}

#[test]
fn a_503_for_a_lost_helper_is_like_any_other() {
    let mut world = cold_world(3);
    let client = world.connect();
    client.send(request("HEAD", "/0", ""));
    world.run();
    let id = world.job();
    world.lose(id);
    world.run();
    assert_eq!(client.take_head().status, 503, "an answer to HEAD has no body");

    let client = world.connect();
    client.send(request("GET", "/1", "Accept: application/json\r\n"));
    world.run();
    let id = world.job();
    world.lose(id);
    world.run();
    let response = client.take_one();
    assert_eq!((response.status, response.field("Content-Type")), (503, Some("application/json")));

    let client = world.connect();
    client.get("/2");
    world.run();
    let id = world.job();
    world.lose(id);
    world.run();
    assert!(!client.take_one().closes(), "the framing is intact, so the connection can be kept");
    world.end();
}

#[test]
fn a_failing_disk_is_answered_500() {
    let mut world = World::new();
    world.machine.files.add_cold("name", "x");
    world.machine.files.add("content", "x");
    world.machine.files.inode("content").fails = true;
    world.machine.files.add_error("cached", LookUpError::Failed(5));
    world.machine.files.add_error("full", LookUpError::Exhausted);
    world.machine.helpers.failure = Some(5);
    for (path, status) in [("/name", 500), ("/content", 500), ("/cached", 500), ("/full", 503)] {
        assert_eq!(world.get(path).status, status, "{path}");
    }
    world.end();
}

#[test]
fn missing_denied_and_special_files() {
    let mut world = World::new();
    world.machine.files.add_error("denied", LookUpError::Denied);
    world.machine.files.add_special("fifo");
    world.machine.files.add(".hidden", "x");
    world.machine.files.add(".well-known/a", "known");
    for (path, status) in [
        ("/none", 404),
        ("/denied", 403),
        ("/fifo", 403),
        ("/.hidden", 404),
        ("/.well-known/a", 200),
        ("/a%2f.hidden", 404),
        ("/a%2f..%2f..%2fb", 400),
    ] {
        assert_eq!(world.get(path).status, status, "{path}");
    }
    assert_eq!(world.machine.helpers.history, ["fill 0"], "only the regular file is loaded");
    world.end();
}

#[test]
fn files_read_from_the_page_cache_are_stored_however_many_requests_wait() {
    let mut world = cold_world(JOBS_QUEUED_MAX);
    let hot: Vec<String> = (0..8).map(|n| format!("hot {n}")).collect();
    hot.iter().for_each(|name| world.machine.files.add(name, &**name));
    let clients: Vec<Client> = (0..JOBS_QUEUED_MAX).map(|_| world.connect()).collect();
    for (n, client) in clients.iter().enumerate() {
        client.get(&format!("/{n}"));
    }
    world.run();
    let asks = |world: &mut World| {
        hot.iter().all(|name| world.get(&format!("/{}", name.replace(' ', "%20"))).text() == *name)
    };
    assert!(asks(&mut world));
    world.auto = true;
    world.run();
    let fills = world.machine.helpers.history.iter().filter(|job| **job == "fill 0").count();
    assert_eq!(fills, hot.len());
    let misses = world.engine.counters().content_misses;
    assert!(asks(&mut world));
    assert_eq!(world.engine.counters().content_misses, misses);
    drop(clients);
    world.end();
}

#[test]
fn many_cold_names_at_once_with_few_open_files() {
    for names_thrash in [false, true] {
        let mut world = World::with(flash_engine::Rules { open_files_max: 4, ..rules() });
        world.machine.helpers.idle = 16;
        world.machine.files.names_thrash = names_thrash;
        let clients: Vec<Client> = (0..16)
            .map(|n| {
                world.machine.files.add_cold(&format!("{n}"), &*format!("cold {n}"));
                let client = world.connect();
                client.get(&format!("/{n}"));
                client
            })
            .collect();
        world.run();
        for (n, client) in clients.iter().enumerate() {
            let response = client.take_one();
            assert_eq!(response.text(), format!("cold {n}"), "names_thrash: {names_thrash}");
        }
        world.end();
    }
}

#[test]
fn a_file_of_unknown_residency_is_handed_over_and_stored() {
    let content = Content::Pattern(1, 90_000);
    // All requests after the first are answered from the store. If it has no room, the bytes are handed over
    // for each request.
    let fills = ["fill 0"];
    let reads = ["fill 0", "fill 0", "read 0+90000"];
    for (bytes_max, first, each) in [(MIB, &fills[..], &[][..]), (0, &reads[..], &reads[..])] {
        let mut world = World::with_store(rules(), StoreSize { bytes_max, ..STORE });
        world.machine.files.add("a", content.clone());
        world.machine.files.inode("a").residency = crate::machine::files::Residency::Unknown;
        for _ in 0..3 {
            assert_eq!(world.get("/a").body, content.whole());
        }
        assert_eq!(world.machine.helpers.history, [first, each, each].concat());
        world.end();
    }
}

/// The requested sibling is known only after all siblings were found, and by then a small cache of open files
/// may have closed it.
#[test]
fn each_sibling_is_served_when_few_files_can_be_open() {
    for open_files_max in [1, 2, 3] {
        let mut world = World::with(flash_engine::Rules { open_files_max, ..rules() });
        for (name, text) in
            [("a.html", "plain"), ("a.html.br", "br"), ("a.html.zst", "zstd"), ("a.html.gz", "gzip")]
        {
            world.machine.files.add(name, text);
        }
        for coding in ["gzip", "zstd", "br"] {
            let fields = format!("Accept-Encoding: {coding}\r\n");
            let (client, response) = world.ask(request("GET", "/a.html", &fields));
            assert_eq!(
                (response.status, &*response.text()),
                (200, coding),
                "with {open_files_max} files open"
            );
            client.end();
        }
        world.end();
    }
}

/// A sibling whose file is no longer open must be looked up again. Files of the same name that are in memory
/// must not wait for that.
#[test]
fn a_closed_file_drops_nothing_from_memory() {
    let mut world = World::with(flash_engine::Rules { open_files_max: 1, ..rules() });
    world.machine.files.add("a.html", "plain");
    world.machine.files.add("a.html.gz", "gzip");
    assert_eq!(world.get("/a.html").text(), "plain");
    for other in 0..8 {
        world.machine.files.add(&format!("{other}"), Content::Pattern(other, 200_000));
        assert_eq!(world.get(&format!("/{other}")).status, 200);
    }
    world.auto = false;
    world.machine.files.names_thrash = true;
    let coded = world.connect();
    coded.send(request("GET", "/a.html", "Accept-Encoding: gzip\r\n"));
    world.run();
    assert_eq!(coded.received_len(), 0, "its file must be opened again");
    for query in ["", "?x"] {
        let plain = world.connect();
        plain.get(&format!("/a.html{query}"));
        world.run();
        assert_eq!(
            plain.take_one().text(),
            "plain",
            "a file in memory is sent while a helper looks up the other"
        );
    }
    world.finish_job();
    assert_eq!(coded.take_one().text(), "gzip");
    world.end();
}
