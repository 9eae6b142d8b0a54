//! `flash experiment`: whole experiments on the real program, cut as short as can be, and what is missing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::Value;

use crate::harness::{Ended, FLASH, Folder, flash, is_root, run_json, skip, small_set, start, start_with};

/// Options for a short experiment, which gives no verdict.
const SHORT: [&str; 4] = ["--quick", "--rounds", "1", "--duration"];

fn experiment(name: &str, folder: &Folder, words: &[&str]) -> Ended {
    let (out, sets) = (folder.text("out"), folder.text("sets"));
    let common = ["experiment", name, "--out", &out, "--sets", &sets];
    flash(common.iter().chain(words).copied())
}

fn report(folder: &Folder) -> Value {
    serde_json::from_str(&fs::read_to_string(folder.path("out/report.json")).unwrap()).unwrap()
}

/// The options that this program has.
fn has(option: &str) -> bool {
    flash(["serve", "--help"]).stdout.contains(option)
}

#[track_caller]
fn assert_page(folder: &Folder) {
    let page = fs::read_to_string(folder.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("cannot be told") && !page.contains("NaN"));
}

#[test]
fn single_file_runs_whole() {
    let folder = Folder::new();
    let ended = experiment("single-file", &folder, &[&SHORT[..], &["300ms", "--peers", "nginx"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_page(&folder);
    let run = run_json(&folder.text("out"));
    let amped = &run["subjects"][0];
    assert_eq!(amped["name"], "AMPED");
    let levels: Vec<&str> =
        amped["levels"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert_eq!(levels, ["1.00 kB", "10.0 kB", "100 kB"]);
    for level in amped["levels"].as_array().unwrap() {
        assert!(level["counts"]["answered"].as_u64().unwrap() > 0, "{level}");
        let failed = level["counts"]["failed"].as_object().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
    }
    let report = report(&folder);
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["id"] == "single-file/alike-10k"));
    for finding in findings {
        assert_eq!(finding["verdict"], "cannot_be_told", "one round tells nothing: {finding}");
    }
    assert!(ended.stdout.contains("single-file/alike-10k"), "{ended:?}");
    // The table that it began, not what another run left.
    let again = experiment("single-file", &folder, &SHORT[..1]);
    assert!(again.code == Some(2) && again.stderr.contains("another run"), "{again:?}");
    the_findings_are_judged_again(&folder, findings);
}

/// The findings go into their sections of a document and into the table of all, computed from what was measured.
fn the_findings_are_judged_again(folder: &Folder, findings: &[Value]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = folder.write("doc.md", fs::read_to_string(root.join("docs/experiments.md")).unwrap());
    let ended = flash(["experiment", "judge", &folder.text("out"), "--into", &document]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let table = fs::read_to_string(&document).unwrap();
    assert!(table.contains("](doc/single-file.md#single-filealike-10k) |"), "{table}");
    let written = fs::read_to_string(folder.path("doc/single-file.md")).unwrap();
    for finding in findings {
        let (id, ours) = (finding["id"].as_str().unwrap(), finding["ours"].as_str().unwrap());
        let (_, section) = written.split_once(&format!("<!-- finding {id} -->")).unwrap();
        let (section, _) = section.split_once("<!-- end of finding -->").unwrap();
        let figures = ours.split("; ").next().unwrap();
        assert!(section.contains("**Cannot be told: ") && section.contains(figures), "{id}: {section}");
    }
    let printed = flash(["experiment", "judge", &folder.text("out")]);
    assert!(printed.code == Some(0) && printed.stdout.starts_with("### single-file/"), "{printed:?}");
}

/// Reports of whole quick experiments stand for all except one, which was broken off.
#[test]
fn all_runs_what_is_not_whole() {
    let folder = Folder::new();
    let out = folder.text("all");
    let listed = flash(["experiment", "all", "--quick", "--plan", "--out", &out]).stdout;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    for name in names.iter().filter(|name| !["all", "single-file"].contains(name)) {
        fs::create_dir_all(folder.path(&format!("all/{name}"))).unwrap();
        let report = format!("{{\"experiment\":\"{name}\",\"quick\":true,\"memory_bytes\":512000000}}");
        folder.write(&format!("all/{name}/report.json"), report);
    }
    fs::create_dir(folder.path("all/single-file")).unwrap();
    folder.write("all/single-file/run.json", "{}");
    let sets = folder.text("sets");
    let words = ["experiment", "all", "--no-wait", "--out", &out, "--sets", &sets, "--peers", "none"];
    let short = || words.iter().chain(&SHORT).chain(&["200ms"]).copied();
    let ended = flash(short());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.stderr.contains("clients is whole") && ended.stderr.contains("single-file, about"),
        "{ended:?}"
    );
    assert!(folder.path("all/single-file.broken-off-1/run.json").exists());
    let page = fs::read_to_string(folder.path("all/index.html")).unwrap();
    assert!(page.contains("href=\"single-file/report.html#findings\"") && page.contains("not measured"));
    let run = run_json(&folder.text("all/single-file"));
    assert!(flash(["--version"]).stdout.contains(run["machine"]["program"].as_str().unwrap()), "{run}");
    // A failure ends no other experiment, and is reported at the end.
    let again = flash(short());
    assert!(again.code == Some(0) && again.stderr.contains("single-file is whole"), "{again:?}");
    fs::remove_dir_all(folder.path("all/dataset-size")).unwrap();
    let set = small_set();
    let failed = flash(short().chain(["--files", set]));
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stderr.contains("1 of 13 failed: dataset-size: exit code 2: error: "), "{failed:?}");
}

#[test]
fn breakdown_runs_whole() {
    let folder = Folder::new();
    let ended = experiment("breakdown", &folder, &[&SHORT[..], &["200ms"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_page(&folder);
    let run = run_json(&folder.text("out"));
    let subjects = run["subjects"].as_array().unwrap();
    assert_eq!(subjects.len(), 8);
    // Missing options are named; the others are measured.
    for subject in subjects {
        let is_whole = subject["levels"].as_array().unwrap().len() == 2;
        assert_eq!(is_whole, subject["missing"].is_null(), "{}: {}", subject["name"], subject["missing"]);
    }
    let options = ["--no-name-cache", "--no-head-cache", "--no-content-cache"];
    let lacking: Vec<&str> = options.into_iter().filter(|option| !has(option)).collect();
    let whole = subjects.iter().filter(|subject| subject["missing"].is_null()).count();
    assert_eq!(whole, 8 >> lacking.len(), "{lacking:?}");
    for option in lacking {
        assert!(ended.stdout.contains(&format!("this `flash serve` has no {option}")), "{ended:?}");
    }
}

#[test]
fn what_is_missing_is_named_and_the_rest_runs() {
    let folder = Folder::new();
    // A Flash that has none of the options but the two that each architecture is given, and no server of another make.
    let help = "[ \"$2\" = --help ] && echo --accept-wait --queue-wait && exit 0";
    let old = folder.write("old-flash", format!("#!/bin/sh\n{help}\nexec {FLASH} \"$@\"\n"));
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755)).unwrap();
    // No programs but those that the lab itself and the script need.
    let tools = folder.text("bin");
    fs::create_dir(&tools).unwrap();
    for tool in ["sh", "df"] {
        let folders = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(tool));
        let found = folders.iter().find(|path| path.exists()).unwrap();
        symlink(found, Path::new(&tools).join(tool)).unwrap();
    }
    let (out, sets) = (folder.text("out"), folder.text("sets"));
    let common = ["experiment", "single-file", "--out", &out, "--sets", &sets, "--peers", "h2o"];
    let words = common.iter().chain(&SHORT).chain(&["200ms"]).copied();
    let Ended { code, stdout, stderr } = start_with(words, &[("FLASH", &old), ("PATH", &tools)]).wait();
    assert_eq!(code, Some(0), "{stdout} {stderr}");
    for name in ["SPED", "MP", "MT"] {
        assert!(
            stdout.contains(&format!("missing: {name}: this `flash serve` has no --architecture")),
            "{stdout}"
        );
    }
    let is_there =
        ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(|f| Path::new(f).join("h2o").exists()).contains(&true);
    assert!(is_there || stdout.contains("missing: h2o: cannot start h2o"), "{stdout}");
    let report = report(&folder);
    assert_eq!(report["is_whole"], false);
    assert!(report["missing"].as_array().unwrap().len() >= 3);
    let run = run_json(&out);
    assert_eq!(run["subjects"][0]["levels"].as_array().unwrap().len(), 3, "AMPED was measured");
}

#[test]
fn a_signal_keeps_what_there_is() {
    a_signal_keeps("single-file");
}

/// The threads that serve the disk leave the signal to the one that watches for it.
#[test]
fn a_signal_keeps_what_there_is_and_unmounts_the_disk() {
    if !is_root() || !Path::new("/sys/fs/cgroup/blkio").exists() {
        return skip("no root, or no cgroups v1 under /sys/fs/cgroup");
    }
    if !Path::new("/dev/fuse").exists() {
        return skip("no disk can be mounted here: there is no /dev/fuse");
    }
    let folder = a_signal_keeps("dataset-size");
    for name in ["disk", "device"] {
        let left = fs::read_dir(folder.path(&format!("sets/{name}"))).unwrap().count();
        assert_eq!(left, 0, "{name} is still mounted");
    }
}

fn a_signal_keeps(experiment: &str) -> Folder {
    let folder = Folder::new();
    let (out, sets) = (folder.text("out"), folder.text("sets"));
    let words = ["--quick", "--duration", "1s", "--peers", "none", "--memory", "64MB"];
    let common = ["experiment", experiment, "--out", &out, "--sets", &sets];
    let running = start(common.iter().chain(&words).copied());
    let began = std::time::Instant::now();
    // Until something was measured.
    while !folder.path("out/run.json").exists() && began.elapsed().as_secs() < 60 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.signal("INT");
    let ended = running.wait();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_page(&folder);
    assert_eq!(report(&folder)["is_whole"], false);
    folder
}

#[test]
fn the_list_says_what_there_is_and_wrong_words_are_told() {
    let listed = flash(["experiment"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for name in [
        "single-file",
        "site-logs",
        "dataset-size",
        "breakdown",
        "clients",
        "new-flash",
        "flashpache",
        "burstiness",
        "cpu-speed",
        "hot-cold",
        "what-blocks",
        "overload",
        "cwnd",
    ] {
        assert!(listed.stdout.lines().any(|line| line.starts_with(name)), "{name}: {listed:?}");
    }
    let planned = flash(["experiment", "clients", "--quick", "--plan"]);
    assert!(planned.code == Some(0) && planned.stdout.contains("takes: about"), "{planned:?}");
    let set = small_set();
    let cases: [(&[&str], &str); 11] = [
        (&["sites"], "no experiment 'sites'"),
        (&["trace"], "the experiment 'trace' is named 'site-logs'"),
        (&["site-logs", "--trace", "x.log"], "named --log"),
        (&["single-file", "--rounds", "0"], "0 rounds"),
        (&["single-file", "--peers", "zeus"], "no server 'zeus'"),
        (&["single-file", "--duration", "x"], "--duration"),
        (&["clients", "--log", "x.log"], "only the experiment `site-logs`"),
        (&["clients", "--memory", "1B"], "1 B of memory"),
        (&["dataset-size", "--files", set], "has fewer than"),
        (&["single-file", "more"], "for `flash experiment judge`"),
        (&["judge"], "no folders"),
    ];
    for (words, part) in cases {
        let folder = Folder::new();
        let (out, sets) = (folder.text("out"), folder.text("sets"));
        let ended =
            flash(["experiment"].iter().chain(words).chain(&["--out", &out, "--sets", &sets]).copied());
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
        assert!(!Path::new(&out).exists(), "{words:?}");
    }
}

#[test]
fn site_logs_takes_real_logs() {
    let folder = Folder::new();
    let ended = experiment("site-logs", &folder, &["--quick", "--log", "/not/there.log"]);
    assert!(ended.code == Some(1) && ended.stderr.contains("cannot open /not/there.log"), "{ended:?}");
}
