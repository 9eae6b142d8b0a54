//! Whether the client of an answer reads fast enough. Called by [`h1`](super).

use super::{H1, Phase};
use crate::exchange::Turn;
use crate::machine::Machine;
use crate::wire::conn::{Conn, TurnEnd};

impl H1 {
    /// Closes a client that has been idle for too long, or that reads its last answer too slowly.
    pub(super) fn judge_idle<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
    ) -> TurnEnd {
        let rules = &turn.context.core.rules;
        let idle_until_ms = conn.idle_since_ms + rules.timeouts.idle_ms;
        // Not everything has reached the client, so its rate is checked as during an answer.
        if rules.least_rate_bytes_per_s > 0 && !conn.transport.is_acknowledged(turn.context.machine) {
            let is_first = conn.acknowledged_before.is_none();
            let keeps_rate = conn.check_reader_rate(&mut turn.context) || is_first;
            return if keeps_rate { TurnEnd::Blocked } else { TurnEnd::Reset };
        }
        if conn.acknowledged_before.take().is_some()
            && self.used
            && turn.context.core.clock.ms() < idle_until_ms
        {
            conn.deadline_ms = idle_until_ms;
            return TurnEnd::Blocked;
        }
        TurnEnd::Close
    }

    /// Closes a client that reads more slowly than the lowest rate.
    pub(super) fn judge_reader<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> TurnEnd {
        if !conn.seems_slow(&mut turn.context) {
            self.reader_checked(conn, turn);
            return TurnEnd::Blocked;
        }
        let before = conn.acknowledged_before;
        let is_behind = !conn.transport.is_acknowledged(turn.context.machine);
        let turn_end = self.turn(conn, turn, buffer);
        if turn_end != TurnEnd::Blocked || !matches!(self.phase, Phase::Sending(..) | Phase::Relaying(..)) {
            return turn_end;
        }
        // Until now the server waited for the client, also if from now on the client waits for the uplink or for the disk.
        let waits_for_server = is_behind && conn.acknowledged_before.is_none();
        if waits_for_server {
            conn.acknowledged_before = before;
        }
        if conn.acknowledged_before.is_some() && !conn.check_reader_rate(&mut turn.context) {
            return TurnEnd::Reset;
        }
        if waits_for_server {
            conn.await_server();
        }
        self.reader_checked(conn, turn);
        turn_end
    }

    /// Continues after a check of the client's rate.
    pub(super) fn reader_checked<M: Machine>(&mut self, conn: &mut Conn<M::Socket>, turn: &Turn<'_, M>) {
        if let Phase::Relaying(key, frames) = &mut self.phase {
            frames.reader_due_ms = conn.deadline_ms;
            conn.deadline_ms = conn.deadline_ms.min(turn.exchanges.due_ms(*key));
        }
    }
}
