//! Every figure that is computed from records.
//!
//! The commands call it after each phase, and again with all rounds of a level together; reports
//! draw its figures. Pure, except [`hdr_log`], which writes a file. It never copies records: it
//! reads them where they are, and sorts times of 8 bytes and answers of 16.

mod figures;
mod generator;
pub mod hdr_log;
mod inversion;
mod latency_figure;
mod overload;
pub mod seconds;
mod sizes;
mod threshold;
mod timeline;
pub mod times;
pub mod validity;

use std::sync::Arc;

use crate::record::{Handshake, OpenConnections, Outcome, QUEUED, REUSED, Record};
use crate::workload::Catalogue;

pub use figures::{
    Bucket, CdfPoint, CoreOf, Counts, Decile, Generator, Handshakes, Incomplete, Kind, Latency, Measures,
    OpenPoint, OtherWork, Overload, SizeBand, SizeSeries, TimePoint, Timeline, TimelinePoint, Usage,
};
pub use latency_figure::LatencyFigure;
pub use sizes::SeriesBounds;
pub use threshold::Threshold;

use inversion::Ranked;

/// A request that the generator takes up later than this was sent late by the generator itself.
const LATE_NS: u64 = 1_000_000;

/// The facts about a phase that its records do not have.
#[derive(Clone, Debug, Default)]
pub struct PhaseFacts {
    /// "0.80", "closed", "hot alone".
    pub name: String,
    /// The fraction of the capacity that was asked for.
    pub load_level: Option<f64>,
    /// From 1.
    pub round: Option<u32>,
    /// Requests per second that were asked for, on average; none in a closed loop, and only there.
    pub asked_per_s: Option<f64>,
    /// How long requests were started, really.
    pub duration_ns: u64,
    /// How long the last answers then took.
    pub drain_ns: u64,
    pub threads: u32,
    /// The share of the time in which its busiest thread had something to do, 0 to 1.
    pub busy_share: f64,
    pub connections: u64,
    /// The TLS handshakes of the connections.
    pub handshakes: Vec<Handshake>,
    /// Requests sent again.
    pub retried: u64,
    pub ended_early: Option<String>,
    pub series: SeriesBounds,
    /// The number of the first dynamic request, in a workload that has some ([`Catalogue::first_dynamic`]).
    pub first_dynamic: Option<u32>,
    /// The server's use of CPU and memory, when its process is known.
    pub server: Option<ServerUse>,
    /// The share of the hot files' bytes that was in memory at the end, where that was looked at.
    pub in_memory_share: Option<f64>,
    /// The work of others on the cores of server and generator, where these are known.
    pub other_work: Option<OtherWork>,
    /// The open connections, every [`crate::record::OPEN_STEP_NS`].
    pub open: Vec<OpenConnections>,
    /// The requested files, where the figures of overload are wanted ([`Measures::overload`]).
    pub overload: Option<Arc<Catalogue>>,
}

/// The CPU and memory that a server used in a phase, its drain included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerUse {
    /// CPU time, user and system.
    pub cpu_ns: u64,
    /// The most memory of its own at a sample.
    pub memory_max_bytes: u64,
}

/// One round of a level: its records, in any order, and what else is known.
pub type Round<'a> = (&'a [Record], &'a PhaseFacts);

/// The measures of one phase. The caller adds where its records are.
pub fn measures(records: &[Record], facts: &PhaseFacts) -> Measures {
    pooled(&[(records, facts)])
}

/// The measures of several rounds of one level together, as if all had been one phase.
///
/// Name, level and series are those of the first. Rates are over the time of all rounds; in the
/// timeline the rounds follow one another, in the order given; in the figures of overload they are laid over each other.
pub fn pooled(rounds: &[Round<'_>]) -> Measures {
    let none = PhaseFacts::default();
    let first = rounds.first().map_or(&none, |(_, facts)| facts);
    let sum = |of: &dyn Fn(&PhaseFacts) -> u64| rounds.iter().map(|(_, facts)| of(facts)).sum::<u64>();
    let duration_s = seconds(sum(&|facts| facts.duration_ns));
    let counts = counts(rounds);
    let in_time_bytes = answered_in_time(rounds).map(|r| r.body_bytes).fold(0, u64::saturating_add);
    let answers = Ranked::new(
        records(rounds).filter(|r| r.outcome == Outcome::Answered).map(|r| (r.latency_ns(), r.body_bytes)),
    );
    let (series, deciles) = sizes::by_decile(&answers, first.series);
    let mut times = Times::default();
    let latency_ns = times.sorted(records(rounds).filter(|r| r.counts()).map(Record::latency_ns));
    let latency = times::summary(latency_ns).unwrap_or_default();
    let (cdf, histogram) = (times::cdf(latency_ns), times::histogram(latency_ns));
    Measures {
        name: first.name.clone(),
        load_level: first.load_level,
        round: if rounds.len() == 1 { first.round } else { None },
        asked_per_s: asked_per_s(rounds),
        duration_s,
        drain_s: seconds(rounds.iter().map(|(_, facts)| facts.drain_ns).max().unwrap_or(0)),
        answered_per_s: per(answered_in_time(rounds).count() as f64, duration_s),
        megabits_per_s: per(in_time_bytes as f64 * 8.0 / 1e6, duration_s),
        latency,
        connect: times.summary(records(rounds).filter_map(connect_ns)),
        handshakes: handshakes(rounds, &mut times),
        first_byte: times.summary(records(rounds).filter_map(first_byte_ns)),
        transfer: times.summary(records(rounds).filter_map(transfer_ns)),
        inversion: answers.inversion(),
        cdf,
        histogram,
        series,
        kinds: kinds(rounds, first.first_dynamic, &mut times),
        deciles,
        timeline: timeline::timeline(rounds),
        overload: first.overload.as_deref().map(|catalogue| overload::overload(rounds, catalogue)),
        generator: generator::judge(rounds, &counts, &latency, &mut times),
        server: usage(rounds, counts.answered),
        in_memory_share: rounds.iter().filter_map(|(_, facts)| facts.in_memory_share).reduce(f64::min),
        other_work: rounds.iter().filter_map(|(_, facts)| facts.other_work).reduce(OtherWork::worse),
        records: None,
        records_lost: 0,
        ended_early: ended_early(rounds),
        counts,
    }
}

fn records<'a>(rounds: &'a [Round<'_>]) -> impl Iterator<Item = &'a Record> {
    rounds.iter().flat_map(|(records, _)| records.iter())
}

/// A buffer for times, used for one measure after the other.
#[derive(Default)]
struct Times(Vec<u64>);

impl Times {
    fn sorted(&mut self, times_ns: impl Iterator<Item = u64>) -> &[u64] {
        self.0.clear();
        self.0.extend(times_ns);
        self.0.sort_unstable();
        &self.0
    }

    fn summary(&mut self, times_ns: impl Iterator<Item = u64>) -> Option<Latency> {
        times::summary(self.sorted(times_ns))
    }
}

/// None without TLS.
fn handshakes(rounds: &[Round<'_>], times: &mut Times) -> Option<Handshakes> {
    let of_kind = |is_resumed: bool| {
        let all = rounds.iter().flat_map(|(_, facts)| &facts.handshakes);
        all.filter(move |handshake| handshake.is_resumed == is_resumed).map(|handshake| handshake.took_ns)
    };
    let (full, resumed) = (of_kind(false).count() as u64, of_kind(true).count() as u64);
    (full + resumed > 0).then(|| Handshakes {
        full,
        resumed,
        full_time: times.summary(of_kind(false)),
        resumed_time: times.summary(of_kind(true)),
    })
}

/// The static requests and the dynamic ones; empty without dynamic ones.
fn kinds(rounds: &[Round<'_>], first_dynamic: Option<u32>, times: &mut Times) -> Vec<Kind> {
    let Some(first_dynamic) = first_dynamic else { return Vec::new() };
    let kind = |(name, is_dynamic): (&str, bool)| {
        let of_kind = || records(rounds).filter(move |r| (r.path_id >= first_dynamic) == is_dynamic);
        Kind {
            name: name.to_owned(),
            asked: of_kind().count() as u64,
            answered: of_kind().filter(|r| r.outcome == Outcome::Answered).count() as u64,
            latency: times.summary(of_kind().filter(|r| r.counts()).map(Record::latency_ns)),
        }
    };
    [("static", false), ("dynamic", true)].into_iter().map(kind).collect()
}

// The three stages of a request whose latency counts. One that was given up in a stage counts there
// up to that moment, as in its latency; the later stages it never saw.

/// The time to connect, for a request that opened a connection; a request that queued first does not show it.
fn connect_ns(record: &Record) -> Option<u64> {
    let opened = record.flags & (REUSED | QUEUED) == 0;
    let end_ns = record.connected_ns.min(record.last_byte_ns);
    (record.counts() && opened).then(|| end_ns.saturating_sub(record.begun_ns))
}

fn first_byte_ns(record: &Record) -> Option<u64> {
    let connected = record.connected_ns <= record.last_byte_ns;
    let end_ns = record.first_byte_ns.min(record.last_byte_ns);
    (record.counts() && connected).then(|| end_ns.saturating_sub(record.connected_ns))
}

fn transfer_ns(record: &Record) -> Option<u64> {
    let begun = record.first_byte_ns <= record.last_byte_ns;
    (record.counts() && begun).then(|| record.last_byte_ns - record.first_byte_ns)
}

fn counts(rounds: &[Round<'_>]) -> Counts {
    let mut counts = Counts::default();
    let mut by_outcome = [0u64; Outcome::ALL.len()];
    for record in records(rounds) {
        counts.asked += 1;
        counts.queued += u64::from(record.flags & QUEUED != 0);
        counts.late += u64::from(record.begun_ns.saturating_sub(record.intended_ns) > LATE_NS);
        if record.outcome == Outcome::Status {
            *counts.failed.entry(format!("status {}", record.status)).or_insert(0) += 1;
        } else {
            by_outcome[record.outcome as usize] += 1;
        }
    }
    counts.answered = by_outcome[Outcome::Answered as usize];
    for (outcome, name) in Outcome::ALL {
        let count = by_outcome[outcome as usize];
        if count > 0 && outcome != Outcome::Answered {
            counts.failed.insert(name.to_owned(), count);
        }
    }
    for (_, facts) in rounds {
        counts.retried += facts.retried;
        counts.connections += facts.connections;
    }
    counts
}

/// Proper answers that came while requests were started.
fn answered_in_time<'a>(rounds: &'a [Round<'_>]) -> impl Iterator<Item = &'a Record> {
    rounds.iter().flat_map(|(records, facts)| {
        let duration_ns = facts.duration_ns;
        records.iter().filter(move |r| r.outcome == Outcome::Answered && r.last_byte_ns <= duration_ns)
    })
}

/// The mean over the time of all rounds; none when one of them was a closed loop.
fn asked_per_s(rounds: &[Round<'_>]) -> Option<f64> {
    let (mut asked, mut duration_s) = (0.0, 0.0);
    for (_, facts) in rounds {
        asked += facts.asked_per_s? * seconds(facts.duration_ns);
        duration_s += seconds(facts.duration_ns);
    }
    if duration_s > 0.0 { Some(asked / duration_s) } else { rounds.first()?.1.asked_per_s }
}

/// None when the server's process was not known in one of the rounds.
fn usage(rounds: &[Round<'_>], answered: u64) -> Option<Usage> {
    let mut used = ServerUse::default();
    for (_, facts) in rounds {
        let round = facts.server?;
        used.cpu_ns += round.cpu_ns;
        used.memory_max_bytes = used.memory_max_bytes.max(round.memory_max_bytes);
    }
    (!rounds.is_empty()).then(|| Usage {
        cpu_s: seconds(used.cpu_ns),
        cpu_us_per_answer: per(used.cpu_ns as f64 / 1e3, answered as f64),
        memory_max_bytes: used.memory_max_bytes,
    })
}

fn ended_early(rounds: &[Round<'_>]) -> Option<String> {
    let reasons: Vec<String> = rounds
        .iter()
        .filter_map(|(_, facts)| {
            let why = facts.ended_early.as_ref()?;
            Some(match facts.round {
                Some(round) if rounds.len() > 1 => format!("round {round}: {why}"),
                _ => why.clone(),
            })
        })
        .collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// An amount per something; 0 for an amount per nothing: JSON has no other number for it.
pub fn per(amount: f64, of: f64) -> f64 {
    if of > 0.0 { amount / of } else { 0.0 }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
