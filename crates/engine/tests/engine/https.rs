//! Rules of a site about HTTPS: redirects to it, `Strict-Transport-Security`, and the protocol that a handshake has agreed on.

use flash_engine::{HttpsRedirect, Rules, SiteRules};
use flash_http::response::Status;

use crate::machine::h2::{H2Client, Heard};
use crate::machine::world::HEAD_MS;
use crate::machine::{Client, Content, MIB, World, rules};

const CHALLENGE: &str = ".well-known/acme-challenge/token";

/// A strict site that redirects with 308 to this port, one that does neither, and a file of both and one of ACME.
fn world(port: u16) -> World {
    let redirect = HttpsRedirect { status: Status::PERMANENT_REDIRECT, port };
    let site = |host: &str| SiteRules { hosts: vec![host.to_owned()], ..rules().sites.remove(0) };
    let strict = SiteRules {
        hsts: Some("max-age=9".into()),
        https_redirect: Some(redirect),
        ..site("strict.example")
    };
    let mut world = World::with(Rules { sites: vec![strict, site("lax.example")], ..rules() });
    for name in ["a", CHALLENGE] {
        world.machine.files.add(name, "content");
    }
    world.machine.files.add("large", Content::Pattern(1, 2 * MIB));
    world
}

fn ask(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn answer(world: &mut World, client: &Client, asked: &str) -> (u16, Option<String>, Option<String>) {
    client.send(asked);
    world.run();
    let page = client.take_one();
    let field = |name| page.field(name).map(str::to_owned);
    (page.status, field("Location"), field("Strict-Transport-Security"))
}

#[test]
fn plain_requests_are_redirected_however_often_they_come() {
    for (port, shown) in [(443, ""), (8443, ":8443")] {
        let mut world = world(port);
        let [plain, encrypted] = [world.connect(), world.connect_encrypted()];
        world.run();
        let location = Some(format!("https://strict.example{shown}/a?b"));
        let strict = Some("max-age=9".to_owned());
        // The same bytes on both kinds of connections, in turn: no answer that is known by its bytes is given to the other.
        for _ in 0..4 {
            let asked = ask("strict.example", "/a?b");
            assert_eq!(answer(&mut world, &encrypted, &asked), (200, None, strict.clone()));
            assert_eq!(answer(&mut world, &plain, &asked), (308, location.clone(), None));
            let asked = ask("lax.example", "/a?b");
            assert_eq!(answer(&mut world, &encrypted, &asked), (200, None, None));
            assert_eq!(answer(&mut world, &plain, &asked), (200, None, None));
            let asked = ask("strict.example", &format!("/{CHALLENGE}"));
            assert_eq!(answer(&mut world, &plain, &asked), (200, None, None));
            assert_eq!(answer(&mut world, &encrypted, &asked), (200, None, strict.clone()));
        }
        world.end();
    }
}

#[test]
fn every_kind_of_answer_over_https_is_strict() {
    let mut world = world(443);
    let client = world.connect_encrypted();
    world.run();
    for (path, fields, status) in [
        ("/large", "", 200),
        ("/a", "Range: bytes=0-1\r\n", 206),
        ("/a", "Range: bytes=0-1,3-4\r\n", 206),
        ("/a", "Range: bytes=99-\r\n", 416),
        ("/a", "If-None-Match: *\r\n", 304),
        ("/none", "", 404),
        ("/", "", 200),
        ("/a", "Content-Length: 2\r\n", 200),
    ] {
        let body = if fields.starts_with("Content-Length") { "xx" } else { "" };
        let asked = format!("GET {path} HTTP/1.1\r\nHost: strict.example\r\n{fields}\r\n{body}");
        let (found, _, strict) = answer(&mut world, &client, &asked);
        assert_eq!((found, strict.as_deref()), (status, Some("max-age=9")), "{path} {fields}");
    }
    // No site: nothing is known of its host.
    assert_eq!(answer(&mut world, &client, &ask("other.example", "/a")), (421, None, None));
    client.send(ask("strict.example", "/a").replace("HTTP/1.1", "HTTP/9"));
    world.run();
    assert_eq!(client.take_one().field("Strict-Transport-Security"), None);
    world.end();
}

#[test]
fn streams_of_http2_are_redirected_and_strict_as_well() {
    let mut world = world(443);
    let fields = |host| [(":authority", host)];
    for is_encrypted in [false, true] {
        let mut client =
            H2Client::new(if is_encrypted { world.connect_encrypted_http2() } else { world.connect() });
        for (path, host) in [("/a", "strict.example"), ("/a", "strict.example"), ("/large", "strict.example")]
        {
            let pseudo = [(":method", "GET"), (":scheme", "https"), (":path", path)];
            let all = [&pseudo[..], &fields(host)].concat();
            let (stream, frame) = client.codec.open(&all, true);
            client.client.send(frame);
            world.run();
            let mut answer = client.take(stream);
            while answer.reset.is_none() && !answer.is_whole && is_encrypted {
                world.run();
                let more = client.take(stream);
                answer.body.extend(more.body);
                answer.is_whole = more.is_whole;
            }
            let strict = answer.head.matches("strict-transport-security: max-age=9\r\n").count();
            let location = answer.head.contains(&format!("location: https://strict.example{path}\r\n"));
            let expected = if is_encrypted { (200, 1, false) } else { (308, 0, true) };
            assert_eq!((answer.status(), strict, location), expected, "{}", answer.head);
        }
        client.client.end();
        world.run();
    }
    world.end();
}

#[test]
fn after_an_agreement_on_http2_nothing_else_is_spoken() {
    let mut world = World::new();
    let client = world.connect_encrypted_http2();
    client.send(ask("lax.example", "/a"));
    world.run();
    let mut heard = H2Client { client, codec: crate::machine::h2::H2Codec::new(), heard: Default::default() };
    heard.hear();
    assert_eq!(heard.heard.pop_front(), Some(Heard::GoAway(0, 1)), "RFC 9113, section 3.4");
    let silent = world.connect_encrypted_http2();
    world.run();
    world.advance(HEAD_MS + 1_000);
    assert!(silent.is_closed(), "a client that does not begin");
    assert_eq!(world.engine.counters().http2.connections, 2);
    heard.client.end();
    world.run();
    world.end();
}
