//! The listening sockets. The supervisor owns them, one `SO_REUSEPORT` socket per worker and address (or one for all workers,
//! depending on the architecture), so that replacing a dead worker loses no queued connection.

use std::io;
use std::net::SocketAddr;

use std::path::Path;
use std::sync::Arc;

use flash_prompt::OwnedFd;
use flash_prompt::net;

use super::local_socket::{LocalSocket, Passed};
use crate::config::architecture;
use crate::config::{EndpointSocket, Service, Settings};

/// Maximum connections in one socket's queue; the kernel also bounds it by `somaxconn`.
const BACKLOG: i32 = 4096;

/// One address and its sockets.
#[derive(Debug)]
struct Group {
    /// As configured.
    wanted: SocketAddr,
    /// As bound: with the port that was chosen for port 0.
    bound: SocketAddr,
    is_tls: bool,
    sockets: Vec<OwnedFd>,
}

/// The sockets of every address.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    groups: Vec<Group>,
    /// The socket of a backend. Configurations share it.
    local: Option<Arc<LocalSocket>>,
    /// The sockets of its warm endpoint, in the order of the settings.
    endpoint: Vec<Arc<LocalSocket>>,
}

impl Sockets {
    /// Only the sockets of a backend, if these settings are of one. Their owner is its user, so this comes before the
    /// supervisor gives up the right to set owners.
    ///
    /// Errors: a path cannot be bound, or systemd has passed on a socket that nothing uses.
    pub(super) fn local(settings: &Settings) -> io::Result<Sockets> {
        let Service::Backend(backend) = &settings.service else { return Ok(Sockets::default()) };
        let (run_as, mut passed) = (settings.run_as.as_ref(), Passed::from_systemd()?);
        let local = LocalSocket::bind(&backend.socket, run_as, &mut passed)?;
        let of_endpoint = |socket: &EndpointSocket| {
            LocalSocket::bind_endpoint(&socket.path, run_as, &mut passed).map(Arc::new)
        };
        let endpoint = backend.endpoint.sockets.iter().map(of_endpoint).collect::<io::Result<_>>()?;
        passed.finish()?;
        Ok(Sockets { groups: Vec::new(), local: Some(Arc::new(local)), endpoint })
    }

    /// The sockets of these settings, including those of `old`.
    ///
    /// Errors: the first address or path that cannot be bound; `old` is unchanged then.
    pub(super) fn of(settings: &Settings, old: &Sockets) -> io::Result<Sockets> {
        let count = architecture::sockets(settings);
        let mut groups = old.bind_groups(&settings.listen, false, count)?;
        groups.extend(old.bind_groups(&settings.tls_listen, true, count)?);
        let mut sockets = Sockets { groups, local: None, endpoint: Vec::new() };
        sockets.local = old.local.clone();
        sockets.endpoint = old.endpoint.clone();
        Ok(sockets)
    }

    /// At least `sockets` sockets for each of `addresses`, including those of `old`: no queued connection is lost,
    /// even if there are fewer workers.
    ///
    /// Errors: the first address that cannot be bound; `old` is unchanged then.
    #[cfg(test)]
    fn bind(addresses: &[SocketAddr], sockets: usize, old: &Sockets) -> io::Result<Sockets> {
        let groups = old.bind_groups(addresses, false, sockets)?;
        Ok(Sockets { groups, local: None, endpoint: Vec::new() })
    }

    /// The groups of these addresses, each with the sockets that it has here. Port 0 can be one of each kind.
    fn bind_groups(&self, addresses: &[SocketAddr], is_tls: bool, sockets: usize) -> io::Result<Vec<Group>> {
        let mut groups = Vec::new();
        for wanted in addresses {
            let known = self.groups.iter().find(|group| group.wanted == *wanted && group.is_tls == is_tls);
            let group = bind_group(*wanted, sockets, known).map_err(|e| explain(*wanted, &e))?;
            groups.push(Group { is_tls, ..group });
        }
        Ok(groups)
    }

    /// Copies of the sockets for TLS of all addresses that the worker in `place` accepts from; see
    /// [`Sockets::of_worker`].
    pub(super) fn of_worker_for_tls(&self, place: usize, sockets: usize) -> io::Result<Vec<OwnedFd>> {
        self.copies(true, place, sockets)
    }

    fn copies(&self, is_tls: bool, place: usize, sockets: usize) -> io::Result<Vec<OwnedFd>> {
        let groups = self.groups.iter().filter(|group| group.is_tls == is_tls);
        let all = groups.flat_map(|group| group.sockets.iter().enumerate());
        let mine = all.filter(|(number, _)| number % sockets == place % sockets);
        mine.map(|(_, socket)| socket.try_clone()).collect()
    }

    /// Copies of the sockets of all addresses, then of a backend's socket and of its endpoint, that the worker in `place` accepts from, with `sockets` sockets per address: surplus
    /// sockets of earlier configurations are distributed too.
    pub(super) fn of_worker(&self, place: usize, sockets: usize) -> io::Result<Vec<OwnedFd>> {
        let mut copies = self.copies(false, place, sockets)?;
        let local = self.local.iter().chain(&self.endpoint).map(|socket| socket.try_clone());
        for socket in local {
            copies.push(socket?);
        }
        Ok(copies)
    }

    /// The path of a backend's socket.
    pub(super) fn path(&self) -> Option<&Path> {
        self.local.as_ref().map(|socket| socket.path())
    }

    /// The sockets of each address, as bound.
    pub(super) fn listening(&self) -> impl Iterator<Item = (SocketAddr, &[OwnedFd])> + '_ {
        self.groups.iter().map(|group| (group.bound, group.sockets.as_slice()))
    }

    /// The addresses as bound, as a browser takes them.
    pub(super) fn urls(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().map(|group| {
            let scheme = if group.is_tls { "https" } else { "http" };
            format!("{scheme}://{}/", group.bound)
        })
    }

    /// The addresses as bound.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.groups.iter().map(|group| group.bound)
    }
}

fn bind_group(wanted: SocketAddr, count: usize, known: Option<&Group>) -> io::Result<Group> {
    let (mut bound, mut sockets) = match known {
        Some(group) => {
            let copies = group.sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?;
            (group.bound, copies)
        }
        None => {
            if wanted.port() != 0 {
                net::probe(wanted)?;
            }
            (wanted, Vec::new())
        }
    };
    while sockets.len() < count {
        let socket = net::listen(bound, BACKLOG)?;
        bound = net::local_address(&socket)?;
        sockets.push(socket);
    }
    Ok(Group { wanted, bound, is_tls: false, sockets })
}

fn explain(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program uses it: stop that program, or choose another address with --listen"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root or CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}{advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    #[test]
    fn every_socket_has_a_worker_whatever_their_number() {
        let three = Sockets::bind(&[any_port()], 3, &Sockets::default()).expect("bound");
        for workers in 1..=3 {
            let dealt: usize = (0..workers).map(|p| three.of_worker(p, workers).expect("copies").len()).sum();
            assert_eq!(dealt, 3);
        }
    }

    #[test]
    fn one_socket_is_for_all_workers_and_so_are_those_that_were_there_before() {
        let three = Sockets::bind(&[any_port()], 3, &Sockets::default()).expect("bound");
        for place in 0..5 {
            assert_eq!(three.of_worker(place, 1).expect("copies").len(), 3);
        }
    }

    #[test]
    fn a_new_configuration_keeps_port_and_sockets() {
        let one = Sockets::bind(&[any_port()], 1, &Sockets::default()).expect("bound");
        let two = Sockets::bind(&[any_port()], 2, &one).expect("bound");
        assert_eq!(one.addresses().collect::<Vec<_>>(), two.addresses().collect::<Vec<_>>());
        let fewer = Sockets::bind(&[any_port()], 1, &two).expect("bound");
        assert_eq!(fewer.groups[0].sockets.len(), 2);
    }

    #[test]
    fn an_address_in_use_is_refused_with_advice() {
        let other = std::net::TcpListener::bind(any_port()).expect("bound");
        let taken = other.local_addr().expect("an address");
        let error = Sockets::bind(&[taken], 1, &Sockets::default()).expect_err("taken");
        assert!(error.to_string().contains("another program uses it"), "{error}");
        let ours = Sockets::bind(&[any_port()], 1, &Sockets::default()).expect("bound");
        let taken = ours.addresses().next().expect("one");
        assert!(Sockets::bind(&[taken], 1, &Sockets::default()).is_err(), "also by another flash");
    }
}
