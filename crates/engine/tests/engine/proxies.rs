//! Clients behind proxies: their addresses and schemes, if the proxy is trusted.

use flash_engine::{
    Access, Concurrency, HttpsRedirect, LogFormat, LogRules, PathRule, PathRules, ProxyRules, Rate, Rates,
    Rules, WhyRefused,
};
use flash_http::proxies::ProxyField;
use flash_http::response::Status;

use super::h2::{connect, exchange};
use super::relays::{ask, proxying, status};
use crate::machine::World;
use crate::machine::world::HEAD_MS;

/// A site that trusts the proxies in 10.0.0.0/8, and admits no client from 192.0.2.0/24.
fn behind_proxies(field: ProxyField) -> Rules {
    let mut rules = proxying();
    rules.log = LogRules::of(LogFormat::Json);
    let network = |text: &str| text.parse().expect("a network");
    let sending_header = vec![network("10.9.0.0/16")];
    rules.proxies = ProxyRules { networks: vec![network("10.0.0.0/8")], field, sending_header };
    let access = Access { allow: vec![], deny: vec![network("192.0.2.0/24")] };
    rules.sites[0].paths = PathRules::new(vec![PathRule { access, ..PathRule::new("*") }]).into();
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
fn each_client_that_a_trusted_proxy_names_has_its_own_share_of_a_route() {
    let mut world = world_from("10.0.0.1", behind_proxies(ProxyField::XForwarded));
    let mut ask = |address: &str| {
        let client = world.connect();
        client.send(format!("GET /one/a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\n\r\n"));
        world.run();
        let counters = world.engine.counters().links;
        (counters.links, counters.waiting, client)
    };
    let first: Vec<_> = (0..4).map(|_| ask("198.51.100.1")).collect();
    assert_eq!((first[2].0, first[2].1), (2, 1), "half of four connections, and of two places");
    assert_eq!(status(&first[3].2), 503);
    assert_eq!(ask("198.51.100.2").0, 3, "another client of the same proxy");
    world.end();
}

#[test]
fn each_client_that_a_trusted_proxy_names_has_its_own_limits() {
    for (field, name) in
        [(ProxyField::XForwarded, "X-Forwarded-For: "), (ProxyField::Forwarded, "Forwarded: for=")]
    {
        let mut rules = behind_proxies(field);
        let rate = Rate { interval_us: 60_000_000, burst: 2 };
        let limited =
            PathRule { rates: Rates { of_client: Some(rate), of_all: None }, ..PathRule::new("/a") };
        let concurrency = Concurrency { of_client: Some(1), of_all: None };
        let one_at_a_time = PathRule { concurrency, ..PathRule::new("/one/*") };
        rules.sites[0].paths = PathRules::new(vec![limited, one_at_a_time]).into();
        let mut world = world_from("10.0.0.1", rules);
        let client = world.connect();
        for (address, status) in [
            ("192.0.2.1", 200),
            ("192.0.2.1", 200),
            ("192.0.2.1", 429),
            ("192.0.2.2", 200),
            ("192.0.2.1", 429),
            ("192.0.2.2", 200),
        ] {
            client.send(format!("GET /a HTTP/1.1\r\nHost: a\r\n{name}{address}\r\n\r\n"));
            world.run();
            assert_eq!(client.take_one().status, status, "{address}");
        }
        // The server has not answered the first one yet.
        let clients: Vec<_> =
            ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|address| (address, world.connect())).into();
        for (address, client) in &clients {
            client.send(format!("GET /one/x HTTP/1.1\r\nHost: a\r\n{name}{address}\r\n\r\n"));
            world.run();
        }
        assert_eq!(clients[1].1.take_one().status, 429);
        assert!(
            clients[0].1.received_len() == 0 && clients[2].1.received_len() == 0,
            "they wait for the server"
        );
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
fn input_that_is_no_request_is_that_of_the_proxy() {
    let mut world = world_from("10.0.0.1", behind_proxies(ProxyField::XForwarded));
    let client = world.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.7\r\n\r\nnonsense\r\n\r\n");
    world.run();
    let peers = ["\"peer\":\"198.51.100.7\"", "\"peer\":\"10.0.0.1\""];
    assert!(
        world.machine.log.iter().zip(peers).all(|(line, peer)| line.contains(peer)),
        "{:?}",
        world.machine.log
    );
    assert_eq!(world.machine.log.len(), 2);
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

#[test]
fn applications_get_the_host_that_a_trusted_proxy_names() {
    let (x, standard) = (ProxyField::XForwarded, ProxyField::Forwarded);
    let named = "X-Forwarded-Host: evil.example, shop.example:8443\r\n";
    for (from, field, fields, authority, name, port) in [
        ("10.0.0.1", x, named, "shop.example:8443", "shop.example", 8443),
        (
            "10.0.0.1",
            x,
            "X-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 8080\r\n",
            "shop.example",
            "shop.example",
            8080,
        ),
        ("10.0.0.1", x, "X-Forwarded-Host: shop.example\r\n", "shop.example", "shop.example", 80),
        ("10.0.0.1", x, "X-Forwarded-Host: a\"b\r\n", "inner", "inner", 80),
        ("10.0.0.1", x, "Forwarded: for=192.0.2.7;host=shop.example\r\n", "inner", "inner", 80),
        (
            "10.0.0.1",
            standard,
            "Forwarded: for=198.51.100.7;host=\"shop.example:8443\", for=10.0.0.2;host=b\r\n",
            "shop.example:8443",
            "shop.example",
            8443,
        ),
        ("10.0.0.1", standard, "Forwarded: for=198.51.100.7, for=10.0.0.2;host=b\r\n", "inner", "inner", 80),
        ("198.51.100.9", x, named, "inner", "inner", 80),
    ] {
        let mut world = world_from(from, behind_proxies(field));
        world.machine.files.add("a.php", "source");
        let head = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: inner\r\n{fields}\r\n");
        let (_client, server) = ask(&mut world, head("/one/x"));
        let request = String::from_utf8_lossy(&server.take_bytes()).into_owned();
        assert!(request.contains("\r\nHost: inner\r\n"), "{request}");
        assert!(request.contains(&format!("\r\nX-Forwarded-Host: {authority}\r\n")), "{fields} {request}");
        let (_client, server) = ask(&mut world, head("/a.php"));
        let records = String::from_utf8_lossy(&server.take_bytes()).into_owned();
        for variable in [
            format!("HTTP_X_FORWARDED_HOST{authority}"),
            format!("SERVER_NAME{name}"),
            format!("SERVER_PORT{port}"),
            "HTTP_HOSTinner".to_owned(),
        ] {
            assert!(records.contains(&variable), "{fields} {variable} in {records}");
        }
    }
}

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

/// A header of version 2 for a client of IPv4 at 198.51.100.7, with these values behind the addresses.
fn binary_header(values: &[u8]) -> Vec<u8> {
    let rest = [&[198, 51, 100, 7, 192, 0, 2, 2, 0x12, 0x67, 0x01, 0xbb], values].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", &[rest.len() as u8][..], &rest].concat()
}

#[test]
fn a_proxy_introduces_the_client_of_a_connection() {
    let line = |client: &str| format!("PROXY TCP4 {client} 192.0.2.2 4711 80\r\n").into_bytes();
    for (header, status, logged) in [
        (line("198.51.100.7"), 200, "198.51.100.7"),
        (line("192.0.2.1"), 403, "192.0.2.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), 200, "10.9.0.1"),
        (binary_header(&[]), 200, "198.51.100.7"),
    ] {
        for piece_bytes in [1, 7, 1_000] {
            let mut world = world_from("10.9.0.1", behind_proxies(ProxyField::XForwarded));
            let client = world.connect();
            // A client that is no proxy can write what it likes.
            let get = GET.replace("\r\n\r\n", "\r\nX-Forwarded-For: 203.0.113.1\r\n\r\n");
            let get = if logged == "10.9.0.1" { GET } else { &get };
            let bytes = [&header, get.as_bytes(), GET.as_bytes()].concat();
            client.send_pieces(bytes.chunks(piece_bytes).map(<[u8]>::to_vec));
            world.run();
            let statuses: Vec<u16> = client.take().iter().map(|answer| answer.status).collect();
            assert_eq!(statuses, [status; 2], "{}", header.escape_ascii());
            let peer = format!("\"peer\":\"{logged}\"");
            assert!(world.machine.log.iter().all(|line| line.contains(&peer)), "{:?}", world.machine.log);
            world.end();
        }
    }
}

#[test]
fn an_introduced_client_can_speak_tls() {
    let mut world = world_from("10.9.0.1", behind_proxies(ProxyField::XForwarded));
    let client = world.connect_encrypted_introduced(&binary_header(&[]));
    client.send(GET);
    world.run();
    assert_eq!(client.take_one().status, 200);
    assert!(world.machine.log[0].contains("\"peer\":\"198.51.100.7\""), "{:?}", world.machine.log);
    world.end();
}

#[test]
fn a_client_that_is_introduced_as_encrypted_uses_https() {
    let mut rules = behind_proxies(ProxyField::XForwarded);
    rules.sites[0].https_redirect = Some(HttpsRedirect { status: Status::MOVED_PERMANENTLY, port: 443 });
    let mut world = world_from("10.9.0.1", rules);
    for (values, status) in [(&[0x20, 0, 5, 1, 0, 0, 0, 0][..], 200), (&[], 301)] {
        let client = world.connect();
        client.send([&binary_header(values), GET.as_bytes()].concat());
        world.run();
        assert_eq!(client.take_one().status, status);
    }
    world.end();
}

#[test]
fn a_proxy_that_introduces_nobody_is_refused() {
    let mut world = world_from("10.9.0.1", behind_proxies(ProxyField::XForwarded));
    for bytes in [GET, "PROXY TCP4 nobody\r\n"] {
        let client = world.connect();
        client.send(bytes);
        world.run();
        assert!(client.is_ended() && client.take_bytes().is_empty());
    }
    // A health check says nothing.
    let check = world.connect();
    check.end();
    world.run();
    assert!(check.is_ended());
    let silent = world.connect();
    world.advance(HEAD_MS + 1_000);
    assert!(silent.is_ended());
    assert_eq!(world.engine.counters().refused[WhyRefused::ProxyHeader as usize], 3);
    assert_eq!(world.machine.reports.len(), 1, "once in a while: {:?}", world.machine.reports);
    assert!(world.machine.reports[0].contains("connection from 10.9.0.1"), "{:?}", world.machine.reports);
    world.end();
}

#[test]
fn the_connections_of_an_introduced_client_are_its_own() {
    let mut rules = behind_proxies(ProxyField::XForwarded);
    rules.admission.client_connections_max = 2;
    let mut world = world_from("10.9.0.1", rules);
    let introduced = |world: &mut World, number: u8| {
        let client = world.connect();
        client.send(format!("PROXY TCP4 198.51.100.{number} 192.0.2.2 4711 80\r\nGET /a HTTP/1.1\r\n"));
        world.run();
        client
    };
    let all: Vec<_> = (1..=5).map(|number| introduced(&mut world, number)).collect();
    let mine: Vec<_> = (0..3).map(|_| introduced(&mut world, 9)).collect();
    assert!(all.iter().chain(&mine[..2]).all(|client| !client.is_ended()));
    assert!(mine[2].is_ended(), "one more than its share");
    for client in all.iter().chain(&mine[..2]) {
        client.send("Host: a\r\nConnection: close\r\n\r\n");
        world.run();
        assert_eq!(client.take_one().status, 200);
        client.end();
    }
    world.run();
    assert!(!introduced(&mut world, 9).is_ended());
    world.end();
}
