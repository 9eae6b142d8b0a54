//! Processes that die are replaced without losing a queued connection; none outlives its supervisor.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Client, Folder, Launch, PATIENCE, Server, kill, skip, wait_for, wait_until};

/// Waits for a new worker.
fn next_worker(server: &Server, old: u32) -> u32 {
    wait_for("the next worker", || server.role("worker").into_iter().find(|pid| *pid != old))
}

/// Whether a process still exists, even as a zombie.
pub(crate) fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_worker_that_dies_is_replaced() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let old = server.sole("worker");
    assert_eq!(server.get("/hello.txt").status, 200);
    kill("KILL", old);
    let new = next_worker(&server, old);
    assert_ne!(new, old);
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    server.wait_for_stderr("worker");
    assert!(!exists(old), "and it was reaped");
}

#[test]
fn the_queue_of_a_dead_worker_is_served_by_its_successor() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let worker = server.sole("worker");
    kill("STOP", worker);
    let mut clients: Vec<Client> = (0..40).map(|_| server.client()).collect();
    for client in &mut clients {
        client.ask("/hello.txt");
    }
    kill("KILL", worker);
    for client in &mut clients {
        assert_eq!(client.page().brief(), (200, "hello\n".into()));
    }
}

#[test]
fn workers_have_separate_sockets_and_survive_each_other() {
    let folder = Folder::with_hello();
    let server = Launch::with_workers(&folder, 3).start();
    wait_until("three workers", || server.role("worker").len() == 3);
    let mut kept: Vec<Client> = (0..30).map(|_| server.client()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/hello.txt").status, 200);
    }
    kill("KILL", server.role("worker")[0]);
    let alive = kept.iter_mut().filter_map(|client| client.try_get("/hello.txt").ok()).count();
    assert!((1..30).contains(&alive), "{alive} of 30: each worker has its own");
    for _ in 0..30 {
        assert_eq!(server.get("/hello.txt").status, 200);
    }
    wait_until("three workers again", || server.role("worker").len() == 3);
}

#[test]
fn workers_that_die_again_and_again_are_replaced_each_time() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    for _ in 0..3 {
        let old = server.sole("worker");
        kill("KILL", old);
        assert_eq!(server.get("/hello.txt").status, 200, "it waits for the next one");
        next_worker(&server, old);
    }
}

#[test]
fn a_dead_workers_helpers_end() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    assert_eq!(server.get("/unheard-of").status, 404);
    let (worker, helpers) = (server.sole("worker"), server.some("helper"));
    kill("KILL", worker);
    wait_until("the helpers' end", || !helpers.iter().any(|pid| exists(*pid)));
    assert_eq!(server.get("/unheard-of-too").status, 404);
}

#[test]
fn nothing_outlives_the_supervisor() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let mut server = Launch::with_workers(&folder, 2).arg("--log-file").arg(&log).start();
    for n in 0..8 {
        assert_eq!(server.get(&format!("/unheard-of-{n}")).status, 404);
    }
    let mut download = server.client();
    download.ask("/hello.txt");
    let children: Vec<u32> = ["worker", "helper", "log"].iter().flat_map(|role| server.role(role)).collect();
    assert!(children.len() >= 4, "{children:?}");
    server.signal("KILL");
    server.wait();
    for pid in children {
        wait_until("a child's end", || !exists(pid));
    }
    assert!(Client::try_to(server.addresses[0]).is_err(), "nobody listens");
}

#[test]
fn a_hung_helper_does_not_outlive_the_supervisor() {
    let folder = Folder::with_hello();
    let mut server = Launch::new(&folder).start();
    assert_eq!(server.get("/unheard-of").status, 404);
    let helpers = server.some("helper");
    helpers.iter().for_each(|pid| kill("STOP", *pid));
    server.signal("KILL");
    server.wait();
    wait_until("the helpers' end", || !helpers.iter().any(|pid| exists(*pid)));
}

#[test]
fn requests_continue_while_the_supervisor_is_stopped() {
    let folder = Folder::with_hello();
    let mut server = Launch::new(&folder).start();
    assert_eq!(server.get("/unheard-of").status, 404);
    server.signal("STOP");
    for n in 0..20 {
        assert_eq!(server.get("/hello.txt").status, 200);
        // Answered by the existing helper.
        assert_eq!(server.get(&format!("/unheard-of-{n}")).status, 404);
    }
    server.signal("CONT");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_log_writer_that_dies_is_replaced() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::new(&folder).arg("--log-file").arg(&log).start();
    let old = server.sole("log");
    assert_eq!(server.get("/hello.txt?first").status, 200);
    wait_until("the first line", || fs::read_to_string(&log).unwrap().contains("?first "));
    kill("KILL", old);
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt?meanwhile").status, 200, "requests continue without it");
    wait_until("the next log writer", || server.role("log").iter().any(|pid| *pid != old));
    assert_eq!(client.get("/hello.txt?later").status, 200);
    wait_until("the later line", || fs::read_to_string(&log).unwrap().contains("?later "));
    assert!(fs::read_to_string(&log).unwrap().contains("?first "), "the file keeps its lines");
    server.wait_for_stderr("the log writer ended (signal: 9 (SIGKILL), not sent by Flash; if memory ran out");
}

#[test]
fn a_log_writer_that_dies_while_its_configuration_drains_is_replaced() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let config = "listen = [\"127.0.0.1:0\"]\nroot = \"www\"\nworkers = 1\nlog_file = \"access.log\"\n";
    let mut server = Launch::configured(&folder, config).start();
    let old = server.sole("log");
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt?before").status, 200);
    wait_until("the first line", || fs::read_to_string(&log).unwrap().contains("?before "));
    client.send("GET /hello.txt?after HTTP/1.1\r\nHost: h\r\n");
    server.signal("HUP");
    wait_until("the new configuration", || server.announcements().len() == 2);
    let both = server.role("log");
    assert!(both.len() == 2 && both.contains(&old), "the old configuration drains");
    kill("KILL", old);
    wait_until("a log writer for the lines to come", || {
        let now = server.role("log");
        now.len() == 2 && !now.contains(&old)
    });
    server.wait_for_stderr("the log writer ended (signal: 9 (SIGKILL)");
    client.send("\r\n");
    assert_eq!(client.page().status, 200);
    drop(client);
    wait_until("its line", || fs::read_to_string(&log).unwrap().contains("?after "));
    wait_until("the end of the old configuration", || server.role("log").len() == 1);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

/// The new process of a role, stopped before it can be ready; None if it was faster.
pub(crate) fn stop_at_start(server: &Server, role: &str) -> Option<u32> {
    let old = server.role(role);
    let mut command = Command::new("sh");
    // It waits for the pid, because starting a program takes as long as the role needs.
    let mut stop = command.args(["-c", "read pid && kill -STOP $pid"]).stdin(Stdio::piped()).spawn().unwrap();
    server.signal("HUP");
    let started = Instant::now();
    // Without the pauses of `wait_for`.
    let new = loop {
        if let Some(new) = server.role(role).into_iter().find(|pid| !old.contains(pid)) {
            break new;
        }
        assert!(started.elapsed() < PATIENCE, "no new {role}");
    };
    writeln!(stop.stdin.take().unwrap(), "{new}").unwrap();
    assert!(stop.wait().unwrap().success());
    wait_until("it to stop", || status_of(new, "State").starts_with('T'));
    // A role is ready once its sandbox is in force.
    if status_of(new, "Seccomp") == "0" {
        return Some(new);
    }
    kill("CONT", new);
    None
}

/// A field of `/proc/PID/status`.
fn status_of(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

#[test]
fn a_configuration_is_in_force_once_every_role_is_ready() {
    const ROLES: [&str; 3] = ["worker", "gateway", "log"];
    let folder = Folder::with_hello();
    let config = "listen = [\"127.0.0.1:0\"]\nroot = \"www\"\nworkers = 1\nlog_file = \"access.log\"\n\
                  [[route]]\nprefix = \"/api/\"\nproxy = \"127.0.0.1:1\"\n";
    let server = Launch::configured(&folder, config).start();
    for role in ROLES {
        let (unready, gateway, before) = wait_for("a process that is not ready", || {
            let (gateway, before) = (server.sole("gateway"), server.in_force().len());
            let unready = stop_at_start(&server, role);
            if unready.is_none() {
                wait_until("the end of the reload", || server.in_force().len() > before);
            }
            Some((unready?, gateway, before))
        });
        let all = || ROLES.iter().flat_map(|role| server.role(role)).filter(|pid| *pid != unready);
        wait_until("all others", || all().all(|pid| status_of(pid, "Seccomp") == "2"));
        // The supervisor has a turn that has nothing to do with the reload.
        kill("KILL", gateway);
        wait_until("another gateway", || {
            let now = server.role("gateway");
            now.len() == 2 && !now.contains(&gateway)
        });
        assert_eq!(server.get("/hello.txt").status, 200, "the old configuration serves");
        assert_eq!(server.in_force().len(), before, "a {role} is not ready");
        kill("CONT", unready);
        wait_until("the new configuration", || server.in_force().len() == before + 1);
    }
}

/// A server with a route.
fn with_route(folder: &Folder) -> Server {
    let route = "[[route]]\nprefix = \"/api/\"\nproxy = \"127.0.0.1:1\"\n";
    let config = format!("root = {:?}\nlisten = [\"127.0.0.1:0\"]\n{route}", folder.path("www"));
    Launch::configured(folder, &config).start()
}

#[test]
fn a_gateway_that_dies_is_replaced() {
    let folder = Folder::with_hello();
    let server = with_route(&folder);
    let old = server.sole("gateway");
    kill("KILL", old);
    wait_until("the next gateway", || server.role("gateway").iter().any(|pid| *pid != old));
    server.wait_for_stderr("the gateway ended");
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_gateway_ends_with_its_configuration() {
    let folder = Folder::with_hello();
    let mut server = with_route(&folder);
    let old = server.sole("gateway");
    server.signal("HUP");
    wait_until("the next gateway alone", || matches!(server.role("gateway")[..], [pid] if pid != old));
    let new = server.sole("gateway");
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!exists(old) && !exists(new), "and they were reaped");
    assert!(!server.stderr().contains("gateway"), "{}", server.stderr());
}

#[test]
fn an_address_in_use_is_an_error() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let address = server.addresses[0].to_string();
    let (code, out, err) = Launch::bare().arg(folder.path("www")).args(["--listen", &address]).fail();
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(err.contains(&address) && err.contains("in use"), "{err}");
    assert_eq!(server.get("/hello.txt").status, 200, "the first server continues");
}

#[test]
fn a_log_file_that_cannot_be_created_is_an_error() {
    let folder = Folder::with_hello();
    let log = folder.path("not-there/access.log");
    let (code, _, err) = Launch::new(&folder).arg("--log-file").arg(&log).fail();
    assert_eq!(code, Some(1));
    assert!(err.contains("access.log") && err.to_lowercase().contains("no such file"), "{err}");
}

#[test]
fn a_role_started_by_hand_is_a_usage_error() {
    for role in ["worker", "helper", "log", "nonsense"] {
        let output = Command::new(env!("CARGO_BIN_EXE_flash"))
            .args(["role", role])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(!output.status.success(), "{role}");
        assert!(!output.stderr.is_empty(), "{role}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!text.contains("panicked"), "{role}: {text}");
    }
}

/// Makes a shell start the server with a full pipe as its standard error, which nobody reads.
fn unread(folder: &Folder, launch: Launch) -> Launch {
    let pipe = folder.path("unread");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opened for both, a FIFO waits for no reader, and fills.
    let script = "exec 2<>\"$0\"; timeout 1 cat /dev/zero >&2; exec \"$@\"";
    launch.through_all(&["sh", "-c", script, pipe.to_str().unwrap()])
}

#[test]
fn an_unread_standard_error_blocks_nothing() {
    let folder = Folder::with_hello();
    let mut server = unread(&folder, Launch::new(&folder)).start();
    for _ in 0..3 {
        let old = server.sole("worker");
        kill("KILL", old);
        next_worker(&server, old);
        assert_eq!(server.get("/hello.txt").status, 200);
        assert_eq!(server.get("/unheard-of").status, 404);
    }
    server.signal("HUP");
    wait_until("the new start line", || server.announcements().len() == 2);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_failing_role_ends_even_if_nobody_reads_its_message() {
    let folder = Folder::with_hello();
    let log = folder.path("logs/access.log");
    folder.write("logs/x", "");
    let mut server = unread(&folder, Launch::new(&folder).arg("--log-file").arg(&log)).start();
    // Its successors cannot open their file. If one did not end, it would have no successor, and nobody would make the file.
    fs::remove_dir_all(folder.path("logs")).unwrap();
    kill("KILL", server.sole("log"));
    std::thread::sleep(Duration::from_secs(1));
    folder.write("logs/x", "");
    wait_until("a successor that can open its file", || log.exists());
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_worker_that_reads_no_orders_blocks_nothing() {
    let folder = Folder::with_hello();
    let mut config =
        "listen = [\"127.0.0.1:0\"]\nroot = \"www\"\nworkers = 1\nshutdown_timeout = \"1s\"\n".to_owned();
    // Their roots are more orders than a channel holds.
    for n in 0..1_000 {
        config += &format!("[[site]]\nhosts = [\"h{n}.example\"]\nroot = \"www\"\n");
    }
    let mut server = Launch::configured(&folder, &config).start();
    let old = server.role("worker");
    old.iter().for_each(|pid| kill("KILL", *pid));
    let next = wait_for("a next worker", || server.role("worker").into_iter().find(|pid| !old.contains(pid)));
    kill("STOP", next);
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn as_pid_1_the_supervisor_reaps_orphans() {
    // It leaves an orphan to its successor, as happens to the first process of a container.
    let script = "import ctypes, os, sys, time\n\
                  PR_SET_CHILD_SUBREAPER = 36\n\
                  assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0\n\
                  child = os.fork()\n\
                  if child == 0:\n \
                      if os.fork() == 0:\n  \
                          time.sleep(15)\n \
                      os._exit(0)\n\
                  os.waitpid(child, 0)\n\
                  os.execv(sys.argv[1], sys.argv[1:])";
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip("needs python3, which leaves an orphan");
    }
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).through_all(&["python3", "-c", script]).start();
    let children = || fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.pid())).unwrap();
    let orphan = children().split(' ').next().unwrap().parse().unwrap();
    wait_until("the orphan's end", || !exists(orphan));
    assert_eq!(server.get("/unheard-of").status, 404);
    assert_eq!(server.stderr(), "");
}

#[test]
fn out_of_memory_does_not_kill_the_supervisor_first() {
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::new(&folder).arg("--log-file").arg(log).start();
    assert_eq!(server.get("/unheard-of").status, 404);
    let score = |pid: u32| -> i32 {
        fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
    };
    let own = score(std::process::id());
    let supervisor = score(server.pid());
    assert!(supervisor <= own, "{supervisor} of {own}");
    for role in ["worker", "log", "helper"] {
        for pid in server.role(role) {
            assert!(score(pid) > supervisor, "{role}: {} of {supervisor}", score(pid));
        }
    }
}
