//! The gateway process: it connects to the servers of routes for the workers, which are not allowed to, and passes them the
//! connected sockets. It sends and receives no byte of a request. It also probes servers ([`probes`]) and reports to the workers
//! which of them are down.
//!
//! A worker that does not read its answers is not read either, so each link has a bound, and none holds up the others.

mod line;
mod probes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use flash_engine::{ServerId, UpstreamId};
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::{AsFd, OwnedFd, channel, clock, net};
use flash_tls::Connector;
use flash_waiting::local;
use flash_waiting::process;
use flash_waiting::sandbox::calls::CallList;
use flash_worker::codec::{decode, send};
use flash_worker::control::{Order, receive_order};
use flash_worker::gateway_protocol::{Connect, GATEWAY_MESSAGE_BYTES_MAX, GatewayReply};

use crate::config::{ServerAddress, Settings};
use crate::control::{Control, unexpected};
use crate::sandbox::{self, Role};
use crate::{start, trust};
use probes::{Change, PROBES, Probes};

/// The first epoll token of attempts; those of links are below, those of probes above.
const ATTEMPTS: u64 = 1 << 32;
/// Maximum attempts under way, and those for the servers of one route.
const ATTEMPTS_MAX: usize = 1_024;
const ATTEMPTS_OF_ROUTE_MAX: usize = ATTEMPTS_MAX / 4;
/// Messages taken from one worker before the next has its turn.
const MESSAGES_PER_TURN_MAX: usize = 64;
/// Time after which a Unix socket with a full backlog is tried again: no event announces room there.
const RETRY_MS: u64 = 50;

struct Upstream {
    servers: Vec<ServerAddress>,
    /// Where its program listens, once it does.
    place: Option<OwnedFd>,
    connect_timeout_ms: u64,
}

struct Link {
    channel: OwnedFd,
    /// Answers for which the channel had no room.
    unsent: VecDeque<(GatewayReply, Option<OwnedFd>)>,
    /// The servers whose present health was not reported to the worker, for want of room. However often that changes, these are
    /// no more than there are servers.
    unreported: BTreeSet<ServerId>,
    /// How epoll watches the channel.
    watched: Watch,
}

struct Attempt {
    /// The number of the link to the worker that wants the connection.
    worker: u32,
    wanted: Connect,
    /// None while the server's backlog is full.
    socket: Option<OwnedFd>,
    /// When to continue without an event: the deadline, or the next try.
    due_ms: u64,
    deadline_ms: u64,
}

struct Gateway {
    control: Control,
    epoll: Epoll,
    upstreams: Vec<Upstream>,
    /// By their numbers, which are their epoll tokens.
    links: BTreeMap<u32, Link>,
    links_made: u32,
    /// By their epoll tokens.
    attempts: BTreeMap<u64, Attempt>,
    attempts_made: u64,
    probes: Probes,
    /// Whether it ends with its last link.
    draining: bool,
}

/// Connects for the workers until the supervisor is gone, or until it must drain and every worker's channel has
/// ended.
pub(crate) fn run(control: OwnedFd, settings: &Settings) -> io::Result<()> {
    // Workers then send it the wishes of a whole turn before it takes their core. If this fails, it only costs more.
    let _ = process::never_preempt_others();
    let probes = settings.routes().any(|route| route.probe.is_some());
    let connector = connector(&control, settings)?;
    let gateway = Gateway::new(control, settings, &connector)?;
    let calls = CallList::Gateway { probes, wakes: probes && trust::is_needed(settings) };
    let in_force = sandbox::close(Role::Gateway, settings, &[], calls)?;
    gateway.control.ready(in_force)?;
    gateway.run()
}

/// Makes the record layers of encrypted probes.
fn connector(control: &OwnedFd, settings: &Settings) -> io::Result<Connector> {
    if !trust::is_needed(settings) {
        return Ok(Connector::default());
    }
    match receive_order(control)? {
        Order::Trust(file) => start::connector(file),
        other => Err(unexpected(&other)),
    }
}

impl Link {
    /// Whether the worker has every message that there is for it.
    fn has_all(&self) -> bool {
        self.unsent.is_empty() && self.unreported.is_empty()
    }
}

impl Gateway {
    fn new(control: OwnedFd, settings: &Settings, connector: &Connector) -> io::Result<Self> {
        let upstreams = settings.routes().map(|route| Upstream {
            servers: route.servers.clone(),
            place: None,
            connect_timeout_ms: route.connect_timeout_ms,
        });
        let epoll = Epoll::new(64)?;
        Ok(Self {
            control: Control::watch(control, &epoll)?,
            epoll,
            upstreams: upstreams.collect(),
            links: BTreeMap::new(),
            links_made: 0,
            attempts: BTreeMap::new(),
            attempts_made: ATTEMPTS,
            probes: Probes::new(settings, connector),
            draining: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut batch: Vec<Ready> = Vec::new();
        while !self.draining || !self.links.is_empty() {
            let attempts_ms = self.attempts.values().map(|attempt| attempt.due_ms).min();
            let due_ms = attempts_ms.into_iter().chain(self.probes.next_ms(!self.draining)).min();
            let timeout_ms = due_ms.map(|ms| ms.saturating_sub(clock::monotonic_ms()));
            batch.clear();
            batch.extend(self.epoll.wait(timeout_ms)?);
            for ready in &batch {
                match ready.token {
                    Control::TOKEN => self.receive_orders()?,
                    PROBES.. => {
                        let change = self.probes.handle(&self.epoll, *ready, clock::monotonic_ms());
                        self.report_health(change);
                    }
                    token @ ATTEMPTS.. => self.finish_attempt(token, *ready),
                    link => self.serve(link as u32),
                }
            }
            let now_ms = clock::monotonic_ms();
            self.advance(now_ms);
            // The workers of a drained generation take no new requests.
            let changes = self.probes.advance(&self.epoll, now_ms, !self.draining);
            self.report_health(changes);
        }
        Ok(())
    }

    fn receive_orders(&mut self) -> io::Result<()> {
        while let Some(order) = self.control.receive()? {
            match order {
                Order::Gateway(channel) => {
                    if let Err(e) = self.link(channel) {
                        let text = format!("a worker has no connections to servers of routes: {e}");
                        self.control.report(text);
                    }
                }
                Order::Program(UpstreamId(number), place) => {
                    if let Some(upstream) = self.upstreams.get_mut(usize::from(number)) {
                        upstream.place = Some(place);
                    }
                }
                Order::Drain => self.draining = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn link(&mut self, channel: OwnedFd) -> io::Result<()> {
        channel::set_nonblocking(&channel)?;
        self.links_made += 1;
        self.epoll.add(&channel, self.links_made.into(), Watch::Input)?;
        let unreported = self.probes.known().collect();
        let (unsent, watched) = (VecDeque::new(), Watch::Input);
        self.links.insert(self.links_made, Link { channel, unsent, unreported, watched });
        // A link that has ended is noticed by its event.
        let _ = self.send_unsent(self.links_made);
        Ok(())
    }

    /// Reports changes of the health of servers to the operator and to every worker.
    fn report_health(&mut self, changes: impl IntoIterator<Item = Change>) {
        for Change { server, report } in changes {
            if let Some(text) = report {
                self.control.report(text);
            }
            let workers: Vec<u32> = self.links.keys().copied().collect();
            for worker in workers {
                if let Some(link) = self.links.get_mut(&worker) {
                    link.unreported.insert(server);
                }
                let _ = self.send_unsent(worker);
            }
        }
    }

    /// Sends a worker its answers and reads its requests. A link that ends takes its attempts with it.
    fn serve(&mut self, worker: u32) {
        if self.send_unsent(worker).and_then(|()| self.receive_requests(worker)).is_err() {
            self.links.remove(&worker);
            self.attempts.retain(|_, attempt| attempt.worker != worker);
        }
    }

    /// Errors: the worker is gone, or does not follow the protocol.
    fn receive_requests(&mut self, worker: u32) -> io::Result<()> {
        let mut bytes = [0; GATEWAY_MESSAGE_BYTES_MAX];
        for _ in 0..MESSAGES_PER_TURN_MAX {
            let Some(link) = self.links.get(&worker).filter(|link| link.has_all()) else { break };
            let received = match channel::recv(&link.channel, &mut bytes, &mut Vec::new()) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                received => received?,
            };
            let wanted = decode::<Connect>(&bytes[..received]).ok_or(io::ErrorKind::InvalidData)?;
            let upstream = self.upstreams.get(usize::from(wanted.server.upstream.0));
            let upstream = upstream.filter(|known| usize::from(wanted.server.server) < known.servers.len());
            let timeout_ms = upstream.ok_or(io::ErrorKind::InvalidData)?.connect_timeout_ms;
            let of_route = |attempt: &&Attempt| attempt.wanted.server.upstream == wanted.server.upstream;
            if self.attempts.len() >= ATTEMPTS_MAX
                || self.attempts.values().filter(of_route).count() >= ATTEMPTS_OF_ROUTE_MAX
            {
                self.answer(worker, wanted.link, Err(io::ErrorKind::WouldBlock.into()));
                continue;
            }
            let deadline_ms = clock::monotonic_ms() + timeout_ms;
            self.try_to_connect(Attempt { worker, wanted, socket: None, due_ms: 0, deadline_ms });
        }
        Ok(())
    }

    /// Begins to connect, or tries again.
    fn try_to_connect(&mut self, mut attempt: Attempt) {
        let (worker, link) = (attempt.worker, attempt.wanted.link);
        self.attempts_made += 1;
        let upstream = &self.upstreams[usize::from(attempt.wanted.server.upstream.0)];
        let server = usize::from(attempt.wanted.server.server);
        let connected = match &upstream.servers[server] {
            ServerAddress::Tcp(address) | ServerAddress::Tls(address) => {
                let begun = net::connect(*address).and_then(|socket| {
                    self.epoll.add(&socket, self.attempts_made, Watch::Output).map(|()| socket)
                });
                match begun {
                    Ok(socket) => attempt.socket = Some(socket),
                    Err(e) => return self.answer(worker, link, Err(e)),
                }
                attempt.due_ms = attempt.deadline_ms;
                self.attempts.insert(self.attempts_made, attempt);
                return;
            }
            ServerAddress::Unix(path) => local::connect_prompt(path),
            ServerAddress::Program => match &upstream.place {
                Some(place) => local::connect_in_private(place),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            },
        };
        match connected {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                attempt.due_ms = attempt.deadline_ms.min(clock::monotonic_ms() + RETRY_MS);
                self.attempts.insert(self.attempts_made, attempt);
            }
            connected => self.answer(worker, link, connected),
        }
    }

    /// The attempt has succeeded or failed.
    fn finish_attempt(&mut self, token: u64, ready: Ready) {
        if !ready.writable && !ready.broken {
            return;
        }
        let Some(Attempt { worker, wanted, socket: Some(socket), .. }) = self.attempts.remove(&token) else {
            return;
        };
        // The worker's copy would otherwise keep it in this process's epoll.
        let connected = net::take_error(&socket).and_then(|()| self.epoll.remove(&socket));
        self.answer(worker, wanted.link, connected.map(|()| socket));
    }

    /// Ends attempts at their deadlines, and tries full servers again.
    fn advance(&mut self, now_ms: u64) {
        let due = self.attempts.iter().filter(|(_, attempt)| attempt.due_ms <= now_ms);
        let due: Vec<u64> = due.map(|(token, _)| *token).collect();
        for attempt in due.into_iter().filter_map(|token| self.attempts.remove(&token)).collect::<Vec<_>>() {
            if attempt.deadline_ms <= now_ms {
                self.answer(attempt.worker, attempt.wanted.link, Err(io::ErrorKind::TimedOut.into()));
            } else {
                self.try_to_connect(attempt);
            }
        }
    }

    /// Answers a worker, now or when its channel has room.
    fn answer(&mut self, worker: u32, link: u64, connected: io::Result<OwnedFd>) {
        let answer = match connected {
            Ok(socket) => (GatewayReply::Connected { link }, Some(socket)),
            Err(e) => (GatewayReply::NotConnected { link, errno: net::error_number(&e) }, None),
        };
        let Some(to) = self.links.get_mut(&worker) else { return };
        to.unsent.push_back(answer);
        // A link that has ended is noticed by its event.
        let _ = self.send_unsent(worker);
    }

    /// Sends as many answers as the channel has room for. While some wait, only room is watched for.
    ///
    /// Errors: the worker is gone.
    fn send_unsent(&mut self, worker: u32) -> io::Result<()> {
        let Some(link) = self.links.get_mut(&worker) else { return Ok(()) };
        while let Some((answer, socket)) = link.unsent.pop_front() {
            let descriptors: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
            match send(&link.channel, &answer, &descriptors) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    link.unsent.push_front((answer, socket));
                    break;
                }
                Err(e) => match answer {
                    // The user has too many descriptors in messages (unix(7), ETOOMANYREFS).
                    GatewayReply::Connected { link: number } if e.kind() != io::ErrorKind::BrokenPipe => {
                        let errno = net::error_number(&e);
                        link.unsent.push_front((GatewayReply::NotConnected { link: number, errno }, None));
                    }
                    _ => return Err(e),
                },
            }
        }
        while link.unsent.is_empty()
            && let Some(server) = link.unreported.pop_first()
        {
            let Some(is_up) = self.probes.is_up(server) else { continue };
            match send(&link.channel, &GatewayReply::Probed { server, is_up }, &[]) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    link.unreported.insert(server);
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        let watch = if link.has_all() { Watch::Input } else { Watch::Output };
        if watch != link.watched {
            self.epoll.change(&link.channel, worker.into(), watch)?;
            link.watched = watch;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "gateway_tests.rs"]
mod tests;
