//! Programs that Flash starts for routes and whose processes stay (`app`). `cgi_programs` has those of `cgi`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::upstream::{Peer, config, framed, post_head, start};
use crate::harness::{
    Folder, Launch, PATIENCE, Server, is_root, kill, of_a_program, pattern, skip, wait_for, wait_until,
};

/// Makes a folder that every user can write to.
pub(crate) fn writable(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.path(name);
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    path
}

/// Whether a process exists that can run.
pub(crate) fn is_alive(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

/// A FastCGI application in Python: one request at a time, from the socket that is its standard input.
const APP: &str = r#"
import os, signal, socket, struct, sys, time

def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

def exactly(peer, count):
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece: raise EOFError
        data += piece
    return data

going = True
def stop(*_):
    global going
    going = False
if os.path.exists(sys.argv[1] + "/tidy"):
    signal.signal(signal.SIGTERM, stop)
    open(sys.argv[1] + "/ready%d" % os.getpid(), "w").close()
listener = socket.socket(fileno=0)
while going:
    peer, _ = listener.accept()
    try:
        params, body, ended = b"", b"", False
        while not ended:
            _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", exactly(peer, 8))
            content = exactly(peer, length + padding)[:length]
            if kind == 4: params += content
            if kind == 5: body += content; ended = not content
        if b"/die" in params: os._exit(3)
        if b"/slow" in params: open(sys.argv[1] + "/begun", "w").close()
        while b"/slow" in params and not os.path.exists(sys.argv[1] + "/go"): time.sleep(0.01)
        try: found = b"memory" if b"/memory" in params and bytearray(512 << 20) else b""
        except MemoryError: found = b"none"
        text = b"Content-Type: text/plain\r\n\r\n%d %d %d%s" % (os.getpid(), os.getuid(), len(body), found)
        peer.sendall(record(6, text) + record(6, b"") + record(3, bytes(8)))
    except (EOFError, OSError):
        pass
    peer.close()
open(sys.argv[1] + "/ended%d" % os.getpid(), "w").close()
"#;

/// A server with the application in Python below `/app/`.
fn with_app(folder: &Folder, more: &str) -> Option<Server> {
    Some(start(folder, &app_route(folder, "", more)?))
}

/// A route of the application in Python below `/app/`. A shell executes `before` and then the application in its place. A request
/// for `slow` makes the file `begun` in the folder `slow`, and waits for `go`.
fn app_route(folder: &Folder, before: &str, more: &str) -> Option<String> {
    const PYTHON: &str = "/usr/bin/python3";
    if !Command::new(PYTHON).arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("needs /usr/bin/python3");
        return None;
    }
    let (app, slow) = (folder.write("app.py", APP), writable(folder, "slow"));
    let text = format!("{before}\nexec {PYTHON} {} {}\n", app.display(), slow.display());
    let path = folder.write("app.sh", text);
    Some(format!(
        "[[route]]\nprefix = \"/app/\"\napp = [\"/bin/sh\", {path:?}]\n{}\n{more}\n",
        of_a_program()
    ))
}

/// The process that answered, from its answer.
fn pid_in(text: &str) -> u32 {
    text.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no answer: {text}"))
}

#[test]
fn the_processes_of_an_app_stay_and_are_replaced() {
    let folder = Folder::with_hello();
    let Some(mut server) = with_app(&folder, "processes = 1") else { return };
    let mut client = Peer::client(&server);
    let first = client.get("/app/").text();
    assert!(!is_root() || first.ends_with(" 65534 0"), "the user of the route: {first}");
    let first = pid_in(&first);
    let body = pattern(300_000, 1);
    let posted = client.post("/app/x", &body).text();
    assert_eq!((pid_in(&posted), posted.ends_with(" 300000")), (first, true), "{posted}");
    // Its socket stays, so requests wait for the next process.
    let began = Instant::now();
    wait_until("the process has run for a while", || began.elapsed() > Duration::from_millis(5_100));
    kill("KILL", first);
    // Until then it can still accept a request.
    wait_until("the first process ends", || !is_alive(&first.to_string()));
    let second = pid_in(&client.get("/app/").text());
    assert_ne!(second, first);
    server.wait_for_stderr(
        "ended (signal: 9 (SIGKILL), not sent by Flash; if memory ran out, dmesg says so); starting another",
    );
    // A reload starts its own process.
    server.signal("HUP");
    wait_until("another process answers", || pid_in(&Peer::client(&server).get("/app/").text()) != second);
    wait_until("the earlier process ends", || !is_alive(&second.to_string()));
    let third = pid_in(&Peer::client(&server).get("/app/").text());
    server.signal("TERM");
    assert!(server.wait().success());
    assert!(!is_alive(&third.to_string()), "it ends before the server");
}

#[test]
fn a_request_goes_to_an_idle_process_whichever_worker_has_it() {
    let folder = Folder::with_hello();
    let Some(route) = app_route(&folder, "", "processes = 3") else { return };
    let config = config(&folder, &route).replace("workers = 1", "workers = 2");
    let server = Launch::configured(&folder, &config).start();
    let (begun, mut slow) = (folder.path("slow/begun"), Vec::new());
    // They can have come by the same worker or by two.
    for _ in 0..2 {
        let mut client = Peer::client(&server);
        client.ask("/app/slow");
        wait_until("a process to have the slow request", || fs::remove_file(&begun).is_ok());
        slow.push(client);
    }
    // Each by another connection, so that both workers get some. The process that is left answers all.
    let pids: Vec<u32> = (0..32).map(|_| pid_in(&Peer::client(&server).get("/app/").text())).collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    fs::write(folder.path("slow/go"), "").unwrap();
    let busy: Vec<u32> = slow.iter_mut().map(|client| pid_in(&client.message().text())).collect();
    assert!(busy[0] != busy[1] && !busy.contains(&pids[0]), "{busy:?} {pids:?}");
}

#[test]
fn an_app_that_dies_at_once_gets_no_requests_for_a_while() {
    let folder = Folder::with_hello();
    let route = "[[route]]\nprefix = \"/app/\"\napp = \"/bin/false\"\nprocesses = 2";
    let server = start(&folder, &format!("{route}\n{}\n", of_a_program()));
    server.wait_for_stderr("process 2 of `/bin/false` ended (exit status: 1); starting another in 1 s");
    let began = Instant::now();
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/app/").status(), 502);
    assert!(began.elapsed() < PATIENCE / 2, "it does not wait for the process");
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
    server.wait_for_stderr("starting another in 2 s");
}

#[test]
fn an_app_that_dies_with_a_request_costs_that_request() {
    let folder = Folder::with_hello();
    let Some(server) = with_app(&folder, "processes = 1") else { return };
    let mut client = Peer::client(&server);
    let first = pid_in(&client.get("/app/").text());
    client.send(framed(&post_head("/app/die"), b"x", None));
    assert_eq!(client.message().status(), 502);
    let another = wait_for("another process", || {
        let answer = Peer::client(&server).get("/app/");
        (answer.status() == 200).then(|| pid_in(&answer.text()))
    });
    assert_ne!(another, first);
}

#[test]
fn processes_that_an_app_leaves_behind_are_killed() {
    let folder = Folder::with_hello();
    let pids = writable(&folder, "pids");
    let left = pids.join("left");
    let before = format!("sleep 1000 & echo $! >> {}", left.display());
    let Some(route) = app_route(&folder, &before, "processes = 1") else { return };
    let server = start(&folder, &route);
    let first = pid_in(&Peer::client(&server).get("/app/").text());
    let behind = fs::read_to_string(&left).unwrap();
    assert!(is_alive(&behind));
    kill("KILL", first);
    wait_until("the rest of its group is killed", || !is_alive(&behind));
    let another = || {
        let answer = Peer::client(&server).get("/app/");
        (answer.status() == 200).then(|| pid_in(&answer.text()))
    };
    assert_ne!(wait_for("another process", another), first);
}

/// Maximum time of a worker to end that lets the next test see what it wants to see.
const WORKER_TIME: Duration = Duration::from_millis(1_500);

#[test]
fn an_app_that_ignores_sigterm_has_its_time_and_is_killed() {
    let folder = Folder::with_hello();
    for _ in 0..20 {
        let Some(route) = app_route(&folder, "trap '' TERM", "processes = 1") else { return };
        // The app has 3 s, longer than the requests.
        let launch = Launch::configured(&folder, &config(&folder, &route));
        let mut server = launch.args(["--shutdown-timeout", "2s"]).start();
        let pid = pid_in(&Peer::client(&server).get("/app/").text());
        let asked = Instant::now();
        server.signal("TERM");
        wait_until("the worker to end", || server.role("worker").is_empty());
        let is_in_time = asked.elapsed() < WORKER_TIME;
        assert!(server.wait().success());
        assert!(asked.elapsed() >= Duration::from_secs(3), "the app had all of its time");
        assert!(!is_alive(&pid.to_string()));
        if is_in_time {
            let said = server.stderr();
            assert!(said.contains("killed the remaining processes of configuration 1"), "{said}");
            assert!(!said.contains("cut the remaining requests"), "{said}");
            return;
        }
    }
    panic!("no worker ended in time");
}

#[test]
fn processes_that_wait_for_a_connection_notice_sigterm() {
    let folder = Folder::with_hello();
    for _ in 0..20 {
        let Some(route) = app_route(&folder, "", "processes = 2") else { return };
        let slow = folder.path("slow");
        fs::write(slow.join("tidy"), "").unwrap();
        let mut server = start(&folder, &route);
        assert_eq!(Peer::client(&server).get("/app/").status(), 200);
        let remove_all = |begin: &str| {
            let files = fs::read_dir(&slow).unwrap().map(|file| file.unwrap().path());
            let found = files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(begin));
            found.inspect(|path| fs::remove_file(path).unwrap()).count()
        };
        let mut ready = 0;
        wait_until("both processes can handle the signal", || {
            ready += remove_all("ready");
            ready == 2
        });
        server.signal("TERM");
        assert!(server.wait().success());
        // On a busy machine they can be killed first.
        if remove_all("ended") == 2 {
            return;
        }
    }
    panic!("the processes never ended by themselves");
}

#[test]
fn an_app_that_ends_after_the_shutdown_timeout_is_not_reported() {
    let folder = Folder::with_hello();
    let marks = writable(&folder, "marks");
    let at = marks.display();
    let text = format!(
        "trap 'sleep 2; touch {at}/ended; exit' TERM; touch {at}/begun\nwhile :; do sleep 0.05; done\n"
    );
    let app = folder.write("app.sh", text);
    let route = format!(
        "[[route]]\nprefix = \"/app/\"\nprocesses = 1\napp = [\"/bin/sh\", {app:?}]\n{}\n",
        of_a_program()
    );
    for _ in 0..20 {
        let _ = (fs::remove_file(marks.join("begun")), fs::remove_file(marks.join("ended")));
        let launch = Launch::configured(&folder, &config(&folder, &route));
        let mut server = launch.args(["--shutdown-timeout", "1s"]).start();
        wait_until("the app to begin", || marks.join("begun").exists());
        let asked = Instant::now();
        server.signal("TERM");
        wait_until("the worker to end", || server.role("worker").is_empty());
        let is_in_time = asked.elapsed() < Duration::from_millis(800);
        assert!(server.wait().success());
        if is_in_time && marks.join("ended").exists() {
            assert!(!server.stderr().contains("configuration 1"), "{}", server.stderr());
            return;
        }
    }
    panic!("neither the worker nor the app ended in time");
}

#[test]
fn an_app_is_reached_again_after_the_gateway_was_killed() {
    let folder = Folder::with_hello();
    let Some(server) = with_app(&folder, "processes = 1") else { return };
    let first = pid_in(&Peer::client(&server).get("/app/").text());
    let mut slow = Peer::client(&server);
    slow.ask("/app/slow");
    wait_until("the app to have the request", || folder.path("slow/begun").exists());
    let gateway = server.sole("gateway");
    kill("KILL", gateway);
    server.wait_for_stderr("the gateway ended");
    fs::write(folder.path("slow/go"), "").unwrap();
    assert_eq!(pid_in(&slow.message().text()), first, "the connection to the app is the worker's");
    let answer = wait_for("an answer through the next gateway", || {
        Some(Peer::client(&server).get("/app/")).filter(|answer| answer.status() == 200)
    });
    assert_eq!(pid_in(&answer.text()), first);
    assert_ne!(server.sole("gateway"), gateway);
}

#[test]
fn an_app_has_no_more_memory_than_its_limit() {
    let folder = Folder::with_hello();
    for (limit, found) in [("256MiB", "none"), ("2GiB", "memory")] {
        let more = format!("processes = 1\nmemory_max = {limit:?}");
        let Some(server) = with_app(&folder, &more) else { return };
        let answer = Peer::client(&server).get("/app/memory").text();
        assert!(answer.ends_with(found), "{limit}: {answer}");
    }
}

#[test]
fn php_answers_without_a_server_of_its_own() {
    if !Command::new("php-cgi").arg("-v").output().is_ok_and(|output| output.status.success()) {
        return skip("needs php-cgi");
    }
    let folder = Folder::with_hello();
    folder.www(
        "hello.php",
        "<?php echo \"Hello from PHP, \", $_GET[\"name\"] ?? \"you\", \" \", php_sapi_name();",
    );
    let route = "[[route]]\nextension = \"php\"\napp = \"php-cgi\"\nprocesses = 1";
    let server = start(&folder, &format!("{route}\n{}\n", of_a_program()));
    let mut client = Peer::client(&server);
    // More than php-cgi answers by its defaults.
    for _ in 0..600 {
        assert_eq!(client.get("/hello.php?name=Ada").brief(), (200, "Hello from PHP, Ada cgi-fcgi".into()));
    }
    assert_eq!(client.get("/missing.php").status(), 404);
}

#[test]
fn a_reload_to_a_program_that_cannot_start_changes_nothing() {
    let folder = Folder::with_hello();
    let Some(route) = app_route(&folder, "", "processes = 1") else { return };
    let server = Launch::configured(&folder, &config(&folder, &route)).start();
    let first = pid_in(&Peer::client(&server).get("/app/").text());
    let wrong = format!("[[route]]\nprefix = \"/app/\"\napp = \"php-cgj\"\n{}\n", of_a_program());
    fs::write(folder.path("flash.toml"), config(&folder, &wrong)).unwrap();
    server.signal("HUP");
    server.wait_for_stderr("cannot start `php-cgj`");
    assert_eq!(pid_in(&Peer::client(&server).get("/app/").text()), first);
}
