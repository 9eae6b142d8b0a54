//! Files as the machine describes them to the engine.

use serde::{Deserialize, Serialize};

use super::message::presence;
use crate::limits::{RACY_COARSE_NS, RACY_NS};

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A device, socket or FIFO.
    Special,
}

/// The state of a file. Equal states mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// The kind of file.
    pub kind: FileKind,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// Time of the last change of content or metadata, in nanoseconds since 1970.
    pub changed_ns: i128,
}

impl FileStat {
    /// Whether the file changed so shortly before `wall_ns` that another change could leave its times unchanged. Times in
    /// whole seconds come from a file system that keeps no finer ones (vfat, ext2, ext3, ext4 with small inodes).
    pub fn is_racy(&self, wall_ns: i128) -> bool {
        const SECOND_NS: i128 = 1_000_000_000;
        let is_coarse = self.modified_ns % SECOND_NS == 0 && self.changed_ns % SECOND_NS == 0;
        self.changed_within(if is_coarse { RACY_COARSE_NS } else { RACY_NS }, wall_ns)
    }

    /// Whether the file changed less than this before or after `wall_ns`. Another host's clock can be ahead.
    pub fn changed_within(&self, window_ns: i128, wall_ns: i128) -> bool {
        (wall_ns - self.changed_ns).abs() < window_ns
    }

    /// Whether the content is the same, as seen through an open descriptor. A rename or a new mode changes
    /// `changed_ns` but not the bytes being sent.
    pub fn same_content(&self, other: &FileStat) -> bool {
        self.size_bytes == other.size_bytes && self.modified_ns == other.modified_ns
    }

    /// Whether the bytes of `before` can still be the first bytes of this state: the file is unchanged or has
    /// grown, as a log does. A file rewritten in place that grows looks the same as one that only grows.
    pub fn may_continue(&self, before: &FileStat) -> bool {
        self.size_bytes > before.size_bytes || self.same_content(before)
    }
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only get the state of the file.
    Stat,
    /// Also open a regular file.
    Content,
}

/// A path that was found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound(serialize = "", deserialize = "F: Default"))]
pub struct Opened<F> {
    /// The state of the file.
    pub stat: FileStat,
    /// The open file, for a regular file looked up with [`Want::Content`].
    #[serde(with = "presence")]
    pub file: Option<F>,
}

impl<F> Opened<F> {
    /// The same with another file in place of an open one.
    pub(super) fn with_file<G>(self, file: &mut impl FnMut(F) -> Option<G>) -> Option<Opened<G>> {
        let file = match self.file {
            Some(open) => Some(file(open)?),
            None => None,
        };
        Some(Opened { stat: self.stat, file })
    }
}

/// Why a look-up has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUpError {
    /// The answer is not in memory, so the look-up would block.
    WouldWait,
    /// There is no such file, or it is outside the root.
    Missing,
    /// The server lacks permission to read the file.
    Denied,
    /// Descriptors or memory ran out.
    Exhausted,
    /// The file system failed, with this error number.
    Failed(i32),
}

/// A part of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The state's number, which no other state of any file has.
    pub version: u64,
    /// Length of the whole file in bytes.
    pub size_bytes: u64,
    /// Offset of the part in the file, in bytes.
    pub offset: u64,
    /// Length of the part in bytes. The part ends within the file.
    pub length: usize,
}

impl FilePart {
    /// The first bytes of the part, at most this many.
    pub(crate) fn first(self, bytes: usize) -> Self {
        Self { length: self.length.min(bytes), ..self }
    }
}

/// The result of sending a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSent {
    /// Bytes offered and bytes accepted, counting head and part together.
    Took {
        /// The length of the head plus the resident bytes of the part.
        offered: usize,
        /// Less than `offered` if the connection has no more room.
        sent: usize,
    },
    /// The first byte of the part is not in memory.
    Absent,
    /// The kernel cannot answer without blocking; a helper must hand the bytes over.
    Unknown,
    /// The file has become shorter.
    Changed,
    /// Reading the file failed.
    Failed,
}

/// The result of a read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// This many bytes were read; 0 is the end of the file.
    Bytes(usize),
    /// The first byte is not in memory.
    Absent,
    /// The kernel cannot answer without blocking; a helper must hand the bytes over.
    Unknown,
}
