//! Servers without a module, which ask the warm endpoint: nginx, h2o and lighttpd with the configurations of
//! `modules/endpoint`, and the endpoint's two sockets themselves.

mod servers;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::harness::disk::Disk;
use crate::harness::{Folder, PATIENCE, pattern, skip, wait_for, wait_until};
use servers::{Backend, Kind, Page, Web, connect_and_ask};

/// A site with names that a careless gate would mix up.
fn site() -> Folder {
    let folder = Folder::with_hello();
    for name in
        ["a b.txt", "a%20b.txt", "q?x.txt", "a+b&c;d=e.txt", "\u{e9}.txt", "sub/index.html", "%41.txt"]
    {
        folder.www(name, name);
    }
    folder.www("large.bin", pattern(3_000_001, 1));
    folder
}

/// Requests, with the status and the file of the answer.
const REQUESTS: &[(&str, u16, &str)] = &[
    ("/hello.txt", 200, "hello\n"),
    ("/hello.txt?a=/../..&root=/etc", 200, "hello\n"),
    ("/a%20b.txt", 200, "a b.txt"),
    ("/a%2520b.txt", 200, "a%20b.txt"),
    ("/q%3Fx.txt", 200, "q?x.txt"),
    ("/a+b&c;d=e.txt", 200, "a+b&c;d=e.txt"),
    ("/%C3%A9.txt", 200, "\u{e9}.txt"),
    ("/%2541.txt", 200, "%41.txt"),
    ("/sub/", 200, "sub/index.html"),
    ("/sub", 301, ""),
    ("/sub/../a%20b.txt", 200, "a b.txt"),
    ("/sub/%2e%2e/hello.txt", 200, "hello\n"),
    ("/none", 404, ""),
];

#[track_caller]
fn assert_right(web: &Web) {
    for (target, status, content) in REQUESTS {
        let page = web.get(target, "");
        assert_eq!(page.status, *status, "{:?} {target}: {page:?}", web.kind);
        if *status == 200 {
            assert_eq!(page.text(), *content, "{:?} {target}", web.kind);
        }
    }
    let large = pattern(3_000_001, 1);
    assert!(web.get("/large.bin", "").body == large, "{:?}", web.kind);
    let page = web.get("/large.bin", "Range: bytes=2000000-2000009\r\n");
    assert!(
        page.status == 206 && page.body == large[2_000_000..2_000_010],
        "{:?}: {}",
        web.kind,
        page.status
    );
    let page = web.get("/large.bin", "Range: bytes=-3\r\n");
    assert!(page.status == 206 && page.body == large[2_999_998..], "{:?}: {}", web.kind, page.status);
}

#[test]
fn bytes_are_those_of_the_files() {
    for kind in Kind::installed() {
        let folder = site();
        let backend = Backend::start(&folder, &[]);
        let web = Web::start(kind, &folder);
        assert_right(&web);
        let asked = backend.asked();
        assert!(asked >= REQUESTS.len() as u64, "{kind:?} asked {asked} times");
    }
}

#[test]
fn a_file_on_a_hung_disk_is_waited_for_while_others_are_answered() {
    for kind in Kind::installed() {
        let folder = site();
        for op in ["lookup", "open", "read"] {
            folder.write(&format!("disk/{op}.txt"), op);
        }
        let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
        let _backend = Backend::start(&folder, &[]);
        let web = Web::start(kind, &folder);
        assert_eq!(web.get("/hello.txt", "").status, 200);
        for op in ["lookup", "open", "read"] {
            disk.tell(&format!("{op} hang"));
            let held = web.ask(&format!("/mount/{op}.txt"), "");
            disk.wait_until_held(1);
            for _ in 0..10 {
                assert_eq!(web.get("/hello.txt", "").text(), "hello\n", "{kind:?}");
                assert_eq!(web.get("/large.bin", "").body.len(), 3_000_001, "{kind:?}");
            }
            disk.tell("all ok");
            let page = held.page();
            assert_eq!((page.status, page.text()), (200, op.into()), "{kind:?}");
        }
    }
}

#[test]
fn a_wait_beyond_the_deadline_is_503_with_retry_after() {
    for kind in Kind::installed() {
        let folder = site();
        folder.write("disk/a.txt", "from the disk");
        let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
        let _backend = Backend::start(&folder, &["--job-deadline", "300ms"]);
        let web = Web::start(kind, &folder);
        disk.tell("lookup hang");
        let page = web.get("/mount/a.txt", "");
        assert_eq!(page.status, 503, "{kind:?}: {page:?}");
        assert!(page.field("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()), "{page:?}");
        disk.tell("all ok");
        let page = wait_for("the disk's answer", || {
            Some(web.get("/mount/a.txt", "")).filter(|page| page.status != 503)
        });
        assert_eq!(page.text(), "from the disk", "{kind:?}");
    }
}

#[test]
fn without_a_backend_nginx_and_h2o_serve_as_if_there_were_no_gate() {
    for kind in Kind::installed() {
        let folder = site();
        let web = Web::start(kind, &folder);
        if kind.fails_open() {
            assert_right(&web);
        } else {
            assert_eq!(web.get("/hello.txt", "").status, 503, "{kind:?}");
        }
        let backend = Backend::start(&folder, &[]);
        wait_until("the backend to be found", || web.get("/hello.txt", "").status == 200);
        wait_until("the backend to be asked", || {
            web.get("/hello.txt", "");
            backend.asked() > 0
        });
        backend.kill();
        let status = web.get("/hello.txt", "").status;
        // lighttpd answers 500 if its backend accepts a connection and ends.
        let expected: &[u16] = if kind.fails_open() { &[200] } else { &[500, 503] };
        assert!(expected.contains(&status), "{kind:?}: {status}");
        let _backend = Backend::start(&folder, &[]);
        wait_until("the next backend to be found", || web.get("/hello.txt", "").status == 200);
        assert_right(&web);
    }
}

#[test]
fn requests_that_wait_go_on_when_the_backend_is_killed() {
    for kind in Kind::installed().into_iter().filter(|kind| kind.fails_open()) {
        let folder = site();
        let backend = Backend::start(&folder, &["--delay", "3600000"]);
        let web = Web::start(kind, &folder);
        let held = [web.ask("/hello.txt", ""), web.ask("/sub/", "")];
        wait_until("both to be asked for", || backend.asked() == 2);
        backend.kill();
        assert_eq!(held.map(|held| held.page().text()), ["hello\n", "sub/index.html"], "{kind:?}");
    }
}

#[test]
fn a_site_outside_the_warm_roots_is_served_all_the_same() {
    for kind in Kind::installed() {
        let folder = site();
        std::fs::create_dir(folder.path("other")).unwrap();
        let backend = Backend::start_for(&folder, &folder.path("other"), &[]);
        let web = Web::start(kind, &folder);
        assert_right(&web);
        assert_eq!(backend.asked(), 0, "{kind:?}: no look-up outside the warm root");
    }
}

#[test]
fn a_name_with_a_line_end_adds_nothing_to_the_request() {
    for kind in Kind::installed() {
        let folder = site();
        let name = "n\r\nGET /etc HTTP/1.1\r\n";
        folder.www(name, "lines");
        let backend = Backend::start(&folder, &[]);
        let web = Web::start(kind, &folder);
        let page = web.get("/n%0D%0AGET%20/etc%20HTTP/1.1%0D%0A", "");
        // lighttpd refuses control characters. The name has a slash, so there is no such file.
        assert!([400, 404].contains(&page.status) || page.text() == "lines", "{kind:?}: {page:?}");
        assert!(backend.asked() <= 1, "{kind:?}");
    }
}

/// One request to the endpoint's HTTP socket.
fn ask_http(folder: &Folder, target: &str) -> Page {
    let mut stream = UnixStream::connect(folder.path("warm.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    Page::read(stream)
}

#[test]
fn the_endpoint_opens_nothing_outside_its_roots() {
    let folder = site();
    folder.write("outside.txt", "x");
    symlink("../outside.txt", folder.served("out")).unwrap();
    symlink(folder.served("hello.txt"), folder.served("in")).unwrap();
    // The root as an operator can write it.
    let backend = Backend::start_for(&folder, &folder.path("./www/../www/"), &[]);
    let www = folder.served("").to_str().unwrap().trim_end_matches('/').to_owned();
    for (target, status) in [
        (format!("{www}/hello.txt"), 204),
        (format!("{www}/in"), 204),
        (format!("{www}/none"), 204),
        (format!("{www}/"), 204),
        (format!("/../../hello.txt?root={www}"), 204),
        (format!("{www}/out"), 403),
        (format!("/out?root={www}"), 403),
        (format!("{www}/../outside.txt"), 403),
        (format!("{www}/..%2Foutside.txt"), 403),
        (format!("{www}2/hello.txt"), 403),
        ("/etc/passwd".into(), 403),
        ("/passwd?root=/etc".into(), 403),
        (format!("/etc/passwd?root={www}/../../.."), 403),
        ("/".into(), 403),
        (format!("{www}/a%00"), 400),
        (format!("{www}/hello.txt?x"), 400),
    ] {
        assert_eq!(ask_http(&folder, &target).status, status, "{target}");
    }
    assert_eq!(backend.asked(), 7, "names outside the roots are refused without a look at them");
}

/// Whether the kernel tells the backend that this file is in memory.
fn is_known(file: &Path) -> bool {
    let is_known = flash_prompt::file::is_part_resident(fs::File::open(file).unwrap(), 0, 1);
    if !is_known {
        skip("the kernel does not report which files are in memory");
    }
    is_known
}

#[test]
fn files_in_memory_are_answered_without_a_helper_while_others_fill_the_queue() {
    let folder = site();
    let hot = folder.served("hello.txt");
    fs::create_dir_all(folder.path("disk")).unwrap();
    let Some(mut disk) = Disk::mount(&folder.path("disk"), &folder.served("mount")) else { return };
    if !is_known(&hot) {
        return;
    }
    let backend = Backend::start(&folder, &["--helpers", "1"]);
    disk.tell("lookup hang");
    // Each on its own connection, until one is refused.
    let mut held = Vec::new();
    let refused = (0..4000).find_map(|number| {
        let mut stream = UnixStream::connect(folder.path("warm.sock")).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let cold = folder.served(format!("mount/{number}.txt"));
        write!(stream, "GET {} HTTP/1.1\r\nHost: x\r\n\r\n", cold.display()).unwrap();
        let mut answer = [0; 12];
        let has_answer = stream.read_exact(&mut answer).is_ok();
        held.push(stream);
        has_answer.then_some(answer)
    });
    assert_eq!(refused, Some(*b"HTTP/1.1 503"), "{} questions wait", held.len());
    let www = folder.served("").to_str().unwrap().trim_end_matches('/').to_owned();
    for name in ["hello.txt", "a%20b.txt", "sub/", "sub", "hello.txt"] {
        assert_eq!(ask_http(&folder, &format!("{www}/{name}")).status, 204, "{name}");
    }
    assert_eq!(backend.answered_from_memory(), 5);
    // Nothing outside the root is looked at in this way either.
    symlink("../outside.txt", folder.served("out")).unwrap();
    folder.write("outside.txt", "x");
    let mut stream = UnixStream::connect(folder.path("warm.sock")).unwrap();
    write!(stream, "GET {www}/out HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    wait_until("it to be asked for", || backend.asked() > 5 + held.len() as u64);
    assert_eq!(backend.answered_from_memory(), 5);
    disk.tell("all ok");
}

#[test]
fn a_root_that_is_switched_to_another_directory_is_looked_up_again() {
    let folder = site();
    folder.write("next/new.txt", "new");
    symlink(folder.served(""), folder.path("current")).unwrap();
    let backend = Backend::start_for(&folder, &folder.path("current"), &[]);
    let asked = |name: &str| ask_http(&folder, folder.path("current").join(name).to_str().unwrap()).status;
    if !is_known(&folder.served("hello.txt")) {
        return;
    }
    assert_eq!((asked("hello.txt"), backend.answered_from_memory()), (204, 1));
    fs::remove_file(folder.path("current")).unwrap();
    symlink(folder.path("next"), folder.path("current")).unwrap();
    wait_until("the new directory to be used", || {
        let before = backend.answered_from_memory();
        asked("hello.txt") == 204 && backend.answered_from_memory() == before
    });
    assert_eq!(asked("new.txt"), 204);
}

#[test]
fn names_are_looked_up_at_the_start() {
    let folder = site();
    symlink("..", folder.served("up")).unwrap();
    let names = folder.served("");
    let missing = folder.path("missing");
    let options = ["--names", missing.to_str().unwrap(), "--names", names.to_str().unwrap()];
    let backend = Backend::start(&folder, &options);
    // hello.txt, the seven names of the site with sub, large.bin, and the link.
    wait_until("all names to be looked up", || backend.looked_up() == 11);
    assert_eq!(ask_http(&folder, names.join("hello.txt").to_str().unwrap()).status, 204);
    assert_eq!((backend.looked_up(), backend.stderr()), (11, String::new()));
}

#[test]
fn garbage_does_not_harm_other_connections() {
    let folder = site();
    let backend = Backend::start(&folder, &[]);
    let mut idle = Vec::new();
    for (socket, wrong) in [
        ("warm.sock", &b"\x01\x01\0\x01\0\x08\0\0\0\x02\0\0\0\0\0\0"[..]),
        ("warm.sock", b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"),
        ("warm.sock", &[b'a'; 100_000]),
        ("fcgi.sock", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("fcgi.sock", &[1; 100_000]),
        ("fcgi.sock", &[0xff; 100_000]),
        ("fcgi.sock", b"\x01\x01\0\x01\0\x08\0\0\0\x02\0\0\0\0\0\0\x01\x0b\0\0"),
    ] {
        for _ in 0..20 {
            let mut stream = UnixStream::connect(folder.path(socket)).unwrap();
            // The endpoint can close the connection before all of it is sent.
            let _ = stream.write_all(wrong);
            idle.push(stream);
        }
    }
    let hello = folder.served("hello.txt").to_str().unwrap().to_owned();
    assert_eq!(ask_http(&folder, &hello).status, 204);
    let answer = connect_and_ask(&folder.path("fcgi.sock"), &hello);
    assert!(answer.windows(14).any(|bytes| bytes == b"Status: 200 OK"), "{}", answer.escape_ascii());
    drop(idle);
    assert_eq!(ask_http(&folder, &hello).status, 204);
    assert_eq!(backend.stderr(), "");
}

#[test]
fn a_kept_connection_answers_one_request_after_another() {
    let folder = site();
    let _backend = Backend::start(&folder, &[]);
    let mut stream = UnixStream::connect(folder.path("warm.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = folder.served("hello.txt").to_str().unwrap().to_owned();
    let requests = format!("GET {hello} HTTP/1.1\r\nHost: x\r\n\r\n").repeat(500);
    let mut sender = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || sender.write_all(requests.as_bytes()));
    let expected = "HTTP/1.1 204 No Content\r\n\r\n".repeat(500);
    let mut answers = vec![0; expected.len()];
    stream.read_exact(&mut answers).unwrap();
    assert_eq!(answers.escape_ascii().to_string(), expected.as_bytes().escape_ascii().to_string());
    sending.join().unwrap().unwrap();
}

#[test]
fn a_reload_and_a_stop_of_the_backend_lose_no_request() {
    for kind in Kind::installed() {
        let folder = site();
        let backend = Backend::start(&folder, &["--delay", "500"]);
        let web = Web::start(kind, &folder);
        let held = web.ask("/hello.txt", "");
        wait_until("it to be asked for", || backend.asked() == 1);
        backend.signal("HUP");
        assert_eq!(held.page().text(), "hello\n", "{kind:?}");
        assert_eq!(web.get("/hello.txt", "").text(), "hello\n", "{kind:?}");
        // The old process, which ends, takes its counters with it.
        wait_until("the new process alone", || backend.generations() == [2]);
        let before = backend.asked();
        let held = web.ask("/a%20b.txt", "");
        wait_until("it to be asked for", || backend.asked() > before);
        backend.signal("TERM");
        assert_eq!(held.page().text(), "a b.txt", "{kind:?}");
        backend.wait();
        assert!(!Path::new(&folder.path("warm.sock")).exists(), "the socket is removed");
    }
}
