//! Thousands of changes while requests are answered. Every answer is one of the file's versions, and none is old once the events
//! before it were handled.
//!
//! With a freshness of an hour only events have a change noticed, but a file that changes twice may be looked up between, before
//! its name is watched again. So files that change more often are tested with a short freshness.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Folder, Launch, Over, Page, Server, skips, stats_at, unlike_before, wait_until};

const DIRECTORIES: u64 = 30;
const OF_DIRECTORY: u64 = 40;
/// Changed last in each storm. Events come in order, so once its change is noticed all others are known.
const MARKER: &str = "marker.txt";
/// The freshness of files that change more than once.
const SHORT: &str = "100ms";
/// Longer than `SHORT`, and than a worker believes a watched name before it looks at the shared ones again (`WATCHED_MS`).
const BELIEVED: Duration = Duration::from_millis(300);

/// The content of a file in a version, from which both can be read.
fn content(number: u64, version: u64) -> Vec<u8> {
    format!("{number:05} {version:03}\n").repeat(20 + version as usize % 7).into_bytes()
}

fn name(number: u64) -> String {
    format!("{}/{number}.txt", number / OF_DIRECTORY)
}

/// The version that a page of a file shows. None for a file that is not there.
fn version_of(number: u64, page: &Page) -> Option<u64> {
    if page.status == 404 {
        return None;
    }
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let version = text.get(6..9).and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
    let is_whole = page.status == 200 && version < 1_000 && page.body == content(number, version);
    assert!(is_whole, "no version of {}: {} {text:?}", name(number), page.status);
    Some(version)
}

/// A served tree, whose files have versions.
struct Tree {
    folder: Folder,
    /// The version of each file now; None for a file that is not there.
    now: Vec<Option<u64>>,
    storms: u64,
}

impl Tree {
    fn new() -> Self {
        let folder = Folder::new();
        let files = DIRECTORIES * OF_DIRECTORY;
        (0..files).for_each(|number| drop(folder.www(&name(number), content(number, 0))));
        folder.www(MARKER, "0");
        // As renamed into the tree.
        fs::create_dir(folder.path("staged")).expect("made");
        Self { folder, now: (0..files).map(|_| Some(0)).collect(), storms: 0 }
    }

    fn control(&self) -> PathBuf {
        self.folder.path("control.sock")
    }

    fn figure(&self, path: &str) -> u64 {
        stats_at(&self.control()).pointer(path).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A server that watches all of it.
    fn serve(&self, freshness: &str) -> Server {
        unlike_before();
        let launch = Launch::with_workers(&self.folder, 1);
        let launch = launch.args(["--cache-memory", "64MiB", "--freshness", freshness, "--stale", "0s"]);
        let server = launch.arg("--control").arg(self.control()).start();
        wait_until("the site to be watched", || self.figure("/store/subtrees_watched") == 64);
        server
    }

    /// Asks for every file.
    fn pass(&self, server: &Server, each: impl FnMut(u64, &Page)) {
        self.pass_with("", server, each);
    }

    /// Asks for every file with this query.
    fn pass_with(&self, query: &str, server: &Server, mut each: impl FnMut(u64, &Page)) {
        let mut client = server.client();
        (0..self.now.len() as u64)
            .for_each(|number| each(number, &client.get(&format!("/{}{query}", name(number)))));
    }

    /// Asks for every file until each is answered without a check.
    fn learn(&self, server: &Server) {
        let mut passes = 0;
        wait_until("every file to be watched", || {
            let watched = || self.figure("/workers/0/counters/caches/names_watched");
            let before = watched();
            passes += 1;
            // A request that is known by its bytes does not count.
            self.pass_with(&format!("?{}-{passes}", self.storms), server, |_, _| ());
            watched() - before == self.now.len() as u64
        });
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.path("www").join(name(number))
    }

    /// Replaces a file as `git checkout` and `rsync` do, or makes it.
    fn replace(&mut self, number: u64, version: u64) {
        let staged = self.folder.path("staged/one");
        fs::write(&staged, content(number, version)).expect("written");
        fs::create_dir_all(self.path(number).parent().expect("a directory")).expect("made");
        fs::rename(&staged, self.path(number)).expect("renamed");
        self.now[number as usize] = Some(version);
    }

    fn delete(&mut self, number: u64) {
        if self.now[number as usize].take().is_some() {
            fs::remove_file(self.path(number)).expect("removed");
        }
    }

    /// Changes files while others are asked for, waits until the last change is noticed, and compares every file.
    fn storm(&mut self, server: &Server, change: impl FnOnce(&mut Self)) {
        self.storms += 1;
        let files = self.now.len() as u64;
        let (is_over, answers) = (AtomicBool::new(false), AtomicU64::new(0));
        let (is_over, answers) = (&is_over, &answers);
        thread::scope(|scope| {
            let over = Over(is_over);
            for lane in 0..2 {
                scope.spawn(move || {
                    let mut client = server.client();
                    let mut number = lane * 17;
                    while !is_over.load(Ordering::Relaxed) {
                        number = (number + 7 + lane * 4) % files;
                        let _ = version_of(number, &client.get(&format!("/{}", name(number))));
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            wait_until("requests", || answers.load(Ordering::Relaxed) > 0);
            change(self);
            let marker = self.storms.to_string();
            let staged = self.folder.path("staged/one");
            fs::write(&staged, &marker).expect("written");
            fs::rename(staged, self.folder.path("www").join(MARKER)).expect("renamed");
            wait_until("the last change", || server.get(&format!("/{MARKER}")).body == marker.as_bytes());
            drop(over);
        });
        thread::sleep(BELIEVED);
        self.pass(server, |number, page| {
            assert_eq!(version_of(number, page), self.now[number as usize], "{} is old", name(number));
        });
    }
}

fn is_amped() -> bool {
    !skips(&["sped", "mp", "mt"], "their workers look names up themselves")
}

#[test]
fn files_that_are_replaced_by_thousands_are_never_old_once_their_events_are_handled() {
    if !is_amped() {
        return;
    }
    let mut tree = Tree::new();
    let server = tree.serve("1h");
    for version in 1..4 {
        // A file that was just written is not stored.
        unlike_before();
        tree.learn(&server);
        tree.storm(&server, |tree| {
            (0..tree.now.len() as u64).for_each(|number| tree.replace(number, version));
        });
    }
}

#[test]
fn files_that_are_replaced_again_and_again_are_never_mixed() {
    if !is_amped() {
        return;
    }
    let mut tree = Tree::new();
    let server = tree.serve(SHORT);
    tree.storm(&server, |tree| {
        (1..200).for_each(|version| (0..20).for_each(|number| tree.replace(number * 41, version)));
    });
}

#[test]
fn files_and_directories_that_are_deleted_and_made_by_thousands_are_noticed() {
    if !is_amped() {
        return;
    }
    let mut tree = Tree::new();
    let server = tree.serve(SHORT);
    for version in 1..5 {
        tree.storm(&server, |tree| {
            for number in 0..tree.now.len() as u64 {
                let directory = number / OF_DIRECTORY;
                match (number + version) % 3 {
                    _ if directory % 4 == version % 4 => tree.delete(number),
                    0 => tree.delete(number),
                    _ => tree.replace(number, version),
                }
            }
            for directory in (0..DIRECTORIES).filter(|directory| directory % 4 == version % 4) {
                fs::remove_dir(tree.folder.path(format!("www/{directory}"))).expect("removed");
            }
        });
    }
}

#[test]
fn directories_that_are_renamed_again_and_again_are_noticed() {
    if !is_amped() {
        return;
    }
    let mut tree = Tree::new();
    let server = tree.serve(SHORT);
    let aside = tree.folder.path("www/aside");
    for round in 0..3 {
        tree.storm(&server, |tree| {
            for _ in 0..300 {
                for directory in [0, 1, 2] {
                    let place = tree.folder.path(format!("www/{directory}"));
                    fs::rename(&place, &aside).expect("renamed");
                    fs::rename(&aside, &place).expect("renamed");
                }
            }
            // One is deleted whole and made again.
            fs::remove_dir_all(tree.folder.path("www/4")).expect("removed");
            (4 * OF_DIRECTORY..5 * OF_DIRECTORY).for_each(|number| tree.replace(number, round + 1));
        });
    }
}
