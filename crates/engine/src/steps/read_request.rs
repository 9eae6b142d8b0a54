//! Read request: from a connection's bytes to whole requests. Called by a connection's turn.

use std::io::ErrorKind;

use flash_http::body::Chunked;
use flash_http::negotiate::prefers_json;
use flash_http::request::{Body, Head, Method, first_line, head_end, parse_head};
use flash_http::response::Status;

use crate::connection::{Budget, Next, Phase};
use crate::engine::Engine;
use crate::exchange::{Asked, RequestBody};
use crate::limits::{HEAD_BYTES_MAX, REQUEST_BODY_BYTES_MAX, TARGET_BYTES_MAX};
use crate::slab::Key;
use crate::system::System;

impl<S: System> Engine<S> {
    /// Receives, and answers each whole request that has arrived, in order.
    pub(crate) fn read_request(&mut self, sys: &mut S, key: Key, budget: &mut Budget) -> Next {
        // Requests borrow the buffer while the engine answers them.
        let mut buffer = std::mem::take(&mut self.receive_buffer);
        let next = self.read_heads(sys, key, &mut buffer, budget);
        self.receive_buffer = buffer;
        next
    }

    fn read_heads(&mut self, sys: &mut S, key: Key, buffer: &mut [u8], budget: &mut Budget) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let mut filled = connection.input.len();
        if filled > 0 {
            buffer[..filled].copy_from_slice(&connection.input);
            connection.input = Vec::new();
        }
        self.record.line.clear();
        let mut scanned = std::mem::take(&mut connection.scanned);
        let mut at = 0;
        loop {
            if at < filled
                && budget.requests > 0
                && budget.bytes > 0
                && let Some(next) = self.answer_known(sys, key, &buffer[at..filled], budget)
            {
                at = filled;
                if next != Next::Finished {
                    return next;
                }
                self.note_answered(key);
            }
            // A head that trickles in is not parsed from its start at every byte.
            let unended = scanned > 0
                && filled < HEAD_BYTES_MAX
                && head_end(&buffer[..filled], std::mem::replace(&mut scanned, filled)).is_none();
            while at < filled && !unended {
                let request = match parse_head(&buffer[at..filled], &self.head_limits) {
                    Ok(Head::Partial) => break,
                    Ok(Head::Complete(request)) => request,
                    Err(bad) => {
                        self.begin_record(first_line(&buffer[at..filled], TARGET_BYTES_MAX), None);
                        return self.refuse_and_close(key, None, (bad.status(), bad.reason()), false);
                    }
                };
                if budget.requests == 0 || budget.bytes == 0 {
                    self.keep_input(key, &buffer[at..filled]);
                    return Next::Yield;
                }
                budget.requests -= 1;
                let head_end = at + request.head_len;
                let next = self.begin(sys, key, &Asked { request, head: &buffer[at..head_end] }, budget);
                at = head_end;
                if next != Next::Finished {
                    self.keep_input(key, &buffer[at..filled]);
                    return next;
                }
                self.note_answered(key);
            }
            if at > 0 {
                scanned = 0;
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            at = 0;
            let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
            match connection.receive(sys, &mut buffer[filled..]) {
                Ok(Some(n)) if n > 0 => filled += n,
                Ok(None) if !connection.ended => return self.await_head(key, &buffer[..filled]),
                _ => return Next::Close,
            }
        }
    }

    /// Waits for the rest of a head, or for the next one.
    fn await_head(&mut self, key: Key, rest: &[u8]) -> Next {
        let timeouts = self.rules.timeouts;
        let now_ms = self.now.monotonic_ms;
        let draining = self.draining;
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let was_begun = connection.phase == Phase::Head { begun: true };
        let answered = std::mem::take(&mut connection.answered);
        if rest.is_empty() {
            // A client that has just come is about to ask; it would not expect to be closed.
            if draining && connection.used {
                return Next::Close;
            }
            connection.phase = Phase::Head { begun: false };
            // Until its first answer, a connection has the time of a head.
            if answered {
                self.set_deadline(key, now_ms + timeouts.idle_ms);
            }
        } else {
            connection.input = rest.to_vec();
            connection.scanned = rest.len();
            connection.phase = Phase::Head { begun: true };
            if answered || !was_begun {
                self.set_deadline(key, now_ms + timeouts.head_ms);
            }
        }
        Next::Blocked
    }

    #[inline]
    fn note_answered(&mut self, key: Key) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.note_answered();
        }
    }

    fn keep_input(&mut self, key: Key, rest: &[u8]) {
        if let Some(connection) = self.connections.get_mut(key)
            && !rest.is_empty()
        {
            connection.input = rest.to_vec();
        }
    }

    fn begin(&mut self, sys: &mut S, key: Key, asked: &Asked<'_>, budget: &mut Budget) -> Next {
        self.begin_record(asked.request.line, Some(&asked.request));
        match asked.request.body {
            Body::None | Body::Length(0) => self.answer(sys, key, asked, None, budget),
            Body::Length(bytes) => self.begin_body(sys, key, asked, RequestBody::Length(bytes)),
            Body::Chunked => self.begin_body(sys, key, asked, RequestBody::Chunked(Chunked::new(), 0)),
        }
    }

    /// A body has no meaning for any method that is served (RFC 9110, section 9.3.1): it is
    /// read, so that the next request is found, and discarded.
    fn begin_body(&mut self, sys: &mut S, key: Key, asked: &Asked<'_>, body: RequestBody) -> Next {
        let json = prefers_json(asked.request.accept.as_deref());
        match asked.request.method {
            Method::Get | Method::Head | Method::Options => {}
            Method::Known => {
                return self.refuse_and_close(
                    key,
                    Some(&asked.request),
                    (Status::METHOD_NOT_ALLOWED, crate::answer::METHOD_REFUSED),
                    json,
                );
            }
            Method::Unknown => {
                return self.refuse_and_close(
                    key,
                    Some(&asked.request),
                    (Status::NOT_IMPLEMENTED, crate::answer::METHOD_UNKNOWN),
                    json,
                );
            }
        }
        if matches!(body, RequestBody::Length(bytes) if bytes > REQUEST_BODY_BYTES_MAX) {
            return self.refuse_and_close(key, Some(&asked.request), TOO_LARGE, json);
        }
        let mut exchange = self.boxed(None);
        exchange.head = asked.head.to_vec();
        exchange.request_body = Some(body);
        let deadline_ms = self.now.monotonic_ms + self.rules.timeouts.head_ms;
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        if asked.request.expect_continue {
            let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
            let result = sys.send(&connection.socket, interim);
            self.counters.sends.add(*result.as_ref().unwrap_or(&0) as u64);
            match result {
                Ok(sent) if sent == interim.len() => {}
                // It may be left out; the client goes on after a while (RFC 9110, section 10.1.1).
                Err(e) if e.kind() == ErrorKind::WouldBlock => connection.writable = false,
                _ => return Next::Close,
            }
        }
        connection.phase = Phase::Body;
        connection.exchange = Some(exchange);
        self.set_deadline(key, deadline_ms);
        Next::Again
    }

    /// Discards the body of a request; at its end the request is answered.
    pub(crate) fn read_body(&mut self, sys: &mut S, key: Key, budget: &mut Budget) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let Some(exchange) = &mut connection.exchange else { return Next::Close };
        let Some(body) = &mut exchange.request_body else { return Next::Close };
        loop {
            let input = std::mem::take(&mut connection.input);
            match body.skip(&input) {
                Ok(Some(consumed)) => {
                    connection.input = input[consumed..].to_vec();
                    break;
                }
                Ok(None) => {}
                Err(refusal) => {
                    self.record = std::mem::take(&mut exchange.record);
                    connection.exchange = None;
                    return self.refuse_and_close(key, None, refusal, false);
                }
            }
            if budget.bytes == 0 {
                return Next::Yield;
            }
            // Taken apart because `connection.exchange` is borrowed.
            if !connection.readable || connection.ended {
                return if connection.ended { Next::Close } else { Next::Blocked };
            }
            match sys.recv(&connection.socket, &mut self.receive_buffer) {
                Ok(0) => return Next::Close,
                Ok(n) => {
                    connection.readable = n == self.receive_buffer.len() || connection.hung_up;
                    budget.bytes = budget.bytes.saturating_sub(n);
                    connection.input = self.receive_buffer[..n].to_vec();
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => connection.readable = false,
                Err(_) => return Next::Close,
            }
        }
        exchange.request_body = None;
        connection.phase = Phase::Answer;
        Next::Again
    }
}

const TOO_LARGE: (Status, &str) = (Status::PAYLOAD_TOO_LARGE, "The request body is too large.");

impl RequestBody {
    /// Discards what belongs to the body. Gives how much of `bytes` that was once the body is
    /// at its end, None while it goes on.
    fn skip(&mut self, bytes: &[u8]) -> Result<Option<usize>, (Status, &'static str)> {
        match self {
            RequestBody::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Ok((*left == 0).then_some(taken))
            }
            RequestBody::Chunked(chunks, all_bytes) => {
                let progress = chunks.skip(bytes).map_err(|bad| (bad.status(), bad.reason()))?;
                *all_bytes += progress.consumed as u64;
                if *all_bytes > REQUEST_BODY_BYTES_MAX {
                    return Err(TOO_LARGE);
                }
                Ok(progress.done.then_some(progress.consumed))
            }
        }
    }
}
