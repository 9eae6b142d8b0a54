//! The four architectures (flash-1999, section 3), over one engine, one event loop and one configuration.
//!
//! | | processes | connections of a worker | waits for the disk |
//! |---|---|---|---|
//! | `amped` | one worker per core | many | its helpers |
//! | `sped` | one worker per core | many | its event loop |
//! | `mp` | many, with smaller caches | one at a time | the process |
//! | `mt` | one, with many threads | one per thread | the thread |
//!
//! The modules here have their dispatchers; that of AMPED is in `flash_worker`, which makes no call that may wait. `role` calls
//! [`run`]. The differences that others need to know, such as the number
//! of processes, are in `config::architecture`. No other code knows which architecture runs.

mod in_loop;
mod mt;

use std::io;

use flash_prompt::OwnedFd;
use flash_waiting::{file, process};
use flash_worker::{Accepts, HelperKind, Reach, amped};

use crate::config::{Architecture, Settings};
use crate::start::{self, close};

/// Maximum descriptors that a worker with threads makes room for at its start: more would cost memory that few
/// servers use.
const ROOM_DESCRIPTORS_MAX: u64 = 1 << 16;

pub(crate) fn run(control: OwnedFd, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let begun = start::begin(control, settings)?;
    if has_threads(settings) {
        process::make_room_for_descriptors(descriptors_max.min(ROOM_DESCRIPTORS_MAX))?;
    }
    match settings.architecture {
        Architecture::Amped => {
            let worker =
                begun.worker(settings, descriptors_max, amped_reach(settings), None, Accepts::All)?;
            worker.ready(close(&worker, settings, None)?)?;
            amped::run(worker)
        }
        Architecture::Sped => in_loop::run(begun, settings, descriptors_max, Accepts::All),
        Architecture::Mp => in_loop::run(begun, settings, descriptors_max, Accepts::OneAtATime),
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
fn amped_reach(settings: &Settings) -> Reach {
    let mut reach = amped::PROMPT;
    if settings.open_in_loop {
        reach.look_up = |root, path, want| file::open_in_loop(root, path, want);
    }
    if !settings.residency_check {
        reach.read = in_loop::WAITING.read;
        reach.send_file = in_loop::WAITING.send_file;
    }
    reach
}
