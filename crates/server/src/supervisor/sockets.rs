//! The listening sockets. The supervisor owns them, one `SO_REUSEPORT` socket per worker and address (or one for all workers,
//! depending on the architecture), so that replacing a dead worker loses no queued connection. All workers share a Unix socket, and
//! those of systemd.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use flash_prompt::OwnedFd;
use flash_prompt::net;
use flash_waiting::successor::Bequest;
use flash_waiting::systemd::{self, BoundAddress, KeptFile, Listener};

use super::estate::Estate;
use super::local_socket::{LeftPath, LocalSocket, Passed};
use crate::config::architecture;
use crate::config::{EndpointSocket, FilePath, Listen, Service, Settings};
use crate::stats::Listening;

/// Maximum connections in one socket's queue; the kernel also bounds it by `somaxconn`.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
struct Group {
    wanted: Listen,
    /// As bound: with the port that was chosen for port 0.
    bound: BoundAddress,
    is_tls: bool,
    sockets: Vec<OwnedFd>,
    /// Whether every worker accepts from all of them.
    is_shared: bool,
    /// The owner of the path that was created for it.
    local: Option<Arc<LocalSocket>>,
}

impl Group {
    /// The place with its source, if that is systemd: `http://127.0.0.1:8080/ (systemd:http)`.
    fn shown(&self, place: impl FnOnce(&BoundAddress) -> String) -> String {
        let source = match &self.wanted {
            Listen::Systemd(name) if name.is_empty() => " (systemd)".to_owned(),
            wanted @ Listen::Systemd(_) => format!(" ({wanted})"),
            Listen::Tcp(_) | Listen::Unix(_) => String::new(),
        };
        place(&self.bound) + &source
    }

    fn url(&self) -> String {
        self.shown(|bound| match (bound, self.is_tls) {
            (BoundAddress::Tcp(address), false) => format!("http://{address}/"),
            (BoundAddress::Tcp(address), true) => format!("https://{address}/"),
            (BoundAddress::Path(path), false) => format!("unix:{}", path.display()),
            (BoundAddress::Path(path), true) => format!("unix:{} (TLS)", path.display()),
        })
    }
}

/// A [`Group`] as the next program takes it over.
#[derive(Debug, Serialize, Deserialize)]
struct LeftGroup {
    wanted: Listen,
    is_tls: bool,
    sockets: Vec<usize>,
    is_shared: bool,
    /// The path that was created for it, with its device and inode.
    local: Option<LeftPath>,
}

/// [`Sockets`] as the next program takes them over.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct LeftSockets {
    groups: Vec<LeftGroup>,
    /// With the names that systemd gave them.
    passed: Vec<(usize, String)>,
    local: Option<(usize, LeftPath)>,
    endpoint: Vec<(usize, LeftPath)>,
}

#[derive(Debug, Default)]
pub(super) struct Sockets {
    groups: Vec<Group>,
    /// The sockets of systemd, for all configurations of `flash serve`.
    passed: Arc<Vec<Listener>>,
    /// The socket of a backend. Configurations share it.
    local: Option<Arc<LocalSocket>>,
    /// The sockets of its warm endpoint, in the order of the settings.
    endpoint: Vec<Arc<LocalSocket>>,
    /// The files that systemd has kept for the first configuration.
    pub(super) kept: Vec<KeptFile>,
}

impl Sockets {
    /// Only the sockets of systemd, and those of a backend, if these settings are of one. Their owner is its user, so this comes
    /// before the supervisor gives up the right to set owners.
    ///
    /// Errors: a path cannot be bound, or systemd has passed on a socket that cannot be used.
    pub(super) fn local(settings: &Settings) -> io::Result<Sockets> {
        let Service::Backend(backend) = &settings.service else {
            let systemd::Passed { listeners: passed, kept } = systemd::take()?;
            if let Some(wrong) = passed.iter().find(|listener| listener.is_packets) {
                let why = format!(
                    "systemd passed the socket `{}` for packets, and HTTP needs a stream; give its unit ListenStream=",
                    wrong.address
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            return Ok(Sockets { passed: Arc::new(passed), kept, ..Sockets::default() });
        };
        let (run_as, mut passed) = (settings.run_as.as_ref(), Passed(systemd::take()?.listeners));
        let local = LocalSocket::bind(&backend.socket, run_as, &mut passed)?;
        let of_endpoint = |socket: &EndpointSocket| {
            LocalSocket::bind_endpoint(&socket.path, run_as, &mut passed).map(Arc::new)
        };
        let endpoint = backend.endpoint.sockets.iter().map(of_endpoint).collect::<io::Result<_>>()?;
        passed.finish()?;
        Ok(Sockets { local: Some(Arc::new(local)), endpoint, ..Sockets::default() })
    }

    /// The sockets of these settings, including those of `old` and the `new` ones at a path. Each address has at least one for each
    /// worker: no queued connection is lost, even if there are fewer workers than before.
    ///
    /// Errors: the first place that cannot be had, or a socket of systemd that the settings do not name; `old` is unchanged then.
    pub(super) fn of(settings: &Settings, old: &Sockets, new: Vec<LocalSocket>) -> io::Result<Sockets> {
        let sockets = architecture::sockets(settings);
        let mut making = Making { old, new, passed: old.passed.iter().collect(), sockets };
        let tls = making.groups(&settings.tls_listen, true)?;
        let mut groups = if settings.listens_by_default && !old.passed.is_empty() {
            // All others of systemd, in clear text.
            let rest = std::mem::take(&mut making.passed).into_iter();
            rest.map(|listener| group_of(listener, false)).collect::<io::Result<_>>()?
        } else {
            making.groups(&settings.listen, false)?
        };
        making.finish()?;
        groups.extend(tls);
        let (local, endpoint) = (old.local.clone(), old.endpoint.clone());
        Ok(Sockets { groups, passed: Arc::clone(&old.passed), local, endpoint, kept: Vec::new() })
    }

    /// Leaves them to the next program.
    pub(super) fn leave(&self, bequest: &mut Bequest) -> io::Result<LeftSockets> {
        let mut groups = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            groups.push(LeftGroup {
                wanted: group.wanted.clone(),
                is_tls: group.is_tls,
                sockets: group.sockets.iter().map(|socket| bequest.add(socket)).collect::<io::Result<_>>()?,
                is_shared: group.is_shared,
                local: group.local.as_ref().map(|local| local.place()),
            });
        }
        let mut leave = |local: &Arc<LocalSocket>| Ok((bequest.add(local.try_clone()?)?, local.place()));
        let local = self.local.as_ref().map(&mut leave).transpose()?;
        let endpoint = self.endpoint.iter().map(leave).collect::<io::Result<_>>()?;
        let passed = self.passed.iter().map(|own| Ok((bequest.add(&own.socket)?, own.name.clone())));
        Ok(LeftSockets { groups, passed: passed.collect::<io::Result<_>>()?, local, endpoint })
    }

    /// Takes over the sockets that an earlier program has bound.
    pub(super) fn adopt(left: LeftSockets, estate: &mut Estate) -> io::Result<Sockets> {
        let mut groups = Vec::with_capacity(left.groups.len());
        for LeftGroup { wanted, is_tls, sockets, is_shared, local } in left.groups {
            let sockets: Vec<OwnedFd> =
                sockets.into_iter().map(|number| estate.take(number)).collect::<io::Result<_>>()?;
            let first = sockets.first().ok_or(io::ErrorKind::InvalidData)?;
            let bound = systemd::address_of(first).ok_or(io::ErrorKind::InvalidData)?;
            let adopt = |place| io::Result::Ok(Arc::new(LocalSocket::adopt(first.try_clone()?, place)));
            let local = local.map(adopt).transpose()?;
            groups.push(Group { wanted, bound, is_tls, sockets, is_shared, local });
        }
        let mut passed = Vec::with_capacity(left.passed.len());
        for (number, name) in left.passed {
            passed.push(systemd::listener(estate.take(number)?, &name)?);
        }
        let mut adopt =
            |(number, place)| io::Result::Ok(Arc::new(LocalSocket::adopt(estate.take(number)?, place)));
        let local = left.local.map(&mut adopt).transpose()?;
        let endpoint = left.endpoint.into_iter().map(adopt).collect::<io::Result<_>>()?;
        Ok(Sockets { groups, passed: Arc::new(passed), local, endpoint, kept: Vec::new() })
    }

    /// Bounds the rate of each connection that is accepted from now on, as these settings want it. Unix sockets have no such bound.
    ///
    /// Errors: the kernel knows no such bound.
    pub(super) fn pace(&self, settings: &Settings) -> io::Result<()> {
        let bytes_per_s = Some(settings.connection_bits_per_s / 8).filter(|rate| *rate > 0);
        let of_addresses = self.listening().filter(|listening| listening.address.is_some());
        let mut sockets = of_addresses.flat_map(|listening| listening.sockets);
        match sockets.try_for_each(|socket| net::pace(socket, bytes_per_s)) {
            Err(e) if bytes_per_s.is_some() => {
                let why = format!("the kernel cannot bound the rate of connections (connection_rate): {e}");
                Err(io::Error::new(e.kind(), why))
            }
            // A kernel without the bound has none to lift.
            _ => Ok(()),
        }
    }

    /// The paths that the server has created for `listen` and `listen_tls`.
    pub(super) fn created_paths(&self) -> Vec<FilePath> {
        self.groups.iter().filter_map(|group| group.local.as_ref()).map(|local| local.path().into()).collect()
    }

    /// Removes the paths that no later configuration has, without waiting for their disks.
    pub(super) fn give_way(self) {
        let own = self.groups.into_iter().filter_map(|group| group.local.and_then(Arc::into_inner));
        own.for_each(LocalSocket::remove_later);
    }

    /// Copies of the sockets for TLS, or of those without, that the worker in `place` accepts from, with `sockets` sockets per address:
    /// surplus sockets of earlier configurations are distributed too. Those of a backend and of its endpoint come last.
    pub(super) fn of_worker(&self, is_tls: bool, place: usize, sockets: usize) -> io::Result<Vec<OwnedFd>> {
        let groups = self.groups.iter().filter(|group| group.is_tls == is_tls);
        let mine = groups.flat_map(|group| {
            let is_mine = move |number: usize| group.is_shared || number % sockets == place % sockets;
            group.sockets.iter().enumerate().filter(move |(number, _)| is_mine(*number))
        });
        let local = self.local.iter().chain(&self.endpoint).filter(|_| !is_tls);
        let mine = mine.map(|(_, socket)| socket.try_clone());
        mine.chain(local.map(|socket| socket.try_clone())).collect()
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.local.as_ref().map(|socket| socket.path())
    }

    /// The sockets of each place, as bound.
    pub(super) fn listening(&self) -> impl Iterator<Item = Listening<'_>> + '_ {
        self.groups.iter().map(|group| {
            let name = group.shown(|bound| match bound {
                BoundAddress::Tcp(address) => address.to_string(),
                BoundAddress::Path(path) => format!("unix:{}", path.display()),
            });
            let address = if let BoundAddress::Tcp(address) = group.bound { Some(address) } else { None };
            Listening { name, address, sockets: &group.sockets }
        })
    }

    /// The places as bound, an address as a browser takes it.
    pub(super) fn urls(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().map(Group::url)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listening().filter_map(|listening| listening.address)
    }
}

/// The sockets of a configuration while they are gathered.
struct Making<'o> {
    old: &'o Sockets,
    /// The new ones at a path that no group has yet.
    new: Vec<LocalSocket>,
    /// The sockets of systemd that no group has yet.
    passed: Vec<&'o Listener>,
    sockets: usize,
}

impl Making<'_> {
    /// The groups of these places, each with the sockets that it had. Port 0 can be one of each kind.
    fn groups(&mut self, places: &[Listen], is_tls: bool) -> io::Result<Vec<Group>> {
        let mut groups = Vec::new();
        for wanted in places {
            match wanted {
                Listen::Tcp(address) => {
                    let mut known = self.old.groups.iter();
                    let known = known.find(|group| group.wanted == *wanted && group.is_tls == is_tls);
                    let group =
                        bind_group(*address, self.sockets, known).map_err(|e| explain(*address, &e))?;
                    groups.push(Group { is_tls, ..group });
                }
                Listen::Unix(path) => groups.push(Group { is_tls, ..self.at_path(path)? }),
                Listen::Systemd(name) => groups.extend(self.of_systemd(name, is_tls)?),
            }
        }
        Ok(groups)
    }

    fn at_path(&mut self, path: &FilePath) -> io::Result<Group> {
        let mut known = self.old.groups.iter().filter_map(|group| group.local.as_ref());
        let local = match known.find(|local| local.path() == &**path) {
            Some(local) => Arc::clone(local),
            None => match self.new.iter().position(|local| local.path() == &**path) {
                Some(at) => Arc::new(self.new.swap_remove(at)),
                None => {
                    let why =
                        format!("cannot listen on `unix:{}`: it has just gone; reload again", path.display());
                    return Err(io::Error::new(io::ErrorKind::NotFound, why));
                }
            },
        };
        Ok(Group {
            wanted: Listen::Unix(path.clone()),
            bound: BoundAddress::Path(path.to_path_buf()),
            is_tls: false,
            sockets: vec![local.try_clone()?],
            is_shared: true,
            local: Some(local),
        })
    }

    /// The sockets of systemd with this name.
    fn of_systemd(&mut self, name: &str, is_tls: bool) -> io::Result<Vec<Group>> {
        let (named, others) =
            self.passed.iter().partition::<Vec<&Listener>, _>(|listener| listener.name == name);
        if named.is_empty() {
            return Err(not_passed(name, &self.old.passed));
        }
        self.passed = others;
        named.into_iter().map(|listener| group_of(listener, is_tls)).collect()
    }

    /// Every socket of systemd must have a group: clients of another one would wait forever.
    fn finish(self) -> io::Result<()> {
        let Some(Listener { name, address, .. }) = self.passed.first() else { return Ok(()) };
        let advice = match name.as_str() {
            "" => {
                "give its unit FileDescriptorName=, and add `systemd:NAME` to listen or listen_tls".to_owned()
            }
            name => format!("add `systemd:{name}` to listen or listen_tls"),
        };
        let why = format!(
            "systemd passed the socket `{address}`, which no setting names; {advice}, or stop its unit"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

fn group_of(listener: &Listener, is_tls: bool) -> io::Result<Group> {
    Ok(Group {
        wanted: Listen::Systemd(listener.name.clone()),
        bound: listener.address.clone(),
        is_tls,
        sockets: vec![listener.socket.try_clone()?],
        is_shared: true,
        local: None,
    })
}

fn not_passed(name: &str, passed: &[Listener]) -> io::Error {
    let mut names: Vec<String> = passed.iter().map(|listener| format!("`{}`", listener.name)).collect();
    names.dedup();
    let why = match &names[..] {
        [] => "systemd has passed no socket; start Flash by a socket unit, or name an address instead"
            .to_owned(),
        names => format!(
            "systemd has passed no socket of this name left, of {}; set FileDescriptorName={name} in its socket unit",
            names.join(", ")
        ),
    };
    io::Error::new(io::ErrorKind::NotFound, format!("cannot listen on `systemd:{name}`: {why}"))
}

fn bind_group(wanted: SocketAddr, count: usize, known: Option<&Group>) -> io::Result<Group> {
    let (mut bound, mut sockets) = match known {
        Some(Group { bound: BoundAddress::Tcp(bound), sockets, .. }) => {
            (*bound, sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>()?)
        }
        _ => {
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
    let (wanted, bound) = (Listen::Tcp(wanted), BoundAddress::Tcp(bound));
    Ok(Group { wanted, bound, is_tls: false, sockets, is_shared: false, local: None })
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
#[path = "sockets_tests.rs"]
mod tests;
