//! Converts the results of system calls to the engine's types, for workers and helpers.

use std::io;

use flash_engine::{FileKind, FileSent, FileStat, LookUpError, Opened, Want};
use flash_prompt::OwnedFd;
use flash_prompt::file;
use flash_prompt::sendfile::Sent;

/// How far a look-up goes, in terms of the system.
pub fn sys_want(want: Want) -> file::Want {
    match want {
        Want::Stat => file::Want::Stat,
        Want::Content => file::Want::Content,
    }
}

/// A look-up's result, in terms of the engine.
///
/// # Errors
///
/// Why nothing was found, or not without blocking.
pub fn look_up<F: From<OwnedFd>>(found: io::Result<file::Found>) -> Result<Opened<F>, LookUpError> {
    match found {
        Ok(found) => Ok(Opened { stat: stat(&found.stat), file: found.file.map(F::from) }),
        Err(e) => Err(look_up_error(&e)),
    }
}

/// The result of sending a part of a file, in terms of the engine.
pub fn sent(sent: Sent) -> FileSent {
    match sent {
        Sent::Took { offered, sent } => FileSent::Took { offered, sent },
        Sent::Absent => FileSent::Absent,
        Sent::Unknown => FileSent::Unknown,
        Sent::Ended => FileSent::Changed,
        Sent::Failed => FileSent::Failed,
    }
}

/// The state of a file, in terms of the engine.
pub fn stat(stat: &file::Stat) -> FileStat {
    FileStat {
        kind: kind(stat.kind),
        device: stat.device,
        inode: stat.inode,
        size_bytes: stat.size_bytes,
        modified_ns: stat.modified_ns,
        changed_ns: stat.changed_ns,
    }
}

/// The kind of a file, in terms of the engine.
#[must_use]
pub fn kind(kind: file::FileKind) -> FileKind {
    match kind {
        file::FileKind::File => FileKind::Regular,
        file::FileKind::Directory => FileKind::Directory,
        file::FileKind::Special => FileKind::Special,
    }
}

/// Why a look-up failed, in terms of the engine.
#[must_use]
pub fn look_up_error(error: &io::Error) -> LookUpError {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::WouldBlock => LookUpError::WouldWait,
        // A path that leads through a file, out of the root, or in a circle leads to no file.
        ErrorKind::NotFound
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::CrossesDevices => LookUpError::Missing,
        ErrorKind::PermissionDenied => LookUpError::Denied,
        ErrorKind::OutOfMemory => LookUpError::Exhausted,
        _ => match file::classify(error) {
            file::Trouble::Loop => LookUpError::Missing,
            file::Trouble::Exhausted => LookUpError::Exhausted,
            file::Trouble::Other(number) => LookUpError::Failed(number),
        },
    }
}
