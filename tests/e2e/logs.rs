//! The access log has one line per request, whatever its bytes, and counts lost lines.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::{
    Client, Folder, Launch, Server, SmallDisk, film, is, is_root, kill, pattern, skip, unlike_before,
    wait_for, wait_until,
};

fn logging(folder: &Folder, format: &str) -> Server {
    let log = folder.path("access.log");
    Launch::new(folder).args(["--log-format", format, "--log-file"]).arg(log).start()
}

/// The log's lines, once there are this many.
#[track_caller]
fn lines(folder: &Folder, count: usize) -> Vec<String> {
    let what = format!("{count} lines in the log");
    let text = wait_for(&what, || {
        let text = fs::read_to_string(folder.path("access.log")).unwrap_or_default();
        (text.lines().count() >= count && text.ends_with('\n')).then_some(text)
    });
    assert_eq!(text.lines().count(), count, "{text}");
    text.lines().map(str::to_owned).collect()
}

/// Requests of all kinds, with the log's request, status and bytes.
const KINDS: [(&str, &str, u16, &str); 12] = [
    ("GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", "GET /hello.txt HTTP/1.1", 200, "6"),
    ("GET /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", "GET /hello.txt HTTP/1.1", 200, "6"),
    ("HEAD /hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /hello.txt HTTP/1.1", 200, "0"),
    ("GET /large.bin?q HTTP/1.1\r\nHost: h\r\n\r\n", "GET /large.bin?q HTTP/1.1", 200, "400000"),
    ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nRange: bytes=1-2\r\n\r\n", "GET /hello.txt HTTP/1.1", 206, "2"),
    ("GET /hello.txt HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n\r\n", "GET /hello.txt HTTP/1.1", 304, "0"),
    ("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS * HTTP/1.1", 204, "0"),
    ("HEAD /gone HTTP/1.1\r\nHost: h\r\n\r\n", "HEAD /gone HTTP/1.1", 404, "0"),
    ("GET /empty HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "GET /empty HTTP/1.0", 200, "0"),
    ("GET http://h/hello.txt HTTP/1.1\r\nHost: h\r\n\r\n", "GET http://h/hello.txt HTTP/1.1", 200, "6"),
    ("POST /x HTTP/1.1\r\nHost: h\r\n\r\n", "POST /x HTTP/1.1", 405, ""),
    ("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", "GET /%zz HTTP/1.1", 400, ""),
];

/// Sends them all on one connection, and returns the lengths of the bodies.
fn make_all_kinds(folder: &Folder, server: &Server) -> Vec<String> {
    folder.www("large.bin", pattern(400_000, 1));
    folder.www("empty", "");
    let mut client = server.client();
    let mut lengths = Vec::new();
    for (request, _, status, length) in KINDS {
        client.send(request);
        let answer = match request.starts_with("HEAD") {
            true => crate::harness::Answer::HeadOnly,
            false => crate::harness::Answer::Whole,
        };
        let page = client.expect(answer);
        assert_eq!(page.status, status, "{request:?}");
        let body = page.body.len().to_string();
        assert!(length.is_empty() || length == body, "{request:?}: {body}");
        lengths.push(body);
    }
    lengths
}

#[test]
fn combined_lines_have_the_common_format() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "combined");
    let lengths = make_all_kinds(&folder, &server);
    let lines = lines(&folder, KINDS.len());
    for ((line, (_, request, status, _)), length) in lines.iter().zip(KINDS).zip(lengths) {
        let rest = line.strip_prefix("127.0.0.1 - - [").unwrap_or_else(|| panic!("{line}"));
        let (time, rest) = rest.split_once("] ").unwrap();
        let shape: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert!(shape.starts_with("00/") && shape.ends_with("/0000:00:00:00 +0000"), "{time}");
        assert_eq!(rest, format!("\"{request}\" {status} {length} \"-\" \"-\""));
    }
}

#[test]
fn json_lines_are_objects() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "json");
    let lengths = make_all_kinds(&folder, &server);
    let lines = lines(&folder, KINDS.len());
    for ((line, (_, request, status, _)), length) in lines.iter().zip(KINDS).zip(lengths) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(value["request"], request, "{line}");
        assert_eq!(value["status"], status, "{line}");
        assert_eq!(value["bytes"].as_u64().unwrap().to_string(), length, "{line}");
        assert_eq!(value["peer"], "127.0.0.1", "{line}");
        assert_eq!(value["whole"], true, "{line}");
        assert!(value["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
}

/// Fields that could end a quote, a line or a JSON string, or control a terminal.
const NASTY: &[u8] = b"GET /a\"b\\c HTTP/1.1\r\nHost: h\r\nReferer: http://x/\"y\\\r\n\
    User-Agent: \"evil\" \xc3\xa9 \xff\xfe \tend\\\r\n\r\n";

#[test]
fn combined_quotes_are_escaped() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "combined");
    let mut client = server.client();
    client.send(NASTY);
    assert_eq!(client.page().status, 404);
    let line = &lines(&folder, 1)[0];
    assert!(line.is_ascii() && !line.bytes().any(|b| b.is_ascii_control()), "{line:?}");
    assert!(line.contains(r#""GET /a\"b\\c HTTP/1.1" 404 "#), "{line}");
    assert!(line.contains(r#" "http://x/\"y\\" "\"evil\" "#), "{line}");
    assert!(line.ends_with(r#"end\\""#), "{line}");
}

#[test]
fn json_quotes_are_escaped() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "json");
    let mut client = server.client();
    client.send(NASTY);
    assert_eq!(client.page().status, 404);
    let line = &lines(&folder, 1)[0];
    let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(value["request"], "GET /a\"b\\c HTTP/1.1");
    assert_eq!(value["referer"], "http://x/\"y\\");
    assert!(value["agent"].as_str().unwrap().starts_with("\"evil\" \u{e9} "), "{line}");
}

#[test]
fn invalid_requests_are_logged() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "combined");
    let strange: [(&[u8], &str); 4] = [
        (b"\x16\x02\x01\"\x1b[2J\r\n\r\n", "400"),
        (b"GET /hello.txt HTTP/1.1\r\n\r\n", "400"),
        (b"GET /hello.txt HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n", "400"),
        (b"GET /hello.txt HTTP/3.0\r\nHost: h\r\n\r\n", "505"),
    ];
    for (n, (bytes, status)) in strange.into_iter().enumerate() {
        let mut client = server.client();
        client.send(bytes);
        assert_eq!(client.page().status.to_string(), status);
        let line = lines(&folder, n + 1).pop().unwrap();
        assert!(line.contains(&format!("\" {status} ")), "{line}");
        assert!(line.bytes().all(|b| matches!(b, b' '..=b'~')), "{line:?}");
    }
}

#[test]
fn the_log_marks_answers_that_were_cut() {
    let folder = Folder::new();
    folder.www("film.bin", film());
    let server = logging(&folder, "json");
    let mut client = server.client();
    client.begin("/film.bin");
    drop(client);
    let line = lines(&folder, 1).pop().unwrap();
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&value["status"], &value["whole"]), (&200.into(), &false.into()), "{line}");
    assert!(value["bytes"].as_u64().unwrap() < film().len() as u64, "{line}");
}

#[test]
fn requests_of_one_connection_are_in_order_and_in_time_order() {
    let folder = Folder::with_hello();
    let server = logging(&folder, "combined");
    let requests: Vec<u8> =
        (0..300).flat_map(|n| Client::request_bytes("GET", &format!("/hello.txt?{n}"), &[])).collect();
    let mut client = server.client();
    client.send(requests);
    for _ in 0..300 {
        assert_eq!(client.page().status, 200);
    }
    for (n, line) in lines(&folder, 300).iter().enumerate() {
        assert!(line.contains(&format!(" /hello.txt?{n} ")), "{line}");
    }
}

#[test]
fn a_log_on_standard_output_moves_the_start_line_to_standard_error() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--log-format", "combined"]).start();
    assert!(server.stderr().contains(" serves "), "the start line is on standard error");
    assert_eq!(server.get("/hello.txt").status, 200);
    wait_until("the line", || server.stdout().ends_with("\"-\" \"-\"\n"));
    assert_eq!(server.stdout().lines().count(), 1, "{}", server.stdout());
}

/// The longest line without its end: `limits::LOG_LINE_BYTES_MAX` of the engine.
const LINE_BYTES_MAX: usize = 4 * 6 * 1024 + 1024;

#[test]
fn long_fields_are_cut_and_lines_stay_whole() {
    const THREADS: usize = 4;
    const REQUESTS: usize = 60;
    for format in ["combined", "json"] {
        let folder = Folder::with_hello();
        let launch = Launch::with_workers(&folder, 2).args(["--log-format", format, "--log-file"]);
        let mut server = launch.arg(folder.path("access.log")).start();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    for n in 0..REQUESTS {
                        // Each byte takes four in the log.
                        let (agent, referer) = [(30 << 10, 0), (0, 30 << 10), (15 << 10, 15 << 10)][n % 3];
                        let mut request =
                            format!("GET /hello.txt?{thread}-{n} HTTP/1.1\r\nHost: h\r\n").into_bytes();
                        for (name, length) in [("User-Agent", agent), ("Referer", referer)] {
                            request.extend_from_slice(format!("{name}: ").as_bytes());
                            request.extend(std::iter::repeat_n(0xff, length));
                            request.extend_from_slice(b"\r\n");
                        }
                        request.extend_from_slice(b"\r\n");
                        client.send(request);
                        assert_eq!(client.page().status, 200);
                    }
                });
            }
        });
        server.signal("TERM");
        assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
        let text = fs::read_to_string(folder.path("access.log")).unwrap();
        let mut targets = HashSet::new();
        for line in text.lines() {
            assert!(line.len() <= LINE_BYTES_MAX, "{} bytes: {line:.80}", line.len());
            let target = match format {
                "json" => {
                    let value: serde_json::Value =
                        serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
                    assert_eq!((&value["peer"], &value["status"]), (&"127.0.0.1".into(), &200.into()));
                    value["request"].as_str().unwrap().to_owned()
                }
                _ => {
                    let parts: Vec<&str> = line.split('"').collect();
                    let [start, request, " 200 6 ", referer, " ", agent, ""] = parts[..] else {
                        panic!("{line}")
                    };
                    assert!(start.starts_with("127.0.0.1 - - [") && start.ends_with(" +0000] "), "{line}");
                    for field in [referer, agent] {
                        let rest = field.replace("\\xff", "");
                        assert!(["", "-", "..."].contains(&rest.as_str()), "{line}");
                    }
                    request.to_owned()
                }
            };
            assert!(target.starts_with("GET /hello.txt?") && target.ends_with(" HTTP/1.1"), "{line}");
            assert!(targets.insert(target), "twice: {line}");
        }
        assert!(text.ends_with('\n') && !targets.is_empty());
        assert_eq!(targets.len() + dropped(&server), THREADS * REQUESTS, "{}", server.stderr());
    }
}

#[test]
fn a_request_that_times_out_is_one_line() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::new(&folder).args(["--head-timeout", "1s", "--log-file"]).arg(log).start();
    for (sent, line) in [
        (
            "GET /hello.txt?a HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n123",
            "GET /hello.txt?a HTTP/1.1",
        ),
        (
            "GET /hello.txt?b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "GET /hello.txt?b HTTP/1.1",
        ),
        // Half a head has no trustworthy request line.
        ("GET /hello.txt?c HTTP/1.1\r\nHost: h\r\n", "-"),
    ] {
        let mut client = server.client();
        client.send(sent);
        assert_eq!(client.page().status, 408, "{sent}");
        client.assert_gone();
        lines(&folder, 1);
        let asked = server.get("/hello.txt?after");
        assert_eq!(asked.status, 200);
        let found = lines(&folder, 2);
        let [timed_out, after] = &found[..] else { panic!("{found:?}") };
        assert!(timed_out.contains(&format!("] \"{line}\" 408 ")), "{timed_out}");
        assert!(after.contains("?after HTTP/1.1\" 200 "), "{after}");
        fs::write(folder.path("access.log"), "").unwrap();
    }
}

#[test]
fn format_off_writes_no_log() {
    let folder = Folder::with_hello();
    let mut server = logging(&folder, "off");
    assert_eq!(server.get("/hello.txt").status, 200);
    assert!(server.role("log").is_empty());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(server.stdout().lines().count(), 1, "{}", server.stdout());
    assert!(!folder.path("access.log").exists());
}

#[test]
fn the_last_lines_are_written_before_the_end() {
    let folder = Folder::with_hello();
    let mut server = logging(&folder, "combined");
    let mut client = server.client();
    for _ in 0..500 {
        assert_eq!(client.get("/hello.txt").status, 200);
    }
    drop(client);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert_eq!(fs::read_to_string(folder.path("access.log")).unwrap().lines().count(), 500);
}

#[test]
fn a_log_is_appended_to() {
    let folder = Folder::with_hello();
    folder.write("access.log", "what was there\n");
    let server = logging(&folder, "combined");
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(lines(&folder, 2)[0], "what was there");
}

/// The numbers in the messages about dropped lines.
fn dropped(server: &Server) -> usize {
    let text = server.stderr();
    let counts = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("dropped ")?;
        rest.split_once(' ')?.0.parse::<usize>().ok()
    });
    counts.sum()
}

#[test]
fn lines_lost_by_a_slow_disk_are_counted_and_requests_continue() {
    const REQUESTS: usize = 500;
    let folder = Folder::with_hello();
    let mut server = logging(&folder, "combined");
    assert_eq!(server.get("/hello.txt").status, 200);
    lines(&folder, 1);
    let log = server.sole("log");
    // A disk that takes no bytes.
    kill("STOP", log);
    let mut client = server.client();
    let long = "x".repeat(8000);
    for n in 1..REQUESTS {
        let page = client.get(&format!("/hello.txt?{n}-{long}"));
        assert_eq!(page.brief(), (200, "hello\n".into()));
    }
    drop(client);
    server.wait_for_stderr("dropped");
    kill("CONT", log);
    let written = || {
        let text = fs::read_to_string(folder.path("access.log")).unwrap();
        assert!(text.lines().all(|line| line.starts_with("127.0.0.1 ") && line.ends_with("\"-\" \"-\"")));
        text.lines().count()
    };
    let mut before = 0;
    wait_until("the log writer to have caught up", || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let now = written();
        std::mem::replace(&mut before, now) == now && now > 1
    });
    assert_eq!(server.get("/hello.txt").status, 200);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0), "{}", server.stderr());
    let (written, dropped) = (written(), dropped(&server));
    assert!(written < REQUESTS && dropped > 0);
    assert_eq!(written + dropped, REQUESTS + 1, "{}", server.stderr());
}

#[test]
fn lines_lost_at_the_end_are_counted() {
    const REQUESTS: usize = 100;
    let folder = Folder::with_hello();
    let mut server = logging(&folder, "combined");
    let log = server.sole("log");
    kill("STOP", log);
    let mut client = server.client();
    let long = "x".repeat(8000);
    for n in 0..REQUESTS {
        assert_eq!(client.get(&format!("/hello.txt?{n}-{long}")).status, 200);
    }
    drop(client);
    server.signal("TERM");
    wait_until("the worker's end", || server.role("worker").is_empty());
    kill("CONT", log);
    server.wait();
    let written = fs::read_to_string(folder.path("access.log")).unwrap().lines().count();
    assert_eq!(written + dropped(&server), REQUESTS, "{written} written; {}", server.stderr());
}

#[test]
fn a_full_disk_is_reported_once_and_requests_continue() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--log-file", "/dev/full"]).start();
    let mut client = server.client();
    for _ in 0..30 {
        assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    server.wait_for_stderr("access log");
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(server.stderr().lines().count(), 1, "{}", server.stderr());
}

#[test]
fn two_workers_write_whole_lines_to_one_file() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::with_workers(&folder, 2).arg("--log-file").arg(log).start();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let server = &server;
            scope.spawn(move || {
                for n in 0..50 {
                    let target = format!("/hello.txt?{thread}-{n}-{}", "y".repeat(n * 30));
                    assert_eq!(server.get(&target).status, 200);
                }
            });
        }
    });
    for line in lines(&folder, 300) {
        assert!(line.starts_with("127.0.0.1 - - [") && line.ends_with(" 200 6 \"-\" \"-\""), "{line}");
    }
}

#[test]
fn a_full_disk_leaves_no_torn_line() {
    let folder = Folder::with_hello();
    let place = folder.write("logs/x", "").parent().unwrap().to_owned();
    let Some(disk) = SmallDisk::mount(&place) else { return };
    let server = Launch::new(&folder).arg("--log-file").arg(place.join("access.log")).start();
    let (log, filler) = (place.join("access.log"), place.join("filler"));
    let mut n = 0;
    for round in 0..3 {
        // Behind the filler is room for all lines that still wait in the channels of the workers.
        fs::write(&filler, vec![b'x'; SmallDisk::BYTES - (32 << 10)]).unwrap();
        let said = server.stderr().len();
        // Lines of all lengths, so that some line is cut where the disk is full.
        wait_until("the disk to be full", || {
            for _ in 0..20 {
                n += 1;
                assert_eq!(server.get(&format!("/hello.txt?{n}-{}", "y".repeat(n * 37 % 900))).status, 200);
            }
            server.stderr()[said..].contains("cannot write the access log")
        });
        fs::remove_file(&filler).unwrap();
        wait_until("lines to be written again", || {
            assert_eq!(server.get("/hello.txt?later").status, 200);
            server.stderr()[said..].contains("is writable again")
        });
        let last = format!("/hello.txt?last-{round}");
        assert_eq!(server.get(&last).status, 200);
        let mut text = String::new();
        wait_until("the last line", || {
            text = fs::read_to_string(&log).unwrap();
            text.contains(&last) && text.ends_with('\n')
        });
        for line in text.lines() {
            assert_eq!(line.matches("127.0.0.1 - - [").count(), 1, "{line}");
            assert!(line.starts_with("127.0.0.1 - - [") && line.ends_with(" 200 6 \"-\" \"-\""), "{line}");
        }
        fs::write(&log, "").unwrap();
    }
    drop(server);
    drop(disk);
}

#[test]
fn usr1_reopens_the_log_file_in_a_replaced_folder() {
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let mut server = Launch::with_workers(&folder, 2).arg("--log-file").arg(&log).start();
    let mut client = server.client();
    let mut n = 0;
    for round in 0..3 {
        // Lines are written meanwhile.
        for _ in 0..40 {
            n += 1;
            assert_eq!(client.get(&format!("/hello.txt?{n}-")).status, 200);
        }
        fs::rename(folder.path("logs"), folder.path(format!("logs.{round}"))).unwrap();
        fs::create_dir(folder.path("logs")).unwrap();
        server.signal("USR1");
        wait_until("the new file", || log.exists());
        wait_until("one log writer", || server.role("log").len() == 1);
    }
    n += 1;
    assert_eq!(client.get(&format!("/hello.txt?{n}-")).status, 200);
    wait_until("its line in the newest file", || {
        fs::read_to_string(&log).unwrap().contains(&format!("?{n}-"))
    });
    drop(client);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    let files = (0..3).map(|round| folder.path(format!("logs.{round}/access.log"))).chain([log]);
    let found: Vec<usize> = files.flat_map(|file| numbers(&file)).collect();
    assert_eq!(found, (1..=n).collect::<Vec<_>>(), "{}", server.stderr());
}

/// The numbers of the requests `/hello.txt?N-` in a log.
fn numbers(log: &Path) -> Vec<usize> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let number = |line: &str| line.split_once('?')?.1.split_once('-')?.0.parse().ok();
    text.lines().map(|line| number(line).unwrap_or_else(|| panic!("no number: {line}"))).collect()
}

#[test]
fn a_large_log_is_renamed_and_no_line_is_lost() {
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let numbered = |number: usize| log.with_file_name(format!("access.log.{number}"));
    let launch = Launch::with_workers(&folder, 2).arg("--log-file").arg(&log);
    let server = launch.args(["--log-rotate-size", "4KiB", "--log-rotate-keep", "500"]).start();
    let mut client = server.client();
    let mut sent = 0;
    for files in 1..=3 {
        wait_until("another file", || {
            sent += 1;
            assert_eq!(client.get(&format!("/hello.txt?{sent}-")).status, 200);
            numbered(files).exists()
        });
    }
    let all = || {
        let files = (1..500).rev().map(numbered).chain([log.clone()]);
        files.flat_map(|file| numbers(&file)).collect::<Vec<_>>()
    };
    wait_until("all lines", || all().len() >= sent);
    let mut found = all();
    found.sort_unstable();
    assert_eq!(found, (1..=sent).collect::<Vec<_>>(), "each once");
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_log_that_is_due_is_renamed_at_the_start_and_the_oldest_is_replaced() {
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    for round in 1..=4 {
        fs::write(&log, format!("{round}\n").repeat(1_000)).unwrap();
        let launch = Launch::new(&folder).arg("--log-file").arg(&log);
        let server = launch.args(["--log-rotate-size", "1KiB", "--log-rotate-keep", "2"]).start();
        assert_eq!(fs::read_to_string(&log).unwrap(), "");
        drop(server);
    }
    let first = |name: &str| fs::read_to_string(log.with_file_name(name)).unwrap()[..1].to_owned();
    assert_eq!((first("access.log.1"), first("access.log.2")), ("4".to_owned(), "3".to_owned()));
    assert!(!log.with_file_name("access.log.3").exists());
}

#[test]
fn without_its_folder_the_log_continues_in_the_old_file() {
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let server = Launch::new(&folder).arg("--log-file").arg(&log).start();
    for (n, replaced_by) in [None, Some("a file in its place")].into_iter().enumerate() {
        if n == 0 {
            fs::rename(folder.path("logs"), folder.path("old")).unwrap();
        }
        replaced_by.into_iter().for_each(|text| drop(folder.write("logs", text)));
        let said = server.stderr().len();
        server.signal("USR1");
        wait_until("it is said", || server.stderr()[said..].contains("continues in the old file"));
        assert_eq!(server.get(&format!("/hello.txt?{n}-")).status, 200);
        let has = |text: &str| fs::read_to_string(folder.path("old/access.log")).unwrap().contains(text);
        wait_until("the line", || has(&format!("?{n}-")));
    }
}

#[test]
fn a_log_that_was_replaced_by_a_link_or_a_fifo_is_not_opened() {
    let folder = Folder::with_hello();
    let victim = folder.write("victim", "precious\n");
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let mut server = Launch::new(&folder).arg("--log-file").arg(&log).start();
    fs::rename(&log, log.with_file_name("old.log")).unwrap();
    let old = || fs::read_to_string(log.with_file_name("old.log")).unwrap();
    let replace: [(&str, &dyn Fn()); 3] = [
        ("it is a symbolic link", &|| std::os::unix::fs::symlink(&victim, &log).unwrap()),
        ("the file has another name", &|| fs::hard_link(&victim, &log).unwrap()),
        ("it is not a regular file", &|| {
            let made = Command::new("mkfifo").arg(&log).status().unwrap();
            assert!(made.success());
        }),
    ];
    for (n, (why, replace)) in replace.into_iter().enumerate() {
        replace();
        let said = server.stderr().len();
        server.signal("USR1");
        wait_until("it is said", || {
            let text = &server.stderr()[said..];
            text.contains(why) && text.contains("continues in the old file")
        });
        assert_eq!(server.get(&format!("/hello.txt?{n}-")).status, 200);
        wait_until("its line", || old().contains(&format!("?{n}-")));
        fs::remove_file(&log).unwrap();
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious\n");
    server.signal("USR1");
    wait_until("the new file", || log.exists());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn root_writes_no_log_where_others_can_write() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let everybody = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(folder.path("logs"), everybody).unwrap();
    if !is_root() {
        return skip("needs root, whom alone Flash protects from this");
    }
    let (code, _, err) = Launch::new(&folder).arg("--log-file").arg(&log).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("cannot open the access log") && err.contains("run `chmod go-w"), "{err}");
    assert!(!log.exists());
}

#[test]
fn usr1_reopens_the_log_of_a_configuration_that_drains() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let config = "listen = [\"127.0.0.1:0\"]\nroot = \"www\"\nworkers = 1\nlog_file = \"access.log\"\n";
    let mut server = Launch::configured(&folder, config).start();
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt?before").status, 200);
    client.send("GET /hello.txt?after HTTP/1.1\r\nHost: h\r\n");
    let old = server.role("worker");
    server.signal("HUP");
    wait_until("the new configuration", || server.announcements().len() == 2);
    let now = server.role("worker");
    assert!(now.iter().any(|pid| old.contains(pid)) && now.iter().any(|pid| !old.contains(pid)), "both");
    fs::rename(&log, folder.path("old.log")).unwrap();
    let writers = server.role("log");
    server.signal("USR1");
    wait_until("new log writers", || {
        let now = server.role("log");
        now.len() == 2 && now.iter().all(|pid| !writers.contains(pid))
    });
    client.send("\r\n");
    assert_eq!(client.page().status, 200);
    drop(client);
    wait_until("its line", || fs::read_to_string(&log).is_ok_and(|text| text.contains("?after ")));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_packages_logrotate_file_rotates_the_log() {
    let logrotate =
        ["/usr/sbin/logrotate", "/sbin/logrotate"].into_iter().find(|path| Path::new(path).exists());
    let Some(logrotate) = logrotate else { return skip("needs logrotate") };
    if !is_root() {
        return skip("needs root, as logrotate does");
    }
    let folder = Folder::with_hello();
    let log = folder.write("logs/x", "").with_file_name("access.log");
    let server = Launch::new(&folder).arg("--log-file").arg(&log).start();
    assert_eq!(server.get("/hello.txt?before").status, 200);
    wait_until("its line", || fs::read_to_string(&log).unwrap().contains("?before "));
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/debian/flash.logrotate");
    let shipped = fs::read_to_string(shipped).unwrap();
    let order = "systemctl kill --kill-whom=main --signal=USR1 flash.service || true";
    assert!(shipped.contains(order) && shipped.contains("/var/log/flash/"));
    let config = shipped
        .replace("/var/log/flash/", &format!("{}/", folder.path("logs").display()))
        .replace(order, &format!("kill -USR1 {}", server.pid()));
    let config = folder.write("logrotate.conf", config);
    let mut rotate = Command::new(logrotate);
    rotate.arg("--force").arg("--state").arg(folder.path("state")).arg(config);
    let output = rotate.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    wait_until("a line in the new file", || {
        assert_eq!(server.get("/hello.txt?after").status, 200);
        fs::read_to_string(&log).is_ok_and(|text| text.contains("?after "))
    });
    let old = fs::read_to_string(log.with_extension("log.1")).unwrap();
    assert!(old.contains("?before "), "{old}");
    assert_eq!(server.stderr(), "");
}

#[test]
fn a_template_tells_hits_from_misses_and_how_long_they_took() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let template = "{method} {target} {status} {cache} {scheme} first={first_ms} all={duration_ms} {queue_ms}/{helper_ms}";
    unlike_before();
    let server = Launch::new(&folder).args(["--log-template", template, "--log-file"]).arg(log).start();
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/hello.txt").status, 200);
    }
    let lines = lines(&folder, 3);
    let results: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(3).unwrap()).collect();
    // The loop of the others does the work of helpers itself.
    let first = if is(&["amped", "mt"]) { "miss" } else { "hit" };
    assert!(results[0] == first && results[2] == "hit", "{lines:?}");
    for line in &lines {
        let value = |name: &str| {
            let text = line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap();
            assert_eq!(text.split_once('.').map(|(_, digits)| digits.len()), Some(3), "{line}");
            text.parse::<f64>().unwrap()
        };
        assert!(line.starts_with("GET /hello.txt 200 "), "{line}");
        assert!(0.0 < value("first=") && value("first=") <= value("all="), "{line}");
    }
}

#[test]
fn a_sample_leaves_out_answers_but_no_errors() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::new(&folder).args(["--log-sample", "10", "--log-file"]).arg(log).start();
    let mut client = server.client();
    for number in 0..40 {
        assert_eq!(client.get("/hello.txt").status, 200);
        if number % 10 == 0 {
            assert_eq!(client.get("/gone").status, 404);
        }
    }
    let lines = lines(&folder, 8);
    assert_eq!(lines.iter().filter(|line| line.contains(" 404 ")).count(), 4, "{lines:?}");
}

#[test]
fn each_site_writes_its_own_log() {
    let folder = Folder::with_hello();
    let site = |host: &str, log: &str| format!("[[site]]\nhosts = [{host:?}]\nroot = \"www\"\n{log}\n");
    let config = "root = \"www\"\nlog_file = \"access.log\"\nlog_template = \"{host} {target}\"\n".to_owned()
        + &site("b.test", "log_file = \"b.log\"")
        + &site("c.test", "log_file = \"b.log\"")
        + &site("quiet.test", "log_file = \"/dev/null\"");
    let server = Launch::configured(&folder, &config).start();
    let ask = |host: &str, target: &str| {
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.page().status
    };
    for (host, target) in
        [("a.test", "/1"), ("b.test", "/2"), ("quiet.test", "/3"), ("c.test", "/4"), ("x", "/%zz")]
    {
        assert!(ask(host, target) >= 400);
    }
    let of_b = wait_for("both lines", || {
        let text = fs::read_to_string(folder.path("b.log")).unwrap_or_default();
        (text.lines().count() == 2).then_some(text)
    });
    // Each worker sends its own lines.
    assert!(of_b.contains("b.test /2\n") && of_b.contains("c.test /4\n"), "{of_b}");
    assert!(lines(&folder, 2).contains(&"a.test /1".to_owned()));
    // All are opened again.
    for log in ["access.log", "b.log"] {
        fs::rename(folder.path(log), folder.path(format!("{log}.old"))).unwrap();
    }
    server.signal("USR1");
    wait_until("both in new files", || {
        ask("a.test", "/5");
        ask("b.test", "/6");
        let has = |log: &str, line: &str| {
            fs::read_to_string(folder.path(log)).is_ok_and(|text| text.contains(line))
        };
        has("access.log", "a.test /5") && has("b.log", "b.test /6")
    });
}

#[test]
fn a_syslog_gets_the_lines_and_may_be_started_again() {
    let folder = Folder::with_hello();
    let path = folder.path("log");
    let bind = || {
        let syslog = UnixDatagram::bind(&path).expect("a socket");
        syslog.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        // Everybody may write to that of a system.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("set");
        syslog
    };
    let received = |syslog: &UnixDatagram| {
        let mut message = [0; 4096];
        let length = syslog.recv(&mut message).expect("a message");
        String::from_utf8_lossy(&message[..length]).into_owned()
    };
    let syslog = bind();
    let server = Launch::new(&folder).arg("--log-file").arg(&path).start();
    assert_eq!(server.get("/hello.txt?1").status, 200);
    let message = received(&syslog);
    assert!(
        message.starts_with("<190>flash: 127.0.0.1 - - [") && message.contains("GET /hello.txt?1 "),
        "{message}"
    );
    drop(syslog);
    fs::remove_file(&path).unwrap();
    let syslog = bind();
    syslog.set_nonblocking(true).expect("set");
    let mut message = [0; 4096];
    wait_until("lines again", || {
        assert_eq!(server.get("/hello.txt?2").status, 200);
        syslog.recv(&mut message).is_ok_and(|length| length > 0)
    });
    wait_until("a report", || server.stderr().contains("cannot write the access log"));
}
