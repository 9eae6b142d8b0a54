//! HTTP/1: one exchange after the other on a connection. This module turns bytes into requests;
//! [`body`](body) reads request bodies, [`repeated`](repeated) has the shortcut for repeated requests,
//! and [`send`](send) turns responses into bytes.

mod answering;
mod body;
mod reader;
mod refuse;
mod relay;
mod repeated;
mod send;

use flash_http::RequestBuf;
use flash_http::forward::Inbound;
use flash_http::h2::PREFACE;
use flash_http::request::{BadHead, Head, HeadLimits, Request, first_line, head_end, parse_head};

use crate::caches::HeadHash;
use crate::exchange::{
    AfterBody, CLIENT_LEFT, Exchange, LogEntry, Opening, Parked, Progress, Serving, State, Turn, Wake,
    proceed,
};
use crate::handler::{Admitted, EXHAUSTED, FileRequestBuf, Found, REQUEST_LATE, Step, admit, answer};
use crate::jobs::Waiter;
use crate::limits::{FIELDS_MAX, HEAD_BYTES_MAX, TARGET_BYTES_MAX};
use crate::machine::Machine;
use crate::requester::Requester;
use crate::slab::ExchangeKey;
use crate::timing::CacheResult;
use crate::transport::Received;
use crate::wire::conn::{Conn, TurnEnd};
use answering::Answering;
use body::Discarded;
use relay::RelayFrames;
use repeated::Shortcut;
use send::Outgoing;

pub(super) const HEAD_LIMITS: HeadLimits =
    HeadLimits { head_bytes: HEAD_BYTES_MAX, fields: FIELDS_MAX, target_bytes: TARGET_BYTES_MAX };

/// The state of HTTP/1 on a connection.
#[derive(Debug)]
pub(crate) struct H1 {
    phase: Phase,
    /// The first bytes of the input, this many, contain no end of a head.
    scanned: usize,
    /// Whether an answer was finished since the connection last waited for a head.
    answered: bool,
    /// Whether any answer was finished.
    used: bool,
    /// The exchange that was lent last. After a panic in its turn, this is the only trace of it.
    lent: Option<ExchangeKey>,
}

/// The phase of a connection.
#[derive(Debug)]
enum Phase {
    /// Between two requests.
    Idle,
    /// In the head of a request.
    Head,
    /// The request body of an exchange is read, to find the next request.
    Reading(ExchangeKey, Box<Discarded>),
    /// An exchange waits for a job before its answer can begin.
    Pending(ExchangeKey),
    /// An exchange's answer is being sent.
    Sending(ExchangeKey, Box<Outgoing>),
    /// An upstream answers an exchange.
    Relaying(ExchangeKey, Box<RelayFrames>),
    /// The last answer was sent; input is discarded until the client closes.
    Linger {
        /// Bytes that can still be discarded.
        left_bytes: usize,
    },
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The exchange is finished; the connection is between two requests.
    Finished,
    /// The phase has changed and can continue at once.
    Again,
    /// The turn is over.
    Over(TurnEnd),
}

/// The result of answering the requests in the received bytes.
enum Heads {
    /// The requests took this many bytes; the rest is not a complete head.
    Took(usize),
    /// The connection is no longer between two requests.
    Left(Flow),
}

impl H1 {
    pub(crate) fn new() -> Self {
        Self { phase: Phase::Idle, scanned: 0, answered: false, used: false, lent: None }
    }

    /// Whether the connection is between two requests.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Runs the connection's turn: steps until it blocks or has used up its budget.
    pub(crate) fn turn<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> TurnEnd {
        loop {
            let flow = match std::mem::replace(&mut self.phase, Phase::Idle) {
                Phase::Idle => self.read_heads(conn, turn, buffer),
                Phase::Head => {
                    self.phase = Phase::Head;
                    self.read_heads(conn, turn, buffer)
                }
                Phase::Reading(key, body) => self.read_on(conn, turn, buffer, (key, body)),
                Phase::Pending(key) => self.go_on(conn, turn, key),
                Phase::Sending(key, outgoing) => self.send_on(conn, turn, key, outgoing),
                Phase::Relaying(key, frames) => self.relay_on(conn, turn, buffer, (key, frames)),
                Phase::Linger { left_bytes } => self.linger(conn, turn, buffer, left_bytes),
            };
            match flow {
                Flow::Finished => self.note_answered(),
                Flow::Again => {}
                Flow::Over(turn_end) => return turn_end,
            }
        }
    }

    #[inline]
    fn note_answered(&mut self) {
        self.answered = true;
        self.used = true;
    }

    /// Receives input and answers each complete request, in order.
    fn read_heads<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> Flow {
        let mut filled = conn.input.len();
        if filled > 0 {
            buffer[..filled].copy_from_slice(&conn.take_input(turn.inputs));
        }
        loop {
            if filled > 0 {
                match self.answer_heads(conn, turn, &buffer[..filled]) {
                    Heads::Took(bytes) => {
                        buffer.copy_within(bytes..filled, 0);
                        filled -= bytes;
                    }
                    Heads::Left(flow) => return flow,
                }
            }
            *turn.serving = Serving::None;
            match conn.transport.receive(turn.context.machine, &mut buffer[filled..]) {
                Received::Bytes(n) => filled += n,
                Received::Nothing => return self.await_head(conn, turn, &buffer[..filled]),
                Received::End | Received::Failed => return Flow::Over(TurnEnd::Close),
            }
        }
    }

    /// Answers the complete requests in `bytes`.
    // Its one caller is on the way of each hit, and a call there costs a measurable share of it.
    #[inline(always)]
    fn answer_heads<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        bytes: &[u8],
    ) -> Heads {
        let scanned = std::mem::take(&mut self.scanned);
        // A slowly arriving head is not parsed again from its start at every byte.
        if scanned > 0 && bytes.len() < HEAD_BYTES_MAX && head_end(bytes, scanned).is_none() {
            self.scanned = bytes.len();
            return Heads::Took(0);
        }
        let mut at = 0;
        while at < bytes.len() {
            if turn.budget.is_used_up() {
                return Heads::Left(self.keep_rest(conn, turn, &bytes[at..], Flow::Over(TurnEnd::Yield)));
            }
            *turn.serving = Serving::InBuffer(at);
            let rest = &bytes[at..];
            // The same bytes of a proxy can come from several clients.
            let shortcut = if conn.is_proxy {
                Shortcut::Unknown(HeadHash::NONE)
            } else {
                self.answer_repeated(conn, turn, rest)
            };
            let (taken, flow) = match shortcut {
                Shortcut::Answered(flow) => (rest.len(), flow),
                Shortcut::Unknown(hash) => match parse_head(rest, &HEAD_LIMITS) {
                    Ok(Head::Complete(request)) => {
                        turn.budget.requests -= 1;
                        let taken = request.head_len;
                        // The hash covers all of `rest`, so it is the hash of this head only if no other head
                        // follows.
                        let hash = if taken == rest.len() { hash } else { HeadHash::NONE };
                        (taken, self.begin(conn, turn, &request, (hash, &rest[..taken])))
                    }
                    Ok(Head::Partial) => {
                        self.scanned = rest.len();
                        break;
                    }
                    Err(BadHead::UnsupportedVersion) if self.begins_h2(turn, rest) => {
                        let flow = Flow::Over(TurnEnd::SpeaksHttp2);
                        return Heads::Left(self.keep_rest(conn, turn, rest, flow));
                    }
                    Err(bad) => {
                        return Heads::Left(self.refuse_head(conn, turn, rest, bad));
                    }
                },
            };
            at += taken;
            if flow != Flow::Finished {
                return Heads::Left(self.keep_rest(conn, turn, &bytes[at..], flow));
            }
            self.note_answered();
        }
        Heads::Took(at)
    }

    /// Whether the input is the first of its connection and begins as HTTP/2 does (RFC 9113, section 3.3).
    fn begins_h2<M: Machine>(&self, turn: &Turn<'_, M>, input: &[u8]) -> bool {
        let there = input.len().min(PREFACE.len());
        turn.context.core.rules.http2 && !self.used && input[..there] == PREFACE[..there]
    }

    /// Keeps the requests that follow the current one. If there is no room, they are dropped and the
    /// connection closes after the answer, which a pipelining client must expect (RFC 9112, section 9.3.2).
    fn keep_rest<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        rest: &[u8],
        flow: Flow,
    ) -> Flow {
        if !conn.keep_input(turn.inputs, rest) {
            conn.transport.stop_receiving();
        }
        flow
    }

    /// Waits for the rest of a head, or for the next one.
    fn await_head<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        rest: &[u8],
    ) -> Flow {
        let timeouts = turn.context.core.rules.timeouts;
        let now_ms = turn.context.core.clock.ms();
        let answered = std::mem::take(&mut self.answered);
        if conn.transport.is_flushed() {
            conn.acknowledged_before = None;
        }
        if rest.is_empty() {
            // A new client is about to send a request and would not expect the connection to close.
            if turn.draining && self.used {
                return Flow::Over(TurnEnd::Close);
            }
            self.phase = Phase::Idle;
            conn.transport.note_pause();
            // Until its first answer, a connection has the time limit of a head.
            if answered {
                conn.deadline_ms = now_ms + timeouts.idle_ms;
                conn.idle_since_ms = now_ms;
                if !conn.transport.is_flushed() {
                    conn.await_room(turn.context.machine, now_ms);
                }
            }
            return Flow::Over(TurnEnd::Blocked);
        }
        if !conn.keep_input(turn.inputs, rest) {
            let line = first_line(rest, TARGET_BYTES_MAX);
            return self.refuse_bytes(conn, turn, line, EXHAUSTED);
        }
        if answered || !matches!(self.phase, Phase::Head) {
            conn.deadline_ms = now_ms + timeouts.head_ms;
        }
        self.phase = Phase::Head;
        Flow::Over(TurnEnd::Blocked)
    }

    /// Answers a request, or opens an exchange if the request must wait.
    fn begin<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        request: &Request<'_>,
        (hash, head): (HeadHash, &[u8]),
    ) -> Flow {
        turn.context.core.counters.requests += 1;
        let has_body = !request.body.is_empty();
        if conn.is_proxy {
            conn.requester =
                conn.named_requester(turn.context.core, &Inbound::of_head(request, head, "").fields);
        }
        let Requester { scheme, .. } = conn.requester;
        let inbound = || Inbound::of_head(request, head, scheme.name());
        let mut file = match admit(&mut turn.context, (request, scheme, conn.requester.client()), inbound) {
            Admitted::Route(routed) => return self.begin_relay(conn, turn, &routed),
            Admitted::Answer(response) if has_body => {
                let after = AfterBody::Answer(RequestBuf::new(request), response);
                return self.begin_body(conn, turn, request, after);
            }
            Admitted::Refused(response) | Admitted::Answer(response) => {
                let answering = Answering::fresh((request, scheme), turn);
                return self.reply(conn, turn, answering, response);
            }
            Admitted::File(file) if has_body => {
                let after = AfterBody::File(FileRequestBuf::new(&file));
                return self.begin_body(conn, turn, request, after);
            }
            Admitted::File(file) => file,
        };
        match answer(&mut turn.context, &mut file, Found::NOTHING) {
            Step::Answer(response) => {
                let answering = Answering::of_file((&file, scheme), turn);
                self.remember(turn, &answering, &response, (hash, head));
                self.reply(conn, turn, answering, response)
            }
            Step::Wait(wait) => {
                let log_entry = LogEntry::new(turn.context.core, request, CacheResult::Miss);
                let opened = turn.exchanges.open_waiting(
                    &mut turn.context,
                    (conn.opener_for(&conn.requester), log_entry),
                    &file,
                    *wait,
                );
                match opened {
                    Opening::Waits(key) => self.pend(conn, key),
                    Opening::Answer(response) => {
                        let answering = Answering::of_file((&file, scheme), turn);
                        self.reply(conn, turn, answering, response)
                    }
                }
            }
        }
    }

    /// Waits for an exchange. Its job has a deadline of its own, so the connection needs none.
    fn pend<S>(&mut self, conn: &mut Conn<S>, key: ExchangeKey) -> Flow {
        self.phase = Phase::Pending(key);
        conn.deadline_ms = u64::MAX;
        conn.acknowledged_before = None;
        Flow::Over(TurnEnd::Blocked)
    }

    /// Continues an exchange whose answer has not begun.
    fn go_on<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) -> Flow {
        self.lent = Some(key);
        let Exchange { opener, log_entry, state } = turn.exchanges.lend(key);
        let (parked, wake) = match state {
            State::Reading(AfterBody::File(file)) => (Parked::new(file), Wake::LookAgain),
            State::Reading(AfterBody::Answer(request, response)) => {
                let answering =
                    Answering::kept(key, log_entry, (&request.request(), conn.requester.scheme), turn);
                return self.reply(conn, turn, answering, response);
            }
            State::Woken(parked, wake) => (parked, wake),
            state => {
                turn.exchanges.put_back(key, Exchange { opener, log_entry, state });
                self.phase = Phase::Pending(key);
                return Flow::Over(TurnEnd::Blocked);
            }
        };
        *turn.serving = Serving::Line(parked.file.request().line.to_vec());
        let waiter = Waiter { exchange: key, client: opener.client };
        match proceed(&mut turn.context, waiter, parked, wake) {
            Progress::Waits(state) => {
                turn.exchanges.put_back(key, Exchange { opener, log_entry, state });
                self.pend(conn, key)
            }
            Progress::Answer(file, response) => {
                let answering = Answering::kept_file(key, log_entry, (file, conn.requester.scheme), turn);
                self.reply(conn, turn, answering, response)
            }
        }
    }

    /// Handles the connection's deadline.
    pub(crate) fn time_out<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> TurnEnd {
        let judges = turn.context.core.rules.least_rate_bytes_per_s > 0;
        let now_ms = turn.context.core.clock.ms();
        let flow = match &self.phase {
            Phase::Idle => Flow::Over(self.judge_idle(conn, turn)),
            Phase::Linger { .. } => Flow::Over(TurnEnd::Close),
            Phase::Head => {
                conn.take_input(turn.inputs);
                self.refuse_bytes(conn, turn, b"-", REQUEST_LATE)
            }
            Phase::Reading(key, _) => {
                let key = *key;
                self.give_body_up(conn, turn, key)
            }
            Phase::Pending(_) => Flow::Over(TurnEnd::Blocked),
            Phase::Relaying(_, frames)
                if conn.acknowledged_before.is_none() || frames.reader_due_ms > now_ms =>
            {
                self.relay_late(conn, turn)
            }
            Phase::Sending(..) | Phase::Relaying(..) if judges => {
                return self.judge_reader(conn, turn, buffer);
            }
            Phase::Sending(..) | Phase::Relaying(..) => {
                conn.deadline_ms = u64::MAX;
                self.reader_checked(conn, turn);
                Flow::Over(TurnEnd::Blocked)
            }
        };
        match flow {
            Flow::Over(turn_end) => turn_end,
            Flow::Again => self.turn(conn, turn, buffer),
            Flow::Finished => {
                self.note_answered();
                self.turn(conn, turn, buffer)
            }
        }
    }

    /// Drops the exchange of a connection whose turn has panicked.
    pub(crate) fn drop_after_panic<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        if let Some(key) = self.lent.take() {
            self.phase = Phase::Idle;
            turn.abort(key, &conn.requester, None);
        }
    }

    /// Drops the exchange of a connection that is being dropped.
    pub(crate) fn drop_exchange<M: Machine>(&mut self, conn: &Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Reading(key, _) | Phase::Pending(key) | Phase::Relaying(key, _) => {
                turn.abort(key, &conn.requester, Some((CLIENT_LEFT, 0)));
            }
            Phase::Sending(key, outgoing) => {
                turn.abort(key, &conn.requester, Some((outgoing.status, outgoing.body_bytes())));
            }
            Phase::Idle | Phase::Head | Phase::Linger { .. } => {}
        }
    }
}
