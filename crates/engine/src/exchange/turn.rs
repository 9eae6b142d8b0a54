//! Everything that the engine lends to a connection for one turn, and the bounds of such a turn. Made by
//! [`Engine`](crate::Engine) for each event, and passed on by the wires.

use std::collections::HashMap;

use super::Exchanges;
use crate::context::Context;
use crate::limits::{
    H2_REQUESTS_PER_TURN_MAX, HEADS_BYTES_MAX, HEADS_BYTES_PER_CLIENT_MAX, REQUESTS_PER_TURN_MAX,
    SEND_BYTES_PER_TURN_MAX,
};
use crate::machine::Machine;
use crate::slab::ClientNumber;
use crate::upstream::Links;

/// Everything that is lent to a connection for one turn.
#[derive(Debug)]
pub(crate) struct Turn<'t, M: Machine> {
    pub(crate) context: Context<'t, M>,
    pub(crate) exchanges: &'t mut Exchanges<M::File>,
    pub(crate) links: &'t mut Links<M::Socket>,
    pub(crate) inputs: &'t mut Inputs,
    pub(crate) budget: Budget,
    pub(crate) draining: bool,
    /// The request being served, for the report of a panic.
    pub(crate) serving: &'t mut Serving,
    /// Buffer for response heads.
    pub(crate) head: &'t mut Vec<u8>,
}

/// The rest of a connection's budget for this turn.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) requests: u32,
    pub(crate) bytes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { requests: REQUESTS_PER_TURN_MAX, bytes: SEND_BYTES_PER_TURN_MAX }
    }

    /// The budget of a connection of HTTP/2.
    pub(crate) fn of_h2() -> Self {
        Self { requests: H2_REQUESTS_PER_TURN_MAX, ..Self::new() }
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

/// The request that a panic is attributed to.
#[derive(Debug, Default)]
pub(crate) enum Serving {
    #[default]
    None,
    /// The request at this offset of the receive buffer.
    InBuffer(usize),
    /// The request with this first line.
    Line(Vec<u8>),
}

/// Bytes of input held, in total and per client.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    bytes: usize,
    of_clients: HashMap<ClientNumber, usize>,
}

impl Inputs {
    pub(crate) fn take(&mut self, client: ClientNumber, bytes: usize) -> bool {
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
    fn one_client_cannot_take_all_the_room_for_input() {
        let mut inputs = Inputs::default();
        let number = |n: u8| ClientNumber(n.into());
        assert!(inputs.take(number(1), HEADS_BYTES_PER_CLIENT_MAX));
        assert!(!inputs.take(number(1), 1));
        let clients = (HEADS_BYTES_MAX / HEADS_BYTES_PER_CLIENT_MAX) as u8;
        for n in 2..=clients {
            assert!(inputs.take(number(n), HEADS_BYTES_PER_CLIENT_MAX));
        }
        assert!(!inputs.take(number(clients + 1), 1), "the total is bounded too");
        inputs.give_back(number(1), HEADS_BYTES_PER_CLIENT_MAX);
        assert!(inputs.take(number(clients + 1), 1));
    }
}
