//! The slots of the file that holds bodies: which are free, and how many each client has. Called by [`spool`](super).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Slot;
use crate::limits::SPOOL_SHARE_ONE_IN;
use crate::machine::JobId;
use crate::shares::{ClientShares, Sharer};
use crate::slab::{ClientNumber, HeldKey};

/// The slots of the file.
#[derive(Debug)]
pub(super) struct Slots {
    slots: u32,
    /// Slots from this one on were never used.
    unused_from: Slot,
    /// Free slots before it. The lowest is taken first, so the file stays short.
    free: BinaryHeap<Reverse<Slot>>,
    of_clients: ClientShares,
    /// Slots to which a helper may still write, by the job that was given up.
    late: HashMap<JobId, Slot>,
}

impl Slots {
    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots,
            unused_from: 0,
            free: BinaryHeap::new(),
            of_clients: ClientShares::default(),
            late: HashMap::new(),
        }
    }

    /// Takes a slot for a body of a client. Answers leave half of the slots to request bodies: without a slot an answer
    /// slows its server down, and a request is refused.
    pub(super) fn take(&mut self, sharer: Sharer, body: HeldKey) -> Option<Slot> {
        let slots = self.slots as usize;
        let kept = if matches!(body, HeldKey::Answer(_)) { slots / 2 } else { 0 };
        let free = (slots - self.used()).saturating_sub(kept);
        if !self.of_clients.has_room(sharer, free, SPOOL_SHARE_ONE_IN) {
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
        self.of_clients.take(sharer.client, 1);
        Some(slot)
    }

    /// Counts one slot less for a client.
    pub(super) fn leave(&mut self, client: ClientNumber) {
        self.of_clients.give_back(client, 1);
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
    use crate::slab::{ExchangeKey, Slab};

    fn request() -> HeldKey {
        HeldKey::Request(ExchangeKey(Slab::new().insert(())))
    }

    fn answer() -> HeldKey {
        HeldKey::Answer(request().exchange())
    }

    fn client(number: u64) -> Sharer {
        Sharer { client: ClientNumber(number), is_exempt: false }
    }

    /// Takes as many slots as a client gets.
    fn take_all(slots: &mut Slots, number: u64, body: HeldKey) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take(client(number), body)).collect()
    }

    #[test]
    fn a_client_gets_its_part_of_what_is_free_and_the_lowest_first() {
        let mut slots = Slots::new(20);
        assert_eq!(take_all(&mut slots, 1, request()), [0, 1, 2, 3]);
        assert_eq!(take_all(&mut slots, 2, request()), [4, 5, 6, 7]);
        assert_eq!(take_all(&mut slots, 3, request()).len(), 3);
        for slot in [1, 0] {
            slots.leave(ClientNumber(1));
            slots.free(slot);
        }
        assert_eq!(slots.take(client(4), request()), Some(0));
        assert_eq!(slots.used(), 10);
        let all = Sharer { is_exempt: true, ..client(5) };
        assert_eq!(std::iter::from_fn(|| slots.take(all, request())).count(), 10);
    }

    #[test]
    fn answers_leave_half_to_requests() {
        let mut slots = Slots::new(20);
        let taken: usize = (0..100).map(|number| take_all(&mut slots, number, answer()).len()).sum();
        assert_eq!(taken, 10);
        assert!(!take_all(&mut slots, 200, request()).is_empty());
    }

    #[test]
    fn a_slot_to_which_a_helper_may_write_is_not_taken() {
        let mut slots = Slots::new(2);
        let job = JobId(Slab::new().insert(()));
        let slot = slots.take(client(1), request()).expect("free");
        slots.leave(ClientNumber(1));
        slots.hold_for(slot, job);
        assert_eq!(slots.take(client(1), request()), Some(1));
        assert_eq!(slots.take(client(2), request()), None);
        slots.helper_gone(job);
        assert_eq!(slots.take(client(2), request()), Some(slot));
    }
}
