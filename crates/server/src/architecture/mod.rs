//! The four architectures (flash-1999, section 3), over one engine, one loop and one configuration.
//!
//! | | processes | a worker has | who waits for the disk |
//! |---|---|---|---|
//! | `amped` | a worker a core | all connections of its own | its helpers |
//! | `sped` | a worker a core | all connections of its own | its loop |
//! | `mp` | many, with smaller caches | one connection at a time | the process |
//! | `mt` | one, with many threads | a connection a thread | the thread |
//!
//! Each has a module here with its dispatcher. Which one runs, nobody else knows: `role` calls [`run`], and the
//! supervisor, the sandbox and the engine's rules ask what differs for them.

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

use crate::config::{Architecture, HelperKind, Optimizations, Settings};
use crate::start;

/// What a helper thread can take besides its job: its stack, its buffers, an arena of the allocator.
const HELPER_THREAD_BYTES: u64 = 16 << 20;
/// Descriptors that a worker with threads has room for from the start, at most: more than that costs memory that few
/// will use.
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

/// Whether a worker has more threads than that of its loop.
fn has_threads(settings: &Settings) -> bool {
    match settings.architecture {
        Architecture::Amped => settings.helpers == HelperKind::Threads,
        Architecture::Sped | Architecture::Mp => false,
        Architecture::Mt => true,
    }
}

/// How workers of AMPED reach files. Only for experiments are these functions that wait.
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

/// How many worker processes there are.
pub(crate) fn processes(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => settings.processes,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => settings.workers,
    }
}

/// How many sockets there are for each address: one for each process, or one that all share, since the kernel
/// would also queue connections at a socket whose process has one already.
pub(crate) fn sockets(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => 1,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => settings.workers,
    }
}

/// How many connections a worker can have at once, as far as the settings say.
pub(crate) fn connections_max(settings: &Settings) -> usize {
    let at_once = match settings.architecture {
        Architecture::Amped | Architecture::Sped => settings.connections_max,
        Architecture::Mp => 1,
        Architecture::Mt => settings.threads,
    };
    at_once.min(settings.connections_max)
}

/// How many jobs of a worker can be under way at once.
pub(crate) fn jobs_at_once(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Amped => settings.helpers_max,
        Architecture::Sped | Architecture::Mp => 1,
        Architecture::Mt => settings.threads,
    }
}

/// Into how many parts the bounds of caches are divided that no setting has.
pub(crate) fn cache_parts(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Mp => settings.processes,
        Architecture::Amped | Architecture::Sped | Architecture::Mt => 1,
    }
}

/// Descriptors that a worker needs for its way of working, besides connections and files.
pub(crate) fn descriptors(settings: &Settings) -> usize {
    match settings.architecture {
        Architecture::Amped => {
            // Processes have channels at work and when given up. Threads have their own ends of them, and files
            // in hand; of a name all are opened at once.
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

/// Memory that a worker needs for its way of working, in bytes; `job_bytes` is what a job can take.
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

/// How files are read, for the start line; `told` is whether the kernel tells what is in memory.
pub(crate) fn reads(settings: &Settings, told: io::Result<()>) -> String {
    let disk = match settings.architecture {
        Architecture::Amped if !settings.optimizations.residency_check => {
            return "all in the loop, also from the disk".to_owned();
        }
        Architecture::Amped => "helpers",
        Architecture::Mt => "threads",
        Architecture::Sped => return "in the loop, which waits for the disk".to_owned(),
        Architecture::Mp => return "in the process, which waits for the disk".to_owned(),
    };
    match told {
        Ok(()) => format!("memory by cachestat, disk by {disk}"),
        Err(e) => format!(
            "content cache, all else by {disk} (cachestat: {e}; run as the files' owner or with --cap-fowner, on Linux 6.5 or later)"
        ),
    }
}
