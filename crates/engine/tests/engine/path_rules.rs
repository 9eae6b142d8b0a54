//! Rules of a site for paths: fields of answers in every form of HTTP, redirects, rewrites, fallbacks, error pages and access.

use std::ops::RangeInclusive;

use flash_engine::{
    Access, ErrorPage, FieldChanges, HttpsRedirect, PathPattern, PathRule, PathRules, Rate, Rates, Redirect,
    Rules, Target,
};
use flash_http::response::Status;

use super::h2::{connect, exchange};
use super::relays::{ask, proxying};
use crate::machine::world::rules;
use crate::machine::{Content, MIB, World};

fn fields(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn changing(pattern: &str, fields: FieldChanges) -> PathRule {
    PathRule { fields, ..PathRule::new(pattern) }
}

fn redirecting(pattern: &str, target: &str) -> PathRule {
    let redirect = Some(Redirect { status: Status::FOUND, target: Target::new(target) });
    PathRule { redirect, ..PathRule::new(pattern) }
}

/// All answers are secure, files beneath `/assets/` are immutable and have no tag, and others are checked each time.
fn with_rules(rules: Rules) -> Rules {
    let mut rules = rules;
    rules.sites[0].paths = PathRules::new(vec![
        changing(
            "*",
            FieldChanges {
                set: fields(&[("X-Frame-Options", "DENY"), ("Cache-Control", "no-cache")]),
                remove: vec!["server".to_owned()],
                with_errors: true,
                ..FieldChanges::default()
            },
        ),
        changing(
            "/assets/*",
            FieldChanges {
                set: fields(&[("cache-control", "immutable")]),
                add: fields(&[("Link", "</a>"), ("Link", "</b>")]),
                remove: vec!["ETag".to_owned()],
                ..FieldChanges::default()
            },
        ),
        redirecting("/old/*", "/assets/$1"),
    ])
    .into();
    rules
}

fn world() -> World {
    let mut world = World::with(with_rules(rules()));
    world.machine.files.add("assets/a", "content");
    world.machine.files.add("b", "content");
    world.machine.files.add("assets/large", Content::Pattern(1, 2 * MIB));
    world.machine.files.add_directory("d");
    world
}

#[test]
fn every_kind_of_answer_has_the_fields_of_its_rules() {
    let mut world = world();
    let client = world.connect();
    world.run();
    for (path, more, status) in [
        ("/assets/a", "", 200),
        ("/assets/a", "", 200),
        ("/assets/a", "", 200),
        ("/assets/large", "", 200),
        ("/assets/a", "Range: bytes=0-1\r\n", 206),
        ("/assets/a", "Range: bytes=0-1,3-4\r\n", 206),
        ("/assets/a", "If-None-Match: *\r\n", 304),
        ("/assets/a", "If-None-Match: *\r\n", 304),
        ("/assets/a", "If-None-Match: *\r\n", 304),
        ("/assets/%61", "", 200),
        ("/b", "", 200),
        ("/b", "", 200),
        ("/b", "", 200),
        ("/d/", "", 200),
        ("/old/a", "", 302),
        ("/assets/none", "", 404),
        ("/assets/a", "Range: bytes=99-\r\n", 416),
    ] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
        world.run();
        let answer = client.take_one();
        let about = format!("{path} {more} {answer:?}");
        assert_eq!(answer.status, status, "{about}");
        assert_eq!(answer.field("X-Frame-Options"), Some("DENY"), "{about}");
        assert_eq!(answer.field("Server"), None, "{about}");
        let is_asset = path.starts_with("/assets/") && status < 400;
        let control = if is_asset { "immutable" } else { "no-cache" };
        assert_eq!(answer.field("Cache-Control"), Some(control), "{about}");
        let text = format!("{answer:?}");
        assert_eq!(text.matches("</a>").count() + text.matches("</b>").count(), if is_asset { 2 } else { 0 });
        assert_eq!(answer.field("ETag").is_some(), path == "/b", "{about}");
        assert!(answer.field("Date").is_some(), "{about}");
    }
    assert!(world.engine.counters().known_hits >= 3, "heads are remembered with their changes");
    world.end();
}

#[test]
fn a_field_that_a_rule_sets_replaces_that_of_a_listing() {
    let mut rules = rules();
    let set = fields(&[("cache-control", "private")]);
    rules.sites[0].paths =
        PathRules::new(vec![changing("/d/*", FieldChanges { set, ..FieldChanges::default() })]).into();
    let mut world = World::with(rules);
    world.machine.files.add_directory("d");
    let client = world.connect();
    for asked in ["GET /d/", "GET /d/", "GET /d/", "HEAD /d/"] {
        client.send(format!("{asked} HTTP/1.1\r\nHost: a\r\n\r\n"));
        world.run();
        let answer = if asked.starts_with("HEAD") { client.take_head() } else { client.take_one() };
        let head = answer.head.to_ascii_lowercase();
        assert_eq!((answer.status, head.matches("cache-control: ").count()), (200, 1), "{head}");
        assert!(head.contains("\r\ncache-control: private\r\n"), "{head}");
    }
    let mut streams = connect(&mut world);
    let stream = streams.get("/d/");
    exchange(&mut world, &mut streams);
    let head = streams.take(stream).head;
    assert_eq!(head.matches("\r\ncache-control: ").count(), 1, "{head}");
    world.end();
}

#[test]
fn streams_of_http2_have_the_same_fields() {
    let mut world = world();
    let mut client = connect(&mut world);
    for _ in 0..3 {
        for (path, status, control) in [
            ("/assets/a", 200, "immutable"),
            ("/b", 200, "no-cache"),
            ("/assets/none", 404, "no-cache"),
            ("/old/a", 302, "no-cache"),
        ] {
            let stream = client.get(path);
            exchange(&mut world, &mut client);
            let answer = client.take(stream);
            let count = |line: &str| answer.head.matches(line).count();
            assert_eq!(answer.status(), status, "{}", answer.head);
            assert_eq!(count("\r\nx-frame-options: DENY\r\n"), 1, "{}", answer.head);
            assert_eq!(count(&format!("\r\ncache-control: {control}\r\n")), 1, "{}", answer.head);
            assert_eq!((count("\r\nserver: "), count("\r\ncache-control: ")), (0, 1), "{}", answer.head);
            assert_eq!(count("\r\nlink: "), if control == "immutable" { 2 } else { 0 }, "{}", answer.head);
            assert_eq!(count("\r\netag: "), usize::from(path == "/b"), "{}", answer.head);
            assert_eq!(count("\r\ncontent-length: "), 1, "{}", answer.head);
        }
    }
    assert!(world.engine.counters().known_hits > 0);
    world.end();
}

#[test]
fn answers_of_servers_change_as_well() {
    let mut world = World::with(with_rules(proxying()));
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
    server.take_bytes();
    server.send(
        "HTTP/1.1 200 OK\r\nserver: app\r\nCache-control: public\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok",
    );
    world.run();
    let answer = client.take_one();
    let fields = ["Cache-Control", "X-Frame-Options", "X-Own", "Server"].map(|name| answer.field(name));
    assert_eq!(fields, [Some("no-cache"), Some("DENY"), Some("1"), None]);
    assert_eq!(answer.text(), "ok");
    world.end();
}

#[test]
fn a_redirect_keeps_the_query_and_answers_any_method() {
    let mut world = World::with(with_rules(proxying()));
    for (asked, status, location) in [
        ("GET /old/a?b=c", 302, Some("/assets/a?b=c")),
        ("HEAD /old/a", 302, Some("/assets/a")),
        ("POST /old/a", 302, Some("/assets/a")),
        ("GET /x/../old//a%0d%0aX:%20y", 302, Some("/assets/a%0D%0AX%3A%20y")),
        ("GET /old", 404, None),
    ] {
        let client = world.connect();
        client.send(format!("{asked} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
        world.run();
        let answer = if asked.starts_with("HEAD") { client.take_head() } else { client.take_one() };
        assert_eq!((answer.status, answer.field("Location")), (status, location), "{asked}");
        client.end();
        world.run();
    }
    world.end();
}

#[test]
fn a_client_that_is_not_admitted_gets_no_answer_of_others() {
    let mut rules = proxying();
    let networks = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a network")).collect();
    let access =
        Access { allow: networks(&["10.0.0.0/8", "2001:db8::/32"]), deny: networks(&["10.1.0.0/16"]) };
    let guard = PathRule { access, ..PathRule::new("/private/*") };
    let route = PathRule { paths: PathPattern::new("/one/*"), ..guard.clone() };
    rules.sites[0].paths = PathRules::new(vec![guard, route, redirecting("/private/old", "/b")]).into();
    let mut world = World::with(rules);
    world.machine.files.add("private/a", "content");
    world.machine.files.add("b", "content");
    for _ in 0..3 {
        for (address, is_admitted) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("::ffff:10.1.0.1", false),
            ("2001:db8::1", true),
            ("192.0.2.1", false),
        ] {
            world.only_address = Some(address.parse().expect("an address"));
            let client = world.connect();
            for (asked, status) in [
                ("GET /private/a", 200),
                ("GET /private/a", 200),
                ("GET /x/%2e%2e//private/%61", 200),
                ("GET /private/old", 302),
                ("GET /private/none", 404),
                ("POST /private/a", 405),
            ] {
                client.send(format!("{asked} HTTP/1.1\r\nHost: a\r\n\r\n"));
                world.run();
                let status = if is_admitted { status } else { 403 };
                assert_eq!(client.take_one().status, status, "{address} {asked}");
            }
            client.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
            world.run();
            assert_eq!(client.take_one().status, 200, "{address}");
            if !is_admitted {
                client.send("GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
                world.run();
                assert_eq!(client.take_one().status, 403, "{address}");
            }
            let mut streams = connect(&mut world);
            let stream = streams.get("/private/a");
            exchange(&mut world, &mut streams);
            assert_eq!(streams.take(stream).status(), if is_admitted { 200 } else { 403 }, "{address}");
        }
    }
    world.end();
}

/// Two requests at once of each client, and one more each second, beneath `/limited/`; four of all, and ten more each second, beneath
/// `/all/`.
fn with_rates() -> Rules {
    let mut rules = proxying();
    let rate = |interval_us, burst| Some(Rate { interval_us, burst });
    let of_client = Rates { of_client: rate(1_000_000, 2), of_all: None };
    let of_all = Rates { of_client: None, of_all: rate(100_000, 4) };
    rules.sites[0].paths = PathRules::new(vec![
        PathRule { rates: of_client, ..PathRule::new("/limited/*") },
        PathRule { rates: of_client, ..PathRule::new("/one/*") },
        PathRule { rewrite: Some(Target::new("/limited/$1")), ..PathRule::new("/new/*") },
        PathRule { rates: of_all, ..PathRule::new("/all/*") },
    ])
    .into();
    rules
}

#[test]
fn a_client_that_sends_too_many_requests_is_told_to_wait() {
    let mut world = World::with(with_rates());
    world.machine.files.add("limited/a", "content");
    world.machine.files.add("b", "content");
    for address in ["192.0.2.1", "2001:db8::1"] {
        world.only_address = Some(address.parse().expect("an address"));
        let client = world.connect();
        for (path, status) in [
            ("/limited/a", 200),
            ("/b", 200),
            ("/new/a", 200),
            ("/limited/a", 429),
            ("/new/a", 429),
            ("/limited/none", 429),
            ("/b", 200),
        ] {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            world.run();
            let answer = client.take_one();
            let retry_after = (status == 429).then_some("1");
            assert_eq!(
                (answer.status, answer.field("Retry-After")),
                (status, retry_after),
                "{address} {path}"
            );
        }
        // Another connection, another form of HTTP, and another address of the network are the same client.
        if address.contains(':') {
            world.only_address = Some("2001:db8::2".parse().expect("an address"));
        }
        let mut streams = connect(&mut world);
        let stream = streams.get("/limited/a");
        exchange(&mut world, &mut streams);
        assert_eq!(streams.take(stream).status(), 429, "{address}");
    }
    assert_eq!(world.engine.counters().limited, 8);
    world.advance(1_000);
    let statuses = [0, 1].map(|_| world.get("/limited/a").status);
    assert_eq!(statuses, [200, 429], "one more each second");
    world.end();
}

#[test]
fn a_request_beyond_the_rate_reaches_no_server() {
    let mut world = World::with(with_rates());
    world.only_address = Some("192.0.2.1".parse().expect("an address"));
    for _ in 0..2 {
        let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        world.run();
        assert_eq!(client.take_one().status, 200);
        server.end();
        client.end();
        world.run();
    }
    let client = world.connect();
    client.send("POST /one/x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    world.run();
    assert_eq!((client.take_one().status, world.machine.asked.len()), (429, 0));
    world.end();
}

#[test]
fn all_clients_together_have_a_rate() {
    let mut world = World::with(with_rates());
    world.machine.files.add("all/a", "content");
    for (number, status) in [200, 200, 200, 200, 503, 503].into_iter().enumerate() {
        world.only_address = Some([192, 0, 2, number as u8].into());
        let answer = world.get("/all/a");
        assert_eq!((answer.status, answer.field("Retry-After")), (status, (status == 503).then_some("1")));
    }
    world.advance(200);
    assert_eq!([0, 1, 2].map(|_| world.get("/all/a").status), [200, 200, 503]);
    world.end();
}

fn falling_back(pattern: &str, file: &str) -> PathRule {
    PathRule { fallback: Some(file.into()), ..PathRule::new(pattern) }
}

fn rewriting(pattern: &str, target: &str) -> PathRule {
    PathRule { rewrite: Some(Target::new(target)), ..PathRule::new(pattern) }
}

/// An app of one page in `/`, whose API has a server, and another beneath `/admin/`.
fn single_pages() -> Rules {
    let mut rules = proxying();
    let uncached = FieldChanges { set: fields(&[("Cache-Control", "no-cache")]), ..FieldChanges::default() };
    rules.sites[0].paths = PathRules::new(vec![
        falling_back("/admin/*", "/admin/index.html"),
        falling_back("*", "/index.html"),
        rewriting("/user/*", "/profiles/$1.html"),
        rewriting("/api/*", "/one/v2/$1"),
        rewriting("/script/*", "/a.php"),
        rewriting("/up*", "/.$1"),
        rewriting("/img-*", "/images/$1"),
        PathRule {
            access: Access {
                allow: vec![],
                deny: vec!["::/0".parse().unwrap(), "0.0.0.0/0".parse().unwrap()],
            },
            ..PathRule::new("/internal/*")
        },
        changing("*.html", uncached),
    ])
    .into();
    rules
}

#[test]
fn another_file_answers_for_one_that_is_missing() {
    let mut world = World::with(single_pages());
    for (name, content) in [("index.html", "app"), ("admin/index.html", "admin"), ("a.js", "script")] {
        world.machine.files.add(name, content);
    }
    world.machine.files.add("profiles/a b.html", "a profile");
    world.machine.files.add("internal/a", "secret");
    let client = world.connect();
    let mut streams = connect(&mut world);
    let page = Some("no-cache");
    for (path, expected) in [
        // An index has the path of its directory.
        ("/", (200, "app", None)),
        ("/a.js", (200, "script", None)),
        ("/items/7", (200, "app", page)),
        ("/items/7?q", (200, "app", page)),
        ("/admin/x", (200, "admin", page)),
        ("/user/a%20b", (200, "a profile", page)),
        ("/user/none", (200, "app", page)),
        ("/.git/config", (404, "", None)),
        ("/up./../etc/passwd", (200, "app", page)),
        ("/internal/a", (403, "", None)),
        ("/user/../internal/a", (403, "", None)),
        ("/user/..%2f..%2finternal/a", (400, "", None)),
        ("/img-../internal/a", (403, "", None)),
        ("/up.%2fetc/passwd", (400, "", None)),
    ] {
        for _ in 0..3 {
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            world.run();
            let answer = client.take_one();
            let text = if answer.status == 200 { answer.text() } else { String::new() };
            let found = (answer.status, text.as_str(), answer.field("Cache-Control"));
            assert_eq!(found, expected, "{path}");
            let stream = streams.get(path);
            exchange(&mut world, &mut streams);
            let answer = streams.take(stream);
            assert_eq!(answer.status(), expected.0, "{path}");
            assert_eq!(
                answer.head.contains("\r\ncache-control: no-cache\r\n"),
                expected.2.is_some(),
                "{path}"
            );
        }
    }
    assert!(world.engine.counters().known_hits > 0);
    world.end();
}

#[test]
fn a_file_that_comes_to_be_answers_at_once_in_place_of_its_fallback() {
    let mut world = World::with(Rules { freshness_ms: 0, ..single_pages() });
    world.machine.files.add("index.html", "app");
    let client = world.connect();
    let get = |world: &mut World| {
        client.send("GET /items HTTP/1.1\r\nHost: a\r\n\r\n");
        world.run();
        client.take_one().text()
    };
    (0..3).for_each(|_| assert_eq!(get(&mut world), "app"));
    world.machine.files.add("items", "a file");
    world.advance(1);
    (0..3).for_each(|_| assert_eq!(get(&mut world), "a file"));
    world.end();
}

#[test]
fn fallbacks_that_are_missing_end() {
    let mut rules = rules();
    rules.sites[0].paths = PathRules::new(vec![falling_back("/a*", "/b"), falling_back("/b*", "/a")]).into();
    let mut world = World::with(rules);
    let client = world.connect();
    client.send("GET /a1 HTTP/1.1\r\nHost: a\r\n\r\n");
    world.run();
    assert_eq!(client.take_one().status, 404, "no fallback has one itself");
    world.end();
}

#[test]
fn a_server_gets_a_rewritten_path() {
    for (asked, got) in [
        ("/api/items/7?q=%2f", "GET /one/v2/items/7?q=%2f HTTP/1.1\r\n"),
        ("/api/../api//a%2fb%3Fc", "GET /one/v2/a/b%3Fc HTTP/1.1\r\n"),
        ("/one/x?", "GET /one/x? HTTP/1.1\r\n"),
    ] {
        let mut world = World::with(single_pages());
        let (client, server) = ask(&mut world, format!("GET {asked} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let request = server.take_bytes();
        let request = String::from_utf8_lossy(&request).into_owned();
        assert!(request.starts_with(got), "{asked}: {request}");
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        world.run();
        assert_eq!(client.take_one().text(), "ok");
        world.end();
    }
}

#[test]
fn a_script_gets_the_requests_that_are_rewritten_to_it() {
    let mut rules = proxying();
    rules.sites[0].paths = PathRules::new(vec![rewriting("/shop/*", "/index.php/$1")]).into();
    let mut world = World::with(rules);
    world.machine.files.add("index.php", "source");
    let (_, server) = ask(&mut world, "GET /shop/a%20b?q=1 HTTP/1.1\r\nHost: a\r\n\r\n");
    let records = String::from_utf8_lossy(&server.take_bytes()).into_owned();
    for variable in
        ["SCRIPT_NAME/index.php", "PATH_INFO/a b", "REQUEST_URI/shop/a%20b?q=1", "QUERY_STRINGq=1"]
    {
        assert!(records.contains(variable), "{variable} in {records}");
    }
    world.end();
}

/// Sites whose errors have pages: one for missing files, and a long one for those of the server beneath `/one/`.
fn with_error_pages() -> Rules {
    let mut rules = proxying();
    let page = |pattern: &str, statuses: RangeInclusive<u16>, html: &str| PathRule {
        error_page: Some(ErrorPage { statuses: vec![statuses], html: html.into() }),
        ..PathRule::new(pattern)
    };
    rules.sites[0].paths = PathRules::new(vec![
        page("*", 404..=404, "<p>Gone fishing"),
        page("/one/*", 500..=599, &"<p>Back soon".repeat(10_000)),
        page("/one/*", 400..=599, "never for 502"),
    ])
    .into();
    rules
}

#[test]
fn errors_have_the_pages_of_their_rules() {
    let mut world = World::with(with_error_pages());
    world.machine.files.add("a", "content");
    for (asked, more, status, text) in [
        ("GET /none", "", 404, "<p>Gone fishing"),
        ("HEAD /none", "", 404, "<p>Gone fishing"),
        ("GET /a", "Range: bytes=99-\r\n", 416, "No such part"),
        ("POST /a", "Content-Length: 0\r\n", 405, "This server answers"),
        ("GET /none", "Accept: application/json\r\n", 404, "{\"status\":404"),
    ] {
        let client = world.connect();
        client.send(format!("{asked} HTTP/1.1\r\nHost: a\r\n{more}\r\n"));
        world.run();
        let (method, path) = asked.split_once(' ').unwrap();
        let answer = if method == "HEAD" { client.take_head() } else { client.take_one() };
        assert_eq!(answer.status, status, "{asked}");
        if method == "HEAD" {
            assert_eq!(answer.field("Content-Length"), Some(text.len().to_string().as_str()));
        } else {
            assert!(answer.text().contains(text), "{asked}: {}", answer.text());
        }
        if status == 404 && more.is_empty() {
            let mut streams = connect(&mut world);
            let stream = streams.get(path);
            exchange(&mut world, &mut streams);
            let answer = streams.take(stream);
            assert_eq!((answer.status(), answer.body), (404, text.into()));
        }
    }
    world.end();
}

#[test]
fn a_server_that_fails_has_the_page_of_its_rule() {
    let page = "<p>Back soon".repeat(10_000);
    let mut world = World::with(with_error_pages());
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
    server.end();
    world.run();
    let answer = client.take_one();
    assert_eq!((answer.status, answer.text() == page), (502, true));
    world.end();

    let mut world = World::with(with_error_pages());
    let mut streams = connect(&mut world);
    let stream = streams.get("/one/x");
    exchange(&mut world, &mut streams);
    world.refuse_link();
    exchange(&mut world, &mut streams);
    let answer = streams.take(stream);
    assert_eq!((answer.status(), answer.body == page.as_bytes()), (502, true));
    world.end();

    // An error that the server tells is its own.
    let mut world = World::with(with_error_pages());
    let (client, server) = ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\n\r\n");
    server.send("HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nown");
    world.run();
    let answer = client.take_one();
    assert_eq!((answer.status, answer.text().as_str()), (500, "own"));
    world.end();
}

#[test]
fn a_missing_file_of_an_issuer_has_no_fallback() {
    let mut rules = single_pages();
    rules.sites[0].https_redirect = Some(HttpsRedirect { status: Status::FOUND, port: 443 });
    let mut world = World::with(rules);
    world.machine.files.add("index.html", "app");
    for (path, status) in [("/.well-known/acme-challenge/none", 404), ("/none", 302)] {
        assert_eq!(world.get(path).status, status, "{path}");
    }
    world.end();
}

#[test]
fn a_rewritten_path_that_servers_read_differently_is_refused() {
    let mut world = World::with(single_pages());
    world.machine.files.add("a.php", "source");
    for path in ["/api/..%5C..%5Cadmin", "/script/x/../y"] {
        let client = world.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        world.run();
        assert_eq!(client.take_one().status, 400, "{path}");
    }
    world.end();
}

/// Two origins may read what is beneath `/data/`, and all what is beneath `/open/`.
fn with_origins() -> World {
    let mut rules = proxying();
    let origins = |origins: &[&str]| FieldChanges {
        origins: origins.iter().map(ToString::to_string).collect(),
        ..FieldChanges::default()
    };
    let own = FieldChanges {
        set: fields(&[("Access-Control-Allow-Origin", "https://own.example")]),
        ..origins(&[])
    };
    rules.sites[0].paths = PathRules::new(vec![
        changing("/data/*", own),
        changing("/data/*", origins(&["https://a.example", "http://localhost:3000"])),
        changing("/open/*", origins(&["*"])),
        changing("/one/*", origins(&["https://a.example"])),
    ])
    .into();
    let mut world = World::with(rules);
    ["data/a", "open/a", "b"].iter().for_each(|path| world.machine.files.add(path, "content"));
    world
}

#[test]
fn scripts_of_some_origins_may_read_answers() {
    let mut world = with_origins();
    let mut streams = connect(&mut world);
    let (a, local, evil) = ("https://a.example", "http://localhost:3000", "https://a.example.evil");
    for (path, origin, status, allowed, varies) in [
        ("/data/a", Some(a), 200, Some(a), true),
        ("/data/a", Some(local), 200, Some(local), true),
        ("/data/a", Some(evil), 200, None, true),
        ("/data/a", Some("*"), 200, None, true),
        ("/data/a", None, 200, None, true),
        ("/data/none", Some(a), 404, Some(a), true),
        ("/open/a", Some(evil), 200, Some("*"), false),
        ("/open/a", None, 200, Some("*"), false),
        ("/b", Some(a), 200, None, false),
    ] {
        let field = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        for _ in 0..3 {
            let (_, answer) = world.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n"));
            let found = (answer.status, answer.field("Access-Control-Allow-Origin"));
            assert_eq!(found, (status, allowed), "{path} {origin:?}");
            assert_eq!(answer.head.contains("\r\nVary: Origin\r\n"), varies, "{path} {}", answer.head);
            assert!(!answer.head.contains("Allow-Methods"), "{}", answer.head);
            let fields: Vec<_> = origin.iter().map(|origin| ("origin", *origin)).collect();
            let stream = streams.ask("GET", path, &fields);
            exchange(&mut world, &mut streams);
            let answer = streams.take(stream);
            let line = allowed.map(|allowed| format!("\r\naccess-control-allow-origin: {allowed}\r\n"));
            assert_eq!(answer.status(), status);
            assert_eq!(
                line.is_some_and(|line| answer.head.contains(&line)),
                answer.head.contains("access-control-allow-origin"),
                "{path} {origin:?}: {}",
                answer.head
            );
            assert_eq!(answer.head.contains("\r\nvary: Origin\r\n"), varies, "{}", answer.head);
        }
    }
    world.end();
}

#[test]
fn a_browser_that_asks_before_a_request_gets_an_answer() {
    let mut world = with_origins();
    let ask = |world: &mut World, path: &str, origin: &str| {
        let fields = "Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: x-a\r\n";
        world.ask(format!("OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n{fields}\r\n")).1
    };
    for (path, origin, allowed) in [
        ("/data/a", "https://a.example", Some("https://a.example")),
        ("/data/a", "https://evil.example", None),
        ("/open/a", "https://evil.example", Some("*")),
        ("/b", "https://a.example", None),
    ] {
        let answer = ask(&mut world, path, origin);
        assert_eq!((answer.status, answer.field("Access-Control-Allow-Origin")), (204, allowed), "{path}");
        let is_allowed = allowed.is_some();
        assert_eq!(answer.field("Access-Control-Allow-Methods"), is_allowed.then_some("GET, HEAD, OPTIONS"));
        assert_eq!(answer.field("Access-Control-Allow-Headers"), is_allowed.then_some("*, Authorization"));
    }
    // The answer of an application gets the rule's field in place of its own.
    let (client, server) =
        super::relays::ask(&mut world, "GET /one/x HTTP/1.1\r\nHost: a\r\nOrigin: https://a.example\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccess-Control-Allow-Origin: *\r\n\r\n");
    world.run();
    let head = String::from_utf8_lossy(&client.take_bytes()).into_owned();
    assert_eq!(head.matches("Access-Control-Allow-Origin").count(), 1, "{head}");
    assert!(head.contains("Access-Control-Allow-Origin: https://a.example\r\n"), "{head}");
    world.end();
}

#[test]
fn rules_for_names_that_hold_a_hash_are_for_files_alone() {
    let mut rules = proxying();
    let immutable =
        FieldChanges { set: fields(&[("Cache-Control", "immutable")]), ..FieldChanges::default() };
    rules.sites[0].paths = PathRules::new(vec![PathRule { hashed: true, ..changing("*", immutable) }]).into();
    let mut world = World::with(rules);
    world.machine.files.add("app.3f2a9c1b.js", "content");
    world.machine.files.add("app.js", "content");
    let control = |answer: &str| answer.contains("immutable");
    for (path, is_immutable) in [("/app.3f2a9c1b.js", true), ("/app.js", false), ("/none.3f2a9c1b.js", false)]
    {
        assert_eq!(control(&world.get(path).head), is_immutable, "{path}");
    }
    let (client, server) = ask(&mut world, "GET /one/orders/3f2a9c1b HTTP/1.1\r\nHost: a\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nCache-Control: private\r\n\r\n");
    world.run();
    let head = String::from_utf8_lossy(&client.take_bytes()).into_owned();
    assert!(head.contains("Cache-Control: private\r\n") && !control(&head), "{head}");
    world.end();
}

#[test]
fn a_rewrite_can_add_to_the_query() {
    let mut rules = proxying();
    rules.sites[0].paths = PathRules::new(vec![
        rewriting("/item/*", "/a.php?id=$1"),
        rewriting("/api/*", "/one/show?id=$1"),
        rewriting("/file/*", "/b?id=$1"),
    ])
    .into();
    let mut world = World::with(rules);
    ["a.php", "b"].iter().for_each(|path| world.machine.files.add(path, "content"));
    for (asked, query) in [
        ("/item/7", "id=7"),
        ("/item/1&admin=1?x=%20&id=2", "id=1%26admin%3D1&x=%20&id=2"),
        ("/item/?", "id=&"),
    ] {
        let (client, server) = ask(&mut world, format!("GET {asked} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let records = String::from_utf8_lossy(&server.take_bytes()).into_owned();
        let pair = |name: &str, value: &str| {
            let lengths = [name.len() as u8, value.len() as u8];
            String::from_utf8_lossy(&[&lengths, name.as_bytes(), value.as_bytes()].concat()).into_owned()
        };
        assert!(records.contains(&pair("QUERY_STRING", query)), "{asked}: {records}");
        assert!(records.contains(&pair("REQUEST_URI", asked)), "{asked}: {records}");
        client.reset();
        world.run();
    }
    let (_, server) = ask(&mut world, "GET /api/a%20b?x HTTP/1.1\r\nHost: a\r\n\r\n");
    let forwarded = String::from_utf8_lossy(&server.take_bytes()).into_owned();
    assert!(forwarded.starts_with("GET /one/show?id=a%20b&x HTTP/1.1\r\n"), "{forwarded}");
    assert_eq!(world.get("/file/1").text(), "content");
    world.end();
}
