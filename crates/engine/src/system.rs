//! What the engine asks of the machine, and what it is answered.
//!
//! Each call answers at once, also when the answer is "that would wait". Only where the architecture says so
//! may those for files wait instead (flash-1999, section 3: SPED and MP).

use std::io;
use std::sync::Arc;

use crate::jobs::{JobId, Task};
use crate::rules::SiteId;

/// The machine, as one worker sees it.
pub trait System {
    /// One client's connection; dropping it closes it.
    type Socket;
    /// An open regular file; dropping it closes it.
    type File;

    /// Receives what is there; 0 is the end of input.
    ///
    /// Errors: `WouldBlock` when there is nothing; anything else ends the connection.
    fn recv(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends as much of `bytes` as the connection takes. Errors as in [`System::recv`].
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as much of `first`, then `second`, as the connection takes.
    fn send_both(&mut self, socket: &Self::Socket, first: &[u8], second: &[u8]) -> io::Result<usize>;

    /// Sends as much of `head`, then of `part`, as the connection takes and as is in memory of the
    /// part without a gap; nothing, not even the head, where its first byte is not. Called only where
    /// [`Optimizations::send_file`](crate::Optimizations::send_file) says so.
    ///
    /// Errors as in [`System::recv`]; those of the file are [`FileSent::Failed`].
    fn send_file(
        &mut self,
        socket: &Self::Socket,
        head: &[u8],
        file: &Arc<Self::File>,
        part: FilePart,
    ) -> io::Result<FileSent>;

    /// Tells the client that nothing follows.
    fn end_sending(&mut self, socket: &Self::Socket);

    /// Looks a path up under a site's root, from memory alone. `path` is relative, `.` the root.
    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<Self::File>, LookUpError>;

    /// Reads what is in memory at `offset`, as far as it is there without a gap.
    fn read_resident(&mut self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<Resident>;

    /// What is known of an open file now.
    ///
    /// Errors: `WouldBlock` when nobody but a helper may ask; [`System::read_resident`] never reads
    /// such a file.
    fn stat(&mut self, file: &Self::File) -> io::Result<FileStat>;

    /// Hands a job to an idle helper. False when none is idle: the job stays queued, one of
    /// `startable`, and [`Engine::handle_helper_ready`](crate::Engine::handle_helper_ready) will
    /// be called.
    fn start_job(&mut self, id: JobId, task: &Task<Self::File>, startable: usize) -> bool;

    /// Gives a running job up: its helper has passed its deadline and is to be ended. Once it is
    /// gone, [`Engine::handle_helper_gone`](crate::Engine::handle_helper_gone) will be called.
    fn abandon_job(&mut self, id: JobId);

    /// Takes a line for the access log.
    fn log_access(&mut self, line: &[u8]);

    /// Takes a message for the operator.
    fn report(&mut self, message: &str);
}

/// The time at the start of a turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since an arbitrary start, never going back.
    pub monotonic_ms: u64,
    /// Nanoseconds since 1970, UTC; may jump.
    pub wall_ns: i128,
}

/// What a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, socket or FIFO.
    Special,
}

/// The state of a file: equal states mean the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    /// What it is.
    pub kind: Kind,
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
    /// Whether the content is the same, for a descriptor that stays open: a rename or a new
    /// mode changes `changed_ns` and nothing that is being sent.
    pub fn same_content(&self, other: &FileStat) -> bool {
        self.size_bytes == other.size_bytes && self.modified_ns == other.modified_ns
    }
}

/// How far a look-up goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// What there is and in what state.
    Stat,
    /// A regular file also opened.
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
    /// The file may not be read.
    Denied,
    /// Descriptors or memory ran out.
    Exhausted,
    /// The file system failed, with this error number.
    Failed(i32),
}

/// A part of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Which state: the number stands for no other one, of no other file.
    pub version: u64,
    /// How long the whole file is.
    pub size_bytes: u64,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is; it ends within the file.
    pub length: usize,
}

/// What came of sending a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSent {
    /// Head and part together: of so many bytes offered, the connection took so many.
    Took {
        /// The head, and what is in memory of the part.
        offered: usize,
        /// Fewer mean that the connection has no more room.
        sent: usize,
    },
    /// The first byte is not in memory.
    Absent,
    /// It cannot be told without waiting: a helper must hand the bytes over.
    Unknown,
    /// The file has become shorter.
    Changed,
    /// Reading it failed.
    Failed,
}

/// What came of a read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resident {
    /// So many bytes were read; 0 is the end of the file.
    Bytes(usize),
    /// The first byte is not in memory.
    Absent,
    /// It cannot be told without waiting: a helper must hand the bytes over.
    Unknown,
}
