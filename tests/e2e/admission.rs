//! Admission: who gets a connection when there is not room for all. A refusal is a 503 that says when to try again, and
//! connections in service go on. (The limit of all connections is a subject of `limits`.)

use crate::harness::{Client, Folder, Launch, Page, Server, kill, stats_at, wait_until};

/// Only addresses that no test has.
const NOBODY_EXEMPT: [&str; 2] = ["--client-exempt", "192.0.2.0/24"];

#[track_caller]
fn assert_refused(page: &Page) {
    assert_eq!(page.status, 503, "{page:?}");
    assert!(page.says_close(), "{page:?}");
    let seconds: u32 = page.must("Retry-After").parse().unwrap();
    assert!((1..=60).contains(&seconds), "{page:?}");
}

fn client_from(last: u8, server: &Server) -> Client {
    Client::from([127, 0, 0, last].into(), server.addresses[0])
}

#[test]
fn one_address_has_its_share_while_others_are_served() {
    let folder = Folder::with_hello();
    let path = folder.path("control.sock");
    let launch = Launch::new(&folder).args(["--client-connections", "4", "--head-timeout", "60s"]);
    let server = launch.args(NOBODY_EXEMPT).arg("--control").arg(&path).start();
    let mut busy: Vec<Client> = (0..4).map(|_| client_from(1, &server)).collect();
    for client in &mut busy {
        assert_eq!(client.get("/hello.txt").status, 200);
        // An idle connection would make room for the next.
        client.begin_to_ask("/hello.txt");
    }
    for _ in 0..3 {
        assert_refused(&client_from(1, &server).page());
        assert_eq!(client_from(2, &server).get("/hello.txt").text(), "hello\n");
    }
    for client in &mut busy {
        assert_eq!(client.finish().brief(), (200, "hello\n".into()));
    }
    let connections = &stats_at(&path)["sum"]["connections"];
    assert_eq!(connections["refused"], 3, "{connections}");
    assert_eq!(connections["refused_by"]["client"], 3, "{connections}");
    server.wait_for_stderr("one client address has its share");
}

#[test]
fn an_idle_connection_makes_room_for_its_own_client_first() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--client-connections", "2"]).args(NOBODY_EXEMPT).start();
    let mut other = client_from(2, &server);
    assert_eq!(other.get("/hello.txt").status, 200);
    let mut newest = client_from(1, &server);
    assert_eq!(newest.get("/hello.txt").status, 200);
    for _ in 0..5 {
        // The order of idle connections is known to about 64 ms.
        std::thread::sleep(std::time::Duration::from_millis(80));
        let mut older = std::mem::replace(&mut newest, client_from(1, &server));
        assert_eq!(newest.get("/hello.txt").status, 200);
        std::thread::sleep(std::time::Duration::from_millis(80));
        let mut third = client_from(1, &server);
        assert_eq!(third.get("/hello.txt").status, 200);
        older.assert_closed();
        newest = third;
    }
    // It has been idle longest of all.
    assert_eq!(other.get("/hello.txt").status, 200);
    assert_eq!(server.stderr(), "");
}

#[test]
fn exempt_clients_have_no_share() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--client-connections", "1", "--head-timeout", "60s"]).start();
    let mut busy: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut busy {
        client.begin_to_ask("/hello.txt");
    }
    for client in &mut busy {
        assert_eq!(client.finish().status, 200, "loopback is exempt by default");
    }
    assert_eq!(server.stderr(), "");
}

#[test]
fn newcomers_that_would_wait_too_long_are_refused_and_clients_in_service_go_on() {
    let folder = Folder::with_hello();
    let path = folder.path("control.sock");
    let launch = Launch::with_workers(&folder, 1).args(["--accept-wait", "1ms", "--head-timeout", "60s"]);
    let server = launch.arg("--control").arg(&path).start();
    let mut in_service = server.client();
    let mut refused = 0;
    wait_until("newcomers to be refused", || {
        in_service.begin_to_ask("/hello.txt");
        let worker = server.sole("worker");
        kill("STOP", worker);
        // They wait in the kernel's queue.
        let newcomers: Vec<Client> = (0..400)
            .map(|_| {
                let mut client = server.client();
                client.ask("/hello.txt");
                client
            })
            .collect();
        kill("CONT", worker);
        for mut client in newcomers {
            let page = client.page();
            if page.status == 200 {
                assert_eq!(page.text(), "hello\n");
            } else {
                assert_refused(&page);
                refused += 1;
            }
        }
        assert_eq!(in_service.finish().brief(), (200, "hello\n".into()));
        refused > 0
    });
    let refused_by = &stats_at(&path)["sum"]["connections"]["refused_by"];
    assert_eq!(refused_by["overload"], refused, "{refused_by}");
    wait_until("the end of the overload", || server.client().get("/hello.txt").status == 200);
    server.wait_for_stderr("--accept-wait");
}
