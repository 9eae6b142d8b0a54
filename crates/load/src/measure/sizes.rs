//! Answers sorted into series by size, and the series' shares in each tenth of the answers by
//! latency (blocking-induced-latency, §4.1, Table 3 and Figures 10 and 11).
//!
//! [`crate::measure`] calls it. Pure.

use super::inversion::{DECILES, Ranked};
use crate::measure::{Decile, SizeSeries};

/// The largest answers of Table 3's first three series, bytes.
const SPECWEB99_BYTES_MAX: [u64; 3] = [510, 4096, 6144];
/// Series of other workloads, at most.
const SERIES_MAX: u64 = 4;

/// How answers are sorted into series by size. A series that has no answer is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesBounds {
    /// The four of the papers for SPECweb99: up to 510, 4,096 and 6,144 bytes, and what is larger.
    Specweb99,
    /// Four of about equal shares. Equal sizes stay together, so there are fewer when there are
    /// fewer sizes.
    #[default]
    Quartiles,
}

/// The series, smallest first, and the ten deciles; none of either without answers.
pub(super) fn by_decile(answers: &Ranked, bounds: SeriesBounds) -> (Vec<SizeSeries>, Vec<Decile>) {
    let count = answers.by_size.len() as u64;
    let mut series: Vec<SizeSeries> = Vec::new();
    let mut members = Vec::new();
    let mut per_decile = [0u64; DECILES as usize];
    let mut last_number = None;
    let mut before = 0;
    // Runs of equal sizes; each belongs to one series.
    for run in answers.by_size.chunk_by(|a, b| a.0 == b.0) {
        let (bytes, in_run) = (run[0].0, run.len() as u64);
        let number = match bounds {
            SeriesBounds::Specweb99 => SPECWEB99_BYTES_MAX.partition_point(|&most| most < bytes) as u64,
            // Where the middle of the run falls.
            SeriesBounds::Quartiles => SERIES_MAX * (2 * before + in_run) / (2 * count),
        };
        if last_number != Some(number) {
            series.push(SizeSeries { bytes_min: bytes, bytes_max: bytes, share: 0.0 });
            members.push([0u64; DECILES as usize]);
            last_number = Some(number);
        }
        if let (Some(series), Some(members)) = (series.last_mut(), members.last_mut()) {
            series.bytes_max = bytes;
            for &(_, place) in run {
                members[answers.decile(place)] += 1;
                per_decile[answers.decile(place)] += 1;
            }
        }
        before += in_run;
    }
    for (series, members) in series.iter_mut().zip(&members) {
        series.share = members.iter().sum::<u64>() as f64 / count as f64;
    }
    let deciles = answers.decile_max_ns.iter().enumerate().map(|(i, &max_ns)| Decile {
        latency_max_ms: super::times::ms(max_ns),
        shares: members.iter().map(|members| super::per(members[i] as f64, per_decile[i] as f64)).collect(),
    });
    (series, deciles.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::layout::{CLASSES, FILES_PER_CLASS, File};

    /// Answers of these sizes, each a nanosecond slower than the one before.
    fn ranked(sizes: impl IntoIterator<Item = u64>) -> Ranked {
        Ranked::new(sizes.into_iter().enumerate().map(|(i, bytes)| (i as u64, bytes)))
    }

    fn ranges(series: &[SizeSeries]) -> Vec<(u64, u64, f64)> {
        series.iter().map(|s| (s.bytes_min, s.bytes_max, s.share)).collect()
    }

    #[test]
    fn the_series_of_specweb99_have_the_shares_of_table_3() {
        // As often as the workload asks for each file: class in percent times file in per mille.
        let (classes, files) = ([35u64, 50, 14, 1], [39u64, 59, 88, 177, 353, 118, 71, 50, 44]);
        let mut sizes = Vec::new();
        for class in 0..CLASSES {
            for number in 1..=FILES_PER_CLASS {
                let bytes = File { directory: 0, class, number }.file_bytes();
                let times = classes[class as usize] * files[number as usize - 1];
                sizes.extend((0..times).map(|_| bytes));
            }
        }
        let (series, _) = by_decile(&ranked(sizes), SeriesBounds::Specweb99);
        let bounds: Vec<_> = series.iter().map(|s| (s.bytes_min, s.bytes_max)).collect();
        assert_eq!(bounds, [(102, 510), (612, 4096), (5120, 6144), (7168, 921_600)]);
        // The papers' shares are 25.06, 28.05, 23.55 and 23.34 %: the weights of the files add up to
        // 99.9 %, and the last series there is what the others leave.
        for (series, percent) in series.iter().zip([25.06, 28.055, 23.55, 23.235]) {
            assert!((series.share - percent / 99.9).abs() < 1e-12, "{series:?}");
        }
    }

    #[test]
    fn quartiles_have_about_equal_shares_and_keep_equal_sizes_together() {
        let of = |sizes: &[u64]| ranges(&by_decile(&ranked(sizes.to_vec()), SeriesBounds::Quartiles).0);
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[5, 5, 5]), [(5, 5, 1.0)]);
        assert_eq!(of(&[7, 3]), [(3, 3, 0.5), (7, 7, 0.5)]);
        assert_eq!(of(&[4, 3, 2, 1]), [(1, 1, 0.25), (2, 2, 0.25), (3, 3, 0.25), (4, 4, 0.25)]);
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!(of(&hundred), [(1, 25, 0.25), (26, 50, 0.25), (51, 75, 0.25), (76, 100, 0.25)]);
        // Seven of ten are alike: what is below, they, and what is above.
        assert_eq!(of(&[1, 2, 5, 5, 5, 5, 5, 5, 5, 9]), [(1, 2, 0.2), (5, 5, 0.7), (9, 9, 0.1)]);
    }

    #[test]
    fn deciles_without_inversion_hold_one_series_each_and_with_it_the_reverse() {
        let sizes: Vec<u64> = (1..=100).collect();
        let shares = |sizes: Vec<u64>| -> Vec<Vec<f64>> {
            let (_, deciles) = by_decile(&ranked(sizes), SeriesBounds::Quartiles);
            deciles.into_iter().map(|decile| decile.shares).collect()
        };
        let sorted = shares(sizes.clone());
        assert_eq!(sorted[0], [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(sorted[2], [0.5, 0.5, 0.0, 0.0], "the papers' two and a half bars");
        assert_eq!(sorted[9], [0.0, 0.0, 0.0, 1.0]);
        let reversed = shares(sizes.into_iter().rev().collect());
        assert_eq!(reversed[0], [0.0, 0.0, 0.0, 1.0]);
        assert_eq!(reversed[7], [0.5, 0.5, 0.0, 0.0]);
        let few = shares(vec![1, 2]);
        assert_eq!(few[0], [0.0, 0.0], "a decile without answers");
        assert_eq!((&few[4][..], &few[9][..]), (&[1.0, 0.0][..], &[0.0, 1.0][..]));
    }
}
