//! The programs that Flash starts to answer the requests of a route (`app`, `cgi`).
//!
//! `config::file` reads them, `config::resolve` checks them, and the supervisor starts them.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::account;
use super::error::{ConfigErrorKind, Problem};
use super::options::{Given, Origin};
use super::resolve::reason;
use super::settings::RunAs;
use super::values::UserName;

/// Maximum words of a command.
pub(super) const WORDS_MAX: usize = 256;

/// A program that answers the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Its processes, at least one.
    pub processes: u64,
    /// Maximum private memory of a process, in bytes.
    pub memory_bytes_max: u64,
    /// Whether programs of `cgi` get the field `Authorization` of a request.
    #[serde(default)]
    pub authorization: bool,
    /// The user; `None` for the one that started Flash.
    pub run_as: Option<RunAs>,
    /// The processes themselves.
    pub runs: Runs,
}

/// The processes of a [`Program`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// This command, for any number of requests in FastCGI.
    App(Vec<String>),
    /// The programs in this directory, one process per request (RFC 3875).
    Cgi(PathBuf),
}

/// The programs of a route as the file has them.
#[derive(Debug)]
pub(super) struct ProgramDraft {
    pub(super) program: Program,
    /// The place of the command or directory in the file.
    pub(super) span: Range<usize>,
    pub(super) user: Option<(UserName, Range<usize>)>,
}

impl Program {
    /// Its process of this number, from 1, in messages.
    pub(crate) fn name(&self, number: u16) -> String {
        match &self.runs {
            Runs::App(words) if self.processes > 1 => format!("process {number} of `{}`", words.join(" ")),
            Runs::App(words) => format!("`{}`", words.join(" ")),
            Runs::Cgi(folder) => format!("the process that runs the programs in `{}`", folder.display()),
        }
    }
}

impl ProgramDraft {
    /// The program with its user; `run_as` is that of Flash. Its file must exist.
    pub(super) fn resolve(self, run_as: Option<&RunAs>, problems: &mut Vec<Problem>) -> Program {
        let Self { mut program, span, user } = self;
        program.run_as = match user {
            None => run_as.cloned(),
            Some((value, span)) => account::named(&Given { value, origin: Origin::File(span) }, problems),
        };
        let (path, is_wanted, why): (&Path, fn(&Path) -> bool, _) = match &program.runs {
            Runs::App(words) => (Path::new(&words[0]), Path::is_file, "not a file"),
            Runs::Cgi(folder) => (folder, Path::is_dir, "not a directory"),
        };
        // A name without a slash is looked for in the directories for programs.
        if path.to_string_lossy().contains('/') && !is_wanted(path) {
            let why = std::fs::metadata(path).map_or_else(|e| reason(&e), |_| why.to_owned());
            let title = format!("cannot start `{}`", path.display());
            problems.push(Problem::at(span, title, why).of(ConfigErrorKind::Path));
        }
        program
    }
}
