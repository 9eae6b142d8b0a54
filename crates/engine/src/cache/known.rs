//! Requests known by the bytes of their heads: one that was answered with a kept content need
//! not be parsed again while its name entry is fresh and its content is there.
//!
//! Parsing and looking up cost more than the rest of a hit together, and hot files are asked
//! for in the same words again and again.

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::names::NameEntry;
use super::version::VersionId;
use crate::access_log::Record;
use crate::limits::KNOWN_HEAD_BYTES_MAX;

/// A request head and what it was answered with.
#[derive(Debug)]
pub(crate) struct Known {
    head: Box<[u8]>,
    /// As long as this is fresh, the path leads to the same versions.
    pub(crate) entry: Arc<NameEntry>,
    /// The version among them that this head is answered with.
    pub(crate) version: VersionId,
    pub(crate) record: Record,
}

#[derive(Debug, Default)]
struct Place {
    /// The head that was seen here last: only one that comes twice is kept.
    seen: u64,
    known: Option<Arc<Known>>,
}

/// A table with one place for each hash: a newer head replaces an older one. Without places it is
/// switched off.
#[derive(Debug)]
pub(crate) struct KnownRequests {
    places: Vec<Place>,
    hasher: RandomState,
}

impl KnownRequests {
    /// A table of so many places.
    pub(crate) fn new(places: usize) -> Self {
        let places = (0..places).map(|_| Place::default()).collect();
        Self { places, hasher: RandomState::default() }
    }

    /// What is known of a head with exactly these bytes.
    #[inline]
    pub(crate) fn get(&self, head: &[u8]) -> Option<Arc<Known>> {
        if head.len() > KNOWN_HEAD_BYTES_MAX {
            return None;
        }
        let known = self.places.get(self.place(self.hasher.hash_one(head)))?.known.as_ref()?;
        (*known.head == *head).then(|| Arc::clone(known))
    }

    /// Remembers a head, if it was seen before.
    pub(crate) fn put(&mut self, head: &[u8], entry: &Arc<NameEntry>, version: VersionId, record: &Record) {
        if head.len() > KNOWN_HEAD_BYTES_MAX {
            return;
        }
        let hash = self.hasher.hash_one(head);
        let place = self.place(hash);
        let Some(place) = self.places.get_mut(place) else { return };
        if std::mem::replace(&mut place.seen, hash) != hash {
            return;
        }
        let (entry, record) = (Arc::clone(entry), record.clone());
        place.known = Some(Arc::new(Known { head: head.into(), entry, version, record }));
    }

    /// The hash as a share of its range, of all places: a division would cost as much as the comparison.
    #[inline]
    fn place(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.places.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::NameKind;
    use crate::limits::KNOWN_REQUESTS_MAX;

    #[test]
    fn a_head_is_known_from_its_second_time_on_and_to_the_byte() {
        let mut requests = KnownRequests::new(KNOWN_REQUESTS_MAX);
        let entry = NameEntry::new(NameKind::Missing, 0);
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for known in [false, true] {
            requests.put(head, &entry, VersionId(7), &Record::default());
            assert_eq!(requests.get(head).is_some(), known);
        }
        assert_eq!(requests.get(head).map(|known| known.version), Some(VersionId(7)));
        assert!(requests.get(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").is_none());
        assert!(requests.get(&head[..head.len() - 1]).is_none());
    }

    #[test]
    fn a_long_head_is_not_kept() {
        let mut requests = KnownRequests::new(KNOWN_REQUESTS_MAX);
        let entry = NameEntry::new(NameKind::Missing, 0);
        let head = vec![b'x'; KNOWN_HEAD_BYTES_MAX + 1];
        for _ in 0..2 {
            requests.put(&head, &entry, VersionId(7), &Record::default());
        }
        assert!(requests.get(&head).is_none());
    }
}
