//! The machine that the engine needs: sockets, files, helpers and logs, each a small trait.
//!
//! `flash-worker` implements the traits on Linux, the engine's tests in memory. Every call returns at once,
//! even if the result is "that would block". Only in architectures that allow it can calls on files block
//! (flash-1999, section 3: SPED and MP).

mod file;
mod form;
mod listing;
mod message;
mod name;
mod records;
mod task;

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use file::{FileKind, FilePart, FileSent, FileStat, LookUpError, Opened, Resident, Want};
pub use form::{NO_FORM, block_of_form, form_of_block};
pub use listing::{ListingForm, ListingKey, ListingOrder, README_NAMES};
pub use name::{NameFacts, NameMark, SharedName, SharedNames};
pub use records::{Handshake, ReceiveCall, RecordLayer, SendCall, TlsVersion};
pub use task::{FileId, FileRange, Finding, JobId, NameOfFile, Outcome, Task};

use crate::rules::ServerId;
use crate::schedule::Band;
use crate::slab::{Key, SiteId};

/// Calls on sockets.
pub trait Net {
    /// A client's connection. Dropping it closes the connection.
    type Socket;

    /// Receives the bytes that have arrived; 0 means the end of input.
    ///
    /// Errors: `WouldBlock` if there are no bytes now. Any other error ends the connection.
    fn recv(&mut self, socket: &Self::Socket, buffer: &mut [u8]) -> io::Result<usize>;

    /// Sends as many of `bytes` as the connection accepts. Errors as in [`Net::recv`].
    fn send(&mut self, socket: &Self::Socket, bytes: &[u8]) -> io::Result<usize>;

    /// Sends as much of `first`, then `second`, as the connection accepts. Errors as in [`Net::recv`].
    fn send_both(&mut self, socket: &Self::Socket, first: &[u8], second: &[u8]) -> io::Result<usize>;

    /// Sends as much of `pieces`, in order, as the connection accepts. Errors as in [`Net::recv`].
    fn send_pieces(&mut self, socket: &Self::Socket, pieces: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Closes the sending side, which tells the client that nothing follows.
    fn end_sending(&mut self, socket: &Self::Socket);

    /// Makes the following close discard unsent data, so that the kernel keeps no buffers for it.
    fn reset(&mut self, socket: &Self::Socket);

    /// The address of this machine to which the client has connected, if it is known.
    fn local_address(&mut self, socket: &Self::Socket) -> Option<SocketAddr>;

    /// Bytes that were sent and that the client has not acknowledged.
    fn unacknowledged_bytes(&mut self, socket: &Self::Socket) -> u64;

    /// When the last call ended, or the wait for events if none was made since, in nanoseconds of the clock of [`Moment`]. Costs no
    /// system call.
    fn last_call_ns(&self) -> u64;
}

/// Priorities of sockets, for the queues between the server and its clients.
pub trait Bands: Net {
    /// Sends everything that follows on this connection, and everything that it has not sent yet, in this
    /// band. `peer` is the address of the client. A new connection is in [`Band::FIRST`]. Called only if the
    /// band of the socket changes.
    fn set_band(&mut self, socket: &Self::Socket, peer: &SocketAddr, band: Band);
}

/// The uplink that all workers share.
pub trait UplinkShare {
    /// Announces whether this worker uses the uplink now. Returns how many others do. Called only if the uplink has a
    /// known rate ([`EgressRules`](crate::EgressRules)).
    fn share_uplink(&mut self, uses: bool) -> u32;
}

/// Numbers that all workers share: buckets for rates of requests and of bytes, and counts of the requests that they are answering.
pub trait Buckets {
    /// The number of a bucket, 0 if it is new. It may be forgotten, the sooner the smaller it is. None if there are no buckets,
    /// and all requests are admitted.
    fn bucket(&mut self, key: &BucketKey) -> Option<&AtomicU64>;

    /// Announces how many requests of this name the worker is answering. Returns how many the others are.
    fn announce_requests(&mut self, key: &BucketKey, count: u32) -> u32;
}

/// The name of a bucket. It has the rate too, so that a reload that changes rules begins with new buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketKey {
    /// The number of the site.
    pub site: u16,
    /// The number of the rule there.
    pub rule: u32,
    /// The time in which a bucket of requests gets a token, in microseconds; the rate of one of bytes, in bytes per second. 0 for a
    /// count.
    pub rate: u64,
    /// How many tokens it can have; 0 for a bucket of bytes. The bound of a count.
    pub burst: u32,
    /// The number of the client; None for all clients together.
    pub client: Option<u64>,
}

impl BucketKey {
    /// The key as bytes, different for every key.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 27] {
        let mut bytes = [0; 27];
        bytes[..2].copy_from_slice(&self.site.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.rule.to_le_bytes());
        bytes[6..14].copy_from_slice(&self.rate.to_le_bytes());
        bytes[14..18].copy_from_slice(&self.burst.to_le_bytes());
        bytes[18] = self.client.is_some().into();
        bytes[19..].copy_from_slice(&self.client.unwrap_or(0).to_le_bytes());
        bytes
    }
}

/// Calls on the files of the sites.
pub trait Files {
    /// An open regular file. Dropping it returns it to the machine, which closes it.
    type File;

    /// Looks up a path under a site's root, using only cached data. `path` is relative; `.` is the root.
    ///
    /// Errors: [`LookUpError::WouldWait`] if only a helper can find out.
    fn open_cached(
        &mut self,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Opened<Self::File>, LookUpError>;

    /// Reads the bytes at `offset` that are in memory, up to the first gap.
    fn read_resident(&mut self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> io::Result<Resident>;

    /// The current state of an open file.
    ///
    /// Errors: `WouldBlock` if only a helper can ask. [`Files::read_resident`] never reads such a file.
    fn stat(&mut self, file: &Self::File) -> io::Result<FileStat>;
}

/// Access to the store: blocks of files in locked memory that Flash manages and all workers share. A block
/// found here can be sent without any wait, whatever the file system or the kernel does.
pub trait Blocks {
    /// Returns the block with this number, if it is in the store for exactly this state of the file:
    /// [`LOAD_BYTES`](crate::limits::LOAD_BYTES) or the rest of the file, or a compressed form of all of it
    /// ([`block_of_form`]). It does not change while it is held.
    /// When it has to leave, [`Engine::handle_leaving`](crate::Engine::handle_leaving) will be called.
    fn block(&mut self, stat: &FileStat, number: u64) -> Option<Block>;
}

/// A block of a file in the store.
pub trait BlockBytes: fmt::Debug + Send + Sync {
    /// The bytes of the block.
    fn bytes(&self) -> &[u8];

    /// A number that no other block in the store has.
    fn number(&self) -> u64;

    /// Records a use, for the replacement policy.
    fn note_use(&self);
}

/// A block in the store, held.
pub type Block = Arc<dyn BlockBytes>;

/// Helpers, which make the calls that can block.
pub trait Helpers: Files {
    /// Gives a job to an idle helper. Returns false if none is idle: the job stays queued as one of
    /// `startable` jobs, and [`Engine::handle_helper_ready`](crate::Engine::handle_helper_ready) will be
    /// called.
    fn start_job(&mut self, id: JobId, task: &Task<Self::File>, startable: usize) -> bool;

    /// Abandons a running job that has passed its deadline; its helper must end. Once the helper has ended,
    /// [`Engine::handle_helper_gone`](crate::Engine::handle_helper_gone) will be called.
    fn abandon_job(&mut self, id: JobId);
}

/// Connections to the servers of upstreams, which another process makes.
pub trait Gateway {
    /// Asks for a connection to `server`. Afterwards
    /// [`Engine::handle_connected`](crate::Engine::handle_connected) or
    /// [`Engine::handle_not_connected`](crate::Engine::handle_not_connected) is called with the same `link`, never
    /// within this call.
    fn connect(&mut self, link: Key, server: ServerId);

    /// The record layer of a new connection to `server`, on which it is the client. None if memory or random bytes are
    /// short. Called only for servers whose connections are [encrypted](crate::ServerRules::is_encrypted).
    fn record_layer(&mut self, server: ServerId) -> Option<Box<dyn RecordLayer>>;
}

/// The logs.
pub trait Log {
    /// Writes a line to the access log of this number. `line` has no line feed.
    fn log_access(&mut self, log: u16, line: &[u8]);

    /// Reports a message to the operator.
    fn report(&mut self, message: &str);
}

/// The complete machine of a worker.
pub trait Machine:
    Net + Bands + UplinkShare + Buckets + Files + SharedNames + Blocks + Helpers + Gateway + Log
{
    /// Sends as much of `head` and then of `part` as the connection accepts and as is in memory without a
    /// gap. If the first byte of the part is not in memory, sends nothing, not even the head. Called only if
    /// [`Optimizations::send_file`](crate::Optimizations::send_file) is on.
    ///
    /// Errors as in [`Net::recv`]. Errors of the file are [`FileSent::Failed`].
    fn send_file(
        &mut self,
        socket: &Self::Socket,
        head: &[u8],
        file: &Arc<Self::File>,
        part: FilePart,
    ) -> io::Result<FileSent>;
}

/// The time at the start of a turn of the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since an arbitrary start; never goes back.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970, UTC; can jump.
    pub wall_ns: i128,
}

impl Moment {
    /// Milliseconds since the same start.
    #[inline]
    pub fn monotonic_ms(self) -> u64 {
        self.monotonic_ns / 1_000_000
    }
}
