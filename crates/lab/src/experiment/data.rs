//! The measurements as findings and plots ask for them: a measure of a server at a point, round by round.
//!
//! [`super::finding`] compares the samples. A round whose figures do not count ([`validity`]) is kept apart with the
//! causes. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::inside::{self, IDLE_SHARE, Inside, RUNNABLE_SHARE};
use crate::results::Run;
use crate::statistics::{Sample, Scale};
use flash_load::measure::Measures;
use flash_load::measure::validity;

/// A figure of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Mb/s of bodies.
    Bandwidth,
    /// Answers in a second.
    Rate,
    /// Latency, milliseconds.
    Mean,
    P50,
    P90,
    P95,
    P99,
    /// Service inversion, 0 to 1.
    Inversion,
    /// Response time of completed requests under overload, milliseconds on average: of all, and of the largest 1 %.
    Response,
    Largest,
    /// The share of the requests that were not completed.
    Incomplete,
    /// The most connections that the clients had open at once.
    OpenMax,
    /// A figure that only the server can count, by its name in [`Inside`].
    Inside(&'static str),
}

/// The names of measures in the forms of experiments; those of [`Inside`] have their own.
const NAMED: [(&str, Measure); 12] = [
    ("bandwidth", Measure::Bandwidth),
    ("rate", Measure::Rate),
    ("mean", Measure::Mean),
    ("p50", Measure::P50),
    ("p90", Measure::P90),
    ("p95", Measure::P95),
    ("p99", Measure::P99),
    ("inversion", Measure::Inversion),
    ("response", Measure::Response),
    ("largest", Measure::Largest),
    ("incomplete", Measure::Incomplete),
    ("connections", Measure::OpenMax),
];

impl<'de> Deserialize<'de> for Measure {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| D::Error::custom(format!("no measure '{name}'")))
    }
}

impl Measure {
    pub(super) fn named(name: &str) -> Option<Self> {
        let own = NAMED.iter().find(|(known, _)| *known == name).map(|(_, measure)| *measure);
        own.or_else(|| inside::FIGURES.into_iter().find(|known| *known == name).map(Self::Inside))
    }

    /// In a sentence, after the figure.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "Mb/s",
            Self::Rate => "answers/s",
            Self::Mean => "ms on average",
            Self::P50 => "ms (median)",
            Self::P90 => "ms (90th percentile)",
            Self::P95 => "ms (95th percentile)",
            Self::P99 => "ms (99th percentile)",
            Self::Inversion => "inversion",
            Self::Response => "ms until complete, on average",
            Self::Largest => "ms until complete, the largest 1 % on average",
            Self::Incomplete => "share of incomplete requests",
            Self::OpenMax => "connections at once",
            Self::Inside(name) => name,
        }
    }

    /// Whether figures of it differ by a factor or by an amount.
    fn scale(self) -> Scale {
        match self {
            Self::Inside(IDLE_SHARE | RUNNABLE_SHARE) | Self::Incomplete => Scale::Amount,
            _ => Scale::Factor,
        }
    }

    fn of(self, measures: &Measures) -> Option<f64> {
        let latency = &measures.latency;
        let is_answered = measures.counts.answered > 0;
        let overload = || measures.overload.as_ref();
        let value = match self {
            Self::Bandwidth => measures.megabits_per_s,
            Self::Rate => measures.answered_per_s,
            Self::Mean => latency.mean_ms,
            Self::P50 => latency.p50_ms,
            Self::P90 => latency.p90_ms,
            Self::P95 => latency.p95_ms,
            Self::P99 => latency.p99_ms,
            Self::Inversion => measures.inversion?,
            Self::Response => overload()?.complete?.mean_ms,
            Self::Largest => overload()?.largest?.latency?.mean_ms,
            Self::Incomplete => overload()?.incomplete.total() as f64 / measures.counts.asked as f64,
            Self::OpenMax => overload()?.open_max as f64,
            Self::Inside(_) => return None,
        };
        (value.is_finite() && is_answered).then_some(value)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) run: &'a Run,
    pub(super) inside: &'a [Inside],
}

impl Data<'_> {
    /// A figure of a variant at a point, with the rounds in doubt kept apart; none where that was not measured.
    pub(super) fn sample(&self, variant: &str, point: &str, measure: Measure) -> Option<Sample> {
        let mut sample = self.measured(variant, point, measure)?;
        for measures in self.rounds(variant, point) {
            let (round, causes) = (measures.round.unwrap_or(1), validity::causes(measures));
            if !causes.is_empty() {
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
        let rounds: BTreeMap<u32, f64> = if let Measure::Inside(name) = measure {
            let found =
                self.inside.iter().filter(|inside| inside.variant == variant && inside.point == point);
            found.filter_map(|inside| Some((inside.round, *inside.figures.get(name)?))).collect()
        } else {
            let found = self.rounds(variant, point);
            found.filter_map(|measures| Some((measures.round.unwrap_or(1), measure.of(measures)?))).collect()
        };
        (!rounds.is_empty()).then(|| Sample { rounds, scale: measure.scale(), ..Sample::default() })
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
