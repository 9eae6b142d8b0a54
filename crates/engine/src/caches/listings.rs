//! Listings in memory, bounded in number, with the names that they were made for. Used by
//! [`caches`](crate::caches).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::version::Version;
use crate::limits::LISTINGS_MAX;
use crate::machine::ListingForm;
use crate::slab::SiteId;

/// Listings in memory, oldest first, including those still being sent.
#[derive(Debug, Default)]
pub(crate) struct Listings(VecDeque<KeptListing>);

/// A listing in memory.
#[derive(Debug)]
pub(super) struct KeptListing {
    pub(super) site: SiteId,
    pub(super) path: Box<[u8]>,
    pub(super) form: ListingForm,
    pub(super) version: Weak<Version>,
}

impl Listings {
    pub(super) fn push(&mut self, site: SiteId, path: &[u8], form: ListingForm, listing: &Arc<Version>) {
        self.0.push_back(KeptListing { site, path: path.into(), form, version: Arc::downgrade(listing) });
    }

    /// Takes out the oldest one in the default order, or in any other.
    pub(super) fn pop(&mut self, in_default_order: bool) -> Option<KeptListing> {
        let at = self.0.iter().position(|kept| kept.form.order.is_default() == in_default_order)?;
        self.0.remove(at)
    }

    /// Puts back a listing that is still being sent.
    pub(super) fn put_back(&mut self, kept: KeptListing) {
        if kept.version.strong_count() > 0 {
            self.0.push_back(kept);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is room for one more listing in addition to `under_way`.
    pub(super) fn has_room(&mut self, under_way: usize) -> bool {
        self.0.retain(|kept| kept.version.strong_count() > 0);
        self.0.len() + under_way < LISTINGS_MAX
    }
}
