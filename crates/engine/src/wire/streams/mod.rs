//! A protocol for the tests, with several exchanges on a connection at once and no flow control. It proves that exchanges, handlers,
//! bodies and jobs depend neither on the sequential order of HTTP/1 nor on the windows of HTTP/2.
//!
//! A client sends frames of a stream number (2 bytes), a length (4 bytes, both big-endian) and an HTTP/1
//! request head with all of the request body, which has no framing of its own. The server sends frames of a stream number, a kind ([`HEAD`], [`DATA`], [`END`] or
//! [`ABORT`]), a length and a part of the response. Built only with the feature `test-wire`.

mod lane;

use std::collections::VecDeque;

use flash_http::forward::Inbound;
use flash_http::request::{Body, Head, parse_head};
use flash_http::response::Status;

use super::conn::{Conn, Verdict};
use super::h1::HEAD_LIMITS;
use crate::access_log::AnswerEnd;
use crate::body::Pulled;
use crate::caches::Persistence;
use crate::exchange::relay::{Advance, advance, expire, leave, open};
use crate::exchange::{
    CLIENT_LEFT, Exchange, Halt, Opening, Parked, Progress, Record, Relay, Sending, State, Turn, Wake,
    proceed,
};
use crate::handler::{
    Admitted, FileRequestBuf, Found, HeadForm, Response, Scheme, Step, admit, answer, error_page, write_head,
};
use crate::jobs::Waiter;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::Received;
use lane::{ABORT, DATA, DATA_BYTES_MAX, END, HEAD, Lane, StreamClient, frame};

/// Maximum number of exchanges at once.
const LANES_MAX: usize = 8;
const REQUEST_FRAME_BYTES: usize = 6;

/// The streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    lanes: VecDeque<Lane>,
    /// Frames that are not sent yet.
    out: Vec<u8>,
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
            conn.acknowledged_before = None;
            if turn.budget.bytes == 0 {
                return Verdict::Yield;
            }
            if !self.frame_next(conn, turn, buffer) {
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
        conn.idle_since_ms = now_ms;
        let due_ms = self.lanes.iter().map(|lane| turn.exchanges.due_ms(lane.key)).min();
        let idle_ms = now_ms + turn.desk.core.rules.timeouts.idle_ms;
        conn.deadline_ms = due_ms.unwrap_or(idle_ms);
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
        payload: &[u8],
    ) {
        let Ok(Head::Complete(request)) = parse_head(payload, &HEAD_LIMITS) else {
            return frame(&mut self.out, stream, ABORT, &[]);
        };
        let (head, body) = payload.split_at(request.head_len);
        let is_whole = match request.body {
            Body::None => body.is_empty(),
            Body::Length(bytes) => body.len() as u64 == bytes,
            Body::Chunked => !body.is_empty(),
        };
        if !is_whole {
            return frame(&mut self.out, stream, ABORT, &[]);
        }
        turn.desk.core.counters.requests += 1;
        let record = Record::new(turn.desk.core, &request);
        let client = (&request, Scheme::Http, conn.asker.client());
        let (file, response) = match admit(&mut turn.desk, client, || {
            Inbound::of_head(&request, head, conn.asker.scheme.name())
        }) {
            Admitted::Refused(response) | Admitted::Answer(response) => (None, response),
            Admitted::Route(routed) => {
                let (opener, peer) = (conn.opener, conn.peer);
                let key = open(turn, &routed, opener, peer, |machine| conn.local_address(machine));
                let lane = Lane { body: body.iter().copied().collect(), ..Lane::new(stream, key) };
                return self.lanes.push_back(lane);
            }
            Admitted::File(mut file) => match answer(&mut turn.desk, &mut file, Found::NOTHING) {
                Step::Answer(response) => (Some(FileRequestBuf::new(&file)), response),
                Step::Wait(wait) => {
                    let opening = (conn.opener, record.clone());
                    match turn.exchanges.open_waiting(&mut turn.desk, opening, &file, *wait) {
                        Opening::Waits(key) => return self.lanes.push_back(Lane::new(stream, key)),
                        Opening::Answer(response) => (None, response),
                    }
                }
            },
        };
        let (state, answer) = self.answer(turn, stream, file, response);
        let key = turn.exchanges.insert(Exchange { opener: conn.opener, record, state });
        self.lanes.push_back(Lane { answer, ..Lane::new(stream, key) });
    }

    /// Frames the head of an answer.
    fn answer<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        stream: u16,
        file: Option<FileRequestBuf>,
        response: Response<M::File>,
    ) -> (State<M::File>, Option<(Status, u64)>) {
        let Response { status, about, length, body, tries, .. } = response;
        turn.desk.core.counters.heads_made += 1;
        turn.head.clear();
        let form = HeadForm { align_bytes: 1, ..HeadForm::of(turn.desk.core) };
        write_head(turn.head, form, (status, length), &about, Persistence::Persists);
        frame(&mut self.out, stream, HEAD, turn.head);
        (State::Sending(Sending::new(body, file, tries)), Some((status, 0)))
    }

    /// Makes a frame for the next lane that is not blocked. Returns false if all are blocked.
    fn frame_next<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> bool {
        for _ in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes.pop_front() else { return false };
            match self.frame_lane(conn, turn, buffer, &mut lane) {
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
        buffer: &mut [u8],
        lane: &mut Lane,
    ) -> Framed {
        let Exchange { opener, record, state } = turn.exchanges.lend(lane.key);
        let waiter = Waiter { exchange: lane.key, client: opener.client };
        let (state, step) = match state {
            State::Woken(parked, wake) => match proceed(&mut turn.desk, waiter, parked, wake) {
                Progress::Waits(state) => (state, Framed::Blocked),
                Progress::Answer(file, response) => {
                    let (state, answer) = self.answer(turn, lane.stream, Some(file), response);
                    lane.answer = answer;
                    (state, Framed::Progress)
                }
            },
            State::Sending(mut sending) => match self.frame_body(turn, lane, waiter, &mut sending) {
                Ok(step @ (Framed::Progress | Framed::Blocked)) => (State::Sending(sending), step),
                ended => {
                    sending.leave(&mut turn.desk, lane.key);
                    turn.exchanges.end_lent(lane.key);
                    if ended.is_err() {
                        frame(&mut self.out, lane.stream, ABORT, &[]);
                    }
                    let (status, body_bytes) = lane.answer.unwrap_or((Status::OK, 0));
                    let end = AnswerEnd { status, body_bytes, is_whole: ended.is_ok() };
                    record.note_end(&mut turn.desk, &conn.peer, end);
                    return Framed::Over;
                }
            },
            State::Relaying(mut relay) => {
                let is_half_closed = conn.transport.is_half_closed();
                let mut client = StreamClient { lane: &mut *lane, out: &mut self.out, is_half_closed };
                let advanced = advance(&mut client, turn, buffer, &mut relay);
                match self.advanced(turn, lane, relay, advanced) {
                    Ok(step) => step,
                    Err(end) => {
                        turn.exchanges.end_lent(lane.key);
                        record.note_end(&mut turn.desk, &conn.peer, end);
                        return Framed::Over;
                    }
                }
            }
            state => (state, Framed::Blocked),
        };
        turn.exchanges.put_back(lane.key, Exchange { opener, record, state });
        step
    }

    /// Continues after a turn of a relay. Returns the end of a relay that has ended.
    fn advanced<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        lane: &mut Lane,
        mut relay: Box<Relay>,
        advanced: Advance,
    ) -> Result<(State<M::File>, Framed), AnswerEnd> {
        match advanced {
            Advance::Blocked if self.out.is_empty() => return Ok((State::Relaying(relay), Framed::Blocked)),
            Advance::Blocked | Advance::Yield => return Ok((State::Relaying(relay), Framed::Progress)),
            _ => leave(turn, &mut relay),
        }
        match advanced {
            Advance::Refused(refusal) => {
                let page = error_page(&relay.request.request(), refusal);
                let (state, answer) = self.answer(turn, lane.stream, None, page);
                lane.answer = answer;
                Ok((state, Framed::Progress))
            }
            Advance::HandBack(request) => {
                Ok((State::Woken(Parked::new(*request), Wake::LookAgain), Framed::Progress))
            }
            advanced => {
                let is_whole = matches!(advanced, Advance::Done);
                if !is_whole {
                    frame(&mut self.out, lane.stream, ABORT, &[]);
                }
                Err(relay.end(is_whole))
            }
        }
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
        let Some(paced) = sending.pace.ask(&mut turn.desk, lane.key, sending.body.len()) else {
            return Ok(Framed::Blocked);
        };
        let room_bytes = paced.min(DATA_BYTES_MAX);
        sending.load_ahead(&mut turn.desk, waiter);
        let (machine, core) = (&mut *turn.desk.machine, &mut *turn.desk.core);
        let framed = match sending.body.pull(machine, core) {
            Pulled::Bytes(bytes) => {
                let piece = &bytes[..bytes.len().min(room_bytes)];
                frame(&mut self.out, lane.stream, DATA, piece);
                piece.len()
            }
            Pulled::Content(content, range) => {
                let end = range.end.min(range.start + room_bytes);
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
        sending.pace.spend(framed);
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
        self.expire(conn, turn);
        let verdict = self.turn(conn, turn, buffer);
        let is_judged = turn.desk.core.rules.least_rate_bytes_per_s > 0 && conn.acknowledged_before.is_some();
        if verdict == Verdict::Blocked && !is_judged && conn.acknowledged_before.is_some() {
            conn.deadline_ms = u64::MAX;
        }
        if verdict == Verdict::Blocked && is_judged && !conn.check_reader_rate(&mut turn.desk) {
            return Verdict::Reset;
        }
        verdict
    }

    /// Ends the waits of relays whose time is up.
    fn expire<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        let now_ms = turn.desk.core.clock.ms();
        for _ in 0..self.lanes.len() {
            let Some(mut lane) = self.lanes.pop_front() else { return };
            if turn.exchanges.due_ms(lane.key) > now_ms {
                self.lanes.push_back(lane);
                continue;
            }
            let Exchange { opener, record, state } = turn.exchanges.lend(lane.key);
            let State::Relaying(mut relay) = state else { unreachable!("only a relay has a deadline") };
            let advanced = expire(turn, &mut relay);
            match self.advanced(turn, &mut lane, relay, advanced) {
                Ok((state, _)) => {
                    turn.exchanges.put_back(lane.key, Exchange { opener, record, state });
                    self.lanes.push_back(lane);
                }
                Err(end) => {
                    turn.exchanges.end_lent(lane.key);
                    record.note_end(&mut turn.desk, &conn.peer, end);
                }
            }
        }
    }

    /// Drops one exchange, whose client seems to have gone away.
    pub(crate) fn drop_exchange<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) {
        if let Some(at) = self.lanes.iter().position(|lane| lane.key == key)
            && let Some(lane) = self.lanes.remove(at)
        {
            frame(&mut self.out, lane.stream, ABORT, &[]);
            turn.abort(key, &conn.peer, Some((CLIENT_LEFT, 0)));
        }
    }

    /// Drops the exchanges of a connection that is being dropped.
    pub(crate) fn drop_exchanges<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        for lane in self.lanes.drain(..) {
            let sent = lane.answer.unwrap_or((CLIENT_LEFT, 0));
            turn.abort(lane.key, &conn.peer, Some(sent));
        }
    }
}

/// The stream number and the request head at the front of `bytes`, if they are complete.
fn whole_frame(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (stream, rest) = bytes.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    Some((u16::from_be_bytes(*stream), rest.get(..u32::from_be_bytes(*length) as usize)?))
}
