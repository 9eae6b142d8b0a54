//! nginx with the gate where something is slow, hung, missing or large: disks, backends, clients.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::server::{Backend, Nginx, Pending, Setup, module};
use super::site;
use crate::backend::packets::{self, Packets};
use crate::harness::disk::Disk;
use crate::harness::{Folder, PATIENCE, evict, pattern, skip, wait_for, wait_until};

/// The output of curl for this target; None, with the reason printed, if curl is not installed.
#[track_caller]
fn curl(nginx: &Nginx, version: &str, target: &str) -> Option<Output> {
    let mut command = Command::new("curl");
    command.args(["-sSk", version, "--max-time"]).arg(PATIENCE.as_secs().to_string());
    match command.arg(format!("https://{}{target}", nginx.secure)).output() {
        Ok(output) => Some(output),
        Err(_) => {
            skip("needs curl");
            None
        }
    }
}

#[test]
fn hot_files_larger_than_two_windows_are_sent_over_tls() {
    let Some(module) = module() else { return };
    let folder = site();
    let content = pattern(3_000_001, 6);
    folder.www("three.bin", &content);
    if !Setup::make_certificate(&folder) {
        return;
    }
    let _backend = Backend::fake(&folder, &[]);
    for (window, force) in
        [("flash_gate_window 512k;", ""), ("flash_gate_window 8k;", ""), ("", "flash_gate_force on;")]
    {
        for sendfile in ["sendfile off;", "sendfile on;"] {
            let setup = Setup::new(&folder, module).with(window).with(force).with(sendfile);
            let nginx = setup.secure().start().connected();
            for version in ["--http1.1", "--http2"] {
                let Some(output) = curl(&nginx, version, "/three.bin") else { return };
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let case = format!("{version} {window} {force} {sendfile}: {said}");
                assert!(output.status.success(), "{case}");
                assert!(output.stdout == content, "{} bytes, {case}", output.stdout.len());
            }
            assert_eq!(nginx.counter("worker_waiting"), 0);
        }
    }
}

#[test]
fn a_backend_that_reads_nothing_delays_cold_requests_and_ends_none() {
    let Some(module) = module() else { return };
    let folder = site();
    let _backend = Backend::fake(&folder, &["--answer", "deaf"]);
    let nginx = Setup::new(&folder, module).forced().with("flash_gate_timeout 1s;").start().connected();
    let cold: Vec<Pending> = (0..400).map(|_| nginx.ask("/hello.txt")).collect();
    for pending in cold {
        let reply = pending.reply();
        match reply.status {
            200 => assert_eq!(reply.body, b"hello\n"),
            // A full socket is a busy backend, and no answer within the timeout a late one.
            503 => assert!(reply.head.contains("Retry-After: "), "{}", reply.head),
            status => panic!("{status}: {}", reply.head),
        }
    }
    wait_until("no hold is left", || nginx.counter("worker_waiting") == 0);
    let log = nginx.log();
    for cause in ["reads its socket too slowly", "does not answer", "closed the connection"] {
        assert!(log.lines().filter(|line| line.contains(cause)).count() <= 1, "{cause}: {log}");
    }
    assert!(log.lines().filter(|line| line.contains("flash gate: backend")).count() <= 2, "{log}");
}

#[test]
fn a_close_waits_for_room_in_the_backends_socket() {
    let Some(module) = module() else { return };
    let folder = site();
    let file = folder.www("doomed.bin", pattern(32 << 20, 6));
    let backend = Backend::fake(&folder, &[]);
    let nginx = Setup::new(&folder, module).forced().with("flash_gate_timeout 10m;").start().connected();
    let slow = nginx.ask("/sent/doomed.bin");
    wait_until("the answer to begin", || !slow.is_held());
    let worker = nginx.counter("worker_pid");
    let has_deleted = || {
        let open = std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap();
        let mut targets = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        targets.any(|target| target.to_string_lossy().ends_with("doomed.bin (deleted)"))
    };
    backend.signal("STOP");
    let mut held: Vec<Pending> = Vec::new();
    // The socket has room for 2 MB: some hundred long names.
    let target = "/none".repeat(600);
    wait_until("a full socket", || {
        held.extend((0..50).map(|_| nginx.ask(&target)));
        nginx.counter("full") > 0
    });
    std::fs::remove_file(file).unwrap();
    drop(slow);
    // The request ends at once, and the pin of its name after two seconds.
    std::thread::sleep(Duration::from_secs(4));
    assert!(has_deleted() && nginx.counter("closes") == 0);
    backend.signal("CONT");
    wait_until("the close", || backend.count("CLOSE") > 0 && !has_deleted());
    wait_until("all closes are read", || nginx.counter("closes") == backend.count("CLOSE") as u64);
    for pending in held {
        assert_eq!(pending.reply().status, 404);
    }
}

/// A site with a disk below it that hangs on command.
fn site_and_disk() -> Option<(Folder, Disk)> {
    let folder = site();
    for name in ["lookup", "open", "read", "more"] {
        folder.write(&format!("disk/{name}.txt"), name);
    }
    folder.write("disk/large.bin", pattern(300_001, 7));
    let disk = Disk::mount(&folder.path("disk"), &folder.served("mount"))?;
    Some((folder, disk))
}

#[track_caller]
fn assert_others_flow(nginx: &Nginx) {
    // With a short timeout on a busy machine, the backend's answer may take longer.
    let get = |target: &str| {
        wait_for("another answer than 503", || Some(nginx.get(target)).filter(|reply| reply.status != 503))
    };
    for _ in 0..10 {
        assert_eq!(get("/").body, b"<p>top");
        assert_eq!(get("/hello.txt").body, b"hello\n");
        assert!(get("/sent/large.bin").body == pattern(300_001, 5));
        assert_eq!(get("/none").status, 404);
    }
}

#[test]
fn a_hung_disk_delays_only_its_own_requests_and_they_end_at_their_deadline() {
    let Some(module) = module() else { return };
    for op in ["lookup", "open"] {
        let Some((folder, mut disk)) = site_and_disk() else { return };
        let _backend = Backend::real(&folder, &[]);
        let nginx = Setup::new(&folder, module).with("flash_gate_timeout 3s;").start().connected();
        disk.tell(&format!("{op} hang"));
        let held = [nginx.ask(&format!("/mount/{op}.txt")), nginx.ask("/mount/more.txt")];
        disk.wait_until_held(1);
        assert_others_flow(&nginx);
        for pending in held {
            let reply = pending.reply();
            assert_eq!(reply.status, 503, "{op}: {}", reply.head);
            assert!(reply.head.contains("Retry-After: "), "{op}: {}", reply.head);
        }
        assert_others_flow(&nginx);
        disk.tell("all ok");
        let found = wait_for("the disk's answer", || {
            Some(nginx.get(&format!("/mount/{op}.txt"))).filter(|reply| reply.status != 503)
        });
        assert_eq!((found.status, found.body), (200, op.into()));
    }
}

#[test]
fn a_read_that_hangs_ends_its_answer_at_the_deadline() {
    let Some(module) = module() else { return };
    let Some((folder, mut disk)) = site_and_disk() else { return };
    disk.tell("ttl 3600000");
    let _backend = Backend::real(&folder, &[]);
    let nginx = Setup::new(&folder, module).with("flash_gate_timeout 3s;").start().connected();
    disk.tell("read hang");
    let mut held = nginx.ask("/mount/large.bin");
    disk.wait_until_held(1);
    assert_others_flow(&nginx);
    let bytes = held.rest();
    assert!(bytes.len() < 300_001, "the answer is cut short: {} bytes", bytes.len());
    assert_others_flow(&nginx);
    assert!(nginx.log().contains("was not in memory"), "{}", nginx.log());
    disk.tell("all ok");
    let reply = wait_for("the disk's answer", || {
        Some(nginx.get("/mount/large.bin")).filter(|reply| reply.body.len() == 300_001)
    });
    assert!(reply.body == pattern(300_001, 7));
}

#[test]
fn reload_and_quit_do_not_wait_longer_than_a_deadline_for_a_hung_disk() {
    let Some(module) = module() else { return };
    let Some((folder, mut disk)) = site_and_disk() else { return };
    let _backend = Backend::real(&folder, &[]);
    let nginx = Setup::new(&folder, module).with("flash_gate_timeout 3s;").start().connected();
    let first = nginx.counter("worker_pid");
    disk.tell("lookup hang");
    let held = nginx.ask("/mount/lookup.txt");
    disk.wait_until_held(1);
    nginx.signal("HUP");
    wait_until("a new worker", || nginx.counter("worker_pid") != first);
    let nginx = nginx.connected();
    assert_others_flow(&nginx);
    assert_eq!(held.reply().status, 503);
    wait_until("the old worker's end", || !Path::new(&format!("/proc/{first}")).exists());
    let held = nginx.ask("/mount/more.txt");
    wait_until("it is held", || nginx.counter("worker_waiting") > 0);
    nginx.signal("QUIT");
    assert_eq!(held.reply().status, 503);
    let log = nginx.log();
    assert!(nginx.ended() && !log.contains("[alert]"), "{log}");
    disk.tell("all ok");
}

#[test]
fn a_reload_of_the_backend_lets_no_request_pass_ungated() {
    let Some(module) = module() else { return };
    let Some((folder, mut disk)) = site_and_disk() else { return };
    let backend = Backend::real(&folder, &[]);
    let nginx = Setup::new(&folder, module).forced().start().connected();
    // Only a connection that has lasted for a second is made again at once.
    std::thread::sleep(Duration::from_millis(1500));
    disk.tell("lookup hang");
    let hung = nginx.ask("/mount/lookup.txt");
    disk.wait_until_held(1);
    let idle = Packets::to(&folder.path("backend.sock"));
    backend.signal("HUP");
    assert_eq!(idle.reply(), packets::Reply::End);
    // The old worker reads no more, and ends the connection after its last reply.
    let late: Vec<Pending> = (0..20).map(|_| nginx.ask("/hello.txt")).collect();
    wait_until("all are held", || nginx.counter("worker_waiting") == 21);
    disk.tell("all ok");
    assert_eq!(hung.reply().body, b"lookup");
    for pending in late {
        assert_eq!(pending.reply().body, b"hello\n");
    }
    assert_eq!((nginx.counter("connects"), nginx.counter("passed_absent")), (2, 0));
    assert!(!nginx.log().contains("closed the connection"), "{}", nginx.log());
}

#[test]
fn names_and_contents_that_are_not_in_memory_are_read_by_the_backend() {
    let Some(module) = module() else { return };
    // The kernel knows nothing of a new mount.
    let Some((folder, mut disk)) = site_and_disk() else { return };
    disk.tell("ttl 3600000");
    let backend = Backend::real(&folder, &[]);
    let nginx = Setup::new(&folder, module).with("flash_gate_window 64k;").start().connected();
    let worker = u32::try_from(nginx.counter("worker_pid")).unwrap();
    assert!(nginx.get("/mount/large.bin").body == pattern(300_001, 7));
    assert!(nginx.counter("names_asked") >= 1 && nginx.counter("windows_asked") >= 4);
    let asked = disk.asked_by(worker).unwrap_or_default();
    assert!(!asked.contains("lookup") && !asked.contains("read"), "the worker itself has waited: {asked}");

    evict(&folder.served("large.bin"));
    let before = nginx.counter("ready");
    // Killed while it works, and used again when it is back.
    disk.tell("all slow 300");
    let held = [nginx.ask("/mount/more.txt"), nginx.ask("/large.bin")];
    wait_until("one is held", || nginx.counter("worker_waiting") > 0);
    drop(backend);
    let bodies = held.map(|held| held.reply().body);
    assert!(bodies[0] == b"more" && bodies[1] == pattern(300_001, 5));
    disk.tell("all ok");
    let _backend = Backend::real(&folder, &[]);
    let nginx = nginx.connected();
    assert_eq!(nginx.get("/mount/read.txt").body, b"read");
    assert!(nginx.counter("ready") > before);
    assert_eq!(nginx.counter("worker_waiting"), 0);
}

#[test]
fn an_nginx_without_roots_rights_is_gated_too() {
    let Some(module) = module() else { return };
    let folder = site();
    std::fs::set_permissions(folder.path(""), Permissions::from_mode(0o777)).unwrap();
    folder.www("secret.txt", "x");
    std::fs::set_permissions(folder.served("secret.txt"), Permissions::from_mode(0o000)).unwrap();
    let stock = Setup::stock(&folder).unprivileged().start().get("/secret.txt").status;
    let backend = Backend::fake(&folder, &[]);
    let nginx = Setup::new(&folder, module).forced().unprivileged().start().connected();
    assert_eq!(nginx.get("/hello.txt").body, b"hello\n");
    assert!(nginx.get("/sent/large.bin").body == pattern(300_001, 5));
    assert_eq!(nginx.get("/").body, b"<p>top");
    assert_eq!((stock, nginx.get("/secret.txt").status), (403, 403));
    assert!(backend.count("WARM_RANGE") > 70 && nginx.counter("errno") == 0);
    assert!(!nginx.log().contains("[alert]"), "{}", nginx.log());
}

#[test]
fn small_requests_are_answered_in_the_middle_of_a_large_download() {
    let Some(module) = module() else { return };
    let folder = site();
    let total = 96 << 20;
    folder.www("film.bin", pattern(total, 8));
    let _backend = Backend::fake(&folder, &[]);
    let nginx = Setup::new(&folder, module).start().connected();
    // A client that reads faster than nginx sends must not keep the worker to itself.
    wait_until("an answer in the middle of a download", || {
        let received = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let download = scope.spawn(|| drain(&nginx, &received));
            wait_until("the download begins", || received.load(Ordering::Acquire) > 1 << 20);
            assert_eq!(nginx.get("/hello.txt").body, b"hello\n");
            let at = received.load(Ordering::Acquire);
            assert!(download.join().unwrap() > total as u64);
            at < total as u64 / 4 * 3
        })
    });
}

/// Downloads the large file as fast as it can, and returns the length of the answer.
fn drain(nginx: &Nginx, received: &AtomicU64) -> u64 {
    let mut stream = TcpStream::connect(nginx.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /sent/film.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => return received.load(Ordering::Acquire),
            length => received.fetch_add(length as u64, Ordering::Release),
        };
    }
}

#[test]
fn many_requests_have_the_bytes_of_nginx_without_the_module() {
    let Some(module) = module() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/tests/identity.py");
    for (scheme, delay_ms) in [("http", "1"), ("https", "0")] {
        let folder = Folder::new();
        if !Setup::make_certificate(&folder) {
            return;
        }
        let backend = Backend::fake(&folder, &["--delay-ms", delay_ms]);
        let sendfile = if scheme == "http" { "sendfile on; gzip on; gzip_types *;" } else { "" };
        // nginx has read its configuration when the next one is written to the same file.
        let stock = Setup::stock(&folder).with(sendfile).secure().start();
        let gated = Setup::new(&folder, module).with(sendfile).forced().secure().start().connected();
        let url = |nginx: &Nginx| {
            format!("{scheme}://{}", if scheme == "http" { nginx.address } else { nginx.secure })
        };
        let mut command = Command::new("python3");
        command.arg(&script).args(["--stock", &url(&stock), "--gated", &url(&gated)]);
        command.args(["--ranges", "10", "--slow-ms", "1", "--large-bytes", "1500000", "--root"]);
        let output = command.arg(folder.path("www")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && output.stderr.is_empty(), "{scheme}: {output:?}\n{said}");
        assert!(backend.count("WARM_RANGE") > 1000, "{scheme}");
        wait_until("no hold is left", || gated.counter("worker_waiting") == 0);
    }
}
