//! Requests that an upstream answers, on a stream of HTTP/2: [`H2Client`] takes bodies from DATA and frames answers, both within
//! their windows; [`relay`](crate::exchange::relay) decides everything else. Called by [`h2`](super).

use flash_http::h2::frame::{FRAME_BYTES, push_headers};
use flash_http::h2::{ErrorCode, Indexing};
use flash_http::request::Request;
use flash_http::response::push_number;
use flash_http::upstream_response::ResponseBody;

use super::H2;
use super::answer_head::{begin_head, push_kept};
use super::receive::give_credit;
use super::send::After;
use super::stream::{Stream, StreamRelay, StreamState};
use crate::exchange::relay::{Advance, Awaits, ReceivedBody, RelayClient, advance, expire, leave};
use crate::exchange::{Exchange, LogEntry, Parked, Relay, State, Turn, Wake};
use crate::handler::{CommonFields, RelayedHead, error_page};
use crate::head_changes::has_hsts;
use crate::limits::H2_OUT_BYTES;
use crate::machine::Machine;
use crate::slab::ClientNumber;
use crate::transport::Gone;
use crate::wire::conn::{Conn, Uplink};

/// The client of a relayed request.
struct H2Client<'c> {
    h2: &'c mut H2,
    stream: &'c mut Stream,
    frames: &'c mut StreamRelay,
    client: ClientNumber,
    is_half_closed: bool,
    has_ended: bool,
    waits_for_uplink: bool,
    /// How many bytes can be framed before the framed ones are sent.
    out_bytes_max: usize,
}

impl H2Client<'_> {
    /// How many bytes of the answer can be framed now.
    fn room_bytes(&self) -> usize {
        self.h2.window.available().min(self.stream.window.available()).min(self.out_room_bytes())
    }

    fn out_room_bytes(&self) -> usize {
        self.out_bytes_max.saturating_sub(self.h2.out.len())
    }

    /// Frames as much of `data` as there is room for, and the end if it `is_last`. Returns how much.
    fn push(&mut self, data: &[u8], is_last: bool) -> usize {
        let mut at = 0;
        while at < data.len() {
            let piece = &data[at..(at + FRAME_BYTES.min(self.room_bytes())).min(data.len())];
            if piece.is_empty() {
                return at;
            }
            at += piece.len();
            // The window has room for it.
            let _ = self.stream.window.take(piece.len());
            let ends_stream = is_last && at == data.len();
            self.h2.push_data((self.stream.id, piece), ends_stream);
            self.frames.is_over |= ends_stream;
        }
        at
    }
}

impl<M: Machine> RelayClient<M> for H2Client<'_> {
    fn receive(&mut self, turn: &mut Turn<'_, M>, buffer: &mut [u8]) -> ReceivedBody {
        let body = &mut self.frames.body;
        let bytes = body.len().min(buffer.len());
        if bytes == 0 && !self.stream.receiving.has_ended() {
            return match self.frames.is_stopped || self.has_ended {
                true => ReceivedBody::End { is_stopped: self.frames.is_stopped },
                false => ReceivedBody::Nothing,
            };
        }
        body.drain(..bytes).zip(buffer).for_each(|(byte, place)| *place = byte);
        if body.is_empty() {
            // A stream that waits needs no buffer.
            *body = Default::default();
        }
        turn.inputs.give_back(self.client, bytes);
        turn.budget.bytes = turn.budget.bytes.saturating_sub(bytes);
        let is_last =
            self.frames.body.is_empty() && self.stream.receiving.has_ended() && !self.frames.is_stopped;
        self.stream.credit_bytes += bytes;
        give_credit(&mut self.h2.out, self.stream);
        ReceivedBody::Data { bytes, is_last }
    }

    fn invite(&mut self, _: &mut Turn<'_, M>) -> Result<(), Gone> {
        if self.frames.body.is_empty() && !self.stream.receiving.has_ended() {
            self.h2.push_continue(self.stream.id);
        }
        Ok(())
    }

    fn is_half_closed(&self) -> bool {
        self.is_half_closed
    }

    fn is_writable(&self) -> bool {
        let has_room =
            if self.frames.unsent().is_empty() { self.out_room_bytes() > 0 } else { self.room_bytes() > 0 };
        has_room && !self.waits_for_uplink
    }

    fn begin(&mut self, turn: &mut Turn<'_, M>, _: &Request<'_>, head: RelayedHead<'_>) {
        let RelayedHead { answer, ruled_as } = head;
        let is_empty = matches!(answer.body, ResponseBody::None | ResponseBody::Length(0));
        let common = CommonFields::of(turn.context.core);
        let (encoder, changes) = (&mut self.h2.encoder, self.stream.changes.as_deref());
        let changes = changes.and_then(|changes| changes.of(ruled_as));
        let is_hsts = changes.is_some() && has_hsts(&answer.fields);
        push_headers(&mut self.h2.out, self.stream.id, is_empty, |out| {
            begin_head(encoder, out, (answer.status, common), (changes, is_hsts));
            if let Some(bytes) = answer.length_bytes {
                let mut digits = Vec::with_capacity(20);
                push_number(&mut digits, bytes);
                encoder.field(out, b"content-length", &digits, Indexing::Own);
            }
            for line in answer.fields.split(|&byte| byte == b'\n') {
                let Some(at) = line.iter().position(|&byte| byte == b':') else { continue };
                push_kept(encoder, out, changes, (&line[..at], line[at + 1..].trim_ascii()));
            }
        });
        self.h2.frame_budget.answered();
        self.frames.is_over = is_empty;
    }

    fn frame(&mut self, data: &[u8]) {
        self.frames.keep(data);
    }

    /// Frames a piece from where it is, if nothing is before it.
    fn pass(&mut self, _: &mut Turn<'_, M>, data: &[u8]) -> Result<(), Gone> {
        let framed = if self.frames.unsent().is_empty() { self.push(data, false) } else { 0 };
        self.frames.keep(&data[framed..]);
        Ok(())
    }

    fn end(&mut self) {
        self.frames.is_ending = !self.frames.is_over;
    }

    fn unsent_bytes(&self) -> usize {
        self.frames.unsent().len() + usize::from(self.frames.is_ending)
    }

    fn send(&mut self, _: &mut Turn<'_, M>, bytes_max: usize, rank_bytes: u64) -> Result<usize, Gone> {
        let unsent = std::mem::take(self.frames);
        let all = unsent.unsent();
        let piece = &all[..all.len().min(bytes_max)];
        let framed = self.push(piece, unsent.is_ending && piece.len() == all.len());
        let is_over = self.frames.is_over;
        *self.frames = unsent;
        self.frames.framed(framed);
        self.frames.is_over |= is_over;
        self.h2.rank_bytes = rank_bytes;
        let mut sent = framed;
        if self.frames.is_ending && self.frames.unsent().is_empty() {
            if !self.frames.is_over {
                self.h2.push_data((self.stream.id, &[]), true);
                self.frames.is_over = true;
            }
            self.frames.is_ending = false;
            sent += 1;
        }
        Ok(sent)
    }
}

/// A relayed request whose turn it is.
type Lent<'s> = (&'s mut Stream, LogEntry, Box<Relay>);

impl H2 {
    /// Continues a request that an upstream answers.
    pub(super) fn serve_relay<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        (stream, log_entry, mut relay): Lent<'_>,
    ) -> After {
        let StreamState::Relaying(mut frames) = std::mem::replace(&mut stream.state, StreamState::Pending)
        else {
            unreachable!("an exchange that an upstream answers has a stream that relays")
        };
        let mut client = H2Client {
            h2: self,
            stream: &mut *stream,
            frames: &mut frames,
            client: conn.opener.client,
            is_half_closed: conn.transport.is_half_closed(),
            has_ended: conn.transport.has_ended(),
            waits_for_uplink: matches!(conn.uplink, Uplink::Waiting(_)),
            out_bytes_max: H2_OUT_BYTES.min(turn.budget.bytes),
        };
        let advanced = advance(&mut client, turn, buffer, &mut relay);
        stream.state = StreamState::Relaying(frames);
        self.advanced(conn, turn, (stream, log_entry, relay), advanced)
    }

    /// Handles the deadline of a relayed request. Returns whether its stream has ended.
    pub(super) fn expire_relay<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        at: usize,
    ) -> bool {
        let mut stream = self.lend(at);
        let Exchange { opener, log_entry, state } = turn.exchanges.lend(stream.key);
        let after = match state {
            State::Relaying(mut relay) => {
                let advanced = expire(turn, &mut relay);
                self.advanced(conn, turn, (&mut stream, log_entry, relay), advanced)
            }
            state => {
                turn.exchanges.put_back(stream.key, Exchange { opener, log_entry, state });
                After::Stays
            }
        };
        self.put_back(conn, turn, (at, stream), after);
        after == After::Ended
    }

    /// Continues after a turn of a relay.
    fn advanced<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (stream, mut log_entry, mut relay): Lent<'_>,
        advanced: Advance,
    ) -> After {
        if relay.reply.is_some() {
            turn.context.note_first(&mut log_entry.timing);
        }
        let opener = conn.opener_for(&stream.requester);
        if matches!(advanced, Advance::Blocked | Advance::Yield) {
            stream.is_blocked = matches!(advanced, Advance::Blocked);
            let waits_for_window = self.window.available() == 0 || stream.window.available() == 0;
            stream.is_stalled = stream.is_blocked && relay.awaits == Awaits::Room && waits_for_window;
            turn.exchanges
                .put_back(stream.key, Exchange { opener, log_entry, state: State::Relaying(relay) });
            return After::Stays;
        }
        leave(turn, &mut relay);
        let state = match advanced {
            Advance::Refused(refusal) => {
                stream.drop_body(turn.inputs, conn.opener.client);
                stream.begin_answer(error_page(&relay.request.request(), refusal), None)
            }
            Advance::HandBack(file) => {
                stream.drop_body(turn.inputs, conn.opener.client);
                stream.state = StreamState::Pending;
                State::Woken(Parked::new(*file), Wake::LookAgain)
            }
            advanced => {
                turn.exchanges.end_lent(stream.key);
                let is_whole = matches!(advanced, Advance::Done);
                if is_whole {
                    self.close_stream(stream.id, stream.receiving);
                } else {
                    self.reset_stream(stream.id, ErrorCode::INTERNAL_ERROR);
                }
                relay.note_end(turn, &log_entry, &stream.requester, is_whole);
                return After::Ended;
            }
        };
        stream.is_blocked = false;
        turn.exchanges.put_back(stream.key, Exchange { opener, log_entry, state });
        After::Stays
    }
}
