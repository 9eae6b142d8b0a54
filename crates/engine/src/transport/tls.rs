//! The second edge of a transport: a record layer between the connection and its socket. Called by [`Transport`](super::Transport).
//!
//! Plaintext that is accepted is encrypted at once, so it waits here as ciphertext if the client is slow: at most
//! [`ENCRYPTED_BYTES_MAX`] of it.

use std::io;

use crate::limits::{EARLY_BYTES, ENCRYPTED_BYTES_MAX, RECORD_BYTES_EARLY, RECORD_BYTES_MAX};
use crate::machine::RecordLayer;

/// The record layer of a connection, and what was done with it.
#[derive(Debug)]
pub(super) struct TlsState {
    pub(super) layer: Box<dyn RecordLayer>,
    /// Bytes of plaintext since the last pause.
    since_pause_bytes: usize,
    /// Whether anything was received.
    pub(super) has_received: bool,
    /// Whether any plaintext was encrypted.
    pub(super) has_encrypted: bool,
    pub(super) ending: SendingEnd,
    /// Why the handshake failed.
    pub(super) failure: Option<io::Error>,
}

/// How far the end of sending has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendingEnd {
    /// More may follow.
    Open,
    /// The record layer has announced the end.
    Announced,
    /// The same, and the sending side of the socket closes once the announcement is sent.
    ClosesSide,
    /// The sending side of the socket is closed.
    SideClosed,
}

impl TlsState {
    pub(super) fn new(layer: Box<dyn RecordLayer>) -> Self {
        Self {
            layer,
            since_pause_bytes: 0,
            has_received: false,
            has_encrypted: false,
            ending: SendingEnd::Open,
            failure: None,
        }
    }

    /// Records that the client has everything and that nothing was sent for a while, or will be.
    pub(super) fn note_pause(&mut self) {
        self.since_pause_bytes = 0;
    }

    /// Encrypts the next of these bytes, as many as may wait to be sent. Returns how many.
    pub(super) fn write(&mut self, first: &[u8], second: &[u8]) -> usize {
        let all = (first.len() + second.len()).min(ENCRYPTED_BYTES_MAX);
        let mut at = 0;
        while at < all {
            let early = self.since_pause_bytes < EARLY_BYTES;
            let record_bytes = if early { RECORD_BYTES_EARLY } else { RECORD_BYTES_MAX };
            let end = (at + record_bytes).min(all);
            let of_first = &first[at.min(first.len())..end.min(first.len())];
            let of_second = &second[at.saturating_sub(first.len())..end.saturating_sub(first.len())];
            self.layer.write(of_first, of_second);
            self.since_pause_bytes += end - at;
            self.has_encrypted = true;
            at = end;
        }
        at
    }

    /// Announces the end, if the client can understand it.
    pub(super) fn announce_end(&mut self) {
        if self.ending == SendingEnd::Open {
            self.ending = SendingEnd::Announced;
            if !self.layer.is_handshaking() {
                self.layer.end();
            }
        }
    }
}
