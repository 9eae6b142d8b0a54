//! A socket with what is known of its readiness. Events are edges: it stays readable until a receive comes short, and
//! writable until a send does. A secure transport (TLS) is a second kind of this one type.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use crate::machine::{FilePart, FileSent, Machine};

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

/// A client's socket.
#[derive(Debug)]
pub(crate) struct Transport<S> {
    socket: S,
    readable: bool,
    writable: bool,
    /// The peer has closed its side: input ends after what is there.
    hung_up: bool,
    /// The end of input was received, or nothing more is wanted.
    ended: bool,
    /// Bytes sent since the start.
    sent_bytes: u64,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// The client sends nothing more.
    End,
    Failed,
}

/// The connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

impl<S> Transport<S> {
    pub(crate) fn new(socket: S) -> Self {
        Self { socket, readable: false, writable: true, hung_up: false, ended: false, sent_bytes: 0 }
    }

    /// Tells the client that nothing follows.
    pub(crate) fn end_sending<M: Machine<Socket = S>>(&self, machine: &mut M) {
        machine.end_sending(&self.socket);
    }

    /// Makes the close to come discard what the client has not received.
    pub(crate) fn reset<M: Machine<Socket = S>>(&self, machine: &mut M) {
        machine.reset(&self.socket);
    }

    pub(crate) fn socket(&self) -> &S {
        &self.socket
    }

    /// The socket is ready.
    #[inline]
    pub(crate) fn note(&mut self, ready: Readiness) {
        self.readable |= ready.readable;
        self.writable |= ready.writable;
        self.hung_up |= ready.hung_up;
    }

    /// There may be input that no event has told of, or room that the kernel finds too little to tell of.
    pub(crate) fn suspect(&mut self, ready: Readiness) {
        self.note(ready);
    }

    /// The events that are not known to have happened.
    pub(crate) fn awaited(&self) -> Readiness {
        Readiness { readable: !self.readable, writable: !self.writable, hung_up: !self.hung_up, broken: true }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// Whether there may be input that was not received. Closing would then reset the connection.
    pub(crate) fn may_have_input(&self) -> bool {
        self.readable && !self.ended
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Nothing more is received.
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
                // A short receive has emptied the socket (epoll(7)), except for the end of input.
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

    /// Sends `first`, then `second`; gives how much was taken of both together.
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

    /// Whether the client has acknowledged all that was sent.
    pub(crate) fn is_acknowledged<M: Machine<Socket = S>>(&self, machine: &mut M) -> bool {
        machine.unacknowledged_bytes(&self.socket) == 0
    }
}
