//! A directive of a configuration: the form that the parsers of all three languages give.

use crate::notes::Position;

/// The most characters of a line that a note shows.
const SHOWN_CHARS_MAX: usize = 100;

/// Whether a name is one of these, which have spaces between them.
pub(crate) fn is_among(name: &str, names: &str) -> bool {
    names.split_ascii_whitespace().any(|other| other == name)
}

/// A directive with its arguments, and its block or section if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Directive {
    /// In lower case for Apache; empty for the global options of Caddy.
    pub(crate) name: String,
    pub(crate) args: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
    pub(crate) position: Position,
    /// The whole line, for notes.
    pub(crate) line: String,
}

impl Directive {
    /// A directive whose name is the first of these words.
    pub(crate) fn new(words: Vec<String>, block: Option<Vec<Self>>, position: &Position) -> Self {
        let line = words.join(" ");
        let mut words = words.into_iter();
        let name = words.next().unwrap_or_default();
        Self { name, args: words.collect(), block, position: position.clone(), line }
    }

    /// The first argument, or nothing.
    pub(crate) fn first(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }

    /// The directives of its block.
    pub(crate) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The name and the arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        std::iter::once(&self.name).chain(&self.args).cloned().collect()
    }

    /// The line for notes.
    pub(crate) fn shown(&self) -> String {
        let short: String = self.line.chars().take(SHOWN_CHARS_MAX).collect();
        if short.len() < self.line.len() { format!("`{short}…`") } else { format!("`{short}`") }
    }
}
