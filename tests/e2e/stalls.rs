//! A worker records where its event loop waited: in architectures whose loop waits, each slow call shows with its file; in AMPED
//! no call waits.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::disk::Disk;
use crate::harness::{Folder, Launch, Server, evict, pattern, stats_at, wait_for, wait_until};
use crate::stats::flash_stats;

/// The delay of the slow disk: many times a stall.
const SLOW_MS: u64 = 30;

/// A folder with a disk of some files at `mount`.
fn folder_and_disk() -> Option<(Folder, Disk)> {
    let folder = Folder::new();
    for name in ["a", "b", "c"] {
        folder.write(&format!("disk/{name}.txt"), name);
    }
    let disk = Disk::mount(&folder.path("disk"), &folder.path("mount"))?;
    Some((folder, disk))
}

/// A server with a folder on the disk, and its control socket.
fn start(folder: &Folder, root: &str, architecture: &str, words: &[&str]) -> (Server, PathBuf) {
    let path = folder.path("control.sock");
    let launch = Launch::bare().architecture(architecture).arg(folder.path(root));
    let launch = launch.args(["--listen", "127.0.0.1:0"]).arg("--control").arg(&path);
    let launch = launch.args([if architecture == "mp" { "--processes" } else { "--workers" }, "1"]);
    (words.iter().fold(launch, |launch, word| launch.arg(word)).start(), path)
}

/// All stalls of the only worker, and their count.
#[track_caller]
fn stalls_at(path: &Path) -> (u64, Vec<Value>) {
    let stalls = wait_for("the worker to tell", || {
        let done = flash_stats(&[], &["--stalls", "--json", "--control", path.to_str().unwrap()]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
        let answer: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!((&answer["version"], &answer["stalls"]["stall_ns"]), (&2.into(), &1_000_000.into()));
        let told = answer["stalls"]["workers"][0]["stalls"].clone();
        (!told.is_null()).then_some(told)
    });
    (stalls["count"].as_u64().unwrap(), stalls["last"].as_array().unwrap().clone())
}

#[test]
fn stalls_name_the_calls_that_wait_for_a_slow_disk() {
    // On a busy machine a call may wait for other things than a disk: AMPED has three rounds.
    let mut waits = Vec::new();
    for architecture in ["sped", "mp", "mt", "amped", "amped", "amped"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        let (server, path) = start(&folder, "mount", architecture, &[]);
        disk.tell(&format!("read slow {SLOW_MS}"));
        for name in ["a", "b", "c"] {
            assert_eq!(server.get(&format!("/{name}.txt")).brief(), (200, name.into()), "{architecture}");
        }
        let (_, stalls) = stalls_at(&path);
        let waited: Vec<&Value> =
            stalls.iter().filter(|stall| stall["switches"].as_u64() > Some(0)).collect();
        if architecture == "amped" {
            if waited.is_empty() {
                return;
            }
            waits.push(format!("{waited:?}"));
            continue;
        }
        for name in ["a", "b", "c"] {
            let file = folder.path(format!("mount/{name}.txt"));
            let is_it = |stall: &Value| {
                stall["path"] == file.to_str().unwrap()
                    && ["read", "job"].contains(&stall["call"].as_str().unwrap())
                    && stall["took_ns"].as_u64() >= Some(SLOW_MS * 1_000_000)
                    && stall["began_unix_ms"].as_u64() > Some(1_700_000_000_000)
            };
            assert!(waited.iter().any(|stall| is_it(stall)), "{architecture}, {name}: {stalls:?}");
        }
        let stats = stats_at(&path);
        let calls = stats["sum"]["calls"].as_object().unwrap();
        let sum = |field: &str| calls.values().map(|times| times[field].as_u64().unwrap()).sum::<u64>();
        assert!(sum("stalls") >= 3 && sum("waited") >= 3, "{architecture}: {calls:?}");
        assert!(
            calls.values().any(|times| times["max_ns"].as_u64() >= Some(SLOW_MS * 1_000_000)),
            "{calls:?}"
        );
    }
    panic!("amped waited in every round: {waits:?}");
}

#[test]
fn the_last_hundred_stalls_are_kept_and_all_are_counted() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let (server, path) = start(&folder, "mount", "sped", &["--freshness", "0s"]);
    disk.tell("lookup slow 2");
    let mut client = server.client();
    for _ in 0..120 {
        assert_eq!(client.get("/a.txt").brief(), (200, "a".into()));
    }
    let (count, last) = stalls_at(&path);
    assert!(count >= 120 && last.len() == 100, "{count} stalls, {} kept", last.len());
    let numbers: Vec<u64> = last.iter().map(|stall| stall["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (count - 99..=count).collect::<Vec<_>>());
    let stats = stats_at(&path);
    let calls = stats["sum"]["calls"].as_object().unwrap();
    // On a busy machine there may be more at any moment.
    let counted = calls.values().map(|times| times["stalls"].as_u64().unwrap()).sum::<u64>();
    let count_after = stalls_at(&path).0;
    assert!((count..=count_after).contains(&counted), "{count}, {counted}, {count_after}");
    let done = flash_stats(&[], &["--stalls", "--control", path.to_str().unwrap()]);
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines.len(), 2 + 100, "a heading, how many came before, and these: {}", done.out);
    assert!(
        lines[0].starts_with("began (UTC)") && lines[1].ends_with(" earlier stalls are not shown"),
        "{}",
        done.out
    );
    // It also looked up a precompressed sibling. On a busy machine a few sends stall, too.
    let of_the_file = lines[2..].iter().filter(|line| line.contains("/mount/a.txt")).count();
    assert!(of_the_file >= 50, "{}", done.out);
    // `--watch` shows new stalls.
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
    command.args(["stats", "--stalls", "--watch=20ms", "--control"]).arg(&path);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut rows = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(rows.by_ref().take(lines.len()).any(|row| row == lines[101]));
    assert_eq!(client.get("/b.txt").brief(), (200, "b".into()));
    assert!(rows.any(|row| row.ends_with("/mount/b.txt")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn control_characters_in_a_path_do_not_reach_the_terminal() {
    let folder = Folder::new();
    folder.write("disk/\u{1b}[2J/\u{202e}\u{9b}.txt", "a");
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    let (server, path) = start(&folder, "mount/\u{1b}[2J", "sped", &[]);
    disk.tell(&format!("read slow {SLOW_MS}"));
    assert_eq!(server.get("/%E2%80%AE%C2%9B.txt").brief(), (200, "a".into()));
    let file = folder.path("mount/\u{1b}[2J/\u{202e}\u{9b}.txt");
    let (_, stalls) = stalls_at(&path);
    assert!(stalls.iter().any(|stall| stall["path"] == file.to_str().unwrap()), "{stalls:?}");
    let done = flash_stats(&[], &["--stalls", "--control", path.to_str().unwrap()]);
    assert!(done.out.contains(r"/mount/\u{1b}[2J/\u{202e}\u{9b}.txt"), "{:?}", done.out);
    let is_plain = |c: char| c == '\n' || !c.is_control() && c != '\u{202e}';
    assert!(done.out.chars().all(is_plain), "{:?}", done.out);
}

#[test]
fn under_cold_load_no_file_call_of_amped_waits() {
    // Without a store, contents are read from the page cache; with one, they are already in memory.
    for (cache_memory, reads) in [("0", 40), ("64MiB", 0)] {
        // On a busy machine a call may wait for other things than a disk.
        let rounds: Vec<String> = (0..3).map_while(|_| waits_under_cold_load(cache_memory, reads)).collect();
        assert!(rounds.len() < 3, "calls waited in every round: {rounds:?}");
    }
}

/// The file calls that waited; None if no call waited.
fn waits_under_cold_load(cache_memory: &str, reads: u64) -> Option<String> {
    let folder = Folder::with_hello();
    let path = folder.path("control.sock");
    let server =
        Launch::new(&folder).args(["--cache-memory", cache_memory]).arg("--control").arg(&path).start();
    let files: Vec<(String, Vec<u8>)> = (0..40)
        .map(|n| {
            let content = pattern(if n % 4 == 0 { 1_500_000 } else { 60_000 }, n);
            let name = format!("cold-{n}.bin");
            evict(&folder.www(&name, &content));
            (format!("/{name}"), content)
        })
        .collect();
    let mut hot = server.client();
    for chunk in files.chunks(8) {
        let mut clients: Vec<_> = chunk.iter().map(|_| server.client()).collect();
        for (client, (target, _)) in clients.iter_mut().zip(chunk) {
            client.ask(target);
        }
        assert_eq!(hot.get("/hello.txt").brief(), (200, "hello\n".into()));
        for (client, (target, content)) in clients.iter_mut().zip(chunk) {
            assert!(client.page().body == *content, "{target}");
        }
    }
    let calls = stats_at(&path)["sum"]["calls"].clone();
    assert!(
        calls["look_up"]["count"].as_u64() >= Some(40) && calls["read"]["count"].as_u64() >= Some(reads),
        "{calls}"
    );
    assert!(
        calls["receive"]["count"].as_u64() >= Some(45) && calls["send"]["count"].as_u64() >= Some(45),
        "{calls}"
    );
    let waited = |call: &&str| calls[*call]["waited"].as_u64().unwrap_or(0) > 0;
    let waited: Vec<&str> = ["look_up", "read", "stat", "close_file"].into_iter().filter(waited).collect();
    let waits = (!waited.is_empty()).then(|| format!("{waited:?}: {calls}, {:?}", stalls_at(&path)));
    wait_until("the jobs to end", || stats_at(&path)["sum"]["helpers"]["busy"] == 0);
    assert_eq!(server.stderr(), "");
    waits
}
