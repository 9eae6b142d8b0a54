//! Turns responses into bytes: answers that fit in one send, and answers that an exchange sends piece by
//! piece, a bounded amount per turn. Called by [`h1`](super).

use flash_http::response::Status;

use super::answering::{Answering, RequestSource};
use super::{Flow, H1, Phase};
use crate::access_log::{AnswerEnd, LogFields};
use crate::body::{Body, Pulled};
use crate::caches::{Content, Persistence};
use crate::context::{Clock, Ended};
use crate::exchange::{Exchange, Halt, LogEntry, Sending, Serving, State, Turn};
use crate::handler::{About, Extent, FileRequestBuf, HeadForm, Response, write_head};
use crate::head_changes::{Changes, HeadChanges};
use crate::jobs::Waiter;
use crate::limits::SEND_BYTES_PER_TURN_MAX;
use crate::machine::{FileSent, Machine};
use crate::slab::ExchangeKey;
use crate::transport::Gone;
use crate::wire::conn::{Conn, TurnEnd};

/// An answer under way: the rest of its head, and the bytes sent so far.
#[derive(Debug)]
pub(super) struct Outgoing {
    head: Vec<u8>,
    head_at: usize,
    head_bytes: usize,
    sent_bytes: u64,
    pub(super) status: Status,
    closes: bool,
}

impl Outgoing {
    /// Bytes of the body that were sent.
    pub(super) fn body_bytes(&self) -> u64 {
        self.sent_bytes.saturating_sub(self.head_bytes as u64)
    }

    fn end(&self, is_whole: bool) -> AnswerEnd {
        AnswerEnd { status: self.status, body_bytes: self.body_bytes(), is_whole }
    }
}

/// The first send of an answer: the length of its head, the bytes offered, and the bytes accepted.
pub(super) struct FirstSend {
    pub(super) head_bytes: usize,
    pub(super) offered: usize,
    pub(super) sent: Result<usize, Gone>,
    /// The unsent rest of the head.
    pub(super) rest: Vec<u8>,
}

impl H1 {
    /// Sends a response: by one send if it is in memory and the client accepts it, otherwise through an
    /// exchange.
    pub(super) fn reply<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        answering: Answering<'_>,
        response: Response<M::File>,
    ) -> Flow {
        let mut response = response;
        response.follow_rules(answering.changes.as_deref());
        conn.follow_schedule(&mut turn.context, response.body.len());
        let fields = (answering.persistence, answering.changes.as_deref());
        let first = if turn.context.core.egress.is_off() && !is_throttled(&answering, &response) {
            first_send(conn, turn, fields, &response)
        } else {
            hold_head(turn, fields, &response)
        };
        self.sent_first(conn, turn, answering, (first, response))
    }

    /// Continues after the first send of an answer.
    pub(super) fn sent_first<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        mut answering: Answering<'_>,
        (first, mut response): (FirstSend, Response<M::File>),
    ) -> Flow {
        let Ok(sent) = first.sent else {
            let end = AnswerEnd { status: response.status, body_bytes: 0, is_whole: false };
            return self.end(conn, turn, &answering, end);
        };
        if is_simple(&response.body) && sent > 0 {
            turn.context.core.counters.sends.add(sent as u64);
            turn.context.core.schedule.count_sent(conn.transport.band(), sent);
        }
        if sent > 0 {
            turn.context.note_first(&mut answering.timing);
            turn.context.core.schedule.note_answer(response.body.len());
        }
        turn.budget.bytes = turn.budget.bytes.saturating_sub(sent);
        let body_sent = sent.saturating_sub(first.head_bytes);
        if sent == first.offered && is_simple(&response.body) {
            let end = AnswerEnd { status: response.status, body_bytes: body_sent as u64, is_whole: true };
            return self.end(conn, turn, &answering, end);
        }
        response.body.advance(body_sent);
        let outgoing = Outgoing {
            head: first.rest,
            head_at: 0,
            head_bytes: first.head_bytes,
            sent_bytes: sent as u64,
            status: response.status,
            closes: answering.persistence == Persistence::Closes,
        };
        self.begin_sending(conn, turn, answering, (outgoing, response))
    }

    /// Counts and logs an answer that needs no exchange, and ends its request.
    fn end<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        answering: &Answering<'_>,
        end: AnswerEnd,
    ) -> Flow {
        let source = answering.log_source(turn);
        let timing = answering.timing;
        turn.context.note_end(Ended { requester: &conn.requester, source, timing, end });
        if let RequestSource::Exchange(key, ..) = &answering.asked {
            turn.exchanges.end_lent(*key);
        }
        let closes = answering.persistence == Persistence::Closes;
        if end.is_whole {
            self.after_answer(conn, turn, end.status, closes)
        } else {
            Flow::Over(TurnEnd::Close)
        }
    }

    /// Continues after a complete answer.
    pub(super) fn after_answer<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        status: Status,
        closes: bool,
    ) -> Flow {
        self.phase = Phase::Idle;
        if !closes {
            return Flow::Finished;
        }
        // Closing a socket with unread input sends a reset, which can destroy the answer before the client
        // reads it.
        let may_have_input = conn.transport.may_have_input() || !conn.input.is_empty() || status.0 >= 400;
        if may_have_input && !conn.transport.has_ended() {
            return self.begin_linger(conn, turn);
        }
        Flow::Over(TurnEnd::Close)
    }

    /// Moves the rest of an answer into an exchange.
    fn begin_sending<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        answering: Answering<'_>,
        (outgoing, response): (Outgoing, Response<M::File>),
    ) -> Flow {
        let Response { body, tries, .. } = response;
        let timing = answering.timing;
        let opener = conn.opener_for(&conn.requester);
        let text = |fields| turn.context.core.lines.text(fields);
        let (kept, log, file) = match answering.asked {
            RequestSource::Exchange(key, log, file) => (Some(key), log, file.map(|file| *file)),
            RequestSource::Fresh(request) => (None, text(LogFields::of(request)), None),
            RequestSource::File(file) => {
                (None, text(LogFields::of(file.request)), Some(FileRequestBuf::new(file)))
            }
            RequestSource::Line(line) => (None, text(LogFields::of_line(line)), None),
            RequestSource::Repeated(log) => (None, log, None),
        };
        let state = State::Sending(Sending::new(body, file, tries));
        let exchange = Exchange { opener, log_entry: LogEntry { log, timing }, state };
        let key = match kept {
            Some(key) => {
                turn.exchanges.put_back(key, exchange);
                key
            }
            None => turn.exchanges.insert(exchange),
        };
        self.phase = Phase::Sending(key, Box::new(outgoing));
        Flow::Again
    }

    /// Sends as much of an exchange's answer as is available, as the socket accepts, and as its turn allows.
    pub(super) fn send_on<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
        mut outgoing: Box<Outgoing>,
    ) -> Flow {
        self.lent = Some(key);
        let Exchange { opener, mut log_entry, state } = turn.exchanges.lend(key);
        let State::Sending(mut sending) = state else {
            unreachable!("the Sending phase has an exchange in the Sending state")
        };
        *turn.serving =
            sending.request().map_or(Serving::None, |request| Serving::Line(request.line.to_vec()));
        let waiter = Waiter { exchange: key, client: opener.client };
        let end = loop {
            let piece = send_piece(conn, turn, waiter, &mut sending, &mut outgoing);
            if outgoing.sent_bytes > 0 {
                turn.context.note_first(&mut log_entry.timing);
            }
            log_entry.timing.note_wait(sending.waits_for.is_some());
            match piece {
                Piece::More => {}
                // If nothing was sent, the request is answered again. Otherwise the connection is closed, so
                // that the client notices the incomplete answer.
                Piece::Halted(halt) => {
                    sending.leave(&mut turn.context, key);
                    let retry = if outgoing.sent_bytes == 0 { sending.retry(halt) } else { None };
                    let Some(state) = retry else { break TurnEnd::Close };
                    conn.leave_uplink(&mut turn.context.core.egress);
                    turn.exchanges.put_back(key, Exchange { opener, log_entry, state });
                    self.phase = Phase::Pending(key);
                    return Flow::Again;
                }
                Piece::Over(turn_end @ (TurnEnd::Blocked | TurnEnd::Yield)) => {
                    let state = State::Sending(sending);
                    turn.exchanges.put_back(key, Exchange { opener, log_entry, state });
                    self.phase = Phase::Sending(key, outgoing);
                    return Flow::Over(turn_end);
                }
                Piece::Over(turn_end) => {
                    sending.leave(&mut turn.context, key);
                    break turn_end;
                }
                Piece::Done => {
                    sending.leave(&mut turn.context, key);
                    turn.exchanges.end_lent(key);
                    conn.acknowledged_before = None;
                    log_entry.note_end(&mut turn.context, &conn.requester, outgoing.end(true));
                    return self.after_answer(conn, turn, outgoing.status, outgoing.closes);
                }
            }
        };
        turn.exchanges.end_lent(key);
        log_entry.note_end(&mut turn.context, &conn.requester, outgoing.end(false));
        Flow::Over(end)
    }
}

/// The part of a content that one send offers: at most the budget of a turn.
pub(super) fn at_once(body: &[u8]) -> &[u8] {
    &body[..body.len().min(SEND_BYTES_PER_TURN_MAX)]
}

/// Whether a body is sent together with the head.
fn is_simple<F>(body: &Body<F>) -> bool {
    matches!(body, Body::Empty | Body::Page(..) | Body::Content(..))
}

/// Whether the answer has to wait until rules let its bytes be sent.
fn is_throttled<F>(answering: &Answering<'_>, response: &Response<F>) -> bool {
    answering.is_throttled() && response.body.len() > 0
}

/// Sends the head, together with a body in memory. For other bodies, the head waits for their first bytes.
fn first_send<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    (persistence, changes): (Persistence, Option<&HeadChanges>),
    response: &Response<M::File>,
) -> FirstSend {
    let Response { status, about, length, body, .. } = response;
    let core = &mut *turn.context.core;
    if let (Body::Content(content, _), About::File(version, Extent::Whole)) = (body, about)
        && persistence == Persistence::Persists
        && content.head_bytes() > 0
        && (changes.is_none() || !version.is_listing())
    {
        let changes = changes.and_then(|changes| changes.of(*status));
        return send_content(
            conn,
            &mut *turn.context.machine,
            &mut *turn.head,
            (&core.clock, content, changes),
        );
    }
    core.counters.heads_made += 1;
    turn.head.clear();
    write_head(turn.head, HeadForm::changed(core, changes), (*status, *length), about, persistence);
    let head = &turn.head[..];
    let machine = &mut *turn.context.machine;
    let (offered, sent) = match body {
        Body::Empty => (head.len(), conn.transport.send(machine, head, &[])),
        Body::Page(page, _) => (head.len() + page.len(), conn.transport.send(machine, head, page)),
        Body::Content(content, range) => {
            (head.len() + range.len(), conn.transport.send(machine, head, at_once(content.part(range))))
        }
        Body::File(_) | Body::Multipart(_) => (head.len(), Ok(0)),
    };
    let taken = sent.unwrap_or(0).min(head.len());
    let rest = if sent == Ok(offered) { Vec::new() } else { head[taken..].to_vec() };
    FirstSend { head_bytes: head.len(), offered, sent, rest }
}

/// Sends a content in memory with its head, changed as rules say. `kept` takes a changed head.
#[inline]
pub(super) fn send_content<M: Machine>(
    conn: &mut Conn<M::Socket>,
    machine: &mut M,
    kept: &mut Vec<u8>,
    (clock, content, changes): (&Clock, &Content, Option<&Changes>),
) -> FirstSend {
    let (head_bytes, offered, sent) = content.with_head(clock.wall_s, &clock.date, |head, body| {
        let head = match changes {
            Some(changes) => {
                kept.clear();
                changes.copy_file_head(kept, head);
                &kept[..]
            }
            None => head,
        };
        let sent = conn.transport.send(machine, head, at_once(body));
        (head.len(), head.len() + body.len(), sent)
    });
    let taken = sent.unwrap_or(0).min(head_bytes);
    let rest = match changes {
        _ if sent == Ok(offered) => Vec::new(),
        Some(_) => kept[taken..].to_vec(),
        None => content.head_from(taken),
    };
    FirstSend { head_bytes, offered, sent, rest }
}

/// Makes the head and sends nothing yet: the answer has to wait for its turn at the uplink.
fn hold_head<M: Machine>(
    turn: &mut Turn<'_, M>,
    (persistence, changes): (Persistence, Option<&HeadChanges>),
    response: &Response<M::File>,
) -> FirstSend {
    let Response { status, about, length, .. } = response;
    let core = &mut *turn.context.core;
    core.counters.heads_made += 1;
    let mut rest = Vec::new();
    write_head(&mut rest, HeadForm::changed(core, changes), (*status, *length), about, persistence);
    FirstSend { head_bytes: rest.len(), offered: rest.len(), sent: Ok(0), rest }
}

/// The result of sending a piece.
enum Piece {
    More,
    Done,
    Over(TurnEnd),
    Halted(Halt),
}

/// Whether nothing of an answer is left to send. Then it needs no turn at the uplink, and keeps the band of its last piece.
fn is_sent<F>(sending: &Sending<F>, outgoing: &Outgoing) -> bool {
    sending.body.len() == 0 && outgoing.head_at == outgoing.head.len()
}

/// The first of these bytes.
fn at_most(allowed: usize, bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(allowed)]
}

/// How many bytes of the body may be sent now. None if the answer has to wait for its bytes, or for its turn at the uplink.
fn request_throttles_and_uplink<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    waiter: Waiter,
    sending: &mut Sending<M::File>,
) -> Option<usize> {
    let left_bytes = sending.body.len();
    let Some(paced) = sending.pace.request(&mut turn.context, waiter.exchange, left_bytes) else {
        conn.await_server();
        return None;
    };
    Some(conn.request_uplink(&mut turn.context, left_bytes)?.min(paced))
}

/// Sends the next piece of an answer, preceded by the rest of its head.
fn send_piece<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    waiter: Waiter,
    sending: &mut Sending<M::File>,
    outgoing: &mut Outgoing,
) -> Piece {
    if let Some(halt) = sending.halt.take() {
        return Piece::Halted(halt);
    }
    if is_sent(sending, outgoing) {
        return Piece::Done;
    }
    if sending.waits_for.is_some() {
        conn.await_server();
        return Piece::Over(TurnEnd::Blocked);
    }
    if turn.budget.bytes == 0 {
        return Piece::Over(TurnEnd::Yield);
    }
    if !conn.transport.is_writable() {
        return Piece::Over(conn.await_room(turn.context.machine, turn.context.core.clock.ms()));
    }
    let Some(allowed) = request_throttles_and_uplink(conn, turn, waiter, sending) else {
        return Piece::Over(TurnEnd::Blocked);
    };
    sending.body.offer_at_most(allowed);
    conn.follow_schedule(&mut turn.context, sending.body.len());
    sending.load_ahead(&mut turn.context, waiter);
    let head = &outgoing.head[outgoing.head_at..];
    let (machine, core) = (&mut *turn.context.machine, &mut *turn.context.core);
    let (offered, sent) = match sending.body.pull(machine, core) {
        Pulled::Bytes(bytes) => {
            let bytes = at_most(allowed, bytes);
            (head.len() + bytes.len(), conn.transport.send(machine, head, bytes))
        }
        Pulled::Content(content, range) => {
            let piece = at_most(allowed, at_once(content.part(&range)));
            (head.len() + piece.len(), conn.transport.send(machine, head, piece))
        }
        Pulled::Part(file, part) => {
            match conn.transport.send_file(machine, head, file, part.first(allowed)) {
                Ok(FileSent::Took { offered, sent }) => (offered, Ok(sent)),
                Ok(found @ (FileSent::Absent | FileSent::Unknown)) => {
                    sending.bring(&mut turn.context, waiter, matches!(found, FileSent::Absent));
                    return Piece::More;
                }
                Ok(FileSent::Changed) => return Piece::Halted(Halt::Changed),
                Ok(FileSent::Failed) => return Piece::Halted(Halt::FAILED),
                Err(Gone) => (0, Err(Gone)),
            }
        }
        Pulled::Wait(wanted) => {
            sending.wait(&mut turn.context, waiter, *wanted);
            return Piece::More;
        }
        Pulled::End if head.is_empty() => return Piece::Done,
        Pulled::End => (head.len(), conn.transport.send(machine, head, &[])),
        Pulled::Changed => return Piece::Halted(Halt::Changed),
        Pulled::Failed => return Piece::Halted(Halt::FAILED),
    };
    match sent {
        Ok(sent) => {
            turn.context.core.schedule.count_sent(conn.transport.band(), sent);
            account(turn, sending, outgoing, (offered, sent));
            Piece::More
        }
        Err(Gone) => Piece::Over(TurnEnd::Close),
    }
}

/// Accounts for the sending of a piece.
fn account<M: Machine>(
    turn: &mut Turn<'_, M>,
    sending: &mut Sending<M::File>,
    outgoing: &mut Outgoing,
    (offered, sent): (usize, usize),
) {
    if outgoing.sent_bytes == 0 && sent > 0 {
        turn.context.core.schedule.note_answer(sending.body.len());
    }
    turn.context.core.egress.spend(sent);
    turn.context.core.counters.sends.add(sent as u64);
    turn.budget.bytes = turn.budget.bytes.saturating_sub(sent);
    outgoing.sent_bytes += sent as u64;
    let of_head = sent.min(outgoing.head.len() - outgoing.head_at);
    outgoing.head_at += of_head;
    if let Some(file) = sending.body.file_mut()
        && file.sends_block()
    {
        turn.context.core.counters.stored_bytes += (sent - of_head) as u64;
    }
    sending.pace.spend(sent - of_head);
    sending.body.advance(sent - of_head);
    if let Some(file) = sending.body.file_mut() {
        file.adapt(offered, sent);
    }
}
