//! `flash interfere` on Flash: what it keeps, writes and exits with.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Ended, FLASH, Folder, Served, flash, run_json, small_set, start};

/// One directory of hot files, one of cold ones, few requests.
const SMALL: [&str; 10] = [
    "--hot-dirs",
    "1",
    "--cold-dirs",
    "1..2",
    "--hot-rate",
    "200",
    "--cold-rate",
    "3",
    "--drain-seconds",
    "20",
];

/// Runs `flash interfere` on a Flash with the small set, with these words more.
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
fn the_folder_has_each_phase_and_stream_and_their_ratio() {
    let folder = Folder::new();
    let (out, json) = (folder.text("out"), folder.text("figures.json"));
    let ended = interfere(&["--seconds", "2", "--verify", "--out", &out, "--json", &json]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = run_json(&out);
    assert_eq!(run["command"], "interfere");
    let subject = &run["subjects"][0];
    assert_eq!(subject["dataset_bytes"], 10_238_940);
    let levels = &subject["levels"];
    assert_eq!(names(levels), ["hot alone", "hot with cold", "cold"]);
    for (level, some) in levels.as_array().unwrap().iter().zip([320..=480, 320..=480, 1..=36]) {
        let asked = level["counts"]["asked"].as_u64().unwrap();
        assert!(some.contains(&asked), "{asked}");
        assert_eq!(level["counts"]["answered"], asked);
        let records = fs::metadata(Path::new(&out).join(level["records"].as_str().unwrap())).unwrap();
        assert!(records.len() > asked * 40);
    }
    assert_eq!(levels[0]["counts"]["asked"], levels[1]["counts"]["asked"], "the same hot requests");

    let ratios = run["ratios"].as_array().unwrap();
    let p50 = ratios.iter().find(|ratio| ratio["measure"] == "p50").unwrap();
    assert_eq!((&p50["subject"], &p50["base"]), (&"hot with cold".into(), &"hot alone".into()));
    let p50_ms = |level: usize| levels[level]["latency"]["p50_ms"].as_f64().unwrap();
    // Reading numbers rounds them.
    assert!((p50["ratio"].as_f64().unwrap() * p50_ms(0) / p50_ms(1) - 1.0).abs() < 1e-9, "{p50}");
    assert!(ended.stdout.contains("p50: hot with cold / hot alone = "), "{}", ended.stdout);

    let page = fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("hot with cold") && !page.contains("NaN"));
    for name in ["report.json", "latency.hlog", "records/paths.txt"] {
        assert!(fs::metadata(Path::new(&out).join(name)).unwrap().len() > 0, "{name}");
    }
    figures_are_those_of_the_run(&json, levels);
}

/// The file has what the folder has, under the names that `bench/` reads.
fn figures_are_those_of_the_run(json: &str, levels: &Value) {
    let figures: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let phases = figures["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2);
    assert!(phases[0]["cold"].is_null());
    for (stream, level) in
        [(&phases[0]["hot"], &levels[0]), (&phases[1]["hot"], &levels[1]), (&phases[1]["cold"], &levels[2])]
    {
        let counts = &level["counts"];
        for name in ["asked", "answered", "queued", "retried"] {
            assert_eq!(stream[name], counts[name], "{name}");
        }
        assert_eq!(stream["faults"], counts["failed"]);
        assert_eq!(stream["failed"], 0);
        assert_eq!(stream["answered_per_s"], level["answered_per_s"]);
        for name in ["mean_ms", "p50_ms", "p99_ms", "p999_ms", "max_ms"] {
            assert_eq!(stream["latency"][name], level["latency"][name], "{name}");
        }
    }
    for phase in phases {
        assert!(phase["generator"]["was_the_limit"].is_boolean());
        assert!(
            phase["generator"]["late"]["max_ms"].as_f64() >= phase["generator"]["late"]["p99_ms"].as_f64()
        );
    }
}

#[test]
fn a_json_file_alone_makes_no_folder_and_keeps_its_place() {
    let folder = Folder::new();
    let json = folder.write("figures.json", "");
    // As `bench/` has it: the file is open before the command writes it.
    let held = fs::File::open(&json).unwrap();
    let served = Served::folder(small_set());
    let words = ["interfere", &served.url, "--phase", "alone", "--seconds", "1", "--json", &json];
    let mut command = std::process::Command::new("timeout");
    command.args(["60", FLASH]).args(words).args(SMALL).current_dir(folder.path(""));
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let figures: Value = serde_json::from_reader(held).unwrap();
    assert_eq!(figures["phases"].as_array().unwrap().len(), 1);
    let left: Vec<_> =
        fs::read_dir(folder.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["figures.json"]);
}

#[test]
fn requirements_are_of_the_hot_requests() {
    let folder = Folder::new();
    let out = |name: &str| folder.text(name);
    // The cold ones come at 3 a second.
    let holds = ["--seconds", "1", "--require", "rate>20", "--require", "errors<0.1%"];
    let ended = interfere(&[&holds[..], &["--out", &out("holds")]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let fails = ["--seconds", "1", "--phase", "cold", "--require", "p50<1us"];
    let ended = interfere(&[&fails[..], &["--out", &out("fails")]].concat());
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert_eq!(names(&run_json(&out("fails"))["subjects"][0]["levels"]), ["hot with cold", "cold"]);
}

#[test]
fn what_makes_no_sense_is_told_from_what_could_not_run() {
    let folder = Folder::new();
    let out = folder.text("out");
    let nobody = "http://127.0.0.1:9/";
    let cases: [(&[&str], i32, &str); 7] = [
        (&["http://192.0.2.1/"], 2, "not this machine"),
        (&[nobody, "--hot-dirs", "0"], 2, "one must be hot"),
        (&[nobody, "--connections", "0"], 2, "0 connections"),
        (&[nobody, "--seconds", "NaN"], 2, "duration"),
        (&[nobody, "--drain-seconds=-1"], 2, "drain"),
        (&[nobody, "--cold-rate", "100000"], 2, "more directories"),
        (&[nobody, "--hot-dirs", "1"], 1, "is the server running?"),
    ];
    for (words, code, part) in cases {
        let ended = flash(["interfere", "--out", &out].iter().chain(words).copied());
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
    let (out, json) = (folder.text("out"), folder.text("figures.json"));
    let served = Served::folder(small_set());
    let pid = served.pid().to_string();
    let words = ["interfere", &served.url, "--seconds", "60", "--cold-rate", "0.1", "--pid", &pid];
    let kept = ["--out", &out, "--json", &json];
    let running = start(words.iter().chain(&SMALL[..6]).chain(&kept).copied());
    std::thread::sleep(Duration::from_secs(3));
    running.signal("INT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    let levels = &run_json(&out)["subjects"][0]["levels"];
    assert_eq!(names(levels), ["hot alone"]);
    assert!(levels[0]["ended_early"].is_string() && levels[0]["duration_s"].as_f64().unwrap() < 30.0);
    assert!(levels[0]["counts"]["answered"].as_u64().unwrap() > 50);
    assert!(levels[0]["server"]["cpu_s"].as_f64().unwrap() > 0.0);
    let figures: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(figures["phases"].as_array().unwrap().len(), 1);
}
