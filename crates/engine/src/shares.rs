//! The share of each client in something that all clients use: the connections and the queue of an upstream, the slots
//! and the memory of the spool. Called by [`upstream`](crate::upstream) and [`spool`](crate::spool).
//!
//! A client may take one more as long as it holds less than a part of what is still free (the dynamic threshold of
//! Choudhury and Hahne, 1998). So one client alone can take much, many clients get equal parts, and the next client
//! always finds something left. The number of clients need not be known.

use std::collections::HashMap;

use crate::slab::ClientNumber;

/// A client, as far as its share is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharer {
    pub(crate) client: ClientNumber,
    /// Whether it stands for many clients, so that its share has no bound.
    pub(crate) is_exempt: bool,
}

/// How much each client holds. Without entries for clients that hold nothing.
#[derive(Debug, Default)]
pub(crate) struct ClientShares(HashMap<ClientNumber, usize>);

impl ClientShares {
    /// How much a client holds.
    pub(crate) fn held(&self, client: ClientNumber) -> usize {
        self.0.get(&client).copied().unwrap_or(0)
    }

    /// Whether a client may take one more while this many are free, if its share is one `part`-th of those.
    pub(crate) fn has_room(&self, sharer: Sharer, free: usize, part: usize) -> bool {
        free > 0 && (sharer.is_exempt || self.held(sharer.client) < free.div_ceil(part))
    }

    pub(crate) fn take(&mut self, client: ClientNumber, count: usize) {
        if count > 0 {
            *self.0.entry(client).or_default() += count;
        }
    }

    pub(crate) fn give_back(&mut self, client: ClientNumber, count: usize) {
        if let Some(held) = self.0.get_mut(&client) {
            *held -= count;
            if *held == 0 {
                self.0.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_finds_a_part_of_what_the_others_have_left() {
        let mut shares = ClientShares::default();
        let mut free = 16;
        let mut got = Vec::new();
        for number in 0..6 {
            let sharer = Sharer { client: ClientNumber(number), is_exempt: false };
            while shares.has_room(sharer, free, 1) {
                shares.take(sharer.client, 1);
                free -= 1;
            }
            got.push(shares.held(sharer.client));
        }
        assert_eq!((got, free), (vec![8, 4, 2, 1, 1, 0], 0));
        for (number, held) in [8, 4, 2, 1, 1].into_iter().enumerate() {
            shares.give_back(ClientNumber(number as u64), held);
        }
        assert!(shares.0.is_empty(), "clients that hold nothing are forgotten");
    }

    #[test]
    fn an_exempt_client_can_take_all() {
        let mut shares = ClientShares::default();
        let sharer = Sharer { client: ClientNumber(1), is_exempt: true };
        shares.take(sharer.client, 3);
        assert!(shares.has_room(sharer, 1, 4));
        assert!(!shares.has_room(sharer, 0, 4));
        assert!(!shares.has_room(Sharer { is_exempt: false, ..sharer }, 3, 1));
    }
}
