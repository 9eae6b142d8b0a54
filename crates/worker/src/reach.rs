//! What an architecture decides of how its workers reach files. Only it knows what may wait.

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

/// How a worker reaches files.
#[derive(Clone, Copy, Debug)]
pub struct Reach {
    /// Looks a path up under a root: `WouldBlock` where that would wait and must not.
    pub look_up: fn(&OwnedFd, &[u8], Want) -> io::Result<Found>,
    /// Reads what there is, or what is in memory, at an offset.
    pub read: fn(&SiteFile, u64, &mut [u8]) -> io::Result<Resident>,
    /// Asks for the state of an open file: `WouldBlock` where that would wait and must not.
    pub stat: fn(&SiteFile) -> io::Result<Stat>,
    /// Sends a head and this many bytes of a file from an offset on, or those of them that are in memory, by sendfile.
    pub send_file: SendFile,
    /// Whether it looks files up also under roots that may wait for somebody else.
    pub under_all_roots: bool,
}

/// Sends a head and a part of a file, as [`Reach::send_file`].
pub type SendFile = fn(&Socket, &[u8], &SiteFile, u64, usize) -> io::Result<Sent>;

/// How parts of files are sent.
#[derive(Debug)]
pub(super) enum Sending {
    /// As bytes that were read.
    Read,
    Sendfile(SendFile),
    Mmap(Mappings<SiteFile>),
}

impl Sending {
    pub(super) fn new(by: SendBy, reach: &Reach) -> Self {
        match by {
            SendBy::Read => Sending::Read,
            SendBy::Sendfile => Sending::Sendfile(reach.send_file),
            SendBy::Mmap { chunks_max } => Sending::Mmap(Mappings::new(LOAD_BYTES, chunks_max)),
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
            // The engine was not told to ask for this.
            Sending::Read => Sent::Unknown,
            Sending::Sendfile(send) => send(socket, head, file, offset, length)?,
            Sending::Mmap(mappings) => {
                mappings.send(socket, head, file, MappedPart { version, size_bytes, offset, length })?
            }
        };
        Ok(convert::sent(sent))
    }
}
