//! The counters of a server match what its clients saw, only its user can read them, and reading them does no harm.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::server::stats_once;
use crate::harness::{
    Folder, Launch, Server, is_root, kill, pattern, skip, stats_at, unlike_before, wait_for, wait_until,
};

/// The exit code and output of a command.
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

/// The address of a server's metrics, which the system has chosen.
pub(crate) fn admin_address(server: &Server) -> String {
    server.wait_for_stderr("admin on http://127.0.0.1:");
    let text = server.stderr();
    text.split("admin on http://").nth(1).unwrap().split('/').next().unwrap().to_owned()
}

/// Sends a request on a new connection and returns the number of received bytes.
fn exchange(server: &Server, target: &str) -> u64 {
    let mut stream = TcpStream::connect(server.addresses[0]).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: e2e.test\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer.len() as u64
}

#[test]
fn the_counters_match_what_a_client_saw() {
    let folder = Folder::with_hello();
    folder.www("large", pattern(300_000, 1));
    let path = folder.path("control.sock");
    let launch = Launch::new(&folder).args(["--freshness", "1h"]).arg("--control").arg(&path);
    unlike_before();
    let server = launch.start();
    // Both are in the store: from now on the answers depend on nothing else.
    let before = wait_for("both files in the store", || {
        ["/hello.txt", "/large"].iter().for_each(|target| assert!(exchange(&server, target) > 0));
        let idle = |stats: &Value| stats["sum"]["connections"]["open"] == 0;
        Some(stats_at(&path)).filter(|stats| stats["store"]["blocks"] == 2 && idle(stats))
    });
    let mut bytes: u64 = (0..20).map(|_| exchange(&server, "/hello.txt")).sum();
    bytes += (0..7).map(|n| exchange(&server, &format!("/none-{n}"))).sum::<u64>();
    bytes += (0..3).map(|_| exchange(&server, "/large")).sum::<u64>();
    // The last connection may still be open for a moment.
    let stats = wait_for("the end of the last connection", || {
        Some(stats_at(&path)).filter(|stats| stats["sum"]["connections"]["open"] == 0)
    });
    let more = |path: &str| {
        let of = |stats: &Value| stats.pointer(path).and_then(Value::as_u64);
        // A group of figures is left out while all are 0.
        of(&stats).unwrap_or_else(|| panic!("{path}")) - of(&before).unwrap_or(0)
    };
    let of_class = |class: &str| more(&format!("/sum/responses/{class}"));
    assert_eq!((more("/sum/requests"), of_class("2xx"), of_class("4xx")), (30, 23, 7));
    assert_eq!((of_class("5xx"), of_class("cut")), (0, 0));
    assert_eq!(more("/sum/sends/sum"), bytes);
    assert_eq!((more("/sum/connections/accepted"), more("/sum/connections/refused")), (30, 0));
    let of_latency = |result: &str| more(&format!("/sum/latencies/{result}/count"));
    assert_eq!((of_latency("hit"), of_latency("miss")), (23, 7));
    let of_cache = |name: &str| {
        let count = |field: &str| more(&format!("/sum/caches/{name}/{field}"));
        (count("lookups"), count("hits"))
    };
    assert_eq!((of_cache("contents"), of_cache("files")), ((23, 23), (0, 0)));
    assert_eq!(more("/sum/stored_bytes"), 20 * 6 + 3 * 300_000);
    let of_store = |name: &str| more(&format!("/store/{name}"));
    assert_eq!((of_store("loads"), of_store("blocks"), of_store("evictions")), (0, 0, 0));
    let store = &stats["store"];
    let bytes_of = |name: &str| store[name].as_u64().unwrap();
    assert!((300_006..=bytes_of("bytes_max")).contains(&bytes_of("held_bytes")), "{store}");
    assert_eq!((bytes_of("pinned_bytes"), bytes_of("refused")), (0, 0));
    // A head that is known by its bytes needs no name look-up; missing names do.
    let known = of_cache("known").1;
    assert_eq!(of_cache("names"), (30 - known, 23 - known));
    let finds = more("/sum/jobs/find/started");
    assert_eq!((finds, more("/sum/queue/lengths/count")), (7, 7));
    let sum = &stats["sum"];
    assert!(sum["helpers"]["now"].as_u64().unwrap() >= 1);
    let (dispatches, events) = (more("/sum/dispatches/count"), more("/sum/dispatches/sum"));
    // At least one event for each connection and each answer of a helper.
    assert!(events >= 30 + finds && dispatches <= events, "{}", sum["dispatches"]);
    assert_eq!(stats["workers"][0]["counters"]["requests"], sum["requests"]);
    assert_eq!(
        (&stats["pid"], &stats["workers"][0]["pid"]),
        (&server.pid().into(), &server.sole("worker").into())
    );
    assert_eq!(stats["settings"]["freshness_ms"], 3_600_000);
}

#[test]
fn the_queues_of_the_listening_sockets_are_shown() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 1);
    assert!(exchange(&server, "/hello.txt") > 0);
    let listener = |stats: &Value| {
        let all = stats["network"]["listeners"].as_array().unwrap().clone();
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0]["address"], server.addresses[0].to_string());
        all[0].clone()
    };
    // A stopped worker accepts nothing, and the supervisor still knows the queue.
    let worker = server.sole("worker");
    kill("STOP", worker);
    let clients: Vec<_> = (0..3).map(|_| TcpStream::connect(server.addresses[0]).unwrap()).collect();
    let stats = wait_for("three connections in the accept queue", || {
        let stats = stats_once(&path);
        (listener(&stats)["accept_queues"][0]["now"] == 3).then_some(stats)
    });
    let found = listener(&stats);
    assert!(found["accept_queues"][0]["bound"].as_u64().unwrap() > 3, "{found}");
    if found["syn_queue"].is_null() {
        skip("in part: no sock_diag here");
    } else {
        assert_eq!(found["connections"]["established"], 3, "{found}");
        assert_eq!((&found["syn_queue"]["now"], &found["is_cut"]), (&0.into(), &false.into()));
    }
    // Both count the whole namespace, so others may have added to them.
    let count = |name: &str| stats["network"]["namespace"][name].as_u64().unwrap();
    assert!(count("passive_opens") >= 4 && count("segments_sent") > 8, "{}", stats["network"]);
    kill("CONT", worker);
    wait_until("the worker accepts them", || {
        let stats = stats_at(&path);
        listener(&stats)["accept_queues"][0]["now"] == 0 && stats["sum"]["connections"]["open"] == 3
    });
    drop(clients);
}

#[test]
fn the_table_is_readable() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    assert!((0..3).all(|_| exchange(&server, "/hello.txt") > 0));
    // A worker that tells its counters too late is missing from a table.
    let done = wait_for("a table with all requests", || {
        let done = flash_stats(&[], &["--control", path.to_str().unwrap()]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
        done.out.lines().any(|line| line == "requests                3").then_some(done)
    });
    assert!(done.out.starts_with("flash ") && done.out.contains("  2 workers\n"), "{}", done.out);
    assert!(done.out.lines().all(|line| line.chars().count() <= 100), "{}", done.out);
}

#[test]
fn only_its_user_can_open_the_control_socket() {
    let folder = Folder::with_hello();
    let (_server, path) = start(&folder, 1);
    let found = path.symlink_metadata().unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o7777, 0o600);
    if !is_root() {
        return skip("needs root, to become another user");
    }
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    let done = flash_stats(&other, &["--control", path.to_str().unwrap()]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert!(done.err.contains("permission denied; only the user"), "{}", done.err);
}

#[test]
fn the_socket_ends_with_its_server_and_a_stale_one_is_replaced() {
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
    assert!(done.err.contains("the server has stopped"), "{}", done.err);
    let (server, _) = start(&folder, 1);
    assert_eq!(stats_at(&path)["pid"], server.pid());
    let (code, _, err) = Launch::new(&folder).arg("--control").arg(&path).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("another server uses it"), "{err}");
    assert_eq!(stats_at(&path)["pid"], server.pid(), "the running server keeps its socket");
}

#[test]
fn without_a_control_socket_stats_is_an_error() {
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
    // Root's folder is shared by the whole machine.
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
    // The next start removes its leftovers.
    assert_eq!(fs::read_dir(&own).unwrap().count(), 2);
    drop(wait_for("its end", || (!Path::new(&format!("/proc/{pid}")).exists()).then(&start)));
    assert!(!own.join(format!("{pid}.sock")).exists());
}

#[test]
fn an_unsafe_socket_folder_is_not_used() {
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
    server.wait_for_stderr("`flash stats` will not work: ");
    assert_eq!(server.get("/hello.txt").status, 200);
    assert_eq!(fs::read_dir(runtime.join("flash")).unwrap().count(), 0);
}

#[test]
fn stats_show_a_reload_and_a_death() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    assert_eq!(stats_at(&path)["workers"].as_array().unwrap().len(), 2);
    assert!((0..4).all(|_| exchange(&server, "/hello.txt") > 0));
    let old = server.role("worker");
    server.signal("HUP");
    let stats = wait_for("two new workers", || {
        let stats = stats_at(&path);
        let workers = stats["workers"].as_array().unwrap();
        let is_new = |worker: &Value| worker["generation"] == 2 && worker["state"] == "serving";
        (workers.len() == 2 && workers.iter().all(is_new)).then_some(stats.clone())
    });
    // The counts of the old workers stay, and nothing of theirs exists any more.
    assert_eq!((&stats["sum"]["requests"], &stats["ended"]["requests"]), (&4.into(), &4.into()));
    assert_eq!(stats["ended"]["connections"]["open"], 0);
    assert!(stats["workers"].as_array().unwrap().iter().all(|w| !old.iter().any(|pid| w["pid"] == *pid)));
    assert!((0..6).all(|_| exchange(&server, "/hello.txt") > 0));
    assert_eq!(stats_at(&path)["sum"]["requests"], 10);
    for pid in server.role("worker") {
        kill("KILL", pid);
        // There is an answer in any state.
        assert!(stats_once(&path)["sum"]["requests"].as_u64().unwrap() <= 10);
    }
    wait_until("two new workers", || {
        let stats = stats_at(&path);
        let told = |worker: &Value| worker["counters"]["requests"] == 0;
        let workers = stats["workers"].as_array().unwrap();
        // The killed workers had reported these counts.
        workers.len() == 2 && workers.iter().all(told) && stats["sum"]["requests"] == 10
    });
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_hung_worker_does_not_delay_stats() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 2);
    let hung = server.role("worker")[0];
    kill("STOP", hung);
    let stats = wait_for("the worker to stop, and the other to answer", || {
        let stats = stats_once(&path);
        let answers = |worker: &Value| !worker["counters"].is_null();
        let one_answers = stats["workers"].as_array()?.iter().any(answers);
        (one_answers && stats["states"]["workers"]["other"] == 1).then_some(stats)
    });
    for worker in stats["workers"].as_array().unwrap() {
        assert_eq!(worker["counters"].is_null(), worker["pid"] == hung, "{worker}");
    }
    let done = wait_for("a table with one worker", || {
        let done = flash_stats(&[], &["--control", path.to_str().unwrap()]);
        done.out.contains("1 of 2 workers answered").then_some(done)
    });
    assert!(done.out.contains("did not answer in time"), "{}", done.out);
    kill("CONT", hung);
    wait_until("both to answer", || {
        stats_once(&path)["workers"].as_array().unwrap().iter().all(|worker| !worker["counters"].is_null())
    });
}

#[test]
fn silent_or_invalid_control_clients_do_no_harm() {
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 1);
    let mut silent: Vec<UnixStream> = Vec::new();
    wait_until("too many clients", || {
        // Again in each round, because the server gives up those that are silent for long.
        silent = (0..20).map_while(|_| UnixStream::connect(&path).ok()).collect();
        for client in &mut silent {
            let _ = client.write_all(b"sta");
        }
        assert_eq!(server.get("/hello.txt").status, 200);
        flash_stats(&[], &["--control", path.to_str().unwrap()]).err.contains("too many clients; try again")
    });
    drop(silent);
    wait_until("room for one that asks", || {
        flash_stats(&[], &["--control", path.to_str().unwrap()]).code == Some(0)
    });
    let mut wrong = UnixStream::connect(&path).unwrap();
    wrong.write_all(b"Get me\n").unwrap();
    let mut text = String::new();
    wrong.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("{\"version\":2,\"error\":\"unknown request `Get me`"), "{text}");
    assert_eq!(stats_at(&path)["pid"], server.pid());
}

#[test]
fn watch_repeats_until_its_reader_is_gone() {
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

#[test]
fn metrics_and_health_are_answered_over_http() {
    let folder = Folder::with_hello();
    let path = folder.path("control.sock");
    let launch = Launch::with_workers(&folder, 2).arg("--control").arg(&path);
    let mut server = launch.args(["--admin", "127.0.0.1:0"]).start();
    let address = admin_address(&server);
    let get = |path: &str, more: &str| {
        let mut client = TcpStream::connect(&address).unwrap();
        client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n").as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        text
    };
    for _ in 0..3 {
        assert_eq!(server.get("/hello.txt").status, 200);
    }
    assert!(get("/ready", "").starts_with("HTTP/1.1 200 "));
    assert!(get("/health", "").ends_with("\r\n\r\nalive\n"));
    assert!(get("/", "").contains("<title>Flash</title>"));
    wait_until("the requests are counted", || {
        let text = get("/metrics", "");
        assert!(text.contains("Content-Type: text/plain; version=0.0.4"), "{text}");
        text.contains("\nflash_requests_total 3\n") && text.contains("\nflash_workers{state=\"serving\"} 2\n")
    });
    let open = get("/metrics", "Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(open.contains("\n# TYPE flash_requests counter\n") && open.ends_with("\n# EOF\n"), "{open}");
    let mut own = UnixStream::connect(&path).unwrap();
    own.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut text = String::new();
    own.read_to_string(&mut text).unwrap();
    assert!(text.contains("\nflash_requests_total 3\n"), "{text}");
    // A client that never reads costs only its place, for a while.
    let mut idle = TcpStream::connect(&address).unwrap();
    idle.write_all(b"GET /stats.json HTTP/1.1\r\n\r\n").unwrap();
    assert!(get("/health", "").starts_with("HTTP/1.1 200 "));
    server.signal("TERM");
    assert!(server.wait().success());
}

#[test]
fn top_draws_on_a_terminal_until_q() {
    if !Path::new("/usr/bin/script").exists() {
        return skip("needs script, for a terminal");
    }
    let folder = Folder::with_hello();
    let (server, path) = start(&folder, 1);
    let command =
        format!("stty rows 40 cols 100; {} top --control {}", env!("CARGO_BIN_EXE_flash"), path.display());
    let mut top = Command::new("/usr/bin/script")
        .args(["-qfec", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = top.stdout.take().unwrap();
    let (mut drawn, mut buffer) = (String::new(), [0; 8192]);
    while !drawn.contains("first byte after") {
        assert_eq!(server.get("/hello.txt").status, 200);
        let length = output.read(&mut buffer).unwrap();
        assert!(length > 0, "{drawn}");
        drawn.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    assert!(drawn.contains("requests") && drawn.contains("1 worker   q ends"), "{drawn}");
    top.stdin.take().unwrap().write_all(b"q").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(top.wait().unwrap().code(), Some(0), "{rest}");
    assert!(rest.ends_with("\x1b[?25h\x1b[?1049l"), "the screen is as it was: {rest:?}");
    // Without a terminal there is nothing to draw on.
    let done =
        Command::new(env!("CARGO_BIN_EXE_flash")).args(["top", "--control"]).arg(&path).output().unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("flash stats --watch"), "{done:?}");
}
