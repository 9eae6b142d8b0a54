//! Contents of small files, each in one buffer with its response head in front, so that a hit is one receive and one
//! send; without the head where heads are not kept.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flash_http::response::{HeadWriter, Status};
use quick_cache::Weighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use super::version::{IdHashing, Version};
use crate::slab::VersionId;

/// A small file, ready to be sent.
#[derive(Debug)]
pub(crate) struct Content {
    dated: Mutex<Dated>,
    /// Where the body begins; 0 where there is no head.
    head_bytes: usize,
    /// Where the value of `Date` begins in the head.
    date_at: usize,
}

#[derive(Debug)]
struct Dated {
    bytes: Vec<u8>,
    /// The second that `Date` in them tells now.
    date_s: i64,
}

impl Content {
    /// `head`, with its date at `date_at`, followed by `body`, the whole content of a file.
    pub(crate) fn new(head: &[u8], date_at: usize, body: &[u8], date_s: i64) -> Self {
        let head_bytes = head.len();
        // Allocated at its length: shrinking it later would leave a hole behind every content.
        let mut bytes = Vec::with_capacity(head_bytes + body.len());
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(body);
        Self { dated: Mutex::new(Dated { bytes, date_s }), head_bytes, date_at }
    }

    /// Calls `send` with head and body in one piece, the head telling `date`. There must be a head.
    ///
    /// The head is only seen in here, so a date written later never changes a head half sent.
    #[inline]
    pub(crate) fn with_head<R>(&self, date_s: i64, date: &[u8; 29], send: impl FnOnce(&[u8]) -> R) -> R {
        let mut dated = self.dated();
        if dated.date_s != date_s {
            dated.date_s = date_s;
            dated.bytes[self.date_at..self.date_at + date.len()].copy_from_slice(date);
        }
        send(&dated.bytes)
    }

    /// The head from `at` on; nothing when `at` is behind it.
    pub(crate) fn head_from(&self, at: usize) -> Vec<u8> {
        self.dated().bytes[at.min(self.head_bytes)..self.head_bytes].to_vec()
    }

    /// Calls `send` with the body's bytes from `at` to `end`.
    pub(crate) fn with_body<R>(&self, at: usize, end: usize, send: impl FnOnce(&[u8]) -> R) -> R {
        send(&self.dated().bytes[self.head_bytes + at..self.head_bytes + end])
    }

    #[inline]
    pub(crate) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    fn memory_bytes(&self) -> u64 {
        (self.dated().bytes.capacity() + size_of::<Self>()) as u64
    }

    /// Never waits: whoever has the engine has its contents.
    #[inline]
    fn dated(&self) -> MutexGuard<'_, Dated> {
        // A panic in a send leaves the bytes as they were.
        self.dated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the head of a plain 200 for all of `version`, padded to a multiple of `align_bytes`; gives
/// where the date's value is.
pub(crate) fn write_head(out: &mut Vec<u8>, version: &Version, date: &[u8; 29], align_bytes: usize) -> usize {
    let mut head = HeadWriter::start(out, Status::OK, date);
    head.field("Content-Type", version.content_type.as_bytes());
    head.length(version.stat.size_bytes);
    head.raw(&version.lines());
    head.finish(false, align_bytes)
}

#[derive(Clone, Debug)]
struct ContentBytes;

impl Weighter<VersionId, Arc<Content>> for ContentBytes {
    fn weight(&self, _: &VersionId, content: &Arc<Content>) -> u64 {
        content.memory_bytes()
    }
}

/// Contents by version, bounded in bytes.
#[derive(Debug)]
pub(crate) struct Contents {
    /// None when switched off.
    cache: Option<Cache<VersionId, Arc<Content>, ContentBytes, IdHashing>>,
}

impl Contents {
    pub(crate) fn new(memory_bytes: u64) -> Self {
        // An estimate of the number of items, for the policy's history of evicted keys.
        let items = (memory_bytes / 8192).clamp(64, 1 << 20) as usize;
        let cache = (memory_bytes > 0).then(|| {
            Cache::with(items, memory_bytes, ContentBytes, IdHashing::default(), DefaultLifecycle::default())
        });
        Self { cache }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.cache.is_some()
    }

    #[inline]
    pub(crate) fn get(&self, id: VersionId) -> Option<&Arc<Content>> {
        self.cache.as_ref()?.get(&id)
    }

    pub(crate) fn insert(&mut self, id: VersionId, content: Arc<Content>) {
        if let Some(cache) = &mut self.cache {
            cache.insert(id, content);
        }
    }

    pub(crate) fn remove(&mut self, id: VersionId) {
        if let Some(cache) = &mut self.cache {
            cache.remove(&id);
        }
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}
