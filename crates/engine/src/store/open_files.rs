//! Files kept open for later requests, by version. One that nobody has asked for in a while is given up, so that a
//! deleted file does not keep its blocks and a file system can be unmounted.

use std::collections::VecDeque;
use std::sync::Arc;

use quick_cache::UnitWeighter;
use quick_cache::unsync::{Cache, DefaultLifecycle};

use super::version::IdHashing;
use crate::limits::{FILE_IDLE_MS, FILE_SWEEP_MS, FILES_OF_NAME_MAX, FILES_SWEPT_AT_ONCE, OPEN_FILES_MAX};
use crate::slab::VersionId;

/// Files kept open by version.
#[derive(Debug)]
pub(crate) struct OpenFiles<F> {
    cache: Cache<VersionId, Arc<F>, UnitWeighter, IdHashing>,
    /// Those put in last: a small cache may let go of a file at once, and among siblings that were found together the
    /// one that is asked for must still be there.
    latest: VecDeque<(VersionId, Arc<F>)>,
    /// Every file that is held, and when it was last used as far as the sweep knows: the next to be looked at first.
    sweep: VecDeque<(VersionId, u64)>,
    /// Files used since the sweep came by.
    used: std::collections::HashSet<VersionId, IdHashing>,
    next_sweep_ms: u64,
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
            sweep: VecDeque::new(),
            used: std::collections::HashSet::default(),
            next_sweep_ms: 0,
        }
    }

    /// The file of a version, which counts as used.
    pub(crate) fn get(&mut self, id: VersionId) -> Option<Arc<F>> {
        let latest = || self.latest.iter().find(|(other, _)| *other == id).map(|(_, file)| file);
        let file = self.cache.get(&id).or_else(latest).cloned()?;
        self.used.insert(id);
        Some(file)
    }

    pub(crate) fn insert(&mut self, id: VersionId, file: Arc<F>, now_ms: u64) {
        if self.latest.len() == FILES_OF_NAME_MAX {
            self.latest.pop_front();
        }
        if self.sweep.is_empty() {
            self.next_sweep_ms = now_ms + FILE_SWEEP_MS;
        }
        self.sweep.push_back((id, now_ms));
        self.latest.push_back((id, Arc::clone(&file)));
        self.cache.insert(id, file);
    }

    /// Files held, without those put in last.
    pub(crate) fn len(&self) -> usize {
        self.cache.len()
    }

    pub(crate) fn remove(&mut self, id: VersionId) {
        self.cache.remove(&id);
        self.latest.retain(|(other, _)| *other != id);
        self.used.remove(&id);
    }

    fn holds(&self, id: VersionId) -> bool {
        self.cache.peek(&id).is_some() || self.latest.iter().any(|(other, _)| *other == id)
    }

    /// When files are to be looked at again, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        (!self.sweep.is_empty()).then_some(self.next_sweep_ms)
    }

    /// Gives up files that nobody has used for a while, looking at a bounded number of them.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        if self.sweep.is_empty() || now_ms < self.next_sweep_ms {
            return;
        }
        self.next_sweep_ms = now_ms + FILE_SWEEP_MS;
        for _ in 0..self.sweep.len().min(FILES_SWEPT_AT_ONCE) {
            let Some((id, seen_ms)) = self.sweep.pop_front() else { return };
            if self.used.remove(&id) {
                self.sweep.push_back((id, now_ms));
            } else if now_ms >= seen_ms + FILE_IDLE_MS {
                self.remove(id);
            } else if self.holds(id) {
                self.sweep.push_back((id, seen_ms));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_nobody_uses_is_given_up_within_a_minute() {
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
}
