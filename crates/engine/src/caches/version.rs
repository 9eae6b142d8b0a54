//! One state of one file, with everything that responses say about it.

use std::borrow::Cow;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use flash_http::date::http_date;
use flash_http::etag::etag;
use flash_http::h2::{Encoder, Indexing};
use flash_http::negotiate::Coding;
use flash_http::response::push_number;
use quick_cache::unsync::Cache;

use crate::limits::FILL_AGAIN_MS;
use crate::machine::{FileStat, Moment};
use crate::rules::SiteId;
use crate::slab::VersionId;

/// The origin of a version, and how it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionOrigin {
    /// The site whose disk has the file.
    pub(crate) site: SiteId,
    /// The coding, if it is a precompressed sibling.
    pub(crate) coding: Option<Coding>,
    /// Whether it has siblings in other codings, or is one.
    pub(crate) varies: bool,
}

/// One state of one file. Content, length, validators and head all come from here, so they always match.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    /// The site whose disk has the file.
    pub(crate) site: SiteId,
    pub(crate) stat: FileStat,
    /// Whether the file changed so recently that another change could go unnoticed.
    pub(crate) racy: bool,
    /// Whether it has siblings in other codings, or is one.
    pub(crate) varies: bool,
    pub(crate) coding: Option<Coding>,
    pub(crate) etag: String,
    pub(crate) modified_s: i64,
    pub(crate) content_type: String,
    is_listing: bool,
    /// The result of [`Version::lines`], if heads are cached.
    kept_fields: Option<Vec<u8>>,
    /// The result of [`Version::h2_fields`], once it was wanted.
    h2_fields: OnceLock<Box<[u8]>>,
    /// When one of its blocks in the page cache was last requested for the store, in milliseconds of the
    /// monotonic clock.
    fill_asked_ms: AtomicU64,
}

impl Version {
    pub(crate) fn of_file(
        id: VersionId,
        origin: VersionOrigin,
        stat: FileStat,
        content_type: &str,
        now: Moment,
    ) -> Self {
        let VersionOrigin { site, coding, varies } = origin;
        // `Last-Modified` must not be later than the answer itself (RFC 9110, section 8.8.2.1).
        let modified_s = stat.modified_ns.min(now.wall_ns).div_euclid(1_000_000_000) as i64;
        let etag = etag(stat.size_bytes, stat.modified_ns, None, coding);
        Self {
            id,
            site,
            stat,
            racy: stat.is_racy(now.wall_ns),
            varies,
            coding,
            etag,
            modified_s,
            content_type: content_type.to_owned(),
            is_listing: false,
            kept_fields: None,
            h2_fields: OnceLock::new(),
            fill_asked_ms: AtomicU64::new(0),
        }
    }

    /// Adds the time of the last metadata change to the tag if `is_asked`. Must be called before
    /// [`Version::keeping_fields`].
    pub(crate) fn tagged_by_change(self, is_asked: bool) -> Self {
        if !is_asked {
            return self;
        }
        let stat = &self.stat;
        let etag = etag(stat.size_bytes, stat.modified_ns, Some(stat.changed_ns), self.coding);
        Self { etag, ..self }
    }

    /// The version of a listing made by a helper. It has no validators.
    pub(crate) fn of_listing(id: VersionId, site: SiteId, stat: FileStat, json: bool) -> Self {
        let content_type = if json { "application/json" } else { "text/html; charset=utf-8" };
        Self {
            id,
            site,
            stat,
            racy: false,
            varies: true,
            coding: None,
            etag: String::new(),
            modified_s: 0,
            content_type: content_type.to_owned(),
            is_listing: true,
            kept_fields: None,
            h2_fields: OnceLock::new(),
            fill_asked_ms: AtomicU64::new(0),
        }
    }

    /// Caches the part of the response head that belongs to this version.
    pub(crate) fn keeping_fields(self, keeps: bool) -> Self {
        let kept_fields = keeps.then(|| self.make_fields());
        Self { kept_fields, ..self }
    }

    /// Calls `field` with each field of a 200 or 206, except `Content-Type` and `Content-Length`.
    pub(crate) fn each_field(&self, mut field: impl FnMut(&'static str, &[u8])) {
        if self.is_listing {
            field("X-Content-Type-Options", b"nosniff");
            field("Cache-Control", b"no-cache");
            return field("Vary", b"Accept");
        }
        field("ETag", self.etag.as_bytes());
        field("Last-Modified", &http_date(self.modified_s));
        self.each_shared_field(field);
    }

    /// Calls `field` with those of these fields that most files have with the same value.
    pub(crate) fn each_shared_field(&self, mut field: impl FnMut(&'static str, &[u8])) {
        field("Accept-Ranges", b"bytes");
        field("X-Content-Type-Options", b"nosniff");
        if let Some(coding) = self.coding {
            field("Content-Encoding", coding.token().as_bytes());
        }
        if self.varies {
            field("Vary", b"Accept-Encoding");
        }
    }

    /// Calls `field` with the validators and `Vary`, which a 304 repeats (RFC 9110, section 15.4.5).
    pub(crate) fn each_validator(&self, mut field: impl FnMut(&'static str, &[u8])) {
        field("ETag", self.etag.as_bytes());
        field("Last-Modified", &http_date(self.modified_s));
        if self.varies {
            field("Vary", b"Accept-Encoding");
        }
    }

    /// The fields of [`Version::each_field`] as lines of HTTP/1.
    pub(crate) fn lines(&self) -> Cow<'_, [u8]> {
        self.kept_fields.as_deref().map_or_else(|| self.make_fields().into(), Cow::Borrowed)
    }

    fn make_fields(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(192);
        self.each_field(|name, value| push_line(&mut fields, name, value));
        fields
    }

    /// The length and the validators of a whole file as HTTP/2 has them; None for a listing. They do not depend on the
    /// connection, because they are in no table.
    pub(crate) fn h2_fields(&self) -> Option<&[u8]> {
        let make = || {
            let (mut encoder, mut block, mut length) = (Encoder::new(), Vec::new(), Vec::new());
            push_number(&mut length, self.stat.size_bytes);
            encoder.field(&mut block, b"content-length", &length, Indexing::Own);
            encoder.field(&mut block, b"etag", self.etag.as_bytes(), Indexing::Own);
            encoder.field(&mut block, b"last-modified", &http_date(self.modified_s), Indexing::Own);
            block.into_boxed_slice()
        };
        (!self.is_listing).then(|| &**self.h2_fields.get_or_init(make))
    }

    /// Whether the store can have its blocks. They are found by the file's state, which must be unambiguous.
    /// Listings are already in memory.
    pub(crate) fn is_storable(&self) -> bool {
        !self.racy && !self.is_listing && self.stat.size_bytes > 0
    }

    /// Whether a block in the page cache should be requested for the store now.
    pub(crate) fn asks_for_fill(&self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.fill_asked_ms.load(Ordering::Relaxed);
        if is_due {
            self.fill_asked_ms.store(now_ms + FILL_AGAIN_MS, Ordering::Relaxed);
        }
        is_due
    }

    /// Whether a file with state `stat`, found through the same path, has the same bytes.
    pub(crate) fn matches(&self, stat: &FileStat) -> bool {
        !self.racy && self.stat == *stat
    }
}

/// Versions by their files, bounded in number. Used only if names are not cached: a file that is found again
/// gets the same version, and thereby its content and head.
#[derive(Debug)]
pub(crate) struct Versions(Option<Cache<FileKey, Arc<Version>>>);

/// The key of a file as it is served: site, device, inode number and coding.
type FileKey = (SiteId, u64, u64, Option<Coding>);

impl Versions {
    /// Keeps at most this many versions; 0 disables the table.
    pub(crate) fn new(versions_max: usize) -> Self {
        Self((versions_max > 0).then(|| Cache::new(versions_max)))
    }

    /// The last version of the file with this state.
    pub(crate) fn get(&self, origin: VersionOrigin, stat: &FileStat) -> Option<&Arc<Version>> {
        self.0.as_ref()?.get(&(origin.site, stat.device, stat.inode, origin.coding))
    }

    /// Inserts a version and returns the one that it replaces.
    pub(crate) fn insert(&mut self, version: &Arc<Version>) -> Option<Arc<Version>> {
        let cache = self.0.as_mut()?;
        let key = (version.site, version.stat.device, version.stat.inode, version.coding);
        let old = cache.remove(&key).map(|(_, old)| old);
        cache.insert(key, Arc::clone(version));
        old
    }
}

fn push_line(fields: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        fields.extend_from_slice(part);
    }
}

/// Hashing for keys that are our own counters, which clients cannot choose.
pub(crate) type IdHashing = BuildHasherDefault<IdHasher>;

/// Spreads a counter over 64 bits by one multiplication (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ (spread >> 32);
    }
}
