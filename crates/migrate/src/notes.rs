//! Positions in files, what could not be carried over from them, and why a file cannot be read at all.

use std::fmt;
use std::sync::Arc;

use crate::directive::Directive;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file, as it is shown: from the folder of the first file if it is beneath it.
    pub file: Arc<str>,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 { write!(f, ":{}", self.line) } else { Ok(()) }
    }
}

/// Something that Flash's configuration does not say, or says differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The line that says it.
    pub position: Position,
    /// The directive, and what is different.
    pub text: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.text)
    }
}

/// The notes so far, each once.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<Note>);

impl Notes {
    pub(crate) fn add(&mut self, position: &Position, text: impl Into<String>) {
        let text = text.into().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let note = Note { position: position.clone(), text };
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// Notes that a directive is not carried over, or not wholly.
    pub(crate) fn lost(&mut self, directive: &Directive, why: &str) {
        self.add(&directive.position, format!("{}: {why}", directive.shown()));
    }

    /// The notes in the order of files and lines: the first file comes first, others by their names.
    pub(crate) fn sorted(mut self, first: &Arc<str>) -> Vec<Note> {
        self.0.sort_by(|one, other| {
            let key = |note: &Note| (note.position.file != *first, note.position.clone());
            key(one).cmp(&key(other))
        });
        self.0
    }
}

/// Why a file cannot be carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where the reason is.
    pub position: Position,
    /// The reason.
    pub why: String,
}

impl Failure {
    pub(crate) fn new(position: &Position, why: impl Into<String>) -> Self {
        Self { position: position.clone(), why: why.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.position, self.why)
    }
}
