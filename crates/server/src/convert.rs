//! From settings to what a worker and its engine are told.

use flash_engine::limits::OPEN_FILES_MAX;
use flash_engine::{LogFormat, Optimizations, Rules, SiteRules, Timeouts};
use flash_http::types::TypeTable;
use flash_prompt::mechanism;

use crate::architecture;
use crate::config::{self, EventMechanism, HelperKind, SendBy, Settings};

/// Descriptors that a worker needs besides those for connections, files and its way of working.
const DESCRIPTORS_APART: u64 = 64;
/// A root of a site is open for the worker, and once more for jobs that are done in its process.
const ROOTS_OF_SITE: u64 = 2;

/// Files that a worker may keep open, of so many descriptors.
fn open_files_max(descriptors_max: u64) -> u64 {
    (descriptors_max / 4).min(OPEN_FILES_MAX as u64)
}

/// Connections for which a worker has descriptors, of so many.
pub(crate) fn connections_that_fit(settings: &Settings, descriptors_max: u64) -> u64 {
    let others = open_files_max(descriptors_max)
        + mapped_chunks_max(settings, descriptors_max) as u64
        + DESCRIPTORS_APART
        + architecture::descriptors(settings) as u64
        + ROOTS_OF_SITE * settings.sites.len() as u64;
    descriptors_max.saturating_sub(others)
}

/// What the engine is told, within what `descriptors_max` allows.
pub(crate) fn rules(settings: &Settings, descriptors_max: u64) -> Rules {
    let connections_max = connections_that_fit(settings, descriptors_max);
    let connections_max = usize::try_from(connections_max).unwrap_or(usize::MAX).max(1);
    let open_files_max = open_files_max(descriptors_max) as usize;
    let optimizations = &settings.optimizations;
    Rules {
        sites: settings.sites.iter().map(site_rules).collect(),
        types: types(settings),
        etag_of_change: settings.etag == config::EtagTime::Changed,
        freshness_ms: settings.freshness_ms,
        stale_ms: settings.stale_ms,
        cache_memory_bytes: settings.cache_memory_bytes,
        optimizations: Optimizations {
            name_cache: optimizations.name_cache,
            head_cache: optimizations.head_cache,
            align_heads: optimizations.align_heads,
            send_file: optimizations.send != SendBy::Read,
        },
        connections_max: settings.connections_max.min(connections_max),
        open_files_max: (open_files_max / architecture::cache_parts(settings)).max(1),
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

/// How parts of files are sent.
pub(crate) fn send_by(settings: &Settings, descriptors_max: u64) -> flash_worker::SendBy {
    match settings.optimizations.send {
        SendBy::Read => flash_worker::SendBy::Read,
        SendBy::Sendfile => flash_worker::SendBy::Sendfile,
        SendBy::Mmap => {
            flash_worker::SendBy::Mmap { chunks_max: mapped_chunks_max(settings, descriptors_max) }
        }
    }
}

/// What helpers are.
pub(crate) fn helper_kind(kind: HelperKind) -> flash_worker::HelperKind {
    match kind {
        HelperKind::Processes => flash_worker::HelperKind::Processes,
        HelperKind::Threads => flash_worker::HelperKind::Threads,
    }
}

/// What the loop waits by.
pub(crate) fn mechanism(mechanism: EventMechanism) -> mechanism::MechanismKind {
    match mechanism {
        EventMechanism::Epoll => mechanism::MechanismKind::Epoll,
        EventMechanism::Poll => mechanism::MechanismKind::Poll,
        EventMechanism::Select => mechanism::MechanismKind::Select,
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
        encoded_slash: match site.encoded_slash {
            config::EncodedSlash::Decode => flash_http::EncodedSlash::Decode,
            config::EncodedSlash::Refuse => flash_http::EncodedSlash::Refuse,
        },
    }
}

/// The content types.
pub(crate) fn types(settings: &Settings) -> TypeTable {
    TypeTable::new(settings.types.iter().map(|(extension, kind)| (extension.clone(), kind.clone())))
}
