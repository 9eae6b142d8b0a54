//! Blocks of the documents that a test makes or checks. Every crate with such a test includes this file.
//!
//! A block of output with `<!-- checked by: TEST -->` above it belongs to the test of that name, which must call [`block`]
//! (`crates/flash/tests/documents.rs`).

use std::fs;
use std::path::Path;

/// The text of a document, such as `docs/stats.md`.
fn text(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{document}: {e}"))
}

/// The block of output that belongs to a test.
#[track_caller]
pub(crate) fn block(document: &str, test: &str) -> String {
    below(document, &format!("<!-- checked by: {test} -->\n```"))
}

/// The first block in a language.
#[track_caller]
pub(crate) fn code(document: &str, language: &str) -> String {
    below(document, &format!("```{language}\n"))
}

#[track_caller]
fn below(document: &str, mark: &str) -> String {
    let text = text(document);
    let Some((before, after)) = text.split_once(mark) else { panic!("{document} has no {mark:?}") };
    let rest = if mark.ends_with('\n') { after } else { after.split_once('\n').unwrap_or_default().1 };
    let end = rest.find("```").unwrap_or_else(|| panic!("{document}: no end after {} bytes", before.len()));
    rest[..end].to_owned()
}
