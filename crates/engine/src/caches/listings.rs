//! Listings in memory, bounded in number, with the names that they were made for. Used by
//! [`caches`](crate::caches).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::version::Version;
use crate::limits::LISTINGS_MAX;
use crate::rules::SiteId;

/// Listings in memory, oldest first, including those still being sent.
#[derive(Debug, Default)]
pub(crate) struct Listings(VecDeque<(SiteId, Box<[u8]>, Weak<Version>)>);

impl Listings {
    pub(super) fn push(&mut self, site: SiteId, path: &[u8], listing: &Arc<Version>) {
        self.0.push_back((site, path.into(), Arc::downgrade(listing)));
    }

    pub(super) fn pop(&mut self) -> Option<(SiteId, Box<[u8]>, Weak<Version>)> {
        self.0.pop_front()
    }

    /// Puts back a listing that is still being sent.
    pub(super) fn put_back(&mut self, site: SiteId, path: Box<[u8]>, listing: Weak<Version>) {
        if listing.strong_count() > 0 {
            self.0.push_back((site, path, listing));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is room for one more listing in addition to `under_way`.
    pub(super) fn has_room(&mut self, under_way: usize) -> bool {
        self.0.retain(|(_, _, listing)| listing.strong_count() > 0);
        self.0.len() + under_way < LISTINGS_MAX
    }
}
