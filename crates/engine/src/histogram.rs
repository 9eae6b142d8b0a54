//! A histogram of whole numbers: exact up to 31, then with sixteen buckets for each power of two, so a bucket
//! is never wider than a sixteenth of its values.
//!
//! The engine adds a number at every send and dispatch, so adding takes a few instructions and no memory.
//! `flash stats` and the lab compute figures from it. It does not know the unit of the numbers.

/// Buckets for each power of two, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
/// The highest power of two with buckets of its own: larger than anything a connection sends in one turn.
const TOP_BITS: u32 = 17;
/// Buckets of a histogram. The last one also counts all larger numbers.
pub const BUCKETS: usize = (TOP_BITS - STEP_BITS + 2) as usize * STEPS;

/// How often each number occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    sum: u64,
    max: u64,
    counts: [u64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { sum: 0, max: 0, counts: [0; BUCKETS] }
    }
}

/// Numbers that the histogram cannot distinguish, and how many of them occurred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The smallest number of the bucket.
    pub from: u64,
    /// The largest number of the bucket. For the last bucket, the largest number that occurred.
    pub to: u64,
    /// How many numbers.
    pub count: u64,
}

impl Bucket {
    /// The middle of the bucket, used as the value of all its numbers.
    fn middle(&self) -> f64 {
        (self.from as f64 + self.to as f64) / 2.0
    }
}

impl Histogram {
    /// Counts a number.
    #[inline]
    pub fn add(&mut self, number: u64) {
        self.counts[index(number)] += 1;
        self.sum = self.sum.wrapping_add(number);
        self.max = self.max.max(number);
    }

    /// Restores a bucket from [`Histogram::buckets`]: `count` numbers in the bucket that begins at `from`.
    pub fn put(&mut self, from: u64, count: u64) {
        let place = &mut self.counts[index(from)];
        *place = place.saturating_add(count);
    }

    /// An empty histogram with this sum and maximum, to be filled by [`Histogram::put`].
    pub fn with_sum(sum: u64, max: u64) -> Self {
        Self { sum, max, ..Self::default() }
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Histogram) {
        for (ours, theirs) in self.counts.iter_mut().zip(other.counts) {
            *ours = ours.saturating_add(theirs);
        }
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// The numbers counted since `before`, an earlier state. The maximum is exact only to its bucket.
    #[must_use]
    pub fn since(&self, before: &Histogram) -> Histogram {
        let mut new = Histogram::with_sum(self.sum.saturating_sub(before.sum), 0);
        for (at, (now, then)) in self.counts.iter().zip(before.counts).enumerate() {
            new.counts[at] = now.saturating_sub(then);
            if new.counts[at] > 0 {
                new.max = last_of(at, self.max).min(self.max);
            }
        }
        new
    }

    /// How many numbers were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The exact sum of the numbers.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The largest number; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean; None if there are no numbers.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum as f64 / count as f64)
    }

    /// The percentile for a share `part`, from 0 to 1: the end of the bucket that reaches it. None if there
    /// are no numbers.
    pub fn percentile(&self, part: f64) -> Option<u64> {
        self.first_to_reach(part, |bucket| bucket.count as f64)
    }

    /// The mean with each number weighted by itself. For events per dispatch, this is the dispatch size that
    /// an average event sees. None if no number is above 0.
    pub fn weighted_mean(&self) -> Option<f64> {
        let sums = self.buckets().fold((0.0, 0.0), |(weights, sum), bucket| {
            let weight = bucket.count as f64 * bucket.middle();
            (weights + weight, sum + weight * bucket.middle())
        });
        (sums.0 > 0.0).then(|| sums.1 / sums.0)
    }

    /// The percentile with each number weighted by itself.
    pub fn weighted_percentile(&self, part: f64) -> Option<u64> {
        self.first_to_reach(part, |bucket| bucket.count as f64 * bucket.middle())
    }

    /// The buckets that are not empty, smallest numbers first.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(at, count)| Bucket { from: first_of(at), to: last_of(at, self.max), count: *count })
    }

    fn first_to_reach(&self, part: f64, weight: impl Fn(&Bucket) -> f64) -> Option<u64> {
        let all: f64 = self.buckets().map(|bucket| weight(&bucket)).sum();
        let mut below = 0.0;
        let reached = self.buckets().find(|bucket| {
            below += weight(bucket);
            below > 0.0 && below >= part * all
        })?;
        Some(reached.to.min(self.max))
    }
}

#[inline]
fn index(number: u64) -> usize {
    if number < STEPS as u64 {
        return number as usize;
    }
    let bits = number.ilog2();
    if bits > TOP_BITS {
        return BUCKETS - 1;
    }
    let shift = bits - STEP_BITS;
    (shift as usize) * STEPS + (number >> shift) as usize
}

/// The smallest number of a bucket.
fn first_of(at: usize) -> u64 {
    if at < STEPS {
        return at as u64;
    }
    let shift = at / STEPS - 1;
    ((at % STEPS + STEPS) as u64) << shift
}

/// The largest number of a bucket, where `max` is the largest number of all.
fn last_of(at: usize, max: u64) -> u64 {
    if at == BUCKETS - 1 { max.max(first_of(at)) } else { first_of(at + 1) - 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        numbers.iter().for_each(|number| histogram.add(*number));
        histogram
    }

    #[test]
    fn figures_match_those_worked_out_by_hand() {
        // Ten dispatches with 1, 1, 1, 1, 1, 2, 2, 3, 8 and 20 events.
        let histogram = of(&[1, 1, 1, 1, 1, 2, 2, 3, 8, 20]);
        assert_eq!((histogram.count(), histogram.sum(), histogram.max()), (10, 40, 20));
        assert_eq!(histogram.mean(), Some(4.0));
        let percentiles = [0.0, 0.5, 0.51, 0.7, 0.8, 0.9, 0.99, 1.0].map(|p| histogram.percentile(p));
        assert_eq!(percentiles, [1, 1, 2, 2, 3, 8, 20, 20].map(Some));
        // 40 events: 5 came alone, 4 in pairs, 3 in a group of three, 8 in a group of eight, 20 in one of
        // twenty:
        // (5 * 1 + 4 * 2 + 3 * 3 + 8 * 8 + 20 * 20) / 40.
        assert_eq!(histogram.weighted_mean(), Some(12.15));
        let weighted = [0.125, 0.2, 0.3, 0.5, 0.51, 0.99].map(|p| histogram.weighted_percentile(p));
        assert_eq!(weighted, [1, 2, 3, 8, 20, 20].map(Some));
    }

    #[test]
    fn an_empty_histogram_has_no_figures() {
        let none = Histogram::default();
        assert_eq!((none.count(), none.sum(), none.max()), (0, 0, 0));
        assert_eq!((none.mean(), none.percentile(0.5)), (None, None));
        assert_eq!((none.weighted_mean(), none.weighted_percentile(0.5)), (None, None));
        let zeros = of(&[0, 0]);
        assert_eq!((zeros.mean(), zeros.percentile(0.5)), (Some(0.0), Some(0)));
        assert_eq!((zeros.weighted_mean(), zeros.weighted_percentile(0.5)), (None, None));
    }

    #[test]
    fn small_numbers_are_exact_and_large_ones_within_a_sixteenth() {
        for number in 0..32 {
            let buckets: Vec<Bucket> = of(&[number]).buckets().collect();
            assert_eq!(buckets, [Bucket { from: number, to: number, count: 1 }]);
        }
        let bounds = |number| of(&[number]).buckets().map(|b| (b.from, b.to)).collect::<Vec<_>>();
        assert_eq!(bounds(32), [(32, 33)]);
        assert_eq!(bounds(63), [(62, 63)]);
        assert_eq!(bounds(1_000), [(992, 1_023)]);
        assert_eq!(bounds((1 << 18) - 1), [((1 << 18) - (1 << 13), (1 << 18) - 1)]);
        assert_eq!(bounds(1 << 40), [((1 << 18) - (1 << 13), 1 << 40)]);
    }

    #[test]
    fn since_returns_only_later_numbers() {
        let before = of(&[1, 5, 400]);
        let mut now = before;
        for number in [2, 2, 40] {
            now.add(number);
        }
        let new = now.since(&before);
        assert_eq!((new.count(), new.sum(), new.max()), (3, 44, 41));
        assert_eq!(new.percentile(0.5), Some(2));
        assert_eq!(now.since(&now), Histogram::default());
    }

    proptest! {
        #[test]
        fn each_number_lies_in_its_bucket(number: u64) {
            let histogram = of(&[number]);
            let bucket = histogram.buckets().next().unwrap();
            prop_assert!(bucket.from <= number && number <= bucket.to);
            prop_assert!(number >= 1 << 18 || bucket.to - bucket.from <= bucket.from / 16);
        }

        #[test]
        fn it_can_be_split_restored_and_merged(a: Vec<u16>, b: Vec<u16>) {
            let [a, b] = [a, b].map(|numbers| numbers.into_iter().map(u64::from).collect::<Vec<_>>());
            let whole = of(&[a.clone(), b.clone()].concat());
            let mut merged = of(&a);
            merged.merge(&of(&b));
            prop_assert_eq!(merged, whole);
            let mut again = Histogram::with_sum(whole.sum(), whole.max());
            whole.buckets().for_each(|bucket| again.put(bucket.from, bucket.count));
            prop_assert_eq!(again, whole);
        }
    }
}
