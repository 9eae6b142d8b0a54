//! The connections of one stream on one thread.
//!
//! A flow opens, finds and discards them here and decides what they carry.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::net;

use super::SOURCES;
use super::transport::{Opening, Transport};
use crate::record::{Handshake, OpenConnections};

/// With fewer attempts to connect than this, those that ended are not worth a search.
const ATTEMPTS_MIN: usize = 64;
/// The most handshakes whose times are kept: 16 bytes each.
const HANDSHAKES_MAX: usize = 1 << 20;
/// The bits of a token that hold a slot's generation.
const GENERATION_MASK: u32 = 0xff_ffff;

/// A connection, as a pool sees it.
pub(crate) trait PooledConnection {
    fn transport(&mut self) -> &mut Transport;

    fn is_idle(&self) -> bool;
}

/// Where connections go, and how they are begun.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) address: SocketAddr,
    pub(crate) opening: Opening,
    pub(crate) receive_buffer_bytes: Option<usize>,
}

/// Connections in numbered slots.
#[derive(Debug)]
pub(crate) struct Pool<L> {
    destination: Destination,
    make: fn(Transport) -> L,
    /// In the upper byte of its connections' epoll tokens.
    number: u8,
    slots: Vec<Slot<L>>,
    free: Vec<u32>,
    /// Connections free for a request, the one that has been free for longest first; some may have ended since. With
    /// the latest one first a few connections would get most requests, and of several workers that share a port
    /// (`SO_REUSEPORT`) only those that accepted these few would have work.
    idle: VecDeque<u64>,
    next_source: u8,
    /// Connections that were opened, the oldest first; all that are not established yet are among them.
    attempts: VecDeque<u64>,
    /// Open connections, and how many of them are not established yet.
    pub(crate) open: usize,
    pub(crate) connecting: usize,
    /// Connections that were ever established.
    pub(crate) established: u64,
    /// The TLS handshakes by which they were, at most [`HANDSHAKES_MAX`].
    pub(crate) handshakes: Vec<Handshake>,
}

/// A place for a connection. The generation tells its owners apart: an event may still be on
/// its way when the connection is gone.
#[derive(Debug)]
struct Slot<L> {
    generation: u32,
    connection: Option<L>,
}

/// The number of the pool whose connection has this token.
pub(crate) fn number_of(token: u64) -> usize {
    (token >> 56) as usize
}

impl<L: PooledConnection> Pool<L> {
    /// An empty pool with `reserved` slots that [`Pool::open_at`] uses; `number` differs from the other
    /// pools' on the same epoll.
    pub(crate) fn new(number: u8, destination: Destination, reserved: u32, make: fn(Transport) -> L) -> Self {
        Self {
            destination,
            make,
            number,
            slots: (0..reserved).map(|_| Slot { generation: 0, connection: None }).collect(),
            free: Vec::new(),
            idle: VecDeque::new(),
            next_source: 0,
            attempts: VecDeque::new(),
            open: 0,
            connecting: 0,
            established: 0,
            handshakes: Vec::new(),
        }
    }

    /// The token of whatever is in that slot now.
    pub(crate) fn token(&self, index: u32) -> u64 {
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        u64::from(self.number) << 56 | u64::from(generation) << 32 | u64::from(index)
    }

    #[inline]
    pub(crate) fn connection(&mut self, token: u64) -> Option<&mut L> {
        let slot = self.slots.get_mut(token as u32 as usize)?;
        if slot.generation != (token >> 32) as u32 & GENERATION_MASK {
            return None;
        }
        slot.connection.as_mut()
    }

    /// The tokens of all slots, full and empty.
    pub(crate) fn tokens(&self) -> Vec<u64> {
        (0..self.slots.len() as u32).map(|index| self.token(index)).collect()
    }

    /// Starts to connect in any slot.
    ///
    /// Errors: those of connect(2).
    pub(crate) fn open(&mut self, epoll: &Epoll) -> io::Result<u64> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        self.open_at(index, epoll).inspect_err(|_| self.free.push(index))
    }

    /// Starts to connect in an empty slot of those that were reserved.
    ///
    /// Errors: those of connect(2).
    pub(crate) fn open_at(&mut self, index: u32, epoll: &Epoll) -> io::Result<u64> {
        let fd = net::connect_from(
            self.destination.address,
            self.source(),
            self.destination.receive_buffer_bytes,
        )?;
        let token = self.token(index);
        epoll.add(&fd, token, Watch::Connection)?;
        let connection = (self.make)(Transport::new(fd, &self.destination.opening)?);
        self.slots[index as usize].connection = Some(connection);
        self.open += 1;
        self.connecting += 1;
        self.attempts.push_back(token);
        if self.attempts.len() > ATTEMPTS_MIN.max(2 * self.connecting) {
            let mut attempts = std::mem::take(&mut self.attempts);
            attempts.retain(|&token| self.is_connecting(token));
            self.attempts = attempts;
        }
        Ok(token)
    }

    /// The connection that has been tried for longest without being established.
    pub(crate) fn oldest_attempt(&mut self) -> Option<u64> {
        while let Some(token) = self.attempts.pop_front() {
            if self.is_connecting(token) {
                return Some(token);
            }
        }
        None
    }

    fn is_connecting(&mut self, token: u64) -> bool {
        self.connection(token).is_some_and(|connection| connection.transport().is_connecting)
    }

    pub(crate) fn count(&self) -> OpenConnections {
        OpenConnections {
            established: (self.open - self.connecting) as u32,
            connecting: self.connecting as u32,
        }
    }

    pub(crate) fn establish(&mut self, token: u64, handshake: Option<Handshake>) -> Option<&mut L> {
        self.connecting -= 1;
        self.established += 1;
        if self.handshakes.len() < HANDSHAKES_MAX {
            self.handshakes.extend(handshake);
        }
        let connection = self.connection(token)?;
        connection.transport().is_connecting = false;
        Some(connection)
    }

    /// Marks a connection as one to receive from; gives whether it was not yet.
    pub(crate) fn list(&mut self, token: u64) -> bool {
        self.connection(token)
            .is_some_and(|connection| !std::mem::replace(&mut connection.transport().is_listed, true))
    }

    /// Whether a request can be sent on a connection.
    pub(crate) fn is_free(&mut self, token: u64) -> bool {
        self.connection(token)
            .is_some_and(|connection| !connection.transport().is_connecting && connection.is_idle())
    }

    /// A connection is free for any request.
    pub(crate) fn put_idle(&mut self, token: u64) {
        self.idle.push_back(token);
    }

    /// Takes the connection that has been free for longest.
    pub(crate) fn take_idle(&mut self) -> Option<u64> {
        while let Some(token) = self.idle.pop_front() {
            // One that ended is still in the list.
            if self.is_free(token) {
                return Some(token);
            }
        }
        None
    }

    /// Closes a connection. Its slot is free again, unless it was reserved.
    pub(crate) fn discard(&mut self, token: u64, reserved: bool) {
        let index = token as u32;
        if self.connection(token).is_none() {
            return;
        }
        let slot = &mut self.slots[index as usize];
        // Closing the only copy ends its place in epoll too.
        if let Some(mut connection) = slot.connection.take() {
            self.open -= 1;
            self.connecting -= usize::from(connection.transport().is_connecting);
        }
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        if !reserved {
            self.free.push(index);
        }
    }

    /// The address that the next connection is to come from.
    fn source(&mut self) -> Option<IpAddr> {
        if !matches!(self.destination.address.ip(), IpAddr::V4(ip) if ip.is_loopback()) {
            return None;
        }
        self.next_source = self.next_source % SOURCES + 1;
        Some(Ipv4Addr::new(127, 0, 0, self.next_source).into())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::connection::Connection;
    use super::*;

    fn pool(listener: &TcpListener) -> Pool<Connection> {
        let address = listener.local_addr().unwrap();
        Pool::new(
            0,
            Destination { address, opening: Opening::Plain, receive_buffer_bytes: None },
            0,
            Connection::new,
        )
    }

    #[test]
    fn free_connections_take_turns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let epoll = Epoll::new(8).unwrap();
        let mut pool = pool(&listener);
        let tokens: Vec<u64> = (0..3).map(|_| pool.open(&epoll).unwrap()).collect();
        for token in &tokens {
            pool.establish(*token, None);
            pool.put_idle(*token);
        }
        let mut taken = Vec::new();
        for _ in 0..6 {
            let token = pool.take_idle().unwrap();
            pool.put_idle(token);
            taken.push(token);
        }
        assert_eq!(taken, [&tokens[..], &tokens[..]].concat());
        pool.discard(tokens[0], false);
        assert_eq!(pool.take_idle(), Some(tokens[1]), "one that ended is passed over");
    }

    #[test]
    fn the_oldest_attempt_is_one_that_goes_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let epoll = Epoll::new(8).unwrap();
        let mut pool = pool(&listener);
        let mut tokens = Vec::new();
        for _ in 0..10 * ATTEMPTS_MIN {
            let token = pool.open(&epoll).unwrap();
            // Most end at once; every hundredth goes on.
            tokens.push((tokens.len() % 100 == 0).then_some(token));
            if tokens.last() == Some(&None) {
                pool.discard(token, false);
            }
            assert!(pool.attempts.len() <= ATTEMPTS_MIN + 1, "those that ended are forgotten");
        }
        let going: Vec<u64> = tokens.into_iter().flatten().collect();
        pool.establish(going[0], None);
        assert_eq!(pool.count(), OpenConnections { established: 1, connecting: going.len() as u32 - 1 });
        for &token in &going[1..] {
            assert_eq!(pool.oldest_attempt(), Some(token));
        }
        assert_eq!(pool.oldest_attempt(), None);
    }
}
