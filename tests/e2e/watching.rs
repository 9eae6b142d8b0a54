//! The watched roots: with a freshness of an hour, only what the watcher tells can have a change noticed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;

use crate::harness::{
    Client, Folder, Launch, Server, kill, pattern, skips, stats_at, unlike_before, wait_for, wait_until, write_aside,
};

fn control(folder: &Folder) -> PathBuf {
    folder.path("control.sock")
}

fn launch(folder: &Folder) -> Launch {
    // A file that was just written is not stored.
    unlike_before();
    let launch = Launch::with_workers(folder, 1).args(["--cache-memory", "64MiB", "--freshness", "1h"]);
    launch.arg("--control").arg(control(folder))
}

fn store(folder: &Folder, name: &str) -> Option<u64> {
    stats_at(&control(folder))["store"][name].as_u64()
}

/// A server that watches its site.
fn watching(folder: &Folder) -> Server {
    let server = launch(folder).start();
    wait_until("the site to be watched", || store(folder, "sites_watched") == Some(1));
    server
}

/// Asks until all names that are there, and an absent one, are known and watched.
fn learn(folder: &Folder, server: &Server, targets: &[&str]) {
    let before = server.role("worker");
    wait_until("the names", || {
        targets.iter().for_each(|target| drop(server.get(target)));
        store(folder, "names").is_some_and(|names| names >= targets.len() as u64)
    });
    // Another worker has all from the names that all workers share.
    before.iter().for_each(|worker| kill("KILL", *worker));
    wait_until("another worker", || {
        let now = server.role("worker");
        !now.is_empty() && now.iter().all(|worker| !before.contains(worker))
    });
    wait_until("the names to be watched", || {
        targets.iter().for_each(|target| drop(server.get(target)));
        store(folder, "names").is_some_and(|names| names >= targets.len() as u64)
    });
}

fn is_amped() -> bool {
    !skips(&["sped", "mp", "mt"], "their workers look names up themselves")
}

fn wait_for_body(server: &Server, target: &str, body: &[u8]) {
    wait_until(&format!("the new {target}"), || server.get(target).body == body);
}

#[test]
fn files_that_are_replaced_changed_deleted_or_made_are_noticed() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    for name in ["replaced", "copied", "deleted", "renamed"] {
        folder.www(&format!("d/{name}.bin"), pattern(1_000, 1));
    }
    folder.www("d/index.html", b"an index");
    let server = watching(&folder);
    let targets = ["/d/replaced.bin", "/d/copied.bin", "/d/deleted.bin", "/d/renamed.bin", "/d/made.bin", "/d/"];
    learn(&folder, &server, &targets);
    let path = |name: &str| folder.path(&format!("www/d/{name}"));
    write_aside(&path("replaced.bin"), pattern(900, 2));
    wait_for_body(&server, "/d/replaced.bin", &pattern(900, 2));
    // As cp does.
    fs::write(path("copied.bin"), pattern(1_000, 3)).expect("written");
    wait_for_body(&server, "/d/copied.bin", &pattern(1_000, 3));
    fs::remove_file(path("deleted.bin")).expect("removed");
    wait_until("the deletion", || server.get("/d/deleted.bin").status == 404);
    fs::rename(path("renamed.bin"), path("made.bin")).expect("renamed");
    wait_until("the old name to be gone", || server.get("/d/renamed.bin").status == 404);
    wait_for_body(&server, "/d/made.bin", &pattern(1_000, 1));
    write_aside(&path("index.html"), b"another index");
    wait_for_body(&server, "/d/", b"another index");
    fs::remove_file(path("index.html")).expect("removed");
    wait_until("the index to be gone", || server.get("/d/").status == 404);
}

#[test]
fn directories_that_are_made_or_moved_are_noticed() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("old/a/f.bin", pattern(1_000, 1));
    folder.www("keep.bin", pattern(1_000, 9));
    let server = watching(&folder);
    learn(&folder, &server, &["/old/a/f.bin", "/new/a/f.bin", "/made/b/f.bin", "/link/a/f.bin", "/keep.bin"]);
    assert_eq!(server.get("/new/a/f.bin").status, 404);
    fs::rename(folder.path("www/old"), folder.path("www/new")).expect("moved");
    wait_for_body(&server, "/new/a/f.bin", &pattern(1_000, 1));
    wait_until("the old name to be gone", || server.get("/old/a/f.bin").status == 404);
    folder.www("made/b/f.bin", pattern(1_000, 2));
    wait_for_body(&server, "/made/b/f.bin", &pattern(1_000, 2));
    // A file in a directory that is new is watched too.
    unlike_before();
    write_aside(&folder.path("www/made/b/f.bin"), pattern(1_000, 3));
    wait_for_body(&server, "/made/b/f.bin", &pattern(1_000, 3));
    symlink("new", folder.path("www/link")).expect("linked");
    wait_for_body(&server, "/link/a/f.bin", &pattern(1_000, 1));
    assert_eq!(server.get("/keep.bin").body, pattern(1_000, 9));
}

#[test]
fn a_root_that_is_moved_is_still_watched() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    let server = watching(&folder);
    learn(&folder, &server, &["/f.bin"]);
    fs::rename(folder.path("www"), folder.path("moved")).expect("moved");
    write_aside(&folder.path("moved/f.bin"), pattern(1_000, 2));
    wait_for_body(&server, "/f.bin", &pattern(1_000, 2));
}

#[test]
fn the_watcher_and_the_keeper_can_die() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    let server = watching(&folder);
    learn(&folder, &server, &["/f.bin"]);
    for role in ["watcher", "keeper"] {
        let old = server.sole(role);
        kill("KILL", old);
        wait_until("another one", || server.role(role).iter().any(|now| *now != old));
        wait_until("the site to be watched again", || store(&folder, "sites_watched") == Some(1));
        // Names that were known before need a check, which costs nothing where the kernel knows them.
        learn(&folder, &server, &["/f.bin"]);
    }
    assert_eq!(server.get("/f.bin").body, pattern(1_000, 1));
}

#[test]
fn a_hot_name_is_noticed_by_the_worker_that_answers_it() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    let server = watching(&folder);
    learn(&folder, &server, &["/f.bin"]);
    let mut client = server.client();
    for number in 2..8 {
        for _ in 0..200 {
            client.ask("/f.bin");
            let _ = client.page();
        }
        write_aside(&folder.path("www/f.bin"), pattern(1_000, number));
        wait_until("the new content", || {
            client.ask("/f.bin");
            client.page().body == pattern(1_000, number)
        });
        // It is stored and told again before it changes again.
        unlike_before();
        learn(&folder, &server, &["/f.bin"]);
        client = server.client();
    }
}

#[test]
fn without_a_watcher_names_are_checked() {
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    unlike_before();
    let launch = Launch::with_workers(&folder, 1).args(["--freshness", "100ms", "--watch", "false"]);
    let server = launch.arg("--control").arg(control(&folder)).start();
    assert_eq!(server.get("/f.bin").body, pattern(1_000, 1));
    assert!(server.role("watcher").is_empty());
    write_aside(&folder.path("www/f.bin"), pattern(1_000, 2));
    wait_for_body(&server, "/f.bin", &pattern(1_000, 2));
    let watched = wait_for("figures", || stats_at(&control(&folder))["store"].get("sites_watched").and_then(Value::as_u64));
    assert_eq!(watched, 0);
}
