//! Requests known by the bytes of their heads. If a request was answered from memory, the same bytes need not
//! be parsed again while its name entry is fresh and its content is in memory. Parsing and look-up cost more
//! than the rest of a hit together, and clients request hot files with identical heads again and again.
//!
//! Called by the wires, HTTP/1 and HTTP/2, each with the bytes that it knows a request by.

use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use foldhash::fast::RandomState;

use super::contents::Content;
use super::names::NameEntry;
use super::version::Version;
use crate::access_log::LogText;
use crate::conditions::Conditions;
use crate::head_changes::HeadChanges;
use crate::limits::REPEATED_HEAD_BYTES_MAX;

/// The form of an answer that depends only on the request bytes and the version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    /// 200 with the whole file.
    Whole,
    /// The head of a 200.
    HeadOnly,
    /// 304.
    NotModified,
}

/// Whether the connection persists after an answer (RFC 9112, section 9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// It persists, as HTTP/1.1 assumes.
    Persists,
    /// It persists, and an HTTP/1.0 client must be told so.
    SaidToPersist,
    /// It is closed.
    Closes,
}

/// Whether the gate admits equal requests for a file by the bytes of their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It does not: such a request is parsed again.
    Once,
    /// The same bytes are admitted again.
    SameHead,
    /// The same bytes are admitted again over plain HTTP; over HTTPS their answer has another head.
    SameHeadOverHttp,
    /// The same bytes are admitted again over HTTPS; over plain HTTP the site answers otherwise.
    SameHeadOverHttps,
}

/// How a known request is answered.
#[derive(Clone, Debug)]
pub(crate) struct RepeatedReply {
    /// The gate's pass for it.
    pub(crate) pass: Pass,
    /// The conditions of that pass besides the head.
    pub(crate) conditions: Option<Arc<Conditions>>,
    /// The path leads to the same versions while this entry is fresh.
    pub(crate) entry: Arc<NameEntry>,
    /// The version that answers this head.
    pub(crate) version: Arc<Version>,
    pub(crate) form: ReplyForm,
    pub(crate) persistence: Persistence,
    /// How rules change the head of the answer.
    pub(crate) changes: Option<Arc<HeadChanges>>,
    /// The content of the answer, if its form has one, for as long as it is kept.
    pub(crate) content: Weak<Content>,
}

/// The content of an answer is not kept any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentDropped;

impl RepeatedReply {
    /// The content of the answer; None for a form without one. This counts as a use of it.
    #[inline]
    pub(crate) fn content(&self) -> Result<Option<Arc<Content>>, ContentDropped> {
        if self.form != ReplyForm::Whole {
            return Ok(None);
        }
        let content = self.content.upgrade().filter(|content| content.is_kept()).ok_or(ContentDropped)?;
        content.note_use();
        Ok(Some(content))
    }
}

/// A request head and its answer.
#[derive(Debug)]
pub(crate) struct RepeatedRequest {
    head: Box<[u8]>,
    pub(crate) reply: RepeatedReply,
    pub(crate) log: Option<LogText>,
}

impl RepeatedRequest {
    /// Its memory, about.
    fn bytes(&self) -> usize {
        // The text for the log is made of parts of the head.
        let texts = if self.log.is_some() { 2 } else { 1 };
        size_of::<Self>() + texts * self.head.len()
    }
}

/// The places of the heads with one remainder of their hash, in one line of a core's caches.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Place; WAYS]);

const WAYS: usize = 4;

#[derive(Debug, Default)]
struct Place {
    hash: u64,
    known: Option<Box<RepeatedRequest>>,
}

/// The hash of a head, for [`RepeatedRequests::put`]; None if the head must not be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadHash(Option<u64>);

impl HeadHash {
    /// For a head that must not be kept.
    pub(crate) const NONE: Self = HeadHash(None);
}

/// The known heads, in sets by their hashes. A newer head replaces an older one of its set. With no sets the table is disabled.
#[derive(Debug)]
pub(crate) struct RepeatedRequests {
    sets: Vec<Set>,
    /// For each place, a part of the last hash that was seen. A head is kept only when it comes a second time.
    seen: Vec<u32>,
    bytes: usize,
    bytes_max: usize,
    /// The next set that makes room.
    hand: usize,
    hasher: RandomState,
}

impl RepeatedRequests {
    /// Makes a table with this many places, for at most `bytes_max` of heads and answers.
    pub(crate) fn new((places, bytes_max): (usize, usize)) -> Self {
        let sets = places.div_ceil(WAYS);
        Self {
            sets: (0..sets).map(|_| Set::default()).collect(),
            seen: vec![0; sets * WAYS],
            bytes: 0,
            bytes_max,
            hand: 0,
            hasher: RandomState::default(),
        }
    }

    /// The known request with exactly these bytes.
    #[inline]
    pub(crate) fn get(&self, head: &[u8]) -> (HeadHash, Option<&RepeatedRequest>) {
        if head.len() > REPEATED_HEAD_BYTES_MAX || self.sets.is_empty() {
            return (HeadHash(None), None);
        }
        let hash = self.hasher.hash_one(head);
        let place = self.sets[self.set(hash)].0.iter().find(|place| place.hash == hash);
        let known = place.and_then(|place| place.known.as_deref());
        (HeadHash(Some(hash)), known.filter(|known| *known.head == *head))
    }

    /// Stores a head and its answer, if the head was seen before.
    pub(crate) fn put(
        &mut self,
        hash: HeadHash,
        head: &[u8],
        reply: RepeatedReply,
        log: impl FnOnce() -> Option<LogText>,
    ) {
        let Some(hash) = hash.0 else { return };
        let set = self.set(hash);
        let mark = hash as u32;
        let seen = &mut self.seen[set * WAYS + hash as usize % WAYS];
        if std::mem::replace(seen, mark) != mark {
            return;
        }
        let known = Box::new(RepeatedRequest { head: head.into(), reply, log: log() });
        self.bytes += known.bytes();
        let places = &mut self.sets[set].0;
        let own = places.iter().position(|place| place.hash == hash);
        let free = || places.iter().position(|place| place.known.is_none());
        let at = own.or_else(free).unwrap_or((hash >> 32) as usize % WAYS);
        let old = std::mem::replace(&mut places[at], Place { hash, known: Some(known) });
        self.bytes -= old.known.map_or(0, |old| old.bytes());
        while self.bytes > self.bytes_max {
            self.make_room();
        }
    }

    /// Drops the heads of the next set.
    fn make_room(&mut self) {
        self.hand = (self.hand + 1) % self.sets.len();
        for place in &mut self.sets[self.hand].0 {
            self.bytes -= std::mem::take(place).known.map_or(0, |known| known.bytes());
        }
    }

    /// Maps the hash to a set by multiplication; a division would cost as much as the comparison of heads.
    #[inline]
    fn set(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.sets.len() as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::Resolved;
    use crate::machine::{FileKind, FileStat, ListingForm};
    use crate::slab::SiteId;
    use crate::slab::VersionId;

    fn reply() -> RepeatedReply {
        let stat = FileStat {
            kind: FileKind::Regular,
            device: 0,
            inode: 0,
            size_bytes: 0,
            modified_ns: 0,
            changed_ns: 0,
        };
        RepeatedReply {
            pass: Pass::SameHead,
            conditions: None,
            entry: NameEntry::new(Resolved::Missing, 0),
            version: Arc::new(Version::of_listing(
                VersionId(7),
                (SiteId(0), ListingForm::default()),
                stat,
                false,
            )),
            form: ReplyForm::Whole,
            persistence: Persistence::Persists,
            changes: None,
            content: Weak::new(),
        }
    }

    #[test]
    fn a_head_is_known_from_its_second_use_on_and_only_byte_for_byte() {
        let mut requests = RepeatedRequests::new((4096, 1 << 20));
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for known in [false, true] {
            requests.put(requests.get(head).0, head, reply(), || None);
            assert_eq!(requests.get(head).1.is_some(), known);
        }
        assert_eq!(requests.get(head).1.map(|known| known.reply.version.id), Some(VersionId(7)));
        assert!(requests.get(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n").1.is_none());
        assert!(requests.get(&head[..head.len() - 1]).1.is_none());
    }

    #[test]
    fn a_long_head_is_not_kept() {
        let mut requests = RepeatedRequests::new((4096, 1 << 20));
        let head = vec![b'x'; REPEATED_HEAD_BYTES_MAX + 1];
        for _ in 0..2 {
            requests.put(requests.get(&head).0, &head, reply(), || None);
        }
        assert!(requests.get(&head).1.is_none());
    }

    #[test]
    fn many_heads_are_known_at_once_within_the_bound_of_their_memory() {
        let head = |number: usize| format!("GET /{number:06} HTTP/1.1\r\n\r\n").into_bytes();
        let each = RepeatedRequest { head: head(0).into(), reply: reply(), log: None }.bytes();
        for (kept_max, least) in [(2000, 1900), (500, 400)] {
            let mut requests = RepeatedRequests::new((4096, kept_max * each));
            for _ in 0..2 {
                for number in 0..2000 {
                    for _ in 0..2 {
                        let head = head(number);
                        requests.put(requests.get(&head).0, &head, reply(), || None);
                        assert!(requests.bytes <= requests.bytes_max);
                    }
                }
            }
            let known = (0..2000).filter(|number| requests.get(&head(*number)).1.is_some()).count();
            assert!((least..=kept_max).contains(&known), "{known} of at most {kept_max}");
            assert_eq!(requests.bytes, known * each);
        }
    }
}
