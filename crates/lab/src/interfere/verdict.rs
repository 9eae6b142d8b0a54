//! The verdict on one server: whether its hot requests waited for the disk or the application, or why that cannot be
//! told.
//!
//! [`super::run`] calls it with the rounds of a server. A verdict rests on ratios paired by round: the same hot requests
//! beside other ones and alone, seconds apart, on the same server process. Pure.

use flash_kit::number::{self, figure, percent, time};
use flash_load::measure::validity::{self, ACHIEVED_SHARE_MIN, BUSY_SHARE_MAX, Cause, FAILED_SHARE_MAX};
use flash_load::measure::{LatencyFigure, Measures, per};

use super::beside::BesideTexts;
use crate::statistics::{ROUNDS_MIN, interval};

/// Failures that only mean that a request waited too long: of a request beside the hot ones no fault, of a hot one the finding.
const WAITED: [&str; 2] = ["aborted", "unanswered"];
/// The failure by which a server sheds load.
const OVERLOADED: &str = "status 503";
/// The most reasons that are printed.
const REASONS_MAX: usize = 2;

/// The most that other requests may cost hot ones. The comments of its options are their help.
#[derive(Clone, Copy, Debug, PartialEq, clap::Args)]
#[command(next_help_heading = "Verdict")]
pub struct Bounds {
    /// Most that the p50 of hot requests may grow by the others, as a multiple of the p50 alone
    #[arg(long = "p50-times", value_name = "N", default_value_t = 1.1)]
    pub p50_ratio_max: f64,

    /// The same for the p99
    #[arg(long = "p99-times", value_name = "N", default_value_t = 1.5)]
    pub p99_ratio_max: f64,

    /// The same for the p99.9, which few requests are beyond: a verdict of calm does not need it
    #[arg(long = "p999-times", value_name = "N", default_value_t = 2.0)]
    pub p999_ratio_max: f64,
}

pub(super) struct Round<'a> {
    pub(super) alone: &'a Measures,
    pub(super) beside: &'a Measures,
    pub(super) others: &'a Measures,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The others cost the hot requests no more than the bounds allow.
    Calm,
    /// They cost more.
    Waited,
    /// The data are not good enough.
    CannotTell,
}

/// A ratio of one percentile: beside other requests over alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Paired {
    pub(super) figure: LatencyFigure,
    /// The median of the rounds' ratios.
    pub(super) ratio: f64,
    /// The 95 % interval of the mean of their logarithms.
    pub(super) interval: [f64; 2],
    /// Alone and beside other requests, milliseconds, in the round that has the median ratio.
    pub(super) pair_ms: [f64; 2],
    max: f64,
}

/// A verdict and its reasons.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) text: String,
    /// Empty where too few rounds are good.
    pub(super) ratios: Vec<Paired>,
}

/// A percentile that is compared, and its bound.
struct Point {
    figure: LatencyFigure,
    max: f64,
}

/// Judges the rounds of a server.
pub(super) fn judge(rounds: &[Round<'_>], bounds: &Bounds, texts: BesideTexts) -> Judged {
    let mut spoiled: Vec<String> = Vec::new();
    let mut good = Vec::new();
    for (number, round) in (1..).zip(rounds) {
        match fault(round, texts) {
            Some(why) => spoiled.push(format!("round {number}: {why}")),
            None => good.push(round),
        }
    }
    if good.len() < ROUNDS_MIN {
        let reasons = if spoiled.is_empty() { String::new() } else { format!(" ({})", shown(&spoiled)) };
        let text = format!(
            "cannot be told: {} of {} rounds are good, and a verdict needs {ROUNDS_MIN}{reasons}",
            good.len(),
            rounds.len()
        );
        return Judged { verdict: Verdict::CannotTell, text, ratios: Vec::new() };
    }
    let points = [
        Point { figure: LatencyFigure::P50, max: bounds.p50_ratio_max },
        Point { figure: LatencyFigure::P99, max: bounds.p99_ratio_max },
        Point { figure: LatencyFigure::P999, max: bounds.p999_ratio_max },
    ];
    let (mut ratios, mut untold) = (Vec::new(), Vec::new());
    for point in &points {
        // Each percentile stands on its own: what holds up one request in 100 does not move the median. Nor does it spoil a wait
        // far longer than itself: the verdict would be the same without it.
        let is_spoiled = |round: &&&Round<'_>| point.disturbance(round).is_some();
        let is_excused = good.iter().filter(is_spoiled).all(|round| point.is_clear(round));
        let sound: Vec<&Round<'_>> =
            good.iter().filter(|round| is_excused || !is_spoiled(round)).copied().collect();
        if sound.len() >= ROUNDS_MIN {
            ratios.push(paired(point, &sound));
        } else if point.is_needed() {
            let why = good.iter().find_map(|round| point.disturbance(round)).unwrap_or_default();
            let (spoiled, of, name) = (good.len() - sound.len(), good.len(), point.figure.name());
            untold.push(format!("{name}: {spoiled} of {of} rounds do not count ({why})"));
        }
    }
    let left_out = match spoiled.len() {
        0 => String::new(),
        count => format!("; {count} of {} rounds left out ({})", rounds.len(), shown(&spoiled)),
    };
    let unanswered = Unanswered {
        hot: good.iter().map(|round| unanswered(round.beside)).sum(),
        asked: good.iter().map(|round| round.beside.counts.asked).sum(),
    };
    let (verdict, said) = said(&ratios, &untold, unanswered, texts);
    Judged { verdict, text: said + &left_out, ratios }
}

/// Hot requests beside others that had no answer at the end, and all of them.
#[derive(Clone, Copy)]
struct Unanswered {
    hot: u64,
    asked: u64,
}

impl Point {
    /// Whether a verdict needs it: too few requests are beyond the p99.9 for that.
    fn is_needed(&self) -> bool {
        self.figure != LatencyFigure::P999
    }

    /// Why this percentile of a phase may be of the machine's making: a late generator, or other work on the cores.
    fn disturbance(&self, round: &Round<'_>) -> Option<String> {
        let is_it = |doubt: &validity::Doubt| matches!(doubt.cause(), Cause::Generator | Cause::OtherWork);
        [round.alone, round.beside].into_iter().find_map(|hot| {
            let doubts = validity::doubts_about(hot, &[self.figure]);
            doubts.into_iter().find(is_it).map(|doubt| doubt.to_string())
        })
    }

    /// Whether the hot requests of a round waited longer than the bound allows, however late the generator was.
    fn is_clear(&self, round: &Round<'_>) -> bool {
        let Round { alone, beside, .. } = round;
        let least_ms = self.figure.of(&beside.latency) - self.figure.late_ms(&beside.generator);
        least_ms > self.figure.of(&alone.latency) * self.max
    }
}

/// The first reasons, and how many more there are.
fn shown(reasons: &[String]) -> String {
    let more = reasons.len().saturating_sub(REASONS_MAX);
    let list = reasons[..reasons.len() - more].join("; ");
    if more == 0 { list } else { format!("{list}; and {more} more") }
}

/// The verdict of these ratios, of the percentiles that cannot be told, and of hot requests without an answer, in words.
fn said(
    ratios: &[Paired],
    untold: &[String],
    unanswered: Unanswered,
    texts: BesideTexts,
) -> (Verdict, String) {
    let BesideTexts { cause, others, .. } = texts;
    let list = |chosen: Vec<&Paired>| {
        chosen.into_iter().map(|ratio| ratio.text(others)).collect::<Vec<_>>().join(", ")
    };
    let above: Vec<&Paired> = ratios.iter().filter(|ratio| ratio.interval[0] > ratio.max).collect();
    if !above.is_empty() || unanswered.hot > 0 {
        let Unanswered { hot, asked } = unanswered;
        let count =
            (hot > 0).then(|| format!("{} of {} had no answer", number::count(hot), number::count(asked)));
        let found: Vec<String> =
            Some(list(above)).filter(|text| !text.is_empty()).into_iter().chain(count).collect();
        return (Verdict::Waited, format!("hot requests waited for {cause}: {}", found.join(", ")));
    }
    let is_decisive = |ratio: &&Paired| ratio.figure != LatencyFigure::P999 || ratio.interval[1] <= ratio.max;
    let (unclear, calm): (Vec<&Paired>, Vec<&Paired>) =
        ratios.iter().filter(is_decisive).partition(|ratio| ratio.interval[1] > ratio.max);
    if unclear.is_empty() && untold.is_empty() {
        return (Verdict::Calm, format!("hot requests did not wait for {cause}: {}", list(calm)));
    }
    let mut reasons = untold.to_vec();
    if !unclear.is_empty() {
        reasons.push(format!("the rounds differ too much: {}", list(unclear)));
    }
    let kept =
        if calm.is_empty() { String::new() } else { format!("; they did not wait by their {}", list(calm)) };
    let text = format!(
        "cannot be told: {}{kept}; use more or longer rounds, or a quieter machine",
        reasons.join("; ")
    );
    (Verdict::CannotTell, text)
}

impl Paired {
    /// "p99 1.4 ms alone, 2,259 ms with cold requests (1,600 times, 1,400 to 1,800; at most 1.50 allowed)".
    fn text(&self, others: &str) -> String {
        let [alone_ms, beside_ms] = self.pair_ms;
        let [low, high] = self.interval;
        format!(
            "{} {} alone, {} with {others} requests ({} times, 95 % interval {} to {}; at most {} allowed)",
            self.figure.name(),
            time(alone_ms),
            time(beside_ms),
            figure(self.ratio),
            figure(low),
            figure(high),
            figure(self.max)
        )
    }
}

/// Why a round is no ground for a verdict, apart from a late generator; none for a good one.
fn fault(round: &Round<'_>, texts: BesideTexts) -> Option<String> {
    let Round { alone, beside, others } = round;
    let achieved = per(alone.answered_per_s, alone.asked_per_s.unwrap_or(0.0));
    // Arrivals are random: answers are compared with actual arrivals, not with the plan.
    let arrived_per_s = per(alone.counts.asked as f64, alone.duration_s);
    let kept_up = per(alone.answered_per_s, arrived_per_s).max(achieved);
    if kept_up < ACHIEVED_SHARE_MIN {
        return Some(format!(
            "overloaded: of the hot requests alone {} were answered in time, ask for fewer",
            percent(kept_up)
        ));
    }
    if unanswered(alone) > 0 {
        return Some(format!("{} hot requests alone had no answer", unanswered(alone)));
    }
    let of_hot = |hot: &Measures| failures(hot, "hot").or_else(|| busy(hot)).or_else(|| evicted(hot));
    if let Some(why) = of_hot(alone).or_else(|| of_hot(beside)) {
        return Some(why);
    }
    if others.counts.answered == 0 {
        return Some(format!("no {} request was answered", texts.others));
    }
    // A request that failed did not wait for the disk or the application.
    if let Some(why) = failures(others, texts.others) {
        let was_refused = others.counts.failed.contains_key(OVERLOADED);
        return Some(format!("{why}: {}", if was_refused { texts.fewer } else { texts.question }));
    }
    [alone, beside]
        .into_iter()
        .find_map(|hot| hot.ended_early.as_ref())
        .map(|early| format!("ended early: {early}"))
}

/// Requests that were given up before they had a whole answer.
fn unanswered(phase: &Measures) -> u64 {
    WAITED.iter().filter_map(|kind| phase.counts.failed.get(*kind)).sum()
}

/// Hot files that are not in memory.
fn evicted(hot: &Measures) -> Option<String> {
    let doubts = validity::doubts_about(hot, &[]);
    doubts.iter().find(|doubt| doubt.cause() == Cause::NotInMemory).map(ToString::to_string)
}

fn failures(phase: &Measures, name: &str) -> Option<String> {
    let counted = phase.counts.failed.iter().filter(|(kind, _)| !WAITED.contains(&kind.as_str()));
    let kinds: Vec<(&String, &u64)> = counted.collect();
    let share = per(kinds.iter().map(|(_, count)| **count).sum::<u64>() as f64, phase.counts.asked as f64);
    let list = || kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ");
    (share > FAILED_SHARE_MAX)
        .then(|| format!("{} of the {name} requests failed: {}", percent(share), list()))
}

/// A generator without a reserve for the next burst.
fn busy(hot: &Measures) -> Option<String> {
    let share = hot.generator.busy_share;
    (share > BUSY_SHARE_MAX).then(|| format!("the load generator was busy {} of the time", percent(share)))
}

fn paired(point: &Point, rounds: &[&Round<'_>]) -> Paired {
    let &Point { figure, max } = point;
    let mut pairs: Vec<[f64; 2]> =
        rounds.iter().map(|round| [round.alone, round.beside].map(|hot| figure.of(&hot.latency))).collect();
    let ratio = |pair: &[f64; 2]| per(pair[1], pair[0]);
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let pair_ms = pairs[(pairs.len() - 1) / 2];
    let ratios: Vec<f64> = pairs.iter().map(ratio).collect();
    // Without an interval, as for a latency of 0, any ratio is possible.
    let interval = interval::of_ratios(&ratios).unwrap_or([0.0, f64::INFINITY]);
    Paired { figure, ratio: ratio(&pair_ms), interval, pair_ms, max }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
