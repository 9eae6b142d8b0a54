//! A toy record layer in the place of TLS: records have a checksum and an easy cipher, the handshake takes a round trip, and
//! the end is announced. [`ToyRecords`] is the engine's side, [`Seal`] that of a client or of an application.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use flash_engine::limits::RECORD_BYTES_MAX;
use flash_engine::{Handshake, ReceiveCall, RecordLayer, SendCall, TlsVersion};

use super::trace::digest;

/// Kinds of records, numbered as in TLS.
const END: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
/// Kind, length and checksum.
const HEAD_BYTES: usize = 1 + 2 + 8;
/// The server receives this many bytes at once: fewer than a record can have.
const RECEIVE_BYTES: usize = 3_001;
/// The longest record of a client.
const CLIENT_RECORD_BYTES: usize = 700;

const HELLO: &[u8] = b"hello";
const REPLY: &[u8] = b"hello too";
const FINISHED: &[u8] = b"finished";
const TICKET: &[u8] = b"a ticket";

fn encode(kind: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let payload: Vec<u8> = pieces.concat().iter().map(|byte| byte ^ 0x55).collect();
    let mut record = vec![kind];
    record.extend((payload.len() as u16).to_be_bytes());
    record.extend(digest(&payload).to_be_bytes());
    record.extend(payload);
    record
}

/// Takes the first record out, if it is complete.
fn decode(bytes: &mut Vec<u8>) -> Result<Option<(u8, Vec<u8>)>, &'static str> {
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
    if !(END..=DATA).contains(&head[0]) {
        return Err("a record of no kind");
    }
    let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
    let Some(payload) = rest.get(..length) else { return Ok(None) };
    if head[3..] != digest(payload).to_be_bytes() {
        return Err("a record with a wrong checksum");
    }
    let record = (head[0], payload.iter().map(|byte| byte ^ 0x55).collect());
    bytes.drain(..HEAD_BYTES + length);
    Ok(Some(record))
}

/// The engine's side.
#[derive(Debug, Default)]
pub(crate) struct ToyRecords {
    /// Whether the engine is the client.
    is_client: bool,
    ciphertext: Vec<u8>,
    plaintext: VecDeque<u8>,
    unsent: VecDeque<Vec<u8>>,
    /// Messages of the handshake that were received.
    messages: usize,
    has_ended: bool,
    has_announced: bool,
    has_failed: bool,
    is_http2: bool,
}

impl ToyRecords {
    /// One whose client and server agree on HTTP/2.
    pub(crate) fn of_http2() -> Self {
        Self { is_http2: true, ..Self::default() }
    }

    /// One with which the engine is the client. Its first message waits to be sent.
    pub(crate) fn of_client() -> Self {
        let unsent = VecDeque::from([encode(HANDSHAKE, &[HELLO])]);
        Self { is_client: true, unsent, ..Self::default() }
    }

    fn process(&mut self, kind: u8, payload: Vec<u8>) -> Result<(), ()> {
        match (kind, self.messages) {
            (HANDSHAKE, 0) if !self.is_client && payload == HELLO => {
                self.unsent.push_back(encode(HANDSHAKE, &[REPLY]));
            }
            (HANDSHAKE, 1) if !self.is_client && payload == FINISHED => {
                self.unsent.push_back(encode(HANDSHAKE, &[TICKET]));
            }
            (HANDSHAKE, 0) if self.is_client && payload == REPLY => {
                self.unsent.push_back(encode(HANDSHAKE, &[FINISHED]));
            }
            (HANDSHAKE, 1) if self.is_client && payload == TICKET => {}
            (DATA, 2) => self.plaintext.extend(payload),
            (END, 2) => self.has_ended = true,
            _ => return Err(()),
        }
        self.messages += usize::from(kind == HANDSHAKE);
        Ok(())
    }
}

impl RecordLayer for ToyRecords {
    fn is_handshaking(&self) -> bool {
        // A client has nothing to wait for after its last message.
        self.messages < if self.is_client { 1 } else { 2 }
    }

    fn handshake(&self) -> Option<Handshake> {
        (!self.is_handshaking()).then_some(Handshake {
            is_resumed: false,
            is_http2: self.is_http2,
            version: TlsVersion::V1_3,
        })
    }

    fn pull(&mut self, receive: &mut ReceiveCall<'_>) -> io::Result<usize> {
        assert!(self.plaintext.is_empty(), "decrypted bytes are taken before more is received");
        assert!(!self.has_failed, "nothing is received after a failure");
        let mut buffer = [0; RECEIVE_BYTES];
        let received = receive(&mut buffer)?;
        self.ciphertext.extend_from_slice(&buffer[..received]);
        loop {
            let failed = match decode(&mut self.ciphertext) {
                Ok(None) => return Ok(received),
                Ok(Some((kind, payload))) => self.process(kind, payload).is_err(),
                Err(_) => true,
            };
            if failed {
                self.has_failed = true;
                self.unsent.push_back(encode(END, &[b"alert"]));
                return Err(ErrorKind::InvalidData.into());
            }
        }
    }

    fn read(&mut self, plaintext: &mut [u8]) -> usize {
        let taken = plaintext.len().min(self.plaintext.len());
        for (place, byte) in plaintext.iter_mut().zip(self.plaintext.drain(..taken)) {
            *place = byte;
        }
        taken
    }

    fn has_plaintext(&self) -> bool {
        !self.plaintext.is_empty()
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn write(&mut self, first: &[u8], second: &[u8]) {
        let length = first.len() + second.len();
        assert!(length > 0 && length <= RECORD_BYTES_MAX, "a record of {length} bytes");
        assert!(!self.is_handshaking() && !self.has_announced, "data outside its time");
        self.unsent.push_back(encode(DATA, &[first, second]));
    }

    fn end(&mut self) {
        assert!(!self.is_handshaking() && !self.has_announced, "an end outside its time");
        self.has_announced = true;
        if !self.has_failed {
            self.unsent.push_back(encode(END, &[]));
        }
    }

    fn wants_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    fn push(&mut self, send: &mut SendCall<'_>) -> io::Result<usize> {
        let pieces: Vec<IoSlice<'_>> = self.unsent.iter().map(|record| IoSlice::new(record)).collect();
        let sent = send(&pieces)?;
        let mut left = sent;
        while left > 0 {
            let Some(record) = self.unsent.front_mut() else { panic!("more was sent than there was") };
            let taken = left.min(record.len());
            record.drain(..taken);
            left -= taken;
            if record.is_empty() {
                self.unsent.pop_front();
            }
        }
        Ok(sent)
    }
}

/// The side of a client or of an application.
#[derive(Debug, Default)]
pub(crate) struct Seal {
    is_application: bool,
    /// Ciphertext of the engine that is not a complete record yet.
    ciphertext: Vec<u8>,
    /// Pieces that wait for the engine's part of the handshake.
    waiting: Vec<Vec<u8>>,
    ends: bool,
    messages: usize,
    /// Whether the engine has announced the end.
    pub(crate) has_ended: bool,
}

impl Seal {
    /// That of an application.
    pub(crate) fn of_application() -> Self {
        Self { is_application: true, ..Self::default() }
    }

    /// The first bytes of the connection.
    pub(crate) fn hello() -> Vec<u8> {
        encode(HANDSHAKE, &[HELLO])
    }

    /// Whether the handshake is complete.
    pub(crate) fn is_established(&self) -> bool {
        self.messages == 2
    }

    /// Whether bytes or the end wait for the server's part of the handshake.
    pub(crate) fn waits(&self) -> bool {
        !self.waiting.is_empty() || self.ends
    }

    /// Encrypts a piece. Returns the pieces to be sent now.
    pub(crate) fn send(&mut self, plaintext: &[u8]) -> Vec<Vec<u8>> {
        let records: Vec<Vec<u8>> =
            plaintext.chunks(CLIENT_RECORD_BYTES).map(|piece| encode(DATA, &[piece])).collect();
        let mut bytes = records.concat();
        // Some records are split, and their rest comes later.
        let rest = if bytes.len() % 3 == 0 { bytes.split_off(bytes.len() - bytes.len() / 4) } else { vec![] };
        self.or_wait(vec![bytes, rest])
    }

    /// Announces the end. Returns the pieces to be sent now.
    pub(crate) fn end(&mut self) -> Vec<Vec<u8>> {
        self.ends = !self.may_send();
        self.or_wait(vec![encode(END, &[])])
    }

    fn may_send(&self) -> bool {
        self.messages >= if self.is_application { 2 } else { 1 }
    }

    fn or_wait(&mut self, mut pieces: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        if !self.may_send() {
            self.waiting.append(&mut pieces);
        }
        pieces
    }

    /// Takes bytes of the engine. Returns plaintext, the pieces to be sent now, and whether the end follows them.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>, bool) {
        assert!(!self.has_ended, "bytes after the end was announced");
        self.ciphertext.extend_from_slice(bytes);
        let (mut plaintext, mut pieces, mut ends) = (Vec::new(), Vec::new(), false);
        while let Some((kind, payload)) = decode(&mut self.ciphertext).expect("valid records of the engine") {
            match (kind, self.messages) {
                (HANDSHAKE, 0) if !self.is_application && payload == REPLY => {
                    pieces.append(&mut self.last_message(FINISHED));
                    ends = std::mem::take(&mut self.ends);
                }
                (HANDSHAKE, 1) if !self.is_application && payload == TICKET => {}
                (HANDSHAKE, 0) if self.is_application && payload == HELLO => {
                    pieces.push(encode(HANDSHAKE, &[REPLY]));
                }
                (HANDSHAKE, 1) if self.is_application && payload == FINISHED => {
                    pieces.append(&mut self.last_message(TICKET));
                    ends = std::mem::take(&mut self.ends);
                }
                (DATA, 2) => plaintext.extend(payload),
                (END, _) => self.has_ended = true,
                other => panic!("the engine's record {other:?}"),
            }
            self.messages += usize::from(kind == HANDSHAKE);
        }
        (plaintext, pieces, ends)
    }

    /// The last message of the handshake, along with the first data, and everything else that waits.
    fn last_message(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let message = encode(HANDSHAKE, &[message]);
        let first = if self.waiting.is_empty() { vec![] } else { self.waiting.remove(0) };
        let mut pieces = vec![[message, first].concat()];
        pieces.append(&mut self.waiting);
        pieces
    }

    /// Whether a record of the engine is incomplete.
    pub(crate) fn is_cut(&self) -> bool {
        !self.ciphertext.is_empty()
    }
}
