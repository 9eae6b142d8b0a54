//! The answer to the operator's question: how much memory does my site need?
//!
//! [`super::run`] makes one from the results of a simulation. Pure.

use super::policies::Name;
use super::simulate::Outcome;
use flash_kit::number::{binary_size as memory, figure, percent};

/// A memory is enough when it has this share of the hits of the largest memory.
const ENOUGH: f64 = 0.99;

/// A size of memory that is enough, and the effect of doubling it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) enough: Outcome,
    pub(super) twice: Outcome,
}

impl Answer {
    /// The smallest memory with 99 % of the hits that the largest has under a policy that was simulated. `simulate` gives
    /// the outcome of that policy in any memory.
    pub(super) fn of(policy: Name, outcomes: &[Outcome], simulate: impl Fn(u64) -> Outcome) -> Self {
        let of_policy = || outcomes.iter().filter(|outcome| outcome.policy == policy);
        let hits = |outcome: &Outcome| (outcome.requests - outcome.misses) as f64;
        let most = of_policy().map(hits).fold(0.0, f64::max);
        // There is one: policies and sizes are never empty.
        let enough = of_policy().find(|outcome| hits(outcome) >= most * ENOUGH).unwrap_or(&outcomes[0]);
        let twice = enough.memory_bytes.saturating_mul(2);
        let known = of_policy().find(|outcome| outcome.memory_bytes == twice);
        Self { enough: *enough, twice: known.copied().unwrap_or_else(|| simulate(twice)) }
    }

    /// The share of reads that twice the memory would save; none without reads.
    fn saved_share(&self) -> Option<f64> {
        let reads = self.enough.reads;
        (reads > 0).then(|| reads.saturating_sub(self.twice.reads) as f64 / reads as f64)
    }

    /// In one sentence.
    pub(super) fn text(&self) -> String {
        let saved = match self.saved_share() {
            None => "no request had to wait for the disk".to_owned(),
            Some(0.0) => "twice the memory would save no disk reads".to_owned(),
            Some(share) => match (share * 10.0).round() as u32 {
                tenths @ 1..=9 => format!("twice the memory would save {tenths} of 10 disk reads"),
                _ => format!("twice the memory would save {} of the disk reads", percent(share)),
            },
        };
        format!(
            "{} with the policy {} holds {} of the requests ({} disk reads for each 1,000); {saved}.",
            memory(self.enough.memory_bytes),
            self.enough.policy.word(),
            percent(self.enough.hit_share()),
            figure(self.enough.reads_per_thousand()),
        )
    }
}
