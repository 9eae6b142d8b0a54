//! Service inversion (blocking-induced-latency, §4.2): how far the order of answers by latency is
//! from their order by size.
//!
//! [`crate::measure`] ranks the answers of a phase once; inversion and the deciles read the ranks.
//! Pure. O(n log n).

/// The proper answers of a phase in the order of their sizes, each with its place in the order of
/// latencies.
pub(super) struct Ranked {
    /// Size in bytes and place from 0, in growing order; of equal sizes the quicker first, so the
    /// Nth observed stands at the Nth ideal position.
    pub(super) by_size: Vec<(u64, u64)>,
    /// The longest latency of each tenth, nanoseconds.
    pub(super) decile_max_ns: Vec<u64>,
}

/// Tenths of the answers by latency.
pub(super) const DECILES: u64 = 10;

impl Ranked {
    /// Ranks pairs of latency in nanoseconds and size in bytes, at most 2³² of them (a run has fewer
    /// by its own bound; what is beyond is left out).
    ///
    /// Answers of equal latency take the ideal order, so that a tie never counts as inversion.
    pub(super) fn new(answers: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut pairs: Vec<(u64, u64)> = answers.take(u32::MAX as usize).collect();
        pairs.sort_unstable();
        let count = pairs.len() as u64;
        let last = |decile: u64| pairs.get((((decile + 1) * count / DECILES) as usize).checked_sub(1)?);
        let decile_max_ns = match count {
            0 => Vec::new(),
            _ => (0..DECILES).map(|decile| last(decile).map_or(0, |pair| pair.0)).collect(),
        };
        // The latencies have done their part: the pairs become sizes and places in their own room.
        for (place, pair) in pairs.iter_mut().enumerate() {
            *pair = (pair.1, place as u64);
        }
        pairs.sort_unstable();
        Self { by_size: pairs, decile_max_ns }
    }

    /// The tenth that a place belongs to, from 0. Tenths differ by one answer at most.
    pub(super) fn decile(&self, place: u64) -> usize {
        // The smallest d with place < (d + 1) · n / 10, rounded down, as in `new`.
        let count = self.by_size.len() as u64;
        (((place + 1) * DECILES).div_ceil(count.max(1)) - 1) as usize
    }

    /// The service inversion: the sum of distances over its maximum, floor(n²/2). It is 0 when the order by latency is the order by
    /// size, 1 when it is the reverse; none of fewer than two answers. Equal sizes are matched Nth observed to Nth ideal, as the
    /// paper has it.
    pub(super) fn inversion(&self) -> Option<f64> {
        let count = self.by_size.len() as u64;
        // Below 2⁶³ for 2³² answers.
        let most = count * count / 2;
        let distances = self.by_size.iter().enumerate();
        let sum: u64 = distances.map(|(ideal, &(_, place))| (ideal as u64).abs_diff(place)).sum();
        (most > 0).then(|| sum as f64 / most as f64)
    }
}

#[cfg(test)]
fn inversion(latencies_and_sizes: impl IntoIterator<Item = (u64, u64)>) -> Option<f64> {
    Ranked::new(latencies_and_sizes.into_iter()).inversion()
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// In the order of latency, answers of these sizes.
    fn of(sizes: &[u64]) -> Option<f64> {
        inversion(sizes.iter().enumerate().map(|(i, &bytes)| (i as u64, bytes)))
    }

    #[test]
    fn the_papers_example_is_four_twelfths() {
        assert_eq!(of(&[2, 3, 1, 4, 5]), Some(4.0 / 12.0));
    }

    #[test]
    fn hand_computed_cases() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[7]), None);
        assert_eq!(of(&[1, 2]), Some(0.0));
        assert_eq!(of(&[2, 1]), Some(1.0));
        assert_eq!(of(&[5, 5, 5]), Some(0.0), "equal sizes can't be inverted");
        // Ideal 1 1 2 2; the ones stand at 1 and 3 for 0 and 1, the twos at 0 and 2 for 2 and 3:
        // 1 + 2 + 2 + 1 over 8.
        assert_eq!(of(&[2, 1, 2, 1]), Some(6.0 / 8.0));
        // All at once: a tie is no inversion.
        assert_eq!(inversion([(9, 3), (9, 1), (9, 2)]), Some(0.0));
        // 1 and 2 tie behind 3: the order is 3, 1, 2, so 2 + 1 + 1 over 4.
        assert_eq!(inversion([(5, 2), (1, 3), (5, 1)]), Some(1.0));
    }

    #[test]
    fn it_is_what_its_definition_says_it_is() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..300 {
            let count = random.random_range(2..60);
            let sizes: Vec<u64> = (0..count).map(|_| random.random_range(0..12)).collect();
            let mut ideal = sizes.clone();
            ideal.sort_unstable();
            let mut sum = 0;
            for (place, bytes) in sizes.iter().enumerate() {
                let nth = sizes[..place].iter().filter(|other| *other == bytes).count();
                let start = ideal.iter().position(|other| other == bytes).unwrap();
                sum += place.abs_diff(start + nth);
            }
            let expected = sum as f64 / (count * count / 2) as f64;
            assert_eq!(of(&sizes), Some(expected), "{sizes:?}");
        }
    }

    #[test]
    fn sorted_is_0_reversed_is_1_and_the_input_order_does_not_matter() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        for count in [2, 3, 10, 101, 1000] {
            let sizes: Vec<u64> = (0..count).collect();
            assert_eq!(of(&sizes), Some(0.0));
            let reversed: Vec<u64> = sizes.into_iter().rev().collect();
            assert_eq!(of(&reversed), Some(1.0));
            let mut pairs: Vec<(u64, u64)> =
                (0..count).map(|_| (random.random_range(0..count), random.random_range(0..9))).collect();
            let before = inversion(pairs.iter().copied()).unwrap();
            assert!((0.0..=1.0).contains(&before));
            pairs.shuffle(&mut random);
            assert_eq!(inversion(pairs.iter().copied()), Some(before));
        }
    }

    #[test]
    fn millions_of_records_do_not_overflow() {
        let count = 2_000_000u64;
        assert_eq!(inversion((0..count).map(|i| (i, count - i))), Some(1.0));
        // Random order of n distinct sizes: the mean distance is n/3, so the expected value is 2/3.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let random = inversion((0..count).map(|i| (random.random(), i))).unwrap();
        assert!((random - 2.0 / 3.0).abs() < 0.002, "{random}");
    }

    #[test]
    fn deciles_take_turns_and_end_at_their_longest() {
        for count in [1u64, 9, 10, 11, 25, 1003] {
            let ranked = Ranked::new((0..count).map(|i| (100 + i, 1)));
            let mut sizes = [0u64; 10];
            for place in 0..count {
                sizes[ranked.decile(place)] += 1;
            }
            let most = sizes.iter().max().unwrap() - sizes.iter().min().unwrap();
            assert!(most <= 1 && sizes.iter().sum::<u64>() == count, "{count}: {sizes:?}");
            // The last place of each tenth that has any.
            let mut last = 0;
            for (decile, size) in sizes.iter().enumerate() {
                last += size;
                if last > 0 {
                    assert_eq!(ranked.decile_max_ns[decile], 99 + last, "{count}: {decile}");
                }
            }
        }
    }
}
