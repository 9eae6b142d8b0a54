//! How servers compare with the first one: ratios of the figures of each round, and their intervals over the rounds.
//!
//! [`super::run`] calls it at the end. A ratio is taken within each round, in which the servers took turns, so that a noisy
//! machine disturbs both; Student's t on the logarithms also holds for noise that one of them had alone. Pure.

use std::collections::BTreeSet;

use crate::results::{CPU_PER_ANSWER, Capacity, Ratio, Subject};
use crate::statistics::{ROUNDS_MIN, Sample, interval};
use flash_load::measure::validity::{self, Cause};
use flash_load::measure::{LatencyFigure, Measures};

/// A percentile that fewer requests of a round are beyond is a matter of those few.
const BEYOND_MIN: f64 = 5.0;

/// Compares each subject with the first: the capacity, then at each level that both have the latencies, then the CPU time of
/// an answer. A ratio of nothing, or by nothing, is left out.
pub(super) fn ratios(subjects: &[Subject]) -> Vec<Ratio> {
    let Some((base, others)) = subjects.split_first() else { return Vec::new() };
    let mut ratios = Vec::new();
    for other in others {
        ratios.extend(capacity(base, other));
        let levels =
            || base.levels.iter().filter(|level| other.levels.iter().any(|own| own.name == level.name));
        for level in levels() {
            ratios.extend(
                LatencyFigure::ALL.into_iter().filter_map(|figure| latency([base, other], level, figure)),
            );
        }
        ratios.extend(levels().filter_map(|level| cpu([base, other], level)));
    }
    ratios
}

/// Why ratios have no interval, where servers had too few rounds for one: a line for all of them.
pub(super) fn too_few_rounds(subjects: &[Subject]) -> Option<String> {
    let count = |subject: &Subject, level: &Measures| rounds(subject, level).count();
    let counts =
        || subjects.iter().flat_map(|subject| subject.levels.iter().map(move |level| count(subject, level)));
    let (fewest, most) = (counts().min()?, counts().max()?);
    let which = if most < ROUNDS_MIN { "no interval" } else { "no interval for some ratios" };
    let unit = if fewest == 1 { "round" } else { "rounds" };
    (fewest < ROUNDS_MIN).then(|| format!("{which}: {fewest} {unit} where {ROUNDS_MIN} are needed"))
}

fn rounds<'s>(subject: &'s Subject, level: &Measures) -> impl Iterator<Item = &'s Measures> {
    subject.rounds.iter().filter(move |round| round.name == level.name)
}

/// A figure of a level round by round, with the rounds whose figures do not count kept apart.
fn sample(
    subject: &Subject,
    level: &Measures,
    of: impl Fn(&Measures) -> Option<f64>,
    causes: impl Fn(&Measures) -> BTreeSet<Cause>,
) -> Sample {
    let mut sample = Sample::default();
    for round in rounds(subject, level) {
        let (number, causes) = (round.round.unwrap_or(1), causes(round));
        if !causes.is_empty() {
            sample.doubted.insert(number, causes);
        } else if let Some(value) = of(round).filter(|value| *value > 0.0) {
            sample.rounds.insert(number, value);
        }
    }
    sample
}

fn latency(pair: [&Subject; 2], level: &Measures, figure: LatencyFigure) -> Option<Ratio> {
    let of = |round: &Measures| Some(figure.of(&round.latency));
    let is_enough = |round: &Measures| round.counts.answered as f64 * figure.share_beyond() >= BEYOND_MIN;
    let has_enough = pair.iter().all(|subject| rounds(subject, level).all(is_enough));
    let ratio = ratio(figure.name(), pair, level, of, |round| validity::causes_about(round, Some(figure)))?;
    Some(Ratio { interval: ratio.interval.filter(|_| has_enough), ..ratio })
}

/// The CPU time of each answer. Neither a late generator nor a slow disk changes it.
fn cpu(pair: [&Subject; 2], level: &Measures) -> Option<Ratio> {
    let of = |round: &Measures| Some(round.server.as_ref()?.cpu_us_per_answer);
    ratio(CPU_PER_ANSWER, pair, level, of, |round| {
        validity::causes_about(round, None).into_iter().filter(|cause| *cause != Cause::Generator).collect()
    })
}

/// The geometric mean over the rounds that count for both; where none does, over all, which says nothing.
fn ratio(
    measure: &str,
    [base, subject]: [&Subject; 2],
    level: &Measures,
    of: impl Fn(&Measures) -> Option<f64>,
    causes: impl Fn(&Measures) -> BTreeSet<Cause>,
) -> Option<Ratio> {
    let over = |causes: &dyn Fn(&Measures) -> BTreeSet<Cause>| {
        sample(subject, level, &of, causes).over(&sample(base, level, &of, causes))
    };
    let counted = over(&causes);
    let interval = counted.interval();
    let doubt =
        validity::summary(counted.doubted.values(), counted.rounds_run()).filter(|_| interval.is_none());
    let shown = if counted.rounds.is_empty() { over(&|_| BTreeSet::new()) } else { counted };
    (!shown.rounds.is_empty()).then(|| Ratio {
        measure: measure.to_owned(),
        level: Some(level.name.clone()),
        subject: subject.name.clone(),
        base: base.name.clone(),
        ratio: shown.mean(),
        interval,
        doubt,
    })
}

/// Servers that took turns have as many rounds, and each round is compared with its own.
fn capacity(base: &Subject, subject: &Subject) -> Option<Ratio> {
    let (of_base, own) = (base.capacity.as_ref()?, subject.capacity.as_ref()?);
    let per_s = |capacity: &Capacity| Some(capacity.requests_per_s).filter(|rate| *rate > 0.0);
    let ratio = per_s(own)? / per_s(of_base)?;
    let (base_rounds, rounds) = (&of_base.rounds_requests_per_s, &own.rounds_requests_per_s);
    let ratios: Vec<f64> = rounds.iter().zip(base_rounds).map(|(own, base)| own / base).collect();
    let doubted = of_base.doubts.len() + own.doubts.len();
    let is_sound = doubted == 0 && base_rounds.len() == rounds.len();
    Some(Ratio {
        measure: "capacity".to_owned(),
        level: None,
        subject: subject.name.clone(),
        base: base.name.clone(),
        ratio,
        interval: interval::of_ratios(&ratios).filter(|_| is_sound),
        doubt: (doubted > 0).then(|| {
            format!("capacity in doubt in {doubted} of {} rounds", base_rounds.len() + rounds.len())
        }),
    })
}

#[cfg(test)]
#[path = "ratios_tests.rs"]
mod tests;
