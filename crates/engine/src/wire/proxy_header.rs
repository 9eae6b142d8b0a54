//! Connections of proxies that introduce their clients before any other byte (the PROXY protocol). Such a connection counts as
//! one of its client as soon as the client is known. Called by [`wire`](super).

use flash_http::client;
use flash_http::proxy_protocol::{Progress, ProxyHeader, read};

use super::conn::TurnEnd;
use super::h1::H1;
use super::{Connection, Wire, Wires};
use crate::admission::{Room, WhyRefused};
use crate::exchange::Turn;
use crate::limits::{NEWCOMER_GRACE_MS, REPORT_MS};
use crate::machine::{Machine, RecordLayer};
use crate::slab::{ClientNumber, Key};
use crate::transport::{Received, Transport};

/// A connection whose client is not introduced yet.
#[derive(Debug)]
pub(super) struct AwaitingProxyHeader {
    header: Vec<u8>,
    /// The record layer of a client that then speaks TLS.
    layer: Option<Box<dyn RecordLayer>>,
}

impl AwaitingProxyHeader {
    pub(super) fn new(layer: Option<Box<dyn RecordLayer>>) -> Self {
        Self { header: Vec::new(), layer }
    }

    /// Receives the rest of the header, and no byte more.
    fn receive<M: Machine>(
        &mut self,
        machine: &mut M,
        transport: &mut Transport<M::Socket>,
    ) -> Result<ProxyHeader, TurnEnd> {
        loop {
            let missing = match read(&self.header) {
                Progress::Needs(missing) => missing,
                Progress::Done(header) => return Ok(header),
                Progress::Bad => return Err(TurnEnd::Close),
            };
            let length = self.header.len();
            self.header.resize(length + missing, 0);
            let received = transport.receive(machine, &mut self.header[length..]);
            let bytes = if let Received::Bytes(bytes) = received { bytes } else { 0 };
            self.header.truncate(length + bytes);
            match received {
                Received::Bytes(_) => {}
                Received::Nothing => return Err(TurnEnd::Blocked),
                Received::End | Received::Failed => return Err(TurnEnd::Close),
            }
        }
    }
}

impl<S> Wires<S> {
    /// Continues a connection whose client is to be introduced.
    pub(super) fn receive_proxy_header<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        key: Key,
    ) -> TurnEnd {
        let Some(Connection { conn, wire: Wire::AwaitingProxyHeader(awaiting) }) =
            self.connections.get_mut(key)
        else {
            return TurnEnd::Blocked;
        };
        let header = match awaiting.receive(turn.context.machine, &mut conn.transport) {
            Ok(header) => header,
            Err(TurnEnd::Blocked) => return TurnEnd::Blocked,
            // A health check may only connect.
            Err(turn_end) if awaiting.header.is_empty() => return turn_end,
            Err(turn_end) => {
                let peer = client::address_text(conn.peer.ip());
                turn.context.core.counters.refused[WhyRefused::ProxyHeader as usize] += 1;
                if self.proxy_header_reports.is_due(turn.context.core.clock.ms(), REPORT_MS) {
                    turn.context.machine.report(&format!(
                        "refused a connection from {peer}, which did not begin with the PROXY protocol; \
                         turn it on in the proxy, or take the address out of proxy_protocol"
                    ));
                }
                return turn_end;
            }
        };
        let layer = awaiting.layer.take();
        // It must not be the one that makes room for itself.
        conn.idle_since_ms = u64::MAX;
        let client = header.addresses.map_or(conn.peer, |(client, _)| client);
        let (proxy, number) = (conn.opener.client, ClientNumber::of(client.ip()));
        self.admission.closed(proxy);
        let has_room = match self.admission.room(number, client.ip()) {
            Room::Free | Room::OfAnyIdle => true,
            Room::OfOwnIdle => self.evict_idle(turn, Some(number)),
        };
        let may_begin_handshake =
            layer.is_none() || has_room && self.admission.admits_handshake(number, client.ip());
        self.admission.opened(if has_room { number } else { proxy });
        let is_exempt = self.admission.is_exempt(client.ip());
        let Some(Connection { conn, wire }) = self.connections.get_mut(key) else { return TurnEnd::Close };
        if !has_room || !may_begin_handshake {
            turn.context.core.counters.refused[WhyRefused::Client as usize] += 1;
            conn.opener.client = if has_room { number } else { proxy };
            return TurnEnd::Close;
        }
        conn.take_proxy_header(&header, is_exempt);
        conn.idle_since_ms = turn.context.core.clock.ms() + NEWCOMER_GRACE_MS;
        conn.set_proxy(turn.context.core.rules.proxies.contain(client.ip()));
        *wire = match layer {
            Some(layer) => {
                conn.start_tls(layer);
                Wire::Handshake
            }
            None => Wire::H1(H1::new()),
        };
        TurnEnd::Yield
    }
}
