//! Rules with `auth`: a server is asked about each request before it is answered.

use std::sync::Arc;

use flash_engine::{
    Access, AuthRule, FieldChanges, PathRule, PathRules, Rules, Target, UpstreamProtocol, Users,
};

use super::h2::{connect, exchange};
use super::h2_relays::link;
use super::relays::{ask, get, proxying, status, text, whole};
use crate::machine::World;
use crate::machine::client::request;

const AGREES: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn asking(pattern: &str, auth: &str) -> PathRule {
    giving(pattern, auth, &[])
}

/// The server gives these fields to requests.
fn giving(pattern: &str, auth: &str, fields: &[&str]) -> PathRule {
    let fields = fields.iter().map(|name| (*name).to_owned()).collect();
    PathRule { auth: Some(AuthRule { path: auth.into(), fields }), ..PathRule::new(pattern) }
}

/// The server of `/one/` is asked about files in `/in/` and about `/p/`, which other servers have.
fn rules() -> Rules {
    let mut rules = proxying();
    rules.sites[0].paths = PathRules::new(vec![
        asking("/in/*", "/one/auth"),
        asking("/p/*", "/one/auth"),
        PathRule { rewrite: Some(Target::new("/in/$1")), ..PathRule::new("/also/*") },
        asking("/also/*", "/p/auth"),
    ])
    .into();
    rules
}

fn world() -> World {
    with_files(rules())
}

fn with_files(rules: Rules) -> World {
    let mut world = World::with(rules);
    world.machine.files.add("in/a", "content");
    world.machine.files.add("b", "open");
    world.machine.files.add("in/index.html", "index");
    world
}

#[test]
fn a_file_is_sent_once_a_server_agrees() {
    let mut world = world();
    let fields = "Cookie: s=1\r\nAuthorization: Bearer x\r\nX-Forwarded-Uri: /evil\r\n";
    let (client, server) = ask(&mut world, request("GET", "/in/a?b=c%2f", fields));
    let asked = text(&server.take_bytes());
    assert!(asked.starts_with("GET /one/auth HTTP/1.1\r\nHost: h\r\n"), "{asked}");
    for field in
        ["Cookie: s=1", "Authorization: Bearer x", "X-Forwarded-Method: GET", "X-Forwarded-Uri: /in/a?b=c%2f"]
    {
        assert!(asked.contains(&format!("\r\n{field}\r\n")), "{field}: {asked}");
    }
    assert!(!asked.contains("evil") && client.received_len() == 0, "{asked}");
    server.send(AGREES);
    world.run();
    let answer = client.take_one();
    assert_eq!((answer.status, answer.text().as_str()), (200, "content"));
    // Each request is asked about, on the same link; also one with the same head.
    for (request, body) in [(request("GET", "/in/a?b=c%2f", fields), "content"), (get("/in/"), "index")] {
        client.send(request);
        world.run();
        assert!(text(&server.take_bytes()).starts_with("GET /one/auth ") && client.received_len() == 0);
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        world.run();
        assert_eq!(client.take_one().text(), body);
    }
    client.send(get("/b"));
    world.run();
    assert_eq!(client.take_one().text(), "open", "no rule has it");
    assert_eq!(world.engine.counters().links.asked, 1);
    world.end();
}

#[test]
fn a_server_that_does_not_agree_has_the_answer() {
    for (answer, fields) in [
        ("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n", "WWW-Authenticate: Bearer\r\n"),
        ("HTTP/1.1 302 Found\r\nLocation: /login\r\nSet-Cookie: s=1\r\n", "Set-Cookie: s=1\r\n"),
        ("HTTP/1.1 403 Forbidden\r\nX-Accel-Redirect: /in/a\r\n", "\r\n"),
    ] {
        for (method, path) in [("GET", "/in/a"), ("HEAD", "/in/a"), ("GET", "/p/x"), ("GET", "/in/none")] {
            let mut world = world();
            let (client, server) = ask(&mut world, request(method, path, ""));
            let asked = text(&server.take_bytes());
            assert!(asked.starts_with(&format!("{method} /one/auth ")), "{asked}");
            let body = if method == "HEAD" { "" } else { "no" };
            server.send(format!("{answer}Content-Length: 2\r\n\r\n{body}"));
            world.run();
            let bytes = client.take_bytes();
            assert!(
                text(&bytes).starts_with(&answer[..12]) && text(&bytes).contains(fields),
                "{}",
                text(&bytes)
            );
            assert!(text(&bytes).ends_with(&format!("\r\n\r\n{body}")) && !client.is_ended());
            assert!(world.machine.asked.is_empty(), "no other server is asked");
            world.end();
        }
    }
}

#[test]
fn another_server_gets_the_request_and_its_body_once_the_first_agrees() {
    for (fields, sent, expected) in [
        ("Content-Length: 5\r\n", "hello", "hello"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"),
    ] {
        for gathers in [false, true] {
            let mut rules = rules();
            rules.sites[0].routes.iter_mut().for_each(|route| route.streams_bodies = !gathers);
            let mut world = with_files(rules);
            let (client, asked) = ask(&mut world, request("POST", "/p/x?q", fields) + sent + &get("/b"));
            let about = text(&asked.take_bytes());
            assert!(
                about.starts_with("GET /one/auth HTTP/1.1\r\n") && about.ends_with("\r\n\r\n"),
                "{about}"
            );
            assert!(!about.contains("Content-Length") && !about.contains("Transfer-Encoding"), "{about}");
            assert!(about.contains("X-Forwarded-Method: POST\r\nX-Forwarded-Uri: /p/x?q\r\n"), "{about}");
            asked.send(AGREES);
            let server = link(&mut world);
            let forwarded = text(&server.take_bytes());
            assert!(forwarded.starts_with("POST /p/x?q HTTP/1.1\r\n"), "{forwarded}");
            let whole = if gathers && fields.starts_with('T') { sent } else { expected };
            assert!(forwarded.ends_with(whole) || forwarded.ends_with("hello"), "{forwarded}");
            assert!(!forwarded.contains("X-Forwarded-Uri"), "{forwarded}");
            server.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
            world.run();
            let answers = client.take();
            let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
            assert_eq!(statuses, [201, 200], "the next request is answered too");
            world.end();
        }
    }
}

#[test]
fn a_body_that_nobody_has_read_is_no_request() {
    let hidden = get("/b");
    for path in ["/p/x", "/in/a"] {
        let method = if path == "/p/x" { "POST" } else { "GET" };
        for (answer, expected) in [(AGREES, 200), ("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", 403)] {
            if (path, expected) == ("/p/x", 200) {
                continue;
            }
            let mut world = world();
            let length = format!("Content-Length: {}\r\n", hidden.len() + 5);
            let (client, server) = ask(&mut world, request(method, path, &length) + &hidden);
            server.take_bytes();
            server.send(answer);
            world.run();
            let bytes = text(&client.take_bytes());
            assert!(bytes.starts_with(&format!("HTTP/1.1 {expected} ")), "{bytes}");
            assert!(!bytes.contains("open"), "a part of the body is answered: {bytes}");
            world.advance(60_000);
            world.end();
        }
    }
}

#[test]
fn without_an_answer_nobody_is_let_in() {
    for path in ["/in/a", "/p/x"] {
        let mut world = world();
        let client = world.connect();
        client.send(get(path));
        world.run();
        world.refuse_link();
        world.run();
        assert_eq!(status(&client), 502, "{path}");
        let (client, server) = ask(&mut world, get(path));
        server.end();
        world.run();
        assert_eq!(status(&client), 502, "{path}");
        let (client, server) = ask(&mut world, get(path));
        server.send("HTTP/1.1 2");
        world.advance(120_000);
        assert_eq!(status(&client), 504, "{path}");
        assert!(world.machine.asked.is_empty());
        world.end();
    }
}

#[test]
fn a_link_that_was_closed_meanwhile_is_replaced_whatever_the_method() {
    let mut world = world();
    let (client, asked) = ask(&mut world, get("/in/a"));
    asked.send(AGREES);
    world.run();
    assert_eq!(client.take_one().status, 200);
    // The server closes it just as the next request is sent.
    client.send(request("POST", "/p/x", "Content-Length: 5\r\n") + "hello");
    asked.end();
    let again = link(&mut world);
    assert!(text(&again.take_bytes()).starts_with("GET /one/auth "));
    again.send(AGREES);
    let server = link(&mut world);
    assert!(text(&server.take_bytes()).ends_with("\r\n\r\nhello"));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    world.run();
    assert_eq!(status(&client), 200);
    world.end();
}

#[test]
fn the_servers_of_both_paths_of_a_rewritten_request_are_asked() {
    let mut world = world();
    let (client, first) = ask(&mut world, get("/also/a"));
    assert!(text(&first.take_bytes()).starts_with("GET /p/auth "));
    first.send(AGREES);
    let second = link(&mut world);
    let about = text(&second.take_bytes());
    assert!(about.starts_with("GET /one/auth ") && about.contains("X-Forwarded-Uri: /also/a\r\n"), "{about}");
    assert_eq!(client.received_len(), 0);
    second.send(AGREES);
    world.run();
    assert_eq!(client.take_one().text(), "content");
    world.end();
}

#[test]
fn a_client_that_leaves_waits_for_nobody() {
    let mut world = world();
    let (client, server) = ask(&mut world, get("/in/a"));
    client.end();
    world.run();
    assert!(client.is_closed(), "it has left");
    server.send(AGREES);
    world.run();
    world.end();
}

#[test]
fn streams_of_http_2_do_the_same() {
    let mut world = world();
    let mut client = connect(&mut world);
    let file = client.get("/in/a");
    let server = link(&mut world);
    assert!(text(&server.take_bytes()).starts_with("GET /one/auth HTTP/1.1\r\n"));
    // Another stream is answered meanwhile.
    let open = client.get("/b");
    exchange(&mut world, &mut client);
    assert_eq!(text(&client.take(open).body), "open");
    server.send(AGREES);
    exchange(&mut world, &mut client);
    assert_eq!(text(&client.take(file).body), "content");
    let refused = client.ask("HEAD", "/p/x", &[]);
    exchange(&mut world, &mut client);
    assert!(text(&server.take_bytes()).starts_with("HEAD /one/auth HTTP/1.1\r\n"));
    server.send("HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 9\r\n\r\n");
    exchange(&mut world, &mut client);
    let answer = client.take(refused);
    assert_eq!((answer.status(), answer.is_whole, answer.body.len()), (401, true, 0));
    assert!(answer.head.contains("\r\nwww-authenticate: Bearer\r\n"), "{}", answer.head);
    world.end();
}

#[test]
fn a_script_can_be_asked() {
    let mut rules = rules();
    rules.sites[0].paths = PathRules::new(vec![asking("/in/*", "/auth.php")]).into();
    assert_eq!(rules.upstreams[2].protocol, UpstreamProtocol::FastCgi);
    let mut world = with_files(rules);
    let client = world.connect();
    client.send(get("/in/a"));
    world.run();
    assert_eq!(status(&client), 404, "there is no such script");
    world.machine.files.add("auth.php", "source");
    world.advance(60_000);
    let (client, server) = ask(&mut world, request("GET", "/in/a?x", ""));
    let params = text(&server.take_bytes());
    for part in ["SCRIPT_NAME/auth.php", "REQUEST_URI/in/a?x", "HTTP_X_FORWARDED_URI/in/a?x", "QUERY_STRINGx"]
    {
        assert!(params.contains(part), "{part}: {params:?}");
    }
    let stdout = b"Status: 204 No Content\r\n\r\n";
    let mut records = vec![1, 6, 0, 1, 0, stdout.len() as u8, 0, 0];
    records.extend_from_slice(stdout);
    records.extend_from_slice(&[1, 6, 0, 1, 0, 0, 0, 0, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    server.send(records);
    world.run();
    let (head, body) = whole(&client.take_bytes());
    assert!(head.starts_with("HTTP/1.1 200 ") && body == b"content", "{head}");
    world.end();
}

#[test]
fn the_server_is_told_the_path_that_counts() {
    for (sent, told) in [
        ("/in/public/../a", "/in/a"),
        ("/in/%2e/%61?b=%2e%2e", "/in/a?b=%2e%2e"),
        ("//in///a", "/in/a"),
        ("/in/none%2Fb%20c", "/in/none/b%20c"),
    ] {
        let mut world = world();
        let (_, server) = ask(&mut world, get(sent));
        let asked = text(&server.take_bytes());
        assert!(asked.contains(&format!("\r\nX-Forwarded-Uri: {told}\r\n")), "{sent}: {asked}");
        server.send(AGREES);
        world.run();
        world.end();
    }
}

const FORGED: &str = "X-User: root\r\nx-user: root\r\nX_User: root\r\nX.Groups: root\r\nX-Other: mine\r\n";
const NAMES: &[&str] = &["X-User", "X-Groups"];
const GIVES: &str = "HTTP/1.1 200 OK\r\nx-user: ann\r\nX-Groups: a\r\nX-Groups: b\r\nX-Secret: 1\r\nContent-Length: 0\r\n\r\n";

/// `/p/` and scripts get fields of the server of `/one/`.
fn giving_rules() -> Rules {
    let mut rules = rules();
    let rule = |pattern| giving(pattern, "/one/auth", NAMES);
    rules.sites[0].paths = PathRules::new(vec![rule("/p/*"), rule("*.php")]).into();
    rules
}

#[test]
fn a_server_that_agrees_gives_fields_to_the_request() {
    for (gathers, answer, given) in [
        (false, GIVES, "x-user: ann\r\nX-Groups: a\r\nX-Groups: b\r\n"),
        (true, GIVES, "x-user: ann\r\nX-Groups: a\r\nX-Groups: b\r\n"),
        (true, AGREES, ""),
    ] {
        let mut rules = giving_rules();
        rules.sites[0].routes.iter_mut().for_each(|route| route.streams_bodies = !gathers);
        let mut world = with_files(rules);
        let fields = format!("Transfer-Encoding: chunked\r\n{FORGED}");
        let body = "5\r\nhello\r\n0\r\n\r\n";
        let (client, asked) = ask(&mut world, request("POST", "/p/x", &fields) + body);
        asked.send(answer);
        let server = link(&mut world);
        let forwarded = text(&server.take_bytes());
        assert!(forwarded.contains("\r\nX-Other: mine\r\n") && !forwarded.contains("root"), "{forwarded}");
        let (head, body) = forwarded.split_once("\r\n\r\n").expect("a head");
        let ours = head.split_once("X-Request-Id: ").expect("an identifier").1.split_once("\r\n").unwrap().1;
        assert!(ours.starts_with(given) && ours[given.len()..].matches(':').count() == 1, "{ours}");
        assert!(!forwarded.contains("X-Secret") && body.contains("hello"), "{forwarded}");
        server.send("HTTP/1.1 200 OK\r\nX-User: the answer's\r\nContent-Length: 0\r\n\r\n");
        world.run();
        assert_eq!(client.take_one().field("X-User"), Some("the answer's"));
        world.end();
    }
}

#[test]
fn a_script_gets_these_fields_too() {
    let mut world = with_files(giving_rules());
    world.machine.files.add("a.php", "source");
    let (_, asked) = ask(&mut world, request("GET", "/a.php", FORGED));
    asked.send(GIVES);
    let script = link(&mut world);
    let params = text(&script.take_bytes());
    for part in ["HTTP_X_USERann", "HTTP_X_GROUPSa, b", "HTTP_X_OTHERmine", "SCRIPT_NAME/a.php"] {
        assert!(params.contains(part), "{part}: {params:?}");
    }
    assert!(!params.contains("root") && !params.contains("SECRET"), "{params:?}");
    script.end();
    world.run();
    world.end();
}

#[test]
fn a_stream_of_http_2_cannot_forge_these_fields() {
    let mut world = with_files(giving_rules());
    let mut client = connect(&mut world);
    let forged = [("x-user", "root"), ("x_groups", "root"), ("x-other", "mine")];
    client.ask("GET", "/p/x", &forged);
    let asked = link(&mut world);
    asked.send(GIVES);
    let server = link(&mut world);
    let forwarded = text(&server.take_bytes());
    assert!(forwarded.contains("\r\nx-user: ann\r\n") && forwarded.contains("mine"), "{forwarded}");
    assert!(!forwarded.contains("root"), "{forwarded}");
    server.end();
    world.run();
    world.end();
}

#[test]
fn each_server_gets_what_those_before_it_give() {
    let mut rules = rules();
    let rewrite = PathRule { rewrite: Some(Target::new("/p/$1")), ..PathRule::new("/also/*") };
    rules.sites[0].paths = PathRules::new(vec![
        giving("/also/*", "/one/first", &["X-First", "X-Both", "Authorization"]),
        giving("/p/*", "/one/second", &["X-Second", "X-Both"]),
        rewrite,
    ])
    .into();
    let mut world = with_files(rules);
    let own = "X-First: own\r\nX-Second: own\r\nX-Both: own\r\nAuthorization: own\r\n";
    let (_, asked) = ask(&mut world, request("GET", "/also/x", own));
    let question = text(&asked.take_bytes());
    assert!(question.starts_with("GET /one/first ") && question.contains(own), "{question}");
    let given = "X-First: 1\r\nX-Both: 1\r\nAuthorization: 1\r\n";
    asked.send(format!("HTTP/1.1 204 No Content\r\n{given}X-Second: 1\r\n\r\n"));
    world.run();
    let question = text(&asked.take_bytes());
    assert!(
        question.starts_with("GET /one/second ") && question.ends_with(&format!("{given}\r\n")),
        "{question}"
    );
    assert!(question.matches("own").count() == 1 && question.contains("X-Second: own"), "{question}");
    asked.send("HTTP/1.1 204 No Content\r\nX-Second: 2\r\nX-Both: 2\r\nX-First: 2\r\n\r\n");
    world.run();
    let server = link(&mut world);
    let forwarded = text(&server.take_bytes());
    let expected = "X-First: 1\r\nAuthorization: 1\r\nX-Second: 2\r\nX-Both: 2\r\n\r\n";
    assert!(forwarded.ends_with(expected) && !forwarded.contains("own"), "{forwarded}");
    server.end();
    world.run();
    world.end();
}

#[test]
fn a_script_for_missing_files_gets_the_fields_of_its_rule() {
    let mut world = with_fallback(giving("/index.php", "/one/auth", NAMES));
    for _ in 0..2 {
        let (_, asked) = ask(&mut world, request("GET", "/none", FORGED));
        asked.send(GIVES);
        asked.end();
        let script = link(&mut world);
        let params = text(&script.take_bytes());
        assert!(params.contains("HTTP_X_USERann") && !params.contains("root"), "{params:?}");
        script.end();
        world.run();
    }
    world.end();
}

#[test]
fn the_server_gets_no_field_about_the_content() {
    let mut world = world();
    let fields = "Range: bytes=1-2\r\nIf-None-Match: *\r\nif-range: \"x\"\r\nContent-Type: a/b\r\nX-A: 1\r\n";
    let (client, server) = ask(&mut world, request("GET", "/in/a", fields));
    let asked = text(&server.take_bytes());
    assert!(asked.contains("\r\nX-A: 1\r\n"), "{asked}");
    for name in ["Range", "If-", "if-", "Content-"] {
        assert!(!asked.contains(&format!("\r\n{name}")), "{name}: {asked}");
    }
    server.send(AGREES);
    world.run();
    assert_eq!(client.take_one().status, 304);
    world.end();
}

#[test]
fn a_refusal_gets_the_fields_of_errors_alone() {
    let set = |with_errors, value: &str| PathRule {
        fields: FieldChanges {
            set: vec![("Cache-Control".to_owned(), value.to_owned())],
            with_errors,
            ..FieldChanges::default()
        },
        ..PathRule::new("/in/*")
    };
    for (with_errors, expected) in [(false, "no-store"), (true, "public")] {
        let mut rules = rules();
        let all = [rules.sites[0].paths.rules().to_vec(), vec![set(with_errors, "public")]].concat();
        rules.sites[0].paths = PathRules::new(all).into();
        let mut world = with_files(rules);
        let mut streams = connect(&mut world);
        let (client, server) = ask(&mut world, get("/in/a"));
        let refusal = "HTTP/1.1 302 Found\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n";
        server.send(refusal);
        world.run();
        assert_eq!(client.take_one().field("Cache-Control"), Some(expected));
        let stream = streams.get("/in/a");
        exchange(&mut world, &mut streams);
        server.send(refusal);
        exchange(&mut world, &mut streams);
        let head = streams.take(stream).head;
        assert!(head.contains(&format!("\r\ncache-control: {expected}\r\n")), "{head}");
        world.end();
    }
}

#[test]
fn a_path_that_a_server_could_read_past_a_rule_is_refused() {
    let closed =
        Access { allow: Vec::new(), deny: ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap()).to_vec() };
    let users = || Users::new([("ann".to_owned(), "secret".to_owned())]).map(Arc::new);
    for rule in [
        asking("/p/admin/*", "/one/auth"),
        PathRule { access: closed, ..PathRule::new("/p/admin/*") },
        PathRule { users: users(), ..PathRule::new("/p/admin/*") },
    ] {
        let mut rules = proxying();
        rules.sites[0].paths = PathRules::new(vec![rule.clone()]).into();
        let mut world = with_files(rules);
        for path in ["/p/admin%5Cusers", "/p/x%5C..%5Cadmin/users"] {
            let client = world.connect();
            client.send(get(path));
            world.run();
            assert_eq!(status(&client), 400, "{path} {rule:?}");
        }
        let (_, server) = ask(&mut world, get("/p/other%5Cusers"));
        assert!(text(&server.take_bytes()).starts_with("GET /p/other%5Cusers "));
        server.end();
        world.run();
        world.end();
    }
}

/// `/index.php` answers for missing files, and a rule says who is let in there.
fn with_fallback(rule: PathRule) -> World {
    let mut rules = proxying();
    let falling_back = PathRule { fallback: Some(b"/index.php".to_vec()), ..PathRule::new("*") };
    rules.sites[0].paths = PathRules::new(vec![falling_back, rule]).into();
    let mut world = with_files(rules);
    world.machine.files.add("index.php", "source");
    world.machine.files.add_cold("cold", "a file");
    world
}

#[test]
fn the_server_of_a_script_for_missing_files_is_asked_only_if_one_is_missing() {
    let mut world = with_fallback(asking("/index.php", "/one/auth"));
    for _ in 0..2 {
        for (path, body) in [("/b", "open"), ("/cold", "a file")] {
            let answer = world.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, body), "{path}");
        }
    }
    for path in ["/none", "/none"] {
        let (client, server) = ask(&mut world, get(path));
        assert!(text(&server.take_bytes()).starts_with("GET /one/auth "), "{path}");
        server.send(AGREES);
        server.end();
        world.run();
        let script = link(&mut world);
        assert!(text(&script.take_bytes()).contains("SCRIPT_NAME/index.php"), "{path}");
        script.end();
        world.run();
        assert_eq!(status(&client), 502);
        let (client, server) = ask(&mut world, get(path));
        server.take_bytes();
        server.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
        server.end();
        world.run();
        assert_eq!(status(&client), 403);
    }
    world.end();
}

#[test]
fn a_wrong_password_of_that_script_keeps_nobody_from_files() {
    let users = Users::new([("ann".to_owned(), "secret".to_owned())]).map(Arc::new);
    let mut world = with_fallback(PathRule { users, ..PathRule::new("/index.php") });
    // bob:wrong
    let fields = "Authorization: Basic Ym9iOndyb25n\r\n";
    for (path, expected) in [("/cold", 200), ("/b", 200), ("/none", 401), ("/none", 401)] {
        let (_, answer) = world.ask(request("GET", path, fields));
        assert_eq!(answer.status, expected, "{path}");
    }
    world.end();
}
