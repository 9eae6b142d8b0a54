//! Lengths of files with a heavy tail: a bounded Pareto distribution.
//!
//! `flash fileset pareto` makes files of these lengths, so that experiments on overload need no trace: asked for equally
//! often, the files give requests whose lengths have the distribution. Pure.

/// A Pareto distribution of lengths between two bounds: of all requests, a share of (`min_bytes` / x)^`alpha` is longer
/// than x, except that none is longer than `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoundedPareto {
    /// The exponent: the smaller, the more of the load is in few long files. Above 0, and not 1.
    pub alpha: f64,
    pub min_bytes: f64,
    pub max_bytes: f64,
}

/// The lengths of `flash fileset pareto`: those of the paper's trace as well as this distribution can have them
/// (overload-and-srpt, section 3.3.1). As there, the mean is 5 KB, half of the requests are for less than 1 KB, the longest
/// file has 2.02 MB, and the longest 3 % of the requests make up over half of the load. Nine tenths are for less than
/// 5.6 KB; there, for less than 9.3 KB.
pub const TRACE_LIKE: BoundedPareto = BoundedPareto { alpha: 0.93, min_bytes: 475.0, max_bytes: 2_020_000.0 };

/// Those of the paper's second trace, of a NASA server (overload-and-srpt, Appendix B): the mean is 19 KB, the longest file has 1.9 MB, and
/// the longest 2.5 % of the requests make up half of the load. There the shortest file has 50 bytes.
pub const NASA_LIKE: BoundedPareto = BoundedPareto { alpha: 0.88, min_bytes: 2031.0, max_bytes: 1_900_000.0 };

/// The trace that the lengths of a set are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// [`TRACE_LIKE`].
    WorldCup,
    /// [`NASA_LIKE`].
    Nasa,
}

impl Trace {
    pub fn lengths(self) -> BoundedPareto {
        match self {
            Self::WorldCup => TRACE_LIKE,
            Self::Nasa => NASA_LIKE,
        }
    }
}

impl BoundedPareto {
    /// The length, in bytes, that this share of the requests does not exceed.
    pub fn quantile_bytes(&self, share: f64) -> f64 {
        let beyond = 1.0 - share.clamp(0.0, 1.0) * self.uncut_share();
        self.min_bytes * beyond.powf(-1.0 / self.alpha)
    }

    pub fn mean_bytes(&self) -> f64 {
        self.partial_mean_bytes(self.min_bytes, self.max_bytes)
    }

    /// The lengths of this many files, shortest first. Each is the mean of its part of the distribution, so that files which
    /// are asked for equally often have the mean of the distribution, however few they are.
    pub fn lengths_bytes(&self, count: u32) -> Vec<u64> {
        let parts = f64::from(count);
        let bound = |part: u32| self.quantile_bytes(f64::from(part) / parts);
        let length = |part| (parts * self.partial_mean_bytes(bound(part), bound(part + 1))).round() as u64;
        (0..count).map(length).collect()
    }

    /// The share of the unbounded distribution that is within the bounds.
    fn uncut_share(&self) -> f64 {
        1.0 - (self.min_bytes / self.max_bytes).powf(self.alpha)
    }

    /// The part of the mean that lengths from `low_bytes` to `high_bytes` have.
    fn partial_mean_bytes(&self, low_bytes: f64, high_bytes: f64) -> f64 {
        let power = 1.0 - self.alpha;
        let density = self.alpha * self.min_bytes.powf(self.alpha) / self.uncut_share();
        density * (high_bytes.powf(power) - low_bytes.powf(power)) / power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of_load(trace: &BoundedPareto, from: f64) -> f64 {
        trace.partial_mean_bytes(trace.quantile_bytes(from), trace.max_bytes) / trace.mean_bytes()
    }

    /// The figures of the paper's traces.
    #[test]
    fn are_like_the_traces() {
        assert!((NASA_LIKE.mean_bytes() - 19_000.0).abs() < 100.0, "{}", NASA_LIKE.mean_bytes());
        assert!((share_of_load(&NASA_LIKE, 0.975) - 0.5).abs() < 0.01);
        let share_of_load = |from| share_of_load(&TRACE_LIKE, from);
        assert!((TRACE_LIKE.mean_bytes() - 5000.0).abs() < 50.0, "{}", TRACE_LIKE.mean_bytes());
        assert!((TRACE_LIKE.quantile_bytes(0.5) - 1000.0).abs() < 10.0);
        assert!((TRACE_LIKE.quantile_bytes(0.9) - 5600.0).abs() < 100.0);
        assert_eq!(TRACE_LIKE.quantile_bytes(0.0), 475.0);
        assert!((TRACE_LIKE.quantile_bytes(1.0) - 2_020_000.0).abs() < 1.0);
        assert!(share_of_load(0.97) > 0.5, "{}", share_of_load(0.97));
        assert!((share_of_load(0.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn files_have_the_mean_of_the_distribution() {
        for count in [1, 10, 5000] {
            let lengths = TRACE_LIKE.lengths_bytes(count);
            assert!(lengths.len() == count as usize && lengths.is_sorted());
            let mean = lengths.iter().sum::<u64>() as f64 / f64::from(count);
            assert!((mean - TRACE_LIKE.mean_bytes()).abs() <= 0.5, "{count}: {mean}");
        }
        let lengths = TRACE_LIKE.lengths_bytes(5000);
        assert!(lengths[0] >= 475 && (1_600_000..2_020_000).contains(&lengths[4999]), "{}", lengths[4999]);
    }
}
