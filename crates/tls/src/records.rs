//! The record layer of a connection: `rustls`, seen as [`RecordLayer`]. Made by [`Acceptor`](crate::Acceptor) and
//! [`Connector`](crate::Connector).

use std::fmt::Debug;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::DerefMut;

use flash_engine::{Handshake, ReceiveCall, RecordLayer, SendCall, TlsVersion};
use rustls::{ConnectionCommon, Error, HandshakeKind, ProtocolVersion, SideData};

use crate::acceptor::protocol;

/// One side of a TLS connection.
#[derive(Debug)]
pub(crate) struct TlsRecords<C> {
    tls: C,
    has_plaintext: bool,
    has_ended: bool,
    /// Makes a message of a failure.
    explain: fn(&Error) -> String,
}

impl<C: DerefMut<Target = ConnectionCommon<D>>, D: SideData> TlsRecords<C> {
    pub(crate) fn new(mut tls: C, explain: fn(&Error) -> String) -> Self {
        // The engine bounds what waits: it encrypts only as much as it sends next.
        tls.set_buffer_limit(None);
        Self { tls, has_plaintext: false, has_ended: false, explain }
    }

    /// Receives once.
    ///
    /// Errors: those of `receive`.
    pub(crate) fn receive(&mut self, receive: &mut ReceiveCall<'_>) -> io::Result<usize> {
        self.tls.read_tls(&mut Source(receive))
    }

    /// Processes the records that are complete.
    ///
    /// Errors: `InvalidData` if the peer broke the protocol.
    pub(crate) fn process(&mut self) -> io::Result<()> {
        let failed = |e: Error| io::Error::new(ErrorKind::InvalidData, (self.explain)(&e));
        let state = self.tls.process_new_packets().map_err(failed)?;
        self.has_plaintext = state.plaintext_bytes_to_read() > 0;
        self.has_ended |= state.peer_has_closed();
        Ok(())
    }
}

/// The socket as `rustls` reads it.
struct Source<'r, 'c>(&'r mut ReceiveCall<'c>);

impl Read for Source<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (self.0)(buffer)
    }
}

/// The socket as `rustls` writes to it.
struct Sink<'s, 'c>(&'s mut SendCall<'c>);

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<C, D: SideData> RecordLayer for TlsRecords<C>
where
    C: DerefMut<Target = ConnectionCommon<D>> + Debug + Send,
{
    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn handshake(&self) -> Option<Handshake> {
        if self.tls.is_handshaking() {
            return None;
        }
        Some(Handshake {
            is_resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
            is_http2: self.tls.alpn_protocol() == Some(protocol::HTTP2),
            version: match self.tls.protocol_version() {
                Some(ProtocolVersion::TLSv1_2) => TlsVersion::V1_2,
                _ => TlsVersion::V1_3,
            },
        })
    }

    fn pull(&mut self, receive: &mut ReceiveCall<'_>) -> io::Result<usize> {
        let received = self.receive(receive)?;
        self.process().map(|()| received)
    }

    fn read(&mut self, plaintext: &mut [u8]) -> usize {
        if !self.has_plaintext {
            return 0;
        }
        let mut taken = 0;
        while taken < plaintext.len() {
            // An error is the end, announced or not, or that there is nothing.
            match self.tls.reader().read(&mut plaintext[taken..]) {
                Ok(bytes @ 1..) => taken += bytes,
                Ok(0) | Err(_) => {
                    self.has_plaintext = false;
                    break;
                }
            }
        }
        taken
    }

    fn has_plaintext(&self) -> bool {
        self.has_plaintext
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn write(&mut self, first: &[u8], second: &[u8]) {
        // Into memory without a bound, so all of it is taken.
        let _ = self.tls.writer().write_vectored(&[IoSlice::new(first), IoSlice::new(second)]);
    }

    fn end(&mut self) {
        self.tls.send_close_notify();
    }

    fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    fn push(&mut self, send: &mut SendCall<'_>) -> io::Result<usize> {
        self.tls.write_tls(&mut Sink(send))
    }
}
