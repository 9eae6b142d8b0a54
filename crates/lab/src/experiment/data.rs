//! The measurements as findings and plots ask for them: a measure of a server at a point, round by round.
//!
//! [`super::finding`] compares the samples. A round whose figures do not count ([`validity`]) is kept apart with the
//! causes. This module computes nothing but medians, ratios, differences and means of ratios. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::inside::{IDLE_SHARE, Inside, RUNNABLE_SHARE};
use crate::interval::Interval;
use crate::results::Run;
use flash_load::measure::Measures;
use flash_load::measure::times::median;
use flash_load::measure::validity::{self, Cause};

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

impl Measure {
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

/// How the rounds of a sample differ from one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scale {
    /// By factors: rates, times, ratios. All values are above 0.
    #[default]
    Factor,
    /// By amounts: shares, which may be 0, and their differences.
    Amount,
}

/// A figure, round by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// The rounds that count.
    pub(super) rounds: BTreeMap<u32, f64>,
    /// The rounds that do not, with the causes.
    pub(super) doubted: BTreeMap<u32, BTreeSet<Cause>>,
    pub(super) scale: Scale,
}

impl Sample {
    /// The median of the rounds.
    pub(super) fn median(&self) -> f64 {
        median(self.rounds.values().copied().collect())
    }

    /// The least and the most of the rounds.
    pub(super) fn ends(&self) -> (f64, f64) {
        let values = || self.rounds.values().copied();
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }

    /// The number and the value of the round in the middle; of an even number of rounds the lower one of two.
    pub(super) fn middle(&self) -> Option<(u32, f64)> {
        let mut rounds: Vec<(u32, f64)> = self.rounds.iter().map(|(round, value)| (*round, *value)).collect();
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        rounds.get(rounds.len().checked_sub(1)? / 2).copied()
    }

    /// The 95 % confidence interval; none of too few rounds.
    pub(super) fn interval(&self) -> Option<Interval> {
        let values: Vec<f64> = self.rounds.values().copied().collect();
        match self.scale {
            Scale::Factor => Interval::of_ratios(&values),
            Scale::Amount => Interval::of_differences(&values),
        }
    }

    /// How many rounds there were, those that do not count included.
    pub(super) fn rounds_run(&self) -> usize {
        self.rounds.len() + self.doubted.len()
    }

    /// A figure made of both in each round that counts for both: a disturbance of a round is in both. A round in doubt
    /// for one is in doubt for both.
    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        let mut doubted = self.doubted.clone();
        for (round, causes) in &other.doubted {
            doubted.entry(*round).or_default().extend(causes);
        }
        let both = self
            .rounds
            .iter()
            .filter_map(|(round, left)| Some((*round, of(*left, *other.rounds.get(round)?))));
        let rounds =
            both.filter(|(round, value)| value.is_finite() && !doubted.contains_key(round)).collect();
        Self { rounds, doubted, scale: self.scale }
    }

    /// The ratio, round by round.
    pub(super) fn over(&self, other: &Self) -> Self {
        let mut ratio = self.with(other, |left, right| left / right);
        ratio.rounds.retain(|_, value| *value > 0.0);
        Self { scale: Scale::Factor, ..ratio }
    }

    /// The difference, round by round.
    pub(super) fn minus(&self, other: &Self) -> Self {
        Self { scale: Scale::Amount, ..self.with(other, |left, right| left - right) }
    }

    /// The geometric mean of several, round by round: that of ratios.
    pub(super) fn mean_of(samples: &[Self]) -> Option<Self> {
        let (first, others) = samples.split_first()?;
        let mut product = first.clone();
        for other in others {
            product = product.with(other, |left, right| left * right);
        }
        let root = 1.0 / samples.len() as f64;
        product.rounds.values_mut().for_each(|value| *value = value.powf(root));
        Some(product)
    }
}

/// Everything that was measured.
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

    /// Why a variant has no figures at a point, as far as known.
    pub(super) fn why_missing(&self, variant: &str, point: &str) -> String {
        let subject = self.run.subjects.iter().find(|subject| subject.name == variant);
        match subject.map(|subject| &subject.missing) {
            None => format!("{variant} was not run"),
            Some(Some(why)) => format!("{variant} is missing: {why}"),
            Some(None) => format!("{variant} has no figures at {point}"),
        }
    }
}
