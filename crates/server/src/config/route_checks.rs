//! From the routes of a config file to [`Route`]s: whether they fit the other settings, and whether their users can start their
//! programs.
//!
//! Called by `config::resolve`. It may look at the file system, but must not change it.

use std::io;
use std::path::Path;

use flash_engine::UpstreamProtocol;
use flash_prompt::file::Want;
use flash_waiting::sandbox::privileges::{self, Keep};
use flash_waiting::{file, program};

use super::account;
use super::architecture;
use super::combinations;
use super::error::{ConfigErrorKind, Problem, reason};
use super::file::{Draft, RouteDraft};
use super::options::Overrides;
use super::programs::{DIRECTORIES, Runs};
use super::route_options::{self, Probe, Program, ROUTE_OPTIONS, Route, RouteOverrides};
use super::routes::{ROUTES_MAX, RoutePaths, RouteTls, ServerAddress};
use super::run_as::RunAs;
use super::table::{self, Origin};

/// The defaults of the numbers that depend on the servers of the route. No more than `connections_max` can be idle, so
/// that is the bound of a proxy.
const CONNECTIONS_MAX: u64 = 128;
const IDLE_MAX: u64 = 65_536;
/// Requests that a worker gives each process of an `app` at once, and programs that it runs at once by `cgi`.
const CONNECTIONS_OF_APP: u64 = 1;
const CONNECTIONS_OF_CGI: u64 = 16;

/// Checks that no directory of a site with these routes is answered with the source of a script. A route answers for
/// the first index file; a later one would be found as a file.
pub(super) fn check_index(index: &[String], routes: &[RouteDraft]) -> Option<Problem> {
    let later = index.get(1..).unwrap_or_default();
    routes.iter().find_map(|draft| {
        let extension = &draft.given.extension.as_ref()?.value;
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

/// Checks that the server can have routes, and has no more of them than allowed.
pub(super) fn check(given: &Overrides, draft: &Draft) -> Vec<Problem> {
    let at = |draft: &RouteDraft| Origin::File(draft.span.clone());
    let mut problems = Vec::new();
    let has_default_site = draft.sites.is_empty() || given.root.is_some();
    if let Some(first) = draft.top.routes.first().filter(|_| !has_default_site) {
        let why = "there is no default site, because the file has sites and no `root`";
        let help = "write it as a `[[site.route]]` below its site, or give the default site a `root`";
        problems.push(combinations::senseless("route", &at(first), why).helped(help));
    }
    let routes: Vec<_> = [&draft.top].into_iter().chain(&draft.sites).flat_map(|site| &site.routes).collect();
    if routes.is_empty() {
        let why = "there are no routes, whose request bodies it is for";
        problems
            .extend(["spool", "spool_max"].iter().filter_map(|key| combinations::no_effect(given, key, why)));
    }
    let architecture = given.architecture.as_ref().map(|given| given.value).unwrap_or_default();
    if let Some(first) = routes.first()
        && let Some(why) = architecture::refuses(architecture, "route")
    {
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
        let given = self.given.or(table::defaults());
        let mut route = Route::default();
        if let Some(prefix) = &given.prefix {
            route.paths = RoutePaths::Prefix(prefix.value.clone());
        } else if let Some(extension) = &given.extension {
            route.paths = RoutePaths::Extension(extension.value.clone());
        }
        (route.connections_max, route.idle_max) = (CONNECTIONS_MAX, IDLE_MAX);
        if let Some(servers) = &given.proxy {
            route.servers.clone_from(&servers.value);
            route.tls = tls(&given, &servers.value);
            let probe = given.probe.as_ref();
            route.probe = probe.map(|target| Probe { target: target.value.clone(), interval_ms: 0 });
        } else {
            // A process of PHP-FPM and the like serves no other connection while it has one, idle or not.
            (route.protocol, route.idle_max) = (UpstreamProtocol::FastCgi, 0);
            route.servers = given
                .fastcgi
                .as_ref()
                .map_or_else(|| vec![ServerAddress::Program], |given| given.value.clone());
        }
        if let Some((runs, origin)) = runs(&given) {
            let of_app = matches!(runs, Runs::App(_));
            route.connections_max = if of_app { CONNECTIONS_OF_APP } else { CONNECTIONS_OF_CGI };
            let run_as = user(&given, &runs, (run_as, origin), problems);
            route.program =
                Some(Program { processes: 1, memory_bytes_max: 0, authorization: false, run_as, runs });
        }
        let by = route_options::by(&route);
        for spec in ROUTE_OPTIONS.iter().filter(|spec| spec.applies(by)) {
            (spec.target.put)(&given, &mut route);
        }
        if let (Some(program), Some((_, origin))) = (&route.program, runs(&given))
            && let Err(e) = program.check()
        {
            problems.push(program.cannot_start(&e, origin));
        }
        route
    }
}

/// How the servers of a route are verified, if any is reached over TLS.
fn tls(given: &RouteOverrides, servers: &[ServerAddress]) -> Option<RouteTls> {
    servers.iter().any(|server| matches!(server, ServerAddress::Tls(_))).then(|| RouteTls {
        verify: given.verify.as_ref().is_none_or(|verify| verify.value),
        server_name: given.server_name.as_ref().map(|name| name.value.clone()),
        roots: given.roots.as_ref().map(|path| path.value.clone()),
    })
}

/// The program of a route, and where it was given.
fn runs(given: &RouteOverrides) -> Option<(Runs, &Origin)> {
    let app = given.app.as_ref().map(|given| (Runs::App(given.value.0.clone()), &given.origin));
    app.or_else(|| given.cgi.as_ref().map(|given| (Runs::Cgi(given.value.clone()), &given.origin)))
}

/// The user of the program that was given at `origin`; `workers` is that of the workers.
fn user(
    given: &RouteOverrides,
    runs: &Runs,
    (workers, origin): (Option<&RunAs>, &Origin),
    problems: &mut Vec<Problem>,
) -> Option<RunAs> {
    if given.user.is_none() {
        problems.extend(workers.map(|workers| no_user(runs, workers, origin)));
    }
    account::named(given.user.as_ref()?, problems)
}

/// A program without a user, although root starts Flash.
fn no_user(runs: &Runs, workers: &RunAs, origin: &Origin) -> Problem {
    let (key, names) = match runs {
        Runs::App(_) => ("app", "its processes"),
        Runs::Cgi(_) => ("cgi", "its programs"),
    };
    let why = format!("as `{}`, the user of the workers, {names} could end the workers", workers.name);
    let help = "name the user of the application in the route, for example `user = \"www-data\"`";
    Problem::given(origin, format!("`{key}` without `user`, started by root"), why).helped(help)
}

impl Program {
    /// Whether its user can execute the command, or enter the directory.
    fn check(&self) -> io::Result<()> {
        let account = self.run_as.as_ref().map(RunAs::account);
        let look = || match &self.runs {
            Runs::App(words) => program::find_executable(Path::new(&words[0]), DIRECTORIES).map(drop),
            Runs::Cgi(folder) => file::open(file::open_folder(folder)?, b".", Want::Stat).map(drop),
        };
        privileges::with_rights_of(account.as_ref(), Keep::Nothing, look)?
    }

    fn cannot_start(&self, error: &io::Error, origin: &Origin) -> Problem {
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
        Problem::given(origin, title, why).of(ConfigErrorKind::Path).maybe_helped(help)
    }
}
