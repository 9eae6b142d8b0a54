//! A file that a worker has open. The worker must not be the last to close it once it is deleted: that frees its blocks,
//! for which the kernel waits (1.4 s for 1 GB, measured). So a file that nobody needs any more goes back to the worker,
//! which asks whether it is deleted; a deleted one is set aside, and closing it is a job like others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use flash_engine::{Finding, Outcome, SiteId};
use flash_http::negotiate::Coding;
use flash_prompt::file;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use super::calls::{Call, timed};

/// Deleted files set aside at once, at most. With more, no helper comes to close them, and running out of descriptors
/// would be worse than waiting.
const ASIDE_MAX: usize = 1024;
/// Files set aside whose jobs are asked for anew at once.
const ASKED_AGAIN_MAX: usize = 64;

/// The root and the path under which a file was found. A listing has none.
type Name = Option<(SiteId, Box<[u8]>)>;

/// An open file of a site, or a listing.
#[derive(Debug)]
pub struct SiteFile {
    /// None only while it is being dropped.
    file: Option<OwnedFd>,
    name: Name,
    /// Where it goes when it is dropped; before it belongs to a worker, it is closed.
    owner: Option<Returned>,
}

/// Files on their way back to their worker. Threads that share the worker share this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returned(Arc<Mutex<Vec<(OwnedFd, Name)>>>);

impl Returned {
    fn push(&self, file: OwnedFd, name: Name) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((file, name));
    }

    fn take(&self) -> Vec<(OwnedFd, Name)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl SiteFile {
    /// The site and the path of it, if it was found by one.
    pub fn name(&self) -> Option<(SiteId, &[u8])> {
        borrowed(&self.name)
    }

    /// It was found there, for the worker to which it goes back.
    pub(super) fn found_at(&mut self, site: SiteId, path: &[u8], owner: &Returned) {
        self.name = Some((site, path.into()));
        self.owner = Some(owner.clone());
    }
}

fn borrowed(name: &Name) -> Option<(SiteId, &[u8])> {
    name.as_ref().map(|(site, path)| (*site, &**path))
}

/// Has the files that a job has found know where it found them, and where they go back to.
pub(super) fn adopt(site: SiteId, outcome: &mut Outcome<SiteFile>, owner: &Returned) {
    match outcome {
        Outcome::Found(Finding::File { plain, coded, path }) => {
            if let Some(file) = &mut plain.file {
                file.found_at(site, path, owner);
            }
            for (opened, coding) in coded.iter_mut().zip(Coding::ALL) {
                if let Some(file) = opened.as_mut().and_then(|opened| opened.file.as_mut()) {
                    file.found_at(site, &[path.as_slice(), coding.extension().as_bytes()].concat(), owner);
                }
            }
        }
        Outcome::Listed(file, _) => file.owner = Some(owner.clone()),
        _ => {}
    }
}

impl From<OwnedFd> for SiteFile {
    fn from(file: OwnedFd) -> Self {
        Self { file: Some(file), name: None, owner: None }
    }
}

impl AsFd for SiteFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("a file is there until it is dropped").as_fd()
    }
}

impl Drop for SiteFile {
    fn drop(&mut self) {
        if let (Some(file), Some(owner)) = (self.file.take(), self.owner.take()) {
            owner.push(file, self.name.take());
        }
    }
}

/// The files of a worker that nobody needs any more.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    returned: Returned,
    /// Deleted files, by the numbers of the jobs that close them.
    aside: BTreeMap<u64, (OwnedFd, Name)>,
    numbers: u64,
    /// The number that was asked about last.
    asked: u64,
}

impl Closing {
    /// Where files go back to.
    pub(super) fn returned(&self) -> &Returned {
        &self.returned
    }

    /// Closes the files that were given back, and sets deleted ones aside: as many as a turn has opened or let go. Gives the
    /// site and the number of each that was set aside.
    pub(super) fn see_to_returned(&mut self) -> Vec<(SiteId, u64)> {
        let mut set_aside = Vec::new();
        for (file, name) in self.returned.take() {
            let has_room = self.aside.len() < ASIDE_MAX;
            let is_aside = timed(Call::CloseFile, || borrowed(&name), || close(file, has_room));
            if let Some(file) = is_aside {
                self.numbers += 1;
                set_aside.push((site_of(&name), self.numbers));
                self.aside.insert(self.numbers, (file, name));
            }
        }
        set_aside
    }

    /// The site and the number of files that are set aside: a bounded number of them, others each time.
    pub(super) fn aside(&mut self) -> Vec<(SiteId, u64)> {
        let (behind, before) = (self.aside.range(self.asked + 1..), self.aside.range(..=self.asked));
        let all = behind.chain(before).map(|(number, (_, name))| (site_of(name), *number));
        let some: Vec<(SiteId, u64)> = all.take(ASKED_AGAIN_MAX).collect();
        self.asked = some.last().map_or(0, |(_, number)| *number);
        some
    }

    /// A file that was set aside, for a helper.
    pub(super) fn get(&self, number: u64) -> Option<BorrowedFd<'_>> {
        self.aside.get(&number).map(|(file, _)| file.as_fd())
    }

    /// Takes a file that was set aside: somebody else closes it.
    pub(super) fn take(&mut self, number: u64) -> Option<OwnedFd> {
        self.aside.remove(&number).map(|(file, _)| file)
    }

    /// Whether there is nothing to be closed.
    pub(super) fn is_empty(&self) -> bool {
        self.aside.is_empty() && self.returned.is_empty()
    }
}

/// The site on whose disk a file is; listings, which are on none, count for the first.
fn site_of(name: &Name) -> SiteId {
    name.as_ref().map_or(SiteId(0), |(site, _)| *site)
}

/// Closes a file, unless it has to be set aside.
fn close(file: OwnedFd, has_room: bool) -> Option<OwnedFd> {
    // Nothing may be asked of a place, and closing it frees nothing. A file that is deleted just now, between the question
    // and the close, is waited for.
    let is_deleted =
        file::is_place(&file).is_ok_and(|place| !place) && file::is_deleted(&file).unwrap_or(false);
    (is_deleted && has_room).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_file_is_set_aside_and_another_is_closed() {
        let path = std::env::temp_dir().join(format!("flash-site-file-{}", std::process::id()));
        std::fs::write(&path, "x").expect("a file");
        let mut closing = Closing::default();
        let open = |closing: &Closing| {
            let mut file = SiteFile::from(OwnedFd::from(std::fs::File::open(&path).expect("the file")));
            file.found_at(SiteId(3), b"x", closing.returned());
            file
        };
        let (kept, deleted) = (open(&closing), open(&closing));
        drop(kept);
        assert!(!closing.is_empty(), "it goes back to its worker");
        let _ = closing.see_to_returned();
        assert!(closing.is_empty());
        std::fs::remove_file(&path).expect("removed");
        drop(deleted);
        let _ = closing.see_to_returned();
        let aside = closing.aside();
        assert_eq!(aside.iter().map(|(site, _)| *site).collect::<Vec<_>>(), [SiteId(3)]);
        assert!(closing.get(aside[0].1).is_some(), "it stays until somebody takes it");
        assert!(closing.take(aside[0].1).is_some() && closing.is_empty());
    }
}
