//! From settings and system calls to the engine's own types.

use std::io;

use flash_engine::limits::{FILES_OF_NAME_MAX, OPEN_FILES_MAX};
use flash_engine::{FileStat, Kind, LogFormat, LookUpError, Opened, Rules, SiteRules, Timeouts, Want};
use flash_http::types::TypeTable;
use flash_sys::OwnedFd;
use flash_sys::prompt::{file, mechanism};

use crate::config::{self, EventMechanism, HelperKind, Settings};

/// Descriptors that a worker needs besides those for connections, files and helpers.
const DESCRIPTORS_APART: u64 = 64;
/// A root of a site is open for the worker, and once more for helper threads.
const ROOTS_OF_SITE: u64 = 2;

/// Files that a worker may keep open, of so many descriptors.
fn open_files_max(descriptors_max: u64) -> u64 {
    (descriptors_max / 4).min(OPEN_FILES_MAX as u64)
}

/// Connections for which a worker has descriptors, of so many.
pub(crate) fn connections_that_fit(
    descriptors_max: u64,
    helpers: HelperKind,
    helpers_max: u64,
    sites: u64,
) -> u64 {
    // Threads have their own ends of channels, and files in hand; of a name all are opened at once. Of
    // processes there are those at work and those given up.
    let of_helper = match helpers {
        HelperKind::Processes => 2,
        HelperKind::Threads => 2 + 2 * FILES_OF_NAME_MAX as u64,
    };
    let others =
        open_files_max(descriptors_max) + DESCRIPTORS_APART + of_helper * helpers_max + ROOTS_OF_SITE * sites;
    descriptors_max.saturating_sub(others)
}

/// What the engine is told, within what `descriptors_max` allows.
pub(crate) fn rules(settings: &Settings, descriptors_max: u64) -> Rules {
    let (helpers_max, sites) = (settings.helpers_max as u64, settings.sites.len() as u64);
    let connections_max = connections_that_fit(descriptors_max, settings.helpers, helpers_max, sites);
    let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX).max(1);
    Rules {
        sites: settings.sites.iter().map(site_rules).collect(),
        types: types(settings),
        freshness_ms: settings.freshness_ms,
        cache_memory_bytes: settings.cache_memory_bytes,
        connections_max: settings.connections_max.min(connections_max),
        open_files_max: open_files_max(descriptors_max) as usize,
        helpers_max: settings.helpers_max,
        timeouts: Timeouts {
            head_ms: settings.head_timeout_ms,
            idle_ms: settings.idle_timeout_ms,
            job_ms: settings.job_deadline_ms,
        },
        least_rate_bytes_per_s: settings.least_rate_bytes_per_s,
        log_format: match settings.log.format {
            config::LogFormat::Combined => LogFormat::Combined,
            config::LogFormat::Json => LogFormat::Json,
            config::LogFormat::Off => LogFormat::Off,
        },
    }
}

/// What the loop waits by.
pub(crate) fn mechanism(mechanism: EventMechanism) -> mechanism::Kind {
    match mechanism {
        EventMechanism::Epoll => mechanism::Kind::Epoll,
        EventMechanism::Poll => mechanism::Kind::Poll,
        EventMechanism::Select => mechanism::Kind::Select,
    }
}

/// What is served of a site.
pub(crate) fn site_rules(site: &config::Site) -> SiteRules {
    SiteRules {
        root: site.root.clone(),
        hosts: site.hosts.clone(),
        index: site.index.clone(),
        browse: site.browse,
        precompressed: site.precompressed,
    }
}

/// The content types.
pub(crate) fn types(settings: &Settings) -> TypeTable {
    TypeTable::new(settings.types.iter().map(|(extension, kind)| (extension.clone(), kind.clone())))
}

pub(crate) fn sys_want(want: Want) -> file::Want {
    match want {
        Want::Stat => file::Want::Stat,
        Want::Content => file::Want::Content,
    }
}

/// A look-up's result in the engine's terms.
pub(crate) fn look_up<F: From<OwnedFd>>(found: io::Result<file::Found>) -> Result<Opened<F>, LookUpError> {
    match found {
        Ok(found) => Ok(Opened { stat: stat(&found.stat), file: found.file.map(F::from) }),
        Err(e) => Err(look_up_error(&e)),
    }
}

pub(crate) fn stat(stat: &file::Stat) -> FileStat {
    FileStat {
        kind: match stat.kind {
            file::Kind::File => Kind::File,
            file::Kind::Directory => Kind::Directory,
            file::Kind::Special => Kind::Special,
        },
        device: stat.device,
        inode: stat.inode,
        size_bytes: stat.size_bytes,
        modified_ns: stat.modified_ns,
        changed_ns: stat.changed_ns,
    }
}

fn look_up_error(error: &io::Error) -> LookUpError {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::WouldBlock => LookUpError::WouldWait,
        // A path through a file, out of the root, or in a circle leads nowhere.
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::CrossesDevices => LookUpError::Missing,
        ErrorKind::PermissionDenied => LookUpError::Denied,
        ErrorKind::OutOfMemory => LookUpError::Exhausted,
        _ => match flash_sys::prompt::file::classify(error) {
            file::Trouble::Loop => LookUpError::Missing,
            file::Trouble::Exhausted => LookUpError::Exhausted,
            file::Trouble::Other(number) => LookUpError::Failed(number),
        },
    }
}
