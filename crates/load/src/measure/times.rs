//! Summaries of times: mean, percentiles, distribution.
//!
//! [`crate::measure`] calls it for each kind of time; any command may for times of its own. Pure.
//! Percentiles are exact, by nearest rank: the smallest time that at least this share does not exceed.

use crate::measure::{Bucket, CdfPoint, Latency};

/// Points of a distribution at equal steps of the share.
const CDF_SHARES: usize = 50;
/// Points of a distribution at equal ratios of the time.
const CDF_TIMES: usize = 80;
/// Points of its upper end for each tenth of what is beyond.
const CDF_TAIL_PER_DECADE: i32 = 10;

pub fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// How many of `count` values the percentile takes in: from 1, and 0 for no values.
pub fn rank(count: u64, per_mille: u64) -> u64 {
    (u128::from(count) * u128::from(per_mille)).div_ceil(1000).max(1).min(u128::from(count)) as u64
}

/// The percentile of times in growing order; none of none.
pub fn percentile_ns(sorted_ns: &[u64], per_mille: u64) -> Option<u64> {
    let rank = rank(sorted_ns.len() as u64, per_mille);
    sorted_ns.get((rank as usize).checked_sub(1)?).copied()
}

/// The median of values in any order, between the two in the middle of an even number; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().saturating_sub(1) / 2;
    values.get(lower).zip(values.get(upper)).map_or(0.0, |(lower, upper)| (lower + upper) / 2.0)
}

/// The summary of times in growing order; none of none.
pub fn summary(sorted_ns: &[u64]) -> Option<Latency> {
    let at = |per_mille| percentile_ns(sorted_ns, per_mille).map(ms);
    let sum_ns: u128 = sorted_ns.iter().map(|&ns| u128::from(ns)).sum();
    Some(Latency {
        mean_ms: sum_ns as f64 / 1e6 / sorted_ns.len() as f64,
        p5_ms: at(50)?,
        p50_ms: at(500)?,
        p90_ms: at(900)?,
        p95_ms: at(950)?,
        p99_ms: at(990)?,
        p999_ms: at(999)?,
        max_ms: at(1000)?,
    })
}

/// The bounds of histograms, microseconds: 50 µs to a minute.
const BOUNDS_US: [u64; 20] = [
    50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000, 10_000_000, 20_000_000, 30_000_000, 60_000_000,
];

/// How many of the times in growing order are within each of some bounds.
pub fn histogram(sorted_ns: &[u64]) -> Vec<Bucket> {
    let bucket = |bound_us: u64| Bucket {
        latency_max_ms: bound_us as f64 / 1e3,
        count: sorted_ns.partition_point(|&ns| ns <= bound_us * 1000) as u64,
    };
    BOUNDS_US.into_iter().map(bucket).collect()
}

/// The distribution of times in growing order, in at most some 200 points: at equal steps of the
/// share, at equal ratios of the time (so that a curve over a logarithmic axis has no gaps), and
/// densely towards the longest, which is the last point. Each point's share is exact.
pub fn cdf(sorted_ns: &[u64]) -> Vec<CdfPoint> {
    let (Some(&shortest), Some(&longest)) = (sorted_ns.first(), sorted_ns.last()) else {
        return Vec::new();
    };
    let count = sorted_ns.len() as f64;
    let at_rank = |rank: f64| sorted_ns[(rank.ceil().clamp(1.0, count)) as usize - 1];
    let mut chosen = vec![shortest, longest];
    chosen.extend((1..CDF_SHARES).map(|i| at_rank(count * i as f64 / CDF_SHARES as f64)));
    chosen.extend([900, 950, 990, 999].iter().filter_map(|&mille| percentile_ns(sorted_ns, mille)));
    for step in CDF_TAIL_PER_DECADE.. {
        let beyond = count * 10f64.powf(-f64::from(step) / f64::from(CDF_TAIL_PER_DECADE));
        if beyond < 1.0 {
            break;
        }
        chosen.push(at_rank(count - beyond));
    }
    let ratio = longest as f64 / shortest.max(1) as f64;
    for i in 1..CDF_TIMES {
        let wanted_ns = shortest.max(1) as f64 * ratio.powf(i as f64 / CDF_TIMES as f64);
        let up_to = sorted_ns.partition_point(|&ns| ns as f64 <= wanted_ns);
        chosen.push(sorted_ns[up_to.max(1) - 1]);
    }
    chosen.sort_unstable();
    chosen.dedup();
    let share = |ns: u64| sorted_ns.partition_point(|&other| other <= ns) as f64 / count;
    chosen.into_iter().map(|ns| CdfPoint { latency_ms: ms(ns), share: share(ns) }).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// The definition: the smallest value that at least this many of 1,000 do not exceed.
    fn naive(values: &[u64], per_mille: u64) -> u64 {
        let reaches = |v: u64| {
            let up_to = values.iter().filter(|&&other| other <= v).count() as u64;
            up_to * 1000 >= per_mille * values.len() as u64
        };
        *values.iter().filter(|&&v| reaches(v)).min().unwrap()
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let ten: Vec<u64> = (1..=10).map(|n| n * 1_000_000).collect();
        let all = summary(&ten).unwrap();
        assert_eq!((all.mean_ms, all.p5_ms, all.p50_ms, all.p90_ms), (5.5, 1.0, 5.0, 9.0));
        assert_eq!((all.p95_ms, all.p99_ms, all.p999_ms, all.max_ms), (10.0, 10.0, 10.0, 10.0));
        let thousand: Vec<u64> = (1..=1000).map(|n| n * 1_000_000).collect();
        let all = summary(&thousand).unwrap();
        assert_eq!((all.p5_ms, all.p99_ms, all.p999_ms, all.max_ms), (50.0, 990.0, 999.0, 1000.0));
        assert_eq!(summary(&[7_000_000]).unwrap().p5_ms, 7.0);
        assert_eq!(summary(&[]), None);
        // The mean of what no sum of 64 bits holds.
        assert_eq!(summary(&[u64::MAX, u64::MAX]).unwrap().mean_ms, u64::MAX as f64 / 1e6);
    }

    #[test]
    fn medians() {
        assert_eq!([median(vec![]), median(vec![7.0]), median(vec![3.0, 1.0])], [0.0, 7.0, 2.0]);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn percentiles_agree_with_their_definition() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        for _ in 0..200 {
            let count = random.random_range(1..400);
            let mut values: Vec<u64> = (0..count).map(|_| random.random_range(0..300)).collect();
            values.sort_unstable();
            for per_mille in [0, 1, 50, 500, 900, 950, 990, 999, 1000] {
                assert_eq!(percentile_ns(&values, per_mille), Some(naive(&values, per_mille)), "{values:?}");
            }
        }
    }

    #[test]
    fn a_distribution_has_exact_points_and_a_dense_tail() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let mut values: Vec<u64> =
            (0..100_000).map(|_| (-(1.0 - random.random::<f64>()).ln() * 1e6) as u64).collect();
        values.push(2_000_000_000);
        values.sort_unstable();
        let points = cdf(&values);
        assert!((100..=210).contains(&points.len()), "{}", points.len());
        assert_eq!(*points.last().unwrap(), CdfPoint { latency_ms: 2000.0, share: 1.0 });
        assert!(points.is_sorted_by(|a, b| a.latency_ms < b.latency_ms && a.share < b.share));
        for point in &points {
            let up_to = values.iter().filter(|&&ns| ms(ns) <= point.latency_ms).count();
            assert_eq!(point.share, up_to as f64 / values.len() as f64);
        }
        let whole = summary(&values).unwrap();
        for percentile in [whole.p50_ms, whole.p90_ms, whole.p95_ms, whole.p99_ms, whole.p999_ms] {
            assert!(points.iter().any(|point| point.latency_ms == percentile), "{percentile}");
        }
        assert!(points.iter().filter(|point| point.share > 0.999).count() > 10);
        assert!(points.windows(2).all(|pair| pair[1].share - pair[0].share <= 0.021));
    }

    #[test]
    fn a_bucket_has_all_times_up_to_its_bound() {
        let buckets = histogram(&[50_000, 50_001, 60_000_000_000, 60_000_000_001]);
        let counts: Vec<u64> = buckets.iter().map(|bucket| bucket.count).collect();
        assert_eq!((counts[0], counts[1], counts[18], counts[19]), (1, 2, 2, 3));
        assert!(buckets.is_sorted_by(|a, b| a.latency_max_ms < b.latency_max_ms));
        assert_eq!((buckets[0].latency_max_ms, buckets[19].latency_max_ms), (0.05, 60_000.0));
    }

    #[test]
    fn small_distributions_are_whole() {
        assert_eq!(cdf(&[]), []);
        assert_eq!(cdf(&[0, 0]), [CdfPoint { latency_ms: 0.0, share: 1.0 }]);
        let points = cdf(&[1_000_000, 2_000_000, 2_000_000, 4_000_000]);
        let pairs: Vec<_> = points.iter().map(|p| (p.latency_ms, p.share)).collect();
        assert_eq!(pairs, [(1.0, 0.25), (2.0, 0.75), (4.0, 1.0)]);
    }
}
