//! AMPED, asymmetric multi-process event-driven: the loop answers what is in memory, and helpers wait for the
//! disk (flash-1999, section 3.4).

use std::io;

use flash_prompt::file;
use flash_prompt::sendfile::send_resident;

use crate::{Reach, SiteFile, Worker};

/// Reach without waiting, also for threads while they hold what others need.
pub const PROMPT: Reach = Reach {
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

/// Runs a worker until it is told to end.
///
/// Errors: those of its event mechanism and of its channel to the supervisor.
pub fn run(worker: Worker) -> io::Result<()> {
    worker.run(|_| Ok(()))
}
