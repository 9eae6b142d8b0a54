//! nginx with the gate module.
//!
//! Most tests force the gate to hold everything, because the files of a test are always in memory; the backend is then
//! `fake_backend.py`, which answers by rule. `modules/nginx/suite` runs nginx's own tests with the gate.

mod restricted;
mod server;
mod trouble;

use std::fs;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::harness::{Folder, evict, pattern, skip, wait_until};
use server::{Backend, Nginx, Pending, Setup, checked_module, module};

fn site() -> Folder {
    let folder = Folder::with_hello();
    folder.www("empty.txt", "");
    folder.www("large.bin", pattern(300_001, 5));
    folder.www("index.html", "<p>top");
    folder.www("list/a.txt", "a");
    folder.www(
        "page.html",
        "before <!--#include virtual=\"/hello.txt\" --><!--#include virtual=\"/large.bin\" --> after",
    );
    folder
}

const COMPARED: &[(&str, &str, &[&str])] = &[
    ("GET", "/hello.txt", &[]),
    ("HEAD", "/large.bin", &[]),
    ("GET", "/", &[]),
    ("GET", "/empty.txt", &[]),
    ("GET", "/sent/large.bin", &[]),
    ("GET", "/copied/large.bin", &[]),
    ("GET", "/zipped/large.bin", &["Accept-Encoding: gzip"]),
    ("GET", "/sent/large.bin", &["Range: bytes=0-0"]),
    ("GET", "/sent/large.bin", &["Range: bytes=100000-199999"]),
    ("GET", "/copied/large.bin", &["Range: bytes=-5"]),
    ("GET", "/sent/large.bin", &["Range: bytes=0-9,100000-109999,-3"]),
    ("GET", "/copied/large.bin", &["Range: bytes=0-9,100000-109999,-3"]),
    ("GET", "/large.bin", &["Range: bytes=9000000-"]),
    ("GET", "/large.bin", &["Range: bytes=5-9", "If-Range: \"other\""]),
    ("GET", "/hello.txt", &["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
    ("GET", "/ssi/page.html", &[]),
    ("GET", "/tried/any", &[]),
    ("GET", "/lost/any", &[]),
    ("GET", "/list/", &[]),
    ("GET", "/list", &[]),
    ("GET", "/none/at/all", &[]),
    ("GET", "/hello.txt/more", &[]),
    ("POST", "/hello.txt", &["Content-Length: 0"]),
    ("PUT", "/hello.txt", &["Content-Length: 0"]),
];

type Answers = Vec<(String, Vec<u8>)>;

fn answers(nginx: &Nginx) -> Answers {
    let ask = |&(method, target, fields): &(&str, &str, &[&str])| {
        Pending::to(nginx.address, method, target, fields).reply().lasting()
    };
    COMPARED.iter().map(ask).collect()
}

#[track_caller]
fn assert_same(stock: &Answers, other: &Answers) {
    for ((expected, found), request) in stock.iter().zip(other).zip(COMPARED) {
        // A redirection names the port.
        if expected.0.contains("Location: ") {
            continue;
        }
        assert_eq!(expected.0, found.0, "the head of {request:?}");
        assert!(expected.1 == found.1, "the body of {request:?}: {} bytes", found.1.len());
    }
}

#[test]
fn every_answer_is_that_of_nginx_without_the_module() {
    let Some(module) = module() else { return };
    let folder = site();
    let stock = answers(&Setup::stock(&folder).start());

    let backend = Backend::fake(&folder, &["--delay-ms", "1"]);
    let forced = Setup::new(&folder, module).forced().start().connected();
    assert_same(&stock, &answers(&forced));
    assert!(backend.count("WARM_NAME") > COMPARED.len() && backend.count("WARM_RANGE") > 300);
    assert_eq!(forced.counter("worker_waiting"), 0);
    drop(forced);

    let plain = Setup::new(&folder, module).start().connected();
    assert_same(&stock, &answers(&plain));
    drop(backend);
    // Nobody answers.
    assert_same(&stock, &answers(&plain));
}

#[test]
fn a_backend_that_does_not_work_is_logged_once_and_the_files_are_served() {
    let Some(module) = module() else { return };
    for (options, cause) in [
        (&["--answer", "silent"][..], "does not answer"),
        (&["--answer", "garbage"], "none of the protocol"),
        (&["--answer", "close"], "closed the connection"),
        (&["--hello", "2"], "another version"),
        (&["--hello", "user"], "does not allow the user"),
        (&["--hello", "room"], "no room"),
    ] {
        let folder = site();
        let _backend = Backend::fake(&folder, options);
        // Only a silent backend lets requests wait until the timeout.
        let timeout = if cause == "does not answer" { "flash_gate_timeout 200ms;" } else { "" };
        let nginx = Setup::new(&folder, module).forced().with(timeout).start();
        wait_until(cause, || {
            let reply = nginx.get("/hello.txt");
            assert_eq!(reply.body, b"hello\n", "{cause}: {} {}", reply.head, nginx.log());
            nginx.log().contains(cause)
        });
        for _ in 0..3 {
            assert_eq!(nginx.get("/large.bin").status, 200, "{cause}");
        }
        let log = nginx.log();
        assert_eq!(log.lines().filter(|line| line.contains(cause)).count(), 1, "{log}");
    }
}

#[test]
fn busy_and_late_answers_are_503() {
    let Some(module) = module() else { return };
    for (answer, retry) in [("busy", "Retry-After: 2"), ("errno=110", "Retry-After: 1")] {
        let folder = site();
        let _backend = Backend::fake(&folder, &["--answer", answer]);
        let nginx = Setup::new(&folder, module).forced().start().connected();
        let reply = nginx.get("/hello.txt");
        assert_eq!(reply.status, 503, "{answer}");
        assert!(reply.head.contains(retry), "{}", reply.head);
    }
    // Another error is nginx's own to find.
    let folder = site();
    let _backend = Backend::fake(&folder, &["--answer", "errno=5"]);
    let nginx = Setup::new(&folder, module).forced().start().connected();
    assert_eq!(nginx.get("/hello.txt").body, b"hello\n");
    assert!(nginx.counter("errno") > 1);
}

#[test]
fn holds_go_on_when_the_backend_is_killed_and_it_is_used_again_when_it_is_back() {
    let Some(module) = module() else { return };
    let folder = site();
    let backend = Backend::fake(&folder, &["--delay-ms", "600000"]);
    let nginx = Setup::new(&folder, module).forced().start().connected();
    let held: Vec<Pending> = (0..20).map(|_| nginx.ask("/large.bin")).collect();
    wait_until("all are held", || nginx.counter("worker_waiting") == 20);
    assert!(held.iter().all(Pending::is_held));

    drop(backend);
    for pending in held {
        assert!(pending.reply().body == pattern(300_001, 5));
    }
    let _backend = Backend::fake(&folder, &[]);
    let nginx = nginx.connected();
    assert_eq!(nginx.get("/hello.txt").status, 200);
    wait_until("it is logged", || nginx.log().contains("works again"));
}

#[test]
fn held_requests_outlive_reload_and_quit() {
    let Some(module) = module() else { return };
    let folder = site();
    let _backend = Backend::fake(&folder, &["--delay-ms", "2000"]);
    let nginx = Setup::new(&folder, module).forced().start().connected();
    let first = nginx.counter("worker_pid");
    let held: Vec<Pending> = (0..5).map(|_| nginx.ask("/hello.txt")).collect();
    wait_until("all are held", || nginx.counter("worker_waiting") > 0);
    nginx.signal("HUP");
    wait_until("a new worker", || nginx.counter("worker_pid") != first);
    for pending in held {
        assert_eq!(pending.reply().body, b"hello\n");
    }
    let nginx = nginx.connected();
    let last = nginx.ask("/hello.txt");
    wait_until("it is held", || nginx.counter("worker_waiting") > 0);
    nginx.signal("QUIT");
    assert_eq!(last.reply().body, b"hello\n");
    let log = nginx.log();
    assert!(nginx.ended() && !log.contains("[alert]"), "{log}");
}

#[test]
fn clients_that_leave_at_every_hold_leave_nothing_behind() {
    let Some(module) = checked_module() else { return };
    let library = Command::new("gcc").arg("-print-file-name=libasan.so").output().unwrap();
    let library = String::from_utf8(library.stdout).unwrap().trim().to_owned();
    if !library.starts_with('/') {
        return skip("needs gcc's libasan");
    }
    let folder = site();
    let backend = Backend::fake(&folder, &["--delay-ms", "20"]);
    let nginx = Setup::new(&folder, module).forced().preload(library).start().connected();
    let (before, worker) = (nginx.descriptors(), nginx.counter("worker_pid"));
    for target in
        ["/sent/large.bin", "/copied/large.bin", "/zipped/large.bin", "/ssi/page.html", "/list/", "/"]
    {
        for wait_ms in (0..300).step_by(25) {
            let pending = nginx.ask(target);
            std::thread::sleep(Duration::from_millis(wait_ms));
            drop(pending);
        }
    }
    wait_until("no hold is left", || nginx.counter("worker_waiting") == 0);
    wait_until("no descriptor is left", || nginx.descriptors() == before);
    assert!(backend.count("CANCEL") > 0);
    assert_eq!(nginx.get("/hello.txt").body, b"hello\n");
    // nginx writes what its workers say on stderr into its error log, once it has started.
    let said = std::fs::read_to_string(folder.path("stderr.log")).unwrap() + &nginx.log();
    for fault in ["AddressSanitizer", "exited on signal", "exited with code"] {
        assert!(!said.contains(fault), "{said}");
    }
    assert_eq!(nginx.counter("worker_pid"), worker);
}

#[test]
fn flash_backend_brings_cold_files_into_memory() {
    let Some(module) = module() else { return };
    let folder = site();
    let _backend = Backend::real(&folder, &[]);
    let nginx = Setup::new(&folder, module).with("flash_gate_window 64k;").start().connected();
    evict(&folder.served("large.bin"));
    assert!(nginx.get("/large.bin").body == pattern(300_001, 5));
    assert!(nginx.get("/copied/large.bin").body == pattern(300_001, 5));
    assert_eq!(nginx.counter("passed_absent") + nginx.counter("late") + nginx.counter("busy"), 0);
}

/// An update would start a transaction of the journal, and wait for the current one.
#[test]
fn the_access_time_of_an_own_file_is_not_updated() {
    let Some(module) = module() else { return };
    let folder = site();
    let _backend = Backend::real(&folder, &[]);
    // Older than the content: any read would update it (mount(8), relatime).
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let accessed_after = |nginx: &Nginx, target: &str| {
        let path = folder.served("large.bin");
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
        assert!(nginx.get(target).body == pattern(300_001, 5));
        fs::metadata(&path).unwrap().accessed().unwrap()
    };
    for target in ["/sent/large.bin", "/copied/large.bin"] {
        let stock = Setup::stock(&folder).start();
        if accessed_after(&stock, target) == old {
            return skip("the file system of the temporary files keeps no access times");
        }
        drop(stock);
        let nginx = Setup::new(&folder, module).start().connected();
        assert_eq!(accessed_after(&nginx, target), old, "{target}");
    }
}

#[test]
fn wrong_directives_are_refused_with_the_reason() {
    let Some(module) = module() else { return };
    let folder = site();
    for (directive, reason) in [
        ("flash_gate maybe;", "it must be \"on\" or \"off\""),
        ("flash_gate_timeout 0;", "must be between 1ms and 1h"),
        ("flash_gate_timeout 2h;", "must be between 1ms and 1h"),
        ("flash_gate_window 1k;", "must be between 4k and 1m"),
        ("flash_gate_window 2m;", "must be between 4k and 1m"),
        ("flash_gate_untestable block;", "invalid value \"block\""),
        ("flash_gate_names relative;", "must begin with a slash or a variable"),
        ("flash_gate_names $no_such_variable;", "unknown \"no_such_variable\" variable"),
        ("flash_gate_names /1 /2 /3 /4 /5 /6 /7 /8 /9;", "more than 8 names"),
        ("flash_gate on; aio threads;", "past the gate"),
        ("flash_gate on; directio 1m;", "past the page cache"),
        ("flash_gate_backend tcp:1;", "it must be \"unix:\" and an absolute path"),
    ] {
        let output = Setup::with(Setup::stock(&folder), directive).module(module).test();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{directive}: {said}");
    }
    assert!(Setup::new(&folder, module).test().status.success());
}
