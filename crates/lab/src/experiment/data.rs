//! The measurements as findings and plots ask for them: a measure of a server at a point, round by round.
//!
//! [`super::finding`] compares the samples. A round whose figures do not count ([`validity`]) is kept apart with the
//! causes. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::inside::{self, Inside};
use crate::results::Run;
use crate::statistics::{Limit, Sample, Scale};
use flash_load::measure::validity::{self, Cause, FAILED_SHARE_MAX};
use flash_load::measure::{Counts, LatencyFigure, Measures};
use flash_load::record::Outcome;

/// A figure of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    /// In the specifications of experiments.
    pub(super) name: &'static str,
    /// In a sentence, after the figure.
    pub(super) unit: &'static str,
    /// Whether figures of it differ by a factor or by an amount.
    scale: Scale,
    /// None for a figure that only the server can count: [`Inside`] has it by its name.
    of: Option<fn(&Measures) -> Option<f64>>,
    /// The figure of the latencies that a late generator must not have made.
    latency: Option<LatencyFigure>,
    /// Whether it grows for as long as a server is overloaded.
    is_time: bool,
}

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("no measure '{name}'")))
    }
}

impl Measure {
    /// Response time of completed requests under overload: of all, and of the largest 1 %.
    pub(super) const RESPONSE: Self = Self::new("response", "ms until complete, on average", |m| {
        Some(m.overload.as_ref()?.complete?.mean_ms)
    })
    .about(LatencyFigure::Mean);
    pub(super) const LARGEST: Self =
        Self::new("largest", "ms until complete, the largest 1 % on average", |m| {
            Some(m.overload.as_ref()?.largest?.latency?.mean_ms)
        })
        .about(LatencyFigure::Mean);
    pub(super) const INCOMPLETE: Self = Self {
        scale: Scale::Amount,
        ..Self::new("incomplete", "share of incomplete requests", |m| {
            Some(m.overload.as_ref()?.incomplete.total() as f64 / m.counts.asked as f64)
        })
    };
    /// The most connections that the clients had open at once.
    pub(super) const OPEN_MAX: Self =
        Self::new("connections", "connections at once", |m| Some(m.overload.as_ref()?.open_max as f64));
    const ALL: [Self; 16] = [
        Self::new("bandwidth", "Mb/s", |m| Some(m.megabits_per_s)),
        Self::new("rate", "answers/s", |m| Some(m.answered_per_s)),
        Self::new("mean", "ms on average", |m| Some(m.latency.mean_ms)).time(LatencyFigure::Mean),
        Self::new("p50", "ms (median)", |m| Some(m.latency.p50_ms)).time(LatencyFigure::P50),
        Self::new("p90", "ms (90th percentile)", |m| Some(m.latency.p90_ms)).time(LatencyFigure::P90),
        Self::new("p95", "ms (95th percentile)", |m| Some(m.latency.p95_ms)).time(LatencyFigure::P95),
        Self::new("p99", "ms (99th percentile)", |m| Some(m.latency.p99_ms)).time(LatencyFigure::P99),
        Self::new("inversion", "inversion", |m| m.inversion).about(LatencyFigure::P50),
        Self::RESPONSE,
        Self::LARGEST,
        Self::INCOMPLETE,
        Self::OPEN_MAX,
        Self::new("received", "Mb/s received", |m| m.overload.as_ref()?.received_megabits_per_s),
        Self::new("in time", "ms until complete, of those before the last request", |m| {
            Some(m.overload.as_ref()?.complete_in_time?.mean_ms)
        })
        .about(LatencyFigure::Mean),
        // An order by size has none of the smallest files there, and none but the largest.
        Self::share("small in the slowest tenth", "share of the smallest files in the slowest tenth", |m| {
            m.deciles.last()?.shares.first().copied()
        }),
        Self::share("large in the slowest tenth", "share of the largest files in the slowest tenth", |m| {
            m.deciles.last()?.shares.last().copied()
        }),
    ];

    const fn new(name: &'static str, unit: &'static str, of: fn(&Measures) -> Option<f64>) -> Self {
        Self { name, unit, scale: Scale::Factor, of: Some(of), latency: None, is_time: false }
    }

    const fn about(self, figure: LatencyFigure) -> Self {
        Self { latency: Some(figure), ..self }
    }

    const fn time(self, figure: LatencyFigure) -> Self {
        Self { is_time: true, ..self.about(figure) }
    }

    const fn share(name: &'static str, unit: &'static str, of: fn(&Measures) -> Option<f64>) -> Self {
        Self { scale: Scale::Amount, ..Self::new(name, unit, of) }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let of_server = || {
            let calls = inside::CALLS.map(|(name, _)| name);
            let name = inside::FIGURES.into_iter().chain(calls).find(|known| *known == name)?;
            let is_share = name.starts_with("share of ");
            let scale = if is_share { Scale::Amount } else { Scale::Factor };
            Some(Self { name, unit: name, scale, of: None, latency: None, is_time: false })
        };
        Self::ALL.into_iter().find(|known| known.name == name).or_else(of_server)
    }
}

/// How long the unanswered requests of an overloaded server were waited for at least, milliseconds: its times are no shorter
/// than those of its answers, or than this. None if it was not overloaded, or something else speaks against the round.
fn least_of_overloaded_ms(measures: &Measures, causes: &BTreeSet<Cause>) -> Option<f64> {
    let Counts { asked, failed, .. } = &measures.counts;
    let unanswered = failed.get(Outcome::Unanswered.name()).copied().unwrap_or(0);
    let others = measures.counts.failures().saturating_sub(unanswered);
    let is_only_overloaded = causes.contains(&Cause::Overloaded)
        && causes.iter().all(|cause| matches!(cause, Cause::Overloaded | Cause::Failures))
        && others as f64 <= *asked as f64 * FAILED_SHARE_MAX;
    is_only_overloaded.then_some(if unanswered == 0 { f64::INFINITY } else { measures.drain_s * 1e3 })
}

#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) run: &'a Run,
    pub(super) inside: &'a [Inside],
}

impl Data<'_> {
    /// A figure of a variant at a point, with the rounds in doubt kept apart; none where that was not measured. The times of a
    /// server that is overloaded grow with the load's duration, so they only limit what they would be.
    pub(super) fn sample(&self, variant: &str, point: &str, measure: Measure) -> Option<Sample> {
        let mut sample = self.measured(variant, point, measure)?;
        for measures in self.rounds(variant, point) {
            let round = measures.round.unwrap_or(1);
            let mut causes = validity::causes_about(measures, measure.latency);
            if measure.of.is_none() {
                // The counts of the server include the requests that it refused or left waiting. They say how it works, also
                // beside more requests than it can answer.
                causes.remove(&Cause::Failures);
                causes.remove(&Cause::Overloaded);
            }
            let least_ms = least_of_overloaded_ms(measures, &causes).filter(|_| measure.is_time);
            if let (Some(least_ms), Some(value)) = (least_ms, sample.rounds.get_mut(&round)) {
                *value = value.min(least_ms);
                sample.limits.insert(round, Limit::Least);
            } else if !causes.is_empty() {
                sample.rounds.remove(&round);
                sample.doubted.insert(round, causes);
            }
        }
        if sample.scale == Scale::Factor {
            sample.rounds.retain(|_, value| *value > 0.0);
        }
        Some(sample)
    }

    /// The same with all rounds, for plots and tables; none where nothing was measured.
    pub(super) fn measured(&self, variant: &str, point: &str, measure: Measure) -> Option<Sample> {
        let rounds: BTreeMap<u32, f64> = if let Some(of) = measure.of {
            let answered = self.rounds(variant, point).filter(|measures| measures.counts.answered > 0);
            let found = answered.filter_map(|measures| Some((measures.round.unwrap_or(1), of(measures)?)));
            found.filter(|(_, value)| value.is_finite()).collect()
        } else {
            let found =
                self.inside.iter().filter(|inside| inside.variant == variant && inside.point == point);
            found.filter_map(|inside| Some((inside.round, *inside.figures.get(measure.name)?))).collect()
        };
        (!rounds.is_empty()).then(|| Sample { rounds, scale: measure.scale, ..Sample::default() })
    }

    fn rounds(&self, variant: &str, point: &str) -> impl Iterator<Item = &Measures> {
        let subject = self.run.subjects.iter().find(|subject| subject.name == variant);
        subject.into_iter().flat_map(|subject| &subject.rounds).filter(move |round| round.name == point)
    }

    pub(super) fn why_missing(&self, variant: &str, point: &str) -> String {
        let subject = self.run.subjects.iter().find(|subject| subject.name == variant);
        match subject.map(|subject| &subject.missing) {
            None => format!("{variant} was not run"),
            Some(Some(why)) => format!("{variant} is missing: {why}"),
            Some(None) => format!("{variant} has no figures at {point}"),
        }
    }
}
