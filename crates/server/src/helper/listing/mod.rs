//! Listings of directories, as HTML for people and as JSON for programs. Called by [`work`](super::work).

mod order;
mod page;
mod readme;
mod text;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};

use flash_engine::ListingOrder;
use flash_http::date::iso_date;
use flash_http::error_page::escape_json;
use flash_http::target::encode_path;
use flash_prompt::OwnedFd;
use flash_prompt::file::FileKind;
use flash_waiting::directory::Directory;
use flash_waiting::watched::relative;

use readme::Readme;

/// Time for checking entries one by one. Later entries are listed by name only, so that a huge directory on a slow
/// disk is listed before the job's deadline.
const LOOK_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Listing {
    path: Vec<u8>,
    order: ListingOrder,
    entries: Vec<Entry>,
    more: bool,
    readme: Option<Readme>,
}

#[derive(Debug)]
struct Entry {
    /// The name in the file system: any bytes except a slash and NUL.
    name: Vec<u8>,
    /// The form of it that decides about its place.
    natural: Vec<u8>,
    directory: bool,
    /// Unknown if there was no time to check.
    size_bytes: Option<u64>,
    modified_s: Option<i64>,
}

/// Reads the directory `path`, which begins and ends with a slash: at most this many entries, in this order.
pub(super) fn read(
    root: &OwnedFd,
    path: &[u8],
    (entries_max, order): (usize, ListingOrder),
) -> io::Result<Listing> {
    let directory = Directory::open(root, relative(path))?;
    let (mut names, more) = directory.names(entries_max)?;
    // Hidden files are not served.
    names.retain(|name| !name.starts_with(b"."));
    names.sort_unstable();
    let started = Instant::now();
    let mut entries: Vec<Entry> =
        names.into_iter().filter_map(|name| look(&directory, name, started)).collect();
    entries.sort_by(|a, b| order::compare(a, b, order));
    Ok(Listing { path: path.to_vec(), order, entries, more, readme: None })
}

fn look(directory: &Directory<'_>, name: Vec<u8>, started: Instant) -> Option<Entry> {
    if started.elapsed() > LOOK_TIME {
        let natural = order::natural(&name);
        return Some(Entry { name, natural, directory: false, size_bytes: None, modified_s: None });
    }
    // An entry that cannot be looked at, mostly a symlink out of the root or a file that this user cannot read, is not
    // served either.
    let (stat, is_readable) = directory.look(&name).ok()?;
    if !is_readable {
        return None;
    }
    let directory = match stat.kind {
        FileKind::File => false,
        FileKind::Directory => true,
        FileKind::Special => return None,
    };
    Some(Entry {
        natural: order::natural(&name),
        name,
        directory,
        size_bytes: (!directory).then_some(stat.size_bytes),
        modified_s: Some(stat.modified_ns.div_euclid(1_000_000_000) as i64),
    })
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
    pub(super) fn with_readme(self, root: &OwnedFd) -> Self {
        let readme = readme::read(root, relative(&self.path), &self.entries);
        Self { readme, ..self }
    }

    /// With the path by which clients know the directory.
    pub(super) fn shown_as(self, path: &[u8]) -> Self {
        Self { path: path.to_vec(), ..self }
    }

    pub(super) fn to_html(&self) -> String {
        page::page(self)
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

#[cfg(test)]
mod tests;
