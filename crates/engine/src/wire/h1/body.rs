//! Reads request bodies in the framing of HTTP/1: for a server that answers the request, or only because the next request
//! follows them on the connection. Called by [`h1`](super) and [`relay`](super::relay).

use flash_http::body::Chunked;
use flash_http::request::{Body, Request};

use super::answering::Answering;
use super::{Flow, H1, Phase};
use crate::exchange::{AfterBody, Exchange, LogEntry, State, Turn};
use crate::handler::{REQUEST_LATE, Refusal, TOO_LARGE, malformed};
use crate::limits::REQUEST_BODY_BYTES_MAX;
use crate::machine::Machine;
use crate::slab::ExchangeKey;
use crate::timing::CacheResult;
use crate::transport::{Gone, Received};
use crate::wire::conn::{Conn, TurnEnd};

/// The rest of a request body.
#[derive(Debug)]
pub(super) enum BodyReader {
    /// This many bytes remain.
    Length(u64),
    Chunked(Chunked),
    /// After an upgrade the client sends whatever it likes.
    Raw,
}

/// Received bytes, without their framing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    /// How many of the bytes belonged to the body; the rest is the next request.
    pub(super) consumed: usize,
    /// How many bytes of data are now at the front.
    pub(super) data_bytes: usize,
    pub(super) is_last: bool,
}

impl BodyReader {
    /// The body that a request head announces.
    pub(super) fn new(body: Body) -> Self {
        match body {
            Body::None => Self::Length(0),
            Body::Length(bytes) => Self::Length(bytes),
            Body::Chunked => Self::Chunked(Chunked::new()),
        }
    }

    /// Whether nothing follows.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// Takes received bytes. The data among them is moved to the front.
    ///
    /// # Errors
    /// The body is malformed.
    pub(super) fn decode(&mut self, bytes: &mut [u8]) -> Result<Decoded, Refusal> {
        let all = bytes.len();
        let (consumed, data_bytes) = match self {
            Self::Raw => (all, all),
            Self::Length(left) => {
                let taken = all.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                (taken, taken)
            }
            Self::Chunked(chunks) => {
                let progress = chunks.decode(bytes).map_err(|bad| (bad.status(), bad.reason()))?;
                if progress.done {
                    *self = Self::Length(0);
                }
                (progress.consumed, progress.data_bytes)
            }
        };
        Ok(Decoded { consumed, data_bytes, is_last: self.is_over() })
    }
}

/// A body that has no meaning for its request.
#[derive(Debug)]
pub(super) struct Discarded {
    reader: BodyReader,
    /// How many of its bytes were read, framing included.
    read_bytes: u64,
}

impl H1 {
    /// Starts to read a body that has no meaning, because the next request follows it.
    pub(super) fn begin_body<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        request: &Request<'_>,
        after: AfterBody<M::File>,
    ) -> Flow {
        if request.expect_continue && send_continue(conn, turn).is_err() {
            return Flow::Over(TurnEnd::Close);
        }
        let log_entry = LogEntry::new(turn.context.core, request, CacheResult::Hit);
        let state = State::Reading(after);
        let key =
            turn.exchanges.insert(Exchange { opener: conn.opener_for(&conn.requester), log_entry, state });
        let discarded = Discarded { reader: BodyReader::new(request.body), read_bytes: 0 };
        self.phase = Phase::Reading(key, Box::new(discarded));
        conn.deadline_ms = turn.context.core.clock.ms() + turn.context.core.rules.timeouts.head_ms;
        Flow::Again
    }

    /// Reads more of a request body.
    pub(super) fn read_on<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        (key, mut discarded): (ExchangeKey, Box<Discarded>),
    ) -> Flow {
        match discard(conn, turn, buffer, &mut discarded) {
            Ok(None) => self.go_on(conn, turn, key),
            Ok(Some(turn_end)) => {
                self.phase = Phase::Reading(key, discarded);
                Flow::Over(turn_end)
            }
            Err(refusal) => self.refuse_body(conn, turn, key, refusal),
        }
    }

    /// Answers 408, because the request body did not arrive in time.
    pub(super) fn give_body_up<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
    ) -> Flow {
        self.refuse_body(conn, turn, key, REQUEST_LATE)
    }

    fn refuse_body<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        key: ExchangeKey,
        refusal: Refusal,
    ) -> Flow {
        self.lent = Some(key);
        let Exchange { log_entry, state, .. } = turn.exchanges.lend(key);
        let State::Reading(after) = state else {
            unreachable!("the Reading phase has an exchange in the Reading state")
        };
        let answering =
            Answering::kept(key, log_entry, (&after.request(), conn.requester.scheme), turn).closing();
        self.reply(conn, turn, answering, malformed(refusal))
    }
}

/// Reads and discards more of a body. Returns None at its end.
fn discard<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
    discarded: &mut Discarded,
) -> Result<Option<TurnEnd>, Refusal> {
    loop {
        if turn.budget.bytes == 0 {
            return Ok(Some(TurnEnd::Yield));
        }
        let filled = match receive(conn, turn, buffer) {
            Received::Bytes(bytes) => bytes,
            Received::Nothing => return Ok(Some(TurnEnd::Blocked)),
            Received::End | Received::Failed => return Ok(Some(TurnEnd::Close)),
        };
        let Decoded { consumed, is_last, .. } = discarded.reader.decode(&mut buffer[..filled])?;
        discarded.read_bytes += consumed as u64;
        if discarded.read_bytes > REQUEST_BODY_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        if is_last {
            keep(conn, turn, &buffer[consumed..filled]);
            return Ok(None);
        }
    }
}

/// Takes the input that the connection holds, or receives more.
pub(super) fn receive<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
    buffer: &mut [u8],
) -> Received {
    let held = conn.input.len();
    let received = if held > 0 {
        buffer[..held].copy_from_slice(&conn.take_input(turn.inputs));
        Received::Bytes(held)
    } else {
        conn.transport.receive(turn.context.machine, buffer)
    };
    if let Received::Bytes(bytes) = received {
        turn.budget.bytes = turn.budget.bytes.saturating_sub(bytes);
    }
    received
}

/// Keeps the bytes behind the body: the next request.
pub(super) fn keep<M: Machine>(conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>, rest: &[u8]) {
    if !conn.keep_input(turn.inputs, rest) {
        conn.transport.stop_receiving();
    }
}

/// Asks a client that waits for it to send its body (RFC 9110, section 10.1.1).
pub(super) fn send_continue<M: Machine>(
    conn: &mut Conn<M::Socket>,
    turn: &mut Turn<'_, M>,
) -> Result<(), Gone> {
    let interim = b"HTTP/1.1 100 Continue\r\n\r\n";
    let sent = conn.transport.send(turn.context.machine, interim, &[])?;
    turn.context.core.counters.sends.add(sent as u64);
    // The interim response is optional; the client continues without it after a while.
    if sent == interim.len() || sent == 0 { Ok(()) } else { Err(Gone) }
}
