//! A file that a worker has open. The worker must not make the last close of a deleted file, because the
//! kernel then frees the file's blocks and blocks the caller (1.4 s for 1 GB, measured). So an unused file
//! returns to the worker, which checks whether it was deleted. A deleted file is set aside, and a job closes
//! it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use flash_engine::{Finding, Outcome, SiteId};
use flash_http::negotiate::Coding;
use flash_prompt::file;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use super::calls::{Call, timed};

/// Maximum number of deleted files set aside at once. If there are more, no helper is closing them, and
/// blocking is better than running out of descriptors.
const ASIDE_MAX: usize = 1024;
/// Maximum number of files set aside whose jobs are requested again at once.
const ASKED_AGAIN_MAX: usize = 64;

/// The site and path under which a file was found; None for a listing.
type Name = Option<(SiteId, Box<[u8]>)>;

/// An open file of a site, or a listing.
#[derive(Debug)]
pub struct SiteFile {
    /// None only while it is dropped.
    file: Option<OwnedFd>,
    name: Name,
    /// Where the file returns to when it is dropped. None before it belongs to a worker; then it is simply
    /// closed.
    owner: Option<Returned>,
}

/// Files that return to their worker. Threads that share a worker share this.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returned(Arc<Mutex<Vec<(OwnedFd, Name)>>>);

impl Returned {
    fn push(&self, file: OwnedFd, name: Name) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((file, name));
    }

    fn take(&self) -> Vec<(OwnedFd, Name)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The returned files with their sites, for a caller that has all of them closed elsewhere.
    pub(super) fn take_shares(&self) -> Vec<(OwnedFd, SiteId)> {
        self.take().into_iter().map(|(file, name)| (file, site_of(&name))).collect()
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl SiteFile {
    /// The site and path under which it was found, if any.
    pub fn name(&self) -> Option<(SiteId, &[u8])> {
        borrowed(&self.name)
    }

    /// Records where it was found, and the worker that it returns to.
    pub(super) fn found_at(&mut self, site: SiteId, path: &[u8], owner: &Returned) {
        self.name = Some((site, path.into()));
        self.owner = Some(owner.clone());
    }
}

fn borrowed(name: &Name) -> Option<(SiteId, &[u8])> {
    name.as_ref().map(|(site, path)| (*site, &**path))
}

/// Records in the files of a job's outcome where they were found, and the worker that they return to.
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
        Outcome::Listed(file, ..) => file.owner = Some(owner.clone()),
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
        self.file.as_ref().expect("the file is present until the drop").as_fd()
    }
}

impl Drop for SiteFile {
    fn drop(&mut self) {
        if let (Some(file), Some(owner)) = (self.file.take(), self.owner.take()) {
            owner.push(file, self.name.take());
        }
    }
}

/// The files that a worker no longer uses.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    returned: Returned,
    /// Deleted files, by the numbers of the jobs that close them.
    aside: BTreeMap<u64, (OwnedFd, Name)>,
    numbers: u64,
    /// The last number that was requested again.
    asked: u64,
}

impl Closing {
    /// The queue to which unused files return.
    pub(super) fn returned(&self) -> &Returned {
        &self.returned
    }

    /// Closes the returned files and sets deleted ones aside. Returns the site and number of each file set
    /// aside. The number of files is bounded by those that a turn opens or drops.
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

    /// The site and number of some files that are set aside: a bounded number, different ones each time.
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

    /// Removes a file that was set aside, because another process or thread closes it.
    pub(super) fn take(&mut self, number: u64) -> Option<OwnedFd> {
        self.aside.remove(&number).map(|(file, _)| file)
    }

    /// Whether no file waits to be closed.
    pub(super) fn is_empty(&self) -> bool {
        self.aside.is_empty() && self.returned.is_empty()
    }
}

/// The site whose disk has the file. A listing has no site and counts for the first one.
fn site_of(name: &Name) -> SiteId {
    name.as_ref().map_or(SiteId(0), |(site, _)| *site)
}

/// Closes a file. Returns it if it must be set aside instead.
fn close(file: OwnedFd, has_room: bool) -> Option<OwnedFd> {
    // An `O_PATH` descriptor cannot be checked without blocking, and closing it frees nothing. A file that is
    // deleted between the check and the close does block; this is rare enough to accept.
    let is_deleted =
        file::is_path_only(&file).is_ok_and(|place| !place) && file::is_deleted(&file).unwrap_or(false);
    (is_deleted && has_room).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_file_is_set_aside_and_another_is_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "x").expect("a file");
        let mut closing = Closing::default();
        let open = |closing: &Closing| {
            let mut file = SiteFile::from(OwnedFd::from(std::fs::File::open(&path).expect("the file")));
            file.found_at(SiteId(3), b"x", closing.returned());
            file
        };
        let (kept, deleted) = (open(&closing), open(&closing));
        drop(kept);
        assert!(!closing.is_empty(), "a dropped file returns to its worker");
        let _ = closing.see_to_returned();
        assert!(closing.is_empty());
        std::fs::remove_file(&path).expect("removed");
        drop(deleted);
        let _ = closing.see_to_returned();
        let aside = closing.aside();
        assert_eq!(aside.iter().map(|(site, _)| *site).collect::<Vec<_>>(), [SiteId(3)]);
        assert!(closing.get(aside[0].1).is_some(), "a file set aside stays until it is taken");
        assert!(closing.take(aside[0].1).is_some() && closing.is_empty());
    }
}
