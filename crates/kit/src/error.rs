//! The error of a command of the lab.
//!
//! Each command's `run` returns it; the command line prints it and takes its exit code.

use std::fmt;
use std::io;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a command failed: a text for people, a kind for the exit code.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    text: String,
}

/// The cause: the options, or the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The options are wrong: exit code 2.
    Usage,
    /// The machine, the disk or the server failed: exit code 1.
    Run,
}

impl Error {
    /// Wrong options; `text` names the mistake and the right form.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, text: text.into() }
    }

    /// A failure; `text` says what failed, on which thing, why, and what to do.
    pub fn run(text: impl Into<String>) -> Self {
        Self { kind: Kind::Run, text: text.into() }
    }

    /// A failed call on a file: `doing` is the verb, as in "write".
    pub fn file(doing: &str, path: &Path, why: &io::Error) -> Self {
        Self::run(format!("cannot {doing} {}: {why}", path.display()))
    }

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
