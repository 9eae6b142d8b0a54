//! Events after they were read. Called by [`watcher`](super). Pure.

use flash_waiting::happening::{Happening, How, WatchId};

/// The events that were read.
pub(super) struct Seen {
    /// Whether there were no more.
    pub(super) is_all: bool,
    /// Events in watched directories.
    pub(super) own: usize,
    /// Events elsewhere.
    pub(super) others: usize,
}

/// The directory that has the directory at a path, and its name there. None for the root.
pub(super) fn parent(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let end = path.iter().rposition(|byte| *byte == b'/')?;
    Some(path.split_at(end + 1))
}

/// A [`Happening`] that owns its name.
#[derive(Debug)]
pub(super) enum Event {
    Overflow,
    Unwatched(WatchId),
    Unmounted(WatchId),
    Attributes(WatchId),
    Moved(WatchId),
    Name { directory: WatchId, name: Vec<u8>, is_directory: bool, how: How },
}

impl Event {
    pub(super) fn of(happening: Happening<'_>) -> Self {
        match happening {
            Happening::Overflow => Self::Overflow,
            Happening::Unwatched(watch) => Self::Unwatched(watch),
            Happening::Unmounted(watch) => Self::Unmounted(watch),
            Happening::Attributes(watch) => Self::Attributes(watch),
            Happening::Moved(watch) => Self::Moved(watch),
            Happening::Name { directory, name, is_directory, how } => {
                Self::Name { directory, name: name.to_vec(), is_directory, how }
            }
        }
    }
}
