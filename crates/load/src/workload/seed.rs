//! Seeds of random sequences: a number of its own for each sequence of a run.
//!
//! Demands use them for arrivals and choices, the lab for the phases that it drives. Pure.
//!
//! Two sequences with one seed would ask for the same files at the same times: the second would find in memory what the
//! first has just brought there. So a sequence is named by numbers, and every number goes through a whole round of mixing.

use crate::files::content::mix;

/// The name of a random sequence within a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// The number of the phase: the same for all servers that are to get the same requests.
    pub phase: u32,
    /// The number of the round, from 1; 0 where there are none.
    pub round: u32,
    /// The number of the stream within the phase, or of the sequence within a stream.
    pub stream: u32,
}

impl StreamId {
    pub fn seed(self, run: u64) -> u64 {
        [self.phase, self.round, self.stream]
            .into_iter()
            .fold(mix(run), |seed, number| mix(seed ^ u64::from(number)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_sequence_of_some_runs_has_a_seed_of_its_own() {
        let mut seeds = BTreeSet::new();
        for run in [0, 1, 2, u64::MAX] {
            for number in 0..1000_u32 {
                let (phase, round, stream) = (number / 100, number / 10 % 10, number % 10);
                assert!(seeds.insert(StreamId { phase, round, stream }.seed(run)), "{run} {number}");
            }
        }
    }

    #[test]
    fn a_seed_stays_the_same_over_versions() {
        let id = StreamId { phase: 1, round: 2, stream: 3 };
        assert_eq!(id.seed(7), 0x19ea_39dd_3e86_f88e);
        assert_ne!(
            id.seed(7),
            StreamId { phase: 2, round: 1, stream: 3 }.seed(7),
            "the order of numbers matters"
        );
        // The first output of the reference implementation for the seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }
}
