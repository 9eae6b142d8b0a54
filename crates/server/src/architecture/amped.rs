//! AMPED, asymmetric multi-process event-driven: the loop answers what is in memory, and helpers wait for the
//! disk (flash-1999, section 3.4).
//!
//! What is here may not wait, nor reach anything that may: a house-rules test looks.

use std::io;

use flash_sys::prompt::file;
use flash_sys::prompt::sendfile::send_resident;

use crate::config::Settings;
use crate::worker::{Accepts, Begun, Reach, SiteFile};

/// Reach without waiting, also for threads while they hold what others need.
pub(super) const PROMPT: Reach = Reach {
    look_up: |root, path, want| file::open_cached(root, path, want),
    read: |file, offset, buffer| file::read_resident(file, offset, buffer),
    stat,
    send_file: |socket, head, file, offset, length| send_resident(socket, head, file, offset, length),
    under_all_roots: false,
};

/// Of a place, not even its state may be asked.
fn stat(file: &SiteFile) -> io::Result<file::Stat> {
    if file::is_place(file)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file::stat(file)
}

/// Runs a worker, which reaches files as `reach` says: by [`PROMPT`], but for experiments.
pub(super) fn run(begun: Begun, settings: &Settings, descriptors_max: u64, reach: Reach) -> io::Result<()> {
    let worker = begun.worker(settings, descriptors_max, reach, None, Accepts::All)?;
    worker.ready(worker.close(settings, None)?)?;
    worker.run(|worker| {
        worker.close_deleted();
        Ok(())
    })
}
