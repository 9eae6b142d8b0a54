//! The thread of `flash backend --names`, which looks up names at the start so that requests wait for contents
//! only. Called by `backend` before its loop begins.
//!
//! It takes no helper and reads one directory at a time: requests have all helpers, and a file system that
//! hangs keeps only this thread.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use flash_prompt::OwnedFd;
use flash_waiting::file::open_folder;
use flash_waiting::names::look_up_beneath;
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_waiting::sandbox::paths::Rights;

use crate::config::Settings;
use crate::sandbox::{self, Role};

const NAMES_MAX: u64 = 1_000_000;
const STACK_BYTES: usize = 256 << 10;

/// Starts the thread. Returns the number of names looked up so far.
pub(crate) fn start(settings: &Settings, directories: Vec<PathBuf>) -> io::Result<Arc<AtomicU64>> {
    let count = Arc::new(AtomicU64::new(0));
    if directories.is_empty() {
        return Ok(count);
    }
    let (settings, counted) = (settings.clone(), Arc::clone(&count));
    let thread = thread::Builder::new().name("names".into()).stack_size(STACK_BYTES);
    let spawned = thread.spawn(move || {
        let folders: Vec<OwnedFd> =
            directories.iter().filter_map(|directory| open_folder(directory).ok()).collect();
        let rights: Vec<_> = folders.iter().map(|folder| (folder, Rights::ReadAndList)).collect();
        // Requests go first, also on the processors.
        let _ = process::give_way();
        // Without its sandbox the thread ends: the backend works without these names.
        if sandbox::close(Role::Worker, &settings, &rights, CallList::HelperThread).is_err() {
            return;
        }
        for folder in &folders {
            let left = NAMES_MAX - counted.load(Ordering::Relaxed).min(NAMES_MAX);
            look_up_beneath(folder, left, || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    spawned.map_err(|e| io::Error::new(e.kind(), format!("cannot start a thread: {e}")))?;
    Ok(count)
}
