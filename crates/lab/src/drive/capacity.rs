//! A server's capacity: the highest rate of an open loop that it sustains.
//!
//! [`Driver::capacity`] finds it by a bounded number of short probes: a closed loop says where to begin, then the
//! rate goes up or down until one probe is sustained and a higher one is not, then the gap is halved until it is small.
//! A rate is sustained when nearly as many requests are answered as arrive, nearly none fails, and latency does not
//! grow. A closed loop alone would not do: its clients wait for the server, so it shows how much a server answers while
//! its queue is as long as the number of clients. Nor would probes alone: they are too short for a queue to the disk that few of
//! the requests are in. So a longer closed loop that was measured before is the most that a search finds.

use flash_load::measure::Measures;
use flash_load::measure::times::percentile_ns;
use flash_load::measure::validity::{self, ACHIEVED_SHARE_MIN, Cause, FAILED_SHARE_MAX};
use flash_load::record::{Outcome, Record};

use super::{Driver, Level, Served};
use crate::results::Capacity;
use flash_kit::Result;

/// How long a probe asks, seconds; shorter where the duration of levels is.
const PROBE_S: f64 = 3.0;
const PROBES_MAX: u32 = 12;
/// The search ends when the sustained rate and the lowest one that is not are this close, as a share of the latter.
const CLOSE_SHARE: f64 = 0.04;
/// The rate of the first probe, as a share of the burst's.
const FIRST_SHARE: f64 = 0.9;
/// How the rate changes until it is bracketed.
const UP: f64 = 1.25;
const DOWN: f64 = 0.7;
/// The queue grows when the median latency of the last third of a probe is above this multiple of the first third's.
const GROWTH_TIMES_MAX: f64 = 2.0;
/// But growth by less than this is noise, nanoseconds.
const GROWTH_LEAST_NS: u64 = 2_000_000;

/// The search between a rate that is sustained and one that is not.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    /// The highest sustained rate so far; 0 for none.
    sustained_per_s: f64,
    too_high_per_s: Option<f64>,
    first_per_s: f64,
    /// No rate above it is tried.
    most_per_s: f64,
}

impl Bracket {
    fn new(first_per_s: f64, most_per_s: f64) -> Self {
        Self { sustained_per_s: 0.0, too_high_per_s: None, first_per_s, most_per_s }
    }

    /// The rate of the next probe; none when the search is over.
    fn next(&self) -> Option<f64> {
        match self.too_high_per_s {
            None if self.sustained_per_s == 0.0 => Some(self.first_per_s),
            None => (self.sustained_per_s < self.most_per_s)
                .then_some((self.sustained_per_s * UP).min(self.most_per_s)),
            Some(too_high) if self.sustained_per_s == 0.0 => Some(too_high * DOWN),
            Some(too_high) => {
                let gap = too_high - self.sustained_per_s;
                (gap > too_high * CLOSE_SHARE).then_some(self.sustained_per_s + gap / 2.0)
            }
        }
    }

    fn learn(&mut self, rate_per_s: f64, is_sustained: bool) {
        if is_sustained {
            self.sustained_per_s = self.sustained_per_s.max(rate_per_s);
        } else {
            self.too_high_per_s = Some(self.too_high_per_s.map_or(rate_per_s, |known| known.min(rate_per_s)));
        }
    }
}

impl Driver {
    /// Finds the highest rate that a server sustains, which is at most that of a closed loop before, if one was. None when a
    /// signal ended the search, and for a server that answers nothing: then there is no rate to begin with.
    ///
    /// Errors: run, when the load generator cannot work.
    pub fn capacity(
        &mut self,
        served: &Served,
        round: Option<u32>,
        closed_loop_per_s: Option<f64>,
    ) -> Result<Option<Capacity>> {
        if self.is_interrupted() {
            return Ok(None);
        }
        let clients = self.options.users.connections_max;
        let duration_s = self.options.duration_s.unwrap_or(PROBE_S).min(PROBE_S);
        let (closed_per_s, most_per_s) = if let Some(per_s) = closed_loop_per_s {
            (per_s, per_s)
        } else {
            let burst =
                Level { round, ..Level::infinite("burst of the capacity search", clients, duration_s) };
            (self.level(served, &burst)?.measures.answered_per_s, f64::INFINITY)
        };
        let mut bracket = Bracket::new(closed_per_s * FIRST_SHARE, most_per_s);
        let (mut best, mut bound) = (None, None);
        for number in 1..=PROBES_MAX {
            let Some(rate_per_s) = bracket.next().filter(|rate| *rate > 0.0 && !self.is_interrupted()) else {
                break;
            };
            let level = Level {
                name: format!("capacity probe {number}"),
                load_level: None,
                round,
                keep: false,
                ..Level::fraction(1.0, rate_per_s, duration_s)
            };
            let driven = self.level(served, &level)?;
            let is_sustained = is_sustained(&driven.records, driven.facts.duration_ns);
            bracket.learn(rate_per_s, is_sustained);
            if is_sustained && rate_per_s >= bracket.sustained_per_s {
                best = Some(driven.measures);
            } else if bracket.too_high_per_s == Some(rate_per_s) {
                bound = Some(driven.measures);
            }
        }
        if self.is_interrupted() || closed_per_s <= 0.0 {
            return Ok(None);
        }
        let doubt = doubt(best.as_ref(), bound.as_ref());
        let round = round.map(|round| format!("round {round}: ")).unwrap_or_default();
        // A server that sustains no rate, however low, has a capacity of 0.
        let megabits = best.map_or(0.0, |best| best.megabits_per_s);
        Ok(Some(Capacity {
            requests_per_s: bracket.sustained_per_s,
            megabits_per_s: megabits,
            rounds_requests_per_s: vec![bracket.sustained_per_s],
            clients,
            doubts: doubt.map(|why| round + &why).into_iter().collect(),
        }))
    }
}

/// Why the probes that decided a capacity do not show the server's own: the highest rate that was sustained, and the lowest
/// that was not. Failures of an overloaded probe are the overload that bounds the capacity.
fn doubt(best: Option<&Measures>, bound: Option<&Measures>) -> Option<String> {
    let mut words = Vec::new();
    for probe in [best, bound].into_iter().flatten() {
        let is_overloaded = validity::causes(probe).contains(&Cause::Overloaded);
        for doubt in validity::doubts(probe) {
            match (doubt.cause(), &probe.generator.limit) {
                (Cause::Generator, Some(advice)) => words.push(format!("generator: {advice}")),
                (Cause::Generator, None) => words.push(doubt.to_string()),
                (Cause::Failures, _) if !is_overloaded => words.push(doubt.to_string()),
                _ => {}
            }
        }
    }
    words.dedup();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Whether a server kept up with the arrivals of a probe. The first third only fills its queue: from then on, as many
/// requests must be answered as arrive, whatever each takes.
fn is_sustained(records: &[Record], duration_ns: u64) -> bool {
    let third_ns = duration_ns / 3;
    let count = |of: &dyn Fn(&Record) -> bool| records.iter().filter(|record| of(record)).count() as f64;
    let arrived = count(&|record| record.intended_ns >= third_ns);
    let is_answered = |record: &Record| record.outcome == Outcome::Answered;
    let in_time = third_ns..=duration_ns;
    let answered = count(&|record| is_answered(record) && in_time.contains(&record.last_byte_ns));
    let failed = count(&|record| !is_answered(record));
    if answered < arrived * ACHIEVED_SHARE_MIN || failed > records.len() as f64 * FAILED_SHARE_MAX {
        return false;
    }
    let median_ns = |from_ns: u64, to_ns: u64| {
        let within = records.iter().filter(|record| (from_ns..to_ns).contains(&record.intended_ns));
        let mut latencies_ns: Vec<u64> = within.map(Record::latency_ns).collect();
        latencies_ns.sort_unstable();
        percentile_ns(&latencies_ns, 500)
    };
    match (median_ns(0, third_ns), median_ns(2 * third_ns, u64::MAX)) {
        (Some(first_ns), Some(last_ns)) => {
            let most_ns = (first_ns as f64 * GROWTH_TIMES_MAX) as u64;
            last_ns <= most_ns.max(first_ns + GROWTH_LEAST_NS)
        }
        // Too few arrivals to see a queue: nothing speaks against it.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use flash_load::measure::{PhaseFacts, measures};

    use super::*;

    #[test]
    fn the_search_finds_the_limit_within_a_few_percent() {
        for (limit_per_s, first_per_s) in [(1000.0, 900.0), (1000.0, 5000.0), (1000.0, 300.0), (50.0, 55.0)] {
            let mut bracket = Bracket::new(first_per_s, f64::INFINITY);
            let mut probes = 0;
            while let (Some(rate_per_s), true) = (bracket.next(), probes < PROBES_MAX) {
                bracket.learn(rate_per_s, rate_per_s <= limit_per_s);
                probes += 1;
            }
            let found = bracket.sustained_per_s;
            assert!(found <= limit_per_s && found >= limit_per_s * 0.9, "{limit_per_s}: {found} by {probes}");
        }
    }

    #[test]
    fn the_search_ends_at_the_most_that_a_closed_loop_has_shown() {
        let rates = |sustained_to_per_s: f64| {
            let mut bracket = Bracket::new(900.0, 1000.0);
            let next = || {
                let rate_per_s = bracket.next()?;
                bracket.learn(rate_per_s, rate_per_s <= sustained_to_per_s);
                Some(rate_per_s)
            };
            std::iter::from_fn(next).collect::<Vec<f64>>()
        };
        assert_eq!(rates(f64::INFINITY), [900.0, 1000.0]);
        assert_eq!(rates(960.0), [900.0, 1000.0, 950.0, 975.0]);
    }

    /// A second of arrivals, one every millisecond, answered by a server that takes this long for each, one at a time.
    fn served(service_us: u64) -> Vec<Record> {
        let mut free_ns = 0;
        let record = |number: u64| {
            let intended_ns = number * 1_000_000;
            free_ns = intended_ns.max(free_ns) + service_us * 1000;
            Record {
                intended_ns,
                begun_ns: intended_ns,
                connected_ns: intended_ns,
                first_byte_ns: free_ns,
                last_byte_ns: free_ns,
                body_bytes: 1,
                path_id: 0,
                status: 200,
                outcome: Outcome::Answered,
                flags: 0,
                tries: 1,
                thread: 0,
            }
        };
        (0..1000).map(record).collect()
    }

    #[test]
    fn a_capacity_is_in_doubt_where_its_probes_are() {
        let facts =
            PhaseFacts { asked_per_s: Some(1000.0), duration_ns: 1_000_000_000, ..PhaseFacts::default() };
        let sound = measures(&served(900), &facts);
        assert_eq!((doubt(Some(&sound), Some(&sound)), doubt(None, None)), (None, None));
        let mut failing = sound.clone();
        failing.counts.failed.insert("reset".to_owned(), 20);
        assert_eq!(doubt(Some(&sound), Some(&failing)).as_deref(), Some("failures: 2.00 % of the requests"));
        failing.answered_per_s = 800.0;
        assert_eq!(doubt(Some(&sound), Some(&failing)), None, "an overloaded server refuses requests");
        let mut late = sound.clone();
        late.generator.late_p99_ms = 5.0;
        assert!(doubt(Some(&late), Some(&sound)).unwrap().starts_with("generator: "));
    }

    #[test]
    fn a_rate_is_sustained_while_the_queue_does_not_grow() {
        let second_ns = 1_000_000_000;
        assert!(is_sustained(&served(900), second_ns));
        assert!(!is_sustained(&served(1100), second_ns), "a tenth too slow");
        assert!(!is_sustained(&served(1020), second_ns), "the queue grows, though 98 % are answered");
        // Each takes 0.2 s, but many at once: requests in flight at the end are no sign of overload.
        let mut slow = served(900);
        slow.iter_mut().for_each(|record| record.last_byte_ns = record.intended_ns + 200_000_000);
        assert!(is_sustained(&slow, second_ns));
        let mut failing = served(900);
        failing[..2].iter_mut().for_each(|record| record.outcome = Outcome::Reset);
        assert!(!is_sustained(&failing, second_ns), "2 of 1,000 fail");
    }
}
