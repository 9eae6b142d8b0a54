//! `flash interfere` on Flash: its results, its verdict and its exit codes.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::harness::{Ended, Folder, Served, flash, run_json, small_set, start, wait_for_lines};

/// The cold files of the small set. Every cold file is asked for once, so five rounds of a second take few of the 36.
const COLD: [&str; 4] = ["--cold-dirs", "1..2", "--cold-rate", "1"];
/// More cold requests, for one round of a second.
const COLD_ONCE: [&str; 6] = ["--cold-dirs", "1..2", "--cold-rate", "3", "--rounds", "1"];

/// One directory of hot files, few requests. Bounds that no noise of the machine reaches.
const SMALL: [&str; 10] = [
    "--hot-dirs",
    "1",
    "--hot-rate",
    "200",
    "--drain-seconds",
    "20",
    "--p50-times",
    "1000000",
    "--p99-times",
    "1000000",
];

/// The exit code that belongs to the verdict on one server, as printed. Which verdict is a matter of timing.
fn code_of(stdout: &str) -> Option<i32> {
    let codes = [
        ("hot requests did not wait for the disk", 0),
        ("hot requests waited for the disk", 3),
        ("cannot be told", 4),
    ];
    let said = |verdict: &str| {
        stdout.lines().any(|line| line.split(": ").nth(1).is_some_and(|w| w.starts_with(verdict)))
    };
    codes.into_iter().find(|(verdict, _)| said(verdict)).map(|(_, code)| code)
}

/// Runs `flash interfere` on a Flash with the small set, with these arguments added.
#[track_caller]
fn interfere(words: &[&str]) -> Ended {
    let served = Served::folder(small_set());
    let common = ["interfere", &served.url];
    flash(common.iter().chain(&SMALL).chain(words).copied())
}

fn names(levels: &Value) -> Vec<&str> {
    levels.as_array().unwrap().iter().map(|level| level["name"].as_str().unwrap()).collect()
}

#[test]
fn the_folder_has_each_phase_of_each_round_and_the_verdict() {
    let folder = Folder::new();
    let out = folder.text("out");
    let words = ["--seconds", "1", "--verify", "--files", small_set(), "--out", &out];
    let ended = interfere(&[&COLD[..], &words].concat());
    assert!(ended.code.is_some() && ended.code == code_of(&ended.stdout), "{ended:?}");
    let run = run_json(&out);
    assert_eq!(run["command"], "interfere");
    let subject = &run["subjects"][0];
    assert_eq!(subject["dataset_bytes"], 10_238_940);
    let levels = &subject["levels"];
    assert_eq!(names(levels), ["hot alone", "hot with cold", "cold"]);
    let asked = |level: &Value| level["counts"]["asked"].as_u64().unwrap();
    let rounds = subject["rounds"].as_array().unwrap();
    assert!(
        (15..=45).contains(&rounds.len()),
        "five rounds of three streams, and more for those that were disturbed"
    );
    let (mut hot, mut cold) = (Vec::new(), 0);
    for (number, round) in rounds.chunks(3).enumerate() {
        let of = |name: &str| round.iter().find(|phase| phase["name"] == name).unwrap();
        let (alone, beside) = (of("hot alone"), of("hot with cold"));
        assert_eq!(
            round[0]["name"],
            if number % 2 == 0 { "hot alone" } else { "hot with cold" },
            "they alternate"
        );
        assert_eq!(asked(alone), asked(beside), "the same hot requests alone and with cold ones");
        let records = fs::metadata(Path::new(&out).join(alone["records"].as_str().unwrap())).unwrap();
        assert!(records.len() > asked(alone) * 40);
        hot.push(asked(alone));
        cold += asked(of("cold"));
    }
    assert!((1..=60).contains(&cold) && (800..=3600).contains(&hot.iter().sum::<u64>()), "{cold} {hot:?}");
    assert_ne!(hot[0], hot[1], "other requests in another round");
    for level in levels.as_array().unwrap() {
        assert_eq!(level["counts"]["answered"], asked(level));
    }
    assert!(run["settings"]["verdict on server"].is_string(), "{}", run["settings"]);
    let locked = run["settings"]["hot files locked in memory"].as_str().unwrap();
    assert_eq!(locked, "36 files of 5.12 MB together");
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.starts_with("server: "), "the verdict comes last: {last}");

    let page = fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("hot with cold") && !page.contains("NaN"));
    for name in ["report.json", "latency.hlog", "records/paths.txt"] {
        assert!(fs::metadata(Path::new(&out).join(name)).unwrap().len() > 0, "{name}");
    }
}

#[test]
fn a_server_ends_cold_requests_before_it_is_measured_alone() {
    let folder = Folder::new();
    let (out, log) = (folder.text("out"), folder.text("access.log"));
    let served = Served::folder_with(small_set(), &["--log-file", &log]);
    let words = ["interfere", &served.url, "--seconds", "1", "--rounds", "2", "--out", &out];
    let ended = flash(words.iter().chain(&SMALL).chain(&COLD).copied());
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let run = run_json(&out);
    let phases = run["subjects"][0]["rounds"].as_array().unwrap();
    let asked: u64 = phases.iter().map(|phase| phase["counts"]["asked"].as_u64().unwrap()).sum();
    // Each turn begins with a request for each of the 36 hot files. In every second turn cold requests come first, and the hot
    // files are requested once more after them.
    let turns = phases.len() / 3;
    let expected = asked as usize + 36 * (turns + turns / 2);
    // Each turn also requests `/` once.
    wait_for_lines(&log, expected + turns);
    let lines = fs::read_to_string(&log).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("GET /dir")).count(), expected);
}

#[test]
fn too_few_rounds_give_no_verdict() {
    let folder = Folder::new();
    let out = folder.text("out");
    let ended = interfere(&[&COLD_ONCE[..], &["--seconds", "1", "--out", &out]].concat());
    assert_eq!(ended.code, Some(4), "{ended:?}");
    assert!(ended.stdout.contains("server: cannot be told: "), "{ended:?}");
    assert!(ended.stderr.contains("not locked in memory: --files"), "{ended:?}");
}

#[test]
fn cold_requests_that_all_fail_are_an_error() {
    let folder = Folder::new();
    let out = folder.text("out");
    // The set has two directories: files of the third and later ones are answered 404.
    let words = ["--seconds", "1", "--rounds", "1", "--cold-rate", "5", "--cold-dirs", "2..4", "--out", &out];
    let ended = interfere(&words);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("answered no cold request"), "{ended:?}");
    assert!(folder.path("out/report.html").exists(), "the results are kept");
}

#[test]
fn requirements_are_of_the_hot_requests() {
    let folder = Folder::new();
    let out = |name: &str| folder.text(name);
    let once = [&COLD_ONCE[..], &["--seconds", "1"]].concat();
    // The cold requests come at 3 a second.
    let holds = ["--require", "rate>20", "--require", "errors<0.1%", "--out", &out("holds")];
    let ended = interfere(&[&once[..], &holds].concat());
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let ended = interfere(&[&once[..], &["--require", "p50<1us", "--out", &out("fails")]].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

#[test]
fn bad_usage_and_runs_that_cannot_start_have_their_own_exit_codes() {
    let folder = Folder::new();
    let out = folder.text("out");
    let nobody = "http://127.0.0.1:9/";
    let cases: [(&[&str], i32, &str); 10] = [
        (&["http://192.0.2.1/"], 2, "not this machine"),
        (&[nobody, "--hot-dirs", "0"], 2, "one must be hot"),
        (&[nobody, "--connections", "0"], 2, "0 connections"),
        (&[nobody, "--seconds", "NaN"], 2, "duration"),
        (&[nobody, "--drain-seconds=-1"], 2, "drain"),
        (&[nobody, "--cold-rate", "100000"], 2, "more directories"),
        (&[nobody, "--rounds", "0"], 2, "0 rounds"),
        (&[nobody, "--p50-times", "0.5"], 2, "at least 1"),
        (&["flash"], 2, "--files DIR"),
        (&["flash", "--files", small_set(), "--pid", "1"], 2, "one running server"),
    ];
    for (words, code, part) in cases {
        let common = ["interfere", "--cold-dirs", "20..586", "--out", &out];
        let ended = flash(common.iter().chain(words).copied());
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
    }
    // The set has two directories.
    let served = Served::folder(small_set());
    let ended = flash(["interfere", &served.url, "--hot-dirs", "3", "--cold-dirs", "3..586", "--out", &out]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("only 72 of 108 files") && ended.stderr.contains("36 × status 404"),
        "{ended:?}"
    );
    assert!(!Path::new(&out).exists());
}

#[test]
fn a_signal_keeps_the_phase_that_it_ended() {
    let folder = Folder::new();
    let (out, log) = (folder.text("out"), folder.text("access.log"));
    let served = Served::folder_with(small_set(), &["--log-file", &log]);
    let pid = served.pid().to_string();
    let cold = ["--cold-dirs", "1..2", "--cold-rate", "0.01", "--rounds", "1"];
    let words = ["interfere", &served.url, "--seconds", "600", "--pid", &pid, "--out", &out];
    let running = start(words.iter().chain(&SMALL).chain(&cold).copied());
    // More than those that bring the hot files into memory.
    wait_for_lines(&log, 400);
    running.signal("INT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let levels = &run_json(&out)["subjects"][0]["levels"];
    assert_eq!(names(levels), ["hot alone"]);
    assert!(levels[0]["ended_early"].is_string() && levels[0]["duration_s"].as_f64().unwrap() < 300.0);
    assert!(levels[0]["counts"]["answered"].as_u64().unwrap() > 50);
    assert!(levels[0]["server"]["cpu_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn servers_that_are_started_take_turns() {
    let folder = Folder::new();
    let out = folder.text("out");
    let peers = folder.write(
        "peers.toml",
        "[[server]]\nname = \"a\"\nlike = \"flash\"\n[[server]]\nname = \"b\"\nlike = \"flash\"\n",
    );
    let words = ["interfere", "--servers", &peers, "--files", small_set(), "--seconds", "1", "--rounds", "2"];
    let ended = flash(words.iter().chain(&SMALL).chain(&COLD).chain(&["--out", &out]).copied());
    assert_eq!(ended.code, Some(4), "{ended:?}");
    let run = run_json(&out);
    for (subject, name) in run["subjects"].as_array().unwrap().iter().zip(["a", "b"]) {
        assert_eq!(subject["name"], name);
        assert_eq!(subject["rounds"].as_array().unwrap().len(), 6, "{subject}");
    }
    let turns: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("hot alone")).collect();
    let begins: Vec<&str> = turns.iter().map(|line| &line[..1]).collect();
    assert_eq!(begins, ["a", "b", "b", "a"], "each round begins with another server");
}
