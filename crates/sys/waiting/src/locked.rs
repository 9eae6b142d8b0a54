//! Files locked in memory: as long as a [`LockedFile`] lives, no process that reads the file waits for the disk.
//!
//! The lab locks the files that hot requests ask for. The pages stay those of the page cache, so every reader shares
//! them. The kernel charges a page to the control group that touched it first: lock before the server starts, and the
//! server's memory bound neither pays for the pages nor evicts them.

use std::fs::File;
use std::io;
use std::path::Path;

use flash_prompt::mapped::Mapped;
use rustix::mm::{MapFlags, ProtFlags, mlock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A file whose pages are locked in memory until this is dropped.
#[derive(Debug)]
pub struct LockedFile {
    /// None for an empty file, which has no pages.
    mapped: Option<Mapped>,
}

impl LockedFile {
    /// Reads a file into the page cache, and locks it there.
    ///
    /// Errors: those of open(2) and mmap(2); `ENOMEM` or `EPERM` beyond the limit of locked memory
    /// ([`raise_lock_limit`]).
    pub fn new(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        if length == 0 {
            return Ok(Self { mapped: None });
        }
        let mapped = Mapped::new(&file, 0, length, ProtFlags::READ, MapFlags::empty())?;
        // SAFETY: this is the mapping made above; locking changes none of its bytes. Unmapping also unlocks.
        unsafe { mlock(mapped.address().as_ptr(), length)? };
        Ok(Self { mapped: Some(mapped) })
    }

    /// The length of the file in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.mapped.as_ref().map_or(0, Mapped::length)
    }
}

/// Raises this process's limit of locked memory as far as the kernel allows: without bound for root, else to the hard
/// limit (getrlimit(2), `RLIMIT_MEMLOCK`).
pub fn raise_lock_limit() {
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
        let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that this process has locked, by its own /proc/self/status.
    fn locked_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn a_file_is_locked_until_it_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 20_000]).unwrap();
        let before = locked_kib();
        let locked = LockedFile::new(&path).unwrap();
        assert_eq!((locked.length(), locked_kib()), (20_000, before + 20));
        drop(locked);
        assert_eq!(locked_kib(), before);
        std::fs::write(&path, "").unwrap();
        assert_eq!(LockedFile::new(&path).unwrap().length(), 0, "an empty file has nothing to lock");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(LockedFile::new(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
