//! Servers of routes that are probed, and servers that are taken away.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::harness::documented::block;
use crate::harness::upstream::{Message, Peer, Running, Upstream, config, ok, start};
use crate::harness::{Folder, Launch, Server, kill, stats_at, wait_until};

/// A server whose pages always work, but not always its answer to probes.
struct Probed {
    upstream: Running,
    is_well: Arc<AtomicBool>,
    pages: Arc<AtomicUsize>,
}

impl Probed {
    fn new(name: &'static str) -> Self {
        let (is_well, pages) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (well, count) = (is_well.clone(), pages.clone());
        let answer = move |request: &Message| {
            if request.target() != "/health?now" {
                count.fetch_add(1, Ordering::AcqRel);
                return ok(name);
            }
            assert_eq!(request.field("Connection"), Some("close"));
            match well.load(Ordering::Acquire) {
                true => ok("well"),
                false => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_vec(),
            }
        };
        Self { upstream: Upstream::tcp().answer(answer), is_well, pages }
    }

    fn set(&self, is_well: bool) {
        self.is_well.store(is_well, Ordering::Release);
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Acquire)
    }
}

/// A route of these servers with probes.
fn probing(servers: &[&Probed]) -> String {
    let addresses: Vec<_> = servers.iter().map(|server| &server.upstream.address).collect();
    format!(
        "[[route]]\nprefix = \"/app/\"\nproxy = {addresses:?}\nprobe = \"/health?now\"\nprobe_interval = \"100ms\"\n"
    )
}

/// Makes requests, each over a connection of its own.
#[track_caller]
fn request(server: &Server, times: usize) -> Vec<String> {
    let answer = |_| {
        let answer = Peer::client(server).get("/app/x");
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text()
    };
    (0..times).map(answer).collect()
}

#[test]
fn a_server_whose_probes_fail_gets_no_requests_until_they_succeed() {
    let folder = Folder::with_hello();
    let (a, b) = (Probed::new("a"), Probed::new("b"));
    a.set(false);
    let control = folder.path("control.sock");
    let launch = Launch::configured(&folder, &config(&folder, &probing(&[&a, &b])));
    let server = launch.arg("--control").arg(&control).start();
    let down = || stats_at(&control)["sum"]["upstreams"]["probed_down"].clone();
    let address = &a.upstream.address;
    let documented =
        block("docs/applications.md", "a_server_whose_probes_fail_gets_no_requests_until_they_succeed");
    let documented = documented.replace("127.0.0.1:3000", address);
    let (failed, answers_again) = documented.trim_end().split_once('\n').unwrap();
    server.wait_for_stderr(failed);
    wait_until("the worker to learn it", || down() == 1);
    let pages = a.pages();
    assert_eq!(request(&server, 20), vec!["b"; 20]);
    // Another worker, and those of another gateway, learn it too.
    let worker = server.sole("worker");
    kill("KILL", worker);
    wait_until("another worker", || !server.role("worker").contains(&worker) && down() == 1);
    assert_eq!(request(&server, 20), vec!["b"; 20]);
    let gateway = server.sole("gateway");
    kill("KILL", gateway);
    wait_until("another gateway", || {
        server.role("gateway").len() == 1 && !server.role("gateway").contains(&gateway)
    });
    wait_until("a connection by it", || Peer::client(&server).get("/app/x").status() == 200);
    assert_eq!(request(&server, 20), vec!["b"; 20]);
    assert_eq!((a.pages(), down()), (pages, 1.into()));
    // Both fail: a server is better than none.
    b.set(false);
    wait_until("both to be down", || down() == 2);
    request(&server, 20);
    b.set(true);
    wait_until("one to be up", || down() == 1);
    a.set(true);
    server.wait_for_stderr(answers_again);
    wait_until("all to be up", || down() == 0);
    wait_until("requests for it", || request(&server, 10).contains(&"a".to_owned()));
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_server_at_a_unix_socket_is_probed() {
    let folder = Folder::with_hello();
    let path = folder.path("app.sock");
    let upstream = Upstream::unix(&path);
    let address = upstream.address.clone();
    let route = format!(
        "[[route]]\nprefix = \"/\"\nproxy = {address:?}\nprobe = \"/\"\nprobe_interval = \"100ms\"\n"
    );
    let server = start(&folder, &route);
    let mut peer = upstream.accept();
    assert_eq!(peer.message().field("Host"), Some("localhost"));
    peer.send(ok("well"));
    fs::remove_file(&path).unwrap();
    drop((peer, upstream));
    server.wait_for_stderr(&format!("upstream {address}: probe failed: "));
    let _upstream = Upstream::unix(&path).answer(|_| ok("well"));
    server.wait_for_stderr(&format!("upstream {address}: answers probes again"));
    assert_eq!(Peer::client(&server).get("/x").brief(), (200, "well".into()));
}

#[test]
fn a_server_is_taken_away_by_a_reload_and_finishes_its_requests() {
    let folder = Folder::with_hello();
    let leaving = Upstream::tcp();
    let staying = Upstream::tcp().answer(|_| ok("staying"));
    let route =
        |servers: &[&str]| config(&folder, &format!("[[route]]\nprefix = \"/app/\"\nproxy = {servers:?}\n"));
    let server = Launch::configured(&folder, &route(&[&leaving.address, &staying.address])).start();
    let mut client = Peer::client(&server);
    client.ask("/app/slow");
    // Of two idle servers the first one has the request.
    let mut peer = leaving.accept();
    assert_eq!(peer.message().target(), "/app/slow");
    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nbegin");
    assert_eq!(client.head().unwrap().status(), 200);
    let (worker, gateway) = (server.sole("worker"), server.sole("gateway"));
    fs::write(folder.path("flash.toml"), route(&[&staying.address])).unwrap();
    server.signal("HUP");
    wait_until("other workers alone to accept", || {
        server.role("worker").iter().any(|pid| *pid != worker)
            && (0..10).all(|_| Peer::client(&server).get("/app/x").brief() == (200, "staying".into()))
    });
    for _ in 0..20 {
        assert_eq!(Peer::client(&server).get("/app/x").brief(), (200, "staying".into()));
    }
    assert!(leaving.pending().is_none(), "it gets no new requests");
    peer.send("ended");
    assert_eq!(client.exactly(10), b"beginended");
    wait_until("the end of the old processes", || {
        !server.role("worker").contains(&worker) && !server.role("gateway").contains(&gateway)
    });
    assert_eq!(server.stderr(), "");
}
