//! The beginning and the end of encrypted connections. A handshake costs up to a millisecond of CPU time, so handshakes wait
//! for the end of a turn, and one turn continues few of them. A connection that closes first sends the ciphertext that waits.
//! Called by [`wire`](super).

use super::conn::{Conn, Verdict};
use super::h1::H1;
use super::h2::H2;
use super::{Act, Connection, Wire, Wires};
use crate::counters::TlsCounters;
use crate::exchange::Turn;
use crate::limits::{CONTINUED_PER_TURN_MAX, HANDSHAKES_PER_TURN_MAX};
use crate::machine::{Handshake, Machine};
use crate::slab::Key;
use crate::transport::Shaken;

impl<S> Wires<S> {
    /// Continues some of the handshakes that wait. Those of connections that have closed cost nothing.
    pub(super) fn shake_hands<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        let mut left = HANDSHAKES_PER_TURN_MAX;
        for _ in 0..self.shaking.len().min(CONTINUED_PER_TURN_MAX) {
            let Some(key) = self.shaking.pop_front() else { return };
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
    pub(super) fn part<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: Key) {
        let Some(Connection { conn, .. }) = self.connections.get_mut(key) else { return };
        if conn.transport.begin_close(turn.desk.machine) {
            return self.close(turn, key);
        }
        self.drop_exchanges(turn, key, false);
        if let Some(Connection { conn, wire }) = self.connections.get_mut(key) {
            if matches!(wire, Wire::Handshake) {
                self.admission.shaken(conn.opener.client);
            }
            conn.take_input(turn.inputs);
            conn.leave_uplink(&mut turn.desk.core.egress);
            conn.acknowledged_before = None;
            conn.await_room(turn.desk.machine, turn.desk.core.clock.ms());
            *wire = Wire::Closing;
        }
        self.file_deadline(key);
    }
}

impl<S> Connection<S> {
    /// Continues the handshake. If it is complete, the connection gets its protocol.
    pub(super) fn shake_hands<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) -> Option<Verdict> {
        let counters = &mut turn.desk.core.counters.tls;
        match self.conn.transport.shake_hands(turn.desk.machine) {
            Shaken::Done(Handshake { is_resumed, is_http2 }) => {
                let TlsCounters { handshakes, resumed, .. } = counters;
                *(if is_resumed { resumed } else { handshakes }) += 1;
                let now_ms = turn.desk.core.clock.ms();
                self.conn.deadline_ms = now_ms + turn.desk.core.rules.timeouts.head_ms;
                if is_http2 {
                    turn.desk.core.counters.http2.connections += 1;
                    self.wire = Wire::H2(Box::new(H2::new(now_ms)));
                } else {
                    self.wire = Wire::H1(H1::new());
                }
                None
            }
            Shaken::Plain => {
                counters.plain_requests += 1;
                let mut h1 = H1::new();
                let verdict = h1.refuse_plain(&mut self.conn, turn);
                self.wire = Wire::H1(h1);
                verdict
            }
            Shaken::Waits => Some(Verdict::Blocked),
            Shaken::Yields => Some(Verdict::Yield),
            Shaken::Failed | Shaken::Left => {
                counters.failed += 1;
                Some(Verdict::Close)
            }
        }
    }
}

/// Gives up a handshake that took too long.
pub(super) fn late<M: Machine>(turn: &mut Turn<'_, M>) -> Verdict {
    turn.desk.core.counters.tls.failed += 1;
    Verdict::Close
}

/// Closes a connection once all its ciphertext is sent.
pub(super) fn finish_closing<S>(conn: &Conn<S>) -> Verdict {
    if conn.transport.is_flushed() { Verdict::Close } else { Verdict::Blocked }
}

/// Checks whether the client of a closing connection still reads, as fast as it must.
pub(super) fn judge_closing<M: Machine>(conn: &mut Conn<M::Socket>, turn: &mut Turn<'_, M>) -> Verdict {
    let before = conn.acknowledged_before;
    if conn.check_reader_rate(&mut turn.desk) && conn.acknowledged_before != before {
        Verdict::Blocked
    } else {
        Verdict::Reset
    }
}
