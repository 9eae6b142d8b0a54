//! What the hot and cold test found, as a table and as JSON.
//!
//! It only reads records. Times are in milliseconds, from the intended start to the last byte.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Options;
use crate::load::{Ran, StreamRan};
use crate::record::{Outcome, QUEUED};

/// A generator that is late by more than this for one request in a hundred blurs hot latencies.
const LATE_P99_MAX_MS: f64 = 0.1;
/// And this much once: the machine did not let it run.
const LATE_MAX_MS: f64 = 10.0;

/// The whole result.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    url: String,
    hot_directories: u32,
    cold_directories: [u32; 2],
    hot_mix: &'static str,
    hot_rate_per_s: f64,
    cold_rate_per_s: f64,
    connections_max: usize,
    verified: bool,
    seed: u64,
    phases: Vec<PhaseReport>,
}

/// One phase.
#[derive(Debug, Serialize)]
pub(super) struct PhaseReport {
    phase_s: f64,
    drain_s: f64,
    hot: StreamReport,
    cold: Option<StreamReport>,
    generator: GeneratorReport,
}

/// One stream of requests in one phase.
#[derive(Debug, Serialize)]
struct StreamReport {
    asked: u64,
    answered: u64,
    /// Answers per second while arrivals came.
    answered_per_s: f64,
    /// Arrivals that waited because every connection was in use.
    queued: u64,
    retried: u64,
    failed: u64,
    faults: BTreeMap<String, u64>,
    latency: Times,
}

/// How well the generator kept its own times.
#[derive(Debug, Serialize)]
struct GeneratorReport {
    late: Times,
    was_the_limit: bool,
}

/// Points of a distribution of times, milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Times {
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl Times {
    fn of(times_ns: &Histogram<u64>) -> Self {
        let at = |quantile| times_ns.value_at_quantile(quantile) as f64 / 1e6;
        Self {
            mean_ms: times_ns.mean() / 1e6,
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: times_ns.max() as f64 / 1e6,
        }
    }

    fn points(&self) -> [f64; 4] {
        [self.p50_ms, self.p99_ms, self.p999_ms, self.max_ms]
    }
}

/// The counts of one stream of requests in one phase.
pub(super) struct Tally {
    asked: u64,
    pub(super) answered: u64,
    /// Of these, the ones that came while arrivals still did.
    answered_in_time: u64,
    queued: u64,
    retried: u64,
    pub(super) faults: BTreeMap<String, u64>,
    latency_ns: Histogram<u64>,
}

impl Tally {
    /// Those of a stream of a run.
    pub(super) fn new(ran: &Ran, stream: usize) -> Self {
        let StreamRan { records, retried, .. } = &ran.streams[stream];
        let mut tally = Self {
            asked: records.len() as u64,
            answered: 0,
            answered_in_time: 0,
            queued: 0,
            retried: *retried,
            faults: BTreeMap::new(),
            latency_ns: times_histogram(),
        };
        for record in records {
            tally.queued += u64::from(record.flags & QUEUED != 0);
            if record.outcome == Outcome::Answered {
                tally.answered += 1;
                tally.answered_in_time += u64::from(record.last_byte_ns <= ran.duration_ns);
            } else {
                let fault = match record.outcome {
                    Outcome::Status => format!("status {}", record.status),
                    outcome => outcome.name().to_owned(),
                };
                *tally.faults.entry(fault).or_insert(0) += 1;
            }
            if record.counts() {
                tally.latency_ns.saturating_record(record.latency_ns());
            }
        }
        tally
    }
}

/// A histogram of times in nanoseconds: 100 ns to ten minutes, three digits.
fn times_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 600_000_000_000, 3).expect("these bounds make a histogram")
}

impl StreamReport {
    fn new(phase_s: f64, ran: &Ran, stream: usize) -> Self {
        let tally = Tally::new(ran, stream);
        Self {
            asked: tally.asked,
            answered: tally.answered,
            answered_per_s: tally.answered_in_time as f64 / phase_s,
            queued: tally.queued,
            retried: tally.retried,
            failed: tally.faults.values().sum(),
            faults: tally.faults,
            latency: Times::of(&tally.latency_ns),
        }
    }
}

impl PhaseReport {
    /// Of a run whose streams are hot and, if there is a second, cold.
    pub(super) fn new(phase_s: f64, ran: &Ran) -> Self {
        let mut late_ns = times_histogram();
        for record in ran.streams.iter().flat_map(|stream| &stream.records) {
            late_ns.saturating_record(record.begun_ns.saturating_sub(record.intended_ns));
        }
        let late = Times::of(&late_ns);
        let was_the_limit = late.p99_ms > LATE_P99_MAX_MS || late.max_ms > LATE_MAX_MS;
        Self {
            phase_s,
            drain_s: ran.drain_ns as f64 / 1e9,
            hot: StreamReport::new(phase_s, ran, 0),
            cold: (ran.streams.len() > 1).then(|| StreamReport::new(phase_s, ran, 1)),
            generator: GeneratorReport { late, was_the_limit },
        }
    }

    fn name(&self) -> &'static str {
        if self.cold.is_some() { "hot with cold" } else { "hot alone" }
    }
}

impl Report {
    pub(super) fn new(options: &Options, phases: Vec<PhaseReport>) -> Self {
        Self {
            url: options.url.clone(),
            hot_directories: options.hot_directories,
            cold_directories: [options.cold_directories.start, options.cold_directories.end],
            hot_mix: match options.hot_mix {
                super::HotMix::Specweb99 => "specweb99",
                super::HotMix::Small => "small",
            },
            hot_rate_per_s: options.hot_rate_per_s,
            cold_rate_per_s: options.cold_rate_per_s,
            connections_max: options.connections_max,
            verified: options.verify_seed.is_some(),
            seed: options.seed,
            phases,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} hot requests/s to {} directories, {} cold/s to directories {} to {}, seed {}",
            self.url,
            self.hot_rate_per_s,
            self.hot_directories,
            self.cold_rate_per_s,
            self.cold_directories[0],
            self.cold_directories[1].saturating_sub(1),
            self.seed
        )?;
        write!(f, "{:<24}", "ms from intended start")?;
        writeln!(
            f,
            "{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}",
            "p50", "p99", "p99.9", "max", "answered", "failed"
        )?;
        for phase in &self.phases {
            row(f, phase.name(), &phase.hot)?;
        }
        if let [alone, with_cold] = &self.phases[..] {
            write!(f, "{:<24}", "  ratio")?;
            for (before, after) in alone.hot.latency.points().iter().zip(with_cold.hot.latency.points()) {
                write!(f, "{:>10.2}", after / before)?;
            }
            writeln!(f)?;
        }
        for cold in self.phases.iter().filter_map(|phase| phase.cold.as_ref()) {
            row(f, "cold", cold)?;
            writeln!(f, "cold answers while arrivals came: {:.1}/s", cold.answered_per_s)?;
        }
        self.phases.iter().try_for_each(|phase| phase.notes(f))
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, stream: &StreamReport) -> fmt::Result {
    write!(f, "{name:<24}")?;
    for point in stream.latency.points() {
        write!(f, "{point:>10.3}")?;
    }
    writeln!(f, "{:>10}{:>8}", stream.answered, stream.failed)
}

impl PhaseReport {
    /// What else must be known to believe the figures.
    fn notes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let streams = [Some((self.name(), &self.hot)), self.cold.as_ref().map(|cold| ("cold", cold))];
        for (name, stream) in streams.into_iter().flatten() {
            for (fault, count) in &stream.faults {
                writeln!(f, "{name}: {count} failed: {fault}")?;
            }
            if stream.queued > 0 {
                writeln!(f, "{name}: {} arrivals waited because every connection was in use", stream.queued)?;
            }
            if stream.retried > 0 {
                writeln!(
                    f,
                    "{name}: {} sent again, on connections that the server had closed",
                    stream.retried
                )?;
            }
        }
        let late = &self.generator.late;
        write!(
            f,
            "{}: the generator was late by {:.3} ms (p99), {:.3} ms (max)",
            self.name(),
            late.p99_ms,
            late.max_ms
        )?;
        let verdict =
            if self.generator.was_the_limit { ": it was the limit, give it a core of its own" } else { "" };
        writeln!(f, "{verdict}")
    }
}
