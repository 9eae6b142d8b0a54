//! Blocks in the order of their last use.
//!
//! [`super::lru`] is one, [`super::tiny_lfu`] has three.

use super::Block;

const NONE: u32 = u32::MAX;

/// A doubly linked list of blocks, linked by their numbers.
#[derive(Debug)]
pub(super) struct List {
    links: Vec<Link>,
    oldest: u32,
    newest: u32,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    older: u32,
    newer: u32,
    /// 0 when the block is not in the list.
    bytes: u64,
}

impl List {
    pub(super) fn new(blocks: usize) -> Self {
        let links = vec![Link { older: NONE, newer: NONE, bytes: 0 }; blocks];
        Self { links, oldest: NONE, newest: NONE, bytes: 0 }
    }

    /// The length of all blocks in the list.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.links[number as usize].bytes > 0
    }

    pub(super) fn oldest(&self) -> Option<Block> {
        self.block(self.oldest)
    }

    /// The block after it in the list, towards the newest.
    pub(super) fn newer(&self, number: u32) -> Option<Block> {
        self.block(self.links[number as usize].newer)
    }

    pub(super) fn push(&mut self, block: Block) {
        debug_assert!(!self.contains(block.number));
        let link = Link { older: self.newest, newer: NONE, bytes: block.bytes };
        self.links[block.number as usize] = link;
        match self.newest {
            NONE => self.oldest = block.number,
            newest => self.links[newest as usize].newer = block.number,
        }
        self.newest = block.number;
        self.bytes += block.bytes;
    }

    /// Removes a block if it is in the list, and says whether it was.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let Link { older, newer, bytes } = self.links[number as usize];
        if bytes == 0 {
            return false;
        }
        match older {
            NONE => self.oldest = newer,
            older => self.links[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.links[newer as usize].older = older,
        }
        self.links[number as usize].bytes = 0;
        self.bytes -= bytes;
        true
    }

    /// Makes a block of the list its newest, and says whether it is in the list.
    pub(super) fn renew(&mut self, block: Block) -> bool {
        let is_there = self.remove(block.number);
        if is_there {
            self.push(block);
        }
        is_there
    }

    fn block(&self, number: u32) -> Option<Block> {
        let link = self.links.get(number as usize)?;
        Some(Block { number, bytes: link.bytes })
    }
}
