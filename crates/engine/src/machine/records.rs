//! The record layer of an encrypted connection: TLS, seen from the engine. `flash-tls` implements it, the engine's tests with
//! a toy. Called by [`Transport`](crate::transport::Transport).

use std::fmt;
use std::io::{self, IoSlice};

/// Receives ciphertext from the socket, as [`Net::recv`](crate::Net::recv) does.
pub type ReceiveCall<'r> = dyn FnMut(&mut [u8]) -> io::Result<usize> + 'r;

/// Sends pieces of ciphertext to the socket, as [`Net::send_pieces`](crate::Net::send_pieces) does.
pub type SendCall<'s> = dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize> + 's;

/// Turns ciphertext into plaintext and back. It makes no call itself: the engine passes it the calls on the socket.
///
/// After a failed [`RecordLayer::pull`], only ciphertext is sent: an alert, which tells the client why.
pub trait RecordLayer: fmt::Debug + Send {
    /// Whether the handshake is not complete. Until then there is no plaintext, in either direction.
    fn is_handshaking(&self) -> bool;

    /// How the handshake ended; None while it is under way.
    fn handshake(&self) -> Option<Handshake>;

    /// Takes over what was computed elsewhere since the last receive, if this layer has its handshake computed elsewhere. Returns false
    /// while that is under way: then there is nothing to read, write or send.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the client broke the protocol.
    fn take_back(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    /// Receives once, and processes the records that are complete. Returns what `receive` returned.
    ///
    /// # Errors
    /// Those of `receive`, and [`io::ErrorKind::InvalidData`] if the client broke the protocol.
    fn pull(&mut self, receive: &mut ReceiveCall<'_>) -> io::Result<usize>;

    /// Takes decrypted bytes, as many as there are and as fit. Returns how many.
    fn read(&mut self, plaintext: &mut [u8]) -> usize;

    /// Whether there are decrypted bytes that were not taken.
    fn has_plaintext(&self) -> bool;

    /// Whether the client has announced that it sends no more (`close_notify`). Decrypted bytes may remain.
    fn has_ended(&self) -> bool;

    /// Encrypts `first` and `second` as one record, which then waits to be sent. Both together are not empty and at most
    /// [`RECORD_BYTES_MAX`](crate::limits::RECORD_BYTES_MAX) long.
    fn write(&mut self, first: &[u8], second: &[u8]);

    /// Announces that nothing follows (`close_notify`). The announcement then waits to be sent.
    fn end(&mut self);

    /// Whether ciphertext waits to be sent.
    fn wants_write(&self) -> bool;

    /// Passes waiting ciphertext to `send` once, and drops what it accepted. Returns what `send` returned.
    ///
    /// # Errors
    /// Those of `send`.
    fn push(&mut self, send: &mut SendCall<'_>) -> io::Result<usize>;
}

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// Whether it continued an earlier session, which spares both sides most of the work.
    pub is_resumed: bool,
    /// Whether both sides have agreed on HTTP/2 (ALPN). Then nothing else may follow (RFC 9113, section 3.4).
    pub is_http2: bool,
    /// The version of TLS.
    pub version: TlsVersion,
}

/// A version of TLS that clients may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// RFC 5246.
    V1_2,
    /// RFC 8446.
    V1_3,
}

impl TlsVersion {
    /// As logs write it.
    pub fn name(self) -> &'static str {
        match self {
            TlsVersion::V1_2 => "TLSv1.2",
            TlsVersion::V1_3 => "TLSv1.3",
        }
    }
}
