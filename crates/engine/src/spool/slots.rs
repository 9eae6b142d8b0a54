//! The slots of the file that holds bodies: which are free, and how many each client has. Called by [`spool`](super).

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use super::Slot;
use super::idle::IdleRoom;
use crate::limits::{SPOOL_GIVEN_BACK_MAX, SPOOL_KEPT_SLOTS, SPOOL_SHARE_ONE_IN};
use crate::machine::JobId;
use crate::shares::{ClientShares, Sharer};
use crate::slab::{ClientNumber, SpooledKey};

/// The slots of the file.
#[derive(Debug)]
pub(super) struct Slots {
    slots: u32,
    /// Slots from this one on were never used.
    unused_from: Slot,
    /// Free slots before it. The lowest is taken first, so the file stays short.
    free: BTreeSet<Slot>,
    /// Those of them that the file system has room for.
    idle: IdleRoom,
    way: WayBack,
    /// The room that a helper gives back.
    giving: Option<Giving>,
    /// Whether there may be more to give back since the latest look.
    is_looking: bool,
    of_clients: ClientShares,
    /// Slots to which a helper may still write, by the job that was given up.
    late: HashMap<JobId, Slot>,
}

/// How room is given back to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayBack {
    /// As holes in the file.
    Holes,
    /// By cutting the file off, once it holds nothing.
    Cut,
    /// It cannot be.
    None,
}

/// Room that a helper gives back. No slot in it is taken until the helper is done.
#[derive(Debug)]
struct Giving {
    slots: Range<Slot>,
    is_cut: bool,
    /// The job that was given up, if its helper is still at it.
    late: Option<JobId>,
}

/// A part of the file to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Back {
    Hole(Range<Slot>),
    /// Everything from this slot on.
    From(Slot),
}

/// The result of giving room back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenBack {
    Done,
    NotDone,
    /// The file system cannot do it.
    Unsupported,
}

impl Slots {
    pub(super) fn new(slots: u32, idle_ms: u64) -> Self {
        Self {
            slots,
            unused_from: 0,
            free: BTreeSet::new(),
            idle: IdleRoom::new(idle_ms),
            way: WayBack::Holes,
            giving: None,
            is_looking: false,
            of_clients: ClientShares::default(),
            late: HashMap::new(),
        }
    }

    /// Takes a slot for a body of a client. Answers leave half of the slots to request bodies: without a slot an answer
    /// slows its server down, and a request is refused.
    pub(super) fn take(&mut self, sharer: Sharer, body: SpooledKey) -> Option<Slot> {
        let slots = self.slots as usize;
        let kept = if matches!(body, SpooledKey::Answer(_)) { slots / 2 } else { 0 };
        let free = (slots - self.used()).saturating_sub(kept);
        if !self.of_clients.has_room(sharer, free, SPOOL_SHARE_ONE_IN) {
            return None;
        }
        // Room that is being given back counts as free, and is not taken.
        let end =
            self.giving.as_ref().filter(|giving| giving.is_cut).map_or(self.slots, |cut| cut.slots.start);
        let slot = match self.free.pop_first() {
            Some(slot) => slot,
            None if self.unused_from < end => {
                self.unused_from += 1;
                self.unused_from - 1
            }
            None => return None,
        };
        self.idle.remove(slot);
        self.of_clients.take(sharer.client, 1);
        Some(slot)
    }

    /// Counts one slot less for a client.
    pub(super) fn leave(&mut self, client: ClientNumber) {
        self.of_clients.give_back(client, 1);
    }

    /// Frees a slot that nobody has.
    pub(super) fn free(&mut self, slot: Slot) {
        self.free.insert(slot);
        if self.way != WayBack::None {
            self.idle.add(slot);
        }
    }

    /// Keeps a slot until the helper of a job that was given up has ended.
    pub(super) fn hold_for(&mut self, slot: Slot, job: JobId) {
        self.late.insert(job, slot);
    }

    /// Frees the slots for which the helper of this job had to end.
    pub(super) fn helper_gone(&mut self, job: JobId) {
        if let Some(slot) = self.late.remove(&job) {
            self.free(slot);
        }
        if self.giving.as_ref().is_some_and(|giving| giving.late == Some(job)) {
            self.given_back(GivenBack::NotDone, None);
        }
    }

    /// The next part of the file to give back, if it is time and no other is being given back.
    pub(super) fn give_back(&mut self, now_ms: u64) -> Option<Back> {
        self.is_looking |= self.idle.look(now_ms);
        if !self.is_looking || self.giving.is_some() {
            return None;
        }
        let back = match self.way {
            WayBack::Holes => self.next_hole(),
            WayBack::Cut => self.cut(),
            WayBack::None => None,
        };
        self.is_looking = back.is_some();
        back
    }

    /// Up to half of the free slots, so that others remain for bodies meanwhile.
    fn next_hole(&mut self) -> Option<Back> {
        let free = self.slots as usize - self.used();
        let hole = self.idle.highest(free.div_ceil(2).min(SPOOL_GIVEN_BACK_MAX))?;
        for slot in hole.clone() {
            self.free.remove(&slot);
            self.idle.remove(slot);
        }
        self.giving = Some(Giving { slots: hole.clone(), is_cut: false, late: None });
        Some(Back::Hole(hole))
    }

    /// All that was ever used, except a little for bodies meanwhile. A helper that cuts the file off must find nothing
    /// behind that place, so this waits until no slot is taken.
    fn cut(&mut self) -> Option<Back> {
        let kept = SPOOL_KEPT_SLOTS.min(self.slots / 2);
        if self.unused_from <= kept {
            self.idle.clear();
        }
        if self.used() > 0 || self.idle.highest(1).is_none() {
            return None;
        }
        drop(self.free.split_off(&kept));
        self.idle.clear();
        self.giving = Some(Giving { slots: kept..self.unused_from, is_cut: true, late: None });
        self.unused_from = kept;
        Some(Back::From(kept))
    }

    /// Takes the end of a job that gave room back. `late` is the job if its helper may still be at it.
    pub(super) fn given_back(&mut self, result: GivenBack, late: Option<JobId>) {
        let Some(mut giving) = self.giving.take() else { return };
        if late.is_some() {
            giving.late = late;
            self.giving = Some(giving);
            return;
        }
        if result == GivenBack::Unsupported {
            self.way = if self.way == WayBack::Holes { WayBack::Cut } else { WayBack::None };
        }
        let is_done = result == GivenBack::Done;
        self.is_looking |= is_done;
        if giving.is_cut && is_done {
            return;
        }
        if giving.is_cut {
            self.unused_from = giving.slots.end;
        }
        for slot in giving.slots {
            if is_done {
                self.free.insert(slot);
            } else {
                self.free(slot);
            }
        }
    }

    /// When the next look for idle room is due, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.idle.next_ms()
    }

    /// Slots that bodies have, and those that a helper may still write to.
    pub(super) fn used(&self) -> usize {
        let given = self.giving.as_ref().filter(|giving| !giving.is_cut).map_or(0, |hole| hole.slots.len());
        self.unused_from as usize - self.free.len() - given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::{ExchangeKey, Slab};

    const IDLE_MS: u64 = 5_000;

    fn request() -> SpooledKey {
        SpooledKey::Request(ExchangeKey(Slab::new().insert(())))
    }

    fn answer() -> SpooledKey {
        SpooledKey::Answer(request().exchange())
    }

    fn client(number: u64) -> Sharer {
        Sharer { client: ClientNumber(number), is_exempt: false }
    }

    /// Takes as many slots as a client gets.
    fn take_all(slots: &mut Slots, number: u64, body: SpooledKey) -> Vec<Slot> {
        std::iter::from_fn(|| slots.take(client(number), body)).collect()
    }

    #[test]
    fn a_client_gets_its_part_of_what_is_free_and_the_lowest_first() {
        let mut slots = Slots::new(20, IDLE_MS);
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
        let mut slots = Slots::new(20, IDLE_MS);
        let taken: usize = (0..100).map(|number| take_all(&mut slots, number, answer()).len()).sum();
        assert_eq!(taken, 10);
        assert!(!take_all(&mut slots, 200, request()).is_empty());
    }

    #[test]
    fn a_slot_to_which_a_helper_may_write_is_not_taken() {
        let mut slots = Slots::new(2, IDLE_MS);
        let job = JobId(Slab::new().insert(()));
        let slot = slots.take(client(1), request()).expect("free");
        slots.leave(ClientNumber(1));
        slots.hold_for(slot, job);
        assert_eq!(slots.take(client(1), request()), Some(1));
        assert_eq!(slots.take(client(2), request()), None);
        slots.helper_gone(job);
        assert_eq!(slots.take(client(2), request()), Some(slot));
    }

    /// Takes and frees this many slots, of a client for each, and lets time pass until they are idle for long. Returns the
    /// next part to give back.
    fn idle_for_long(slots: &mut Slots, count: u64, now_ms: &mut u64) -> Option<Back> {
        let taken: Vec<Slot> =
            (0..count).filter_map(|number| slots.take(client(number), request())).collect();
        for (number, slot) in taken.into_iter().enumerate() {
            slots.leave(ClientNumber(number as u64));
            slots.free(slot);
        }
        assert_eq!(slots.give_back(*now_ms), None);
        *now_ms += IDLE_MS;
        assert_eq!(slots.give_back(*now_ms), None, "not at once");
        *now_ms += IDLE_MS;
        slots.give_back(*now_ms)
    }

    #[test]
    fn idle_room_is_given_back_and_taken_again() {
        let (mut slots, mut now_ms) = (Slots::new(20, IDLE_MS), 0);
        assert_eq!(idle_for_long(&mut slots, 12, &mut now_ms), Some(Back::Hole(2..12)), "half of 20");
        assert_eq!((slots.used(), slots.give_back(now_ms)), (0, None));
        // The other slots can be taken meanwhile.
        let taken: Vec<Slot> = (0..10).filter_map(|number| slots.take(client(number), request())).collect();
        assert_eq!(taken, [0, 1, 12, 13, 14, 15, 16, 17, 18, 19]);
        assert_eq!(slots.take(client(20), request()), None);
        slots.given_back(GivenBack::Done, None);
        assert_eq!((slots.used(), slots.take(client(20), request())), (10, Some(2)));
        assert_eq!(slots.give_back(now_ms), None, "nothing is left");
        assert_eq!(slots.next_ms(), None);
    }

    #[test]
    fn a_file_without_holes_is_cut_once_it_holds_nothing() {
        let (mut slots, mut now_ms) = (Slots::new(100, IDLE_MS), 0);
        assert_eq!(idle_for_long(&mut slots, 30, &mut now_ms), Some(Back::Hole(0..30)));
        slots.given_back(GivenBack::Unsupported, None);
        let held = slots.take(client(1), request()).expect("free");
        assert_eq!(idle_for_long(&mut slots, 30, &mut now_ms), None, "one is held");
        slots.leave(ClientNumber(1));
        slots.free(held);
        assert_eq!(idle_for_long(&mut slots, 40, &mut now_ms), Some(Back::From(SPOOL_KEPT_SLOTS)));
        let taken: Vec<Slot> = (0..100).filter_map(|number| slots.take(client(number), request())).collect();
        assert_eq!(taken, Vec::from_iter(0..SPOOL_KEPT_SLOTS), "nothing behind the cut");
        slots.given_back(GivenBack::NotDone, None);
        assert_eq!((slots.used(), slots.take(client(200), request())), (8, Some(8)));
        slots.free(8);
        for (number, slot) in taken.into_iter().enumerate() {
            slots.leave(ClientNumber(number as u64));
            slots.free(slot);
        }
        assert_eq!(idle_for_long(&mut slots, 10, &mut now_ms), Some(Back::From(SPOOL_KEPT_SLOTS)));
        slots.given_back(GivenBack::Done, None);
        assert_eq!((slots.used(), slots.next_ms(), slots.unused_from), (0, None, SPOOL_KEPT_SLOTS));
        assert_eq!(idle_for_long(&mut slots, 30, &mut now_ms), Some(Back::From(SPOOL_KEPT_SLOTS)));
        slots.given_back(GivenBack::Unsupported, None);
        assert_eq!(idle_for_long(&mut slots, 30, &mut now_ms), None, "there is no other way");
    }

    #[test]
    fn room_that_a_lost_helper_may_still_give_back_is_not_taken() {
        let (mut slots, mut now_ms) = (Slots::new(2, IDLE_MS), 0);
        assert_eq!(idle_for_long(&mut slots, 2, &mut now_ms), Some(Back::Hole(1..2)));
        let job = JobId(Slab::new().insert(()));
        slots.given_back(GivenBack::NotDone, Some(job));
        assert_eq!(slots.take(client(1), request()), Some(0));
        assert_eq!(slots.take(client(2), request()), None);
        slots.helper_gone(job);
        assert_eq!(slots.take(client(2), request()), Some(1));
    }
}
