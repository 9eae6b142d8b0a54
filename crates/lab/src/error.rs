//! What a command of the lab ends with when it can't do its work.
//!
//! Each command's `run` returns it; the command line prints it and takes its exit code.

use std::fmt;
use std::io;
use std::path::Path;

/// The result of a command of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command could not do its work: a text for people, a kind for the exit code.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    text: String,
}

/// Whose the mistake was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The options make no sense: exit code 2.
    Usage,
    /// The machine, the disk or the server would not: exit code 1.
    Run,
}

impl Error {
    /// Options that make no sense; `text` says what is wrong and what would be right.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, text: text.into() }
    }

    /// Work that could not be done; `text` says what failed, on what, why, and what to do.
    pub fn run(text: impl Into<String>) -> Self {
        Self { kind: Kind::Run, text: text.into() }
    }

    /// A failed call on a file: `doing` is what was tried, as in "write".
    pub fn file(doing: &str, path: &Path, why: &io::Error) -> Self {
        Self::run(format!("cannot {doing} {}: {why}", path.display()))
    }

    /// Whose the mistake was.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code of a command that ends with this.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Run => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
