//! The watched roots: with a freshness of an hour, only what the watcher tells can have a change noticed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{
    Folder, Launch, Server, is_root, kill, pattern, skip, skips, stats_at, unlike_before, wait_for,
    wait_until, write_aside,
};

/// The parts in which a single site is watched.
const SUBTREES: u64 = 64;

fn control(folder: &Folder) -> PathBuf {
    folder.path("control.sock")
}

fn launch(folder: &Folder) -> Launch {
    // A file that was just written is not stored.
    unlike_before();
    launch_with(folder, "1h")
}

fn launch_with(folder: &Folder, freshness: &str) -> Launch {
    let launch = Launch::with_workers(folder, 1).args(["--cache-memory", "64MiB", "--freshness", freshness]);
    let launch = launch.arg("--control").arg(control(folder));
    // Without CAP_SYS_ADMIN, the server cannot use fanotify.
    if by_inotify() { launch.through_all(&["setpriv", "--bounding-set", "-sys_admin"]) } else { launch }
}

/// Whether these are the tests of servers without the right to use fanotify.
fn by_inotify() -> bool {
    is_root() && module_path!().ends_with("watching_by_inotify")
}

fn store(folder: &Folder, name: &str) -> Option<u64> {
    stats_at(&control(folder))["store"][name].as_u64()
}

/// All of a site is watched.
fn wait_for_watch(folder: &Folder) {
    wait_until("the site to be watched", || store(folder, "subtrees_watched") == Some(SUBTREES));
}

/// A server that watches its site.
fn watching(folder: &Folder) -> Server {
    let server = launch(folder).start();
    wait_for_watch(folder);
    server
}

/// A command before that of the server: it sets a limit of its user namespace. None if this kernel allows no such namespaces.
fn limited(limit: &str) -> Option<[String; 7]> {
    let script = format!("echo {limit} && exec \"$@\"");
    let through = ["unshare", "--user", "--map-root-user", "sh", "-ec", &script, "sh"].map(str::to_owned);
    let tried = Command::new(&through[0]).args(&through[1..]).arg("true").status();
    tried.is_ok_and(|status| status.success()).then_some(through)
}

/// Asks for each name until the worker answers it without a check, because its changes are told.
fn learn(folder: &Folder, server: &Server, targets: &[&str]) {
    for target in targets {
        wait_until(&format!("{target} to be watched"), || is_watched(folder, server, target));
    }
}

/// Asks for a name; whether it needed no check, because its changes are told.
fn is_watched(folder: &Folder, server: &Server, target: &str) -> bool {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let before = of_worker(folder, "/caches/names_watched");
    // A request that is known by its bytes does not count.
    drop(server.get(&format!("{target}?{}", ASKED.fetch_add(1, Ordering::Relaxed))));
    of_worker(folder, "/caches/names_watched") > before
}

/// Asks for files until one of them is watched. A directory can by chance be in the same part of the site as one that cannot be
/// watched.
fn learn_one<'t>(folder: &Folder, server: &Server, targets: &'t [String]) -> &'t str {
    wait_for("a name to be watched", || {
        targets.iter().map(String::as_str).find(|target| is_watched(folder, server, target))
    })
}

fn of_worker(folder: &Folder, path: &str) -> u64 {
    let stats = stats_at(&control(folder));
    stats["workers"][0]["counters"].pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// A server of one watched file, which it knows.
fn watched_file() -> (Folder, Server) {
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    let server = watching(&folder);
    learn(&folder, &server, &["/f.bin"]);
    (folder, server)
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
    let targets =
        ["/d/replaced.bin", "/d/copied.bin", "/d/deleted.bin", "/d/renamed.bin", "/d/made.bin", "/d/"];
    learn(&folder, &server, &targets);
    let path = |name: &str| folder.path(format!("www/d/{name}"));
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
fn the_start_line_names_the_call_that_reports_changes() {
    if !is_amped() {
        return;
    }
    let (_folder, server) = watched_file();
    let line = server.stdout();
    let call = if is_root() && !by_inotify() { "fanotify" } else { "inotify" };
    if call == "fanotify" && line.contains("watched by inotify") {
        return skip("no fanotify here");
    }
    assert!(line.contains(&format!("names: watched by {call}")), "{line}");
}

#[test]
fn a_directory_that_is_closed_opened_or_deleted_is_noticed() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    for name in ["d/e", "closed/e"] {
        folder.www(&format!("{name}/f.bin"), pattern(1_000, 1));
    }
    let open = |name: &str, mode| {
        let path = folder.path(format!("www/{name}"));
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    open("closed", 0o700);
    let server = launch(&folder).user(None).start();
    wait_for_watch(&folder);
    learn(&folder, &server, &["/d/e/f.bin"]);
    if is_root() {
        learn(&folder, &server, &["/closed/e/f.bin"]);
        assert_eq!(server.get("/closed/e/f.bin").status, 403);
        open("closed", 0o755);
        wait_for_body(&server, "/closed/e/f.bin", &pattern(1_000, 1));
        open("d", 0o700);
        wait_until("the closed directory", || server.get("/d/e/f.bin").status == 403);
        open("d", 0o755);
        wait_for_body(&server, "/d/e/f.bin", &pattern(1_000, 1));
        learn(&folder, &server, &["/d/e/f.bin"]);
    }
    fs::remove_dir_all(folder.path("www/d/e")).expect("removed");
    wait_until("the deletion", || server.get("/d/e/f.bin").status == 404);
}

#[test]
fn a_file_is_noticed_whose_deletion_is_reported_after_the_end_of_its_directory() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("d/e/f.bin", pattern(1_000, 1));
    let server = watching(&folder);
    learn(&folder, &server, &["/d/e/f.bin"]);
    // A worker that has the file open keeps the directory, too. The next one knows the name and has opened nothing.
    let old = server.sole("worker");
    kill("KILL", old);
    wait_until("another worker", || server.role("worker").iter().any(|now| *now != old));
    let (watcher, path) = (server.sole("watcher"), folder.path("www/d/e"));
    kill("STOP", watcher);
    // The kernel merges the end with the change of attributes, if no one has read that.
    fs::set_permissions(&path, fs::metadata(&path).expect("there").permissions()).expect("set");
    fs::remove_dir_all(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    kill("CONT", watcher);
    // Without the event, this worker would look again a minute after its first answer, which is too late for this test.
    wait_until("the deletion", || server.get("/d/e/f.bin").status == 404);
}

#[test]
fn changes_of_other_files_disturb_no_watched_name() {
    if !is_amped() {
        return;
    }
    let (folder, server) = watched_file();
    for number in 0..20_000 {
        let path = folder.path(format!("other{}", number % 100));
        fs::write(&path, "x").expect("written");
        fs::rename(&path, folder.path(format!("moved{number}"))).expect("moved");
        if number % 2_000 == 0 {
            assert!(is_watched(&folder, &server, "/f.bin"), "after {number} changes");
        }
    }
    write_aside(&folder.path("www/f.bin"), pattern(1_000, 2));
    wait_for_body(&server, "/f.bin", &pattern(1_000, 2));
}

#[test]
fn a_root_that_is_moved_is_still_watched() {
    if !is_amped() {
        return;
    }
    let (folder, server) = watched_file();
    fs::rename(folder.path("www"), folder.path("moved")).expect("moved");
    write_aside(&folder.path("moved/f.bin"), pattern(1_000, 2));
    wait_for_body(&server, "/f.bin", &pattern(1_000, 2));
}

#[test]
fn the_watcher_and_the_keeper_can_die() {
    if !is_amped() {
        return;
    }
    let (folder, server) = watched_file();
    for role in ["watcher", "keeper"] {
        let old = server.sole(role);
        kill("KILL", old);
        wait_until("another one", || server.role(role).iter().any(|now| *now != old));
        wait_for_watch(&folder);
        // Names that were known before are looked up by a helper again.
        learn(&folder, &server, &["/f.bin"]);
    }
    assert_eq!(server.get("/f.bin").body, pattern(1_000, 1));
}

#[test]
fn a_hot_name_is_noticed_by_the_worker_that_answers_it() {
    if !is_amped() {
        return;
    }
    let (folder, server) = watched_file();
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
fn a_watched_name_needs_no_look_up_however_often_freshness_passes() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    let names: Vec<String> = (0..14).map(|number| format!("/d{}/{number}.bin", number % 7)).collect();
    for name in &names {
        folder.www(&name[1..], pattern(1_000, 1));
    }
    unlike_before();
    let launch = Launch::with_workers(&folder, 1).args(["--cache-memory", "64MiB", "--freshness", "4s"]);
    let server = launch.arg("--control").arg(control(&folder)).start();
    wait_for_watch(&folder);
    let targets: Vec<&str> = names.iter().map(String::as_str).chain(["/none", "/d1/none"]).collect();
    learn(&folder, &server, &targets);
    // A watcher that is late by more than the freshness, on a busy machine, costs a check.
    wait_until("twice the freshness without a look-up", || {
        let counts = || ["/calls/look_up/count", "/jobs/find/started"].map(|path| of_worker(&folder, path));
        let (before, begun) = (counts(), Instant::now());
        while begun.elapsed() < Duration::from_secs(8) {
            targets.iter().for_each(|target| drop(server.get(target)));
            std::thread::sleep(Duration::from_millis(200));
        }
        before == counts()
    });
}

#[test]
fn after_lost_events_names_are_checked_until_all_is_watched_again() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("d/f.bin", pattern(1_000, 1));
    folder.www("d/gone.bin", pattern(1_000, 1));
    unlike_before();
    let server = launch_with(&folder, "500ms").start();
    wait_for_watch(&folder);
    learn(&folder, &server, &["/d/f.bin", "/d/gone.bin"]);
    let watcher = server.sole("watcher");
    kill("STOP", watcher);
    // More events than the kernel keeps for it.
    let limit =
        |call| fs::read_to_string(format!("/proc/sys/fs/{call}/max_queued_events")).expect("the limit");
    let events_max =
        ["inotify", "fanotify"].map(|call| limit(call).trim().parse::<usize>().expect("a number"));
    // The kernel merges events of one name.
    for number in 0..events_max[0].max(events_max[1]) + 10 {
        let path = folder.path(format!("www/d/{number}"));
        fs::write(&path, "x").expect("written");
        fs::remove_file(&path).expect("removed");
    }
    write_aside(&folder.path("www/d/f.bin"), pattern(1_000, 2));
    fs::remove_file(folder.path("www/d/gone.bin")).expect("removed");
    // Without a watcher that says so, nothing is true without a check.
    wait_for_body(&server, "/d/f.bin", &pattern(1_000, 2));
    wait_until("the deletion", || server.get("/d/gone.bin").status == 404);
    kill("CONT", watcher);
    wait_for_watch(&folder);
    unlike_before();
    learn(&folder, &server, &["/d/f.bin"]);
    write_aside(&folder.path("www/d/f.bin"), pattern(1_000, 3));
    wait_for_body(&server, "/d/f.bin", &pattern(1_000, 3));
}

#[test]
fn a_part_with_more_directories_than_can_be_watched_is_checked_and_the_others_are_watched() {
    if !is_amped() {
        return;
    }
    let Some(through) = limited("20 > /proc/sys/user/max_inotify_watches") else {
        return skip("this kernel allows no user namespaces");
    };
    let through: Vec<&str> = through.iter().map(String::as_str).collect();
    let folder = Folder::new();
    for number in 0..30 {
        folder.www(&format!("large/{number}/f.bin"), pattern(1_000, 1));
    }
    folder.www("small/f.bin", pattern(1_000, 1));
    unlike_before();
    let launch = Launch::with_workers(&folder, 1).args(["--cache-memory", "64MiB", "--freshness", "100ms"]);
    let server = launch.arg("--control").arg(control(&folder)).through_all(&through).start();
    wait_until("all but one part to be watched", || {
        (store(&folder, "subtrees_watched"), store(&folder, "subtrees_unwatched"))
            == (Some(SUBTREES - 1), Some(1))
    });
    server.wait_for_stderr("other directories are watched, and fs.inotify.max_user_watches allows");
    for name in ["small/f.bin", "large/29/f.bin"] {
        wait_for_body(&server, &format!("/{name}"), &pattern(1_000, 1));
        write_aside(&folder.path(format!("www/{name}")), pattern(1_000, 2));
        wait_for_body(&server, &format!("/{name}"), &pattern(1_000, 2));
    }
}

#[test]
fn a_file_system_that_is_mounted_in_a_root_is_noticed() {
    if !is_amped() {
        return;
    }
    if !is_root() {
        return skip("needs root and unshare, to mount a file system");
    }
    let folder = Folder::new();
    folder.www("d/f.bin", pattern(1_000, 1));
    unlike_before();
    let launch = Launch::with_workers(&folder, 1).args(["--cache-memory", "64MiB", "--freshness", "1h"]);
    let launch = launch.arg("--control").arg(control(&folder)).through(["unshare", "--mount"]);
    let server = launch.start();
    wait_for_watch(&folder);
    learn(&folder, &server, &["/d/f.bin"]);
    let watcher = server.sole("watcher").to_string();
    let target = folder.path("www/d");
    let in_namespace = |words: &[&str]| {
        let status =
            Command::new("nsenter").args(["--target", &watcher, "--mount"]).args(words).arg(&target).status();
        assert!(status.is_ok_and(|status| status.success()), "{words:?}");
    };
    in_namespace(&["mount", "-t", "tmpfs", "none"]);
    wait_until("the mount", || server.get("/d/f.bin").status == 404);
    in_namespace(&["umount"]);
    wait_for_body(&server, "/d/f.bin", &pattern(1_000, 1));
}

#[test]
fn without_a_watcher_names_are_checked() {
    let folder = Folder::new();
    folder.www("f.bin", pattern(1_000, 1));
    unlike_before();
    let launch = Launch::with_workers(&folder, 1).args(["--freshness", "100ms", "--no-watch"]);
    let server = launch.arg("--control").arg(control(&folder)).start();
    assert_eq!(server.get("/f.bin").body, pattern(1_000, 1));
    assert!(server.role("watcher").is_empty());
    let line = server.stdout();
    assert!(line.contains("; names: checked after freshness (watch = false)"), "{line}");
    write_aside(&folder.path("www/f.bin"), pattern(1_000, 2));
    wait_for_body(&server, "/f.bin", &pattern(1_000, 2));
    assert_eq!(wait_for("figures", || store(&folder, "subtrees_watched")), 0);
}

#[test]
fn a_listing_is_answered_from_memory_until_its_directory_changes() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("d/first.bin", pattern(1_000, 1));
    folder.www("d/below/f.bin", pattern(1_000, 1));
    let server = launch(&folder).arg("--browse").start();
    wait_for_watch(&folder);
    let shows = |text: &str| String::from_utf8_lossy(&server.get("/d/").body).contains(text);
    let change = |what: &str, change: &dyn Fn(), is_shown: &dyn Fn() -> bool| {
        learn(&folder, &server, &["/d/"]);
        let before = of_worker(&folder, "/jobs/list/started");
        (0..20).for_each(|_| drop(server.get("/d/")));
        assert_eq!(of_worker(&folder, "/jobs/list/started"), before, "before {what}");
        change();
        wait_until(what, is_shown);
    };
    change("the new file", &|| drop(folder.www("d/second.bin", pattern(1_000, 1))), &|| shows("second.bin"));
    let grow = || drop(folder.www("d/first.bin", pattern(2_048, 1)));
    change("the other size", &grow, &|| shows("2.0 KiB"));
    let remove = || fs::remove_file(folder.path("www/d/second.bin")).expect("removed");
    change("the deletion", &remove, &|| !shows("second.bin"));
    change("the new folder", &|| drop(folder.www("d/new/f.bin", "x")), &|| shows("new/"));
}

#[test]
fn without_any_watch_or_queue_names_are_checked() {
    if !is_amped() {
        return;
    }
    for (limit, message) in [
        ("1 > /proc/sys/user/max_inotify_watches", "cannot watch "),
        ("0 > /proc/sys/user/max_inotify_instances", "cannot watch the roots for changes ("),
    ] {
        let Some(through) = limited(limit) else { return skip("this kernel allows no user namespaces") };
        let through: Vec<&str> = through.iter().map(String::as_str).collect();
        let folder = Folder::new();
        folder.www("d/f.bin", pattern(1_000, 1));
        unlike_before();
        let launch =
            Launch::with_workers(&folder, 1).args(["--cache-memory", "64MiB", "--freshness", "100ms"]);
        let server = launch.arg("--control").arg(control(&folder)).through_all(&through).start();
        server.wait_for_stderr(message);
        wait_for_body(&server, "/d/f.bin", &pattern(1_000, 1));
        write_aside(&folder.path("www/d/f.bin"), pattern(1_000, 2));
        wait_for_body(&server, "/d/f.bin", &pattern(1_000, 2));
    }
}

#[test]
fn names_that_are_no_text_are_watched() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    let directory = folder.served(OsStr::from_bytes(b"d\xff\xfe"));
    fs::create_dir(&directory).expect("made");
    let path = |name: &[u8]| directory.join(OsStr::from_bytes(name));
    fs::write(path(b"\xc3\x28"), pattern(1_000, 1)).expect("written");
    let server = watching(&folder);
    learn(&folder, &server, &["/d%ff%fe/%c3%28", "/d%ff%fe/%80"]);
    write_aside(&path(b"\xc3\x28"), pattern(1_000, 2));
    wait_for_body(&server, "/d%ff%fe/%c3%28", &pattern(1_000, 2));
    fs::write(path(b"\x80"), pattern(1_000, 3)).expect("written");
    wait_for_body(&server, "/d%ff%fe/%80", &pattern(1_000, 3));
}

/// Makes a directory with others in it, each in the one before, whose path beneath the root has this many bytes. Returns the path.
fn nested(folder: &Folder, first: &str, bytes: usize) -> String {
    let mut path = String::new();
    let (inner, outer) = (folder.path("inner"), folder.path("outer"));
    fs::create_dir(&inner).expect("made");
    // From the last one up, so that no call has a long path.
    while path.len() + 202 + first.len() < bytes {
        let name = "x".repeat((bytes - path.len() - first.len() - 2).min(200));
        fs::create_dir(&outer).expect("made");
        fs::rename(&inner, outer.join(&name)).expect("renamed");
        fs::rename(&outer, &inner).expect("renamed");
        path = format!("/{name}{path}");
    }
    fs::rename(&inner, folder.path("www").join(first)).expect("renamed");
    format!("/{first}{path}")
}

#[test]
fn paths_that_are_as_long_as_a_call_can_have_are_watched_and_longer_ones_are_reported() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    let deep = nested(&folder, "deep", 6_000);
    let path = |beneath: &str| PathBuf::from(format!("{}{beneath}", folder.path("www").display()));
    let long = [0, 1, 2].map(|number| format!("{}/f.bin", nested(&folder, &format!("long{number}"), 3_900)));
    let short = [0, 1, 2].map(|number| format!("/short{number}/f.bin"));
    for target in &short {
        folder.www(&target[1..], pattern(1_000, 1));
    }
    for target in &long {
        fs::write(path(target), pattern(1_000, 1)).expect("written");
    }
    let server = launch(&folder).start();
    wait_until("all but one part to be watched", || {
        (store(&folder, "subtrees_watched"), store(&folder, "subtrees_unwatched"))
            == (Some(SUBTREES - 1), Some(1))
    });
    server.wait_for_stderr("cannot watch ");
    for targets in [&long, &short] {
        let target = learn_one(&folder, &server, targets);
        write_aside(&path(target), pattern(1_000, 2));
        wait_for_body(&server, target, &pattern(1_000, 2));
    }
    assert_eq!(server.get(&format!("{deep}/none")).status, 404);
}

#[test]
fn a_directory_with_a_hundred_thousand_new_files_is_watched() {
    if !is_amped() {
        return;
    }
    let folder = Folder::new();
    folder.www("large/f.bin", pattern(1_000, 1));
    folder.www("other/f.bin", pattern(1_000, 1));
    unlike_before();
    let server = launch_with(&folder, "1s").arg("--browse").start();
    wait_for_watch(&folder);
    // More events than the kernel keeps for a watcher that is late.
    for number in 0..100_000 {
        fs::File::create(folder.path(format!("www/large/{number}"))).expect("made");
        if number % 10_000 == 0 {
            assert_eq!(server.get("/other/f.bin").body, pattern(1_000, 1));
        }
    }
    wait_for_watch(&folder);
    for target in ["/large/f.bin", "/other/f.bin"] {
        unlike_before();
        learn(&folder, &server, &[target]);
        write_aside(&folder.path(format!("www{target}")), pattern(1_000, 2));
        wait_for_body(&server, target, &pattern(1_000, 2));
    }
    let listed = server.get("/large/");
    assert_eq!(listed.status, 200);
}

#[test]
fn a_root_that_is_unmounted_or_deleted_is_served_on() {
    if !is_amped() {
        return;
    }
    if !is_root() {
        return skip("needs root and unshare, to mount a file system");
    }
    let folder = Folder::new();
    folder.write("content/d/f.bin", pattern(1_000, 1));
    let (www, content) = (folder.path("www"), folder.path("content"));
    let script = format!(
        "mount -t tmpfs none {www} && cp -r {content}/. {www} && sleep 0.1 && exec \"$@\"",
        www = www.display(),
        content = content.display()
    );
    let launch = launch(&folder).through_all(&["unshare", "--mount", "sh", "-ec", &script, "sh"]);
    let server = launch.start();
    wait_for_watch(&folder);
    learn(&folder, &server, &["/d/f.bin", "/d/none"]);
    let watcher = server.sole("watcher");
    let unmount = |path: &Path| {
        let words = ["--target", &watcher.to_string(), "--mount", "umount", "--lazy"];
        Command::new("nsenter").args(words).arg(path).status().is_ok_and(|status| status.success())
    };
    assert!(unmount(&www));
    for _ in 0..20 {
        assert_eq!(server.get("/d/f.bin").body, pattern(1_000, 1));
        assert_eq!(server.get("/d/none").status, 404);
    }
    server.wait_for_stderr("Flash serves the old folder until HUP");
    assert_eq!(server.sole("watcher"), watcher);
    // The folder beneath is served from now on, and can be deleted.
    folder.www("d/f.bin", pattern(1_000, 2));
    unlike_before();
    server.signal("HUP");
    wait_for_body(&server, "/d/f.bin", &pattern(1_000, 2));
    wait_for_watch(&folder);
    learn(&folder, &server, &["/d/f.bin"]);
    fs::remove_dir_all(&www).expect("removed");
    wait_until("the deletion", || server.get("/d/f.bin").status == 404);
    server.wait_for_stderr("Flash still serves the old folder");
}
