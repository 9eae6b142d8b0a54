//! Rules with `auth`: a server decides about requests for other paths.

use std::sync::{Arc, Mutex};

use crate::harness::documented::block;
use crate::harness::upstream::{
    Message, Peer, Running, Upstream, config, framed, ok, post_head, proxy, start,
};
use crate::harness::{Folder, Launch, kill, wait_until};

const LOGIN: &str = "HTTP/1.1 302 Found\r\nContent-Type: text/plain\r\nLocation: /auth/login\r\n";
const RULE: &str = "[[rule]]\npath = \"/reports/*\"\nauth = \"/auth\"\n";

/// A server that agrees to requests with the right cookie, and keeps what it is asked.
fn gatekeeper() -> (Running, Arc<Mutex<Vec<Message>>>) {
    let asked: Arc<Mutex<Vec<Message>>> = Arc::default();
    let keep = asked.clone();
    let server = Upstream::tcp().answer(move |request| {
        keep.lock().unwrap().push(request.clone());
        match request.field("Cookie") {
            Some("session=right") => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
            _ => framed(LOGIN, b"log in first", None),
        }
    });
    (server, asked)
}

const RIGHT: &str = "Cookie: session=right";

fn folder() -> Folder {
    let folder = Folder::with_hello();
    folder.www("reports/a.txt", "a report");
    folder
}

#[test]
fn an_application_lets_clients_in() {
    let folder = folder();
    let (gatekeeper, asked) = gatekeeper();
    let documented = block("docs/applications.md", "an_application_lets_clients_in");
    let documented = documented
        .replace("/srv/www", folder.path("www").to_str().unwrap())
        .replace("127.0.0.1:9091", &gatekeeper.address);
    let server = Launch::configured(&folder, &format!("listen = [\"127.0.0.1:0\"]\n{documented}")).start();
    let mut client = Peer::client(&server);
    for _ in 0..3 {
        assert_eq!(client.get_with("/reports/a.txt?x=%2f", &[RIGHT]).brief(), (200, "a report".into()));
        let refused = client.get_with("/reports/a.txt", &["Cookie: session=wrong"]);
        assert_eq!(refused.brief(), (302, "log in first".into()));
        assert_eq!(refused.field("Location"), Some("/auth/login"));
        assert_eq!(client.get_with("/reports/none", &[RIGHT]).status(), 404);
        assert_eq!(client.get("/hello.txt").status(), 200, "no rule has it");
    }
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 9, "each request once");
    assert_eq!(asked[0].line, "GET /auth HTTP/1.1");
    assert_eq!(asked[0].field("X-Forwarded-Method"), Some("GET"));
    assert_eq!(asked[0].field("X-Forwarded-Uri"), Some("/reports/a.txt?x=%2f"));
}

#[test]
fn a_server_gets_the_bodies_of_those_who_are_let_in() {
    let folder = folder();
    let (gatekeeper, _) = gatekeeper();
    let upstream = Upstream::tcp().answer(|request| ok(&request.body));
    let routes = proxy("/auth", &gatekeeper.address, "") + &proxy("/reports/", &upstream.address, "") + RULE;
    let server = start(&folder, &routes);
    let body = vec![b'x'; 300_000];
    for cookie in [RIGHT, "Cookie: none"] {
        for chunk_bytes in [None, Some(10_000)] {
            let mut client = Peer::client(&server);
            client.send(framed(&format!("{}{cookie}\r\n", post_head("/reports/")), &body, chunk_bytes));
            let answer = client.message();
            if cookie == RIGHT {
                assert!(answer.status() == 200 && answer.body == body);
                assert_eq!(client.get("/hello.txt").status(), 200);
            } else {
                assert_eq!(answer.status(), 302);
            }
        }
    }
}

#[test]
fn nobody_is_let_in_while_the_application_is_away_and_files_beside_it_do_not_wait() {
    let folder = folder();
    let (gatekeeper, _) = gatekeeper();
    let routes = proxy("/auth", &gatekeeper.address, "idle_max = 0") + RULE;
    let server = start(&folder, &routes);
    let gateway = server.sole("gateway");
    kill("STOP", gateway);
    let mut waiting = Peer::client(&server);
    waiting.ask("/reports/a.txt");
    for _ in 0..20 {
        assert_eq!(server.get("/hello.txt").status, 200);
    }
    kill("CONT", gateway);
    assert_eq!(waiting.message().status(), 302);
    drop(gatekeeper);
    wait_until("a refusal", || Peer::client(&server).get_with("/reports/a.txt", &[RIGHT]).status() == 502);
    assert_eq!(server.get("/hello.txt").status, 200);
}

#[test]
fn a_reload_adds_and_removes_the_question() {
    let folder = folder();
    let (gatekeeper, _) = gatekeeper();
    let with = |rule: &str| config(&folder, &(proxy("/auth", &gatekeeper.address, "") + rule));
    let server = Launch::configured(&folder, &with("")).start();
    assert_eq!(server.get("/reports/a.txt").status, 200);
    for (rule, status) in [(RULE, 302), ("", 200)] {
        std::fs::write(folder.path("flash.toml"), with(rule)).unwrap();
        server.signal("HUP");
        wait_until("the reload", || Peer::client(&server).get("/reports/a.txt").status() == status);
    }
}

#[test]
fn an_application_learns_who_the_client_is() {
    let folder = folder();
    let gatekeeper = Upstream::tcp().answer(|request| match request.field("Cookie") {
        Some("session=right") => b"HTTP/1.1 204 No Content\r\nX-User: ann\r\nX-Secret: 1\r\n\r\n".to_vec(),
        _ => framed(LOGIN, b"log in first", None),
    });
    let application = Upstream::tcp().answer(|request| {
        let fields =
            ["X-User", "X_User", "X-Secret"].map(|name| request.field(name).unwrap_or("-").to_owned());
        ok(fields.join(" ").as_bytes())
    });
    let routes = proxy("/auth", &gatekeeper.address, "") + &proxy("/reports/", &application.address, "");
    let server = start(&folder, &(routes + RULE + "auth_fields = [\"X-User\"]\n"));
    let mut client = Peer::client(&server);
    for forged in ["X-User: root", "x-user: root", "X_User: root", "X-Other: 1"] {
        let answer = client.get_with("/reports/", &[RIGHT, forged]);
        assert_eq!(answer.brief(), (200, "ann - -".into()), "{forged}");
    }
    assert_eq!(client.get_with("/reports/", &["X-User: root"]).status(), 302);
}
