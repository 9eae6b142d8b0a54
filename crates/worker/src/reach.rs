//! How an architecture lets its workers reach files. Only the architecture knows which calls may block.

use std::io;
use std::sync::Arc;

use flash_engine::limits::LOAD_BYTES;
use flash_engine::{FilePart, FileSent};
use flash_prompt::OwnedFd;
use flash_prompt::file::{Found, Resident, Stat, Want};
use flash_prompt::mapping::{MappedPart, Mappings};
use flash_prompt::sendfile::Sent;

use super::site_file::SiteFile;
use super::socket::Socket;
use crate::convert;
use crate::setup::SendBy;

/// The functions by which a worker reaches files.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Looks up a path under a root. Returns `WouldBlock` if that would block and must not.
    pub look_up: fn(&OwnedFd, &[u8], Want) -> io::Result<Found>,
    /// Reads bytes at an offset: all of them, or only those in memory.
    pub read: fn(&SiteFile, u64, &mut [u8]) -> io::Result<Resident>,
    /// Asks for the state of an open file. Returns `WouldBlock` if that would block and must not.
    pub stat: fn(&SiteFile) -> io::Result<Stat>,
    /// Sends a head and this many bytes of a file from an offset by sendfile(2): all of them, or only those
    /// in memory.
    pub send_file: SendFile,
    /// Whether files are also looked up under roots whose file system may depend on another process or host.
    pub under_all_roots: bool,
}

/// Sends a head and a part of a file, as in [`Reach::send_file`].
pub type SendFile = fn(&Socket, &[u8], &SiteFile, u64, usize) -> io::Result<Sent>;

/// How parts of files are sent.
#[derive(Debug)]
pub(super) enum Sending {
    /// As bytes that were read before.
    Read,
    Sendfile(SendFile),
    Mmap(Mappings<SiteFile>),
}

impl Sending {
    pub(super) fn new(by: SendBy, chunks_max: usize, reach: &Reach) -> Self {
        match by {
            SendBy::Read => Sending::Read,
            SendBy::Sendfile => Sending::Sendfile(reach.send_file),
            SendBy::Mmap => Sending::Mmap(Mappings::new(LOAD_BYTES, chunks_max)),
        }
    }

    pub(super) fn send(
        &mut self,
        socket: &Socket,
        head: &[u8],
        file: &Arc<SiteFile>,
        part: FilePart,
    ) -> io::Result<FileSent> {
        let FilePart { version, size_bytes, offset, length } = part;
        let sent = match self {
            // Unreachable: `send_file` is off, so the engine does not call this.
            Sending::Read => Sent::Unknown,
            Sending::Sendfile(send) => send(socket, head, file, offset, length)?,
            Sending::Mmap(mappings) => {
                mappings.send(socket, head, file, MappedPart { version, size_bytes, offset, length })?
            }
        };
        Ok(convert::sent(sent))
    }
}
