//! Events in watched directories, whichever call reports them ([`inotify`](super::inotify), [`fanotify`](super::fanotify)).
//! Called by the watcher process.

use std::io;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, read};

/// A watched directory. Two watches of one directory have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchId {
    /// A number of inotify.
    Number(i32),
    /// A directory as fanotify names it.
    Handle(Handle),
}

/// A file handle (name_to_handle_at(2)), with its file system. No other file gets it when its own is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The identity of the file system.
    pub file_system: [u8; 8],
    /// The type of the handle.
    pub kind: i32,
    /// Its length in bytes.
    pub length: u8,
    /// Its bytes, and zeros.
    pub bytes: [u8; HANDLE_BYTES_MAX],
}

/// Longest handle of the file systems that fanotify watches here.
pub const HANDLE_BYTES_MAX: usize = 16;

/// Something that happened in or to watched directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening<'b> {
    /// Events were lost.
    Overflow,
    /// The directory is not watched any more: it is gone, or its watch was removed.
    Unwatched(WatchId),
    /// The file system of the directory was unmounted.
    Unmounted(WatchId),
    /// The directory itself has other attributes.
    Attributes(WatchId),
    /// The directory itself was moved.
    Moved(WatchId),
    /// A name in the directory.
    Name {
        /// The directory.
        directory: WatchId,
        /// The name.
        name: &'b [u8],
        /// Whether it is that of a directory.
        is_directory: bool,
        /// The kind of change.
        how: How,
    },
}

impl Happening<'_> {
    /// The directory that it concerns; None if it concerns all.
    pub fn directory(&self) -> Option<WatchId> {
        match self {
            Self::Overflow => None,
            Self::Unwatched(watch)
            | Self::Unmounted(watch)
            | Self::Attributes(watch)
            | Self::Moved(watch) => Some(*watch),
            Self::Name { directory, .. } => Some(*directory),
        }
    }
}

/// The kind of a change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was made, or moved here.
    Appeared,
    /// It was deleted.
    Deleted,
    /// It was moved elsewhere.
    MovedAway,
    /// Its file has other content or attributes.
    Changed,
}

/// Room for some hundred events.
const BUFFER_BYTES: usize = 64 * 1024;

/// A queue of events of the kernel.
#[derive(Debug)]
pub(crate) struct Queue {
    file: OwnedFd,
    buffer: Vec<u8>,
}

impl Queue {
    pub(crate) fn of(file: OwnedFd) -> Self {
        Self { file, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Decodes the next events; false if there are none. Errors: those of read(2).
    pub(crate) fn read(&mut self, decode: impl FnOnce(&[u8])) -> io::Result<bool> {
        match read(&self.file, &mut self.buffer[..]) {
            Ok(length) => decode(&self.buffer[..length]),
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
        Ok(true)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
