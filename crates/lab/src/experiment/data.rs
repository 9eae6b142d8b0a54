//! What was measured, as findings and plots ask for it: a measure of a server at a point, round by round.
//!
//! [`super::finding`] compares what it gives. It computes nothing but medians, ratios and means of ratios. Pure.

use std::collections::BTreeMap;

use super::inside::Inside;
use crate::measure::times::median;
use crate::results::{Measures, Run};

/// A generator that was busier than this in a closed loop was the limit: the server may do more.
const BUSY_SHARE_MAX: f64 = 0.95;
/// A generator that sent one request in a hundred late by more than this share of a latency, and by more than
/// the least, has made that latency longer than it is.
const LATE_SHARE_MAX: f64 = 0.1;
const LATE_LEAST_MS: f64 = 0.1;

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
    /// What the server counts by itself, by its name in [`Inside`].
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
            Self::Inside(name) => name,
        }
    }

    fn of(self, measures: &Measures) -> Option<f64> {
        let latency = &measures.latency;
        let is_answered = measures.counts.answered > 0;
        let value = match self {
            Self::Bandwidth => measures.megabits_per_s,
            Self::Rate => measures.answered_per_s,
            Self::Mean => latency.mean_ms,
            Self::P50 => latency.p50_ms,
            Self::P90 => latency.p90_ms,
            Self::P95 => latency.p95_ms,
            Self::P99 => latency.p99_ms,
            Self::Inversion => measures.inversion?,
            Self::Inside(_) => return None,
        };
        (value.is_finite() && is_answered).then_some(value)
    }

    fn is_latency(self) -> bool {
        matches!(self, Self::Mean | Self::P50 | Self::P90 | Self::P95 | Self::P99)
    }

    fn is_of_capacity(self) -> bool {
        matches!(self, Self::Bandwidth | Self::Rate)
    }
}

/// A figure, round by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) rounds: BTreeMap<u32, f64>,
    /// The generator was the limit: the true figure may be higher, or lower.
    pub(super) may_be_higher: bool,
    pub(super) may_be_lower: bool,
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

    /// Something of both in each round that both have: what disturbs a round disturbs both.
    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> BTreeMap<u32, f64> {
        let both = self
            .rounds
            .iter()
            .filter_map(|(round, left)| Some((*round, of(*left, *other.rounds.get(round)?))));
        both.filter(|(_, value)| value.is_finite()).collect()
    }

    fn against(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            rounds: self.with(other, of),
            may_be_higher: self.may_be_higher || other.may_be_lower,
            may_be_lower: self.may_be_lower || other.may_be_higher,
        }
    }

    /// The ratio, round by round.
    pub(super) fn over(&self, other: &Self) -> Self {
        self.against(other, |left, right| left / right)
    }

    /// The difference, round by round.
    pub(super) fn minus(&self, other: &Self) -> Self {
        self.against(other, |left, right| left - right)
    }

    /// The geometric mean of several, round by round: that of ratios.
    pub(super) fn mean_of(samples: &[Self]) -> Option<Self> {
        let (first, others) = samples.split_first()?;
        let mut product = first.clone();
        for other in others {
            product.rounds = product.with(other, |left, right| left * right);
            product.may_be_higher |= other.may_be_higher;
            product.may_be_lower |= other.may_be_lower;
        }
        let root = 1.0 / samples.len() as f64;
        product.rounds.values_mut().for_each(|value| *value = value.powf(root));
        Some(product)
    }
}

/// All that was measured.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) run: &'a Run,
    pub(super) inside: &'a [Inside],
}

impl Data<'_> {
    /// A figure of a variant at a point; none where that was not measured.
    pub(super) fn sample(&self, variant: &str, point: &str, measure: Measure) -> Option<Sample> {
        let mut sample = Sample::default();
        if let Measure::Inside(name) = measure {
            let found =
                self.inside.iter().filter(|inside| inside.variant == variant && inside.point == point);
            sample.rounds =
                found.filter_map(|inside| Some((inside.round, *inside.figures.get(name)?))).collect();
        } else {
            let subject = self.run.subjects.iter().find(|subject| subject.name == variant)?;
            // What a signal cut short is kept, and is no figure.
            let whole =
                subject.rounds.iter().filter(|round| round.name == point && round.ended_early.is_none());
            for measures in whole {
                if let Some(value) = measure.of(measures) {
                    sample.rounds.insert(measures.round.unwrap_or(1), value);
                    let is_closed = measures.asked_per_s.is_none();
                    sample.may_be_higher |= measure.is_of_capacity()
                        && is_closed
                        && measures.generator.busy_share > BUSY_SHARE_MAX;
                    let late_ms = measures.generator.late_p99_ms;
                    sample.may_be_lower |= measure.is_latency()
                        && !is_closed
                        && late_ms > (value * LATE_SHARE_MAX).max(LATE_LEAST_MS);
                }
            }
        }
        (!sample.rounds.is_empty()).then_some(sample)
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
