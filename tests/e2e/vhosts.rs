//! Sites by name: a request gets the files of its site, and never those of another.

use crate::harness::{
    Folder, Launch, Server, adapted, not_http2, only_plain, raise_own_descriptor_limit, skip, skips,
    wait_until,
};

const CONFIG: &str = "\
root = \"www\"
listen = [\"127.0.0.1:0\"]
workers = 1

[[site]]
hosts = [\"one.example\", \"www.one.example\"]
root = \"one\"

[[site]]
hosts = [\"*.wild.example\"]
root = \"wild\"
browse = true
index = [\"home.html\"]

[[site]]
hosts = [\"exact.wild.example\"]
root = \"exact\"

[[site]]
hosts = [\"*.deeper.wild.example\"]
root = \"deeper\"
precompressed = false
";

fn site(config: &str) -> (Folder, Server) {
    let folder = Folder::new();
    for name in ["www", "one", "wild", "exact", "deeper"] {
        folder.write(&format!("{name}/who.txt"), name);
        folder.write(&format!("{name}/only-{name}.txt"), name);
        folder.write(&format!("{name}/page.html"), "plain");
        folder.write(&format!("{name}/page.html.gz"), "coded");
    }
    folder.write("wild/home.html", "home");
    folder.write("one/index.html", "index");
    folder.write("wild/dir/x.txt", "x");
    folder.write("one/dir/x.txt", "x");
    let server = Launch::configured(&folder, config).start();
    (folder, server)
}

fn ask(server: &Server, host: &str, target: &str) -> (u16, String) {
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.page().brief()
}

#[test]
fn a_request_goes_to_the_site_of_its_host() {
    let (_folder, server) = site(CONFIG);
    let table = [
        ("one.example", "one"),
        ("www.one.example", "one"),
        ("ONE.Example", "one"),
        ("one.example:8080", "one"),
        ("one.example.", "one"),
        ("one.example.:8080", "one"),
        ("a.wild.example", "wild"),
        ("a.b.wild.example", "wild"),
        ("A.WILD.EXAMPLE:1", "wild"),
        ("exact.wild.example", "exact"),
        ("x.deeper.wild.example", "deeper"),
        ("deeper.wild.example", "wild"),
        ("wild.example", "www"),
        ("notwild.example", "www"),
        ("other.one.example", "www"),
        ("one.example.org", "www"),
        ("localhost", "www"),
        ("127.0.0.1", "www"),
        ("[::1]:80", "www"),
    ];
    // Several rounds on one path: each site has its own cache entries.
    for _ in 0..2 {
        for (host, name) in table {
            assert_eq!(ask(&server, host, "/who.txt"), (200, name.into()), "{host}");
        }
    }
}

#[test]
fn a_missing_file_in_one_site_may_exist_in_another() {
    let (_folder, server) = site(CONFIG);
    for _ in 0..2 {
        for (host, name) in
            [("one.example", "one"), ("a.wild.example", "wild"), ("exact.wild.example", "exact")]
        {
            for other in ["one", "wild", "exact"] {
                let status = if name == other { 200 } else { 404 };
                let answer = ask(&server, host, &format!("/only-{other}.txt"));
                assert_eq!(answer.0, status, "{host} /only-{other}.txt");
            }
        }
    }
}

#[test]
fn the_target_overrides_host() {
    if not_http2("it has other forms of targets") {
        return;
    }
    let (_folder, server) = site(CONFIG);
    let table = [
        ("GET http://one.example/who.txt HTTP/1.1\r\nHost: a.wild.example\r\n\r\n", "one"),
        ("GET http://a.wild.example:99/who.txt HTTP/1.1\r\nHost: one.example\r\n\r\n", "wild"),
        ("GET http://nobody.example/who.txt HTTP/1.1\r\nHost: one.example\r\n\r\n", "www"),
        ("GET http://one.example/who.txt HTTP/1.0\r\n\r\n", "one"),
        ("GET /who.txt HTTP/1.0\r\nHost: one.example\r\n\r\n", "one"),
        ("GET /who.txt HTTP/1.0\r\n\r\n", "www"),
    ];
    for (request, name) in table {
        let mut client = server.client();
        client.send(request);
        assert_eq!(client.page().brief(), (200, name.into()), "{request:?}");
    }
}

#[test]
fn hosts_may_change_from_one_request_to_the_next() {
    let (_folder, server) = site(CONFIG);
    let mut client = server.client();
    for _ in 0..3 {
        for (host, name) in [("one.example", "one"), ("x", "www"), ("q.wild.example", "wild")] {
            client.send(format!("GET /who.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(client.page().brief(), (200, name.into()));
        }
    }
}

#[test]
fn without_a_default_site_other_hosts_are_421() {
    if not_http2("a request without a host is malformed") {
        return;
    }
    let config = CONFIG.replace("root = \"www\"\n", "");
    let (_folder, server) = site(&config);
    assert_eq!(ask(&server, "one.example", "/who.txt"), (200, "one".into()));
    let mut client = server.client();
    for host in ["nobody.example", "localhost", "wild.example"] {
        client.send(format!("GET /who.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(client.page().status, 421, "{host}");
        client.send(format!("GET /.. HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!([400, 421].contains(&client.page().status), "{host}");
    }
    client.send("GET /who.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.page().status, 421, "no host is no site's");
    client.send("GET /who.txt HTTP/1.1\r\nHost: one.example\r\n\r\n");
    assert_eq!(client.page().brief(), (200, "one".into()), "the connection persists");
}

#[test]
fn each_site_has_its_own_settings() {
    let (_folder, server) = site(CONFIG);
    assert_eq!(ask(&server, "one.example", "/"), (200, "index".into()));
    assert_eq!(ask(&server, "a.wild.example", "/"), (200, "home".into()));
    assert_eq!(ask(&server, "one.example", "/dir/").0, 404);
    let (status, listing) = ask(&server, "a.wild.example", "/dir/");
    assert!(status == 200 && listing.contains("x.txt"), "{status} {listing}");
    for (host, text) in [("one.example", "coded"), ("x.deeper.wild.example", "plain")] {
        let mut client = server.client();
        client.send(format!("GET /page.html HTTP/1.1\r\nHost: {host}\r\nAccept-Encoding: gzip\r\n\r\n"));
        assert_eq!(client.page().brief(), (200, text.into()), "{host}");
    }
}

#[test]
fn no_symlink_leads_from_one_site_to_another() {
    let (folder, server) = site(CONFIG);
    std::os::unix::fs::symlink("../wild", folder.path("one/stolen")).unwrap();
    std::os::unix::fs::symlink("../wild/who.txt", folder.path("one/stolen.txt")).unwrap();
    for target in ["/stolen.txt", "/stolen/who.txt", "/stolen/"] {
        assert_eq!(ask(&server, "one.example", target).0, 404, "{target}");
    }
}

#[test]
fn a_missing_root_affects_only_its_site() {
    let config = format!("helper_idle = \"100ms\"\njob_deadline = \"5s\"\n{CONFIG}");
    let (folder, server) = site(&config);
    let mut number = 0;
    // Each of these needs a helper, and no earlier one is left.
    let mut miss = |host: &str| {
        wait_until("the helpers' end", || server.role("helper").is_empty());
        number += 1;
        ask(&server, host, &format!("/unheard-of-{number}")).0
    };
    assert_eq!(miss("one.example"), 404);
    assert_eq!(ask(&server, "a.wild.example", "/who.txt"), (200, "wild".into()));
    std::fs::remove_dir_all(folder.path("wild")).unwrap();
    assert_eq!(miss("one.example"), 404);
    wait_until("the site to be gone", || ask(&server, "a.wild.example", "/who.txt").0 == 404);
    assert_eq!(ask(&server, "one.example", "/who.txt"), (200, "one".into()));
}

#[test]
fn helpers_have_room_for_the_roots_of_many_sites() {
    let folder = Folder::with_hello();
    let site = |n| format!("[[site]]\nhosts = [\"h{n}.test\"]\nroot = \"www\"\n");
    let sites: String = (0..1024).map(site).collect();
    let config = format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n{sites}");
    let server = Launch::configured(&folder, &config).start();
    assert_eq!(server.get("/never-heard-of").status, 404);
}

#[test]
fn more_roots_than_a_reload_has_descriptors_for_are_refused() {
    let folder = Folder::with_hello();
    let site = |n| {
        folder.write(&format!("roots/{n}/who.txt"), format!("{n}"));
        format!("[[site]]\nhosts = [\"h{n}.test\"]\nroot = \"roots/{n}\"\n")
    };
    let sites: String = (0..300).map(site).collect();
    let config = format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n{sites}");
    let with = |descriptors: u32| {
        let script = format!("ulimit -n {descriptors}; exec \"$0\" \"$@\"");
        Launch::configured(&folder, &config).through(["sh", "-c", &script])
    };
    let (code, _, error) = with(600).fail();
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("too many folders") && error.contains("a process may have 600 here"), "{error}");
    let site = |n| format!("[[site]]\nhosts = [\"h{n}.test\"]\nroot = \"www\"\n");
    let sites: String = (0..580).map(site).collect();
    let config_of_one = format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n{sites}");
    let script = "ulimit -n 600; exec \"$0\" \"$@\"";
    let (code, _, error) = Launch::configured(&folder, &config_of_one).through(["sh", "-c", script]).fail();
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("a worker with 581 sites and aliases needs 605 descriptors"), "{error}");
    let server = with(2_000).start();
    for n in [0, 63, 64, 299] {
        assert_eq!(ask(&server, &format!("h{n}.test"), "/who.txt"), (200, n.to_string()));
    }
}

#[test]
fn ten_thousand_sites_are_served_and_reloaded() {
    if skips(&["mp"], "each of its many processes has all descriptors")
        || only_plain("sites are chosen above the wire")
    {
        return;
    }
    // A root for every two sites: a reload needs descriptors for the old and the new ones.
    const SITES: usize = 10_000;
    if !raise_own_descriptor_limit(SITES as u64 + 2_000) {
        return skip("needs more descriptors than this process may have");
    }
    let folder = Folder::with_hello();
    let configuration = |word: &str| {
        let site = |n| format!("[[site]]\nhosts = [\"h{n}.test\"]\nroot = \"{word}/{}\"\n", n / 2);
        let sites: String = (0..SITES).map(site).collect();
        format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nworkers = 1\n{sites}")
    };
    for n in 0..SITES / 2 {
        folder.write(&format!("old/{n}/who.txt"), format!("old {n}"));
        folder.write(&format!("new/{n}/who.txt"), format!("new {n}"));
    }
    let server = Launch::configured(&folder, &configuration("old")).start();
    let ask_some = |word: &str| {
        for n in [0, 1, 4_095, 4_096, 8_191, SITES - 1] {
            assert_eq!(ask(&server, &format!("h{n}.test"), "/who.txt"), (200, format!("{word} {}", n / 2)));
        }
        assert_eq!(ask(&server, "another.test", "/hello.txt").0, 200, "the default site");
    };
    ask_some("old");
    folder.write("flash.toml", adapted(&configuration("new")));
    server.signal("HUP");
    wait_until("the new configuration", || server.announcements().len() == 2);
    ask_some("new");
}

#[test]
fn two_sites_may_share_a_root() {
    let config = "\
root = \"www\"
listen = [\"127.0.0.1:0\"]
workers = 1
[[site]]
hosts = [\"list.example\"]
root = \"www\"
browse = true
";
    let (_folder, server) = site(config);
    for _ in 0..2 {
        assert_eq!(ask(&server, "list.example", "/who.txt"), (200, "www".into()));
        assert_eq!(ask(&server, "x", "/who.txt"), (200, "www".into()));
        assert_eq!(ask(&server, "list.example", "/").0, 200);
        assert_eq!(ask(&server, "x", "/").0, 404);
    }
}

#[test]
fn the_start_line_counts_the_sites() {
    let (_folder, server) = site(CONFIG);
    assert!(server.stdout().contains("serves 5 sites at "), "{}", server.stdout());
}
