//! One connection of a generator: sends a request, receives its response.
//!
//! A pool owns it and decides which requests it sends; it knows nothing of other connections and reads no
//! clock.

use std::io;

use super::pool::PooledConnection;
use super::request::{Expected, Kind, Request};
use super::response::{Head, Response};
use super::transport::{Received, Transport};
use crate::record::Outcome;
use crate::workload::Catalogue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There may be more to receive at once.
    Again,
    /// Nothing more now.
    Wait,
    /// The answer is complete: what came of it, and whether the connection can be used again.
    Answered { outcome: Outcome, reusable: bool },
    /// The connection is over, and any request on it has failed so.
    Ended(Outcome),
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) transport: Transport,
    /// The request that is on it; in a closed loop also the one that it is being made for.
    pub(crate) request: Option<Request>,
    pub(crate) requests_sent: u32,
    /// For a slow reader: when it may continue, and the step that it has read by then.
    pub(crate) pace_ns: u64,
    pub(crate) held: Option<Step>,
    /// Whether timers are set for it (see `timers`).
    pub(crate) pace_timer: bool,
    pub(crate) abort_timer: bool,
    response: Response,
    expected: Expected,
    content_wrong: bool,
}

impl Connection {
    pub(crate) fn new(transport: Transport) -> Self {
        Self {
            transport,
            request: None,
            requests_sent: 0,
            pace_ns: 0,
            held: None,
            pace_timer: false,
            abort_timer: false,
            response: Response::default(),
            expected: Expected { is_head: false, is_file: true, is_any_success: false },
            content_wrong: false,
        }
    }

    /// Whether a request that fails now may be sent again elsewhere: the server closed a
    /// connection that had been idle, and no byte of an answer came (RFC 9112 §9.3.1).
    pub(crate) fn was_stale(&self) -> bool {
        self.requests_sent > 1 && !self.response.has_begun()
    }

    /// Sends `bytes`, which ask for `request`, and the body that its kind has apart.
    ///
    /// Errors: the connection is over.
    pub(crate) fn send_request(&mut self, request: Request, (bytes, kind): (&[u8], &Kind)) -> io::Result<()> {
        self.request = Some(request);
        self.requests_sent = self.requests_sent.saturating_add(1);
        self.expected = kind.expected;
        self.response.clear(kind.expected.is_head);
        self.content_wrong = false;
        self.transport.send(bytes)?;
        kind.body_apart().map_or(Ok(()), |body| self.transport.send_body(body))
    }

    /// Receives once into `buffer`; `scratch` is for what is encrypted.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        scratch: &mut [u8],
        catalogue: &Catalogue,
        verify: bool,
    ) -> Step {
        let received = self.transport.receive(buffer, scratch);
        let pause = |received: Received| if received.may_be_more { Step::Again } else { Step::Wait };
        let Some(request) = &mut self.request else {
            // No request was sent: it ends, or what comes belongs to nothing.
            return match received {
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => Step::Wait,
                Ok(received @ Received { bytes: 0, is_end: false, .. }) => pause(received),
                _ => Step::Ended(Outcome::Garbage),
            };
        };
        let path_id = request.record.path_id;
        let received = match received {
            Ok(Received { is_end: true, .. }) => {
                return match self.response.end() {
                    Some(head) => self.judge(head, path_id, catalogue),
                    None => Step::Ended(Outcome::ClosedEarly),
                };
            }
            Ok(received) => received,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Step::Ended(Outcome::Garbage),
            Err(_) => return Step::Ended(Outcome::Reset),
        };
        let (content_wrong, is_file) = (&mut self.content_wrong, self.expected.is_file);
        let fed = self.response.feed(&buffer[..received.bytes], |head, offset_bytes, bytes| {
            if verify && is_file && head.status == 200 {
                *content_wrong |= !catalogue.content_matches(path_id, offset_bytes, bytes);
            }
        });
        request.record.status = self.response.status();
        request.record.body_bytes = self.response.body_bytes();
        match fed {
            Err(_) => Step::Ended(Outcome::Garbage),
            // More bytes make a new edge; but the end of input may be there already, without an edge of its own.
            Ok(None) if !self.transport.hang_up => pause(received),
            Ok(None) => Step::Again,
            Ok(Some(head)) => self.judge(head, path_id, catalogue),
        }
    }

    /// The outcome of a whole response.
    fn judge(&self, head: Head, path_id: u32, catalogue: &Catalogue) -> Step {
        let length_wrong =
            || catalogue.file_bytes(path_id).is_some_and(|bytes| bytes != self.response.body_bytes());
        let outcome = self.expected.judge(head.status, length_wrong, self.content_wrong);
        Step::Answered {
            outcome,
            reusable: head.keep_alive && !self.transport.hang_up && !self.transport.has_unsent(),
        }
    }

    pub(crate) fn answer_has_begun(&self) -> bool {
        self.response.has_begun()
    }
}

impl PooledConnection for Connection {
    fn transport(&mut self) -> &mut Transport {
        &mut self.transport
    }

    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}
