//! Plays requests to a policy and counts the misses.
//!
//! [`super::run`] calls it for each policy and size of memory. Pure.

use super::policies::Name;
use super::requests::Requests;

/// Misses of a policy in so much memory, after warming up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub policy: Name,
    pub memory_bytes: u64,
    pub requests: u64,
    /// Requests for which the disk was read.
    pub misses: u64,
    /// Reads of the disk: blocks.
    pub reads: u64,
    pub asked_bytes: u64,
    pub missed_bytes: u64,
}

impl Outcome {
    /// Requests for each 1,000 that had to wait for the disk; none without requests.
    pub fn misses_per_thousand(&self) -> f64 {
        self.misses as f64 * 1000.0 / self.requests as f64
    }

    pub fn reads_per_thousand(&self) -> f64 {
        self.reads as f64 * 1000.0 / self.requests as f64
    }

    pub fn hit_share(&self) -> f64 {
        1.0 - self.misses as f64 / self.requests as f64
    }

    /// The share of bytes that were read from the disk, from 0 to 1.
    pub fn missed_byte_share(&self) -> f64 {
        self.missed_bytes as f64 / self.asked_bytes.max(1) as f64
    }
}

/// Plays all requests to an empty cache; the first `warm_up` of them are not counted.
pub(super) fn simulate(policy: Name, memory_bytes: u64, requests: &Requests, warm_up: usize) -> Outcome {
    let mut cache = policy.cache(memory_bytes, requests);
    let mut outcome =
        Outcome { policy, memory_bytes, requests: 0, misses: 0, reads: 0, asked_bytes: 0, missed_bytes: 0 };
    for (index, file) in requests.asked.iter().enumerate() {
        let (mut reads, mut asked_bytes, mut missed_bytes) = (0, 0, 0);
        for block in requests.blocks_of(*file) {
            asked_bytes += block.bytes;
            if !cache.access(block) {
                reads += 1;
                missed_bytes += block.bytes;
            }
        }
        if index >= warm_up {
            outcome.requests += 1;
            outcome.misses += u64::from(reads > 0);
            outcome.reads += reads;
            outcome.asked_bytes += asked_bytes;
            outcome.missed_bytes += missed_bytes;
        }
    }
    outcome
}
