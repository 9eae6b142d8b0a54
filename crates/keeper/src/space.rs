//! Allocates ranges of the store's memory file, for the [`Keeper`](crate::Keeper).
//!
//! The file has far more addresses than the store has memory, and a page takes memory only while it is in
//! use. So blocks of all sizes can lie side by side, fragmentation never makes free memory unusable, and the
//! number of pages in use is the memory of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks begin at multiples of this.
pub const UNIT_BYTES: u64 = 64;
/// The memory file takes and returns memory in pages of this size.
pub const PAGE_BYTES: u64 = 4096;

/// The free addresses of the memory file, and the number of pages in use.
#[derive(Debug)]
pub struct Space {
    /// Free ranges: start and end.
    free: BTreeMap<u64, u64>,
    /// The same ranges by length and start.
    by_length: BTreeSet<(u64, u64)>,
    pages: u64,
}

impl Space {
    /// Makes a space of `length_bytes` free addresses, rounded down to whole pages.
    #[must_use]
    pub fn new(length_bytes: u64) -> Self {
        let mut space = Self { free: BTreeMap::new(), by_length: BTreeSet::new(), pages: 0 };
        space.put_free(0..length_bytes - length_bytes % PAGE_BYTES);
        space
    }

    /// Bytes of memory that the blocks take, in whole pages.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.pages * PAGE_BYTES
    }

    /// Maximum number of bytes of memory that a block of this length takes.
    #[must_use]
    pub fn bytes_of(length_bytes: u64) -> u64 {
        length_bytes.next_multiple_of(PAGE_BYTES)
    }

    /// Takes addresses for a block from the smallest free range that is large enough.
    pub fn take(&mut self, length_bytes: u64) -> Option<u64> {
        let length_bytes = length_bytes.max(1).checked_next_multiple_of(UNIT_BYTES)?;
        let (_, start) = *self.by_length.range((length_bytes, 0)..).next()?;
        self.take_at(start..start + length_bytes).then_some(start)
    }

    /// Takes these addresses, rounded to units. Returns false if some of them are not free.
    pub fn take_at(&mut self, range: Range<u64>) -> bool {
        let Some(end) = range.end.max(range.start + 1).checked_next_multiple_of(UNIT_BYTES) else {
            return false;
        };
        let range = range.start..end;
        let Some((start, end)) = self.free.range(..=range.start).next_back().map(|(s, e)| (*s, *e)) else {
            return false;
        };
        if end < range.end || !range.start.is_multiple_of(UNIT_BYTES) {
            return false;
        }
        let extent = start..end;
        self.take_free(&extent);
        self.pages +=
            pages_between(&extent, &range).map_or(0, |pages| (pages.end - pages.start) / PAGE_BYTES);
        self.put_free(start..range.start);
        self.put_free(range.end..end);
        true
    }

    /// Frees the addresses of a block. Returns the pages that are now unused, as a range of bytes, to be
    /// returned to the system.
    pub fn free(&mut self, start: u64, length_bytes: u64) -> Option<Range<u64>> {
        let range = start..start + length_bytes.max(1).next_multiple_of(UNIT_BYTES);
        let mut extent = range.clone();
        if let Some((before, end)) = self.free.range(..start).next_back().map(|(s, e)| (*s, *e))
            && end == start
        {
            self.take_free(&(before..end));
            extent.start = before;
        }
        if let Some(end) = self.free.get(&range.end).copied() {
            self.take_free(&(range.end..end));
            extent.end = end;
        }
        self.put_free(extent.clone());
        let pages = pages_between(&extent, &range)?;
        self.pages -= (pages.end - pages.start) / PAGE_BYTES;
        Some(pages)
    }

    fn put_free(&mut self, extent: Range<u64>) {
        if extent.start < extent.end {
            self.free.insert(extent.start, extent.end);
            self.by_length.insert((extent.end - extent.start, extent.start));
        }
    }

    fn take_free(&mut self, extent: &Range<u64>) {
        self.free.remove(&extent.start);
        self.by_length.remove(&(extent.end - extent.start, extent.start));
    }
}

/// The whole pages of `extent` that its range `part` touches.
fn pages_between(extent: &Range<u64>, part: &Range<u64>) -> Option<Range<u64>> {
    let first = extent.start.next_multiple_of(PAGE_BYTES).max(part.start - part.start % PAGE_BYTES);
    let last = (extent.end - extent.end % PAGE_BYTES).min(part.end.next_multiple_of(PAGE_BYTES));
    (first < last).then_some(first..last)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_blocks_share_a_page_and_free_it_together() {
        let mut space = Space::new(1 << 20);
        let places: Vec<u64> = (0..64).map(|_| space.take(50).expect("room")).collect();
        assert_eq!(space.held_bytes(), PAGE_BYTES);
        let freed: Vec<_> = places.iter().filter_map(|at| space.free(*at, 50)).collect();
        assert_eq!((freed.len(), freed.first(), space.held_bytes()), (1, Some(&(0..PAGE_BYTES)), 0));
    }

    #[test]
    fn taken_addresses_cannot_be_taken_again() {
        let mut space = Space::new(3 * PAGE_BYTES);
        assert!(space.take_at(PAGE_BYTES..PAGE_BYTES + 100));
        assert!(!space.take_at(PAGE_BYTES + 64..PAGE_BYTES + 65) && !space.take_at(0..PAGE_BYTES + 1));
        assert!(!space.take_at(1..2), "between units");
        assert_eq!(space.take(2 * PAGE_BYTES), None, "not in one piece");
        assert_eq!(space.take(PAGE_BYTES), Some(0));
        assert_eq!(space.held_bytes(), 2 * PAGE_BYTES);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_the_pages_are_counted(
            steps in proptest::collection::vec((0u64..40_000, any::<bool>(), 0usize..100), 1..200)
        ) {
            let mut space = Space::new(1 << 20);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let mut pages: HashMap<u64, usize> = HashMap::new();
            let pages_of = |at: u64, length: u64| {
                let end = at + length.max(1).next_multiple_of(UNIT_BYTES);
                at / PAGE_BYTES..end.div_ceil(PAGE_BYTES)
            };
            for (length, frees, which) in steps {
                if frees && !taken.is_empty() {
                    let (at, length) = taken.swap_remove(which % taken.len());
                    let emptied: Vec<u64> = pages_of(at, length).filter(|page| {
                        let count = pages.get_mut(page).expect("counted");
                        *count -= 1;
                        *count == 0
                    }).collect();
                    pages.retain(|_, count| *count > 0);
                    let given = space.free(at, length);
                    let given = given.map_or(0..0, |range| range.start / PAGE_BYTES..range.end / PAGE_BYTES);
                    prop_assert_eq!(given.collect::<Vec<_>>(), emptied);
                } else if let Some(at) = space.take(length) {
                    let end = at + length.max(1).next_multiple_of(UNIT_BYTES);
                    for (other, its_length) in &taken {
                        let its_end = other + its_length.max(&1).next_multiple_of(UNIT_BYTES);
                        prop_assert!(end <= *other || its_end <= at);
                    }
                    pages_of(at, length).for_each(|page| *pages.entry(page).or_default() += 1);
                    taken.push((at, length));
                }
                prop_assert_eq!(space.held_bytes(), pages.len() as u64 * PAGE_BYTES);
            }
        }
    }
}
