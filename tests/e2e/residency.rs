//! Where the kernel does not report what is in memory, helpers read every file, and the start line says so.

use crate::harness::{Folder, Launch, evict, is_root, pattern, skip};

/// Owns none of the files: without `CAP_FOWNER`, `cachestat` answers `EPERM`.
const SOMEBODY_ELSE: Option<&str> = Some("nobody");

#[test]
fn files_of_another_owner_are_served_through_helpers() {
    if !is_root() {
        return skip("needs root, to run the server as another user");
    }
    let folder = Folder::with_hello();
    let (small, large) = (pattern(100_000, 1), pattern(3_000_001, 2));
    folder.www("small.bin", &small);
    evict(&folder.www("large.bin", &large));
    folder.www("page.html", "as it is");
    folder.www("page.html.gz", "in gz");
    folder.www("list/a.txt", "x");
    let server = Launch::new(&folder).args(["--browse", "--no-cap-fowner"]).user(SOMEBODY_ELSE).start();
    let line = server.stdout();
    let (_, reads) = line.split_once("reads: ").unwrap();
    assert!(reads.contains("helpers") && !reads.starts_with("memory by cachestat"), "{line}");
    assert!(line.contains("cachestat: "), "why: {line}");
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get("/hello.txt").brief(), (200, "hello\n".into()));
        assert!(client.get("/small.bin").body == small);
        assert!(client.get("/large.bin").body == large);
        let page = client.request("GET", "/large.bin", &["Range: bytes=1000000-2000000"]);
        assert!(page.status == 206 && page.body == large[1_000_000..=2_000_000]);
        let page = client.request("GET", "/large.bin", &["Range: bytes=1000000-1000009,-5"]);
        assert_eq!(page.status, 206);
        let page = client.request("GET", "/page.html", &["Accept-Encoding: gzip"]);
        assert_eq!(page.brief(), (200, "in gz".into()));
        assert!(client.get("/list/").text().contains("a.txt"));
    }
    client.assert_kept();
    assert!(!server.role("helper").is_empty());
}

#[test]
fn with_an_own_file_the_start_line_names_cachestat() {
    let folder = Folder::with_hello();
    let server = Launch::new(&folder).start();
    let line = server.stdout();
    let (_, reads) = line.split_once("reads: ").unwrap();
    if reads.contains("cachestat: ") {
        return skip("this kernel has no cachestat");
    }
    assert!(reads.contains("cachestat") && reads.contains("helpers"), "{line}");
}

#[test]
fn without_cachestat_hits_need_no_helper() {
    if !is_root() {
        return skip("needs root, to run the server as another user");
    }
    let folder = Folder::with_hello();
    let server =
        Launch::new(&folder).args(["--helpers-max", "1", "--no-cap-fowner"]).user(SOMEBODY_ELSE).start();
    let mut client = server.client();
    assert_eq!(client.get("/hello.txt").text(), "hello\n");
    let helper = server.sole("helper");
    crate::harness::kill("STOP", helper);
    for _ in 0..50 {
        assert_eq!(client.get("/hello.txt").text(), "hello\n");
    }
    crate::harness::kill("CONT", helper);
}
