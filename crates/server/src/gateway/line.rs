//! The connection of a probe, encrypted or not. Called by [`probes`](super::probes). Nothing here waits.

use std::io::{self, ErrorKind};

use flash_engine::RecordLayer;
use flash_prompt::{OwnedFd, net};

const NO_ROOM: &str = "the server takes no bytes of the TLS connection";

/// A connection to a server.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) socket: OwnedFd,
    /// The record layer of an encrypted one.
    pub(super) records: Option<Box<dyn RecordLayer>>,
}

impl Line {
    /// Continues the handshake. Returns whether it is over.
    ///
    /// Errors: why it failed.
    pub(super) fn continue_handshake(&mut self) -> io::Result<bool> {
        self.flush()?;
        while self.records.as_ref().is_some_and(|records| records.is_handshaking()) {
            match self.pull() {
                Ok(0) => return Err(io::Error::other("the connection ended during the TLS handshake")),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Sends the start of these bytes. Returns how many were taken.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(records) = &mut self.records else { return net::send(&self.socket, bytes) };
        records.write(bytes, &[]);
        self.flush()?;
        Ok(bytes.len())
    }

    /// Receives into the buffer. Returns how many bytes came; 0 means the end.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(records) = &mut self.records else { return net::recv(&self.socket, buffer) };
            match records.read(buffer) {
                0 if records.has_ended() => return Ok(0),
                0 if self.pull()? == 0 => return Ok(0),
                0 => {}
                read => return Ok(read),
            }
        }
    }

    /// Receives ciphertext, and sends what the record layer answers.
    fn pull(&mut self) -> io::Result<usize> {
        let Self { socket, records: Some(records) } = self else { return Ok(0) };
        let pulled = records.pull(&mut |buffer| net::recv(&*socket, buffer));
        // An alert that is not sent changes nothing about the failure.
        let flushed = self.flush();
        let pulled = pulled?;
        flushed.map(|()| pulled)
    }

    /// Sends all ciphertext.
    ///
    /// Errors: also if there is no room, which an empty socket has for a handshake and a short request.
    fn flush(&mut self) -> io::Result<()> {
        let Self { socket, records: Some(records) } = self else { return Ok(()) };
        while records.wants_write() {
            let pushed = records.push(&mut |pieces| {
                let piece = pieces.iter().find(|piece| !piece.is_empty());
                piece.map_or(Ok(0), |piece| net::send(&*socket, piece))
            });
            match pushed {
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(io::Error::other(NO_ROOM)),
                pushed => drop(pushed?),
            }
        }
        Ok(())
    }
}
