//! The lab over TLS and HTTP/2: against Flash, the floor, and the servers that Debian has.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{FLASH, Folder, Served, flash, is_installed, run_json, skip, small_set};

/// A `flash floor` over TLS.
struct Floor {
    child: Child,
    url: String,
}

impl Floor {
    fn start(tls: &str) -> Self {
        let mut command = Command::new(FLASH);
        command.args(["floor", "--listen", "127.0.0.1:0", tls]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let url = first.split_whitespace().find(|word| word.starts_with("https://"));
        let url = url.unwrap_or_else(|| panic!("no URL in {first:?}")).to_owned();
        Self { child, url }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first level of the first subject.
fn level(out: &str) -> Value {
    run_json(out)["subjects"][0]["levels"][0].clone()
}

const SHORT: [&str; 4] = ["--warm-up", "0s", "--duration", "1s"];

#[test]
fn handshakes_are_measured_apart_and_resumed_unless_that_is_off() {
    let folder = Folder::new();
    for (tls, version) in [("--tls", "1.3"), ("--tls=rsa", "1.2")] {
        let floor = Floor::start(tls);
        for (name, words) in [("full", &["--no-resumption"][..]), ("resumed", &[])] {
            let out = folder.text(&format!("{name}{version}"));
            let common = ["load", &floor.url, "--out", &out, "--requests-per-connection", "1"];
            let more = ["--clients", "4", "--tls-version", version];
            let ended = flash(common.iter().chain(&SHORT).chain(&more).chain(words).copied());
            assert_eq!(ended.code, Some(0), "{ended:?}");
            assert!(ended.stdout.contains("TLS handshakes: "), "{}", ended.stdout);
            let level = level(&out);
            let counts = &level["counts"];
            assert!(
                counts["answered"].as_u64() > Some(0) && counts["answered"] == counts["asked"],
                "{counts}"
            );
            let handshakes = &level["handshakes"];
            let [full, resumed] = ["full", "resumed"].map(|kind| handshakes[kind].as_u64().unwrap());
            assert_eq!(full + resumed, counts["connections"].as_u64().unwrap(), "{handshakes}");
            // Each of the clients may begin before the first session is there.
            assert!(if name == "full" { resumed == 0 } else { full <= 4 && resumed > 4 }, "{handshakes}");
            let settings = &run_json(&out)["settings"]["TLS of https"];
            assert!(settings.as_str().unwrap().contains("certificates not verified"), "{settings}");
        }
    }
}

#[test]
fn http_2_carries_many_requests_on_a_connection() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let out = folder.text("out");
    let words = ["--http2", "--streams", "8", "--clients", "20", "--verify", "--workload", "specweb99"];
    let common = ["load", &served.url, "--out", &out, "--files", small_set()];
    let ended = flash(common.iter().chain(&SHORT).chain(&words).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let level = level(&out);
    assert!(level["counts"]["answered"].as_u64() > Some(100), "{level}");
    assert_eq!(level["counts"]["failed"], serde_json::json!({}));
    assert!((1..=3).contains(&level["counts"]["connections"].as_u64().unwrap()), "{level}");
    assert!(level["handshakes"].is_null());
    let wire = &run_json(&out)["settings"]["wire"];
    assert_eq!(wire, "HTTP/2, at most 8 requests at once on a connection");
}

#[test]
fn impossible_wires_are_refused() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let secure = served.url.replace("http:", "https:");
    let out = folder.text("out");
    let cases: [(&str, &[&str], i32); 5] = [
        (&secure, &[], 1),
        (&served.url, &["--streams", "8"], 2),
        (&served.url, &["--http2", "--streams", "0"], 2),
        (&served.url, &["--http2", "--read-rate", "1000"], 2),
        (&secure, &["--ca", "/not/there"], 1),
    ];
    for (url, words, code) in cases {
        let common = ["load", url, "--out", &out];
        let ended = flash(common.iter().chain(&SHORT).chain(words).copied());
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(!ended.stderr.is_empty());
    }
}

#[test]
fn hot_and_cold_requests_share_connections_of_http_2() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let out = folder.text("out");
    let words = ["--hot-dirs", "1", "--cold-dirs", "1..2", "--hot-rate", "200", "--cold-rate", "3"];
    let more = ["--rounds", "1", "--seconds", "1", "--verify", "--http2", "--out", &out];
    let ended = flash(["interfere", &served.url].iter().chain(&words).chain(&more).copied());
    assert_eq!(ended.code, Some(4), "one round says nothing: {ended:?}");
    let rounds = run_json(&out)["subjects"][0]["rounds"].clone();
    let connections = |name: &str| {
        let round = rounds.as_array().unwrap().iter().find(|round| round["name"] == name).unwrap();
        assert_eq!(round["counts"]["answered"], round["counts"]["asked"], "{round}");
        round["counts"]["connections"].as_u64().unwrap()
    };
    assert!(connections("hot with cold") >= 1);
    assert_eq!(connections("cold"), 0, "all are those of the hot requests");
}

#[test]
fn servers_are_compared_over_each_wire() {
    let mut names = vec!["flash"];
    for (program, name) in
        [("nginx", "nginx"), ("h2o", "h2o"), ("caddy", "caddy"), ("apache2", "apache-event")]
    {
        if is_installed(program) {
            names.push(name);
        } else {
            skip(&format!("in part: {program} is not installed"));
        }
    }
    let folder = Folder::new();
    for (wire, words) in
        [("tls", &["--tls"][..]), ("h2", &["--tls=rsa", "--http2", "--streams", "5"]), ("h2c", &["--http2"])]
    {
        let out = folder.text(wire);
        let common = ["compare", "--files", small_set(), "--out", &out, "--relative-to", "100"];
        let more = ["--levels", "1", "--duration", "500ms", "--warm-up", "0s", "--rounds", "1"];
        let ended = flash(common.iter().chain(&more).chain(words).chain(&names).copied());
        assert_eq!(ended.code, Some(0), "{wire}: {ended:?}");
        let run = run_json(&out);
        let subjects = run["subjects"].as_array().unwrap();
        assert_eq!(subjects.len(), names.len());
        for subject in subjects {
            assert!(subject["missing"].is_null(), "{wire}: {subject}");
            let level = &subject["levels"][0];
            assert_eq!(level["counts"]["answered"], level["counts"]["asked"], "{wire}: {subject}");
            assert_eq!(level["handshakes"].is_null(), wire == "h2c", "{wire}: {subject}");
        }
    }
}
