//! MP, multi-process: each process has one connection at a time, from its accept to its close, and waits for
//! the disk by itself; the others go on (flash-1999, section 3.1).
//!
//! The processes share the listening sockets. One that has a connection leaves new ones in the kernel's queue
//! for the others, so there is no limit at which clients are refused.

use std::io;

use flash_worker::Accepts;

use super::sped::{WAITING, do_job, own_jobs};
use crate::config::Settings;
use crate::start::{Begun, close};

/// Runs one of the processes.
pub(super) fn run(begun: Begun, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let work = begun.disk_work(settings)?;
    let worker = begun.worker(settings, descriptors_max, WAITING, Some(own_jobs()), Accepts::OneAtATime)?;
    worker.ready(close(&worker, settings, Some(&work))?)?;
    worker.run(|worker| {
        do_job(worker, &work);
        let is_free = worker.engine.is_drained();
        worker.listen(is_free)
    })
}
