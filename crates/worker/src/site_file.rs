//! A file that a worker has open. It must not be the one to close it last once it is deleted: that
//! frees its blocks, for which the kernel waits (1.4 s for 1 GB, measured). So a deleted file is put
//! aside, and a helper closes it.

use std::cell::RefCell;

use flash_engine::{Finding, Outcome, SiteId};
use flash_http::negotiate::Coding;
use flash_prompt::file;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};

use super::calls::{Call, timed};

/// Files put aside at once, at most. With more, no helper can be had, and running out of descriptors
/// would be worse than waiting.
const ASIDE_MAX: usize = 1024;

thread_local! {
    static ASIDE: RefCell<Vec<(OwnedFd, Name)>> = const { RefCell::new(Vec::new()) };
}

/// Under which root and by which path a file was found. None of a listing.
type Name = Option<(SiteId, Box<[u8]>)>;

/// An open file of a site, or a listing.
#[derive(Debug)]
pub struct SiteFile {
    /// None only while it is being dropped.
    file: Option<OwnedFd>,
    name: Name,
}

impl SiteFile {
    /// The site and the path of it, if it was found by one.
    pub fn name(&self) -> Option<(SiteId, &[u8])> {
        borrowed(&self.name)
    }

    /// It was found there.
    pub(super) fn found_at(&mut self, site: SiteId, path: &[u8]) {
        self.name = Some((site, path.into()));
    }
}

fn borrowed(name: &Name) -> Option<(SiteId, &[u8])> {
    name.as_ref().map(|(site, path)| (*site, &**path))
}

/// Has the files that a job has found know where it found them.
pub(super) fn name_found(site: SiteId, outcome: &mut Outcome<SiteFile>) {
    let Outcome::Found(Finding::File { plain, coded, path }) = outcome else { return };
    if let Some(file) = &mut plain.file {
        file.found_at(site, path);
    }
    for (opened, coding) in coded.iter_mut().zip(Coding::ALL) {
        if let Some(file) = opened.as_mut().and_then(|opened| opened.file.as_mut()) {
            file.found_at(site, &[path.as_slice(), coding.extension().as_bytes()].concat());
        }
    }
}

impl From<OwnedFd> for SiteFile {
    fn from(file: OwnedFd) -> Self {
        Self { file: Some(file), name: None }
    }
}

impl AsFd for SiteFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().expect("a file is there until it is dropped").as_fd()
    }
}

impl Drop for SiteFile {
    fn drop(&mut self) {
        let (file, name) = (self.file.take(), self.name.take());
        if let Some(file) = file {
            let is_aside = timed(Call::CloseFile, || borrowed(&name), || close(file));
            if let Some(file) = is_aside {
                ASIDE.with_borrow_mut(|aside| aside.push((file, name)));
            }
        }
    }
}

/// Closes a file, unless it is to be put aside.
fn close(file: OwnedFd) -> Option<OwnedFd> {
    // Of a place, nothing may be asked, and closing it frees nothing. A file that is deleted just
    // now, between the question and the close, is waited for.
    let is_deleted =
        file::is_place(&file).is_ok_and(|place| !place) && file::is_deleted(&file).unwrap_or(false);
    (is_deleted && ASIDE.with_borrow(Vec::len) < ASIDE_MAX).then_some(file)
}

/// Has `close` take files that were put aside, until it gives one back.
pub(super) fn close_aside(mut close: impl FnMut(OwnedFd) -> Result<(), OwnedFd>) {
    ASIDE.with_borrow_mut(|aside| {
        while let Some((file, name)) = aside.pop() {
            if let Err(file) = close(file) {
                return aside.push((file, name));
            }
        }
    });
}

/// Closes them, which waits: for who has no helpers.
pub fn close_aside_here() {
    while let Some((file, name)) = ASIDE.with_borrow_mut(Vec::pop) {
        timed(Call::CloseFile, || borrowed(&name), || drop(file));
    }
}

/// Whether there are files to be closed by a helper.
pub(super) fn any_aside() -> bool {
    ASIDE.with_borrow(|aside| !aside.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aside() -> usize {
        ASIDE.with_borrow(Vec::len)
    }

    #[test]
    fn what_is_deleted_is_put_aside_and_what_is_not_is_closed() {
        let path = std::env::temp_dir().join(format!("flash-site-file-{}", std::process::id()));
        std::fs::write(&path, "x").expect("a file");
        let open = || SiteFile::from(OwnedFd::from(std::fs::File::open(&path).expect("the file")));
        let (kept, deleted) = (open(), open());
        drop(kept);
        assert_eq!(aside(), 0);
        std::fs::remove_file(&path).expect("removed");
        drop(deleted);
        assert_eq!(aside(), 1);
        close_aside(Err);
        assert!(any_aside(), "it stays until somebody takes it");
        close_aside(|_| Ok(()));
        assert!(!any_aside());
    }
}
