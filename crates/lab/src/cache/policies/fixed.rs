//! The best placement that never changes.
//!
//! Only [`super::Name::cache`] makes one. It knows all requests beforehand, and is a bound for policies that do not, as long
//! as popularity does not change.

use super::{Block, Cache};

pub(super) struct Fixed {
    blocks: Vec<Residency>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Residency {
    /// Never in memory.
    Outside,
    /// To be kept once it was read.
    Awaited,
    Inside,
}

impl Fixed {
    /// Chooses blocks by requests per byte until the memory is full. Blocks are given with their numbers of requests.
    pub(super) fn new(memory_bytes: u64, asked: &[(Block, u64)]) -> Self {
        let mut order: Vec<_> = asked.iter().filter(|(_, uses)| *uses > 0).collect();
        order.sort_by(|(a, a_uses), (b, b_uses)| {
            // a_uses / a.bytes against b_uses / b.bytes, without rounding.
            let value = |uses: u64, bytes: u64| u128::from(uses) * u128::from(bytes);
            value(*b_uses, a.bytes).cmp(&value(*a_uses, b.bytes))
        });
        let mut blocks = vec![Residency::Outside; asked.len()];
        let mut free_bytes = memory_bytes;
        for (block, _) in order {
            // A smaller one of less value may still fit.
            if block.bytes <= free_bytes {
                free_bytes -= block.bytes;
                blocks[block.number as usize] = Residency::Awaited;
            }
        }
        Self { blocks }
    }
}

impl Cache for Fixed {
    fn access(&mut self, block: Block) -> bool {
        let residency = &mut self.blocks[block.number as usize];
        match *residency {
            Residency::Outside => false,
            Residency::Awaited => {
                *residency = Residency::Inside;
                false
            }
            Residency::Inside => true,
        }
    }
}
