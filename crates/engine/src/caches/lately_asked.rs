//! The names that were asked for lately, so that a full name cache keeps only those that are asked for again. [`Caches`](super::Caches)
//! uses it for names that all workers share, each of which can be found again without waiting.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::slab::SiteId;

/// About as many as the name cache has.
const PLACES: usize = 1 << 16;

/// Marks of names. A name takes the place of another one, so a mark lasts until about [`PLACES`] others were noted. Two names with
/// the same mark cost a place in the cache.
#[derive(Debug)]
pub(super) struct LatelyAsked {
    hasher: RandomState,
    marks: Box<[u16]>,
}

impl Default for LatelyAsked {
    fn default() -> Self {
        Self { hasher: RandomState::default(), marks: vec![0; PLACES].into() }
    }
}

impl LatelyAsked {
    /// Notes a name. Returns whether it was noted lately.
    pub(super) fn note(&mut self, site: SiteId, path: &[u8]) -> bool {
        let hash = self.hasher.hash_one((site, path));
        let mark = (hash >> 48) as u16;
        std::mem::replace(&mut self.marks[hash as usize % PLACES], mark) == mark
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_until_others_have_taken_its_place() {
        let mut asked = LatelyAsked::default();
        let path = |n: usize| n.to_string().into_bytes();
        assert!((0..100).filter(|n| asked.note(SiteId(0), &path(*n))).count() <= 1);
        assert!((0..100).filter(|n| asked.note(SiteId(1), &path(*n))).count() <= 1);
        assert!(asked.note(SiteId(1), &path(99)));
        (0..8 * PLACES).for_each(|n| _ = asked.note(SiteId(2), &path(n)));
        assert!((0..100).filter(|n| asked.note(SiteId(0), &path(*n))).count() <= 2);
    }
}
