//! The memory of the store: pages in use, and the blocks that workers have found.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use flash_keeper::Extent;
use flash_keeper::space::{PAGE_BYTES, UNIT_BYTES};

use super::worker::StoredBlock;

#[derive(Debug, Default)]
pub(super) struct Memory {
    pages: BTreeMap<u64, Box<[u8]>>,
    /// Each is alive as long as a worker holds it.
    learned: RefCell<Vec<Weak<StoredBlock>>>,
}

impl Memory {
    /// Writes bytes, which can cross page boundaries.
    pub(super) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        self.check_unlearned(offset, bytes.len() as u64, "written to");
        let mut at = offset;
        while !bytes.is_empty() {
            let within = (at % PAGE_BYTES) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(PAGE_BYTES as usize - within));
            let page =
                self.pages.entry(at / PAGE_BYTES).or_insert_with(|| vec![0; PAGE_BYTES as usize].into());
            page[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            bytes = later;
        }
    }

    /// The current bytes of a place; zeros where nothing was written.
    pub(super) fn read(&self, place: Extent) -> Vec<u8> {
        let end = place.offset + u64::from(place.length_bytes);
        let mut bytes = Vec::with_capacity(place.length_bytes as usize);
        while place.offset + (bytes.len() as u64) < end {
            let at = place.offset + bytes.len() as u64;
            let within = (at % PAGE_BYTES) as usize;
            let length = (PAGE_BYTES as usize - within).min((end - at) as usize);
            match self.pages.get(&(at / PAGE_BYTES)) {
                Some(page) => bytes.extend_from_slice(&page[within..within + length]),
                None => bytes.resize(bytes.len() + length, 0),
            }
        }
        bytes
    }

    /// Returns whole pages to the system.
    pub(super) fn give_back(&mut self, start: u64, length_bytes: u64) {
        assert!(start.is_multiple_of(PAGE_BYTES) && length_bytes.is_multiple_of(PAGE_BYTES), "whole pages");
        self.check_unlearned(start, length_bytes, "given back");
        let pages = start / PAGE_BYTES..(start + length_bytes) / PAGE_BYTES;
        self.pages.retain(|page, _| !pages.contains(page));
    }

    /// The pages that take memory.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Records that a worker has found a block.
    pub(super) fn learn(&self, block: &Arc<StoredBlock>) {
        let mut learned = self.learned.borrow_mut();
        learned.retain(|block| block.strong_count() > 0);
        learned.push(Arc::downgrade(block));
    }

    fn check_unlearned(&self, start: u64, length_bytes: u64, what: &str) {
        for block in self.learned.borrow().iter().filter_map(Weak::upgrade) {
            let is_free = !overlap(block.place(), start, length_bytes);
            assert!(is_free, "property: memory: {:?} is {what} while a worker holds it", block.place());
        }
    }
}

fn extent(place: Extent) -> Range<u64> {
    let length_bytes = u64::from(place.length_bytes).max(1).next_multiple_of(UNIT_BYTES);
    place.offset..place.offset + length_bytes
}

/// Whether a place overlaps these bytes.
pub(super) fn overlap(place: Extent, start: u64, length_bytes: u64) -> bool {
    let own = extent(place);
    own.start < start + length_bytes && start < own.end
}

/// The pages that a place touches.
pub(super) fn pages(place: Extent) -> Range<u64> {
    let own = extent(place);
    own.start / PAGE_BYTES..own.end.div_ceil(PAGE_BYTES)
}
