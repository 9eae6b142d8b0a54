//! Least recently used.
//!
//! Only [`super::Name::cache`] makes one.

use super::list::List;
use super::{Block, Cache};

pub(super) struct Lru {
    list: List,
    memory_bytes: u64,
}

impl Lru {
    pub(super) fn new(memory_bytes: u64, blocks: usize) -> Self {
        Self { list: List::new(blocks), memory_bytes }
    }
}

impl Cache for Lru {
    fn access(&mut self, block: Block) -> bool {
        if self.list.renew(block) {
            return true;
        }
        if block.bytes > self.memory_bytes {
            return false;
        }
        while self.list.bytes() + block.bytes > self.memory_bytes {
            let Some(victim) = self.list.oldest() else { break };
            self.list.remove(victim.number);
        }
        self.list.push(block);
        false
    }
}
