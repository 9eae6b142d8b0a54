//! `flash link`: commands on the two sides, the counts, and nothing left behind. Without any assertion on time.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::{Ended, FLASH, Folder, flash, skip, start};

/// Whether this machine allows a link; says otherwise why the test is skipped.
fn may_link() -> bool {
    let ended = flash(["link", "--", "true"]);
    if ended.code == Some(1) && ended.stderr.contains("cannot make a") {
        skip(&format!("no link: {}", ended.stderr.lines().last().unwrap_or_default()));
        return false;
    }
    assert_eq!(ended.code, Some(0), "{ended:?}");
    true
}

/// A folder with a file of 300,000 bytes, and the command that serves it with these options.
fn site(more: &str) -> (Folder, Vec<u8>, String) {
    let folder = Folder::new();
    let content: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8 ^ (at / 251) as u8).collect();
    folder.write("file", &content);
    let root = folder.text("");
    let server =
        format!("exec {FLASH} serve {root} --listen 198.18.0.1:8080 --control none --workers 1 {more}");
    (folder, content, server)
}

/// Fetches the file from the client's side with the shell's own means and `curl`.
const FETCH: &str = "curl -sS --max-time 60 -o got http://$LINK_SERVER:8080/file && echo $LINK_CLIENT";

fn fetch(folder: &Folder, server: &str, options: &[&str]) -> Ended {
    let there = format!("cd {} && {FETCH}", folder.text(""));
    let json = folder.text("counts.json");
    let words = ["link", "--server", server, "--json", &json].into_iter().chain(options.iter().copied());
    flash(words.chain(["--", "sh", "-c", &there]))
}

fn has_curl() -> bool {
    let is_there = std::process::Command::new("curl").arg("--version").output().is_ok();
    if !is_there {
        skip("needs curl");
    }
    is_there
}

#[test]
fn a_client_fetches_a_file_over_a_bad_link_and_the_packets_are_counted() {
    if !may_link() || !has_curl() {
        return;
    }
    let (folder, content, server) = site("");
    let options =
        ["--rate", "20mbit/5mbit", "--delay", "2ms", "--loss", "2%/0%", "--queue", "50", "--mtu", "576"];
    let ended = fetch(&folder, &server, &options);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "198.18.0.2\n"), "{ended:?}");
    assert!(fs::read(folder.path("got")).unwrap() == content);
    assert!(ended.stderr.contains("to client: 20.0 Mbit/s, 2.00 ms delay, 2.00 % loss"), "{}", ended.stderr);
    let counts: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.path("counts.json")).unwrap()).unwrap();
    let count = |total: &str, what: &str| counts[total][what].as_u64().unwrap();
    let delivered = count("to_client_total", "delivered_packets");
    assert!(delivered >= 300_000 / 576 && count("to_client_total", "dropped_lost") > 0, "{counts}");
    assert!(count("to_client_total", "delivered_bytes") <= delivered * 576, "{counts}");
    assert_eq!(count("to_server_total", "dropped_lost"), 0, "{counts}");
}

#[test]
fn nothing_arrives_over_a_link_that_loses_everything() {
    if !may_link() || !has_curl() {
        return;
    }
    let (folder, _, server) = site("");
    let there = "curl -sS --connect-timeout 1 -o got http://$LINK_SERVER:8080/file";
    let there = format!("cd {} && {there}", folder.text(""));
    let ended = flash(["link", "--server", &server, "--loss", "100%", "--", "sh", "-c", &there]);
    // curl's own code for a time that is over.
    assert_eq!(ended.code, Some(28), "{ended:?}");
    assert!(!folder.path("got").exists() && ended.stderr.contains("no packet was delivered"), "{ended:?}");
}

#[test]
fn a_killed_link_takes_its_commands_with_it() {
    if !may_link() {
        return;
    }
    let (folder, _, server) = site("");
    let running = start([
        "link",
        "--server",
        &server,
        "--",
        "sh",
        "-c",
        &format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", folder.text("client")),
    ]);
    let began = Instant::now();
    while !folder.path("client").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the client's command did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let client = fs::read_to_string(folder.path("client")).unwrap();
    // All processes in the namespaces of both sides, by the files of /proc.
    let here = fs::read_link("/proc/self/ns/net").unwrap();
    let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let side = of(client.trim()).unwrap();
    assert_ne!(side, here);
    let is_left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut names = processes.filter_map(|entry| entry.file_name().into_string().ok());
        names.any(|name| name.bytes().all(|byte| byte.is_ascii_digit()) && of(&name).as_ref() == Some(&side))
    };
    assert!(is_left());
    running.signal("KILL");
    running.wait();
    let began = Instant::now();
    while is_left() {
        assert!(began.elapsed() < Duration::from_secs(60), "a process is left on the client's side");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn exit_codes_are_those_of_the_client_or_say_what_failed() {
    if !may_link() {
        return;
    }
    let code = |words: &[&str]| flash(["link"].iter().chain(words).copied());
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]).code, Some(7));
    assert_eq!(code(&["--", "sh", "-c", "kill -9 $$"]).code, Some(128 + 9));
    let ended = code(&["--server", "true", "--", "true"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("ended before it listened on a TCP port"), "{}", ended.stderr);
    let ended = code(&["--", "/no/such/program"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("cannot start /no/such/program"), "{}", ended.stderr);
}

#[test]
fn wrong_values_are_refused_before_anything_is_made() {
    let wrong = [
        ["--rate", "10"],
        ["--rate", "10mbit/x"],
        ["--rate", "1bit"],
        ["--delay", "11s"],
        ["--loss", "101%"],
        ["--queue", "0"],
        ["--queue", "100B"],
        ["--mtu", "100"],
        ["--overhead", "5000"],
    ];
    for words in wrong {
        let ended = flash(["link"].into_iter().chain(words).chain(["--", "true"]));
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
    }
    assert_eq!(flash(["link", "--check", "--rate", "1mbit"]).code, Some(2));
}
