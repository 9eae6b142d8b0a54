//! Free slots whose room the file system still keeps: when it is given back. Called by [`slots`](super::slots).
//!
//! The lowest free slot is taken first, so the slots of a busy server are taken again soon, and the highest ones have been
//! idle for longest.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Slot;
use crate::limits::SPOOL_IDLE_LOOKS_MAX;

/// The idle room.
#[derive(Debug)]
pub(super) struct IdleRoom {
    /// The time between two looks.
    period_ms: u64,
    /// Each slot, with the number of looks before it became free.
    slots: BTreeMap<Slot, u32>,
    looks: u32,
    look_ms: Option<u64>,
}

impl IdleRoom {
    /// Slots are given back once they have been idle for `period_ms` to twice as long.
    pub(super) fn new(period_ms: u64) -> Self {
        Self { period_ms, slots: BTreeMap::new(), looks: 0, look_ms: None }
    }

    /// Adds a slot that has become free.
    pub(super) fn add(&mut self, slot: Slot) {
        self.slots.insert(slot, self.looks);
    }

    /// Removes a slot that is taken.
    pub(super) fn remove(&mut self, slot: Slot) {
        self.slots.remove(&slot);
    }

    /// Removes all slots.
    pub(super) fn clear(&mut self) {
        self.slots.clear();
    }

    /// Looks, if it is time. Returns whether it has.
    pub(super) fn look(&mut self, now_ms: u64) -> bool {
        if self.slots.is_empty() {
            self.look_ms = None;
            return false;
        }
        let is_due = self.look_ms.is_some_and(|look_ms| look_ms <= now_ms);
        if is_due {
            self.looks = self.looks.wrapping_add(1);
        }
        if is_due || self.look_ms.is_none() {
            self.look_ms = Some(now_ms + self.period_ms);
        }
        is_due
    }

    /// When the next look is due, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.look_ms.filter(|_| !self.slots.is_empty())
    }

    /// The highest slots in one piece that were idle for the whole time between two looks, at most `most`.
    pub(super) fn highest(&self, most: usize) -> Option<Range<Slot>> {
        let is_long = |since: u32| self.looks.wrapping_sub(since) >= 2;
        let mut highest =
            self.slots.iter().rev().take(SPOOL_IDLE_LOOKS_MAX).filter(|(_, since)| is_long(**since));
        let end = *highest.next().filter(|_| most > 0)?.0 + 1;
        let rest = self.slots.range(..end).rev().take(most);
        let in_one_piece =
            rest.zip(1..).take_while(|((slot, since), nth)| **slot + nth == end && is_long(**since));
        let length = in_one_piece.count() as u32;
        Some(end - length..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_MS: u64 = 5_000;

    #[test]
    fn what_is_free_between_two_looks_is_given_back_from_the_top() {
        let mut idle = IdleRoom::new(PERIOD_MS);
        assert!(!idle.look(0) && idle.next_ms().is_none());
        [3, 4, 6, 7, 8].into_iter().for_each(|slot| idle.add(slot));
        assert!(!idle.look(100));
        assert_eq!(idle.next_ms(), Some(100 + PERIOD_MS));
        assert!(idle.look(100 + PERIOD_MS));
        assert_eq!(idle.highest(10), None, "some may have been free for a moment only");
        idle.add(9);
        assert!(idle.look(100 + 2 * PERIOD_MS));
        assert_eq!((idle.highest(10), idle.highest(2), idle.highest(0)), (Some(6..9), Some(7..9), None));
        // It is taken and free again.
        idle.remove(7);
        idle.add(7);
        assert_eq!(idle.highest(10), Some(8..9));
        [6, 7, 8, 9].into_iter().for_each(|slot| idle.remove(slot));
        assert_eq!(idle.highest(10), Some(3..5));
        idle.clear();
        assert!(!idle.look(u64::MAX) && idle.next_ms().is_none());
    }
}
