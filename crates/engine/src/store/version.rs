//! One state of one file, with everything its responses say of it.

use std::borrow::Cow;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use flash_http::date::http_date;
use flash_http::etag::etag;
use flash_http::negotiate::Coding;
use quick_cache::unsync::Cache;

use crate::limits::RACY_NS;
use crate::machine::{FileStat, Moment};
use crate::rules::SiteId;
use crate::slab::VersionId;

/// Where a version comes from, and how it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionOrigin {
    /// The site on whose disk it is read.
    pub(crate) site: SiteId,
    /// The coding of a precompressed sibling.
    pub(crate) coding: Option<Coding>,
    /// Whether it has siblings in other codings, or is one.
    pub(crate) varies: bool,
}

/// One state of one file. Content, length, validators and head all come from here, so they
/// always belong together.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    /// The site on whose disk it is read.
    pub(crate) site: SiteId,
    pub(crate) stat: FileStat,
    /// Changed so shortly before it was seen that another change could go unnoticed.
    pub(crate) racy: bool,
    /// Whether it has siblings in other codings, or is one.
    pub(crate) varies: bool,
    pub(crate) coding: Option<Coding>,
    pub(crate) etag: String,
    pub(crate) modified_s: i64,
    pub(crate) content_type: String,
    is_listing: bool,
    /// [`Version::lines`], where heads are kept.
    kept_fields: Option<Vec<u8>>,
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
        // Never later than the answer itself (RFC 9110, section 8.8.2.1).
        let modified_s = stat.modified_ns.min(now.wall_ns).div_euclid(1_000_000_000) as i64;
        let etag = etag(stat.size_bytes, stat.modified_ns, None, coding);
        Self {
            id,
            site,
            stat,
            racy: (now.wall_ns - stat.changed_ns).abs() < RACY_NS,
            varies,
            coding,
            etag,
            modified_s,
            content_type: content_type.to_owned(),
            is_listing: false,
            kept_fields: None,
        }
    }

    /// The same, whose tag also holds the time of change where that is asked for. To be called before
    /// [`Version::keeping_fields`].
    pub(crate) fn tagged_by_change(self, is_asked: bool) -> Self {
        if !is_asked {
            return self;
        }
        let stat = &self.stat;
        let etag = etag(stat.size_bytes, stat.modified_ns, Some(stat.changed_ns), self.coding);
        Self { etag, ..self }
    }

    /// A listing, made by a helper: it has no validators.
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
        }
    }

    /// The same, which keeps the part of its head that belongs to it.
    pub(crate) fn keeping_fields(self, keeps: bool) -> Self {
        let kept_fields = keeps.then(|| self.make_fields());
        Self { kept_fields, ..self }
    }

    /// The fields of a 200 and a 206, without `Content-Type` and `Content-Length`, each given to `field`.
    pub(crate) fn each_field(&self, mut field: impl FnMut(&'static str, &[u8])) {
        if self.is_listing {
            field("X-Content-Type-Options", b"nosniff");
            field("Cache-Control", b"no-cache");
            return field("Vary", b"Accept");
        }
        field("ETag", self.etag.as_bytes());
        field("Last-Modified", &http_date(self.modified_s));
        field("Accept-Ranges", b"bytes");
        field("X-Content-Type-Options", b"nosniff");
        if let Some(coding) = self.coding {
            field("Content-Encoding", coding.token().as_bytes());
        }
        if self.varies {
            field("Vary", b"Accept-Encoding");
        }
    }

    /// The validators and `Vary`, which a 304 repeats (RFC 9110, section 15.4.5).
    pub(crate) fn each_validator(&self, mut field: impl FnMut(&'static str, &[u8])) {
        field("ETag", self.etag.as_bytes());
        field("Last-Modified", &http_date(self.modified_s));
        if self.varies {
            field("Vary", b"Accept-Encoding");
        }
    }

    /// The lines of [`Version::each_field`] as HTTP/1 has them.
    pub(crate) fn lines(&self) -> Cow<'_, [u8]> {
        self.kept_fields.as_deref().map_or_else(|| self.make_fields().into(), Cow::Borrowed)
    }

    fn make_fields(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(192);
        self.each_field(|name, value| push_line(&mut fields, name, value));
        fields
    }

    /// Whether the same bytes would be read for `stat` through the path that led here.
    pub(crate) fn matches(&self, stat: &FileStat) -> bool {
        !self.racy && self.stat == *stat
    }
}

/// Versions by the files that they are of, bounded in number. Used where names are not kept: a file
/// that is found again is known to be of the same version, so its content and head are found, too.
#[derive(Debug)]
pub(crate) struct Versions(Option<Cache<FileKey, Arc<Version>>>);

/// A file as it is served: on the disk of a site, by device and inode number, in a coding.
type FileKey = (SiteId, u64, u64, Option<Coding>);

impl Versions {
    /// At most this many; 0 switches it off.
    pub(crate) fn new(versions_max: usize) -> Self {
        Self((versions_max > 0).then(|| Cache::new(versions_max)))
    }

    /// The version that was seen last of the file with this state.
    pub(crate) fn get(&self, origin: VersionOrigin, stat: &FileStat) -> Option<&Arc<Version>> {
        self.0.as_ref()?.get(&(origin.site, stat.device, stat.inode, origin.coding))
    }

    /// Puts a version in and gives the one that it replaces.
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

/// Hashing for keys that are our own counters, which no client chooses.
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
