//! Rules that admit only users: passwords that helpers compare, and what is remembered of them.

use std::sync::Arc;

use flash_engine::limits::{RIGHT_PASSWORD_MS, WRONG_PASSWORD_MS};
use flash_engine::{JobKind, PathRule, PathRules, Rules, Target, Users};

use super::h2::{connect, exchange};
use super::relays::{ask, proxying};
use crate::machine::World;
use crate::machine::response::Response;

/// `ann:secret`, `ann:wrong`, `bob:secret` and `eve:word`.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==\r\n";
const ANN_WRONG: &str = "Authorization: Basic YW5uOndyb25n\r\n";
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldA==\r\n";
const EVE: &str = "Authorization: Basic ZXZlOndvcmQ=\r\n";

/// Ann is admitted beneath `/private/` and `/one/`, Eve beneath `/private/eve/` and `/new/`.
fn guarded() -> Rules {
    let mut rules = proxying();
    let users =
        |name: &str, password: &str| Users::new([(name.to_owned(), password.to_owned())]).map(Arc::new);
    let (ann, eve) = (users("ann", "secret"), users("eve", "word"));
    rules.sites[0].paths = PathRules::new(vec![
        PathRule { users: eve.clone(), ..PathRule::new("/private/eve/*") },
        PathRule { users: ann.clone(), ..PathRule::new("/private/*") },
        PathRule { users: ann, ..PathRule::new("/one/*") },
        PathRule { users: eve, ..PathRule::new("/new/*") },
        PathRule { rewrite: Some(Target::new("/private/$1")), ..PathRule::new("/new/*") },
        PathRule { rewrite: Some(Target::new("/private/$1")), ..PathRule::new("/open/*") },
        PathRule { rewrite: Some(Target::new("/private/$1")), ..PathRule::new("/private/old/*") },
    ])
    .into();
    rules
}

fn world() -> World {
    let mut world = World::with(guarded());
    for name in ["private/a", "private/eve/a", "b"] {
        world.machine.files.add(name, "content");
    }
    world
}

fn get(world: &mut World, path: &str, fields: &str) -> Response {
    world.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n")).1
}

/// How many passwords helpers were given to compare.
fn compared(world: &World) -> u64 {
    let place = JobKind::ALL.iter().position(|kind| *kind == JobKind::Verify).expect("a kind");
    world.engine.counters().jobs[place].started
}

#[test]
fn only_users_get_an_answer() {
    let mut world = world();
    for (path, fields, status) in [
        ("/private/a", "", 401),
        ("/private/a", ANN, 200),
        ("/private/a", "", 401),
        ("/private/a", ANN_WRONG, 401),
        ("/private/a", BOB, 401),
        ("/private/a", EVE, 401),
        ("/private/a", "Authorization: Bearer x\r\n", 401),
        ("/private/a", &format!("{ANN}{ANN}"), 401),
        ("/private/none", ANN, 404),
        ("/private/none", BOB, 401),
        ("/x/%2e%2e//private/%61", "", 401),
        ("/x/%2e%2e//private/%61", ANN, 200),
        ("/private/eve/a", ANN, 401),
        ("/private/eve/a", EVE, 200),
        ("/b", "", 200),
        ("/b", BOB, 200),
    ] {
        for _ in 0..3 {
            let answer = get(&mut world, path, fields);
            let challenge = (status == 401).then_some("Basic realm=\"Restricted\", charset=\"UTF-8\"");
            assert_eq!(
                (answer.status, answer.field("WWW-Authenticate")),
                (status, challenge),
                "{path} {fields}"
            );
        }
    }
    world.end();
}

#[test]
fn a_rewritten_path_needs_the_users_of_both() {
    let mut world = world();
    for (path, fields, status) in [
        ("/open/a", "", 401),
        ("/open/a", EVE, 401),
        ("/open/a", ANN, 200),
        ("/new/a", "", 401),
        ("/new/a", ANN, 401),
        ("/new/a", EVE, 401),
        ("/new/eve/a", EVE, 200),
        ("/private/old/a", ANN, 200),
        ("/private/old/a", "", 401),
    ] {
        assert_eq!(get(&mut world, path, fields).status, status, "{path} {fields}");
    }
    world.end();
}

#[test]
fn a_password_is_compared_once_in_a_while() {
    let mut world = world();
    for (fields, lasts_ms) in
        [(ANN, RIGHT_PASSWORD_MS), (ANN_WRONG, WRONG_PASSWORD_MS), (BOB, WRONG_PASSWORD_MS)]
    {
        let before = compared(&world);
        let statuses = [0, 1, 2].map(|_| get(&mut world, "/private/a", fields).status);
        assert_eq!(compared(&world) - before, 1, "{fields}");
        world.pass(lasts_ms);
        assert_eq!(get(&mut world, "/private/a", fields).status, statuses[0]);
        assert_eq!(compared(&world) - before, 2, "{fields}");
        world.pass(RIGHT_PASSWORD_MS);
    }
    // Without a password nobody needs to look.
    let before = compared(&world);
    get(&mut world, "/private/a", "");
    assert_eq!(compared(&world), before);
    world.end();
}

#[test]
fn requests_with_the_same_password_wait_together() {
    let mut world = world();
    let clients: Vec<_> = (0..5).map(|_| world.connect()).collect();
    for client in &clients {
        client.send(format!("GET /private/a HTTP/1.1\r\nHost: a\r\n{ANN}\r\n"));
    }
    world.run();
    for client in &clients {
        assert_eq!(client.take_one().status, 200);
    }
    assert_eq!(compared(&world), 1);
    world.end();
}

#[test]
fn a_server_gets_only_requests_of_users() {
    let mut world = world();
    for fields in ["", ANN_WRONG, BOB] {
        let client = world.connect();
        client.send(format!("POST /one/x HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 3\r\n\r\nabc"));
        world.run();
        assert_eq!((client.take_one().status, world.machine.asked.len()), (401, 0), "{fields}");
    }
    for _ in 0..2 {
        let request = format!("POST /one/x HTTP/1.1\r\nHost: a\r\n{ANN}Content-Length: 3\r\n\r\nabc");
        let (client, server) = ask(&mut world, &request);
        server.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
        world.run();
        assert_eq!(client.take_one().status, 200);
        server.end();
        client.end();
        world.run();
    }
    world.end();
}

#[test]
fn streams_have_passwords_of_their_own() {
    let mut world = world();
    let mut streams = connect(&mut world);
    let [with, without] = [
        streams.ask("GET", "/private/a", &[("authorization", "Basic YW5uOnNlY3JldA==")]),
        streams.get("/private/a"),
    ];
    exchange(&mut world, &mut streams);
    assert_eq!([with, without].map(|stream| streams.take(stream).status()), [200, 401]);
    world.end();
}

#[test]
fn a_script_learns_who_the_user_is() {
    let mut rules = guarded();
    let users = Users::new([("ann".to_owned(), "secret".to_owned())]).map(Arc::new);
    rules.sites[0].paths = PathRules::new(vec![PathRule { users, ..PathRule::new("/in/*") }]).into();
    let mut world = World::with(rules);
    ["in/a.php", "out.php"].iter().for_each(|path| world.machine.files.add(path, "source"));
    for (path, fields, user) in [("/in/a.php", ANN, "ann"), ("/out.php", ANN, ""), ("/out.php", "", "")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nRemote-User: eve\r\n{fields}\r\n");
        let (client, server) = ask(&mut world, request);
        let records = String::from_utf8_lossy(&server.take_bytes()).into_owned();
        let is_there = |text: &str| records.replace("HTTP_REMOTE_USER", "").contains(text);
        assert_eq!(is_there("REMOTE_USERann"), user == "ann", "{path}: {records}");
        assert_eq!(is_there("AUTH_TYPEBasic"), user == "ann", "{path}: {records}");
        assert_eq!(is_there("REMOTE_USER"), user == "ann", "{path}: {records}");
        client.reset();
        world.run();
    }
    assert_eq!(get(&mut world, "/in/a.php", BOB).status, 401);
    world.end();
}
