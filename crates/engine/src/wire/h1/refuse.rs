//! Input that is not a valid request, and the end of a connection whose client may still send. Called by [`h1`](super).

use flash_http::request::{BadHead, first_line};

use super::answering::Answering;
use super::{Flow, H1, Phase};
use crate::exchange::Turn;
use crate::handler::{PLAIN_HTTP, Refusal, malformed};
use crate::limits::{LINGER_BYTES_MAX, LINGER_MS, TARGET_BYTES_MAX};
use crate::machine::Machine;
use crate::transport::Received;
use crate::wire::conn::{Conn, TurnEnd};

/// The first bytes of a client that speaks TLS: a handshake record of any version (RFC 8446, section 5.1).
const CLIENT_HELLO: [u8; 2] = [22, 3];

impl H1 {
    /// Answers a malformed head, and closes. A client that speaks TLS would not understand the answer.
    pub(super) fn refuse_head<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        bytes: &[u8],
        bad: BadHead,
    ) -> Flow {
        if bytes.starts_with(&CLIENT_HELLO) && !conn.transport.is_encrypted() {
            turn.context.core.counters.tls.on_plain += 1;
            return Flow::Over(TurnEnd::Close);
        }
        self.refuse_bytes(conn, turn, first_line(bytes, TARGET_BYTES_MAX), (bad.status(), bad.reason()))
    }

    /// Answers input that is not a valid request, and closes.
    pub(super) fn refuse_bytes<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        line: &[u8],
        refusal: Refusal,
    ) -> Flow {
        turn.context.core.counters.requests += 1;
        conn.forget_requester();
        let answering = Answering::of_line(line, turn);
        self.reply(conn, turn, answering, malformed(refusal))
    }

    /// Answers a client that speaks without TLS to a listener with TLS. None if the connection continues.
    pub(crate) fn refuse_plain<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> Option<TurnEnd> {
        match self.refuse_bytes(conn, turn, b"-", PLAIN_HTTP) {
            Flow::Over(turn_end) => Some(turn_end),
            Flow::Finished | Flow::Again => None,
        }
    }

    /// Closes the sending side and waits for the client to close, so that a reset does not destroy the last
    /// answer (RFC 9112, section 9.6).
    pub(super) fn begin_linger<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> Flow {
        conn.transport.end_sending(turn.context.machine);
        conn.take_input(turn.inputs);
        self.phase = Phase::Linger { left_bytes: LINGER_BYTES_MAX };
        conn.deadline_ms = turn.context.core.clock.ms() + LINGER_MS;
        Flow::Again
    }

    pub(super) fn linger<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
        mut left_bytes: usize,
    ) -> Flow {
        while left_bytes > 0 {
            match conn.transport.receive(turn.context.machine, buffer) {
                Received::Bytes(n) => left_bytes = left_bytes.saturating_sub(n),
                Received::Nothing => {
                    self.phase = Phase::Linger { left_bytes };
                    return Flow::Over(TurnEnd::Blocked);
                }
                Received::End | Received::Failed => break,
            }
        }
        Flow::Over(TurnEnd::Close)
    }
}
