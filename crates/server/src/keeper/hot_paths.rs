//! The paths of the files in the store, for the list of hot files. Helpers report them, and a helper can be compromised: so they
//! are never more than the list can hold. Called by [`keeper`](super).

use std::collections::HashMap;

use flash_prompt::names::FileState;

use crate::hot_list::{Hot, LINES_MAX, LIST_BYTES_MAX};

/// The paths of files.
#[derive(Debug)]
pub(super) struct HotPaths {
    by_file: HashMap<FileState, HotPath>,
    /// Bytes of all roots and paths.
    bytes: usize,
    paths_max: usize,
    bytes_max: usize,
    /// How many had no room since the last look for files that have left the store.
    turned_away: usize,
}

/// A path that leads to a file.
#[derive(Debug)]
pub(super) struct HotPath {
    /// The root of its site and the path below it.
    text: Box<[u8]>,
    root_bytes: usize,
}

impl HotPath {
    /// A block of its file.
    pub(super) fn hot(&self, block: u32) -> Hot<&[u8]> {
        let (root, path) = self.text.split_at(self.root_bytes);
        Hot { root, path, block }
    }
}

impl HotPaths {
    /// Without a path. A list that fits its bounds has paths that fit these.
    pub(super) fn new() -> Self {
        Self::with_bounds(LINES_MAX, LIST_BYTES_MAX as usize)
    }

    fn with_bounds(paths_max: usize, bytes_max: usize) -> Self {
        Self { by_file: HashMap::new(), bytes: 0, paths_max, bytes_max, turned_away: 0 }
    }

    /// Keeps the path of a file, instead of an earlier one, if there is room for it. Files make room whose first block is not
    /// in the store, by `is_stored`.
    pub(super) fn insert(
        &mut self,
        file: FileState,
        root: &[u8],
        path: &[u8],
        is_stored: impl Fn(&FileState) -> bool,
    ) {
        self.remove(&file);
        let bytes = root.len() + path.len();
        if !self.has_room(bytes) {
            // A look at all of them takes long, so not each time.
            if self.turned_away == 0 {
                self.by_file.retain(|file, _| is_stored(file));
                self.bytes = self.by_file.values().map(|path| path.text.len()).sum();
            }
            self.turned_away = (self.turned_away + 1) % (self.paths_max / 16).max(1);
            if !self.has_room(bytes) {
                return;
            }
        }
        self.turned_away = 0;
        self.bytes += bytes;
        self.by_file.insert(file, HotPath { text: [root, path].concat().into(), root_bytes: root.len() });
    }

    /// The path of a file.
    pub(super) fn get(&self, file: &FileState) -> Option<&HotPath> {
        self.by_file.get(file)
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.by_file.len() < self.paths_max && self.bytes + bytes <= self.bytes_max
    }

    fn remove(&mut self, file: &FileState) {
        if let Some(name) = self.by_file.remove(file) {
            self.bytes -= name.text.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(inode: u64) -> FileState {
        FileState { inode, ..FileState::default() }
    }

    fn insert(paths: &mut HotPaths, inode: u64, path_bytes: usize, is_stored: fn(u64) -> bool) {
        let path = vec![b'/'; path_bytes];
        paths.insert(file(inode), b"/r", &path, |file| is_stored(file.inode));
        let bytes: usize = paths.by_file.values().map(|path| path.text.len()).sum();
        assert_eq!(paths.bytes, bytes);
        assert!(bytes <= paths.bytes_max && paths.by_file.len() <= paths.paths_max);
    }

    fn known(paths: &HotPaths) -> Vec<u64> {
        let mut known: Vec<u64> = paths.by_file.keys().map(|file| file.inode).collect();
        known.sort_unstable();
        known
    }

    #[test]
    fn the_paths_have_a_bound_in_bytes() {
        let mut paths = HotPaths::with_bounds(1_000, 100);
        (0..20).for_each(|inode| insert(&mut paths, inode, 8, |_| true));
        assert_eq!(known(&paths), (0..10).collect::<Vec<_>>(), "ten of 10 bytes");
        insert(&mut paths, 3, 2, |_| true);
        insert(&mut paths, 30, 14, |_| true);
        assert_eq!((known(&paths).len(), paths.bytes), (10, 94), "a longer one has no room");
        insert(&mut paths, 31, 8, |_| true);
        insert(&mut paths, 3, 1, |_| true);
        assert_eq!((known(&paths).len(), paths.bytes), (10, 93));
        let hot = paths.get(&file(3)).expect("known").hot(7);
        assert_eq!(hot, Hot { root: b"/r".as_slice(), path: b"/", block: 7 });
    }

    #[test]
    fn files_that_have_left_the_store_make_room() {
        let mut paths = HotPaths::with_bounds(4, 1_000);
        (0..10).for_each(|inode| insert(&mut paths, inode, 1, |inode| inode % 2 == 0));
        // Each time there is no room, those with odd numbers leave.
        assert_eq!(known(&paths), [0, 2, 4, 6]);
    }

    #[test]
    fn not_every_path_without_room_looks_at_all_others() {
        let mut paths = HotPaths::with_bounds(32, 1_000);
        (0..32).for_each(|inode| insert(&mut paths, inode, 1, |_| true));
        let looks = std::cell::Cell::new(0);
        for inode in 32..42 {
            paths.insert(file(inode), b"", b"/", |file| {
                looks.set(looks.get() + usize::from(file.inode == 0));
                true
            });
        }
        assert_eq!((looks.get(), known(&paths).len()), (5, 32));
    }
}
