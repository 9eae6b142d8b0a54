//! A connection: its transport, its deadline, the bytes that it holds, and the wire that it speaks.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::h1::H1;
#[cfg(feature = "test-wire")]
use super::streams::Streams;
use super::transport::Transport;
use crate::desk::Desk;
use crate::exchange::{Exchanges, Opener};
use crate::limits::{
    HEADS_BYTES_MAX, HEADS_BYTES_PER_CLIENT_MAX, RATE_WINDOW_MS, REQUESTS_PER_TURN_MAX,
    SEND_BYTES_PER_TURN_MAX,
};
use crate::machine::Machine;
use crate::slab::ClientNumber;

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    pub(crate) conn: Conn<S>,
    pub(crate) wire: Wire,
}

/// The part of a connection that every wire has.
#[derive(Debug)]
pub(crate) struct Conn<S> {
    pub(crate) transport: Transport<S>,
    pub(crate) peer: SocketAddr,
    pub(crate) opener: Opener,
    /// Received and not yet consumed.
    pub(crate) input: Vec<u8>,
    /// When it has to be looked at, in milliseconds of the monotonic clock.
    pub(crate) deadline_ms: u64,
    /// Since when it has been idle, if it is.
    pub(crate) idle_since_ms: u64,
    /// The tick that it is filed under in the timers.
    pub(crate) filed_tick: Option<u64>,
    /// Is in the queue of connections to be continued.
    pub(crate) queued: bool,
    /// The bytes that the client had acknowledged when it was last judged; None while the server does not wait for it.
    pub(crate) pace: Option<u64>,
}

/// The protocol that a connection speaks.
#[derive(Debug)]
pub(crate) enum Wire {
    H1(H1),
    /// For tests: several exchanges at once, as HTTP/2 will have them.
    #[cfg(feature = "test-wire")]
    Streams(Box<Streams>),
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It waits for an event of its socket, a job, or its deadline.
    Blocked,
    /// It has used up its turn.
    Yield,
    Close,
    /// Is closed, and what the client has not received is discarded.
    Reset,
}

/// The rest of a connection's share of this turn.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) requests: u32,
    pub(crate) bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { requests: REQUESTS_PER_TURN_MAX, bytes: SEND_BYTES_PER_TURN_MAX }
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

/// The request that a panic would be put down to.
#[derive(Debug, Default)]
pub(crate) enum Blamed {
    #[default]
    Nobody,
    /// The one at this place of the receive buffer.
    InBuffer(usize),
    /// The one with this line.
    Line(Vec<u8>),
}

/// Everything that a wire is lent for a turn of a connection.
#[derive(Debug)]
pub(crate) struct Turn<'t, M: Machine> {
    pub(crate) desk: Desk<'t, M>,
    pub(crate) exchanges: &'t mut Exchanges<M::File>,
    pub(crate) inputs: &'t mut Inputs,
    pub(crate) budget: Budget,
    pub(crate) draining: bool,
    /// The request that is being served, for the report of a panic.
    pub(crate) blamed: &'t mut Blamed,
    /// For heads of responses.
    pub(crate) head: &'t mut Vec<u8>,
}

impl<S> Conn<S> {
    pub(crate) fn new(socket: S, peer: SocketAddr, opener: Opener) -> Self {
        Self {
            transport: Transport::new(socket),
            peer,
            opener,
            input: Vec::new(),
            deadline_ms: u64::MAX,
            idle_since_ms: 0,
            filed_tick: None,
            queued: false,
            pace: None,
        }
    }

    /// Whether it is between two requests, with nothing received.
    pub(crate) fn is_idle(&self, wire: &Wire) -> bool {
        let is_idle = match wire {
            Wire::H1(h1) => h1.is_idle(),
            #[cfg(feature = "test-wire")]
            Wire::Streams(streams) => streams.is_idle(),
        };
        is_idle && !self.queued && self.input.is_empty()
    }

    /// Keeps what was received and not consumed. False when there is no room for it.
    pub(crate) fn keep_input(&mut self, inputs: &mut Inputs, rest: &[u8]) -> bool {
        debug_assert!(self.input.is_empty());
        if rest.is_empty() {
            return true;
        }
        let has_room = inputs.take(self.opener.client, rest.len());
        if has_room {
            self.input = rest.to_vec();
        }
        has_room
    }

    /// The bytes kept, which are kept no more.
    pub(crate) fn take_input(&mut self, inputs: &mut Inputs) -> Vec<u8> {
        inputs.give_back(self.opener.client, self.input.len());
        std::mem::take(&mut self.input)
    }

    /// Waits for the client to take what was sent, and sees to it that it does.
    pub(crate) fn await_room<M: Machine<Socket = S>>(&mut self, machine: &mut M, now_ms: u64) -> Verdict {
        if self.pace.is_none() {
            self.pace = Some(self.transport.acknowledged_bytes(machine));
            self.deadline_ms = now_ms + RATE_WINDOW_MS;
        }
        Verdict::Blocked
    }

    /// Judges a client by what it has acknowledged since the last time. False when that is less than the least rate.
    pub(crate) fn keeps_pace<M: Machine<Socket = S>>(&mut self, desk: &mut Desk<'_, M>) -> bool {
        let wanted_bytes = desk.core.rules.least_rate_bytes_per_s * RATE_WINDOW_MS / 1000;
        let acknowledged_bytes = self.transport.acknowledged_bytes(desk.machine);
        let before = self.pace.replace(acknowledged_bytes).unwrap_or(0);
        self.deadline_ms = desk.core.clock.ms() + RATE_WINDOW_MS;
        acknowledged_bytes.saturating_sub(before) >= wanted_bytes
    }
}

/// The number of a client address; an IPv6 /64 is one client.
pub(crate) fn client_number(peer: SocketAddr) -> ClientNumber {
    ClientNumber(match peer.ip().to_canonical() {
        // IPv6 addresses that begin like this are multicast ones, which no client has.
        IpAddr::V4(ip) => 0xffff_0000_0000_0000 | u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    })
}

/// Bytes of input that connections hold, in total and of each client.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    bytes: usize,
    of_clients: HashMap<ClientNumber, usize>,
}

impl Inputs {
    fn take(&mut self, client: ClientNumber, bytes: usize) -> bool {
        let theirs = self.of_clients.get(&client).copied().unwrap_or(0);
        if self.bytes + bytes > HEADS_BYTES_MAX || theirs + bytes > HEADS_BYTES_PER_CLIENT_MAX {
            return false;
        }
        self.bytes += bytes;
        self.of_clients.insert(client, theirs + bytes);
        true
    }

    pub(crate) fn give_back(&mut self, client: ClientNumber, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.bytes -= bytes;
        if let Some(theirs) = self.of_clients.get_mut(&client) {
            *theirs -= bytes;
            if *theirs == 0 {
                self.of_clients.remove(&client);
            }
        }
    }

    /// Bytes held in total.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_client_holds_all_the_room_for_input() {
        let mut inputs = Inputs::default();
        let number = |n: u8| client_number(SocketAddr::from(([10, 0, 0, n], 1)));
        assert!(inputs.take(number(1), HEADS_BYTES_PER_CLIENT_MAX));
        assert!(!inputs.take(number(1), 1));
        let clients = (HEADS_BYTES_MAX / HEADS_BYTES_PER_CLIENT_MAX) as u8;
        for n in 2..=clients {
            assert!(inputs.take(number(n), HEADS_BYTES_PER_CLIENT_MAX));
        }
        assert!(!inputs.take(number(clients + 1), 1), "the total is bounded, too");
        inputs.give_back(number(1), HEADS_BYTES_PER_CLIENT_MAX);
        assert!(inputs.take(number(clients + 1), 1));
    }

    #[test]
    fn a_client_is_an_address_or_an_ipv6_network() {
        let number = |text: &str| client_number(SocketAddr::new(text.parse().expect("an address"), 1));
        assert_eq!(number("192.0.2.1"), number("::ffff:192.0.2.1"));
        assert_ne!(number("192.0.2.1"), number("192.0.2.2"));
        assert_eq!(number("2001:db8::1"), number("2001:db8::2"));
        assert_ne!(number("2001:db8::1"), number("2001:db8:0:1::1"));
    }
}
