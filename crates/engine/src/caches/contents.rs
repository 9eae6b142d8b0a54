//! Contents of one-block files, each together with its response head, so that a hit takes one receive and one
//! send. The bytes belong to the machine ([`Block`]) and are shared by all workers; the heads belong to this
//! worker.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::unsync::Cache;
use quick_cache::{Lifecycle, UnitWeighter};

use super::version::IdHashing;
use crate::machine::Block;
use crate::slab::VersionId;

/// A file's content, ready to be sent.
#[derive(Debug)]
pub(crate) struct Content {
    dated: Mutex<Dated>,
    /// 0 if there is no head.
    head_bytes: usize,
    /// Offset of the `Date` value in the head.
    date_at: usize,
    body: ContentBytes,
    /// Whether it was dropped from the cache, so that only answers under way may use it.
    is_dropped: AtomicBool,
}

#[derive(Debug)]
struct Dated {
    head: Vec<u8>,
    /// The second that the `Date` in `head` shows.
    date_s: i64,
}

/// The bytes of a content.
#[derive(Debug)]
pub(crate) enum ContentBytes {
    /// A block in the store that is the whole file.
    Stored(Block),
    /// A copy, for the requests that wait for it.
    Own(Box<[u8]>),
}

impl Content {
    /// Makes a content from a file's whole `body`. Its head has the date at offset `date_at`.
    pub(crate) fn new(head: &[u8], date_at: usize, body: ContentBytes, date_s: i64) -> Self {
        let head_bytes = head.len();
        Self {
            dated: Mutex::new(Dated { head: head.to_vec(), date_s }),
            head_bytes,
            date_at,
            body,
            is_dropped: AtomicBool::new(false),
        }
    }

    /// Calls `send` with the head, dated `date_s`, and the body. There must be a head.
    ///
    /// The head is visible only inside this call, so a later date cannot change a half-sent head.
    #[inline]
    pub(crate) fn with_head<R>(
        &self,
        date_s: i64,
        date: &[u8; 29],
        send: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> R {
        let mut dated = self.dated();
        if dated.date_s != date_s {
            dated.date_s = date_s;
            dated.head[self.date_at..self.date_at + date.len()].copy_from_slice(date);
        }
        send(&dated.head, self.body())
    }

    /// A copy of the head from offset `at` on; empty if `at` is past its end.
    pub(crate) fn head_from(&self, at: usize) -> Vec<u8> {
        self.dated().head[at.min(self.head_bytes)..].to_vec()
    }

    /// The whole body.
    #[inline]
    pub(crate) fn body(&self) -> &[u8] {
        match &self.body {
            ContentBytes::Stored(block) => block.bytes(),
            ContentBytes::Own(bytes) => bytes,
        }
    }

    /// A part of the body.
    pub(crate) fn part(&self, range: &Range<usize>) -> &[u8] {
        &self.body()[range.clone()]
    }

    #[inline]
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Whether new answers may use it.
    #[inline]
    pub(super) fn is_kept(&self) -> bool {
        !self.is_dropped.load(Ordering::Relaxed)
    }

    /// Counts a use of its block.
    #[inline]
    pub(super) fn note_use(&self) {
        if let Some(block) = self.block() {
            block.note_use();
        }
    }

    /// Whether the bytes are in the store.
    pub(crate) fn is_stored(&self) -> bool {
        self.block().is_some()
    }

    fn block(&self) -> Option<&Block> {
        match &self.body {
            ContentBytes::Stored(block) => Some(block),
            ContentBytes::Own(_) => None,
        }
    }

    /// Never blocks: only the thread that has the engine uses its contents.
    #[inline]
    fn dated(&self) -> MutexGuard<'_, Dated> {
        // A panic during a send leaves the bytes unchanged, so a poisoned lock is safe to use.
        self.dated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Contents whose blocks are in the store, by version. Their number is bounded, because each has a head.
#[derive(Debug)]
pub(crate) struct Contents {
    cache: Cache<VersionId, Arc<Content>, UnitWeighter, IdHashing, Evictions>,
    /// The block number of each content in the cache.
    blocks: BTreeSet<(u64, VersionId)>,
}

/// Collects the contents that the cache evicts.
#[derive(Clone, Debug)]
struct Evictions;

impl Lifecycle<VersionId, Arc<Content>> for Evictions {
    type RequestState = Vec<(VersionId, Arc<Content>)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, id: VersionId, content: Arc<Content>) {
        evicted.push((id, content));
    }
}

impl Contents {
    /// Makes a cache of at most this many contents.
    pub(crate) fn new(contents_max: usize) -> Self {
        let contents_max = contents_max.max(1);
        let cache =
            Cache::with(contents_max, contents_max as u64, UnitWeighter, IdHashing::default(), Evictions);
        Self { cache, blocks: BTreeSet::new() }
    }

    /// Returns the content of a version and records the use of its block.
    #[inline]
    pub(crate) fn get(&self, id: VersionId) -> Option<&Arc<Content>> {
        let content = self.cache.get(&id)?;
        content.note_use();
        Some(content)
    }

    /// Caches a content for as long as its block is in the store.
    pub(crate) fn insert(&mut self, id: VersionId, content: Arc<Content>) {
        let Some(number) = content.block().map(|block| block.number()) else { return };
        self.remove(id);
        content.is_dropped.store(false, Ordering::Relaxed);
        let mut evicted = Vec::new();
        self.blocks.insert((number, id));
        self.cache.insert_with_lifecycle(id, content, &mut evicted);
        for (id, content) in evicted {
            self.forget_block_of(id, &content);
        }
    }

    pub(crate) fn remove(&mut self, id: VersionId) {
        if let Some((_, content)) = self.cache.remove(&id) {
            self.forget_block_of(id, &content);
        }
    }

    /// Drops every content of a block that leaves the store.
    pub(crate) fn forget_block(&mut self, number: u64) {
        let ids: Vec<_> =
            self.blocks.range((number, VersionId(0))..=(number, VersionId(u64::MAX))).copied().collect();
        for (_, id) in ids {
            self.remove(id);
        }
    }

    fn forget_block_of(&mut self, id: VersionId, content: &Content) {
        content.is_dropped.store(true, Ordering::Relaxed);
        if let Some(block) = content.block() {
            self.blocks.remove(&(block.number(), id));
        }
    }

    /// The number of contents.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }
}
