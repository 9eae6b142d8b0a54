//! The times of calls, as they are reported.
//!
//! [`calls`](crate::calls) counts with these buckets. From there on, the times are figures like the others.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::figures::{Figures, reached};

/// A call of the event loop that takes at least this long is a stall, in nanoseconds.
pub const STALL_NS: u64 = 1_000_000;
/// The first bucket has times below two to this power, in nanoseconds.
const LEAST_BITS: u32 = 8;
/// The last bucket has times of at least two to this power.
const TOP_BITS: u32 = 33;
/// Two buckets for each power of two. This is coarser than the engine's histograms, because the times of all
/// calls must fit in one message.
pub const BUCKETS: usize = 2 * (TOP_BITS - LEAST_BITS) as usize + 2;

/// The bucket of a time.
#[inline]
pub fn bucket_of(ns: u64) -> usize {
    if ns < 1 << LEAST_BITS {
        return 0;
    }
    let bits = ns.ilog2();
    let upper_half = (ns >> (bits - 1)) & 1;
    (1 + 2 * (bits - LEAST_BITS) as usize + upper_half as usize).min(BUCKETS - 1)
}

/// The shortest time of a bucket.
fn first_ns(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 0,
        Some(at) => (2 + at as u64 % 2) << (LEAST_BITS as usize - 1 + at / 2),
    }
}

/// The longest time of a bucket, where `max_ns` is the longest of all times.
fn last_ns(bucket: usize, max_ns: u64) -> u64 {
    if bucket == BUCKETS - 1 { max_ns.max(first_ns(bucket)) } else { first_ns(bucket + 1) - 1 }
}

/// The times of one kind of call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// The sum of the times, in nanoseconds.
    pub sum_ns: u64,
    /// The longest time, in nanoseconds.
    pub max_ns: u64,
    /// How many were stalls.
    pub stalls: u64,
    /// How many calls cost a voluntary context switch, which means that they waited.
    pub waited: u64,
    /// The number of calls in each bucket.
    pub counts: [u64; BUCKETS],
}

impl Default for CallTimes {
    fn default() -> Self {
        Self { sum_ns: 0, max_ns: 0, stalls: 0, waited: 0, counts: [0; BUCKETS] }
    }
}

impl CallTimes {
    /// The number of calls.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The mean time, in nanoseconds; None if there were no calls.
    #[must_use]
    pub fn mean_ns(&self) -> Option<u64> {
        self.sum_ns.checked_div(self.count())
    }

    /// The percentile for a share `part`, from 0 to 1: the end of the bucket that reaches it, in nanoseconds.
    /// None if there were no calls.
    #[must_use]
    pub fn percentile_ns(&self, part: f64) -> Option<u64> {
        let reached = reached(&self.counts, part)?;
        Some(last_ns(reached, self.max_ns).min(self.max_ns))
    }
}

impl Figures for CallTimes {
    fn add(&mut self, other: &Self) {
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.stalls.add(&other.stalls);
        self.waited.add(&other.waited);
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            ours.add(theirs);
        }
    }

    /// The maximum is exact only to its bucket.
    fn since(&self, before: &Self) -> Self {
        let mut new = Self {
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
            stalls: self.stalls.since(&before.stalls),
            waited: self.waited.since(&before.waited),
            ..Self::default()
        };
        for (at, (now, then)) in self.counts.iter().zip(&before.counts).enumerate() {
            new.counts[at] = now.since(then);
            if new.counts[at] > 0 {
                new.max_ns = last_ns(at, self.max_ns).min(self.max_ns);
            }
        }
        new
    }
}

/// The JSON form: the counts, and figures computed from them, which are written but not read back.
#[derive(Serialize, Deserialize)]
struct Form {
    #[serde(skip_deserializing)]
    count: u64,
    sum_ns: u64,
    max_ns: u64,
    stalls: u64,
    waited: u64,
    #[serde(skip_deserializing)]
    p50_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p99_ns: Option<u64>,
    #[serde(skip_deserializing)]
    p999_ns: Option<u64>,
    /// Start, end and count of each bucket.
    buckets: Vec<(u64, u64, u64)>,
}

impl Serialize for CallTimes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let used = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let [p50_ns, p99_ns, p999_ns] = [0.5, 0.99, 0.999].map(|part| self.percentile_ns(part));
        let form = Form {
            count: self.count(),
            sum_ns: self.sum_ns,
            max_ns: self.max_ns,
            stalls: self.stalls,
            waited: self.waited,
            p50_ns,
            p99_ns,
            p999_ns,
            buckets: used.map(|(at, count)| (first_ns(at), last_ns(at, self.max_ns), *count)).collect(),
        };
        form.serialize(to)
    }
}

impl<'de> Deserialize<'de> for CallTimes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Form { sum_ns, max_ns, stalls, waited, buckets, .. } = Form::deserialize(from)?;
        let mut times = Self { sum_ns, max_ns, stalls, waited, ..Self::default() };
        for (from, _, count) in buckets {
            times.counts[bucket_of(from)].add(&count);
        }
        Ok(times)
    }
}

/// The times of each kind of call that was made, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Calls(pub BTreeMap<String, CallTimes>);

impl Figures for Calls {
    fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }

    fn since(&self, before: &Self) -> Self {
        let mut new = self.0.since(&before.0);
        new.retain(|_, times| times.count() > 0);
        Self(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times_ns: &[u64]) -> CallTimes {
        let mut times = CallTimes::default();
        for ns in times_ns {
            times.counts[bucket_of(*ns)] += 1;
            times.sum_ns = times.sum_ns.saturating_add(*ns);
            times.max_ns = times.max_ns.max(*ns);
        }
        times
    }

    #[test]
    fn there_are_two_buckets_for_each_power_of_two() {
        let bounds = |ns| (first_ns(bucket_of(ns)), last_ns(bucket_of(ns), u64::MAX));
        assert_eq!([0, 255].map(bounds), [(0, 255); 2]);
        assert_eq!([256, 383].map(bounds), [(256, 383); 2]);
        assert_eq!([384, 511].map(bounds), [(384, 511); 2]);
        assert_eq!([1 << 20, (3 << 19) - 1].map(bounds), [(1 << 20, (3 << 19) - 1); 2]);
        assert_eq!([1 << 33, u64::MAX].map(bounds), [(1 << 33, u64::MAX); 2]);
        let starts: Vec<u64> = (0..BUCKETS).map(first_ns).collect();
        assert!(starts.is_sorted_by(|a, b| a < b), "{starts:?}");
    }

    #[test]
    fn figures_match_those_worked_out_by_hand() {
        let times = of(&[300, 300, 300, 2_000, 9_000_000]);
        assert_eq!((times.count(), times.mean_ns()), (5, Some(1_800_580)));
        assert_eq!(
            [0.0, 0.6, 0.8, 1.0].map(|p| times.percentile_ns(p)),
            [383, 383, 2047, 9_000_000].map(Some)
        );
        let none = CallTimes::default();
        assert_eq!((none.count(), none.mean_ns(), none.percentile_ns(0.5)), (0, None, None));
    }

    #[test]
    fn a_difference_leaves_out_calls_that_were_not_made() {
        let calls = |sends: &[u64]| {
            let pairs = [("read", of(&[500])), ("send", of(sends))];
            Calls(pairs.into_iter().map(|(name, times)| (name.to_owned(), times)).collect())
        };
        let new = calls(&[500, 900, 1_000]).since(&calls(&[500]));
        assert_eq!(new.0.keys().collect::<Vec<_>>(), ["send"]);
        assert_eq!((new.0["send"].count(), new.0["send"].sum_ns, new.0["send"].max_ns), (2, 1_900, 1_000));
        let mut sum = calls(&[500]);
        sum.add(&calls(&[900, 1_000]));
        assert_eq!(sum.0["send"], of(&[500, 900, 1_000]));
    }

    #[test]
    fn each_time_lies_in_its_bucket_and_json_is_restored() {
        let near = |bits: u32| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1, 3 << (bits - 1)];
        let all: Vec<u64> = (1..63).flat_map(near).chain([0, u64::MAX]).collect();
        for ns in &all {
            let bucket = bucket_of(*ns);
            assert!(first_ns(bucket) <= *ns && *ns <= last_ns(bucket, *ns), "{ns}");
        }
        let told = CallTimes { stalls: 7, waited: u64::MAX, ..of(&all) };
        let json = serde_json::to_string(&told).expect("JSON");
        assert_eq!(serde_json::from_str::<CallTimes>(&json).expect("the same"), told);
    }
}
