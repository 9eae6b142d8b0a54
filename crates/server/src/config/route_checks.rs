//! From the routes of a config file to [`Route`]s: whether they fit the other settings, and whether their users can start their
//! programs.
//!
//! Called by `config::resolve`. It may look at the file system, but must not change it.

use std::io;
use std::ops::Range;
use std::path::Path;

use flash_prompt::file::Want;
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::{file, program};

use super::account;
use super::choices::Architecture;
use super::combinations;
use super::drafts::{ProgramDraft, RouteDraft};
use super::error::{ConfigErrorKind, Problem, reason};
use super::options::{Given, Origin, Overrides};
use super::programs::{DIRECTORIES, Program, Runs};
use super::routes::{ROUTES_MAX, Route, RoutePaths, ServerAddress};
use super::run_as::RunAs;

/// Checks that no directory of a site with these routes is answered with the source of a script. A route answers for
/// the first index file; a later one would be found as a file.
pub(super) fn check_index(index: &[String], routes: &[RouteDraft]) -> Option<Problem> {
    let later = index.get(1..).unwrap_or_default();
    routes.iter().find_map(|draft| {
        let RoutePaths::Extension(extension) = &draft.route.paths else { return None };
        let is_script = |name: &&String| {
            name.rsplit_once('.').is_some_and(|(_, ending)| ending.eq_ignore_ascii_case(extension))
        };
        let name = later.iter().find(is_script)?;
        let why =
            format!("the source of `{name}` could be sent, because it is not the first name of `index`");
        let help = format!("write `index = [\"{name}\"]`, or remove it from `index`");
        Some(Problem::at(draft.span.clone(), "`route` does not fit `index`", why).helped(help))
    })
}

/// Checks that the server can have routes, and has no more of them than allowed. `of_top` are those of the default
/// site, which is there or not.
pub(super) fn check<'d>(
    given: &Overrides,
    of_top: &'d [RouteDraft],
    of_sites: impl Iterator<Item = &'d RouteDraft>,
    has_sites: bool,
) -> Vec<Problem> {
    let at = |draft: &RouteDraft| Origin::File(draft.span.clone());
    let mut problems = Vec::new();
    if let Some(first) = of_top.first().filter(|_| has_sites && given.root.is_none()) {
        let why = "there is no default site, because the file has sites and no `root`";
        let help = "write it as a `[[site.route]]` below its site, or give the default site a `root`";
        problems.push(combinations::senseless("route", &at(first), why).helped(help));
    }
    let routes: Vec<&RouteDraft> = of_top.iter().chain(of_sites).collect();
    if routes.is_empty() {
        let spool = given.spool.as_ref().map(|given| ("spool", &given.origin));
        let spool_max = given.spool_max.as_ref().map(|given| ("spool_max", &given.origin));
        let named = spool.into_iter().chain(spool_max).filter(|(_, origin)| **origin != Origin::Default);
        let why = "there are no routes, whose request bodies it is for";
        problems.extend(named.map(|(key, origin)| combinations::senseless(key, origin, why)));
    }
    let architecture = given.architecture.as_ref().map_or(Architecture::Amped, |given| given.value);
    if let Some(first) = routes.first()
        && !matches!(architecture, Architecture::Amped | Architecture::Sped)
    {
        let why = "only `amped` and `sped` have an event loop for many connections, and routes need one";
        let help = "remove it, or choose another architecture";
        problems.push(combinations::senseless("route", &at(first), why).helped(help));
    }
    if let Some(over) = routes.get(ROUTES_MAX) {
        let why = format!("too many routes in the whole file: at most {ROUTES_MAX}");
        problems.push(Problem::at(over.span.clone(), "wrong value for `route`", why));
    }
    problems
}

impl RouteDraft {
    /// The route, with the user and the program checked; `run_as` is the user of Flash.
    pub(super) fn resolve(self, run_as: Option<&RunAs>, problems: &mut Vec<Problem>) -> Route {
        let mut route = self.route;
        if let Some(draft) = self.program {
            route.servers = vec![ServerAddress::Program];
            route.program = Some(draft.resolve(run_as, problems));
        }
        route
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
