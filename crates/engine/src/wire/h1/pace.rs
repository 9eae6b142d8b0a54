//! Whether the client of an answer reads fast enough. Called by [`h1`](super).

use super::{H1, Phase};
use crate::exchange::Turn;
use crate::machine::Machine;
use crate::transport::Readiness;
use crate::wire::conn::{Conn, Uplink, Verdict};

impl H1 {
    /// Closes a client that reads more slowly than the lowest rate.
    pub(super) fn judge_pace<M: Machine>(
        &mut self,
        conn: &mut Conn<M::Socket>,
        turn: &mut Turn<'_, M>,
        buffer: &mut [u8],
    ) -> Verdict {
        // The kernel reports room only when there is much of it, but here any room counts.
        conn.transport.suspect(Readiness { writable: true, ..Default::default() });
        let before = conn.pace;
        let verdict = self.turn(conn, turn, buffer);
        if verdict != Verdict::Blocked || !matches!(self.phase, Phase::Sending(..) | Phase::Relaying(..)) {
            return verdict;
        }
        // Until now the server waited for the client, also if from now on the client waits for the uplink.
        let waits_for_uplink = matches!(conn.uplink, Uplink::Waiting(_));
        if waits_for_uplink {
            conn.pace = before;
        }
        if conn.pace.is_some() && !conn.keeps_pace(&mut turn.desk) {
            return Verdict::Reset;
        }
        if waits_for_uplink {
            conn.await_server();
        }
        self.pace_checked(conn, turn);
        verdict
    }

    /// Continues after a check of the client's rate.
    pub(super) fn pace_checked<M: Machine>(&mut self, conn: &mut Conn<M::Socket>, turn: &Turn<'_, M>) {
        if let Phase::Relaying(key, frames) = &mut self.phase {
            frames.pace_due_ms = conn.deadline_ms;
            conn.deadline_ms = conn.deadline_ms.min(turn.exchanges.due_ms(*key));
        }
    }
}
