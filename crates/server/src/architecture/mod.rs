//! The four architectures (flash-1999, section 3), over one engine, one event loop and one configuration.
//!
//! | | processes | connections of a worker | waits for the disk |
//! |---|---|---|---|
//! | `amped` | one worker per core | many | its helpers |
//! | `sped` | one worker per core | many | its event loop |
//! | `mp` | many, with smaller caches | one at a time | the process |
//! | `mt` | one, with many threads | one per thread | the thread |
//!
//! Each has a module here with its dispatcher. `role` calls [`run`]; the supervisor, the sandbox and the engine's rules ask
//! this module for the differences. No other code knows which architecture runs.

mod amped;
mod mp;
mod mt;
mod sped;

use std::io;

use flash_engine::limits::FILES_OF_NAME_MAX;
use flash_prompt::OwnedFd;
use flash_waiting::{file, process};
use flash_worker::Reach;
use flash_worker::amped::PROMPT;

use crate::config::{Architecture, HelperKind, Optimizations, Settings, rounded_text};
use crate::start;

/// Memory of a helper thread besides its job: its stack, its buffers, its arena of the allocator.
const HELPER_THREAD_BYTES: u64 = 16 << 20;
/// Maximum descriptors that a worker with threads makes room for at its start: more would cost memory that few
/// servers use.
const ROOM_DESCRIPTORS_MAX: u64 = 1 << 16;

/// Runs a worker on the orders from `control`.
pub(crate) fn run(control: OwnedFd, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let begun = start::begin(control, settings)?;
    if has_threads(settings) {
        process::make_room_for_descriptors(descriptors_max.min(ROOM_DESCRIPTORS_MAX))?;
    }
    match settings.architecture {
        Architecture::Amped => {
            amped::run(begun, settings, descriptors_max, amped_reach(&settings.optimizations))
        }
        Architecture::Sped => sped::run(begun, settings, descriptors_max),
        Architecture::Mp => mp::run(begun, settings, descriptors_max),
        Architecture::Mt => mt::run(begun, settings, descriptors_max),
    }
}

/// Whether a worker has threads besides that of its event loop.
fn has_threads(settings: &Settings) -> bool {
    match settings.architecture {
        Architecture::Amped => settings.helpers == HelperKind::Threads,
        Architecture::Sped | Architecture::Mp => false,
        Architecture::Mt => true,
    }
}

/// The functions with which AMPED workers reach files. Only in experiments do these wait.
fn amped_reach(optimizations: &Optimizations) -> Reach {
    let mut reach = PROMPT;
    if optimizations.open_in_loop {
        reach.look_up = |root, path, want| file::open_in_loop(root, path, want);
    }
    if !optimizations.residency_check {
        reach.read = sped::WAITING.read;
        reach.send_file = sped::WAITING.send_file;
    }
    reach
}

/// The number of worker processes.
pub(crate) fn processes(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => settings.processes,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => settings.workers,
    }
}

/// The number of sockets per address: one per process, or one that all share where the kernel would also queue
/// connections at the socket of a busy process.
pub(crate) fn sockets(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => 1,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => settings.workers,
    }
}

/// Maximum connections of a worker at once, as far as the settings say.
pub(crate) fn connections_max(settings: &Settings) -> usize {
    let at_once = match settings.architecture {
        Architecture::Amped | Architecture::Sped => settings.connections_max,
        Architecture::Mp => 1,
        Architecture::Mt => settings.threads,
    };
    at_once.min(settings.connections_max)
}

/// Whether a worker accepts every connection at once. Otherwise a connection waits in the kernel's queue until a process or
/// thread is free.
pub(crate) fn has_connections_of_all(settings: &Settings) -> bool {
    match settings.architecture {
        Architecture::Amped | Architecture::Sped => true,
        Architecture::Mp | Architecture::Mt => false,
    }
}

/// Maximum jobs of a worker at once.
pub(crate) fn jobs_at_once(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Amped => settings.helpers_max,
        Architecture::Sped | Architecture::Mp => 1,
        Architecture::Mt => settings.threads,
    }
}

/// Maximum blocks that a worker itself brings into the store at once; in other architectures helper processes do it.
pub(crate) fn fills_at_once(settings: &Settings) -> usize {
    match (settings.architecture, settings.helpers) {
        (Architecture::Amped, HelperKind::Processes) => 0,
        _ => jobs_at_once(settings),
    }
}

/// The divisor for cache bounds that no setting controls.
pub(crate) fn cache_parts(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => settings.processes,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => 1,
    }
}

/// Descriptors that the architecture of a worker needs, besides connections and files.
pub(crate) fn descriptors(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Amped => {
            // A helper process has a channel while it works and while it is given up. A thread also has its own end,
            // and the files that it holds; a name opens all its files at once.
            let of_helper = match settings.helpers {
                HelperKind::Processes => 2,
                HelperKind::Threads => 2 + 2 * FILES_OF_NAME_MAX,
            };
            of_helper * settings.helpers_max
        }
        Architecture::Sped | Architecture::Mp => 0,
        Architecture::Mt => mt::DESCRIPTORS_OF_THREAD * (settings.threads + 1),
    }
}

/// Memory that the architecture of a worker needs, in bytes; `job_bytes` is the maximum of one job.
pub(crate) fn memory_bytes(settings: &Settings, job_bytes: u64) -> u64 {
    match settings.architecture {
        Architecture::Amped => match settings.helpers {
            HelperKind::Processes => 0,
            HelperKind::Threads => (HELPER_THREAD_BYTES + job_bytes) * settings.helpers_max as u64,
        },
        Architecture::Sped | Architecture::Mp => job_bytes,
        Architecture::Mt => (mt::STACK_BYTES as u64 + job_bytes) * (settings.threads as u64 + 1),
    }
}

/// The processes, for the start line.
pub(crate) fn crew(settings: &Settings) -> String {
    let workers = counted(settings.workers, "worker", "s");
    match settings.architecture {
        Architecture::Amped => workers,
        Architecture::Sped => format!("{workers}, SPED"),
        Architecture::Mp => format!("{}, MP", counted(settings.processes, "process", "es")),
        Architecture::Mt => format!("{workers} of {}, MT", counted(settings.threads, "thread", "s")),
    }
}

fn counted(number: usize, what: &str, plural: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { plural })
}

/// The way in which files are read, for the start line; `told` is whether the kernel reports what is in memory.
pub(crate) fn reads(settings: &Settings, told: &Result<(), String>) -> String {
    let disk = match settings.architecture {
        Architecture::Amped if !settings.optimizations.residency_check => {
            return "in the event loop, which blocks on the disk".to_owned();
        }
        Architecture::Amped => "helpers",
        Architecture::Mt => "threads",
        Architecture::Sped => return "in the event loop, which blocks on the disk".to_owned(),
        Architecture::Mp => return "in the process, which blocks on the disk".to_owned(),
    };
    match told {
        Ok(()) => format!("{}memory by cachestat, disk by {disk}", store(settings)),
        // A worker that already has the capability needs another kernel or another file system.
        Err(e) => {
            let or = if settings.cap_fowner { "" } else { ", and to own the files or CAP_FOWNER" };
            let all = if settings.cache_memory.bytes_max() > 0 { "everything else" } else { "everything" };
            format!("{}{all} by {disk} (cachestat: {e}; needs Linux 6.5 or later{or})", store(settings))
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
