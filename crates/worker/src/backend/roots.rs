//! The warm roots as the event loop sees them: whether a file beneath one is in memory, found out without
//! waiting.
//!
//! Called by the [`endpoint`](super::endpoint) before it passes a question to the engine.

use std::io;

use flash_engine::backend::Residency;
use flash_engine::backend::warm::{FileRange, WarmRequest, is_beneath};
use flash_prompt::file::{self, FileKind, Found, Identity, Want};
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use crate::calls::{Call, timed};

/// The file of a directory that servers answer with.
const INDEX: &[u8] = b"index.html";
/// How long a root counts as the same directory without another check, in milliseconds. It can be a link that is switched.
const CHECK_MS: u64 = 100;

/// A warm root.
#[derive(Debug)]
pub struct WarmRoot {
    /// Its absolute path.
    path: Box<[u8]>,
    /// The directory at the start; None if it is not on a local file system, where every call can wait.
    folder: Option<(OwnedFd, Identity)>,
    /// Until when the path leads to it.
    checked_until_ms: u64,
}

impl WarmRoot {
    /// A root at this absolute path. `folder` is its directory if it is on a local file system.
    #[must_use]
    pub fn new(path: Box<[u8]>, folder: Option<OwnedFd>) -> Self {
        let folder = folder.and_then(|folder| file::identity(&folder).ok().map(|found| (folder, found)));
        Self { path, folder, checked_until_ms: 0 }
    }

    /// Its directory, for the sandbox.
    #[must_use]
    pub fn folder(&self) -> Option<&OwnedFd> {
        self.folder.as_ref().map(|(folder, _)| folder)
    }

    /// Whether a resolved path is beneath it, as it is written.
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        is_beneath(path, &self.path)
    }

    /// Whether the file of a question beneath this root is in memory, and a deleted file that must be closed
    /// elsewhere. Never waits.
    pub(super) fn look(&mut self, ask: &WarmRequest, now_ms: u64) -> (Residency, Option<OwnedFd>) {
        let root = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        let Some(path) = ask.path.strip_prefix(root) else { return (Residency::Unknown, None) };
        let path = path.strip_prefix(b"/").unwrap_or(path).to_vec();
        let Some(folder) = self.current(now_ms) else { return (Residency::Unknown, None) };
        match look_up(folder, if path.is_empty() { b"." } else { &path }) {
            Ok(Found { stat, file: None }) if stat.kind == FileKind::Directory => {
                let slash: &[u8] = if path.is_empty() || path.ends_with(b"/") { b"" } else { b"/" };
                let index = [&path, slash, INDEX].concat();
                match look_up(folder, &index) {
                    Ok(Found { stat, file: Some(file) }) => content(file, stat.size_bytes, ask.part),
                    // Without this file, a server can list the directory.
                    _ => (Residency::Unknown, None),
                }
            }
            Ok(Found { file: None, .. }) => (Residency::InMemory, None),
            Ok(Found { stat, file: Some(file) }) => content(file, stat.size_bytes, ask.part),
            // The server finds these without the disk too. `NotFound` is known only of a cached name.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                (Residency::InMemory, None)
            }
            Err(_) => (Residency::Unknown, None),
        }
    }

    /// The directory, if the path still leads to it.
    fn current(&mut self, now_ms: u64) -> Option<BorrowedFd<'_>> {
        let (folder, known) = self.folder.as_ref()?;
        if now_ms >= self.checked_until_ms {
            let found = timed(Call::LookUp, || None, || file::identity_cached(&self.path)).ok()?;
            if (found.device, found.inode) != (known.device, known.inode) {
                return None;
            }
            self.checked_until_ms = now_ms + CHECK_MS;
        }
        Some(folder.as_fd())
    }
}

fn look_up(folder: BorrowedFd<'_>, path: &[u8]) -> io::Result<Found> {
    timed(Call::LookUp, || None, || file::open_cached(folder, path, Want::Content))
}

/// Whether a part of an open file is in memory. Returns the file if it was deleted: its last close can wait.
fn content(file: OwnedFd, size_bytes: u64, part: FileRange) -> (Residency, Option<OwnedFd>) {
    let (offset, length_bytes) = part.within(size_bytes);
    let is_resident = timed(Call::Read, || None, || file::is_part_resident(&file, offset, length_bytes));
    let residency = if is_resident { Residency::InMemory } else { Residency::Unknown };
    let is_deleted = file::is_deleted(&file).unwrap_or(true);
    (residency, is_deleted.then_some(file))
}
