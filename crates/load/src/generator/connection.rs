//! One connection of a generator: sends a request, receives its response.
//!
//! A pool owns it and decides what it asks; it knows nothing of other connections and reads no
//! clock.

use std::io;

use flash_prompt::OwnedFd;
use flash_prompt::net;

use super::request::Request;
use super::response::{Head, Response};
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
    fd: OwnedFd,
    /// Not established yet.
    pub(crate) connecting: bool,
    /// The request that is on it; in a closed loop also the one that it is being made for.
    pub(crate) request: Option<Request>,
    /// The peer has closed its side: what is left to receive is the last.
    pub(crate) hang_up: bool,
    /// The generator knows that there is something to receive.
    pub(crate) listed: bool,
    pub(crate) asked: u32,
    /// For a slow reader: when it may continue, and the step that it has read by then.
    pub(crate) pace_ns: u64,
    pub(crate) held: Option<Step>,
    /// Whether timers are set for it (see `timers`).
    pub(crate) pace_timer: bool,
    pub(crate) abort_timer: bool,
    /// The part of the request that could not be sent yet.
    unsent: Vec<u8>,
    response: Response,
    content_wrong: bool,
}

impl Connection {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            connecting: true,
            request: None,
            hang_up: false,
            listed: false,
            asked: 0,
            pace_ns: 0,
            held: None,
            pace_timer: false,
            abort_timer: false,
            unsent: Vec::new(),
            response: Response::default(),
            content_wrong: false,
        }
    }

    /// Whether a request can be sent on it.
    pub(crate) fn is_idle(&self) -> bool {
        !self.connecting && self.request.is_none()
    }

    pub(crate) fn connected(&self) -> io::Result<()> {
        net::take_error(&self.fd)
    }

    /// Whether a request that fails now may be sent again elsewhere: the server closed a
    /// connection that had been idle, and no byte of an answer came (RFC 9112 §9.3.1).
    pub(crate) fn was_stale(&self) -> bool {
        self.asked > 1 && !self.response.has_begun()
    }

    /// Sends `bytes`, which ask for `request`.
    ///
    /// Errors: the connection is over.
    pub(crate) fn ask(&mut self, request: Request, bytes: &[u8]) -> io::Result<()> {
        self.request = Some(request);
        self.asked = self.asked.saturating_add(1);
        self.response.clear();
        self.content_wrong = false;
        let sent_bytes = send_some(&self.fd, bytes)?;
        self.unsent.extend_from_slice(&bytes[sent_bytes..]);
        Ok(())
    }

    /// Sends what is left of the request.
    ///
    /// Errors: the connection is over.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.unsent.is_empty() {
            let sent_bytes = send_some(&self.fd, &self.unsent)?;
            self.unsent.drain(..sent_bytes);
        }
        Ok(())
    }

    pub(crate) fn receive(&mut self, buffer: &mut [u8], catalogue: &Catalogue, verify: bool) -> Step {
        let received = net::recv(&self.fd, buffer);
        let Some(request) = &mut self.request else {
            // Nothing was asked: it ends, or what comes belongs to nothing.
            let wait = matches!(&received, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
            return if wait { Step::Wait } else { Step::Ended(Outcome::Garbage) };
        };
        let path_id = request.record.path_id;
        let length = match received {
            Ok(0) => {
                return match self.response.end() {
                    Some(head) => self.judge(head, path_id, catalogue),
                    None => Step::Ended(Outcome::ClosedEarly),
                };
            }
            Ok(length) => length,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
            Err(_) => return Step::Ended(Outcome::Reset),
        };
        let content_wrong = &mut self.content_wrong;
        let fed = self.response.feed(&buffer[..length], |head, offset_bytes, bytes| {
            if verify && head.status == 200 {
                *content_wrong |= !catalogue.content_matches(path_id, offset_bytes, bytes);
            }
        });
        request.record.status = self.response.status();
        request.record.body_bytes = self.response.body_bytes();
        match fed {
            Err(_) => Step::Ended(Outcome::Garbage),
            // A short receive emptied the socket, and what comes next makes a new edge; but the
            // end of input may be behind it already, without an edge of its own.
            Ok(None) if length < buffer.len() && !self.hang_up => Step::Wait,
            Ok(None) => Step::Again,
            Ok(Some(head)) => self.judge(head, path_id, catalogue),
        }
    }

    /// The outcome of a whole response.
    fn judge(&self, head: Head, path_id: u32, catalogue: &Catalogue) -> Step {
        let length_wrong =
            || catalogue.file_bytes(path_id).is_some_and(|bytes| bytes != self.response.body_bytes());
        let outcome = match head.status {
            200 if length_wrong() => Outcome::WrongLength,
            200 if self.content_wrong => Outcome::WrongContent,
            200 => Outcome::Answered,
            _ => Outcome::Status,
        };
        Step::Answered { outcome, reusable: head.keep_alive && !self.hang_up && self.unsent.is_empty() }
    }

    pub(crate) fn answer_has_begun(&self) -> bool {
        self.response.has_begun()
    }
}

fn send_some(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    match net::send(fd, bytes) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
        sent => sent,
    }
}
