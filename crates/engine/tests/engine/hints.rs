//! The hint for operators: how to go on where a directory has no page. Only a client on this machine gets it.

use flash_engine::{PathRule, PathRules, ProxyRules, Rules};

use super::h2::{connect, exchange};
use crate::machine::World;
use crate::machine::response::Response;
use crate::machine::world::{FRESHNESS_MS, rules};

const HINT: &str = "put index.html there, or list the directory with browse = true or --browse";

fn without_browse() -> Rules {
    let mut rules = rules();
    rules.sites[0].browse = false;
    rules
}

fn world_from(address: &str, rules: Rules) -> World {
    let mut world = World::with(rules);
    world.machine.files.add_directory(".");
    world.machine.files.add_directory("d");
    world.only_address = Some(address.parse().expect("an address"));
    world
}

fn ask(world: &mut World, host: &str, target: &str) -> Response {
    world.ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).1
}

/// Whether the answer is the hint. Anything else must be the bare page, which caches can keep.
fn is_hint(answer: &Response) -> bool {
    assert_eq!((answer.status, answer.field("Vary")), (404, Some("Accept")));
    let is_hint = answer.text().contains(HINT);
    assert_eq!(is_hint, answer.field("Cache-Control") == Some("no-store"));
    assert_ne!(is_hint, answer.text().contains("There is nothing under this address."));
    is_hint
}

#[test]
fn a_client_on_this_machine_hears_how_to_show_a_directory() {
    for (address, host, hinted) in [
        ("127.0.0.1", "localhost:8080", true),
        ("127.0.0.1", "127.0.0.1", true),
        ("::1", "[::1]:80", true),
        ("::ffff:127.0.0.1", "localhost", true),
        // A proxy on this machine that is not named as one.
        ("127.0.0.1", "www.example.org", false),
        ("192.0.2.1", "localhost", false),
        ("10.0.0.1", "10.0.0.2", false),
    ] {
        let mut world = world_from(address, without_browse());
        for _ in 0..3 {
            for target in ["/", "/d/"] {
                assert_eq!(is_hint(&ask(&mut world, host, target)), hinted, "{address} {host} {target}");
            }
            for target in ["/gone", "/gone/", "/.d/"] {
                assert!(!is_hint(&ask(&mut world, host, target)), "{address} {host} {target}");
            }
            world.advance(FRESHNESS_MS + 1);
        }
        world.end();
    }
}

#[test]
fn the_same_bytes_of_another_client_get_the_bare_page() {
    let mut world = world_from("127.0.0.1", without_browse());
    for _ in 0..3 {
        for (address, hinted) in [("127.0.0.1", true), ("192.0.2.1", false), ("127.0.0.1", true)] {
            world.only_address = Some(address.parse().expect("an address"));
            assert_eq!(is_hint(&ask(&mut world, "localhost", "/d/")), hinted, "{address}");
        }
    }
    world.end();
}

#[test]
fn a_client_behind_a_proxy_gets_the_bare_page() {
    let network = || vec!["127.0.0.0/8".parse().expect("a network")];
    let mut trusting = without_browse();
    trusting.proxies = ProxyRules { networks: network(), ..ProxyRules::default() };
    let mut world = world_from("127.0.0.1", trusting);
    for field in
        ["", "X-Forwarded-For: 192.0.2.1\r\n", "X-Forwarded-For: 127.0.0.1\r\n", "X-Forwarded-For: ::1\r\n"]
    {
        let (_, answer) = world.ask(format!("GET /d/ HTTP/1.1\r\nHost: localhost\r\n{field}\r\n"));
        assert!(!is_hint(&answer), "{field}");
    }
    world.end();
    let mut sending_header = without_browse();
    sending_header.proxies = ProxyRules { sending_header: network(), ..ProxyRules::default() };
    let mut world = world_from("127.0.0.1", sending_header);
    for header in
        ["PROXY TCP4 192.0.2.1 192.0.2.2 1 80", "PROXY TCP4 127.0.0.1 127.0.0.1 1 80", "PROXY UNKNOWN"]
    {
        let (_, answer) = world.ask(format!("{header}\r\nGET /d/ HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(!is_hint(&answer), "{header}");
    }
    world.end();
}

#[test]
fn the_hint_fits_the_site_and_the_request() {
    let mut other = without_browse();
    other.sites[0].index = vec!["home.htm".into(), "index.html".into()];
    let mut world = world_from("127.0.0.1", other);
    assert!(ask(&mut world, "localhost", "/d/").text().contains("put home.htm there, or list"));
    world.end();
    let mut none = without_browse();
    none.sites[0].index = Vec::new();
    let mut world = world_from("127.0.0.1", none);
    assert!(ask(&mut world, "localhost", "/d/").text().contains("To show a page, list the directory"));
    world.end();

    let mut world = world_from("127.0.0.1", without_browse());
    let (_, json) = world.ask("GET /d/ HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    assert!(json.text().starts_with("{\"status\":404,") && is_hint(&json));
    world.machine.files.add("d/index.html", "index");
    world.advance(FRESHNESS_MS + 1);
    assert_eq!(ask(&mut world, "localhost", "/d/").text(), "index");
    world.end();

    let mut falling_back = without_browse();
    let fallback = Some(b"/d/app.html".to_vec());
    falling_back.sites[0].paths = PathRules::new(vec![PathRule { fallback, ..PathRule::new("*") }]).into();
    let mut world = world_from("127.0.0.1", falling_back);
    world.machine.files.add("d/app.html", "app");
    assert_eq!(ask(&mut world, "localhost", "/d/").text(), "app");
    world.end();
}

#[test]
fn a_directory_that_would_have_to_be_waited_for_has_no_hint() {
    let mut world = world_from("127.0.0.1", without_browse());
    assert!(is_hint(&ask(&mut world, "localhost", "/d/")));
    world.machine.files.names_thrash = true;
    assert!(!is_hint(&ask(&mut world, "localhost", "/d/")));
    world.end();
}

#[test]
fn the_hint_over_http2() {
    for (address, hinted) in [("127.0.0.1", true), ("192.0.2.1", false)] {
        let mut world = world_from(address, without_browse());
        let mut client = connect(&mut world);
        for _ in 0..3 {
            let fields =
                [(":method", "GET"), (":scheme", "http"), (":path", "/d/"), (":authority", "localhost")];
            let (stream, frame) = client.codec.open(&fields, true);
            client.client.send(frame);
            exchange(&mut world, &mut client);
            let answer = client.take(stream);
            assert_eq!(String::from_utf8_lossy(&answer.body).contains(HINT), hinted, "{address}");
            assert_eq!(answer.head.contains("\r\ncache-control: no-store\r\n"), hinted, "{address}");
        }
        world.end();
    }
}
