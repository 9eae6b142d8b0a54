//! The event mechanisms (`--event-mechanism`) and kinds of helpers (`--helpers`): each gives the same answers to many connections,
//! slow readers, pipelining and half-closes, under the sandbox.

use std::fs;
use std::io::Write;

use crate::harness::disk::Disk;
use crate::harness::{
    Broken, Client, Folder, Launch, Server, evict, film, pattern, raise_own_descriptor_limit, skip, wait_for,
    wait_until,
};
use crate::hung_disks::in_time;

/// Each option alone, and two together.
const WAYS: [&[&str]; 5] = [
    &["--event-mechanism", "epoll"],
    &["--event-mechanism", "poll"],
    &["--event-mechanism", "select"],
    &["--helpers", "threads"],
    &["--event-mechanism", "select", "--helpers", "threads", "--helpers-max", "3"],
];

fn start(folder: &Folder, way: &[&str]) -> Server {
    way.iter().fold(Launch::new(folder).args(["--browse"]), |launch, word| launch.arg(word)).start()
}

#[track_caller]
fn assert_hello(client: &mut Client) {
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn each_serves_hits_misses_and_listings() {
    let folder = Folder::with_hello();
    let (small, large) = (pattern(100_000, 1), pattern(3_000_000, 2));
    for name in ["a.bin", "b.bin"] {
        folder.www(&format!("dir/{name}"), &small);
    }
    let (small_path, large_path) = (folder.www("small.bin", &small), folder.www("large.bin", &large));
    for way in WAYS {
        evict(&small_path);
        evict(&large_path);
        let server = start(&folder, way);
        let mut client = server.client();
        for _ in 0..2 {
            assert_hello(&mut client);
            assert!(client.get("/small.bin").body == small, "{way:?}");
            assert!(client.get("/large.bin").body == large, "{way:?}");
            assert!(client.get("/dir/").text().contains("b.bin"), "{way:?}");
            assert_eq!(client.get("/none").status, 404, "{way:?}");
        }
        assert_eq!(server.stderr(), "", "{way:?}");
    }
}

#[test]
fn each_answers_a_pipeline_and_a_half_close_in_order() {
    let folder = Folder::with_hello();
    let contents: Vec<Vec<u8>> = (0..3).map(|n| pattern(40_000 + 90_000 * n, n as u64)).collect();
    for (n, content) in contents.iter().enumerate() {
        folder.www(&format!("{n}.bin"), content);
    }
    for way in WAYS {
        let server = start(&folder, way);
        // More than one turn answers, and more than the sockets hold.
        let order: Vec<usize> = (0..90).map(|n| n * 7 % 3).collect();
        let mut client = server.client();
        for n in &order {
            client.ask(&format!("/{n}.bin"));
        }
        client.end_sending();
        for n in order {
            let page = client.page();
            assert!(page.status == 200 && page.body == contents[n], "{way:?}");
        }
        client.assert_closed();
        let mut silent = server.client();
        silent.end_sending();
        silent.assert_closed();
    }
}

#[test]
fn each_serves_others_while_some_read_slowly() {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    for way in WAYS {
        let server = start(&folder, way);
        let mut slow: Vec<(Client, usize)> = Vec::new();
        for _ in 0..3 {
            let mut client = server.client();
            let bytes = client.begin("/film.bin");
            slow.push((client, bytes));
        }
        let mut other = server.client();
        for _ in 0..30 {
            for (client, left) in &mut slow {
                client.sip(20_000);
                *left -= 20_000;
            }
            assert_hello(&mut other);
        }
        // A client that waits for room sends more, too.
        slow[0].0.ask("/hello.txt");
        assert_rests(&server, way);
        for (client, left) in &mut slow {
            let rest = client.rest(*left);
            assert!(rest == film()[film().len() - *left..], "{way:?}: {} of {left}", rest.len());
        }
        assert_eq!(slow[0].0.page().brief(), (200, "hello\n".into()), "{way:?}");
        assert_rests(&server, way);
    }
}

/// A level that is requested although it is known would be reported all the time. An idle process uses no processor,
/// however busy the machine is.
#[track_caller]
fn assert_rests(server: &Server, way: &[&str]) {
    let worker = server.sole("worker");
    let before = cpu_ticks(worker);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let ticks = cpu_ticks(worker) - before;
    assert!(ticks < 15, "{way:?}: {ticks} hundredths of a second for nothing");
}

/// The processor time of a process, in hundredths of a second (proc_pid_stat(5)).
fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

#[test]
fn each_serves_many_connections() {
    const CLIENTS: usize = 300;
    if !raise_own_descriptor_limit(CLIENTS as u64 + 300) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    for n in 0..10 {
        folder.www(&format!("{n}.txt"), format!("number {n}"));
    }
    for way in WAYS {
        let server = start(&folder, way);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.client()).collect();
        for round in 0..4 {
            for (n, client) in clients.iter_mut().enumerate() {
                client.ask(&format!("/{}.txt", (n + round) % 10));
            }
            for (n, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.page().brief(), (200, format!("number {}", (n + round) % 10)), "{way:?}");
            }
            // Every third client leaves, some in mid-request, and a new one gets its descriptor.
            for (n, client) in clients.iter_mut().enumerate().skip(round).step_by(3) {
                if n % 2 == 0 {
                    client.ask("/1.txt");
                }
                *client = server.client();
            }
        }
        assert_eq!(server.stderr(), "", "{way:?}");
    }
}

/// The next pseudo-random number (Knuth's MMIX generator).
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// One client: pipelines of any length, read fast or slowly, ended in any way.
fn live(server: &Server, contents: &[Vec<u8>], seed: u64) {
    let state = &mut seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for _ in 0..12 {
        let mut client = server.client();
        for _ in 0..1 + next(state) % 3 {
            let asked: Vec<usize> = (0..1 + next(state) % 10).map(|_| next(state) % contents.len()).collect();
            let mut bytes: Vec<u8> = Vec::new();
            for n in &asked {
                bytes.extend(Client::request_bytes("GET", &format!("/{n}.bin"), &[]));
            }
            // In two pieces, split anywhere.
            let cut = next(state) % bytes.len();
            client.send(&bytes[..cut]);
            if next(state).is_multiple_of(2) {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let mut sender = client.sender();
            sender.write_all(&bytes[cut..]).unwrap();
            let is_last = next(state).is_multiple_of(4);
            if is_last && next(state).is_multiple_of(2) {
                // Leaves with unread answers.
                client.sip(next(state) % 5_000);
                break;
            }
            if is_last {
                client.end_sending();
            }
            for n in asked {
                let page = client.page();
                assert!(page.status == 200 && page.body == contents[n], "seed {seed}: {}", page.status);
            }
            if is_last {
                client.assert_closed();
                break;
            }
        }
    }
}

#[test]
fn each_survives_clients_of_all_kinds_at_once() {
    let folder = Folder::with_hello();
    // Some from the content cache, some read in parts.
    let contents: Vec<Vec<u8>> = [10, 1_000, 30_000, 120_000, 200_000, 700_000]
        .iter()
        .map(|bytes| pattern(*bytes, *bytes as u64))
        .collect();
    let paths: Vec<_> =
        contents.iter().enumerate().map(|(n, content)| folder.www(&format!("{n}.bin"), content)).collect();
    for (number, way) in (0..).zip(WAYS) {
        paths.iter().for_each(|path| evict(path));
        let server = start(&folder, way);
        std::thread::scope(|scope| {
            for client in 0..8 {
                let (server, contents) = (&server, &contents);
                scope.spawn(move || live(server, contents, 100 * number + client));
            }
        });
        assert_hello(&mut server.client());
        assert_eq!(server.role("worker").len(), 1, "{way:?}");
        assert_eq!(server.stderr(), "", "{way:?}");
    }
}

#[test]
fn each_drains() {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    for way in WAYS {
        let mut server = start(&folder, way);
        let (mut idle, mut busy) = (server.client(), server.client());
        assert_hello(&mut idle);
        let bytes = busy.begin("/film.bin");
        server.signal("TERM");
        idle.assert_closed();
        assert!(busy.rest(bytes) == film(), "{way:?}");
        busy.assert_closed();
        assert!(server.wait().success(), "{way:?}");
    }
}

#[test]
fn select_refuses_clients_above_its_limit_with_503() {
    const CLIENTS: usize = 1_100;
    if !raise_own_descriptor_limit(CLIENTS as u64 + 300) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    for n in 0..40 {
        folder.www(&format!("{n}.bin"), pattern(200_000, n));
    }
    // The kept clients finish their requests after all others have asked.
    let server = start(&folder, &["--event-mechanism", "select", "--head-timeout", "1h"]);
    // Files and helpers get their descriptors first.
    for n in 0..40 {
        assert!(server.get(&format!("/{n}.bin")).body == pattern(200_000, n));
    }
    let mut kept = Vec::new();
    let mut refused = 0;
    for _ in 0..CLIENTS {
        let mut client = server.client();
        match client.try_get("/hello.txt") {
            Ok(page) if page.status == 200 => {
                // An idle connection would make room for the next.
                client.begin_to_ask("/hello.txt");
                kept.push(client);
            }
            Ok(page) if page.status == 503 => refused += 1,
            // Refused before its request.
            Err(Broken::Unanswered { .. }) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(kept.len() > 500 && refused > 0, "{} kept", kept.len());
    for client in kept.iter_mut().step_by(50) {
        assert_eq!(client.finish().brief(), (200, "hello\n".into()));
        assert!(client.get("/7.bin").body == pattern(200_000, 7));
    }
    server.wait_for_stderr("select cannot watch more descriptors: use --event-mechanism epoll");
    assert_eq!(server.stderr().lines().count(), 1, "once a minute: {}", server.stderr());
}

#[test]
fn settings_without_effect_are_refused_at_startup() {
    let folder = Folder::with_hello();
    for (words, reason) in [
        (
            &["--event-mechanism", "select", "--connections", "5000"][..],
            "`--connections` is too high: select allows 1024 descriptors, which leaves 671",
        ),
        (&["--architecture", "mp", "--event-mechanism", "poll"], "`--event-mechanism` cannot be used here"),
        (&["--architecture", "mt", "--event-mechanism", "epoll"], "`--event-mechanism` cannot be used here"),
        (&["--architecture", "sped", "--helpers", "threads"], "`--helpers` cannot be used here"),
        (&["--architecture", "mp", "--helpers", "processes"], "`--helpers` cannot be used here"),
        (&["--helpers", "threads", "--helper-idle", "1s"], "`--helper-idle` cannot be used here"),
        (&["--helpers", "16"], "--helpers-max"),
    ] {
        let launch = Launch::without_architecture().arg(folder.path("www"));
        let (code, out, err) = words.iter().fold(launch, |launch, word| launch.arg(word)).fail();
        assert!(code.is_some_and(|code| code != 0) && out.is_empty(), "{words:?}: {code:?} {out}");
        assert!(err.contains(reason), "{words:?}: {err}");
    }
}

/// The threads of a process: name and id.
fn threads(pid: u32) -> Vec<(String, u32)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let named = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?.trim().to_owned();
        Some((name, task.file_name().to_str()?.parse().ok()?))
    });
    named.collect()
}

#[test]
fn helper_threads_start_with_the_worker_and_are_confined() {
    let folder = Folder::with_hello();
    let server = start(&folder, &["--helpers", "threads", "--helpers-max", "5"]);
    let worker = server.sole("worker");
    let of_helpers = || threads(worker).iter().filter(|(name, _)| name == "helper").count();
    assert_eq!(of_helpers(), 5);
    let is_held = server.stdout().contains(", seccomp;");
    for (name, id) in threads(worker) {
        let status = fs::read_to_string(format!("/proc/{worker}/task/{id}/status")).unwrap();
        let field = |field: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(field))
                .map(|value| value.trim().to_owned())
                .unwrap()
        };
        assert_eq!(field("Seccomp:"), if is_held { "2" } else { "0" }, "{name}");
        assert_eq!(field("NoNewPrivs:"), "1", "{name}");
    }
    // A descriptor table shared by threads would grow in the loop, which then waits for all cores.
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    let room = status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap();
    assert!(room.trim().parse::<u32>().unwrap() >= 512, "{room}");
    let mut client = server.client();
    for n in 0..50 {
        assert_eq!(client.get(&format!("/unheard-of-{n}")).status, 404);
    }
    assert_eq!((of_helpers(), server.role("helper")), (5, Vec::new()));
}

/// A server with helper threads and a site on a disk that hangs on command.
fn with_hanging_disk(folder: &Folder, more: &str) -> Option<(Server, Disk)> {
    for n in 0..20 {
        folder.write(&format!("disk/{n}.txt"), format!("number {n}"));
    }
    let disk = Disk::mount(&folder.path("disk"), &folder.path("mount"))?;
    let config = format!(
        "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nhelpers_max = 4\nhelpers = \"threads\"\n{more}\n\
         [[site]]\nhosts = [\"disk.test\"]\nroot = \"mount\"\n"
    );
    Some((Launch::configured(folder, &config).start(), disk))
}

fn ask_disk(server: &Server, n: usize) -> Client {
    let mut client = server.client();
    client.send(format!("GET /{n}.txt HTTP/1.1\r\nHost: disk.test\r\n\r\n"));
    client
}

#[test]
fn hung_helper_threads_keep_their_places_and_recover() {
    let folder = Folder::with_hello();
    let Some((server, mut disk)) = with_hanging_disk(&folder, "job_deadline = \"500ms\"") else { return };
    // On a busy machine the first may take longer than its deadline.
    wait_until("the disk's answer", || ask_disk(&server, 0).page().brief() == (200, "number 0".into()));
    let worker = server.sole("worker");
    disk.tell("lookup hang");
    // A root may have three of four helpers.
    let hung: Vec<Client> = (1..8).map(|n| ask_disk(&server, n)).collect();
    for mut client in hung {
        assert_eq!(client.page().status, 503);
    }
    for n in 0..20 {
        // On a busy machine a job may take longer than its deadline.
        let get = |target: &str| in_time(|| server.get(target));
        assert_eq!(get("/hello.txt").brief(), (200, "hello\n".into()));
        assert_eq!(get(&format!("/unheard-of-{n}")).status, 404, "the other site has a helper");
    }
    assert_eq!(threads(worker).len(), 5);
    disk.tell("all ok");
    wait_until("the threads to be back", || ask_disk(&server, 9).page().brief() == (200, "number 9".into()));
    for n in 1..20 {
        wait_for("an answer", || (ask_disk(&server, n).page().status == 200).then_some(()));
    }
    assert_eq!(server.sole("worker"), worker);
}

#[test]
fn hung_helper_threads_do_not_block_a_stop() {
    let folder = Folder::with_hello();
    let more = "job_deadline = \"300ms\"\nshutdown_timeout = \"500ms\"";
    let Some((mut server, mut disk)) = with_hanging_disk(&folder, more) else { return };
    disk.tell("lookup hang");
    assert_eq!(ask_disk(&server, 1).page().status, 503);
    server.signal("TERM");
    wait_until("the supervisor's end", || server.has_ended());
    disk.tell("all ok");
    server.wait();
}
