//! Which requests a server gets: a script must be a file beneath the root, and the server must read the path as Flash does.

use flash_engine::{LookUpError, Rules};

use crate::machine::World;
use crate::machine::client::request;
use crate::machine::world::FRESHNESS_MS;
use crate::relays::{ask, get, proxying, status, text};

/// A world in which a FastCGI application runs `.php`, and HTTP servers have `/p/` and `/one/`.
fn world() -> World {
    let mut world = World::with(proxying());
    world.machine.files.add("a.php", "source");
    world.machine.files.add("up/photo.png", "<?php evil");
    world.machine.files.add_directory("d.php");
    world.machine.files.add_special("fifo.php");
    world.machine.files.add_error("out.php", LookUpError::Missing);
    world.machine.files.add_error("private.php", LookUpError::Denied);
    world.machine.files.add_error("broken.php", LookUpError::Failed(5));
    world
}

#[test]
fn only_files_beneath_the_root_are_run() {
    let mut world = world();
    for (path, expected) in [
        ("/up/photo.png/x.php", 404),
        ("/up/none.php", 404),
        ("/out.php", 404),
        ("/d.php", 404),
        ("/d.php/x", 404),
        ("/fifo.php", 403),
        ("/private.php/x.php", 403),
        ("/broken.php", 500),
    ] {
        let (_, answer) = world.ask(get(path));
        assert_eq!((answer.status, world.machine.asked.len()), (expected, 0), "{path}");
    }
    world.machine.files.link("a.php", "a.PHP");
    for path in ["/a.php", "/a.PHP", "/a.php/x.php", "/a.php/"] {
        let client = world.connect();
        client.send(get(path));
        world.run();
        assert_eq!(world.machine.asked.len(), 1, "{path}");
        world.refuse_link();
        world.run();
    }
    world.end();
}

#[test]
fn a_script_is_looked_up_once() {
    let mut world = world();
    world.machine.files.add_cold("cold.php", "source");
    world.auto = false;
    world.machine.files.missing_cached = false;
    for (path, is_there) in [("/cold.php", true), ("/none.php/x", false)] {
        let client = world.connect();
        client.send(get(path));
        world.run();
        assert!(world.machine.asked.is_empty() && client.received_len() == 0, "{path} waits for a helper");
        world.finish_job();
        for _ in 0..3 {
            assert_eq!(world.machine.asked.len(), usize::from(is_there), "{path}");
            assert!(world.machine.helpers.running.is_empty());
            if is_there {
                world.refuse_link();
                world.run();
            }
            assert_eq!(status(&client), if is_there { 502 } else { 404 });
            client.send(get(path));
            world.run();
        }
        client.reset();
        world.run();
        while !world.machine.asked.is_empty() {
            world.refuse_link();
            world.run();
        }
    }
    // A script that is created runs as soon as its absence is no longer believed.
    world.machine.files.add("none.php", "source");
    world.advance(2_000);
    world.auto = true;
    let (_, server) = ask(&mut world, get("/none.php"));
    assert!(text(&server.take_bytes()).contains("/none.php"));
}

#[test]
fn no_request_waits_for_the_check_of_a_script() {
    let mut world = world();
    world.auto = false;
    let ask = |world: &mut World, expected: u16| {
        let before = world.engine.counters();
        let client = world.connect();
        client.send(get("/a.php"));
        world.run();
        if expected == 502 {
            assert_eq!(world.machine.asked.len(), 1, "a server is asked at once");
            world.refuse_link();
            world.run();
        }
        assert_eq!(status(&client), expected);
        let counters = world.engine.counters();
        (counters.name_hits - before.name_hits, counters.name_misses - before.name_misses)
    };
    assert_eq!(ask(&mut world, 502), (0, 1));
    // Long unused, and then only a helper can tell.
    world.pass(3 * FRESHNESS_MS);
    world.machine.files.missing_cached = false;
    world.machine.files.remove("a.php");
    for _ in 0..2 {
        assert_eq!(ask(&mut world, 502), (1, 0), "each look-up is a hit or a miss");
    }
    world.finish_job();
    assert_eq!(ask(&mut world, 404), (1, 0));
    world.end();
}

#[test]
fn a_request_that_waits_for_its_script_can_be_large_late_or_left() {
    let mut world = world();
    world.auto = false;
    ["0.php", "1.php", "2.php"].iter().for_each(|name| world.machine.files.add_cold(name, "source"));
    // The body waits with it.
    let client = world.connect();
    client.send(request("POST", "/0.php", "Content-Length: 3\r\n"));
    world.run();
    client.send("abc");
    world.run();
    world.finish_job();
    let server = world.link();
    world.run();
    assert!(text(&server.take_bytes()).contains("abc"));
    client.reset();
    world.run();
    // A client that leaves takes its job along, and one whose helper dies gets an answer.
    let client = world.connect();
    client.send(get("/1.php"));
    world.run();
    let job = world.job();
    client.reset();
    world.run();
    world.finish(job);
    world.run();
    assert!(world.machine.asked.is_empty());
    let client = world.connect();
    client.send(get("/2.php"));
    world.run();
    let job = world.job();
    world.lose(job);
    world.run();
    assert_eq!(status(&client), 503);
    world.end();
}

#[test]
fn servers_with_files_of_their_own_get_every_script() {
    let own = |mut rules: Rules| {
        rules.sites[0].routes[2].has_own_files = true;
        rules
    };
    let mut world = World::with(own(proxying()));
    let (_, server) = ask(&mut world, get("/none.php"));
    assert!(text(&server.take_bytes()).contains("/none.php"));
    world.end();
}

#[test]
fn no_form_of_a_script_is_sent() {
    let mut world = world();
    for form in ["a.php.gz", "a.php.br", "a.php.zst", "a.PHP.GZ", "a.php.gz.br", "a.php.gz.gz"] {
        world.machine.files.add(form, "source");
        let (_, answer) = world.ask(get(&format!("/{form}")));
        assert_eq!(answer.status, 404, "{form}");
    }
    world.machine.files.add("a.html", "text");
    world.machine.files.add("a.html.gz", "zip");
    for (path, body) in [("/a.html.gz", "zip"), ("/a.html", "text")] {
        assert_eq!(world.get(path).body, body.as_bytes());
    }
    world.end();
}

#[test]
fn a_path_that_a_server_could_read_differently_is_refused() {
    let mut world = world();
    for path in [
        "/admin/..%2fp/x",
        "/p/a/../x",
        "/p/./x",
        "/p/..%5c..%5cadmin",
        "/p/%2e%2E/p/x",
        "/p/a%2f..%2fx",
        "/p/..;x/admin",
        "/p%2Fx",
        "//p/x",
        "/p%5cx%2f../p/x",
        "/x%2fa.php/../a.php",
    ] {
        let (_, answer) = world.ask(get(path));
        assert_eq!((answer.status, world.machine.asked.len()), (400, 0), "{path}");
    }
    for path in [
        "/p/a%2Fb",
        "/p/http://h//x",
        "/p/a%20b%3F%23%25",
        "/p/%C3%A9",
        "/p/...",
        "/p/a..b/.x",
        "/p/a%5Cb",
        "/%70/x",
        "/p/a;b=..",
    ] {
        let (_, server) = ask(&mut world, get(path));
        assert!(text(&server.take_bytes()).starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{path}");
        server.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
        server.end();
        world.run();
    }
    world.end();
}
