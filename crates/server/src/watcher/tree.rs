//! The watched directories beneath the roots. Called by [`watcher`](super). Waits for disks.

use std::collections::{HashMap, HashSet};
use std::io;

use flash_prompt::OwnedFd;
use flash_waiting::inotify::{Inotify, WatchId};
use flash_waiting::watched::{self, Rights};

/// Maximum number of directories watched at once: the kernel keeps each in memory, with about 1 KiB.
pub(super) const DIRECTORIES_MAX: usize = 200_000;

/// A watched directory, as it is found beneath a root. Roots can be beneath each other, so one directory can have
/// several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectoryPath {
    /// The number of the root.
    pub(super) root: usize,
    /// The path beneath it; it begins and ends with a slash.
    pub(super) path: Box<[u8]>,
}

#[derive(Debug)]
struct Directory {
    paths: Vec<DirectoryPath>,
    rights: Rights,
}

/// All watched directories.
#[derive(Debug, Default)]
pub(super) struct Tree {
    directories: HashMap<WatchId, Directory>,
    /// Directories that nobody with the user of this process can look into.
    closed: HashSet<(usize, Box<[u8]>)>,
}

impl Tree {
    /// The number of watched directories.
    pub(super) fn len(&self) -> usize {
        self.directories.len()
    }

    /// Where a directory is found; nowhere if it is not watched.
    pub(super) fn paths(&self, watch: WatchId) -> Vec<DirectoryPath> {
        self.directories.get(&watch).map(|directory| directory.paths.clone()).unwrap_or_default()
    }

    /// Watches the directory at a path beneath a root. Returns the names of the directories in it. One that is gone or
    /// closed to this process, or has another file system, is left out, but not the root itself.
    ///
    /// Errors: why names beneath it cannot be watched.
    pub(super) fn watch(
        &mut self,
        inotify: &Inotify,
        root: (usize, &OwnedFd),
        path: &[u8],
    ) -> io::Result<Vec<Vec<u8>>> {
        let (number, folder) = root;
        let directory = match watched::open_directory(folder, path) {
            Ok(directory) => directory,
            // No watch reports when the root is there again.
            Err(e) if path == b"/" => return Err(e),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            // Names on another file system are not watched: their findings say so.
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => return Ok(Vec::new()),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && watched::is_closed(folder, path) => {
                self.closed.insert((number, path.into()));
                return Ok(Vec::new());
            }
            Err(e) => return Err(e),
        };
        if self.directories.len() >= DIRECTORIES_MAX {
            let why = format!("more than {DIRECTORIES_MAX} directories");
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let watch = inotify.watch(&directory)?;
        let rights = watched::rights(&directory)?;
        let found = DirectoryPath { root: number, path: path.into() };
        let known = self.directories.entry(watch).or_insert_with(|| Directory { paths: Vec::new(), rights });
        known.rights = rights;
        if !known.paths.contains(&found) {
            known.paths.push(found);
        }
        watched::directories_in(&directory)
    }

    /// A directory is not watched any more.
    pub(super) fn forget(&mut self, watch: WatchId) {
        self.directories.remove(&watch);
    }

    /// Ends the watches of the directories of a root whose paths fit.
    pub(super) fn forget_all(&mut self, inotify: &Inotify, root: usize, fits: impl Fn(&[u8]) -> bool) {
        self.closed.retain(|(other, path)| *other != root || !fits(path));
        self.directories.retain(|watch, directory| {
            directory.paths.retain(|found| found.root != root || !fits(&found.path));
            if directory.paths.is_empty() {
                inotify.unwatch(*watch);
            }
            !directory.paths.is_empty()
        });
    }

    /// Whether the rights of a directory are still the same; other attributes do not matter.
    pub(super) fn has_same_rights(&self, watch: WatchId, folder: &OwnedFd, path: &[u8]) -> bool {
        let Some(directory) = self.directories.get(&watch) else { return true };
        watched::open_directory(folder, path)
            .and_then(|now| watched::rights(&now))
            .is_ok_and(|now| now == directory.rights)
    }

    /// Whether a directory was closed to this process.
    pub(super) fn was_closed(&self, root: usize, path: &[u8]) -> bool {
        self.closed.contains(&(root, path.into()))
    }
}
