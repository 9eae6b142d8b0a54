//! One state of one file, with all that its responses say of it; and the files kept open.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use flash_http::date::http_date;
use flash_http::etag::etag;
use flash_http::negotiate::Coding;
use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use crate::limits::{FILES_OF_NAME_MAX, OPEN_FILES_MAX, RACY_NS};
use crate::rules::SiteId;
use crate::system::{FileStat, Moment};

/// The number of a version; never used twice in a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct VersionId(pub(crate) u64);

/// One state of one file. Content, length, validators and head all come from here, so they
/// always belong together.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    /// On whose disk it is read.
    pub(crate) site: SiteId,
    pub(crate) stat: FileStat,
    /// Changed so shortly before it was seen that another change could go unnoticed.
    pub(crate) racy: bool,
    /// Has siblings in other codings, or is one.
    pub(crate) varies: bool,
    pub(crate) coding: Option<Coding>,
    pub(crate) etag: String,
    pub(crate) modified_s: i64,
    pub(crate) content_type: String,
    is_listing: bool,
    /// What [`Version::fields`] gives; None where heads are not kept.
    kept_fields: Option<Vec<u8>>,
}

impl Version {
    pub(crate) fn of_file(
        id: VersionId,
        site: SiteId,
        stat: FileStat,
        content_type: &str,
        coding: Option<Coding>,
        varies: bool,
        now: Moment,
    ) -> Self {
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

    /// Header lines of a 200 and a 206, from `ETag` to `Accept-Ranges`, without `Content-Type` and
    /// `Content-Length`.
    pub(crate) fn fields(&self) -> Cow<'_, [u8]> {
        self.kept_fields.as_deref().map_or_else(|| self.make_fields().into(), Cow::Borrowed)
    }

    fn make_fields(&self) -> Vec<u8> {
        let mut fields = Vec::with_capacity(192);
        if self.is_listing {
            push_line(&mut fields, "X-Content-Type-Options", b"nosniff");
            push_line(&mut fields, "Cache-Control", b"no-cache");
            push_line(&mut fields, "Vary", b"Accept");
            return fields;
        }
        push_line(&mut fields, "ETag", self.etag.as_bytes());
        push_line(&mut fields, "Last-Modified", &http_date(self.modified_s));
        push_line(&mut fields, "Accept-Ranges", b"bytes");
        push_line(&mut fields, "X-Content-Type-Options", b"nosniff");
        if let Some(coding) = self.coding {
            push_line(&mut fields, "Content-Encoding", coding.token().as_bytes());
        }
        if self.varies {
            push_line(&mut fields, "Vary", b"Accept-Encoding");
        }
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
    /// At most so many; 0 switches it off.
    pub(crate) fn new(versions_max: usize) -> Self {
        Self((versions_max > 0).then(|| Cache::new(versions_max)))
    }

    /// The version that was seen last of the file with this state.
    pub(crate) fn get(&self, site: SiteId, stat: &FileStat, coding: Option<Coding>) -> Option<&Arc<Version>> {
        self.0.as_ref()?.get(&(site, stat.device, stat.inode, coding))
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

/// Files kept open by version.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    cache: Cache<VersionId, Arc<F>, UnitWeighter, IdHashing>,
    /// Those put in last: a small cache may let go of a file at once, and of all siblings that were
    /// found together the one that is asked for must still be there.
    latest: VecDeque<(VersionId, Arc<F>)>,
}

impl<F> OpenFiles<F> {
    pub(crate) fn new(files_max: usize) -> Self {
        let files_max = files_max.clamp(1, OPEN_FILES_MAX);
        Self {
            cache: Cache::with(
                files_max,
                files_max as u64,
                UnitWeighter,
                IdHashing::default(),
                DefaultLifecycle::default(),
            ),
            latest: VecDeque::with_capacity(FILES_OF_NAME_MAX),
        }
    }

    pub(crate) fn get(&self, id: VersionId) -> Option<Arc<F>> {
        let latest = || self.latest.iter().find(|(other, _)| *other == id).map(|(_, file)| file);
        self.cache.get(&id).or_else(latest).cloned()
    }

    pub(crate) fn insert(&mut self, id: VersionId, file: Arc<F>) {
        if self.latest.len() == FILES_OF_NAME_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back((id, Arc::clone(&file)));
        self.cache.insert(id, file);
    }

    /// Files held, but for those put in last.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(crate) fn remove(&mut self, id: VersionId) {
        self.cache.remove(&id);
        self.latest.retain(|(other, _)| *other != id);
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
