//! The caches of one worker: the paper's three (Flash 1999, sections 5.2 to 5.4: names, response heads and
//! contents), and open files, listings, and request heads known by their bytes. The bytes of contents are
//! blocks that the machine shares among all workers ([`crate::machine::Blocks`]); this module keeps only
//! their heads.
//!
//! Heads belong to a [`Version`] and need no invalidation, because a changed file is a new version. Handlers
//! query and fill this module. Its replacement policy is that of `quick_cache`, which resists scans: cold
//! files that are requested once do not evict the hot ones. The keeper decides which blocks stay in memory.

mod contents;
mod find;
mod lately_asked;
mod listings;
mod names;
mod open_files;
mod own_look_ups;
mod password_results;
mod repeated;
mod version;

use std::sync::Arc;

use flash_http::negotiate::Coding;
use flash_http::types::{TypeTable, compressible};

pub(crate) use contents::{Content, ContentBytes, Contents};
pub use find::find;
pub(crate) use find::relative;
pub(crate) use listings::Listings;
pub(crate) use names::{ListingForms, NameEntry, Names, Resolved, Resource};
pub(crate) use open_files::OpenFiles;
pub(crate) use password_results::PasswordResults;
pub(crate) use repeated::{HeadHash, Pass, Persistence, RepeatedReply, RepeatedRequests, ReplyForm};
pub(crate) use version::{Forms, Version, VersionKind, VersionOrigin, Versions};

use crate::limits::{COMPRESSED_BYTES_MAX, COMPRESSED_FROM_BYTES, LISTING_MS};
use crate::machine::{FileStat, Finding, ListingForm, Moment, NameMark, Opened};
use crate::rules::Rules;
use crate::slab::SiteId;
use crate::slab::VersionId;
use lately_asked::LatelyAsked;
use own_look_ups::OwnLookUps;

/// The caches of a worker.
#[derive(Debug)]
pub(crate) struct Caches<F> {
    pub(crate) names: Names,
    pub(crate) contents: Contents,
    pub(crate) files: OpenFiles<F>,
    pub(crate) repeated: RepeatedRequests,
    pub(crate) listings: Listings,
    pub(crate) password_results: PasswordResults,
    own_look_ups: OwnLookUps,
    lately_asked: LatelyAsked,
    /// How long an older finding of another process can be in use.
    own_look_ups_last_ms: u64,
    shares_names: bool,
    /// Used only if names are not cached; otherwise names lead to their versions.
    versions_by_file: Versions,
    versions: u64,
    types: TypeTable,
    /// Whether helpers compress the texts of each site.
    compresses: Vec<bool>,
    keeps_heads: bool,
    tags_by_change: bool,
}

/// Another process's finding for a name, and its age.
#[derive(Debug)]
pub(crate) struct SharedFinding<F> {
    pub(crate) finding: Finding<F>,
    /// When it was looked up, in milliseconds of the monotonic clock.
    pub(crate) found_ms: u64,
    /// When it was last known to be true.
    pub(crate) confirmed_ms: u64,
    /// Where its changes are reported; None if they are not.
    pub(crate) watched: Option<NameMark>,
}

/// A name that was looked up, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookedUp<'p> {
    pub(crate) site: SiteId,
    pub(crate) path: &'p [u8],
    /// The earliest time at which the finding is known to be true, in milliseconds of the monotonic clock.
    pub(crate) as_of_ms: u64,
    /// Whether this worker has just looked it up itself, so that any finding of another process is older.
    pub(crate) is_own: bool,
}

impl<F> Caches<F> {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            names: Names::new(rules.name_cache_bytes_max()),
            contents: Contents::new(rules.contents_max()),
            files: OpenFiles::new(rules.open_files_max),
            repeated: RepeatedRequests::new(rules.repeated_requests_max()),
            listings: Listings::default(),
            password_results: PasswordResults::default(),
            own_look_ups: OwnLookUps::default(),
            lately_asked: LatelyAsked::default(),
            shares_names: rules.shares_names(),
            own_look_ups_last_ms: rules.freshness_ms.saturating_add(rules.stale_ms),
            versions_by_file: Versions::new(rules.versions_max()),
            versions: 0,
            types: rules.types.clone(),
            compresses: rules.sites.iter().map(|site| site.compress && rules.has_store).collect(),
            keeps_heads: rules.optimizations.head_cache,
            tags_by_change: rules.etag_of_change,
        }
    }

    /// Takes over what another process has found for a name, unless this worker knows it better. Returns the entry,
    /// which is then in the name cache, unless the cache is full and the name was not asked for lately.
    pub(crate) fn take_shared(
        &mut self,
        site: SiteId,
        path: &[u8],
        shared_finding: SharedFinding<F>,
        now: Moment,
    ) -> Option<Arc<NameEntry>> {
        let SharedFinding { finding, found_ms, confirmed_ms, watched } = shared_finding;
        let is_watched = watched.is_some();
        let is_outdated = self.own_look_ups.is_outdated(site, path, found_ms);
        let own = self.names.get(site, path).map(Arc::clone);
        if let (Some(own), Finding::Listing, true) = (&own, &finding, is_watched)
            && let Resolved::Listing(forms) = &own.resolved
        {
            // The directory is as it was found, so listings that were read since are true. But the sizes and times of
            // files behind links can have changed without a report.
            for listing in forms.drop_before(found_ms.max(now.monotonic_ms().saturating_sub(LISTING_MS))) {
                self.forget_version(listing.id);
            }
            own.confirm(confirmed_ms.max(own.confirmed_ms.get()), watched);
            own.compare(now.monotonic_ms());
            return Some(Arc::clone(own));
        }
        if let Some(own) = &own {
            let own_ms = own.confirmed_ms.get();
            if own_ms > confirmed_ms || (own_ms == confirmed_ms && !is_watched) {
                own.set_watched(is_watched && own.confirmed_by(&finding));
                return None;
            }
            // The worker's own finding of the same millisecond can be newer, but not if both are the same.
            if own.confirmed_by(&finding) && (is_watched || !is_outdated) {
                own.confirm(confirmed_ms, watched);
                own.compare(now.monotonic_ms());
                return Some(Arc::clone(own));
            }
            if own_ms == confirmed_ms {
                return None;
            }
        }
        if is_outdated {
            return None;
        }
        let name = LookedUp { site, path, as_of_ms: confirmed_ms, is_own: false };
        let is_passing = own.is_none()
            && is_watched
            && !matches!(finding, Finding::Listing)
            && self.names.is_full()
            && !self.lately_asked.note(site, path);
        let entry = if is_passing {
            let versioning = Versioning { site, old: &[], now, is_passing };
            NameEntry::new(self.resolve(&versioning, finding), confirmed_ms)
        } else {
            self.keep_finding(name, finding, now)
        };
        entry.confirm(confirmed_ms, watched);
        entry.compare(now.monotonic_ms());
        Some(entry)
    }

    /// No finding up to this time may replace one of this worker, even if its own is dropped.
    pub(crate) fn outdate_shared(&mut self, site: SiteId, path: &[u8], now_ms: u64) {
        self.own_look_ups.note(site, path, now_ms + 1, self.own_look_ups_last_ms);
    }

    /// Stores a finding of this worker or of its helper in the name cache. Versions of unchanged files stay, with
    /// their contents; other versions are dropped.
    pub(crate) fn learn(&mut self, name: LookedUp<'_>, finding: Finding<F>, now: Moment) -> Arc<NameEntry> {
        // A helper's finding is what it tells all workers too.
        self.own_look_ups.note(
            name.site,
            name.path,
            name.as_of_ms + u64::from(name.is_own),
            self.own_look_ups_last_ms,
        );
        self.keep_finding(name, finding, now)
    }

    fn keep_finding(&mut self, name: LookedUp<'_>, finding: Finding<F>, now: Moment) -> Arc<NameEntry> {
        let LookedUp { site, path, as_of_ms, is_own: _ } = name;
        if let Some(newer) = self.names.get(site, path).filter(|entry| entry.confirmed_ms.get() >= as_of_ms) {
            // The finding is older than the cached entry: its helper was slow, or a file was opened again.
            let newer = Arc::clone(newer);
            self.keep_files(&newer, finding, now);
            return newer;
        }
        let before = self.names.remove(site, path);
        let old = before.as_ref().map(|entry| entry.versions()).unwrap_or_default();
        let versioning = Versioning { site, old: &old, now, is_passing: false };
        let entry = NameEntry::new(self.resolve(&versioning, finding), as_of_ms);
        if let Some(before) = &before {
            entry.follow(before);
            // A repeated request can still have it.
            before.miss();
        }
        if self.shares_names {
            entry.compare(now.monotonic_ms());
        }
        let kept = entry.versions();
        for version in old.iter().filter(|version| !kept.iter().any(|k| k.id == version.id)) {
            self.forget_version(version.id);
        }
        self.names.insert(site, path, Arc::clone(&entry));
        entry
    }

    fn resolve(&mut self, versioning: &Versioning<'_>, finding: Finding<F>) -> Resolved {
        match finding {
            Finding::File { plain, coded, path } => {
                Resolved::File(self.learn_file(versioning, &path, plain, coded))
            }
            Finding::Script => Resolved::Script,
            Finding::Redirect => Resolved::Redirect,
            Finding::Listing => Resolved::Listing(ListingForms::default()),
            Finding::Missing => Resolved::Missing,
            Finding::Denied => Resolved::Denied,
        }
    }

    /// Keeps the files of a finding that match an entry.
    fn keep_files(&mut self, entry: &NameEntry, finding: Finding<F>, now: Moment) {
        let (Resolved::File(known), Finding::File { plain, coded, .. }) = (&entry.resolved, finding) else {
            return;
        };
        let coded = known.coded.iter().zip(coded).filter_map(|(version, found)| version.as_ref().zip(found));
        for (version, found) in coded.chain([(&known.plain, plain)]) {
            if version.stat == found.stat {
                self.keep_file(version.id, found.file, now);
            }
        }
    }

    /// Keeps a file open, also if its content is in memory: an open file tells without waiting whether it is still what
    /// its entry says, and the kernel does not forget its name.
    fn keep_file(&mut self, id: VersionId, file: Option<F>, now: Moment) {
        if let Some(file) = file {
            self.files.insert(id, Arc::new(file), now.monotonic_ms());
        }
    }

    fn learn_file(
        &mut self,
        versioning: &Versioning<'_>,
        path: &[u8],
        plain: Opened<F>,
        coded: [Option<Opened<F>>; 3],
    ) -> Resource {
        let content_type = self.types.lookup(path).into_owned();
        let compresses = self.compresses(versioning.site)
            && compressible(&content_type)
            && (COMPRESSED_FROM_BYTES..=COMPRESSED_BYTES_MAX).contains(&plain.stat.size_bytes);
        let varies = compresses || coded.iter().any(Option::is_some);
        let origin = |coding| VersionOrigin {
            site: versioning.site,
            coding,
            varies,
            has_forms: compresses && coding.is_none(),
            is_passing: versioning.is_passing,
        };
        let mut learn = |found: Opened<F>, coding: Option<Coding>| {
            let version = self.version(versioning, &found.stat, &content_type, origin(coding));
            self.keep_file(version.id, found.file, versioning.now);
            version
        };
        let mut codings = Coding::ALL.into_iter();
        let coded = coded.map(|found| {
            let coding = codings.next();
            found.map(|found| learn(found, coding))
        });
        Resource { plain: learn(plain, None), coded }
    }

    fn version(
        &mut self,
        versioning: &Versioning<'_>,
        stat: &FileStat,
        content_type: &str,
        origin: VersionOrigin,
    ) -> Arc<Version> {
        let same = |known: &&Arc<Version>| {
            known.matches(stat) && known.varies == origin.varies && known.coding == origin.coding
        };
        if let Some(known) = versioning.old.iter().find(same) {
            return Arc::clone(known);
        }
        let by_file = self.versions_by_file.get(origin, stat).filter(same);
        // Two names of one file can have different content types.
        if let Some(known) = by_file.filter(|known| known.content_type == content_type) {
            return Arc::clone(known);
        }
        let id = self.next_version();
        let version = Version::of_file(id, origin, *stat, content_type, versioning.now)
            .tagged_by_change(self.tags_by_change);
        let version = Arc::new(version.keeping_fields(self.keeps_heads));
        if let Some(old) = self.versions_by_file.insert(&version) {
            self.forget_version(old.id);
        }
        version
    }

    /// Whether helpers compress the texts of a site.
    pub(crate) fn compresses(&self, site: SiteId) -> bool {
        self.compresses[usize::from(site.0)]
    }

    /// The version of a form of a file, which has this length.
    pub(crate) fn version_of_form(
        &mut self,
        file: &Version,
        coding: Coding,
        size_bytes: u64,
    ) -> Arc<Version> {
        Arc::new(file.of_form(self.next_version(), coding, size_bytes))
    }

    /// Stores a listing that a helper has made.
    pub(crate) fn keep_listing(
        &mut self,
        listing: MadeListing<'_, F>,
        now_ms: u64,
    ) -> (Arc<Version>, Arc<F>) {
        let MadeListing { site, path, form, file, stat, read_ms } = listing;
        let varies = self.compresses(site);
        let version = Version::of_listing(self.next_version(), (site, form), stat, varies);
        let version = Arc::new(version.keeping_fields(self.keeps_heads));
        let file = Arc::new(file);
        self.listings.push(site, path, form, &version);
        if let Some(Resolved::Listing(forms)) = self.names.get(site, path).map(|entry| &entry.resolved) {
            forms.set(form, Arc::clone(&version), read_ms);
            self.files.insert(version.id, Arc::clone(&file), now_ms);
        }
        (version, file)
    }

    /// Whether there is room for one more listing in addition to `under_way`. Drops old listings that are not
    /// being sent, first those in another order than the default: a client that asks for all orders drops few others.
    pub(crate) fn has_room_for_listing(&mut self, under_way: usize) -> bool {
        for in_default_order in [false, true] {
            for _ in 0..self.listings.len() {
                if self.listings.has_room(under_way) {
                    return true;
                }
                let Some(kept) = self.listings.pop(in_default_order) else { break };
                if let Some(version) = kept.version.upgrade() {
                    self.forget_listing(kept.site, &kept.path, &version);
                }
                self.listings.put_back(kept);
            }
        }
        self.listings.has_room(under_way)
    }

    /// Drops a listing, so that it is made again.
    pub(crate) fn forget_listing(&mut self, site: SiteId, path: &[u8], listing: &Version) {
        if let Some(Resolved::Listing(forms)) = self.names.get(site, path).map(|entry| &entry.resolved) {
            forms.drop_one(listing.id);
        }
        self.forget_version(listing.id);
    }

    /// Caches the content of a file whose block is in the store, if the name of the file is cached too.
    pub(crate) fn keep_content(&mut self, version: &Version, content: &Arc<Content>) {
        if !version.is_passing {
            self.contents.insert(version.id, Arc::clone(content));
        }
    }

    /// Drops the entry of a name, so that the name is looked up again.
    pub(crate) fn forget(&mut self, site: SiteId, path: &[u8], entry: &Arc<NameEntry>) {
        // Another request may already have looked the name up again.
        if self.names.get(site, path).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            self.names.remove(site, path);
        }
        for version in entry.versions() {
            self.forget_version(version.id);
        }
    }

    fn forget_version(&mut self, id: VersionId) {
        self.contents.remove(id);
        self.files.remove(id);
    }

    fn next_version(&mut self) -> VersionId {
        self.versions += 1;
        VersionId(self.versions)
    }
}

/// The context for finding the versions of a file.
struct Versioning<'a> {
    site: SiteId,
    /// The versions that its name had before.
    old: &'a [Arc<Version>],
    now: Moment,
    /// As in [`VersionOrigin`].
    is_passing: bool,
}

/// A directory listing made by a helper.
#[derive(Debug)]
pub(crate) struct MadeListing<'p, F> {
    pub(crate) site: SiteId,
    pub(crate) path: &'p [u8],
    pub(crate) form: ListingForm,
    pub(crate) file: F,
    pub(crate) stat: FileStat,
    /// When the directory was read at the earliest, in milliseconds of the monotonic clock.
    pub(crate) read_ms: u64,
}
