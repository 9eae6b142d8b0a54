//! Who gets a connection when there is not room for all: the bound of all connections and of one client's
//! connections ([`OpenConnections`]), and the bound of the wait in the accept queue ([`AcceptQueue`]).
//!
//! The paper shows what happens without such bounds: connections pile up, and the kernel drops SYNs, which
//! costs a client a second or more (overload-and-srpt, section 4.2). Called by [`wire`](crate::wire) for each
//! new connection, and by the worker's loop for each batch of accepted ones. A request on an open connection
//! costs nothing here.

mod network;
mod queue;

use std::collections::HashMap;
use std::net::IpAddr;

use flash_http::client;

pub use network::{Network, WrongNetwork};
pub use queue::{AcceptBatch, AcceptQueue};

use crate::limits::HANDSHAKES_PER_CLIENT_MAX;
use crate::slab::ClientNumber;

/// The bounds of connections, as an operator sets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionRules {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of connections of one client address (IPv4) or network (IPv6 /64); 0 for no such bound.
    pub client_connections_max: usize,
    /// Clients of these networks have no bound of their own, here or elsewhere.
    pub exempt: Vec<Network>,
}

impl AdmissionRules {
    /// Whether a client has no bound of its own. One of a Unix socket has none: all of them would share it, and the socket's
    /// permissions say who can connect.
    pub(crate) fn exempts(&self, address: IpAddr) -> bool {
        client::is_unix(address) || self.exempt.iter().any(|network| network.contains(address))
    }
}

/// Why a new connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRefused {
    /// The limit of connections is reached, and no connection is idle.
    Connections,
    /// The client has its share of connections, and none of them is idle.
    Client,
    /// New connections wait too long in the accept queue.
    Overload,
    /// The process or the system has no more descriptors or memory.
    Descriptors,
    /// Its proxy did not introduce the client.
    ProxyHeader,
}

impl WhyRefused {
    /// All reasons.
    pub const ALL: [WhyRefused; 5] = [
        WhyRefused::Connections,
        WhyRefused::Client,
        WhyRefused::Overload,
        WhyRefused::Descriptors,
        WhyRefused::ProxyHeader,
    ];
}

/// The place for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// That of an idle connection of any client, if there is one.
    OfAnyIdle,
    /// That of an idle connection of the same client, if there is one.
    OfOwnIdle,
}

/// The open connections, in total and of each client.
#[derive(Debug)]
pub(crate) struct OpenConnections {
    rules: AdmissionRules,
    open: usize,
    /// Without entries for clients that have no connection, so it is never longer than `open`. Not used
    /// without a bound for clients.
    of_clients: HashMap<ClientNumber, usize>,
    /// How many handshakes of each client are unfinished, with entries for those that have any.
    handshaking: HashMap<ClientNumber, usize>,
}

impl OpenConnections {
    pub(crate) fn new(rules: AdmissionRules) -> Self {
        Self { rules, open: 0, of_clients: HashMap::new(), handshaking: HashMap::new() }
    }

    /// Finds a place for a new connection of `client` from `address`.
    pub(crate) fn room(&self, client: ClientNumber, address: IpAddr) -> Room {
        if self.is_over_share(client, address) {
            // This makes room for it in total, too.
            Room::OfOwnIdle
        } else if self.open >= self.rules.connections_max {
            Room::OfAnyIdle
        } else {
            Room::Free
        }
    }

    fn is_over_share(&self, client: ClientNumber, address: IpAddr) -> bool {
        let bound = self.rules.client_connections_max;
        bound > 0
            && self.of_clients.get(&client).is_some_and(|held| *held >= bound)
            && !self.is_exempt(address)
    }

    /// Whether a client has no bound of its own.
    pub(crate) fn is_exempt(&self, address: IpAddr) -> bool {
        self.rules.exempts(address)
    }

    /// Counts a connection that was admitted.
    pub(crate) fn opened(&mut self, client: ClientNumber) {
        self.open += 1;
        if self.rules.client_connections_max > 0 {
            *self.of_clients.entry(client).or_default() += 1;
        }
    }

    /// Counts a connection that was closed.
    pub(crate) fn closed(&mut self, client: ClientNumber) {
        self.open -= 1;
        if let Some(held) = self.of_clients.get_mut(&client) {
            *held -= 1;
            if *held == 0 {
                self.of_clients.remove(&client);
            }
        }
    }

    /// Counts a handshake that begins. Returns false if the client has as many unfinished ones as it may.
    pub(crate) fn admits_handshake(&mut self, client: ClientNumber, address: IpAddr) -> bool {
        let unfinished = self.handshaking.get(&client).copied().unwrap_or(0);
        let may = unfinished < HANDSHAKES_PER_CLIENT_MAX || self.is_exempt(address);
        if may {
            self.handshaking.insert(client, unfinished + 1);
        }
        may
    }

    /// Counts a handshake that has ended.
    pub(crate) fn handshake_ended(&mut self, client: ClientNumber) {
        if let Some(unfinished) = self.handshaking.get_mut(&client) {
            *unfinished -= 1;
            if *unfinished == 0 {
                self.handshaking.remove(&client);
            }
        }
    }

    /// The number of clients that have connections; 0 without a bound for clients.
    pub(crate) fn clients_len(&self) -> usize {
        self.of_clients.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: (ClientNumber, IpAddr) = (ClientNumber(1), IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)));
    const TWO: (ClientNumber, IpAddr) = (ClientNumber(2), IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2)));

    fn connections(client_connections_max: usize, exempt: &str) -> OpenConnections {
        let exempt = exempt.split_whitespace().map(|text| text.parse().expect("a network")).collect();
        OpenConnections::new(AdmissionRules { connections_max: 5, client_connections_max, exempt })
    }

    #[test]
    fn a_client_at_its_share_replaces_only_its_own_connections() {
        let mut open = connections(3, "");
        for _ in 0..3 {
            assert_eq!(open.room(ONE.0, ONE.1), Room::Free);
            open.opened(ONE.0);
        }
        assert_eq!(open.room(ONE.0, ONE.1), Room::OfOwnIdle);
        assert_eq!(open.room(TWO.0, TWO.1), Room::Free);
        open.opened(TWO.0);
        open.opened(TWO.0);
        assert_eq!(open.room(TWO.0, TWO.1), Room::OfAnyIdle);
        assert_eq!(open.room(ONE.0, ONE.1), Room::OfOwnIdle);
        open.closed(ONE.0);
        assert_eq!(open.room(ONE.0, ONE.1), Room::Free);
    }

    #[test]
    fn exempt_clients_have_only_the_bound_of_all() {
        let mut open = connections(1, "192.0.2.1/32");
        for _ in 0..5 {
            assert_eq!(open.room(ONE.0, ONE.1), Room::Free);
            open.opened(ONE.0);
        }
        assert_eq!(open.room(ONE.0, ONE.1), Room::OfAnyIdle);
    }

    #[test]
    fn clients_of_a_unix_socket_are_exempt() {
        let mut open = connections(1, "");
        let address = "0.0.0.0".parse().expect("an address");
        for _ in 0..5 {
            assert_eq!(open.room(ONE.0, address), Room::Free);
            open.opened(ONE.0);
        }
        assert_eq!(open.room(ONE.0, address), Room::OfAnyIdle);
        assert!(!open.is_exempt(ONE.1));
    }

    #[test]
    fn a_client_has_a_share_of_unfinished_handshakes() {
        let mut open = connections(0, "192.0.2.2/32");
        for _ in 0..HANDSHAKES_PER_CLIENT_MAX {
            assert!(open.admits_handshake(ONE.0, ONE.1));
        }
        assert!(!open.admits_handshake(ONE.0, ONE.1));
        open.handshake_ended(ONE.0);
        assert!(open.admits_handshake(ONE.0, ONE.1));
        let exempt = "192.0.2.2".parse().expect("an address");
        for _ in 0..2 * HANDSHAKES_PER_CLIENT_MAX {
            assert!(open.admits_handshake(TWO.0, exempt));
        }
        (0..2 * HANDSHAKES_PER_CLIENT_MAX).for_each(|_| open.handshake_ended(TWO.0));
        (0..HANDSHAKES_PER_CLIENT_MAX).for_each(|_| open.handshake_ended(ONE.0));
        assert!(open.handshaking.is_empty());
    }

    #[test]
    fn clients_without_connections_are_forgotten() {
        for share in [0, 3] {
            let mut open = connections(share, "");
            for (client, _) in [ONE, TWO, TWO] {
                open.opened(client);
            }
            for (client, _) in [TWO, ONE, TWO] {
                open.closed(client);
            }
            assert_eq!((open.open, open.clients_len()), (0, 0));
        }
    }
}
