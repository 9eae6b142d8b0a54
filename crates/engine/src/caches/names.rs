//! The paper's pathname cache: for each path of each site, the file or directory found there, or that it is
//! missing.

use std::hash::{Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, Weighter};

use super::version::Version;
use crate::limits::{
    NAME_ENTRY_BYTES, NAMES_EXPECTED, SECOND_LOOK_UP_MS, SECOND_LOOK_UP_MS_MAX, UNREPORTED_MS, UNWATCHED_MS,
    VERSION_BYTES, WATCHED_MS, WATCHED_PROOF_MS,
};
use crate::machine::{Finding, ListingForm, NameMark};
use crate::slab::SiteId;
use crate::slab::VersionId;

/// The result that a path leads to.
#[derive(Debug)]
pub(crate) enum Resolved {
    /// A file.
    File(Resource),
    /// A file that a route runs, and that is never sent.
    Script,
    /// A directory whose path lacks the final slash.
    Redirect,
    /// A directory to be listed.
    Listing(ListingForms),
    /// No file, or a file that Flash does not serve.
    Missing,
    /// A file that the server lacks permission to read.
    Denied,
}

impl Resolved {
    /// Whether a request for the path gets an answer without an application: a file, a listing, or an error about one.
    pub(crate) fn answers(&self) -> bool {
        !matches!(self, Resolved::Missing | Resolved::Script)
    }
}

/// A file and its precompressed siblings.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) plain: Arc<Version>,
    /// In the order of `Coding::ALL`.
    pub(crate) coded: [Option<Arc<Version>>; 3],
}

impl Resource {
    /// The file and its siblings.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.coded.iter().flatten().chain([&self.plain])
    }

    /// The compressed forms of the file that helpers have made.
    fn forms(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.plain.forms.iter().flat_map(|forms| forms.versions())
    }
}

/// The listings of a directory, at most one in each form.
#[derive(Debug, Default)]
pub(crate) struct ListingForms(Mutex<Vec<RenderedListing>>);

/// A listing in one form, and when its directory was read.
#[derive(Debug)]
struct RenderedListing {
    form: ListingForm,
    listing: Arc<Version>,
    read_ms: u64,
}

impl ListingForms {
    /// The listing in this form, if it is made.
    pub(crate) fn get(&self, form: ListingForm) -> Option<Arc<Version>> {
        let made = self.lock();
        Some(Arc::clone(&made.iter().find(|made| made.form == form)?.listing))
    }

    pub(crate) fn set(&self, form: ListingForm, listing: Arc<Version>, read_ms: u64) {
        let mut made = self.lock();
        made.retain(|made| made.form != form);
        made.push(RenderedListing { form, listing, read_ms });
    }

    /// Drops the listings that were read before this time, and returns them.
    pub(crate) fn drop_before(&self, ms: u64) -> Vec<Arc<Version>> {
        self.lock().extract_if(.., |made| made.read_ms < ms).map(|made| made.listing).collect()
    }

    /// Drops a listing.
    pub(crate) fn drop_one(&self, id: VersionId) {
        self.lock().retain(|made| made.listing.id != id);
    }

    fn all(&self) -> Vec<Arc<Version>> {
        self.lock().iter().map(|made| Arc::clone(&made.listing)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RenderedListing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time in milliseconds of the monotonic clock, in an entry that is shared.
#[derive(Debug)]
pub(crate) struct MomentMs(AtomicU64);

impl MomentMs {
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, ms: u64) {
        self.0.store(ms, Ordering::Relaxed);
    }

    /// Makes it earlier than any time that counts, however short the machine has been running.
    pub(crate) fn clear(&self) {
        self.set(0);
    }

    /// How long ago it was.
    #[inline]
    pub(crate) fn age_ms(&self, now_ms: u64) -> u64 {
        match self.get() {
            0 => u64::MAX,
            ms => now_ms.saturating_sub(ms),
        }
    }
}

/// An entry of the name cache: the result for a path, and how old it is.
#[derive(Debug)]
pub(crate) struct NameEntry {
    pub(crate) resolved: Resolved,
    /// Since when the entry is used without another check.
    pub(crate) accepted_ms: MomentMs,
    /// When the entry was last known to be true. Older than `accepted_ms` if a check would have blocked.
    pub(crate) confirmed_ms: MomentMs,
    /// Whether it is one of the names that all workers share and whose changes are reported.
    watched: AtomicBool,
    /// Whether it was at some time, or the entry before it was.
    was_watched: AtomicBool,
    /// Until when it need not be compared with the names that all workers share.
    pub(crate) compared_to_ms: MomentMs,
    /// When absent siblings were last looked up.
    pub(crate) siblings_ms: MomentMs,
    /// When it was last checked although its changes are reported.
    pub(crate) proved_ms: MomentMs,
    /// By which it is known to be unchanged: the watch and the shard of its mark, and the changes.
    mark: [AtomicU64; 2],
    /// When it became known to this worker.
    created_ms: u64,
    /// When a helper may look it up again, so that its changes are reported.
    second_look_up_ms: MomentMs,
}

impl NameEntry {
    pub(crate) fn new(resolved: Resolved, as_of_ms: u64) -> Arc<Self> {
        let now = || MomentMs(AtomicU64::new(as_of_ms));
        Arc::new(Self {
            resolved,
            accepted_ms: now(),
            confirmed_ms: now(),
            siblings_ms: now(),
            proved_ms: now(),
            created_ms: as_of_ms,
            second_look_up_ms: now(),
            mark: Default::default(),
            watched: AtomicBool::new(false),
            was_watched: AtomicBool::new(false),
            compared_to_ms: MomentMs(AtomicU64::new(u64::MAX)),
        })
    }

    /// Whether the entry is recent enough to be used without a check.
    #[inline]
    pub(crate) fn is_fresh(&self, now_ms: u64, freshness_ms: u64) -> bool {
        self.is_accepted(now_ms, freshness_ms) & (now_ms <= self.compared_to_ms.get())
    }

    /// The same, whatever all workers share.
    #[inline]
    pub(crate) fn is_accepted(&self, now_ms: u64, freshness_ms: u64) -> bool {
        self.accepted_ms.age_ms(now_ms) <= freshness_ms
    }

    /// Whether all workers share it and its changes are reported.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Ordering::Relaxed)
    }

    /// Whether it is used without checks and was not checked for long: a change through a second name of its file, which
    /// came later, is not told.
    pub(crate) fn lacks_proof(&self, now_ms: u64) -> bool {
        self.is_watched()
            && !matches!(self.resolved, Resolved::Listing(_))
            && self.proved_ms.age_ms(now_ms) >= WATCHED_PROOF_MS
    }

    /// The same. This call counts as the check.
    pub(crate) fn needs_proof(&self, now_ms: u64) -> bool {
        let needs = self.lacks_proof(now_ms);
        if needs {
            self.proved_ms.set(now_ms);
        }
        needs
    }

    /// Whether a helper should look it up so that its changes are reported from now on: it may have been found before its
    /// directory was watched. The pauses double, because many names cannot be watched. This call counts as the look-up.
    pub(crate) fn needs_second_look_up(&self, now_ms: u64) -> bool {
        let needs = !self.is_watched() && now_ms >= self.second_look_up_ms.get();
        if needs {
            let age_ms = now_ms.saturating_sub(self.created_ms);
            self.second_look_up_ms.set(now_ms + age_ms.clamp(SECOND_LOOK_UP_MS, SECOND_LOOK_UP_MS_MAX));
        }
        needs
    }

    /// Whether its changes may be told later, but are not now: it is new, or they were told until it was missed for a moment among the
    /// names that all workers share. A listing does not count: it cannot be checked, only made again, which costs too much.
    fn is_unreported(&self, now_ms: u64) -> bool {
        let is_new = now_ms.saturating_sub(self.created_ms) < UNREPORTED_MS;
        !self.is_watched()
            && !matches!(self.resolved, Resolved::Listing(_))
            && (is_new || self.was_watched.load(Ordering::Relaxed))
    }

    /// Makes the next request check the entry while a change since it was found can be missed.
    pub(crate) fn distrust_unreported(&self, now_ms: u64) {
        if self.is_unreported(now_ms) {
            self.accepted_ms.clear();
        }
    }

    /// It takes the place of an older entry for the same name.
    pub(crate) fn follow(&self, old: &NameEntry) {
        self.was_watched.store(old.was_watched.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Takes over whether its changes are reported. If they no longer are, one may have been missed, so the entry is checked.
    pub(crate) fn set_watched(&self, is_watched: bool) {
        if is_watched {
            self.was_watched.store(true, Ordering::Relaxed);
        }
        if self.watched.swap(is_watched, Ordering::Relaxed) && !is_watched {
            self.accepted_ms.clear();
        }
    }

    /// Takes over a later time, at which the entry was true too, and where its changes are reported.
    pub(crate) fn confirm(&self, confirmed_ms: u64, watched: Option<NameMark>) {
        self.set_watched(watched.is_some());
        self.set_mark(watched);
        self.confirmed_ms.set(confirmed_ms);
        self.accepted_ms.set(confirmed_ms.max(self.accepted_ms.get()));
    }

    /// A listing keeps no mark: it is also made again when it is old.
    fn set_mark(&self, found: Option<NameMark>) {
        let found = found.filter(|_| !matches!(self.resolved, Resolved::Listing(_)));
        let mark = found.unwrap_or(NameMark { watch: 0, shard: 0, changes: 0 });
        self.mark[0].store(u64::from(mark.watch) << 16 | u64::from(mark.shard), Ordering::Relaxed);
        self.mark[1].store(mark.changes, Ordering::Relaxed);
    }

    /// Its mark, if its changes are reported.
    #[inline]
    pub(crate) fn mark(&self) -> Option<NameMark> {
        let place = self.mark[0].load(Ordering::Relaxed);
        let mark = NameMark {
            watch: (place >> 16) as u32,
            shard: place as u16,
            changes: self.mark[1].load(Ordering::Relaxed),
        };
        (self.is_watched() && mark.watch != 0).then_some(mark)
    }

    /// It is not among the names that all workers share, or wrong. If its changes are reported, it has changed.
    pub(crate) fn miss(&self) {
        if self.watched.swap(false, Ordering::Relaxed) {
            self.confirmed_ms.clear();
            self.accepted_ms.clear();
        }
    }

    /// It is compared with the names that all workers share now, and then after a while again.
    pub(crate) fn compare(&self, now_ms: u64) {
        let is_soon = self.is_watched() || self.is_unreported(now_ms);
        self.compared_to_ms.set(now_ms + if is_soon { WATCHED_MS } else { UNWATCHED_MS });
    }

    /// Whether a new look-up found the same as this entry.
    pub(crate) fn confirmed_by<F>(&self, finding: &Finding<F>) -> bool {
        match (&self.resolved, finding) {
            (Resolved::File(resource), Finding::File { plain, coded, .. }) => {
                resource.plain.matches(&plain.stat)
                    && resource.coded.iter().zip(coded).all(|(known, found)| match (known, found) {
                        (None, None) => true,
                        (Some(known), Some(found)) => known.matches(&found.stat),
                        _ => false,
                    })
            }
            (Resolved::Script, Finding::Script)
            | (Resolved::Redirect, Finding::Redirect)
            | (Resolved::Missing, Finding::Missing)
            | (Resolved::Denied, Finding::Denied) => true,
            // A listing is made again, because its content can change although the directory does not.
            _ => false,
        }
    }

    /// The versions that this entry leads to.
    pub(crate) fn versions(&self) -> Vec<Arc<Version>> {
        match &self.resolved {
            Resolved::File(resource) => resource.versions().chain(resource.forms()).map(Arc::clone).collect(),
            Resolved::Listing(forms) => forms.all(),
            _ => Vec::new(),
        }
    }
}

/// A site and a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) site: SiteId,
    pub(crate) path: Box<[u8]>,
}

/// A [`Name`] borrowed for a look-up.
struct NameRef<'a>(SiteId, &'a [u8]);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        NameRef(self.site, &self.path).hash(state);
    }
}

impl Hash for NameRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u16(self.0.0);
        state.write(self.1);
    }
}

impl Equivalent<Name> for NameRef<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.0 == name.site && self.1 == &*name.path
    }
}

#[derive(Clone, Debug)]
struct NameBytes;

impl Weighter<Name, Arc<NameEntry>> for NameBytes {
    fn weight(&self, name: &Name, entry: &Arc<NameEntry>) -> u64 {
        let versions = match &entry.resolved {
            // Most clients accept the same coding, so most files have one form.
            Resolved::File(resource) => {
                let forms = usize::from(resource.plain.forms.is_some());
                resource.versions().count() + forms
            }
            Resolved::Listing(_) => 2,
            Resolved::Script | Resolved::Redirect | Resolved::Missing | Resolved::Denied => 0,
        };
        (name.path.len() + NAME_ENTRY_BYTES + versions * VERSION_BYTES) as u64
    }
}

/// Entries by site and path, bounded in bytes. The hash is keyed, because clients choose the paths.
#[derive(Debug)]
pub(crate) struct Names {
    /// None if the cache is disabled.
    cache: Option<Cache<Name, Arc<NameEntry>, NameBytes, RandomState>>,
}

impl Names {
    /// Makes a cache of at most this many bytes; 0 disables it.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let cache = || {
            Cache::with(NAMES_EXPECTED, bytes_max, NameBytes, RandomState::new(), DefaultLifecycle::default())
        };
        Self { cache: (bytes_max > 0).then(cache) }
    }

    #[inline]
    pub(crate) fn get(&self, site: SiteId, path: &[u8]) -> Option<&Arc<NameEntry>> {
        self.cache.as_ref()?.get(&NameRef(site, path))
    }

    /// Inserts an entry and returns the one that it replaces.
    pub(crate) fn insert(
        &mut self,
        site: SiteId,
        path: &[u8],
        entry: Arc<NameEntry>,
    ) -> Option<Arc<NameEntry>> {
        let old = self.remove(site, path);
        self.cache.as_mut()?.insert(Name { site, path: path.into() }, entry);
        old
    }

    pub(crate) fn remove(&mut self, site: SiteId, path: &[u8]) -> Option<Arc<NameEntry>> {
        self.cache.as_mut()?.remove(&NameRef(site, path)).map(|(_, entry)| entry)
    }

    /// Whether a further file would take the place of others.
    pub(crate) fn is_full(&self) -> bool {
        let a_file = (NAME_ENTRY_BYTES + VERSION_BYTES) as u64;
        self.cache.as_ref().is_some_and(|cache| cache.weight() + a_file > cache.capacity())
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.cache.as_ref().map_or(0, Cache::len)
    }
}
