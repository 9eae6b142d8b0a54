//! A stream of HTTP/2 and its exchange. Called by [`h2`](super).

use std::collections::VecDeque;
use std::sync::Arc;

use flash_http::h2::{Priority, Receiving, Window};
use flash_http::response::Status;

use crate::exchange::{Inputs, Sending, State};
use crate::handler::{About, FileRequestBuf, Response};
use crate::head_changes::HeadChanges;
use crate::limits::{H2_CLOSED_STREAMS_MAX, H2_STREAM_WINDOW_BYTES};
use crate::requester::Requester;
use crate::slab::{ClientNumber, ExchangeKey};

/// A stream whose answer is not complete.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) key: ExchangeKey,
    pub(super) requester: Requester,
    pub(super) priority: Priority,
    /// How many bytes of the answer the client takes.
    pub(super) window: Window,
    pub(super) receiving: Receiving,
    /// How many bytes the client may send, and how many of those that it has sent it gets back with the next update.
    pub(super) receive_window: Window,
    pub(super) credit_bytes: usize,
    pub(super) state: StreamState,
    /// How rules change the head of its answer.
    pub(super) changes: Option<Arc<HeadChanges>>,
    /// Whether nothing can be done for it before something happens.
    pub(super) is_blocked: bool,
    /// Whether the next bytes of the answer wait for a window.
    pub(super) is_stalled: bool,
    /// When it was served last, in turns of the connection: streams that share take turns.
    pub(super) served: u64,
}

/// The wire's part in a stream.
#[derive(Debug)]
pub(super) enum StreamState {
    /// The request body has no meaning and is discarded; the exchange waits for its end.
    Discarding { read_bytes: u64, due_ms: u64 },
    /// The exchange waits for a job before its answer can begin.
    Pending,
    /// The exchange's answer is being sent.
    Sending(Box<StreamAnswer>),
    /// An upstream answers.
    Relaying(Box<StreamRelay>),
}

/// An answer under way.
#[derive(Debug)]
pub(super) struct StreamAnswer {
    pub(super) status: Status,
    /// The rest of the head, until it is sent: with the first bytes of the body, so that an answer that finds none of them can
    /// still become another one.
    pub(super) head: Option<(About, Option<u64>)>,
    pub(super) body_bytes: u64,
}

/// The data of a relayed request and of its answer.
#[derive(Debug, Default)]
pub(super) struct StreamRelay {
    /// Bytes of the request body that the server has not taken.
    pub(super) body: VecDeque<u8>,
    /// Whether there was no room for more of them.
    pub(super) is_stopped: bool,
    /// Bytes of the answer that are not framed, and how many of them are.
    unsent: Vec<u8>,
    unsent_at: usize,
    /// Whether the end of the answer is known and not framed.
    pub(super) is_ending: bool,
    /// Whether the end was framed.
    pub(super) is_over: bool,
}

impl Stream {
    pub(super) fn new(
        (id, requester): (u32, Requester),
        key: ExchangeKey,
        priority: Priority,
        state: StreamState,
    ) -> Self {
        Self {
            id,
            requester,
            key,
            priority,
            window: Window::new(0),
            receiving: Receiving::Ended,
            receive_window: Window::new(H2_STREAM_WINDOW_BYTES),
            credit_bytes: 0,
            state,
            changes: None,
            is_blocked: false,
            is_stalled: false,
            served: 0,
        }
    }

    /// Begins to send an answer; `file` is its request if a file answers.
    pub(super) fn begin_answer<F>(
        &mut self,
        mut response: Response<F>,
        file: Option<FileRequestBuf>,
    ) -> State<F> {
        response.follow_rules(self.changes.as_deref());
        let Response { status, about, length, body, tries, .. } = response;
        let outgoing = StreamAnswer { status, head: Some((about, length)), body_bytes: 0 };
        self.state = StreamState::Sending(Box::new(outgoing));
        State::Sending(Sending::new(body, file, tries))
    }

    /// Whether bytes of an answer may wait for their turn.
    pub(super) fn is_answering(&self) -> bool {
        matches!(self.state, StreamState::Sending(_) | StreamState::Relaying(_))
    }

    /// The status and the body bytes of the part of the answer that was sent.
    pub(super) fn sent(&self) -> Option<(Status, u64)> {
        match &self.state {
            StreamState::Sending(outgoing) if outgoing.head.is_none() => {
                Some((outgoing.status, outgoing.body_bytes))
            }
            _ => None,
        }
    }

    /// Gives up the request body that is held.
    pub(super) fn drop_body(&mut self, inputs: &mut Inputs, client: ClientNumber) {
        if let StreamState::Relaying(frames) = &mut self.state {
            inputs.give_back(client, frames.body.len());
            frames.body = VecDeque::new();
        }
    }
}

impl StreamRelay {
    pub(super) fn unsent(&self) -> &[u8] {
        &self.unsent[self.unsent_at..]
    }

    pub(super) fn keep(&mut self, data: &[u8]) {
        self.unsent.extend_from_slice(data);
    }

    /// Notes that this many of the unsent bytes are framed.
    pub(super) fn framed(&mut self, bytes: usize) {
        self.unsent_at += bytes;
        if self.unsent_at == self.unsent.len() {
            self.unsent = Vec::new();
            self.unsent_at = 0;
        }
    }
}

/// Streams that have ended not long ago: frames can still come that the client has sent before it knew.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams(VecDeque<(u32, bool)>);

impl ClosedStreams {
    /// Notes the end of a stream, and whether this server has reset it.
    pub(super) fn note(&mut self, id: u32, was_reset: bool) {
        if self.0.len() == H2_CLOSED_STREAMS_MAX {
            self.0.pop_front();
        }
        self.0.push_back((id, was_reset));
    }

    /// Whether this server has reset the stream; None if its end is not known.
    pub(super) fn was_reset(&self, id: u32) -> Option<bool> {
        self.0.iter().rev().find(|closed| closed.0 == id).map(|closed| closed.1)
    }
}
