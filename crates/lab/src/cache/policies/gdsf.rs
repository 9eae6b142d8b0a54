//! Greedy-Dual-Size-Frequency: inflation + uses / bytes.
//!
//! Only [`super::Name::cache`] makes one. The inflation is the value of the block that was evicted last, so blocks that are
//! not used any more are overtaken. A block that was evicted starts anew.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Block, Cache};

pub(super) struct Gdsf {
    /// The value of each block by the bits of a positive float, whose order is that of integers; 0 for none.
    values: Vec<u64>,
    uses: Vec<u32>,
    bytes: Vec<u64>,
    /// Values and blocks; those that no longer hold are left out when they are found.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
    inflation: f64,
    free_bytes: u64,
    memory_bytes: u64,
}

impl Gdsf {
    pub(super) fn new(memory_bytes: u64, blocks: usize) -> Self {
        Self {
            values: vec![0; blocks],
            uses: vec![0; blocks],
            bytes: vec![0; blocks],
            heap: BinaryHeap::new(),
            inflation: 0.0,
            free_bytes: memory_bytes,
            memory_bytes,
        }
    }

    fn evict(&mut self) {
        while let Some(Reverse((value, number))) = self.heap.pop() {
            let index = number as usize;
            let current = self.values[index];
            if current == value {
                self.inflation = f64::from_bits(value);
                self.values[index] = 0;
                self.uses[index] = 0;
                self.free_bytes += self.bytes[index];
                return;
            }
            if current != 0 {
                // It was used since.
                self.heap.push(Reverse((current, number)));
            }
        }
    }
}

impl Cache for Gdsf {
    fn access(&mut self, block: Block) -> bool {
        let index = block.number as usize;
        let is_hit = self.values[index] != 0;
        if !is_hit {
            if block.bytes > self.memory_bytes {
                return false;
            }
            while self.free_bytes < block.bytes {
                self.evict();
            }
            self.free_bytes -= block.bytes;
            self.bytes[index] = block.bytes;
        }
        self.uses[index] = self.uses[index].saturating_add(1);
        let value = self.inflation + f64::from(self.uses[index]) / block.bytes as f64;
        self.values[index] = value.to_bits();
        if !is_hit {
            self.heap.push(Reverse((value.to_bits(), block.number)));
        }
        is_hit
    }
}
