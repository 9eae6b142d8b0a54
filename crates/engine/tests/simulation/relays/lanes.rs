//! Clients of HTTP/2 in worlds with routes: the requests of one connection are on their way at once. Each request
//! has a [`Visitor`](super::visitor::Visitor) of its own, whose lane takes its answer out of the frames of the connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::machine::Client;
use crate::machine::h2::{DATA, END_STREAM, H2Codec, Heard, frame};

/// The window of a new connection grows by this, so that no answer waits for its client.
const WINDOW_BYTES: u32 = 0x3fff_ffff;

/// A connection, and what has come of each answer.
struct Demux {
    codec: H2Codec,
    streams: BTreeMap<u32, Answer>,
}

#[derive(Debug, Default)]
struct Answer {
    bytes: Vec<u8>,
    end: Option<LaneEnd>,
}

/// How the answer of a lane has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneEnd {
    Whole,
    Aborted,
}

/// One stream of a connection.
pub(super) struct Lane {
    is_first: bool,
    /// The number of the stream, once it is open.
    stream: Cell<Option<u32>>,
    demux: Rc<RefCell<Demux>>,
}

/// The lanes of a new connection.
pub(super) fn lanes(client: &Client, count: u16) -> Vec<Lane> {
    let mut codec = H2Codec::new();
    client.send([codec.preface(WINDOW_BYTES), codec.grow(0, WINDOW_BYTES)].concat());
    let demux = Rc::new(RefCell::new(Demux { codec, streams: BTreeMap::new() }));
    let lane = |number| Lane { is_first: number == 0, stream: Cell::new(None), demux: Rc::clone(&demux) };
    (0..count).map(lane).collect()
}

impl Lane {
    /// One lane of each connection counts for it.
    pub(super) fn is_first(&self) -> bool {
        self.is_first
    }

    /// The frames of a request in the words of HTTP/1, whose head and body are whole.
    pub(super) fn frames(&self, request: &[u8]) -> Vec<u8> {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
        let (head, body) = request.split_at(end);
        let (stream, mut bytes) = self.demux.borrow_mut().codec.open_words(head, body.is_empty());
        self.stream.set(Some(stream));
        if !body.is_empty() {
            bytes.extend(frame(DATA, END_STREAM, stream, body));
        }
        bytes
    }

    /// Takes what has come of the answer, and how it has ended.
    pub(super) fn take(&self, client: &Client) -> (Vec<u8>, Option<LaneEnd>) {
        let mut demux = self.demux.borrow_mut();
        demux.read(&client.take_bytes());
        let replies = std::mem::take(&mut demux.codec.replies);
        if !replies.is_empty() && !client.is_closed() {
            client.send(replies);
        }
        let Some(stream) = self.stream.get() else { return (Vec::new(), None) };
        let answer = demux.streams.entry(stream).or_default();
        (std::mem::take(&mut answer.bytes), answer.end)
    }
}

impl Demux {
    fn read(&mut self, bytes: &[u8]) {
        let heard = self.codec.read(bytes).unwrap_or_else(|why| panic!("property: relay answers: {why}"));
        for heard in heard {
            match heard {
                Heard::Head(stream, head) => self.add(stream, head.as_bytes()),
                Heard::Data(stream, data) => self.add(stream, &data),
                Heard::End(stream) => self.end(stream, LaneEnd::Whole),
                // The end of a stream whose request was not needed whole.
                Heard::Reset(_, 0) => {}
                Heard::Reset(stream, _) => self.end(stream, LaneEnd::Aborted),
                Heard::GoAway(..)
                | Heard::Pong(_)
                | Heard::Ping(_)
                | Heard::WindowUpdate(..)
                | Heard::Settings
                | Heard::SettingsAck => {}
            }
        }
    }

    fn add(&mut self, stream: u32, bytes: &[u8]) {
        self.streams.entry(stream).or_default().bytes.extend_from_slice(bytes);
    }

    fn end(&mut self, stream: u32, end: LaneEnd) {
        self.streams.entry(stream).or_default().end = Some(end);
    }
}
