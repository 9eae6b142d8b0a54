//! The figures of latencies that are compared, and whether the generator made them.
//!
//! [`super::validity`] asks for the doubts about one of them; ratios and findings name the one that they use. Pure.

use super::{Generator, Latency};

/// A generator that took requests up later than this share of a percentile, at the same percentile, blurs it: less than that
/// no table shows.
const LATE_SHARE_OF_PERCENTILE: f64 = 0.1;
/// A request that is sent late is complete at most as much later, so the mean lateness bounds what it does to the mean: no
/// verdict depends on a twentieth.
const LATE_SHARE_OF_MEAN: f64 = 0.05;
/// But a lateness below this is what any system call costs, milliseconds; it blurs no latency that goes over a network.
const LATE_LEAST_MS: f64 = 0.1;
/// Other processes and, likely, other machines have a core for less than this at a time, milliseconds: Linux gives time slices of about 3 ms.
const HELD_UP_MS: f64 = 10.0;

/// A figure of the latencies of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyFigure {
    Mean,
    P50,
    P90,
    P95,
    P99,
    P999,
}

impl LatencyFigure {
    pub const ALL: [Self; 6] = [Self::Mean, Self::P50, Self::P90, Self::P95, Self::P99, Self::P999];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// Its value, milliseconds.
    pub fn of(self, latency: &Latency) -> f64 {
        match self {
            Self::Mean => latency.mean_ms,
            Self::P50 => latency.p50_ms,
            Self::P90 => latency.p90_ms,
            Self::P95 => latency.p95_ms,
            Self::P99 => latency.p99_ms,
            Self::P999 => latency.p999_ms,
        }
    }

    /// The share of the requests that are slower than it; the mean is of all.
    pub fn share_beyond(self) -> f64 {
        match self {
            Self::Mean => 1.0,
            Self::P50 => 0.5,
            Self::P90 => 0.1,
            Self::P95 => 0.05,
            Self::P99 => 0.01,
            Self::P999 => 0.001,
        }
    }

    /// The most of the time that others may have a core for: half of the requests that it is about may be those that they held up,
    /// or more, where waits of [`HELD_UP_MS`] do not show. The mean is of all, but a few that waited long make it.
    pub(super) fn other_work_share_max(self, latency: &Latency) -> f64 {
        let blur_ms = self.of(latency) * self.blur_share();
        match self {
            Self::Mean => (blur_ms / HELD_UP_MS).max(Self::P99.share_beyond() / 2.0),
            _ if blur_ms >= HELD_UP_MS => 1.0,
            _ => self.share_beyond() / 2.0,
        }
    }

    /// Requests that are later by less than this share of it do not show.
    fn blur_share(self) -> f64 {
        if self == Self::Mean { LATE_SHARE_OF_MEAN } else { LATE_SHARE_OF_PERCENTILE }
    }

    /// The lateness of the generator that shows in it, milliseconds. Where a result has none of this percentile, that of a
    /// higher one, which is at least as large.
    pub fn late_ms(self, generator: &Generator) -> f64 {
        match self {
            Self::Mean => generator.late_mean_ms,
            Self::P50 => generator.late_p50_ms,
            Self::P90 => generator.late_p90_ms.unwrap_or(generator.late_p99_ms),
            Self::P95 => generator.late_p95_ms.unwrap_or(generator.late_p99_ms),
            Self::P99 => generator.late_p99_ms,
            Self::P999 => generator.late_p999_ms.unwrap_or(generator.late_max_ms),
        }
    }

    /// How late the generator was, if so late that the figure may be its own; milliseconds.
    pub fn blur_ms(self, generator: &Generator, latency: &Latency) -> Option<f64> {
        let late_ms = self.late_ms(generator);
        (late_ms > (self.of(latency) * self.blur_share()).max(LATE_LEAST_MS)).then_some(late_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_latencies_bear_more_other_work() {
        let max = |figure: LatencyFigure, ms| {
            figure.other_work_share_max(&Latency {
                mean_ms: ms,
                p50_ms: ms,
                p99_ms: ms,
                ..Latency::default()
            })
        };
        assert_eq!([0.2, 1.0].map(|ms| max(LatencyFigure::Mean, ms)), [0.005; 2]);
        assert_eq!(max(LatencyFigure::Mean, 4.0), 0.02);
        assert_eq!([0.2, 99.0, 100.0].map(|ms| max(LatencyFigure::P99, ms)), [0.005, 0.005, 1.0]);
        assert_eq!([0.2, 99.0, 100.0].map(|ms| max(LatencyFigure::P50, ms)), [0.25, 0.25, 1.0]);
    }

    #[test]
    fn lateness_is_judged_at_the_same_figure() {
        let latency = Latency { mean_ms: 10.0, p50_ms: 5.0, p99_ms: 50.0, ..Latency::default() };
        let of = |late_mean_ms, late_p50_ms, late_p99_ms| {
            let generator = Generator { late_mean_ms, late_p50_ms, late_p99_ms, ..Generator::default() };
            [LatencyFigure::Mean, LatencyFigure::P50, LatencyFigure::P99]
                .map(|figure| figure.blur_ms(&generator, &latency).is_some())
        };
        assert_eq!(of(0.5, 0.5, 5.0), [false; 3], "a tenth of a percentile, a twentieth of the mean");
        assert_eq!(of(0.51, 0.5, 5.0), [true, false, false]);
        assert_eq!(of(0.5, 0.51, 5.0), [false, true, false]);
        assert_eq!(of(0.5, 0.5, 5.01), [false, false, true]);
        let late_at = |late_p90_ms, late_p95_ms| {
            let generator = Generator { late_p90_ms, late_p95_ms, late_p99_ms: 5.0, ..Generator::default() };
            [LatencyFigure::P90, LatencyFigure::P95].map(|figure| figure.late_ms(&generator))
        };
        assert_eq!(late_at(Some(0.1), Some(0.2)), [0.1, 0.2]);
        assert_eq!(late_at(None, None), [5.0; 2], "an older result");
        let short = Latency::default();
        let late = |late_p50_ms| Generator { late_p50_ms, ..Generator::default() };
        assert_eq!(LatencyFigure::P50.blur_ms(&late(0.1), &short), None, "a system call");
        assert_eq!(LatencyFigure::P50.blur_ms(&late(0.11), &short), Some(0.11));
    }
}
