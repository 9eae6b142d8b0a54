//! Requests that a file answers if there is one, and otherwise a server: routes with `files_first`, and scripts that answer for
//! missing files.

use std::sync::Arc;

use flash_engine::{Access, PathRule, PathRules, Rate, Rates, Rules, Users};

use super::h2::{connect, exchange};
use super::relays::{ask, get, proxying, status, text};
use crate::machine::client::request;
use crate::machine::world::FRESHNESS_MS;
use crate::machine::{Client, World};

/// The server of `/one/` gets what no file answers.
fn files_first() -> World {
    let mut rules = proxying();
    rules.sites[0].routes[1].files_first = true;
    let mut world = World::with(rules);
    world.machine.files.add("one/a.css", "style");
    world.machine.files.add("one/index.html", "index");
    world.machine.files.add_directory("one/dir");
    world.machine.files.add("one/dir/index.html", "inner");
    world.machine.files.add("one/.secret", "hidden");
    world
}

/// A blog: `/index.php` answers for what has no file, and `/wp/` has a script of its own.
fn blog() -> Rules {
    let mut rules = proxying();
    rules.sites[0].index = vec!["index.php".to_owned()];
    let fallback = Some(b"/index.php".to_vec());
    rules.sites[0].paths = PathRules::new(vec![PathRule { fallback, ..PathRule::new("*") }]).into();
    rules
}

fn with_blog(rules: Rules) -> World {
    let mut world = World::with(rules);
    world.machine.files.add("index.php", "source");
    world.machine.files.add("wp/index.php", "source");
    world.machine.files.add("a.css", "style");
    world
}

/// Sends a request, and answers it in place of the server with the first line that the server got.
fn echoed(world: &mut World, request: impl AsRef<[u8]>) -> (Client, String) {
    let (client, server) = ask(world, request);
    let forwarded = text(&server.take_bytes());
    server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    server.end();
    world.run();
    assert_eq!(status(&client), 204);
    (client, forwarded)
}

#[test]
fn a_file_answers_before_a_server() {
    let mut world = files_first();
    for round in 0..4 {
        for (path, body) in [("/one/a.css", "style"), ("/one/", "index"), ("/one/dir/", "inner")] {
            let answer = world.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, body), "{path}");
        }
        assert_eq!(world.get("/one/dir").status, 301, "as without a route");
        assert!(world.machine.asked.is_empty(), "round {round}");
        for path in ["/one/users/1?x=%20", "/one/a.css/x", "/one/.secret", "/one/none/"] {
            let (_, forwarded) = echoed(&mut world, get(path));
            assert!(forwarded.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{forwarded}");
        }
    }
    let counters = world.engine.counters();
    assert!(counters.known_hits > 0, "repeated requests for files are known by their bytes");
    world.end();
}

#[test]
fn a_server_has_the_methods_that_files_do_not_have() {
    let mut world = files_first();
    for round in ["unknown", "known"] {
        let (_, answer) = world.ask(request("POST", "/one/a.css", "Content-Length: 0\r\n"));
        assert_eq!((answer.status, answer.field("Allow")), (405, Some("GET, HEAD, OPTIONS")), "{round}");
        let client = world.connect();
        client.send(request("HEAD", "/one/a.css", ""));
        world.run();
        let answer = client.take_head();
        assert_eq!((answer.status, answer.length()), (200, Some(5)), "{round}");
        let (_, forwarded) = echoed(&mut world, request("OPTIONS", "/one/a.css", ""));
        assert!(forwarded.starts_with("OPTIONS /one/a.css"), "{forwarded}");
        let (_, forwarded) = echoed(&mut world, request("POST", "/one/new", "Content-Length: 3\r\n") + "abc");
        assert!(forwarded.starts_with("POST /one/new ") && forwarded.ends_with("\r\n\r\nabc"), "{forwarded}");
    }
    // The body of a request that a file answers is not read as the next request.
    let client = world.connect();
    client.send(request("GET", "/one/dir/", "Content-Length: 5\r\n") + "GET /");
    world.run();
    assert_eq!(client.take_one().text(), "inner");
    world.end();
}

#[test]
fn a_request_waits_for_the_disk_before_a_server_gets_it() {
    let mut world = files_first();
    world.machine.files.add_cold("one/cold.css", "cold");
    world.machine.files.missing_cached = false;
    world.auto = false;
    let file = world.connect();
    file.send(get("/one/cold.css"));
    let missing = world.connect();
    missing.send(get("/one/none"));
    world.run();
    assert!(world.machine.asked.is_empty() && file.received_len() + missing.received_len() == 0);
    // A request whose file is known does not wait with them.
    world.machine.files.missing_cached = true;
    assert_eq!(world.get_auto("/one/a.css").text(), "style");
    world.auto = true;
    while !world.machine.helpers.running.is_empty() {
        world.finish_job();
    }
    world.run();
    assert_eq!(file.take_one().text(), "cold");
    assert_eq!(world.machine.asked.len(), 1, "one of the two");
    let server = world.link();
    world.run();
    assert!(text(&server.take_bytes()).starts_with("GET /one/none "));
    server.send("HTTP/1.1 204 No Content\r\n\r\n");
    world.run();
    assert_eq!(status(&missing), 204);
    // A client that leaves meanwhile takes its job along, and one whose helper dies gets an answer.
    world.auto = false;
    for name in ["0", "1"] {
        world.machine.files.add_cold(&format!("one/{name}"), "late");
        let client = world.connect();
        client.send(get(&format!("/one/{name}")));
        world.run();
        let job = world.job();
        if name == "0" {
            client.reset();
            world.run();
            world.finish(job);
        } else {
            world.lose(job);
        }
        world.run();
        assert!(world.machine.asked.is_empty());
        if name == "1" {
            assert_eq!(status(&client), 503);
        }
    }
    world.end();
}

#[test]
fn a_new_file_answers_once_its_absence_is_no_longer_believed() {
    let mut world = files_first();
    let (_, forwarded) = echoed(&mut world, get("/one/new.css"));
    assert!(forwarded.starts_with("GET /one/new.css"));
    world.machine.files.add("one/new.css", "new");
    world.advance(2 * FRESHNESS_MS);
    assert_eq!(world.get("/one/new.css").text(), "new");
    world.machine.files.remove("one/new.css");
    world.advance(2 * FRESHNESS_MS);
    let (_, forwarded) = echoed(&mut world, get("/one/new.css"));
    assert!(forwarded.starts_with("GET /one/new.css"));
    world.end();
}

#[test]
fn a_script_answers_for_missing_files() {
    let mut world = with_blog(blog());
    for round in 0..2 {
        assert_eq!(world.get("/a.css").text(), "style");
        for (path, script, info) in [
            ("/", "/index.php", ""),
            ("/2026/hello/?p=1", "/index.php", ""),
            ("/2026/hello", "/index.php", ""),
            ("/none.css", "/index.php", ""),
            ("/none.php/x", "/index.php", ""),
            ("/wp/", "/wp/index.php", ""),
            ("/wp/index.php/x", "/wp/index.php", "/x"),
            ("/index.php/x", "/index.php", "/x"),
        ] {
            let client = world.connect();
            client.send(get(path));
            world.run();
            let server = world.link();
            world.run();
            let records = text(&server.take_bytes());
            let named = |name: &str, value: &str| {
                let (name_bytes, value_bytes) = (name.len() as u8, value.len() as u8);
                let pair = [&[name_bytes, value_bytes], name.as_bytes(), value.as_bytes()].concat();
                assert!(
                    records.contains(&text(&pair)),
                    "round {round}, {path}: {name} is {value}: {records}"
                );
            };
            named("SCRIPT_NAME", script);
            assert_eq!(records.contains("PATH_INFO"), !info.is_empty(), "{path}");
            if !info.is_empty() {
                named("PATH_INFO", info);
            }
            named("REQUEST_URI", path);
            named("QUERY_STRING", path.split_once('?').map_or("", |parts| parts.1));
            client.reset();
            world.run();
        }
        for path in ["/.git/config", "/.php"] {
            assert_eq!(world.get(path).status, 404, "{path} is hidden");
        }
        assert!(world.machine.asked.is_empty());
    }
    // The application gets the body too.
    let (client, server) = ask(&mut world, request("POST", "/wp-json/x", "Content-Length: 3\r\n") + "abc");
    let records = text(&server.take_bytes());
    assert!(records.contains("/index.php") && records.contains("CONTENT_LENGTH3"), "{records}");
    client.reset();
    world.run();
    world.end();
}

#[test]
fn a_missing_script_cannot_answer_for_others() {
    let mut world = World::with(blog());
    world.machine.files.add("a.css", "style");
    for path in ["/", "/x", "/x/", "/index.php", "/none.php"] {
        for _ in 0..2 {
            assert_eq!(world.get(path).status, 404, "{path}");
        }
    }
    assert!(world.machine.asked.is_empty());
    world.end();
}

#[test]
fn a_path_that_the_server_could_read_differently_is_for_files_only() {
    let mut world = with_blog(blog());
    for path in ["/x/../index.php", "/none/%2e%2e/x", "/wp/..%2findex.php"] {
        assert_eq!(world.ask(get(path)).1.status, 400, "{path}");
    }
    let mut world = files_first();
    for _ in 0..3 {
        for (path, status) in [
            ("/one/../one/a", 400),
            ("/one/%2e/a", 400),
            ("/one/x%2f..%2fa.css2", 400),
            ("/one/x/../a.css", 200),
            ("/one/dir%2f..%2fa.css", 200),
        ] {
            assert_eq!(world.ask(get(path)).1.status, status, "{path}");
        }
    }
    assert!(world.machine.asked.is_empty());
    world.end();
}

#[test]
fn the_rules_for_a_script_hold_when_it_answers_for_others() {
    let closed =
        Access { allow: Vec::new(), deny: ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap()).to_vec() };
    let users = || Users::new([("ann".to_owned(), "secret".to_owned())]).map(Arc::new);
    let rate = Rates { of_client: None, of_all: Some(Rate { interval_us: 3_600_000_000, burst: 1 }) };
    for (rule, statuses) in [
        (PathRule { access: closed, ..PathRule::new("*.php") }, [403, 403]),
        (PathRule { users: users(), ..PathRule::new("*.php") }, [401, 401]),
        (PathRule { rates: rate, ..PathRule::new("/index.php") }, [502, 503]),
    ] {
        let mut rules = blog();
        let others = rules.sites[0].paths.rules().to_vec();
        rules.sites[0].paths = PathRules::new([vec![rule.clone()], others].concat()).into();
        let mut world = with_blog(rules);
        for (path, status) in ["/x", "/y/"].into_iter().zip(statuses) {
            let client = world.connect();
            client.send(get(path));
            world.run();
            if status == 502 {
                world.refuse_link();
                world.run();
            }
            assert_eq!(super::relays::status(&client), status, "{path} {rule:?}");
            assert!(world.machine.asked.is_empty(), "{path} {rule:?}");
        }
        // A file is no script, whether it is known or not.
        for _ in 0..3 {
            assert_eq!(world.get("/a.css").text(), "style", "{rule:?}");
        }
        world.end();
    }
}

#[test]
fn streams_of_http_2_do_the_same() {
    let mut rules = blog();
    rules.sites[0].routes[1].files_first = true;
    let mut world = with_blog(rules);
    world.machine.files.add("one/a.css", "one");
    world.machine.files.add_cold("one/cold.css", "cold");
    let mut client = connect(&mut world);
    for round in 0..3 {
        for (path, body) in [("/a.css", "style"), ("/one/a.css", "one"), ("/one/cold.css", "cold")] {
            let stream = client.get(path);
            exchange(&mut world, &mut client);
            let answer = client.take(stream);
            assert_eq!((answer.status(), &answer.body[..]), (200, body.as_bytes()), "round {round}: {path}");
        }
        let stream = client.ask("GET", "/one/none", &[]);
        world.run();
        let server = world.link();
        world.run();
        assert!(text(&server.take_bytes()).starts_with("GET /one/none "));
        server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        server.end();
        exchange(&mut world, &mut client);
        assert_eq!(client.take(stream).status(), 204);
    }
    world.end();
}
