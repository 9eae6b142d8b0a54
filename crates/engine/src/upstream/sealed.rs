//! The part of [`Links`] that makes encrypted connections: the handshake of each, which is a state of its link. It is begun only
//! for a request, continues in the turns of that request, and ends with it.

use super::links::{LinkState, Links, NoLink};
use crate::machine::Machine;
use crate::slab::{ExchangeKey, Key};
use crate::transport::{Shaken, Transport};

const NO_TLS: &str =
    "the server does not speak TLS on this port; write its address without `https://`, or correct the port";
const LEFT: &str = "the server closed the connection during the TLS handshake";
const NO_ANSWER: &str = "the server did not complete the TLS handshake within `connect_timeout`; check that it speaks TLS on this port";
const SHORTAGE: &str = "no memory or random bytes for a TLS connection";

impl<S> Links<S> {
    /// Begins the handshake on a connection that the gateway has made. One that no request needs any more is closed.
    pub(super) fn begin_handshake<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        socket: S,
        now_ms: u64,
    ) {
        let Some(link) = self.links.get_mut(key) else { return };
        let (server, due_ms) = (link.server, link.due_ms);
        let LinkState::Asked(Some(holder)) = link.state else {
            self.remove(key);
            return self.serve_queue(machine, server.upstream, now_ms);
        };
        self.woken.push(holder);
        let Some(layer) = machine.seal(server) else {
            link.state = LinkState::Failed(holder, NoLink::OwnFault);
            self.counters.shortages += 1;
            let report = self.shortage(&std::io::Error::other(SHORTAGE), now_ms);
            return report.iter().for_each(|report| machine.report(report));
        };
        let mut transport = Transport::new(socket);
        transport.seal(layer);
        // If the connection has broken already, the first receive finds out.
        let _ = transport.flush(machine);
        link.state = LinkState::Shaking(holder, transport);
        self.handshakes.insert((due_ms, key.to_u64()));
    }

    /// Continues the handshake of a link, if one is under way. Returns whether there may be more to receive.
    pub(super) fn shake_hands<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        now_ms: u64,
    ) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        let due_ms = link.due_ms;
        let LinkState::Shaking(holder, transport) = &mut link.state else { return false };
        let holder = *holder;
        let shaken = transport.shake_hands(machine);
        let why = match shaken {
            Shaken::Waits => return false,
            Shaken::Yields => return true,
            Shaken::Done(_) => {
                let failed = LinkState::Failed(holder, NoLink::OwnFault);
                if let LinkState::Shaking(_, transport) = std::mem::replace(&mut link.state, failed) {
                    link.state = LinkState::Held(holder, transport);
                }
                self.handshakes.remove(&(due_ms, key.to_u64()));
                return false;
            }
            Shaken::Plain => NO_TLS.to_owned(),
            Shaken::Failed | Shaken::Left => transport
                .why_failed()
                .map_or(LEFT.to_owned(), |why| format!("the TLS handshake failed: {why}")),
        };
        self.fail_handshake(machine, key, (holder, NoLink::Refused), (&why, now_ms));
        false
    }

    /// Ends the handshakes whose time is over.
    pub(crate) fn end_handshakes<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) {
        while let Some(&(due_ms, number)) = self.handshakes.first()
            && due_ms <= now_ms
        {
            let key = Key::from_u64(number);
            self.handshakes.pop_first();
            if let Some(LinkState::Shaking(holder, _)) = self.links.get(key).map(|link| &link.state) {
                let holder = *holder;
                self.fail_handshake(machine, key, (holder, NoLink::Late), (NO_ANSWER, now_ms));
                self.woken.push(holder);
            }
        }
    }

    /// Ends a handshake that has failed, which is a failure of the server, and reports it.
    fn fail_handshake<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        (holder, kind): (ExchangeKey, NoLink),
        (why, now_ms): (&str, u64),
    ) {
        let Some(link) = self.links.get_mut(key) else { return };
        let server = link.server;
        self.handshakes.remove(&(link.due_ms, key.to_u64()));
        link.state = LinkState::Failed(holder, kind);
        self.counters.refused += 1;
        self.note_failure(server, now_ms);
        if let Some(report) = self.failure_report(server, why, None, now_ms) {
            machine.report(&report);
        }
    }
}
