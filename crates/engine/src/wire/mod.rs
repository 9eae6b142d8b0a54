//! Connections and their protocols. A wire turns bytes into requests and responses into bytes, and knows
//! exchanges by their keys. Called by
//! [`Engine`](crate::Engine).

mod accept;
mod conn;
mod drain;
mod h1;
mod h2;
mod proxy_header;
mod timers;
mod tls;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use flash_http::request::first_line;

use conn::{Conn, TurnEnd, Uplink};
use h1::H1;
use h2::{H2, Workspace};
use proxy_header::AwaitingProxyHeader;
use timers::{SearchPlace, Timers};
use tls::{finish_closing, judge_closing, late};

use crate::admission::{AdmissionRules, OpenConnections, WhyRefused};
use crate::exchange::{Budget, Exchanges, Serving, Turn};
use crate::limits::{
    CONTINUED_PER_TURN_MAX, DEADLINES_PER_TURN_MAX, READ_BYTES_MAX, RECEIVE_BYTES, TARGET_BYTES_MAX, TICK_MS,
};
use crate::machine::{JobId, Machine, RecordLayer};
use crate::report_limit::ReportLimit;
use crate::slab::{ExchangeKey, Key, Slab};
use crate::transport::Readiness;
use crate::upstream::Links;

/// The connections of a worker.
#[derive(Debug)]
pub(crate) struct Wires<S> {
    connections: Slab<Connection<S>>,
    admission: OpenConnections,
    timers: Timers,
    /// Connections whose timer has come up and that are not checked yet.
    due: VecDeque<(u64, Key)>,
    continued: VecDeque<Key>,
    /// Connections whose handshake is to be continued.
    handshaking: VecDeque<Key>,
    proxy_header_reports: ReportLimit,
    receive_buffer: Vec<u8>,
    h2_workspace: Workspace,
    draining: bool,
    /// The next place to check for an idle connection while draining.
    drain_at: Option<usize>,
    /// Where the next search for an idle connection begins: of any client, and of one.
    evict_from: [Option<SearchPlace>; 2],
}

/// One client's connection.
#[derive(Debug)]
struct Connection<S> {
    conn: Conn<S>,
    wire: Wire,
}

impl<S> Connection<S> {
    /// Whether the connection is between two requests, with no input received.
    fn is_idle(&self) -> bool {
        let is_idle = match &self.wire {
            Wire::H1(h1) => h1.is_idle(),
            Wire::H2(h2) => h2.is_idle(),
            Wire::Handshake | Wire::AwaitingProxyHeader(_) => true,
            Wire::Closing => false,
        };
        is_idle && !self.conn.queued && self.conn.input.is_empty() && self.conn.transport.is_flushed()
    }
}

/// The protocol that a connection speaks.
#[derive(Debug)]
enum Wire {
    /// None yet: the client is to be introduced by its proxy.
    AwaitingProxyHeader(Box<AwaitingProxyHeader>),
    /// None yet: the handshake of an encrypted connection is under way.
    Handshake,
    H1(H1),
    H2(Box<H2>),
    /// None any more: the connection closes once its ciphertext is sent.
    Closing,
}

/// An action on a connection.
#[derive(Clone, Copy, Debug)]
enum Act {
    Turn,
    TimeOut,
}

/// The protocol that a new connection speaks.
#[derive(Debug)]
pub(crate) enum Protocol {
    H1,
    /// The handshake of this record layer, which then chooses.
    Tls(Box<dyn RecordLayer>),
}

impl<S> Wires<S> {
    pub(crate) fn new(rules: AdmissionRules, now_ms: u64) -> Self {
        Self {
            connections: Slab::new(),
            admission: OpenConnections::new(rules),
            timers: Timers::new(now_ms),
            due: VecDeque::new(),
            continued: VecDeque::new(),
            handshaking: VecDeque::new(),
            proxy_header_reports: ReportLimit::default(),
            receive_buffer: vec![0; RECEIVE_BYTES],
            h2_workspace: Workspace::default(),
            draining: false,
            drain_at: None,
            evict_from: [None; 2],
        }
    }

    /// Serves a connection whose socket is ready. Does nothing if it is already closed.
    #[inline]
    pub(crate) fn ready<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        key: Key,
        ready: Readiness,
    ) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if ready.broken {
            return self.close(turn, key);
        }
        connection.conn.transport.note(ready);
        if matches!(connection.wire, Wire::Handshake) {
            return self.continue_later(key);
        }
        self.act(turn, key, Act::Turn);
    }

    /// Runs an action of a connection, then closes it, files its deadline or queues it. A panic costs only
    /// this connection: its state may be half changed, but the caches change only in single steps.
    #[inline]
    fn act<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: Key, act: Act) {
        let acted = catch_unwind(AssertUnwindSafe(|| self.act_unguarded(turn, key, act)));
        match acted {
            Ok(Some(TurnEnd::Blocked)) => self.file_deadline(key),
            Ok(Some(TurnEnd::Yield)) => self.continue_later(key),
            Ok(Some(TurnEnd::Close)) => self.begin_closing(turn, key),
            Ok(Some(TurnEnd::Reset)) => {
                if let Some(connection) = self.connections.get(key) {
                    connection.conn.transport.reset(turn.context.machine);
                }
                self.close(turn, key);
            }
            Ok(None | Some(TurnEnd::SpeaksHttp2)) => {}
            Err(_) => self.clean_up_after_panic(turn, key),
        }
        self.wake(turn.links, turn.exchanges);
    }

    /// Queues the connections whose requests can continue on their links.
    #[inline]
    pub(crate) fn wake<F>(&mut self, links: &mut Links<S>, exchanges: &Exchanges<F>) {
        while let Some(key) = links.next_woken() {
            if let Some(exchange) = exchanges.get(key) {
                self.continue_later(exchange.opener.connection);
            }
        }
    }

    #[inline]
    fn act_unguarded<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        key: Key,
        act: Act,
    ) -> Option<TurnEnd> {
        let connection = self.connections.get_mut(key)?;
        turn.budget = Budget::new();
        turn.draining = self.draining;
        *turn.serving = Serving::None;
        if matches!(act, Act::TimeOut) && !connection.conn.transport.is_flushed() {
            // The kernel reports room only when there is much of it, but here any room counts.
            connection.conn.transport.suspect(Readiness { writable: true, ..Readiness::default() });
        }
        if connection.conn.transport.flush(turn.context.machine).is_err() {
            return Some(TurnEnd::Close);
        }
        if matches!((&connection.wire, act), (Wire::AwaitingProxyHeader(_), Act::Turn)) {
            return Some(self.receive_proxy_header(turn, key));
        }
        if matches!((&connection.wire, act), (Wire::Handshake, Act::Turn)) {
            let turn_end = connection.continue_handshake(turn);
            if !matches!(connection.wire, Wire::Handshake) {
                self.admission.handshake_ended(connection.conn.opener.client);
            }
            if turn_end.is_some() {
                return turn_end;
            }
        }
        let buffer = &mut self.receive_buffer[..];
        let Connection { conn, wire } = connection;
        let turn_end = match (&mut *wire, act) {
            (Wire::H1(h1), Act::Turn) => h1.turn(conn, turn, buffer),
            (Wire::H1(h1), Act::TimeOut) => h1.time_out(conn, turn, buffer),
            (Wire::H2(h2), Act::Turn) => {
                turn.budget = Budget::of_h2();
                h2.turn(conn, turn, (buffer, &mut self.h2_workspace))
            }
            (Wire::H2(h2), Act::TimeOut) => {
                turn.budget = Budget::of_h2();
                h2.time_out(conn, turn, (buffer, &mut self.h2_workspace))
            }
            (Wire::AwaitingProxyHeader(_), _) => {
                turn.context.core.counters.refused[WhyRefused::ProxyHeader as usize] += 1;
                TurnEnd::Close
            }
            (Wire::Handshake, _) => late(turn),
            (Wire::Closing, Act::Turn) => finish_closing(conn),
            (Wire::Closing, Act::TimeOut) => judge_closing(conn, turn),
        };
        if turn_end != TurnEnd::SpeaksHttp2 {
            return Some(turn_end);
        }
        let mut h2 = Box::new(H2::new(turn.context.core.clock.ms()));
        turn.context.core.counters.http2.connections += 1;
        turn.budget = Budget::of_h2();
        let turn_end = h2.turn(conn, turn, (&mut self.receive_buffer[..], &mut self.h2_workspace));
        *wire = Wire::H2(h2);
        Some(turn_end)
    }

    /// Drops all exchanges of a connection.
    fn drop_exchanges<M: Machine<Socket = S>>(
        &mut self,
        turn: &mut Turn<'_, M>,
        key: Key,
        has_panicked: bool,
    ) {
        match self.connections.get_mut(key) {
            Some(Connection { conn, wire: Wire::H1(h1) }) if has_panicked => h1.drop_after_panic(conn, turn),
            Some(Connection { conn, wire: Wire::H1(h1) }) => h1.drop_exchange(conn, turn),
            Some(Connection { conn, wire: Wire::H2(h2) }) => h2.drop_exchanges(conn, turn, has_panicked),
            Some(Connection {
                wire: Wire::AwaitingProxyHeader(_) | Wire::Handshake | Wire::Closing, ..
            })
            | None => {}
        }
    }

    fn clean_up_after_panic<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: Key) {
        turn.context.core.counters.panics += 1;
        turn.context.core.file_buffer.resize(READ_BYTES_MAX, 0);
        let line = match &*turn.serving {
            Serving::None => &[],
            Serving::InBuffer(at) => first_line(&self.receive_buffer[*at..], TARGET_BYTES_MAX),
            Serving::Line(line) => line.as_slice(),
        };
        let line = String::from_utf8_lossy(line).into_owned();
        turn.context.machine.report(&format!(
            "a bug: panic while serving {line:?}; the connection was closed, all others continue"
        ));
        self.drop_exchanges(turn, key, true);
        self.close(turn, key);
    }

    /// Drops an exchange that waits for a job, and the job. A connection that answers its requests in order ends with it.
    pub(crate) fn drop_exchange<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: ExchangeKey) {
        let Some(connection) = turn.exchanges.get(key).map(|exchange| exchange.opener.connection) else {
            return;
        };
        if let Some(Connection { conn, wire: Wire::H2(h2) }) = self.connections.get_mut(connection) {
            h2.drop_exchange(conn, turn, key);
            return self.continue_later(connection);
        }
        self.begin_closing(turn, connection);
    }

    /// Drops a connection and the jobs that its exchanges wait for.
    fn close<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>, key: Key) {
        self.drop_exchanges(turn, key, false);
        if let Some(Connection { mut conn, wire }) = self.connections.remove(key) {
            if matches!(wire, Wire::Handshake) {
                self.admission.handshake_ended(conn.opener.client);
            }
            conn.take_input(turn.inputs);
            conn.leave_uplink(&mut turn.context.core.egress);
            self.admission.closed(conn.opener.client);
        }
        self.wake(turn.links, turn.exchanges);
    }

    /// Files a connection's deadline in the timers.
    #[inline]
    fn file_deadline(&mut self, key: Key) {
        let Some(Connection { conn, .. }) = self.connections.get_mut(key) else { return };
        if conn.deadline_ms == u64::MAX {
            return;
        }
        // An entry that comes up too early is filed again; an entry that comes up too late is replaced and
        // becomes stale.
        let tick = conn.deadline_ms / TICK_MS + 1;
        if conn.filed_tick.is_none_or(|filed| filed > tick) {
            conn.filed_tick = Some(self.timers.file(key, conn.deadline_ms));
        }
    }

    /// Queues a connection to be continued in this turn or the next.
    pub(crate) fn continue_later(&mut self, key: Key) {
        if let Some(Connection { conn, wire }) = self.connections.get_mut(key)
            && !conn.queued
        {
            conn.queued = true;
            let queue =
                if matches!(wire, Wire::Handshake) { &mut self.handshaking } else { &mut self.continued };
            queue.push_back(key);
        }
    }

    /// Continues a bounded number of connections that had used up their turn, or whose job is done.
    pub(crate) fn go_on<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        for _ in 0..self.continued.len().min(CONTINUED_PER_TURN_MAX) {
            let Some(key) = self.continued.pop_front() else { break };
            if let Some(Connection { conn, .. }) = self.connections.get_mut(key) {
                conn.queued = false;
                self.act(turn, key, Act::Turn);
            }
        }
        self.serve_uplink(turn);
        self.drain_idle(turn);
        self.continue_handshake(turn);
    }

    /// Lets connections send to an uplink of known rate, in the order of the uplink, as long as it has room.
    fn serve_uplink<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        let now_ms = turn.context.core.clock.ms();
        for _ in 0..CONTINUED_PER_TURN_MAX {
            let Some(key) = turn.context.core.egress.next(now_ms) else { return };
            if let Some(Connection { conn, .. }) = self.connections.get_mut(key) {
                conn.uplink = Uplink::Granted;
                self.act(turn, key, Act::Turn);
            }
            // A connection that could not use its turn asks again when it can send.
            if let Some(Connection { conn, .. }) = self.connections.get_mut(key)
                && conn.uplink == Uplink::Granted
            {
                conn.uplink = Uplink::Free;
            }
        }
    }

    /// Handles a bounded number of deadlines that have passed.
    pub(crate) fn time_out<M: Machine<Socket = S>>(&mut self, turn: &mut Turn<'_, M>) {
        let now_ms = turn.context.core.clock.ms();
        for _ in 0..DEADLINES_PER_TURN_MAX {
            while self.due.is_empty() {
                let Some((tick, keys)) = self.timers.due(now_ms) else { return };
                self.due.extend(keys.into_iter().map(|key| (tick, key)));
            }
            let Some((tick, key)) = self.due.pop_front() else { return };
            let Some(Connection { conn, .. }) = self.connections.get_mut(key) else { continue };
            if conn.filed_tick != Some(tick) {
                continue;
            }
            conn.filed_tick = None;
            if conn.queued && conn.deadline_ms <= now_ms {
                // The connection is not late: it is still waiting for its turn.
                conn.deadline_ms = now_ms + TICK_MS;
            }
            if conn.deadline_ms > now_ms {
                self.file_deadline(key);
            } else {
                self.act(turn, key, Act::TimeOut);
            }
        }
    }

    /// Whether all clients whose exchanges wait for a job seem to have gone away. A client can close its
    /// sending side and still read, so this is used only when the queue is long.
    pub(crate) fn have_all_left<'w, F: 'w>(
        &self,
        exchanges: &Exchanges<F>,
        job: JobId,
        waiters: impl IntoIterator<Item = &'w ExchangeKey>,
    ) -> bool {
        waiters.into_iter().all(|waiter| {
            exchanges.get(*waiter).is_some_and(|exchange| {
                let waits = exchange.state.begins_after() == Some(job);
                let connection = self.connections.get(exchange.opener.connection);
                waits && connection.is_some_and(|connection| connection.conn.transport.is_half_closed())
            })
        })
    }

    /// When connections need the next turn if no event comes, in milliseconds of the monotonic clock: 0 means
    /// at once.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        if !self.continued.is_empty()
            || !self.handshaking.is_empty()
            || !self.due.is_empty()
            || self.drain_at.is_some()
        {
            return Some(0);
        }
        self.timers.next_ms()
    }

    /// Whether a connection has used up its turn and continues in the next one.
    pub(crate) fn is_continued(&self, key: Key) -> bool {
        self.connections.get(key).is_some_and(|connection| connection.conn.queued)
    }

    /// The socket of a connection.
    pub(crate) fn socket(&self, key: Key) -> Option<&S> {
        self.connections.get(key).map(|connection| connection.conn.transport.socket())
    }

    /// The events that a connection waits for.
    pub(crate) fn awaited(&self, key: Key) -> Option<Readiness> {
        self.connections.get(key).map(|connection| connection.conn.transport.awaited())
    }

    /// The number of open connections.
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// The number of clients that have connections; 0 without a bound for clients.
    pub(crate) fn clients_len(&self) -> usize {
        self.admission.clients_len()
    }
}
