//! The replay of a log: its files in their order, and the time of each request.
//!
//! The demands of a workload share one. Pure.

use super::AccessLog;

/// Requests in order of time, 4 bytes each.
///
/// Logs know whole seconds. The requests of one second are spread evenly over it in their order, the
/// first at its beginning.
#[derive(Debug)]
pub(crate) struct Replay {
    path_ids: Vec<u32>,
    seconds: Vec<Second>,
}

#[derive(Clone, Copy, Debug)]
struct Second {
    at_s: u32,
    first: u32,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Replay {
    /// The requests of a log, which has one or more.
    pub(crate) fn new(log: &AccessLog) -> Self {
        let mut seconds: Vec<Second> = Vec::new();
        for (index, request) in (0..).zip(&log.requests) {
            if seconds.last().is_none_or(|second| second.at_s != request.at_s) {
                seconds.push(Second { at_s: request.at_s, first: index });
            }
        }
        Self { path_ids: log.requests.iter().map(|request| request.path_id).collect(), seconds }
    }

    pub(crate) fn len(&self) -> u64 {
        self.path_ids.len() as u64
    }

    pub(crate) fn path_id(&self, index: u64) -> Option<u32> {
        self.path_ids.get(usize::try_from(index).ok()?).copied()
    }

    /// The mean of `value` over the files of all requests; none without requests, or where a file has no value.
    pub(crate) fn mean(&self, value: impl Fn(u32) -> Option<f64>) -> Option<f64> {
        let sum: f64 = self.path_ids.iter().map(|&path_id| value(path_id)).sum::<Option<f64>>()?;
        (self.len() > 0).then(|| sum / self.len() as f64)
    }

    /// Nanoseconds from the beginning of the first request's second to a request.
    pub(crate) fn at_ns(&self, index: u64) -> Option<u64> {
        let next = self.seconds.partition_point(|second| u64::from(second.first) <= index);
        let second = self.seconds.get(next.checked_sub(1)?)?;
        let end = self.seconds.get(next).map_or(self.len(), |second| u64::from(second.first));
        let first = u64::from(second.first);
        let within_ns = (index - first) * SECOND_NS / (end - first);
        (index < end).then(|| u64::from(second.at_s - self.seconds[0].at_s) * SECOND_NS + within_ns)
    }

    /// From the beginning of the first request's second to the end of the last one's.
    pub(crate) fn duration_ns(&self) -> u64 {
        match (self.seconds.first(), self.seconds.last()) {
            (Some(first), Some(last)) => (u64::from(last.at_s - first.at_s) + 1) * SECOND_NS,
            _ => 0,
        }
    }

    /// Requests per second, over all of it.
    pub(crate) fn mean_rate_per_s(&self) -> f64 {
        self.rate_per_s(f64::INFINITY)
    }

    /// Requests per second of its first `duration_s`, or of all of it when that is shorter.
    pub(crate) fn rate_per_s(&self, duration_s: f64) -> f64 {
        let end_ns = ((duration_s * 1e9) as u64).clamp(1, self.duration_ns().max(1));
        let (mut before, mut after) = (0, self.len());
        while before < after {
            let middle = before + (after - before) / 2;
            if self.at_ns(middle).is_some_and(|at_ns| at_ns < end_ns) {
                before = middle + 1;
            } else {
                after = middle;
            }
        }
        before as f64 / (end_ns as f64 / 1e9)
    }
}
