//! Probes: requests by which the gateway finds out whether the servers of a route are in order. Called by the gateway. Nothing
//! here waits, and no server costs more than one connection and a few hundred bytes.

use std::collections::BTreeMap;
use std::io;

use flash_engine::{ServerId, UpstreamId};
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::net;
use flash_tls::Connector;
use flash_waiting::local;

use super::RETRY_MS;
use super::line::Line;
use crate::config::{Probe, Route, RouteTls, ServerAddress, Settings};

pub(super) const PROBES: u64 = 1 << 62;
/// A server is down after this many failures in a row.
const FAILURES_MAX: u32 = 2;
const UNDER_WAY_MAX: usize = 256;
/// Bytes received at once. Only the first ones are used; a server that has more to send does not see a reset so soon.
const RECEIVE_BYTES: usize = 4096;
/// The shortest start of an answer that has the whole status code (RFC 9112 section 4).
const STATUS_BYTES: usize = "HTTP/1.1 200 ".len();

/// A change of the health of a server.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) server: ServerId,
    /// For the operator; None if a server was up from the beginning.
    pub(super) report: Option<String>,
}

struct Probed {
    address: ServerAddress,
    /// Makes the record layers of its connections, if they are encrypted.
    connector: Connector,
    request: Vec<u8>,
    interval_ms: u64,
    timeout_ms: u64,
    step: Step,
    /// The end of the probe that is under way.
    deadline_ms: u64,
    health: Health,
    /// Failures since the last success.
    failures: u32,
}

/// The health of a server, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Unknown,
    Up,
    Down,
}

enum Step {
    /// The next probe begins then.
    Rests { due_ms: u64 },
    /// The backlog of its Unix socket is full.
    Waits { due_ms: u64 },
    /// The connection is made, and the request is sent, of which this many bytes are gone.
    Asks(Line, usize),
    /// The handshake of an encrypted connection is under way.
    Shakes(Line),
    /// The answer is received. This is its start.
    Receives(Line, Vec<u8>),
}

/// A step of a probe: it goes on, it succeeded, or it failed.
type Stepped = Result<Option<Step>, Failure>;

enum Failure {
    /// The reason, which lies with the server.
    OfServer(String),
    /// This process is at a limit, which says nothing about the server.
    Own,
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        if net::is_shortage(&e) { Failure::Own } else { Failure::OfServer(e.to_string()) }
    }
}

pub(super) struct Probes(BTreeMap<ServerId, Probed>);

impl Probes {
    /// `connector` makes the record layers of encrypted connections.
    pub(super) fn new(settings: &Settings, connector: &Connector) -> Self {
        let mut all = BTreeMap::new();
        for (upstream, route) in (0..).map(UpstreamId).zip(settings.routes()) {
            let Some(probe) = &route.probe else { continue };
            for (server, address) in (0..).zip(&route.servers) {
                all.insert(ServerId { upstream, server }, Probed::new(address, route, probe, connector));
            }
        }
        Self(all)
    }

    /// Whether a server is up; None if that is not known.
    pub(super) fn is_up(&self, server: ServerId) -> Option<bool> {
        match self.0.get(&server)?.health {
            Health::Unknown => None,
            health => Some(health == Health::Up),
        }
    }

    /// The servers whose health is known.
    pub(super) fn known(&self) -> impl Iterator<Item = ServerId> {
        self.0.iter().filter(|(_, probed)| probed.health != Health::Unknown).map(|(server, _)| *server)
    }

    /// When [`Probes::advance`] has something to do. `begins` is whether new probes begin.
    pub(super) fn next_ms(&self, begins: bool) -> Option<u64> {
        let begins = begins && self.under_way() < UNDER_WAY_MAX;
        self.0.values().filter(|probed| begins || !probed.rests()).map(Probed::due_ms).min()
    }

    fn under_way(&self) -> usize {
        self.0.values().filter(|probed| !probed.rests()).count()
    }

    /// Begins probes, if it `begins` some, and ends those whose time is over.
    pub(super) fn advance(&mut self, epoll: &Epoll, now_ms: u64, begins: bool) -> Vec<Change> {
        let mut room = if begins { UNDER_WAY_MAX.saturating_sub(self.under_way()) } else { 0 };
        let mut due: Vec<_> = self.0.iter_mut().filter(|(_, probed)| probed.due_ms() <= now_ms).collect();
        // Those that have been due for longest are first, so that each has its turn.
        due.sort_by_key(|(_, probed)| probed.due_ms());
        let mut changes = Vec::new();
        for (server, probed) in due {
            if probed.rests() {
                if room == 0 {
                    continue;
                }
                room -= 1;
                probed.deadline_ms = now_ms + probed.timeout_ms;
            }
            let stepped = if probed.deadline_ms <= now_ms {
                Err(Failure::OfServer(format!("no answer in {} ms", probed.timeout_ms)))
            } else {
                probed.begin(epoll, *server, now_ms)
            };
            changes.extend(probed.take(*server, stepped, now_ms));
        }
        changes
    }

    /// The connection with this token is ready.
    pub(super) fn handle(&mut self, epoll: &Epoll, ready: Ready, now_ms: u64) -> Option<Change> {
        let server = server_of(ready.token);
        let probed = self.0.get_mut(&server)?;
        let stepped = match std::mem::replace(&mut probed.step, Step::Rests { due_ms: now_ms }) {
            Step::Asks(line, sent) if ready.writable || ready.broken => {
                probed.ask(epoll, ready.token, line, sent)
            }
            Step::Shakes(line) => probed.ask(epoll, ready.token, line, 0),
            Step::Receives(line, answer) => receive_answer(line, answer),
            other => Ok(Some(other)),
        };
        probed.take(server, stepped, now_ms)
    }
}

impl Probed {
    fn new(address: &ServerAddress, route: &Route, probe: &Probe, connector: &Connector) -> Self {
        let host = match (address, &route.tls) {
            (ServerAddress::Tls(address), Some(RouteTls { server_name: Some(name), .. })) => {
                format!("{name}:{}", address.port())
            }
            (ServerAddress::Tcp(address) | ServerAddress::Tls(address), _) => address.to_string(),
            (ServerAddress::Unix(_) | ServerAddress::Program, _) => "localhost".to_owned(),
        };
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: flash-probe\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            probe.target
        );
        Self {
            address: address.clone(),
            connector: connector.clone(),
            request: request.into_bytes(),
            interval_ms: probe.interval_ms,
            timeout_ms: route.connect_timeout_ms,
            step: Step::Rests { due_ms: 0 },
            deadline_ms: 0,
            health: Health::Unknown,
            failures: 0,
        }
    }

    fn rests(&self) -> bool {
        matches!(self.step, Step::Rests { .. })
    }

    /// When it continues without an event.
    fn due_ms(&self) -> u64 {
        match self.step {
            Step::Rests { due_ms } | Step::Waits { due_ms } => due_ms,
            Step::Asks(..) | Step::Shakes(_) | Step::Receives(..) => self.deadline_ms,
        }
    }

    /// Begins to connect, or tries again.
    fn begin(&self, epoll: &Epoll, server: ServerId, now_ms: u64) -> Stepped {
        let connected = match &self.address {
            ServerAddress::Tcp(address) | ServerAddress::Tls(address) => net::connect(*address),
            ServerAddress::Unix(path) => match local::connect_prompt(path) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Some(Step::Waits { due_ms: self.deadline_ms.min(now_ms + RETRY_MS) }));
                }
                connected => connected,
            },
            // Programs speak FastCGI, which has no probes.
            ServerAddress::Program => return Err(Failure::Own),
        };
        let socket = connected?;
        epoll.add(&socket, token_of(server), Watch::Output)?;
        let records = match self.address {
            ServerAddress::Tls(_) => Some(self.connector.layer(server).ok_or(Failure::Own)?),
            _ => None,
        };
        Ok(Some(Step::Asks(Line { socket, records }, 0)))
    }

    /// Sends the request once the connection is made and, if it is encrypted, its handshake is over.
    fn ask(&self, epoll: &Epoll, token: u64, mut line: Line, mut sent: usize) -> Stepped {
        net::take_error(&line.socket)?;
        if !line.continue_handshake()? {
            epoll.change(&line.socket, token, Watch::Input)?;
            return Ok(Some(Step::Shakes(line)));
        }
        match line.send(&self.request[sent..]) {
            Ok(more) => sent += more,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        if sent < self.request.len() {
            return Ok(Some(Step::Asks(line, sent)));
        }
        epoll.change(&line.socket, token, Watch::Input)?;
        Ok(Some(Step::Receives(line, Vec::new())))
    }

    /// Takes the result of a step, with which the probe may be over.
    fn take(&mut self, server: ServerId, stepped: Stepped, now_ms: u64) -> Option<Change> {
        let next = match stepped {
            Ok(Some(step)) => {
                self.step = step;
                return None;
            }
            Ok(None) => {
                self.failures = 0;
                Some((Health::Up, String::new()))
            }
            Err(Failure::OfServer(why)) => {
                self.failures = self.failures.saturating_add(1);
                (self.failures >= FAILURES_MAX).then_some((Health::Down, why))
            }
            Err(Failure::Own) => None,
        };
        self.step = Step::Rests { due_ms: now_ms + self.interval_ms };
        let (health, why) = next.filter(|(health, _)| *health != self.health)?;
        let before = std::mem::replace(&mut self.health, health);
        let address = &self.address;
        let report = match (before, health) {
            (_, Health::Down) => Some(format!(
                "upstream {address}: probe failed: {why}; it gets no requests until a probe succeeds"
            )),
            (Health::Down, _) => Some(format!("upstream {address}: answers probes again")),
            _ => None,
        };
        Some(Change { server, report })
    }
}

fn receive_answer(mut line: Line, mut answer: Vec<u8>) -> Stepped {
    let mut bytes = [0; RECEIVE_BYTES];
    match line.receive(&mut bytes) {
        Ok(0) => return Err(Failure::OfServer("the connection ended before the answer".to_owned())),
        Ok(received) => answer.extend_from_slice(&bytes[..received]),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
        Err(e) => return Err(e.into()),
    }
    if answer.len() < STATUS_BYTES {
        return Ok(Some(Step::Receives(line, answer)));
    }
    match status(&answer) {
        None => Err(Failure::OfServer("the answer is not HTTP/1.1".to_owned())),
        Some(200..400) => Ok(None),
        Some(status) => Err(Failure::OfServer(format!("status {status}"))),
    }
}

/// The status code at the start of an answer (RFC 9112 section 4).
fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let [minor, b' ', code @ .., b' ' | b'\r' | b'\n'] = rest.get(..6)? else { return None };
    let digits = [minor].into_iter().chain(code).all(u8::is_ascii_digit);
    std::str::from_utf8(code).ok().filter(|_| digits)?.parse().ok()
}

fn token_of(server: ServerId) -> u64 {
    PROBES | u64::from(server.upstream.0) << 16 | u64::from(server.server)
}

fn server_of(token: u64) -> ServerId {
    ServerId { upstream: UpstreamId((token >> 16) as u16), server: token as u16 }
}
