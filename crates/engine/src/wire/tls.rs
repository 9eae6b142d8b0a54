//! The beginning and the end of encrypted connections. A handshake costs up to a millisecond of CPU time, so handshakes wait
//! for the end of a turn, and one turn continues few of them. A connection that closes first sends the ciphertext that waits.
//! Called by [`wire`](super).

use super::conn::{Conn, TurnEnd};
use super::h1::H1;
use super::h2::H2;
use super::{Act, Connection, Wire, Wires};
use crate::counters::TlsCounters;
use crate::exchange::Turn;
use crate::limits::{CONTINUED_PER_TURN_MAX, HANDSHAKES_PER_TURN_MAX};
use crate::machine::{Handshake, Machine};
use crate::slab::Key;
use crate::transport::HandshakeStep;

impl<S> Wires<S> {
    /// Continues some of the handshakes that wait. Those of connections that have closed cost nothing.
    pub(super) fn continue_handshake<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        let mut left = HANDSHAKES_PER_TURN_MAX;
        for _ in 0..self.handshaking.len().min(CONTINUED_PER_TURN_MAX) {
            let Some(key) = self.handshaking.pop_front() else { return };
            let Some(Connection { conn, .. }) = self.connections.get_mut(key) else { continue };
            conn.queued = false;
            self.act(turn, key, Act::Turn);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }

    /// Closes a connection, or begins to if ciphertext waits to be sent.
    pub(super) fn begin_closing<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: Key) {
        let Some(Connection { conn, .. }) = self.connections.get_mut(key) else { return };
        if conn.transport.begin_close(turn.context.machine) {
            return self.close(turn, key);
        }
        self.drop_exchanges(turn, key, false);
        if let Some(Connection { conn, wire }) = self.connections.get_mut(key) {
            if matches!(wire, Wire::Handshake) {
                self.admission.handshake_ended(conn.opener.client);
            }
            conn.take_input(turn.inputs);
            conn.leave_uplink(&mut turn.context.core.egress);
            conn.acknowledged_before = None;
            conn.await_room(turn.context.machine, turn.context.core.clock.ms());
            *wire = Wire::Closing;
        }
        self.file_deadline(key);
    }
}

impl<S> Connection<S> {
    /// Continues the handshake. If it is complete, the connection gets its protocol.
    pub(super) fn continue_handshake<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
    ) -> Option<TurnEnd> {
        let counters = &mut turn.context.core.counters.tls;
        match self.conn.transport.continue_handshake(turn.context.machine) {
            HandshakeStep::Done(Handshake { is_resumed, is_http2, version }) => {
                let TlsCounters { handshakes, resumed, .. } = counters;
                *(if is_resumed { resumed } else { handshakes }) += 1;
                let now_ms = turn.context.core.clock.ms();
                self.conn.set_tls_version(version);
                self.conn.deadline_ms = now_ms + turn.context.core.rules.timeouts.head_ms;
                if is_http2 {
                    turn.context.core.counters.http2.connections += 1;
                    self.wire = Wire::H2(Box::new(H2::new(now_ms)));
                } else {
                    self.wire = Wire::H1(H1::new());
                }
                None
            }
            HandshakeStep::Plain => {
                counters.plain_requests += 1;
                let mut h1 = H1::new();
                let turn_end = h1.refuse_plain(&mut self.conn, turn);
                self.wire = Wire::H1(h1);
                turn_end
            }
            HandshakeStep::Waits => Some(TurnEnd::Blocked),
            HandshakeStep::Yields => Some(TurnEnd::Yield),
            HandshakeStep::Failed | HandshakeStep::Left => {
                counters.failed += 1;
                Some(TurnEnd::Close)
            }
        }
    }
}

/// Gives up a handshake that took too long.
pub(super) fn late<M: Machine>(turn: &mut Turn<'_, M>) -> TurnEnd {
    turn.context.core.counters.tls.failed += 1;
    TurnEnd::Close
}

/// Closes a connection once all its ciphertext is sent.
pub(super) fn finish_closing<S>(conn: &Conn<S>) -> TurnEnd {
    if conn.transport.is_flushed() { TurnEnd::Close } else { TurnEnd::Blocked }
}

/// Checks whether the client of a closing connection still reads, as fast as it must.
pub(super) fn judge_closing<M: Machine>(conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>) -> TurnEnd {
    let before = conn.acknowledged_before;
    if conn.check_reader_rate(&mut turn.context) && conn.acknowledged_before != before {
        TurnEnd::Blocked
    } else {
        TurnEnd::Reset
    }
}
