//! The keeper: a state machine that alone owns the store's memory file and replacement policy. The keeper
//! process passes events to it and carries out its actions; the engine's simulation does the same in memory.
//!
//! A helper that wants a block is given an extent for it and loads it. Once the table lists the block, all
//! workers can find it. An extent is reused only when every worker has released its block: a worker that is
//! told to forget a block answers when no transfer sends from it any more. A worker that has gone holds
//! nothing. A helper's extent is free again when the helper has said so or has gone, because until then it
//! could still write there.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Range;

use crate::action::{Action, Answer, Entry, Extent, HelperId, Totals, WorkerId};
use crate::policy::Policy;
use crate::space::{Space, UNIT_BYTES};

/// How long a helper waits for room before its request is refused.
const ROOM_WAIT_MS: u64 = 200;
/// A worker that has not released a block after this time is assumed to be sending from it.
const PINNED_MS: u64 = 100;
/// Memory of a slot in the table, in the keeper and in its policy, estimated from above.
pub const SLOT_BYTES: u64 = 384;
/// One slot for each of these bytes of the store is not counted.
const FREE_SLOT_BYTES: u64 = 2048;
/// Maximum number of blocks evicted in one turn, so that helpers and workers are heard in between.
const EVICTED_PER_TURN_MAX: usize = 512;

#[derive(Debug)]
enum Slot<K> {
    Empty,
    Loading {
        key: K,
        extent: Extent,
        joined: Vec<HelperId>,
    },
    Ready {
        key: K,
        extent: Extent,
    },
    Leaving {
        extent: Extent,
        awaited: Vec<WorkerId>,
        since_ms: u64,
        pinned: bool,
    },
    /// A helper of an earlier keeper may still write here.
    Orphaned {
        extent: Extent,
    },
}

#[derive(Debug)]
struct Want<K> {
    helper: HelperId,
    key: K,
    length_bytes: u32,
    until_ms: u64,
}

/// The keeper of a store of blocks with keys `K`. `S` hashes the keys: randomly seeded, except in tests that
/// must be reproducible.
#[derive(Debug)]
pub struct Keeper<K, S = RandomState> {
    space: Space,
    policy: Policy,
    hasher: S,
    slots: Vec<Slot<K>>,
    empty: Vec<u32>,
    slots_max: u32,
    /// Slots by the hashes of their keys; only slots that are loading or ready.
    index: HashMap<u64, u32>,
    loading: HashMap<HelperId, u32>,
    leaving: BTreeSet<u32>,
    /// When each leaving block was announced to the workers, oldest first.
    announced: VecDeque<(u64, u32)>,
    workers: BTreeSet<WorkerId>,
    wants: VecDeque<Want<K>>,
    bytes_max: u64,
    /// Bytes of all blocks in whole units, including leaving ones.
    used_bytes: u64,
    /// Bytes in whole units of leaving blocks that are not pinned: they will be free soon.
    coming_bytes: u64,
    pinned_bytes: u64,
    totals: Totals,
    /// Whether the last turn evicted as many blocks as one turn may, so that more can be due.
    has_more: bool,
    actions: VecDeque<Action<K>>,
}

impl<K: Copy + Eq + Hash> Keeper<K> {
    /// Makes a keeper of an empty store. `length_bytes` is the length of the memory file, `bytes_max` the
    /// most memory that can be in use.
    #[must_use]
    pub fn new(length_bytes: u64, slots_max: u32, bytes_max: u64) -> Self {
        Self::with_hasher(length_bytes, slots_max, bytes_max, RandomState::new())
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Keeper<K, S> {
    /// Like [`Keeper::new`], with a given hasher.
    #[must_use]
    pub fn with_hasher(length_bytes: u64, slots_max: u32, bytes_max: u64, hasher: S) -> Self {
        Self {
            space: Space::new(length_bytes),
            policy: Policy::new(),
            hasher,
            slots: Vec::new(),
            empty: Vec::new(),
            slots_max,
            index: HashMap::new(),
            loading: HashMap::new(),
            leaving: BTreeSet::new(),
            announced: VecDeque::new(),
            workers: BTreeSet::new(),
            wants: VecDeque::new(),
            bytes_max,
            used_bytes: 0,
            coming_bytes: 0,
            pinned_bytes: 0,
            totals: Totals::default(),
            has_more: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes over a slot from the table of an earlier keeper; call it for the slots in order. `workers` are
    /// the workers that may have learned of the block. An entry that overlaps another is dropped, and its
    /// slot becomes empty.
    pub fn resume(&mut self, slot: u32, entry: &Entry<K>, workers: &[WorkerId]) {
        while self.slots.len() < slot as usize {
            self.empty.push(self.slots.len() as u32);
            self.slots.push(Slot::Empty);
        }
        let extent = match entry {
            Entry::Empty => None,
            Entry::Loading(extent) | Entry::Ready(_, extent) | Entry::Leaving(extent) => Some(*extent),
        };
        let fits = |extent: &Extent| {
            let end = extent.offset.checked_add(u64::from(extent.length_bytes).max(1));
            end.is_some_and(|end| self.space.take_at(extent.offset..end))
        };
        let Some(extent) = extent.filter(fits) else {
            self.actions.push_back(Action::Note(slot, Entry::Empty));
            self.empty.push(slot);
            return self.slots.push(Slot::Empty);
        };
        self.used_bytes += units(extent);
        match entry {
            Entry::Ready(key, _) => {
                let hash = self.hasher.hash_one(key);
                self.slots.push(Slot::Ready { key: *key, extent });
                self.index.insert(hash, slot);
                self.policy.insert(slot, hash, units(extent));
            }
            Entry::Leaving(_) => {
                self.slots.push(Slot::Empty);
                self.recall(slot, extent, workers.to_vec(), 0);
            }
            Entry::Loading(_) | Entry::Empty => self.slots.push(Slot::Orphaned { extent }),
        }
    }

    /// The helpers of earlier keepers have gone, so the extents where they wrote are free.
    pub fn handle_writers_gone(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            if let Slot::Orphaned { extent } = self.slots[slot as usize] {
                self.free(slot, extent);
            }
        }
    }

    /// A worker has come. It holds no block: it looks into the table only once it was told that this keeper knows
    /// it, which the caller does when all actions up to now are carried out.
    pub fn handle_worker(&mut self, worker: WorkerId) {
        self.workers.insert(worker);
    }

    /// A worker has gone and holds nothing.
    pub fn handle_worker_gone(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        for slot in self.leaving.clone() {
            self.handle_released(worker, slot);
        }
    }

    /// A helper wants a block and will load it if necessary. A helper wants at most one block at a time.
    pub fn handle_want(&mut self, helper: HelperId, key: K, length_bytes: u32, now_ms: u64) {
        let hash = self.hasher.hash_one(key);
        if let Some(at) = self.index.get(&hash).copied() {
            let answer = match &mut self.slots[at as usize] {
                Slot::Ready { key: known, .. } if *known == key => Answer::There,
                Slot::Loading { key: known, joined, .. } if *known == key => {
                    joined.push(helper);
                    Answer::Joined
                }
                // Another key with the same hash.
                _ => Answer::Refused,
            };
            self.totals.joined += u64::from(answer != Answer::Refused);
            return self.actions.push_back(Action::Answer(helper, answer));
        }
        if self.loading.contains_key(&helper) || self.wants.iter().any(|want| want.helper == helper) {
            // The helper asks again before it has finished, which is a bug on its side, so it is refused.
            return self.actions.push_back(Action::Answer(helper, Answer::Refused));
        }
        if Space::bytes_of(length_bytes.into()) > self.bytes_max {
            // The block would not fit even if all others were evicted.
            self.totals.refused += 1;
            return self.actions.push_back(Action::Answer(helper, Answer::Refused));
        }
        self.wants.push_back(Want { helper, key, length_bytes, until_ms: now_ms + ROOM_WAIT_MS });
    }

    /// A helper has loaded the block for which it was given an extent, or has failed to.
    pub fn handle_filled(&mut self, helper: HelperId, is_loaded: bool) {
        let Some(slot) = self.loading.remove(&helper) else { return };
        let Slot::Loading { key, extent, joined } =
            std::mem::replace(&mut self.slots[slot as usize], Slot::Empty)
        else {
            return;
        };
        let hash = self.hasher.hash_one(key);
        if is_loaded {
            self.slots[slot as usize] = Slot::Ready { key, extent };
            self.policy.insert(slot, hash, units(extent));
            self.totals.loads += 1;
            self.actions.push_back(Action::Note(slot, Entry::Ready(key, extent)));
        } else {
            self.index.remove(&hash);
            self.free(slot, extent);
        }
        let answer = if is_loaded { Answer::There } else { Answer::Refused };
        for helper in joined.into_iter().chain([helper]) {
            self.actions.push_back(Action::Answer(helper, answer));
        }
    }

    /// A helper has gone, or has given up its block: it can no longer write.
    pub fn handle_helper_gone(&mut self, helper: HelperId) {
        self.handle_filled(helper, false);
        self.wants.retain(|want| want.helper != helper);
        for slot in self.loading.values() {
            if let Slot::Loading { joined, .. } = &mut self.slots[*slot as usize] {
                joined.retain(|other| *other != helper);
            }
        }
        self.actions.retain(|action| !matches!(action, Action::Answer(other, _) if *other == helper));
    }

    /// A worker has used the block in a slot `uses` times since its last report.
    pub fn handle_used(&mut self, slot: u32, uses: u32) {
        if let Some(Slot::Ready { .. }) = self.slots.get(slot as usize) {
            self.policy.touch(slot, uses);
        }
    }

    /// A worker has forgotten the block in a slot and no longer sends from it.
    pub fn handle_released(&mut self, worker: WorkerId, slot: u32) {
        let Some(Slot::Leaving { extent, awaited, pinned, .. }) = self.slots.get_mut(slot as usize) else {
            return;
        };
        awaited.retain(|other| *other != worker);
        if awaited.is_empty() {
            let extent = *extent;
            *if *pinned { &mut self.pinned_bytes } else { &mut self.coming_bytes } -= units(extent);
            self.leaving.remove(&slot);
            self.free(slot, extent);
        }
    }

    /// Changes the most bytes of memory that can be in use.
    pub fn handle_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    /// Makes room and answers waiting helpers. Must be called after every turn.
    pub fn settle(&mut self, now_ms: u64) {
        self.note_pinned(now_ms);
        let mut evictable = EVICTED_PER_TURN_MAX;
        while let Some(want) = self.wants.front() {
            let length_bytes = want.length_bytes;
            if self.give_room() {
                continue;
            }
            let needed = u64::from(length_bytes).next_multiple_of(UNIT_BYTES);
            if self.coming_bytes < needed && evictable > 0 && self.evict(now_ms) {
                evictable -= 1;
                continue;
            }
            let cannot_come = self.coming_bytes == 0 && evictable > 0;
            let Some(want) = self.wants.front().filter(|want| cannot_come || want.until_ms <= now_ms) else {
                break;
            };
            self.totals.refused += 1;
            self.actions.push_back(Action::Answer(want.helper, Answer::Refused));
            self.wants.pop_front();
        }
        let is_over = |keeper: &Self| {
            let (held, used) = (keeper.space.held_bytes(), keeper.used_bytes);
            let coming = keeper.coming_bytes;
            let bytes_max = keeper.bytes_max.saturating_sub(keeper.slots_bytes(0));
            used - coming + keeper.reserve_bytes() > bytes_max || held > bytes_max.saturating_add(coming)
        };
        while evictable > 0 && is_over(self) && self.evict(now_ms) {
            evictable -= 1;
        }
        self.has_more = evictable == 0;
    }

    /// The latest time for the next call of [`Keeper::settle`].
    #[must_use]
    pub fn next_ms(&self) -> Option<u64> {
        if self.has_more {
            return Some(0);
        }
        let announced = self.announced.front().map(|(ms, _)| ms + PINNED_MS);
        announced.into_iter().chain(self.wants.front().map(|want| want.until_ms)).min()
    }

    /// The next action.
    pub fn poll(&mut self) -> Option<Action<K>> {
        self.actions.pop_front()
    }

    /// Whether a block is in the store.
    #[must_use]
    pub fn has(&self, key: &K) -> bool {
        let slot = self.index.get(&self.hasher.hash_one(key)).map(|slot| &self.slots[*slot as usize]);
        matches!(slot, Some(Slot::Ready { key: known, .. }) if known == key)
    }

    /// The value of the block in a slot, for comparisons; None if there is none.
    #[must_use]
    pub fn value(&self, slot: u32) -> Option<f64> {
        matches!(self.slots.get(slot as usize), Some(Slot::Ready { .. })).then(|| self.policy.value(slot))
    }

    /// The counters and amounts.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            blocks: self.policy.len() as u64,
            held_bytes: self.space.held_bytes(),
            pinned_bytes: self.pinned_bytes,
            bytes_max: self.bytes_max,
            ..self.totals
        }
    }

    /// Room that is kept free, so that few helpers have to wait for an eviction.
    fn reserve_bytes(&self) -> u64 {
        (self.bytes_max / 64).clamp(1 << 20, 16 << 20).min(self.bytes_max / 8)
    }

    /// Gives room to the first waiting helper. Returns false if there is none to give.
    fn give_room(&mut self) -> bool {
        let Some(want) = self.wants.front() else { return false };
        let Want { helper, key, length_bytes, .. } = *want;
        let hash = self.hasher.hash_one(key);
        if let Some(at) = self.index.get(&hash).copied() {
            // Another helper already loads this block.
            self.wants.pop_front();
            let answer = match &mut self.slots[at as usize] {
                Slot::Loading { key: known, joined, .. } if *known == key => {
                    joined.push(helper);
                    Answer::Joined
                }
                Slot::Ready { key: known, .. } if *known == key => Answer::There,
                _ => Answer::Refused,
            };
            self.actions.push_back(Action::Answer(helper, answer));
            self.totals.joined += 1;
            return true;
        }
        let has_slot = !self.empty.is_empty() || (self.slots.len() as u64) < u64::from(self.slots_max);
        let Some(offset) = (if has_slot { self.space.take(length_bytes.into()) } else { None }) else {
            return false;
        };
        let extent = Extent { offset, length_bytes };
        if self.space.held_bytes() + self.slots_bytes(1) > self.bytes_max {
            // These pages were never used, so they need not be returned to the system.
            let _ = self.space.free(offset, length_bytes.into());
            return false;
        }
        self.used_bytes += units(extent);
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Empty);
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize] = Slot::Loading { key, extent, joined: Vec::new() };
        self.index.insert(hash, slot);
        self.loading.insert(helper, slot);
        self.wants.pop_front();
        self.actions.push_back(Action::Note(slot, Entry::Loading(extent)));
        self.actions.push_back(Action::Answer(helper, Answer::Fill(extent)));
        true
    }

    /// Memory of the slots in use and of this many more, as far as it is not negligible: beyond one for each 2 KiB of the
    /// store. Slots that will soon be free do not count.
    fn slots_bytes(&self, more: u64) -> u64 {
        let used = self.slots.len() - self.empty.len() - self.leaving.len();
        (used as u64 + more).saturating_sub(self.bytes_max / FREE_SLOT_BYTES) * SLOT_BYTES
    }

    /// Evicts the block with the lowest value. Returns false if there is none, or if transfers pin half of
    /// the memory.
    fn evict(&mut self, now_ms: u64) -> bool {
        if self.pinned_bytes > self.bytes_max / 2 {
            return false;
        }
        let Some(slot) = self.policy.take_victim() else { return false };
        let Slot::Ready { key, extent } = self.slots[slot as usize] else { return false };
        self.index.remove(&self.hasher.hash_one(key));
        self.totals.evictions += 1;
        let workers = self.workers.iter().copied().collect();
        self.recall(slot, extent, workers, now_ms);
        true
    }

    /// Asks `workers` to release a block.
    fn recall(&mut self, slot: u32, extent: Extent, workers: Vec<WorkerId>, now_ms: u64) {
        self.actions.push_back(Action::Note(slot, Entry::Leaving(extent)));
        if workers.is_empty() {
            return self.free(slot, extent);
        }
        self.actions.extend(workers.iter().map(|worker| Action::Forget(*worker, slot)));
        self.slots[slot as usize] =
            Slot::Leaving { extent, awaited: workers, since_ms: now_ms, pinned: false };
        self.leaving.insert(slot);
        self.announced.push_back((now_ms, slot));
        self.coming_bytes += units(extent);
    }

    /// Frees a slot and its extent.
    fn free(&mut self, slot: u32, extent: Extent) {
        self.slots[slot as usize] = Slot::Empty;
        self.empty.push(slot);
        self.used_bytes -= units(extent);
        // The order matters: if the keeper dies between the two actions, the slot remains in the table and
        // the next keeper frees its pages. The other order would lose them.
        if let Some(Range { start, end }) = self.space.free(extent.offset, extent.length_bytes.into()) {
            self.actions.push_back(Action::GiveBack(start, end - start));
        }
        self.actions.push_back(Action::Note(slot, Entry::Empty));
    }

    /// Marks blocks that were not released for a while as pinned: transfers send from them, so their room is
    /// not expected soon.
    fn note_pinned(&mut self, now_ms: u64) {
        while let Some((ms, slot)) =
            self.announced.front().filter(|(ms, _)| ms + PINNED_MS <= now_ms).copied()
        {
            self.announced.pop_front();
            if let Slot::Leaving { extent, since_ms, pinned: pinned @ false, .. } =
                &mut self.slots[slot as usize]
                && *since_ms == ms
            {
                *pinned = true;
                self.coming_bytes -= units(*extent);
                self.pinned_bytes += units(*extent);
            }
        }
    }
}

/// The length of a block in whole units.
fn units(extent: Extent) -> u64 {
    u64::from(extent.length_bytes).max(1).next_multiple_of(UNIT_BYTES)
}

#[cfg(test)]
#[path = "keeper_tests.rs"]
mod tests;
