//! The sizes of the server's own answers, and the cutoffs that follow from them. Called by
//! [`schedule`](super). Memory and time are bounded: a fixed table, and old answers count less and less.

use super::bands::{CUTOFFS_MAX, Cutoffs};
use crate::limits::CUTOFF_BYTES_MIN;

/// Buckets for each power of two, as a power of two: an edge is at most a quarter above the one below it.
const STEP_BITS: u32 = 2;
const STEPS: usize = 1 << STEP_BITS;
/// The highest power of two with buckets of its own; larger answers count as this large.
const TOP_BITS: u32 = 40;
const BUCKETS: usize = (TOP_BITS - STEP_BITS + 2) as usize * STEPS;

/// One of this many answers is at or above the highest cutoff: 1 %, the upper end of the paper's rule, because
/// the edges of the buckets round the share down (overload-and-srpt, section 2.2).
const ABOVE_HIGHEST_ONE_IN: u64 = 100;

/// How many answers had each size.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    counts: [u32; BUCKETS],
}

impl Sizes {
    pub(super) fn new() -> Self {
        Self { counts: [0; BUCKETS] }
    }

    /// Counts an answer.
    #[inline]
    pub(super) fn add(&mut self, bytes: u64) {
        let count = &mut self.counts[index(bytes)];
        *count = count.saturating_add(1);
    }

    /// Makes all answers so far count half.
    pub(super) fn age(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
    }

    /// The cutoffs by the paper's rule: half of the answers below the lowest, 0.5 to 1 % at or above the
    /// highest, and the others spaced evenly by logarithm. None if no answer was counted.
    ///
    /// Sizes that many answers share can leave no room for all cutoffs; then there are fewer.
    pub(super) fn cutoffs(&self) -> Option<Cutoffs> {
        let all: u64 = self.counts.iter().copied().map(u64::from).sum();
        if all == 0 {
            return None;
        }
        let lowest = self.first_edge(|below| below * 2 >= all).max(CUTOFF_BYTES_MIN);
        let highest = self.first_edge(|below| (all - below) * ABOVE_HIGHEST_ONE_IN <= all);
        let ratio = highest.max(lowest) as f64 / lowest as f64;
        let mut cutoffs = vec![lowest];
        for step in 1..CUTOFFS_MAX {
            let part = step as f64 / (CUTOFFS_MAX - 1) as f64;
            let cutoff = (lowest as f64 * ratio.powf(part)).round() as u64;
            if cutoffs.last().is_some_and(|last| *last < cutoff) {
                cutoffs.push(cutoff);
            }
        }
        Cutoffs::new(&cutoffs)
    }

    /// The first edge of a bucket for which `is_enough` holds with the number of answers below it.
    fn first_edge(&self, is_enough: impl Fn(u64) -> bool) -> u64 {
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            if is_enough(below) {
                return edge(at);
            }
            below += u64::from(*count);
        }
        edge(BUCKETS)
    }
}

#[inline]
fn index(bytes: u64) -> usize {
    if bytes < STEPS as u64 {
        return bytes as usize;
    }
    let shift = bytes.ilog2() - STEP_BITS;
    ((shift as usize) * STEPS + (bytes >> shift) as usize).min(BUCKETS - 1)
}

/// The smallest size of a bucket.
fn edge(at: usize) -> u64 {
    if at < STEPS {
        return at as u64;
    }
    ((at % STEPS + STEPS) as u64) << (at / STEPS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(sizes: impl IntoIterator<Item = u64>) -> Sizes {
        let mut counted = Sizes::new();
        sizes.into_iter().for_each(|bytes| counted.add(bytes));
        counted
    }

    fn cutoffs(sizes: &Sizes) -> Vec<u64> {
        sizes.cutoffs().map(|cutoffs| cutoffs.iter().collect()).unwrap_or_default()
    }

    /// A Pareto distribution (tail index 1.1, as web sizes have) by its quantiles.
    fn heavy_tailed(count: u64) -> Vec<u64> {
        let at = |n: u64| 2_000.0 * (1.0 - (n as f64 + 0.5) / count as f64).powf(-1.0 / 1.1);
        (0..count).map(|n| at(n) as u64).collect()
    }

    #[test]
    fn the_rule_of_the_paper_holds_for_a_heavy_tail() {
        let sizes = heavy_tailed(10_000);
        let found = cutoffs(&of(sizes.clone()));
        assert_eq!(found.len(), CUTOFFS_MAX);
        let share_from = |cutoff: u64| sizes.iter().filter(|bytes| **bytes >= cutoff).count() as f64 / 1e4;
        let (below_lowest, above_highest) = (1.0 - share_from(found[0]), share_from(found[3]));
        assert!((0.5..0.6).contains(&below_lowest), "{below_lowest} below {}", found[0]);
        assert!((0.005..=0.01).contains(&above_highest), "{above_highest} from {}", found[3]);
        let ratios: Vec<f64> = found.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64).collect();
        assert!(ratios.iter().all(|ratio| (ratio / ratios[0] - 1.0).abs() < 0.01), "{found:?}");
    }

    #[test]
    fn answers_of_one_size_are_all_in_the_first_band() {
        let found = of([10_000; 50]).cutoffs().expect("cutoffs");
        assert_eq!(found.band(10_000).number(), 0);
        assert_eq!(found.iter().count(), 1);
        assert_eq!(cutoffs(&of([0; 50])), [CUTOFF_BYTES_MIN], "answers without a body");
        assert_eq!(cutoffs(&Sizes::new()), [] as [u64; 0]);
    }

    #[test]
    fn old_answers_are_forgotten() {
        let mut sizes = of([1_000_000; 1_000]);
        for _ in 0..10 {
            sizes.age();
        }
        (0..100).for_each(|_| sizes.add(2_000));
        assert!(cutoffs(&sizes).iter().all(|cutoff| *cutoff < 4_000), "{:?}", cutoffs(&sizes));
    }

    proptest! {
        #[test]
        fn a_size_lies_in_its_bucket(bytes in 0u64..1 << TOP_BITS) {
            prop_assert!(edge(index(bytes)) <= bytes && bytes < edge(index(bytes) + 1));
        }

        #[test]
        fn any_sizes_give_cutoffs(sizes: Vec<u64>) {
            let counted = of(sizes.iter().copied());
            prop_assert_eq!(counted.cutoffs().is_some(), !sizes.is_empty());
        }
    }
}
