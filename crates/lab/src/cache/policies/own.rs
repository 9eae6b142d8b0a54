//! The store's own policy.
//!
//! Only [`super::Name::cache`] makes one.

use flash_keeper::policy::Policy;

use super::{Block, Cache};

/// The cache. The slot of a block is its number.
pub(super) struct Own {
    policy: Policy,
    /// The length of each block that is there, otherwise 0.
    bytes: Vec<u64>,
    free_bytes: u64,
    memory_bytes: u64,
}

impl Own {
    pub(super) fn new(memory_bytes: u64, blocks: usize) -> Self {
        Self { policy: Policy::new(), bytes: vec![0; blocks], free_bytes: memory_bytes, memory_bytes }
    }
}

impl Cache for Own {
    fn access(&mut self, block: Block) -> bool {
        let index = block.number as usize;
        if self.bytes[index] > 0 {
            self.policy.touch(block.number, 1);
            return true;
        }
        if block.bytes > self.memory_bytes {
            return false;
        }
        while self.free_bytes < block.bytes {
            let Some(victim) = self.policy.take_victim() else { break };
            self.free_bytes += std::mem::take(&mut self.bytes[victim as usize]);
        }
        self.policy.insert(block.number, key_of(block.number), block.bytes);
        self.bytes[index] = block.bytes;
        self.free_bytes -= block.bytes;
        false
    }
}

/// The finalizer of SplitMix64: well spread, and the same in every run.
fn key_of(number: u32) -> u64 {
    let mut key = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}
