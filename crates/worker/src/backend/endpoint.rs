//! The warm endpoint of `flash backend`: connections that speak HTTP or FastCGI. Their questions go to the
//! engine's [`Backend`] as requests of one client, and its replies come back as answers.
//!
//! Called by the loop of [`backend`](super). A connection has one question at a time. It ends when its peer
//! closes or half-closes it, which withdraws its question.

use std::collections::HashMap;
use std::io;

use flash_engine::Key;
use flash_engine::SiteId;
use flash_engine::backend::fastcgi::FastCgi;
use flash_engine::backend::http::Http;
use flash_engine::backend::protocol::{Reply, Request};
use flash_engine::backend::warm::{Next, WarmRequest, WarmResult};
use flash_engine::backend::{Backend, CONNECTIONS_MAX, answer_of};
use flash_prompt::epoll::{Ready, Watch};
use flash_prompt::mechanism::Mechanism;
use flash_prompt::{OwnedFd, channel, net};
use serde::{Deserialize, Serialize};

use super::roots::WarmRoot;
use crate::calls::{Call, note_call};
use crate::site_file::{Returned, SiteFile};
use crate::worker::{kind, token};

/// Maximum number of connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 32;
/// Maximum bytes received from a connection in one turn.
const RECEIVED_PER_TURN_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of questions of a connection answered at once in one turn.
const ANSWERS_PER_TURN_MAX: usize = 32;
const BUFFER_BYTES: usize = 16 * 1024;
/// How long a connection may be without a question. nginx closes its own after a minute.
const IDLE_MS: u64 = 75_000;

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndpointProtocol {
    /// HTTP/1.
    Http,
    /// FastCGI.
    FastCgi,
}

/// A listener of the endpoint.
#[derive(Debug)]
pub struct EndpointListener {
    /// The socket.
    pub listener: OwnedFd,
    /// Its protocol.
    pub protocol: EndpointProtocol,
    /// Whether the users of connections are known and checked: a Unix socket.
    pub is_local: bool,
}

/// Everything that the endpoint gets at its start.
#[derive(Debug)]
pub struct EndpointGiven {
    /// The listeners.
    pub listeners: Vec<EndpointListener>,
    /// The directories whose files can be asked for.
    pub roots: Vec<WarmRoot>,
    /// The root directory of this process.
    pub own_root: OwnedFd,
}

/// The parser of a connection.
#[derive(Debug)]
enum Wire {
    Http(Http),
    FastCgi(Box<FastCgi>),
}

impl Wire {
    fn new(protocol: EndpointProtocol) -> Self {
        match protocol {
            EndpointProtocol::Http => Wire::Http(Http::default()),
            EndpointProtocol::FastCgi => Wire::FastCgi(Box::default()),
        }
    }

    fn room_bytes(&self) -> usize {
        match self {
            Wire::Http(http) => http.room_bytes(),
            Wire::FastCgi(_) => BUFFER_BYTES,
        }
    }

    fn handle_bytes(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Wire::Http(http) => http.handle_bytes(bytes),
            Wire::FastCgi(fastcgi) => fastcgi.handle_bytes(bytes, out),
        }
    }

    fn poll(&mut self, out: &mut Vec<u8>) -> Next {
        match self {
            Wire::Http(http) => http.poll(out),
            Wire::FastCgi(fastcgi) => fastcgi.poll(),
        }
    }

    fn handle_answer(&mut self, answer: WarmResult, out: &mut Vec<u8>) {
        match self {
            Wire::Http(http) => http.handle_answer(answer, out),
            Wire::FastCgi(fastcgi) => fastcgi.handle_answer(answer, out),
        }
    }
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    wire: Wire,
    /// Bytes to send.
    out: Vec<u8>,
    /// The number of its unanswered question.
    asked: Option<u32>,
    since_ms: u64,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// It waits for an event.
    Waits,
    /// It has more input than it may receive in one turn.
    HasMore,
    /// It ends.
    Ends,
}

#[derive(Debug)]
pub(super) struct Endpoint {
    /// The engine's client for all connections.
    client: Key,
    listeners: Vec<EndpointListener>,
    roots: Vec<WarmRoot>,
    /// Where files go that must be closed elsewhere.
    returned: Returned,
    connections: HashMap<u64, Connection>,
    connections_ever: u64,
    /// The connections of unanswered questions.
    asked: HashMap<u32, u64>,
    asks_ever: u32,
    /// Connections with input that was left for the next turn.
    unread: Vec<u64>,
    swept_ms: u64,
    now_ms: u64,
    buffer: Vec<u8>,
    /// A spare descriptor, closed for a moment when no other descriptor is left.
    spare: Option<OwnedFd>,
}

impl Endpoint {
    /// Watches the listeners.
    ///
    /// # Errors
    ///
    /// Any of fcntl(2) and epoll_ctl(2).
    pub(super) fn new(
        client: Key,
        listeners: Vec<EndpointListener>,
        (roots, returned): (Vec<WarmRoot>, Returned),
        mechanism: &mut Mechanism,
    ) -> io::Result<Self> {
        for (number, listener) in listeners.iter().enumerate() {
            channel::set_nonblocking(&listener.listener)?;
            mechanism.add(&listener.listener, token(kind::ENDPOINT_LISTENER, number as u64), Watch::Input)?;
        }
        let spare = listeners.first().and_then(|listener| listener.listener.try_clone().ok());
        Ok(Self {
            client,
            listeners,
            roots,
            returned,
            connections: HashMap::new(),
            connections_ever: 0,
            asked: HashMap::new(),
            asks_ever: 0,
            unread: Vec::new(),
            swept_ms: 0,
            now_ms: 0,
            buffer: vec![0; BUFFER_BYTES],
            spare,
        })
    }

    /// The engine's client.
    pub(super) fn client(&self) -> Key {
        self.client
    }

    /// Whether no connection is left.
    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Whether it has work that no event announces.
    pub(super) fn has_more(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Begins a turn at this time of the monotonic clock.
    pub(super) fn handle_turn(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Accepts connections. At a limit they are closed at once, and their servers go on without the backend.
    pub(super) fn accept(&mut self, number: u64, users: &[u32], (mechanism, now_ms): (&mut Mechanism, u64)) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let Some(listener) = self.listeners.get(number as usize) else { return };
            let accepted = match listener.is_local {
                true => {
                    channel::accept(&listener.listener).map(|(socket, user)| (socket, users.contains(&user)))
                }
                false => net::accept(&listener.listener).map(|(socket, _)| (socket, true)),
            };
            let protocol = listener.protocol;
            note_call(Call::Accept);
            let (socket, is_allowed) = match accepted {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => return self.accept_at_limit(number),
            };
            if !is_allowed || self.connections.len() >= CONNECTIONS_MAX {
                continue;
            }
            self.connections_ever += 1;
            let connection = self.connections_ever;
            if mechanism.add(&socket, token(kind::ENDPOINT_CONNECTION, connection), Watch::Connection).is_ok()
            {
                let wire = Wire::new(protocol);
                let out = Vec::new();
                self.connections
                    .insert(connection, Connection { socket, wire, out, asked: None, since_ms: now_ms });
            }
            note_call(Call::Watch);
        }
    }

    /// Without a free descriptor the listener would stay ready forever, so one connection is closed with the spare
    /// descriptor.
    fn accept_at_limit(&mut self, number: u64) {
        self.spare = None;
        let Some(listener) = self.listeners.get(number as usize) else { return };
        let _ = net::accept(&listener.listener);
        note_call(Call::Accept);
        self.spare = listener.listener.try_clone().ok();
    }

    /// Handles an event of a connection.
    pub(super) fn handle_event(&mut self, number: u64, ready: Ready, backend: &mut Backend<SiteFile>) {
        if ready.broken {
            return self.end(number, backend);
        }
        self.go_on(number, backend);
    }

    /// Continues connections whose input was left for this turn.
    pub(super) fn continue_unread(&mut self, backend: &mut Backend<SiteFile>) {
        for number in std::mem::take(&mut self.unread) {
            self.go_on(number, backend);
        }
    }

    /// Passes an answer of the engine on.
    pub(super) fn handle_reply(&mut self, reply: Reply, backend: &mut Backend<SiteFile>, now_ms: u64) {
        let (Reply::Ready { id } | Reply::Errno { id, .. } | Reply::Busy { id, .. }) = reply else { return };
        let Some(number) = self.asked.remove(&id) else { return };
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.asked = None;
        connection.since_ms = now_ms;
        connection.wire.handle_answer(answer_of(reply), &mut connection.out);
        self.go_on(number, backend);
    }

    /// Ends connections that have been idle for too long, once a second.
    pub(super) fn keep_house(&mut self, now_ms: u64, backend: &mut Backend<SiteFile>) {
        if now_ms < self.swept_ms + 1000 {
            return;
        }
        self.swept_ms = now_ms;
        let is_late =
            |connection: &Connection| connection.asked.is_none() && now_ms > connection.since_ms + IDLE_MS;
        self.end_where(is_late, backend);
    }

    /// Stops accepting, and ends all connections without a question.
    pub(super) fn drain(&mut self, mechanism: &mut Mechanism, backend: &mut Backend<SiteFile>) {
        for listener in self.listeners.drain(..) {
            let _ = mechanism.remove(&listener.listener);
        }
        self.end_where(|connection| connection.asked.is_none() && connection.out.is_empty(), backend);
    }

    fn end_where(&mut self, is_over: impl Fn(&Connection) -> bool, backend: &mut Backend<SiteFile>) {
        let over: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_over(connection))
            .map(|(number, _)| *number)
            .collect();
        over.into_iter().for_each(|number| self.end(number, backend));
    }

    fn end(&mut self, number: u64, backend: &mut Backend<SiteFile>) {
        let Some(connection) = self.connections.remove(&number) else { return };
        if let Some(id) = connection.asked {
            self.asked.remove(&id);
            // A withdrawal always continues the engine's client.
            let _ = backend.handle_message(self.client, Request::Cancel { id }, None);
        }
        drop(connection);
        note_call(Call::CloseConnection);
    }

    fn go_on(&mut self, number: u64, backend: &mut Backend<SiteFile>) {
        match self.flow(number, backend) {
            Flow::Waits => {}
            Flow::HasMore => self.unread.push(number),
            Flow::Ends => self.end(number, backend),
        }
    }

    /// Sends, parses and receives until the connection has to wait.
    fn flow(&mut self, number: u64, backend: &mut Backend<SiteFile>) -> Flow {
        let mut received_bytes = 0;
        let mut answered = 0;
        let mut ends = false;
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return Flow::Waits };
            match send(connection) {
                Sent::All => {}
                Sent::Some => return Flow::Waits,
                Sent::Failed => return Flow::Ends,
            }
            match connection.wire.poll(&mut connection.out) {
                Next::Request(ask) => {
                    self.ask(number, ask, backend);
                    answered += 1;
                    if answered >= ANSWERS_PER_TURN_MAX {
                        return Flow::HasMore;
                    }
                    continue;
                }
                Next::End => ends = true,
                Next::Input => {}
            }
            if !connection.out.is_empty() {
                continue;
            }
            // A connection that ends receives the rest first: a close with unread bytes would drop the answer.
            if self.listeners.is_empty() && connection.asked.is_none() {
                return Flow::Ends;
            }
            if received_bytes >= RECEIVED_PER_TURN_BYTES_MAX {
                return if ends { Flow::Ends } else { Flow::HasMore };
            }
            let room = if ends { BUFFER_BYTES } else { connection.wire.room_bytes().min(BUFFER_BYTES) };
            if room == 0 {
                return Flow::Waits;
            }
            let received = net::recv(&connection.socket, &mut self.buffer[..room]);
            note_call(Call::Receive);
            match received {
                Ok(0) => return Flow::Ends,
                Ok(count) => {
                    received_bytes += count;
                    if !ends {
                        connection.wire.handle_bytes(&self.buffer[..count], &mut connection.out);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return if ends { Flow::Ends } else { Flow::Waits };
                }
                Err(_) => return Flow::Ends,
            }
        }
    }

    /// Passes a question on, or answers it at once.
    fn ask(&mut self, number: u64, ask: WarmRequest, backend: &mut Backend<SiteFile>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some(root) = self.roots.iter_mut().find(|root| root.holds(&ask.path)) else {
            return connection.wire.handle_answer(WarmResult::Refused, &mut connection.out);
        };
        let (now_ms, returned) = (self.now_ms, &self.returned);
        let look = || {
            let (residency, deleted) = root.look(&ask, now_ms);
            if let Some(file) = deleted {
                SiteFile::from(file).found_at(SiteId(0), b"", returned);
            }
            residency
        };
        if backend.answers_at_once(&ask, look) {
            connection.since_ms = now_ms;
            return connection.wire.handle_answer(WarmResult::Done, &mut connection.out);
        }
        self.asks_ever = self.asks_ever.wrapping_add(1);
        let id = self.asks_ever;
        connection.asked = Some(id);
        self.asked.insert(id, number);
        // Questions have numbers of their own, so the engine's client always continues.
        let _ = backend.handle_warm_request(self.client, id, ask);
    }
}

/// The result of sending.
enum Sent {
    All,
    Some,
    Failed,
}

fn send(connection: &mut Connection) -> Sent {
    while !connection.out.is_empty() {
        let sent = net::send(&connection.socket, &connection.out);
        note_call(Call::Send);
        match sent {
            Ok(count) => drop(connection.out.drain(..count)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Sent::Some,
            Err(_) => return Sent::Failed,
        }
    }
    Sent::All
}
