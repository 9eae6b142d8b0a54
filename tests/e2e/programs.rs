//! Programs that Flash starts for routes: `cgi`, one process per request, and `app`, processes that stay.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::upstream::{Peer, framed, post_head, start};
use crate::harness::{Folder, PATIENCE, Server, is_root, kill, pattern, skip, wait_for, wait_until};

/// Makes a shell script in the folder `cgi`. Another process writes it: a process that a test starts at this moment could
/// otherwise have it open for writing, and then it cannot be executed.
fn script(folder: &Folder, name: &str, text: &str) {
    let written = folder.write(&format!("{name}.text"), format!("#!/bin/sh\n{text}"));
    let mut install = Command::new("install");
    install.args(["-D", "-m", "755"]).arg(written).arg(folder.path("cgi").join(name));
    assert!(install.status().unwrap().success());
}

/// A server with the programs of the folder `cgi` below `/cgi-bin/`.
fn with_cgi(folder: &Folder, more: &str) -> Server {
    let cgi = folder.path("cgi");
    start(folder, &format!("[[route]]\nprefix = \"/cgi-bin/\"\ncgi = {cgi:?}\n{more}\n"))
}

#[test]
fn a_program_answers_each_request() {
    let folder = Folder::with_hello();
    let head = "printf 'Content-Type: text/plain\\r\\n\\r\\n'";
    script(&folder, "hello", &format!("{head}; echo \"Hello, $QUERY_STRING\""));
    script(
        &folder,
        "d/info",
        &format!("{head}; echo \"$SCRIPT_NAME $PATH_INFO $REQUEST_METHOD $HTTP_X_TEST\"; pwd"),
    );
    script(&folder, "count", &format!("n=$(wc -c | tr -d ' '); {head}; echo $n"));
    script(&folder, "status", "printf 'Status: 418 Teapot\\n\\nshort and stout'");
    script(&folder, "env", &format!("{head}; env | sed 's/=.*//' | sort | tr '\\n' ' '"));
    script(&folder, "much", &format!("{head}; head -c 3000000 /dev/zero"));
    script(&folder, "idle", &format!("{head}; exec 0<&-; echo unread"));
    script(&folder, "silent", "exit 1");
    script(&folder, "garbage", "echo no head at all; echo");
    fs::write(folder.path("cgi/data"), "secret").unwrap();
    let server = with_cgi(&folder, "");
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/cgi-bin/hello?you").brief(), (200, "Hello, you\n".into()));
    let info = client.get_with("/cgi-bin/d/info/a%20b/c?q", &["X-Test: 7"]);
    let folder_of = folder.path("cgi/d").canonicalize().unwrap();
    assert_eq!(info.text(), format!("/cgi-bin/d/info /a b/c GET 7\n{}\n", folder_of.display()));
    for bytes in [0, 1, 65_536, 1_000_000] {
        let count = client.post("/cgi-bin/count", &pattern(bytes, 1));
        assert_eq!(count.brief(), (200, format!("{bytes}\n")));
    }
    let unread = Peer::client(&server).post("/cgi-bin/idle", &pattern(1_000, 1));
    assert_eq!(unread.brief(), (200, "unread\n".into()));
    assert_eq!(client.get("/cgi-bin/status").brief(), (418, "short and stout".into()));
    assert_eq!(client.get("/cgi-bin/much").body, vec![0; 3_000_000]);
    for (target, status) in
        [("none", 404), ("d", 404), ("d/", 404), ("hello%2F..%2Fhello", 200), ("data", 403)]
    {
        assert_eq!(client.get(&format!("/cgi-bin/{target}")).status(), status, "{target}");
    }
    for broken in ["silent", "garbage"] {
        assert_eq!(client.get(&format!("/cgi-bin/{broken}")).status(), 502, "{broken}");
    }
    let names = client.get_with("/cgi-bin/env", &["Proxy: x"]).text();
    for (name, is_there) in
        [("PATH", true), ("GATEWAY_INTERFACE", true), ("HTTP_PROXY", false), ("FLASH", false)]
    {
        assert_eq!(names.contains(name), is_there, "{name}: {names}");
    }
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn a_program_that_cannot_start_costs_its_request_only() {
    let folder = Folder::with_hello();
    script(&folder, "hello", "printf 'Content-Type: text/plain\\n\\nhello'");
    let path = folder.write("cgi/bad", "#!/no/such/interpreter\n");
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let server = with_cgi(&folder, "");
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/cgi-bin/bad").status(), 502);
    server.wait_for_stderr("cannot start");
    assert_eq!(client.get("/cgi-bin/hello").brief(), (200, "hello".into()));
}

/// Whether a process exists that can run.
fn is_alive(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    state.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[test]
fn programs_end_with_their_clients_and_only_some_run_at_once() {
    let folder = Folder::with_hello();
    fs::create_dir(folder.path("pids")).unwrap();
    fs::set_permissions(folder.path("pids"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let pids = folder.path("pids");
    let text = "printf 'Content-Type: text/plain\\n\\nbegun'\n";
    script(&folder, "stays", &format!("{text}echo $$ > {}/$QUERY_STRING\nexec sleep 1000\n", pids.display()));
    let server = with_cgi(&folder, "connections_max = 2");
    let begin = |name: &str| {
        let mut client = Peer::client(&server);
        client.send(format!("GET /cgi-bin/stays?{name} HTTP/1.1\r\nHost: e2e.test\r\n\r\n"));
        client
    };
    let pid_of = |name: &str| fs::read_to_string(pids.join(name)).ok().filter(|pid| pid.ends_with('\n'));
    let first = begin("first");
    let first_pid = wait_for("the first program", || pid_of("first"));
    let _second = begin("second");
    wait_for("the second program", || pid_of("second"));
    // A worker runs two at once: the third waits until the first client has left.
    let _third = begin("third");
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    assert!(is_alive(&first_pid) && pid_of("third").is_none());
    drop(first);
    wait_until("the first program has ended", || !is_alive(&first_pid));
    let third_pid = wait_for("the third program", || pid_of("third"));
    drop(server);
    wait_until("the programs end with the server", || !is_alive(&third_pid));
}

/// A FastCGI application in Python: one request at a time, from the socket that is its standard input.
const APP: &str = r#"
import os, socket, struct, sys

def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content

def exactly(peer, count):
    data = b""
    while len(data) < count:
        piece = peer.recv(count - len(data))
        if not piece: raise EOFError
        data += piece
    return data

listener = socket.socket(fileno=0)
while True:
    peer, _ = listener.accept()
    try:
        params, body, ended = b"", b"", False
        while not ended:
            _, kind, _, length, padding, _ = struct.unpack(">BBHHBB", exactly(peer, 8))
            content = exactly(peer, length + padding)[:length]
            if kind == 4: params += content
            if kind == 5: body += content; ended = not content
        if b"/die" in params: os._exit(3)
        text = b"Content-Type: text/plain\r\n\r\n%d %d %d" % (os.getpid(), os.getuid(), len(body))
        peer.sendall(record(6, text) + record(6, b"") + record(3, bytes(8)))
    except (EOFError, OSError):
        pass
    peer.close()
"#;

/// A server with the application in Python below `/app/`.
fn with_app(folder: &Folder, more: &str) -> Option<Server> {
    const PYTHON: &str = "/usr/bin/python3";
    if !Command::new(PYTHON).arg("--version").output().is_ok_and(|output| output.status.success()) {
        skip("needs /usr/bin/python3");
        return None;
    }
    let app = folder.write("app.py", APP);
    Some(start(folder, &format!("[[route]]\nprefix = \"/app/\"\napp = [{PYTHON:?}, {app:?}]\n{more}\n")))
}

/// The process that answered, from its answer.
fn pid_in(text: &str) -> u32 {
    text.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no answer: {text}"))
}

#[test]
fn the_processes_of_an_app_stay_and_are_replaced() {
    let folder = Folder::with_hello();
    let user = if is_root() { "user = \"nobody\"" } else { "" };
    let Some(mut server) = with_app(&folder, &format!("processes = 1\n{user}")) else { return };
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
    let second = pid_in(&client.get("/app/").text());
    assert_ne!(second, first);
    server.wait_for_stderr("ended (signal: 9 (SIGKILL)); starting another");
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
fn an_app_that_dies_at_once_gets_no_requests_for_a_while() {
    let folder = Folder::with_hello();
    let server = start(&folder, "[[route]]\nprefix = \"/app/\"\napp = \"/bin/false\"\nprocesses = 2\n");
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
fn php_answers_without_a_server_of_its_own() {
    if !Command::new("php-cgi").arg("-v").output().is_ok_and(|output| output.status.success()) {
        return skip("needs php-cgi");
    }
    let folder = Folder::with_hello();
    folder.www(
        "hello.php",
        "<?php echo \"Hello from PHP, \", $_GET[\"name\"] ?? \"you\", \" \", php_sapi_name();",
    );
    let server = start(&folder, "[[route]]\nextension = \"php\"\napp = \"php-cgi\"\nprocesses = 1\n");
    let mut client = Peer::client(&server);
    // More than php-cgi answers by its defaults.
    for _ in 0..600 {
        assert_eq!(client.get("/hello.php?name=Ada").brief(), (200, "Hello from PHP, Ada cgi-fcgi".into()));
    }
    assert_eq!(client.get("/missing.php").status(), 404);
}
