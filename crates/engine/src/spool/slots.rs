//! The slots of the file that holds request bodies: which are free, and how many each client has. Called by
//! [`spool`](super).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Slot;
use crate::machine::JobId;
use crate::slab::ClientNumber;

/// The slots of the file.
#[derive(Debug)]
pub(super) struct Slots {
    slots: u32,
    /// Slots from this one on were never used.
    unused_from: Slot,
    /// Free slots before it. The lowest is taken first, so the file stays short.
    free: BinaryHeap<Reverse<Slot>>,
    of_clients: HashMap<ClientNumber, u32>,
    /// Slots to which a helper may still write, by the job that was given up.
    late: HashMap<JobId, Slot>,
}

impl Slots {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots,
            unused_from: 0,
            free: BinaryHeap::new(),
            of_clients: HashMap::new(),
            late: HashMap::new(),
        }
    }

    /// Takes a slot for a client. No client can take more than half of them.
    pub(super) fn take(&mut self, client: ClientNumber) -> Option<Slot> {
        let theirs = self.of_clients.get(&client).copied().unwrap_or(0);
        if theirs >= self.slots.div_ceil(2) {
            return None;
        }
        let slot = match self.free.pop() {
            Some(Reverse(slot)) => slot,
            None if self.unused_from < self.slots => {
                self.unused_from += 1;
                self.unused_from - 1
            }
            None => return None,
        };
        self.of_clients.insert(client, theirs + 1);
        Some(slot)
    }

    /// Counts one slot less for a client.
    pub(super) fn leave(&mut self, client: ClientNumber) {
        if let Some(theirs) = self.of_clients.get_mut(&client) {
            *theirs -= 1;
            if *theirs == 0 {
                self.of_clients.remove(&client);
            }
        }
    }

    /// Frees a slot that nobody has.
    pub(super) fn free(&mut self, slot: Slot) {
        self.free.push(Reverse(slot));
    }

    /// Keeps a slot until the helper of a job that was given up has ended.
    pub(super) fn hold_for(&mut self, slot: Slot, job: JobId) {
        self.late.insert(job, slot);
    }

    /// Frees the slot for which the helper of this job had to end.
    pub(super) fn helper_gone(&mut self, job: JobId) {
        if let Some(slot) = self.late.remove(&job) {
            self.free(slot);
        }
    }

    /// Slots that cannot be taken now.
    pub(super) fn used(&self) -> usize {
        self.unused_from as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn a_client_gets_half_and_the_lowest_first() {
        let mut slots = Slots::new(4);
        let (one, other) = (ClientNumber(1), ClientNumber(2));
        assert_eq!([slots.take(one), slots.take(one), slots.take(one)], [Some(0), Some(1), None]);
        assert_eq!([slots.take(other), slots.take(other)], [Some(2), Some(3)]);
        assert_eq!(slots.take(ClientNumber(3)), None, "all are taken");
        for slot in [1, 0] {
            slots.leave(one);
            slots.free(slot);
        }
        assert_eq!(slots.take(one), Some(0));
        assert_eq!(slots.used(), 3);
    }

    #[test]
    fn a_slot_to_which_a_helper_may_write_is_not_taken() {
        let mut slots = Slots::new(2);
        let job = JobId(Slab::new().insert(()));
        let slot = slots.take(ClientNumber(1)).expect("free");
        slots.leave(ClientNumber(1));
        slots.hold_for(slot, job);
        assert_eq!(slots.take(ClientNumber(1)), Some(1));
        assert_eq!(slots.take(ClientNumber(2)), None);
        slots.helper_gone(job);
        assert_eq!(slots.take(ClientNumber(2)), Some(slot));
    }
}
