//! `flash load` with methods, fields, bodies and lists, its progress, its formats, and runs that are joined: against a small
//! server that keeps what it received.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::harness::{Ended, FLASH, Folder, Served, flash, run_json, small_set, start};

/// The requests of a server: how often each came, with its head without the name of the server, and its body.
type Seen = Arc<Mutex<BTreeMap<String, u32>>>;

/// A server that answers each request with 200, and a POST with 201. Its thread ends with the test program.
fn server() -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&shared);
            thread::spawn(move || serve(stream, &seen));
        }
    });
    (url, seen)
}

fn serve(stream: TcpStream, seen: &Seen) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("Host: 127")).collect();
        let text = lines.join("|") + &String::from_utf8_lossy(&body);
        *seen.lock().unwrap().entry(text).or_default() += 1;
        let status = if head.starts_with("POST ") { "201 Created" } else { "200 OK" };
        let content = if head.starts_with("HEAD ") { "" } else { "hello" };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\n{content}");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Runs `flash load` briefly with these words.
fn load(url: &str, words: &[&str]) -> Ended {
    let common = ["load", url, "--rate", "50", "--duration", "1s", "--warm-up", "0s"];
    flash(common.iter().chain(words).copied())
}

fn level(out: &str) -> Value {
    run_json(out)["subjects"][0]["levels"][0].clone()
}

#[test]
fn requests_are_those_that_were_asked_for() {
    let folder = Folder::new();
    let file = folder.write("body", "a body\r\n");
    for (name, words, expected) in [
        (
            "fields",
            &["-H", "Accept: a/b", "--header", "Host: other", "--user", "Aladdin:open sesame"][..],
            "GET /x HTTP/1.1|Host: other|Accept: a/b|Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==|",
        ),
        ("post", &["--body", "text"], "POST /x HTTP/1.1|Content-Length: 4|text"),
        ("file", &["-X", "PUT", "--body-file", &file], "PUT /x HTTP/1.1|Content-Length: 8|a body\r\n"),
        ("head", &["--method", "HEAD"], "HEAD /x HTTP/1.1|"),
    ] {
        let (url, seen) = server();
        let out = folder.text(name);
        let ended = load(&format!("{url}/x"), &[words, &["--out", &out]].concat());
        assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        let counts = &level(&out)["counts"];
        assert!(counts["answered"].as_u64() > Some(10) && counts["answered"] == counts["asked"], "{counts}");
        let seen = seen.lock().unwrap();
        assert_eq!(seen.keys().collect::<Vec<_>>(), [expected], "{name}");
        let run = fs::read_to_string(folder.path(name).join("run.json")).unwrap();
        assert!(!run.contains("sesame") && !run.contains("QWxhZGRpb"), "no password in results: {run}");
        assert!(!fs::read_to_string(folder.path(name).join("report.html")).unwrap().contains("sesame"));
    }
}

#[test]
fn bodies_reach_flash_over_http_2() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let out = folder.text("out");
    let body = folder.write("body", "x".repeat(300_000));
    let url = format!("{}/dir00000/class0_1", served.url);
    let words = ["--http2", "-X", "GET", "--body-file", &body, "--streams", "4", "--out", &out];
    let ended = load(&url, &words);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let counts = &level(&out)["counts"];
    assert!(counts["answered"].as_u64() > Some(10) && counts["answered"] == counts["asked"], "{counts}");
}

#[test]
fn impossible_requests_are_refused_with_the_reason() {
    let folder = Folder::new();
    let (url, seen) = server();
    let out = folder.text("out");
    let list = folder.write("list", "GET http://192.0.2.1/x\n");
    let list = format!("list:{list}");
    for (words, part) in [
        (&["-H", "no colon"][..], "write NAME: VALUE"),
        (&["-H", "A: b\r\nC: d"], "control characters"),
        (&["-H", "Content-Length: 3"], "--body"),
        (&["-H", "Connection: close"], "--requests-per-connection"),
        (&["-X", "CONNECT"], "tunnel"),
        (&["--user", "me"], "NAME:PASSWORD"),
        (&["--body", "a", "--body-file", "b"], "cannot be used with"),
        (&["--workload", &list], "the list has URLs of http://192.0.2.1"),
        (&["--workload", "list:"], "list:FILE"),
    ] {
        let ended = load(&url, &[words, &["--out", &out]].concat());
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
    }
    assert!(seen.lock().unwrap().is_empty(), "nothing was asked for");
}

#[test]
fn the_lines_of_a_list_take_turns() {
    let folder = Folder::new();
    let (url, seen) = server();
    let list = folder.write("list", format!("# mine\n/a\nPOST {url}/b\nDELETE /c?d\n\nHEAD /e\n"));
    let workload = format!("list:{list}");
    let words = ["--workload", &workload, "--body", "text", "-X", "GET", "--discard"];
    let ended = load(&url, &words);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let expected = [
        "DELETE /c?d HTTP/1.1|",
        // The method that was asked for has the body that was asked for.
        "GET /a HTTP/1.1|Content-Length: 4|text",
        "HEAD /e HTTP/1.1|",
        "POST /b HTTP/1.1|Content-Length: 4|text",
    ];
    assert_eq!(seen.keys().collect::<Vec<_>>(), expected);
    let (least, most) = (seen.values().min().unwrap(), seen.values().max().unwrap());
    assert!(*least > 5 && most - least <= 1, "each in turn: {seen:?}");
}

#[test]
fn progress_is_reported_each_second_where_it_is_wanted() {
    let (url, _) = server();
    let words = ["load", &url, "--rate", "40", "--duration", "3s", "--warm-up", "0s", "--discard"];
    let ended = flash(words.iter().chain(&["--progress"]).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in ["  1 s: ", "  2 s: "] {
        let line = ended.stderr.lines().find(|found| found.starts_with(line));
        let line = line.unwrap_or_else(|| panic!("{ended:?}"));
        assert!(line.contains("/s, p50 ") && line.contains(", 0 failed; "), "{line}");
        assert!(!line.contains(": 0/s") && !line.contains(['\r', '\x1b']), "{line}");
    }
    assert!(!ended.stdout.contains("/s, p50"), "{ended:?}");
    // Standard error is no terminal here.
    let ended = flash(words);
    assert!(!ended.stderr.contains("/s, p50"), "{ended:?}");
}

#[test]
fn nothing_but_the_format_is_on_standard_output() {
    let folder = Folder::new();
    let (url, _) = server();
    let print = |name: &str| {
        let out = folder.text(name);
        let ended = load(&url, &["--format", name, "--out", &out]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("report: "), "{ended:?}");
        ended.stdout
    };
    let json: Value = serde_json::from_str(&print("json")).unwrap();
    assert_eq!(json, run_json(&folder.text("json")), "as in run.json");
    let csv = print("csv");
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.len() == 2 && rows[0].len() == rows[1].len() && rows[1][0] == url, "{csv}");
    let asked = level(&folder.text("csv"))["counts"]["asked"].to_string();
    assert_eq!(rows[1][rows[0].iter().position(|name| *name == "asked").unwrap()], asked);
    let hdr = print("hdr");
    assert!(hdr.lines().next().unwrap().contains("Percentile TotalCount"), "{hdr}");
    assert!(hdr.lines().skip(2).all(|line| line.starts_with("#[") || line.split_whitespace().count() >= 3));
    let metrics = print("prometheus");
    for line in metrics.lines() {
        let is_sample =
            line.starts_with("flash_load_") && line.rsplit(' ').next().unwrap().parse::<f64>().is_ok();
        assert!(is_sample || line.starts_with("# HELP ") || line.starts_with("# TYPE "), "{line}");
    }
    let asked = level(&folder.text("prometheus"))["counts"]["asked"].to_string();
    let count = metrics.lines().find(|line| line.starts_with("flash_load_latency_seconds_count{")).unwrap();
    assert!(count.ends_with(&format!(" {asked}")), "{count}");
}

#[test]
fn generators_are_joined_into_one_run() {
    let folder = Folder::new();
    let (url, _) = server();
    let words = |out: &'static str| {
        let words = ["load", &url, "--rate", "50", "--duration", "4s", "--warm-up", "0s", "--out"];
        start(words.into_iter().chain([folder.text(out).as_str()]))
    };
    // At the same time, except for the time that it takes to start them.
    let (one, two) = (words("one"), words("two"));
    for ended in [one.wait(), two.wait()] {
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let (one, two) = (folder.text("one"), folder.text("two"));
    let page = folder.text("both.html");
    let ended = flash(["report", "--join", &one, &two, "--out", &page, "--format", "json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
    let run: Value = serde_json::from_str(&ended.stdout).unwrap();
    let joined = &run["subjects"][0]["levels"][0];
    let parts = [level(&one), level(&two)];
    let sum =
        |place: &str| parts.iter().map(|part| part.pointer(place).unwrap().as_f64().unwrap()).sum::<f64>();
    for place in
        ["/counts/asked", "/counts/answered", "/counts/connections", "/answered_per_s", "/asked_per_s"]
    {
        let found = joined.pointer(place).unwrap().as_f64().unwrap();
        assert!((found - sum(place)).abs() < 1e-9, "{place}: {found}");
    }
    let most = |part: &Value| part["latency"]["max_ms"].as_f64().unwrap();
    assert_eq!(most(joined), most(&parts[0]).max(most(&parts[1])));
    // The same run twice, and one alone.
    let ended = flash(["report", "--join", &one, &one]);
    assert!(ended.code == Some(2) && ended.stderr.contains("are the same run"), "{ended:?}");
    assert_eq!(flash(["report", "--join", &one]).code, Some(2));
    // A run after these.
    let later = folder.text("later");
    assert_eq!(load(&url, &["--out", &later]).code, Some(0));
    let ended = flash(["report", "--join", &one, &later]);
    assert!(ended.code == Some(2) && ended.stderr.contains("rates of runs at different times"), "{ended:?}");
    assert!(!folder.path("one/joined.html").exists());
}

#[test]
fn without_polling_a_load_takes_little_of_its_core() {
    let (url, _) = server();
    let cpu_s = |word: &str| {
        // The second line has the CPU time of the children.
        let script = r#""$@" >&2 && times"#;
        let words = ["--rate", "300", "--duration", "1s", "--warm-up", "0s", "--discard", word];
        let ended =
            Command::new("sh").args(["-c", script, "sh", FLASH, "load", &url]).args(words).output().unwrap();
        let times = String::from_utf8(ended.stdout).unwrap();
        let fields =
            times.lines().nth(1).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&ended.stderr)));
        let seconds = |field: &str| {
            let (minutes, seconds) = field.trim_end_matches('s').split_once('m').unwrap();
            60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
        };
        fields.split(' ').map(seconds).sum::<f64>()
    };
    // A load that polls takes what a busy machine leaves it.
    let takes_less = |_| 2.0 * cpu_s("--no-poll") < cpu_s("--progress=never");
    assert!((0..5).any(takes_less));
}
