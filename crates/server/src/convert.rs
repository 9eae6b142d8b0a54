//! From settings and system calls to the engine's own types.

use std::io;

use flash_engine::limits::OPEN_FILES_MAX;
use flash_engine::{
    FileSent, FileStat, Kind, LogFormat, LookUpError, Opened, Optimizations, Rules, SiteRules, Timeouts, Want,
};
use flash_http::types::TypeTable;
use flash_sys::OwnedFd;
use flash_sys::prompt::file;
use flash_sys::prompt::sendfile::Sent;

use crate::architecture;
use crate::config::{self, SendBy, Settings};

/// Descriptors that a worker needs besides those for connections, files and its way of working.
const DESCRIPTORS_APART: u64 = 64;

/// What the engine is told, within what `descriptors_max` allows.
pub(crate) fn rules(settings: &Settings, descriptors_max: u64) -> Rules {
    let open_files_max = (descriptors_max / 4).min(OPEN_FILES_MAX as u64);
    let mapped_max = mapped_chunks_max(settings, descriptors_max) as u64;
    let others = open_files_max + mapped_max + DESCRIPTORS_APART + architecture::descriptors(settings) as u64;
    let optimizations = &settings.optimizations;
    let connections_max =
        usize::try_from(descriptors_max.saturating_sub(others)).unwrap_or(usize::MAX).max(1);
    Rules {
        sites: settings.sites.iter().map(site_rules).collect(),
        types: types(settings),
        freshness_ms: settings.freshness_ms,
        cache_memory_bytes: settings.cache_memory_bytes,
        optimizations: Optimizations {
            name_cache: optimizations.name_cache,
            head_cache: optimizations.head_cache,
            align_heads: optimizations.align_heads,
            send_file: optimizations.send != SendBy::Read,
        },
        connections_max: settings.connections_max.min(connections_max),
        open_files_max: (open_files_max as usize / architecture::cache_parts(settings)).max(1),
        cache_parts: architecture::cache_parts(settings),
        helpers_max: architecture::jobs_at_once(settings),
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

/// Parts of files mapped at once: each may keep a file open.
pub(crate) fn mapped_chunks_max(settings: &Settings, descriptors_max: u64) -> usize {
    const CHUNKS_MAX: u64 = 4096;
    match settings.optimizations.send {
        SendBy::Mmap => {
            ((descriptors_max / 4).min(CHUNKS_MAX) as usize / architecture::cache_parts(settings)).max(1)
        }
        SendBy::Read | SendBy::Sendfile => 0,
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

/// What came of sending a part of a file, in the engine's terms.
pub(crate) fn sent(sent: Sent) -> FileSent {
    match sent {
        Sent::Took { offered, sent } => FileSent::Took { offered, sent },
        Sent::Absent => FileSent::Absent,
        Sent::Unknown => FileSent::Unknown,
        Sent::Ended => FileSent::Changed,
        Sent::Failed => FileSent::Failed,
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
