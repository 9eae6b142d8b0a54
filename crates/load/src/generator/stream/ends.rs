//! How the requests of a stream end: with an answer, without one, or with another try.

use std::io;

use super::Flow;
use crate::generator::Pace;
use crate::generator::h2::connection::Done;
use crate::generator::loop_io::Io;
use crate::generator::request::Request;
use crate::generator::timers::{Timer, Wake};
use crate::record::Outcome;

impl Flow {
    /// A connection could not be made: one request fails for it, so that trying comes to an end.
    pub(crate) fn fail_first_waiting(&mut self, why: &io::Error, io: &mut Io<'_>) {
        if let Some(request) = self.waiting.pop_front() {
            self.fail_to_connect(request, why, io);
        }
    }

    pub(super) fn fail_to_connect(&mut self, request: Request, why: &io::Error, io: &mut Io<'_>) {
        use io::ErrorKind as Kind;
        if why.kind() == Kind::InvalidData {
            io.shared.note_local_limit(|| format!("no TLS session: {why}"));
            return self.finish(request, Outcome::NoHandshake, io);
        }
        let by_server = matches!(
            why.kind(),
            Kind::ConnectionRefused
                | Kind::ConnectionReset
                | Kind::TimedOut
                | Kind::HostUnreachable
                | Kind::NetworkUnreachable
        );
        if !by_server {
            io.shared.note_local_limit(|| {
                format!(
                    "this machine did not allow a connection: {why}; raise `ulimit -n` or net.ipv4.ip_local_port_range"
                )
            });
        }
        let outcome = if by_server { Outcome::Refused } else { Outcome::LocalLimit };
        self.finish(request, outcome, io);
    }

    /// An answer is complete: its connection is free for the next request, or closed.
    pub(super) fn answered(&mut self, token: u64, outcome: Outcome, reusable: bool, io: &mut Io<'_>) {
        let Some(connection) = self.pool.connection(token) else {
            return;
        };
        let used_up = self.setup.requests_per_connection.is_some_and(|max| connection.requests_sent >= max);
        let reusable = reusable && !connection.transport.hang_up && !used_up;
        let request = connection.request.take();
        if !reusable {
            self.discard(token);
        } else if self.is_open_loop() {
            self.pool.put_idle(token);
        }
        if let Some(request) = request {
            self.finish(request, outcome, io);
        }
    }

    /// A connection that ended by itself, with the request that was on it.
    pub(super) fn end(&mut self, token: u64, outcome: Outcome, io: &mut Io<'_>) {
        let Some(connection) = self.pool.connection(token) else {
            return;
        };
        let (request, stale) = (connection.request.take(), connection.was_stale());
        self.discard(token);
        let Some(request) = request else { return };
        let number = self.setup.catalogue.method_number(request.record.path_id);
        // RFC 9110 section 9.2.2: the server may have handled it.
        let stale = stale && self.wire.kind(number).is_idempotent;
        // Comes to an end: each try costs a used connection, and a new one is never stale.
        if stale && matches!(outcome, Outcome::Reset | Outcome::ClosedEarly) {
            self.send_again(request);
        } else {
            self.finish(request, outcome, io);
        }
    }

    /// A request ended on a connection of HTTP/2.
    pub(crate) fn settle(&mut self, done: Done, io: &mut Io<'_>) {
        match done.outcome {
            Some(outcome) => self.finish(done.request, outcome, io),
            None => self.send_again(done.request),
        }
    }

    /// Puts a request first that the server did not handle.
    fn send_again(&mut self, mut request: Request) {
        self.retried += 1;
        request.start_over();
        self.waiting.push_front(request);
    }

    /// A user has waited long enough, and tries again if it may.
    pub(crate) fn give_up(&mut self, mut request: Request, io: &mut Io<'_>) {
        let tries = request.record.tries;
        if tries > self.setup.retries_max || tries == u8::MAX {
            return self.finish(request, Outcome::Aborted, io);
        }
        self.retried += 1;
        request.start_over();
        request.record.tries += 1;
        request.tried_ns = io.now_ns;
        self.waiting.push_back(request);
        self.advance(io);
    }

    /// Passes the record on and lets the client go on.
    pub(super) fn finish(&mut self, request: Request, outcome: Outcome, io: &mut Io<'_>) {
        let mut record = request.record;
        record.outcome = outcome;
        record.last_byte_ns = io.now_ns;
        self.outstanding -= 1;
        io.outbox.put(self.number, record, io.shared);
        let Pace::Closed { think_ns, .. } = self.pace else {
            return self.think_of_next(outcome, io);
        };
        let Some(client) = self.clients.get_mut(request.client as usize) else {
            return;
        };
        let wait_ns = client.finish(&record, think_ns);
        if wait_ns == 0 {
            self.ready.push_back((request.client, io.now_ns));
        } else {
            self.wake_client(request.client, io.now_ns + wait_ns, io);
        }
    }

    /// A user of an open loop comes back or leaves; one without an answer leaves.
    fn think_of_next(&mut self, outcome: Outcome, io: &mut Io<'_>) {
        if outcome == Outcome::Answered
            && !self.closed
            && let Some(due_ns) = self.demand.returns_ns(io.now_ns)
        {
            self.thinking += 1;
            io.timers.set(Timer { due_ns, token: self.pool.token(0), wake: Wake::User });
        }
    }
}
