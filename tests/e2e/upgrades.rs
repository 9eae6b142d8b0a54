//! Upgrades: another program takes over a running server, and no client notices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::harness::disk::Disk;
use crate::harness::{Client, Folder, Launch, Server, film, kill, stats_at, wait_until};
use crate::signals::{Habit, run_client};

/// Copies a program, by another process: this one, whose threads start others, could pass on the descriptor that writes the copy, and a
/// file that is open for writing is not executed (execve(2), `ETXTBSY`).
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

/// A server of a copy of the program, which can be replaced.
struct Installed {
    folder: Folder,
    server: Server,
}

impl Installed {
    fn start(folder: Folder, launch: impl FnOnce(&Folder) -> Launch) -> Self {
        let program = folder.path("flash");
        copy(env!("CARGO_BIN_EXE_flash").as_ref(), &program);
        let launch = launch(&folder).arg("--control").arg(folder.path("control"));
        let script = format!("exec {} \"$@\"", program.display());
        let server = launch.through(["sh", "-c", &script]).start();
        Self { folder, server }
    }

    fn program(&self) -> PathBuf {
        self.folder.path("flash")
    }

    /// Puts a copy of this file in place of the program, as a package does.
    fn install(&self, file: &Path) {
        let next = self.folder.path("flash.next");
        copy(file, &next);
        fs::rename(&next, self.program()).unwrap();
    }

    fn upgrade(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
        command.args(["upgrade", "--control"]).arg(self.folder.path("control")).stdin(Stdio::null());
        command.output().unwrap()
    }

    #[track_caller]
    fn upgrade_to_copy(&self) {
        self.install(env!("CARGO_BIN_EXE_flash").as_ref());
        let Output { status, stdout, stderr } = self.upgrade();
        let stdout = String::from_utf8_lossy(&stdout).into_owned();
        assert!(
            status.success() && stdout.contains(" has taken over from flash "),
            "{stdout}{}",
            String::from_utf8_lossy(&stderr)
        );
        let executed = fs::metadata(format!("/proc/{}/exe", self.server.pid())).unwrap();
        assert_eq!(executed.ino(), fs::metadata(self.program()).unwrap().ino());
    }

    /// The words of `flash upgrade` when the old program serves on.
    #[track_caller]
    fn refusal(&self) -> String {
        let Output { status, stdout, stderr } = self.upgrade();
        assert_eq!((status.code(), &stdout[..]), (Some(1), &b""[..]));
        String::from_utf8_lossy(&stderr).into_owned()
    }

    /// How often helpers have read files.
    fn reads(&self) -> u64 {
        stats_at(&self.folder.path("control"))["sum"]["jobs"]["load"]["started"].as_u64().unwrap()
    }

    fn count(&self, name: &str) -> u64 {
        stats_at(&self.folder.path("control"))["sum"][name].as_u64().unwrap()
    }
}

#[test]
fn an_upgrade_loses_no_request_and_keeps_process_store_and_counters() {
    let folder = Folder::with_hello();
    folder.www("film.bin", film());
    folder.www("stored.bin", vec![7; 100_000]);
    let mut installed = Installed::start(folder, |folder| {
        Launch::with_workers(folder, 2).args(["--least-rate", "0", "--cache-memory", "64MiB"])
    });
    let server = &installed.server;
    assert_eq!(server.get("/stored.bin").body.len(), 100_000);
    let mut download = server.client();
    assert_eq!(download.begin("/film.bin"), film().len());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let run = |habit| run_client(server, habit, &is_over);
        let clients =
            [Habit::Fresh, Habit::Hesitant, Habit::Keeping].map(|habit| scope.spawn(move || run(habit)));
        for _ in 0..3 {
            let (workers, requests) = (server.some("worker"), installed.count("requests"));
            installed.upgrade_to_copy();
            assert!(installed.count("requests") >= requests, "a count has fallen");
            let new = server.role("worker").into_iter().filter(|pid| !workers.contains(pid));
            assert_eq!(new.count(), 2, "those of the new program");
        }
        let before = installed.count("requests");
        wait_until("more requests", || installed.count("requests") > before + 100);
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap().expect("no failed request") > 0);
        }
    });
    let reads = installed.reads();
    assert_eq!(server.get("/stored.bin").body.len(), 100_000);
    assert_eq!(installed.reads(), reads, "its content is in the store still");
    assert!(download.rest(film().len()) == film());
    wait_until("the old workers to end", || installed.server.role("worker").len() == 2);
    assert_eq!(installed.server.role("keeper").len(), 1);
    installed.server.signal("TERM");
    assert_eq!(installed.server.wait().code(), Some(0), "{}", installed.server.stderr());
}

#[test]
fn a_program_that_cannot_take_over_changes_nothing() {
    let folder = Folder::with_hello();
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n";
    let installed = Installed::start(folder, |folder| Launch::configured(folder, config));
    let workers = installed.server.role("worker");
    let serves_on = || {
        assert_eq!(installed.server.get("/hello.txt").text(), "hello\n");
        assert_eq!(installed.server.role("worker"), workers);
    };
    installed.install(&installed.folder.write("text", "no program"));
    assert!(installed.refusal().contains("cannot execute the new version"));
    installed.install("/bin/true".as_ref());
    assert!(installed.refusal().contains("the process that reads it has ended"));
    fs::remove_file(installed.program()).unwrap();
    assert!(installed.refusal().contains("No such file"));
    serves_on();
    installed.install(env!("CARGO_BIN_EXE_flash").as_ref());
    let config = |text: &str| installed.folder.write("flash.toml", text);
    config("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nwrong = 1\n");
    assert!(installed.refusal().contains("wrong"));
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    config(&format!("root = \"www\"\nlisten = [\"{}\"]\n", other.local_addr().unwrap()));
    assert!(installed.refusal().contains("another program uses it"));
    serves_on();
}

/// Refuses a version whose log writer does not start. Returns also the configuration that could start.
fn refused() -> (Installed, String) {
    let folder = Folder::with_hello();
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n";
    let installed = Installed::start(folder, |folder| Launch::configured(folder, config));
    let workers = installed.server.role("worker");
    let old = fs::metadata(installed.program()).unwrap().ino();
    installed.install(env!("CARGO_BIN_EXE_flash").as_ref());
    // Only the log writer finds out.
    let text = fs::read_to_string(installed.folder.path("flash.toml")).unwrap();
    installed.folder.write("not-a-log", "");
    std::os::unix::fs::symlink("not-a-log", installed.folder.path("log")).unwrap();
    installed.folder.write("flash.toml", format!("log_file = \"log\"\n{text}"));
    let why = installed.refusal();
    assert!(why.contains("the log writer did not start"), "{why}");
    installed.server.wait_for_stderr("takes over again");
    assert_eq!(fs::metadata(format!("/proc/{}/exe", installed.server.pid())).unwrap().ino(), old);
    wait_until("only the last worker", || installed.server.role("worker") == workers);
    (installed, text)
}

#[test]
fn a_server_that_has_lost_all_workers_and_can_start_none_ends() {
    let (mut installed, _) = refused();
    installed.server.role("worker").iter().for_each(|worker| kill("KILL", *worker));
    assert_eq!(installed.server.wait().code(), Some(1), "{}", installed.server.stderr());
    assert!(installed.server.stderr().contains("no worker is left"), "{}", installed.server.stderr());
}

#[test]
fn when_the_new_processes_do_not_start_the_last_ones_serve_on() {
    let (mut installed, text) = refused();
    let workers = installed.server.role("worker");
    assert_eq!(installed.server.get("/hello.txt").text(), "hello\n");
    // A process that is lost now is replaced by another configuration, as soon as that can start.
    installed.folder.write("flash.toml", text);
    workers.iter().for_each(|worker| kill("KILL", *worker));
    wait_until("other workers", || {
        let now = installed.server.role("worker");
        !now.is_empty() && now != workers
    });
    assert_eq!(installed.server.get("/hello.txt").text(), "hello\n");
    installed.upgrade_to_copy();
    installed.server.signal("TERM");
    assert_eq!(installed.server.wait().code(), Some(0), "{}", installed.server.stderr());
}

#[test]
fn a_request_that_waits_for_its_disk_survives_an_upgrade() {
    let folder = Folder::with_hello();
    folder.write("disk/cold.txt", "cold\n");
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\njob_deadline = \"1h\"\n\
                  [[site]]\nhosts = [\"disk.test\"]\nroot = \"mount\"\n";
    let installed = Installed::start(folder, |folder| Launch::configured(folder, config));
    disk.tell("read hang");
    let mut client = installed.server.client();
    let request = Client::request_bytes("GET", "/cold.txt", &[]);
    client.send(String::from_utf8(request).unwrap().replace("e2e.test", "disk.test"));
    disk.wait_until_held(1);
    installed.upgrade_to_copy();
    assert_eq!(installed.server.get("/hello.txt").text(), "hello\n");
    assert!(!client.has_heard());
    disk.tell("all ok");
    assert_eq!(client.page().text(), "cold\n");
}

#[test]
fn a_signal_upgrades_too_and_a_second_one_is_refused_meanwhile() {
    let folder = Folder::with_hello();
    let mut installed = Installed::start(folder, Launch::new);
    installed.install(env!("CARGO_BIN_EXE_flash").as_ref());
    let workers = installed.server.role("worker");
    for _ in 0..3 {
        installed.server.signal("USR2");
        installed.server.signal("HUP");
    }
    installed.server.wait_for_stderr("has taken over from");
    wait_until("the old worker to end", || {
        let now = installed.server.role("worker");
        now.len() == 1 && now != workers
    });
    assert_eq!(installed.server.get("/hello.txt").text(), "hello\n");
    installed.server.signal("USR2");
    installed.server.signal("TERM");
    assert_eq!(installed.server.wait().code(), Some(0), "{}", installed.server.stderr());
}
