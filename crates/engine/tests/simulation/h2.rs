//! Clients of HTTP/2 in the simulation: their frames, and what they do besides asking. They open streams that they reset at once,
//! send PING, priorities and frames of unknown types, split header blocks, and have windows of any size. All of it is
//! decided by the number of the client and of the request, so it does not change what other clients do.

use std::collections::VecDeque;

use crate::ask::Ask;
use crate::machine::h2::{
    CONTINUATION, END_HEADERS, END_STREAM, H2Codec, HEADERS, PING, PRIORITY_UPDATE, frame,
};

const WHOLE_WINDOW: u32 = 0x7fff_ffff;
/// The difference between the largest window and that of a new connection.
const REST_OF_WINDOW: u32 = WHOLE_WINDOW - 65_535;

/// The state of a client.
pub(crate) struct H2Peer {
    pub(crate) codec: H2Codec,
    /// Which client it is: decides what it does.
    kind: u64,
    opened: u64,
    /// The streams of requests that are to be answered, with the numbers of their requests.
    asked: Vec<(u32, u16)>,
    /// PINGs that are not answered, each with the first stream behind it.
    pings: VecDeque<([u8; 8], u32)>,
}

impl H2Peer {
    /// A client, and what it sends first.
    pub(crate) fn new(kind: u64) -> (Self, Vec<u8>) {
        let mut codec = H2Codec::new();
        let mut first = codec.preface(match kind % 4 {
            0 => 1_000,
            1 => 30_000,
            _ => WHOLE_WINDOW,
        });
        codec.grows_windows = kind % 4 < 2;
        if kind % 4 > 1 {
            first.extend(codec.grow(0, REST_OF_WINDOW));
        }
        if kind.is_multiple_of(5) {
            // A table for few fields.
            first.extend(codec.table_size(270));
        }
        (Self { codec, kind, opened: 0, asked: Vec::new(), pings: VecDeque::new() }, first)
    }

    /// Whether its windows can make the server wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.codec.grows_windows
    }

    /// The frames of a request.
    pub(crate) fn open(&mut self, ask: &Ask) -> Vec<u8> {
        self.opened += 1;
        let dice = self.kind.wrapping_mul(7) + self.opened;
        let mut bytes = Vec::new();
        if dice.is_multiple_of(3) {
            let data = self.opened.to_be_bytes();
            self.pings.push_back((data, self.codec.next_stream));
            bytes.extend(frame(PING, 0, 0, &data));
            bytes.extend(frame(0x55, 0xff, 7, b"unknown"));
        }
        if dice.is_multiple_of(7) {
            let (stream, head) = self.codec.open_words(&ask.bytes, true);
            bytes.extend(head);
            bytes.extend(self.codec.reset(stream));
        }
        if dice.is_multiple_of(5) {
            // A request that is less urgent than others has no promise.
            let value: &[u8] = if self.is_slow() { b"u=5, i" } else { b"i" };
            let update = [&self.codec.next_stream.to_be_bytes()[..], value].concat();
            bytes.extend(frame(PRIORITY_UPDATE, 0, 0, &update));
        }
        if self.kind % 4 == 1 && dice.is_multiple_of(6) {
            // Smaller than what is on its way.
            bytes.extend(self.codec.settings(500 + (dice % 40_000) as u32));
        }
        let (stream, head) = self.codec.open_words(&ask.bytes, true);
        self.asked.push((stream, ask.stream));
        if dice.is_multiple_of(4) {
            let (first, rest) = head[9..].split_at((head.len() - 9) / 2);
            bytes.extend(frame(HEADERS, END_STREAM, stream, first));
            bytes.extend(frame(CONTINUATION, END_HEADERS, stream, rest));
        } else {
            bytes.extend(head);
        }
        bytes
    }

    pub(crate) fn is_asked(&self, stream: u32) -> bool {
        self.asked.iter().any(|asked| asked.0 == stream)
    }

    /// The number of the request on a stream.
    pub(crate) fn number(&self, stream: u32) -> u16 {
        self.asked.iter().find(|asked| asked.0 == stream).map_or(0, |asked| asked.1)
    }

    pub(crate) fn take_pong(&mut self, data: [u8; 8]) -> Result<(), String> {
        match self.pings.pop_front() {
            Some((sent, _)) if sent == data => Ok(()),
            other => Err(format!("a PONG of {data:?} for {other:?}")),
        }
    }

    /// The server answers PINGs before what comes behind them.
    pub(crate) fn check_pongs(&self, stream: u32) -> Result<(), String> {
        match self.pings.front() {
            Some((_, first)) if *first <= stream => Err("an answer before that to a PING".into()),
            _ => Ok(()),
        }
    }
}
