//! Aliases: folders apart from the root of a site, with the files of some of its paths.

use std::sync::Arc;

use flash_engine::{
    Access, AliasOf, FieldChanges, PathRule, PathRules, Rate, Rates, Rules, SiteId, SiteRules, Target,
};

use super::h2::{connect, exchange};
use super::relays::{ask, get, proxying, text};
use crate::machine::World;
use crate::machine::world::FRESHNESS_MS;

/// `/docs/` and `/docs/old/` lie in folders of their own; the routes are those of [`proxying`].
fn with_aliases(others: Vec<PathRule>) -> World {
    let mut rules = proxying();
    let alias = |pattern: &str, number| PathRule { alias: Some(SiteId(number)), ..PathRule::new(pattern) };
    let of_aliases = vec![alias("/docs/old/*", 1), alias("/docs/*", 2)];
    rules.sites[0].paths = Arc::new(PathRules::new([others, of_aliases].concat()));
    for prefix in ["/docs/old", "/docs"] {
        let alias_of = Some(AliasOf { site: SiteId(0), prefix: prefix.into() });
        let alias = SiteRules { root: prefix.into(), alias_of, ..rules.sites[0].clone() };
        rules.sites.push(alias);
    }
    with_files(rules)
}

fn with_files(rules: Rules) -> World {
    let mut world = World::with(rules);
    world.machine.files.roots = ["www/", "old/", "manual/"].map(str::to_owned).to_vec();
    for (name, content) in [
        ("www/a", "of the root"),
        ("www/docs/a", "never"),
        ("www/index.html", "index"),
        ("manual/a", "of the manual"),
        ("manual/index.html", "contents"),
        ("manual/part/b", "a part"),
        ("manual/old/a", "never"),
        ("old/a", "of the old one"),
    ] {
        world.machine.files.add(name, content);
    }
    for name in ["", "www", "manual", "manual/part", "old"] {
        world.machine.files.add_directory(&format!("{name}/"));
        world.machine.files.add_directory(name);
    }
    world
}

#[test]
fn the_files_of_an_alias_are_in_its_folder() {
    let mut world = with_aliases(vec![]);
    world.machine.files.add_cold("manual/cold", "cold");
    let mut streams = connect(&mut world);
    for _ in 0..3 {
        for (path, body) in [
            ("/a", "of the root"),
            ("/docs/a", "of the manual"),
            ("/docs/", "contents"),
            ("/docs/cold", "cold"),
            ("/docs/old/a", "of the old one"),
            ("/docs/../docs/part//b", "a part"),
        ] {
            let answer = world.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, body), "{path}");
            let stream = streams.get(path);
            exchange(&mut world, &mut streams);
            let answer = streams.take(stream);
            assert_eq!((answer.status(), text(&answer.body).as_str()), (200, body), "{path}");
        }
        assert_eq!(world.get("/docs/../a").text(), "of the root");
        assert_eq!(world.get("/docs/none").status, 404);
        assert_eq!(world.get("/docs/../../a").status, 400, "no path leads above its root");
        world.advance(FRESHNESS_MS + 1);
    }
    assert!(world.engine.counters().known_hits > 0);
    world.end();
}

#[test]
fn clients_see_only_the_paths_of_the_site() {
    let mut world = with_aliases(vec![]);
    for (path, location) in [
        ("/docs", Some("/docs/")),
        ("/docs?q", Some("/docs/?q")),
        ("/docs/old", Some("/docs/old/")),
        ("/docs/part", Some("/docs/part/")),
        ("/doc", None),
    ] {
        let answer = world.get(path);
        assert_eq!(answer.field("Location"), location, "{path}");
        assert_eq!(answer.status, if location.is_some() { 301 } else { 404 }, "{path}");
    }
    world.end();
}

#[test]
fn rules_are_for_the_paths_that_clients_know() {
    let set = vec![("X-Manual".to_owned(), "yes".to_owned())];
    let closed =
        Access { allow: Vec::new(), deny: ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap()).to_vec() };
    let rate = Rates { of_client: None, of_all: Some(Rate { interval_us: 3_600_000_000, burst: 2 }) };
    let mut world = with_aliases(vec![
        PathRule { fields: FieldChanges { set, ..FieldChanges::default() }, ..PathRule::new("/docs/*") },
        PathRule { access: closed, ..PathRule::new("/docs/part/*") },
        PathRule { rates: rate, ..PathRule::new("/docs/old/*") },
        PathRule { rewrite: Some(Target::new("/docs/$1")), ..PathRule::new("/manual/*") },
        PathRule { fallback: Some(b"/docs/a".to_vec()), ..PathRule::new("/missing*") },
        PathRule { fallback: Some(b"/a".to_vec()), ..PathRule::new("/docs/lost*") },
    ]);
    for _ in 0..3 {
        for (path, expected) in [
            ("/docs/a", (200, "of the manual", Some("yes"))),
            ("/a", (200, "of the root", None)),
            ("/manual/a", (200, "of the manual", Some("yes"))),
            ("/missing", (200, "of the manual", Some("yes"))),
            ("/docs/lost", (200, "of the root", None)),
        ] {
            let answer = world.get(path);
            let text = answer.text();
            assert_eq!((answer.status, text.as_str(), answer.field("X-Manual")), expected, "{path}");
        }
        assert_eq!(world.get("/docs/part/b").status, 403);
    }
    assert_eq!([0, 1, 2].map(|_| world.get("/docs/old/a").status), [200, 200, 503], "known heads count too");
    world.end();
}

#[test]
fn files_and_servers_of_the_site_come_before_each_other_as_elsewhere() {
    let mut rules = proxying();
    rules.sites[0].routes[1].files_first = true;
    let paths = vec![PathRule { alias: Some(SiteId(1)), ..PathRule::new("/one/*") }];
    rules.sites[0].paths = Arc::new(PathRules::new(paths));
    let alias_of = Some(AliasOf { site: SiteId(0), prefix: b"/one".to_vec() });
    rules.sites.push(SiteRules { root: "/old".into(), alias_of, ..rules.sites[0].clone() });
    let mut world = with_files(rules);
    world.machine.files.add("old/x.php", "source");
    world.machine.files.add_cold("old/cold", "cold");
    for _ in 0..3 {
        assert_eq!(world.get("/one/a").text(), "of the old one");
        assert_eq!(world.get("/one/cold").text(), "cold");
        // The source of a script is never sent.
        for path in ["/one/none", "/one/x.php"] {
            let (_, server) = ask(&mut world, get(path));
            assert!(text(&server.take_bytes()).starts_with(&format!("GET {path} HTTP/1.1\r\n")));
            server.end();
            world.run();
        }
    }
    world.end();
}

#[test]
fn an_application_names_files_of_aliases_too() {
    for (field, expected) in [
        ("X-Accel-Redirect: /docs/a", "of the manual"),
        ("X-Sendfile: /docs/old/a", "of the old one"),
        ("X-Sendfile: /docs/part/b", "a part"),
    ] {
        let mut world = with_aliases(vec![]);
        let (client, server) = ask(&mut world, get("/p/x"));
        server.send(format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 0\r\n\r\n"));
        world.run();
        assert_eq!(client.take_one().text(), expected, "{field}");
        world.end();
    }
}

#[test]
fn another_folder_answers_for_a_missing_file_also_after_waits() {
    let fallback =
        |pattern: &str, path: &str| PathRule { fallback: Some(path.into()), ..PathRule::new(pattern) };
    let set = vec![("X-Manual".to_owned(), "yes".to_owned())];
    let of_manual =
        PathRule { fields: FieldChanges { set, ..FieldChanges::default() }, ..PathRule::new("/docs/*") };
    let fallbacks = [fallback("/docs/lost*", "/cold"), fallback("/lost*", "/docs/cold")];
    let mut world = with_aliases([&fallbacks[..], &[of_manual]].concat());
    for folder in ["www", "manual"] {
        world.machine.files.add_cold(&format!("{folder}/cold"), folder);
    }
    // Only a helper can say that a file is missing.
    world.machine.files.missing_cached = false;
    for _ in 0..2 {
        for (path, expected) in [("/docs/lost/1", "www"), ("/lost/1", "manual")] {
            let answer = world.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, expected), "{path}");
            assert_eq!(answer.field("X-Manual").is_some(), expected == "manual", "{path}");
        }
        world.advance(FRESHNESS_MS + 1);
    }
    world.end();
}

#[test]
fn the_name_of_an_alias_leads_there_whatever_answers_for_missing_files() {
    let mut world = with_aliases(vec![PathRule { fallback: Some(b"/a".to_vec()), ..PathRule::new("*") }]);
    for _ in 0..2 {
        assert_eq!(world.get("/docs").field("Location"), Some("/docs/"));
        assert_eq!(world.get("/none").text(), "of the root");
    }
    world.end();
    let mut world = with_aliases(vec![PathRule { fallback: Some(b"/a.php".to_vec()), ..PathRule::new("*") }]);
    world.machine.files.add("www/a.php", "source");
    assert_eq!(world.get("/docs").field("Location"), Some("/docs/"));
    world.end();
}
