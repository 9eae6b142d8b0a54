//! The README of a directory, which its listing shows as plain text. An upload must not become a page with scripts, so nothing
//! in it acts as HTML.

use std::io;

use flash_engine::README_NAMES;
use flash_prompt::OwnedFd;
use flash_prompt::file::Want;
use flash_waiting::file;

use super::Entry;
use super::text::shown;

pub(super) const README_BYTES_MAX: usize = 32 << 10;

#[derive(Debug)]
pub(super) struct Readme {
    /// Its file, one of [`README_NAMES`].
    pub(super) name: &'static str,
    /// The text, not escaped; empty for a file that only has a link.
    pub(super) text: String,
    /// Whether the file goes on.
    pub(super) more: bool,
}

/// Finds the README among the entries of a directory, and reads its beginning. None if there is none that can be read as text.
pub(super) fn read(root: &OwnedFd, directory: &[u8], entries: &[Entry]) -> Option<Readme> {
    let is_there = |name: &&str| {
        entries.iter().any(|entry| {
            entry.name == name.as_bytes()
                && !entry.directory
                && entry.size_bytes.is_some_and(|bytes| bytes > 0)
        })
    };
    README_NAMES.into_iter().filter(is_there).find_map(|name| {
        if name.ends_with(".html") {
            return Some(Readme { name, text: String::new(), more: false });
        }
        let path = [directory, b"/", name.as_bytes()].concat();
        let bytes = beginning(root, &path).ok()?;
        let (text, more) = plain_text(&bytes)?;
        Some(Readme { name, text, more })
    })
}

/// The first bytes of a file, at most one more than are shown.
fn beginning(root: &OwnedFd, path: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(opened) = file::open(root, path, Want::Content)?.file {
        file::read(opened, 0, README_BYTES_MAX + 1, &mut bytes)?;
    }
    Ok(bytes)
}

/// The beginning of a text in UTF-8, and whether it goes on; None if it is no text. Characters that could act on the page are
/// replaced.
fn plain_text(bytes: &[u8]) -> Option<(String, bool)> {
    let more = bytes.len() > README_BYTES_MAX;
    let bytes = &bytes[..bytes.len().min(README_BYTES_MAX)];
    if bytes.contains(&0) {
        return None;
    }
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    // The cut can be within a character.
    let text = if more { text.trim_end_matches(char::REPLACEMENT_CHARACTER) } else { &text };
    let keep = |character: char| if matches!(character, '\n' | '\t') { character } else { shown(character) };
    let text: String = text.trim_end().replace("\r\n", "\n").chars().map(keep).collect();
    (!text.is_empty()).then_some((text, more))
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::super::{ListingOrder, read as read_listing};
    use super::*;

    /// The README of a directory with these files.
    fn readme(files: &[(&str, &[u8])]) -> Option<(&'static str, String, bool)> {
        let folder = tempdir().expect("a folder");
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).expect("a file");
        }
        let root = file::open_folder(folder.path()).expect("the folder");
        let listing = read_listing(&root, b"/", (100, ListingOrder::default())).expect("a listing");
        let Readme { name, text, more } = read(&root, b".", &listing.entries)?;
        Some((name, text, more))
    }

    #[test]
    fn the_first_choice_that_has_text_is_shown() {
        assert_eq!(readme(&[("README.rst", b"x"), ("readme", b"x")]), None);
        let text = |name, text: &str| Some((name, text.to_owned(), false));
        let all: [(&str, &[u8]); 4] =
            [("README", b"plain\n"), ("README.html", b"<p>"), ("README.md", b"# md"), ("README.txt", b"txt")];
        assert_eq!(readme(&all), text("README.md", "# md"));
        assert_eq!(readme(&all[..2]), text("README", "plain"));
        assert_eq!(readme(&all[1..2]), text("README.html", ""), "never its HTML");
        let binary: [(&str, &[u8]); 3] = [("README.md", b""), ("README", b"a\0b"), ("README.txt", b"txt")];
        assert_eq!(readme(&binary), text("README.txt", "txt"));
        assert_eq!(readme(&binary[..2]), None);
    }

    #[test]
    fn only_a_regular_file_beneath_the_root_is_read() {
        let folder = tempdir().expect("a folder");
        std::fs::create_dir_all(folder.path().join("root/README.md")).expect("a folder");
        std::fs::write(folder.path().join("secret"), "secret").expect("a file");
        std::os::unix::fs::symlink("../secret", folder.path().join("root/README")).expect("a link");
        let root = file::open_folder(&folder.path().join("root")).expect("the folder");
        let entry = |name: &str| Entry {
            name: name.into(),
            natural: vec![],
            directory: false,
            size_bytes: Some(6),
            modified_s: None,
        };
        // As if they had been replaced since they were listed.
        assert!(read(&root, b".", &[entry("README.md"), entry("README")]).is_none());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let cut = |text: &str| plain_text(text.as_bytes()).expect("text");
        let most = "x".repeat(README_BYTES_MAX);
        assert_eq!(cut(&most), (most.clone(), false));
        assert_eq!(cut(&format!("{most}y")), (most.clone(), true));
        let wide = format!("{}\u{1f600}", &most[..README_BYTES_MAX - 2]);
        assert_eq!(cut(&wide), (most[..README_BYTES_MAX - 2].to_owned(), true));
    }

    #[test]
    fn no_character_of_a_text_acts() {
        let shown = plain_text(b"\xef\xbb\xbfa\r\n\tb \x1b[2J \xff \xe2\x80\xae\n\n").expect("text");
        assert_eq!(shown.0, "a\n\tb \u{fffd}[2J \u{fffd} \u{fffd}");
    }
}
