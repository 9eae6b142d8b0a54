//! Servers with Flash's backend, started and measured by the lab: `apache-flashpache` and `nginx-gate`, with the modules
//! of `modules/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::harness::{Ended, Folder, flash, is_installed, run_json, skip, small_set};

/// One round of few requests.
const SHORT: [&str; 14] = [
    "--seconds",
    "1",
    "--rounds",
    "1",
    "--hot-dirs",
    "1",
    "--hot-rate",
    "20",
    "--cold-dirs",
    "1..2",
    "--cold-rate",
    "3",
    "--drain-seconds",
    "30",
];
/// How long the backend holds back each reply, so that the answers show whether requests waited for it.
const DELAY_MS: f64 = 40.0;

/// A module of `modules/`, built for these tests; none, with the reason printed, where the server or what builds the module
/// is missing.
fn module(name: &str, programs: &[&str], built: &str) -> Option<PathBuf> {
    if let Some(missing) = programs.iter().find(|program| !is_installed(program)) {
        skip(&format!("{missing} is not installed"));
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules").join(name);
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lab-{name}"));
    let mut make = Command::new("make");
    let made = make.arg("-C").arg(source).arg(format!("BUILD={}", place.display())).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(place.join(built))
}

/// Measures a server without its module, and with the module told to ask for everything.
#[track_caller]
fn interfere(folder: &Folder, [stock, gated]: [&str; 2], set: &str) -> (Ended, Value) {
    let delay = DELAY_MS as u32;
    let peers = folder.write(
        "peers.toml",
        format!(
            "[[server]]\nname = 'stock'\nlike = '{stock}'\n[[server]]\nname = 'gated'\nlike = '{gated}'\n\
             backend = ['{{flash}}', 'backend', '--socket', '{{socket}}', '--delay', '{delay}', '{{as root}}--user', \
             '{{as root}}{{user}}']\n[server.set]\n{set}\n"
        ),
    );
    let out = folder.text("out");
    let words = ["interfere", "--servers", &peers, "--files", small_set(), "--verify", "--out", &out];
    let ended = flash(words.iter().chain(&SHORT).copied());
    // One round is too few for a verdict.
    assert_eq!(ended.code, Some(4), "{ended:?}");
    (ended, run_json(&out))
}

/// The files come through the module unchanged, and each request waited for the backend.
#[track_caller]
fn assert_gated(run: &Value, program: &str) {
    let [stock, gated] = [0, 1].map(|index| &run["subjects"][index]);
    let command = gated["command"].as_str().unwrap();
    assert!(command.starts_with("flash backend --socket {socket} "), "{command}");
    assert!(command.contains(&format!(" & {program} ")), "{command}");
    assert!(stock["command"].as_str().unwrap().starts_with(program), "{stock}");
    assert_eq!(stock["version"], gated["version"]);
    for round in gated["rounds"].as_array().unwrap() {
        let name = round["name"].as_str().unwrap();
        assert!(round["counts"]["answered"].as_u64().unwrap() > 0, "{name}");
        assert_eq!(round["counts"]["answered"], round["counts"]["asked"], "{name}: {}", round["counts"]);
        assert!(round["latency"]["p50_ms"].as_f64().unwrap() >= DELAY_MS, "{name}: {}", round["latency"]);
    }
    assert!(gated["rounds"][0]["server"]["cpu_s"].as_f64().is_some_and(|cpu_s| cpu_s > 0.0), "{run}");
}

#[test]
fn apache_with_flashpache_is_measured_beside_apache() {
    let programs = ["apache2", "apxs", "make"];
    let Some(module) = module("apache", &programs, ".libs/mod_flashpache.so") else { return };
    let folder = Folder::new();
    // The files are first asked for at once, on connections that all can go to one process: as many of its threads may wait.
    let set = format!(
        "user = 'www-data'\nworkers = '64'\nthreads = '64'\nprocesses = '1'\nmodule = '{0}'\nmore = '''\nLoadModule flashpache_module {0}\nFlashpacheBackend {{socket}}\nFlashpache on\n\
         FlashpacheForce on\nFlashpacheWaiters 60\n'''",
        module.display()
    );
    let (_, run) = interfere(&folder, ["apache-event", "apache-flashpache"], &set);
    assert_gated(&run, "apache2");
}

#[test]
fn nginx_with_the_gate_is_measured_beside_nginx() {
    let programs = ["nginx", "make"];
    if !Path::new("/usr/share/nginx/src").exists() {
        return skip("nginx-dev is not installed");
    }
    let Some(module) = module("nginx", &programs, "ngx_http_flash_gate_module.so") else { return };
    let folder = Folder::new();
    let set = format!(
        "user = 'root'\nmodule = '{}'\nmore = 'flash_gate_backend \"unix:{{socket}}\"; flash_gate on; flash_gate_force on;'",
        module.display()
    );
    let (_, run) = interfere(&folder, ["nginx", "nginx-gate"], &set);
    assert_gated(&run, "nginx");
}

#[test]
fn servers_without_a_module_are_started_with_the_warm_endpoint() {
    for program in ["h2o", "lighttpd"] {
        if !is_installed(program) {
            skip(&format!("in part: {program} is not installed"));
            continue;
        }
        let (folder, name) = (Folder::new(), format!("{program}-warm"));
        let out = folder.text("out");
        let words = ["interfere", &name, "--files", small_set(), "--verify", "--out", &out];
        let ended = flash(words.iter().chain(&SHORT).copied());
        assert_eq!(ended.code, Some(4), "{ended:?}");
        for round in run_json(&out)["subjects"][0]["rounds"].as_array().unwrap() {
            assert!(round["counts"]["answered"].as_u64().unwrap() > 0, "{program}: {round}");
            assert_eq!(round["counts"]["answered"], round["counts"]["asked"], "{program}: {round}");
        }
    }
}

#[test]
fn a_module_that_is_not_built_is_named_with_the_command_that_builds_it() {
    let folder = Folder::new();
    let text = "[[server]]\nname = 'gated'\nlike = 'nginx-gate'\ncommand = ['sh']\n[server.find.module]\n\
                paths = ['no/module.so']\nbuild = 'make -C modules/nginx'\n";
    let peers = folder.write("peers.toml", text);
    let out = folder.text("out");
    let words = ["interfere", "--servers", &peers, "--files", small_set(), "--out", &out];
    let ended = flash(words.iter().chain(&SHORT).copied());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let why = "cannot start gated: there is no no/module.so; build it with `make -C modules/nginx`";
    assert!(ended.stderr.contains(why), "{ended:?}");
}
