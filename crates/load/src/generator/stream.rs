//! The requests of one stream on one thread, from their start to their record.
//!
//! The generator tells it the time, events and timers. In an open loop an arrival that finds no
//! free connection opens another; when none may be opened it waits here, with its clock running. A user who comes back
//! ([`Demand::returns_ns`]) is an arrival like any other. In a closed loop each client has a connection of its own.

mod ends;
mod starts;

use std::collections::VecDeque;
use std::io;

use flash_prompt::epoll::Ready;

use super::client::Client;
use super::connection::{Connection, Step};
use super::h2::mux::Mux;
use super::loop_io::Io;
use super::pool::{Destination, Pool};
use super::request::{NO_CLIENT, Request, Wire};
use super::slow_reader::{piece_bytes, time_ns};
use super::timers::{Timer, Wake};
use super::transport::{Opening, Progress};
use super::{Pace, Setup, Stream, StreamRan, WAITING_MAX};
use crate::record::{Handshake, NEVER_NS, OpenConnections, Outcome, QUEUED, REUSED};
use crate::workload::{Arrival, Demand};

/// Arrivals taken before answers are looked at again.
const ARRIVALS_PER_TURN: usize = 32;
/// From the start of one client to that of the next: all at once would overflow the server's backlog.
const CLIENT_START_GAP_NS: u64 = 20_000;

pub(crate) struct Flow {
    number: u8,
    setup: Setup,
    demand: Box<dyn Demand>,
    pace: Pace,
    wire: Wire,
    /// Its connections, unless it shares those of HTTP/2.
    pool: Pool<Connection>,
    /// Requests for which a connection is to be found.
    waiting: VecDeque<Request>,
    clients: Vec<Client>,
    /// Clients that ask next, and since when.
    ready: VecDeque<(u32, u64)>,
    clients_left: u32,
    outstanding: usize,
    retried: u64,
    /// Users of an open loop who will come back.
    thinking: u64,
    /// The connections at each look (see [`crate::record::OPEN_STEP_NS`]).
    open: Vec<OpenConnections>,
    /// No more requests are to start.
    closed: bool,
}

impl Flow {
    pub(crate) fn new(number: u8, stream: Stream) -> Self {
        let Stream { setup, demand, pace } = stream;
        let clients = match pace {
            Pace::Open => 0,
            Pace::Closed { clients, .. } => clients,
        };
        let receive_buffer_bytes = setup.read_bytes_per_s.map(|rate| 2 * piece_bytes(rate));
        let destination =
            Destination { address: setup.target.address, opening: Opening::to(&setup), receive_buffer_bytes };
        Self {
            number,
            wire: Wire::new(&setup),
            pool: Pool::new(number, destination, clients, Connection::new),
            setup,
            demand,
            pace,
            waiting: VecDeque::new(),
            clients: vec![Client::default(); clients as usize],
            ready: VecDeque::new(),
            clients_left: clients,
            outstanding: 0,
            retried: 0,
            thinking: 0,
            open: Vec::new(),
            closed: false,
        }
    }

    /// Whether arrivals come by themselves.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.pace == Pace::Open
    }

    /// Whether users of an open loop will come back.
    pub(crate) fn has_thinking_users(&self) -> bool {
        self.thinking > 0 && !self.closed
    }

    /// Notes how many connections there are now, with those of HTTP/2 that count as its own.
    pub(crate) fn note_open(&mut self, shared: OpenConnections) {
        let OpenConnections { established, connecting } = self.pool.count();
        self.open.push(OpenConnections {
            established: established + shared.established,
            connecting: connecting + shared.connecting,
        });
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Requests that are not answered yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn is_over(&self) -> bool {
        match self.pace {
            Pace::Open => {
                let may_return = self.outstanding > 0 && self.demand.has_returning_users();
                self.demand.next_due_ns().is_none() && self.thinking == 0 && !may_return
            }
            Pace::Closed { .. } => self.clients_left == 0,
        }
    }

    /// Sets the clients to work.
    pub(crate) fn start(&mut self, io: &mut Io<'_>) {
        for client in 0..self.clients.len() as u64 {
            self.wake_client(client as u32, client * CLIENT_START_GAP_NS, io);
        }
    }

    /// When the next arrival before `end_ns` is due, or a waiting user gives up.
    pub(crate) fn next_due_ns(&self, end_ns: u64) -> Option<u64> {
        let arrival = if self.closed || !self.is_open_loop() { None } else { self.demand.next_due_ns() };
        let abort = self.waiting.front().and_then(|request| self.deadline_ns(request));
        arrival.filter(|&due_ns| due_ns < end_ns).into_iter().chain(abort).min()
    }

    /// Starts arrivals that are due, up to a bound; gives how many.
    pub(crate) fn start_due(&mut self, io: &mut Io<'_>) -> usize {
        while self
            .waiting
            .front()
            .is_some_and(|request| self.deadline_ns(request).is_some_and(|due_ns| due_ns <= io.now_ns))
        {
            if let Some(request) = self.waiting.pop_front() {
                // The user's attempt to connect ends with it, and a reload sends a SYN of its own.
                if let Some(token) = self.pool.oldest_attempt() {
                    self.discard(token);
                }
                self.give_up(request, io);
            }
        }
        if !self.is_open_loop() || self.closed {
            return 0;
        }
        let due_max_ns = io.now_ns.min(io.shared.phase.duration_ns.saturating_sub(1));
        for started in 0..ARRIVALS_PER_TURN {
            if started > 0 {
                // The requests before it took time to send: one that many were due with is late by that much.
                io.look();
            }
            if self.demand.next_due_ns().is_none_or(|due_ns| due_ns > due_max_ns) {
                return started;
            }
            let Some(arrival) = self.demand.take() else {
                return started;
            };
            self.arrive(arrival, io);
        }
        ARRIVALS_PER_TURN
    }

    fn arrive(&mut self, arrival: Arrival, io: &mut Io<'_>) {
        self.outstanding += 1;
        self.waiting.push_back(Request::new(
            arrival.path_id,
            NO_CLIENT,
            arrival.intended_ns,
            io.now_ns,
            io.thread,
        ));
        self.advance(io);
        let room_to_come = io.mux.as_ref().map_or(self.pool.connecting, Mux::room_to_come);
        if self.waiting.len() > room_to_come
            && let Some(request) = self.waiting.back_mut()
        {
            request.record.flags |= QUEUED;
        }
        if self.waiting.len() >= WAITING_MAX {
            io.shared.end_early(|| {
                format!(
                    "{WAITING_MAX} requests wait for a connection: the server is too far behind to catch up"
                )
            });
        }
    }

    /// A user comes back, unless the phase is over.
    fn come_back(&mut self, due_ns: u64, io: &mut Io<'_>) {
        self.thinking -= 1;
        if self.closed || due_ns >= io.shared.phase.duration_ns {
            return;
        }
        if let Some(path_id) = self.demand.next_path() {
            self.arrive(Arrival { path_id, intended_ns: due_ns }, io);
        }
    }

    /// Takes an event; gives whether [`Flow::receive`] is to be called for its token.
    pub(crate) fn handle_event(&mut self, ready: Ready, io: &mut Io<'_>) -> bool {
        let token = ready.token;
        let Some(connection) = self.pool.connection(token) else {
            return false;
        };
        connection.transport.hang_up |= ready.hung_up || ready.broken;
        if connection.transport.is_connecting {
            match connection.transport.set_up(ready, &mut io.cipher) {
                Ok(Progress::Pending) => return false,
                Ok(Progress::Established(handshake)) => self.connected(token, handshake, io),
                Err(why) => self.not_connected(token, &why, io),
            }
            self.advance(io);
        } else if ready.writable && connection.transport.flush().is_err() {
            self.end(token, Outcome::Reset, io);
            self.advance(io);
        }
        (ready.readable || ready.broken) && self.pool.list(token)
    }

    /// Receives once on a connection; gives whether it is to be called again for it.
    pub(crate) fn receive(&mut self, token: u64, buffer: &mut [u8], io: &mut Io<'_>) -> bool {
        let rate = self.setup.read_bytes_per_s;
        let Some(connection) = self.pool.connection(token) else {
            return false;
        };
        connection.transport.is_listed = false;
        if connection.held.is_some() {
            return false;
        }
        let mut length = buffer.len();
        if let Some(rate) = rate {
            length = length.min(piece_bytes(rate));
            if connection.request.is_some() && io.look() < connection.pace_ns {
                self.set_pace_timer(token, io);
                return false;
            }
        }
        let had_bytes = connection.request.map_or(0, |request| request.record.body_bytes);
        let step = connection.receive(
            &mut buffer[..length],
            &mut io.cipher,
            &self.setup.catalogue,
            self.setup.verify,
        );
        io.look();
        let begun = connection.answer_has_begun();
        let mut ahead = false;
        if let Some(request) = &mut connection.request {
            if begun && request.record.first_byte_ns == NEVER_NS {
                request.record.first_byte_ns = io.now_ns;
                connection.pace_ns = io.now_ns;
            }
            if let Some(rate) = rate {
                let came_bytes = request.record.body_bytes - had_bytes;
                // Late by less than a piece it catches up, so that sleeping badly costs it nothing.
                let from_ns =
                    connection.pace_ns.max(io.now_ns.saturating_sub(time_ns(piece_bytes(rate) as u64, rate)));
                connection.pace_ns = from_ns + time_ns(came_bytes, rate);
                ahead = connection.pace_ns > io.now_ns;
            }
        }
        match step {
            Step::Wait => return false,
            Step::Again if ahead => self.set_pace_timer(token, io),
            Step::Again => return self.pool.list(token),
            Step::Answered { .. } if ahead => {
                connection.held = Some(step);
                self.set_pace_timer(token, io);
            }
            Step::Answered { outcome, reusable } => self.answered(token, outcome, reusable, io),
            Step::Ended(outcome) => self.end(token, outcome, io),
        }
        self.advance(io);
        false
    }

    /// A timer has expired; returns whether [`Flow::receive`] is to be called for its token.
    pub(crate) fn wake(&mut self, timer: Timer, io: &mut Io<'_>) -> bool {
        let token = timer.token;
        match timer.wake {
            Wake::Client => self.ready.push_back((token as u32, timer.due_ns)),
            Wake::User => self.come_back(timer.due_ns, io),
            Wake::Abort => {
                let Some(connection) = self.pool.connection(token) else {
                    return false;
                };
                connection.abort_timer = false;
                let request = connection.request;
                match request.and_then(|request| Some((request, self.deadline_ns(&request)?))) {
                    Some((request, due_ns)) if due_ns <= io.now_ns => {
                        self.discard(token);
                        self.give_up(request, io);
                    }
                    Some(_) => self.set_abort_timer(token, io),
                    None => {}
                }
            }
            // Those of shared connections are the event loop's.
            Wake::Stream(_) => return false,
            Wake::Pace => {
                let Some(connection) = self.pool.connection(token) else {
                    return false;
                };
                connection.pace_timer = false;
                if connection.pace_ns > io.now_ns {
                    self.set_pace_timer(token, io);
                } else if let Some(Step::Answered { outcome, reusable }) = connection.held.take() {
                    self.answered(token, outcome, reusable, io);
                } else {
                    return self.pool.list(token);
                }
            }
        }
        self.advance(io);
        false
    }

    /// Whether the connection or client of a timer still exists.
    pub(crate) fn concerns(&mut self, timer: &Timer) -> bool {
        matches!(timer.wake, Wake::Client | Wake::User) || self.pool.connection(timer.token).is_some()
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.ready.clear();
    }

    /// Gives up on every request that is not answered, and tells what came of all.
    pub(crate) fn finish_all(&mut self, io: &mut Io<'_>) -> StreamRan {
        self.close();
        let waiting: Vec<_> = self.waiting.drain(..).collect();
        let mut left = waiting;
        for token in self.pool.tokens() {
            left.extend(self.pool.connection(token).and_then(|connection| connection.request.take()));
            self.discard(token);
        }
        for request in left {
            self.finish(request, Outcome::Unanswered, io);
        }
        StreamRan {
            records: Vec::new(),
            connections: self.pool.established,
            handshakes: std::mem::take(&mut self.pool.handshakes),
            retried: self.retried,
            clients: self.clients.iter().map(|client| client.totals).collect(),
            open: std::mem::take(&mut self.open),
        }
    }

    fn send(&mut self, token: u64, mut request: Request, io: &mut Io<'_>) {
        let Some(connection) = self.pool.connection(token) else {
            return self.waiting.push_front(request);
        };
        let record = &mut request.record;
        record.connected_ns = io.now_ns;
        record.flags = record.flags & !REUSED | if connection.requests_sent > 0 { REUSED } else { 0 };
        let (catalogue, path_id) = (&self.setup.catalogue, record.path_id);
        let number = catalogue.method_number(path_id);
        let bytes = self.wire.request(number, |into| catalogue.write_path(path_id, into));
        connection.pace_ns = 0;
        if connection.send_request(request, bytes).is_err() {
            self.end(token, Outcome::Reset, io);
        } else {
            self.set_abort_timer(token, io);
        }
    }

    fn connected(&mut self, token: u64, handshake: Option<Handshake>, io: &mut Io<'_>) {
        let established = self.pool.establish(token, handshake);
        match established.and_then(|connection| connection.request.take()) {
            Some(request) => self.send(token, request, io),
            None => self.pool.put_idle(token),
        }
    }

    fn not_connected(&mut self, token: u64, why: &io::Error, io: &mut Io<'_>) {
        let request = self.pool.connection(token).and_then(|connection| connection.request.take());
        self.discard(token);
        match request {
            Some(request) => self.fail_to_connect(request, why, io),
            None => self.fail_first_waiting(why, io),
        }
    }

    fn discard(&mut self, token: u64) {
        let reserved = !self.is_open_loop();
        self.pool.discard(token, reserved);
    }

    /// When the user of a request gives its present try up.
    fn deadline_ns(&self, request: &Request) -> Option<u64> {
        Some(request.tried_ns.saturating_add(self.setup.abort_after_ns?))
    }

    fn wake_client(&self, client: u32, due_ns: u64, io: &mut Io<'_>) {
        io.timers.set(Timer { due_ns, token: self.pool.token(client), wake: Wake::Client });
    }

    fn set_pace_timer(&mut self, token: u64, io: &mut Io<'_>) {
        if let Some(connection) = self.pool.connection(token)
            && !std::mem::replace(&mut connection.pace_timer, true)
        {
            io.timers.set(Timer { due_ns: connection.pace_ns, token, wake: Wake::Pace });
        }
    }

    /// One at a time for each connection: when it runs down early, it is set again.
    fn set_abort_timer(&mut self, token: u64, io: &mut Io<'_>) {
        let Some(abort_after_ns) = self.setup.abort_after_ns else {
            return;
        };
        if let Some(connection) = self.pool.connection(token)
            && let Some(request) = &connection.request
            && !std::mem::replace(&mut connection.abort_timer, true)
        {
            let due_ns = request.tried_ns.saturating_add(abort_after_ns);
            io.timers.set(Timer { due_ns, token, wake: Wake::Abort });
        }
    }
}
