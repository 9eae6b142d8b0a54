//! How long answers take to begin, and where they come from. The wires and the results of jobs note it; the statistics and the
//! access log have it.

use serde::{Deserialize, Serialize};

/// Where an answer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheResult {
    /// Memory: nothing had to be waited for.
    Hit,
    /// A helper worked for it before its first bytes were sent.
    Miss,
    /// A server of a route.
    Relay,
}

impl CacheResult {
    /// All results.
    pub const ALL: [CacheResult; 3] = [CacheResult::Hit, CacheResult::Miss, CacheResult::Relay];

    /// The word for it in logs and statistics.
    pub fn name(self) -> &'static str {
        match self {
            CacheResult::Hit => "hit",
            CacheResult::Miss => "miss",
            CacheResult::Relay => "relay",
        }
    }
}

/// The ends of the buckets of [`Latencies`], in nanoseconds. The last bucket has all longer times.
pub const LATENCY_BOUNDS_NS: [u64; 17] = [
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Times from requests to the first bytes of their answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// The sum of the times.
    pub sum_ns: u64,
    /// The number of times in each bucket: at most its bound, and more than the bound before.
    pub counts: [u64; LATENCY_BOUNDS_NS.len() + 1],
}

impl Latencies {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        self.sum_ns = self.sum_ns.wrapping_add(ns);
        // As most hits.
        if ns <= LATENCY_BOUNDS_NS[0] {
            self.counts[0] += 1;
        } else {
            self.add_longer(ns);
        }
    }

    #[cold]
    fn add_longer(&mut self, ns: u64) {
        self.counts[LATENCY_BOUNDS_NS.partition_point(|bound_ns| *bound_ns < ns)] += 1;
    }
}

/// The course of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// When the turn began in which its head was complete, in nanoseconds of the monotonic clock.
    began_ns: u64,
    pub(crate) result: CacheResult,
    /// The time until the first bytes of the answer were given to the kernel (of HTTP/2: framed).
    pub(crate) first_ns: Option<u64>,
    /// How long its jobs waited for a helper.
    pub(crate) queued_ms: u64,
    /// How long helpers worked on its jobs.
    pub(crate) helped_ms: u64,
}

impl Timing {
    /// The timing of a request that has begun in this turn.
    #[inline]
    pub(crate) fn new(began_ns: u64, result: CacheResult) -> Self {
        Self { began_ns, result, first_ns: None, queued_ms: 0, helped_ms: 0 }
    }

    /// Notes that the first bytes of the answer have gone.
    #[inline]
    pub(crate) fn note_first(&mut self, latencies: &mut [Latencies; 3], now_ns: u64) {
        if self.first_ns.is_none() {
            let ns = self.until(now_ns);
            self.first_ns = Some(ns);
            latencies[self.result as usize].add(ns);
        }
    }

    /// Follows an answer of which no more than a part has gone, and which may wait for a helper.
    pub(crate) fn note_wait(&mut self, waits_for_helper: bool) {
        if self.first_ns.is_none() && waits_for_helper && self.result == CacheResult::Hit {
            self.result = CacheResult::Miss;
        }
    }

    /// Notes the end of a job for which the request has waited.
    pub(crate) fn note_job(&mut self, queued_ms: u64, helped_ms: u64) {
        self.queued_ms += queued_ms;
        self.helped_ms += helped_ms;
    }

    /// The time from its beginning.
    #[inline]
    pub(crate) fn until(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.began_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_are_counted_once_by_where_they_come_from() {
        let mut latencies = [Latencies::default(); 3];
        let mut hit = Timing::new(1_000, CacheResult::Hit);
        hit.note_first(&mut latencies, 51_000);
        hit.note_wait(true);
        hit.note_first(&mut latencies, 99_000);
        assert_eq!((hit.first_ns, hit.result), (Some(50_000), CacheResult::Hit));
        let mut miss = Timing::new(0, CacheResult::Hit);
        miss.note_wait(false);
        assert_eq!(miss.result, CacheResult::Hit);
        miss.note_wait(true);
        miss.note_first(&mut latencies, 20_000_000_000);
        let mut relay = Timing::new(0, CacheResult::Relay);
        relay.note_wait(true);
        relay.note_first(&mut latencies, 50_001);
        let used = latencies.map(|of| (of.sum_ns, of.counts.iter().position(|count| *count > 0)));
        assert_eq!(used, [(50_000, Some(0)), (20_000_000_000, Some(17)), (50_001, Some(1))]);
    }

    #[test]
    fn bounds_ascend() {
        assert!(LATENCY_BOUNDS_NS.is_sorted_by(|a, b| a < b));
    }
}
