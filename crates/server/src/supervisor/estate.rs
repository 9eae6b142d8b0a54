//! The descriptors that a program of the supervisor takes over from the last one (`handover.rs`), by their numbers in its document. Each
//! part of the supervisor takes its own.

use std::collections::BTreeMap;
use std::io;

use flash_prompt::OwnedFd;

/// The version of the document in `handover.rs`, of the messages among processes: with the supervisor (`flash_worker::control`) and with the
/// keeper (`flash_worker::store_protocol`), and of the files in `shared_files.rs`. It changes when an older process would
/// misunderstand them. Programs with different versions do not follow each other.
pub(super) const VERSION: u32 = 2;

/// The descriptors that the last program has left and that nothing has taken yet.
#[derive(Debug)]
pub(super) struct Estate(BTreeMap<usize, OwnedFd>);

impl Estate {
    /// With numbers from 0.
    pub(super) fn new(descriptors: Vec<OwnedFd>) -> Self {
        Self(descriptors.into_iter().enumerate().collect())
    }

    /// Takes out one.
    ///
    /// Errors: it was taken, or there is none of this number.
    pub(super) fn take(&mut self, number: usize) -> io::Result<OwnedFd> {
        self.0.remove(&number).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
