//! The facts of an architecture: how many processes, connections, jobs and descriptors the settings lead to, and its words in the
//! start line, and which settings it takes.
//!
//! The supervisor, the sandbox, `convert` and the checks of the settings ask it. It must not run anything: `crate::architecture` does.

use flash_engine::limits::{FILES_OF_NAME_MAX, OPEN_FILES_MAX};
use flash_worker::{HelperKind, SendBy};

use super::choices::Architecture;
use super::memory::rounded_text;
use super::options::Settings;
use super::route_options::Route;
use super::service::Service;

use Architecture::{Amped, Mp, Mt, Sped};

/// The settings that only some architectures can have, and why. The first row that fits decides.
const ONLY: &[(&[&str], &[Architecture], &str)] = &[
    (&["processes"], &[Mp], "only `mp` has a process for each connection"),
    (&["threads"], &[Mt], "only `mt` has threads"),
    (&["workers"], &[Amped, Sped, Mt], "`processes` sets its number of worker processes"),
    (&["helpers", "helpers_max", "helper_idle"], &[Amped], "only `amped` has helpers"),
    (&["connections"], &[Amped, Sped, Mt], "each of its processes has one connection at a time"),
    (
        &["client_connections", "client_exempt", "accept_wait"],
        &[Amped, Sped],
        "a connection that finds no free process or thread waits in the kernel's queue",
    ),
    (&["job_deadline"], &[Amped, Mt], "a process that waits for the disk itself cannot stop waiting"),
    (&["event_mechanism"], &[Amped, Sped], "only `amped` and `sped` have an event loop for many connections"),
    (
        &["egress"],
        &[Amped, Sped],
        "each of its connections has a process or thread of its own, and none of these sees the others",
    ),
    (
        &["open_in_loop", "residency_check"],
        &[Amped, Sped, Mp],
        "its threads share a lock, and must not wait for the disk while they hold it",
    ),
    (&["open_in_loop"], &[Amped], "it always does; only `amped` can choose"),
    (&["residency_check"], &[Amped], "it never checks what is in memory; only `amped` can choose"),
    (&["listen_tls"], &[Amped, Sped, Mp], "its threads have no handshakes"),
    (
        &["route"],
        &[Amped, Sped],
        "only `amped` and `sped` have an event loop for many connections, and routes need one",
    ),
];

/// Why a setting has no effect with an architecture; none if it has.
pub(super) fn refuses(architecture: Architecture, key: &str) -> Option<&'static str> {
    let fits = |(keys, takes, _): &&(&[&str], &[Architecture], _)| {
        keys.contains(&key) && !takes.contains(&architecture)
    };
    ONLY.iter().find(fits).map(|(.., why)| *why)
}

/// Descriptors that a worker needs besides those for connections, files and its architecture.
const DESCRIPTORS_APART: u64 = 64;

/// Descriptors of a thread of `mt`: two to wait with, and its connection's file.
const DESCRIPTORS_OF_THREAD: usize = 3;
/// The stack of a thread of `mt`, in bytes.
pub(crate) const STACK_BYTES: usize = 1 << 20;
/// Memory of a helper thread besides its job: its stack, its buffers, its arena of the allocator.
const HELPER_THREAD_BYTES: u64 = 16 << 20;

/// Maximum files that a worker may keep open, of this many descriptors.
pub(crate) fn open_files_max(descriptors_max: u64) -> u64 {
    (descriptors_max / 4).min(OPEN_FILES_MAX as u64)
}

/// Maximum connections of a worker, of this many descriptors.
pub(crate) fn connections_that_fit(settings: &Settings, descriptors_max: u64) -> u64 {
    let others = open_files_max(descriptors_max)
        + mapped_chunks_max(settings, descriptors_max) as u64
        + DESCRIPTORS_APART
        + descriptors(settings) as u64
        + upstream_connections_max(settings, descriptors_max)
        + settings.folders().count() as u64;
    descriptors_max.saturating_sub(others)
}

/// Maximum connections of a worker to the servers of routes, of this many descriptors.
pub(crate) fn upstream_connections_max(settings: &Settings, descriptors_max: u64) -> u64 {
    let asked = settings.routes().map(Route::connections_of_worker).fold(0, u64::saturating_add);
    asked.min(descriptors_max / 4)
}

/// Maximum mapped parts of files: each may keep a file open.
pub(crate) fn mapped_chunks_max(settings: &Settings, descriptors_max: u64) -> usize {
    const CHUNKS_MAX: u64 = 4096;
    match settings.send {
        SendBy::Mmap => ((descriptors_max / 4).min(CHUNKS_MAX) as usize / cache_parts(settings)).max(1),
        SendBy::Read | SendBy::Sendfile => 0,
    }
}

/// Whether a worker leaves slow handshakes to a thread. In the other architectures all clients of a loop wait anyway, or each has a
/// thread or a process.
pub(crate) fn leaves_handshakes(settings: &Settings) -> bool {
    settings.architecture == Amped
}

pub(crate) fn processes(settings: &Settings) -> usize {
    match settings.architecture {
        Mp => settings.processes,
        Amped | Sped | Mt => settings.workers,
    }
}

/// The number of sockets per address: one per process, or one that all share where the kernel would also queue
/// connections at the socket of a busy process.
pub(crate) fn sockets(settings: &Settings) -> usize {
    match settings.architecture {
        Mp => 1,
        Amped | Sped | Mt => settings.workers,
    }
}

/// Maximum connections of a worker at once, as far as the settings say.
pub(crate) fn connections_max(settings: &Settings) -> usize {
    let at_once = match settings.architecture {
        Amped | Sped => settings.connections_max,
        Mp => 1,
        Mt => settings.threads,
    };
    at_once.min(settings.connections_max)
}

/// Whether a worker accepts every connection at once. Otherwise a connection waits in the kernel's queue until a process or
/// thread is free.
pub(crate) fn has_connections_of_all(settings: &Settings) -> bool {
    match settings.architecture {
        Amped | Sped => true,
        Mp | Mt => false,
    }
}

/// Whether a worker's event loop waits for nothing but events, so that one which does not turn is lost.
pub(crate) fn never_waits(settings: &Settings) -> bool {
    settings.architecture == Amped && settings.residency_check && settings.service == Service::Files
}

pub(crate) fn jobs_at_once(settings: &Settings) -> usize {
    match settings.architecture {
        Amped => settings.helpers_max,
        Sped | Mp => 1,
        Mt => settings.threads,
    }
}

/// Maximum blocks that a worker itself brings into the store at once; in other architectures helper processes do it.
pub(crate) fn fills_at_once(settings: &Settings) -> usize {
    match (settings.architecture, settings.helpers) {
        (Amped, HelperKind::Processes) => 0,
        _ => jobs_at_once(settings),
    }
}

/// The divisor for cache bounds that no setting controls.
pub(crate) fn cache_parts(settings: &Settings) -> usize {
    match settings.architecture {
        Mp => settings.processes,
        Amped | Sped | Mt => 1,
    }
}

/// Descriptors that the architecture of a worker needs, besides connections and files.
pub(crate) fn descriptors(settings: &Settings) -> usize {
    match settings.architecture {
        Amped => {
            // A helper process has a channel while it works and while it is given up. A thread also has its own end,
            // and the files that it holds; a name opens all its files at once.
            let of_helper = match settings.helpers {
                HelperKind::Processes => 2,
                HelperKind::Threads => 2 + 2 * FILES_OF_NAME_MAX,
            };
            of_helper * settings.helpers_max
        }
        Sped | Mp => 0,
        Mt => DESCRIPTORS_OF_THREAD * (settings.threads + 1),
    }
}

/// Memory that the architecture of a worker needs, in bytes; `job_bytes` is the maximum of one job.
pub(crate) fn memory_bytes(settings: &Settings, job_bytes: u64) -> u64 {
    match settings.architecture {
        Amped => match settings.helpers {
            HelperKind::Processes => 0,
            HelperKind::Threads => (HELPER_THREAD_BYTES + job_bytes) * settings.helpers_max as u64,
        },
        Sped | Mp => job_bytes,
        Mt => (STACK_BYTES as u64 + job_bytes) * (settings.threads as u64 + 1),
    }
}

/// The processes, for the start line.
pub(crate) fn crew(settings: &Settings) -> String {
    let workers = counted(settings.workers, "worker", "s");
    match settings.architecture {
        Amped => workers,
        Sped => format!("{workers}, SPED"),
        Mp => format!("{}, MP", counted(settings.processes, "process", "es")),
        Mt => format!("{workers} of {}, MT", counted(settings.threads, "thread", "s")),
    }
}

fn counted(number: usize, what: &str, plural: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { plural })
}

/// The way in which files are read, for the start line; `told` is whether the kernel reports what is in memory.
pub(crate) fn reads(settings: &Settings, told: &Result<(), String>) -> String {
    let disk = match settings.architecture {
        Amped if !settings.residency_check => {
            return "in the event loop, which blocks on the disk".to_owned();
        }
        Amped => "helpers",
        Mt => "threads",
        Sped => return "in the event loop, which blocks on the disk".to_owned(),
        Mp => return "in the process, which blocks on the disk".to_owned(),
    };
    match told {
        Ok(()) => format!("{}memory by cachestat, disk by {disk}", store(settings)),
        // A worker that already has the capability needs another kernel or another file system.
        Err(e) => {
            let or = if settings.cap_fowner { "" } else { ", and to own the files or CAP_FOWNER" };
            let all = if settings.cache_memory.bytes_max() > 0 { "everything else" } else { "everything" };
            format!(
                "{}{all} by {disk} (cachestat: {e}; needs Linux 6.5 or later, and no filter that forbids it{or})",
                store(settings)
            )
        }
    }
}

/// The store, for the start line.
fn store(settings: &Settings) -> String {
    match settings.cache_memory.bytes_max() {
        0 => String::new(),
        bytes_max => format!("store of up to {}, ", rounded_text(bytes_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::options;
    use super::*;

    #[test]
    fn what_only_some_take_are_options() {
        for key in ONLY.iter().flat_map(|(keys, ..)| *keys) {
            assert!(*key == "route" || options::find(key).is_some(), "{key}");
        }
        let refused = |architecture| refuses(architecture, "helpers").is_some();
        assert_eq!([Amped, Sped, Mp, Mt].map(refused), [false, true, true, true]);
        assert_ne!(refuses(Mt, "open_in_loop"), refuses(Sped, "open_in_loop"));
        assert_eq!(refuses(Mt, "listen"), None);
    }
}
