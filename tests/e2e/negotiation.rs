//! Precompressed siblings: each client gets the right one, and no cache can confuse them.

use std::io::Read;
use std::time::{Duration, SystemTime};

use crate::harness::{
    Folder, Launch, Page, Server, unlike_before, wait_for, wait_until, workers, write_aside,
};

/// `page.html` in all codings, `some.css` in gzip only, `plain.js` in none.
fn site() -> (Folder, Server) {
    let folder = Folder::new();
    folder.www("page.html", "page as it is");
    for coding in ["br", "zst", "gz"] {
        folder.www(&format!("page.html.{coding}"), format!("page in {coding}"));
    }
    folder.www("some.css", "css as it is");
    folder.www("some.css.gz", "css in gz");
    folder.www("plain.js", "js as it is");
    let server = Launch::new(&folder).start();
    (folder, server)
}

fn accepting(server: &Server, target: &str, codings: &str) -> Page {
    server.get_with(target, &[&format!("Accept-Encoding: {codings}")])
}

#[test]
fn the_best_accepted_coding_is_sent() {
    let (_folder, server) = site();
    let (plain, br, zst, gz) = (None, Some("br"), Some("zstd"), Some("gzip"));
    let table = [
        ("gzip", gz),
        ("GZIP", gz),
        ("x-gzip", gz),
        ("br", br),
        ("zstd", zst),
        ("gzip, br, zstd", br),
        ("gzip, zstd", zst),
        ("gzip, deflate, br, zstd", br),
        ("deflate", plain),
        ("gzip;q=1.0, br;q=0.5", gz),
        ("gzip;q=0.001", gz),
        ("br;q=0.5, zstd;q=0.9, gzip;q=0.8", zst),
        ("br;q=0, zstd;q=0, gzip", gz),
        ("br;Q=0.1,gzip ; q=0.2", gz),
        ("gzip;q=0", plain),
        ("gzip;q=0.000", plain),
        ("*", br),
        ("*;q=0.5, br;q=0", zst),
        ("*;q=0, gzip", gz),
        ("identity", plain),
        ("identity, gzip;q=0.5", plain),
        ("identity;q=0.5, gzip;q=0.8", gz),
        ("identity;q=0, gzip", gz),
        ("identity;q=0, *", br),
        ("", plain),
        (",", plain),
        ("gzip;q=2", plain),
        ("gzip;q=x", plain),
        ("gzip;q=0.0001", plain),
        ("gzipx", plain),
    ];
    for (codings, expected) in table {
        let page = accepting(&server, "/page.html", codings);
        assert_eq!((page.status, page.field("Content-Encoding")), (200, expected), "{codings:?}");
        let text = match expected {
            None => "page as it is".to_owned(),
            Some("gzip") => "page in gz".to_owned(),
            Some("zstd") => "page in zst".to_owned(),
            Some(coding) => format!("page in {coding}"),
        };
        assert_eq!(page.text(), text, "{codings:?}");
        assert_eq!(page.must("Content-Type"), "text/html; charset=utf-8", "{codings:?}");
        assert_eq!(page.must("Vary"), "Accept-Encoding", "{codings:?}");
    }
    assert_eq!(server.get("/page.html").text(), "page as it is", "no field");
    let page = server.get_with("/page.html", &["Accept-Encoding: br;q=0.1", "Accept-Encoding: gzip"]);
    assert_eq!(page.text(), "page in gz", "the field in two lines is one");
}

#[test]
fn only_existing_siblings_are_sent() {
    let (_folder, server) = site();
    for (target, codings, text) in [
        ("/some.css", "br, gzip;q=0.1", "css in gz"),
        ("/some.css", "br", "css as it is"),
        ("/some.css", "*", "css in gz"),
        ("/plain.js", "br, gzip", "js as it is"),
    ] {
        let page = accepting(&server, target, codings);
        assert_eq!(page.brief(), (200, text.into()), "{target} {codings}");
    }
    assert_eq!(accepting(&server, "/plain.js", "gzip").field("Vary"), None, "there is nothing to vary");
}

#[test]
fn a_client_that_accepts_no_variant_gets_406() {
    let (_folder, server) = site();
    for (target, codings, status) in [
        ("/page.html", "identity;q=0, br;q=0, zstd;q=0, gzip;q=0", 406),
        ("/page.html", "*;q=0", 406),
        ("/some.css", "br, identity;q=0", 406),
        ("/some.css", "br, *;q=0", 406),
        ("/some.css", "gzip, *;q=0", 200),
        ("/page.html", "identity, *;q=0", 200),
    ] {
        let page = accepting(&server, target, codings);
        assert_eq!(page.status, status, "{target} {codings}");
    }
}

#[test]
fn each_variant_has_its_own_tag() {
    let (_folder, server) = site();
    let variants: Vec<Page> =
        ["identity", "br", "zstd", "gzip"].iter().map(|c| accepting(&server, "/page.html", c)).collect();
    for (n, one) in variants.iter().enumerate() {
        for other in &variants[..n] {
            assert_ne!(one.must("ETag"), other.must("ETag"));
        }
    }
    for (n, codings) in ["identity", "br", "zstd", "gzip"].into_iter().enumerate() {
        for (m, other) in variants.iter().enumerate() {
            let tag = format!("If-None-Match: {}", other.must("ETag"));
            let page = server.get_with("/page.html", &[&format!("Accept-Encoding: {codings}"), &tag]);
            assert_eq!(page.status, if n == m { 304 } else { 200 }, "{codings}, tag of {m}");
            assert_eq!(page.must("Vary"), "Accept-Encoding");
        }
    }
}

#[test]
fn tags_differ_between_siblings_of_one_length_and_time() {
    let folder = Folder::new();
    let when = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["page.html", "page.html.br", "page.html.gz"] {
        let path = folder.www(name, name.as_bytes()[..9].repeat(3));
        std::fs::File::options().append(true).open(path).unwrap().set_modified(when).unwrap();
    }
    let server = Launch::new(&folder).start();
    let mut tags: Vec<String> = ["identity", "br", "gzip"]
        .iter()
        .map(|c| accepting(&server, "/page.html", c).must("ETag").to_owned())
        .collect();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3, "{tags:?}");
}

#[test]
fn ranges_apply_to_the_variant() {
    let (_folder, server) = site();
    let etag = accepting(&server, "/page.html", "gzip").must("ETag").to_owned();
    let fields = ["Accept-Encoding: gzip", "Range: bytes=5-", &format!("If-Range: {etag}")];
    let page = server.get_with("/page.html", &fields);
    assert_eq!(page.brief(), (206, "in gz".into()));
    assert_eq!(page.must("Content-Range"), "bytes 5-9/10");
    assert_eq!(page.must("Content-Encoding"), "gzip");
    assert_eq!(page.must("Vary"), "Accept-Encoding");
    // The tag of one variant does not join it with a part of another.
    let fields = ["Accept-Encoding: br", "Range: bytes=5-", &format!("If-Range: {etag}")];
    assert_eq!(server.get_with("/page.html", &fields).brief(), (200, "page in br".into()));
}

#[test]
fn a_sibling_requested_by_its_own_name_is_a_plain_file() {
    let (_folder, server) = site();
    let page = accepting(&server, "/page.html.gz", "gzip");
    assert_eq!(page.brief(), (200, "page in gz".into()));
    assert_eq!(page.must("Content-Type"), "application/gzip");
    assert_eq!(page.field("Content-Encoding"), None);
}

#[test]
fn only_plain_files_are_siblings() {
    let folder = Folder::new();
    folder.www("only.html.gz", "no plain file");
    for name in ["dir.html", "link.html", "fifo.html"] {
        folder.www(name, "as it is");
    }
    folder.www("dir.html.gz/x", "");
    folder.write("outside", "outside");
    std::os::unix::fs::symlink(folder.path("outside"), folder.served("link.html.gz")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(folder.served("fifo.html.gz")).status();
    assert!(made.unwrap().success());
    let server = Launch::new(&folder).start();
    assert_eq!(accepting(&server, "/only.html", "gzip").status, 404);
    for target in ["/dir.html", "/link.html", "/fifo.html"] {
        let page = accepting(&server, target, "gzip");
        assert_eq!(page.brief(), (200, "as it is".into()), "{target}");
    }
}

#[test]
fn an_index_has_siblings_and_they_can_be_turned_off() {
    let folder = Folder::new();
    folder.www("index.html", "as it is");
    folder.www("index.html.gz", "in gz");
    let server = Launch::new(&folder).start();
    assert_eq!(accepting(&server, "/", "gzip").text(), "in gz");
    drop(server);
    let server = Launch::new(&folder).args(["--no-precompressed"]).start();
    let page = accepting(&server, "/", "gzip");
    assert_eq!((page.text().as_str(), page.field("Vary")), ("as it is", None));
}

#[test]
fn large_variants_stream_too() {
    let folder = Folder::new();
    folder.www("data.json", "{}");
    let content = crate::harness::pattern(2_000_000, 7);
    crate::harness::evict(&folder.www("data.json.zst", &content));
    let server = Launch::new(&folder).start();
    let page = accepting(&server, "/data.json", "zstd");
    assert!(page.status == 200 && page.body == content);
    assert_eq!(page.must("Content-Encoding"), "zstd");
}

/// One sibling was being written when the disk filled up, and a deployment forgot the other.
#[test]
fn a_sibling_that_is_empty_or_older_than_its_file_is_not_sent() {
    let folder = Folder::new();
    let now = SystemTime::now();
    let put = |name: &str, text: &str, earlier_s: u64| {
        let path = folder.www(name, text);
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(now - Duration::from_secs(earlier_s)).unwrap();
    };
    put("page.html", "new page", 10);
    put("page.html.br", "old page in br", 20);
    put("page.html.zst", "", 5);
    put("page.html.gz", "new page in gz", 10);
    put("stale.css", "new css", 10);
    put("stale.css.gz", "old css in gz", 20);
    let server = Launch::new(&folder).args(["--freshness", "0s"]).start();
    for (codings, coding, text) in [
        ("br", None, "new page"),
        ("zstd", None, "new page"),
        ("gzip", Some("gzip"), "new page in gz"),
        ("br, zstd, gzip", Some("gzip"), "new page in gz"),
    ] {
        let page = accepting(&server, "/page.html", codings);
        assert_eq!(
            (page.status, page.field("Content-Encoding"), &*page.text()),
            (200, coding, text),
            "{codings}"
        );
    }
    let page = accepting(&server, "/stale.css", "gzip");
    assert_eq!((page.field("Content-Encoding"), page.field("Vary"), &*page.text()), (None, None, "new css"));
    // It is sent as soon as it is written again.
    put("stale.css.gz", "new css in gz", 0);
    wait_until("the new sibling", || accepting(&server, "/stale.css", "gzip").text() == "new css in gz");
    put("stale.css", "newer css", 0);
    put("stale.css.gz", "new css in gz", 5);
    wait_until("the newer file", || accepting(&server, "/stale.css", "gzip").text() == "newer css");
}

/// Asks for a file until it comes in this coding.
fn compressed(server: &Server, target: &str, coding: &str) -> Page {
    wait_for("a compressed answer", || {
        let page = accepting(server, target, coding);
        (page.field("Content-Encoding") == Some(coding)).then_some(page)
    })
}

fn decompress(page: &Page) -> Vec<u8> {
    let (mut content, body) = (Vec::new(), &page.body[..]);
    match page.must("Content-Encoding") {
        "br" => drop(brotli::Decompressor::new(body, 4096).read_to_end(&mut content).unwrap()),
        "zstd" => content = zstd::stream::decode_all(body).unwrap(),
        "gzip" => drop(flate2::read::GzDecoder::new(body).read_to_end(&mut content).unwrap()),
        other => panic!("{other}"),
    }
    content
}

fn prose(seed: u32) -> Vec<u8> {
    (0..30_000u32).flat_map(|word| format!("{} ", word.wrapping_mul(seed) % 1_009).into_bytes()).collect()
}

#[test]
fn texts_are_compressed_and_the_result_is_that_of_the_present_file() {
    let folder = Folder::new();
    let path = folder.www("a.txt", prose(7));
    folder.www("a.png", prose(7));
    folder.www("index.html", prose(9));
    folder.www("d/b.txt", prose(11));
    let server = Launch::with_workers(&folder, workers(2)).args(["--compress", "--browse"]).start();
    let first = accepting(&server, "/a.txt", "br");
    assert_eq!((first.field("Content-Encoding"), first.must("Vary")), (None, "Accept-Encoding"));
    assert!(first.body == prose(7));
    for coding in ["br", "zstd", "gzip"] {
        let page = compressed(&server, "/a.txt", coding);
        assert!(page.body.len() < prose(7).len() / 2, "{} bytes", page.body.len());
        assert!(decompress(&page) == prose(7), "{coding}");
        let tag = page.must("ETag");
        assert!(tag.starts_with("W/") && tag != first.must("ETag"));
        let again = server
            .get_with("/a.txt", &[&format!("Accept-Encoding: {coding}"), &format!("If-None-Match: {tag}")]);
        assert_eq!((again.status, again.must("ETag")), (304, tag));
        let part = server.get_with("/a.txt", &[&format!("Accept-Encoding: {coding}"), "Range: bytes=10-19"]);
        assert_eq!((part.status, part.field("Content-Encoding")), (206, None));
        assert!(part.body == prose(7)[10..20]);
    }
    assert!(decompress(&compressed(&server, "/", "br")) == prose(9));
    for coding in ["br", "zstd", "gzip"] {
        let listing = accepting(&server, "/d/", coding);
        assert_eq!((listing.status, listing.must("Content-Encoding")), (200, coding));
        assert!(
            String::from_utf8(decompress(&listing)).unwrap().contains("<a href=\"./b.txt\">"),
            "{coding}"
        );
    }
    assert!(server.get("/a.txt").body == prose(7));
    assert_eq!(accepting(&server, "/a.png", "br").field("Vary"), None);

    unlike_before();
    write_aside(&path, prose(13));
    wait_until("the new file in a compressed answer", || {
        let page = accepting(&server, "/a.txt", "br");
        let content =
            if page.field("Content-Encoding").is_some() { decompress(&page) } else { page.body.clone() };
        assert!(content == prose(7) || content == prose(13));
        page.field("Content-Encoding").is_some() && content == prose(13)
    });
}
