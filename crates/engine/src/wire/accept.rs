//! New connections, and the idle ones that make room for them. Called by [`Engine`](crate::Engine).

use std::net::SocketAddr;

use super::conn::Conn;
use super::h1::H1;
use super::proxy_header::AwaitingProxyHeader;
use super::timers::{Look, SearchPlace};
use super::{Connection, Protocol, Wire, Wires};
use crate::admission::{Room, WhyRefused};
use crate::exchange::{Opener, Turn};
use crate::limits::{EVICTION_LOOKS_MAX, NEWCOMER_GRACE_MS, TICK_MS};
use crate::machine::Machine;
use crate::slab::{ClientNumber, Key};

impl<S> Wires<S> {
    /// Takes a new client. Returns the socket if a limit is reached and no idle connection can be closed.
    pub(crate) fn accept<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        socket: S,
        peer: SocketAddr,
        protocol: Protocol,
    ) -> Result<Key, (S, WhyRefused)> {
        let client = ClientNumber::of(peer.ip());
        match self.admission.room(client, peer.ip()) {
            Room::Free => {}
            Room::OfAnyIdle if self.evict_idle(turn, None) => {}
            Room::OfOwnIdle if self.evict_idle(turn, Some(client)) => {}
            Room::OfAnyIdle => return Err((socket, WhyRefused::Connections)),
            Room::OfOwnIdle => return Err((socket, WhyRefused::Client)),
        }
        let begins_with_proxy_header = turn.context.core.rules.proxies.send_header(peer.ip());
        if matches!(protocol, Protocol::Tls(_))
            && !begins_with_proxy_header
            && !self.admission.admits_handshake(client, peer.ip())
        {
            return Err((socket, WhyRefused::Client));
        }
        self.admission.opened(client);
        let is_exempt = self.admission.is_exempt(peer.ip());
        let key = self.connections.reserve();
        let opener = Opener { connection: key, client, is_exempt };
        let mut conn = Conn::new(socket, peer, opener);
        conn.set_proxy(turn.context.core.rules.proxies.contain(peer.ip()));
        let wire = match protocol {
            Protocol::H1 if begins_with_proxy_header => {
                Wire::AwaitingProxyHeader(Box::new(AwaitingProxyHeader::new(None)))
            }
            Protocol::Tls(layer) if begins_with_proxy_header => {
                Wire::AwaitingProxyHeader(Box::new(AwaitingProxyHeader::new(Some(layer))))
            }
            Protocol::H1 => Wire::H1(H1::new()),
            Protocol::Tls(layer) => {
                conn.start_tls(layer);
                Wire::Handshake
            }
        };
        self.connections.put_back(key, Connection { conn, wire });
        turn.context.core.egress.spend_connection();
        let counters = &mut turn.context.core.counters;
        counters.accepted += 1;
        counters.connections_most = counters.connections_most.max(self.connections.len());
        // The first head has a deadline like any other, so that a silent client is not kept as an idle one.
        let now_ms = turn.context.core.clock.ms();
        let deadline_ms = now_ms + turn.context.core.rules.timeouts.head_ms;
        if let Some(Connection { conn, .. }) = self.connections.get_mut(key) {
            conn.deadline_ms = deadline_ms;
            conn.idle_since_ms = now_ms + NEWCOMER_GRACE_MS;
        }
        self.file_deadline(key);
        Ok(key)
    }

    /// Closes the connection, of this client if given, that has been idle longest, among a bounded number of
    /// candidates. Returns false if there is none; the next search then continues where this one stopped.
    pub(super) fn evict_idle<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        of: Option<ClientNumber>,
    ) -> bool {
        let search = usize::from(of.is_some());
        let from = self.evict_from[search].take();
        let (mut oldest, mut end) = self.find_oldest_idle(turn, of, from);
        if oldest.is_none() && from.is_some() && end.is_none() {
            (oldest, end) = self.find_oldest_idle(turn, of, None);
        }
        self.evict_from[search] = end;
        let Some(key) = oldest else { return false };
        turn.context.core.counters.evicted += 1;
        if let Some(Connection { conn, .. }) = self.connections.get_mut(key) {
            // The new connection needs the place now, so this is a best effort.
            conn.transport.begin_close(turn.context.machine);
        }
        self.close(turn, key);
        true
    }

    fn find_oldest_idle<M: Machine<Socket = S>>(
        &mut self,
        turn: &Turn<'_, M>,
        of: Option<ClientNumber>,
        from: Option<SearchPlace>,
    ) -> (Option<Key>, Option<SearchPlace>) {
        let connections = &self.connections;
        let (timeouts, now_ms) = (turn.context.core.rules.timeouts, turn.context.core.clock.ms());
        let longest_ms = timeouts.idle_ms.max(timeouts.head_ms) + TICK_MS;
        let mut oldest: Option<(u64, Key)> = None;
        let end = self.timers.search(from, EVICTION_LOOKS_MAX, |key, tick| {
            let Some(connection) = connections.get(key) else { return Look::Gone };
            let conn = &connection.conn;
            if conn.filed_tick != Some(tick) {
                return Look::Gone;
            }
            let is_theirs = of.is_none_or(|client| conn.opener.client == client);
            if is_theirs
                && connection.is_idle()
                && conn.idle_since_ms <= now_ms
                && oldest.is_none_or(|(since_ms, _)| conn.idle_since_ms < since_ms)
            {
                oldest = Some((conn.idle_since_ms, key));
            }
            // A connection with a later tick cannot have been idle for longer.
            let is_oldest = oldest.is_some_and(|(since_ms, _)| since_ms + longest_ms <= tick * TICK_MS);
            if is_oldest { Look::Found } else { Look::Pass }
        });
        (oldest.map(|(_, key)| key), end)
    }
}
