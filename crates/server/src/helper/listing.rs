//! Listings of directories, as HTML for people and as JSON for programs.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use flash_http::date::iso_date;
use flash_http::error_page::{escape_html, escape_json};
use flash_http::target::encode_path;
use flash_prompt::OwnedFd;
use flash_prompt::file::FileKind;
use flash_waiting::file;

/// Time for checking entries one by one. Later entries are listed by name only, so that a huge directory on a slow
/// disk is listed before the job's deadline.
const LOOK_TIME: Duration = Duration::from_secs(5);

/// The entries of a directory.
#[derive(Debug)]
pub(super) struct Listing {
    path: Vec<u8>,
    entries: Vec<Entry>,
    more: bool,
}

#[derive(Debug)]
struct Entry {
    /// The name in the file system: any bytes except a slash and NUL.
    name: Vec<u8>,
    directory: bool,
    /// Unknown if there was no time to check.
    size_bytes: Option<u64>,
    modified_s: Option<i64>,
}

/// Reads the directory `path`, which begins and ends with a slash.
pub(super) fn read(root: &OwnedFd, path: &[u8], entries_max: usize) -> io::Result<Listing> {
    let relative = match path.strip_prefix(b"/") {
        Some(rest) if !rest.is_empty() => rest,
        _ => b".",
    };
    let (mut names, more) = file::names(root, relative, entries_max)?;
    // Hidden files are not served.
    names.retain(|name| !name.starts_with(b"."));
    names.sort_unstable();
    let started = Instant::now();
    let mut entries: Vec<Entry> =
        names.into_iter().filter_map(|name| look(root, relative, name, started)).collect();
    entries.sort_by(|a, b| match b.directory.cmp(&a.directory) {
        Ordering::Equal => a.name.cmp(&b.name),
        other => other,
    });
    Ok(Listing { path: path.to_vec(), entries, more })
}

fn look(root: &OwnedFd, directory: &[u8], name: Vec<u8>, started: Instant) -> Option<Entry> {
    if started.elapsed() > LOOK_TIME {
        return Some(Entry { name, directory: false, size_bytes: None, modified_s: None });
    }
    let path = [directory, b"/", name.as_slice()].concat();
    // An entry that cannot be opened, mostly a symlink out of the root or a file that this user cannot read, is not
    // served either.
    let (stat, is_readable) = file::look(root, &path).ok()?;
    if !is_readable {
        return None;
    }
    let directory = match stat.kind {
        FileKind::File => false,
        FileKind::Directory => true,
        FileKind::Special => return None,
    };
    Some(Entry {
        name,
        directory,
        size_bytes: (!directory).then_some(stat.size_bytes),
        modified_s: Some(stat.modified_ns.div_euclid(1_000_000_000) as i64),
    })
}

/// A name as text for people: invalid UTF-8 and control characters become the replacement character, so that no name
/// can act on a page or a terminal.
fn text(bytes: &[u8]) -> String {
    let shown =
        |character: char| if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Text in HTML that may go on in the next line after a separator: browsers would otherwise break a long name inside
/// a word, or not at all. A character reference contains no separator.
fn breakable(html: &str) -> String {
    let mut text = String::with_capacity(html.len() + 40);
    for part in html.split_inclusive(['.', '-', '_', '+', '~', '/']) {
        if !text.is_empty() {
            text.push_str("<wbr>");
        }
        text.push_str(part);
    }
    text
}

/// A name for the inside of a JSON string. Invalid UTF-8 is replaced: its `href` is exact.
fn json_text(bytes: &[u8]) -> String {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => escape_json(text).into_owned(),
        Cow::Owned(text) => escape_json(&text).into_owned(),
    }
}

impl Entry {
    /// Its link, relative to its directory. No name can make it a scheme or a host.
    fn href(&self) -> String {
        format!("./{}{}", encode_path(&self.name), self.slash())
    }

    fn slash(&self) -> &'static str {
        if self.directory { "/" } else { "" }
    }
}

impl Listing {
    /// A page that is readable without scripts, in light and dark, on paper and small screens.
    pub(super) fn to_html(&self) -> String {
        let title = text(&self.path);
        let title = escape_html(&title);
        let mut page = String::with_capacity(1024 + self.entries.len() * 160);
        // Formatting into a String cannot fail.
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{}</h1>\n<table>\
             <thead><tr><th>Name</th><th class=\"n\">Size</th><th>Modified (UTC)</th></tr></thead>\n<tbody>\n",
            breakable(&title),
        );
        if self.path != b"/" {
            page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
        }
        for entry in &self.entries {
            let size = entry.size_bytes.map(size_text).unwrap_or_default();
            let modified = entry.modified_s.map(date_text).unwrap_or_default();
            let _ = writeln!(
                page,
                "<tr><td><a href=\"{}\">{}{}</a></td><td class=\"n\">{size}</td><td>{modified}</td></tr>",
                entry.href(),
                breakable(&escape_html(&text(&entry.name))),
                entry.slash(),
            );
        }
        page.push_str("</tbody></table>\n");
        let count = self.entries.len();
        let _ = match (self.more, count) {
            (true, _) => write!(page, "<p>The first {count} entries that were found; there are more.</p>"),
            (false, 0) => write!(page, "<p>Empty.</p>"),
            (false, 1) => write!(page, "<p>1 entry</p>"),
            (false, _) => write!(page, "<p>{count} entries</p>"),
        };
        page.push_str("</body></html>\n");
        page
    }

    /// `{"path", "entries": [{"name", "href", "type", "size", "modified"}], "more"}`; size in bytes.
    pub(super) fn to_json(&self) -> String {
        let mut text = format!("{{\"path\":\"{}\",\"entries\":[", json_text(&self.path));
        for (number, entry) in self.entries.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let kind = match (entry.directory, entry.modified_s) {
                (true, _) => "\"directory\"",
                (false, Some(_)) => "\"file\"",
                (false, None) => "null",
            };
            let size = entry.size_bytes.map_or("null".to_owned(), |bytes| bytes.to_string());
            let modified = entry
                .modified_s
                .map_or("null".to_owned(), |s| format!("\"{}\"", String::from_utf8_lossy(&iso_date(s))));
            let _ = write!(
                text,
                "{comma}{{\"name\":\"{}\",\"href\":\"{}\",\"type\":{kind},\"size\":{size},\"modified\":{modified}}}",
                json_text(&entry.name),
                entry.href(),
            );
        }
        let _ = writeln!(text, "],\"more\":{}}}", self.more);
        text
    }
}

fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

fn date_text(unix_s: i64) -> String {
    // 2026-11-20T23:17:00Z, to the minute.
    let date = iso_date(unix_s);
    String::from_utf8_lossy(&date[..16]).replace('T', " ")
}

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}\
h1{font-size:1.25rem;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th{text-align:left;font-weight:600;border-bottom:1px solid #8888}\
th,td{padding:.2rem 1rem .2rem 0;vertical-align:top}\
td:first-child{overflow-wrap:anywhere}\
td:not(:first-child){white-space:nowrap;font-variant-numeric:tabular-nums;opacity:.8}\
.n{text-align:right}\
a{text-decoration:none}a:hover{text-decoration:underline}\
tbody tr:hover{background:#8881}\
p{opacity:.7}\
@media (max-width:40rem){\
body{margin:1rem auto}\
thead{display:none}\
tr{display:block;padding:.3rem 0;border-bottom:1px solid #8883}\
td{display:inline;padding:0}\
td:first-child{display:block}\
td:not(:first-child){font-size:.85em;margin-right:1rem}\
td:empty{display:none}}";

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use tempfile::{TempDir, tempdir};

    use super::*;

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
        let listing = read(&root, b"/", 100).expect("a listing");
        (folder, listing)
    }

    #[test]
    fn shows_what_is_served_and_nothing_else() {
        let (_folder, listing) = listing();
        let names: Vec<_> =
            listing.entries.iter().map(|e| (&e.name[..], e.directory, e.size_bytes)).collect();
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
        assert!(odd.to_html().contains("<h1>/<wbr>\u{fffd}\u{fffd}&lt;b&gt;/</h1>"));
        assert!(odd.to_json().starts_with("{\"path\":\"/\\u001b\u{fffd}<b>/\""));
    }

    #[test]
    fn names_break_at_their_separators() {
        assert_eq!(
            breakable("libc6_2.36-9~x_&amp;.deb"),
            "libc6_<wbr>2.<wbr>36-<wbr>9~<wbr>x_<wbr>&amp;.<wbr>deb"
        );
        assert_eq!(breakable("/a/"), "/<wbr>a/");
        assert_eq!(breakable(""), "");
    }

    #[test]
    fn a_bound_is_said() {
        let folder = tempdir().expect("a folder");
        for n in 0..5 {
            std::fs::write(folder.path().join(n.to_string()), "").expect("a file");
        }
        let root = file::open_folder(folder.path()).expect("the folder");
        let listing = read(&root, b"/", 3).expect("a listing");
        assert_eq!((listing.entries.len(), listing.more), (3, true));
        assert!(listing.to_html().contains("there are more"));
        assert!(listing.to_json().ends_with("],\"more\":true}\n"));
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
