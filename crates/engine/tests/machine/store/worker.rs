//! A worker's view of the store, with the same behaviour as in `flash-worker`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flash_engine::{Block, BlockBytes, FileStat};
use flash_keeper::{Entry, Extent, WorkerId};

use super::{BlockKey, Notice, StoreHost};

/// A block that a worker has found.
#[derive(Debug)]
pub(super) struct StoredBlock {
    slot: u32,
    place: Extent,
    /// The bytes that were and still are in the memory; each write to the memory checks this.
    bytes: Vec<u8>,
    uses: AtomicU32,
}

impl StoredBlock {
    pub(super) fn place(&self) -> Extent {
        self.place
    }
}

impl BlockBytes for StoredBlock {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn number(&self) -> u64 {
        self.slot.into()
    }

    fn note_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }
}

/// An evicted block that a transfer still sends.
#[derive(Debug)]
struct Leaving {
    block: Arc<StoredBlock>,
    /// Whether the present keeper has asked for its release.
    is_asked: bool,
}

/// The store as one worker sees it.
#[derive(Debug)]
pub(crate) struct WorkerStore {
    host: Rc<RefCell<StoreHost>>,
    id: WorkerId,
    /// The keeper at the other end of its channel.
    keeper: u64,
    known: BTreeMap<u32, Arc<StoredBlock>>,
    leaving: Vec<Leaving>,
}

impl WorkerStore {
    pub(crate) fn new(host: &Rc<RefCell<StoreHost>>) -> Self {
        let (id, keeper) = {
            let mut host = host.borrow_mut();
            (host.attach(), host.keepers)
        };
        Self { host: Rc::clone(host), id, keeper, known: BTreeMap::new(), leaving: Vec::new() }
    }

    /// How many blocks it has found.
    pub(crate) fn known_len(&self) -> usize {
        self.known.len() + self.leaving.len()
    }

    pub(crate) fn host(&self) -> &Rc<RefCell<StoreHost>> {
        &self.host
    }

    pub(crate) fn block(&mut self, stat: &FileStat, number: u64) -> Option<Block> {
        let host = self.host.borrow();
        if !host.links.get(&self.id)?.is_known {
            return None;
        }
        let key = BlockKey::new(stat, number);
        let slot = *host.index.get(&key)?;
        let Entry::Ready(_, place) = host.table[slot as usize] else { return None };
        if let Some(block) = self.known.get(&slot) {
            assert_eq!(block.place, place, "property: memory: a slot was used again before it was released");
            return Some(Arc::clone(block) as Block);
        }
        let bytes = host.memory.read(place);
        let block = Arc::new(StoredBlock { slot, place, bytes, uses: AtomicU32::new(0) });
        host.memory.learn(&block);
        self.known.insert(slot, Arc::clone(&block));
        Some(block)
    }

    /// Receives the keeper's messages and returns the slots whose blocks must leave.
    pub(crate) fn hear(&mut self) -> Vec<u32> {
        let mut host = self.host.borrow_mut();
        let Some(link) = host.links.get_mut(&self.id) else { return Vec::new() };
        if self.keeper != link.keeper {
            // A new keeper asks again for every block that must be released.
            self.keeper = link.keeper;
            self.leaving.iter_mut().for_each(|leaving| leaving.is_asked = false);
        }
        let slots: Vec<u32> = link.forget.drain(..).collect();
        for slot in &slots {
            if let Some(block) = self.known.remove(slot) {
                self.leaving.push(Leaving { block, is_asked: true });
            } else if let Some(leaving) = self.leaving.iter_mut().find(|leaving| leaving.block.slot == *slot)
            {
                leaving.is_asked = true;
            } else {
                link.notices.push_back(Notice::Released(*slot));
            }
        }
        slots
    }

    /// Releases evicted blocks that no transfer sends. Must be called after every turn.
    pub(crate) fn release(&mut self) {
        let mut host = self.host.borrow_mut();
        let is_current = host.links.get(&self.id).is_some_and(|link| link.keeper == self.keeper);
        let has_keeper = host.keeper.is_some() && is_current;
        let Some(link) = host.links.get_mut(&self.id) else { return };
        self.leaving.retain(|leaving| {
            let is_held = Arc::strong_count(&leaving.block) > 1;
            if !is_held && leaving.is_asked && has_keeper {
                link.notices.push_back(Notice::Released(leaving.block.slot));
            }
            is_held
        });
    }

    /// Reports uses, and drops unused blocks.
    pub(crate) fn keep_house(&mut self) {
        let mut host = self.host.borrow_mut();
        let has_keeper = host.keeper.is_some();
        let Some(link) = host.links.get_mut(&self.id) else { return };
        self.known.retain(|slot, block| {
            let uses = block.uses.swap(0, Ordering::Relaxed);
            if uses > 0 && has_keeper {
                link.notices.push_back(Notice::Used(*slot, uses));
            }
            uses > 0 || Arc::strong_count(block) > 1
        });
    }
}

impl Drop for WorkerStore {
    /// The worker has ended and no longer sends.
    fn drop(&mut self) {
        self.known.clear();
        self.leaving.clear();
        // A test that panics can have it borrowed.
        if let Ok(mut host) = self.host.try_borrow_mut() {
            host.detach(self.id);
        }
    }
}
