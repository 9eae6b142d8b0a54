//! Find file: from a path to the file that answers it.
//!
//! Paths are looked up by [`find`], here with look-ups that never wait.

use std::sync::Arc;

use flash_http::negotiate::Coding;
use flash_http::target::is_hidden;

use crate::cache::{Listings, NameEntry, NameKind, Resource, Version};
use crate::engine::Engine;
use crate::find::{Finding, find};
use crate::jobs::{JobId, JobKey, Task, Urgency};
use crate::rules::SiteId;
use crate::slab::Key;
use crate::system::{FileStat, LookUpError, Opened, System, Want};

/// How far the worker came by itself.
pub(crate) enum Search {
    /// The name is known.
    Entry(Arc<NameEntry>),
    /// It was not, and its file was opened just now.
    Opened(Arc<NameEntry>),
    /// A helper looks for it.
    Wait(JobId),
    /// The name is never served, and was not looked for.
    Hidden,
    /// The queue of jobs is full.
    Full,
    /// Descriptors or memory ran out.
    Exhausted,
    /// The file system failed.
    Failed,
}

impl<S: System> Engine<S> {
    /// Finds what a path leads to: in the name cache, else by a look-up that cannot wait, else
    /// through a helper. Its file must be opened anew where `unopened` says so.
    pub(crate) fn find_file(
        &mut self,
        sys: &mut S,
        key: Key,
        site: SiteId,
        path: &[u8],
        unopened: bool,
    ) -> Search {
        let now_ms = self.now.monotonic_ms;
        if !unopened && let Some(entry) = self.names.get(site, path) {
            if self.is_fresh(entry) {
                self.counters.name_hits += 1;
                return Search::Entry(Arc::clone(entry));
            }
            let entry = Arc::clone(entry);
            if self.still_true(sys, site, path, &entry) {
                entry.believed_ms.set(now_ms);
                self.counters.name_hits += 1;
                return Search::Entry(entry);
            }
        }
        if is_hidden(path) {
            return Search::Hidden;
        }
        self.counters.name_misses += 1;
        match self.find_cached(sys, site, path, Want::Content) {
            Ok(finding) => Search::Opened(self.learn(site, path, finding, now_ms)),
            Err(LookUpError::WouldWait) => match self.submit_find(site, path, Some(key)) {
                Some(job) => Search::Wait(job),
                None => Search::Full,
            },
            Err(LookUpError::Failed(_)) => Search::Failed,
            Err(_) => Search::Exhausted,
        }
    }

    /// Whether an entry was true so lately that it is believed.
    #[inline]
    pub(crate) fn is_fresh(&self, entry: &NameEntry) -> bool {
        self.now.monotonic_ms.saturating_sub(entry.believed_ms.get()) <= self.rules.freshness_ms
    }

    /// Checks an entry by a cached look-up. If even that would wait, the entry is believed for
    /// now and the check goes to a helper (DESIGN.md, "Freshness").
    fn still_true(&mut self, sys: &mut S, site: SiteId, path: &[u8], entry: &NameEntry) -> bool {
        if matches!(entry.kind, NameKind::Listing(_)) {
            return false;
        }
        match self.find_cached(sys, site, path, Want::Stat) {
            Ok(finding) if entry.confirmed_by(&finding) => {
                entry.confirmed_ms.set(self.now.monotonic_ms);
                true
            }
            Ok(_) => false,
            Err(LookUpError::WouldWait) => {
                // A full queue means only that the check is tried again a freshness later.
                let _ = self.submit_find(site, path, None);
                true
            }
            // Not the moment to forget what is known.
            Err(_) => true,
        }
    }

    fn find_cached(
        &self,
        sys: &mut S,
        site: SiteId,
        path: &[u8],
        want: Want,
    ) -> Result<Finding<S::File>, LookUpError> {
        let rules = &self.rules.sites[usize::from(site.0)];
        find(path, rules, &self.rules.types, want, |path, want| sys.open_cached(site, path, want))
    }

    fn submit_find(&mut self, site: SiteId, path: &[u8], waiter: Option<Key>) -> Option<JobId> {
        let now_ms = self.now.monotonic_ms;
        let task = || Task::Find { site, path: path.into() };
        self.jobs.submit(JobKey::Find(site, path.into()), waiter, Urgency::Bounded, now_ms, None, task)
    }

    /// Puts a finding, true at `as_of_ms` at the earliest, into the name cache. Versions that
    /// are still the same stay, with their contents; the others are forgotten.
    pub(crate) fn learn(
        &mut self,
        site: SiteId,
        path: &[u8],
        finding: Finding<S::File>,
        as_of_ms: u64,
    ) -> Arc<NameEntry> {
        if let Some(newer) = self.names.get(site, path).filter(|entry| entry.confirmed_ms.get() >= as_of_ms) {
            // A helper that was slow, or a file opened again: what is known was looked up after it began.
            let newer = Arc::clone(newer);
            self.keep_files(&newer, finding);
            return newer;
        }
        let old = self.names.remove(site, path).map(|entry| entry.versions()).unwrap_or_default();
        let kind = match finding {
            Finding::File { plain, coded, path: file_path } => {
                self.learn_file(site, &old, plain, coded, &file_path)
            }
            Finding::Redirect => NameKind::Redirect,
            Finding::Listing => NameKind::Listing(Listings::default()),
            Finding::Missing => NameKind::Missing,
            Finding::Denied => NameKind::Denied,
        };
        let entry = NameEntry::new(kind, as_of_ms);
        let kept = entry.versions();
        for version in old.iter().filter(|version| !kept.iter().any(|k| k.id == version.id)) {
            self.contents.remove(version.id);
            self.files.remove(version.id);
        }
        self.names.insert(site, path, Arc::clone(&entry));
        entry
    }

    /// Keeps the files of a finding that are those of an entry.
    fn keep_files(&mut self, entry: &NameEntry, finding: Finding<S::File>) {
        let (NameKind::File(known), Finding::File { plain, coded, .. }) = (&entry.kind, finding) else {
            return;
        };
        let coded = known.coded.iter().zip(coded).filter_map(|(version, found)| version.as_ref().zip(found));
        for (version, found) in coded.chain([(&known.plain, plain)]) {
            if let Some(file) = found.file
                && version.stat == found.stat
                && self.contents.get(version.id).is_none()
            {
                self.files.insert(version.id, Arc::new(file));
            }
        }
    }

    fn learn_file(
        &mut self,
        site: SiteId,
        old: &[Arc<Version>],
        plain: Opened<S::File>,
        coded: [Option<Opened<S::File>>; 3],
        path: &[u8],
    ) -> NameKind {
        let varies = coded.iter().any(Option::is_some);
        let content_type = self.rules.types.lookup(path).into_owned();
        let mut learn = |found: Opened<S::File>, coding: Option<Coding>| {
            let version = self.version(site, old, &found.stat, &content_type, coding, varies);
            if let Some(file) = found.file
                && self.contents.get(version.id).is_none()
            {
                self.files.insert(version.id, Arc::new(file));
            }
            version
        };
        let mut codings = Coding::ALL.into_iter();
        let coded = coded.map(|found| {
            let coding = codings.next();
            found.map(|found| learn(found, coding))
        });
        NameKind::File(Resource { plain: learn(plain, None), coded })
    }

    fn version(
        &mut self,
        site: SiteId,
        old: &[Arc<Version>],
        stat: &FileStat,
        content_type: &str,
        coding: Option<Coding>,
        varies: bool,
    ) -> Arc<Version> {
        let same =
            |known: &&Arc<Version>| known.matches(stat) && known.varies == varies && known.coding == coding;
        if let Some(known) = old.iter().find(same) {
            return Arc::clone(known);
        }
        let by_file = self.versions_by_file.get(site, stat, coding).filter(same);
        // Names of one file may differ in what it is taken for.
        if let Some(known) = by_file.filter(|known| known.content_type == content_type) {
            return Arc::clone(known);
        }
        let id = self.next_version();
        let version = Version::of_file(id, site, *stat, content_type, coding, varies, self.now)
            .tagged_by_change(self.rules.etag_of_change);
        let version = Arc::new(version.keeping_fields(self.rules.optimizations.head_cache));
        if let Some(old) = self.versions_by_file.insert(&version) {
            self.contents.remove(old.id);
            self.files.remove(old.id);
        }
        version
    }

    /// Forgets what a name was found to lead to, so that it is looked up anew.
    pub(crate) fn forget(&mut self, site: SiteId, path: &[u8], entry: &Arc<NameEntry>) {
        // Another request may have looked it up anew already.
        if self.names.get(site, path).is_some_and(|known| Arc::ptr_eq(known, entry)) {
            self.names.remove(site, path);
        }
        for version in entry.versions() {
            self.contents.remove(version.id);
            self.files.remove(version.id);
        }
    }
}
