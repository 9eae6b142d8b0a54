//! The ways in which parts of files are sent without being read first. Called by [`system`](crate::system).

use std::io;
use std::sync::Arc;

use flash_engine::limits::LOAD_BYTES;
use flash_engine::{FilePart, FileSent};
use flash_prompt::mapping::{MappedPart, Mappings};
use flash_prompt::sendfile::Sent;

use crate::convert;
use crate::setup::SendBy;
use crate::site_file::SiteFile;
use crate::socket::Socket;

/// Sends a head and a part of a file, as in [`Reach::send_file`](crate::Reach::send_file).
pub type SendFile = fn(&Socket, &[u8], &SiteFile, u64, usize) -> io::Result<Sent>;

/// How parts of files are sent.
#[derive(Debug)]
pub(crate) enum Sending {
    /// As bytes that were read before.
    Read,
    Sendfile(SendFile),
    Mmap(Mappings<SiteFile>),
}

impl Sending {
    pub(crate) fn new(by: SendBy, chunks_max: usize, send_file: SendFile) -> Self {
        match by {
            SendBy::Read => Sending::Read,
            SendBy::Sendfile => Sending::Sendfile(send_file),
            SendBy::Mmap => Sending::Mmap(Mappings::new(LOAD_BYTES, chunks_max)),
        }
    }

    pub(crate) fn send(
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
