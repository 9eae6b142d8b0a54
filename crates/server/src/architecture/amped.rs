//! AMPED, asymmetric multi-process event-driven: the event loop answers from memory, and helpers wait for the disk
//! (flash-1999, section 3.4). Everything except the start is in `flash_worker`, which makes no call that may wait.

use std::io;

use flash_worker::{Accepts, Reach, amped};

use crate::config::Settings;
use crate::start::{Begun, close};

/// Runs a worker, which reaches files through `reach`: [`amped::PROMPT`], except in experiments.
pub(super) fn run(begun: Begun, settings: &Settings, descriptors_max: u64, reach: Reach) -> io::Result<()> {
    let worker = begun.worker(settings, descriptors_max, reach, None, Accepts::All)?;
    worker.ready(close(&worker, settings, None)?)?;
    amped::run(worker)
}
