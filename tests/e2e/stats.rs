//! What a server tells of itself is what its clients saw, told to its user alone, and asking for it
//! harms nobody.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::{Folder, Launch, Server, is_root, kill, pattern, skip, wait_for, wait_until};

/// What a command came to.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `flash stats` with these words, through another program if there is one.
pub(crate) fn flash_stats(through: &[&str], words: &[&str]) -> Done {
    let flash = env!("CARGO_BIN_EXE_flash");
    let mut all = through.iter().chain([&flash, &"stats"]).chain(words);
    let output = Command::new(all.next().unwrap()).args(all).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// A server whose control socket is in its folder.
fn start(folder: &Folder, workers: usize) -> (Server, PathBuf) {
    let path = folder.path("control.sock");
    (Launch::with_workers(folder, workers).arg("--control").arg(&path).start(), path)
}

/// The document of the server with this control socket.
#[track_caller]
pub(crate) fn stats_at(path: &Path) -> Value {
    let done = flash_stats(&[], &["--json", "--control", path.to_str().unwrap()]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    let answer: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(answer["version"], 1);
    answer["stats"].clone()
}

/// Sends a request on a connection of its own and gives how many bytes came back.
fn exchange(server: &Server, target: &str) -> u64 {
    let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: e2e.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.len() as u64
}

#[test]
fn the_figures_are_what_a_client_saw() {
    let folder = Folder::with_hello();
    folder.www("large", pattern(300_000, 1));
    let path = folder.path("control.sock");
    let launch = Launch::new(&folder).args(["--freshness", "1h"]).arg("--control").arg(&path);
    let server = launch.start();
    let mut bytes: u64 = (0..20).map(|_| exchange(&server, "/hello.txt")).sum();
    bytes += (0..7).map(|n| exchange(&server, &format!("/none-{n}"))).sum::<u64>();
    bytes += (0..3).map(|_| exchange(&server, "/large")).sum::<u64>();
    // The last connection may be open for a moment still.
    let stats = wait_for("the end of the last connection", || {
        Some(stats_at(&path)).filter(|stats| stats["sum"]["connections"]["open"] == 0)
    });
    let sum = &stats["sum"];
    assert_eq!(
        (&sum["requests"], &sum["responses"]["2xx"], &sum["responses"]["4xx"]),
        (&30.into(), &23.into(), &7.into())
    );
    assert_eq!((&sum["responses"]["5xx"], &sum["responses"]["cut"]), (&0.into(), &0.into()));
    assert_eq!(sum["sends"]["sum"], bytes);
    assert_eq!((&sum["connections"]["accepted"], &sum["connections"]["refused"]), (&30.into(), &0.into()));
    let caches = &sum["caches"];
    let of = |name: &str| (caches[name]["lookups"].as_u64().unwrap(), caches[name]["hits"].as_u64().unwrap());
    assert_eq!((of("contents"), of("files")), ((20, 19), (4, 2)));
    // A head that is known by its bytes needs no name. How many are depends on how new the file is.
    let known = of("known").1;
    assert!((10..19).contains(&known), "{caches}");
    assert_eq!(of("names"), (30 - known, 19 + 2 - known));
    // A name that is not there is always a helper's to look for, the others may be.
    let finds = sum["jobs"]["find"]["started"].as_u64().unwrap();
    assert!((7..=9).contains(&finds), "{finds} jobs");
    assert_eq!(sum["queue"]["lengths"]["count"], finds);
    assert!(sum["helpers"]["now"].as_u64().unwrap() >= 1);
    let dispatches = &sum["dispatches"];
    let [count, events] = ["count", "sum"].map(|field| dispatches[field].as_u64().unwrap());
    // An event at least for each connection and each answer of a helper.
    assert!(events >= 30 + finds && count <= events, "{dispatches}");
    assert_eq!(stats["workers"][0]["counters"]["requests"], 30);
    assert_eq!(
        (&stats["pid"], &stats["workers"][0]["pid"]),
        (&server.pid().into(), &server.sole("worker").into())
    );
    assert_eq!(stats["settings"]["freshness_ms"], 3_600_000);
}

#[test]
fn the_table_is_for_people() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    assert!((0..3).all(|_| exchange(&server, "/hello.txt") > 0));
    let done = flash_stats(&[], &["--control", path.to_str().unwrap()]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert!(done.out.lines().any(|line| line == "requests                3"), "{}", done.out);
    assert!(done.out.starts_with("flash ") && done.out.contains("  2 workers\n"), "{}", done.out);
    assert!(done.out.lines().all(|line| line.chars().count() <= 100), "{}", done.out);
}

#[test]
fn nobody_else_may_ask() {
    let folder = Folder::with_hello();
    let (_server, path) = start(&folder, 1);
    let found = path.symlink_metadata().unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    if !is_root() {
        return skip("needs root, to be somebody else");
    }
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let done = flash_stats(&other, &["--control", path.to_str().unwrap()]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert!(done.err.contains("permission denied; only the user"), "{}", done.err);
}

#[test]
fn it_goes_with_its_server_and_a_stale_one_is_replaced() {
    let folder = Folder::with_hello();
    let (mut server, path) = start(&folder, 1);
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!path.exists());
    let (mut server, _) = start(&folder, 1);
    server.signal("KILL");
    server.wait();
    assert!(path.exists(), "a killed server removes nothing");
    let done = flash_stats(&[], &["--control", path.to_str().unwrap()]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("nobody listens there any more"), "{}", done.err);
    let (server, _) = start(&folder, 1);
    assert_eq!(stats_at(&path)["pid"], server.pid());
    let (code, _, err) = Launch::new(&folder).arg("--control").arg(&path).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("another server listens there"), "{err}");
    assert_eq!(stats_at(&path)["pid"], server.pid(), "it was left alone");
}

#[test]
fn without_one_there_is_nothing_to_ask() {
    let folder = Folder::with_hello();
    let path = folder.path("none");
    let server = Launch::new(&folder).args(["--control", "none"]).start();
    assert!(!path.exists());
    let pid = server.pid().to_string();
    let done = flash_stats(&[], &[&pid]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("no such socket"), "{}", done.err);
    for words in [&["x"][..], &["--watch=5"], &["--watch=1ms"], &["1", "--control", "x"]] {
        assert_eq!(flash_stats(&[], words).code, Some(2), "{words:?}");
    }
}

#[test]
fn servers_are_found_in_the_folder_of_their_user() {
    let folder = Folder::with_hello();
    let runtime = folder.path("runtime");
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, fs::Permissions::from_mode(0o777)).unwrap();
    let variable = format!("XDG_RUNTIME_DIR={}", runtime.display());
    // Root has a folder for all the machine.
    let other: &[&str] = match is_root() {
        true => &["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "env"],
        false => &["env"],
    };
    let through = [other, &[&variable]].concat();
    let start = || {
        let launch = Launch::new(&folder).user(None).with_control();
        launch.through_all(&through).start()
    };
    let (one, mut two) = (start(), start());
    let own = runtime.join("flash");
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o7777, 0o700);
    let done = flash_stats(&through, &[]);
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
    for server in [&one, &two] {
        assert!(done.err.contains(&format!("flash stats {} ", server.pid())), "{}", done.err);
    }
    let pid = two.pid().to_string();
    let done = flash_stats(&through, &[&pid, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&done.out).unwrap()["stats"]["pid"], two.pid(), "{}", done.err);
    two.signal("KILL");
    two.wait();
    let done = flash_stats(&through, &["--json"]);
    assert_eq!(serde_json::from_str::<Value>(&done.out).unwrap()["stats"]["pid"], one.pid(), "{}", done.err);
    // What it has left goes with the next start.
    assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    drop(wait_for("its end", || (!Path::new(&format!("/proc/{pid}")).exists()).then(&start)));
    assert!(!own.join(format!("{pid}.sock")).exists());
}

#[test]
fn a_place_that_is_not_its_own_is_done_without() {
    let folder = Folder::with_hello();
    let runtime = folder.path("runtime");
    fs::create_dir_all(runtime.join("flash")).unwrap();
    fs::set_permissions(runtime.join("flash"), fs::Permissions::from_mode(0o777)).unwrap();
    let variable = format!("XDG_RUNTIME_DIR={}", runtime.display());
    let other: &[&str] = match is_root() {
        true => &["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "env"],
        false => &["env"],
    };
    let through = [other, &[&variable]].concat();
    let server = Launch::new(&folder).user(None).with_control().through_all(&through).start();
    server.wait_for_stderr("no control socket, so no `flash stats`: ");
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(fs::read_dir(runtime.join("flash")).unwrap().count(), 0);
}

#[test]
fn a_reload_and_a_death_show() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    assert_eq!(stats_at(&path)["workers"].as_array().unwrap().len(), 2);
    let old = server.role("worker");
    server.signal("HUP");
    let stats = wait_for("two new workers", || {
        let stats = stats_at(&path);
        let workers = stats["workers"].as_array().unwrap();
        let is_new = |worker: &Value| worker["generation"] == 2 && worker["state"] == "serving";
        (workers.len() == 2 && workers.iter().all(is_new)).then_some(stats.clone())
    });
    assert_eq!(stats["sum"]["requests"], 0);
    assert!(stats["workers"].as_array().unwrap().iter().all(|w| !old.iter().any(|pid| w["pid"] == *pid)));
    assert!((0..6).all(|_| exchange(&server, "/hello.txt") > 0));
    assert_eq!(stats_at(&path)["sum"]["requests"], 6);
    for pid in server.role("worker") {
        kill("KILL", pid);
        // In whatever state it is found, there is an answer.
        assert!(stats_at(&path)["sum"]["requests"].as_u64().unwrap() <= 6);
    }
    wait_until("two workers that begin anew", || {
        let stats = stats_at(&path);
        let told = |worker: &Value| worker["counters"]["requests"] == 0;
        let workers = stats["workers"].as_array().unwrap();
        workers.len() == 2 && workers.iter().all(told) && stats["sum"]["requests"] == 0
    });
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_worker_that_hangs_holds_up_nobody() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    let hung = server.role("worker")[0];
    kill("STOP", hung);
    let stats = wait_for("the worker to stop", || {
        Some(stats_at(&path)).filter(|stats| stats["states"]["workers"]["other"] == 1)
    });
    for worker in stats["workers"].as_array().unwrap() {
        assert_eq!(worker["counters"].is_null(), worker["pid"] == hung, "{worker}");
    }
    let done = flash_stats(&[], &["--control", path.to_str().unwrap()]);
    assert!(done.out.contains("1 of 2 workers have answered"), "{}", done.out);
    assert!(done.out.contains("did not answer in time"), "{}", done.out);
    kill("CONT", hung);
    wait_until("both to answer", || {
        stats_at(&path)["workers"].as_array().unwrap().iter().all(|worker| !worker["counters"].is_null())
    });
}

#[test]
fn clients_that_are_silent_or_talk_nonsense_harm_nobody() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 1);
    let mut silent: Vec<UnixStream> = (0..20).map_while(|_| UnixStream::connect(&path).ok()).collect();
    for client in &mut silent {
        let _ = client.write_all(b"sta");
    }
    assert_eq!(server.get("/hello.txt").status, 200);
    wait_until("too many clients", || {
        flash_stats(&[], &["--control", path.to_str().unwrap()]).err.contains("too many clients now")
    });
    drop(silent);
    wait_until("room for one that asks", || {
        flash_stats(&[], &["--control", path.to_str().unwrap()]).code == Some(0)
    });
    let mut wrong = UnixStream::connect(&path).unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    wrong.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("{\"version\":1,\"error\":\"unknown request `GET / HTTP/1.1"), "{text}");
    assert_eq!(stats_at(&path)["pid"], server.pid());
}

#[test]
fn watched_it_tells_again_and_again_until_nobody_reads() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 1);
    for json in [true, false] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flash"));
        command.args(["stats", "--watch=20ms", "--control"]).arg(&path);
        command.args(json.then_some("--json")).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        let first = next();
        exchange(&server, "/hello.txt");
        let rest: Vec<String> = (0..3).map(|_| next()).collect();
        if json {
            let parsed: Vec<Value> = rest.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
            let ages: Vec<u64> =
                parsed.iter().map(|doc| doc["stats"]["uptime_ms"].as_u64().unwrap()).collect();
            assert!(ages.is_sorted() && ages[0] < ages[2], "{ages:?}");
        } else {
            assert!(first.trim_start().starts_with("up "), "{first}");
            assert!(rest.iter().all(|line| line.contains("/s")), "{rest:?}");
        }
        drop(lines);
        let status = wait_for("its end", || child.try_wait().unwrap());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((status.code(), err.as_str()), (Some(0), ""));
    }
}
