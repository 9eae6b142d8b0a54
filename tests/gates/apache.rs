//! Apache with mod_flashpache.
//!
//! Most tests force the module to ask for everything, because the files of a test are always in memory; the backend is
//! then `fake_backend.py`, which answers by rule. The tests of cold files and hung disks use `flash backend`.

mod server;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::disk::Disk;
use crate::harness::{Folder, evict, kill, pattern, skip, wait_for, wait_until};
use server::{Apache, Backend, MPMS, Pending, Reply, Setup, checked_module, module};

/// Files of every kind that the handlers of the configuration treat in their own way.
fn site() -> Folder {
    let folder = Folder::with_hello();
    folder.www("empty.txt", "");
    folder.www("large.bin", pattern(3_000_001, 5));
    folder.www("index.html", "<p>top");
    folder.www("index/index.html", "<p>index");
    folder.www("second/index.txt", "second name");
    folder.www("list/a.txt", "a");
    folder.www("list/b.txt", "b");
    folder.www("page.shtml", "<p>before <!--#include virtual=\"/list/a.txt\" --> after");
    folder.www("two.html.en", "english");
    folder.www("two.html.de", "deutsch");
    folder.www("own.asis", "Status: 203 Own\nContent-type: text/plain\n\nas it is\n");
    folder.www("header/.htaccess", "Header set X-Own yes\n");
    folder.www("header/a.txt", "a");
    folder.www("denied/.htaccess", "Require all denied\n");
    folder.www("denied/a.txt", "secret");
    folder.www("broken/.htaccess", "NoSuchDirective\n");
    folder.www("broken/a.txt", "secret");
    folder.www("rewritten/.htaccess", "RewriteEngine On\nRewriteRule ^from$ /list/b.txt\n");
    folder.www("errors/.htaccess", "ErrorDocument 404 /list/a.txt\n");
    std::os::unix::fs::symlink("hello.txt", folder.served("link.txt")).unwrap();
    // Apache's ETag of a file that was changed within the last second is weak.
    let aged = Command::new("find")
        .arg(folder.path("www"))
        .args(["-exec", "touch", "-h", "-d", "1 hour ago", "{}", "+"])
        .status();
    assert!(aged.unwrap().success());
    folder
}

const COMPARED: &[(&str, &str, &[&str])] = &[
    ("GET", "/hello.txt", &[]),
    ("HEAD", "/hello.txt", &[]),
    ("GET", "/", &[]),
    ("GET", "/empty.txt", &[]),
    ("GET", "/large.bin", &[]),
    ("HEAD", "/large.bin", &[]),
    ("GET", "/large.bin", &["Range: bytes=0-0"]),
    ("GET", "/large.bin", &["Range: bytes=2000000-2999999"]),
    ("GET", "/large.bin", &["Range: bytes=-5"]),
    ("GET", "/large.bin", &["Range: bytes=2999990-"]),
    ("GET", "/large.bin", &["Range: bytes=0-9,1000000-1000009,-3"]),
    ("GET", "/large.bin", &["Range: bytes=9-1"]),
    ("GET", "/large.bin", &["Range: bytes=9000000-"]),
    ("GET", "/large.bin", &["Range: bytes=99999999999999999999-"]),
    ("GET", "/large.bin", &["Range: bytes=-"]),
    ("GET", "/large.bin", &["Range: bytes="]),
    ("GET", "/large.bin", &["Range: lines=1-2"]),
    ("GET", "/large.bin", &["Range: bytes=5-9", "If-Range: \"other\""]),
    ("GET", "/large.bin", &["Range: bytes=5-9", "If-Match: \"other\""]),
    ("GET", "/hello.txt", &["If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT"]),
    ("GET", "/hello.txt", &["If-None-Match: *"]),
    ("GET", "/hello.txt", &["Accept-Encoding: gzip"]),
    ("GET", "/large.bin", &["Accept-Encoding: gzip"]),
    ("GET", "/link.txt", &[]),
    ("GET", "/none", &[]),
    ("GET", "/none/at/all", &[]),
    ("GET", "/index", &[]),
    ("GET", "/index/", &[]),
    ("GET", "/index/?a=b", &[]),
    ("GET", "/second/", &[]),
    ("GET", "/list/", &[]),
    ("GET", "/list/?C=M;O=D", &[]),
    ("GET", "/hello.txt/more", &[]),
    ("GET", "/hello.txt/", &[]),
    ("GET", "/page.shtml", &[]),
    ("GET", "/page.shtml/more", &[]),
    ("GET", "/two", &["Accept-Language: de"]),
    ("GET", "/two.html", &["Accept-Language: en"]),
    ("GET", "/two", &["Accept: image/png", "Accept-Language: fr"]),
    ("GET", "/own.asis", &[]),
    ("GET", "/header/a.txt", &[]),
    ("GET", "/denied/a.txt", &[]),
    ("GET", "/broken/a.txt", &[]),
    ("GET", "/rewritten/from", &[]),
    ("GET", "/errors/none", &[]),
    ("GET", "/.htaccess", &[]),
    ("GET", "/%2e%2e/etc/passwd", &[]),
    ("GET", "/a%00b", &[]),
    ("GET", "//list//a.txt", &[]),
    ("POST", "/hello.txt", &["Content-Length: 0"]),
    ("PUT", "/hello.txt", &["Content-Length: 0"]),
    ("OPTIONS", "/hello.txt", &[]),
    ("OPTIONS", "*", &[]),
    ("TRACE", "/hello.txt", &[]),
    ("BREW", "/hello.txt", &[]),
];

/// The answers to all of them. Each request is sent alone, so that a listing has the same access times.
fn answers(apache: &Apache) -> Vec<(String, (String, Vec<u8>))> {
    let ask = |&(method, target, fields): &(&str, &str, &[&str])| {
        let reply = Pending::to(apache.address, method, target, fields).reply();
        (format!("{method} {target} {fields:?}"), reply.lasting())
    };
    let mut answers: Vec<_> = COMPARED.iter().map(ask).collect();
    let long = format!("/{}", "long/".repeat(900));
    answers.push(("a long name".to_owned(), apache.get(&long).lasting()));
    answers
}

fn assert_same(stock: &[(String, (String, Vec<u8>))], other: &[(String, (String, Vec<u8>))]) {
    for ((request, expected), (_, found)) in stock.iter().zip(other) {
        assert_eq!(expected.0, found.0, "the head of {request}");
        assert!(expected.1 == found.1, "the body of {request}: {}", found.1.escape_ascii());
    }
    assert_eq!(stock.len(), other.len());
}

#[test]
fn every_answer_is_that_of_apache_without_the_module() {
    let Some(module) = module() else { return };
    for mpm in MPMS {
        let folder = site();
        // The addresses of the servers differ, and `Host` has none.
        let stock = answers(&Setup::stock(&folder, mpm).start());
        assert!(stock.iter().any(|(_, (head, _))| head.contains(" 206 ")));

        let backend = Backend::fake(&folder, &["--delay-ms", "1"]);
        let forced = Setup::new(&folder, mpm, module).forced().start();
        assert_same(&stock, &answers(&forced));
        assert!(backend.count("WARM_NAME") > COMPARED.len() && backend.count("WARM_RANGE") > 300);
        assert!(backend.messages().iter().any(|message| message.ends_with("www/header/.htaccess")));
        drop(forced);
        let plain = Setup::new(&folder, mpm, module).start();
        assert_same(&stock, &answers(&plain));
        drop(backend);
        // Nobody answers.
        assert_same(&stock, &answers(&plain));
    }
}

#[test]
fn many_requests_have_the_bytes_of_apache_without_the_module() {
    let Some(module) = module() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/tests/identity.py");
    for mpm in MPMS {
        let (folder, gated) = (Folder::new(), Folder::new());
        let backend = Backend::fake(&gated, &[]);
        // Apache's ETag of a file that was changed within the last second is weak.
        let same = "FileETag Size";
        let stock = Setup::stock(&folder, mpm).with(same).start();
        let other = Setup::new(&gated, mpm, module).root(&folder).with(same);
        let other = other.forced().with("FlashpacheFirst 65536").start();
        let mut command = Command::new("python3");
        command.arg(&script).args(["--stock", &format!("http://{}", stock.address)]);
        command.args(["--gated", &format!("http://{}", other.address), "--ranges", "30", "--root"]);
        let output = command.arg(folder.path("www")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.stderr.is_empty() && said.contains("identity: seed "), "{mpm}: {output:?}");
        // Apache's boundary between ranges varies in length, and with it the length of the answer. Each start of Apache
        // has an order of its own for the methods in `Allow`, which the answers to other methods have.
        let varies = |line: &str| {
            let several = line.split_once("Range: bytes=").is_some_and(|(_, rest)| rest.contains(','));
            several || !(line.contains("b'GET ") || line.contains("b'HEAD "))
        };
        let differs = said.lines().any(|line| line.starts_with("different: ") && !varies(line));
        assert!(!differs, "{mpm}: {said}");
        assert!(backend.count("WARM_RANGE") > 100, "{mpm}");
    }
}

#[test]
fn files_out_of_memory_are_held_and_then_served() {
    let Some(module) = module() else { return };
    let folder = Folder::new();
    for number in 0..6 {
        evict(&folder.www(&format!("cold{number}.bin"), pattern(400_000, number)));
    }
    let backend = Backend::real(&folder, &[]);
    let apache = Setup::new(&folder, "event", module).start();
    for number in 0..6 {
        let reply = apache.get(&format!("/cold{number}.bin"));
        assert!(reply.status == 200 && reply.body == pattern(400_000, number), "{}", reply.head);
    }
    if apache.counter("ranges") == 0 {
        skip("in part: this file system keeps what it is told to drop");
    } else {
        let line = apache.wait_for_log("/cold");
        assert!(apache.counter("requests_held") > 0, "{line}");
    }
    // In memory now.
    let asked = apache.counter("ranges") + apache.counter("names");
    assert_eq!(apache.get("/cold1.bin").status, 200);
    assert_eq!(apache.counter("ranges") + apache.counter("names"), asked);
    assert_eq!(apache.counter("backend_ended") + apache.counter("backend_garbage"), 0);
    drop(backend);
}

/// A failure of the backend, the words that the log has once, and the counter.
const FAILURES: [(&[&str], &str, &str); 7] = [
    (&["--hello", "2"], "another version", "backend_version"),
    (&["--hello", "user"], "does not serve this server's user", "backend_user"),
    (&["--hello", "room"], "no room", "backend_room"),
    (&["--hello", "silent"], "does not answer", "backend_silent"),
    (&["--answer", "silent"], "does not answer", "backend_silent"),
    (&["--answer", "garbage"], "not of the protocol", "backend_garbage"),
    (&["--answer", "close"], "closed the connection", "backend_ended"),
];

#[test]
fn without_a_working_backend_requests_go_on() {
    let Some(module) = module() else { return };
    for (index, (options, words, counter)) in FAILURES.iter().enumerate() {
        let folder = Folder::with_hello();
        let backend = Backend::fake(&folder, options);
        let mpm = MPMS[index % MPMS.len()];
        let apache = Setup::new(&folder, mpm, module).forced().with("FlashpacheTimeout 1").start();
        for _ in 0..3 {
            let reply = apache.get("/hello.txt");
            assert_eq!((reply.status, reply.text()), (200, "hello\n".into()), "{options:?}");
        }
        assert!(apache.counter(counter) > 0, "{options:?}");
        assert_eq!(apache.errors().matches(words).count(), 1, "{options:?}: {}", apache.errors());
        assert!(apache.wait_for_log("/hello.txt").contains(" error "), "{options:?}");
        drop(backend);
    }
}

#[test]
fn an_absent_backend_is_logged_once_and_found_when_it_starts() {
    let Some(module) = module() else { return };
    for mpm in MPMS {
        let folder = Folder::with_hello();
        let apache = Setup::new(&folder, mpm, module).forced().start();
        for _ in 0..5 {
            assert_eq!(apache.get("/hello.txt").text(), "hello\n");
        }
        assert_eq!(apache.errors().matches("cannot be reached").count(), 1, "{}", apache.errors());
        let backend = Backend::fake(&folder, &[]);
        wait_until("the backend to be found", || {
            assert_eq!(apache.get("/hello.txt").text(), "hello\n");
            apache.errors().contains("works again")
        });
        assert!(backend.count("HELLO") > 0);
        // Killed while requests are held: they are answered, and no later one fails.
        drop(backend);
        let backend = Backend::fake(&folder, &["--delay-ms", "600000"]);
        let held: Vec<Pending> = wait_for("held requests", || {
            let asked: Vec<Pending> = (0..3).map(|_| apache.ask("/hello.txt")).collect();
            std::thread::sleep(Duration::from_millis(100));
            (apache.counter("waiting") >= 3).then_some(asked)
        });
        drop(backend);
        for request in held {
            assert_eq!(request.reply().text(), "hello\n");
        }
        let backend = Backend::fake(&folder, &[]);
        wait_until("the backend to be found again", || {
            assert_eq!(apache.get("/hello.txt").text(), "hello\n");
            apache.errors().matches("works again").count() == 2
        });
        drop(backend);
    }
}

#[test]
fn a_busy_or_late_backend_gives_503_and_failing_files_apaches_own_answer() {
    let Some(module) = module() else { return };
    for (answer, status, after, note) in [
        ("busy", 503, Some("2"), "busy"),
        ("errno=110", 503, Some("5"), "timeout"),
        ("errno=5", 200, None, "held"),
        ("errno=2", 200, None, "held"),
    ] {
        let folder = Folder::with_hello();
        let backend = Backend::fake(&folder, &["--answer", answer]);
        let apache = Setup::new(&folder, "worker", module).forced().start();
        let reply = apache.get("/hello.txt");
        assert_eq!((reply.status, reply.field("Retry-After")), (status, after), "{answer}");
        assert!(apache.wait_for_log("/hello.txt").contains(&format!(" {note} ")), "{answer}");
        // An index is looked for in subrequests; their refusal is the whole request's.
        assert_eq!(apache.get("/").status, if status == 503 { 503 } else { 200 }, "{answer}");
        drop(backend);
    }
}

#[test]
fn requests_beyond_the_quota_get_503_and_others_are_answered() {
    let Some(module) = module() else { return };
    for mpm in MPMS {
        let folder = site();
        let backend = Backend::fake(&folder, &["--answer", "silent"]);
        let more = format!(
            "FlashpacheWaiters 3\n<VirtualHost *:*>\nServerName e2e.test\n</VirtualHost>\n\
             <VirtualHost *:*>\nServerName hot.test\nDocumentRoot {}\nFlashpache Off\n</VirtualHost>",
            folder.path("www").display()
        );
        let apache = Setup::new(&folder, mpm, module).forced().with(&more).start();
        let held: Vec<Pending> =
            (0..3).flat_map(|_| apache.hold(&backend, "/large.bin", "WARM", 1)).collect();
        for _ in 0..20 {
            let reply = apache.get("/large.bin");
            assert_eq!(reply.status, 503, "{mpm}");
            assert!(reply.field("Retry-After").unwrap().parse::<u32>().unwrap() >= 1);
            assert_eq!(apache.get_with("/hello.txt", &["Host: hot.test"]).text(), "hello\n", "{mpm}");
        }
        assert!(held.iter().all(Pending::is_held), "{mpm}");
        assert_eq!(apache.counter("requests_busy"), 20);
        drop(backend);
        for request in held {
            assert!(request.reply().body == pattern(3_000_001, 5), "{mpm}");
        }
    }
}

#[test]
fn requests_that_wait_leave_threads_in_every_process() {
    let Some(module) = module() else { return };
    // Two processes of four threads each, of which each may hold three, wherever the connections are.
    for (waiters, held_most) in [(7, 6), (3, 3)] {
        let folder = site();
        let _backend = Backend::fake(&folder, &["--answer", "silent"]);
        let more = format!(
            "StartServers 2\nThreadsPerChild 4\nMaxRequestWorkers 8\nMinSpareThreads 1\nMaxSpareThreads 8\n\
             FlashpacheWaiters {waiters}\n\
             <VirtualHost *:*>\nServerName e2e.test\nDocumentRoot {}\nFlashpache Off\n</VirtualHost>\n\
             <VirtualHost *:*>\nServerName cold.test\n</VirtualHost>",
            folder.path("www").display()
        );
        let apache = Setup::new(&folder, "event", module).forced().with(&more).start();
        let cold = || Pending::to(apache.address, "GET", "/large.bin", &["Host: cold.test"]);
        let mut held: Vec<Pending> = Vec::new();
        wait_until("the processes to hold what they may", || {
            held.retain(Pending::is_held);
            held.push(cold());
            apache.counter("waiting") == held_most
        });
        for _ in 0..20 {
            assert_eq!(cold().reply().status, 503);
            assert_eq!(apache.get("/hello.txt").text(), "hello\n");
        }
        assert_eq!(apache.counter("waiting"), held_most);
    }
}

#[test]
fn a_refused_htaccess_never_opens_what_it_protects() {
    let Some(module) = module() else { return };
    for (answer, after) in [("busy", "2"), ("errno=110", "5")] {
        let folder = site();
        folder.www("denied/index.html", "secret");
        folder.www("sorry.html", "sorry");
        let backend = Backend::choosy(&folder, "denied/.htaccess", &["--answer", answer]);
        let apache = Setup::new(&folder, "event", module).forced().start();
        for target in ["/denied/a.txt", "/denied/", "/denied/none", "/denied/index"] {
            let reply = apache.get(target);
            assert_eq!((reply.status, reply.field("Retry-After")), (503, Some(after)), "{answer} {target}");
            assert!(!reply.text().contains("secret"), "{answer} {target}");
        }
        drop(apache);
        // The error's own page comes from the same place, and is still denied.
        for (page, text) in [("/sorry.html", "sorry"), ("/denied/a.txt", "Service Unavailable")] {
            let more = format!("ErrorDocument 503 {page}");
            let apache = Setup::new(&folder, "event", module).forced().with(&more).start();
            let reply = apache.get("/denied/index.html");
            assert_eq!((reply.status, reply.field("Retry-After")), (503, Some(after)), "{answer} {page}");
            assert!(reply.text().contains(text) && !reply.text().contains("secret"), "{}", reply.text());
        }
        drop(backend);
        let apache = Setup::new(&folder, "event", module).start();
        assert_eq!(apache.get("/denied/a.txt").status, 403);
    }
}

#[test]
fn a_refused_part_does_not_change_a_page() {
    let Some(module) = module() else { return };
    let folder = site();
    let backend = Backend::choosy(&folder, "list/a.txt", &["--answer", "busy"]);
    let apache = Setup::new(&folder, "event", module).forced().start();
    assert_eq!(apache.get("/page.shtml").text(), "<p>before a after");
    assert!(apache.wait_for_log("/page.shtml").contains(" passed "));
    assert_eq!(apache.get("/list/a.txt").status, 503);
    drop(backend);
    // An index that is refused is not replaced by the next one.
    folder.www("both/index.html", "first");
    folder.www("both/index.txt", "second");
    let _backend = Backend::choosy(&folder, "both/index.html", &["--answer", "busy"]);
    wait_until("the refusal", || {
        let reply = apache.get("/both/");
        assert!(reply.status == 503 || reply.text() == "first", "{}", reply.text());
        reply.status == 503
    });
}

#[test]
fn a_restart_while_requests_are_held_loses_none() {
    let Some(module) = module() else { return };
    for mpm in MPMS {
        let folder = site();
        let backend = Backend::choosy(&folder, "list/a.txt", &["--answer", "silent"]);
        // The new children need places of their own, since the old ones keep theirs while they hold requests.
        let settings = "FlashpacheTimeout 120\nServerLimit 24\nMaxRequestWorkers 24";
        let mut apache = Setup::new(&folder, mpm, module).forced().with(settings).start();
        let before = apache.children();
        let held = apache.hold(&backend, "/list/a.txt", "list/a.txt", 2);
        apache.signal("USR1");
        wait_until("the new configuration", || {
            apache.errors().matches("resuming normal operations").count() == 2
        });
        wait_until("new children", || apache.children().iter().any(|pid| !before.contains(pid)));
        for _ in 0..10 {
            assert_eq!(apache.get("/hello.txt").text(), "hello\n", "{mpm}");
        }
        // The counters survive, and the old children's requests are still counted.
        assert_eq!(apache.counter("waiting"), 2, "{mpm}");
        drop(backend);
        for request in held {
            assert_eq!(request.reply().text(), "a", "{mpm}");
        }
        wait_until("the old children's end", || !apache.children().iter().any(|pid| before.contains(pid)));
        assert_eq!(apache.counter("waiting"), 0, "{mpm}");
        // A stop does not wait for what is held.
        let backend = Backend::choosy(&folder, "list/a.txt", &["--answer", "silent"]);
        wait_until("the new backend", || {
            apache.errors().contains("works again") || {
                apache.get("/hello.txt");
                false
            }
        });
        let _held = apache.hold(&backend, "/list/a.txt", "list/a.txt", 1);
        apache.signal("TERM");
        apache.wait();
    }
}

#[test]
fn wrong_directives_are_refused_with_the_reason() {
    let Some(module) = module() else { return };
    let folder = Folder::new();
    for (directive, reason) in [
        ("Flashpache Perhaps", "Flashpache must be On or Off"),
        ("FlashpacheBackend run/backend.sock", "not an absolute path"),
        (&format!("FlashpacheBackend /{}", "x".repeat(120)), "at most 107 bytes"),
        ("FlashpacheWaiters 0", "FlashpacheWaiters: 0 is not a number from 1"),
        ("FlashpacheWaiters many", "many is not a number"),
        ("FlashpacheWaiters 12", "must be less than MaxRequestWorkers, which is 12"),
        ("FlashpacheTimeout 0", "FlashpacheTimeout: 0 is not a number from 1 to 3600"),
        ("FlashpacheTimeout 30s", "30s is not a number"),
        ("FlashpacheTimeout -1", "-1 is not a number"),
        ("FlashpacheFirst 99999999999999999999", "is not a number from 0 to 67108864"),
        ("FlashpacheForce", "FlashpacheForce must be On or Off"),
        (
            "<VirtualHost *:*>\nFlashpacheBackend /run/x\n</VirtualHost>",
            "cannot occur within <VirtualHost> section",
        ),
        ("<Directory />\nFlashpacheTimeout 3\n</Directory>", "not allowed"),
    ] {
        for mpm in MPMS {
            let (right, words) = Setup::new(&folder, mpm, module).with(directive).check();
            assert!(!right && words.contains(reason), "{directive}: {words}");
        }
    }
    let right = "FlashpacheWaiters 11\nFlashpacheTimeout 3600\nFlashpacheFirst 0\nFlashpacheForce Off\n\
                 <Directory />\nFlashpache Off\n</Directory>";
    assert_eq!(Setup::new(&folder, "event", module).with(right).check(), (true, "Syntax OK\n".to_owned()));
}

#[test]
fn counters_are_shown_to_people_and_programs() {
    let Some(module) = module() else { return };
    let folder = Folder::with_hello();
    let _backend = Backend::fake(&folder, &[]);
    let apache = Setup::new(&folder, "prefork", module).forced().start();
    for _ in 0..8 {
        assert_eq!(apache.get("/hello.txt").status, 200);
    }
    // The first requests may look for a .htaccess that the kernel knows nothing about, and the fake does not look for it.
    wait_until("the requests to be logged", || {
        apache.counter("requests_held") + apache.counter("requests_passed") == 8
    });
    let held = format!("Flashpache-requests_held: {}\n", apache.counter("requests_held"));
    assert!(apache.get("/server-status").text().contains("<h2>Flashpache</h2>"));
    assert!(apache.get("/server-status?auto").text().contains(&held));
    assert_eq!(Pending::to(apache.address, "POST", "/counters", &["Content-Length: 0"]).reply().status, 405);
}

fn descriptors(apache: &Apache) -> Vec<(u32, usize)> {
    let count = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    apache.children().into_iter().map(|pid| (pid, count(pid))).collect()
}

#[test]
fn requests_of_a_crashed_process_no_longer_count() {
    let Some(module) = module() else { return };
    let folder = site();
    let backend = Backend::fake(&folder, &["--answer", "silent"]);
    let apache = Setup::new(&folder, "prefork", module).forced().with("FlashpacheWaiters 1").start();
    let _lost = apache.hold(&backend, "/large.bin", "WARM", 1);
    // The holder has the client's and the backend's connection open.
    let (holder, _) = descriptors(&apache).into_iter().max_by_key(|&(_, count)| count).unwrap();
    assert_eq!(apache.get("/hello.txt").status, 503);
    kill("KILL", holder);
    // The other processes are enough, so that no new one takes its place.
    apache.wait_until_held(0);
    let next = apache.hold(&backend, "/hello.txt", "WARM", 1);
    assert_eq!(apache.counter("waiting"), 1);
    assert!(next.iter().all(Pending::is_held));
}

#[test]
fn no_descriptor_is_left_behind() {
    let Some(module) = module() else { return };
    let folder = site();
    let _backend = Backend::fake(&folder, &[]);
    // One child, so that the same process serves every request.
    let apache = Setup::new(&folder, "event", module).forced().with("FlashpacheFirst 100000").start();
    let ask_everything = || {
        for _ in 0..2 {
            answers(&apache);
            for _ in 0..5 {
                apache.ask("/large.bin").abort();
            }
        }
    };
    ask_everything();
    // Apache closes some connections after a moment.
    std::thread::sleep(Duration::from_secs(3));
    let before = descriptors(&apache);
    ask_everything();
    // The module may keep this many connections to the backend. A descriptor left behind by each request would be many
    // more.
    const KEPT_MAX: usize = 12;
    wait_until("the descriptors to be as before", || {
        let now = descriptors(&apache);
        now.len() == before.len()
            && now.iter().zip(&before).all(|(now, then)| now.0 == then.0 && now.1 <= then.1 + KEPT_MAX)
    });
}

#[test]
fn a_deleted_file_is_left_to_the_backend_to_close() {
    let Some(module) = module() else { return };
    let folder = site();
    let file = folder.www("doomed.bin", pattern(30_000_000, 3));
    let backend = Backend::fake(&folder, &[]);
    let apache = Setup::new(&folder, "event", module).forced().with("FlashpacheFirst 4096").start();
    let slow = apache.ask("/doomed.bin");
    wait_until("the answer to begin", || !slow.is_held());
    // After a short request the module does not look.
    std::thread::sleep(Duration::from_millis(200));
    fs::remove_file(file).unwrap();
    assert!(slow.reply().body == pattern(30_000_000, 3));
    wait_until("the close", || backend.count("CLOSE") == 1);
    wait_until("the close to be counted", || apache.counter("closes") == 1);
}

#[test]
fn a_close_is_sent_again_after_a_full_socket_or_a_restart_of_the_backend() {
    let Some(module) = module() else { return };
    for is_full in [true, false] {
        let folder = site();
        let file = folder.www("doomed.bin", pattern(30_000_000, 3));
        let mut backend = Backend::fake(&folder, &[]);
        let mut setup = Setup::new(&folder, "event", module).forced().with("FlashpacheFirst 4096");
        if is_full {
            setup = setup.preload(full_socket(&folder));
        }
        let apache = setup.start();
        let slow = apache.ask("/doomed.bin");
        wait_until("the answer to begin", || !slow.is_held());
        // After a short request the module does not look.
        std::thread::sleep(Duration::from_millis(200));
        fs::remove_file(file).unwrap();
        if !is_full {
            drop(backend);
            backend = Backend::fake(&folder, &[]);
        }
        assert!(slow.reply().body == pattern(30_000_000, 3));
        wait_until("the close", || backend.count("CLOSE") == 1);
        wait_until("the close to be counted", || apache.counter("closes") == 1);
    }
}

/// A library with a `sendmsg` that finds the socket full at the first CLOSE of the protocol.
fn full_socket(folder: &Folder) -> String {
    let source = folder.write(
        "full.c",
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <sys/socket.h>\n\
         ssize_t sendmsg(int s, const struct msghdr *m, int flags) {\n\
         static int calls;\n\
         ssize_t (*next)(int, const struct msghdr *, int) = dlsym(RTLD_NEXT, \"sendmsg\");\n\
         if (*(char *)m->msg_iov->iov_base == 4 && calls++ == 0) { errno = EAGAIN; return -1; }\n\
         return next(s, m, flags);\n}\n",
    );
    let library = folder.path("full.so");
    let built =
        Command::new("gcc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).arg("-ldl").status();
    assert!(built.unwrap().success());
    library.to_str().unwrap().to_owned()
}

#[test]
fn hung_disks_delay_only_their_own_requests() {
    let Some(module) = module() else { return };
    for mpm in MPMS {
        let folder = Folder::with_hello();
        for name in ["a.txt", "b.txt", "c.txt", "d.txt"] {
            folder.write(&format!("disk/{name}"), name);
        }
        let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.path("mount")) else { return };
        disk.tell("ttl 0");
        let _backend = Backend::real(&folder, &["--job-deadline", "1h"]);
        let more = format!(
            "FlashpacheTimeout 2\nFlashpacheWaiters 4\nAlias /disk {0}\n<Directory {0}>\nRequire all granted\n</Directory>",
            folder.path("mount").display()
        );
        let mut apache = Setup::new(&folder, mpm, module).with(&more).start();
        assert_eq!(apache.get_in_time("/disk/a.txt").text(), "a.txt");
        disk.tell("lookup hang");
        let hung: Vec<Pending> = (0..3).map(|_| apache.ask("/disk/b.txt")).collect();
        disk.wait_until_held(1);
        for _ in 0..20 {
            assert_eq!(apache.get_in_time("/hello.txt").text(), "hello\n");
        }
        for request in hung {
            let reply = request.reply();
            assert_eq!((reply.status, reply.field("Retry-After").is_some()), (503, true), "{mpm}");
        }
        assert!(apache.counter("requests_timeout") >= 3, "{mpm}");
        // A restart and a stop end while the disk hangs.
        let held = apache.hold_one("/disk/c.txt");
        apache.signal("USR1");
        assert_eq!(held.reply().status, 503, "{mpm}");
        wait_until("the new children", || apache.errors().matches("resuming normal operations").count() == 2);
        assert_eq!(apache.get_in_time("/hello.txt").text(), "hello\n");
        let _held = apache.hold_one("/disk/d.txt");
        apache.signal("TERM");
        apache.wait();
        disk.tell("all ok");
    }
}

/// The library that the checked module needs in the process before any other.
fn checking_library() -> Option<String> {
    let output = Command::new("gcc").arg("-print-file-name=libasan.so").output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    let found = Path::new(&name).is_absolute();
    if !found {
        skip("needs gcc's libasan");
    }
    found.then_some(name)
}

#[test]
fn aborting_clients_cause_no_memory_error() {
    let Some(module) = checked_module() else { return };
    let Some(library) = checking_library() else { return };
    for mpm in MPMS {
        let folder = site();
        let backend = Backend::fake(&folder, &["--delay-ms", "2"]);
        let setup = Setup::new(&folder, mpm, module).forced().with("FlashpacheFirst 65536");
        let apache = setup.preload(library.clone()).start();
        for round in 0..40 {
            let targets =
                ["/large.bin", "/page.shtml", "/index/", "/two", "/denied/a.txt", "/list/", "/none/x"];
            let asked: Vec<Pending> = targets.iter().map(|target| apache.ask(target)).collect();
            std::thread::sleep(Duration::from_millis(round % 13));
            for request in asked {
                request.abort();
            }
            if round % 10 == 5 {
                backend.signal("STOP");
                backend.signal("CONT");
            }
        }
        apache.wait_until_held(0);
        let replies: Vec<Reply> =
            COMPARED.iter().map(|(m, t, f)| Pending::to(apache.address, m, t, f).reply()).collect();
        assert!(replies.iter().filter(|reply| reply.status == 200).count() > 10);
        drop(backend);
        assert_eq!(apache.get("/hello.txt").text(), "hello\n");
        apache.signal("USR1");
        wait_until("the restart", || apache.errors().matches("resuming normal operations").count() == 2);
        assert_eq!(apache.get("/hello.txt").text(), "hello\n");
        let mut said = apache.errors();
        let _ = write!(said, "{}", apache.stderr());
        assert!(!said.contains("AddressSanitizer") && !said.contains("exit signal"), "{said}");
    }
}
