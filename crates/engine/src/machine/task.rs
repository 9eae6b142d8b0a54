//! Jobs for helpers: the tasks that the engine sets, and their results.

use std::convert::Infallible;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::message::bytes;
use super::{FileStat, ListingForm, Opened};
use crate::secret::Secret;
use crate::slab::{Key, SiteId};

/// The id of a job, shared by the engine, the worker and its helpers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileRange {
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

/// A name under which a request has asked for a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameOfFile {
    /// The site.
    pub site: SiteId,
    /// The decoded path, beginning with a slash.
    #[serde(with = "bytes")]
    pub path: Arc<[u8]>,
}

impl FileRange {
    /// Its offset and its length in a file of this size.
    #[must_use]
    pub fn within(self, size_bytes: u64) -> (u64, u64) {
        let (offset, length_bytes) = match self {
            FileRange::From { offset, length_bytes } => (offset, length_bytes),
            FileRange::Last { length_bytes } => (size_bytes.saturating_sub(length_bytes), length_bytes),
        };
        (offset, length_bytes.min(size_bytes.saturating_sub(offset)))
    }
}

/// A task for a helper. In a message the file is not among the bytes: it becomes a descriptor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F: Default"))]
pub enum Task<F> {
    /// Look up a path (see [`find`](crate::find)) and bring the first block of its file into the store or,
    /// without a store, into the page cache.
    Find {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning with a slash.
        #[serde(with = "bytes")]
        path: Arc<[u8]>,
    },
    /// List a directory into a file in memory.
    List {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning and ending with a slash.
        #[serde(with = "bytes")]
        path: Arc<[u8]>,
        /// The form of the listing.
        form: ListingForm,
        /// Whether the listing shows the text of the directory's README.
        with_readme: bool,
    },
    /// Bring a block of a file into the store ([`Blocks`](crate::Blocks)). If the store has no room, nothing
    /// happens.
    Fill {
        /// The file.
        #[serde(skip)]
        file: Arc<F>,
        /// The number of the block.
        block: u64,
        /// A name of the file. The helper tells all workers what it leads to.
        name: Option<NameOfFile>,
    },
    /// Look up a path and bring a block of its file into the store. No request waits for it, so failures are
    /// ignored.
    Warm {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning with a slash.
        #[serde(with = "bytes")]
        path: Arc<[u8]>,
        /// The number of the block.
        block: u64,
    },
    /// Bring a part of a file into the page cache.
    Load {
        /// The file.
        #[serde(skip)]
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes, at most [`RANGE_BYTES_MAX`](crate::backend::protocol::RANGE_BYTES_MAX).
        length_bytes: u64,
    },
    /// Read a part of a file and hand the bytes over.
    Read {
        /// The file.
        #[serde(skip)]
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// How many bytes, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        length_bytes: u64,
    },
    /// Write bytes into a file.
    Write {
        /// The file.
        #[serde(skip)]
        file: Arc<F>,
        /// Offset of the first byte.
        offset: u64,
        /// The bytes, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        #[serde(with = "bytes")]
        bytes: Arc<[u8]>,
    },
    /// Give room of a file that only this worker uses back to the file system.
    GiveBack {
        /// The file.
        #[serde(skip)]
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
        #[serde(skip)]
        root: Arc<F>,
        /// The path, beginning with a slash.
        #[serde(with = "bytes")]
        path: Arc<[u8]>,
    },
    /// Find a file beneath the warm roots, or the index of a directory, and load a part of its content.
    WarmFile {
        /// The absolute path.
        #[serde(with = "bytes")]
        path: Arc<[u8]>,
        /// The part.
        part: FileRange,
    },
    /// Compare a password with a stored one.
    Verify {
        /// The password as it is stored.
        stored: Secret,
        /// The password.
        given: Secret,
    },
    /// Compress a piece of an answer.
    Deflate {
        /// The piece, at most [`DEFLATE_BYTES_MAX`](crate::limits::DEFLATE_BYTES_MAX) bytes.
        #[serde(with = "bytes")]
        plain: Arc<[u8]>,
    },
}

impl<F> Task<F> {
    /// The file that goes with the task.
    pub fn file(&self) -> Option<&F> {
        match self {
            Task::Fill { file, .. }
            | Task::Load { file, .. }
            | Task::Read { file, .. }
            | Task::Write { file, .. }
            | Task::GiveBack { file, .. }
            | Task::Touch { root: file, .. } => Some(file),
            Task::Find { .. }
            | Task::List { .. }
            | Task::Warm { .. }
            | Task::Close { .. }
            | Task::WarmFile { .. }
            | Task::Verify { .. }
            | Task::Deflate { .. } => None,
        }
    }

    /// The same task with another file in place of its own.
    ///
    /// # Errors
    ///
    /// That of `file`, if the task has one.
    pub fn with_file<'t, G, E>(
        &'t self,
        file: impl FnOnce(&'t Arc<F>) -> Result<Arc<G>, E>,
    ) -> Result<Task<G>, E> {
        Ok(match self {
            &Task::Find { site, ref path } => Task::Find { site, path: Arc::clone(path) },
            &Task::List { site, ref path, form, with_readme } => {
                Task::List { site, path: Arc::clone(path), form, with_readme }
            }
            &Task::Fill { file: ref own, block, ref name } => {
                Task::Fill { file: file(own)?, block, name: name.clone() }
            }
            &Task::Warm { site, ref path, block } => Task::Warm { site, path: Arc::clone(path), block },
            &Task::Load { file: ref own, offset, length_bytes } => {
                Task::Load { file: file(own)?, offset, length_bytes }
            }
            &Task::Read { file: ref own, offset, length_bytes } => {
                Task::Read { file: file(own)?, offset, length_bytes }
            }
            &Task::Write { file: ref own, offset, ref bytes } => {
                Task::Write { file: file(own)?, offset, bytes: Arc::clone(bytes) }
            }
            &Task::GiveBack { file: ref own, offset, length_bytes } => {
                Task::GiveBack { file: file(own)?, offset, length_bytes }
            }
            &Task::Close { number } => Task::Close { number },
            Task::Touch { root, path } => Task::Touch { root: file(root)?, path: Arc::clone(path) },
            &Task::WarmFile { ref path, part } => Task::WarmFile { path: Arc::clone(path), part },
            Task::Verify { stored, given } => Task::Verify { stored: stored.clone(), given: given.clone() },
            Task::Deflate { plain } => Task::Deflate { plain: Arc::clone(plain) },
        })
    }
}

/// Clones share file and path, so `F` need not be `Clone`.
impl<F> Clone for Task<F> {
    fn clone(&self) -> Self {
        let Ok(task) = self.with_file(|file| Ok::<_, Infallible>(Arc::clone(file)));
        task
    }
}

/// The result of a job. In a message the files are not among the bytes: they become descriptors.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F: Default"))]
pub enum Outcome<F> {
    /// The result of [`Task::Find`].
    Found(Finding<F>),
    /// The result of [`Task::List`]: the listing as a file, and when its directory was read at the earliest, in
    /// milliseconds of the monotonic clock.
    Listed(#[serde(skip)] F, FileStat, u64),
    /// The result of [`Task::Fill`], [`Task::Warm`], [`Task::Load`], [`Task::Touch`] and [`Task::WarmFile`].
    Loaded,
    /// The result of [`Task::Read`]: the bytes (fewer than requested if the file ended) and the file's state
    /// after the read.
    Bytes(#[serde(with = "bytes")] Vec<u8>, FileStat),
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
    /// The result of [`Task::Verify`]: whether the password is right.
    Verified(bool),
    /// The result of [`Task::Deflate`]: blocks of deflate that refer to nothing before them and end at a byte, none of them the last
    /// (RFC 1951).
    Deflated(#[serde(with = "bytes")] Vec<u8>),
}

/// The result of looking up a path.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F: Default"))]
#[expect(clippy::large_enum_variant, reason = "each value is made once and consumed at once")]
pub enum Finding<F> {
    /// A regular file.
    File {
        /// The file.
        plain: Opened<F>,
        /// Its precompressed siblings, in the order of [`Coding::ALL`](flash_http::negotiate::Coding::ALL).
        coded: [Option<Opened<F>>; 3],
        /// The path of the file. For a directory, this is the path of its index.
        #[serde(with = "bytes")]
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

impl<F> Outcome<F> {
    /// The files that go with the result, in their order.
    pub fn files(&self) -> impl Iterator<Item = &F> {
        let (first, coded) = match self {
            Outcome::Found(Finding::File { plain, coded, .. }) => (plain.file.as_ref(), coded.as_slice()),
            Outcome::Listed(file, ..) => (Some(file), [].as_slice()),
            _ => (None, [].as_slice()),
        };
        first.into_iter().chain(coded.iter().flatten().filter_map(|opened| opened.file.as_ref()))
    }

    /// The same result with other files in place of its own, in the order of [`Outcome::files`]. None if `file` has
    /// too few.
    pub fn with_files<G>(self, mut file: impl FnMut(F) -> Option<G>) -> Option<Outcome<G>> {
        Some(match self {
            Outcome::Found(finding) => Outcome::Found(finding.with_files(&mut file)?),
            Outcome::Listed(own, stat, read_ms) => Outcome::Listed(file(own)?, stat, read_ms),
            Outcome::Loaded => Outcome::Loaded,
            Outcome::Bytes(bytes, stat) => Outcome::Bytes(bytes, stat),
            Outcome::Written => Outcome::Written,
            Outcome::Unsupported => Outcome::Unsupported,
            Outcome::Closed => Outcome::Closed,
            Outcome::Verified(is_right) => Outcome::Verified(is_right),
            Outcome::Deflated(bytes) => Outcome::Deflated(bytes),
            Outcome::Failed(number) => Outcome::Failed(number),
            Outcome::Exhausted => Outcome::Exhausted,
            Outcome::Lost => Outcome::Lost,
        })
    }
}

impl<F> Finding<F> {
    fn with_files<G>(self, file: &mut impl FnMut(F) -> Option<G>) -> Option<Finding<G>> {
        Some(match self {
            Finding::File { plain, coded, path } => {
                let plain = plain.with_file(file)?;
                let mut others = [None, None, None];
                for (other, own) in others.iter_mut().zip(coded) {
                    *other = match own {
                        Some(own) => Some(own.with_file(file)?),
                        None => None,
                    };
                }
                Finding::File { plain, coded: others, path }
            }
            Finding::Script => Finding::Script,
            Finding::Redirect => Finding::Redirect,
            Finding::Listing => Finding::Listing,
            Finding::Missing => Finding::Missing,
            Finding::Denied => Finding::Denied,
        })
    }
}
