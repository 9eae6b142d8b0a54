//! Each command on Flash: its results, its output and its exit code.

use std::fs;

use crate::harness::{Folder, Served, flash, run_json, skip, small_set, start, wait_for_lines};

/// Runs `flash load` on a Flash with the small set, with these arguments added.
fn load(out: &str, words: &[&str]) -> crate::harness::Ended {
    let served = Served::folder(small_set());
    let common = ["load", &served.url, "--out", out, "--warm-up", "0s", "--connections", "16"];
    flash(common.iter().chain(words).copied())
}

#[test]
fn load_keeps_its_results_and_draws_them() {
    let folder = Folder::new();
    let out = folder.text("out");
    let words =
        ["--workload", "specweb99", "--files", small_set(), "--verify", "--rate", "300", "--duration", "2s"];
    let ended = load(&out, &words);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = run_json(&out);
    let level = &run["subjects"][0]["levels"][0];
    let asked = level["counts"]["asked"].as_u64().unwrap();
    assert!((450..=750).contains(&asked), "{asked}: some 600 Poisson arrivals");
    assert_eq!(level["counts"]["answered"], asked);
    let latency = &level["latency"];
    assert!(
        latency["p5_ms"].as_f64() <= latency["p50_ms"].as_f64()
            && latency["p999_ms"].as_f64() <= latency["max_ms"].as_f64()
    );
    assert!(
        level["counts"]["connections"].as_u64().unwrap() >= asked / 5,
        "five requests a connection at most"
    );
    let records = folder.path("out").join(level["records"].as_str().unwrap());
    assert!(fs::metadata(records).unwrap().len() > asked * 40);
    let page = fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("NaN"));
    let report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.path("out/report.json")).unwrap()).unwrap();
    assert!(report.is_object() || report.is_array());
    assert!(ended.stdout.contains("p99"), "{}", ended.stdout);
}

#[test]
fn a_closed_loop_needs_no_options() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let url = format!("{}/dir00000/class1_1", served.url);
    let out = folder.text("out");
    let pid = served.pid().to_string();
    let ended = flash(["load", &url, "--duration", "1s", "--warm-up", "0s", "--out", &out, "--pid", &pid]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    assert!(level["counts"]["answered"].as_u64().unwrap() > 100);
    assert!(level["server"]["cpu_s"].as_f64().unwrap() > 0.0);
    assert_eq!(level["latency"]["max_ms"].as_f64().map(|max| max > 0.0), Some(true));
}

#[test]
fn requirements_decide_the_exit_code() {
    let folder = Folder::new();
    let words = ["--workload", "single:/dir00000/class0_1", "--rate", "100", "--duration", "1s"];
    let holds = ["--require", "p99<30s", "--require", "errors<0.1%"];
    let ended = load(&folder.text("holds"), &[&words[..], &holds].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = load(&folder.text("fails"), &[&words[..], &["--require", "p50<1us"]].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(folder.path("fails/report.html").exists());
    let ended = load(&folder.text("wrong"), &[&words[..], &["--require", "p98.3<quick"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn bad_usage_and_a_run_that_failed_have_their_own_exit_codes() {
    let folder = Folder::new();
    let out = folder.text("out");
    let cases: [(&[&str], i32); 9] = [
        (&["load", "http://192.0.2.1/"], 2),
        (&["load", "ftp://127.0.0.1/"], 2),
        (&["load", "http://127.0.0.1:9/", "--clients", "0"], 2),
        (&["load", "http://127.0.0.1:9/", "--clients", "5", "--rate", "7"], 2),
        (&["load", "http://127.0.0.1:9/", "--workload", "zipf:x"], 2),
        (&["load", "http://127.0.0.1:9/", "--retries", "3"], 2),
        (&["load", "http://127.0.0.1:9/", "--verify"], 2),
        (&["load", "http://127.0.0.1:9/", "--workload", "log:/nothing/here"], 1),
        (&["load", "http://127.0.0.1:9/"], 1),
    ];
    for (words, code) in cases {
        let ended = flash(words.iter().copied().chain(["--out", &out]));
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains("error:"), "{words:?}: {ended:?}");
    }
}

#[test]
fn another_runs_results_are_not_written_over() {
    let folder = Folder::new();
    let out = folder.text("out");
    let words = ["--workload", "single:/dir00000/class0_1", "--rate", "50", "--duration", "1s"];
    assert_eq!(load(&out, &words).code, Some(0));
    let ended = load(&out, &words);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("another run"), "{ended:?}");
}

#[test]
fn a_signal_ends_a_run_early_and_keeps_it() {
    let folder = Folder::new();
    let log = folder.text("access.log");
    let served = Served::folder_with(small_set(), &["--log-file", &log]);
    let out = folder.text("out");
    let url = format!("{}/dir00000/class0_5", served.url);
    let running =
        start(["load", &url, "--rate", "200", "--duration", "600s", "--warm-up", "0s", "--out", &out]);
    wait_for_lines(&log, 200);
    running.signal("INT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    assert!(level["counts"]["answered"].as_u64().unwrap() > 50, "{level}");
    assert!(level["ended_early"].is_string(), "{level}");
    assert!(level["duration_s"].as_f64().unwrap() < 300.0);
    assert!(folder.path("out/report.html").exists());
}

#[test]
fn a_profile_has_its_levels_and_a_score() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let out = folder.text("out");
    let words =
        ["--levels", "0.2,0.5", "--duration", "1s", "--warm-up", "0s", "--connections", "64", "--score=4"];
    let common = ["profile", &served.url, "--files", small_set(), "--out", &out];
    let ended = flash(common.iter().chain(&words).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let subject = &run_json(&out)["subjects"][0];
    let capacity = subject["capacity"]["requests_per_s"].as_f64().unwrap();
    assert!(capacity > 100.0);
    let levels = subject["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 2);
    for (level, fraction) in levels.iter().zip([0.2, 0.5]) {
        assert_eq!(level["load_level"], fraction);
        assert!((level["asked_per_s"].as_f64().unwrap() / capacity / fraction - 1.0).abs() < 1e-6);
        assert!((0.0..=1.0).contains(&level["inversion"].as_f64().unwrap()));
        assert_eq!(level["deciles"].as_array().unwrap().len(), 10);
        assert_eq!(level["series"].as_array().unwrap().len(), 4);
    }
    assert!(subject["score"]["tries"].as_array().is_some_and(|tries| !tries.is_empty()));
}

#[test]
fn a_sweep_has_a_profile_for_each_size() {
    let folder = Folder::new();
    let served = Served::folder(small_set());
    let out = folder.text("out");
    let words = ["--levels", "0.5", "--duration", "1s", "--warm-up", "0s", "--sweep", "directories=1,2"];
    let common = ["profile", &served.url, "--files", small_set(), "--out", &out];
    let ended = flash(common.iter().chain(&words).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = run_json(&out);
    let sizes: Vec<u64> =
        run["subjects"].as_array().unwrap().iter().map(|s| s["dataset_bytes"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [5_119_470, 10_238_940]);
}

#[test]
fn a_log_is_replayed_against_a_set_of_its_sizes() {
    let folder = Folder::new();
    let line = |second: u32, path: &str, bytes: u32| {
        format!("127.0.0.1 - - [21/Nov/2026:06:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 {bytes}\n")
    };
    let lines: Vec<String> = (0..3)
        .flat_map(|s| (0..20).map(move |i| (s, i)))
        .map(|(s, i)| line(s, &format!("/x{}", i % 7), 100 * (i % 7 + 1)))
        .collect();
    let log = folder.write("access.log", lines.concat() + "garbage\n");
    let set = folder.text("set");
    let made = flash(["fileset", &format!("log:{log}"), &set]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let served = Served::folder(&set);
    let out = folder.text("out");
    let workload = format!("log:{log}");
    let words = [
        "load",
        &served.url,
        "--workload",
        &workload,
        "--files",
        &set,
        "--out",
        &out,
        "--verify",
        "--warm-up",
        "0s",
    ];
    let ended = flash(words);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("line 61"), "the malformed line is shown: {ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    assert_eq!(level["counts"]["asked"], 60);
    assert_eq!(level["counts"]["answered"], 60);
}

#[test]
fn several_runs_make_one_report() {
    let folder = Folder::new();
    let (one, two) = (folder.text("one"), folder.text("two"));
    for out in [&one, &two] {
        let words = ["--workload", "single:/dir00000/class0_1", "--rate", "100", "--duration", "1s"];
        assert_eq!(load(out, &words).code, Some(0));
    }
    let page = folder.text("both.html");
    let ended = flash(["report", &one, &two, "--out", &page]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
    assert_eq!(flash(["report", &folder.text("nothing")]).code, Some(2));
}

#[test]
fn an_open_loop_lasts_to_its_end_and_reports_its_rate() {
    let folder = Folder::new();
    let single = ["--workload", "single:/dir00000/class0_1"];
    // Some two requests: the last one's start is not the end.
    let out = folder.text("rate");
    let ended = load(&out, &[&single[..], &["--rate", "1", "--duration", "2s", "--seed", "3"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    assert_eq!(level["duration_s"], 2.0, "{level}");
    let answered = level["counts"]["answered"].as_f64().unwrap();
    assert!((level["answered_per_s"].as_f64().unwrap() - answered / 2.0).abs() < 1e-9, "{level}");

    let out = folder.text("phases");
    let ended = load(&out, &[&single[..], &["--phases", "1s@40/s,1s@0/s", "--arrivals", "fixed"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let level = &run_json(&out)["subjects"][0]["levels"][0];
    assert_eq!((&level["asked_per_s"], &level["duration_s"]), (&20.0.into(), &2.0.into()));
    assert_eq!((&level["counts"]["asked"], &level["answered_per_s"]), (&40.into(), &20.0.into()));
}

#[test]
fn a_load_of_overload_has_its_figures() {
    let folder = Folder::new();
    let (set, out) = (folder.text("set"), folder.text("out"));
    let made = flash(["fileset", "pareto", &set, "--size", "100kB"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let served = Served::folder(&set);
    let words = "--workload pareto --link 20Mbit --phases 1s@0.2,1s@0.4 --requests-per-connection 1 --session 2 \
                 --think 10ms --abort-after 1m --retries 2 --warm-up 0s --drain 60s";
    let words = words.split(' ').filter(|word| !word.is_empty());
    let ended = flash(["load", &served.url, "--files", &set, "--out", &out].into_iter().chain(words));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["mean response time", "0 of ", "open connections"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    let run = run_json(&out);
    let settings = &run["settings"];
    assert!(
        settings["link"].as_str().unwrap().starts_with("20 Mbit/s in packets of 1500 bytes"),
        "{settings}"
    );
    assert!(
        settings["users come back"].as_str().unwrap().starts_with("for 2 requests on average"),
        "{settings}"
    );
    let level = &run["subjects"][0]["levels"][0];
    let (asked, overload) = (level["counts"]["asked"].as_u64().unwrap(), &level["overload"]);
    let sum = |of: &serde_json::Value| {
        of.as_array().unwrap().iter().map(|one| one["asked"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum(&overload["by_size"]), sum(&overload["over_time"])), (asked, asked), "{level}");
    assert_eq!(level["counts"]["connections"], asked, "one for each request");
    assert_eq!(overload["incomplete"]["aborted"], 0, "{overload}");
}

#[test]
fn impossible_options_are_refused_before_the_load_begins() {
    let folder = Folder::new();
    let (out, child) = (folder.text("out"), std::process::Command::new("true").spawn());
    let mut child = child.unwrap();
    child.wait().unwrap();
    let gone = child.id().to_string();
    let served = Served::folder(small_set());
    let url = format!("{}/dir00000/class0_1", served.url);
    let cases: [&[&str]; 9] = [
        &["load", &url, "--pid", &gone],
        &["load", &url, "--session", "3"],
        &["load", &url, "--session", "0.5", "--rate", "1"],
        &["load", &url, "--link", "0", "--load", "1"],
        &["load", &url, "--workload", "pareto", "--rate", "1"],
        &["load", &url, "--cores", "1023"],
        &["profile", &url, "--workload", "single:/", "--pid", &gone],
        &["profile", &url, "--workload", "single:/", "--capacity", "0"],
        &["profile", &url, "--workload", "single:/", "--capacity", "nan"],
    ];
    for words in cases {
        let ended = flash(words.iter().copied().chain(["--out", &out]));
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("clients"), "nothing was asked for: {ended:?}");
        assert!(!folder.path("out").exists(), "{words:?}");
    }
}

#[test]
fn a_testbed_passes_on_the_exit_code_and_the_core() {
    let run = |words: &[&str]| flash(["testbed", "t"].iter().chain(words).copied());
    let ended =
        run(&["--core", "0", "--", "/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status; exit 7"]);
    assert_eq!(ended.code, Some(7), "{ended:?}");
    assert_eq!(ended.stdout.split_ascii_whitespace().last(), Some("0"), "{ended:?}");
    let ended = run(&["--core", "0", "--", "/bin/sh", "-c", "kill -KILL $$"]);
    assert_eq!(ended.code, Some(128 + 9), "{ended:?}");
    for (words, code, part) in [
        (&["--", "true"][..], 2, "no bound"),
        (&["--core", "0", "--", "/not/there"], 1, "cannot start /not/there"),
        (&["--core", "1023", "--", "true"], 1, "core 1023"),
        (&["--core", "0", "--files", "/not/there", "--", "true"], 2, "/not/there"),
        (&["--cpu", "0", "--", "true"], 2, "0 is not in 1..=100"),
        (&["--reads", "100", "--files", "/proc", "--", "true"], 1, "there can be no testbed"),
    ] {
        let ended = run(words);
        assert_eq!(ended.code, Some(code), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
    }
}

#[test]
fn a_testbed_bounds_the_cpu_or_fails() {
    // A loop of three seconds that computes: 0.3 s of CPU time.
    let script = "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done; times";
    let ended = flash(["testbed", "t", "--cpu", "10", "--", "/bin/sh", "-c", script]);
    if ended.code == Some(1) {
        assert!(ended.stderr.contains("there can be no testbed"), "{ended:?}");
        skip(&ended.stderr);
        return;
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let seconds: f64 = ended
        .stdout
        .split_ascii_whitespace()
        .map(|time| time.trim_end_matches('s').split_once('m').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!(seconds < 1.0, "3 s at 10 % of a core: {ended:?}");
}

#[test]
fn a_testbed_bounds_memory_or_fails() {
    let script = "cat /proc/self/cgroup; sleep 600 & exit 3";
    let ended = flash(["testbed", "t", "--memory", "64MiB", "--", "/bin/sh", "-c", script]);
    if ended.code == Some(1) {
        assert!(ended.stderr.contains("there can be no testbed"), "{ended:?}");
        assert!(ended.stdout.is_empty(), "the command was not started: {ended:?}");
        skip(&ended.stderr);
        return;
    }
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.stdout.contains("flash-lab-"), "{ended:?}");
    // It could not remove the group under the process that was left, and the output would not end before that does.
    assert!(ended.stderr.contains("left 1 processes"), "{ended:?}");
}
