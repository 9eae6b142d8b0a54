//! A file is answered completely, with its headers, any number of times, to any number of clients, however the bytes of a request
//! arrive.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::{
    Answer, Broken, Client, Folder, Launch, evict, is, not_http2, only_plain, pattern, skip, wait_until,
    workers,
};

#[test]
fn the_start_line_names_url_root_workers_and_reads() {
    if only_plain("the start line has other URLs") {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::with_workers(&folder, 2).start();
    let text = server.stdout();
    assert_eq!(text.lines().count(), 1, "{text}");
    let (port, www) = (server.addresses[0].port(), folder.path("www"));
    let crew = if is(&["mp"]) { "24 processes" } else { "2 workers" };
    let expected = format!(
        "flash {} serves {} at http://127.0.0.1:{port}/; {crew}",
        env!("CARGO_PKG_VERSION"),
        www.display()
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("; sandbox: ") && text.contains("; reads: "), "{text}");
    assert_eq!(server.stderr(), "");
    wait_until("both workers", || server.role("worker").len() == workers(2));
    assert_eq!(server.role("helper").len(), 0, "helpers come on demand");
}

#[test]
fn a_file_comes_with_its_headers() {
    let folder = Folder::with_hello();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = std::fs::File::options().append(true).open(folder.served("hello.txt"));
    file.unwrap().set_modified(modified).unwrap();
    let page = Launch::new(&folder).start().get("/hello.txt");
    assert_eq!(page.brief(), (200, "hello\n".into()));
    let expected = [
        ("Server", "flash"),
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Length", "6"),
        ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("Accept-Ranges", "bytes"),
        ("X-Content-Type-Options", "nosniff"),
    ];
    for (name, value) in expected {
        assert_eq!(page.must(name), value, "{name}");
    }
    let etag = page.must("ETag");
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 2, "strong: {etag}");
    assert_eq!(page.field("Vary"), None);
    assert_eq!(page.field("Content-Encoding"), None);
    assert_eq!(page.field("Connection"), None);
}

#[test]
fn the_date_is_now() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    // A new file has the modification time now; both times have the same form.
    let age_of_file = |n: u32| {
        let name = format!("{n}.txt");
        folder.www(&name, "x");
        let page = server.get(&format!("/{name}"));
        page.must("Date") == page.must("Last-Modified")
    };
    assert!((0..20).any(age_of_file), "the Date is never that of a file just made");
    let mut client = server.client();
    let first = client.get("/hello.txt").must("Date").to_owned();
    wait_until("a new Date on a hit", || client.get("/hello.txt").must("Date") != first);
}

#[test]
fn a_hundred_hits_on_one_connection_are_alike() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let first = client.get("/hello.txt");
    for _ in 0..100 {
        let next = client.get("/hello.txt");
        assert_eq!(next.brief(), first.brief());
        assert_eq!(next.fields_but_date(), first.fields_but_date());
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let folder = Folder::new();
    for n in 0..7 {
        folder.www(&format!("{n}.txt"), n.to_string().repeat(100 + n));
    }
    folder.www("large.bin", pattern(300_000, 1));
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let mut requests = Vec::new();
    // Hits, a miss, a HEAD and a large file, in one segment or two.
    for n in 0..70 {
        let target = format!("/{}.txt", n % 7);
        requests.extend(Client::request_bytes("GET", &target, &[]));
    }
    requests.extend(Client::request_bytes("GET", "/gone.txt", &[]));
    requests.extend(Client::request_bytes("HEAD", "/1.txt", &[]));
    requests.extend(Client::request_bytes("GET", "/large.bin", &[]));
    requests.extend(Client::request_bytes("GET", "/0.txt", &[]));
    client.send(requests);
    for n in 0..70 {
        let page = client.page();
        let expected = (n % 7).to_string().repeat(100 + n % 7);
        assert_eq!(page.brief(), (200, expected), "answer {n}");
    }
    assert_eq!(client.page().status, 404);
    assert_eq!(client.expect(Answer::HeadOnly).must("Content-Length"), "101");
    assert!(client.page().body == pattern(300_000, 1));
    assert_eq!(client.page().text(), "0".repeat(100));
    client.assert_kept();
}

/// Lengths at the limits between ways of sending.
const LENGTHS: [usize; 16] = [
    0, 1, 4095, 4096, 4097, 65_535, 65_536, 131_071, 131_072, 131_073, 262_144, 524_287, 524_288, 524_289,
    1_048_576, 3_000_001,
];

fn check_lengths(launch: impl Fn(&Folder) -> Launch) {
    let folder = Folder::new();
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        let content = pattern(length, seed as u64);
        let path = folder.www(&format!("{length}.bin"), content);
        // Every other file is only on the disk.
        if seed % 2 == 1 {
            evict(&path);
        }
    }
    let server = launch(&folder).start();
    let mut client = server.client();
    for round in 0..3 {
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            let page = client.get(&format!("/{length}.bin"));
            assert_eq!(page.status, 200);
            let same = page.body == pattern(length, seed as u64);
            assert!(same, "{length} bytes, round {round}");
        }
    }
    client.assert_kept();
    assert_eq!(server.stderr(), "");
}

#[test]
fn files_of_every_length_are_complete() {
    check_lengths(Launch::new);
}

#[test]
fn files_of_every_length_are_complete_without_a_content_cache() {
    check_lengths(|folder| Launch::new(folder).args(["--cache-memory", "0"]));
}

#[test]
fn files_of_every_length_are_complete_with_a_small_cache() {
    check_lengths(|folder| Launch::new(folder).args(["--cache-memory", "70000"]));
}

#[test]
fn a_cold_file_streams_whole_to_many_at_once() {
    let folder = Folder::new();
    let content = pattern(24 << 20, 5);
    evict(&folder.www("film.bin", &content));
    let server = Launch::with_workers(&folder, 2).start();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(server.get("/film.bin").body == content));
        }
    });
}

#[test]
fn a_client_that_reads_slowly_gets_every_byte() {
    let folder = Folder::new();
    let content = pattern(6 << 20, 9);
    folder.www("film.bin", &content);
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    client.ask("/film.bin");
    let (_, length) = client.receive_head().unwrap();
    assert_eq!(length, Some(content.len()));
    let mut at = 0;
    let mut sip = 1;
    while at < content.len() {
        let got = client.some(sip);
        assert!(!got.is_empty(), "the answer ended at {at}");
        assert!(got == content[at..at + got.len()], "at {at}");
        at += got.len();
        sip = (sip * 3 + 1) % 50_000;
        if at % 7 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    client.assert_kept();
}

#[test]
fn a_head_may_be_split_anywhere() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let request = Client::request_bytes("GET", "/hello.txt", &["Accept: */*"]);
    let mut client = server.client();
    for cut in 1..request.len() {
        client.send(&request[..cut]);
        std::thread::sleep(Duration::from_millis(2));
        client.send(&request[cut..]);
        assert_eq!(client.page().brief(), (200, "hello\n".into()), "cut at {cut}");
    }
    for byte in &request {
        client.send([*byte]);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
    client.assert_kept();
}

#[test]
fn a_half_closed_client_is_answered() {
    if not_http2("a client that has ended its side opens no windows") {
        return;
    }
    let folder = Folder::with_hello();
    let content = pattern(2 << 20, 3);
    evict(&folder.www("cold.bin", &content));
    folder.www("warm.bin", &content);
    let server = Launch::new(&folder).start();
    let expected = [
        ("/hello.txt", b"hello\n".to_vec()),
        ("/hello.txt", b"hello\n".to_vec()),
        ("/warm.bin", content.clone()),
        ("/cold.bin", content),
    ];
    for (target, body) in expected {
        let mut client = server.client();
        client.ask(target);
        client.end_sending();
        let page = client.page();
        assert!(page.status == 200 && page.body == body, "{target}");
        client.assert_closed();
    }
    let mut client = server.client();
    client.ask("/looked-for-the-first-time");
    client.end_sending();
    assert_eq!(client.page().status, 404);
    client.assert_closed();
}

#[test]
fn many_clients_of_two_workers_all_get_their_own_answers() {
    let folder = Folder::new();
    for n in 0..40 {
        folder.www(&format!("{n}.bin"), pattern(n * 977, n as u64));
    }
    let server = Launch::with_workers(&folder, 2).start();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for turn in 0..4 {
                    let mut client = server.client();
                    for n in 0..25 {
                        let n = (n * 7 + thread * 3 + turn) % 40;
                        let page = client.get(&format!("/{n}.bin"));
                        assert!(page.status == 200 && page.body == pattern(n * 977, n as u64));
                    }
                }
            });
        }
    });
}

#[test]
fn clients_that_leave_in_mid_answer_do_no_harm() {
    let folder = Folder::with_hello();
    evict(&folder.www("film.bin", pattern(20 << 20, 2)));
    let server = Launch::new(&folder).start();
    for n in 0..60 {
        let mut client = server.client();
        client.ask(if n % 3 == 0 { "/hello.txt" } else { "/film.bin" });
        if n % 2 == 0 {
            let head = client.receive_head();
            assert!(matches!(head, Ok((_, Some(_)))), "{head:?}");
        }
    }
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    }
    assert!(server.get("/film.bin").body == pattern(20 << 20, 2));
    assert_eq!(server.role("worker").len(), workers(1));
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_directory_is_answered_by_its_index() {
    let folder = Folder::new();
    folder.www("index.html", "<p>root");
    folder.www("sub/index.html", "<p>sub");
    folder.www("other/default.htm", "<p>other");
    folder.www("other/index.html", "<p>second");
    let server = Launch::new(&folder).start();
    for (target, text) in [("/", "<p>root"), ("/sub/", "<p>sub"), ("/sub/?x=1", "<p>sub")] {
        let page = server.get(target);
        assert_eq!(page.brief(), (200, text.into()), "{target}");
        assert_eq!(page.must("Content-Type"), "text/html; charset=utf-8");
    }
    drop(server);
    let launch = Launch::new(&folder).args(["--index", "default.htm", "--index", "index.html"]);
    let server = launch.start();
    assert_eq!(server.get("/other/").text(), "<p>other");
    assert_eq!(server.get("/sub/").text(), "<p>sub");
}

#[test]
fn content_types_come_from_the_name_and_text_is_utf8() {
    let folder = Folder::new();
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTM", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.json", "application/json"),
        ("a.wasm", "application/wasm"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.webp", "image/webp"),
        ("a.woff2", "font/woff2"),
        ("a.mp4", "video/mp4"),
        ("a.pdf", "application/pdf"),
        ("a.gz", "application/gzip"),
        ("a.b.txt", "text/plain; charset=utf-8"),
        ("a.unheard-of", "application/octet-stream"),
        ("none", "application/octet-stream"),
        ("a.", "application/octet-stream"),
        ("a.ours", "text/x-ours; charset=utf-8"),
    ];
    for (name, _) in types {
        folder.www(name, "x");
    }
    let config = "root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n[types]\nours = \"text/x-ours\"\n";
    let server = Launch::configured(&folder, config).start();
    for (name, expected) in types {
        let page = server.get(&format!("/{name}"));
        assert_eq!(page.must("Content-Type"), expected, "{name}");
    }
    let server = Launch::configured(&folder, &format!("charset = \"off\"\n{config}")).start();
    for (name, expected) in [("a.txt", "text/plain"), ("a.ours", "text/x-ours"), ("a.png", "image/png")] {
        assert_eq!(server.get(&format!("/{name}")).must("Content-Type"), expected, "{name}");
    }
}

#[test]
fn a_connection_may_be_closed_by_the_client_at_any_point_of_its_request() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let request = Client::request_bytes("GET", "/hello.txt", &[]);
    for cut in 0..request.len() {
        let mut client = server.client();
        client.send(&request[..cut]);
        client.end_sending();
        // An error or nothing, but never an answer that looks complete.
        match client.receive(Answer::Whole) {
            Err(Broken::Unanswered { .. }) => {}
            Ok(page) => assert_eq!(page.status, 400, "cut at {cut}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
    assert_eq!(server.get("/hello.txt").status, 200);
}

/// An update would start a transaction of the journal, and wait for the current one.
#[test]
fn access_time_of_an_own_file_is_not_updated() {
    let old = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let folder = Folder::new();
    let names = ["cold-small.txt", "warm-small.txt", "cold-large.bin", "warm-large.bin"];
    let contents = [pattern(1_000, 1), pattern(1_000, 2), pattern(300_000, 3), pattern(300_000, 4)];
    let age = |path: &Path| {
        let file = fs::File::options().write(true).open(path).unwrap();
        // Older than the content: any read would update it (mount(8), relatime).
        file.set_times(fs::FileTimes::new().set_accessed(old)).unwrap();
    };
    for (name, content) in names.iter().zip(&contents) {
        let path = folder.www(name, content);
        if name.starts_with("cold") {
            evict(&path);
        }
        age(&path);
    }
    let other = folder.write("other", "x");
    age(&other);
    fs::read(&other).unwrap();
    let accessed = |path: &Path| fs::metadata(path).unwrap().accessed().unwrap();
    if accessed(&other) == old {
        return skip("the file system of the temporary files keeps no access times");
    }
    let server = Launch::new(&folder).start();
    for (name, content) in names.iter().zip(&contents) {
        let page = server.get(&format!("/{name}"));
        assert!(page.status == 200 && page.body == *content, "{name}");
    }
    for name in names {
        assert_eq!(accessed(&folder.served(name)), old, "{name}");
    }
}
