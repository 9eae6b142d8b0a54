//! Looks up all names beneath a directory, so that their directories and inodes are in memory. For
//! `flash backend --names`: called by a thread that does nothing else.

use std::ffi::CStr;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

/// The deepest directory whose names are looked up, beneath the first one.
const DEPTH_MAX: usize = 64;
/// Maximum number of directories that wait for their turn; more are left out.
const DIRECTORIES_MAX: usize = 100_000;

/// A directory whose names are not looked up yet.
struct Waiting {
    /// Relative to the first directory.
    path: Vec<u8>,
    depth: usize,
}

/// Looks up the names beneath `root`, at most `names_max`, and calls `looked_up` for each. Waits for the disk.
/// Follows no links and enters no other file systems. Directories that cannot be read are left out.
pub fn look_up_beneath(root: &OwnedFd, names_max: u64, mut looked_up: impl FnMut()) {
    let mut waiting = vec![Waiting { path: b".".to_vec(), depth: 0 }];
    let mut left = names_max;
    while let Some(Waiting { path, depth }) = waiting.pop() {
        let Ok(directory) = open(root, &path) else { continue };
        let Ok(entries) = Dir::read_from(&directory) else { continue };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if left == 0 {
                return;
            }
            left -= 1;
            let is_directory = is_directory(&directory, name).unwrap_or(false);
            looked_up();
            if is_directory && depth < DEPTH_MAX && waiting.len() < DIRECTORIES_MAX {
                let path = [path.as_slice(), b"/", name.to_bytes()].concat();
                waiting.push(Waiting { path, depth: depth + 1 });
            }
        }
    }
}

fn open(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    fs::openat2(root, path, flags, Mode::empty(), resolve)
}

/// Reads the inode of a name. Another host or process is not asked for it, if one is mounted there.
fn is_directory(directory: impl AsFd, name: &CStr) -> Result<bool, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = fs::statx(directory, name, flags, StatxFlags::TYPE | StatxFlags::INO)?;
    Ok(FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::open_folder;

    #[test]
    fn names_are_counted_up_to_the_maximum_and_links_are_not_followed() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = temporary.path();
        std::fs::create_dir_all(folder.join("www/a/b")).expect("a folder");
        for name in ["www/1", "www/a/2", "www/a/b/3", "outside"] {
            std::fs::write(folder.join(name), "x").expect("a file");
        }
        std::os::unix::fs::symlink("..", folder.join("www/up")).expect("a link");
        let root = open_folder(&folder.join("www")).expect("the folder");
        let count = |names_max| {
            let mut count = 0;
            look_up_beneath(&root, names_max, || count += 1);
            count
        };
        assert_eq!((count(100), count(4), count(0)), (6, 4, 0), "1, a, up, 2, b, 3");
    }
}
