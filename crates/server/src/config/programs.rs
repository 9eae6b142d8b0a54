//! The programs that Flash starts to answer the requests of a route (`app`, `cgi`).
//!
//! `config::file` reads them, `config::resolve` checks them, and the supervisor starts them.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flash_prompt::file::Want;
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::{file, program};
use serde::{Deserialize, Serialize};

use super::account;
use super::error::{ConfigErrorKind, Problem};
use super::options::{Given, Origin};
use super::resolve::reason;
use super::settings::RunAs;
use super::values::UserName;

/// Maximum words of a command.
pub(super) const WORDS_MAX: usize = 256;

/// The directories in which a program without a slash in its name is looked for.
pub(crate) const DIRECTORIES: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    /// The program in messages.
    pub(crate) fn name(&self) -> String {
        match &self.runs {
            Runs::App(words) => format!("`{}`", words.join(" ")),
            Runs::Cgi(folder) => format!("the process that runs the programs in `{}`", folder.display()),
        }
    }

    /// Its process of this number, from 1, in messages.
    pub(crate) fn process_name(&self, number: u64) -> String {
        let name = self.name();
        if self.processes > 1 { format!("process {number} of {name}") } else { name }
    }
}

impl ProgramDraft {
    /// The program with its user, which must be able to execute it.
    pub(super) fn resolve(self, run_as: Option<&RunAs>, problems: &mut Vec<Problem>) -> Program {
        let Self { mut program, span, user } = self;
        program.run_as = match user {
            Some((value, span)) => account::named(&Given { value, origin: Origin::File(span) }, problems),
            None => {
                problems.extend(run_as.map(|workers| no_user(&program.runs, workers, &span)));
                None
            }
        };
        if let Err(e) = program.check() {
            problems.push(program.cannot_start(&e, span));
        }
        program
    }
}

/// A program without a user, although root starts Flash.
fn no_user(runs: &Runs, workers: &RunAs, span: &Range<usize>) -> Problem {
    let (key, names) = match runs {
        Runs::App(_) => ("app", "its processes"),
        Runs::Cgi(_) => ("cgi", "its programs"),
    };
    let why = format!("as `{}`, the user of the workers, {names} could end the workers", workers.name);
    let help = "name the user of the application in the route, for example `user = \"www-data\"`";
    Problem::at(span.clone(), format!("`{key}` without `user`, started by root"), why).helped(help)
}

impl Program {
    /// Whether its user can execute the command, or enter the directory.
    ///
    /// Errors: those of the look-up, or of becoming the user.
    fn check(&self) -> io::Result<()> {
        let account = self.run_as.as_ref().map(RunAs::account);
        let look = || match &self.runs {
            Runs::App(words) => program::find_executable(Path::new(&words[0]), DIRECTORIES).map(drop),
            Runs::Cgi(folder) => file::open(file::open_folder(folder)?, b".", Want::Stat).map(drop),
        };
        privileges::with_rights_of(account.as_ref(), Keep::Nothing, look)?
    }

    fn cannot_start(&self, error: &io::Error, span: Range<usize>) -> Problem {
        let (name, verb) = match &self.runs {
            Runs::App(words) => (words[0].clone(), "execute"),
            Runs::Cgi(folder) => (folder.display().to_string(), "enter"),
        };
        let (why, help) = match error.kind() {
            io::ErrorKind::NotFound if !name.contains('/') => (
                format!("no such program in {DIRECTORIES}"),
                Some("install it, or write its path".to_owned()),
            ),
            io::ErrorKind::PermissionDenied => {
                let who = self
                    .run_as
                    .as_ref()
                    .map_or("this user".to_owned(), |user| format!("user `{}`", user.name));
                (format!("{who} cannot {verb} it: permission denied"), None)
            }
            _ => (reason(error), None),
        };
        let title = format!("cannot start `{name}`");
        Problem::at(span, title, why).of(ConfigErrorKind::Path).maybe_helped(help)
    }
}
