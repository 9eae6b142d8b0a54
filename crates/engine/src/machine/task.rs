//! Jobs for helpers: the tasks that the engine sets, and their results.

use std::sync::Arc;

use super::{FileStat, Opened};
use crate::rules::SiteId;
use crate::slab::Key;

/// The id of a job, shared by the engine, the worker and its helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub(crate) Key);

impl JobId {
    /// The id as one number.
    pub fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    /// The id from a number that [`JobId::to_u64`] returned.
    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }
}

/// The identity of an open file. Two files with the same identity are the same file, seen at the same place
/// of a mount namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The device of its file system.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
    /// The number of the mount through which it was opened; mounts of other namespaces have other numbers.
    pub mount: u64,
}

/// A part of a file's content, at most [`RANGE_BYTES_MAX`](crate::backend::protocol::RANGE_BYTES_MAX) long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Bytes from an offset on; none if the length is 0.
    From {
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes.
        length_bytes: u64,
    },
    /// The last bytes of the file.
    Last {
        /// How many bytes.
        length_bytes: u64,
    },
}

/// A task for a helper.
#[derive(Debug)]
pub enum Task<F> {
    /// Look up a path (see [`find`](crate::find)) and bring the first block of its file into the store or,
    /// without a store, into the page cache.
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
        /// As JSON instead of HTML.
        json: bool,
    },
    /// Bring a block of a file into the store ([`Blocks`](crate::Blocks)). If the store has no room, nothing
    /// happens.
    Fill {
        /// The file.
        file: Arc<F>,
        /// The number of the block.
        block: u64,
    },
    /// Look up a path and bring a block of its file into the store. No request waits for it, so failures are
    /// ignored.
    Warm {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning with a slash.
        path: Box<[u8]>,
        /// The number of the block.
        block: u64,
    },
    /// Bring a part of a file into the page cache.
    Load {
        /// The file.
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes, at most [`RANGE_BYTES_MAX`](crate::backend::protocol::RANGE_BYTES_MAX).
        length_bytes: u64,
    },
    /// Read a part of a file and hand the bytes over.
    Read {
        /// The file.
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        length_bytes: u64,
    },
    /// Write bytes into a file.
    Write {
        /// The file.
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        bytes: Arc<[u8]>,
    },
    /// Give room of a file that only this worker uses back to the file system.
    GiveBack {
        /// The file.
        file: Arc<F>,
        /// Offset of the first byte that nobody needs.
        offset: u64,
        /// How many bytes, which become a hole; None if the file ends at the offset from now on.
        length_bytes: Option<u64>,
    },
    /// Close a deleted file. Closing can block while the file system frees its blocks.
    Close {
        /// The number under which the machine has set the file aside.
        number: u64,
    },
    /// Open a path as a server would, and bring its attributes and the entries of a directory into memory.
    Touch {
        /// The directory that the path begins at and cannot leave.
        root: Arc<F>,
        /// The path, beginning with a slash.
        path: Box<[u8]>,
    },
    /// Find a file beneath the warm roots, or the index of a directory, and load a part of its content.
    WarmFile {
        /// The absolute path.
        path: Box<[u8]>,
        /// The part.
        part: Part,
    },
}

/// Clones share the file, so `F` need not be `Clone`.
impl<F> Clone for Task<F> {
    fn clone(&self) -> Self {
        match self {
            Task::Find { site, path } => Task::Find { site: *site, path: path.clone() },
            Task::List { site, path, json } => Task::List { site: *site, path: path.clone(), json: *json },
            Task::Fill { file, block } => Task::Fill { file: Arc::clone(file), block: *block },
            Task::Warm { site, path, block } => Task::Warm { site: *site, path: path.clone(), block: *block },
            Task::Load { file, offset, length_bytes } => {
                Task::Load { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Read { file, offset, length_bytes } => {
                Task::Read { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Write { file, offset, bytes } => {
                Task::Write { file: Arc::clone(file), offset: *offset, bytes: Arc::clone(bytes) }
            }
            Task::GiveBack { file, offset, length_bytes } => {
                Task::GiveBack { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Close { number } => Task::Close { number: *number },
            Task::Touch { root, path } => Task::Touch { root: Arc::clone(root), path: path.clone() },
            Task::WarmFile { path, part } => Task::WarmFile { path: path.clone(), part: *part },
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
    /// The result of [`Task::Fill`], [`Task::Warm`], [`Task::Load`], [`Task::Touch`] and [`Task::WarmFile`].
    Loaded,
    /// The result of [`Task::Read`]: the bytes (fewer than requested if the file ended) and the file's state
    /// after the read.
    Bytes(Vec<u8>, FileStat),
    /// The result of [`Task::Write`] and [`Task::GiveBack`]: all of it was done.
    Written,
    /// The result of [`Task::GiveBack`] if the file system cannot do it.
    Unsupported,
    /// The result of [`Task::Close`].
    Closed,
    /// The file system failed, with this error number.
    Failed(i32),
    /// Descriptors or memory ran out.
    Exhausted,
    /// The helper died or was given up, or it could not reach the file system.
    Lost,
}

/// The result of looking up a path.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each value is made once and consumed at once")]
pub enum Finding<F> {
    /// A regular file.
    File {
        /// The file.
        plain: Opened<F>,
        /// Its precompressed siblings, in the order of [`Coding::ALL`](flash_http::negotiate::Coding::ALL).
        coded: [Option<Opened<F>>; 3],
        /// The path of the file. For a directory, this is the path of its index.
        path: Vec<u8>,
    },
    /// A regular file that a route runs by its extension, and whose content is never sent.
    Script,
    /// A directory whose path lacks the final slash.
    Redirect,
    /// A directory without an index, to be listed.
    Listing,
    /// No file, or a file that Flash does not serve.
    Missing,
    /// A file that the server lacks permission to read, or a special file.
    Denied,
}
