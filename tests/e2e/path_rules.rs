//! Rules of a site for paths, as the documents show them, and very many of them.

use std::fs::{self, Permissions};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;

use crate::harness::documented::block;
use crate::harness::{
    Client, Folder, Launch, Server, Wire, adapted, is, kill, only_plain, pattern, skips, stats_at,
    wait_until, wire,
};

fn fields(server: &Server, path: &str, names: &[&str]) -> (u16, Vec<Option<String>>) {
    let page = server.get(path);
    (page.status, names.iter().map(|name| page.field(name).map(str::to_owned)).collect())
}

#[test]
fn the_rules_of_the_documents_do_what_they_say() {
    let folder = Folder::new();
    let manual = folder.write("manual/a.html", "content").parent().unwrap().display().to_string();
    let rules = block("docs/config.md", "the_rules_of_the_documents_do_what_they_say");
    let rules = rules.replace("/usr/share/doc/manual", &manual);
    for name in [
        "assets/app.3f2a9c1b.js",
        "data/a.json",
        "item.php",
        "font.woff2",
        "download/a.html",
        "articles/one/index.html",
        "a.html",
        "internal/a.html",
        "private/a.html",
        "profiles/ann.html",
        "guide/start.html",
        "app/index.html",
        "shop/index.html",
        "shop/a.js",
        "errors/404.html",
        "errors/sorry.html",
        "search/a",
    ] {
        folder.www(name, "content");
    }
    folder.www("members/a", "content");
    write_users(&folder, USERS);
    let server =
        Launch::configured(&folder, &format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{rules}")).start();
    let names = ["X-Frame-Options", "Cache-Control", "Access-Control-Allow-Origin", "Content-Disposition"];
    let some = |value: &str| Some(value.to_owned());
    for _ in 0..3 {
        for (path, status, control, origin, disposition) in [
            ("/a.html", 200, None, None, None),
            ("/assets/app.3f2a9c1b.js", 200, some("public, max-age=31536000, immutable"), None, None),
            ("/assets/none.js", 404, None, None, None),
            ("/font.woff2", 200, None, some("*"), None),
            ("/download/a.html", 200, None, None, some("attachment")),
            ("/internal/a.html", 200, None, None, None),
            ("/private/a.html", 200, some("no-store"), None, None),
            ("/members/a", 401, None, None, None),
            ("/blog/one/index.html", 301, None, None, None),
        ] {
            let expected = vec![some("DENY"), control, origin, disposition];
            assert_eq!(fields(&server, path, &names), (status, expected), "{path}");
        }
    }
    assert_eq!(fields(&server, "/blog/one/index.html", &["Location"]).1, [some("/articles/one/")]);
    assert_eq!(server.get("/articles/one/").status, 200);
    for (path, status) in [
        ("/user/ann", 200),
        ("/item/7", 200),
        ("/user/bob", 404),
        ("/guide/start", 200),
        ("/guide/none", 404),
        ("/app/", 200),
        ("/app/items/7", 200),
        ("/appendix", 404),
        ("/shop/items/7", 200),
        ("/shop/a.js", 200),
        ("/shop/none.js", 404),
        ("/manual/a.html", 200),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    for (origin, allowed) in
        [("https://www.example.org", some("https://www.example.org")), ("https://other.example", None)]
    {
        let answer = server.get_with("/data/a.json", &[&format!("Origin: {origin}")]);
        let found = (answer.status, answer.field("Access-Control-Allow-Origin"), answer.field("Vary"));
        assert_eq!(found, (200, allowed.as_deref(), Some("Origin")));
    }
    let searches: Vec<u16> = (0..200).map(|_| server.get("/search/a").status).collect();
    assert!(searches[..20].iter().all(|status| *status == 200) && searches.contains(&429), "{searches:?}");
    folder.www("errors/404.html", "changed");
    assert_eq!(server.get("/none").text(), "content", "as it was at the start");
    server.signal("HUP");
    wait_until("the new page", || server.get("/none").text() == "changed");
}

#[test]
fn a_site_has_one_canonical_host() {
    let folder = Folder::new();
    folder.www("a", "content");
    let site = block("docs/config.md", "a_site_has_one_canonical_host");
    let site = site.replace("/srv/example", &folder.path("www").display().to_string());
    let www = "[[site]]\nhosts = [\"www.example.org\"]\nroot = \"www\"\n";
    let server = Launch::configured(&folder, &format!("listen = [\"127.0.0.1:0\"]\n{site}\n{www}")).start();
    let ask = |host: &str| {
        let mut client = server.client();
        client.send(format!("GET /a?b=%20 HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let page = client.page();
        (page.status, page.field("Location").map(str::to_owned))
    };
    assert_eq!(ask("example.org"), (301, Some("https://www.example.org/a?b=%20".to_owned())));
    assert_eq!(ask("www.example.org"), (200, None));
}

#[test]
fn a_site_with_a_hundred_thousand_redirects_starts_and_finds_each() {
    // All suites read them alike, and a start with all takes seconds.
    let count: u32 = if is(&["amped"]) && wire() == Wire::Plain { 100_000 } else { 10_000 };
    let folder = Folder::new();
    // Every second one is for all paths of a folder.
    let rule = |number: u32| match number % 2 {
        0 => format!("[[rule]]\npath = \"/old/{number}\"\nredirect = \"/new/{number}\"\n"),
        _ => format!("[[rule]]\npath = \"/old/{number}/*\"\nredirect = \"/new/{number}/$1\"\n"),
    };
    let rules: String = (0..count).map(rule).collect();
    let server =
        Launch::configured(&folder, &format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{rules}")).start();
    for number in [0, 1, count / 2, count / 2 + 1, count - 2, count - 1] {
        let rest = if number % 2 == 0 { "" } else { "/a/b" };
        let found = fields(&server, &format!("/old/{number}{rest}"), &["Location"]);
        assert_eq!(found, (302, vec![Some(format!("/new/{number}{rest}"))]));
    }
    assert_eq!(server.get(&format!("/old/{count}")).status, 404);
}

#[test]
fn clients_that_a_rule_does_not_admit_get_403() {
    let folder = Folder::new();
    for name in ["closed/a.txt", "far/a.txt", "open/a.txt"] {
        folder.www(name, "content");
    }
    let rules = "[[rule]]\npath = \"/closed/*\"\ndeny = [\"loopback\"]\n[[rule]]\npath = \"/far/*\"\nallow = [\"192.0.2.0/24\"]\n";
    let server =
        Launch::configured(&folder, &format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{rules}")).start();
    for _ in 0..3 {
        for (path, status) in
            [("/open/a.txt", 200), ("/closed/a.txt", 403), ("/far/a.txt", 403), ("/far/none", 403)]
        {
            assert_eq!(server.get(path).status, status, "{path}");
        }
    }
}

/// `ann`, whose password is `secret`, stored by `htpasswd -B`, `bob` with the same by `openssl passwd -6`, and `cat` by
/// argon2-cffi.
const USERS: &str = "ann:$2y$05$h6UM9HCarBAVMwnRiQYRuOYeRV4x/6TcBjwooJMlnuMEYyNSMmXa.\n\
    bob:$6$rounds=2000$abcdefgh$js.Oqma4t2Fwxd5k1k7HZc8PJANjCww6bXOf6rha5ucSTdmrEHzoB1xTT6hSCKIARQkqP2BCwtC1eCAzLkvzb1\n\
    cat:$argon2id$v=19$m=1024,t=1,p=1$v64e2/X+3xw/4ff0g9LClg$/MUjbvsEGNTVJsG9CIlB/9PKH52mozCmlIAtRgY2Zt8\n";

fn write_users(folder: &Folder, users: &str) {
    fs::write(folder.path("users"), users).unwrap();
    fs::set_permissions(folder.path("users"), Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn only_users_get_the_files_of_a_rule() {
    let folder = Folder::new();
    folder.www("private/a", "content");
    folder.www("b", "content");
    write_users(&folder, USERS);
    let rules = "[[rule]]\npath = \"/private/*\"\nusers = \"users\"\n";
    let server =
        Launch::configured(&folder, &format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{rules}")).start();
    let status = |path: &str, credentials: &str| {
        let field = format!("Authorization: Basic {credentials}");
        let fields = [field.as_str()];
        server.get_with(path, if credentials.is_empty() { &[] } else { &fields }).status
    };
    let (ann, bob, cat) = ("YW5uOnNlY3JldA==", "Ym9iOnNlY3JldA==", "Y2F0OnNlY3JldA==");
    // ann:wrong and eve:secret.
    let (wrong, eve) = ("YW5uOndyb25n", "ZXZlOnNlY3JldA==");
    for _ in 0..3 {
        let statuses = ["", ann, bob, cat, wrong, eve].map(|credentials| status("/private/a", credentials));
        assert_eq!(statuses, [401, 200, 200, 200, 401, 401]);
        assert_eq!(status("/b", ""), 200);
    }
    write_users(&folder, USERS.lines().next().unwrap());
    server.signal("HUP");
    wait_until("the new users", || status("/private/a", bob) == 401);
    assert_eq!(status("/private/a", ann), 200);
}

#[test]
fn paths_of_an_app_cost_no_helper_each() {
    const PATHS: u32 = 50;
    if skips(&["sped", "mp", "mt"], "they look up names themselves") {
        return;
    }
    let folder = Folder::new();
    folder.www("index.html", "app");
    let control = folder.path("control");
    let rules = "[[rule]]\npath = \"/app/*\"\nfallback = \"/index.html\"\n\
                 [[rule]]\nexcept = [\"*.*\"]\nrewrite = \"/index.html\"\n";
    let config = format!("root = \"www\"\nworkers = 1\nlisten = [\"127.0.0.1:0\"]\n{rules}");
    let server = Launch::configured(&folder, &config).arg("--control").arg(&control).start();
    let look_ups = |beneath: &str| {
        let started = || stats_at(&control)["sum"]["jobs"]["find"]["started"].as_u64().unwrap();
        assert_eq!(server.get(&format!("{beneath}first")).text(), "app");
        let before = started();
        for number in 0..PATHS {
            assert_eq!(server.get(&format!("{beneath}{number}")).text(), "app");
        }
        started() - before
    };
    // Some look up the app's file, or a directory that the kernel has forgotten.
    for beneath in ["/app/deep.d/", "/"] {
        let look_ups = look_ups(beneath);
        assert!(look_ups < u64::from(PATHS) / 5, "{beneath}: {look_ups} of {PATHS}");
    }
}

#[test]
fn all_workers_count_the_requests_of_a_client_together() {
    let folder = Folder::new();
    folder.www("a", "content");
    folder.www("b", "content");
    let rules = |rate| format!("[[rule]]\npath = \"/a\"\nrate = \"{rate}\"\nburst = 5\n");
    let config = |rate| {
        let workers =
            if skips(&["mp"], "its processes share nothing but this") { "" } else { "workers = 4\n" };
        format!("root = \"www\"\n{workers}listen = [\"127.0.0.1:0\"]\n{}", rules(rate))
    };
    let server = Launch::configured(&folder, &config("5/h")).start();
    let statuses = |path: &str| {
        let mut statuses: Vec<u16> = (0..40).map(|_| server.get(path).status).collect();
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(statuses("/a"), [[200].repeat(5), [429].repeat(35)].concat());
    assert_eq!(statuses("/b"), [200].repeat(40));
    let refused = server.get("/a");
    let retry_after_s: u32 = refused.field("Retry-After").unwrap().parse().unwrap();
    assert!((1..=720).contains(&retry_after_s), "{retry_after_s}");
    // A reload with the same rate gives nobody new requests; one with another rate does.
    server.signal("HUP");
    wait_until("the reload", || server.announcements().len() == 2);
    assert_eq!(statuses("/a"), [429].repeat(40));
}

#[test]
fn a_flood_from_many_addresses_gets_no_more_than_the_rate_of_all() {
    if only_plain("its clients have addresses of their own") {
        return;
    }
    const CLIENTS: usize = 500;
    let folder = Folder::new();
    folder.www("a", "content");
    folder.www("b", "content");
    let rule = "[[rule]]\npath = \"/a\"\nrate = \"3/h\"\ntotal_rate = \"60/h\"\n";
    let server =
        Launch::configured(&folder, &format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\n{rule}")).start();
    let mut statuses = Vec::new();
    for number in 0..CLIENTS {
        let own = Ipv4Addr::new(127, 1, (number / 250) as u8, (number % 250 + 1) as u8);
        let mut client = Client::from(own.into(), server.addresses[0]);
        statuses.extend((0..4).map(|_| client.get("/a").status));
        assert_eq!(client.get("/b").status, 200);
    }
    // The first 20 clients use up what all have, and each is refused its fourth request.
    let first = [200, 200, 200, 429].repeat(20);
    assert_eq!(statuses, [first, [503].repeat((CLIENTS - 20) * 4)].concat());
}

#[test]
fn a_client_has_as_many_downloads_at_once_as_a_rule_admits() {
    if only_plain("the carrier reads for a slow client") {
        return;
    }
    let folder = Folder::new();
    folder.www("isos/large", pattern(30_000_000, 1));
    folder.www("isos/small", "content");
    folder.www("small", "content");
    let rule = "[[rule]]\npath = \"/isos/*\"\nconcurrency = 2\n";
    let config = format!("root = \"www\"\nworkers = 1\nlisten = [\"127.0.0.1:0\"]\n{rule}");
    let server = Launch::configured(&folder, &config).start();
    let downloads = [0, 1].map(|_| {
        let mut client = server.client();
        client.send(Client::request_bytes("GET", "/isos/large", &[]));
        client
    });
    wait_until("two downloads", || server.get("/isos/small").status == 429);
    assert_eq!(server.get("/isos/small").field("Retry-After"), Some("1"));
    assert_eq!(server.get("/small").text(), "content");
    drop(downloads);
    wait_until("the end of the downloads", || server.get("/isos/small").text() == "content");
}

/// Clients that ask for a large file, and the number of those that get it. The others are refused.
fn downloads(server: &Server, clients: usize) -> (Vec<Client>, usize) {
    let mut all: Vec<Client> = (0..clients).map(|_| server.client()).collect();
    all.iter_mut().for_each(|client| client.send(Client::request_bytes("GET", "/isos/large", &[])));
    let statuses: Vec<u16> =
        all.iter_mut().map(|client| client.receive_head().map_or(0, |(page, _)| page.status)).collect();
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let begun = statuses.iter().filter(|status| **status == 200).count();
    (all, begun)
}

#[test]
fn workers_together_answer_as_many_requests_as_a_rule_admits() {
    if skips(&["mt"], "it has one process") || only_plain("the carrier reads for a slow client") {
        return;
    }
    const MOST: usize = 3;
    let folder = Folder::new();
    folder.www("isos/large", pattern(30_000_000, 1));
    folder.www("isos/small", "content");
    let rule = format!("[[rule]]\npath = \"/isos/*\"\ntotal_concurrency = {MOST}\n");
    let new = "[[rule]]\npath = \"/new\"\nredirect = \"/\"\n";
    let workers = if is(&["mp"]) { "processes = 24" } else { "workers = 3" };
    let config = format!("root = \"www\"\n{workers}\nlisten = [\"127.0.0.1:0\"]\n{rule}");
    let server = Launch::configured(&folder, &config).start();
    let (old, begun) = downloads(&server, 12);
    // Two workers that want the last place at the same moment may both leave it.
    assert!((1..=MOST).contains(&begun), "{begun}");
    folder.write("flash.toml", adapted(&format!("{config}{new}")));
    server.signal("HUP");
    wait_until("the new configuration", || server.get("/new").status == 302);
    let (_, after_reload) = downloads(&server, 12);
    assert!(
        begun + after_reload <= MOST,
        "{begun} and {after_reload}: those of workers that drain count too"
    );
    // The requests of a worker that is killed have ended.
    server.role("worker").into_iter().for_each(|worker| kill("KILL", worker));
    drop(old);
    wait_until("all places", || downloads(&server, 12).1 == MOST);
}
