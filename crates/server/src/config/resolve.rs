//! From merged options to [`Settings`]: inherits, and checks rules that concern several values or the file system.
//!
//! Called by `Sources::load`, in the supervisor and in `flash check`, never in a worker. It may look at the file system, but must
//! not change it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};

use flash_prompt::OwnedFd;
use flash_waiting::memory::{self, Usable};
use flash_waiting::root::{Root, Unopened, open_roots};
use flash_waiting::sandbox::limits;

use super::ROOT_PATIENCE;
use super::account;
use super::architecture;
use super::choices::Architecture;
use super::combinations::{self, path_problem};
use super::crew::{self, Crew};
use super::error::{Problem, reason};
use super::file::{Draft, SiteDraft};
use super::listen_checks;
use super::logs;
use super::memory::CacheMemory;
use super::options::{self, Overrides, Settings, Site};
use super::redirect_circles;
use super::route_checks;
use super::rule_checks;
use super::run_as::RunAs;
use super::table::{Given, Holds, Origin};
use super::values::Auto;

/// Maximum default number of workers, for any number of cores.
const WORKERS_BY_DEFAULT_MAX: usize = 256;

/// Maximum aliases of all sites. Each costs as much as a site.
const ALIASES_MAX: usize = 1_024;

/// Descriptors that the supervisor and a worker need at least besides those of folders.
const DESCRIPTORS_APART: u64 = 24;

/// Settings from the merged `given` and the parts of the file that no other source has.
pub(super) fn resolve(given: Overrides, draft: Draft, folder: &Path) -> Result<Settings, Vec<Problem>> {
    let given = given.or(Overrides::defaults());
    let mut problems = Vec::new();
    check_hosts(&draft.sites, &mut problems);
    combinations::check(&given, &mut problems);
    listen_checks::check(&given, &mut problems);
    let run_as = account::run_as(&given, &mut problems);
    let cap_fowner = account::cap_fowner(&given, &mut problems);
    problems.extend(route_checks::check(&given, &draft));
    let of_sites: Vec<&Overrides> = draft.sites.iter().map(|site| &site.overrides).collect();
    let (log_format, log_output) = logs::resolve(&given, &of_sites, &mut problems);
    let log_file = log_output.held().map(|value| Given { value, origin: Origin::Default });
    combinations::check_https(&given, &of_sites, &mut problems);
    combinations::check_compression(&given, &of_sites, &mut problems);
    let types = draft.types;
    let given = Overrides { log_file: given.log_file.clone().or(log_file), ..given };
    let sites = sites(&given, (draft.top, draft.sites), folder, run_as.as_ref(), &mut problems);
    combinations::check_listings(&given, &sites, &mut problems);
    combinations::check_counts(&given, &sites, &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut settings = Settings { types, sites, ..Settings::default() };
    given.put(&mut settings);
    settings.tls_listen = given.listen_tls.as_ref().map_or_else(Vec::new, |given| given.value.clone());
    settings.admin = given.admin.as_ref().map_or_else(Vec::new, |given| given.value.clone());
    settings.listens_by_default = given.listen.as_ref().is_some_and(|given| given.origin == Origin::Default);
    for site in &mut settings.sites {
        site.log_output = std::mem::take(&mut site.log_output).recognized();
    }
    (settings.log_format, settings.log_output) = (log_format, log_output);
    (settings.run_as, settings.cap_fowner) = (run_as, cap_fowner);
    if given.client_connections.is_none() {
        settings.client_connections_max = (settings.connections_max / 2).max(1);
    }
    if given.workers.is_none() {
        settings.workers = if settings.architecture == Architecture::Mt { 1 } else { usable_cores() };
    }
    fit_in_memory(&mut settings, &given);
    let origin = |key| options::find(key).and_then(|spec| (spec.origin)(&given));
    let no_room = combinations::check_room(&settings, origin("event_mechanism"), origin("connections"));
    let no_rate = combinations::check_egress(given.egress.as_ref(), settings.workers);
    let problems: Vec<Problem> = no_room.into_iter().chain(no_rate).collect();
    if problems.is_empty() { Ok(settings) } else { Err(problems) }
}

/// Lowers the numbers of processes to those that fit in the memory, and chooses the size of the store.
fn fit_in_memory(settings: &mut Settings, given: &Overrides) {
    let is_mp = settings.architecture == Architecture::Mp;
    let has_helpers = settings.architecture == Architecture::Amped;
    let asked = Crew {
        workers: architecture::processes(settings),
        helpers_max: if has_helpers { settings.helpers_max } else { 0 },
    };
    let usable = memory::usable();
    let crew = asked.that_fits(usable);
    let group_bytes = usable.map_or(0, Usable::bytes);
    let mut lower = |key: &str, number: &mut usize, most: usize| {
        if options::find(key).is_some_and(|spec| spec.given_by(given).is_some()) {
            settings.lowered.extend(crew::warning(key, *number as u64, most, group_bytes));
        }
        *number = most;
    };
    if is_mp {
        lower("processes", &mut settings.processes, crew.workers);
    } else {
        lower("workers", &mut settings.workers, crew.workers);
    }
    if has_helpers {
        lower("helpers_max", &mut settings.helpers_max, crew.helpers_max);
    }
    settings.cache_memory = match (&given.content_cache, &given.cache_memory) {
        (Some(Given { value: false, .. }), _) => CacheMemory::OFF,
        (_, Some(asked)) => CacheMemory::of(asked.value, usable, crew.bytes()),
        (_, None) => CacheMemory::of(Auto::Auto, usable, crew.bytes()),
    };
}

fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(WORKERS_BY_DEFAULT_MAX)
}

/// The default site, if there is one, and the named sites.
fn sites(
    given: &Overrides,
    (top, drafts): (SiteDraft, Vec<SiteDraft>),
    folder: &Path,
    run_as: Option<&RunAs>,
    problems: &mut Vec<Problem>,
) -> Vec<Site> {
    let current = Given { value: folder.to_owned(), origin: Origin::Default };
    let root = given.root.clone().or_else(|| drafts.is_empty().then_some(current));
    let top = SiteDraft { overrides: Overrides { root, ..Overrides::default() }, ..top };
    let (mut sites, mut roots, mut rule_drafts) = (Vec::new(), Vec::new(), Vec::new());
    for draft in [top].into_iter().chain(drafts) {
        // A named site without a root was reported where it was read.
        let Some(root) = draft.overrides.root.clone() else { continue };
        let hosts: Vec<String> = draft.hosts.into_iter().map(|(host, _)| host).collect();
        let rules = rule_checks::resolve(&draft.rules, problems);
        let given = draft.overrides.or(given.clone());
        let index = given.index.as_ref().map_or(&[][..], |given| &given.value);
        problems.extend(route_checks::check_index(index, &draft.routes));
        let routes = draft.routes.into_iter().map(|draft| draft.resolve(run_as, problems)).collect();
        let mut site = Site { hosts, routes, rules, ..Site::default() };
        given.put_in_site(&mut site);
        sites.push(site);
        roots.push(root);
        rule_drafts.push(draft.rules);
    }
    if problems.is_empty() {
        problems.extend(redirect_circles::problems(&sites, &rule_drafts));
    }
    let of_all = rule_drafts.iter().flatten().filter_map(|draft| draft.given.alias.clone());
    let aliases: Vec<_> = of_all.collect();
    if let Some(beyond) = aliases.get(ALIASES_MAX) {
        let why = format!("a config file has at most {ALIASES_MAX}");
        problems.push(Problem::given(&beyond.origin, "too many aliases", why));
        return sites;
    }
    if let Some(problem) = too_many(&roots, &aliases) {
        problems.push(problem);
        return sites;
    }
    let folders = check_roots(("root", &roots), run_as, problems);
    let mut alias_folders = check_roots(("alias", &aliases), run_as, problems).into_iter();
    for ((site, drafts), folder) in sites.iter_mut().zip(&rule_drafts).zip(folders) {
        rule_checks::check_auth(drafts, site, problems);
        rule_checks::check_tried_extensions(drafts, site, problems);
        let aliases: Vec<_> = alias_folders.by_ref().take(site.aliases().count()).flatten().collect();
        rule_checks::read_users(drafts, site, folder.iter().chain(&aliases), problems);
        match folder {
            Some(folder) => rule_checks::read_error_pages(drafts, site, &folder, run_as, problems),
            None if site.rules.iter().any(|rule| rule.error_page.is_some()) => eprintln!(
                "warning: no error pages of `{}` are shown: they are read at the start, from local disks that answer",
                site.root.display()
            ),
            None => {}
        }
    }
    sites
}

/// The problem of more folders than there are descriptors for: at a reload, when the supervisor has those of both configurations, or in a
/// worker, which has one for each site.
fn too_many(roots: &[Given<PathBuf>], aliases: &[Given<PathBuf>]) -> Option<Problem> {
    let folders: BTreeSet<&Path> = roots.iter().chain(aliases).map(|given| &*given.value).collect();
    let most = limits::descriptors_max();
    let at_reload = 2 * folders.len() as u64 + DESCRIPTORS_APART;
    let of_worker = (roots.len() + aliases.len()) as u64 + DESCRIPTORS_APART;
    let why = if at_reload > most {
        format!("at a reload {} folders need {at_reload} descriptors", folders.len())
    } else if of_worker > most {
        format!(
            "a worker with {} sites and aliases needs {of_worker} descriptors",
            roots.len() + aliases.len()
        )
    } else {
        return None;
    };
    let help = format!(
        "a process may have {most} here: raise the limit (`ulimit -Hn`, `LimitNOFILE=` of systemd), or give one site several hosts"
    );
    Some(Problem::given(&roots.last()?.origin, "too many folders", why).helped(help))
}

/// The roots or aliases (`key`) that can be read without waiting for another host. One that does not answer is not an error: the others
/// must be served, and this one as soon as it answers.
fn check_roots(
    (key, roots): (&str, &[Given<PathBuf>]),
    run_as: Option<&RunAs>,
    problems: &mut Vec<Problem>,
) -> Vec<Option<OwnedFd>> {
    let paths: Vec<&Path> = roots.iter().map(|root| &*root.value).collect();
    let opened = roots.iter().zip(open_roots(&paths, ROOT_PATIENCE));
    let folder = |(root, opened): (&Given<PathBuf>, Result<Root, Unopened>)| {
        let (why, help) = match opened {
            Ok(root) if !root.is_local => return None,
            Ok(opened) => match account::may_enter(&opened.folder, run_as) {
                Ok(()) => return Some(opened.folder),
                Err(why_and_help) => why_and_help,
            },
            Err(Unopened::Hangs(_)) => {
                eprintln!(
                    "warning: `{}` did not answer within {ROOT_PATIENCE:?}: its file system hangs or is slow",
                    root.value.display()
                );
                return None;
            }
            Err(Unopened::Failed(e)) if e.kind() == ErrorKind::NotADirectory => {
                ("not a directory".to_owned(), None)
            }
            Err(Unopened::Failed(e)) => (reason(&e), None),
        };
        problems.push(path_problem("serve", key, (&root.value, &root.origin), &why).maybe_helped(help));
        None
    };
    opened.map(folder).collect()
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
