//! Files that answer for paths without their extension.

use std::sync::Arc;

use flash_engine::{
    Access, AliasOf, Concurrency, FieldChanges, PathPattern, PathRule, PathRules, Rate, Rates, Redirect,
    RoutePaths, Rules, SiteId, SiteRules, Target,
};
use flash_http::response::Status;

use super::relays::proxying;
use crate::machine::World;
use crate::machine::world::rules;

fn trying(pattern: &str, extensions: &[&str]) -> PathRule {
    let extensions = extensions.iter().map(|extension| (*extension).into()).collect();
    PathRule { extensions, ..PathRule::new(pattern) }
}

fn closed(pattern: &str) -> PathRule {
    let deny = ["0.0.0.0/0", "::/0"].map(|it| it.parse().unwrap()).to_vec();
    PathRule { access: Access { deny, ..Access::default() }, ..PathRule::new(pattern) }
}

fn with(paths: Vec<PathRule>) -> World {
    let mut rules = rules();
    rules.sites[0].paths = Arc::new(PathRules::new(paths));
    World::with(rules)
}

#[test]
fn a_path_without_its_extension_has_the_file_with_it() {
    let set = vec![("X-Page".to_owned(), "yes".to_owned())];
    let mut world = with(vec![
        trying("/only/*", &["txt"]),
        trying("*", &["html", "txt"]),
        PathRule { fields: FieldChanges { set, ..FieldChanges::default() }, ..PathRule::new("*.html") },
        PathRule { fallback: Some(b"/404.html".to_vec()), ..PathRule::new("/app/*") },
        PathRule {
            redirect: Some(Redirect { status: Status::FOUND, target: Target::new("/$1") }),
            ..PathRule::new("/old/*.html")
        },
    ]);
    for name in ["about.html", "both", "both.html", "note.txt", "note2.html", "note2.txt", "404.html"] {
        world.machine.files.add(name, name);
    }
    for name in ["team.html", "team/index.html", "team/a.html", "only/a.html", "only/b.txt", "d/.html"] {
        world.machine.files.add(name, name);
    }
    ["d", "team"].into_iter().for_each(|name| world.machine.files.add_directory(name));
    world.machine.files.add_cold("cold.txt", "cold.txt");
    for _ in 0..3 {
        for (path, content) in [
            ("/about", "about.html"),
            ("/about.html", "about.html"),
            ("/both", "both"),
            ("/note", "note.txt"),
            ("/note2", "note2.html"),
            ("/cold", "cold.txt"),
            // The page of a folder stands beside it.
            ("/team", "team.html"),
            ("/team/", "team/index.html"),
            ("/team/a", "team/a.html"),
            ("/only/b", "only/b.txt"),
            ("/app/x", "404.html"),
        ] {
            let answer = world.get(path);
            assert_eq!((answer.status, answer.text().as_str()), (200, content), "{path}");
            let is_page = content.ends_with(".html") && !path.ends_with('/');
            assert_eq!(answer.field("X-Page").is_some(), is_page, "{path}");
            let media = if content.ends_with(".html") { "text/html" } else { "text/plain" };
            let kind = answer.field("Content-Type").unwrap_or_default();
            assert!(content == "both" || kind.starts_with(media), "{path}: {kind}");
        }
        for path in ["/none", "/only/a", "/about/", "/about.htm", "/about.html.html"] {
            assert_eq!(world.get(path).status, 404, "{path}");
        }
        assert_eq!(world.get("/d").field("Location"), Some("/d/"), "no page, so the folder");
        assert_eq!(world.get("/old/x.html").field("Location"), Some("/x"));
    }
    world.end();
}

#[test]
fn no_extension_leads_around_a_rule() {
    let mut world = with(vec![
        closed("/secret.html"),
        closed("/in/*"),
        PathRule { except: vec![PathPattern::new("/p")], ..closed("/p*") },
        trying("*", &["html", "txt"]),
    ]);
    for name in ["secret.html", "secret.txt", "in/a.html", "p.html", ".hidden.html"] {
        world.machine.files.add(name, name);
    }
    for _ in 0..3 {
        assert_eq!(world.get("/secret").text(), "secret.txt", "the next one is open");
        for (path, status) in [("/secret.html", 403), ("/in/a", 403), ("/p", 404), ("/.hidden", 404)] {
            assert_eq!(world.get(path).status, status, "{path}");
        }
    }
    world.end();
}

#[test]
fn no_extension_leads_around_a_bound_or_a_route() {
    let rate = Rate { interval_us: 60_000_000, burst: 1 };
    let limited = PathRule { rates: Rates { of_client: Some(rate), of_all: None }, ..PathRule::new("*.iso") };
    let concurrency = Concurrency { of_client: Some(1), of_all: None };
    let bounded = PathRule { concurrency, ..PathRule::new("*.img") };
    let mut rules = proxying();
    rules.sites[0].routes[1].paths = RoutePaths::Prefix(b"/status.txt".to_vec());
    rules.sites[0].routes[0].files_first = true;
    let paths = vec![limited, bounded, trying("*", &["iso", "img", "txt"])];
    rules.sites[0].paths = Arc::new(PathRules::new(paths));
    let mut world = World::with(rules);
    for name in ["a.iso", "a.img", "status.txt", "b.txt", "p/team.txt", "p/team/x", ".well-known.txt"] {
        world.machine.files.add(name, name);
    }
    ["p/team", ".well-known"].into_iter().for_each(|name| world.machine.files.add_directory(name));
    for _ in 0..3 {
        assert_eq!(world.get("/b").text(), "b.txt");
        for path in ["/a", "/status"] {
            assert_eq!(world.get(path).status, 404, "{path}");
        }
        // A route looks for the file of the path alone, whatever is known.
        for (path, location) in [("/p/team", "/p/team/"), ("/.well-known", "/.well-known/")] {
            assert_eq!(world.get(path).field("Location"), Some(location));
        }
    }
    world.end();
}

#[test]
fn the_file_of_the_path_itself_answers_as_soon_as_it_is_there() {
    let mut rules = rules();
    rules.freshness_ms = 0;
    rules.sites[0].paths = Arc::new(PathRules::new(vec![trying("*", &["html"])]));
    let mut world = World::with(rules);
    world.machine.files.add("a.html", "with");
    (0..3).for_each(|_| assert_eq!(world.get("/a").text(), "with"));
    world.machine.files.add("a", "without");
    world.advance(1);
    (0..3).for_each(|_| assert_eq!(world.get("/a").text(), "without"));
    world.end();
}

#[test]
fn extensions_are_those_of_the_folder_that_has_the_path() {
    let mut rules: Rules = rules();
    let paths = vec![
        PathRule { alias: Some(SiteId(1)), ..PathRule::new("/docs/*") },
        trying("/docs/*", &["html"]),
        trying("/docs", &["txt"]),
    ];
    rules.sites[0].paths = Arc::new(PathRules::new(paths));
    let alias_of = Some(AliasOf { site: SiteId(0), prefix: b"/docs".to_vec() });
    rules.sites.push(SiteRules { root: "/manual".into(), alias_of, ..rules.sites[0].clone() });
    let mut world = World::with(rules);
    world.machine.files.roots = ["www/", "manual/"].map(str::to_owned).to_vec();
    ["", "www", "manual"].into_iter().for_each(|name| world.machine.files.add_directory(name));
    world.machine.files.add("manual/a.html", "of the manual");
    for _ in 0..3 {
        assert_eq!(world.get("/docs/a").text(), "of the manual");
        assert_eq!(world.get("/docs/b").status, 404);
        assert_eq!(world.get("/docs").field("Location"), Some("/docs/"));
    }
    world.machine.files.add("www/docs.txt", "of the root");
    world.advance(60_000);
    assert_eq!(world.get("/docs").text(), "of the root");
    world.end();
}
