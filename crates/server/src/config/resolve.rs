//! From what the sources said to [`Settings`]: merges, inherits, and checks what no single value
//! shows, against the file system where it must.
//!
//! Called by `Sources::load`. May look at the file system (it runs in the supervisor and in `flash
//! check`, never in a worker), but may not change it.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flash_waiting::memory::usable_bytes;
use flash_waiting::root::{Unopened, open_roots};

use super::ROOT_PATIENCE;
use super::account;
use super::combinations;
use super::error::{ConfigErrorKind, Problem};
use super::file::{Draft, SiteDraft};
use super::optimizations::Optimizations;
use super::options::{self, Given, NO_SOCKET, Origin, Overrides, STANDARD_OUTPUT};
use super::settings::{Architecture, ControlSocket, LogFormat, LogSettings, RunAs, Settings, Site};

/// The most workers that the default gives, however many cores there are.
const WORKERS_BY_DEFAULT_MAX: usize = 256;

/// The content cache of a worker by default, where there is memory enough.
const CACHE_MEMORY_BYTES: u64 = 64 << 20;
/// All workers' content caches by default take this part of the memory at most.
const CACHE_MEMORY_SHARE: u64 = 32;

/// Settings from the merged `given` and the parts of the file that no other source has.
pub(super) fn resolve(given: Overrides, draft: Draft, folder: &Path) -> Result<Settings, Vec<Problem>> {
    let given = given.or(Overrides::defaults());
    let mut problems = Vec::new();
    check_hosts(&draft.sites, &mut problems);
    combinations::check(&given, &mut problems);
    let log = log(&given, &mut problems);
    let run_as = account::run_as(&given, &mut problems);
    let sites = sites(&given, draft.sites, folder, run_as.as_ref(), &mut problems);
    if !problems.is_empty() {
        return Err(problems);
    }
    let optimizations = Optimizations::of(&given);
    let architecture = value(given.architecture);
    let processes = size(value(given.processes));
    let by_default = || if architecture == Architecture::Mt { 1 } else { usable_cores() };
    let workers = given.workers.map_or_else(by_default, |given| size(given.value));
    let cache_memory_bytes = || {
        if let Some(Given { value: false, .. }) = given.content_cache {
            return 0;
        }
        let of_all = cache_memory_bytes(usable_bytes(), workers) * workers as u64;
        of_all / if architecture == Architecture::Mp { processes } else { workers } as u64
    };
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
        helpers_max: size(value(given.helpers_max)),
        freshness_ms: value(given.freshness),
        stale_ms: value(given.stale),
        etag: value(given.etag),
        cache_memory_bytes: given.cache_memory.map_or_else(cache_memory_bytes, |given| given.value),
        connections_max: size(value(given.connections)),
        head_timeout_ms: value(given.head_timeout),
        idle_timeout_ms: value(given.idle_timeout),
        job_deadline_ms: value(given.job_deadline),
        shutdown_timeout_ms: value(given.shutdown_timeout),
        reload_timeout_ms: value(given.reload_timeout),
        helper_idle_ms: value(given.helper_idle),
        least_rate_bytes_per_s: value(given.least_rate),
        listing_entries_max: size(value(given.listing_entries)),
        sandbox: value(given.sandbox),
        cap_fowner: value(given.cap_fowner),
        run_as,
        optimizations,
        log,
        control: control(given.control),
        types: draft.types,
        sites,
    };
    let no_room = combinations::check_room(&settings, mechanism.as_ref(), connections.as_ref());
    no_room.map_or(Ok(settings), |problem| Err(vec![problem]))
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

/// The default of the content cache of one worker. What it takes the page cache loses, and where memory
/// is short the page cache has the better use for it: it holds large files, too, at no further cost.
fn cache_memory_bytes(usable_bytes: Option<u64>, workers: usize) -> u64 {
    let share = |bytes| bytes / CACHE_MEMORY_SHARE / workers.max(1) as u64;
    usable_bytes.map_or(CACHE_MEMORY_BYTES, share).min(CACHE_MEMORY_BYTES)
}

/// The default site, if there is one, and the named ones.
fn sites(
    given: &Overrides,
    drafts: Vec<SiteDraft>,
    folder: &Path,
    run_as: Option<&RunAs>,
    problems: &mut Vec<Problem>,
) -> Vec<Site> {
    let mut sites = Vec::with_capacity(drafts.len() + 1);
    let current = Given { value: folder.to_owned(), origin: Origin::Default };
    let root = given.root.clone().or_else(|| drafts.is_empty().then_some(current));
    let mut roots = Vec::with_capacity(drafts.len() + 1);
    if let Some(root) = root {
        sites.push(site(Vec::new(), root.value.clone(), given.clone()));
        roots.push(root);
    }
    for draft in drafts {
        // A site without a root was reported where it was read.
        let Some(root) = draft.overrides.root.clone() else {
            continue;
        };
        let hosts = draft.hosts.into_iter().map(|(host, _)| host).collect();
        sites.push(site(hosts, root.value.clone(), draft.overrides.or(given.clone())));
        roots.push(root);
    }
    check_roots(&roots, run_as, problems);
    sites
}

fn site(hosts: Vec<String>, root: PathBuf, given: Overrides) -> Site {
    Site {
        hosts,
        root,
        index: value(given.index),
        browse: value(given.browse),
        precompressed: value(given.precompressed),
        encoded_slash: value(given.encoded_slash),
    }
}

/// A root that does not answer is no problem of the settings: the others are to be served, and it as
/// soon as it does.
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

/// Each host may be named once in the whole file.
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

/// Whether it can be made shows only when it is.
fn control(given: Option<Given<PathBuf>>) -> ControlSocket {
    match given {
        None => ControlSocket::Default,
        Some(given) if given.value == Path::new(NO_SOCKET) => ControlSocket::Off,
        Some(given) => ControlSocket::At(given.value),
    }
}

/// Whether it can be opened shows only when it is: the file need not be there yet.
fn check_log_file(file: &Given<PathBuf>, problems: &mut Vec<Problem>) {
    let folder = file.value.parent().unwrap_or(Path::new("/"));
    let why = match (std::fs::metadata(&file.value), std::fs::metadata(folder)) {
        (Ok(found), _) if found.is_dir() => "it is a directory".to_owned(),
        (Ok(found), _) if found.file_type().is_fifo() || found.file_type().is_socket() => {
            "it is a pipe: `-` writes to standard output".to_owned()
        }
        (Ok(_), _) => return,
        (_, Ok(folder)) if folder.is_dir() => return,
        (_, Ok(_)) => format!("`{}` is not a directory", folder.display()),
        (_, Err(error)) => format!("`{}`: {}", folder.display(), reason(&error)),
    };
    problems.push(path_problem("write the log", "log_file", file, &why));
}

/// A path that an option names can't be used: what failed, on what, who named it, why.
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

/// Why the system refused a path, without its error number.
pub(super) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such file or directory".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotADirectory => "a part of the path is not a directory".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_cache_is_small_where_memory_is_short() {
        const MIB: u64 = 1 << 20;
        for (usable, workers, expected) in [
            (Some(512 * MIB), 1, 16 * MIB),
            (Some(512 * MIB), 4, 4 * MIB),
            (Some(64 << 30), 2, 64 * MIB),
            // What cgroup v1 says for "no bound".
            (Some(0x7fff_ffff_ffff_f000), 256, 64 * MIB),
            (None, 8, 64 * MIB),
        ] {
            assert_eq!(cache_memory_bytes(usable, workers), expected, "{usable:?} for {workers}");
        }
    }
}
