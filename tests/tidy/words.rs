//! The words of the project: the worst habits of language are refused in comments of Rust and C, and in Markdown.
//!
//! Run by `cargo test -p flash --test tidy`. Text between backquotes, code blocks and strings are not read.

use super::source::Source;
use super::{Breach, assert_kept, c, files, root, sources};

/// A habit, and the words to use instead.
struct Habit {
    instead: &'static str,
    /// Where it stands in a paragraph, as byte offsets.
    find: fn(&Paragraph) -> Vec<usize>,
}

const HABITS: &[Habit] = &[
    Habit {
        instead: "\"must not\" for a ban, \"might not\" for a possibility",
        find: |paragraph| phrase(&paragraph.text, "may not"),
    },
    Habit { instead: "\"this many\", or the number", find: |paragraph| phrase(&paragraph.text, "so many") },
    Habit { instead: "\"except\"", find: |paragraph| phrase(&paragraph.text, "but for") },
    Habit {
        instead: "the name of the thing: \"the worker\", \"the bytes of the job\"",
        find: |paragraph| if paragraph.is_row { Vec::new() } else { what_sentences(&paragraph.text) },
    },
];

/// Lines that belong together, joined by spaces.
#[derive(Debug, Default, PartialEq, Eq)]
struct Paragraph {
    text: String,
    /// The offset at which each line begins, and its number.
    lines: Vec<(usize, usize)>,
    /// Whether it is a row of a table, whose cells are no sentences.
    is_row: bool,
}

impl Paragraph {
    fn push(&mut self, number: usize, line: &str) {
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        self.lines.push((self.text.len(), number));
        self.text.push_str(line);
    }

    fn line_of(&self, at: usize) -> usize {
        self.lines.iter().rev().find(|(start, _)| *start <= at).map_or(1, |(_, number)| *number)
    }
}

/// Where a phrase of lower-case words stands, in whatever case.
fn phrase(text: &str, wanted: &str) -> Vec<usize> {
    let lower = text.to_ascii_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let found = lower.match_indices(wanted).map(|(at, _)| at);
    found
        .filter(|at| !lower[..*at].ends_with(is_word) && !lower[*at + wanted.len()..].starts_with(is_word))
        .collect()
}

/// Where a sentence begins with "What" that is not a question.
fn what_sentences(text: &str) -> Vec<usize> {
    let begins = |at: &usize| {
        let before = text[..*at].trim_end_matches([' ', '"', '(', '*', '_']);
        before.is_empty() || *at > before.len() && before.ends_with(['.', '!', '?', ':'])
    };
    let is_question = |at: &usize| {
        let rest = &text[*at..];
        let ends = rest.match_indices(['.', '!', '?']).map(|(end, _)| end);
        let mut ends = ends
            .filter(|end| rest[end + 1..].is_empty() || rest[end + 1..].starts_with([' ', '"', ')', '*']));
        ends.next().is_some_and(|end| rest[end..].starts_with('?'))
    };
    let found = text.match_indices("What ").map(|(at, _)| at);
    found.filter(begins).filter(|at| !is_question(at)).collect()
}

/// The text without what stands between backquotes.
fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts.map(|(number, part)| if number % 2 == 0 { part } else { "~" }).collect()
}

/// The paragraphs of lines of Markdown: list items and rows apart, headings and code blocks left out.
fn paragraphs<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut done = Vec::new();
    let mut current = Paragraph::default();
    let mut is_code = false;
    let mut last = 0;
    for (number, line) in lines {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_heading = line.starts_with('#');
        let is_row = line.starts_with('|');
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = item.strip_prefix("- ").or(item.strip_prefix("* ")).or(item.strip_prefix(". "));
        let is_silent = line.is_empty() || is_fence || is_code || is_heading;
        if is_silent || is_row || item.is_some() || number != last + 1 {
            done.push(std::mem::take(&mut current));
        }
        if !is_silent {
            current.push(number, &without_code(item.unwrap_or(line)));
            current.is_row = is_row;
        }
        last = number;
    }
    done.push(current);
    done.retain(|paragraph| !paragraph.text.is_empty());
    done
}

/// The comments of a source, line by line, by kind: a paragraph ends where the kind changes.
fn comments(source: &Source) -> Vec<Paragraph> {
    let mut starts = Vec::new();
    let mut at = 0;
    for (number, line) in source.text.split('\n').enumerate() {
        let code = &source.code.as_bytes()[at..at + line.len()];
        let slashes = line.match_indices("//").map(|(start, _)| start);
        if let Some(start) = slashes.into_iter().find(|start| code[*start..].starts_with(b"  ")) {
            let kind = line[start..].find(|c| c != '/' && c != '!').unwrap_or(line.len() - start);
            let (marker, text) = line[start..].split_at(kind);
            let is_alone = line[..start].trim().is_empty();
            starts.push((number + 1, if is_alone { marker } else { "" }, text));
        }
        at += line.len() + 1;
    }
    let groups = starts.chunk_by(|one, next| one.1 == next.1 && !one.1.is_empty() && next.0 == one.0 + 1);
    groups.flat_map(|group| paragraphs(group.iter().map(|(number, _, text)| (*number, *text)))).collect()
}

/// Every paragraph that people read, with its file.
fn all_paragraphs() -> Vec<(String, Paragraph)> {
    let mut all = Vec::new();
    for source in sources() {
        all.extend(comments(&source).into_iter().map(|paragraph| (source.path.clone(), paragraph)));
    }
    for source in c::sources() {
        let each = source
            .comments
            .iter()
            .flat_map(|comment| paragraphs(comment.iter().map(|(number, line)| (*number, line.as_str()))));
        all.extend(each.map(|paragraph| (source.path.clone(), paragraph)));
    }
    for path in files().into_iter().filter(|path| path.ends_with(".md")) {
        let text = std::fs::read_to_string(root().join(&path)).unwrap();
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line));
        all.extend(paragraphs(lines).into_iter().map(|paragraph| (path.clone(), paragraph)));
    }
    all
}

fn breaches(habit: &Habit, path: &str, paragraph: &Paragraph) -> Vec<Breach> {
    let found = (habit.find)(paragraph).into_iter();
    let breach = |at: usize| {
        let words: String = paragraph.text[at..].chars().take(50).collect();
        let what = format!("\"{words}\": write {}", habit.instead);
        Breach::new(path, paragraph.line_of(at), what)
    };
    found.map(breach).collect()
}

#[test]
fn the_worst_habits_of_language_are_gone() {
    let paragraphs = all_paragraphs();
    assert!(paragraphs.len() > 1_000, "the comments were not found");
    let found = HABITS.iter().flat_map(|habit| {
        paragraphs.iter().flat_map(move |(path, paragraph)| breaches(habit, path, paragraph))
    });
    assert_kept("Plain words, please.", &found.collect::<Vec<_>>());
}

#[test]
fn habits_are_found() {
    let found = |text: &str| -> Vec<(usize, usize)> {
        let paragraphs = comments(&Source::new("x.rs", text));
        let each = HABITS.iter().enumerate().flat_map(|(habit, rule)| {
            let all = paragraphs.iter().flat_map(|paragraph| breaches(rule, "x.rs", paragraph));
            all.map(move |breach| (habit, breach.line)).collect::<Vec<_>>()
        });
        each.collect()
    };
    assert_eq!(found("/// A worker may\n/// not wait.\nfn f() {}\n"), [(0, 1)]);
    assert_eq!(found("let a = 1; // So many bytes.\n"), [(1, 1)]);
    assert_eq!(found("//! All of it,\n//! but for the head.\n"), [(2, 2)]);
    assert_eq!(
        found("/// What is read.\nstruct A;\n// It waits. What it\n// read is lost.\n"),
        [(3, 1), (3, 3)]
    );
    for text in [
        "let a = \"// it may not, so many\"; // Fine.\n",
        "// A `may not` in code.\n",
        "// What is it? A file.\n",
        "// maybe nothing, button for, also manyfold\n",
        "/// # What blocks\n///\n/// | What | it |\n",
        "// One may\n/// Not the same paragraph.\n",
        "//! ```\n//! so many\n//! ```\n",
        "fn what() {}\n",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}
