//! The watched directories beneath the roots. Called by [`watcher`](super). Waits for disks.

use std::collections::{HashMap, HashSet};
use std::io;

use flash_prompt::OwnedFd;
use flash_waiting::happening::WatchId;
use flash_waiting::watched::{self, Rights};

use super::source::Source;

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
#[derive(Debug)]
pub(super) struct Tree {
    directories_max: usize,
    directories: HashMap<WatchId, Directory>,
    /// Directories that nobody with the user of this process can look into.
    closed: HashSet<(usize, Box<[u8]>)>,
}

impl Tree {
    /// One that is empty.
    pub(super) fn of(directories_max: usize) -> Self {
        Self { directories_max, directories: HashMap::new(), closed: HashSet::new() }
    }

    /// Maximum number of directories that can be watched.
    pub(super) fn directories_max(&self) -> usize {
        self.directories_max
    }

    /// Whether a directory is watched, or was found closed.
    pub(super) fn has(&self, watch: WatchId) -> bool {
        self.directories.contains_key(&watch)
    }

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
        source: &Source,
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
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let Some(closed) = watched::find_closed(folder, path) else { return Err(e) };
                self.closed.insert((number, path.into()));
                if let Some(watch) = source.watch_closed(&closed) {
                    self.insert(watch, watched::rights(&closed)?, (number, path));
                }
                return Ok(Vec::new());
            }
            Err(e) => return Err(e),
        };
        if self.directories.len() >= self.directories_max {
            let why = format!("more than {} directories", self.directories_max);
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        let watch = source.watch(&directory)?;
        self.insert(watch, watched::rights(&directory)?, (number, path));
        watched::directories_in(&directory)
    }

    fn insert(&mut self, watch: WatchId, rights: Rights, (root, path): (usize, &[u8])) {
        let found = DirectoryPath { root, path: path.into() };
        let known = self.directories.entry(watch).or_insert_with(|| Directory { paths: Vec::new(), rights });
        known.rights = rights;
        if !known.paths.contains(&found) {
            known.paths.push(found);
        }
    }

    /// A directory is not watched any more.
    pub(super) fn forget(&mut self, watch: WatchId) {
        self.directories.remove(&watch);
    }

    /// Ends the watches of the directories of a root whose paths fit.
    pub(super) fn forget_all(&mut self, source: &Source, root: usize, fits: impl Fn(&[u8]) -> bool) {
        self.closed.retain(|(other, path)| *other != root || !fits(path));
        self.directories.retain(|watch, directory| {
            directory.paths.retain(|found| found.root != root || !fits(&found.path));
            if directory.paths.is_empty() {
                source.unwatch(*watch);
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
