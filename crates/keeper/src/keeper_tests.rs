//! Random events against a model: after each event, the keeper's totals, its table and its requests to
//! workers must be consistent.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::space::PAGE_BYTES;

const LENGTH_BYTES: u64 = 64 * PAGE_BYTES;
const SLOTS: u32 = 24;

#[derive(Clone, Debug)]
enum Event {
    Want(u32, u8, u32),
    Filled(usize, bool),
    HelperGone(usize),
    WorkerComes,
    WorkerGone(usize),
    Released(usize),
    Used(u32, u32),
    BytesMax(u64),
    Pass(u64),
    /// The keeper dies after this many more actions, and the next one takes over.
    Dies(usize),
    Settled,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u32..12, 0u8..20, prop_oneof![0u32..200, 3_000u32..9_000, 60_000u32..70_000])
            .prop_map(|(helper, key, length)| Event::Want(helper, key, length)),
        6 => (any::<usize>(), proptest::bool::weighted(0.8)).prop_map(|(which, ok)| Event::Filled(which, ok)),
        1 => any::<usize>().prop_map(Event::HelperGone),
        1 => Just(Event::WorkerComes),
        1 => any::<usize>().prop_map(Event::WorkerGone),
        6 => any::<usize>().prop_map(Event::Released),
        2 => (0..SLOTS + 2, 0u32..9).prop_map(|(slot, uses)| Event::Used(slot, uses)),
        1 => (0..LENGTH_BYTES + PAGE_BYTES).prop_map(Event::BytesMax),
        2 => (0u64..300).prop_map(Event::Pass),
        1 => (0usize..6).prop_map(Event::Dies),
        1 => Just(Event::Settled),
    ]
}

/// The world around a keeper: its requests and actions so far.
struct World {
    keeper: Keeper<u8>,
    now_ms: u64,
    bytes_max: u64,
    table: BTreeMap<u32, Entry<u8>>,
    workers: BTreeSet<WorkerId>,
    next_worker: u32,
    /// Blocks that each worker was told to forget and has not released.
    forgotten: BTreeSet<(WorkerId, u32)>,
    /// Helpers that wait for an answer, and helpers that were given an extent.
    waiting: BTreeSet<HelperId>,
    filling: BTreeMap<HelperId, Extent>,
    /// Places where helpers of earlier keepers may write.
    lost: Vec<Extent>,
}

impl World {
    fn new() -> Self {
        let bytes_max = LENGTH_BYTES / 2;
        Self {
            keeper: Keeper::new(LENGTH_BYTES, SLOTS, bytes_max),
            now_ms: 1_000,
            bytes_max,
            table: BTreeMap::new(),
            workers: BTreeSet::new(),
            next_worker: 0,
            forgotten: BTreeSet::new(),
            waiting: BTreeSet::new(),
            filling: BTreeMap::new(),
            lost: Vec::new(),
        }
    }

    fn helper(&self, which: usize) -> Option<HelperId> {
        self.filling.keys().nth(which % self.filling.len().max(1)).copied()
    }

    fn step(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match *event {
            Event::Want(helper, key, length_bytes) => {
                let helper = HelperId(helper);
                // A helper asks for one block at a time.
                if !self.filling.contains_key(&helper) && self.waiting.insert(helper) {
                    self.keeper.handle_want(helper, key, length_bytes, self.now_ms);
                }
            }
            Event::Filled(which, is_loaded) => {
                if let Some(helper) = self.helper(which) {
                    self.filling.remove(&helper);
                    self.waiting.insert(helper);
                    self.keeper.handle_filled(helper, is_loaded);
                }
            }
            Event::HelperGone(which) => {
                let all: Vec<HelperId> = self.waiting.iter().chain(self.filling.keys()).copied().collect();
                if let Some(helper) = all.get(which % all.len().max(1)) {
                    self.waiting.remove(helper);
                    self.filling.remove(helper);
                    self.keeper.handle_helper_gone(*helper);
                }
            }
            Event::WorkerComes => {
                self.next_worker += 1;
                self.workers.insert(WorkerId(self.next_worker));
                self.keeper.handle_worker(WorkerId(self.next_worker));
            }
            Event::WorkerGone(which) => {
                if let Some(worker) = self.workers.iter().nth(which % self.workers.len().max(1)).copied() {
                    self.workers.remove(&worker);
                    self.forgotten.retain(|(other, _)| *other != worker);
                    self.keeper.handle_worker_gone(worker);
                }
            }
            Event::Released(which) => {
                let all = self.forgotten.len().max(1);
                if let Some((worker, slot)) = self.forgotten.iter().nth(which % all).copied() {
                    self.forgotten.remove(&(worker, slot));
                    self.keeper.handle_released(worker, slot);
                }
            }
            Event::Used(slot, uses) => self.keeper.handle_used(slot, uses),
            Event::BytesMax(bytes_max) => {
                self.bytes_max = bytes_max;
                self.keeper.handle_bytes_max(bytes_max);
            }
            Event::Pass(ms) => self.now_ms += ms,
            Event::Dies(actions) => {
                self.keeper.settle(self.now_ms);
                self.act(actions)?;
                self.resume();
            }
            Event::Settled => {
                self.lost.clear();
                self.keeper.handle_writers_gone();
            }
        }
        self.keeper.settle(self.now_ms);
        self.act(usize::MAX)?;
        self.check()
    }

    fn resume(&mut self) {
        self.keeper = Keeper::new(LENGTH_BYTES, SLOTS, self.bytes_max);
        let workers: Vec<WorkerId> = self.workers.iter().copied().collect();
        let slots = self.table.keys().last().map_or(0, |slot| slot + 1);
        for slot in 0..slots {
            let entry = self.table.get(&slot).unwrap_or(&Entry::Empty);
            self.keeper.resume(slot, entry, &workers);
        }
        workers.iter().for_each(|worker| self.keeper.handle_worker(*worker));
        // The new keeper itself asks for releases. Waiting helpers see that their keeper has gone; writing
        // helpers continue.
        self.forgotten.clear();
        self.waiting.clear();
        self.lost.extend(std::mem::take(&mut self.filling).into_values());
    }

    fn act(&mut self, most: usize) -> Result<(), TestCaseError> {
        for _ in 0..most {
            let Some(action) = self.keeper.poll() else { break };
            match action {
                Action::Note(slot, entry) => {
                    prop_assert!(slot < SLOTS);
                    self.table.insert(slot, entry);
                }
                Action::Forget(worker, slot) => {
                    prop_assert!(
                        matches!(self.table.get(&slot), Some(Entry::Leaving(_))),
                        "a worker was told to forget a block that is not leaving"
                    );
                    prop_assert!(self.forgotten.insert((worker, slot)), "asked twice");
                }
                Action::Answer(helper, answer) => {
                    let is_last = answer != Answer::Joined;
                    let is_awaited =
                        if is_last { self.waiting.remove(&helper) } else { self.waiting.contains(&helper) };
                    prop_assert!(is_awaited, "{helper:?} was not waiting for {answer:?}");
                    if let Answer::Fill(extent) = answer {
                        let is_noted = self.table.values().any(|entry| *entry == Entry::Loading(extent));
                        prop_assert!(is_noted, "the extent given to a helper is not in the table");
                        prop_assert!(
                            self.keeper.totals().held_bytes <= self.bytes_max,
                            "room was given beyond the bound"
                        );
                        self.filling.insert(helper, extent);
                    }
                }
                Action::GiveBack(start, length_bytes) => {
                    prop_assert!(start % PAGE_BYTES == 0 && length_bytes % PAGE_BYTES == 0);
                    let is_there = self.table.values().any(|entry| {
                        matches!(entry, Entry::Ready(_, extent) if overlap(range_of(*extent), start..start + length_bytes))
                    });
                    prop_assert!(!is_there, "pages of a stored block were returned to the system");
                }
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let extents: Vec<Extent> = self.table.values().filter_map(extent_of).collect();
        for (at, extent) in extents.iter().enumerate() {
            let other = extents[..at].iter().find(|other| overlap(range_of(**other), range_of(*extent)));
            prop_assert!(other.is_none(), "{extent:?} and {other:?}");
        }
        // A helper writes only to its own extent.
        for extent in self.filling.values().chain(&self.lost) {
            let is_its = self.table.values().any(|entry| *entry == Entry::Loading(*extent));
            prop_assert!(is_its, "{extent:?} was taken from the helper that writes there");
        }
        // An extent that a worker was asked to release is not reused before the worker has done so.
        for (worker, slot) in &self.forgotten {
            prop_assert!(
                matches!(self.table.get(slot), Some(Entry::Leaving(_))),
                "slot {slot} was freed although {worker:?} holds it"
            );
        }
        let pages: BTreeSet<u64> = extents
            .iter()
            .flat_map(|extent| {
                range_of(*extent).start / PAGE_BYTES..range_of(*extent).end.div_ceil(PAGE_BYTES)
            })
            .collect();
        let totals = self.keeper.totals();
        prop_assert_eq!(totals.held_bytes, pages.len() as u64 * PAGE_BYTES);
        let used: u64 = extents.iter().map(|extent| units(*extent)).sum();
        prop_assert_eq!(self.keeper.used_bytes, used);
        let of = |wanted: fn(&Entry<u8>) -> bool| {
            let entries = self.table.values().filter(move |entry| wanted(entry));
            entries.filter_map(extent_of).map(units).collect::<Vec<_>>()
        };
        let leaving = of(|entry| matches!(entry, Entry::Leaving(_)));
        prop_assert_eq!(self.keeper.coming_bytes + self.keeper.pinned_bytes, leaving.iter().sum::<u64>());
        prop_assert_eq!(self.keeper.leaving.len(), leaving.len());
        prop_assert_eq!(totals.blocks, of(|entry| matches!(entry, Entry::Ready(..))).len() as u64);
        // If the store exceeds its bound, every block that can be evicted was evicted.
        let is_over = used - self.keeper.coming_bytes > self.bytes_max;
        let can_evict = totals.blocks > 0 && totals.pinned_bytes <= self.bytes_max / 2;
        prop_assert!(!(is_over && can_evict), "{used} bytes in use of {}", self.bytes_max);
        Ok(())
    }

    /// Every helper and worker does what the keeper asks. Then no block is loading or leaving, and no helper
    /// waits.
    fn finish_everything(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..400 {
            self.step(&Event::Settled)?;
            self.step(&Event::Filled(0, true))?;
            self.step(&Event::Released(0))?;
            self.step(&Event::Pass(50))?;
            let is_waited_for =
                !(self.waiting.is_empty() && self.filling.is_empty() && self.forgotten.is_empty());
            if !is_waited_for && self.keeper.next_ms().is_none() {
                break;
            }
        }
        prop_assert!(self.waiting.is_empty(), "{:?} wait forever", self.waiting);
        prop_assert!(self.filling.is_empty() && self.forgotten.is_empty());
        let odd = self.table.values().find(|entry| matches!(entry, Entry::Loading(_) | Entry::Leaving(_)));
        prop_assert!(odd.is_none(), "{odd:?} never becomes ready or empty");
        let totals = self.keeper.totals();
        prop_assert!(totals.held_bytes <= self.bytes_max && totals.pinned_bytes == 0, "{totals:?}");
        prop_assert_eq!(self.keeper.next_ms(), None);
        Ok(())
    }
}

fn extent_of(entry: &Entry<u8>) -> Option<Extent> {
    match entry {
        Entry::Empty => None,
        Entry::Loading(extent) | Entry::Ready(_, extent) | Entry::Leaving(extent) => Some(*extent),
    }
}

fn range_of(extent: Extent) -> Range<u64> {
    extent.offset..extent.offset + units(extent)
}

fn overlap(a: Range<u64>, b: Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn totals_and_table_are_consistent_after_every_event(events in proptest::collection::vec(event(), 1..250)) {
        let mut world = World::new();
        for event in &events {
            world.step(event)?;
        }
        world.finish_everything()?;
    }

    #[test]
    fn any_table_is_taken_over_without_a_panic(
        entries in proptest::collection::vec((0u8..4, any::<u8>(), any::<u64>(), any::<u32>(), any::<bool>()), 0..40)
    ) {
        let mut keeper = Keeper::new(LENGTH_BYTES, SLOTS, LENGTH_BYTES);
        for (slot, (kind, key, offset, length_bytes, is_near)) in entries.iter().enumerate() {
            // Half of the extents are within the memory file.
            let offset = if *is_near { offset % LENGTH_BYTES / UNIT_BYTES * UNIT_BYTES } else { *offset };
            let extent = Extent { offset, length_bytes: if *is_near { length_bytes % 9_000 } else { *length_bytes } };
            let entry = match kind {
                0 => Entry::Empty,
                1 => Entry::Loading(extent),
                2 => Entry::Ready(*key, extent),
                _ => Entry::Leaving(extent),
            };
            keeper.resume(slot as u32, &entry, &[WorkerId(1)]);
        }
        keeper.handle_writers_gone();
        keeper.settle(0);
        prop_assert!(keeper.totals().held_bytes <= LENGTH_BYTES);
    }
}

#[test]
fn a_block_that_can_never_fit_evicts_nothing() {
    let mut keeper: Keeper<u8> = Keeper::new(LENGTH_BYTES, SLOTS, 4 * PAGE_BYTES);
    keeper.handle_want(HelperId(1), 1, 100, 0);
    keeper.settle(0);
    keeper.handle_filled(HelperId(1), true);
    keeper.handle_want(HelperId(2), 2, 5 * PAGE_BYTES as u32, 0);
    keeper.settle(0);
    assert_eq!((keeper.totals().blocks, keeper.totals().evictions, keeper.totals().refused), (1, 0, 1));
}

#[test]
fn tiny_blocks_fill_the_store_and_their_slots_count_as_memory() {
    const BYTES_MAX: u64 = 4 << 20;
    let mut keeper: Keeper<u64> = Keeper::new(1 << 30, u32::MAX, BYTES_MAX);
    for key in 0..40_000 {
        let helper = HelperId(key as u32);
        keeper.handle_want(helper, key, 200, 1);
        keeper.settle(1);
        keeper.handle_filled(helper, true);
        keeper.settle(1);
        while keeper.poll().is_some() {}
    }
    let totals = keeper.totals();
    let counted = totals.blocks.saturating_sub(BYTES_MAX / 2048);
    assert!(totals.blocks > 6_000, "{totals:?}");
    assert!(totals.held_bytes + counted * SLOT_BYTES <= BYTES_MAX, "{totals:?}");
}
