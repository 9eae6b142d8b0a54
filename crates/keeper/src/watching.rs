//! Which findings are true without a check, because a process watches the files of a site, in parts, and tells the keeper
//! which names change.
//!
//! A *watch* is a number under which findings are entered, and a time until which all changes are known. The watcher
//! confirms that time again and again; when it may have missed a change, the watch ends, and its findings need checks.
//! A part of a site has two watches: one for names that are there, and one for absent names, because a new directory can
//! make names appear that the watcher cannot list.
//!
//! **A finding is entered late.** A helper looks a name up and then tells the keeper; the file can change in between, and
//! the keeper can hear of the change first. Names in a directory that was made a moment ago can change before that
//! is watched. So a finding counts only once the watcher has confirmed a later time, if meanwhile nothing in the
//! same shard has changed, and if no directory has appeared since.
//!
//! An unknown or a late message only makes a finding need checks. The messages of one watcher come in order.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};

/// Findings that wait for the next time of their watcher. Others need checks.
const WAITING_MAX: usize = 64 * 1024;
/// Names are in this many shards; a change of one delays the others.
const SHARDS: u64 = 1024;

/// The number of a watcher's link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId(pub u32);

/// A finding of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding<S> {
    /// The part of the site.
    pub subtree: S,
    /// When the look-up began, in milliseconds of the monotonic clock.
    pub found_ms: u64,
    /// Whether there is nothing.
    pub is_absent: bool,
}

/// An action for the owner of the table. Actions must be carried out in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchAction<N> {
    /// All changes under this watch are known up to this time.
    Extend(u32, u64),
    /// This watch is over.
    End(u32),
    /// Enter this watch with the finding of this time for a name.
    Enter(N, u64, u32),
}

/// The watches of a subtree.
#[derive(Clone, Copy, Debug)]
struct Watches {
    watcher: WatcherId,
    present: u32,
    absent: u32,
    /// Only findings after this time count; none while a directory has appeared that is not watched yet.
    sure_ms: Option<u64>,
    /// All changes up to this time are known.
    until_ms: u64,
}

/// The watches of all subtrees `S`, and the findings for names `N` that wait. `H` hashes the names.
#[derive(Debug)]
pub struct Watching<N, S, H = RandomState> {
    subtrees: HashMap<S, Watches>,
    waiting: VecDeque<(N, Finding<S>)>,
    /// When a name of each shard last changed.
    changed_ms: Vec<Option<u64>>,
    hasher: H,
    /// The next number of each place in the table that no watch has; the place is the remainder by their count.
    free: VecDeque<u32>,
    places: u16,
    actions: VecDeque<WatchAction<N>>,
}

impl<N: Hash, S: Copy + Eq + Hash> Watching<N, S> {
    /// Nothing is watched. `numbers` are those of the first watches, one for each of `places` places in the table:
    /// the remainder of a number by their count is its place. No finding may have one of these numbers.
    #[must_use]
    pub fn new(places: u16, numbers: impl Iterator<Item = u32>) -> Self {
        Self::with_hasher(places, numbers, RandomState::new())
    }
}

impl<N: Hash, S: Copy + Eq + Hash, H: BuildHasher> Watching<N, S, H> {
    /// Like [`Watching::new`], with a given hasher.
    #[must_use]
    pub fn with_hasher(places: u16, numbers: impl Iterator<Item = u32>, hasher: H) -> Self {
        Self {
            subtrees: HashMap::new(),
            waiting: VecDeque::new(),
            changed_ms: vec![None; SHARDS as usize],
            hasher,
            free: numbers.collect(),
            places,
            actions: VecDeque::new(),
        }
    }

    /// The next action.
    pub fn poll(&mut self) -> Option<WatchAction<N>> {
        self.actions.pop_front()
    }

    /// How many subtrees are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.subtrees.len()
    }

    /// A helper has found a name in a watched way.
    pub fn handle_found(&mut self, name: N, finding: Finding<S>) {
        if self.subtrees.contains_key(&finding.subtree) && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((name, finding));
        }
    }

    /// A name has changed. Its caller forgets it.
    pub fn handle_changed(&mut self, name: &N, now_ms: u64) {
        let shard = self.shard(name);
        self.changed_ms[shard] = Some(now_ms);
    }

    /// A watcher watches all of a subtree since this time.
    pub fn handle_begun(&mut self, watcher: WatcherId, subtree: S, since_ms: u64) {
        // Another watcher can have it: that of an earlier configuration.
        if let Some(old) = self.subtrees.remove(&subtree) {
            self.end(old.present);
            self.end(old.absent);
        }
        // Without a number left, the subtree is not watched.
        let (Some(present), Some(absent)) = (self.free.pop_front(), self.free.pop_front()) else { return };
        let watches = Watches { watcher, present, absent, sure_ms: Some(since_ms), until_ms: since_ms };
        self.subtrees.insert(subtree, watches);
    }

    /// A directory has appeared. Absent names beneath it can be there now, and its names are not watched yet.
    pub fn handle_appearing(&mut self, watcher: WatcherId, subtree: S) {
        let Some(watches) = self.of(watcher, &subtree).copied() else { return };
        let Some(absent) = self.free.pop_front() else { return self.handle_lost(watcher, subtree) };
        self.end(watches.absent);
        self.subtrees.insert(subtree, Watches { absent, sure_ms: None, ..watches });
    }

    /// All directories that have appeared are watched since this time.
    pub fn handle_appeared(&mut self, watcher: WatcherId, subtree: S, since_ms: u64) {
        if let Some(watches) = self.of(watcher, &subtree) {
            watches.sure_ms = Some(since_ms);
        }
    }

    /// A watcher may have missed changes of a subtree.
    pub fn handle_lost(&mut self, watcher: WatcherId, subtree: S) {
        if let Some(watches) = self.of(watcher, &subtree).copied() {
            self.subtrees.remove(&subtree);
            self.end(watches.present);
            self.end(watches.absent);
        }
    }

    /// A watcher has gone.
    pub fn handle_gone(&mut self, watcher: WatcherId) {
        let its = |(subtree, watches): (&S, &Watches)| (watches.watcher == watcher).then_some(*subtree);
        let subtrees: Vec<S> = self.subtrees.iter().filter_map(its).collect();
        subtrees.into_iter().for_each(|subtree| self.handle_lost(watcher, subtree));
    }

    /// A watcher has told all changes up to this time.
    pub fn handle_until(&mut self, watcher: WatcherId, until_ms: u64) {
        for watches in self.subtrees.values_mut().filter(|watches| watches.watcher == watcher) {
            watches.until_ms = until_ms.max(watches.until_ms);
            for number in [watches.present, watches.absent] {
                self.actions.push_back(WatchAction::Extend(number, watches.until_ms));
            }
        }
        for _ in 0..self.waiting.len() {
            let Some((name, finding)) = self.waiting.pop_front() else { break };
            let Some(watches) = self.subtrees.get(&finding.subtree) else { continue };
            if finding.found_ms >= watches.until_ms {
                self.waiting.push_back((name, finding));
                continue;
            }
            let has_changed = self.changed_ms[self.shard(&name)].is_some_and(|ms| ms >= finding.found_ms);
            if watches.sure_ms.is_some_and(|ms| finding.found_ms > ms) && !has_changed {
                let number = if finding.is_absent { watches.absent } else { watches.present };
                self.actions.push_back(WatchAction::Enter(name, finding.found_ms, number));
            }
        }
    }

    fn of(&mut self, watcher: WatcherId, subtree: &S) -> Option<&mut Watches> {
        self.subtrees.get_mut(subtree).filter(|watches| watches.watcher == watcher)
    }

    fn end(&mut self, watch: u32) {
        self.actions.push_back(WatchAction::End(watch));
        // Findings can still have the old number, so it is not used again before all others were.
        let places = u32::from(self.places);
        self.free.push_back(watch.checked_add(places).unwrap_or(watch % places + places));
    }

    fn shard(&self, name: &N) -> usize {
        (self.hasher.hash_one(name) % SHARDS) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: WatcherId = WatcherId(1);
    const OTHER: WatcherId = WatcherId(2);

    fn watching() -> Watching<u64, char> {
        Watching::new(8, 8..16)
    }

    fn found(found_ms: u64) -> Finding<char> {
        Finding { subtree: 'a', found_ms, is_absent: false }
    }

    fn entered(watching: &mut Watching<u64, char>) -> Vec<(u64, u32)> {
        let entered = |action| match action {
            WatchAction::Enter(name, _, watch) => Some((name, watch)),
            WatchAction::Extend(..) | WatchAction::End(_) => None,
        };
        std::iter::from_fn(|| watching.poll()).filter_map(entered).collect()
    }

    #[test]
    fn a_finding_counts_once_the_watcher_has_told_all_changes_until_then() {
        let mut watching = watching();
        watching.handle_found(1, found(50));
        watching.handle_begun(ONE, 'a', 100);
        for (name, found_ms) in [(2, 100), (3, 101), (4, 200)] {
            watching.handle_found(name, found(found_ms));
        }
        watching.handle_found(5, Finding { is_absent: true, ..found(101) });
        watching.handle_found(6, Finding { subtree: 'b', ..found(101) });
        assert_eq!(entered(&mut watching), []);
        watching.handle_until(OTHER, 300);
        assert_eq!(entered(&mut watching), []);
        watching.handle_until(ONE, 200);
        assert_eq!(entered(&mut watching), [(3, 8), (5, 9)]);
        watching.handle_until(ONE, 201);
        assert_eq!(entered(&mut watching), [(4, 8)]);
    }

    #[test]
    fn a_change_that_comes_before_its_finding_is_not_missed() {
        let mut watching = watching();
        watching.handle_begun(ONE, 'a', 100);
        watching.handle_changed(&1, 150);
        watching.handle_found(1, found(149));
        watching.handle_found(1, found(150));
        watching.handle_until(ONE, 200);
        assert_eq!(entered(&mut watching), []);
        watching.handle_found(1, found(151));
        watching.handle_changed(&1, 160);
        watching.handle_until(ONE, 201);
        assert_eq!(entered(&mut watching), []);
        watching.handle_found(1, found(161));
        watching.handle_until(ONE, 202);
        assert_eq!(entered(&mut watching), [(1, 8)]);
    }

    #[test]
    fn lost_changes_end_both_watches_and_a_new_directory_that_of_absent_names() {
        let mut watching = watching();
        watching.handle_begun(ONE, 'a', 100);
        watching.handle_appearing(OTHER, 'a');
        watching.handle_lost(OTHER, 'a');
        assert_eq!(watching.poll(), None);
        watching.handle_found(1, found(140));
        watching.handle_appearing(ONE, 'a');
        assert_eq!((watching.poll(), watching.poll()), (Some(WatchAction::End(9)), None));
        watching.handle_until(ONE, 145);
        assert_eq!(entered(&mut watching), [], "its directory appeared and is perhaps not watched");
        watching.handle_found(1, found(150));
        watching.handle_found(2, found(151));
        watching.handle_appeared(OTHER, 'a', 140);
        watching.handle_appeared(ONE, 'a', 150);
        watching.handle_until(ONE, 200);
        assert_eq!(entered(&mut watching), [(2, 8)]);
        watching.handle_found(1, found(200));
        watching.handle_lost(ONE, 'a');
        let ended: Vec<_> = std::iter::from_fn(|| watching.poll()).collect();
        assert_eq!(ended, [WatchAction::End(8), WatchAction::End(10)]);
        watching.handle_until(ONE, 300);
        assert_eq!((watching.poll(), watching.watched()), (None, 0));
    }

    #[test]
    fn a_number_is_never_used_twice() {
        let mut watching = watching();
        let mut ended = Vec::new();
        for round in 0..100 {
            watching.handle_begun(ONE, 'a', round);
            watching.handle_begun(OTHER, 'a', round);
            watching.handle_gone(ONE);
            watching.handle_gone(OTHER);
            ended.extend(std::iter::from_fn(|| watching.poll()));
        }
        let count = ended.len();
        let mut numbers: Vec<u32> = ended
            .iter()
            .map(|action| match action {
                WatchAction::End(number) => *number,
                other => panic!("{other:?}"),
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!((count, numbers.len()), (400, 400));
    }
}
