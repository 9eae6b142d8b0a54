//! The times to the first bytes of answers, as they are reported.

use std::collections::BTreeMap;

use flash_engine::{CacheResult, LATENCY_BOUNDS_NS, Latencies};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::figures::{Figures, reached};

/// The times of answers that come from one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency(pub Latencies);

impl Latency {
    /// Those of each place that answers have come from, by the name of the place.
    pub(super) fn of_all(latencies: &[Latencies; CacheResult::ALL.len()]) -> BTreeMap<String, Latency> {
        let named = CacheResult::ALL.iter().zip(latencies);
        let used = named.map(|(result, of)| (result.name().to_owned(), Latency(*of)));
        used.filter(|(_, latency)| latency.count() > 0).collect()
    }

    /// The number of answers.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The mean in nanoseconds; None without answers.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.0.sum_ns.checked_div(self.count())
    }

    /// The percentile for a share `part`, from 0 to 1: the bound of the bucket that reaches it, in nanoseconds. None without answers,
    /// and beyond the last bound.
    #[must_use]
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        LATENCY_BOUNDS_NS.get(reached(&self.0.counts, part)?).copied()
    }
}

impl Figures for Latency {
    fn add(&mut self, other: &Self) {
        self.0.sum_ns.add(&other.0.sum_ns);
        self.0.counts.iter_mut().zip(&other.0.counts).for_each(|(ours, theirs)| ours.add(theirs));
    }

    fn since(&self, before: &Self) -> Self {
        let mut new = *self;
        new.0.sum_ns = self.0.sum_ns.since(&before.0.sum_ns);
        new.0.counts.iter_mut().zip(&before.0.counts).for_each(|(now, then)| *now = now.since(then));
        new
    }
}

/// The JSON form: the counts, and figures computed from them, which are written but not read back.
#[derive(Serialize, Deserialize)]
struct Form {
    #[serde(skip_deserializing)]
    count: u64,
    sum_ns: u64,
    #[serde(skip_deserializing)]
    p50_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p99_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p999_ns: Option<u64>,
    /// The bound of each bucket that is not empty, and its count.
    buckets: Vec<(Option<u64>, u64)>,
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let bounds = LATENCY_BOUNDS_NS.iter().map(|bound| Some(*bound)).chain([None]);
        let [p50_ns, p99_ns, p999_ns] = [0.5, 0.99, 0.999].map(|part| self.percentile_ns(part));
        let form = Form {
            count: self.count(),
            sum_ns: self.0.sum_ns,
            p50_ns,
            p99_ns,
            p999_ns,
            buckets: bounds.zip(self.0.counts).filter(|(_, count)| *count > 0).collect(),
        };
        form.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Form { sum_ns, buckets, .. } = Form::deserialize(from)?;
        let mut found = Latencies { sum_ns, ..Latencies::default() };
        for (bound, count) in buckets {
            let place = bound.and_then(|bound| LATENCY_BOUNDS_NS.iter().position(|known| *known >= bound));
            found.counts[place.unwrap_or(LATENCY_BOUNDS_NS.len())].add(&count);
        }
        Ok(Latency(found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(usize, u64)], sum_ns: u64) -> Latency {
        let mut found = Latencies { sum_ns, ..Latencies::default() };
        counts.iter().for_each(|(bucket, count)| found.counts[*bucket] = *count);
        Latency(found)
    }

    #[test]
    fn percentiles_are_bounds_of_buckets() {
        let latency = of(&[(0, 98), (3, 1), (17, 1)], 700);
        let found = [0.5, 0.98, 0.99, 1.0].map(|part| latency.percentile_ns(part));
        assert_eq!(found, [Some(50_000), Some(50_000), Some(500_000), None]);
        assert_eq!((latency.count(), latency.mean_ns()), (100, Some(7)));
        assert_eq!((Latency::default().mean_ns(), Latency::default().percentile_ns(0.5)), (None, None));
    }

    #[test]
    fn sums_differences_and_json_keep_the_buckets() {
        let (before, new) = (of(&[(0, 2), (17, 1)], 10), of(&[(0, 1), (4, u64::MAX)], 5));
        let mut after = before;
        after.add(&new);
        assert_eq!(after.since(&before), new);
        let json = serde_json::to_string(&after).expect("JSON");
        assert!(json.contains("\"buckets\":[[50000,3],[1000000,18446744073709551615],[null,1]]"), "{json}");
        assert_eq!(serde_json::from_str::<Latency>(&json).expect("the same"), after);
    }
}
