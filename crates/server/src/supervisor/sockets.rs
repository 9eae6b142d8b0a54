//! The listening sockets. The supervisor owns them, one `SO_REUSEPORT` socket per worker and
//! address (or one for all workers, as the architecture has it), so that a worker can die or be replaced without a queued connection being lost.

use std::io;
use std::net::SocketAddr;

use flash_prompt::OwnedFd;
use flash_prompt::net;

/// Connections that may wait in one socket's queue; the kernel bounds it by `somaxconn`.
const BACKLOG: i32 = 4096;

/// One address and its sockets.
#[derive(Debug)]
struct Group {
    /// As it was asked for.
    wanted: SocketAddr,
    /// As it is: with the port that was chosen for port 0.
    bound: SocketAddr,
    sockets: Vec<OwnedFd>,
}

/// The sockets of every address.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    groups: Vec<Group>,
}

impl Sockets {
    /// At least so many `sockets` for each of `addresses`, taking over what `old`
    /// already has: no queued connection is lost, also not when workers become fewer.
    ///
    /// Errors: the first address that cannot be bound; `old` is unchanged then.
    pub(super) fn bind(addresses: &[SocketAddr], sockets: usize, old: &Sockets) -> io::Result<Sockets> {
        let mut groups = Vec::new();
        for wanted in addresses {
            let known = old.groups.iter().find(|group| group.wanted == *wanted);
            groups.push(bind_group(*wanted, sockets, known).map_err(|e| explain(*wanted, &e))?);
        }
        Ok(Sockets { groups })
    }

    /// Copies of the sockets that the worker in `place` accepts from, where each address is to have so many
    /// `sockets`: those of old that are more than that are dealt out, too.
    pub(super) fn of_worker(&self, place: usize, sockets: usize) -> io::Result<Vec<OwnedFd>> {
        let mine = |group: &Group| {
            let chosen =
                group.sockets.iter().enumerate().filter(|(number, _)| number % sockets == place % sockets);
            chosen.map(|(_, socket)| socket.try_clone()).collect::<io::Result<Vec<_>>>()
        };
        Ok(self.groups.iter().map(mine).collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
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
    Ok(Group { wanted, bound, sockets })
}

fn explain(address: SocketAddr, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another program listens there: stop it, or choose another with --listen"
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
        assert!(error.to_string().contains("another program listens there"), "{error}");
        let ours = Sockets::bind(&[any_port()], 1, &Sockets::default()).expect("bound");
        let taken = ours.addresses().next().expect("one");
        assert!(Sockets::bind(&[taken], 1, &Sockets::default()).is_err(), "also by another flash");
    }
}
