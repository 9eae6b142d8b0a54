//! The connections of HTTP/2 that all streams of requests of a generator share, so that hot and cold requests meet on them.
//!
//! A flow submits a request to it, and the event loop passes on events and timers. A request goes to the connection that has
//! been offered for longest, of those with room; if none has, another connection is opened.

use std::collections::VecDeque;
use std::io;

use flash_prompt::epoll::{Epoll, Ready};

use super::connection::{Common, Connection, Done, OfFlow, Taking};
use crate::generator::pool::{Destination, Pool};
use crate::generator::request::{Kind, Request, authority};
use crate::generator::transport::{Opening, Progress};
use crate::generator::{MULTIPLEXER, Protocol, Setup, Stream};
use crate::record::{Handshake, OpenConnections, Outcome, REUSED};

#[derive(Debug)]
pub(crate) struct Mux {
    pool: Pool<Connection>,
    common: Common,
    connections_max: usize,
    /// Connections with room, the one that was offered first at the front; some may have none any more.
    offered: VecDeque<u64>,
    /// Connections with something to send.
    outputs: Vec<u64>,
    done: Vec<Done>,
    path: Vec<u8>,
}

/// A request on a shared connection: the connection's token and the number of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamKey {
    pub(crate) token: u64,
    pub(crate) stream: u32,
}

/// The consequences of an event on a shared connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Handled {
    pub(crate) must_receive: bool,
    /// There may be room for requests that wait, or requests that ended.
    pub(crate) is_changed: bool,
}

impl Mux {
    /// For these streams of requests, if they use HTTP/2; all have the same server.
    pub(crate) fn of(streams: &[Stream]) -> Option<Self> {
        let Setup { target, connections_max, requests_per_connection, protocol, .. } =
            &streams.first()?.setup;
        let Protocol::Http2 { streams_max } = *protocol else { return None };
        let opening = Opening::to(&streams.first()?.setup);
        let common = Common {
            is_https: matches!(opening, Opening::Tls { .. }),
            authority: authority(&streams.first()?.setup).as_bytes().to_vec(),
            base: target.base.clone(),
            streams_max,
            requests_per_connection: *requests_per_connection,
            flows: (streams.iter())
                .map(|Stream { setup, .. }| OfFlow {
                    catalogue: std::sync::Arc::clone(&setup.catalogue),
                    verify: setup.verify,
                    kinds: Kind::all(setup),
                })
                .collect(),
        };
        let destination = Destination { address: target.address, opening, receive_buffer_bytes: None };
        Some(Self {
            pool: Pool::new(MULTIPLEXER, destination, 0, Connection::new),
            common,
            connections_max: *connections_max,
            offered: VecDeque::new(),
            outputs: Vec::new(),
            done: Vec::new(),
            path: Vec::new(),
        })
    }

    /// Requests that the connections being made will have room for.
    pub(crate) fn room_to_come(&self) -> usize {
        self.pool.connecting * self.common.streams_max as usize
    }

    pub(crate) fn count(&self) -> OpenConnections {
        self.pool.count()
    }

    pub(crate) fn established(&self) -> u64 {
        self.pool.established
    }

    pub(crate) fn take_handshakes(&mut self) -> Vec<Handshake> {
        std::mem::take(&mut self.pool.handshakes)
    }

    /// Submits a request, whose bytes go with the next [`Mux::flush`]; gives it back if no connection has room.
    pub(crate) fn submit(
        &mut self,
        flow: u8,
        mut request: Request,
        now_ns: u64,
    ) -> Result<StreamKey, Request> {
        while let Some(token) = self.offered.pop_front() {
            let Some(connection) = self.pool.connection(token) else { continue };
            connection.is_offered = false;
            if !connection.has_room(&self.common) {
                continue;
            }
            let record = &mut request.record;
            record.connected_ns = now_ns;
            record.flags = record.flags & !REUSED | if connection.was_used() { REUSED } else { 0 };
            self.path.clear();
            self.path.extend_from_slice(self.common.base.as_bytes());
            self.common.flow(flow).catalogue.write_path(record.path_id, &mut self.path);
            let stream = connection.submit(&self.common, flow, request, &self.path);
            self.note_output(token);
            self.offer(token);
            return Ok(StreamKey { token, stream });
        }
        Err(request)
    }

    /// Opens another connection, if there may be one.
    ///
    /// Errors: those of connect(2).
    pub(crate) fn open(&mut self, epoll: &Epoll) -> io::Result<bool> {
        if self.pool.open >= self.connections_max {
            return Ok(false);
        }
        self.pool.open(epoll).map(|_| true)
    }

    pub(crate) fn flush(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for token in outputs.drain(..) {
            let Some(connection) = self.pool.connection(token) else { continue };
            connection.has_output = false;
            if connection.flush().is_err() {
                self.end(token, Outcome::Reset);
            }
        }
        self.outputs = outputs;
    }

    /// The requests that ended since.
    pub(crate) fn take_done(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }

    /// Whether requests have ended, or bytes wait to be sent.
    pub(crate) fn is_changed(&self) -> bool {
        !self.done.is_empty() || !self.outputs.is_empty()
    }

    /// Takes back the list of [`Mux::take_done`], for its memory.
    pub(crate) fn reuse(&mut self, mut done: Vec<Done>) {
        if self.done.is_empty() {
            done.clear();
            self.done = done;
        }
    }

    /// Takes an event.
    ///
    /// Errors: the connection could not be made.
    pub(crate) fn handle_event(&mut self, ready: Ready, scratch: &mut [u8]) -> io::Result<Handled> {
        let token = ready.token;
        let Some(connection) = self.pool.connection(token) else { return Ok(Handled::default()) };
        connection.transport.hang_up |= ready.hung_up || ready.broken;
        if !connection.transport.is_connecting {
            let is_changed = ready.writable && connection.flush().is_err();
            if is_changed {
                self.end(token, Outcome::Reset);
            }
            let must_receive = (ready.readable || ready.broken) && self.pool.list(token);
            return Ok(Handled { must_receive, is_changed });
        }
        match connection.transport.set_up(ready, scratch) {
            Ok(Progress::Pending) => Ok(Handled::default()),
            Ok(Progress::Established(handshake)) => {
                if let Some(connection) = self.pool.establish(token, handshake) {
                    connection.begin();
                }
                self.note_output(token);
                self.offer(token);
                // The end of the handshake may have brought more than the handshake.
                Ok(Handled { must_receive: self.pool.list(token), is_changed: true })
            }
            Err(why) => {
                self.pool.discard(token, false);
                Err(why)
            }
        }
    }

    /// Receives once on a connection, at a time that `look` gives; gives whether it is to be called again for it.
    pub(crate) fn receive(
        &mut self,
        token: u64,
        (buffer, scratch): (&mut [u8], &mut [u8]),
        look: impl FnOnce() -> u64,
    ) -> bool {
        let Some(connection) = self.pool.connection(token) else { return false };
        connection.transport.is_listed = false;
        let received = match connection.receive(buffer, scratch) {
            Ok(Some(received)) => received,
            Ok(None) => return false,
            Err(outcome) => {
                self.end(token, outcome);
                return false;
            }
        };
        let mut taking = Taking { common: &self.common, now_ns: look(), done: &mut self.done };
        if connection.take(&buffer[..received.bytes], &mut taking).is_err() {
            self.end(token, Outcome::Garbage);
            return false;
        }
        // The end of input may be there already, without an edge of its own.
        let may_be_more = received.may_be_more || connection.transport.hang_up;
        if connection.is_over(&self.common) {
            self.pool.discard(token, false);
            return false;
        }
        self.note_output(token);
        self.offer(token);
        may_be_more && self.pool.list(token)
    }

    /// Gives up a request, if it is still there.
    pub(crate) fn abort(&mut self, key: StreamKey) -> Option<(u8, Request)> {
        let aborted = self.pool.connection(key.token)?.abort(key.stream)?;
        self.note_output(key.token);
        self.offer(key.token);
        Some(aborted)
    }

    pub(crate) fn concerns(&mut self, token: u64) -> bool {
        self.pool.connection(token).is_some()
    }

    /// Ends every connection, with the requests that are on it.
    pub(crate) fn finish(&mut self) {
        for token in self.pool.tokens() {
            self.end(token, Outcome::Unanswered);
        }
    }

    fn end(&mut self, token: u64, outcome: Outcome) {
        if let Some(connection) = self.pool.connection(token) {
            connection.give_up(outcome, &mut self.done);
        }
        self.pool.discard(token, false);
    }

    fn offer(&mut self, token: u64) {
        if let Some(connection) = self.pool.connection(token)
            && connection.has_room(&self.common)
            && !std::mem::replace(&mut connection.is_offered, true)
        {
            self.offered.push_back(token);
        }
    }

    fn note_output(&mut self, token: u64) {
        if let Some(connection) = self.pool.connection(token)
            && !std::mem::replace(&mut connection.has_output, true)
        {
            self.outputs.push(token);
        }
    }
}
