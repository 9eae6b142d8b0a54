//! From merged options to [`Settings`]: inherits, and checks rules that concern several values or the file system.
//!
//! Called by `Sources::load`, in the supervisor and in `flash check`, never in a worker. It may look at the file system, but must
//! not change it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flash_waiting::memory::{self, Usable};
use flash_waiting::root::{Unopened, open_roots};

use super::ROOT_PATIENCE;
use super::account;
use super::admission::Admission;
use super::choices::{Architecture, LogFormat};
use super::combinations;
use super::crew::{self, Crew};
use super::drafts::RouteDraft;
use super::error::{ConfigErrorKind, Problem, reason};
use super::file::{Draft, SiteDraft};
use super::memory::CacheMemory;
use super::optimizations::Optimizations;
use super::options::{self, Given, NO_SOCKET, Origin, Overrides, STANDARD_OUTPUT};
use super::route_checks;
use super::routes::Route;
use super::run_as::RunAs;
use super::schedule::Schedule;
use super::settings::{ControlSocket, LogSettings, Service, Settings, Site, Spool};
use super::values::AutoSize;

/// Maximum default number of workers, for any number of cores.
const WORKERS_BY_DEFAULT_MAX: usize = 256;

/// Settings from the merged `given` and the parts of the file that no other source has.
pub(super) fn resolve(given: Overrides, draft: Draft, folder: &Path) -> Result<Settings, Vec<Problem>> {
    let given = given.or(Overrides::defaults());
    let mut problems = Vec::new();
    check_hosts(&draft.sites, &mut problems);
    combinations::check(&given, &mut problems);
    let log = log(&given, &mut problems);
    let run_as = account::run_as(&given, &mut problems);
    let cap_fowner = account::cap_fowner(&given, &mut problems);
    let of_sites = draft.sites.iter().flat_map(|site| &site.routes);
    problems.extend(route_checks::check(&given, &draft.routes, of_sites, !draft.sites.is_empty()));
    let drafts = (draft.sites, draft.routes);
    let sites = sites(&given, drafts, folder, run_as.as_ref(), &mut problems);
    combinations::check_listings(&given, &sites, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (optimizations, schedule) = (optimizations(&given), schedule(&given));
    let connections_max = given.connections.as_ref().map_or(0, |given| size(given.value));
    let admission = admission(&given, connections_max);
    let architecture = value(given.architecture.clone());
    let Room { workers, processes, helpers_max, lowered, cache_memory } = room(architecture, &given);
    let mechanism = given.event_mechanism.as_ref().map(|given| given.origin.clone());
    let connections = given.connections.as_ref().map(|given| given.origin.clone());
    let settings = Settings {
        listen: value(given.listen),
        architecture,
        workers,
        processes,
        threads: size(value(given.threads)),
        event_mechanism: value(given.event_mechanism),
        helpers: value(given.helpers),
        helpers_max,
        lowered,
        freshness_ms: value(given.freshness),
        stale_ms: value(given.stale),
        etag: value(given.etag),
        cache_memory,
        // Only attempts show whether the paths can be written.
        cache_list: value(given.cache_list).path(),
        spool: Spool { folder: value(given.spool).path(), bytes_max: value(given.spool_max) },
        connections_max,
        head_timeout_ms: value(given.head_timeout),
        idle_timeout_ms: value(given.idle_timeout),
        job_deadline_ms: value(given.job_deadline),
        queue_wait_ms: value(given.queue_wait),
        shutdown_timeout_ms: value(given.shutdown_timeout),
        reload_timeout_ms: value(given.reload_timeout),
        helper_idle_ms: value(given.helper_idle),
        least_rate_bytes_per_s: value(given.least_rate),
        body_least_rate_bytes_per_s: value(given.body_least_rate),
        body_timeout_ms: value(given.body_timeout),
        listing_entries_max: size(value(given.listing_entries)),
        sandbox: value(given.sandbox),
        cap_fowner,
        run_as,
        optimizations,
        schedule,
        admission,
        log,
        control: control(given.control),
        types: draft.types,
        service: Service::Files,
        sites,
    };
    let no_room = combinations::check_room(&settings, mechanism.as_ref(), connections.as_ref());
    let no_rate = combinations::check_egress(given.egress.as_ref(), workers);
    let problems: Vec<Problem> = no_room.into_iter().chain(no_rate).collect();
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// The processes and the store that fit in the memory.
struct Room {
    workers: usize,
    processes: usize,
    helpers_max: usize,
    /// Warnings about given numbers that are lowered.
    lowered: Vec<String>,
    cache_memory: CacheMemory,
}

fn room(architecture: Architecture, given: &Overrides) -> Room {
    let number = |given: &Option<Given<u64>>| given.as_ref().map_or(0, |given| size(given.value));
    let by_default = || if architecture == Architecture::Mt { 1 } else { usable_cores() };
    let workers = given.workers.as_ref().map_or_else(by_default, |given| size(given.value));
    let (processes, helpers_max) = (number(&given.processes), number(&given.helpers_max));
    let (is_mp, has_helpers) = (architecture == Architecture::Mp, architecture == Architecture::Amped);
    let asked = Crew {
        workers: if is_mp { processes } else { workers },
        helpers_max: if has_helpers { helpers_max } else { 0 },
    };
    let usable = memory::usable();
    let crew = asked.that_fits(usable);
    let group_bytes = usable.map_or(0, Usable::bytes);
    let lowered = |name: &str, option: &Option<Given<u64>>, number: usize| {
        let given = option.as_ref().filter(|given| given.origin != Origin::Default)?;
        crew::warning(name, given.value, number, group_bytes)
    };
    let (name, option) = if is_mp { ("processes", &given.processes) } else { ("workers", &given.workers) };
    let of_workers = lowered(name, option, crew.workers);
    let of_helpers =
        if has_helpers { lowered("helpers_max", &given.helpers_max, crew.helpers_max) } else { None };
    let asks_for_store = given.content_cache.as_ref().is_none_or(|given| given.value);
    let asked_bytes = given.cache_memory.as_ref().map_or(AutoSize::Auto, |given| given.value);
    Room {
        workers: if is_mp { workers } else { crew.workers },
        processes: if is_mp { crew.workers } else { processes },
        helpers_max: if has_helpers { crew.helpers_max } else { helpers_max },
        lowered: of_workers.into_iter().chain(of_helpers).collect(),
        cache_memory: match asks_for_store {
            true => CacheMemory::of(asked_bytes, usable, crew.bytes()),
            false => CacheMemory::OFF,
        },
    }
}

/// The value of an option that has a default in the table.
fn value<T>(given: Option<Given<T>>) -> T {
    given.expect("the table gives this option a default").value
}

/// A number whose bounds in the table fit any `usize`.
fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_BY_DEFAULT_MAX)
}

/// The default site, if there is one, and the named sites. `routes` are those of the default site.
fn sites(
    given: &Overrides,
    (drafts, routes): (Vec<SiteDraft>, Vec<RouteDraft>),
    folder: &Path,
    run_as: Option<&RunAs>,
    problems: &mut Vec<Problem>,
) -> Vec<Site> {
    let mut sites = Vec::with_capacity(drafts.len() + 1);
    let current = Given { value: folder.to_owned(), origin: Origin::Default };
    let root = given.root.clone().or_else(|| drafts.is_empty().then_some(current));
    let mut roots = Vec::with_capacity(drafts.len() + 1);
    if let Some(root) = root {
        let routes = self::routes(routes, run_as, given, problems);
        sites.push(site((Vec::new(), root.value.clone()), given.clone(), routes));
        roots.push(root);
    }
    for draft in drafts {
        // A site without a root was reported where it was read.
        let Some(root) = draft.overrides.root.clone() else {
            continue;
        };
        let hosts = draft.hosts.into_iter().map(|(host, _)| host).collect();
        let given = draft.overrides.or(given.clone());
        let routes = self::routes(draft.routes, run_as, &given, problems);
        sites.push(site((hosts, root.value.clone()), given, routes));
        roots.push(root);
    }
    check_roots(&roots, run_as, problems);
    sites
}

/// The routes of a site with these settings.
fn routes(
    drafts: Vec<RouteDraft>,
    run_as: Option<&RunAs>,
    given: &Overrides,
    problems: &mut Vec<Problem>,
) -> Vec<Route> {
    let index = given.index.as_ref().map_or(&[][..], |given| &given.value);
    problems.extend(route_checks::check_index(index, &drafts));
    drafts.into_iter().map(|draft| draft.resolve(run_as, problems)).collect()
}

fn site((hosts, root): (Vec<String>, PathBuf), given: Overrides, routes: Vec<Route>) -> Site {
    Site {
        hosts,
        root,
        index: value(given.index),
        browse: value(given.browse),
        precompressed: value(given.precompressed),
        encoded_slash: value(given.encoded_slash),
        routes,
    }
}

/// A root that does not answer is not an error: the others must be served, and this root as soon as it answers.
fn check_roots(roots: &[Given<PathBuf>], run_as: Option<&RunAs>, problems: &mut Vec<Problem>) {
    let paths: Vec<&Path> = roots.iter().map(|root| &*root.value).collect();
    for (root, opened) in roots.iter().zip(open_roots(&paths, ROOT_PATIENCE)) {
        let (why, help) = match opened {
            Ok(root) if !root.is_local => continue,
            Ok(opened) => match account::may_enter(&opened.folder, run_as) {
                Ok(()) => continue,
                Err(why_and_help) => why_and_help,
            },
            Err(Unopened::Hangs(_)) => {
                eprintln!(
                    "warning: `{}` did not answer within {ROOT_PATIENCE:?}: its file system hangs or is slow",
                    root.value.display()
                );
                continue;
            }
            Err(Unopened::Failed(e)) if e.kind() == ErrorKind::NotADirectory => {
                ("not a directory".to_owned(), None)
            }
            Err(Unopened::Failed(e)) => (reason(&e), None),
        };
        problems.push(path_problem("serve", "root", root, &why).maybe_helped(help));
    }
}

/// Each host may occur once in the whole file.
fn check_hosts(sites: &[SiteDraft], problems: &mut Vec<Problem>) {
    let mut seen: BTreeMap<&str, &Range<usize>> = BTreeMap::new();
    for (host, span) in sites.iter().flat_map(|site| &site.hosts) {
        if let Some(first) = seen.get(host.as_str()) {
            let problem =
                Problem::at(span.clone(), format!("the host `{host}` is named twice"), "named again");
            problems.push(problem.with_other((*first).clone(), "named first"));
        } else {
            seen.insert(host, span);
        }
    }
}

fn log(given: &Overrides, problems: &mut Vec<Problem>) -> LogSettings {
    let named = given.log_file.as_ref();
    let by_default = if named.is_some() { LogFormat::Combined } else { LogFormat::Off };
    let format = given.log_format.as_ref().map_or(by_default, |given| given.value);
    let is_file = |given: &&Given<PathBuf>| {
        ![STANDARD_OUTPUT, "/dev/stdout"].iter().any(|name| given.value == Path::new(name))
    };
    let file = named.filter(is_file);
    if let Some(file) = file.filter(|_| format != LogFormat::Off) {
        check_log_file(file, problems);
    }
    LogSettings { format, file: file.map(|given| given.value.clone()) }
}

/// Only an attempt shows whether the socket can be created.
fn control(given: Option<Given<PathBuf>>) -> ControlSocket {
    match given {
        None => ControlSocket::Default,
        Some(given) if given.value == Path::new(NO_SOCKET) => ControlSocket::Off,
        Some(given) => ControlSocket::At(given.value),
    }
}

/// Only an attempt shows whether the file can be opened: it need not exist yet.
fn check_log_file(file: &Given<PathBuf>, problems: &mut Vec<Problem>) {
    let folder = file.value.parent().unwrap_or(Path::new("/"));
    let why = match (std::fs::metadata(&file.value), std::fs::metadata(folder)) {
        (Ok(found), _) if found.is_dir() => "it is a directory".to_owned(),
        (Ok(found), _) if found.file_type().is_fifo() || found.file_type().is_socket() => {
            "it is a pipe; write `-` for standard output".to_owned()
        }
        (Ok(_), _) => return,
        (_, Ok(folder)) if folder.is_dir() => return,
        (_, Ok(_)) => format!("`{}` is not a directory", folder.display()),
        (_, Err(error)) => format!("`{}`: {}", folder.display(), reason(&error)),
    };
    problems.push(path_problem("write the log", "log_file", file, &why));
}

/// A path of an option cannot be used: the operation, the path, the source and the reason.
fn path_problem(action: &str, key: &str, given: &Given<PathBuf>, why: &str) -> Problem {
    let title = format!("cannot {action} `{}`", given.value.display());
    let problem = match (&given.origin, options::find(key)) {
        (Origin::File(span), _) => Problem::at(span.clone(), title, why),
        (Origin::Environment, Some(spec)) => {
            Problem::plain(format!("{title} (from {})", spec.variable()), why)
        }
        (Origin::Flag, Some(spec)) if !spec.is_operand() => {
            Problem::plain(format!("{title} (from --{})", spec.flag()), why)
        }
        _ => Problem::plain(title, why),
    };
    problem.of(ConfigErrorKind::Path)
}

fn optimizations(given: &Overrides) -> Optimizations {
    Optimizations {
        name_cache: value(given.name_cache.clone()),
        head_cache: value(given.head_cache.clone()),
        send: value(given.send.clone()),
        align_heads: value(given.align_heads.clone()),
        open_in_loop: value(given.open_in_loop.clone()),
        residency_check: value(given.residency_check.clone()),
    }
}

fn schedule(given: &Overrides) -> Schedule {
    Schedule {
        policy: value(given.schedule.clone()),
        cutoffs: given.srpt_cutoffs.as_ref().map_or_else(Vec::new, |given| given.value.0.clone()),
        dscp: value(given.srpt_dscp.clone()),
        egress_bits_per_s: value(given.egress.clone()),
        cwnd_cap_bytes: value(given.cwnd_cap.clone()),
    }
}

fn admission(given: &Overrides, connections_max: usize) -> Admission {
    let half = (connections_max / 2).max(1);
    Admission {
        client_connections_max: given.client_connections.as_ref().map_or(half, |given| size(given.value)),
        client_exempt: value(given.client_exempt.clone()),
        accept_wait_ms: value(given.accept_wait.clone()),
    }
}
