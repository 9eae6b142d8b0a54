//! Files that change: an answer is the old version, the new version, or cut.

use crate::machine::files::Residency;
use crate::machine::response::{parse_all, parse_head};
use crate::machine::world::FRESHNESS_MS;
use crate::machine::{Client, Content, MIB, World, rules};
use flash_engine::{Optimizations, Rules};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Truncate,
    Grow,
    Overwrite,
    /// A longer file is copied over it.
    Copy,
    Replace,
    Delete,
}

const CHANGES: [Change; 6] =
    [Change::Truncate, Change::Grow, Change::Overwrite, Change::Copy, Change::Replace, Change::Delete];

fn apply(world: &mut World, change: Change, size: u64) -> Content {
    let new = match change {
        Change::Truncate => Content::Pattern(1, size / 2),
        Change::Grow => Content::Pattern(1, size + 100),
        Change::Copy => Content::Pattern(99, size + 100),
        _ => Content::Pattern(99, size),
    };
    let files = &mut world.machine.files;
    files.tick();
    match change {
        Change::Delete => files.remove("f"),
        Change::Replace => files.add("f", new.clone()),
        _ => {
            let resident = files.look("f").residency.clone();
            files.overwrite("f", new.clone());
            files.inode("f").residency = resident;
        }
    }
    new
}

/// Checks that the answer is one whole version, or the beginning of one followed by the end of the
/// connection.
fn check(client: &Client, old: &Content, new: &Content, what: &str) -> &'static str {
    let bytes = client.received();
    let Some((head, head_bytes)) = parse_head(&bytes) else {
        assert!(client.is_ended() && !bytes.is_empty(), "{what}: neither an answer nor a closed connection");
        return "cut";
    };
    if head.status != 200 {
        assert!(matches!(head.status, 503 | 404), "{what}: {}", head.head);
        assert_eq!(parse_all(&bytes, |_| false).1, bytes.len());
        return "refused";
    }
    let length = head.length().expect("a length") as u64;
    let body = &bytes[head_bytes..];
    let version = if length == old.len() && old.slice(0, body.len() as u64) == body { old } else { new };
    assert_eq!(length, version.len(), "{what}: head and body are of different versions");
    assert!(version.slice(0, body.len() as u64) == body, "{what}: mixed bytes");
    if (body.len() as u64) < length {
        assert!(client.is_ended(), "{what}: {} of {length} bytes, and the connection is open", body.len());
        return "cut";
    }
    if version == old { "old" } else { "new" }
}

#[test]
fn a_change_during_a_transfer_never_mixes_versions() {
    for size in [100_000, 2 * MIB] {
        for change in CHANGES {
            for (number, room) in [0, 100, 50_000, 400_000].into_iter().enumerate() {
                for cold in [false, true] {
                    let what = format!("{change:?} of {size} bytes after {room}, cold: {cold}");
                    let old = Content::Pattern(1, size);
                    let mut world = World::new();
                    world.machine.files.add("f", old.clone());
                    if cold {
                        world.machine.files.inode("f").evict();
                    }
                    let client = world.connect();
                    client.set_room(room);
                    client.get("/f");
                    world.run();
                    let new = apply(&mut world, change, size);
                    client.set_room(usize::MAX);
                    world.run();
                    let came = check(&client, &old, &new, &what);
                    // An open file keeps its content when its name is replaced or deleted.
                    if matches!(change, Change::Replace | Change::Delete) || size < 128 * 1024 {
                        assert_eq!(came, "old", "{what} {number}");
                    }
                    world.end();
                }
            }
        }
    }
}

#[test]
fn a_change_while_jobs_run_never_mixes_versions() {
    for size in [100_000, 2 * MIB] {
        for change in CHANGES {
            for unknown in [false, true] {
                for steps in 0..6 {
                    let what = format!("{change:?} of {size} bytes after {steps} jobs, unknown: {unknown}");
                    let old = Content::Pattern(1, size);
                    let mut world = World::by_hand();
                    world.machine.files.add_cold("f", old.clone());
                    if unknown {
                        world.machine.files.inode("f").residency = Residency::Unknown;
                    }
                    let client = world.connect();
                    client.get("/f");
                    world.run();
                    for _ in 0..steps {
                        if let Some((id, _)) = world.machine.helpers.running.first() {
                            let id = *id;
                            world.finish(id);
                            world.run();
                        }
                    }
                    let new = apply(&mut world, change, size);
                    world.auto = true;
                    world.run();
                    check(&client, &old, &new, &what);
                    world.end();
                }
            }
        }
    }
}

#[test]
fn a_file_that_changes_between_look_up_and_hand_over_is_looked_up_again() {
    let mut world = World::by_hand();
    world.machine.files.add("f", "old content");
    world.machine.files.inode("f").residency = Residency::Unknown;
    let client = world.connect();
    client.get("/f");
    world.run();
    world.machine.files.overwrite("f", "the new content");
    world.auto = true;
    world.run();
    let response = client.take_one();
    assert_eq!((response.status, &*response.text()), (200, "the new content"));
    // The answer must be correct at once, and not only after the entry is checked again.
    assert_eq!(world.get("/f").text(), "the new content");
    world.end();
}

#[test]
fn a_changed_file_is_noticed_within_the_freshness_interval() {
    for change in CHANGES {
        let old = Content::Pattern(1, 1_000);
        let mut world = World::new();
        world.machine.files.add("f", old.clone());
        assert!(world.get("/f").body == old.whole());
        world.advance(FRESHNESS_MS / 2);
        let new = apply(&mut world, change, 1_000);
        world.advance(FRESHNESS_MS / 2 + 1);
        let response = world.get("/f");
        if change == Change::Delete {
            assert_eq!(response.status, 404);
        } else {
            assert!(response.body == new.whole(), "{change:?}");
        }
        world.end();
    }
}

#[test]
fn requests_that_wait_for_a_changed_file_share_one_load() {
    let mut world = World::by_hand();
    world.machine.files.add("f", "old content");
    world.machine.files.inode("f").evict();
    let clients: Vec<Client> = (0..20).map(|_| world.connect()).collect();
    for client in &clients {
        client.get("/f");
    }
    world.run();
    world.machine.files.overwrite("f", "the new content");
    let id = world.job();
    world.finish(id);
    world.machine.files.inode("f").evict();
    world.auto = true;
    world.run();
    for client in &clients {
        assert_eq!(client.take_one().text(), "the new content");
    }
    assert!(world.machine.helpers.started <= 4, "{} jobs", world.machine.helpers.started);
    world.end();
}

#[test]
fn a_late_find_does_not_bring_an_old_version_back() {
    let mut world = World::by_hand();
    world.machine.files.add_cold("f", "old");
    let first = world.connect();
    first.get("/f");
    world.run();
    let id = world.job();
    // The helper's message to the keeper is late too.
    world.store().borrow_mut().names.is_heard = false;
    let found = world.perform(id);
    world.machine.files.tick();
    world.machine.files.add("f", "new");
    let second = world.connect();
    second.get("/f");
    world.run();
    assert_eq!(second.take_one().text(), "new");
    world.store().borrow_mut().names.is_heard = true;
    world.hear_keeper();
    world.deliver(id, found);
    world.run();
    let _ = first.take_one();
    second.get("/f");
    world.run();
    assert_eq!(second.take_one().text(), "new", "an old version was sent after the new one");
    world.end();
}

#[test]
fn a_racy_file_is_checked_again() {
    let mut world = World::new();
    // Changed at this very moment, so the next change has the same time stamp.
    world.machine.files.now_ns = world.machine.now.wall_ns;
    world.machine.files.add("f", "aaaa");
    assert_eq!(world.get("/f").text(), "aaaa");
    world.machine.files.inode("f").content = "bbbb".into();
    world.advance(FRESHNESS_MS + 1);
    assert_eq!(world.get("/f").text(), "bbbb");
    world.end();
}

#[test]
fn where_times_are_in_whole_seconds_a_file_is_racy_for_two_of_them() {
    const SECOND_NS: i128 = 1_000_000_000;
    let mut world = World::new();
    // The times are in whole seconds, the last of them long over: vfat knows only even ones.
    world.machine.files.now_ns = (world.machine.now.wall_ns / SECOND_NS - 1) * SECOND_NS;
    world.machine.files.add("f", "aaaa");
    assert_eq!(world.get("/f").text(), "aaaa");
    world.machine.files.inode("f").content = "bbbb".into();
    world.advance(FRESHNESS_MS + 1);
    assert_eq!(world.get("/f").text(), "bbbb");
    world.advance(3_000);
    let before = world.machine.calls.reads;
    for _ in 0..3 {
        world.advance(FRESHNESS_MS + 1);
        assert_eq!(world.get("/f").text(), "bbbb");
    }
    assert!(world.machine.calls.reads <= before + 1, "then the content stays");
    world.end();
}

/// A file that grows while a slow client gets it; with `places`, only helpers reach it.
#[track_caller]
fn assert_sent_as_announced(mut world: World, places: &[&str]) {
    let old = Content::Pattern(1, MIB);
    world.machine.files.add("log", old.clone());
    world.machine.files.places = places.iter().map(|place| (*place).into()).collect();
    let client = world.connect();
    client.set_room(1_000);
    client.get("/log");
    world.run();
    for grown in 1..=4 {
        world.machine.files.overwrite("log", Content::Pattern(1, MIB + 100 * grown));
        client.add_room(200_000);
        world.run();
    }
    client.set_room(usize::MAX);
    world.run();
    assert!(client.take_one().body == old.slice(0, MIB), "the body is not the announced part of the file");
    world.end();
}

#[test]
fn a_file_that_grows_is_sent_by_helpers_as_announced() {
    assert_sent_as_announced(World::with(Rules { has_store: false, ..rules() }), &["log"]);
}

#[test]
fn a_file_that_grows_between_two_ranges_is_sent_as_announced() {
    let mut world = World::new();
    let old = Content::Pattern(1, MIB);
    world.machine.files.add("log", old.clone());
    let client = world.connect();
    client.set_room(1_000);
    client.send("GET /log HTTP/1.1\r\nHost: h\r\nRange: bytes=0-9999,500000-509999\r\n\r\n");
    world.run();
    world.machine.files.overwrite("log", Content::Pattern(1, MIB + 100));
    client.set_room(usize::MAX);
    world.run();
    let response = client.take_one();
    for part in [old.slice(0, 10_000), old.slice(500_000, 510_000)] {
        assert!(response.body.windows(10_000).any(|bytes| bytes == part), "a part is missing");
    }
    world.end();
}

#[test]
fn a_file_that_grows_during_a_transfer_is_sent_as_announced() {
    for send_file in [false, true] {
        let optimizations = Optimizations { send_file, ..Optimizations::default() };
        assert_sent_as_announced(World::with(Rules { optimizations, ..rules() }), &[]);
    }
}
