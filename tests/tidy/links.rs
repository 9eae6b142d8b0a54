//! Links and paths: what the documents name exists, headings included.
//!
//! Run by `cargo test -p flash --test tidy`. Relative links and paths are checked in Markdown, scripts of `bench/` also in
//! sources. The README's figures are not read: they name the script that measured a result, even one that is gone.

use std::path::Path;

use super::{Breach, assert_kept, files, root};

/// A path in a document begins with one of these folders, or is a path in a crate such as `server/src/role.rs`.
const FOLDERS: &[&str] = &[
    "bench/",
    "crates/",
    "docs/",
    "examples/",
    "tests/",
    "fuzz/",
    ".ci/",
    "packaging/",
    // Not all of `modules/`: nginx has a folder of that name too.
    "modules/apache/",
    "modules/client/",
    "modules/endpoint/",
    "modules/nginx/",
    "modules/package",
    "modules/suite",
];
/// The README's figures are between these.
const FIGURES: [&str; 2] = ["<!-- figures: ", "<!-- end of figures"];

/// Whether a path exists below the root, or below the crates.
fn exists(path: &str) -> bool {
    root().join(path).exists() || root().join("crates").join(path).exists()
}

/// The targets of the links in a line of Markdown that lead to files or headings.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// Whether a link in a document, whose `text` is given, leads to a file and, in Markdown, to a heading of it.
fn leads_somewhere(target: &str, folder: &Path, text: &str) -> bool {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = folder.join(file);
    if heading.is_empty() || !(file.is_empty() || file.ends_with(".md")) {
        return path.exists();
    }
    let is_in = |text: &str| headings(text).any(|found| found == heading);
    if file.is_empty() { is_in(text) } else { std::fs::read_to_string(path).is_ok_and(|text| is_in(&text)) }
}

/// The headings of a document as links name them: small letters, hyphens for spaces, no other signs.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let titles =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
    titles.map(move |title| title.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-"))
}

/// The paths in a line. A path with a placeholder (`…`, `*`, `{`, a word in capitals) names no one file, and a product of a build
/// is not in the repository.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || "`'\"()[],;:|=#".contains(c);
    let words = line.split(is_end).map(|word| word.trim_end_matches('.'));
    let is_path = |word: &&str| {
        let is_in_crate = !word.starts_with(['/', '.']) && word.contains("/src/");
        FOLDERS.iter().any(|folder| word.starts_with(folder)) || is_in_crate
    };
    let is_capital = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
    let is_pattern =
        move |word: &str| word.contains(['…', '*', '{', '<', '$']) || word.split(['/', '-']).any(is_capital);
    words
        .filter(is_path)
        .filter(move |word| !is_pattern(word) && !word.contains("/.cache") && !word.contains("/build/"))
}

/// The breaches of one file.
fn missing(name: &str, text: &str) -> Vec<Breach> {
    let is_document = name.ends_with(".md");
    let folder = root().join(name).parent().map(Into::into).unwrap_or_else(root);
    let mut breaches = Vec::new();
    let mut is_figure = false;
    for (number, line) in text.lines().enumerate() {
        is_figure = (is_figure || line.starts_with(FIGURES[0])) && !line.starts_with(FIGURES[1]);
        let broken = links(line).filter(|target| is_document && !leads_somewhere(target, &folder, text));
        let is_script = |path: &&str| path.starts_with("bench/") && path.ends_with(".py");
        let gone = paths(line).filter(|path| is_document || is_script(path));
        let gone = gone.filter(|path| !is_figure && !exists(path));
        breaches.extend(broken.chain(gone).map(|path| Breach::new(name, number + 1, format!("`{path}`"))));
    }
    breaches
}

#[test]
fn documents_name_files_that_exist() {
    let is_read = |name: &&String| {
        let is_text = [".md", ".rs", ".py"].iter().any(|end| name.ends_with(end));
        is_text && !name.starts_with("tests/tidy/")
    };
    let read = |name: &String| missing(name, &std::fs::read_to_string(root().join(name)).unwrap());
    let breaches: Vec<Breach> = files().iter().filter(is_read).flat_map(read).collect();
    assert_kept(
        "Links and paths lead somewhere: correct the document, or name the command of today.",
        &breaches,
    );
}

#[test]
fn missing_files_are_found() {
    for text in [
        "[a](gone.md)",
        "[a](../docs/gone.md#b)",
        "[a](lab.md#gone)",
        "# A\n[a](#gone)",
        "`bench/gone.py --rounds 1`",
        "see `server/src/gone.rs`.",
    ] {
        assert_eq!(missing("docs/x.md", text).len(), 1, "{text}");
    }
    assert_eq!(missing("x.rs", "//! See bench/gone.py.\n//! crates/gone.").len(), 1);
    for text in [
        "# On `D`: e/f\n[a](lab.md#reading-a-report) [b](https://e.org/x#y) [c](#on-d-ef) docs/lab.md#e",
        "`bench/results/DATE-x`",
        "bench/store.py, bench/results/2026-…",
    ] {
        assert_eq!(missing("docs/x.md", text), [], "{text}");
    }
    assert_eq!(missing("README.md", "<!-- figures: x -->\n`bench/gone.py`\n<!-- end of figures -->"), []);
}
