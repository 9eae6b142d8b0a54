//! The names that this worker has looked up itself of late, so that an older finding that all workers share
//! cannot replace its own after the name cache has dropped that.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::OWN_LOOK_UPS_MAX;
use crate::slab::SiteId;

/// When names were last looked up here. Names are known by a keyed hash: two with the same hash cost a look-up.
#[derive(Debug, Default)]
pub(crate) struct OwnLookUps {
    hasher: RandomState,
    found_ms: HashMap<u64, u64>,
    /// The names in the order in which they were found, with the times.
    order: VecDeque<(u64, u64)>,
}

impl OwnLookUps {
    /// Records a finding. Findings older than `lasts_ms` are dropped: by then all findings of that time need a check.
    pub(crate) fn note(&mut self, site: SiteId, path: &[u8], found_ms: u64, lasts_ms: u64) {
        while let Some((hash, ms)) = self.order.front().copied()
            && (ms.saturating_add(lasts_ms) < found_ms || self.order.len() >= OWN_LOOK_UPS_MAX)
        {
            self.order.pop_front();
            if self.found_ms.get(&hash) == Some(&ms) {
                self.found_ms.remove(&hash);
            }
        }
        let hash = self.hasher.hash_one((site, path));
        let newest_ms = self.found_ms.entry(hash).or_default();
        *newest_ms = found_ms.max(*newest_ms);
        self.order.push_back((hash, *newest_ms));
    }

    /// Whether this worker has found a name itself after this time.
    pub(crate) fn is_outdated(&self, site: SiteId, path: &[u8], confirmed_ms: u64) -> bool {
        !self.found_ms.is_empty()
            && self.found_ms.get(&self.hasher.hash_one((site, path))).is_some_and(|ms| confirmed_ms < *ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SITE: SiteId = SiteId(0);

    #[test]
    fn an_older_finding_is_doubted_for_a_while() {
        let mut own_look_ups = OwnLookUps::default();
        own_look_ups.note(SITE, b"/a", 100, 50);
        assert!(own_look_ups.is_outdated(SITE, b"/a", 99));
        assert!(!own_look_ups.is_outdated(SITE, b"/a", 100) && !own_look_ups.is_outdated(SITE, b"/b", 99));
        assert!(!own_look_ups.is_outdated(SiteId(1), b"/a", 99));
        own_look_ups.note(SITE, b"/a", 90, 50);
        assert!(own_look_ups.is_outdated(SITE, b"/a", 99), "a late finding is older");
        own_look_ups.note(SITE, b"/b", 151, 50);
        assert!(!own_look_ups.is_outdated(SITE, b"/a", 99));
    }

    #[test]
    fn their_number_has_a_bound() {
        let mut own_look_ups = OwnLookUps::default();
        for number in 0..2 * OWN_LOOK_UPS_MAX {
            own_look_ups.note(SITE, &number.to_le_bytes(), 100, 50);
        }
        assert!(
            own_look_ups.order.len() <= OWN_LOOK_UPS_MAX && own_look_ups.found_ms.len() <= OWN_LOOK_UPS_MAX
        );
        assert!(own_look_ups.is_outdated(SITE, &(2 * OWN_LOOK_UPS_MAX - 1).to_le_bytes(), 99));
    }
}
