//! A file system that depends on another process or machine, and hangs, delays only its own requests. The disk is a FUSE file
//! system controlled by the tests; a test that cannot mount it prints why.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::disk::Disk;
use crate::harness::{
    Client, Folder, Launch, Over, PATIENCE, Page, Server, SmallDisk, adapted, browse, is_root, kill, pattern,
    skip, skips, wait_for, wait_until,
};
use crate::stats::admin_address;

/// O_NONBLOCK of open(2).
const NONBLOCK: i32 = 0o4_000;

/// A folder with a local site in `www`, the content of the disk in `disk`, and the disk.
fn folder_and_disk() -> Option<(Folder, Disk)> {
    let folder = Folder::with_hello();
    for name in ["a", "b", "c", "list/a", "list/b", "list/c", "sub/a"] {
        folder.write(&format!("disk/{name}.txt"), name);
    }
    folder.write("disk/kept.txt", "kept");
    folder.write("disk/empty.txt", "");
    folder.write("disk/index.html", "<p>index");
    folder.write("disk/page.html", "as it is");
    folder.write("disk/page.html.gz", "in gz");
    folder.write("disk/small.bin", pattern(100_000, 1));
    folder.write("disk/large.bin", pattern(5_000_001, 2));
    let disk = Disk::mount(&folder.path("disk"), &folder.path("mount"))?;
    Some((folder, disk))
}

/// A server with two sites: the default one in `www`, and `disk.test` in this part of the disk.
fn launch(folder: &Folder, part: &str, more: &str) -> Launch {
    let config = format!(
        "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nhelpers_max = 8\nfreshness = \"20ms\"\n{more}\n\
         [[site]]\nhosts = [\"disk.test\"]\nroot = \"mount{part}\"\nbrowse = true\n"
    );
    Launch::configured(folder, &config)
}

const PATIENT: &str = "job_deadline = \"1h\"\n";
const HASTY: &str = "job_deadline = \"500ms\"\n";

fn ask_disk(client: &mut Client, target: &str, fields: &[&str]) {
    let request = Client::request_bytes("GET", target, fields);
    client.send(String::from_utf8(request).unwrap().replace("e2e.test", "disk.test"));
}

#[track_caller]
fn get_from_disk(client: &mut Client, target: &str, fields: &[&str]) -> Page {
    ask_disk(client, target, fields);
    client.page()
}

/// Repeats a request while it gets 503: with a short deadline on a busy machine, the start of a helper may take
/// longer.
#[track_caller]
pub(crate) fn in_time(mut get: impl FnMut() -> Page) -> Page {
    wait_for("another answer than 503", || Some(get()).filter(|page| page.status != 503))
}

/// Three requests of one kind, none of which is in memory.
fn targets_of(op: &str) -> [&'static str; 3] {
    match op {
        "opendir" | "readdir" => ["/list/", "/sub/", "/list/?again"],
        _ => ["/a.txt", "/b.txt", "/c.txt"],
    }
}

const OPS: [&str; 8] = ["lookup", "getattr", "open", "read", "flush", "statfs", "opendir", "readdir"];

/// Files in memory are answered, and so are misses on the local disk.
#[track_caller]
fn assert_others_flow(server: &Server, folder: &Folder) {
    let mut client = server.client();
    let tag = in_time(|| client.get("/hello.txt")).must("ETag").to_owned();
    for _ in 0..10 {
        assert_eq!(in_time(|| client.get("/hello.txt")).brief(), (200, "hello\n".into()));
        assert_eq!(client.request("HEAD", "/hello.txt", &[]).status, 200);
        let known = format!("If-None-Match: {tag}");
        assert_eq!(client.request("GET", "/hello.txt", &[&known]).status, 304);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    folder.www("new.txt", "new");
    assert_eq!(in_time(|| client.get("/new.txt")).brief(), (200, "new".into()));
    fs::remove_file(folder.served("new.txt")).unwrap();
    assert_eq!(in_time(|| client.get("/never-heard-of")).status, 404);
}

/// The worker has sent the disk no request, and holds nothing whose close would.
#[track_caller]
fn assert_worker_apart(server: &Server, disk: &mut Disk, mount: &Path) {
    let worker = server.sole("worker");
    assert_eq!(disk.asked_by(worker), None);
    for entry in fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten() {
        if fs::read_link(entry.path()).is_ok_and(|file| file.starts_with(mount)) {
            let about = fs::read_to_string(format!("/proc/{worker}/fdinfo/{}", entry.file_name().display()));
            let about = about.unwrap_or_default();
            let flags = about.lines().find_map(|line| line.strip_prefix("flags:")).unwrap_or("010000000");
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & 0o10_000_000 != 0, "not only a place: {about}");
        }
    }
}

#[test]
fn a_healthy_remote_disk_serves_like_a_local_one() {
    for ttl in ["ttl 0", "ttl 3600000"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        disk.tell(ttl);
        let server = launch(&folder, "", PATIENT).start();
        assert!(
            server.stdout().contains("1 of the roots on file systems that may hang"),
            "{}",
            server.stdout()
        );
        let mut client = server.client();
        let (small, large) = (pattern(100_000, 1), pattern(5_000_001, 2));
        for _ in 0..3 {
            assert_eq!(get_from_disk(&mut client, "/a.txt", &[]).brief(), (200, "a".into()));
            assert!(get_from_disk(&mut client, "/small.bin", &[]).body == small);
            assert!(get_from_disk(&mut client, "/large.bin", &[]).body == large);
            let page = get_from_disk(&mut client, "/large.bin", &["Range: bytes=1000000-2000000"]);
            assert!(page.status == 206 && page.body == large[1_000_000..=2_000_000]);
            let page = get_from_disk(&mut client, "/large.bin", &["Range: bytes=1000000-1000009,-5"]);
            assert_eq!(page.status, 206);
            let tag = format!("If-None-Match: {}", page.must("ETag"));
            assert_eq!(get_from_disk(&mut client, "/large.bin", &[&tag]).status, 304);
            let page = get_from_disk(&mut client, "/page.html", &["Accept-Encoding: gzip"]);
            assert_eq!(page.brief(), (200, "in gz".into()));
            assert_eq!(get_from_disk(&mut client, "/page.html", &[]).text(), "as it is");
            assert_eq!(get_from_disk(&mut client, "/", &[]).text(), "<p>index");
            assert!(get_from_disk(&mut client, "/list/", &[]).text().contains("a.txt"));
            let page = get_from_disk(&mut client, "/list/", &["Accept: application/json"]);
            assert_eq!(page.json()["entries"].as_array().unwrap().len(), 3);
            assert!([301, 308].contains(&get_from_disk(&mut client, "/list", &[]).status));
            assert_eq!(get_from_disk(&mut client, "/none", &[]).status, 404);
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        disk.tell("put /a.txt changed");
        disk.tell("put /large.bin small now");
        // The kernel may trust the old state for the time that the file system has given.
        if ttl == "ttl 0" {
            for (target, text) in [("/a.txt", "changed"), ("/large.bin", "small now")] {
                wait_until("the change to be seen", || {
                    get_from_disk(&mut client, target, &[]).text() == text
                });
            }
        }
        assert_worker_apart(&server, &mut disk, &folder.path("mount"));
        assert_eq!(server.stderr(), "");
    }
}

#[test]
fn an_empty_file_has_an_empty_answer() {
    for ttl in ["ttl 0", "ttl 3600000"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        disk.tell(ttl);
        let server = launch(&folder, "", PATIENT).start();
        let mut client = server.client();
        for _ in 0..3 {
            let page = get_from_disk(&mut client, "/empty.txt", &[]);
            assert_eq!((page.status, page.must("Content-Length"), &page.body[..]), (200, "0", &b""[..]));
            let tag = format!("If-None-Match: {}", page.must("ETag"));
            assert_eq!(get_from_disk(&mut client, "/empty.txt", &[&tag]).status, 304);
            let page = get_from_disk(&mut client, "/empty.txt", &["Range: bytes=0-5"]);
            assert_eq!(page.brief(), (200, String::new()));
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
        assert_eq!(server.stderr(), "");
    }
}

#[test]
fn the_page_of_the_metrics_shows_requests_that_wait_for_the_disk() {
    if skips(&["sped", "mp", "mt"], "no helpers") {
        return;
    }
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let server = launch(&folder, "", &format!("{PATIENT}admin = [\"127.0.0.1:0\"]\n")).start();
    let url = format!("http://{}/", admin_address(&server));
    disk.tell("all hang");
    let mut waiting = targets_of("read").map(|target| {
        let mut client = server.client();
        ask_disk(&mut client, target, &[]);
        client
    });
    disk.wait_until_held(1);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.client();
            while !over.load(Ordering::Relaxed) {
                assert_eq!(client.get("/hello.txt").status, 200);
            }
        });
        let _over = Over(&over);
        // A rate is there after two documents, for which the time of the browser is sometimes too short.
        wait_until("the panels", || {
            let Some(page) = browse(&folder, &url, &["--virtual-time-budget=5000"]) else { return true };
            let has = |title: &str, part: &str| {
                let panel = page.split("<section").find(|text| text.contains(&format!("<h2>{title}</h2>")));
                panel.is_some_and(|panel| panel.contains(part))
            };
            has("Reads by helpers", "<small>3 of ")
                && has("First byte of hits", "<output>p99 at most ")
                && has("Requests", "<polyline points=\"")
        });
    });
    disk.tell("all ok");
    for client in &mut waiting {
        assert_eq!(client.page().status, 200);
    }
}

#[test]
fn a_stale_entry_is_served_for_a_bounded_time() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    // With a short and a long freshness: the sum bounds a stale entry.
    let ways = [["--freshness", "50ms", "--stale", "200ms"], ["--freshness", "50ms", "--stale", "1h"]];
    for (way, statuses) in ways.into_iter().zip([[503, 503, 503, 404], [200, 200, 200, 404]]) {
        disk.tell("all ok");
        let launch = launch(&folder, "", HASTY).args(way);
        let server = launch.start();
        let mut client = server.client();
        let target = if statuses[0] == 503 { "/kept.txt" } else { "/a.txt" };
        assert_eq!(in_time(|| get_from_disk(&mut client, target, &[])).status, 200);
        disk.tell("all hang");
        disk.tell(&format!("remove {target}"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        for status in &statuses[..3] {
            assert_eq!(get_from_disk(&mut client, target, &[]).status, *status, "{way:?}");
            assert_eq!(in_time(|| client.get("/hello.txt")).status, 200);
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        disk.tell("all ok");
        wait_until("the end of the file to be seen", || {
            get_from_disk(&mut client, target, &[]).status == statuses[3]
        });
    }
}

#[test]
fn other_requests_are_answered_while_some_hang() {
    for op in OPS {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        let server = launch(&folder, "", PATIENT).start();
        assert_eq!(get_from_disk(&mut server.client(), "/kept.txt", &[]).text(), "kept");
        disk.tell(&format!("{op} hang"));
        let mut hung: Vec<(Client, &str)> = targets_of(op).map(|target| (server.client(), target)).into();
        for (client, target) in &mut hung {
            ask_disk(client, target, &[]);
        }
        disk.wait_until_held(2);
        assert_others_flow(&server, &folder);
        // Contents in memory are served, although they cannot be checked.
        assert_eq!(get_from_disk(&mut server.client(), "/kept.txt", &[]).text(), "kept");
        for (client, target) in &mut hung {
            assert!(!client.has_heard(), "{op}: {target} hangs");
        }
        assert_worker_apart(&server, &mut disk, &folder.path("mount"));
        disk.tell("all ok");
        for (client, target) in &mut hung {
            assert_eq!(client.page().status, 200, "{op}: {target}");
            client.assert_kept();
        }
        assert_eq!(server.stderr(), "");
    }
}

#[test]
fn a_hung_request_gets_503_at_its_deadline() {
    for op in OPS {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        let server = launch(&folder, "", HASTY).start();
        let worker = server.sole("worker");
        assert_eq!(in_time(|| server.get("/hello.txt")).status, 200);
        disk.tell(&format!("{op} hang"));
        let mut client = server.client();
        ask_disk(&mut client, targets_of(op)[0], &[]);
        let page = client.page();
        assert_eq!(page.status, 503, "{op}");
        page.must("Retry-After").parse::<u32>().unwrap();
        client.assert_kept();
        server.wait_for_stderr("deadline");
        // A helper hangs in the kernel, where no signal reaches it, and another takes its place.
        assert_others_flow(&server, &folder);
        disk.tell("all ok");
        assert_eq!(in_time(|| get_from_disk(&mut client, targets_of(op)[0], &[])).status, 200, "{op}");
        assert_eq!(server.sole("worker"), worker);
    }
}

#[test]
fn a_failing_disk_gives_500_and_the_next_request_may_succeed() {
    for op in ["lookup", "getattr", "open", "read", "opendir", "readdir"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        let server = launch(&folder, "", PATIENT).start();
        let worker = server.sole("worker");
        disk.tell(&format!("{op} eio"));
        let mut client = server.client();
        let target = targets_of(op)[0];
        assert_eq!(get_from_disk(&mut client, target, &[]).status, 500, "{op}");
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
        disk.tell("all ok");
        assert_eq!(get_from_disk(&mut client, target, &[]).status, 200, "{op}");
        assert_eq!(server.sole("worker"), worker);
    }
}

#[test]
fn a_remounted_disk_is_served_again() {
    let Some((folder, disk)) = folder_and_disk() else { return };
    let server = launch(&folder, "", &format!("{PATIENT}helper_idle = \"1h\"")).start();
    let mut client = server.client();
    assert_eq!(get_from_disk(&mut client, "/a.txt", &[]).text(), "a");
    drop(disk);
    // A helper that is old enough ends without an answer, and makes room for one with the new disk.
    let status = get_from_disk(&mut client, "/b.txt", &[]).status;
    assert!([500, 503].contains(&status), "{status}");
    let Some(_disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    wait_until("the new disk", || get_from_disk(&mut client, "/c.txt", &[]).status == 200);
}

#[test]
fn a_file_replaced_on_the_remote_disk_is_found() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    // Without a store, only the place of the file is kept.
    let server = launch(&folder, "", PATIENT).args(["--freshness", "1h", "--cache-memory", "0"]).start();
    let mut client = server.client();
    assert!(get_from_disk(&mut client, "/large.bin", &[]).body == pattern(5_000_001, 2));
    disk.tell("replace /large.bin another");
    assert_eq!(get_from_disk(&mut client, "/large.bin", &[]).brief(), (200, "another".into()));
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_slow_disk_gives_right_answers() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let server = launch(&folder, "", PATIENT).start();
    disk.tell("all slow 30");
    let mut client = server.client();
    let mut slow = server.client();
    ask_disk(&mut slow, "/large.bin", &[]);
    for _ in 0..5 {
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
    }
    assert!(slow.page().body == pattern(5_000_001, 2));
    assert_eq!(get_from_disk(&mut client, "/page.html", &["Accept-Encoding: gzip"]).text(), "in gz");
    assert!(get_from_disk(&mut client, "/list/", &[]).text().contains("a.txt"));
    assert_worker_apart(&server, &mut disk, &folder.path("mount"));
}

#[test]
fn a_request_that_would_wait_too_long_is_refused_at_once() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    // One helper for each root.
    let more = format!("{PATIENT}queue_wait = \"2s\"");
    let server = launch(&folder, "", &more).args(["--helpers-max", "2"]).start();
    disk.tell("all hang");
    let mut waiting = ["/a.txt", "/b.txt"].map(|target| {
        let mut client = server.client();
        ask_disk(&mut client, target, &[]);
        client
    });
    disk.wait_until_held(1);
    // Longer than the bound, so that one earlier job is too many.
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    let mut late = server.client();
    let page = get_from_disk(&mut late, "/c.txt", &[]);
    let seconds: u64 = page.must("Retry-After").parse().unwrap();
    assert_eq!(page.status, 503);
    assert!((1..=120).contains(&seconds), "{seconds}");
    assert_others_flow(&server, &folder);
    assert!(waiting.iter_mut().all(|client| !client.has_heard()));
    disk.tell("all ok");
    assert_eq!(waiting.each_mut().map(|client| client.page().text()), ["a", "b"]);
    assert_eq!(get_from_disk(&mut late, "/c.txt", &[]).text(), "c");
}

#[test]
fn a_mount_below_a_local_root_is_treated_like_a_root() {
    let Some((folder, disk)) = folder_and_disk() else { return };
    disk.unmount();
    folder.write("disk/long.bin", pattern(3_000_001, 3));
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
    let server = Launch::new(&folder).args(["--freshness", "20ms", "--job-deadline", "1h"]).start();
    disk.tell("ttl 3600000");
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/mount/kept.txt").brief(), (200, "kept".into()));
        assert!(client.get("/mount/large.bin").body == pattern(5_000_001, 2));
        // Known, and too long to be loaded in advance.
        assert_eq!(client.request("HEAD", "/mount/long.bin", &[]).status, 200);
        assert_eq!(client.get("/mount/none").status, 404);
        std::thread::sleep(std::time::Duration::from_millis(30));
    }
    // A name that the kernel knows and the worker does not: a cached look-up would find it.
    fs::metadata(folder.served("mount/a.txt")).unwrap();
    disk.tell("all hang");
    let mut hung = server.client();
    hung.ask("/mount/long.bin");
    let mut known = server.client();
    known.ask("/mount/a.txt");
    disk.wait_until_held(2);
    assert_others_flow(&server, &folder);
    assert_eq!(client.get("/mount/kept.txt").text(), "kept");
    assert!(!hung.has_heard() && !known.has_heard());
    assert_worker_apart(&server, &mut disk, &folder.served("mount"));
    disk.tell("all ok");
    assert!(hung.page().body == pattern(3_000_001, 3));
    assert_eq!(known.page().text(), "a");
}

#[test]
fn a_stop_does_not_wait_for_a_hung_disk() {
    for op in ["open", "read", "readdir"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        let settings = format!("{PATIENT}shutdown_timeout = \"300ms\"");
        let mut server = launch(&folder, "", &settings).start();
        disk.tell(&format!("{op} hang"));
        let mut hung = server.client();
        ask_disk(&mut hung, targets_of(op)[0], &[]);
        disk.wait_until_held(1);
        let others = [server.role("worker"), server.role("helper")].concat();
        assert!(others.len() >= 2, "{others:?}");
        server.signal("TERM");
        wait_until("the supervisor's end", || server.has_ended());
        hung.assert_gone();
        // No signal ends a helper in the middle of a call; it ends with the call.
        disk.tell("all ok");
        assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
        for pid in others {
            wait_until("the end of what was hung", || !Path::new(&format!("/proc/{pid}")).exists());
        }
        disk.unmount();
    }
}

#[test]
fn a_stop_after_a_deadline_is_immediate() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let mut server = launch(&folder, "", &format!("{HASTY}shutdown_timeout = \"1h\"")).start();
    disk.tell("open hang");
    assert_eq!(get_from_disk(&mut server.client(), "/a.txt", &[]).status, 503);
    server.signal("TERM");
    wait_until("the supervisor's end", || server.has_ended());
    disk.tell("all ok");
    assert_eq!(server.wait().code(), Some(0));
    disk.unmount();
}

#[test]
fn a_reload_while_a_disk_hangs_takes_effect() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let server = launch(&folder, "/sub", HASTY).start();
    let old = server.sole("worker");
    assert_eq!(in_time(|| get_from_disk(&mut server.client(), "/a.txt", &[])).text(), "sub/a");
    disk.tell("all hang");
    assert_eq!(get_from_disk(&mut server.client(), "/b.txt", &[]).status, 503);
    server.signal("HUP");
    wait_until("the next generation", || server.announcements().len() == 2);
    wait_until("the old worker's end", || !server.role("worker").contains(&old));
    assert_others_flow(&server, &folder);
    assert_eq!(get_from_disk(&mut server.client(), "/a.txt", &[]).status, 503);
    disk.tell("all ok");
    wait_until("the disk's answers", || {
        get_from_disk(&mut server.client(), "/a.txt", &[]).brief() == (200, "sub/a".into())
    });
}

#[test]
fn a_start_while_a_disk_hangs_serves_the_others() {
    for part in ["", "/sub"] {
        let Some((folder, mut disk)) = folder_and_disk() else { return };
        disk.tell("all hang");
        let mut server = launch(&folder, part, HASTY).start();
        server.wait_for_stderr("did not answer");
        assert_others_flow(&server, &folder);
        assert_eq!(get_from_disk(&mut server.client(), "/a.txt", &[]).status, 503);
        disk.tell("all ok");
        let found = wait_for("the disk's answers", || {
            Some(get_from_disk(&mut server.client(), "/a.txt", &[])).filter(|page| page.status == 200)
        });
        assert!(found.text().ends_with('a'));
        assert_worker_apart(&server, &mut disk, &folder.path("mount"));
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0));
        disk.unmount();
    }
}

#[test]
fn check_reports_a_root_that_does_not_answer() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    disk.tell("all hang");
    let config = folder.write("flash.toml", "root = \"mount/sub\"\n");
    let output = Command::new(env!("CARGO_BIN_EXE_flash")).args(["check", "--config"]).arg(config).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not answer"), "{output:?}");
}

/// The supervisor replaces a killed worker, and the others answer.
#[track_caller]
fn assert_replaces_workers(server: &Server) {
    let old = server.sole("worker");
    kill("KILL", old);
    wait_until("another worker", || matches!(server.role("worker")[..], [worker] if worker != old));
    assert_eq!(in_time(|| server.get("/hello.txt")).brief(), (200, "hello\n".into()));
}

#[test]
fn a_reload_whose_disk_hangs_delays_nothing_else_the_supervisor_does() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    let folder = Folder::with_hello();
    let (root, log) = (folder.path("www"), folder.path("access.log"));
    let config = format!("root = {root:?}\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nlog_file = {log:?}\n");
    folder.write("disk/flash.toml", adapted(&config));
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    let mut server = Launch::bare().arg("--config").arg(folder.path("mount/flash.toml")).start();
    disk.tell("open hang");
    server.signal("HUP");
    disk.wait_until_held(1);
    assert_replaces_workers(&server);
    fs::rename(&log, folder.path("access.old")).unwrap();
    server.signal("USR1");
    wait_until("another log file", || log.exists());
    disk.tell("open ok");
    wait_until("the reload", || server.in_force().len() == 1);
    disk.tell("open hang");
    server.signal("HUP");
    disk.wait_until_held(1);
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    // The child of the supervisor that hangs ends now.
    disk.tell("open ok");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_reload_whose_database_of_users_hangs_delays_nothing_else_the_supervisor_does() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    if !is_root() {
        return skip("needs root and unshare, to mount a file system");
    }
    let folder = Folder::with_hello();
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nuser = \"nobody\"\n";
    folder.write("flash.toml", adapted(config));
    let launch = Launch::bare().arg("--config").arg(folder.path("flash.toml"));
    let mut server = launch.through(["unshare", "--mount"]).start();
    let pipe = folder.path("passwd");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let target = server.pid().to_string();
    let words = ["--target", &target, "--mount", "mount", "--bind"];
    let status = Command::new("nsenter").args(words).arg(&pipe).arg("/etc/passwd").status();
    assert!(status.unwrap().success());
    server.signal("HUP");
    // Opened without a reader, it refuses.
    let writer = || OpenOptions::new().write(true).custom_flags(NONBLOCK).open(&pipe).ok();
    let held = wait_for("a process that reads the users", writer);
    assert_replaces_workers(&server);
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    drop(held);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn systemd_hears_of_the_end_of_the_last_reload_alone() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    let folder = Folder::with_hello();
    folder.write("last/hello.txt", "last");
    let config = |root: &str| format!("root = {:?}", folder.path(root));
    folder.write("disk/flash.toml", config("www"));
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    let states = UnixDatagram::bind(folder.path("state")).unwrap();
    states.set_read_timeout(Some(PATIENCE)).unwrap();
    // Skips the messages for people, and the files of the store.
    let next = || loop {
        let mut text = [0; 100];
        let length = states.recv(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text[..length]);
        if !text.starts_with("STATUS=flash ") && !text.starts_with("FDSTORE=1") {
            return text.split('\n').next().unwrap_or_default().to_owned();
        }
    };
    let told = format!("NOTIFY_SOCKET={}", folder.path("state").display());
    let launch = Launch::bare().through(["env", &told]).args(["--listen", "127.0.0.1:0", "--workers", "1"]);
    let server = launch.arg("--config").arg(folder.path("mount/flash.toml")).start();
    assert_eq!(next(), "READY=1");
    disk.tell("open hang");
    server.signal("HUP");
    disk.wait_until_held(1);
    assert_eq!(next(), "RELOADING=1");
    disk.tell(&format!("put /flash.toml {}", config("last")));
    server.signal("HUP");
    assert_eq!(next(), "RELOADING=1");
    disk.tell("open ok");
    assert_eq!(next(), "READY=1");
    assert_eq!(server.get("/hello.txt").text(), "last");
    wait_until("the reports of both reloads", || server.in_force().len() == 2);
}

#[test]
fn the_watchdog_is_fed_and_no_worker_replaced_while_a_disk_hangs() {
    if skips(&["sped", "mp", "mt"], "their workers wait for the disk themselves") {
        return;
    }
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let states = UnixDatagram::bind(folder.path("state")).unwrap();
    states.set_read_timeout(Some(PATIENCE)).unwrap();
    let told = format!("NOTIFY_SOCKET={}", folder.path("state").display());
    let launch = launch(&folder, "", PATIENT).through(["env", &told, "WATCHDOG_USEC=1000000"]);
    let server = launch.start();
    let worker = server.sole("worker");
    disk.tell("all hang");
    let mut client = server.client();
    ask_disk(&mut client, "/a.txt", &[]);
    disk.wait_until_held(1);
    // Twice in a second: for longer than a silent worker is left alone (10 s).
    let mut fed = 0;
    while fed < 22 {
        let mut text = [0; 100];
        let length = states.recv(&mut text).expect("the watchdog is fed");
        fed += u32::from(text[..length].starts_with(b"WATCHDOG=1"));
    }
    assert_eq!(server.sole("worker"), worker);
    assert_eq!(server.get("/hello.txt").status, 200);
    disk.tell("all ok");
    assert_eq!(client.page().status, 200);
}

#[test]
fn an_access_log_whose_disk_hangs_delays_no_answer_and_no_signal() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    let folder = Folder::with_hello();
    folder.write("disk/logs/x", "");
    let Some(mut disk) = Disk::mount_writable(&folder.path("disk"), &folder.path("mount")) else { return };
    let (root, log) = (folder.path("www"), folder.path("mount/logs/access.log"));
    let config = format!("root = {root:?}\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nlog_file = {log:?}\n");
    let mut server = Launch::configured(&folder, &adapted(&config)).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    wait_until("its line", || fs::read_to_string(&log).is_ok_and(|lines| !lines.is_empty()));
    disk.tell("write hang");
    let mut client = server.client();
    for _ in 0..200 {
        assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
    }
    disk.wait_until_held(1);
    assert_replaces_workers(&server);
    disk.tell("all hang");
    for signal in ["USR1", "HUP"] {
        server.signal(signal);
        assert_replaces_workers(&server);
    }
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    disk.tell("all ok");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_spool_whose_disk_hangs_delays_no_worker_and_no_signal() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    let config = adapted(
        "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nspool = \"mount/sub\"\n\
         [[route]]\nprefix = \"/app/\"\nproxy = \"127.0.0.1:9\"\n",
    );
    disk.tell("lookup hang");
    let mut server = Launch::configured(&folder, &config).start();
    server.wait_for_stderr("does not answer; until it does");
    assert_replaces_workers(&server);
    disk.tell("lookup ok");
    // The disk of the tests cannot be written.
    server.wait_for_stderr("cannot create a file in");
    disk.tell("lookup hang");
    assert_replaces_workers(&server);
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    // The child of the supervisor that hangs ends now.
    disk.tell("lookup ok");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_spool_on_a_frozen_disk_delays_no_hot_request() {
    if skips(&["mp"], "it has many workers") {
        return;
    }
    let folder = Folder::with_hello();
    let place = folder.path("spool");
    fs::create_dir(&place).unwrap();
    let Some(disk) = SmallDisk::with_coarse_times(&place, &folder.path("image")) else { return };
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\nspool = \"spool\"\n\
                  [[route]]\nprefix = \"/app/\"\nproxy = \"127.0.0.1:9\"\n";
    let mut server = Launch::configured(&folder, config).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    let frozen = disk.freeze();
    assert_replaces_workers(&server);
    let mut clients: Vec<Client> = (0..60).map(|_| server.client()).collect();
    for _ in 0..10 {
        clients.iter_mut().for_each(|client| assert_eq!(client.get("/hello.txt").status, 200));
    }
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    // The child of the supervisor that waits ends now.
    drop(frozen);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_stop_does_not_wait_for_the_disk_of_the_control_socket() {
    let Some((folder, mut disk)) = folder_and_disk() else { return };
    // The socket is on a local disk, but its path leads through the one that hangs.
    let socket = folder.path("mount/sub/../../control.sock");
    let mut server = Launch::new(&folder).arg("--control").arg(&socket).start();
    disk.tell("lookup hang");
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    disk.tell("lookup ok");
    assert_eq!(server.wait().code(), Some(0));
    // Otherwise it is removed.
    let mut server = Launch::new(&folder).arg("--control").arg(&socket).start();
    assert!(folder.path("control.sock").exists());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!folder.path("control.sock").exists());
}

#[test]
fn a_stop_does_not_wait_for_the_disk_of_the_list_of_hot_files() {
    let folder = Folder::with_hello();
    folder.write("disk/sub/x", "");
    let Some(mut disk) = Disk::mount_writable(&folder.path("disk"), &folder.path("mount")) else { return };
    let mut server = Launch::new(&folder).arg("--cache-list").arg(folder.path("mount/sub/hot")).start();
    assert_eq!(server.get("/hello.txt").status, 200);
    // The keeper writes to the file, which is open. Only its new name must be looked up.
    disk.tell("lookup hang");
    server.signal("TERM");
    wait_until("the end of the server", || server.has_ended());
    server.wait_for_stderr("cannot replace the list of hot files: its disk does not answer");
    disk.tell("lookup ok");
    assert_eq!(server.wait().code(), Some(0));
}
