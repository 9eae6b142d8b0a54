//! Files as the machine describes them.

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A device, socket or FIFO.
    Special,
}

/// The state of a file: equal states mean the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// Its kind.
    pub kind: FileKind,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i128,
    /// Last change of content or metadata, nanoseconds since 1970.
    pub changed_ns: i128,
}

impl FileStat {
    /// Whether the content is the same, for a descriptor that stays open: a rename or a new mode changes
    /// `changed_ns` and nothing that is being sent.
    pub fn same_content(&self, other: &FileStat) -> bool {
        self.size_bytes == other.size_bytes && self.modified_ns == other.modified_ns
    }

    /// Whether the bytes of `before` are still the first bytes of this state: nothing was written, or the file has
    /// grown, as a log does. A file that is rewritten in place and grows at once cannot be told from one that grows.
    pub fn continues(&self, before: &FileStat) -> bool {
        self.size_bytes > before.size_bytes || self.same_content(before)
    }
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The state of the file.
    Stat,
    /// A regular file is also opened.
    Content,
}

/// A path that was found.
#[derive(Debug)]
pub struct Opened<F> {
    /// Its state.
    pub stat: FileStat,
    /// The open file, for a regular file looked up with [`Want::Content`].
    pub file: Option<F>,
}

/// Why a look-up has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUpError {
    /// Memory does not hold the answer.
    WouldWait,
    /// There is no such file, or it is outside the root.
    Missing,
    /// The server lacks the permission to read the file.
    Denied,
    /// Descriptors or memory ran out.
    Exhausted,
    /// The file system failed, with this error number.
    Failed(i32),
}

/// A part of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Identifies the state: the number stands for no other state of any file.
    pub version: u64,
    /// Length of the whole file in bytes.
    pub size_bytes: u64,
    /// Where the part begins.
    pub offset: u64,
    /// Length of the part in bytes; it ends within the file.
    pub length: usize,
}

/// The result of sending a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSent {
    /// Head and part together: how many bytes were offered, and how many the connection took.
    Took {
        /// The head, and as much of the part as is in memory.
        offered: usize,
        /// Fewer mean that the connection has no more room.
        sent: usize,
    },
    /// The first byte is not in memory.
    Absent,
    /// The kernel does not tell without waiting: a helper must hand the bytes over.
    Unknown,
    /// The file has become shorter.
    Changed,
    /// Reading it failed.
    Failed,
}

/// The result of a read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// This many bytes were read; 0 is the end of the file.
    Bytes(usize),
    /// The first byte is not in memory.
    Absent,
    /// The kernel does not tell without waiting: a helper must hand the bytes over.
    Unknown,
}
