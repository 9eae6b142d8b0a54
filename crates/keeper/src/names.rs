//! Which names a table of bounded size keeps. Called by the keeper process, which writes the table.
//!
//! A name whose content is in the store is kept, because without it a helper would have to look it up although the
//! answer is in memory. Any other name makes room for the next one, oldest first. Names of absent files, of which
//! anybody can ask for as many as they like, have a small part of the table and make room only for each other; when
//! the table is full they make room for the others too.

/// Absent names have at most this part of the table.
const ABSENT_PART: u32 = 16;
/// How many slots are looked at for one that makes room.
const STEPS_MAX: u32 = 1024;

/// The two kinds of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameClass {
    /// Something.
    Present,
    /// Nothing.
    Absent,
}

/// A slot for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameSlot {
    /// Its number.
    pub slot: u32,
    /// Whether another name was in it, which is no longer known.
    pub evicts: bool,
}

/// The slots of a table of names. Memory use is two bytes for each slot up to the highest one.
#[derive(Debug)]
pub struct NameSlots {
    slots: Vec<Option<NameClass>>,
    /// Empty slots below the highest one that was used.
    empty: Vec<u32>,
    slots_max: u32,
    absent: u32,
    /// Where the next search begins.
    hand: u32,
}

impl NameSlots {
    /// An empty table.
    #[must_use]
    pub fn new(slots_max: u32) -> Self {
        Self { slots: Vec::new(), empty: Vec::new(), slots_max, absent: 0, hand: 0 }
    }

    /// Takes over the next slot of an earlier table.
    pub fn resume(&mut self, class: Option<NameClass>) {
        if class.is_none() {
            self.empty.push(self.slots.len() as u32);
        }
        self.absent += u32::from(class == Some(NameClass::Absent));
        self.slots.push(class);
    }

    /// The number of names.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.slots.len() - self.empty.len()) as u64
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a slot for a name. `is_stored` tells whether the content of the name is in the store, `has_stored` the same
    /// of a name in the table. None if all others are worth more.
    pub fn take(
        &mut self,
        class: NameClass,
        is_stored: bool,
        has_stored: impl Fn(u32) -> bool,
    ) -> Option<NameSlot> {
        let is_crowded = class == NameClass::Absent && self.absent >= (self.slots_max / ABSENT_PART).max(1);
        let free = if is_crowded { None } else { self.empty.pop().or_else(|| self.next_unused()) };
        let taken = match free {
            Some(slot) => NameSlot { slot, evicts: false },
            None => NameSlot { slot: self.take_victim(class, is_stored, has_stored)?, evicts: true },
        };
        self.set(taken.slot, Some(class));
        Some(taken)
    }

    /// The name in a slot now leads to something else.
    pub fn change(&mut self, slot: u32, class: NameClass) {
        self.set(slot, Some(class));
    }

    /// The name in a slot is no longer known. No effect on an empty slot.
    pub fn free(&mut self, slot: u32) {
        if self.slots.get(slot as usize).is_some_and(Option::is_some) {
            self.set(slot, None);
            self.empty.push(slot);
        }
    }

    fn set(&mut self, slot: u32, class: Option<NameClass>) {
        let Some(there) = self.slots.get_mut(slot as usize) else { return };
        self.absent -= u32::from(*there == Some(NameClass::Absent));
        self.absent += u32::from(class == Some(NameClass::Absent));
        *there = class;
    }

    fn next_unused(&mut self) -> Option<u32> {
        let slot = self.slots.len() as u32;
        (slot < self.slots_max).then(|| self.slots.push(None))?;
        Some(slot)
    }

    /// The next slot whose name makes room for one of this class.
    fn take_victim(&mut self, class: NameClass, is_stored: bool, has_stored: impl Fn(u32) -> bool) -> Option<u32> {
        let slots = self.slots.len() as u32;
        let first = self.hand;
        for _ in 0..STEPS_MAX.min(slots) {
            let slot = self.hand % slots;
            self.hand = (slot + 1) % slots;
            match self.slots[slot as usize] {
                Some(NameClass::Absent) => return Some(slot),
                Some(NameClass::Present) if class == NameClass::Present && !has_stored(slot) => {
                    return Some(slot);
                }
                Some(NameClass::Present) | None => {}
            }
        }
        // Only stored ones: the oldest of them makes room for one that is stored too.
        let oldest = first.checked_rem(slots).filter(|_| is_stored && class == NameClass::Present)?;
        self.hand = (oldest + 1) % slots;
        self.slots[oldest as usize].is_some().then_some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::NameClass::{Absent, Present};
    use super::*;

    fn full(slots_max: u32) -> NameSlots {
        let mut slots = NameSlots::new(slots_max);
        for slot in 0..slots_max {
            assert_eq!(slots.take(Present, true, |_| true), Some(NameSlot { slot, evicts: false }));
        }
        slots
    }

    #[test]
    fn names_without_stored_content_make_room_for_each_other_only() {
        let mut slots = full(100);
        let stored = |slot| slot != 7 && slot != 50;
        assert_eq!(slots.take(Present, false, stored), Some(NameSlot { slot: 7, evicts: true }));
        assert_eq!(slots.take(Present, false, stored), Some(NameSlot { slot: 50, evicts: true }));
        assert_eq!(slots.take(Present, false, stored), Some(NameSlot { slot: 7, evicts: true }));
        assert_eq!(slots.take(Present, false, |_| true), None);
        assert!(slots.take(Present, true, |_| true).is_some_and(|taken| taken.evicts));
    }

    #[test]
    fn absent_names_have_a_bound_and_drive_out_no_other() {
        let mut slots = NameSlots::new(160);
        (0..100).for_each(|_| assert!(slots.take(Present, false, |_| false).is_some()));
        let mut taken: Vec<u32> =
            (0..1_000).filter_map(|_| slots.take(Absent, false, |_| false)).map(|taken| taken.slot).collect();
        assert_eq!(taken.len(), 1_000);
        taken.sort_unstable();
        taken.dedup();
        assert_eq!((taken.len(), taken[0], slots.len()), (10, 100, 110));
        (0..50).for_each(|_| assert!(slots.take(Present, false, |_| true).is_some()));
        let over = slots.take(Present, false, |_| true).expect("an absent one makes room");
        assert!(over.evicts && taken.contains(&over.slot));
    }

    #[test]
    fn a_freed_slot_is_used_again_also_by_the_next_keeper() {
        let mut slots = full(3);
        slots.free(1);
        slots.free(1);
        slots.free(9);
        assert_eq!(slots.len(), 2);
        slots.change(2, Absent);
        let mut next = NameSlots::new(3);
        [Some(Present), None, Some(Absent)].into_iter().for_each(|class| next.resume(class));
        for mut slots in [slots, next] {
            assert_eq!(slots.take(Present, false, |_| true), Some(NameSlot { slot: 1, evicts: false }));
            assert_eq!(slots.take(Present, false, |_| true), Some(NameSlot { slot: 2, evicts: true }));
            assert_eq!(slots.take(Absent, false, |_| true), None, "all others are worth more");
        }
    }
}
