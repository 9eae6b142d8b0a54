//! The engine's requirements of the machine: sockets, files, helpers and logs, each a small trait.
//!
//! `flash-worker` implements them on Linux, the engine's tests in memory. Every call answers at once, even when the
//! answer is "that would wait". Only where the architecture says so may a call on files wait instead
//! (flash-1999, section 3: SPED and MP).

mod file;
mod task;

use std::io;
use std::sync::Arc;

pub use file::{FileKind, FilePart, FileSent, FileStat, LookUpError, Opened, Resident, Want};
pub use task::{Finding, JobId, Outcome, Task};

use crate::rules::SiteId;

/// Sockets.
pub trait Net {
    /// One client's connection; dropping it closes it.
    type Socket;

    /// Receives what is there; 0 is the end of input.
    ///
    /// Errors: `WouldBlock` when there is nothing; anything else ends the connection.
    fn recv(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends as much of `bytes` as the connection takes. Errors as in [`Net::recv`].
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as much of `first`, then `second`, as the connection takes. Errors as in [`Net::recv`].
    fn send_both(&mut self, socket: &Self::Socket, first: &[u8], second: &[u8]) -> io::Result<usize>;

    /// Tells the client that nothing follows.
    fn end_sending(&mut self, socket: &Self::Socket);

    /// Makes the close to come discard what the client has not received, so that the kernel keeps nothing for it.
    fn reset(&mut self, socket: &Self::Socket);

    /// Bytes that were sent and that the client has not acknowledged.
    fn unacknowledged_bytes(&mut self, socket: &Self::Socket) -> u64;
}

/// Files of the sites.
pub trait Files {
    /// An open regular file. Dropping it gives it back to the machine, which closes it.
    type File;

    /// Looks a path up under a site's root, from memory alone. `path` is relative, `.` the root.
    ///
    /// Errors: [`LookUpError::WouldWait`] when only a helper can tell.
    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<Self::File>, LookUpError>;

    /// Reads what is in memory at `offset`, as far as it is there without a gap.
    fn read_resident(&mut self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<Resident>;

    /// The present state of an open file.
    ///
    /// Errors: `WouldBlock` when only a helper may ask; [`Files::read_resident`] never reads such a file.
    fn stat(&mut self, file: &Self::File) -> io::Result<FileStat>;
}

/// Helpers, which do what may wait.
pub trait Helpers: Files {
    /// Hands a job to an idle helper. False when none is idle: the job stays queued, one of `startable`, and
    /// [`Engine::handle_helper_ready`](crate::Engine::handle_helper_ready) will be called.
    fn start_job(&mut self, id: JobId, task: &Task<Self::File>, startable: usize) -> bool;

    /// Gives a running job up: its helper has passed its deadline and must end. Once it is gone,
    /// [`Engine::handle_helper_gone`](crate::Engine::handle_helper_gone) will be called.
    fn abandon_job(&mut self, id: JobId);
}

/// Logs.
pub trait Log {
    /// Takes a line for the access log, without its end.
    fn log_access(&mut self, line: &[u8]);

    /// Takes a message for the operator.
    fn report(&mut self, message: &str);
}

/// The machine as one worker sees it.
pub trait Machine: Net + Files + Helpers + Log {
    /// Sends as much of `head`, then of `part`, as the connection takes and as is in memory of the part without a
    /// gap; nothing, not even the head, where its first byte is not. Called only where
    /// [`Optimizations::send_file`](crate::Optimizations::send_file) says so.
    ///
    /// Errors as in [`Net::recv`]; those of the file are [`FileSent::Failed`].
    fn send_file(
        &mut self,
        socket: &Self::Socket,
        head: &[u8],
        file: &Arc<Self::File>,
        part: FilePart,
    ) -> io::Result<FileSent>;
}

/// The time at the start of a turn of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Milliseconds since an arbitrary start, never going back.
    pub monotonic_ms: u64,
    /// Nanoseconds since 1970, UTC; may jump.
    pub wall_ns: i128,
}
