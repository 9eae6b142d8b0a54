//! A stream of the tests' protocol, its frames, and the client of a relayed request there. Called by [`streams`](super).

use std::collections::VecDeque;

use flash_http::request::Request;
use flash_http::response::{HeadWriter, Status};

use crate::exchange::Turn;
use crate::exchange::relay::{BodyPart, RelayClient};
use crate::handler::RelayedHead;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::Gone;

/// Maximum number of bytes of data in a frame.
pub(super) const DATA_BYTES_MAX: usize = 16 * 1024;

/// Kinds of frames.
pub(super) const HEAD: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const END: u8 = 3;
pub(super) const ABORT: u8 = 4;

/// A stream and its exchange.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: u16,
    pub(super) key: ExchangeKey,
    /// The status of the answer once its head was framed, and the number of body bytes framed.
    pub(super) answer: Option<(Status, u64)>,
    /// The rest of the body of a request that an upstream answers.
    pub(super) body: VecDeque<u8>,
    /// Frames of a relayed answer that are not among those of the connection yet.
    pub(super) out: Vec<u8>,
}

impl Lane {
    pub(super) fn new(stream: u16, key: ExchangeKey) -> Self {
        Self { stream, key, answer: None, body: VecDeque::new(), out: Vec::new() }
    }
}

/// The client of a relayed request.
pub(super) struct StreamClient<'c> {
    pub(super) lane: &'c mut Lane,
    /// The frames of the connection.
    pub(super) out: &'c mut Vec<u8>,
    pub(super) is_half_closed: bool,
}

impl<M: Machine> RelayClient<M> for StreamClient<'_> {
    fn receive(&mut self, turn: &mut Turn<'_, M>, buffer: &mut [u8]) -> BodyPart {
        let bytes = self.lane.body.len().min(DATA_BYTES_MAX);
        turn.budget.bytes = turn.budget.bytes.saturating_sub(bytes);
        self.lane.body.drain(..bytes).zip(buffer).for_each(|(byte, place)| *place = byte);
        BodyPart::Data { bytes, is_last: self.lane.body.is_empty() }
    }

    fn invite(&mut self, _: &mut Turn<'_, M>) -> Result<(), Gone> {
        Ok(())
    }

    fn is_half_closed(&self) -> bool {
        self.is_half_closed
    }

    fn is_writable(&self) -> bool {
        self.out.is_empty()
    }

    fn begin(
        &mut self,
        turn: &mut Turn<'_, M>,
        _: &Request<'_>,
        RelayedHead { answer, .. }: RelayedHead<'_>,
    ) {
        turn.head.clear();
        let mut head = HeadWriter::start(
            turn.head,
            answer.status,
            turn.desk.core.rules.server_field,
            &turn.desk.core.clock.date,
        );
        if let Some(bytes) = answer.length_bytes {
            head.length(bytes);
        }
        head.raw(&answer.fields);
        head.finish(false, 1);
        frame(&mut self.lane.out, self.lane.stream, HEAD, turn.head);
    }

    fn frame(&mut self, data: &[u8]) {
        for piece in data.chunks(DATA_BYTES_MAX) {
            frame(&mut self.lane.out, self.lane.stream, DATA, piece);
        }
    }

    fn pass(&mut self, _: &mut Turn<'_, M>, data: &[u8]) -> Result<(), Gone> {
        RelayClient::<M>::frame(self, data);
        Ok(())
    }

    fn end(&mut self) {
        frame(&mut self.lane.out, self.lane.stream, END, &[]);
    }

    fn unsent_bytes(&self) -> usize {
        self.lane.out.len()
    }

    /// Frames stay whole, so it can be more than asked for.
    fn send(&mut self, _: &mut Turn<'_, M>, _: usize, _: u64) -> Result<usize, Gone> {
        self.out.append(&mut self.lane.out);
        Ok(self.out.len())
    }
}

/// Appends a frame.
pub(super) fn frame(out: &mut Vec<u8>, stream: u16, kind: u8, payload: &[u8]) {
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}
