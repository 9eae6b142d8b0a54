//! AMPED (asymmetric multi-process event-driven; flash-1999, section 3.4): the event loop answers requests
//! from memory, and helpers wait for the disk. Called by the server at the start of a worker.

use std::io;

use flash_prompt::file;
use flash_prompt::sendfile::send_resident;

use crate::{Reach, SiteFile, Worker};

/// Reaches files without blocking. MT uses it too, while a thread holds the engine's lock.
pub const PROMPT: Reach = Reach {
    look_up: |root, path, want| file::open_cached(root, path, want),
    read: |file, offset, buffer| file::read_resident(file, offset, buffer),
    stat,
    send_file: |socket, head, file, offset, length| send_resident(socket, head, file, offset, length),
    under_all_roots: false,
};

/// An `O_PATH` descriptor must not even be asked for its state, because that could block.
fn stat(file: &SiteFile) -> io::Result<file::Stat> {
    if file::is_path_only(file)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    file::stat(file)
}

/// Runs a worker until the supervisor ends it.
///
/// Errors: any of its event mechanism and of its channel to the supervisor.
pub fn run(worker: Worker) -> io::Result<()> {
    worker.run(|_| Ok(()))
}
