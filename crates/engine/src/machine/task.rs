//! Work for helpers: what the engine asks, and what it is answered.

use std::sync::Arc;

use super::{FileStat, Opened};
use crate::rules::SiteId;
use crate::slab::Key;

/// One job, as the worker and its helpers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub(crate) Key);

impl JobId {
    /// The id as one number.
    pub fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    /// The id of a number that [`JobId::to_u64`] gave.
    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }
}

/// Work for a helper.
#[derive(Debug)]
pub enum Task<F> {
    /// Find what a path leads to (see [`find`](crate::find)) and bring the first block of it into memory.
    Find {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning with a slash.
        path: Box<[u8]>,
    },
    /// List a directory into a file in memory.
    List {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning and ending with a slash.
        path: Box<[u8]>,
        /// As JSON, not HTML.
        json: bool,
    },
    /// Bring a part of a file into memory.
    Load {
        /// The file.
        file: Arc<F>,
        /// The first byte.
        offset: u64,
        /// How many bytes, at most [`LOAD_BYTES`](crate::limits::LOAD_BYTES).
        length_bytes: u64,
    },
    /// Read a part of a file and hand the bytes over.
    Read {
        /// The file.
        file: Arc<F>,
        /// The first byte.
        offset: u64,
        /// How many bytes, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        length_bytes: u64,
    },
    /// Close a deleted file: freeing its blocks waits.
    Close {
        /// The number under which the machine has set the file aside.
        number: u64,
    },
}

/// Clones share the file, so `F` need not be `Clone`.
impl<F> Clone for Task<F> {
    fn clone(&self) -> Self {
        match self {
            Task::Find { site, path } => Task::Find { site: *site, path: path.clone() },
            Task::List { site, path, json } => Task::List { site: *site, path: path.clone(), json: *json },
            Task::Load { file, offset, length_bytes } => {
                Task::Load { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Read { file, offset, length_bytes } => {
                Task::Read { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Close { number } => Task::Close { number: *number },
        }
    }
}

/// The result of a job.
#[derive(Debug)]
pub enum Outcome<F> {
    /// The result of [`Task::Find`].
    Found(Finding<F>),
    /// The result of [`Task::List`]: the listing as a file.
    Listed(F, FileStat),
    /// The result of [`Task::Load`].
    Loaded,
    /// The result of [`Task::Read`]: the bytes, fewer than asked for when the file ended, and the file's state after they
    /// were read.
    Bytes(Vec<u8>, FileStat),
    /// The result of [`Task::Close`].
    Closed,
    /// The file system failed, with this error number.
    Failed(i32),
    /// Descriptors or memory ran out.
    Exhausted,
    /// The helper died or was given up, or could not reach the file system.
    Lost,
}

/// The result of looking a path up.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is made once and taken apart at once")]
pub enum Finding<F> {
    /// A regular file.
    File {
        /// The file.
        plain: Opened<F>,
        /// Its precompressed siblings, in the order of [`Coding::ALL`](flash_http::negotiate::Coding::ALL).
        coded: [Option<Opened<F>>; 3],
        /// The path of the file, which for a directory is that of its index.
        path: Vec<u8>,
    },
    /// A directory named without its slash.
    Redirect,
    /// A directory without index, to be listed.
    Listing,
    /// Nothing, or nothing that is served.
    Missing,
    /// A file that the server lacks the permission to read, or not a file.
    Denied,
}
