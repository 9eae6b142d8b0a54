//! Hot files, locked in memory while servers are measured.
//!
//! `interfere` and `experiment` lock them before a server starts: the kernel charges a page to the control group that
//! touched it first, so a server's memory bound does not evict them.

use std::path::Path;

use flash_waiting::locked::{LockedFile, raise_lock_limit};

use flash_kit::{Error, Result};
use flash_load::files::layout::File;

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
    /// Reads these files of the set at `root`, by their path ids, and locks them in memory.
    ///
    /// Errors: run, for a file that is not there, or where this process is not allowed to lock this much.
    pub(crate) fn of(root: &Path, path_ids: &[u32]) -> Result<Self> {
        raise_lock_limit();
        let mut held = Vec::new();
        for path_id in path_ids {
            let path = root.join(File::from_path_id(*path_id).path());
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
