//! A socket and its known readiness. Clients' connections are in [`wire`](crate::wire), those to servers in
//! [`upstream`](crate::upstream). Events are edge-triggered: the socket counts as readable until a receive
//! comes short, and as writable until a send does. An encrypted connection has a second edge, a
//! [`RecordLayer`](crate::RecordLayer): then bytes can wait on this side of the socket, decrypted in one direction and
//! encrypted in the other, and no event announces them.

mod handshake;
mod tls;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::limits::ENCRYPTED_BYTES_MAX;
use crate::machine::{FilePart, FileSent, Machine, RecordLayer, Resident};
use crate::schedule::Band;
pub(crate) use handshake::HandshakeStep;
use tls::{SendingEnd, TlsState};

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
    /// The record layer of an encrypted connection.
    tls: Option<Box<TlsState>>,
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
            tls: None,
        }
    }

    /// Puts a record layer between the connection and its socket, which is new.
    pub(crate) fn start_tls(&mut self, layer: Box<dyn RecordLayer>) {
        self.tls = Some(Box::new(TlsState::new(layer)));
    }

    /// Why the handshake failed, if the record layer or the socket has a reason.
    pub(crate) fn why_failed(&mut self) -> Option<io::Error> {
        self.tls.as_mut()?.failure.take()
    }

    /// Whether the end of input is what the peer wanted. Without that of the record layer, anyone on the way can have cut it.
    pub(crate) fn is_end_announced(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| tls.layer.has_ended())
    }

    /// Whether the connection is encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.is_some()
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
    pub(crate) fn end_sending<M: Machine<Socket = S>>(&mut self, machine: &mut M) {
        let Some(tls) = &mut self.tls else { return machine.end_sending(&self.socket) };
        tls.announce_end();
        if tls.ending == SendingEnd::Announced {
            tls.ending = SendingEnd::ClosesSide;
        }
        // If the client has gone, the next call on the socket notices it.
        let _ = self.flush(machine);
    }

    /// Tells the client of an encrypted connection that it closes. Returns whether it can close now: nothing waits to be
    /// sent, or the client has gone.
    pub(crate) fn begin_close<M: Machine<Socket = S>>(&mut self, machine: &mut M) -> bool {
        let Some(tls) = &mut self.tls else { return true };
        tls.announce_end();
        self.flush(machine).is_err() || self.is_flushed()
    }

    /// Whether no ciphertext waits to be sent.
    pub(crate) fn is_flushed(&self) -> bool {
        self.tls.as_ref().is_none_or(|tls| !tls.layer.wants_write())
    }

    /// Records that the client has been sent all that it asked for.
    pub(crate) fn note_pause(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.note_pause();
        }
    }

    /// Sends ciphertext that waits, if there is room. An event reports room only once, and the next turn of the connection
    /// need not send anything, so this must precede every turn.
    #[inline]
    pub(crate) fn flush<M: Machine<Socket = S>>(&mut self, machine: &mut M) -> Result<(), Gone> {
        if self.tls.is_some() { self.flush_encrypted(machine) } else { Ok(()) }
    }

    fn flush_encrypted<M: Machine<Socket = S>>(&mut self, machine: &mut M) -> Result<(), Gone> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while self.writable && tls.layer.wants_write() {
            let mut offered = 0;
            let pushed = tls.layer.push(&mut |pieces| {
                offered = pieces.iter().map(|piece| piece.len()).sum();
                machine.send_pieces(&self.socket, pieces)
            });
            let sent = match pushed {
                Ok(sent) => sent,
                Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return Err(Gone),
            };
            self.writable = sent == offered;
            self.sent_bytes += sent as u64;
        }
        if tls.ending == SendingEnd::ClosesSide && !tls.layer.wants_write() {
            tls.ending = SendingEnd::SideClosed;
            machine.end_sending(&self.socket);
        }
        Ok(())
    }

    /// Receives ciphertext once, which `check` can refuse, and sends what the record layer answers.
    fn pull<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        mut check: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return Ok(0) };
        let mut room = 0;
        let TlsState { layer, has_received, .. } = &mut **tls;
        let pulled = layer.pull(&mut |buffer| {
            room = buffer.len();
            let received = machine.recv(&self.socket, buffer)?;
            *has_received = true;
            check(&buffer[..received])?;
            Ok(received)
        });
        match &pulled {
            Ok(bytes) => self.readable = *bytes == room || self.hung_up || *bytes == 0,
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(_) => {}
        }
        if self.flush(machine).is_err() {
            return Err(ErrorKind::ConnectionReset.into());
        }
        pulled
    }

    /// Receives plaintext into `buffer`.
    fn receive_encrypted<M: Machine<Socket = S>>(&mut self, machine: &mut M, buffer: &mut [u8]) -> Received {
        let mut filled = 0;
        let end = loop {
            let Some(tls) = &mut self.tls else { break Received::Failed };
            filled += tls.layer.read(&mut buffer[filled..]);
            if filled == buffer.len() {
                break Received::Nothing;
            }
            if tls.layer.has_ended() {
                self.hung_up = true;
                break Received::End;
            }
            if !self.readable {
                break Received::Nothing;
            }
            match self.pull(machine, |_| Ok(())) {
                Ok(0) => break Received::End,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(_) => break Received::Failed,
            }
        };
        if filled > 0 {
            return Received::Bytes(filled);
        }
        self.ended |= end == Received::End;
        end
    }

    /// Encrypts and sends `first`, then `second`. Returns how many bytes of both were accepted.
    fn send_encrypted<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        first: &[u8],
        second: &[u8],
    ) -> Result<usize, Gone> {
        self.flush(machine)?;
        let (mut taken, all) = (0, first.len() + second.len());
        while taken < all && self.writable {
            let Some(tls) = &mut self.tls else { return Err(Gone) };
            let of_second = &second[taken.saturating_sub(first.len())..];
            taken += tls.write(&first[taken.min(first.len())..], of_second);
            self.flush(machine)?;
        }
        Ok(taken)
    }

    /// Encrypts and sends a head and a part of a file: the kernel cannot send what is not encrypted.
    fn send_file_encrypted<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        head: &[u8],
        file: &Arc<M::File>,
        part: FilePart,
    ) -> Result<FileSent, Gone> {
        let mut bytes = vec![0; part.length.min(ENCRYPTED_BYTES_MAX)];
        match machine.read_resident(file, part.offset, &mut bytes) {
            Ok(Resident::Bytes(0)) => Ok(FileSent::Changed),
            Ok(Resident::Bytes(read)) => {
                let sent = self.send_encrypted(machine, head, &bytes[..read])?;
                Ok(FileSent::Took { offered: head.len() + read, sent })
            }
            Ok(Resident::Absent) => Ok(FileSent::Absent),
            Ok(Resident::Unknown) => Ok(FileSent::Unknown),
            Err(_) => Ok(FileSent::Failed),
        }
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

    /// Records that the socket is ready, and sends ciphertext that waits: its owner may have nothing more to send.
    pub(crate) fn note_and_flush<M: Machine<Socket = S>>(&mut self, machine: &mut M, ready: Readiness) {
        self.note(ready);
        if self.flush(machine).is_err() {
            // A receive finds out how it has ended.
            self.readable = true;
        }
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

    pub(crate) fn is_half_closed(&self) -> bool {
        self.hung_up
    }

    /// Whether there may be unread input, which would turn a close into a reset.
    pub(crate) fn may_have_input(&self) -> bool {
        let is_held = self.tls.as_ref().is_some_and(|tls| tls.layer.has_plaintext());
        (self.readable || is_held) && !self.ended
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether anything was ever sent, except for the handshake of an encrypted connection.
    pub(crate) fn has_sent(&self) -> bool {
        self.tls.as_ref().map_or(self.sent_bytes > 0, |tls| tls.has_encrypted)
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
        if self.tls.is_some() {
            return self.receive_encrypted(machine, buffer);
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
        if self.tls.is_some() {
            return self.send_encrypted(machine, first, second);
        }
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
        if self.tls.is_some() {
            return self.send_file_encrypted(machine, head, file, part);
        }
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

    /// Bytes that the client has acknowledged since the start, as they were sent: encrypted or not.
    pub(crate) fn acknowledged_bytes<M: Machine<Socket = S>>(&self, machine: &mut M) -> u64 {
        self.sent_bytes.saturating_sub(machine.unacknowledged_bytes(&self.socket))
    }

    /// Whether the client has acknowledged everything sent.
    pub(crate) fn is_acknowledged<M: Machine<Socket = S>>(&self, machine: &mut M) -> bool {
        self.is_flushed() && machine.unacknowledged_bytes(&self.socket) == 0
    }
}
