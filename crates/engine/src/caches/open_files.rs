//! Files kept open for later requests, by version. A file that no request used for a while is closed, so that
//! a deleted file frees its blocks and a file system can be unmounted.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use super::version::IdHashing;
use crate::limits::{FILE_IDLE_MS, FILE_SWEEP_MS, FILES_OF_NAME_MAX, FILES_SWEPT_AT_ONCE, OPEN_FILES_MAX};
use crate::slab::VersionId;

/// Files kept open, by version.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    cache: Cache<VersionId, Arc<F>, UnitWeighter, IdHashing>,
    /// The files inserted last. A small cache can evict a file at once, but of siblings found together, the
    /// one that the request needs must still be open.
    latest: VecDeque<(VersionId, Arc<F>)>,
    /// The use of every open file, and of some that the cache has evicted.
    uses: HashMap<VersionId, Use, IdHashing>,
    /// Files in the order in which the sweep checks them, with their stamps. An entry is dead if the file's
    /// use has another stamp.
    sweep: VecDeque<(VersionId, u64)>,
    stamps: u64,
    next_sweep_ms: u64,
}

/// The use of a file, as far as the sweep knows.
#[derive(Clone, Copy, Debug)]
struct Use {
    stamp: u64,
    /// Whether it was used since the sweep last checked it.
    used: bool,
    /// When the sweep last found it used, or when it was opened.
    seen_ms: u64,
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
            uses: HashMap::default(),
            sweep: VecDeque::new(),
            stamps: 0,
            next_sweep_ms: 0,
        }
    }

    /// Returns the file of a version and marks it as used.
    pub(crate) fn get(&mut self, id: VersionId) -> Option<Arc<F>> {
        let latest = || self.latest.iter().find(|(other, _)| *other == id).map(|(_, file)| file);
        let file = self.cache.get(&id).or_else(latest).cloned()?;
        if let Some(use_) = self.uses.get_mut(&id) {
            use_.used = true;
        }
        Some(file)
    }

    pub(crate) fn insert(&mut self, id: VersionId, file: Arc<F>, now_ms: u64) {
        if self.latest.len() == FILES_OF_NAME_MAX {
            self.latest.pop_front();
        }
        self.note_held(id, now_ms);
        self.latest.push_back((id, Arc::clone(&file)));
        self.cache.insert(id, file);
    }

    /// Files in the cache, without the latest ones.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(crate) fn remove(&mut self, id: VersionId) {
        self.cache.remove(&id);
        self.latest.retain(|(other, _)| *other != id);
        self.uses.remove(&id);
    }

    /// Adds a file to the sweep. Dead entries leave the sweep twice as fast as new ones come.
    fn note_held(&mut self, id: VersionId, now_ms: u64) {
        if let Some(use_) = self.uses.get_mut(&id) {
            use_.used = true;
            return;
        }
        if self.sweep.is_empty() {
            self.next_sweep_ms = now_ms + FILE_SWEEP_MS;
        }
        for _ in 0..2 {
            let Some(entry) = self.sweep.pop_front() else { break };
            if self.is_live(entry) {
                self.sweep.push_back(entry);
            }
        }
        self.stamps += 1;
        self.uses.insert(id, Use { stamp: self.stamps, used: false, seen_ms: now_ms });
        self.sweep.push_back((id, self.stamps));
    }

    fn is_live(&self, (id, stamp): (VersionId, u64)) -> bool {
        self.uses.get(&id).is_some_and(|use_| use_.stamp == stamp)
    }

    fn holds(&self, id: VersionId) -> bool {
        self.cache.peek(&id).is_some() || self.latest.iter().any(|(other, _)| *other == id)
    }

    /// When the next sweep is due, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        (!self.sweep.is_empty()).then_some(self.next_sweep_ms)
    }

    /// Closes files that were not used for a while, checking a bounded number of them.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        if self.sweep.is_empty() || now_ms < self.next_sweep_ms {
            return;
        }
        self.next_sweep_ms = now_ms + FILE_SWEEP_MS;
        for _ in 0..self.sweep.len().min(FILES_SWEPT_AT_ONCE) {
            let Some((id, stamp)) = self.sweep.pop_front() else { return };
            let is_held = self.holds(id);
            let Some(use_) = self.uses.get_mut(&id).filter(|use_| use_.stamp == stamp) else { continue };
            if std::mem::take(&mut use_.used) {
                use_.seen_ms = now_ms;
            }
            if !is_held || now_ms >= use_.seen_ms + FILE_IDLE_MS {
                self.remove(id);
            } else {
                self.sweep.push_back((id, stamp));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_file_is_closed_within_a_minute() {
        let mut files = OpenFiles::new(OPEN_FILES_MAX);
        let all: Vec<VersionId> = (0..OPEN_FILES_MAX as u64).map(VersionId).collect();
        let held: Vec<Arc<()>> = all.iter().map(|_| Arc::new(())).collect();
        for (id, file) in all.iter().zip(&held) {
            files.insert(*id, Arc::clone(file), 0);
        }
        while let Some(now_ms) = files.next_ms().filter(|ms| *ms <= 60_000) {
            files.get(VersionId(7));
            files.sweep(now_ms);
        }
        let open: Vec<usize> = (0..held.len()).filter(|n| Arc::strong_count(&held[*n]) > 1).collect();
        assert_eq!(open, [7]);
    }

    #[test]
    fn files_that_come_and_go_leave_no_entries() {
        let mut files = OpenFiles::new(16);
        for number in 0..100_000 {
            let id = VersionId(number % 40);
            files.insert(id, Arc::new(()), 0);
            if number % 3 > 0 {
                files.remove(id);
            }
            assert!(files.sweep.len() <= 200 && files.uses.len() <= 200, "{} entries", files.sweep.len());
        }
    }

    #[test]
    fn a_file_that_is_opened_again_and_again_stays_open() {
        let mut files = OpenFiles::new(16);
        for second in 0..120 {
            files.insert(VersionId(1), Arc::new(()), second * 1_000);
            files.get(VersionId(1));
            files.sweep(second * 1_000);
            assert!(files.get(VersionId(1)).is_some(), "closed after {second} s");
        }
    }
}
