//! The end of all connections, because the worker ends: each after its last answer. Called by [`Engine`](crate::Engine).

use super::{Act, Wire, Wires};
use crate::exchange::Turn;
use crate::limits::DEADLINES_PER_TURN_MAX;
use crate::machine::Machine;
use crate::transport::Readiness;

impl<S> Wires<S> {
    /// Begins to drain: closes idle connections at once, and every other connection after its next response,
    /// even if its first request is still to come.
    pub(crate) fn drain<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        self.draining = true;
        self.drain_at = Some(0);
        self.drain_idle(turn);
    }

    /// Checks a bounded number of connections while draining, and closes the idle ones.
    pub(super) fn drain_idle<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        let Some(from) = self.drain_at else { return };
        let to = self.connections.places().min(from + DEADLINES_PER_TURN_MAX);
        for place in from..to {
            let Some(key) = self.connections.key_at(place) else { continue };
            if let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.is_idle())
            {
                // A request may have arrived that no event has reported yet.
                connection.conn.transport.suspect(Readiness { readable: true, ..Readiness::default() });
                if matches!(connection.wire, Wire::Handshake) {
                    self.continue_later(key);
                } else {
                    self.act(turn, key, Act::Turn);
                }
            }
        }
        self.drain_at = (to < self.connections.places()).then_some(to);
    }
}
