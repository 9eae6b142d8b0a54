//! Clients behind proxies: their addresses and schemes, if the proxy is trusted.

use flash_engine::{Access, HttpsRedirect, LogFormat, PathRule, PathRules, ProxyRules, Rules};
use flash_http::proxies::ProxyField;
use flash_http::response::Status;

use super::h2::{connect, exchange};
use super::relays::{ask, proxying};
use crate::machine::World;

/// A site that trusts the proxies in 10.0.0.0/8, and admits no client from 192.0.2.0/24.
fn behind_proxies(field: ProxyField) -> Rules {
    let mut rules = proxying();
    rules.log_format = LogFormat::Json;
    let network = |text: &str| text.parse().expect("a network");
    rules.proxies = ProxyRules { networks: vec![network("10.0.0.0/8")], field };
    let access = Access { allow: vec![], deny: vec![network("192.0.2.0/24")] };
    rules.sites[0].paths = PathRules::new(vec![PathRule { access, ..PathRule::new("*") }]);
    rules
}

fn world_from(address: &str, rules: Rules) -> World {
    let mut world = World::with(rules);
    world.machine.files.add("a", "content");
    world.only_address = Some(address.parse().expect("an address"));
    world
}

#[test]
fn the_client_that_a_trusted_proxy_names_counts() {
    const NAMED: &str = "X-Forwarded-For: 192.0.2.1, 198.51.100.7, 10.0.0.2\r\n";
    for (from, fields, status, logged) in [
        ("10.0.0.1", "X-Forwarded-For: 192.0.2.1\r\n", 403, "192.0.2.1"),
        ("10.0.0.1", NAMED, 200, "198.51.100.7"),
        ("10.0.0.1", "", 200, "10.0.0.1"),
        ("10.0.0.1", "Forwarded: for=192.0.2.1\r\n", 200, "10.0.0.1"),
        ("198.51.100.9", "X-Forwarded-For: 203.0.113.1\r\n", 200, "198.51.100.9"),
        ("192.0.2.9", "X-Forwarded-For: 198.51.100.7\r\n", 403, "192.0.2.9"),
    ] {
        let mut world = world_from(from, behind_proxies(ProxyField::XForwarded));
        for _ in 0..3 {
            let client = world.connect();
            client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
            world.run();
            assert_eq!(client.take_one().status, status, "{from} {fields}");
        }
        let peer = format!("\"peer\":\"{logged}\"");
        assert_eq!(world.machine.log.len(), 3);
        assert!(world.machine.log.iter().all(|line| line.contains(&peer)), "{:?}", world.machine.log);
        world.end();
    }
}

#[test]
fn requests_of_several_clients_on_a_connection_are_told_apart() {
    let mut world = world_from("10.0.0.1", behind_proxies(ProxyField::Forwarded));
    let client = world.connect();
    let get = |address: &str| format!("GET /a HTTP/1.1\r\nHost: a\r\nForwarded: for={address}\r\n\r\n");
    client.send([get("198.51.100.1"), get("192.0.2.1"), get("198.51.100.2")].concat());
    world.run();
    let statuses: Vec<u16> = client.take().iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 403, 200]);
    let clients = ["198.51.100.1", "192.0.2.1", "198.51.100.2"];
    for (line, client) in world.machine.log.iter().zip(clients) {
        assert!(line.contains(&format!("\"peer\":\"{client}\"")), "{line}");
    }
    let mut streams = connect(&mut world);
    let asked = ["198.51.100.1", "192.0.2.1"]
        .map(|address| streams.ask("GET", "/a", &[("forwarded", &format!("for={address}"))]));
    exchange(&mut world, &mut streams);
    assert_eq!(asked.map(|stream| streams.take(stream).status()), [200, 403]);
    world.end();
}

#[test]
fn servers_get_the_client_and_its_scheme() {
    let mut rules = behind_proxies(ProxyField::XForwarded);
    rules.sites[0].https_redirect = Some(HttpsRedirect { status: Status::MOVED_PERMANENTLY, port: 443 });
    let mut world = world_from("10.0.0.1", rules);
    let head = "GET /one/x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: evil, 198.51.100.7\r\n";
    let (client, server) = ask(&mut world, format!("{head}X-Forwarded-Proto: https\r\n\r\n"));
    let request = String::from_utf8_lossy(&server.take_bytes()).into_owned();
    for line in ["X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https", "for=198.51.100.7"] {
        assert!(request.contains(line), "{line} in {request}");
    }
    assert!(!request.contains("evil"), "{request}");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    world.run();
    assert_eq!(client.take_one().status, 200);
    client.send(format!("{head}X-Forwarded-Proto: http\r\n\r\n"));
    world.run();
    assert_eq!(client.take_one().status, 301);
    world.end();
}

#[test]
fn a_script_gets_the_usual_port_of_the_scheme() {
    let mut world = world_from("10.0.0.1", behind_proxies(ProxyField::XForwarded));
    world.machine.files.add("a.php", "source");
    let head = "GET /a.php HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.7:4711\r\n";
    let (_, server) = ask(&mut world, format!("{head}X-Forwarded-Proto: https\r\n\r\n"));
    let records = String::from_utf8_lossy(&server.take_bytes()).into_owned();
    for variable in
        ["REMOTE_ADDR198.51.100.7", "REMOTE_PORT4711", "SERVER_PORT443", "REQUEST_SCHEMEhttps", "HTTPSon"]
    {
        assert!(records.contains(variable), "{variable} in {records}");
    }
    world.end();
}
