//! What a paper found, and whether it holds here: computed from what was measured, never written by hand.
//!
//! The experiments make [`Finding`]s of [`Check`]s; the page, the terminal and the table of `docs/experiments.md`
//! show them. Pure.
//!
//! A check compares a figure, mostly a ratio of two servers, with a bound. The figure is taken round by round, so
//! what a noisy machine does to both servers of a round cancels out. It holds when every round keeps the bound, it
//! does not hold when none does; otherwise it cannot be told, nor from fewer than [`ROUNDS_MIN`] rounds.

use serde::{Deserialize, Serialize};

use super::data::{Data, Measure, Sample};
use crate::report::number::figure;

/// Fewer rounds than this tell nothing of noise.
pub(super) const ROUNDS_MIN: usize = 3;
/// With more checks only the deciding one is shown.
const CHECKS_SHOWN: usize = 2;
/// What counts as much the same: the papers' "little impact", "comparable", "competitive".
pub(super) const MUCH_THE_SAME: f64 = 0.85;
/// What counts as a drop, a decline or a lag that deserves the word.
pub(super) const CLEAR: f64 = 0.95;
/// What counts as a large one: "drastically", "significant".
pub(super) const LARGE: f64 = 0.7;

/// How a finding came out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// Every check holds.
    Holds,
    /// Nothing speaks against it, but parts are missing or too noisy.
    CannotBeTold,
    /// A check does not hold.
    DoesNotHold,
}

impl Verdict {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::CannotBeTold => "cannot be told",
            Self::DoesNotHold => "does not hold",
        }
    }
}

/// What a figure must keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// No more than this factor apart, either way; from 0 to 1.
    Alike(f64),
}

impl Bound {
    fn keeps(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Alike(share) => value >= share && value <= 1.0 / share,
        }
    }

    /// How far inside it a value is; below 0 outside. For ordering only.
    fn margin(self, value: f64) -> f64 {
        match self {
            Self::AtLeast(least) => value - least,
            Self::AtMost(most) => most - value,
            Self::Alike(share) => value.min(1.0 / value) - share,
        }
    }

    /// Whether what may lie beyond a figure could change what it says of it.
    fn could_change(self, sample: &Sample) -> bool {
        let value = sample.median();
        let (a_higher_one, a_lower_one) = match self {
            Self::AtLeast(least) => (value < least, value >= least),
            Self::AtMost(most) => (value <= most, value > most),
            Self::Alike(share) => (value <= 1.0 / share, value >= share),
        };
        sample.may_be_higher && a_higher_one || sample.may_be_lower && a_lower_one
    }

    fn words(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {}", short(least)),
            Self::AtMost(most) => format!("at most {}", short(most)),
            Self::Alike(share) => format!("{} to {}", short(share), short(1.0 / share)),
        }
    }
}

/// One comparison of a finding.
#[derive(Clone, Debug)]
pub(super) struct Check {
    verdict: Verdict,
    margin: f64,
    words: String,
}

impl Check {
    /// Compares a figure with a bound; `what` says of what it is.
    pub(super) fn of(what: &str, sample: &Sample, bound: Bound) -> Self {
        let (low, high) = sample.ends();
        let value = sample.median();
        let kept = sample.rounds.values().filter(|value| bound.keeps(**value)).count();
        let count = sample.rounds.len();
        let mut words = format!("{what}: {}", short(value));
        if count > 1 {
            words += &format!(" ({} to {})", short(low), short(high));
        }
        words += &format!(", the bound is {}", bound.words());
        let mut verdict = match kept {
            _ if count < ROUNDS_MIN => {
                words += &format!("; {count} of at least {ROUNDS_MIN} rounds");
                Verdict::CannotBeTold
            }
            0 => Verdict::DoesNotHold,
            kept if kept == count => Verdict::Holds,
            _ => {
                words += "; too noisy";
                Verdict::CannotBeTold
            }
        };
        if bound.could_change(sample) && verdict != Verdict::CannotBeTold {
            verdict = Verdict::CannotBeTold;
            words += "; the generator was the limit";
        }
        Self { verdict, margin: bound.margin(value), words }
    }

    /// What could not be compared, and why.
    pub(super) fn missing(why: &str) -> Self {
        Self {
            verdict: Verdict::CannotBeTold,
            margin: f64::NEG_INFINITY,
            words: format!("part missing: {why}"),
        }
    }
}

/// A figure that a check compares: of a variant at a point.
pub(super) type Cell<'a> = (&'a str, &'a str);

impl Data<'_> {
    /// The ratio of two cells, and what it is of.
    fn ratio(&self, left: Cell<'_>, right: Cell<'_>, measure: Measure) -> Result<(Sample, String), Check> {
        let find = |(variant, point): Cell<'_>| {
            self.sample(variant, point, measure)
                .ok_or_else(|| Check::missing(&self.why_missing(variant, point)))
        };
        let (a, b) = (find(left)?, find(right)?);
        let ratio = a.over(&b);
        if ratio.rounds.is_empty() {
            let why = format!("{} and {} share no round with figures", left.0, right.0);
            return Err(Check::missing(&why));
        }
        let left_at = if left.1 == right.1 { String::new() } else { format!(" at {}", left.1) };
        let right_at = format!(" at {}", right.1);
        let right_name = if left.0 == right.0 { String::new() } else { format!("{} ", right.0) };
        let what = format!(
            "{} {}{left_at} against {right_name}{} {}{right_at}",
            left.0,
            short(a.median()),
            short(b.median()),
            measure.unit()
        );
        Ok((ratio, what))
    }

    /// Left over right, against a bound.
    pub(super) fn compare(&self, left: Cell<'_>, right: Cell<'_>, measure: Measure, bound: Bound) -> Check {
        match self.ratio(left, right, measure) {
            Ok((ratio, what)) => Check::of(&what, &ratio, bound),
            Err(check) => check,
        }
    }

    /// The same at each of these points.
    pub(super) fn compare_at(
        &self,
        points: &[String],
        left: &str,
        right: &str,
        measure: Measure,
        bound: Bound,
    ) -> Vec<Check> {
        points.iter().map(|point| self.compare((left, point), (right, point), measure, bound)).collect()
    }

    /// The geometric mean over these points of left over right, against a bound.
    pub(super) fn compare_over(
        &self,
        points: &[String],
        left: &str,
        right: &str,
        measure: Measure,
        bound: Bound,
    ) -> Check {
        let mut ratios = Vec::new();
        for point in points {
            match self.ratio((left, point), (right, point), measure) {
                Ok((ratio, _)) => ratios.push(ratio),
                Err(check) => return check,
            }
        }
        match Sample::mean_of(&ratios) {
            Some(mean) => {
                let what =
                    format!("{left} over {right}, {}, mean of {} points", measure.unit(), ratios.len());
                Check::of(&what, &mean, bound)
            }
            None => Check::missing("there are no points"),
        }
    }

    /// The ratio of two ratios, against a bound: is left farther above right in the first pair than in the second?
    pub(super) fn compare_ratios(
        &self,
        what: &str,
        first: (Cell<'_>, Cell<'_>),
        second: (Cell<'_>, Cell<'_>),
        measure: Measure,
        bound: Bound,
    ) -> Check {
        let ratios = self.ratio(first.0, first.1, measure).and_then(|(a, _)| {
            let (b, _) = self.ratio(second.0, second.1, measure)?;
            Ok((a, b))
        });
        match ratios {
            Ok((a, b)) => {
                let what = format!("{what}: {} against {} times", short(a.median()), short(b.median()));
                Check::of(&what, &a.over(&b), bound)
            }
            Err(check) => check,
        }
    }

    /// A figure itself against a bound.
    pub(super) fn figure(&self, (variant, point): Cell<'_>, measure: Measure, bound: Bound) -> Check {
        match self.sample(variant, point, measure) {
            Some(sample) => Check::of(&format!("{variant}, {}", measure.unit()), &sample, bound),
            None => Check::missing(&self.why_missing(variant, point)),
        }
    }

    /// The difference of two figures, against a bound.
    pub(super) fn difference(
        &self,
        left: Cell<'_>,
        right: Cell<'_>,
        measure: Measure,
        bound: Bound,
    ) -> Check {
        match (self.sample(left.0, left.1, measure), self.sample(right.0, right.1, measure)) {
            (Some(a), Some(b)) => {
                let what = format!(
                    "{} {} less {} {}, {}",
                    left.0,
                    short(a.median()),
                    right.0,
                    short(b.median()),
                    measure.unit()
                );
                Check::of(&what, &a.minus(&b), bound)
            }
            (None, _) => Check::missing(&self.why_missing(left.0, left.1)),
            (_, None) => Check::missing(&self.why_missing(right.0, right.1)),
        }
    }
}

/// What a paper found, and what was found here.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The experiment's name and its own: stays the same over versions.
    pub(super) id: String,
    /// The text and its section.
    pub(super) source: String,
    /// What it says, in short.
    pub(super) paper: String,
    /// What was measured here.
    pub(super) ours: String,
    pub(super) verdict: Verdict,
}

impl Finding {
    /// Puts the checks of a finding together.
    pub(super) fn new(id: &str, source: &str, paper: &str, checks: Vec<Check>) -> Self {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::CannotBeTold);
        let (id, source, paper) = (id.to_owned(), source.to_owned(), paper.to_owned());
        Self { id, source, paper, ours: ours(checks, verdict), verdict }
    }
}

/// The checks in words: all of them where they are few, else the one that decided by the least margin.
fn ours(mut checks: Vec<Check>, verdict: Verdict) -> String {
    let count = checks.len();
    if count > CHECKS_SHOWN {
        checks.retain(|check| check.verdict == verdict);
        checks.sort_by(|a, b| a.margin.total_cmp(&b.margin));
        let alike = checks.len();
        checks.truncate(1);
        let mut words = checks.remove(0).words;
        words += &match verdict {
            Verdict::Holds => format!("; the closest of {count} comparisons"),
            Verdict::CannotBeTold => format!("; so {alike} of {count} comparisons"),
            Verdict::DoesNotHold => format!("; so {alike} of {count} comparisons, this one most"),
        };
        return words;
    }
    checks.iter().map(|check| check.words.as_str()).collect::<Vec<_>>().join("; ")
}

/// A figure in a sentence.
fn short(value: f64) -> String {
    figure(value)
}

#[cfg(test)]
#[path = "finding_tests.rs"]
mod tests;
