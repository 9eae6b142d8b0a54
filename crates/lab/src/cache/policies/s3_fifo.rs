//! S3-FIFO: a small queue, a main queue, and a queue of ghosts.
//!
//! Only [`super::Name::cache`] makes one. After Algorithm 1 of the paper, with lengths in bytes: the small queue has a tenth
//! of the memory; ghosts are remembered for as many bytes as the main queue has.

use std::collections::VecDeque;

use super::{Block, Cache};

const USES_MAX: u8 = 3;

pub(super) struct S3Fifo {
    states: Vec<State>,
    small: Queue,
    main: Queue,
    /// With generations: a block may have been in the ghosts' queue before, and left it by its use.
    ghosts: VecDeque<(Block, u32)>,
    ghost_bytes: u64,
    memory_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    residency: Residency,
    uses: u8,
    /// How often the block became a ghost.
    generation: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Residency {
    #[default]
    Outside,
    Inside,
    Ghost,
}

#[derive(Default)]
struct Queue {
    blocks: VecDeque<Block>,
    bytes: u64,
}

impl Queue {
    fn push(&mut self, block: Block) {
        self.bytes += block.bytes;
        self.blocks.push_back(block);
    }

    fn pop(&mut self) -> Option<Block> {
        let block = self.blocks.pop_front()?;
        self.bytes -= block.bytes;
        Some(block)
    }
}

impl S3Fifo {
    pub(super) fn new(memory_bytes: u64, blocks: usize) -> Self {
        Self {
            states: vec![State::default(); blocks],
            small: Queue::default(),
            main: Queue::default(),
            ghosts: VecDeque::new(),
            ghost_bytes: 0,
            memory_bytes,
        }
    }

    fn evict(&mut self) {
        if self.small.bytes >= self.memory_bytes / 10 || self.main.blocks.is_empty() {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    /// Moves what was used again to the main queue, until one block is evicted.
    fn evict_small(&mut self) {
        while let Some(block) = self.small.pop() {
            let state = &mut self.states[block.number as usize];
            if state.uses <= 1 {
                state.residency = Residency::Ghost;
                state.generation = state.generation.wrapping_add(1);
                self.ghosts.push_back((block, state.generation));
                self.ghost_bytes += block.bytes;
                self.forget();
                return;
            }
            state.uses = 0;
            self.main.push(block);
        }
    }

    /// Gives what was used another round, until one block is evicted.
    fn evict_main(&mut self) {
        while let Some(block) = self.main.pop() {
            let state = &mut self.states[block.number as usize];
            if state.uses == 0 {
                state.residency = Residency::Outside;
                return;
            }
            state.uses -= 1;
            self.main.push(block);
        }
    }

    fn forget(&mut self) {
        while self.ghost_bytes > self.memory_bytes / 10 * 9 {
            let Some((block, generation)) = self.ghosts.pop_front() else { break };
            self.ghost_bytes -= block.bytes;
            let state = &mut self.states[block.number as usize];
            if state.residency == Residency::Ghost && state.generation == generation {
                state.residency = Residency::Outside;
            }
        }
    }
}

impl Cache for S3Fifo {
    fn access(&mut self, block: Block) -> bool {
        let index = block.number as usize;
        if self.states[index].residency == Residency::Inside {
            let uses = &mut self.states[index].uses;
            *uses = (*uses + 1).min(USES_MAX);
            return true;
        }
        if block.bytes > self.memory_bytes {
            return false;
        }
        while self.small.bytes + self.main.bytes + block.bytes > self.memory_bytes {
            self.evict();
        }
        // Room may have been made by forgetting this very ghost: then it is new.
        let queue =
            if self.states[index].residency == Residency::Ghost { &mut self.main } else { &mut self.small };
        queue.push(block);
        self.states[index].residency = Residency::Inside;
        self.states[index].uses = 0;
        false
    }
}
