//! Hot files, locked in memory while servers are measured.
//!
//! The executor locks them before the first server starts: the kernel charges a page to the control group that touched
//! it first, so a server's memory bound does not evict them.

use std::path::Path;

use flash_waiting::locked::{LockedFile, raise_lock_limit};

use flash_kit::{Error, Result};

/// The files of a set that stay in memory until this is dropped.
#[derive(Debug)]
pub(crate) struct Locked {
    /// How many files.
    pub(crate) files: usize,
    /// Their lengths together.
    pub(crate) bytes: u64,
    /// Dropped, the kernel may evict them again.
    _held: Vec<LockedFile>,
}

impl Locked {
    /// Reads these files below `root` and locks them in memory.
    ///
    /// Errors: run, for a file that is not there, or where this process is not allowed to lock this much.
    pub(crate) fn of(root: &Path, files: impl Iterator<Item = String>) -> Result<Self> {
        raise_lock_limit();
        let mut held = Vec::new();
        for file in files {
            let path = root.join(file);
            held.push(LockedFile::new(&path).map_err(|why| {
                Error::run(format!(
                    "cannot lock {} in memory: {why}; run as root, or raise the limit of locked memory (ulimit -l)",
                    path.display()
                ))
            })?);
        }
        let bytes = held.iter().map(|file| file.length() as u64).sum();
        Ok(Self { files: held.len(), bytes, _held: held })
    }
}
