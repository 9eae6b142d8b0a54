//! The connections of one stream of requests: a pool that grows up to a bound.
//!
//! The generator gives it arrivals and events. An arrival that finds no free connection opens
//! another; when none may be opened it waits here, with its clock running.

use std::collections::VecDeque;
use std::io;

use flash_sys::prompt::epoll::{Epoll, Ready, Watch};

use super::Ask;
use super::connection::{Connection, State, Step};
use super::tally::{Fault, Tally};
use crate::target::Target;

/// What a pool is made with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The server.
    pub(crate) target: Target,
    /// The most connections at once.
    pub(crate) connections_max: usize,
    /// The seed of the file set when contents are to be checked.
    pub(crate) verify_seed: Option<u64>,
}

/// A pool, and what came of the requests that were given to it.
#[derive(Debug)]
pub(crate) struct Pool {
    setup: Setup,
    /// In the upper byte of its connections' epoll tokens.
    number: u8,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections free for a request; some may have ended since.
    idle: Vec<u64>,
    waiting: VecDeque<Ask>,
    open: usize,
    connecting: usize,
    busy: usize,
    /// Arrivals have ended: answers from now on are late.
    overtime: bool,
    tally: Tally,
}

/// A place for a connection. The generation tells its owners apart: an event may still be on
/// its way when the connection is gone.
#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Pool {
    /// An empty pool; `number` differs from the other pools' on the same epoll.
    pub(crate) fn new(number: u8, setup: Setup) -> Self {
        Self {
            setup,
            number,
            slots: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
            waiting: VecDeque::new(),
            open: 0,
            connecting: 0,
            busy: 0,
            overtime: false,
            tally: Tally::new(),
        }
    }

    /// The pool that a token belongs to.
    pub(crate) fn number_of(token: u64) -> u8 {
        (token >> 56) as u8
    }

    /// Requests that are not answered yet.
    pub(crate) fn outstanding(&self) -> usize {
        self.waiting.len() + self.busy
    }

    /// Whether the clock of the phase still runs; answers count as in time only then.
    pub(crate) fn set_overtime(&mut self, overtime: bool) {
        self.overtime = overtime;
    }

    /// What came of the requests since the last call.
    pub(crate) fn take_tally(&mut self) -> Tally {
        std::mem::replace(&mut self.tally, Tally::new())
    }

    /// Takes a request: sends it, or lets it wait for a connection.
    pub(crate) fn arrive(&mut self, ask: Ask, epoll: &Epoll) {
        self.tally.asked += 1;
        self.waiting.push_back(ask);
        self.send_waiting(epoll);
        self.tally.queued += u64::from(self.waiting.len() > self.connecting);
    }

    /// Takes an event; gives whether [`Pool::turn`] is to be called for its token.
    pub(crate) fn note(&mut self, ready: Ready, epoll: &Epoll) -> bool {
        let Some(connection) = self.connection(ready.token) else {
            return false;
        };
        connection.hang_up |= ready.hung_up || ready.broken;
        if connection.state == State::Connecting {
            if ready.writable || ready.hung_up || ready.broken {
                let result = connection.connected();
                self.finish_connecting(ready.token, result, epoll);
            }
            return false;
        }
        if ready.writable && connection.flush().is_err() {
            self.end(ready.token, Fault::Reset, epoll);
            return false;
        }
        ready.readable || ready.broken
    }

    /// Receives once on a connection; gives whether it is to be called again for it.
    pub(crate) fn turn(
        &mut self,
        token: u64,
        buffer: &mut [u8],
        epoll: &Epoll,
        now_ns: impl Fn() -> u64,
    ) -> bool {
        let verify_seed = self.setup.verify_seed;
        let Some(connection) = self.connection(token) else {
            return false;
        };
        let state = connection.state;
        match (connection.receive(buffer, verify_seed), state) {
            (Step::Again, _) => true,
            (Step::Wait, _) => false,
            (Step::Ended(fault), _) => {
                self.end(token, fault, epoll);
                false
            }
            (Step::Answered { outcome, reusable }, State::Busy(ask)) => {
                self.count_answer(ask, outcome, now_ns());
                self.release(token, reusable, epoll);
                false
            }
            (Step::Answered { .. }, _) => false,
        }
    }

    /// Gives up on every request that is not answered: counts it, with the time that it waited.
    pub(crate) fn abandon(&mut self, now_ns: u64, epoll: &Epoll) {
        let mut asks: Vec<Ask> = self.waiting.drain(..).collect();
        for index in 0..self.slots.len() as u32 {
            let token = self.token(index);
            let Some(connection) = self.connection(token) else {
                continue;
            };
            if let State::Busy(ask) = connection.state {
                asks.push(ask);
                self.busy -= 1;
                self.discard(token, epoll);
            }
        }
        for ask in asks {
            self.tally.fail(Fault::Unanswered);
            self.tally.latency_ns.saturating_record(now_ns.saturating_sub(ask.intended_ns));
        }
    }

    fn count_answer(&mut self, ask: Ask, outcome: Result<(), Fault>, now_ns: u64) {
        match outcome {
            Ok(()) => {
                self.tally.answered += 1;
                self.tally.answered_in_time += u64::from(!self.overtime);
                self.tally.latency_ns.saturating_record(now_ns.saturating_sub(ask.intended_ns));
            }
            Err(fault) => self.tally.fail(fault),
        }
    }

    /// Sends waiting requests on free connections and opens connections for the rest.
    fn send_waiting(&mut self, epoll: &Epoll) {
        while !self.waiting.is_empty() {
            let Some(token) = self.idle.pop() else { break };
            // An idle connection that ended is still in the list.
            if self.connection(token).is_some_and(|c| c.state == State::Idle) {
                self.send_next(token, epoll);
            }
        }
        while self.connecting < self.waiting.len() && self.open < self.setup.connections_max {
            self.open_one(epoll);
        }
    }

    fn send_next(&mut self, token: u64, epoll: &Epoll) {
        let Some(ask) = self.waiting.pop_front() else {
            return;
        };
        let target = &self.setup.target;
        let Some(connection) = &mut self.slots[token as u32 as usize].connection else {
            return;
        };
        let sent = connection.ask(ask, &target.host, &target.base);
        self.busy += 1;
        if sent.is_err() {
            self.end(token, Fault::Reset, epoll);
        }
    }

    fn open_one(&mut self, epoll: &Epoll) {
        let opened = Connection::open(self.setup.target.address).and_then(|connection| {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot { generation: 0, connection: None });
                self.slots.len() as u32 - 1
            });
            let token = self.token(index);
            epoll.add(connection.fd(), token, Watch::Connection)?;
            self.slots[index as usize].connection = Some(connection);
            Ok(())
        });
        match opened {
            Ok(()) => {
                self.open += 1;
                self.connecting += 1;
            }
            Err(why) => self.fail_first_waiting(&why),
        }
    }

    fn finish_connecting(&mut self, token: u64, result: io::Result<()>, epoll: &Epoll) {
        self.connecting -= 1;
        match result {
            Ok(()) => {
                if let Some(connection) = self.connection(token) {
                    connection.state = State::Idle;
                }
                self.idle.push(token);
            }
            Err(why) => {
                self.discard(token, epoll);
                self.fail_first_waiting(&why);
            }
        }
        self.send_waiting(epoll);
    }

    /// A connection could not be made: one request fails for it, so that trying comes to an end.
    fn fail_first_waiting(&mut self, why: &io::Error) {
        let local = !matches!(
            why.kind(),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::TimedOut
        );
        if self.waiting.pop_front().is_some() {
            self.tally.fail(if local { Fault::LocalLimit } else { Fault::Refused });
        }
    }

    /// A connection after its answer: free for the next request, or closed.
    fn release(&mut self, token: u64, reusable: bool, epoll: &Epoll) {
        self.busy -= 1;
        if reusable {
            if let Some(connection) = self.connection(token) {
                connection.state = State::Idle;
            }
            self.idle.push(token);
        } else {
            self.discard(token, epoll);
        }
        self.send_waiting(epoll);
    }

    /// A connection that ended by itself, with the request that was on it.
    fn end(&mut self, token: u64, fault: Fault, epoll: &Epoll) {
        let Some(connection) = self.connection(token) else {
            return;
        };
        let (state, stale) = (connection.state, connection.was_stale());
        if let State::Busy(ask) = state {
            self.busy -= 1;
            // Comes to an end: each try costs a used connection, and a new one is never stale.
            if stale && matches!(fault, Fault::Reset | Fault::ClosedEarly) {
                self.tally.retried += 1;
                self.waiting.push_front(ask);
            } else {
                self.tally.fail(fault);
            }
        }
        self.discard(token, epoll);
        self.send_waiting(epoll);
    }

    fn discard(&mut self, token: u64, epoll: &Epoll) {
        let index = token as u32;
        let slot = &mut self.slots[index as usize];
        if let Some(connection) = slot.connection.take() {
            // Closing does it too; this only fails when the kernel was first.
            let _ = epoll.remove(connection.fd());
            slot.generation = slot.generation.wrapping_add(1) & 0xff_ffff;
            self.free.push(index);
            self.open -= 1;
        }
    }

    fn token(&self, index: u32) -> u64 {
        u64::from(self.number) << 56
            | u64::from(self.slots[index as usize].generation) << 32
            | u64::from(index)
    }

    fn connection(&mut self, token: u64) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        if slot.generation != (token >> 32) as u32 & 0xff_ffff {
            return None;
        }
        slot.connection.as_mut()
    }
}
