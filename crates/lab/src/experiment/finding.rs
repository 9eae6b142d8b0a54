//! The findings of the papers, and whether they hold here: computed from the measurements, never written by hand.
//!
//! The experiments make [`Finding`]s of [`Check`]s; the page, the terminal and `docs/experiments.md` show them. Pure.
//!
//! A check compares a figure, mostly a ratio of two servers, with a bound. The ratio is taken round by round, so a
//! disturbance of a round is in both of its figures. Only rounds that count ([`flash_load::measure::validity`]) are
//! compared. The 95 % interval of the rounds decides: a bound holds when the whole interval keeps it, and does not hold
//! when the whole interval is beyond it by [`EFFECT_MIN`]. Otherwise, and with fewer than [`ROUNDS_MIN`] rounds that
//! count, it cannot be told. The times of an overloaded server grow as long as its load lasts: its rounds limit the figure on
//! one side, so they can decide one way only.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::data::{Data, Measure};
pub(super) use crate::statistics::ROUNDS_MIN;
use crate::statistics::{Sample, Scale};
use flash_kit::number::figure;
use flash_load::measure::validity::{self, Cause};

/// With more checks only the deciding one is shown.
const CHECKS_SHOWN: usize = 2;
/// A bound fails only by more than this share of it: less is not worth a verdict against a paper.
const EFFECT_MIN: f64 = 0.05;
/// The same for shares and their differences, which a bound of 0 has no share of.
const EFFECT_MIN_AMOUNT: f64 = 0.01;

/// How a finding came out.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Holds,
    /// No check fails, but some lack valid data.
    CannotBeTold,
    DoesNotHold,
}

impl Verdict {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::CannotBeTold => "cannot be told",
            Self::DoesNotHold => "does not hold",
        }
    }
}

/// The range that a finding asks a figure to be in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// No more than this factor apart, either way; from 0 to 1.
    Alike(f64),
}

impl Bound {
    /// The least and the most that it allows.
    fn ends(self) -> (f64, f64) {
        match self {
            Self::AtLeast(least) => (least, f64::INFINITY),
            Self::AtMost(most) => (f64::NEG_INFINITY, most),
            Self::Alike(share) => (share, 1.0 / share),
        }
    }

    /// The verdict that an interval of these rounds allows.
    fn verdict(self, [low, high]: [f64; 2], sample: &Sample) -> Verdict {
        let (least, most) = self.ends();
        let (too_low, too_high) = match sample.scale {
            Scale::Factor => (least / (1.0 + EFFECT_MIN), most * (1.0 + EFFECT_MIN)),
            Scale::Amount => (least - EFFECT_MIN_AMOUNT, most + EFFECT_MIN_AMOUNT),
        };
        let (lowest, highest) = sample.ends();
        // Rounds on both sides of what is allowed speak of noise, whatever their mean.
        let is_on_both_sides = lowest < least && highest > most;
        if low >= least && high <= most {
            Verdict::Holds
        } else if (high < too_low || low > too_high) && !is_on_both_sides {
            Verdict::DoesNotHold
        } else {
            Verdict::CannotBeTold
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

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("at least {}", figure(least)),
            Self::AtMost(most) => format!("at most {}", figure(most)),
            Self::Alike(share) => format!("{} to {}", figure(share), figure(1.0 / share)),
        }
    }
}

/// One comparison of a finding.
#[derive(Clone, Debug)]
pub(super) struct Check {
    verdict: Verdict,
    margin: f64,
    /// The figures, with the bound; without a semicolon, which stands between checks.
    text: String,
    /// Why it cannot be told, when it cannot.
    why: Option<String>,
    columns: Box<Columns>,
}

/// The same in the columns of a table; empty where there is no figure.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Columns {
    pub(super) figures: String,
    pub(super) value: String,
    pub(super) interval: String,
    pub(super) bound: String,
}

/// The ends of an interval, which may be open on one side.
fn interval_text([low, high]: [f64; 2]) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => [low, high].map(figure).join(" to "),
        (true, false) => format!("at least {}", figure(low)),
        (false, true) => format!("at most {}", figure(high)),
        (false, false) => "open".to_owned(),
    }
}

impl Check {
    /// Compares a figure with a bound; `name` says in a sentence which figure it is.
    pub(super) fn of(name: &str, sample: &Sample, bound: Bound) -> Self {
        let (count, bound_text) = (sample.rounds.len(), bound.text());
        let overloaded = BTreeSet::from([Cause::Overloaded]);
        let limited = sample.limits.values().map(|_| &overloaded);
        let doubts = validity::summary(sample.doubted.values(), sample.rounds_run());
        let all_doubts = validity::summary(limited.chain(sample.doubted.values()), sample.rounds_run());
        let (value, margin) = match sample.middle() {
            Some((_, value)) => (figure(value), bound.margin(value)),
            None => ("no round counts".to_owned(), f64::NEG_INFINITY),
        };
        let columns = Box::new(Columns {
            figures: name.to_owned(),
            value: if count == 0 { String::new() } else { value.clone() },
            interval: sample.interval().map(interval_text).unwrap_or_default(),
            bound: bound_text.clone(),
        });
        let Some(interval) = sample.interval() else {
            let text = format!("{name}: {value}, the bound is {bound_text}");
            let plural = if count == 1 { "" } else { "s" };
            let few = format!("{count} round{plural} where {ROUNDS_MIN} are needed");
            let why = Some(all_doubts.unwrap_or(few));
            return Self { verdict: Verdict::CannotBeTold, margin, text, why, columns };
        };
        let ends = &columns.interval;
        let mut text =
            format!("{name}: {value}, 95 % interval {ends} of {count} rounds, the bound is {bound_text}");
        let verdict = bound.verdict(interval, sample);
        let is_limited = !sample.limits.is_empty();
        let of_limits = all_doubts.filter(|_| is_limited);
        let why = (verdict == Verdict::CannotBeTold)
            .then(|| of_limits.unwrap_or_else(|| "the interval includes the bound".to_owned()));
        if is_limited {
            text += &format!(", overloaded in {} of them", sample.limits.len());
        }
        if let Some(doubts) = doubts {
            text += &format!(", not counted: {doubts}");
        }
        Self { verdict, margin, text, why, columns }
    }

    /// The same for a figure that has no interval, as the most of all rounds.
    pub(super) fn without_interval(mut self) -> Self {
        self.text = self.text.replace(&format!(", 95 % interval {}", self.columns.interval), "");
        self.columns.interval.clear();
        self
    }

    /// A comparison that lacks figures, and why.
    pub(super) fn missing(why: &str) -> Self {
        Self {
            verdict: Verdict::CannotBeTold,
            margin: f64::NEG_INFINITY,
            text: format!("part missing: {why}"),
            why: Some("a part is missing".to_owned()),
            columns: Box::new(Columns { figures: why.to_owned(), ..Columns::default() }),
        }
    }
}

/// A figure that a check compares: of a variant at a point.
pub(super) type Cell<'a> = (&'a str, &'a str);
/// The two cells of a comparison.
pub(super) type Pair<'a> = (Cell<'a>, Cell<'a>);

/// The figures behind the one in the middle of a sample that was made of two others.
fn pair(sample: &Sample, left: &Sample, right: &Sample) -> Option<[String; 2]> {
    let (round, _) = sample.middle()?;
    Some([figure(*left.rounds.get(&round)?), figure(*right.rounds.get(&round)?)])
}

/// A sample and its name in a sentence, or the check that says which figures it lacks.
pub(super) type Named = Result<(String, Sample), Check>;

impl Data<'_> {
    fn cell(&self, (variant, point): Cell<'_>, measure: Measure) -> Result<Sample, Check> {
        let missing = || Check::missing(&self.why_missing(variant, point));
        self.sample(variant, point, measure).ok_or_else(missing)
    }

    /// The ratio of two cells: its name has the pair of figures of the round in the middle, whose ratio is shown.
    pub(super) fn ratio(&self, (left, right): Pair<'_>, measure: Measure) -> Named {
        let (a, b) = (self.cell(left, measure)?, self.cell(right, measure)?);
        let ratio = a.over(&b);
        if ratio.rounds_run() == 0 {
            let why = format!("{} and {} share no round with figures", left.0, right.0);
            return Err(Check::missing(&why));
        }
        let left_at = if left.1 == right.1 { String::new() } else { format!(" at {}", left.1) };
        let right_name = if left.0 == right.0 { String::new() } else { format!(" {}", right.0) };
        let (unit, right_at) = (measure.unit, right.1);
        let name = match pair(&ratio, &a, &b) {
            Some([a, b]) => format!("{} {a}{left_at} against{right_name} {b} {unit} at {right_at}", left.0),
            None => format!("{}{left_at} against{right_name} at {right_at}, {unit}", left.0)
                .replace("against at", "against that at"),
        };
        Ok((name, ratio))
    }

    /// The ratio of two measures of two cells.
    pub(super) fn ratio_of_measures(
        &self,
        name: &str,
        (left, right): Pair<'_>,
        of: (Measure, Measure),
    ) -> Named {
        let (a, b) = (self.cell(left, of.0)?, self.cell(right, of.1)?);
        Ok((name.to_owned(), a.over(&b)))
    }

    /// The geometric mean over these points of left over right.
    pub(super) fn mean_ratio(&self, points: &[&str], (left, right): (&str, &str), measure: Measure) -> Named {
        let ratio = |point: &&str| Ok(self.ratio(((left, point), (right, point)), measure)?.1);
        let ratios = points.iter().map(ratio).collect::<Result<Vec<_>, _>>()?;
        let mean = Sample::mean_of(&ratios).ok_or_else(|| Check::missing("there are no points"))?;
        Ok((format!("{left} over {right}, {}, mean of {} points", measure.unit, ratios.len()), mean))
    }

    /// The ratio of two ratios: is left farther above right in the first pair than in the second?
    pub(super) fn ratio_of_ratios(&self, name: &str, pairs: (Pair<'_>, Pair<'_>), measure: Measure) -> Named {
        let ((_, a), (_, b)) = (self.ratio(pairs.0, measure)?, self.ratio(pairs.1, measure)?);
        let ratio = a.over(&b);
        let pair = pair(&ratio, &a, &b).map(|[a, b]| format!(": {a} against {b} times"));
        Ok((format!("{name}{}", pair.unwrap_or_default()), ratio))
    }

    pub(super) fn figure(&self, cell: Cell<'_>, measure: Measure) -> Named {
        Ok((format!("{}, {}", cell.0, measure.unit), self.cell(cell, measure)?))
    }

    pub(super) fn difference(&self, (left, right): Pair<'_>, measure: Measure) -> Named {
        let (a, b) = (self.cell(left, measure)?, self.cell(right, measure)?);
        let difference = a.minus(&b);
        let pair = pair(&difference, &a, &b).map(|pair| pair.map(|value| format!(" {value}")));
        let [a, b] = pair.unwrap_or_default();
        Ok((format!("{}{a} less {}{b}, {}", left.0, right.0, measure.unit), difference))
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The experiment's name and its own: stays the same over versions.
    pub(super) id: String,
    /// The text and its section.
    pub(super) source: String,
    /// The claim, in short.
    pub(super) paper: String,
    /// The figures here.
    pub(super) ours: String,
    pub(super) verdict: Verdict,
    /// Why it cannot be told, when it cannot: "overloaded in 3 of 5 rounds".
    #[serde(default)]
    pub(super) why: Option<String>,
    /// The deciding comparison.
    #[serde(default)]
    pub(super) columns: Columns,
}

impl Finding {
    pub(super) fn new(id: &str, source: &str, paper: &str, checks: Vec<Check>) -> Self {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::CannotBeTold);
        let (id, source, paper) = (id.to_owned(), source.to_owned(), paper.to_owned());
        let columns = deciding(&checks, verdict).map(|check| (*check.columns).clone()).unwrap_or_default();
        let (ours, why) = ours(checks, verdict);
        Self { id, source, paper, ours, verdict, why, columns }
    }

    /// The verdict, with the reason where it cannot be told.
    pub(super) fn text(&self) -> String {
        match &self.why {
            Some(why) => format!("{}: {why}", self.verdict.text()),
            None => self.verdict.text().to_owned(),
        }
    }
}

/// The check that decided by the least margin.
fn deciding(checks: &[Check], verdict: Verdict) -> Option<&Check> {
    let deciding = checks.iter().filter(|check| check.verdict == verdict);
    deciding.min_by(|a, b| a.margin.total_cmp(&b.margin))
}

/// The checks in words, all of them where they are few, else the one that decided by the least margin; and why they
/// cannot be told.
fn ours(mut checks: Vec<Check>, verdict: Verdict) -> (String, Option<String>) {
    let count = checks.len();
    let deciding = deciding(&checks, verdict).cloned();
    let why =
        deciding.as_ref().filter(|_| verdict == Verdict::CannotBeTold).and_then(|check| check.why.clone());
    let Some(deciding) = deciding.filter(|_| count > CHECKS_SHOWN) else {
        return (checks.iter().map(|check| check.text.as_str()).collect::<Vec<_>>().join("; "), why);
    };
    checks.retain(|check| check.verdict == verdict);
    let alike = checks.len();
    let of_how_many = match verdict {
        Verdict::Holds => format!("the closest of {count} comparisons"),
        Verdict::CannotBeTold => format!("as in {alike} of {count} comparisons"),
        Verdict::DoesNotHold => format!("as in {alike} of {count} comparisons, this one by the most"),
    };
    (format!("{} ({of_how_many})", deciding.text), why)
}

#[cfg(test)]
#[path = "finding_tests.rs"]
mod tests;
