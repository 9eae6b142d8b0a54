//! Replacement policies for the simulator: the store's own policy, others to compare it with, and the best fixed placement.
//!
//! Only [`super::simulate`] calls them. Pure. Each is written for comparison, not for production: simple, with no limit on the
//! memory of its bookkeeping.

mod fixed;
mod gdsf;
mod list;
mod lru;
mod own;
mod s3_fifo;
mod tiny_lfu;

use std::str::FromStr;

use super::requests::{Block, Requests};
use flash_kit::{Error, Result};

pub(super) trait Cache {
    /// Uses a block, and loads it if it is not there. Gives whether it was there.
    fn access(&mut self, block: Block) -> bool;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// Least recently used, as in the page cache of a kernel.
    Lru,
    /// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
    S3Fifo,
    /// Size-aware W-TinyLFU with aggregated victims (Einziger, Eytan, Friedman, Manes, "Lightweight Robust Size Aware Cache
    /// Management", ACM TOS 2022).
    TinyLfu,
    /// Greedy-Dual-Size-Frequency (Cherkasova, HP Labs 1998).
    Gdsf,
    /// The store's: [`flash_keeper::policy`].
    Flash,
    /// The best placement that never changes: the blocks with the most requests per byte, known beforehand.
    Static,
}

impl Name {
    /// All, in the order of tables.
    pub const ALL: [Self; 6] =
        [Self::Lru, Self::S3Fifo, Self::TinyLfu, Self::Gdsf, Self::Flash, Self::Static];

    /// As it is written on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::S3Fifo => "s3-fifo",
            Self::TinyLfu => "tinylfu",
            Self::Gdsf => "gdsf",
            Self::Flash => "flash",
            Self::Static => "static",
        }
    }

    pub(super) fn cache(self, memory_bytes: u64, requests: &Requests) -> Box<dyn Cache> {
        let blocks = requests.blocks();
        match self {
            Self::Lru => Box::new(lru::Lru::new(memory_bytes, blocks)),
            Self::S3Fifo => Box::new(s3_fifo::S3Fifo::new(memory_bytes, blocks)),
            Self::TinyLfu => Box::new(tiny_lfu::TinyLfu::new(memory_bytes, blocks)),
            Self::Gdsf => Box::new(gdsf::Gdsf::new(memory_bytes, blocks)),
            Self::Flash => Box::new(own::Own::new(memory_bytes, blocks)),
            Self::Static => Box::new(fixed::Fixed::new(memory_bytes, &requests.asked_blocks())),
        }
    }
}

impl FromStr for Name {
    type Err = Error;

    /// Errors: usage, for a word that is no policy.
    fn from_str(text: &str) -> Result<Self> {
        let all = || Self::ALL.map(Self::word).join(", ");
        Self::ALL
            .into_iter()
            .find(|name| name.word() == text)
            .ok_or_else(|| Error::usage(format!("policy '{text}': write one of {}", all())))
    }
}
#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
