//! The figures of overload: response time by size and over time, incomplete requests, open connections.
//!
//! [`crate::measure`] calls it for phases whose facts ask for it. Pure. As in overload-and-srpt (section 4), a response time
//! is that of a request that was completed, from its intended start to its last byte, with all retries. A request that
//! was not completed is counted, and has no response time: see [`super::Measures::latency`] for one that counts its
//! wait.
//!
//! Rounds are laid over each other: they have the same phases of load, at the same times.

use crate::measure::Round;
use crate::measure::figures::{Incomplete, OpenPoint, Overload, SizeBand, TimePoint};
use crate::measure::times::{ms, summary};
use crate::measure::{records, seconds, timeline};
use crate::record::{OPEN_STEP_NS, OpenConnections, Outcome, Record};
use crate::workload::Catalogue;

/// The upper ends of the bands of size, per mille of the requests in the order of their lengths.
const BANDS_PER_MILLE: [u64; 14] = [100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 995, 999, 1000];
/// The share of the requests that are the largest, per mille (overload-and-srpt, Figure 9).
const LARGEST_PER_MILLE: u64 = 10;
const POINTS_MAX: u64 = 600;

/// The figures of these rounds, whose files are in `catalogue`.
pub(super) fn overload(rounds: &[Round<'_>], catalogue: &Catalogue) -> Overload {
    let complete = |record: &&Record| is_complete(record);
    let complete_ns = sorted_ns(records(rounds).filter(complete));
    let in_time = rounds.iter().flat_map(|(records, _)| {
        let last_ns = records.iter().map(|record| record.intended_ns).max().unwrap_or(0);
        records.iter().filter(complete).filter(move |record| record.last_byte_ns <= last_ns)
    });
    let in_time_ns = sorted_ns(in_time);
    let sizes = Sizes::new(rounds, catalogue);
    let step_ns =
        timeline::step_ns(rounds.iter().map(|(_, facts)| facts.duration_ns).max().unwrap_or(0), POINTS_MAX);
    let (open_mean, open_max) = open_summary(rounds);
    Overload {
        complete: summary(&complete_ns),
        variance_s2: variance_s2(&complete_ns),
        complete_in_time: summary(&in_time_ns),
        received_megabits_per_s: received_megabits_per_s(rounds),
        incomplete: incomplete(rounds),
        by_size: sizes.bands(),
        largest: sizes.largest(),
        step_s: seconds(step_ns),
        over_time: over_time(rounds, step_ns),
        open_mean,
        open_max,
        open: open(rounds, step_ns),
    }
}

fn is_complete(record: &Record) -> bool {
    record.outcome == Outcome::Answered
}

/// An answer counts evenly over the time from its first byte to its last: answers that are under way at the end have used
/// the link too, and schedules differ in how many these are.
fn received_megabits_per_s(rounds: &[Round<'_>]) -> Option<f64> {
    let received = |record: &Record, end_ns: u64| {
        let Record { first_byte_ns: first, last_byte_ns: last, body_bytes, .. } = *record;
        let share = match last.checked_sub(first)? {
            0 => f64::from(u8::from(first <= end_ns)),
            taken_ns => (end_ns.saturating_sub(first) as f64 / taken_ns as f64).min(1.0),
        };
        Some(body_bytes as f64 * share)
    };
    let of_round = |(records, facts): &Round<'_>| {
        records.iter().filter_map(|record| received(record, facts.duration_ns)).sum::<f64>()
    };
    let duration_s: f64 = rounds.iter().map(|(_, facts)| seconds(facts.duration_ns)).sum();
    let bytes: f64 = rounds.iter().map(of_round).sum();
    (duration_s > 0.0).then(|| bytes * 8.0 / 1e6 / duration_s)
}

/// The latencies of these requests, in growing order.
fn sorted_ns<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<u64> {
    let mut latencies_ns: Vec<u64> = records.map(Record::latency_ns).collect();
    latencies_ns.sort_unstable();
    latencies_ns
}

fn variance_s2(times_ns: &[u64]) -> Option<f64> {
    if times_ns.is_empty() {
        return None;
    }
    let count = times_ns.len() as f64;
    let mean_s = times_ns.iter().map(|&ns| seconds(ns)).sum::<f64>() / count;
    Some(times_ns.iter().map(|&ns| (seconds(ns) - mean_s).powi(2)).sum::<f64>() / count)
}

fn incomplete(rounds: &[Round<'_>]) -> Incomplete {
    let mut incomplete = Incomplete::default();
    for record in records(rounds) {
        let count = match record.outcome {
            Outcome::Answered => continue,
            Outcome::Aborted => &mut incomplete.aborted,
            Outcome::Unanswered => &mut incomplete.timed_out,
            Outcome::Reset | Outcome::ClosedEarly => &mut incomplete.reset,
            Outcome::Refused | Outcome::NoHandshake => &mut incomplete.refused,
            Outcome::Status => &mut incomplete.status,
            Outcome::LocalLimit | Outcome::Garbage | Outcome::WrongLength | Outcome::WrongContent => {
                &mut incomplete.other
            }
        };
        *count += 1;
    }
    incomplete
}

/// The requests in the order of the lengths of their files.
struct Sizes<'a> {
    requests: Vec<(u64, &'a Record)>,
}

impl<'a> Sizes<'a> {
    /// A file of unknown length has that of its answer; a request without either is left out.
    fn new(rounds: &[Round<'a>], catalogue: &Catalogue) -> Self {
        let mut requests = Vec::new();
        for (records, _) in rounds {
            for record in *records {
                let answered_bytes = is_complete(record).then_some(record.body_bytes);
                let is_listed = record.path_id < catalogue.path_ids_end();
                let file_bytes = is_listed.then(|| catalogue.file_bytes(record.path_id)).flatten();
                requests.extend(file_bytes.or(answered_bytes).map(|bytes| (bytes, record)));
            }
        }
        requests.sort_by_key(|(bytes, _)| *bytes);
        Self { requests }
    }

    /// The bands, smallest first. Equal lengths stay together, in the band that the middle one of them falls into; a
    /// band without requests is left out.
    fn bands(&self) -> Vec<SizeBand> {
        let count = self.requests.len();
        let mut bands = Vec::new();
        let (mut begin, mut end) = (0, 0);
        let mut current = 0;
        for run in self.requests.chunk_by(|a, b| a.0 == b.0) {
            // The rank of the middle in halves of a request: exact.
            let middle = (2 * end + run.len()) as u64 * 1000;
            let band = BANDS_PER_MILLE.partition_point(|&end| end * 2 * (count as u64) < middle);
            if band != current {
                bands.extend(self.band(begin, end));
                (begin, current) = (end, band);
            }
            end += run.len();
        }
        bands.extend(self.band(begin, end));
        bands
    }

    /// The longest files: the lengths whose share of the requests together is nearest to 1 %.
    fn largest(&self) -> Option<SizeBand> {
        let count = self.requests.len();
        let wanted = (count as u64 * LARGEST_PER_MILLE).div_ceil(1000) as usize;
        let mut taken = 0;
        for run in self.requests.chunk_by(|a, b| a.0 == b.0).rev() {
            let with = taken + run.len();
            if taken > 0 && with.abs_diff(wanted) > taken.abs_diff(wanted) {
                break;
            }
            taken = with;
        }
        self.band(count - taken, count)
    }

    /// The requests from one rank to another.
    fn band(&self, begin: usize, end: usize) -> Option<SizeBand> {
        let of_band = self.requests.get(begin..end)?;
        let (first, last) = (of_band.first()?, of_band.last()?);
        let completed = of_band.iter().map(|(_, record)| *record).filter(|record| is_complete(record));
        let latencies_ns = sorted_ns(completed);
        let count = self.requests.len() as f64;
        Some(SizeBand {
            from_share: begin as f64 / count,
            to_share: end as f64 / count,
            bytes_min: first.0,
            bytes_max: last.0,
            asked: of_band.len() as u64,
            incomplete: (of_band.len() - latencies_ns.len()) as u64,
            latency: summary(&latencies_ns),
        })
    }
}

fn over_time(rounds: &[Round<'_>], step_ns: u64) -> Vec<TimePoint> {
    let mut points: Vec<TimePoint> = Vec::new();
    let mut sums_ms: Vec<f64> = Vec::new();
    for (records, facts) in rounds {
        let steps = timeline::steps(facts.duration_ns, step_ns).max(usize::from(!records.is_empty()));
        if steps > points.len() {
            points.resize(steps, TimePoint::default());
            sums_ms.resize(steps, 0.0);
        }
        for record in *records {
            let step = timeline::step_of(record, step_ns, steps);
            let point = &mut points[step];
            point.asked += 1;
            if is_complete(record) {
                point.complete += 1;
                sums_ms[step] += ms(record.latency_ns());
            }
        }
    }
    for (point, sum_ms) in points.iter_mut().zip(sums_ms) {
        point.mean_ms = (point.complete > 0).then(|| sum_ms / point.complete as f64);
    }
    points
}

/// The mean of the connections at all looks while requests were started, and the most at any.
fn open_summary(rounds: &[Round<'_>]) -> (f64, u64) {
    let all = |look: &OpenConnections| u64::from(look.established) + u64::from(look.connecting);
    let (mut sum, mut looks, mut most) = (0, 0, 0);
    for (_, facts) in rounds {
        let in_phase = facts.duration_ns.div_ceil(OPEN_STEP_NS) as usize;
        sum += facts.open.iter().take(in_phase).map(all).sum::<u64>();
        looks += facts.open.len().min(in_phase);
        most = facts.open.iter().map(all).max().unwrap_or(0).max(most);
    }
    (super::per(sum as f64, looks as f64), most)
}

/// The mean of the connections in each step; rounds with a look in a step count alike.
fn open(rounds: &[Round<'_>], step_ns: u64) -> Vec<OpenPoint> {
    let mut points: Vec<(OpenPoint, u64)> = Vec::new();
    for (_, facts) in rounds {
        let steps = timeline::steps(facts.duration_ns, step_ns);
        if steps > points.len() {
            points.resize(steps, (OpenPoint::default(), 0));
        }
        for (step, (point, looks)) in points.iter_mut().enumerate().take(steps) {
            // A step shorter than the time between looks has the look before it.
            let first = (step as u64 * step_ns / OPEN_STEP_NS) as usize;
            let end = (((step as u64 + 1) * step_ns).div_ceil(OPEN_STEP_NS) as usize).max(first + 1);
            for look in facts.open.iter().take(end).skip(first) {
                point.established += f64::from(look.established);
                point.connecting += f64::from(look.connecting);
                *looks += 1;
            }
        }
    }
    let mean = |(point, looks): (OpenPoint, u64)| OpenPoint {
        established: super::per(point.established, looks as f64),
        connecting: super::per(point.connecting, looks as f64),
    };
    points.into_iter().map(mean).collect()
}

#[cfg(test)]
#[path = "overload_tests.rs"]
mod tests;
