//! Tests of listings: entries, page and JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::{TempDir, tempdir};

use flash_waiting::file;

use super::*;
use crate::sandbox::LISTING_ENTRY_BYTES;

fn order(word: &str) -> ListingOrder {
    ListingOrder::of_query(Some(format!("sort={word}").as_bytes()))
}

fn listing() -> (TempDir, Listing) {
    let folder = tempdir().expect("a folder");
    let at = folder.path();
    std::fs::create_dir(at.join("sub")).expect("a folder");
    std::fs::write(at.join("a<b>.txt"), "hello").expect("a file");
    std::fs::write(at.join(".hidden"), "").expect("a file");
    std::fs::write(at.join("c\nd"), "").expect("a file");
    std::fs::write(at.join(OsStr::from_bytes(b"\xff\xc2\x9b")), "").expect("a file");
    std::os::unix::fs::symlink("/etc/passwd", at.join("out")).expect("a link");
    let root = file::open_folder(at).expect("the folder");
    let listing = read(&root, b"/", (100, order("name"))).expect("a listing");
    (folder, listing)
}

fn of_entries(path: &str, entries: Vec<Entry>) -> Listing {
    Listing { path: path.into(), order: order("name"), entries, more: false, readme: None }
}

fn file_entry(name: &str, size_bytes: u64) -> Entry {
    Entry {
        natural: order::natural(name.as_bytes()),
        name: name.into(),
        directory: false,
        size_bytes: Some(size_bytes),
        modified_s: Some(1_795_687_020),
    }
}

#[test]
fn shows_what_is_served_and_nothing_else() {
    let (_folder, listing) = listing();
    let names: Vec<_> = listing.entries.iter().map(|e| (&e.name[..], e.directory, e.size_bytes)).collect();
    let expected: [(&[u8], bool, Option<u64>); 4] = [
        (b"sub", true, None),
        (b"a<b>.txt", false, Some(5)),
        (b"c\nd", false, Some(0)),
        (b"\xff\xc2\x9b", false, Some(0)),
    ];
    assert_eq!(names, expected);
}

#[test]
fn names_cannot_break_the_page() {
    let (_folder, listing) = listing();
    let page = listing.to_html();
    assert!(page.contains("<a href=\"./sub/\">sub/</a>"), "{page}");
    assert!(page.contains("<a href=\"./a%3Cb%3E.txt\">a&lt;b&gt;.<wbr>txt</a>"), "{page}");
    assert!(page.contains("<a href=\"./c%0Ad\">c\u{fffd}d</a>"), "{page}");
    assert!(page.contains("<a href=\"./%FF%C2%9B\">\u{fffd}\u{fffd}</a>"), "{page}");
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'));
    let json = listing.to_json();
    for entry in [
        "{\"name\":\"sub\",\"href\":\"./sub/\",\"type\":\"directory\",",
        "{\"name\":\"a<b>.txt\",\"href\":\"./a%3Cb%3E.txt\",\"type\":\"file\",\"size\":5,",
        "{\"name\":\"c\\nd\",\"href\":\"./c%0Ad\",",
        "{\"name\":\"\u{fffd}\\u009b\",\"href\":\"./%FF%C2%9B\",",
    ] {
        assert!(json.contains(entry), "{entry} in {json}");
    }
    let odd = Listing { path: b"/\x1b\xff<b>/".to_vec(), ..listing };
    assert!(odd.to_html().contains("<title>Index of /\u{fffd}\u{fffd}&lt;b&gt;/</title>"));
    assert!(odd.to_json().starts_with("{\"path\":\"/\\u001b\u{fffd}<b>/\""));
}

#[test]
fn hostile_names_stay_text() {
    let hostile = [
        "<script>alert(1)</script>",
        "\"onmouseover=\"alert(1)",
        "'x'",
        "javascript:alert(1)",
        "&lt;b&gt;",
        "-->",
        "]]>",
        "\u{202e}gpj.exe",
        "</title>",
    ];
    let entries = hostile.iter().map(|name| file_entry(name, 1)).collect();
    let page = of_entries("/<script>/\u{202e}\"/", entries).to_html();
    for forbidden in
        ["<script", "alert(1)</script>", "\"onmouse", "'x'", "\"javascript:", "<b>", "-->", "\u{202e}"]
    {
        assert!(!page.contains(forbidden), "{forbidden} in {page}");
    }
    let with_filter = of_entries("/", (0..10).map(|n| file_entry(&format!("<script>{n}"), 1)).collect());
    assert_eq!(with_filter.to_html().matches("<script").count(), 1, "only its own");
}

#[test]
fn the_heads_of_columns_lead_to_the_other_orders() {
    let heads = |word: &str| {
        let page = Listing { order: order(word), ..of_entries("/", Vec::new()) }.to_html();
        let heads = page.split_once("<thead><tr>").and_then(|(_, rest)| rest.split_once("</tr>"));
        let (heads, _) = heads.expect("the heads of the columns");
        let queries: Vec<String> = heads
            .split("href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap_or_default().to_owned())
            .collect();
        let sorted: Vec<usize> = heads
            .split("</th>")
            .enumerate()
            .filter(|(_, head)| head.contains("aria-sort"))
            .map(|(place, _)| place)
            .collect();
        (queries.join(" "), sorted, heads.contains("aria-sort=\"descending\""))
    };
    assert_eq!(heads("name"), ("?sort=-name ?sort=-size ?sort=-time".into(), vec![0], false));
    assert_eq!(heads("-name"), ("?sort=name ?sort=-size ?sort=-time".into(), vec![0], true));
    assert_eq!(heads("-size"), ("?sort=name ?sort=size ?sort=-time".into(), vec![1], true));
    assert_eq!(heads("time"), ("?sort=name ?sort=-size ?sort=-time".into(), vec![2], false));
}

#[test]
fn a_path_has_links_to_the_directories_above() {
    let heading = |path: &str| {
        let page = of_entries(path, Vec::new()).to_html();
        let heading = page.split_once("</small> ").and_then(|(_, rest)| rest.split_once("</h1>"));
        heading.expect("a heading").0.to_owned()
    };
    assert_eq!(heading("/"), "<bdi aria-current=\"page\">/</bdi>");
    assert_eq!(
        heading("/a&b/c/"),
        "<a href=\"../../\" aria-label=\"Top\">/</a><wbr><a href=\"../\"><bdi>a&amp;b/</bdi></a><wbr>\
         <bdi aria-current=\"page\">c/</bdi>"
    );
    // A path of 4096 bytes, the longest that the kernel takes.
    let deep = heading(&"/a".repeat(2048));
    assert!(deep.len() < 100_000, "{} bytes", deep.len());
    assert!(deep.contains("<bdi>a/</bdi>"));
}

#[test]
fn sizes_are_short_and_exact() {
    let entries = vec![file_entry("a", 1023), file_entry("b", 1536), file_entry("c", 0)];
    let page = of_entries("/", entries).to_html();
    for row in [
        "<td>1023 B</td><td>2026-11-26 <span>09:57</span></td>",
        "<td title=\"1536 bytes\">1.5 KiB</td>",
        "<td>0 B</td>",
    ] {
        assert!(page.contains(row), "{row} in {page}");
    }
}

#[test]
fn a_readme_is_shown_as_text() {
    let folder = tempdir().expect("a folder");
    let shown = |name: &str, content: &[u8]| {
        std::fs::write(folder.path().join(name), content).expect("a file");
        let root = file::open_folder(folder.path()).expect("the folder");
        let listing = read(&root, b"/", (100, order("name"))).expect("a listing").with_readme(&root);
        std::fs::remove_file(folder.path().join(name)).expect("removed");
        assert!(!listing.to_json().contains("script"), "JSON has no text");
        listing.to_html()
    };
    let page = shown("README.md", b"# A <script>alert(1)</script> & more\r\n");
    assert!(page.contains("<pre>\n# A &lt;script&gt;alert(1)&lt;/script&gt; &amp; more</pre>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("KiB of the file"));
    let page = shown("README.html", b"<script>alert(1)</script>");
    assert!(page.contains("<a href=\"./README.html\">README.html</a></h2>"), "{page}");
    assert!(!page.contains("alert"), "{page}");
    let page = shown("README", &[b'x'; 40_000]);
    assert_eq!(page.matches('x').count() - shown("README", b"-").matches('x').count(), 32 << 10);
    assert!(page.contains("The first 32 KiB of the file."));
}

#[test]
fn the_policy_allows_the_own_style_and_script_alone() {
    let page = of_entries("/", (0..10).map(|n| file_entry(&n.to_string(), 1)).collect()).to_html();
    let policy = page.split("content=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a policy");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
    for tag in ["style", "script"] {
        let (_, rest) = page.split_once(&format!("<{tag}>")).expect("the tag");
        let (content, _) = rest.split_once(&format!("</{tag}>")).expect("its end");
        let hash = STANDARD.encode(digest(&SHA256, content.as_bytes()));
        let source = format!("{tag}-src 'sha256-{hash}'");
        assert!(policy.contains(&source), "write {source} in place of that in {policy}");
    }
}

#[test]
fn an_entry_needs_no_more_memory_than_the_sandbox_counts() {
    for character in ["\"", "+", "&", "."] {
        let page_bytes = |entries: usize| {
            let entry = |_| file_entry(&character.repeat(255), u64::MAX);
            of_entries("/", (10..10 + entries).map(entry).collect()).to_html().len() as u64
        };
        let entry_bytes = (page_bytes(100) - page_bytes(50)) / 50;
        assert!((1_000..LISTING_ENTRY_BYTES).contains(&entry_bytes), "{entry_bytes} bytes for {character}");
    }
}

#[test]
fn a_bound_is_said() {
    let folder = tempdir().expect("a folder");
    for n in 0..5 {
        std::fs::write(folder.path().join(n.to_string()), "").expect("a file");
    }
    let root = file::open_folder(folder.path()).expect("the folder");
    let listing = read(&root, b"/", (3, order("name"))).expect("a listing");
    assert_eq!((listing.entries.len(), listing.more), (3, true));
    assert!(listing.to_html().contains("there are more"));
    assert!(listing.to_json().ends_with("],\"more\":true}\n"));
}
