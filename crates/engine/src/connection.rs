//! A connection frames bytes: it receives requests, one after the other, and sends what their
//! exchanges answer. It knows nothing of files.

use std::io::ErrorKind;
use std::net::SocketAddr;

use crate::engine::Engine;
use crate::exchange::Exchange;
use crate::limits::{LINGER_BYTES_MAX, LINGER_MS, REQUESTS_PER_TURN_MAX, SEND_BYTES_PER_TURN_MAX};
use crate::slab::Key;
use crate::system::System;

/// One client's connection.
pub(crate) struct Connection<S: System> {
    pub(crate) socket: S::Socket,
    pub(crate) peer: SocketAddr,
    pub(crate) phase: Phase,
    /// There may be input. Edge-triggered: set by an event, cleared when a receive came short.
    pub(crate) readable: bool,
    /// There may be room to send; set and cleared likewise.
    pub(crate) writable: bool,
    /// The peer has closed its side: input ends after what is there.
    pub(crate) hung_up: bool,
    /// The end of input was received.
    pub(crate) ended: bool,
    /// An answer was finished since it last waited for a head.
    pub(crate) answered: bool,
    /// An answer was finished at any time.
    pub(crate) used: bool,
    /// Stands in the queue of connections to be continued.
    pub(crate) queued: bool,
    /// Received and not yet consumed.
    pub(crate) input: Vec<u8>,
    /// So much of `input` is known not to hold the end of a head.
    pub(crate) scanned: usize,
    /// When it is to be looked at, in milliseconds of the monotonic clock.
    pub(crate) deadline_ms: u64,
    /// The tick that it is filed under in the timers.
    pub(crate) filed_tick: Option<u64>,
    /// The exchange under way, if it could not be finished in one go.
    pub(crate) exchange: Option<Box<Exchange<S::File>>>,
}

/// What a connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Between two requests, or in the head of one.
    Head {
        /// Whether a part of a head has been received.
        begun: bool,
    },
    /// In the body of a request.
    Body,
    /// Its exchange waits for something before it can begin its answer.
    Answer,
    /// Sending an answer.
    Send,
    /// Sent all; discards input until the peer closes.
    Linger {
        /// Bytes that may still be discarded.
        left_bytes: usize,
    },
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The exchange is finished; the connection is between two requests.
    Finished,
    /// The phase has changed and can go on at once.
    Again,
    /// Waits for an event of its socket, a job, or its deadline.
    Blocked,
    /// Has used up its turn.
    Yield,
    /// Is to be closed.
    Close,
}

/// What a connection may still do in this turn.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) requests: u32,
    pub(crate) bytes: usize,
}

impl Budget {
    fn new() -> Self {
        Self { requests: REQUESTS_PER_TURN_MAX, bytes: SEND_BYTES_PER_TURN_MAX }
    }
}

impl<S: System> Connection<S> {
    pub(crate) fn new(socket: S::Socket, peer: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            phase: Phase::Head { begun: false },
            readable: false,
            writable: true,
            hung_up: false,
            ended: false,
            answered: false,
            used: false,
            queued: false,
            input: Vec::new(),
            scanned: 0,
            deadline_ms: u64::MAX,
            filed_tick: None,
            exchange: None,
        }
    }

    /// An answer was finished.
    #[inline]
    pub(crate) fn note_answered(&mut self) {
        self.answered = true;
        self.used = true;
    }

    /// Receives into `buffer`; None when there is nothing now. `Some(0)` is the end of input.
    pub(crate) fn receive(&mut self, sys: &mut S, buffer: &mut [u8]) -> Result<Option<usize>, ()> {
        if !self.readable || self.ended {
            return Ok(None);
        }
        match sys.recv(&self.socket, buffer) {
            Ok(0) => {
                self.ended = true;
                Ok(Some(0))
            }
            Ok(n) => {
                // A short receive has emptied the socket (epoll(7)), but for the end of input.
                self.readable = n == buffer.len() || self.hung_up;
                Ok(Some(n))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(None)
            }
            Err(_) => Err(()),
        }
    }
}

impl<S: System> Engine<S> {
    /// Gives a connection its turn: steps until it is blocked or has used up its share.
    pub(crate) fn turn(&mut self, sys: &mut S, key: Key) {
        let mut budget = Budget::new();
        loop {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let next = match connection.phase {
                Phase::Head { .. } => self.read_request(sys, key, &mut budget),
                Phase::Body => self.read_body(sys, key, &mut budget),
                Phase::Answer => self.resume(sys, key, &mut budget),
                Phase::Send => self.send_data(sys, key, &mut budget),
                Phase::Linger { left_bytes } => self.linger(sys, key, left_bytes),
            };
            match next {
                Next::Finished | Next::Again => {}
                Next::Blocked => return,
                Next::Yield => return self.continue_later(key),
                Next::Close => return self.close(sys, key),
            }
        }
    }

    /// Ends the sending side and waits for the peer to close, so that what was sent last is
    /// not lost to a reset (RFC 9112, section 9.6).
    pub(crate) fn begin_linger(&mut self, sys: &mut S, key: Key) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        sys.end_sending(&connection.socket);
        connection.input = Vec::new();
        connection.phase = Phase::Linger { left_bytes: LINGER_BYTES_MAX };
        self.set_deadline(key, self.now.monotonic_ms + LINGER_MS);
        Next::Again
    }

    fn linger(&mut self, sys: &mut S, key: Key, mut left_bytes: usize) -> Next {
        let Some(connection) = self.connections.get_mut(key) else { return Next::Close };
        while left_bytes > 0 {
            match connection.receive(sys, &mut self.receive_buffer) {
                Ok(Some(0)) | Err(()) => return Next::Close,
                Ok(Some(n)) => left_bytes = left_bytes.saturating_sub(n),
                Ok(None) => {
                    connection.phase = Phase::Linger { left_bytes };
                    return Next::Blocked;
                }
            }
        }
        Next::Close
    }

    /// Drops a connection and what its exchange waits for.
    pub(crate) fn close(&mut self, sys: &mut S, key: Key) {
        let Some(mut connection) = self.connections.remove(key) else { return };
        if let Some(exchange) = connection.exchange.take() {
            for job in exchange.waiting.iter().chain(&exchange.ahead) {
                self.jobs.leave(*job, key);
            }
            if exchange.has_begun() {
                self.log_ending(sys, connection.peer, &exchange, false);
            }
        }
    }

    /// Has a connection looked at when its deadline comes.
    pub(crate) fn set_deadline(&mut self, key: Key, deadline_ms: u64) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.deadline_ms = deadline_ms;
        if deadline_ms == u64::MAX {
            return;
        }
        // An entry that comes up earlier will be filed again; one that comes up later is left
        // to go stale.
        let tick = deadline_ms / crate::limits::TICK_MS + 1;
        if connection.filed_tick.is_none_or(|filed| filed > tick) {
            connection.filed_tick = Some(self.timers.file(key, deadline_ms));
        }
    }
}
