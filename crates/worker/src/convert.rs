//! From the results of system calls to the engine's own types, for workers and helpers.

use std::io;

use flash_engine::{FileKind, FileSent, FileStat, LookUpError, Opened, Want};
use flash_prompt::OwnedFd;
use flash_prompt::file;
use flash_prompt::sendfile::Sent;

/// How far a look-up goes, for the system.
pub fn sys_want(want: Want) -> file::Want {
    match want {
        Want::Stat => file::Want::Stat,
        Want::Content => file::Want::Content,
    }
}

/// A look-up's result in the engine's terms.
///
/// # Errors
///
/// The reason why nothing was found, or not yet.
pub fn look_up<F: From<OwnedFd>>(found: io::Result<file::Found>) -> Result<Opened<F>, LookUpError> {
    match found {
        Ok(found) => Ok(Opened { stat: stat(&found.stat), file: found.file.map(F::from) }),
        Err(e) => Err(look_up_error(&e)),
    }
}

/// What came of sending a part of a file, in the engine's terms.
pub fn sent(sent: Sent) -> FileSent {
    match sent {
        Sent::Took { offered, sent } => FileSent::Took { offered, sent },
        Sent::Absent => FileSent::Absent,
        Sent::Unknown => FileSent::Unknown,
        Sent::Ended => FileSent::Changed,
        Sent::Failed => FileSent::Failed,
    }
}

/// The state of a file in the engine's terms.
pub fn stat(stat: &file::Stat) -> FileStat {
    FileStat {
        kind: match stat.kind {
            file::FileKind::File => FileKind::Regular,
            file::FileKind::Directory => FileKind::Directory,
            file::FileKind::Special => FileKind::Special,
        },
        device: stat.device,
        inode: stat.inode,
        size_bytes: stat.size_bytes,
        modified_ns: stat.modified_ns,
        changed_ns: stat.changed_ns,
    }
}

/// Why a look-up failed, in the engine's terms.
#[must_use]
pub fn look_up_error(error: &io::Error) -> LookUpError {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::WouldBlock => LookUpError::WouldWait,
        // A path through a file, out of the root, or in a circle leads nowhere.
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
