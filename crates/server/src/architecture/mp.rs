//! MP, multi-process: each process serves one connection at a time, from accept to close, and waits for the disk itself while
//! the others continue (flash-1999, section 3.1).
//!
//! The processes share the listening sockets. A process with a connection leaves new ones in the kernel's queue, so no
//! client is refused at a limit. With a socket for each (`SO_REUSEPORT`) the kernel would pass connections to busy processes.

use std::io;

use flash_worker::Accepts;

use super::sped::{WAITING, do_job, own_jobs};
use crate::config::Settings;
use crate::start::{Begun, close};

/// Runs one of the processes.
pub(super) fn run(mut begun: Begun, settings: &Settings, descriptors_max: u64) -> io::Result<()> {
    let work = begun.disk_work(settings)?;
    let worker = begun.worker(settings, descriptors_max, WAITING, Some(own_jobs()), Accepts::OneAtATime)?;
    worker.ready(close(&worker, settings, Some(&work))?)?;
    worker.run(|worker| {
        do_job(worker, &work);
        let is_free = worker.engine.is_drained();
        worker.listen(is_free)
    })
}
