//! The servers that Debian has, started, profiled and compared by the lab.

use crate::harness::{FLASH, Folder, flash, is_installed, run_json, skip, small_set};

#[test]
fn flash_nginx_and_apache_are_compared() {
    let mut names = vec!["flash"];
    for (program, name) in [("nginx", "nginx"), ("apache2", "apache-event")] {
        if is_installed(program) {
            names.push(name);
        } else {
            skip(&format!("in part: {program} is not installed"));
        }
    }
    let folder = Folder::new();
    let out = folder.text("out");
    let words = [
        "--levels",
        "0.3,0.6",
        "--duration",
        "500ms",
        "--warm-up",
        "0s",
        "--connections",
        "32",
        "--rounds",
        "2",
    ];
    let common = ["compare", "--files", small_set(), "--out", &out];
    let ended = flash(common.iter().chain(&words).chain(&names).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let run = run_json(&out);
    let subjects = run["subjects"].as_array().unwrap();
    assert_eq!(subjects.iter().map(|s| s["name"].as_str().unwrap()).collect::<Vec<_>>(), names);
    for subject in subjects {
        assert!(subject["missing"].is_null(), "{subject}");
        assert!(subject["version"].is_string() && subject["command"].is_string());
        assert_eq!(subject["capacity"]["rounds_requests_per_s"].as_array().unwrap().len(), 2);
        assert_eq!(subject["rounds"].as_array().unwrap().len(), 4);
        let levels = subject["levels"].as_array().unwrap();
        assert_eq!(levels.len(), 2);
        for (index, level) in levels.iter().enumerate() {
            let answered = |level: &serde_json::Value| level["counts"]["answered"].as_u64().unwrap();
            let rounds: Vec<u64> =
                subject["rounds"].as_array().unwrap().iter().skip(index).step_by(2).map(answered).collect();
            // Without one that the machine has spoiled, if it has.
            let pools = [rounds[0] + rounds[1], rounds[0], rounds[1]];
            assert!(pools.contains(&answered(level)), "{} of {rounds:?}", answered(level));
            assert!(level["server"]["cpu_s"].as_f64().unwrap() > 0.0);
        }
    }
    let ratios = run["ratios"].as_array().unwrap();
    assert_eq!(ratios.is_empty(), names.len() == 1);
    assert!(folder.path("out/report.html").exists());
}

#[test]
fn a_server_that_can_not_be_started_is_out_with_the_reason() {
    let folder = Folder::new();
    let out = folder.text("out");
    let file = folder.write(
        "peers.toml",
        format!(
            r#"
            [[server]]
            name = "broken"
            command = ["/bin/sh", "-c", "echo my last words >&2; exit 7"]

            [[server]]
            name = "works"
            command = ["{FLASH}", "serve", "{{root}}", "--listen", "127.0.0.1:{{port}}", "--workers", "1"]
            "#
        ),
    );
    let words =
        ["--levels", "0.5", "--duration", "1s", "--warm-up", "0s", "--connections", "8", "--rounds", "1"];
    let common = ["compare", "--servers", &file, "--files", small_set(), "--out", &out];
    let ended = flash(common.iter().chain(&words).copied());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("my last words"), "{ended:?}");
    let run = run_json(&out);
    assert!(run["subjects"][0]["missing"].as_str().unwrap().contains("my last words"));
    assert_eq!(run["subjects"][1]["levels"].as_array().unwrap().len(), 1);
}

#[test]
fn the_error_for_a_malformed_peers_file_names_the_place() {
    let folder = Folder::new();
    let file = folder.write("peers.toml", "[[server]]\nname = \"x\"\ncomand = [\"y\"]\n");
    let ended = flash(["compare", "--servers", &file, "--files", small_set(), "--out", &folder.text("out")]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("comand") && ended.stderr.contains("peers.toml"), "{ended:?}");
}
