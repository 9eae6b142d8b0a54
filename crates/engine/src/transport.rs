//! A socket and its known readiness. Clients' connections are in [`wire`](crate::wire), those to servers in
//! [`upstream`](crate::upstream). Events are edge-triggered: the socket counts as readable until a receive
//! comes short, and as writable until a send does. TLS would be a second kind of this type.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::machine::{FilePart, FileSent, Machine};
use crate::schedule::Band;

/// The readiness of a connection's socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// There is input, or its end.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The client has closed its sending side; it may still read.
    pub hung_up: bool,
    /// The connection failed, or both sides are closed.
    pub broken: bool,
}

/// A socket of a client or a server.
#[derive(Debug)]
pub(crate) struct Transport<S> {
    socket: S,
    readable: bool,
    writable: bool,
    /// The client has closed its sending side: the input ends after the bytes already there.
    hung_up: bool,
    /// The end of input was received, or no more input is wanted.
    ended: bool,
    /// Bytes sent since the start.
    sent_bytes: u64,
    /// The band that the socket has.
    band: Band,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// There is no input now.
    Nothing,
    /// The client sends no more input.
    End,
    Failed,
}

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl<S> Transport<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self {
            socket,
            readable: false,
            writable: true,
            hung_up: false,
            ended: false,
            sent_bytes: 0,
            band: Band::FIRST,
        }
    }

    pub(crate) fn band(&self) -> Band {
        self.band
    }

    /// Gives the socket this band. Returns whether it had another one, which costs a system call or two.
    pub(crate) fn set_band<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        peer: &SocketAddr,
        band: Band,
    ) -> bool {
        let changes = self.band != band;
        if changes {
            self.band = band;
            machine.set_band(&self.socket, peer, band);
        }
        changes
    }

    /// Closes the sending side, which tells the client that nothing follows.
    pub(crate) fn end_sending<M: Machine<Socket = S>>(&self, machine: &mut M) {
        machine.end_sending(&self.socket);
    }

    /// Makes the following close discard unsent data.
    pub(crate) fn reset<M: Machine<Socket = S>>(&self, machine: &mut M) {
        machine.reset(&self.socket);
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// Records that the socket is ready.
    #[inline]
    pub(crate) fn note(&mut self, ready: Readiness) {
        self.readable |= ready.readable;
        self.writable |= ready.writable;
        self.hung_up |= ready.hung_up;
    }

    /// Assumes input that no event has reported, or room too small for the kernel to report.
    pub(crate) fn suspect(&mut self, ready: Readiness) {
        self.note(ready);
    }

    /// The events that have not been reported yet.
    pub(crate) fn awaited(&self) -> Readiness {
        Readiness { readable: !self.readable, writable: !self.writable, hung_up: !self.hung_up, broken: true }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Whether there may be unread input, which would turn a close into a reset.
    pub(crate) fn may_have_input(&self) -> bool {
        self.readable && !self.ended
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether anything was ever sent.
    pub(crate) fn has_sent(&self) -> bool {
        self.sent_bytes > 0
    }

    /// Stops receiving.
    pub(crate) fn stop_receiving(&mut self) {
        self.ended = true;
    }

    /// Receives into `buffer`.
    #[inline]
    pub(crate) fn receive<M: Machine<Socket = S>>(&mut self, machine: &mut M, buffer: &mut [u8]) -> Received {
        if self.ended {
            return Received::End;
        }
        if !self.readable {
            return Received::Nothing;
        }
        match machine.recv(&self.socket, buffer) {
            Ok(0) => {
                self.ended = true;
                Received::End
            }
            Ok(n) => {
                // A short receive means that the socket is empty (epoll(7)), except for the end of input.
                self.readable = n == buffer.len() || self.hung_up;
                Received::Bytes(n)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Received::Nothing
            }
            Err(_) => Received::Failed,
        }
    }

    /// Sends `first`, then `second`. Returns how many bytes of both together were accepted.
    #[inline]
    pub(crate) fn send<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        first: &[u8],
        second: &[u8],
    ) -> Result<usize, Gone> {
        let result = match (first, second) {
            (bytes, []) | ([], bytes) => machine.send(&self.socket, bytes),
            (first, second) => machine.send_both(&self.socket, first, second),
        };
        self.sent(first.len() + second.len(), result)
    }

    /// Sends a head and a part of a file.
    pub(crate) fn send_file<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        head: &[u8],
        file: &Arc<M::File>,
        part: FilePart,
    ) -> Result<FileSent, Gone> {
        match machine.send_file(&self.socket, head, file, part) {
            Ok(FileSent::Took { offered, sent }) => {
                let sent = self.sent(offered, Ok(sent))?;
                Ok(FileSent::Took { offered, sent })
            }
            Ok(other) => Ok(other),
            Err(e) => {
                let offered = head.len() + part.length;
                let sent = self.sent(offered, Err(e))?;
                Ok(FileSent::Took { offered, sent })
            }
        }
    }

    fn sent(&mut self, offered: usize, result: io::Result<usize>) -> Result<usize, Gone> {
        let sent = match result {
            Ok(sent) => sent,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Err(Gone),
        };
        if sent < offered {
            self.writable = false;
        }
        self.sent_bytes += sent as u64;
        Ok(sent)
    }

    /// Bytes that the client has acknowledged since the start.
    pub(crate) fn acknowledged_bytes<M: Machine<Socket = S>>(&self, machine: &mut M) -> u64 {
        self.sent_bytes.saturating_sub(machine.unacknowledged_bytes(&self.socket))
    }

    /// Whether the client has acknowledged everything sent.
    pub(crate) fn is_acknowledged<M: Machine<Socket = S>>(&self, machine: &mut M) -> bool {
        machine.unacknowledged_bytes(&self.socket) == 0
    }
}
