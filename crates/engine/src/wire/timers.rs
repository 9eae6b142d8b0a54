//! Deadlines of connections: a timer wheel with lazy entries. Called by [`wire`](crate::wire).
//!
//! A deadline that moves later costs nothing: its old entry comes up, is checked and filed again. So a hit
//! never touches the wheel.

use std::cell::Cell;

use crate::limits::{TICK_MS, TICKS};
use crate::slab::Key;

/// Where a search of the timers reached its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SearchPlace {
    tick: u64,
    place: usize,
}

/// The result for an entry in a search of the timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// The search is over.
    Found,
    /// The entry stays, and the search continues.
    Pass,
    /// The entry is stale and is removed.
    Gone,
}

#[derive(Debug)]
pub(crate) struct Timers {
    wheel: Vec<Vec<Key>>,
    /// All ticks before this one are done.
    next_tick: u64,
    entries: usize,
    /// No entry has an earlier tick: the search for the next entry begins here.
    earliest: Cell<u64>,
}

impl Timers {
    pub(crate) fn new(now_ms: u64) -> Self {
        let next_tick = now_ms / TICK_MS;
        let wheel = (0..TICKS).map(|_| Vec::new()).collect();
        Self { wheel, next_tick, entries: 0, earliest: Cell::new(next_tick) }
    }

    /// Files `key` under the tick of `deadline_ms`, or earlier if that is beyond the end of the wheel.
    /// Returns the tick.
    pub(crate) fn file(&mut self, key: Key, deadline_ms: u64) -> u64 {
        let latest = self.next_tick + TICKS as u64 - 1;
        // Rounded up, so that a timer never comes up before its deadline.
        let tick = (deadline_ms / TICK_MS + 1).clamp(self.next_tick, latest);
        self.wheel[tick as usize % TICKS].push(key);
        self.earliest.set(self.earliest.get().min(tick));
        self.entries += 1;
        tick
    }

    /// The next tick that is due at `now_ms`, with its entries.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<(u64, Vec<Key>)> {
        let now_tick = now_ms / TICK_MS;
        while self.next_tick <= now_tick {
            let tick = self.next_tick;
            if self.entries == 0 {
                self.next_tick = now_tick + 1;
                return None;
            }
            self.next_tick += 1;
            let keys = std::mem::take(&mut self.wheel[tick as usize % TICKS]);
            if !keys.is_empty() {
                self.entries -= keys.len();
                return Some((tick, keys));
            }
        }
        None
    }

    /// Passes a bounded number of entries to `look`, in the order of their ticks, until `look` ends the
    /// search. Begins at `from`, if given. Returns where the search reached its bound, if it did.
    pub(crate) fn search(
        &mut self,
        from: Option<SearchPlace>,
        looks_max: usize,
        mut look: impl FnMut(Key, u64) -> Look,
    ) -> Option<SearchPlace> {
        let end = self.next_tick + TICKS as u64;
        let from = from.filter(|from| (self.next_tick..end).contains(&from.tick));
        let SearchPlace { tick: first, mut place } =
            from.unwrap_or(SearchPlace { tick: self.next_tick, place: 0 });
        let mut left = looks_max;
        for tick in first..end {
            while let Some(key) = self.wheel[tick as usize % TICKS].get(place).copied() {
                if left == 0 {
                    return Some(SearchPlace { tick, place });
                }
                left -= 1;
                match look(key, tick) {
                    Look::Found => return None,
                    Look::Pass => place += 1,
                    Look::Gone => {
                        self.wheel[tick as usize % TICKS].swap_remove(place);
                        self.entries -= 1;
                    }
                }
            }
            place = 0;
        }
        None
    }

    /// When the next entry comes up, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        let from = self.earliest.get().max(self.next_tick);
        let next = (from..self.next_tick + TICKS as u64)
            .find(|tick| !self.wheel[*tick as usize % TICKS].is_empty())?;
        self.earliest.set(next);
        Some(next * TICK_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn a_timer_comes_up_after_its_deadline_and_within_a_tick() {
        let mut slab = Slab::new();
        let key = slab.insert(());
        let mut timers = Timers::new(1_000_000);
        for deadline_ms in [1_000_001, 1_000_500, 1_030_000] {
            timers.file(key, deadline_ms);
            assert!(timers.due(deadline_ms - 1).is_none());
            let due_ms = timers.next_ms().expect("one entry");
            assert!(due_ms > deadline_ms && due_ms <= deadline_ms + TICK_MS);
            assert_eq!(timers.due(due_ms).map(|(_, keys)| keys), Some(vec![key]));
            assert_eq!(timers.next_ms(), None);
        }
    }

    #[test]
    fn a_far_deadline_comes_up_early_to_be_filed_again() {
        let mut slab = Slab::new();
        let key = slab.insert(());
        let mut timers = Timers::new(0);
        timers.file(key, 10 * TICK_MS * TICKS as u64);
        let due_ms = timers.next_ms().expect("one entry");
        assert!(due_ms < TICK_MS * TICKS as u64);
        assert_eq!(timers.due(due_ms).map(|(_, keys)| keys), Some(vec![key]));
    }
}
