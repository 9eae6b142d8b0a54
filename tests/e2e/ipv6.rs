//! IPv6: Flash listens on it as on IPv4, together with it, and writes addresses in brackets.

use std::net::{SocketAddr, TcpListener};

use crate::harness::{Client, Folder, Launch, skip};

fn is_there() -> bool {
    let there = TcpListener::bind("[::1]:0").is_ok();
    if !there {
        skip("this machine has no IPv6");
    }
    there
}

#[test]
fn ipv6_alone() {
    if !is_there() {
        return;
    }
    let folder = Folder::with_hello();
    let server = Launch::bare().arg(folder.path("www")).args(["--listen", "[::1]:0"]).workers(2).start();
    let address = server.addresses[0];
    assert!(address.is_ipv6());
    assert!(server.stdout().contains(&format!("http://[::1]:{}/", address.port())), "{}", server.stdout());
    let mut client = server.client();
    client.send(format!("GET /hello.txt HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
    client.send(format!("GET http://{address}/hello.txt HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert_eq!(client.page().brief(), (200, "hello\n".into()));
}

#[test]
fn several_addresses_at_once() {
    if !is_there() {
        return;
    }
    let folder = Folder::with_hello();
    let listen = ["--listen", "[::1]:0", "--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0"];
    let server = Launch::bare().arg(folder.path("www")).args(listen).workers(2).start();
    assert_eq!(server.addresses.len(), 3, "{}", server.stdout());
    for address in &server.addresses {
        for _ in 0..4 {
            assert_eq!(Client::to(*address).get("/hello.txt").text(), "hello\n", "{address}");
        }
    }
}

#[test]
fn one_port_for_both_families() {
    if !is_there() {
        return;
    }
    // A port that was just free for both families. Another program may take it, so several are tried.
    let folder = Folder::with_hello();
    for _ in 0..5 {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        if TcpListener::bind(("::1", port)).is_err() {
            continue;
        }
        drop(probe);
        let (v4, v6) = (format!("127.0.0.1:{port}"), format!("[::]:{port}"));
        let launch = Launch::bare().arg(folder.path("www")).args(["--listen", &v4, "--listen", &v6]);
        let _server = match launch.workers(1).try_start() {
            Ok(server) => server,
            Err(said) if said.contains("in use") => continue,
            Err(said) => panic!("the server ended at its start: {said}"),
        };
        for address in [v4, format!("[::1]:{port}")] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(Client::to(address).get("/hello.txt").text(), "hello\n", "{address}");
        }
        return;
    }
    skip("no port was free in both families");
}

#[test]
fn the_log_names_the_peer() {
    if !is_there() {
        return;
    }
    let folder = Folder::with_hello();
    let log = folder.path("access.log");
    let server = Launch::bare()
        .arg(folder.path("www"))
        .args(["--listen", "[::1]:0"])
        .workers(1)
        .arg("--log-file")
        .arg(&log)
        .start();
    server.get("/hello.txt");
    crate::harness::wait_until("the line", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.starts_with("::1 - - ["))
    });
}
