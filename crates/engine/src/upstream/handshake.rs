//! The part of [`Links`] that makes encrypted connections: the handshake of each, which is a state of its link. It is begun only
//! for a request, continues in the turns of that request, and ends with it.

use std::io;

use super::links::{Link, LinkState, Links, NoLink};
use crate::limits::HANDSHAKES_PER_TURN_MAX;
use crate::machine::Machine;
use crate::slab::{ExchangeKey, Key};
use crate::transport::HandshakeStep;

const NO_TLS: &str =
    "the server does not speak TLS on this port; write its address without `https://`, or correct the port";
const LEFT: &str = "the server closed the connection during the TLS handshake";
const NO_ANSWER: &str = "the server did not complete the TLS handshake within `connect_timeout`; check that it speaks TLS on this port";
const SHORTAGE: &str = "no memory or random bytes for a TLS connection";

impl<S> Links<S> {
    /// Begins a turn, in which a bounded number of steps can be made.
    pub(crate) fn begin_turn(&mut self) {
        self.steps_left = HANDSHAKES_PER_TURN_MAX;
    }

    /// Makes a step of the handshake of a link, if one is under way and the turn has a step left: a step computes for up to
    /// a millisecond, and all others wait. If another step can be made at once, the request is woken for it in the next turn.
    pub(super) fn continue_handshake<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        now_ms: u64,
    ) {
        let Some(Link { server, due_ms, state: LinkState::Handshaking(holder, transport), .. }) =
            self.links.get_mut(key)
        else {
            return;
        };
        let (server, due_ms, holder) = (*server, *due_ms, *holder);
        if transport.is_encrypted() && transport.awaited().readable {
            return;
        }
        let Some(left) = self.steps_left.checked_sub(1) else { return self.woken.push(holder) };
        self.steps_left = left;
        if !transport.is_encrypted() {
            let Some(layer) = machine.record_layer(server) else {
                return self.fail_handshake(machine, key, (holder, NoLink::OwnFault), (SHORTAGE, now_ms));
            };
            transport.start_tls(layer);
            // If the connection has broken already, the first receive finds out.
            let _ = transport.flush(machine);
        }
        let why = match transport.continue_handshake(machine) {
            HandshakeStep::Waits => return,
            HandshakeStep::Yields => return self.woken.push(holder),
            HandshakeStep::Done(_) => {
                self.handshakes.remove(&(due_ms, key.to_u64()));
                let Some(link) = self.links.get_mut(key) else { return };
                let failed = LinkState::Failed(holder, NoLink::OwnFault);
                if let LinkState::Handshaking(_, transport) = std::mem::replace(&mut link.state, failed) {
                    link.state = LinkState::InUse(holder, transport);
                }
                return;
            }
            HandshakeStep::Plain => NO_TLS.to_owned(),
            HandshakeStep::Failed | HandshakeStep::Left => transport
                .why_failed()
                .map_or(LEFT.to_owned(), |why| format!("the TLS handshake failed: {why}")),
        };
        self.fail_handshake(machine, key, (holder, NoLink::Refused), (&why, now_ms));
    }

    /// Ends the handshakes whose time is over.
    pub(crate) fn end_handshakes<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) {
        while let Some(&(due_ms, number)) = self.handshakes.first()
            && due_ms <= now_ms
        {
            let key = Key::from_u64(number);
            self.handshakes.pop_first();
            if let Some(LinkState::Handshaking(holder, _)) = self.links.get(key).map(|link| &link.state) {
                let holder = *holder;
                self.fail_handshake(machine, key, (holder, NoLink::Late), (NO_ANSWER, now_ms));
                self.woken.push(holder);
            }
        }
    }

    /// Ends a handshake that has failed, by the server or for lack of something here, and reports it.
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
        let report = if kind == NoLink::OwnFault {
            self.counters.shortages += 1;
            self.shortage(&io::Error::other(why), now_ms)
        } else {
            self.counters.refused += 1;
            self.note_failure(server, now_ms);
            self.failure_report(server, why, None, now_ms)
        };
        report.iter().for_each(|report| machine.report(report));
    }
}
