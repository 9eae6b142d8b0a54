//! Where the watcher gets events from. Called by [`watcher`](super).

use std::io;

use flash_prompt::{AsFd, BorrowedFd, OwnedFd};
use flash_waiting::fanotify::Fanotify;
use flash_waiting::happening::{Happening, WatchId};
use flash_waiting::inotify::{self, Inotify};
use flash_waiting::memory::usable_bytes;

use crate::convert::directories_max;

/// Maximum number of directories watched by inotify: the kernel keeps each in memory, with about 1 KiB.
const DIRECTORIES_MAX: usize = 200_000;

/// A queue of events.
pub(super) enum Source {
    /// It has those of each directory that is watched.
    Inotify(Inotify),
    /// It has those of the whole file systems of all roots.
    Fanotify(Fanotify),
}

impl Source {
    /// The queue that the supervisor has made, or one of inotify.
    ///
    /// Errors: those of [`Inotify::new`].
    pub(super) fn of(queue: Option<OwnedFd>) -> io::Result<Self> {
        Ok(match queue {
            Some(queue) => Self::Fanotify(Fanotify::of(queue)),
            None => Self::Inotify(Inotify::new()?),
        })
    }

    /// Maximum number of directories that can be watched.
    pub(super) fn directories_max(&self) -> usize {
        let max = directories_max(usable_bytes());
        match self {
            Self::Inotify(_) => {
                let of_user = inotify::watches_max().unwrap_or(u64::MAX);
                max.min(DIRECTORIES_MAX).min(usize::try_from(of_user).unwrap_or(usize::MAX))
            }
            Self::Fanotify(_) => max,
        }
    }

    /// Watches an open directory. Errors: those of the two kinds.
    pub(super) fn watch(&self, directory: impl AsFd) -> io::Result<WatchId> {
        match self {
            Self::Inotify(inotify) => inotify.watch(directory),
            Self::Fanotify(fanotify) => fanotify.watch(directory),
        }
    }

    /// Watches a directory that this process can find but not open. None if that cannot be watched.
    pub(super) fn watch_closed(&self, directory: impl AsFd) -> Option<WatchId> {
        match self {
            Self::Inotify(_) => None,
            Self::Fanotify(fanotify) => fanotify.watch(directory).ok(),
        }
    }

    /// Ends a watch.
    pub(super) fn unwatch(&self, watch: WatchId) {
        match self {
            Self::Inotify(inotify) => inotify.unwatch(watch),
            Self::Fanotify(_) => {}
        }
    }

    /// How more directories can be watched, if as many as possible are: their number, and its maximum.
    pub(super) fn advice(&self, why: &io::Error, (watched, max): (usize, usize)) -> String {
        match self {
            _ if why.kind() != io::ErrorKind::StorageFull => String::new(),
            Self::Inotify(_) if why.raw_os_error().is_some() => format!(
                "; {watched} other directories are watched, and fs.inotify.max_user_watches allows all programs of this user \
                 {max} together: raise it with sysctl, or give Flash CAP_SYS_ADMIN for fanotify, which needs no watches"
            ),
            Self::Inotify(_) => "; give Flash CAP_SYS_ADMIN for fanotify, which has room for more".to_owned(),
            Self::Fanotify(_) => "; more memory has room for more".to_owned(),
        }
    }

    /// Calls `each` for the next events; false if there are none. Errors: those of read(2).
    pub(super) fn read(&mut self, each: impl FnMut(Happening<'_>)) -> io::Result<bool> {
        match self {
            Self::Inotify(inotify) => inotify.read(each),
            Self::Fanotify(fanotify) => fanotify.read(each),
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Inotify(inotify) => inotify.as_fd(),
            Self::Fanotify(fanotify) => fanotify.as_fd(),
        }
    }
}
