//! How a worker's System reaches files: chosen at its start (`worker/start.rs`), where alone functions
//! that wait may be named, for those who ask for them.

use std::io;
use std::sync::Arc;

use flash_engine::{FilePart, FileSent};
use flash_sys::prompt::file::{Found, Resident, Want};
use flash_sys::prompt::mapping::{Mappings, Part};
use flash_sys::prompt::sendfile::Sent;
use flash_sys::{AsFd, OwnedFd};

use super::site_file::SiteFile;
use crate::convert;

/// Look-ups under a root, reads of files, and ways to send parts of them.
pub(super) struct Reach {
    pub(super) look_up: fn(&OwnedFd, &[u8], Want) -> io::Result<Found>,
    pub(super) read: fn(&SiteFile, u64, &mut [u8]) -> io::Result<Resident>,
    pub(super) send: Sending,
}

/// Sends a head and so many bytes of a file from an offset on.
type SendFile = fn(&OwnedFd, &[u8], &SiteFile, u64, usize) -> io::Result<Sent>;

/// How parts of files are sent.
pub(super) enum Sending {
    /// As bytes that were read.
    Read,
    Sendfile(SendFile),
    Mmap(Mappings<SiteFile>),
}

impl Sending {
    pub(super) fn send(
        &mut self,
        socket: &OwnedFd,
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
                mappings.send(socket.as_fd(), head, file, Part { version, size_bytes, offset, length })?
            }
        };
        Ok(convert::sent(sent))
    }
}
