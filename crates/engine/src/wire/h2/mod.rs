//! HTTP/2 (RFC 9113): many exchanges at once on a connection. A turn sends what is framed, reads frames, and frames answers:
//! those of the most urgent streams, and among them of the one with the fewest bytes left (RFC 9218). A stream that waits for a
//! helper or for a server holds up no other.
//!
//! [`receive`] and [`control`] read frames, [`begin`] begins requests, [`send`] frames answers and [`answer_head`] their heads, [`relay`] is the client of an upstream's
//! answer, [`closing`] ends connections, and [`frame_budget`] bounds what a client can cause for nothing. The protocol itself is in
//! [`flash_http::h2`].
//!
//! Nothing is read while framed bytes are unsent. So a client that does not read can make the server hold no more than
//! [`H2_OUT_BYTES`], and with its requests no more than its share of [`Inputs`](crate::exchange::Inputs).

mod answer_head;
mod begin;
mod closing;
mod control;
mod frame_budget;
mod receive;
mod relay;
mod send;
mod stream;

use flash_http::h2::{Decoder, Encoder, FieldList, Priority, Scratch, Window};

use crate::exchange::{Budget, CLIENT_LEFT, Turn};
use crate::limits::{H2_CONNECTION_WINDOW_BYTES, H2_OUT_BYTES, RATE_WINDOW_MS};
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::transport::Gone;
use crate::wire::conn::{Conn, TurnEnd, Uplink};
use closing::Drain;
use frame_budget::FrameBudget;
use receive::HeaderBlock;
use stream::{ClosedStreams, Stream, StreamState};

/// The state of HTTP/2 on a connection.
#[derive(Debug)]
pub(crate) struct H2 {
    stage: ConnStage,
    decoder: Decoder,
    encoder: Encoder,
    /// How many bytes of answers the client takes, on all streams together, and on a new one.
    window: Window,
    first_window: u32,
    /// How many bytes of request bodies the client may send on all streams together.
    receive_window: Window,
    /// The streams whose answers are not complete, the oldest first.
    streams: Vec<Stream>,
    /// The highest number of a stream of the client.
    last_stream: u32,
    closed: ClosedStreams,
    /// Priorities of streams that have not begun.
    early_priorities: Vec<(u32, Priority)>,
    /// A header block that is not complete.
    block: Option<HeaderBlock>,
    /// Framed bytes, and how many of them were sent.
    out: Vec<u8>,
    out_at: usize,
    /// The bytes that the answer framed last has left, which is its rank at an uplink.
    rank_bytes: u64,
    frame_budget: FrameBudget,
    drain: Drain,
    /// Until when the client must acknowledge the settings.
    settings_due_ms: u64,
    /// When the rate of the client is checked next, while it is waited for.
    reader_due_ms: u64,
    /// Whether an answer was finished since the connection last became idle.
    has_answered: bool,
    /// Whether frames wait in the kept input for the next turn.
    has_input: bool,
    /// Counts the pieces of answers.
    served: u64,
    /// The exchange that is lent. After a panic in its turn, this is the only trace of it.
    lent: Option<ExchangeKey>,
}

/// The stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnStage {
    /// The preface is to come.
    Preface,
    /// The first SETTINGS are to come.
    Settings,
    Open,
    /// GOAWAY is the last frame; what is framed is still sent.
    Closing,
    /// Everything was sent; input is discarded until the client closes.
    Linger {
        /// Bytes that can still be discarded.
        left_bytes: usize,
    },
}

/// Buffers that all connections of a worker share, one turn at a time.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    list: FieldList,
    scratch: Scratch,
    /// For framed bytes, so that a connection without unsent bytes needs no buffer.
    out: Vec<u8>,
}

impl H2 {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            stage: ConnStage::Preface,
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            window: Window::new(flash_http::h2::settings::WINDOW_BYTES),
            first_window: flash_http::h2::settings::WINDOW_BYTES,
            receive_window: Window::new(H2_CONNECTION_WINDOW_BYTES),
            streams: Vec::new(),
            last_stream: 0,
            closed: ClosedStreams::default(),
            early_priorities: Vec::new(),
            block: None,
            out: Vec::new(),
            out_at: 0,
            rank_bytes: 0,
            frame_budget: FrameBudget::new(now_ms),
            drain: Drain::No,
            settings_due_ms: u64::MAX,
            reader_due_ms: u64::MAX,
            has_answered: false,
            has_input: false,
            served: 0,
            lent: None,
        }
    }

    /// Whether the connection has no stream and nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.stage == ConnStage::Open
            && self.streams.is_empty()
            && self.out.is_empty()
            && self.block.is_none()
    }

    /// Runs the connection's turn.
    pub(crate) fn turn<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (buffer, workspace): (&mut [u8], &mut Workspace),
    ) -> TurnEnd {
        if self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut workspace.out);
        }
        self.frame_budget.fill(turn.context.core.clock.ms());
        // A job, a server or the client may have woken any of them.
        self.streams.iter_mut().for_each(|stream| stream.is_blocked = false);
        let turn_end = self.run(conn, turn, (buffer, workspace));
        if self.out.is_empty() && workspace.out.capacity() == 0 {
            std::mem::swap(&mut self.out, &mut workspace.out);
        }
        turn_end
    }

    fn run<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (buffer, workspace): (&mut [u8], &mut Workspace),
    ) -> TurnEnd {
        loop {
            match self.flush(conn, turn) {
                Ok(true) => {}
                Ok(false) => break,
                Err(Gone) => return TurnEnd::Close,
            }
            match self.stage {
                ConnStage::Closing => return self.begin_linger(conn, turn, buffer),
                ConnStage::Linger { left_bytes } => return self.linger(conn, turn, buffer, left_bytes),
                ConnStage::Preface | ConnStage::Settings | ConnStage::Open => {}
            }
            if turn.budget.is_used_up() {
                return TurnEnd::Yield;
            }
            if let Some(turn_end) = self.read(conn, turn, (&mut *buffer, &mut *workspace)) {
                return turn_end;
            }
            self.follow_drain(turn);
            self.frame_streams(conn, turn, buffer);
            if self.out.is_empty() && !self.has_input && !turn.budget.is_used_up() {
                break;
            }
        }
        self.settle(conn, turn)
    }

    /// Sends framed bytes. Returns whether all of them were sent.
    fn flush<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> Result<bool, Gone> {
        if self.out.is_empty() {
            return Ok(true);
        }
        while self.out_at < self.out.len() {
            if !conn.transport.is_writable() {
                return Ok(false);
            }
            let Some(allowed) = conn.request_uplink(&mut turn.context, self.rank_bytes) else {
                return Ok(false);
            };
            conn.follow_schedule(&mut turn.context, self.rank_bytes);
            let unsent = &self.out[self.out_at..];
            let piece = &unsent[..unsent.len().min(allowed)];
            let sent = conn.transport.send(turn.context.machine, piece, &[])?;
            let core = &mut *turn.context.core;
            core.counters.sends.add(sent as u64);
            core.schedule.count_sent(conn.transport.band(), sent);
            core.egress.spend(sent);
            turn.budget.bytes = turn.budget.bytes.saturating_sub(sent);
            self.out_at += sent;
        }
        self.out.clear();
        self.out_at = 0;
        // The streams that waited for room can continue.
        self.streams.iter_mut().for_each(|stream| stream.is_blocked = false);
        Ok(true)
    }

    /// How many more bytes are framed before the framed ones are sent.
    fn room_bytes(&self, budget: &Budget) -> usize {
        H2_OUT_BYTES.min(budget.bytes).saturating_sub(self.out.len())
    }

    /// Decides until when a blocked connection waits.
    fn settle<M: Machine>(&mut self, conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>) -> TurnEnd {
        let now_ms = turn.context.core.clock.ms();
        // A client that sends no more opens no window again.
        let is_over = self.streams.iter().all(|stream| stream.is_stalled);
        if conn.transport.has_ended() && self.out.is_empty() && is_over {
            return TurnEnd::Close;
        }
        if self.is_idle() {
            if matches!(self.drain, Drain::Final) {
                self.stage = ConnStage::Closing;
                return TurnEnd::Yield;
            }
            if std::mem::take(&mut self.has_answered) {
                conn.idle_since_ms = now_ms;
            }
            let idle_ms = conn.idle_since_ms + turn.context.core.rules.timeouts.idle_ms;
            conn.acknowledged_before = None;
            conn.deadline_ms = idle_ms.min(self.due_ms(turn));
            return TurnEnd::Blocked;
        }
        self.has_answered |= !self.streams.is_empty();
        let waits_for_room = !self.out.is_empty() && !matches!(conn.uplink, Uplink::Waiting(_));
        let first_ms = if self.stage == ConnStage::Open { u64::MAX } else { conn.deadline_ms };
        if waits_for_room || self.streams.iter().any(|stream| stream.is_stalled) {
            if conn.acknowledged_before.is_none() {
                conn.acknowledged_before = Some(conn.transport.acknowledged_bytes(turn.context.machine));
                self.reader_due_ms = now_ms + RATE_WINDOW_MS;
            }
        } else {
            conn.acknowledged_before = None;
            self.reader_due_ms = u64::MAX;
        }
        conn.deadline_ms = first_ms.min(self.reader_due_ms).min(self.due_ms(turn));
        TurnEnd::Blocked
    }

    /// When something other than the rate of the client is due.
    fn due_ms<M: Machine>(&self, turn: &Turn<'_, M>) -> u64 {
        let of_stream = |stream: &Stream| match &stream.state {
            StreamState::Discarding { due_ms, .. } => *due_ms,
            _ => turn.exchanges.due_ms(stream.key),
        };
        let of_streams = self.streams.iter().map(of_stream).min().unwrap_or(u64::MAX);
        let of_block = self.block.as_ref().map_or(u64::MAX, |block| block.due_ms);
        of_streams.min(of_block).min(self.settings_due_ms).min(self.drain.due_ms())
    }

    /// Handles the connection's deadline.
    pub(crate) fn time_out<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        (buffer, workspace): (&mut [u8], &mut Workspace),
    ) -> TurnEnd {
        let now_ms = turn.context.core.clock.ms();
        if let Some(turn_end) = self.end_if_late(conn, turn) {
            return turn_end;
        }
        self.expire(conn, turn);
        let is_judged = self.reader_due_ms <= now_ms;
        let judges = turn.context.core.rules.least_rate_bytes_per_s > 0;
        let seems_slow = is_judged && judges && conn.seems_slow(&mut turn.context);
        let turn_end = self.turn(conn, turn, (buffer, workspace));
        if turn_end != TurnEnd::Blocked || !is_judged || conn.acknowledged_before.is_none() {
            return turn_end;
        }
        let deadline_ms = conn.deadline_ms;
        if seems_slow && !conn.check_reader_rate(&mut turn.context) {
            return TurnEnd::Reset;
        }
        self.reader_due_ms = if judges { now_ms + RATE_WINDOW_MS } else { u64::MAX };
        conn.deadline_ms =
            if deadline_ms <= now_ms { self.reader_due_ms.min(self.due_ms(turn)) } else { deadline_ms };
        turn_end
    }

    /// Drops one exchange, whose client seems to have gone away.
    pub(crate) fn drop_exchange<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) {
        if let Some(at) = self.streams.iter().position(|stream| stream.key == key) {
            let stream = self.streams.remove(at);
            self.end_early(conn, turn, stream, flash_http::h2::ErrorCode::CANCEL);
        }
    }

    /// Drops the exchanges of a connection that is being dropped.
    pub(crate) fn drop_exchanges<M: Machine>(
        &mut self,
        conn: &Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        has_panicked: bool,
    ) {
        let lost = self.lent.take().filter(|_| has_panicked);
        if let Some(key) = lost {
            turn.abort(key, &conn.requester, None);
        }
        let client = conn.opener.client;
        if let Some(block) = self.block.take() {
            turn.inputs.give_back(client, block.bytes.len());
        }
        let streams = std::mem::take(&mut self.streams);
        for mut stream in streams.into_iter().filter(|stream| Some(stream.key) != lost) {
            stream.drop_body(turn.inputs, client);
            turn.abort(stream.key, &stream.requester, Some(stream.sent().unwrap_or((CLIENT_LEFT, 0))));
        }
    }
}
