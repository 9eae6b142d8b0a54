//! Requests that an upstream answers, on a connection of HTTP/1: [`H1Client`] takes bodies out of their framing and frames
//! answers; [`relay`](crate::exchange::relay) decides everything else. Called by [`h1`](super).

use flash_http::request::{Request, Version};
use flash_http::upstream_response::ResponseBody;

use super::answering::Answering;
use super::body::{BodyReader, keep, receive, send_continue};
use super::{Flow, H1, Phase};
use crate::exchange::relay::{Advance, Awaits, ReceivedBody, RelayClient, advance, expire, leave, open};
use crate::exchange::{Exchange, LogEntry, Parked, Relay, Serving, State, Turn, Wake};
use crate::handler::{HeadForm, RelayedHead, Routed, error_page, head_changes, write_relayed_head};
use crate::limits::PASSED_ON_BYTES;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::{Gone, Received};
use crate::wire::conn::{Conn, TurnEnd, Uplink};

/// The framing of a relayed request and its answer.
#[derive(Debug)]
pub(super) struct RelayFrames {
    body: BodyReader,
    /// Framed bytes of the answer, and how many of them were sent.
    unsent: Vec<u8>,
    unsent_at: usize,
    /// Whether the body of the answer is framed in chunks, and whether one was, whose line end is part of the next frame.
    is_chunked: bool,
    has_chunk: bool,
    /// Whether it is the last answer of the connection.
    closes: bool,
    /// When the rate of the client is checked next, while it is waited for.
    pub(super) reader_due_ms: u64,
}

/// The client of a relayed request.
struct H1Client<'c, S> {
    conn: &'c mut Conn<S>,
    frames: &'c mut RelayFrames,
}

/// A relayed request whose turn it is.
struct LentRelay {
    key: ExchangeKey,
    log_entry: LogEntry,
    relay: Box<Relay>,
    frames: Box<RelayFrames>,
}

impl RelayFrames {
    fn new(request: &Request<'_>) -> Self {
        Self {
            body: BodyReader::new(request.body),
            unsent: Vec::new(),
            unsent_at: 0,
            is_chunked: false,
            has_chunk: false,
            closes: false,
            reader_due_ms: u64::MAX,
        }
    }

    fn unsent(&self) -> &[u8] {
        &self.unsent[self.unsent_at..]
    }

    /// Frames the beginning of a piece of the body.
    fn begin_piece(&mut self, data_bytes: usize) {
        if !self.is_chunked || data_bytes == 0 {
            return;
        }
        let line_end = if std::mem::replace(&mut self.has_chunk, true) { "\r\n" } else { "" };
        self.unsent.extend_from_slice(format!("{line_end}{data_bytes:x}\r\n").as_bytes());
    }

    /// Notes that the client has accepted this many of the unsent bytes.
    fn sent(&mut self, bytes: usize) {
        self.unsent_at += bytes;
        if self.unsent_at == self.unsent.len() {
            self.unsent = Vec::new();
            self.unsent_at = 0;
        }
    }
}

impl<M: Machine> RelayClient<M> for H1Client<'_, M::Socket> {
    fn receive(&mut self, turn: &mut Turn<'_, M>, buffer: &mut [u8]) -> ReceivedBody {
        let filled = match receive(self.conn, turn, buffer) {
            Received::Bytes(bytes) => bytes,
            Received::Nothing => return ReceivedBody::Nothing,
            // Without a hang-up, there was no room for what came before.
            Received::End => return ReceivedBody::End { is_stopped: !self.conn.transport.is_half_closed() },
            Received::Failed => return ReceivedBody::Gone,
        };
        match self.frames.body.decode(&mut buffer[..filled]) {
            Ok(decoded) => {
                keep(self.conn, turn, &buffer[decoded.consumed..filled]);
                ReceivedBody::Data { bytes: decoded.data_bytes, is_last: decoded.is_last }
            }
            Err(refusal) => ReceivedBody::Refused(refusal),
        }
    }

    fn invite(&mut self, turn: &mut Turn<'_, M>) -> Result<(), Gone> {
        if self.conn.input.is_empty() { send_continue(self.conn, turn) } else { Ok(()) }
    }

    fn is_half_closed(&self) -> bool {
        self.conn.transport.is_half_closed()
    }

    fn is_writable(&self) -> bool {
        self.conn.transport.is_writable() && !matches!(self.conn.uplink, Uplink::Waiting(_))
    }

    fn begin(&mut self, turn: &mut Turn<'_, M>, request: &Request<'_>, head: RelayedHead<'_>) {
        let (frames, answer) = (&mut *self.frames, head.answer);
        if answer.body == ResponseBody::Upgraded {
            frames.body = BodyReader::Raw;
        }
        let has_no_end = matches!(answer.body, ResponseBody::Chunked | ResponseBody::UntilEnd);
        frames.is_chunked = has_no_end && request.version == Version::Http11;
        let ends_with_close = has_no_end && !frames.is_chunked;
        let is_last = turn.draining || ends_with_close || !frames.body.is_over();
        let changes = head_changes(turn.context.core, self.conn.requester.scheme, request);
        let form = HeadForm::changed(turn.context.core, changes.as_deref());
        frames.closes = write_relayed_head(&mut frames.unsent, form, (request, is_last), head);
    }

    fn frame(&mut self, data: &[u8]) {
        self.frames.begin_piece(data.len());
        self.frames.unsent.extend_from_slice(data);
    }

    /// Sends a long piece from where it is.
    fn pass(&mut self, turn: &mut Turn<'_, M>, data: &[u8]) -> Result<(), Gone> {
        let frames = &mut *self.frames;
        frames.begin_piece(data.len());
        let mut kept = data;
        if data.len() > PASSED_ON_BYTES
            && self.conn.transport.is_writable()
            && turn.context.core.is_unscheduled()
        {
            let first = frames.unsent().len();
            let sent = self.conn.transport.send(turn.context.machine, frames.unsent(), data)?;
            turn.context.core.counters.sends.add(sent as u64);
            frames.sent(sent.min(first));
            kept = &data[sent.saturating_sub(first)..];
        }
        frames.unsent.extend_from_slice(kept);
        Ok(())
    }

    fn end(&mut self) {
        if self.frames.is_chunked {
            let line_end: &[u8] = if self.frames.has_chunk { b"\r\n" } else { b"" };
            self.frames.unsent.extend_from_slice(&[line_end, b"0\r\n\r\n"].concat());
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.frames.unsent().len()
    }

    fn send(&mut self, turn: &mut Turn<'_, M>, bytes_max: usize, rank_bytes: u64) -> Result<usize, Gone> {
        let Some(allowed) = self.conn.request_uplink(&mut turn.context, rank_bytes) else { return Ok(0) };
        self.conn.follow_schedule(&mut turn.context, rank_bytes);
        let unsent = self.frames.unsent();
        let piece = &unsent[..unsent.len().min(allowed).min(bytes_max)];
        let sent = self.conn.transport.send(turn.context.machine, piece, &[])?;
        let core = &mut *turn.context.core;
        core.counters.sends.add(sent as u64);
        core.schedule.count_sent(self.conn.transport.band(), sent);
        core.egress.spend(sent);
        self.frames.sent(sent);
        Ok(sent)
    }
}

impl H1 {
    /// Begins a request that an upstream answers.
    pub(super) fn begin_relay<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        routed: &Routed<'_>,
    ) -> Flow {
        let (opener, peer) = (conn.opener_for(&conn.requester), conn.requester.address);
        let key = open(turn, routed, opener, peer, |machine| conn.local_address(machine));
        conn.await_server();
        self.phase = Phase::Relaying(key, Box::new(RelayFrames::new(routed.inbound.request)));
        Flow::Again
    }

    /// Continues a request that an upstream answers.
    pub(super) fn relay_on<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        (key, frames): (ExchangeKey, Box<RelayFrames>),
    ) -> Flow {
        let mut lent = self.lend_relay(turn, (key, frames));
        let mut client = H1Client { conn: &mut *conn, frames: &mut lent.frames };
        let advanced = advance(&mut client, turn, buffer, &mut lent.relay);
        self.advanced(conn, turn, lent, advanced)
    }

    /// Handles the deadline of a relayed request.
    pub(super) fn relay_late<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> Flow {
        let Phase::Relaying(key, frames) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            unreachable!("a relay is late in the Relaying phase only")
        };
        let mut lent = self.lend_relay(turn, (key, frames));
        let advanced = expire(turn, &mut lent.relay);
        self.advanced(conn, turn, lent, advanced)
    }

    fn lend_relay<M: Machine>(
        &mut self,
        turn: &mut Turn<'_, M>,
        (key, frames): (ExchangeKey, Box<RelayFrames>),
    ) -> LentRelay {
        self.lent = Some(key);
        let Exchange { log_entry, state, .. } = turn.exchanges.lend(key);
        let State::Relaying(relay) = state else {
            unreachable!("the Relaying phase has an exchange in the Relaying state")
        };
        *turn.serving = Serving::Line(relay.request.request().line.to_vec());
        LentRelay { key, log_entry, relay, frames }
    }

    fn advanced<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        lent: LentRelay,
        advanced: Advance,
    ) -> Flow {
        let LentRelay { key, mut log_entry, mut relay, mut frames } = lent;
        if relay.reply.is_some() {
            turn.context.note_first(&mut log_entry.timing);
        }
        let turn_end = match advanced {
            Advance::Blocked => {
                await_relay(conn, turn, &relay, &mut frames);
                Some(TurnEnd::Blocked)
            }
            Advance::Yield => Some(TurnEnd::Yield),
            _ => None,
        };
        if let Some(turn_end) = turn_end {
            let state = State::Relaying(relay);
            turn.exchanges
                .put_back(key, Exchange { opener: conn.opener_for(&conn.requester), log_entry, state });
            self.phase = Phase::Relaying(key, frames);
            return Flow::Over(turn_end);
        }
        leave(turn, &mut relay);
        conn.acknowledged_before = None;
        match advanced {
            Advance::Refused(refusal) => {
                let request = relay.request.request();
                let page = error_page(&request, refusal);
                let answering = Answering::kept(key, log_entry, (&request, conn.requester.scheme), turn);
                let answering = if frames.body.is_over() { answering } else { answering.closing() };
                self.reply(conn, turn, answering, page)
            }
            Advance::HandBack(request) => {
                let state = State::Woken(Parked::new(*request), Wake::LookAgain);
                turn.exchanges
                    .put_back(key, Exchange { opener: conn.opener_for(&conn.requester), log_entry, state });
                self.phase = Phase::Pending(key);
                Flow::Again
            }
            advanced => {
                turn.exchanges.end_lent(key);
                conn.leave_uplink(&mut turn.context.core.egress);
                let is_whole = matches!(advanced, Advance::Done);
                relay.note_end(turn, &log_entry, &conn.requester, is_whole);
                let Some(reply) = relay.reply else { return Flow::Over(TurnEnd::Close) };
                if !is_whole {
                    // A client that takes the end of the connection for that of the body gets a reset instead.
                    let ends_with_close = !frames.is_chunked && reply.left_bytes.is_none();
                    return Flow::Over(if ends_with_close { TurnEnd::Reset } else { TurnEnd::Close });
                }
                self.after_answer(conn, turn, reply.status, frames.closes)
            }
        }
    }
}

/// Decides until when a relayed request waits, and whether the rate at which its client reads is checked meanwhile.
fn await_relay<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    relay: &Relay,
    frames: &mut RelayFrames,
) {
    // Otherwise the client waits for its turn at the uplink.
    if relay.awaits == Awaits::Room && !conn.transport.is_writable() {
        if conn.acknowledged_before.is_none() {
            let _ = conn.await_room(turn.context.machine, turn.context.core.clock.ms());
            frames.reader_due_ms = conn.deadline_ms;
        }
        conn.deadline_ms = frames.reader_due_ms.min(relay.due_ms);
    } else {
        conn.await_server();
        conn.deadline_ms = relay.due_ms;
    }
}
