//! Preconditions, in the order of RFC 9110, section 13.2.2.

use std::time::{Duration, SystemTime};

use crate::harness::{Folder, Launch, Server};

const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
const EARLIER: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
const LATER: &str = "Mon, 07 Nov 1994 00:00:00 GMT";

struct Site {
    server: Server,
    etag: String,
    _folder: Folder,
}

/// A page `/hello.txt` with the modification time [`MODIFIED`].
fn site() -> Site {
    let folder = Folder::with_hello();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = std::fs::File::options().append(true).open(folder.served("hello.txt")).unwrap();
    file.set_modified(modified).unwrap();
    let server = Launch::new(&folder).start();
    let etag = server.get("/hello.txt").must("ETag").to_owned();
    Site { server, etag, _folder: folder }
}

impl Site {
    /// Checks the status of requests with these fields, where `TAG` stands for the file's tag, for GET and HEAD, in
    /// both orders.
    fn check(&self, table: &[(&[&str], u16)]) {
        let mut client = self.server.client();
        for (fields, status) in table {
            let fields: Vec<String> = fields.iter().map(|field| field.replace("TAG", &self.etag)).collect();
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            for method in ["GET", "HEAD"] {
                let page = client.request(method, "/hello.txt", &fields);
                assert_eq!(page.status, *status, "{method} {fields:?}");
                match (status, method) {
                    (200, "GET") => assert_eq!(page.text(), "hello\n", "{fields:?}"),
                    (304, _) => {
                        assert_eq!(page.must("ETag"), self.etag, "{fields:?}");
                        assert_eq!(page.must("Last-Modified"), MODIFIED);
                        assert!(page.body.is_empty());
                    }
                    _ => {}
                }
            }
        }
        client.assert_kept();
    }
}

#[test]
fn if_none_match() {
    site().check(&[
        (&["If-None-Match: TAG"], 304),
        (&["If-None-Match: W/TAG"], 304),
        (&["If-None-Match: *"], 304),
        (&["If-None-Match: \"a\", TAG"], 304),
        (&["If-None-Match: \"a\",W/\"b\" ,\tTAG , \"c\""], 304),
        (&["If-None-Match: ,, TAG,,"], 304),
        (&["If-None-Match: \"a\"", "If-None-Match: TAG"], 304),
        (&["If-None-Match: \"a,b\", TAG"], 304),
        (&["If-None-Match: \"a\""], 200),
        (&["If-None-Match: \"a\", \"b\""], 200),
        (&["If-None-Match: \"\""], 200),
        (&["If-None-Match: TAGx"], 200),
        (&["If-None-Match: x"], 200),
        (&["If-None-Match: \"TAG"], 200),
    ]);
}

#[test]
fn if_modified_since() {
    site().check(&[
        (&["If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"], 304),
        (&["If-Modified-Since: Sunday, 06-Nov-94 08:49:37 GMT"], 304),
        (&["If-Modified-Since: Sun Nov  6 08:49:37 1994"], 304),
        (&[&format!("If-Modified-Since: {LATER}")], 304),
        (&[&format!("If-Modified-Since: {EARLIER}")], 200),
        (&["If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"], 200),
        (&["If-Modified-Since: 784111777"], 200),
        (&["If-Modified-Since: tomorrow"], 200),
        (&["If-Modified-Since: "], 200),
        (&["If-Modified-Since: Sun, 31 Feb 2030 08:49:37 GMT"], 200),
    ]);
}

#[test]
fn if_match() {
    site().check(&[
        (&["If-Match: TAG"], 200),
        (&["If-Match: *"], 200),
        (&["If-Match: \"a\", TAG"], 200),
        (&["If-Match: \"a\"", "If-Match: TAG"], 200),
        (&["If-Match: W/TAG"], 412),
        (&["If-Match: \"a\""], 412),
        (&["If-Match: x"], 412),
    ]);
}

#[test]
fn if_unmodified_since() {
    site().check(&[
        (&[&format!("If-Unmodified-Since: {MODIFIED}")], 200),
        (&[&format!("If-Unmodified-Since: {LATER}")], 200),
        (&[&format!("If-Unmodified-Since: {EARLIER}")], 412),
        (&["If-Unmodified-Since: yesterday"], 200),
    ]);
}

#[test]
fn several_preconditions_are_evaluated_in_order() {
    let ims_met = format!("If-Modified-Since: {EARLIER}");
    let ims_not = format!("If-Modified-Since: {MODIFIED}");
    let ius_met = format!("If-Unmodified-Since: {MODIFIED}");
    let ius_not = format!("If-Unmodified-Since: {EARLIER}");
    site().check(&[
        // If-None-Match disables If-Modified-Since.
        (&["If-None-Match: \"a\"", &ims_not], 200),
        (&["If-None-Match: TAG", &ims_met], 304),
        // If-Match disables If-Unmodified-Since.
        (&["If-Match: TAG", &ius_not], 200),
        (&["If-Match: \"a\"", &ius_met], 412),
        // The first two come before the last two.
        (&["If-Match: \"a\"", "If-None-Match: TAG"], 412),
        (&["If-Match: TAG", "If-None-Match: TAG"], 304),
        (&["If-None-Match: TAG", &ius_not], 412),
        (&[&ius_not, &ims_not], 412),
        (&[&ius_met, &ims_not], 304),
        (&[&ius_met, &ims_met], 200),
        (&["If-Match: *", &ims_not], 304),
        (&["If-Match: TAG", "If-None-Match: \"a\"", &ims_not, &ius_not], 200),
    ]);
}

#[test]
fn preconditions_come_before_ranges() {
    let site = site();
    let tag = &site.etag;
    let table = [
        (format!("If-None-Match: {tag}"), 304),
        ("If-None-Match: \"a\"".to_owned(), 206),
        (format!("If-Match: {tag}"), 206),
        ("If-Match: \"a\"".to_owned(), 412),
        (format!("If-Unmodified-Since: {EARLIER}"), 412),
        (format!("If-Modified-Since: {MODIFIED}"), 304),
    ];
    for (field, status) in table {
        let page = site.server.get_with("/hello.txt", &["Range: bytes=1-2", &field]);
        assert_eq!(page.status, status, "{field}");
        // Also before a range that cannot be satisfied.
        let page = site.server.get_with("/hello.txt", &["Range: bytes=99-", &field]);
        assert_eq!(page.status, if status == 206 { 416 } else { status }, "{field}");
    }
    let fields = ["Range: bytes=1-2", "If-Range: \"a\"", &format!("If-None-Match: {tag}")];
    assert_eq!(site.server.get_with("/hello.txt", &fields).status, 304);
}

#[test]
fn preconditions_are_ignored_without_a_file() {
    // RFC 9110, section 13.2.1: ignored unless the answer without them would be a 2xx or a 412.
    let site = site();
    let mut client = site.server.client();
    for field in
        ["If-Match: *", "If-Match: \"a\"", "If-None-Match: *", &format!("If-Unmodified-Since: {EARLIER}")]
    {
        assert_eq!(client.request("GET", "/gone.txt", &[field]).status, 404, "{field}");
        assert_eq!(client.request("POST", "/hello.txt", &[field]).status, 405, "{field}");
        assert_eq!(client.request("OPTIONS", "/hello.txt", &[field]).status, 204, "{field}");
        assert_eq!(client.request("GET", "/%zz", &[field]).status, 400, "{field}");
    }
    client.assert_kept();
}

#[test]
fn odd_times_of_files() {
    let folder = Folder::new();
    let at = |name: &str, when: SystemTime| {
        let path = folder.www(name, "x");
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(when).unwrap();
    };
    let day = Duration::from_secs(24 * 60 * 60);
    at("old.txt", SystemTime::UNIX_EPOCH - 366 * day);
    at("epoch.txt", SystemTime::UNIX_EPOCH);
    at("new.txt", SystemTime::now() + 800 * day);
    let server = Launch::new(&folder).start();
    let epoch = server.get("/epoch.txt");
    assert_eq!(epoch.must("Last-Modified"), "Thu, 01 Jan 1970 00:00:00 GMT");
    let old = server.get("/old.txt");
    // A time before the Unix epoch may be reported as its first second.
    let said = old.must("Last-Modified");
    assert!(["Tue, 31 Dec 1968 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"].contains(&said), "{said}");
    for (page, target) in [(epoch, "/epoch.txt"), (old, "/old.txt")] {
        assert_eq!(page.status, 200);
        let tag = format!("If-None-Match: {}", page.must("ETag"));
        assert_eq!(server.get_with(target, &[&tag]).status, 304, "{target}");
    }
    assert_eq!(server.get("/new.txt").text(), "x");
}

#[test]
fn last_modified_is_never_in_the_future() {
    // RFC 9110, section 8.8.2.1: a Last-Modified later than Date MUST NOT be sent.
    let folder = Folder::with_hello();
    let file = std::fs::File::options().append(true).open(folder.served("hello.txt")).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(800 * 24 * 60 * 60)).unwrap();
    let page = Launch::new(&folder).start().get("/hello.txt");
    if let Some(modified) = page.field("Last-Modified") {
        assert_eq!(modified, page.must("Date"));
    }
}

#[test]
fn a_tag_identifies_one_state_of_a_file() {
    let folder = Folder::with_hello();
    folder.www("other.txt", "other\n");
    let tags = |server: &Server| {
        ["/hello.txt", "/other.txt"].map(|target| server.get(target).must("ETag").to_owned())
    };
    let first = Launch::new(&folder).start();
    let second = Launch::with_workers(&folder, 2).start();
    assert_eq!(tags(&first), tags(&second), "two servers agree");
    let before = tags(&first)[0].clone();
    drop(first);
    folder.www("hello.txt", "HELLO\n");
    assert_ne!(tags(&Launch::new(&folder).start())[0], before);
}
