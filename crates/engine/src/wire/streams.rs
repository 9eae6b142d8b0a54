//! A protocol for the tests, with several exchanges on a connection at once. It proves, before HTTP/2 exists,
//! that exchanges, handlers, bodies and jobs do not depend on the sequential order of HTTP/1.
//!
//! A client sends frames of a stream number (2 bytes), a length (4 bytes, both big-endian) and an HTTP/1
//! request head. The server sends frames of a stream number, a kind ([`HEAD`], [`DATA`], [`END`] or
//! [`ABORT`]), a length and a part of the response. Built only with the feature `test-wire`.

use std::collections::VecDeque;

use flash_http::RequestBuf;
use flash_http::request::{Head, parse_head};
use flash_http::response::Status;

use super::conn::{Conn, Verdict};
use super::h1::HEAD_LIMITS;
use super::h1::head::write;
use crate::access_log::{LogFields, LogText};
use crate::body::Pulled;
use crate::caches::Persistence;
use crate::exchange::Turn;
use crate::exchange::{
    Admission, CLIENT_LEFT, Exchange, Halt, Opening, Progress, Record, Sending, State, admit, begin, proceed,
};
use crate::handler::{Response, Step};
use crate::jobs::Waiter;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::Received;

/// Maximum number of exchanges at once.
const LANES_MAX: usize = 8;
/// Maximum number of bytes of data in a frame.
const DATA_BYTES_MAX: usize = 16 * 1024;
const REQUEST_FRAME_BYTES: usize = 6;

/// Kinds of frames.
const HEAD: u8 = 1;
const DATA: u8 = 2;
const END: u8 = 3;
const ABORT: u8 = 4;

/// The streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    lanes: VecDeque<Lane>,
    /// Frames that are not sent yet.
    out: Vec<u8>,
}

/// A stream and its exchange.
#[derive(Debug)]
struct Lane {
    stream: u16,
    key: ExchangeKey,
    /// The status of the answer once its head was framed, and the number of body bytes framed.
    answer: Option<(Status, u64)>,
}

/// The result of a lane's attempt to make a frame.
enum Framed {
    /// A frame was made.
    Progress,
    Blocked,
    /// The exchange has ended.
    Over,
}

impl Streams {
    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.is_empty() && self.out.is_empty()
    }

    pub(crate) fn turn<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> Verdict {
        let now_ms = turn.desk.core.clock.ms();
        if let Some(verdict) = self.read_frames(conn, turn, buffer) {
            return verdict;
        }
        loop {
            if !self.out.is_empty() {
                let Ok(sent) = conn.transport.send(turn.desk.machine, &self.out, &[]) else {
                    return Verdict::Close;
                };
                turn.budget.bytes = turn.budget.bytes.saturating_sub(sent);
                turn.desk.core.counters.sends.add(sent as u64);
                self.out.drain(..sent);
                if !self.out.is_empty() {
                    return conn.await_room(turn.desk.machine, now_ms);
                }
            }
            conn.pace = None;
            if turn.budget.bytes == 0 {
                return Verdict::Yield;
            }
            if !self.frame_next(conn, turn) {
                break;
            }
        }
        if self.lanes.is_empty() && (conn.transport.has_ended() || turn.draining) {
            return Verdict::Close;
        }
        // More requests may wait in the input.
        if self.lanes.len() < LANES_MAX && whole_frame(&conn.input).is_some() {
            return Verdict::Yield;
        }
        let is_idle = self.lanes.is_empty();
        conn.idle_since_ms = now_ms;
        conn.deadline_ms = if is_idle { now_ms + turn.desk.core.rules.timeouts.idle_ms } else { u64::MAX };
        Verdict::Blocked
    }

    /// Begins an exchange for each request that has arrived.
    fn read_frames<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> Option<Verdict> {
        let mut filled = conn.input.len();
        buffer[..filled].copy_from_slice(&conn.take_input(turn.inputs));
        loop {
            let mut at = 0;
            while let Some((stream, head)) = whole_frame(&buffer[at..filled])
                && self.lanes.len() < LANES_MAX
                && turn.budget.requests > 0
            {
                turn.budget.requests -= 1;
                at += REQUEST_FRAME_BYTES + head.len();
                self.begin(conn, turn, stream, head);
            }
            buffer.copy_within(at..filled, 0);
            filled -= at;
            let has_room = self.lanes.len() < LANES_MAX && turn.budget.requests > 0 && filled < buffer.len();
            match conn.transport.receive(turn.desk.machine, &mut buffer[filled..]) {
                Received::Bytes(n) if has_room => filled += n,
                Received::Bytes(n) => {
                    filled += n;
                    break;
                }
                Received::Nothing | Received::End => break,
                Received::Failed => return Some(Verdict::Close),
            }
        }
        (!conn.keep_input(turn.inputs, &buffer[..filled])).then_some(Verdict::Close)
    }

    /// Begins an exchange. A frame without a valid request is aborted.
    fn begin<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        stream: u16,
        head: &[u8],
    ) {
        let Ok(Head::Complete(request)) = parse_head(head, &HEAD_LIMITS) else {
            return frame(&mut self.out, stream, ABORT, &[]);
        };
        turn.desk.core.counters.requests += 1;
        let core = &turn.desk.core;
        let log = LogText::new(core.rules.log_format, LogFields::of(&request));
        let record = Record { log, started_ms: core.clock.ms() };
        let step = match admit(&request) {
            Admission::Ready => begin(&mut turn.desk, &request),
            Admission::Refused(response) => Step::Answer(response),
            Admission::Reads(_) => return frame(&mut self.out, stream, ABORT, &[]),
        };
        let (record, response) = match step {
            Step::Answer(response) => (record, response),
            Step::Wait(wait) => {
                let opening = (conn.opener, record.clone());
                match turn.exchanges.open_waiting(&mut turn.desk, opening, &request, *wait) {
                    Opening::Waits(key) => {
                        return self.lanes.push_back(Lane { stream, key, answer: None });
                    }
                    Opening::Answer(response) => (record, response),
                }
            }
        };
        let (state, answer) = self.answer(turn, stream, RequestBuf::new(&request), response);
        let key = turn.exchanges.insert(Exchange { opener: conn.opener, record, state });
        self.lanes.push_back(Lane { stream, key, answer });
    }

    /// Frames the head of an answer.
    fn answer<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        stream: u16,
        request: RequestBuf,
        response: Response<M::File>,
    ) -> (State<M::File>, Option<(Status, u64)>) {
        let Response { status, about, length, body, tries, .. } = response;
        turn.desk.core.counters.heads_made += 1;
        let form = (&turn.desk.core.clock.date, 1);
        write(turn.head, form, (status, length), &about, Persistence::Persists);
        frame(&mut self.out, stream, HEAD, turn.head);
        (State::Sending(Sending::new(body, request, tries)), Some((status, 0)))
    }

    /// Makes a frame for the next lane that is not blocked. Returns false if all are blocked.
    fn frame_next<M: Machine>(&mut self, conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>) -> bool {
        for _ in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes.pop_front() else { return false };
            match self.frame_lane(conn, turn, &mut lane) {
                Framed::Progress => {
                    self.lanes.push_back(lane);
                    return true;
                }
                Framed::Blocked => self.lanes.push_back(lane),
                Framed::Over => return true,
            }
        }
        false
    }

    fn frame_lane<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        lane: &mut Lane,
    ) -> Framed {
        let Exchange { opener, record, state } = turn.exchanges.lend(lane.key);
        let waiter = Waiter { exchange: lane.key, client: opener.client };
        let (state, step) = match state {
            State::Woken(parked, wake) => match proceed(&mut turn.desk, waiter, parked, wake) {
                Progress::Waits(state) => (state, Framed::Blocked),
                Progress::Answer(request, response) => {
                    let (state, answer) = self.answer(turn, lane.stream, request, response);
                    lane.answer = answer;
                    (state, Framed::Progress)
                }
            },
            State::Sending(mut sending) => match self.frame_body(turn, lane, waiter, &mut sending) {
                Ok(Framed::Over) => {
                    sending.leave_jobs(&mut turn.desk.core.jobs, lane.key);
                    turn.exchanges.end_lent(lane.key);
                    let (status, body_bytes) = lane.answer.unwrap_or((Status::OK, 0));
                    record.note_end(&mut turn.desk, &conn.peer, (status, body_bytes, true));
                    return Framed::Over;
                }
                Ok(step) => (State::Sending(sending), step),
                Err(_) => {
                    sending.leave_jobs(&mut turn.desk.core.jobs, lane.key);
                    turn.exchanges.end_lent(lane.key);
                    frame(&mut self.out, lane.stream, ABORT, &[]);
                    let (status, body_bytes) = lane.answer.unwrap_or((Status::OK, 0));
                    record.note_end(&mut turn.desk, &conn.peer, (status, body_bytes, false));
                    return Framed::Over;
                }
            },
            state => (state, Framed::Blocked),
        };
        turn.exchanges.put_back(lane.key, Exchange { opener, record, state });
        step
    }

    /// Frames the next bytes of an answer.
    fn frame_body<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        lane: &mut Lane,
        waiter: Waiter,
        sending: &mut Sending<M::File>,
    ) -> Result<Framed, Halt> {
        if let Some(halt) = sending.halt.take() {
            return Err(halt);
        }
        if sending.waits_for.is_some() {
            return Ok(Framed::Blocked);
        }
        sending.load_ahead(&mut turn.desk, waiter);
        let (machine, core) = (&mut *turn.desk.machine, &mut *turn.desk.core);
        let framed = match sending.body.pull(machine, core) {
            Pulled::Bytes(bytes) => {
                let piece = &bytes[..bytes.len().min(DATA_BYTES_MAX)];
                frame(&mut self.out, lane.stream, DATA, piece);
                piece.len()
            }
            Pulled::Content(content, range) => {
                let end = range.end.min(range.start + DATA_BYTES_MAX);
                frame(&mut self.out, lane.stream, DATA, content.part(&(range.start..end)));
                end - range.start
            }
            Pulled::Wait(wanted) => {
                sending.wait(&mut turn.desk, waiter, *wanted);
                return Ok(Framed::Progress);
            }
            Pulled::End => {
                frame(&mut self.out, lane.stream, END, &[]);
                return Ok(Framed::Over);
            }
            Pulled::Changed => return Err(Halt::Changed),
            // The tests do not use `send_file` on this wire.
            Pulled::Part(..) | Pulled::Failed => return Err(Halt::FAILED),
        };
        sending.body.advance(framed);
        if let Some((_, body_bytes)) = &mut lane.answer {
            *body_bytes += framed as u64;
        }
        Ok(Framed::Progress)
    }

    pub(crate) fn time_out<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> Verdict {
        if self.is_idle() {
            return Verdict::Close;
        }
        let verdict = self.turn(conn, turn, buffer);
        let is_judged = turn.desk.core.rules.least_rate_bytes_per_s > 0 && conn.pace.is_some();
        if verdict == Verdict::Blocked && !is_judged && !self.is_idle() {
            conn.deadline_ms = u64::MAX;
        }
        if verdict == Verdict::Blocked && is_judged && !conn.keeps_pace(&mut turn.desk) {
            return Verdict::Reset;
        }
        verdict
    }

    /// Drops the exchanges of a connection that is being dropped.
    pub(crate) fn drop_exchanges<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        for lane in self.lanes.drain(..) {
            let sent = lane.answer.unwrap_or((CLIENT_LEFT, 0));
            turn.exchanges.abort(&mut turn.desk, lane.key, &conn.peer, Some(sent));
        }
    }
}

/// The stream number and the request head at the front of `bytes`, if they are complete.
fn whole_frame(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (stream, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    Some((u16::from_be_bytes(*stream), rest.get(..u32::from_be_bytes(*length) as usize)?))
}

fn frame(out: &mut Vec<u8>, stream: u16, kind: u8, payload: &[u8]) {
    out.extend_from_slice(&stream.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
}
