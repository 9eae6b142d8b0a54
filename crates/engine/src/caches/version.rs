//! One state of one file, with everything that responses say about it. The handlers' head makes the fields from it.

use std::borrow::Cow;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use flash_http::conditional::Validators;
use flash_http::etag::{etag, etag_of_form};
use flash_http::negotiate::Coding;
use quick_cache::unsync::Cache;

use crate::limits::{FILL_AGAIN_MS, FORM_AGAIN_MS_MAX};
use crate::machine::{FileStat, ListingForm, Moment};
use crate::slab::SiteId;
use crate::slab::VersionId;

/// The origin of a version, and how it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionOrigin {
    /// The site whose disk has the file.
    pub(crate) site: SiteId,
    /// The coding, if it is a precompressed sibling.
    pub(crate) coding: Option<Coding>,
    /// Whether it has siblings in other codings or compressed forms, or is one.
    pub(crate) varies: bool,
    /// Whether helpers make its compressed forms.
    pub(crate) has_forms: bool,
    /// Whether it is for one request only: its name is not cached, so nothing about it is.
    pub(crate) is_passing: bool,
}

/// The subject of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    File,
    /// A compressed form that a helper has made of a file.
    Form,
    Listing,
}

/// One state of one file. Content, length, validators and head all come from here, so they always match.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: VersionId,
    pub(crate) kind: VersionKind,
    /// The site whose disk has the file.
    pub(crate) site: SiteId,
    /// The state of the file, with the size of the bytes that are sent.
    pub(crate) stat: FileStat,
    /// Whether the file changed so recently that another change could go unnoticed.
    pub(crate) racy: bool,
    /// As in [`VersionOrigin`].
    pub(crate) varies: bool,
    /// As in [`VersionOrigin`].
    pub(crate) is_passing: bool,
    pub(crate) coding: Option<Coding>,
    pub(crate) etag: String,
    pub(crate) modified_s: i64,
    pub(crate) content_type: String,
    /// Its compressed forms, if helpers make them.
    pub(crate) forms: Option<Box<Forms>>,
    keeps_lines: bool,
    lines: OnceLock<Vec<u8>>,
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
        let VersionOrigin { site, coding, varies, has_forms, is_passing } = origin;
        // `Last-Modified` must not be later than the answer itself (RFC 9110, section 8.8.2.1).
        let modified_s = stat.modified_ns.min(now.wall_ns).div_euclid(1_000_000_000) as i64;
        let etag = etag(stat.size_bytes, stat.modified_ns, None, coding);
        Self {
            id,
            kind: VersionKind::File,
            site,
            stat,
            racy: stat.is_racy(now.wall_ns),
            varies,
            is_passing,
            coding,
            etag,
            modified_s,
            content_type: content_type.to_owned(),
            forms: has_forms.then(Box::default),
            keeps_lines: false,
            lines: OnceLock::new(),
            h2_fields: OnceLock::new(),
            fill_asked_ms: AtomicU64::new(0),
        }
    }

    /// Adds the time of the last metadata change to the tag if `is_asked`.
    pub(crate) fn tagged_by_change(self, is_asked: bool) -> Self {
        if !is_asked {
            return self;
        }
        let stat = &self.stat;
        let etag = etag(stat.size_bytes, stat.modified_ns, Some(stat.changed_ns), self.coding);
        Self { etag, ..self }
    }

    /// The version of a listing made by a helper. It has no validators. `varies` says whether other clients get it in other
    /// codings.
    pub(crate) fn of_listing(
        id: VersionId,
        (site, form): (SiteId, ListingForm),
        stat: FileStat,
        varies: bool,
    ) -> Self {
        let content_type = if form.json { "application/json" } else { "text/html; charset=utf-8" };
        Self {
            id,
            kind: VersionKind::Listing,
            site,
            stat,
            racy: false,
            varies,
            is_passing: false,
            coding: form.coding,
            etag: String::new(),
            modified_s: 0,
            content_type: content_type.to_owned(),
            forms: None,
            keeps_lines: false,
            lines: OnceLock::new(),
            h2_fields: OnceLock::new(),
            fill_asked_ms: AtomicU64::new(0),
        }
    }

    /// The version of a compressed form of this file. `size_bytes` is the length of the form.
    pub(crate) fn of_form(&self, id: VersionId, coding: Coding, size_bytes: u64) -> Self {
        Self {
            id,
            kind: VersionKind::Form,
            site: self.site,
            stat: FileStat { size_bytes, ..self.stat },
            racy: false,
            varies: true,
            is_passing: self.is_passing,
            coding: Some(coding),
            etag: etag_of_form(&self.etag, coding),
            modified_s: self.modified_s,
            content_type: self.content_type.clone(),
            forms: None,
            keeps_lines: self.keeps_lines,
            lines: OnceLock::new(),
            h2_fields: OnceLock::new(),
            fill_asked_ms: AtomicU64::new(0),
        }
    }

    /// Keeps the lines of its fields once they are made.
    pub(crate) fn keeping_fields(self, keeps: bool) -> Self {
        Self { keeps_lines: keeps, ..self }
    }

    /// The lines of its fields in a head of HTTP/1, which `make` returns.
    pub(crate) fn kept_lines(&self, make: impl FnOnce() -> Vec<u8>) -> Cow<'_, [u8]> {
        if self.keeps_lines { self.lines.get_or_init(make).into() } else { make().into() }
    }

    /// The part of a head of HTTP/2 that only this version has, which `make` returns.
    pub(crate) fn kept_h2_fields(&self, make: impl FnOnce() -> Box<[u8]>) -> &[u8] {
        self.h2_fields.get_or_init(make)
    }

    /// Its validators.
    pub(crate) fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_bytes(), modified_s: self.modified_s }
    }

    pub(crate) fn is_listing(&self) -> bool {
        self.kind == VersionKind::Listing
    }

    /// Whether the store can have its blocks. They are found by the file's state, which must be unambiguous.
    /// Listings are already in memory.
    pub(crate) fn is_storable(&self) -> bool {
        !self.racy && self.kind == VersionKind::File && self.stat.size_bytes > 0
    }

    /// Whether a block in the page cache should be requested for the store now.
    pub(crate) fn needs_fill(&self, now_ms: u64) -> bool {
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

/// The compressed forms of a file, each in the order of [`Coding::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Forms {
    /// The version of each that is known, or None if it would be no shorter than the file.
    known: [OnceLock<Option<Arc<Version>>>; 3],
    /// When a helper may be asked for it, in milliseconds of the monotonic clock.
    due_ms: [AtomicU64; 3],
    /// The pause before that.
    pause_ms: [AtomicU64; 3],
}

impl Forms {
    /// The version of a form, if it is known; None in it if the form would be no shorter than the file.
    pub(crate) fn get(&self, coding: Coding) -> Option<&Option<Arc<Version>>> {
        self.known[coding.place()].get()
    }

    /// Learns a form, if it is not known, and returns it as [`Forms::get`] does.
    pub(crate) fn learn(
        &self,
        coding: Coding,
        form: impl FnOnce() -> Option<Arc<Version>>,
    ) -> &Option<Arc<Version>> {
        self.known[coding.place()].get_or_init(form)
    }

    /// Whether the form would be no shorter than the file.
    pub(crate) fn is_useless(&self, coding: Coding) -> bool {
        matches!(self.get(coding), Some(None))
    }

    /// The forms that are known.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.known.iter().filter_map(|known| known.get()?.as_ref())
    }

    /// Whether a helper should be asked for a form now, which is not in memory. This call counts as the question. A store without
    /// room for a form must not have it made in vain again and again.
    pub(crate) fn needs_form(&self, coding: Coding, now_ms: u64) -> bool {
        let (due_ms, pause_ms) = (&self.due_ms[coding.place()], &self.pause_ms[coding.place()]);
        let is_due = now_ms >= due_ms.load(Ordering::Relaxed);
        if is_due {
            let next_ms = (2 * pause_ms.load(Ordering::Relaxed)).clamp(FILL_AGAIN_MS, FORM_AGAIN_MS_MAX);
            pause_ms.store(next_ms, Ordering::Relaxed);
            due_ms.store(now_ms + next_ms, Ordering::Relaxed);
        }
        is_due
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
