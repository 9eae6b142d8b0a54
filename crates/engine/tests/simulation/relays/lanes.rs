//! Clients of several streams in worlds with routes: the requests of one connection are on their way at once. Each request
//! has a [`Visitor`](super::visitor::Visitor) of its own, whose lane cuts its answer out of the frames of the connection.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::machine::Client;

/// Kinds of frames from the server: the head and the data of an answer, its end, and its end before it is complete.
const HEAD: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const ABORT: u8 = 4;
/// Stream, kind and length.
const FRAME_HEAD_BYTES: usize = 7;

/// The answers of a connection.
#[derive(Debug, Default)]
struct Demux {
    inbox: Vec<u8>,
    streams: BTreeMap<u16, Stream>,
}

#[derive(Debug, Default)]
struct Stream {
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
#[derive(Debug)]
pub(super) struct Lane {
    stream: u16,
    demux: Rc<RefCell<Demux>>,
}

/// The lanes of a new connection.
pub(super) fn lanes(count: u16) -> Vec<Lane> {
    let demux = Rc::new(RefCell::new(Demux::default()));
    (0..count).map(|stream| Lane { stream, demux: Rc::clone(&demux) }).collect()
}

impl Lane {
    /// One lane of each connection counts for it.
    pub(super) fn is_first(&self) -> bool {
        self.stream == 0
    }

    /// The frame of a request.
    pub(super) fn frame(&self, request: &[u8]) -> Vec<u8> {
        let length = request.len() as u32;
        [&self.stream.to_be_bytes()[..], &length.to_be_bytes(), request].concat()
    }

    /// Takes what has come of the answer, and how it has ended.
    pub(super) fn take(&self, client: &Client) -> (Vec<u8>, Option<LaneEnd>) {
        let mut demux = self.demux.borrow_mut();
        demux.inbox.extend(client.take_bytes());
        while demux.take_frame() {}
        let stream = demux.streams.entry(self.stream).or_default();
        (std::mem::take(&mut stream.bytes), stream.end)
    }
}

impl Demux {
    /// Takes the frame at the front, if it is complete.
    fn take_frame(&mut self) -> bool {
        let Some([high, low, kind, length @ ..]) = self.inbox.first_chunk::<FRAME_HEAD_BYTES>() else {
            return false;
        };
        let (number, kind) = (u16::from_be_bytes([*high, *low]), *kind);
        let end = FRAME_HEAD_BYTES + u32::from_be_bytes(*length) as usize;
        if self.inbox.len() < end {
            return false;
        }
        let stream = self.streams.entry(number).or_default();
        assert_eq!(stream.end, None, "property: relay answers: a frame of stream {number} after its end");
        stream.bytes.extend_from_slice(&self.inbox[FRAME_HEAD_BYTES..end]);
        match kind {
            HEAD | DATA => {}
            END => stream.end = Some(LaneEnd::Whole),
            ABORT => stream.end = Some(LaneEnd::Aborted),
            kind => panic!("property: relay answers: a frame of kind {kind}"),
        }
        self.inbox.drain(..end);
        true
    }
}
