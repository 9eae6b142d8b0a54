//! The part of [`Links`] that handles what happens to connections: the gateway has made one or could not, or a socket is ready.

use super::links::{Link, LinkState, Links, NoLink};
use crate::machine::Machine;
use crate::rules::ServerId;
use crate::slab::{ExchangeKey, Key};
use crate::transport::{Readiness, Received, Transport};

impl<S> Links<S> {
    /// Takes a connection that the gateway has made.
    pub(crate) fn connected<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        socket: S,
        now_ms: u64,
    ) {
        let Some(Link { server, due_ms, state: LinkState::Requested(holder), .. }) = self.links.get(key)
        else {
            return;
        };
        let (server, due_ms, holder) = (*server, *due_ms, *holder);
        let is_encrypted = self.rules_of(server).is_encrypted;
        let Some(link) = self.links.get_mut(key) else { return };
        self.woken.extend(holder);
        match holder {
            Some(holder) if is_encrypted => {
                link.state = LinkState::Handshaking(holder, Transport::new(socket));
                self.handshakes.insert((due_ms, key.to_u64()));
            }
            Some(holder) => link.state = LinkState::InUse(holder, Transport::new(socket)),
            // No request needs it any more, and a handshake is only made for one.
            None if is_encrypted => {
                self.remove(key);
                self.serve_queue(machine, server.upstream, now_ms);
            }
            None => {
                link.state = LinkState::Idle(Transport::new(socket));
                self.file_idle(key, server, now_ms);
                self.serve_queue(machine, server.upstream, now_ms);
                self.trim(machine, server);
            }
        }
    }

    /// Handles that the gateway could not make a connection. Returns its server if that is at fault.
    pub(crate) fn not_connected<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        why: NoLink,
        now_ms: u64,
    ) -> Option<ServerId> {
        let link = self.links.get_mut(key)?;
        let LinkState::Requested(holder) = link.state else { return None };
        let server = link.server;
        let is_of_server = why != NoLink::OwnFault;
        *(if is_of_server { &mut self.counters.refused } else { &mut self.counters.shortages }) += 1;
        match holder {
            Some(holder) => {
                link.state = LinkState::Failed(holder, why);
                self.woken.push(holder);
            }
            None => self.remove(key),
        }
        if is_of_server {
            self.note_failure(server, now_ms);
        }
        if holder.is_none() {
            self.serve_queue(machine, server.upstream, now_ms);
        }
        is_of_server.then_some(server)
    }

    /// Notes that a link is ready. An idle one that has ended, or on which there is an answer that nobody asked for,
    /// is closed.
    pub(crate) fn ready<M: Machine<Socket = S>>(
        &mut self,
        machine: &mut M,
        key: Key,
        ready: Readiness,
        now_ms: u64,
    ) {
        let Some(link) = self.links.get_mut(key) else { return };
        let server = link.server;
        link.is_broken |= ready.broken;
        // A receive finds out how a broken one has ended; until then its last bytes are not lost.
        let ready = Readiness { readable: ready.readable | ready.broken, ..ready };
        match &mut link.state {
            LinkState::InUse(holder, transport)
            | LinkState::Granted(holder, transport)
            | LinkState::Handshaking(holder, transport) => {
                transport.note_and_flush(machine, ready);
                self.woken.push(*holder);
            }
            LinkState::Idle(transport) => {
                transport.note_and_flush(machine, ready);
                // The event can be that of bytes that were received already.
                if transport.receive(machine, &mut [0]) != Received::Nothing {
                    self.remove_idle(key, server);
                    self.serve_queue(machine, server.upstream, now_ms);
                }
            }
            LinkState::Requested(_) | LinkState::Failed(..) => {}
        }
    }

    /// The next exchange that can continue.
    #[inline]
    pub(crate) fn next_woken(&mut self) -> Option<ExchangeKey> {
        self.woken.pop()
    }

    /// The events that a link waits for.
    pub(crate) fn awaited(&self, key: Key) -> Option<Readiness> {
        let link = self.links.get(key)?;
        match &link.state {
            // poll reports the end again and again.
            _ if link.is_broken => None,
            LinkState::InUse(_, transport)
            | LinkState::Granted(_, transport)
            | LinkState::Handshaking(_, transport)
            | LinkState::Idle(transport) => Some(transport.awaited()),
            LinkState::Requested(_) | LinkState::Failed(..) => None,
        }
    }
}
