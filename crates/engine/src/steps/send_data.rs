//! Send data: a hit in one send, anything else piece by piece, a bounded amount a turn.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use flash_http::response::Status;

use super::read_file::Part;
use crate::answer::{BUSY, READ_FAILED};
use crate::cache::{Content, Version, write_head};
use crate::connection::{Budget, Next, Phase};
use crate::engine::{Engine, HEAD_ROOM_BYTES};
use crate::exchange::{Exchange, Pace, Refusal, Source};
use crate::limits::{RATE_WINDOW_MS, READ_BYTES_MAX, READ_BYTES_MIN};
use crate::slab::Key;
use crate::system::System;

/// What a piece of the work came to.
enum Piece {
    /// Of so many bytes offered, the socket took so many.
    Sent { offered: usize, result: io::Result<usize> },
    /// Goes on like this.
    Over(Next),
    /// The file is no longer what its version says.
    Changed,
    /// Cannot go on.
    Fail(Refusal),
}

impl<S: System> Engine<S> {
    /// The hit: head and body lie in one buffer and go out by one send.
    pub(crate) fn send_content(
        &mut self,
        sys: &mut S,
        key: Key,
        content: &Arc<Content>,
        exchange: Option<Box<Exchange<S::File>>>,
        budget: &mut Budget,
    ) -> Next {
        let date_s = self.wall_s();
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let head_bytes = content.head_bytes();
        let (total, result) =
            content.with_head(date_s, &self.date, |b| (b.len(), sys.send(&connection.socket, b)));
        let body_bytes = total - head_bytes;
        let sent =
            match self.first_sent(sys, key, exchange.as_deref(), budget, (head_bytes, body_bytes), result) {
                Ok(sent) => sent,
                Err(next) => return next,
            };
        let rest_of_head =
            content.with_head(date_s, &self.date, |b| b[sent.min(head_bytes)..head_bytes].to_vec());
        self.send_rest(key, content, exchange, (head_bytes, rest_of_head), sent)
    }

    /// The same where heads are not kept: it is made, and lies in another buffer.
    pub(crate) fn send_headless(
        &mut self,
        sys: &mut S,
        key: Key,
        version: &Version,
        content: &Arc<Content>,
        exchange: Option<Box<Exchange<S::File>>>,
        budget: &mut Budget,
    ) -> Next {
        self.counters.heads_made += 1;
        let mut head = Vec::with_capacity(512);
        write_head(&mut head, version, &self.date, self.rules.optimizations.head_align_bytes());
        let Some(connection) = self.connections.get(key) else { return Next::Close };
        let body_bytes = content.body_bytes();
        let result = content.with_body(0, body_bytes, |body| sys.send_both(&connection.socket, &head, body));
        let head_bytes = head.len();
        let sent =
            match self.first_sent(sys, key, exchange.as_deref(), budget, (head_bytes, body_bytes), result) {
                Ok(sent) => sent,
                Err(next) => return next,
            };
        head.drain(..sent.min(head_bytes));
        self.send_rest(key, content, exchange, (head_bytes, head), sent)
    }

    /// Accounts for the first send of a content. Gives how much was taken, if not all of it.
    #[inline]
    fn first_sent(
        &mut self,
        sys: &mut S,
        key: Key,
        exchange: Option<&Exchange<S::File>>,
        budget: &mut Budget,
        (head_bytes, body_bytes): (usize, usize),
        result: io::Result<usize>,
    ) -> Result<usize, Next> {
        let Some(connection) = self.connections.get_mut(key) else { return Err(Next::Close) };
        let peer = connection.peer;
        let sent = match result {
            Ok(sent) => sent,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => {
                self.counters.count_response(Status::OK, false);
                let record = exchange.map_or(&self.record, |e| &e.record);
                self.log(sys, peer, record, Status::OK, 0, false);
                return Err(Next::Close);
            }
        };
        self.counters.sends.add(sent as u64);
        budget.bytes = budget.bytes.saturating_sub(sent);
        if sent == head_bytes + body_bytes {
            self.counters.count_response(Status::OK, true);
            let record = exchange.map_or(&self.record, |e| &e.record);
            self.log(sys, peer, record, Status::OK, body_bytes as u64, true);
            return Err(Next::Finished);
        }
        connection.writable = false;
        Ok(sent)
    }

    /// Sets an exchange up for what the first send of a content has left.
    fn send_rest(
        &mut self,
        key: Key,
        content: &Arc<Content>,
        exchange: Option<Box<Exchange<S::File>>>,
        (head_bytes, rest_of_head): (usize, Vec<u8>),
        sent: usize,
    ) -> Next {
        let mut exchange = self.boxed(exchange);
        exchange.status = Status::OK;
        exchange.out = rest_of_head;
        exchange.source = Source::Memory(Arc::clone(content));
        exchange.at = sent.saturating_sub(head_bytes) as u64;
        exchange.end = content.body_bytes() as u64;
        exchange.head_bytes = head_bytes as u64;
        exchange.sent_bytes = sent as u64;
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        connection.phase = Phase::Send;
        connection.exchange = Some(exchange);
        Next::Again
    }

    /// Sends as much of an exchange's answer as there is, as the socket takes, and as its share
    /// of the turn allows.
    pub(crate) fn send_data(&mut self, sys: &mut S, key: Key, budget: &mut Budget) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        let Some(mut exchange) = connection.exchange.take() else { return Next::Close };
        // For the report of a panic.
        self.record.line.clone_from(&exchange.record.line);
        let next = self.send_pieces(sys, key, &mut exchange, budget);
        if next == Next::Finished {
            return self.finish(sys, key, &exchange);
        }
        if let Some(connection) = self.connections.get_mut(key) {
            connection.exchange = Some(exchange);
        }
        next
    }

    fn send_pieces(
        &mut self,
        sys: &mut S,
        key: Key,
        exchange: &mut Exchange<S::File>,
        budget: &mut Budget,
    ) -> Next {
        loop {
            if exchange.refused.is_some() || exchange.changed {
                return self.answer_anew(key, exchange);
            }
            if exchange.waiting.is_some() {
                exchange.pace.since_ms = None;
                return Next::Blocked;
            }
            if budget.bytes == 0 {
                return Next::Yield;
            }
            let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
            if !connection.writable {
                return self.await_room(key, exchange);
            }
            match self.send_piece(sys, key, exchange) {
                Piece::Sent { offered, result } => {
                    if let Err(next) = self.sent(key, exchange, budget, offered, result) {
                        return next;
                    }
                }
                Piece::Over(Next::Again) => {}
                Piece::Over(next) => return next,
                Piece::Changed => exchange.changed = true,
                Piece::Fail(refusal) => exchange.refused = Some(refusal),
            }
        }
    }

    /// The answer cannot go on. If nothing of it was sent the request is looked at again; else
    /// the connection is cut, so that the client sees that the answer is not whole.
    fn answer_anew(&mut self, key: Key, exchange: &mut Exchange<S::File>) -> Next {
        if exchange.sent_bytes > 0 || exchange.head.is_empty() {
            return Next::Close;
        }
        exchange.begin_anew();
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        connection.phase = Phase::Answer;
        Next::Again
    }

    fn send_piece(&mut self, sys: &mut S, key: Key, exchange: &mut Exchange<S::File>) -> Piece {
        let Some(connection) = self.connections.get(key) else { return Piece::Over(Next::Close) };
        let out = &exchange.out[exchange.out_at..];
        if exchange.at == exchange.end {
            if !out.is_empty() {
                return Piece::Sent { offered: out.len(), result: sys.send(&connection.socket, out) };
            }
            let Some(part) = exchange.parts.pop_front() else { return Piece::Over(Next::Finished) };
            exchange.out = part.text;
            exchange.out_at = 0;
            exchange.ahead_to = 0;
            (exchange.at, exchange.end) = part.range.map_or((0, 0), |range| (range.start, range.end));
            return Piece::Over(Next::Again);
        }
        match &exchange.source {
            Source::None => Piece::Over(Next::Close),
            Source::Memory(content) => {
                content.with_body(exchange.at as usize, exchange.end as usize, |body| {
                    let offered = out.len() + body.len();
                    Piece::Sent { offered, result: sys.send_both(&connection.socket, out, body) }
                })
            }
            Source::File(version, file) => {
                if out.len() > HEAD_ROOM_BYTES {
                    return Piece::Sent { offered: out.len(), result: sys.send(&connection.socket, out) };
                }
                let (version, file) = (Arc::clone(version), Arc::clone(file));
                let part = if self.rules.optimizations.send_file {
                    self.send_part(sys, key, exchange, &version, &file)
                } else {
                    self.read_part(sys, key, exchange, &version, &file)
                };
                match part {
                    Part::Bytes(bytes) => self.send_file_part(sys, key, exchange, bytes),
                    Part::Sent { offered, result } => Piece::Sent { offered, result },
                    Part::Wait(job) => {
                        exchange.waiting = Some(job);
                        Piece::Over(Next::Again)
                    }
                    Part::Changed => Piece::Changed,
                    Part::Full => Piece::Fail(BUSY),
                    Part::Failed => Piece::Fail(READ_FAILED),
                }
            }
        }
    }

    /// Sends what is left of `out` and the part of the file behind it by one send.
    fn send_file_part(&mut self, sys: &mut S, key: Key, exchange: &Exchange<S::File>, bytes: usize) -> Piece {
        let Some(connection) = self.connections.get(key) else { return Piece::Over(Next::Close) };
        let out = &exchange.out[exchange.out_at..];
        let start = HEAD_ROOM_BYTES - out.len();
        self.file_buffer[start..HEAD_ROOM_BYTES].copy_from_slice(out);
        let piece = &self.file_buffer[start..HEAD_ROOM_BYTES + bytes];
        Piece::Sent { offered: piece.len(), result: sys.send(&connection.socket, piece) }
    }

    /// Accounts for a send.
    fn sent(
        &mut self,
        key: Key,
        exchange: &mut Exchange<S::File>,
        budget: &mut Budget,
        offered: usize,
        result: io::Result<usize>,
    ) -> Result<(), Next> {
        let sent = match result {
            Ok(sent) => sent,
            Err(e) if e.kind() == ErrorKind::WouldBlock => 0,
            Err(_) => return Err(Next::Close),
        };
        if sent < offered {
            let Some(connection) = self.connections.get_mut(key) else { return Err(Next::Close) };
            connection.writable = false;
            exchange.read_bytes = sent.next_power_of_two().clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        } else {
            exchange.read_bytes = (exchange.read_bytes * 2).min(READ_BYTES_MAX);
        }
        self.counters.sends.add(sent as u64);
        budget.bytes = budget.bytes.saturating_sub(sent);
        exchange.sent_bytes += sent as u64;
        let of_out = sent.min(exchange.out.len() - exchange.out_at);
        exchange.out_at += of_out;
        if exchange.out_at == exchange.out.len() {
            exchange.out = Vec::new();
            exchange.out_at = 0;
        }
        if sent > of_out {
            exchange.at += (sent - of_out) as u64;
            exchange.loads = 0;
        }
        Ok(())
    }

    /// Waits for the client to take what was sent, and sees to it that it does.
    fn await_room(&mut self, key: Key, exchange: &mut Exchange<S::File>) -> Next {
        if exchange.pace.since_ms.is_none() {
            exchange.pace = Pace { since_ms: Some(self.now.monotonic_ms), sent_bytes: exchange.sent_bytes };
            self.set_deadline(key, self.now.monotonic_ms + RATE_WINDOW_MS);
        }
        Next::Blocked
    }

    /// The whole answer was sent.
    fn finish(&mut self, sys: &mut S, key: Key, exchange: &Exchange<S::File>) -> Next {
        let Some(connection) = self.connections.get(key) else { return Next::Close };
        self.log_ending(sys, connection.peer, exchange, true);
        for job in &exchange.ahead {
            self.jobs.leave(*job, key);
        }
        if !exchange.close {
            return self.back_to_head(key);
        }
        let Some(connection) = self.connections.get(key) else { return Next::Close };
        // Closing a socket with unread input resets it, and the client may lose the answer.
        let unread = connection.readable || !connection.input.is_empty() || exchange.status.0 >= 400;
        if unread && !connection.ended { self.begin_linger(sys, key) } else { Next::Close }
    }
}
