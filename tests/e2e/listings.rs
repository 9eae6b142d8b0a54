//! Listings show exactly the served files, to people and to programs, and are bounded.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use crate::harness::{Folder, Launch, Page, Server, browse, is, only_plain, skip, wait_until};
use crate::paths::can_run_flash;

const AS_JSON: &str = "Accept: application/json";

fn json(server: &Server, target: &str) -> Page {
    server.get_with(target, &[AS_JSON])
}

/// Names and types, in order.
fn entries(page: &Page) -> Vec<(String, String)> {
    assert_eq!((page.status, page.must("Content-Type")), (200, "application/json"));
    let json = page.json();
    let entries = json["entries"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    entries.iter().map(|entry| (text(&entry["name"]), text(&entry["type"]))).collect()
}

/// The targets of the links of the rows of a page: the path and the heads of the columns have others.
fn links(page: &Page) -> Vec<String> {
    assert_eq!((page.status, page.must("Content-Type")), (200, "text/html; charset=utf-8"));
    let text = page.text();
    let (rows, _) = text.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap();
    let after = rows.split("href=\"").skip(1);
    after.map(|rest| rest.split_once('"').unwrap().0.to_owned()).collect()
}

#[test]
fn a_listing_shows_exactly_the_served_files() {
    let folder = Folder::with_hello();
    folder.www("b.txt", "x".repeat(5));
    folder.www("A.txt", "x");
    folder.www("zoo/x.txt", "x");
    folder.www(".hidden", "x");
    folder.www(".git/config", "x");
    folder.write("secret", "x");
    symlink("../secret", folder.served("outside")).unwrap();
    symlink("hello.txt", folder.served("inside")).unwrap();
    symlink("zoo", folder.served("inside-dir")).unwrap();
    symlink("nowhere", folder.served("dangling")).unwrap();
    assert!(Command::new("mkfifo").arg(folder.served("fifo")).status().unwrap().success());
    let server = Launch::new(&folder).args(["--browse"]).start();
    let page = json(&server, "/");
    let expected = [
        ("inside-dir", "directory"),
        ("zoo", "directory"),
        ("A.txt", "file"),
        ("b.txt", "file"),
        ("hello.txt", "file"),
        ("inside", "file"),
    ];
    let expected: Vec<_> = expected.iter().map(|(name, kind)| (name.to_string(), kind.to_string())).collect();
    assert_eq!(entries(&page), expected);
    let value = page.json();
    assert_eq!((&value["path"], &value["more"]), (&"/".into(), &false.into()));
    let b = &value["entries"][3];
    assert_eq!(b["size"], 5);
    assert!(b["modified"].as_str().unwrap().starts_with("20"), "{b}");
    let html = server.get("/");
    assert_eq!(links(&html), ["./inside-dir/", "./zoo/", "./A.txt", "./b.txt", "./hello.txt", "./inside"]);
    for page in [page, html] {
        assert_eq!(page.must("X-Content-Type-Options"), "nosniff");
        assert!(page.must("Vary").contains("Accept"));
    }
    for (target, parent) in [("/zoo/", true), ("/", false)] {
        let has_parent = links(&server.get(target)).contains(&"../".to_owned());
        assert_eq!(has_parent, parent, "{target}");
    }
}

#[test]
fn every_link_leads_to_its_file_whatever_its_name() {
    let folder = Folder::new();
    let names = [
        "plain",
        "a b",
        "a+b",
        "100%",
        "%41",
        "q?m",
        "h#h",
        "\u{fc}",
        "\u{1f600}",
        "<b>",
        "a&b",
        "a\"b",
        "a'b",
        "co:lon",
        "http:evil",
        "back\\slash",
        "semi;colon",
        "a,b=c",
        "~tilde",
        "[x]",
        "{y}",
        "|",
        "^",
        "`",
        "-",
        "javascript:alert(1)",
        "trailing ",
        " leading",
        "two..dots",
        "&lt;",
        "<script>",
    ];
    for name in names {
        folder.www(&format!("dir/{name}"), name);
        folder.www(&format!("dirs/{name}/x"), name);
    }
    let server = Launch::new(&folder).args(["--browse"]).start();
    let mut client = server.client();
    let (files, folders) = (client.get("/dir/"), client.get("/dirs/"));
    for (page, base) in [(files, "/dir/"), (folders, "/dirs/")] {
        assert_eq!(page.text().matches("<script").count(), 1, "its own: {}", page.text());
        assert!(!page.text().contains("<b>"), "{}", page.text());
        let mut seen: Vec<String> = Vec::new();
        for link in links(&page).iter().filter(|link| *link != "../") {
            // As a browser resolves it: relative, without a scheme.
            let relative = link.strip_prefix("./").unwrap_or_else(|| panic!("{link}"));
            assert!(!relative.contains(['?', '#', '&', '<', '>', ' ']), "{link}");
            let answer = client.get(&format!("{base}{relative}"));
            assert_eq!(answer.status, 200, "{link}");
            match base {
                "/dir/" => seen.push(answer.text()),
                _ => {
                    let inner = client.get(&format!("{base}{relative}x"));
                    seen.push(inner.text());
                }
            }
        }
        seen.sort();
        let mut expected = names;
        expected.sort_unstable();
        assert_eq!(seen, expected, "{base}");
    }
    let listed: Vec<String> = entries(&json(&server, "/dir/")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed.len(), names.len());
    assert!(listed.contains(&"a\"b".to_owned()) && listed.contains(&"back\\slash".to_owned()));
}

#[test]
fn names_with_control_or_invalid_bytes_are_escaped() {
    use std::os::unix::ffi::OsStrExt;
    let folder = Folder::with_hello();
    let names =
        [&b"latin-\xfc"[..], b"line\nbreak", b"esc\x1b[2J", b"tab\tbed", b"\x7f\xc2\x9b", b"\r\nX: y"];
    for name in names {
        std::fs::write(folder.served(std::ffi::OsStr::from_bytes(name)), name).unwrap();
    }
    let server = Launch::new(&folder).args(["--browse"]).start();
    let page = server.get("/");
    assert!(links(&page).contains(&"./hello.txt".to_owned()));
    assert!(page.body.iter().all(|byte| *byte == b'\n' || !byte.is_ascii_control()), "{}", page.text());
    std::str::from_utf8(&page.body).unwrap();
    // Each entry has a link that leads to it.
    let as_json = json(&server, "/").json();
    let hrefs = as_json["entries"].as_array().unwrap().iter().map(|entry| entry["href"].as_str().unwrap());
    let hrefs: Vec<String> = hrefs.map(str::to_owned).collect();
    assert_eq!(links(&page), hrefs);
    let mut client = server.client();
    let mut found: Vec<Vec<u8>> =
        hrefs.iter().map(|href| client.get(href.strip_prefix('.').unwrap()).body).collect();
    found.sort();
    let mut expected: Vec<Vec<u8>> =
        names.iter().map(|name| name.to_vec()).chain([b"hello\n".to_vec()]).collect();
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn listings_need_browse_and_no_index() {
    let folder = Folder::with_hello();
    folder.www("with/index.html", "index");
    folder.www("without/x.txt", "x");
    let server = Launch::new(&folder).start();
    for (target, status) in [("/", 404), ("/without/", 404), ("/with/", 200), ("/without", 301)] {
        assert_eq!(server.get(target).status, status, "{target}");
    }
    drop(server);
    let server = Launch::new(&folder).args(["--browse"]).start();
    assert_eq!(server.get("/with/").text(), "index");
    assert_eq!(json(&server, "/with/").text(), "index");
    assert_eq!(links(&server.get("/without/")), ["../", "./x.txt"]);
    assert_eq!(server.get("/gone/").status, 404);
    let page = server.get("/without");
    assert_eq!((page.status, page.must("Location")), (301, "/without/"));
}

#[test]
fn accept_chooses_html_or_json() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--browse"]).start();
    let mut client = server.client();
    // Both forms alternately: neither is cached for the other.
    for _ in 0..3 {
        for (accept, content_type) in [
            ("*/*", "text/html; charset=utf-8"),
            ("application/json", "application/json"),
            ("text/html, application/json;q=0.9", "text/html; charset=utf-8"),
            ("application/json, text/html;q=0.9", "application/json"),
        ] {
            let page = client.request("GET", "/", &[&format!("Accept: {accept}")]);
            assert_eq!((page.status, page.must("Content-Type")), (200, content_type), "{accept}");
        }
    }
    for fields in [&[][..], &["Accept: application/json"]] {
        let whole = client.request("GET", "/", fields);
        let head = client.request("HEAD", "/", fields);
        assert_eq!(head.must("Content-Length"), whole.body.len().to_string());
        assert_eq!(head.must("Content-Type"), whole.must("Content-Type"));
    }
    client.assert_kept();
}

#[test]
fn a_query_chooses_the_order() {
    let folder = Folder::new();
    for (name, bytes) in [("file2", 30), ("file10", 20), ("File1", 10), ("sub2/x", 1), ("sub10/x", 1)] {
        folder.www(name, "x".repeat(bytes));
    }
    for (time, names) in [
        ("2026-01-01", &["file10", "sub10"][..]),
        ("2026-01-02", &["File1", "sub2"]),
        ("2026-01-03", &["file2"]),
    ] {
        let places = names.iter().map(|name| folder.served(name));
        assert!(Command::new("touch").args(["-d", time]).args(places).status().unwrap().success());
    }
    let server = Launch::new(&folder).args(["--browse"]).start();
    let mut client = server.client();
    let mut order = |query: &str| {
        let page = client.get(&format!("/{query}"));
        let as_json = client.request("GET", &format!("/{query}"), &[AS_JSON]);
        let names: Vec<String> = links(&page).iter().map(|link| link[2..].to_owned()).collect();
        let same: Vec<String> = entries(&as_json)
            .into_iter()
            .map(|(name, kind)| if kind == "directory" { name + "/" } else { name })
            .collect();
        assert_eq!(names, same, "{query}");
        names.join(" ")
    };
    // Twice: made, and from memory.
    for _ in 0..2 {
        for (query, expected) in [
            ("", "sub2/ sub10/ File1 file2 file10"),
            ("?sort=-name", "sub10/ sub2/ file10 file2 File1"),
            ("?sort=size", "sub2/ sub10/ File1 file10 file2"),
            ("?sort=-size", "sub2/ sub10/ file2 file10 File1"),
            ("?sort=time", "sub10/ sub2/ file10 File1 file2"),
            ("?sort=-time&x=1", "sub2/ sub10/ file2 File1 file10"),
            ("?sort=name", "sub2/ sub10/ File1 file2 file10"),
            ("?C=M;O=D", "sub2/ sub10/ File1 file2 file10"),
            ("?sort=SIZE", "sub2/ sub10/ File1 file2 file10"),
            ("?sort=%00", "sub2/ sub10/ File1 file2 file10"),
        ] {
            assert_eq!(order(query), expected, "{query}");
        }
    }
    let page = server.get("/sub2?sort=size");
    assert_eq!((page.status, page.must("Location")), (301, "/sub2/?sort=size"));
    assert!(
        server.get("/?sort=-size").text().contains("aria-sort=\"descending\"><a href=\"?sort=size\">Size")
    );
}

#[test]
fn a_readme_is_shown_as_text_and_follows_its_file() {
    let folder = Folder::with_hello();
    folder.www("README.md", "# Title\n<script>alert(1)</script>\n");
    folder.www("html/README.html", "<script>alert(1)</script>");
    folder.www("long/README", "y".repeat(100_000));
    folder.write("secret", "secret");
    std::fs::create_dir(folder.served("out")).unwrap();
    symlink("../../secret", folder.served("out/README")).unwrap();
    let server = Launch::new(&folder).args(["--browse", "--freshness", "100ms"]).start();
    let page = server.get("/");
    assert!(page.text().contains("# Title\n&lt;script&gt;alert(1)&lt;/script&gt;</pre>"), "{}", page.text());
    assert!(!json(&server, "/").text().contains("Title"));
    for target in ["/html/", "/out/"] {
        let text = server.get(target).text();
        assert!(!text.contains("alert") && !text.contains("secret") && !text.contains("<pre>"), "{text}");
    }
    let text = server.get("/long/").text();
    assert!(text.contains("The first 32 KiB of the file."));
    assert!((32 << 10..40 << 10).contains(&text.matches('y').count()));
    folder.www("README.md", "# Changed\n");
    wait_until("the other text", || server.get("/").text().contains("# Changed</pre>"));
    std::fs::remove_file(folder.served("README.md")).unwrap();
    wait_until("no text", || !server.get("/").text().contains("Changed"));
}

#[test]
fn a_readme_that_is_not_for_everyone_is_not_shown() {
    let folder = Folder::with_hello();
    folder.www("README.md", "for some");
    let config =
        |rule: &str| format!("root = \"www\"\nlisten = [\"127.0.0.1:0\"]\nbrowse = true\n[[rule]]\n{rule}\n");
    for (rule, is_shown) in [
        ("path = \"*\"\ndeny = [\"192.0.2.0/24\"]", true),
        ("path = \"*.md\"\ndeny = [\"192.0.2.0/24\"]", false),
        ("path = \"/README.md\"\nredirect = \"/hello.txt\"", false),
    ] {
        let server = Launch::configured(&folder, &config(rule)).start();
        let page = server.get("/");
        assert!(links(&page).contains(&"./README.md".to_owned()));
        assert_eq!(page.text().contains("for some"), is_shown, "{rule}");
    }
}

#[test]
fn a_directory_without_a_page_has_a_hint_for_its_operator_alone() {
    const HINT: &str = "put index.html there, or list the directory with browse = true or --browse";
    let folder = Folder::with_hello();
    folder.www("sub/x.txt", "x");
    let ask = |server: &Server, host: &str, target: &str| {
        let mut client = server.client();
        client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        let page = client.page();
        assert_eq!(page.status, 404, "{host} {target}");
        let is_hint = page.text().contains(HINT);
        assert_eq!(page.field("Cache-Control"), is_hint.then_some("no-store"), "{host} {target}");
        is_hint
    };
    let server = Launch::new(&folder).start();
    for _ in 0..3 {
        for target in ["/", "/sub/"] {
            // A directory whose names the kernel does not hold has none yet.
            wait_until("the hint", || ask(&server, "localhost", target));
            assert!(!ask(&server, "www.example.org", target), "{target}");
        }
        for target in ["/gone", "/gone/", "/hello.txt/"] {
            assert!(!ask(&server, "localhost", target), "{target}");
        }
    }
    drop(server);
    let server = Launch::new(&folder).args(["--trusted-proxies", "loopback"]).start();
    for target in ["/", "/sub/"] {
        assert!(!ask(&server, "localhost", target), "{target}");
    }
}

#[test]
fn a_browser_filters_a_listing() {
    if only_plain("a browser speaks to the server itself") {
        return;
    }
    let folder = Folder::new();
    for n in 0..12 {
        folder.www(&format!("file{n}"), "x");
    }
    let server = Launch::new(&folder).args(["--browse"]).start();
    let url = format!("http://{}/", server.addresses[0]);
    let Some(page) = browse(&folder, &url, &[]) else { return };
    // The script shows the filter, although the policy of the page allows no other script.
    assert!(server.get("/").text().contains("<p hidden><label for=\"filter\">"));
    assert!(page.contains("<p><label for=\"filter\">"), "{page}");
}

#[test]
fn an_empty_directory_has_a_listing() {
    let folder = Folder::new();
    let server = Launch::new(&folder).args(["--browse"]).start();
    assert_eq!(entries(&json(&server, "/")), []);
    assert_eq!(links(&server.get("/")), [""; 0]);
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    let folder = Folder::new();
    for n in 0..30 {
        folder.www(&format!("{n:02}"), "");
    }
    let server = Launch::new(&folder).args(["--browse", "--listing-entries", "10"]).start();
    let page = json(&server, "/");
    assert_eq!(entries(&page).len(), 10);
    assert_eq!(page.json()["more"], true);
    let page = server.get("/");
    assert_eq!(links(&page).len(), 10);
    assert!(page.text().contains("more"), "{}", page.text());
    drop(server);
    let server = Launch::new(&folder).args(["--browse", "--listing-entries", "30"]).start();
    let page = json(&server, "/");
    assert_eq!((entries(&page).len(), &page.json()["more"]), (30, &false.into()));
}

#[test]
fn a_listing_follows_its_directory() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).args(["--browse", "--freshness", "100ms"]).start();
    let mut client = server.client();
    let mut has = |name: &str| links(&client.get("/")).contains(&format!("./{name}"));
    assert!(has("hello.txt") && !has("new.txt"));
    folder.www("new.txt", "x");
    wait_until("the new file in the listing", || has("new.txt"));
    std::fs::remove_file(folder.served("hello.txt")).unwrap();
    wait_until("the old file out of the listing", || !has("hello.txt"));
    folder.www("index.html", "index");
    wait_until("the index in place of the listing", || server.get("/").text() == "index");
    std::fs::remove_file(folder.served("index.html")).unwrap();
    wait_until("the listing in place of the index", || server.get("/").text() != "index");
}

#[test]
fn a_huge_directory_does_not_delay_other_requests() {
    const NAMES: usize = 50_000;
    /// Time for the one listing, on a machine that also runs other tests.
    const LISTED_IN: Duration = Duration::from_secs(60);
    let folder = Folder::with_hello();
    let huge = folder.served("huge");
    std::fs::create_dir(&huge).unwrap();
    let first = huge.join("name-00000");
    std::fs::write(&first, "x").unwrap();
    for n in 1..NAMES {
        // Links to one file are faster to create than files.
        std::fs::hard_link(&first, huge.join(format!("name-{n:05}"))).unwrap();
    }
    // The others cannot end a job.
    let deadline: &[&str] = if is(&["amped", "mt"]) { &["--job-deadline", "60s"] } else { &[] };
    let launch = Launch::new(&folder).args(["--browse", "--listing-entries", "60000"]);
    let launch = deadline.iter().fold(launch, |launch, word| launch.arg(word));
    let server = launch.helpers(["--helpers-max", "4"]).start();
    assert_eq!(server.get("/hello.txt").text(), "hello\n");
    std::thread::scope(|scope| {
        let listed = scope.spawn(|| {
            let page = server.client().patient(LISTED_IN).get("/huge/");
            (page.status, links(&page).len())
        });
        let as_json = scope.spawn(|| {
            let mut client = server.client().patient(LISTED_IN);
            let page = client.request("GET", "/huge/", &[AS_JSON]);
            // On a busy machine the last entries are listed by name only, without their type.
            page.json()["entries"].as_array().unwrap().len()
        });
        let mut client = server.client();
        let mut hits = 0;
        while !listed.is_finished() || !as_json.is_finished() {
            assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
            hits += 1;
        }
        assert!(hits > 0);
        assert_eq!(listed.join().unwrap(), (200, NAMES + 1));
        assert_eq!(as_json.join().unwrap(), NAMES);
    });
    assert_eq!(server.stderr(), "");
}

/// Served by a user who cannot read all of it, like the default user `nobody`.
#[test]
fn unreadable_files_are_not_listed() {
    if only_plain("the key of the certificate belongs to another user") {
        return;
    }
    let folder = Folder::with_hello();
    folder.www("private.txt", "private");
    folder.www("unlisted/x.txt", "x");
    folder.www("unlisted/sub/y.txt", "y");
    folder.www("closed/x.txt", "x");
    folder.www("index/index.html", "index");
    folder.www("index/x.txt", "x");
    symlink("private.txt", folder.served("link")).unwrap();
    symlink("hello.txt", folder.served("good")).unwrap();
    symlink(folder.served("hello.txt"), folder.served("absolute")).unwrap();
    for (name, mode) in
        [("private.txt", "000"), ("unlisted", "711"), ("closed", "600"), ("index/index.html", "600")]
    {
        assert!(Command::new("chmod").arg(mode).arg(folder.served(name)).status().unwrap().success());
    }
    if std::fs::read(folder.served("private.txt")).is_err() {
        return skip("needs root, to run the server as another user");
    }
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    if !can_run_flash(&nobody) {
        return skip("setpriv is not there, or the program is out of reach for others");
    }
    let server = Launch::new(&folder).arg("--browse").user(None).through(nobody).start();
    let expected = ["./index/", "./unlisted/", "./good", "./hello.txt"];
    assert_eq!(links(&server.get("/")), expected);
    assert_eq!(entries(&json(&server, "/")).len(), expected.len());
    let mut client = server.client();
    for (target, status) in [
        ("/private.txt", 403),
        ("/link", 403),
        ("/closed/", 403),
        ("/closed/x.txt", 403),
        // Its files are still served by name.
        ("/unlisted/", 403),
        ("/unlisted/x.txt", 200),
        ("/unlisted/sub/", 200),
        ("/index/", 403),
        ("/index/x.txt", 200),
        // Only relative links are followed.
        ("/absolute", 404),
    ] {
        for fields in [&[][..], &[AS_JSON]] {
            assert_eq!(client.request("GET", target, fields).status, status, "{target}");
        }
    }
    client.assert_kept();
    assert_eq!(server.stderr(), "");
    // It is listed once it is readable.
    assert!(Command::new("chmod").arg("755").arg(folder.served("unlisted")).status().unwrap().success());
    wait_until("the listing", || server.get("/unlisted/").status == 200);
}
