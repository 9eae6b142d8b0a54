//! Programs that Flash starts for requests, one process each (`cgi`). `programs` has those that stay.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::applications::assert_as_documented;
use crate::harness::documented::{block, code};
use crate::harness::server::landlock_version;
use crate::harness::upstream::{Ended, Peer, start};
use crate::harness::{
    Folder, Server, is_root, kill, of_a_program, only_plain, pattern, skip, wait_for, wait_until,
};
use crate::programs::{is_alive, writable};

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
    start(folder, &format!("[[route]]\nprefix = \"/cgi-bin/\"\ncgi = {cgi:?}\n{}\n{more}\n", of_a_program()))
}

#[test]
fn a_program_answers_as_documented() {
    if only_plain("the documents show curl with plain HTTP") {
        return;
    }
    let folder = Folder::with_hello();
    script(&folder, "hello", &code("docs/applications.md", "sh"));
    assert_as_documented(
        &with_cgi(&folder, ""),
        &block("docs/applications.md", "a_program_answers_as_documented"),
    );
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
    script(&folder, "redirect", "printf 'Location: /hello.txt\\n\\n'");
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
        [("none", 404), ("d", 404), ("d/", 404), ("hello%2F..%2Fhello", 400), ("data", 403)]
    {
        assert_eq!(client.get(&format!("/cgi-bin/{target}")).status(), status, "{target}");
    }
    let redirect = client.get("/cgi-bin/redirect");
    assert_eq!((redirect.status(), redirect.field("Location")), (302, Some("/hello.txt")));
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
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    let server = with_cgi(&folder, "");
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/cgi-bin/bad").status(), 502);
    server.wait_for_stderr("cannot start");
    if is_root() {
        // It looks executable, but only root can do it.
        script(&folder, "private", "exit 0");
        fs::set_permissions(folder.path("cgi/private"), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(client.get("/cgi-bin/private").status(), 403);
    }
    assert_eq!(client.get("/cgi-bin/hello").brief(), (200, "hello".into()));
}

/// The head of an answer, as a command of a script.
const HEAD: &str = "printf 'Content-Type: text/plain\\n\\n'";

#[test]
fn a_program_that_fails_before_its_head_is_502_and_runs_once() {
    let folder = Folder::with_hello();
    let runs = writable(&folder, "runs");
    let failures = [
        ("silent", "exit 0"),
        ("failing", "exit 3"),
        ("garbage", "echo no head at all; echo; sleep 1000"),
        ("killed", "kill -KILL $$"),
        ("cut", "printf 'Content-Type: text/plain\\n'; kill -KILL $$"),
        ("closed", "printf 'Content-Type: text/plain\\n'; exec >&-; sleep 1000"),
    ];
    for (name, text) in failures {
        script(&folder, name, &format!("echo run >> {}/{name}\n{text}", runs.display()));
    }
    let server = with_cgi(&folder, "");
    let mut client = Peer::client(&server);
    for (name, _) in failures {
        let answer = client.get(&format!("/cgi-bin/{name}"));
        assert_eq!(answer.brief(), (502, "502 Bad Gateway\n".into()), "{name}");
        assert_eq!(fs::read_to_string(runs.join(name)).unwrap(), "run\n", "{name}");
        let posted = Peer::client(&server).post(&format!("/cgi-bin/{name}"), &pattern(300_000, 1));
        assert_eq!(posted.status(), 502, "{name}");
    }
    server.wait_for_stderr("cgi/silent ended (exit status: 0) before the head of its answer was complete");
    assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
}

#[test]
fn a_program_that_is_killed_within_its_answer_cuts_it() {
    let folder = Folder::with_hello();
    let body = "head -c 100000 /dev/zero";
    script(&folder, "killed", &format!("{HEAD}; {body}; kill -KILL $$"));
    script(&folder, "aborted", &format!("{HEAD}; {body}; kill -ABRT $$"));
    let length = "printf 'Content-Type: text/plain\\nContent-Length: 200000\\n\\n'";
    script(&folder, "short", &format!("{length}; {body}"));
    // Another process keeps the output open.
    script(&folder, "held", &format!("{HEAD}; {body}; sleep 1000 & kill -KILL $$"));
    script(&folder, "failed", &format!("{HEAD}; {body}; exit 3"));
    script(&folder, "closed", &format!("{HEAD}; {body}; exec >&-; sleep 1000"));
    let server = with_cgi(&folder, "");
    for name in ["killed", "aborted", "short", "held"] {
        let mut client = Peer::client(&server);
        client.ask(&format!("/cgi-bin/{name}"));
        match client.receive() {
            // The end can overtake bytes on their way.
            Err(Ended::InBody(part)) => {
                assert_eq!((part.status(), part.body.len().min(100_000)), (200, part.body.len()), "{name}");
            }
            other => panic!("{name} is not cut: {other:?}"),
        }
        client.assert_ended();
    }
    server.wait_for_stderr("cgi/killed ended (signal: 9 (SIGKILL)) within its answer");
    let mut client = Peer::client(&server);
    for name in ["failed", "closed"] {
        let answer = client.get(&format!("/cgi-bin/{name}"));
        assert_eq!((answer.status(), answer.body.len()), (200, 100_000), "{name}");
    }
}

/// A script that answers with a head, has `more` done, notes its process in the folder under the name in the query, and stays.
fn staying(folder: &Folder, more: &str) -> impl Fn(&str) -> Option<String> + use<> {
    let pids = writable(folder, "pids");
    let note = format!("echo $$ > {}/$QUERY_STRING", pids.display());
    // Short sleeps: a shell runs a trap only between commands, and a command that begins at that moment can miss the signal.
    let wait = "while :; do sleep 0.05; done";
    script(folder, "stays", &format!("{HEAD}; echo begun\n{more}\n{note}\n{wait}\n"));
    move |name| fs::read_to_string(pids.join(name)).ok().filter(|pid| pid.ends_with('\n'))
}

/// A client whose program stays, and the process of that.
fn stay(server: &Server, pid_of: impl Fn(&str) -> Option<String>, name: &str) -> (Peer, String) {
    let mut client = Peer::client(server);
    client.ask(&format!("/cgi-bin/stays?{name}"));
    (client, wait_for("the program", || pid_of(name)))
}

#[test]
fn programs_get_sigterm_when_their_client_leaves() {
    let folder = Folder::with_hello();
    let asked = writable(&folder, "asked").join("asked");
    let trap = format!("trap 'echo asked > {}; exit' TERM", asked.display());
    let pid_of = staying(&folder, &trap);
    let server = with_cgi(&folder, "");
    let (client, pid) = stay(&server, &pid_of, "kind");
    drop(client);
    wait_until("the program has ended", || !is_alive(&pid));
    assert_eq!(fs::read_to_string(asked).unwrap(), "asked\n");
}

#[test]
fn the_head_is_all_that_a_program_has_to_answer_to_head() {
    let folder = Folder::with_hello();
    let pid_of = staying(&folder, "");
    // The second one waits for the first.
    let server = with_cgi(&folder, "connections_max = 1");
    let mut client = Peer::client(&server);
    for name in ["first", "second"] {
        client.send(format!("HEAD /cgi-bin/stays?{name} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert_eq!(client.head().unwrap().status(), 200, "{name}");
    }
    let is_over = |name| pid_of(name).is_none_or(|pid| !is_alive(&pid));
    wait_until("both programs have ended", || is_over("first") && is_over("second"));
    assert_eq!(client.get("/hello.txt").status(), 200);
}

#[test]
fn programs_that_ignore_sigterm_are_killed_with_their_group() {
    let folder = Folder::with_hello();
    let child = writable(&folder, "child").join("pid");
    let pid_of = staying(&folder, &format!("trap '' TERM; sleep 1000 & echo $! > {}", child.display()));
    let server = with_cgi(&folder, "");
    let (client, pid) = stay(&server, &pid_of, "deaf");
    let child = fs::read_to_string(child).unwrap();
    assert!(is_alive(&pid) && is_alive(&child));
    drop(client);
    wait_until("both have ended", || !is_alive(&pid) && !is_alive(&child));
}

#[test]
fn programs_end_with_their_worker() {
    let folder = Folder::with_hello();
    let pid_of = staying(&folder, "");
    let server = with_cgi(&folder, "");
    let (_client, pid) = stay(&server, &pid_of, "orphan");
    kill("KILL", server.sole("worker"));
    wait_until("the program has ended", || !is_alive(&pid));
}

#[test]
fn the_group_of_a_program_ends_with_a_killed_server_and_with_its_role() {
    let folder = Folder::with_hello();
    let child = writable(&folder, "child").join("pid");
    let pid_of = staying(&folder, &format!("sleep 1000 & echo $! > {}", child.display()));
    let server = with_cgi(&folder, "");
    // A signal to the role alone ends its programs too, and another role takes its place.
    let (_client, pid) = stay(&server, &pid_of, "first");
    let first = fs::read_to_string(&child).unwrap();
    kill("TERM", server.sole("program"));
    wait_until("both have ended", || !is_alive(&pid) && !is_alive(&first));
    let (_client, pid) = wait_for("another role", || {
        let mut client = Peer::client(&server);
        client.ask("/cgi-bin/stays?second");
        (client.head().ok()?.status() == 200).then(|| (client, wait_for("a program", || pid_of("second"))))
    });
    let second = fs::read_to_string(&child).unwrap();
    assert!(is_alive(&pid) && is_alive(&second) && second != first);
    kill("KILL", server.pid());
    wait_until("both have ended", || !is_alive(&pid) && !is_alive(&second));
}

#[test]
fn only_some_programs_run_at_once() {
    let folder = Folder::with_hello();
    let runs = writable(&folder, "runs");
    let at = runs.display();
    let text = format!(
        "echo begin >> {at}/log\nuntil [ -e {at}/go ]; do sleep 0.05; done\n{HEAD}\necho end >> {at}/log"
    );
    script(&folder, "waits", &text);
    let server = with_cgi(&folder, "connections_max = 2");
    let log = || fs::read_to_string(runs.join("log")).unwrap_or_default();
    let mut clients: Vec<_> = (0..6).map(|_| Peer::client(&server)).collect();
    clients.iter_mut().for_each(|client| client.ask("/cgi-bin/waits"));
    wait_until("two programs run", || log().lines().count() >= 2);
    assert_eq!(server.get("/hello.txt").brief(), (200, "hello\n".into()));
    // Time for others to begin, which they must not do.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(log(), "begin\nbegin\n");
    fs::write(runs.join("go"), "").unwrap();
    clients.iter_mut().for_each(|client| assert_eq!(client.message().status(), 200));
    let log = log();
    let running = log.lines().scan(0, |running, line| {
        *running += if line == "begin" { 1 } else { -1 };
        Some(*running)
    });
    let running: Vec<i32> = running.collect();
    assert_eq!((running.len(), running.iter().max(), running.last()), (12, Some(&2), Some(&0)));
}

#[test]
fn a_program_has_no_more_memory_than_its_limit() {
    let folder = Folder::with_hello();
    // tail(1) keeps all of these bytes.
    script(
        &folder,
        "memory",
        &format!("{HEAD}; ulimit -d; head -c $QUERY_STRING /dev/zero | tail -c $QUERY_STRING | wc -c"),
    );
    let server = with_cgi(&folder, "memory_max = \"8MiB\"");
    let mut client = Peer::client(&server);
    assert_eq!(client.get("/cgi-bin/memory?1000000").brief(), (200, "8192\n1000000\n".into()));
    let over = client.get("/cgi-bin/memory?50000000").text();
    assert!(over.starts_with("8192\n") && !over.contains("50000000"), "{over}");
}

/// The first version of Landlock that forbids signals.
const LANDLOCK_WITH_SIGNALS: u8 = 6;

#[test]
fn a_program_of_the_same_user_cannot_end_a_worker() {
    let folder = Folder::with_hello();
    let own = format!("{HEAD}; sleep 1000 & kill -KILL $! && echo own");
    script(&folder, "kill", &format!("{own}; kill -KILL $QUERY_STRING || echo refused"));
    let user = if is_root() { "user = \"root\"" } else { "" };
    let cgi = folder.path("cgi");
    let server = start(&folder, &format!("[[route]]\nprefix = \"/cgi-bin/\"\ncgi = {cgi:?}\n{user}\n"));
    if landlock_version(&server) < LANDLOCK_WITH_SIGNALS {
        return skip("needs Landlock 6 (Linux 6.12)");
    }
    let worker = server.sole("worker");
    let said = Peer::client(&server).get(&format!("/cgi-bin/kill?{worker}")).text();
    assert_eq!((said.as_str(), server.sole("worker")), ("own\nrefused\n", worker));
}
