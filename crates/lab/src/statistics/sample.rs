//! A figure round by round: its median, its interval, and the ratio or difference of two. Pure.
//!
//! Two figures are put together within each round, so a disturbance of a round is in both. Rounds that do not count are kept apart with
//! the causes.

use std::collections::{BTreeMap, BTreeSet};

use super::interval;
use flash_load::measure::times::median;
use flash_load::measure::validity::Cause;

/// How the rounds of a sample differ from one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Scale {
    /// By factors: rates, times, ratios. All values are above 0.
    #[default]
    Factor,
    /// By amounts: shares, which may be 0, and their differences.
    Amount,
}

/// How the true value of a round is to the one that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// It is at least as high.
    Least,
    /// It is at most as high.
    Most,
}

impl Limit {
    fn of_inverse(self) -> Self {
        match self {
            Self::Least => Self::Most,
            Self::Most => Self::Least,
        }
    }
}

/// A figure, round by round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// The rounds that count.
    pub(crate) rounds: BTreeMap<u32, f64>,
    /// Those of them whose value only limits the true one, as the times of a server do whose queue grows.
    pub(crate) limits: BTreeMap<u32, Limit>,
    /// The rounds that do not, with the causes.
    pub(crate) doubted: BTreeMap<u32, BTreeSet<Cause>>,
    pub(crate) scale: Scale,
}

impl Sample {
    pub(crate) fn median(&self) -> f64 {
        median(self.rounds.values().copied().collect())
    }

    /// The mean of the rounds that the interval is around: of factors the geometric one; NaN of no rounds.
    pub(crate) fn mean(&self) -> f64 {
        let values = || self.rounds.values();
        let mean = |sum: f64| sum / self.rounds.len() as f64;
        match self.scale {
            Scale::Factor => mean(values().map(|value| value.ln()).sum()).exp(),
            Scale::Amount => mean(values().sum()),
        }
    }

    /// The least and the most of the rounds.
    pub(crate) fn ends(&self) -> (f64, f64) {
        let values = || self.rounds.values().copied();
        (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max))
    }

    /// The number and the value of the round in the middle; of an even number of rounds the lower one of two.
    pub(crate) fn middle(&self) -> Option<(u32, f64)> {
        let mut rounds: Vec<(u32, f64)> = self.rounds.iter().map(|(round, value)| (*round, *value)).collect();
        rounds.sort_by(|a, b| a.1.total_cmp(&b.1));
        rounds.get(rounds.len().checked_sub(1)? / 2).copied()
    }

    /// The 95 % confidence interval, open on the side where rounds do not limit it; none of too few rounds.
    pub(crate) fn interval(&self) -> Option<[f64; 2]> {
        let values: Vec<f64> = self.rounds.values().copied().collect();
        let [low, high] = match self.scale {
            Scale::Factor => interval::of_ratios(&values),
            Scale::Amount => interval::of_differences(&values),
        }?;
        let has = |limit| self.limits.values().any(|known| *known == limit);
        Some([
            if has(Limit::Most) { f64::NEG_INFINITY } else { low },
            if has(Limit::Least) { f64::INFINITY } else { high },
        ])
    }

    pub(crate) fn rounds_run(&self) -> usize {
        self.rounds.len() + self.doubted.len()
    }

    /// A figure made of both in each round that counts for both: a disturbance of a round is in both. A round in doubt
    /// for one is in doubt for both, and one that is limited on both sides is known in no way.
    fn with(&self, other: &Self, of: impl Fn(f64, f64) -> f64) -> Self {
        let mut doubted = self.doubted.clone();
        for (round, causes) in &other.doubted {
            doubted.entry(*round).or_default().extend(causes);
        }
        let mut limits = self.limits.clone();
        for (round, limit) in &other.limits {
            if *limits.entry(*round).or_insert(*limit) != *limit {
                doubted.entry(*round).or_default().insert(Cause::Overloaded);
            }
        }
        let both = self
            .rounds
            .iter()
            .filter_map(|(round, left)| Some((*round, of(*left, *other.rounds.get(round)?))));
        let rounds: BTreeMap<u32, f64> =
            both.filter(|(round, value)| value.is_finite() && !doubted.contains_key(round)).collect();
        limits.retain(|round, _| rounds.contains_key(round));
        Self { rounds, limits, doubted, scale: self.scale }
    }

    /// The same with what falls where the figure rises.
    fn inverse(&self) -> Self {
        let limits = self.limits.iter().map(|(round, limit)| (*round, limit.of_inverse())).collect();
        Self { limits, ..self.clone() }
    }

    pub(crate) fn over(&self, other: &Self) -> Self {
        let mut ratio = self.with(&other.inverse(), |left, right| left / right);
        ratio.rounds.retain(|_, value| *value > 0.0);
        Self { scale: Scale::Factor, ..ratio }
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        Self { scale: Scale::Amount, ..self.with(&other.inverse(), |left, right| left - right) }
    }

    /// The geometric mean of several, round by round: that of ratios.
    pub(crate) fn mean_of(samples: &[Self]) -> Option<Self> {
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
