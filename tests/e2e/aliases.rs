//! Aliases: the files of some paths of a site lie in folders of their own.

use std::fs;
use std::os::unix::fs::symlink;

use crate::harness::{Folder, Launch, wait_until, write_aside};

fn folder() -> Folder {
    let folder = Folder::with_hello();
    folder.www("docs/a.txt", "never sent");
    folder.write("manual/a.txt", "of the manual");
    folder.write("manual/index.html", "contents");
    folder.write("manual/part/b.txt", "a part");
    folder.write("private/key", "secret");
    symlink("a.txt", folder.path("manual/inside")).unwrap();
    symlink("../private/key", folder.path("manual/outside")).unwrap();
    symlink("../../private/key", folder.path("manual/part/further")).unwrap();
    folder
}

fn config(aliases: &str) -> String {
    format!("root = \"www\"\nbrowse = true\nlisten = [\"127.0.0.1:0\"]\n{aliases}")
}

const MANUAL: &str = "[[rule]]\npath = \"/docs/*\"\nalias = \"manual\"\nset = { X-Manual = \"yes\" }\n";

#[test]
fn the_files_of_some_paths_lie_in_a_folder_of_their_own() {
    let folder = folder();
    let server = Launch::configured(&folder, &config(MANUAL)).start();
    let client = &mut server.client();
    for _ in 0..3 {
        for (path, body) in [
            ("/docs/a.txt", "of the manual"),
            ("/docs/", "contents"),
            ("/docs/part/b.txt", "a part"),
            ("/docs/inside", "of the manual"),
        ] {
            let page = client.get(path);
            assert_eq!(page.brief(), (200, body.into()), "{path}");
            assert_eq!(page.field("X-Manual"), Some("yes"), "{path}");
        }
        assert_eq!(client.get("/hello.txt").field("X-Manual"), None);
        for path in ["/docs/outside", "/docs/part/further", "/docs/none", "/docs/manual/a.txt"] {
            assert_eq!(client.get(path).status, 404, "{path}");
        }
        for (path, to) in [("/docs", "/docs/"), ("/docs/part", "/docs/part/")] {
            let page = client.get(path);
            assert_eq!((page.status, page.field("Location")), (301, Some(to)), "{path}");
        }
    }
    let listing = client.get("/docs/part/");
    let text = listing.text();
    assert!(listing.status == 200 && text.contains("<title>Index of /docs/part/</title>"), "{text}");
    assert!(text.contains("href=\"./b.txt\"") && text.contains("href=\"../../\""), "{text}");
}

#[test]
fn a_change_in_an_alias_is_seen() {
    let folder = folder();
    let server = Launch::configured(&folder, &config(MANUAL)).start();
    assert_eq!(server.get("/docs/a.txt").text(), "of the manual");
    write_aside(&folder.path("manual/a.txt"), "of the new manual");
    wait_until("the new file", || server.get("/docs/a.txt").text() == "of the new manual");
    fs::remove_file(folder.path("manual/a.txt")).unwrap();
    wait_until("the missing file", || server.get("/docs/a.txt").status == 404);
}

#[test]
fn a_reload_adds_and_removes_aliases() {
    let folder = folder();
    let file = folder.path("flash.toml");
    let server = Launch::configured(&folder, &config("")).start();
    assert_eq!(server.get("/docs/a.txt").text(), "never sent");
    fs::write(&file, config(MANUAL)).unwrap();
    server.signal("HUP");
    wait_until("the alias", || server.get("/docs/a.txt").text() == "of the manual");
    fs::write(&file, config("[[rule]]\npath = \"/docs/*\"\nalias = \"none\"\n")).unwrap();
    server.signal("HUP");
    server.wait_for_stderr("cannot serve");
    assert_eq!(server.get("/docs/a.txt").text(), "of the manual", "a wrong one changes nothing");
    fs::write(&file, config("")).unwrap();
    server.signal("HUP");
    wait_until("the root", || server.get("/docs/a.txt").text() == "never sent");
}

#[test]
fn sites_can_share_a_folder() {
    let folder = folder();
    let sites = "[[site]]\nhosts = [\"a.example\"]\nroot = \"manual\"\n\
                 [[site]]\nhosts = [\"b.example\"]\nroot = \"www\"\n\
                 [[site.rule]]\npath = \"/one/*\"\nalias = \"manual\"\n\
                 [[site.rule]]\npath = \"/two/*\"\nalias = \"manual\"\n";
    let config = config("").replace("browse = true\n", "") + sites;
    let server = Launch::configured(&folder, &config).start();
    let get = |host: &str, path: &str| {
        let mut client = server.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        client.page()
    };
    let places = [("a.example", "/a.txt"), ("b.example", "/one/a.txt"), ("b.example", "/two/a.txt")];
    for (host, path) in places.repeat(3) {
        assert_eq!(get(host, path).brief(), (200, "of the manual".into()), "{host}{path}");
    }
    for path in ["/a.txt", "/one/hello.txt"] {
        assert_eq!(get("b.example", path).status, 404, "{path}");
    }
}
