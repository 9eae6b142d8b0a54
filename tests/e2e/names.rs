//! The names that all workers share: they outlive the workers that found them, and are checked like a worker's own.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{
    Folder, Launch, Server, kill, pattern, skips, stats_at, unlike_before, wait_for, wait_until, write_aside,
};

const FILES: u64 = 300;

fn control(folder: &Folder) -> PathBuf {
    folder.path("control.sock")
}

/// A server with one worker, which checks its files this often.
fn launch(folder: &Folder, freshness: &str) -> Launch {
    // A file that was just written is not stored.
    unlike_before();
    let launch = Launch::with_workers(folder, 1).args(["--cache-memory", "64MiB", "--freshness", freshness]);
    launch.arg("--control").arg(control(folder))
}

fn content(number: u64) -> Vec<u8> {
    pattern(1_000, number)
}

/// Small files in the store of a server, and their names.
fn filled(folder: &Folder) {
    (0..FILES).for_each(|number| drop(folder.www(&format!("{number}.bin"), content(number))));
    folder.write("www/folder/index.html", "an index");
}

fn get_files(server: &Server) {
    for number in 0..FILES {
        assert_eq!(server.get(&format!("/{number}.bin")).body, content(number), "{number}");
    }
}

/// Asks for everything, and compares the answers.
fn get_all(server: &Server) {
    get_files(server);
    assert_eq!(server.get("/folder/").body, b"an index");
    assert_eq!(server.get("/none").status, 404);
}

/// Asks for everything until all contents and at least this many other names are known.
fn learn_all(folder: &Folder, server: &Server, least: u64) {
    let is_there = |name: &str, count| {
        stats_at(&control(folder))["store"][name].as_u64().is_some_and(|number| number >= count)
    };
    get_files(server);
    // On a slow machine a request would be refused that had to wait until these are copied.
    wait_until("the contents", || is_there("blocks", FILES));
    wait_until("the names", || {
        get_all(server);
        is_there("blocks", FILES + 1) && is_there("names", FILES + least)
    });
}

/// Kills the worker, and waits for the next one, whose counters begin at zero.
fn replace_worker(server: &Server) {
    let before = server.role("worker");
    before.iter().for_each(|worker| kill("KILL", *worker));
    wait_until("another worker", || {
        let now = server.role("worker");
        !now.is_empty() && now.iter().all(|worker| !before.contains(worker))
    });
}

fn of_worker(folder: &Folder, path: &str) -> u64 {
    wait_for("the worker's counters", || {
        let stats = stats_at(&control(folder));
        let counters = &stats["workers"][0]["counters"];
        (!counters.is_null()).then(|| counters.pointer(path).and_then(Value::as_u64))?
    })
}

#[test]
fn a_new_worker_answers_names_that_it_has_never_seen_without_a_look_up() {
    if skips(&["sped", "mp", "mt"], "other processes or threads look up names") {
        return;
    }
    let folder = Folder::new();
    filled(&folder);
    let server = launch(&folder, "1h").start();
    learn_all(&folder, &server, 2);
    // A name whose directory is not watched yet is checked.
    wait_until("a worker that checks no name", || {
        replace_worker(&server);
        get_all(&server);
        // Calls that were never made are not there.
        let calls = stats_at(&control(&folder)).pointer("/workers/0/counters/calls").cloned();
        calls.is_some_and(|calls| calls.get("send").is_some() && calls.get("look_up").is_none())
    });
    assert_eq!(of_worker(&folder, "/caches/names_shared"), FILES + 2);
    for path in ["/jobs/find/started", "/jobs/fill/started"] {
        assert_eq!(of_worker(&folder, path), 0, "{path}");
    }
}

#[test]
fn another_keeper_has_the_same_names() {
    if skips(&["sped", "mp", "mt"], "other processes or threads look up names") {
        return;
    }
    let folder = Folder::new();
    filled(&folder);
    let server = launch(&folder, "1h").start();
    learn_all(&folder, &server, 2);
    let keeper = server.sole("keeper");
    kill("KILL", keeper);
    wait_until("another keeper", || server.role("keeper").iter().any(|now| *now != keeper));
    replace_worker(&server);
    get_all(&server);
    assert_eq!(of_worker(&folder, "/jobs/find/started"), 0);
}

#[test]
fn a_file_that_was_replaced_deleted_or_made_is_noticed() {
    let folder = Folder::new();
    filled(&folder);
    let server = launch(&folder, "100ms").start();
    learn_all(&folder, &server, 1);
    replace_worker(&server);
    write_aside(&folder.path("www/1.bin"), pattern(900, 99));
    fs::remove_file(folder.path("www/2.bin")).expect("removed");
    folder.www("none", b"here");
    wait_until("the changes", || {
        server.get("/1.bin").body == pattern(900, 99)
            && server.get("/2.bin").status == 404
            && server.get("/none").body == b"here"
    });
    // Also by a worker that has not seen them change.
    replace_worker(&server);
    wait_until("the changes", || {
        server.get("/1.bin").body == pattern(900, 99)
            && server.get("/2.bin").status == 404
            && server.get("/none").body == b"here"
    });
    assert_eq!(server.get("/3.bin").body, content(3));
}
