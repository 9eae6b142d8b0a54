//! Size-aware W-TinyLFU with aggregated victims.
//!
//! Only [`super::Name::cache`] makes one. A window of 1 % of the memory and a segmented LRU with 80 % of the rest protected.
//! A block that leaves the window enters the main part if it was used at least as often as all blocks that would have to
//! leave for it together; otherwise it is dropped, and the blocks that stay count as used. Uses are counted exactly, which
//! favours it over a sketch, and halved after ten for each block in memory.

use super::list::List;
use super::{Block, Cache};

/// Uses for each block in memory after which all counts are halved.
const SAMPLE_USES_PER_BLOCK: u64 = 10;
/// The most uses that are counted: 4 bits, as in the paper.
const USES_MAX: u8 = 15;

pub(super) struct TinyLfu {
    window: List,
    probation: List,
    protected: List,
    window_bytes_max: u64,
    main_bytes_max: u64,
    uses: Vec<u8>,
    counted: u64,
    /// Blocks in memory.
    len: u64,
}

impl TinyLfu {
    pub(super) fn new(memory_bytes: u64, blocks: usize) -> Self {
        let window_bytes_max = memory_bytes / 100;
        Self {
            window: List::new(blocks),
            probation: List::new(blocks),
            protected: List::new(blocks),
            window_bytes_max,
            main_bytes_max: memory_bytes - window_bytes_max,
            uses: vec![0; blocks],
            counted: 0,
            len: 0,
        }
    }

    fn count(&mut self, number: u32) {
        let uses = &mut self.uses[number as usize];
        *uses = (*uses + 1).min(USES_MAX);
        self.counted += 1;
        if self.counted >= SAMPLE_USES_PER_BLOCK * self.len.max(100) {
            self.counted /= 2;
            self.uses.iter_mut().for_each(|uses| *uses /= 2);
        }
    }

    fn use_main(&mut self, block: Block) -> bool {
        if self.protected.renew(block) {
            return true;
        }
        if !self.probation.remove(block.number) {
            return false;
        }
        self.protected.push(block);
        while self.protected.bytes() > self.main_bytes_max / 5 * 4 {
            let Some(oldest) = self.protected.oldest() else { break };
            self.protected.remove(oldest.number);
            self.probation.push(oldest);
        }
        true
    }

    /// The blocks that would have to leave the main part for a block, and whether the block was used as often. The search
    /// ends once it was not.
    fn victims(&self, candidate: Block) -> (Vec<Block>, bool) {
        let used = u64::from(self.uses[candidate.number as usize]);
        let mut needed = (self.probation.bytes() + self.protected.bytes() + candidate.bytes)
            .saturating_sub(self.main_bytes_max);
        let (mut victims, mut victims_used) = (Vec::new(), 0);
        for list in [&self.probation, &self.protected] {
            let mut next = list.oldest();
            while let Some(victim) = next.filter(|_| needed > 0) {
                needed = needed.saturating_sub(victim.bytes);
                victims_used += u64::from(self.uses[victim.number as usize]);
                victims.push(victim);
                if victims_used > used {
                    return (victims, false);
                }
                next = list.newer(victim.number);
            }
        }
        (victims, needed == 0)
    }

    fn admit(&mut self, candidate: Block) {
        if candidate.bytes > self.main_bytes_max {
            self.len -= 1;
            return;
        }
        let (victims, is_better) = self.victims(candidate);
        for victim in victims {
            if !is_better {
                self.use_main(victim);
            } else if self.probation.remove(victim.number) || self.protected.remove(victim.number) {
                self.len -= 1;
            }
        }
        if is_better {
            self.probation.push(candidate);
        } else {
            self.len -= 1;
        }
    }
}

impl Cache for TinyLfu {
    fn access(&mut self, block: Block) -> bool {
        self.count(block.number);
        if self.window.renew(block) || self.use_main(block) {
            return true;
        }
        // A block larger than the window passes through it at once.
        self.window.push(block);
        self.len += 1;
        while self.window.bytes() > self.window_bytes_max {
            let Some(oldest) = self.window.oldest() else { break };
            self.window.remove(oldest.number);
            self.admit(oldest);
        }
        false
    }
}
