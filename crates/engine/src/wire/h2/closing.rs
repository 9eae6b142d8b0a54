//! Ends connections of HTTP/2: by GOAWAY after an error or a deadline, and in two steps while the server drains, so that no
//! request is lost (RFC 9113, section 6.8). Called by [`h2`](super).

use flash_http::h2::frame::{push_goaway, push_ping};
use flash_http::h2::{ErrorCode, Violation};

use super::stream::StreamState;
use super::{ConnStage, H2};
use crate::exchange::Turn;
use crate::handler::REQUEST_LATE;
use crate::limits::{H2_DRAIN_MS, LINGER_BYTES_MAX, LINGER_MS};
use crate::machine::Machine;
use crate::transport::Received;
use crate::wire::conn::{Conn, TurnEnd};

/// The PING behind the first GOAWAY; its answer shows that the client knows of it.
const DRAIN_PING: [u8; 8] = *b"draining";
/// The highest number of a stream: the first GOAWAY refuses none.
const LAST_STREAM: u32 = 0x7fff_ffff;

/// How far the end of a connection in order has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    No,
    /// No request has come yet. The client has this long for its first, which is served.
    Unused {
        due_ms: u64,
    },
    /// The first GOAWAY is sent. Requests on their way are served until the client knows, or until this time.
    Announced {
        due_ms: u64,
    },
    /// The client knows.
    Heard,
    /// No new stream is served. The connection ends after the last one.
    Final,
}

impl Drain {
    pub(super) fn due_ms(self) -> u64 {
        match self {
            Drain::Unused { due_ms } | Drain::Announced { due_ms } => due_ms,
            Drain::No | Drain::Heard | Drain::Final => u64::MAX,
        }
    }

    /// Notes the answer to a PING.
    pub(super) fn note_ping_ack(&mut self, data: [u8; 8]) {
        if matches!(self, Drain::Announced { .. }) && data == DRAIN_PING {
            *self = Drain::Heard;
        }
    }
}

impl H2 {
    /// Takes the next step of a drain.
    pub(super) fn follow_drain<M: Machine>(&mut self, turn: &Turn<'_, M>) {
        let now_ms = turn.context.core.clock.ms();
        match self.drain {
            Drain::No if turn.draining && self.stage == ConnStage::Open => {
                if self.last_stream > 0 {
                    self.announce_end(now_ms);
                } else {
                    self.drain = Drain::Unused { due_ms: now_ms + H2_DRAIN_MS };
                }
            }
            Drain::Unused { due_ms } if self.last_stream > 0 || due_ms <= now_ms => self.announce_end(now_ms),
            Drain::Announced { due_ms } if due_ms <= now_ms => self.end_in_order(),
            Drain::Heard => self.end_in_order(),
            _ => {}
        }
    }

    /// Asks the client to begin no further streams on this connection.
    fn announce_end(&mut self, now_ms: u64) {
        push_goaway(&mut self.out, LAST_STREAM, ErrorCode::NO_ERROR, "");
        push_ping(&mut self.out, false, DRAIN_PING);
        self.drain = Drain::Announced { due_ms: now_ms + H2_DRAIN_MS };
    }

    /// Refuses further streams.
    fn end_in_order(&mut self) {
        push_goaway(&mut self.out, self.last_stream, ErrorCode::NO_ERROR, "");
        self.drain = Drain::Final;
    }

    /// Ends the connection because the client violates the protocol.
    pub(super) fn fail<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        violation: Violation,
    ) {
        if violation.code == ErrorCode::ENHANCE_YOUR_CALM {
            turn.context.core.counters.http2.flooding += 1;
        } else {
            turn.context.core.counters.http2.failed += 1;
        }
        self.drop_exchanges(conn, turn, false);
        push_goaway(&mut self.out, self.last_stream, violation.code, violation.reason);
        self.stage = ConnStage::Closing;
        conn.deadline_ms = turn.context.core.clock.ms() + LINGER_MS;
    }

    /// Closes the sending side and waits for the client to close, so that a reset does not destroy the last frames.
    pub(super) fn begin_linger<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> TurnEnd {
        conn.transport.end_sending(turn.context.machine);
        conn.take_input(turn.inputs);
        conn.acknowledged_before = None;
        conn.deadline_ms = turn.context.core.clock.ms() + LINGER_MS;
        self.linger(conn, turn, buffer, LINGER_BYTES_MAX)
    }

    pub(super) fn linger<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        mut left_bytes: usize,
    ) -> TurnEnd {
        while left_bytes > 0 {
            match conn.transport.receive(turn.context.machine, buffer) {
                Received::Bytes(bytes) => left_bytes = left_bytes.saturating_sub(bytes),
                Received::Nothing => {
                    self.stage = ConnStage::Linger { left_bytes };
                    return TurnEnd::Blocked;
                }
                Received::End | Received::Failed => break,
            }
        }
        TurnEnd::Close
    }

    /// Ends a connection whose time is up. Returns how the turn ended if it ends at once.
    pub(super) fn end_if_late<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> Option<TurnEnd> {
        const LATE: Violation =
            Violation::connection(ErrorCode::SETTINGS_TIMEOUT, "The settings were not acknowledged in time");
        let now_ms = turn.context.core.clock.ms();
        let idle_ms = turn.context.core.rules.timeouts.idle_ms;
        if matches!(self.stage, ConnStage::Linger { .. } | ConnStage::Preface) {
            return Some(TurnEnd::Close);
        }
        if self.stage == ConnStage::Closing {
            return Some(TurnEnd::Reset);
        }
        let is_block_late = self.block.as_ref().is_some_and(|block| block.due_ms <= now_ms);
        let is_silent =
            self.stage == ConnStage::Settings && conn.deadline_ms <= now_ms && self.out.is_empty();
        if self.settings_due_ms <= now_ms || is_silent {
            self.fail(conn, turn, LATE);
        } else if is_block_late {
            let reason = "A header block did not arrive in time";
            self.fail(conn, turn, Violation::connection(ErrorCode::NO_ERROR, reason));
        } else if self.is_idle() && conn.idle_since_ms + idle_ms <= now_ms && self.drain != Drain::Final {
            self.end_in_order();
        }
        None
    }

    /// Ends the waits of streams whose time is up.
    pub(super) fn expire<M: Machine>(&mut self, conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>) {
        let now_ms = turn.context.core.clock.ms();
        let mut at = 0;
        while at < self.streams.len() {
            match &self.streams[at].state {
                StreamState::Discarding { due_ms, .. } if *due_ms <= now_ms => {
                    self.refuse_body(turn, at, REQUEST_LATE);
                    at += 1;
                }
                StreamState::Relaying(_) if turn.exchanges.due_ms(self.streams[at].key) <= now_ms => {
                    let has_ended = self.expire_relay(conn, turn, at);
                    at += usize::from(!has_ended);
                }
                _ => at += 1,
            }
        }
    }
}
