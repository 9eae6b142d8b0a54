//! Every combination of optimizations and ways of sending gives the same answers, and conflicting options are refused.

use std::fs;
use std::time::SystemTime;

use crate::harness::{
    Client, Folder, Launch, Page, Server, evict, film_bytes, pattern, wait_until, write_aside,
};

const CACHES: [&str; 3] = ["--no-name-cache", "--no-head-cache", "--no-content-cache"];
const SENDS: [&str; 3] = ["read", "sendfile", "mmap"];

/// Options in every combination.
fn combinations() -> Vec<Vec<&'static str>> {
    let mut all = Vec::new();
    for bits in 0..1 << CACHES.len() {
        for send in SENDS {
            for align in ["--no-align-heads", "--align-heads"] {
                let off = CACHES.iter().enumerate().filter(|(place, _)| bits >> place & 1 == 1);
                let mut options: Vec<&str> = off.map(|(_, cache)| *cache).collect();
                options.extend(["--send", send, align]);
                all.push(options);
            }
        }
    }
    all
}

fn launch(folder: &Folder, options: &[&str]) -> Server {
    with(Launch::new(folder).arg("--browse"), options).start()
}

/// With these options, and with cached names checked for each request.
fn with(launch: Launch, options: &[&str]) -> Launch {
    let freshness: &[&str] = if options.contains(&"--no-name-cache") { &[] } else { &["--freshness", "0s"] };
    options.iter().chain(freshness).fold(launch, |launch, word| launch.arg(word))
}

/// Files that do not change.
fn steady() -> Folder {
    let folder = Folder::new();
    for (seed, length) in [0, 1, 5_000, 4_096, 131_072, 131_073, 700_001].into_iter().enumerate() {
        folder.www(&format!("{length}.bin"), pattern(length, seed as u64));
    }
    folder.www("page.html", pattern(9_000, 20));
    folder.www("page.html.gz", pattern(700, 21));
    folder.www("list/a.txt", "a");
    let old = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    for entry in fs::read_dir(folder.path("www")).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            let file = fs::File::options().append(true).open(entry.path()).unwrap();
            file.set_modified(old).unwrap();
        }
    }
    folder
}

/// The requests to every server.
const REQUESTS: [(&str, &str, &[&str]); 21] = [
    ("GET", "/0.bin", &[]),
    ("GET", "/1.bin", &[]),
    ("GET", "/5000.bin", &[]),
    ("GET", "/4096.bin", &[]),
    ("GET", "/131072.bin", &[]),
    ("GET", "/131073.bin", &[]),
    ("GET", "/700001.bin", &[]),
    ("HEAD", "/5000.bin", &[]),
    ("HEAD", "/700001.bin", &[]),
    ("OPTIONS", "/5000.bin", &[]),
    ("GET", "/5000.bin", &["Range: bytes=10-99"]),
    ("GET", "/700001.bin", &["Range: bytes=130000-140000"]),
    ("GET", "/700001.bin", &["Range: bytes=-5"]),
    ("GET", "/700001.bin", &["Range: bytes=700001-"]),
    ("GET", "/5000.bin", &["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"]),
    ("GET", "/700001.bin", &["If-None-Match: *"]),
    ("GET", "/page.html", &[]),
    ("GET", "/page.html", &["Accept-Encoding: gzip"]),
    ("GET", "/list", &[]),
    ("GET", "/list/", &[]),
    ("GET", "/none", &[]),
];

/// An answer without its date and the padding of its head.
fn essence(page: &Page) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let mut fields = page.fields_but_date();
    for (name, value) in &mut fields {
        if name == "Server" && value.starts_with("flash (") {
            assert!(value.ends_with(')'), "{value}");
            "flash".clone_into(value);
        }
    }
    (page.status, fields, page.body.clone())
}

type Essence = (u16, Vec<(String, String)>, Vec<u8>);

/// Two rounds of all requests, with memory evicted in between.
fn answers(server: &Server, folder: &Folder) -> Vec<Essence> {
    let mut client = server.client();
    let mut all = Vec::new();
    for _ in 0..2 {
        for (method, target, fields) in REQUESTS {
            all.push(essence(&client.request(method, target, fields)));
        }
        for name in ["5000.bin", "700001.bin"] {
            evict(&folder.served(name));
        }
    }
    client.assert_kept();
    all
}

#[track_caller]
fn assert_same(found: &[Essence], expected: &[Essence], options: &[&str]) {
    assert_eq!(found.len(), expected.len());
    for ((found, expected), n) in found.iter().zip(expected).zip(0..) {
        let request = REQUESTS[n % REQUESTS.len()];
        assert!(found == expected, "{options:?}: {request:?}: {:?} {:?}", found.0, found.1);
    }
}

/// Pipelined answers with padded heads.
fn check_padding(server: &Server) {
    use std::io::Read;
    for target in ["/5000.bin", "/none", "/list/", "/700001.bin"] {
        let client = server.client();
        let mut stream = client.sender();
        let request = Client::request_bytes("GET", target, &["Connection: close"]);
        std::io::Write::write_all(&mut stream, &request).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(end % 32, 0, "{}", bytes[..end].escape_ascii());
    }
}

/// Files that are replaced, cut and evicted while they are served.
fn check_changes(server: &Server, folder: &Folder, own: &str) {
    let large = pattern(1_500_000, 30);
    let path = folder.www(&format!("{own}/large.bin"), &large);
    let target = format!("/{own}/large.bin");
    // A slow reader, and a file that is evicted while it is sent.
    let mut slow = server.client();
    let bytes = slow.begin(&target);
    let mut got = Vec::new();
    for round in 0..30 {
        got.extend(slow.some(1 + round * 997));
        if round == 10 {
            evict(&path);
        }
    }
    got.extend(slow.rest(bytes - got.len()));
    assert!(got == large, "a slow reader");
    slow.assert_kept();
    // Replaced: the whole old file, or the whole new one.
    let mut client = server.client();
    for name in ["small.bin", "large.bin"] {
        let (old, new) = (pattern(3_000, 31), pattern(250_000, 32));
        let path = folder.www(&format!("{own}/{name}"), &old);
        let target = format!("/{own}/{name}");
        wait_until("the file", || client.get(&target).body == old);
        write_aside(&path, &new);
        wait_until("the new file", || {
            let page = client.get(&target);
            assert!(page.body == old || page.body == new, "mixed");
            page.body == new
        });
    }
    // Truncated in mid-transfer: the received bytes are of the old state, and the answer is not complete.
    let film = fs::File::create(folder.served(format!("{own}/film.bin"))).unwrap();
    film.set_len(film_bytes() as u64).unwrap();
    let mut slow = server.client();
    let bytes = slow.begin(&format!("/{own}/film.bin"));
    assert_eq!(bytes, film_bytes());
    slow.sip(100_000);
    film.set_len(0).unwrap();
    let got = slow.rest(bytes - 100_000);
    assert!(got.len() < bytes - 100_000 && got.iter().all(|byte| *byte == 0));
    wait_until("the empty file", || server.get(&format!("/{own}/film.bin")).body.is_empty());
    fs::remove_dir_all(folder.served(own)).unwrap();
    wait_until("nothing", || client.get(&target).status == 404);
}

#[test]
fn every_combination_answers_the_same() {
    let folder = steady();
    let expected = answers(&launch(&folder, &[]), &folder);
    assert!(expected.iter().any(|(status, ..)| *status == 206));
    let combinations = combinations();
    assert_eq!(combinations.len(), 48);
    std::thread::scope(|scope| {
        for (thread, some) in combinations.chunks(12).enumerate() {
            let (folder, expected) = (&folder, &expected);
            scope.spawn(move || {
                for (number, options) in some.iter().enumerate() {
                    let server = launch(folder, options);
                    assert_same(&answers(&server, folder), expected, options);
                    if options.contains(&"--align-heads") {
                        check_padding(&server);
                    }
                    check_changes(&server, folder, &format!("own-{thread}-{number}"));
                    assert_eq!(server.stderr(), "", "{options:?}");
                    assert_eq!(server.role("worker").len(), 1);
                }
            });
        }
    });
}

#[test]
fn options_that_block_the_loop_cause_a_warning() {
    let folder = steady();
    let expected = answers(&launch(&folder, &[]), &folder);
    for options in [
        &["--open-in-loop"][..],
        &["--no-residency-check"],
        &["--no-residency-check", "--send", "sendfile", "--no-content-cache"],
        &["--open-in-loop", "--send", "mmap", "--no-content-cache"],
        &["--open-in-loop", "--no-residency-check", "--no-content-cache"],
    ] {
        let server = launch(&folder, options);
        // Neither a new name nor a read goes to a helper; a listing still does.
        let mut client = server.client();
        if options == ["--open-in-loop", "--no-residency-check", "--no-content-cache"] {
            evict(&folder.served("700001.bin"));
            assert!(client.get("/700001.bin").body == pattern(700_001, 6));
            assert_eq!(client.get("/looked-for-the-first-time").status, 404);
            assert_eq!(server.role("helper").len(), 0);
        }
        let found = answers(&server, &folder);
        assert_same(&found, &expected, options);
        let said = server.stderr();
        for option in ["--open-in-loop", "--no-residency-check"] {
            assert_eq!(said.contains(option), options.contains(&option), "{said}");
        }
        assert!(said.lines().all(|line| line.starts_with("flash: warning: ")), "{said}");
        check_changes(&server, &folder, "own");
    }
}

#[test]
fn the_other_architectures_answer_the_same_with_each_switch() {
    let folder = steady();
    let expected = answers(&launch(&folder, &[]), &folder);
    let switches: [&[&str]; 8] = [
        &["--no-name-cache"],
        &["--no-head-cache"],
        &["--no-content-cache"],
        &CACHES,
        &["--send", "sendfile", "--no-content-cache"],
        &["--send", "mmap", "--no-content-cache"],
        &["--send", "mmap", "--no-name-cache", "--no-head-cache"],
        &["--align-heads"],
    ];
    for architecture in [&["sped"][..], &["mp", "--processes", "8"], &["mt", "--threads", "8"]] {
        for options in switches {
            let launch = Launch::without_architecture().arg(folder.path("www"));
            let launch = launch.args(["--listen", "127.0.0.1:0", "--browse", "--architecture"]);
            let server = with(launch, &[architecture, options].concat()).start();
            assert_same(&answers(&server, &folder), &expected, &[architecture, options].concat());
            check_changes(&server, &folder, "own");
            assert_eq!(server.stderr(), "", "{architecture:?} {options:?}");
        }
    }
}

#[test]
fn conflicting_options_are_refused_with_the_reason() {
    let folder = Folder::with_hello();
    for (options, why) in [
        (
            ["--no-content-cache", "--cache-memory", "1MiB"],
            "`--cache-memory` cannot be used here: --no-content-cache turns the store off",
        ),
        (
            ["--content-cache", "--cache-memory", "0"],
            "`--cache-memory` cannot be 0 here: --content-cache asks for the store",
        ),
        (
            ["--no-name-cache", "--freshness", "1s"],
            "`--freshness` cannot be used here: --no-name-cache turns the name cache off",
        ),
        (
            ["--no-residency-check", "--send", "mmap"],
            "`--no-residency-check` cannot be used here: --send mmap needs the check",
        ),
    ] {
        let (code, out, err) = Launch::new(&folder).args(options).fail();
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        assert!(err.contains(why), "{err}");
    }
    for options in [["--send", "splice"], ["--send", ""]] {
        let (code, _, err) = Launch::new(&folder).args(options).fail();
        assert!(code == Some(2) && err.contains("--send"), "{code:?}: {err}");
    }
}
