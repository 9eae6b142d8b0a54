//! Parts of files: the right bytes, named right, never more than the file has.

use std::time::{Duration, SystemTime};

use crate::harness::{Client, Folder, Launch, Page, Server, evict, pattern, skip};

const DIGITS: &str = "0123456789";

fn digits() -> (Folder, Server) {
    let folder = Folder::new();
    folder.www("digits.txt", DIGITS);
    folder.www("empty.txt", "");
    let server = Launch::new(&folder).start();
    (folder, server)
}

fn ranged(server: &Server, target: &str, range: &str) -> Page {
    server.get_with(target, &[&format!("Range: {range}")])
}

#[test]
fn one_range() {
    let (_folder, server) = digits();
    let mut client = server.client();
    let table = [
        ("bytes=0-0", "0-0", "0"),
        ("bytes=0-4", "0-4", "01234"),
        ("bytes=9-9", "9-9", "9"),
        ("bytes=3-", "3-9", "3456789"),
        ("bytes=0-", "0-9", DIGITS),
        ("bytes=0-9", "0-9", DIGITS),
        ("bytes=5-99", "5-9", "56789"),
        ("bytes=5-99999999999999999999999999", "5-9", "56789"),
        ("bytes=-1", "9-9", "9"),
        ("bytes=-3", "7-9", "789"),
        ("bytes=-10", "0-9", DIGITS),
        ("bytes=-99", "0-9", DIGITS),
        ("bytes=-99999999999999999999999999", "0-9", DIGITS),
        ("Bytes=1-2", "1-2", "12"),
        ("bytes= 1-2 ", "1-2", "12"),
        ("bytes=,1-2,", "1-2", "12"),
        ("bytes=1-2,20-30", "1-2", "12"),
    ];
    let whole = client.get("/digits.txt");
    for (range, content_range, text) in table {
        let page = client.request("GET", "/digits.txt", &[&format!("Range: {range}")]);
        assert_eq!(page.brief(), (206, text.into()), "{range}");
        assert_eq!(page.must("Content-Range"), format!("bytes {content_range}/10"), "{range}");
        for name in ["ETag", "Last-Modified", "Content-Type", "Accept-Ranges"] {
            assert_eq!(page.field(name), whole.field(name), "{range}: {name}");
        }
    }
    client.assert_kept();
}

#[test]
fn invalid_ranges_are_ignored() {
    let (_folder, server) = digits();
    let table = [
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=a-b",
        "bytes=4-2",
        "bytes=1-2-3",
        "bytes=1",
        "bytes=+1-2",
        "bytes=0x1-2",
        "bytes=1 - 2",
        "bytes=--1",
        "bytes=1-2;3-4",
        "bytes=1-2,x",
        "bytes 1-2",
        "bytes:1-2",
        "lines=1-2",
        "1-2",
    ];
    for range in table {
        let page = ranged(&server, "/digits.txt", range);
        assert_eq!(page.brief(), (200, DIGITS.into()), "{range}");
        assert_eq!(page.field("Content-Range"), None, "{range}");
    }
    let page = server.get_with("/digits.txt", &["Range: bytes=1-2", "Range: bytes=3-4"]);
    assert_eq!(page.status, 200, "given twice");
}

#[test]
fn a_range_outside_the_file_is_416() {
    let (_folder, server) = digits();
    let mut client = server.client();
    let table = [
        ("/digits.txt", "bytes=10-", 10),
        ("/digits.txt", "bytes=10-20", 10),
        ("/digits.txt", "bytes=99999999999999999999999999-", 10),
        ("/digits.txt", "bytes=-0", 10),
        ("/digits.txt", "bytes=20-30,40-50", 10),
    ];
    for (target, range, length) in table {
        let page = client.request("GET", target, &[&format!("Range: {range}")]);
        assert_eq!(page.status, 416, "{target} {range}");
        assert_eq!(page.must("Content-Range"), format!("bytes */{length}"), "{target} {range}");
    }
    client.assert_kept();
}

/// Like nginx and Apache: a client that resumes an empty download is told that it is complete.
#[test]
fn an_empty_file_is_sent_whole_for_any_range() {
    let (_folder, server) = digits();
    let mut client = server.client();
    for range in ["bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0", "bytes=5-9,20-", "bytes=x"] {
        let page = client.request("GET", "/empty.txt", &[&format!("Range: {range}")]);
        assert_eq!(page.brief(), (200, String::new()), "{range}");
        assert_eq!((page.must("Content-Length"), page.field("Content-Range")), ("0", None), "{range}");
    }
    client.assert_kept();
}

/// The parts of a `multipart/byteranges` body: content range and bytes. It checks every byte.
fn parts(page: &Page) -> Vec<(String, Vec<u8>)> {
    assert_eq!(page.status, 206);
    assert_eq!(page.field("Content-Range"), None, "RFC 9110, section 15.3.7.2");
    let boundary = page.must("Content-Type").strip_prefix("multipart/byteranges; boundary=").unwrap();
    let first = format!("--{boundary}\r\n").into_bytes();
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut rest = page.body.strip_prefix(&first[..]).expect("the first boundary");
    let mut parts = Vec::new();
    loop {
        let head_end = find(rest, b"\r\n\r\n").expect("a part's head");
        let head = std::str::from_utf8(&rest[..head_end]).unwrap();
        let mut fields = head.split("\r\n").map(|line| line.split_once(": ").unwrap());
        let (name, content_type) = fields.next().unwrap();
        assert_eq!((name, content_type.is_empty()), ("Content-Type", false));
        let (name, content_range) = fields.next().unwrap();
        assert_eq!((name, fields.next()), ("Content-Range", None));
        let (range, _) = content_range.strip_prefix("bytes ").unwrap().split_once('/').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let length = end.parse::<usize>().unwrap() + 1 - start.parse::<usize>().unwrap();
        rest = &rest[head_end + 4..];
        parts.push((content_range.to_owned(), rest[..length].to_vec()));
        rest = rest[length..].strip_prefix(&delimiter[..]).expect("a boundary");
        match rest.strip_prefix(b"\r\n") {
            Some(next) => rest = next,
            None => break,
        }
    }
    assert_eq!(rest, b"--\r\n", "the end");
    parts
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[test]
fn several_ranges_are_sent_as_parts() {
    let (_folder, server) = digits();
    let mut client = server.client();
    let table: [(&str, &[(&str, &str)]); 6] = [
        ("bytes=0-1,4-5", &[("0-1", "01"), ("4-5", "45")]),
        ("bytes=0-0, -1", &[("0-0", "0"), ("9-9", "9")]),
        ("bytes=8-,0-1", &[("8-9", "89"), ("0-1", "01")]),
        ("bytes=0-0,99-,2-2,50-60,4-4", &[("0-0", "0"), ("2-2", "2"), ("4-4", "4")]),
        ("bytes=0-1,6-7,2-3", &[("0-3", "0123"), ("6-7", "67")]),
        ("bytes=6-7,0-1,1-2,7-8", &[("6-8", "678"), ("0-2", "012")]),
    ];
    for (range, expected) in table {
        let page = client.request("GET", "/digits.txt", &[&format!("Range: {range}")]);
        let expected: Vec<(String, Vec<u8>)> =
            expected.iter().map(|(r, text)| (format!("bytes {r}/10"), text.as_bytes().to_vec())).collect();
        assert_eq!(parts(&page), expected, "{range}");
    }
    client.assert_kept();
}

#[test]
fn overlapping_and_adjacent_ranges_are_merged() {
    let (_folder, server) = digits();
    for (range, content_range) in [
        ("bytes=0-4,5-9", "bytes 0-9/10"),
        ("bytes=0-5,3-8", "bytes 0-8/10"),
        ("bytes=2-3,2-3,2-3", "bytes 2-3/10"),
        ("bytes=0-,0-,0-,0-,0-", "bytes 0-9/10"),
        ("bytes=4-5,0-3,6-9", "bytes 0-9/10"),
        ("bytes=-4,0-6", "bytes 0-9/10"),
    ] {
        let page = ranged(&server, "/digits.txt", range);
        assert_eq!((page.status, page.must("Content-Range")), (206, content_range), "{range}");
    }
}

#[test]
fn at_most_two_hundred_ranges_and_never_more_than_the_file() {
    let folder = Folder::new();
    let content = pattern(100_000, 4);
    folder.www("data.bin", &content);
    let server = Launch::new(&folder).start();
    let some = |count: usize, length: usize| {
        let specs: Vec<String> =
            (0..count).map(|n| format!("{}-{}", n * 450, n * 450 + length - 1)).collect();
        ranged(&server, "/data.bin", &format!("bytes={}", specs.join(",")))
    };
    for count in [16, 17, 200] {
        let page = some(count, 100);
        assert!(page.body.len() < content.len(), "{count}");
        let found = parts(&page);
        assert_eq!(found.len(), count);
        for (n, (_, bytes)) in found.iter().enumerate() {
            assert!(*bytes == content[n * 450..n * 450 + 100], "part {n} of {count}");
        }
    }
    // One range too many, and parts that are longer than the file together with their heads.
    for (count, length) in [(201, 100), (200, 449)] {
        let page = some(count, length);
        assert!(page.status == 200 && page.body == content, "{count}: {}", page.status);
    }
    // The file's bytes are sent once, however often they are requested.
    let all = ["0-"; 200].join(",");
    let page = ranged(&server, "/data.bin", &format!("bytes={all}"));
    assert!(page.status == 206 && page.body == content);
    // A few ranges are still sent as parts.
    folder.www("short.txt", "0123456789".repeat(10));
    let specs = |count: usize| (0..count).map(|n| format!("{0}-{0}", n * 2)).collect::<Vec<_>>().join(",");
    assert_eq!(parts(&ranged(&server, "/short.txt", &format!("bytes={}", specs(16)))).len(), 16);
    assert_eq!(ranged(&server, "/short.txt", &format!("bytes={}", specs(17))).status, 200);
}

#[test]
fn parts_of_large_and_cold_files() {
    let folder = Folder::new();
    let content = pattern(5_000_000, 6);
    let path = folder.www("film.bin", &content);
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    // Across the limits of blocks, pages and reads; each time from the disk and then from memory.
    let edges = [
        (0, 1),
        (524_287, 524_289),
        (131_000, 1_700_000),
        (4_096, 8_192),
        (4_999_999, 5_000_000),
        (1, 4_999_999),
    ];
    for (start, end) in edges {
        evict(&path);
        for _ in 0..2 {
            let page = client.request("GET", "/film.bin", &[&format!("Range: bytes={start}-{}", end - 1)]);
            assert!(page.status == 206 && page.body == content[start..end], "{start}..{end}");
        }
    }
    evict(&path);
    let page =
        client.request("GET", "/film.bin", &["Range: bytes=4000000-4100000,0-99,-100,1000000-2000000"]);
    let found: Vec<Vec<u8>> = parts(&page).into_iter().map(|(_, bytes)| bytes).collect();
    let expected = [
        &content[4_000_000..=4_100_000],
        &content[..100],
        &content[4_999_900..],
        &content[1_000_000..=2_000_000],
    ];
    assert!(found == expected);
    client.assert_kept();
}

#[test]
fn parts_of_a_file_of_more_than_4_gib() {
    let folder = Folder::new();
    let length = (5_u64 << 30) + 3;
    let file = std::fs::File::create(folder.served("huge.img")).unwrap();
    if file.set_len(length).is_err() {
        return skip("this file system has no files of 5 GiB");
    }
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", length - 3).unwrap();
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    let head = client.request("HEAD", "/huge.img", &[]);
    assert_eq!(head.must("Content-Length"), length.to_string());
    for range in ["-5".to_owned(), format!("{}-", length - 5), format!("{}-{}", length - 5, length + 5)] {
        let page = client.request("GET", "/huge.img", &[&format!("Range: bytes={range}")]);
        assert_eq!(page.brief(), (206, "\0\0end".into()), "{range}");
        let expected = format!("bytes {}-{}/{length}", length - 5, length - 1);
        assert_eq!(page.must("Content-Range"), expected);
    }
    let page = client.request("GET", "/huge.img", &["Range: bytes=4294967290-4294967310,-3"]);
    assert_eq!(parts(&page)[0].1, [0; 21]);
    let page = client.request("GET", "/huge.img", &[&format!("Range: bytes={length}-")]);
    assert_eq!(page.must("Content-Range"), format!("bytes */{length}"));
}

#[test]
fn only_get_has_ranges() {
    let (_folder, server) = digits();
    let mut client = server.client();
    for range in ["Range: bytes=0-1", "Range: bytes=99-"] {
        let page = client.request("HEAD", "/digits.txt", &[range]);
        assert_eq!((page.status, page.must("Content-Length")), (200, "10"), "{range}");
    }
    assert_eq!(client.request("GET", "/gone.txt", &["Range: bytes=0-1"]).status, 404);
}

#[test]
fn if_range_applies_a_range_only_to_the_named_file() {
    let (folder, server) = digits();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let file = std::fs::File::options().append(true).open(folder.served("digits.txt")).unwrap();
    file.set_modified(modified).unwrap();
    let etag = server.get("/digits.txt").must("ETag").to_owned();
    let table = [
        (etag.clone(), 206),
        (format!("W/{etag}"), 200),
        ("\"another\"".to_owned(), 200),
        ("*".to_owned(), 200),
        (etag.trim_matches('"').to_owned(), 200),
        ("Sun, 06 Nov 1994 08:49:37 GMT".to_owned(), 206),
        ("Sunday, 06-Nov-94 08:49:37 GMT".to_owned(), 206),
        // A later date does not match: the field names one state of the file.
        ("Sun, 06 Nov 1994 08:49:38 GMT".to_owned(), 200),
        ("Sun, 06 Nov 1994 08:49:36 GMT".to_owned(), 200),
        ("yesterday".to_owned(), 200),
    ];
    for (value, status) in table {
        let fields = ["Range: bytes=2-4", &format!("If-Range: {value}")];
        let page = server.get_with("/digits.txt", &fields);
        let text = if status == 206 { "234" } else { DIGITS };
        assert_eq!(page.brief(), (status, text.into()), "{value}");
        // An invalid range matters only if the condition holds.
        let fields = ["Range: bytes=99-", &format!("If-Range: {value}")];
        let status = if status == 206 { 416 } else { 200 };
        assert_eq!(server.get_with("/digits.txt", &fields).status, status, "{value}");
    }
    let alone = server.get_with("/digits.txt", &[&format!("If-Range: {etag}")]);
    assert_eq!(alone.status, 200);
}

#[test]
fn a_download_can_be_resumed() {
    let folder = Folder::new();
    let content = pattern(9_000_000, 8);
    folder.www("film.bin", &content);
    let server = Launch::new(&folder).start();
    let mut client = server.client();
    client.ask("/film.bin");
    let (head, _) = client.receive_head().unwrap();
    let mut got = Vec::new();
    while got.len() < 3_000_000 {
        got.extend(client.some(100_000));
    }
    drop(client);
    let fields = [format!("Range: bytes={}-", got.len()), format!("If-Range: {}", head.must("ETag"))];
    let rest = Client::to(server.addresses[0]).request("GET", "/film.bin", &[&fields[0], &fields[1]]);
    assert_eq!(rest.status, 206);
    got.extend(rest.body);
    assert!(got == content);
}
