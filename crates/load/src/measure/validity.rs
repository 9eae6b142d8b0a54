//! Whether the figures of a phase say something about the server: the rules that a round must keep to count.
//!
//! The findings of experiments, the ratios of `flash compare`, and the sentence and the warnings of reports ask it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::figures::OtherWork;
pub use super::generator::BUSY_SHARE_MAX;
use super::{Latency, LatencyFigure, Measures};
use crate::record::Outcome;
use flash_kit::number::{percent, time};

/// In an open loop a server must answer at least this share of the requests that arrive, while they arrive. With less
/// its queue grows, and every latency depends on how long the phase lasted.
pub const ACHIEVED_SHARE_MIN: f64 = 0.97;
/// At most this share of the requests may fail: a failed request is often faster than an answered one.
pub const FAILED_SHARE_MAX: f64 = 0.001;
/// At least this share of the hot files' bytes must be in memory at the end of a phase that needs them there.
pub const IN_MEMORY_SHARE_MIN: f64 = 0.999;
/// Other processes may have at most this share of the time of a core that the server or the generator has to itself, and other
/// machines on the same processor as much; less where the figure is about fewer requests.
const OTHER_WORK_SHARE_MAX: f64 = 0.05;
/// Less than this is not told from nothing: the kernel counts the time of processes by ticks.
const OTHER_PROCESSES_SHARE_TOLD: f64 = 0.01;

/// A reason why the figures of a phase do not count.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// An open loop offered more than the server answered.
    Overloaded {
        /// Requests answered while requests started, as a share of those that started.
        achieved_share: f64,
    },
    /// Too many requests failed: refused, reset, another status, no answer in time.
    Failures { share: f64 },
    /// The generator was the limit, not the server, with what it had too little of: time in a closed loop, punctuality in an
    /// open one, or connections.
    Generator(String),
    /// Other processes, or other machines on the same processor, had the server's or the generator's cores.
    OtherWork(OtherWork),
    /// Files that were meant to be in memory were not.
    NotInMemory { in_memory_share: f64 },
    /// The phase ended before its time, with the reason.
    EndedEarly(String),
}

/// The kind of a [`Doubt`], in the order in which causes are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    Overloaded,
    Failures,
    Generator,
    OtherWork,
    NotInMemory,
    EndedEarly,
}

impl Cause {
    /// Whether another round may be without it, since it is of the machine's and not of the server's making.
    pub fn is_of_machine(self) -> bool {
        matches!(self, Self::Generator | Self::OtherWork | Self::NotInMemory)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::Failures => "failures",
            Self::Generator => "generator",
            Self::OtherWork => "other work",
            Self::NotInMemory => "hot files not in memory",
            Self::EndedEarly => "ended early",
        }
    }
}

impl Doubt {
    pub fn cause(&self) -> Cause {
        match self {
            Self::Overloaded { .. } => Cause::Overloaded,
            Self::Failures { .. } => Cause::Failures,
            Self::Generator(_) => Cause::Generator,
            Self::OtherWork(_) => Cause::OtherWork,
            Self::NotInMemory { .. } => Cause::NotInMemory,
            Self::EndedEarly(_) => Cause::EndedEarly,
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overloaded { achieved_share } => {
                write!(f, "overloaded: it answered {} of the offered load in time", percent(*achieved_share))
            }
            Self::Failures { share } => write!(f, "failures: {} of the requests", percent(*share)),
            Self::Generator(limit) => write!(f, "generator: {limit}"),
            Self::OtherWork(OtherWork { core, busy_share, stolen_share }) => write!(
                f,
                "other work: processes beside it had {} of the time of {}, other machines {}",
                percent(*busy_share),
                core.text(),
                percent(*stolen_share)
            ),
            Self::NotInMemory { in_memory_share } => {
                write!(f, "hot files not in memory: only {} of them was", percent(*in_memory_share))
            }
            Self::EndedEarly(why) => write!(f, "ended early: {why}"),
        }
    }
}

/// Every reason why the figures of a phase do not count; none when they do.
///
/// A closed loop offers no rate, so it cannot be overloaded, and a late generator only makes its clients think longer.
/// In an open loop a busy generator matters only when it is late. Where the figures of overload are wanted, overload and
/// requests that fail are the subject, and no doubt.
pub fn doubts(measures: &Measures) -> Vec<Doubt> {
    let shown: &[LatencyFigure] = if measures.overload.is_some() {
        &[LatencyFigure::Mean]
    } else {
        &[LatencyFigure::P50, LatencyFigure::P99]
    };
    doubts_about(measures, shown)
}

/// The same, where only these figures of the latencies are used, or none of them.
pub fn doubts_about(measures: &Measures, figures: &[LatencyFigure]) -> Vec<Doubt> {
    let Measures { counts, generator, .. } = measures;
    let mut doubts = Vec::new();
    let asked = counts.asked as f64;
    let is_subject = measures.overload.is_some();
    if let (Some(_), true, false) = (measures.asked_per_s, asked > 0.0, is_subject) {
        // The requests that really arrived: few Poisson arrivals differ from the rate by chance.
        let achieved_share = measures.answered_per_s * measures.duration_s / asked;
        if achieved_share < ACHIEVED_SHARE_MIN {
            doubts.push(Doubt::Overloaded { achieved_share });
        }
    }
    let local = counts.failed.get(Outcome::LocalLimit.name()).copied().unwrap_or(0);
    let share = counts.failures().saturating_sub(local) as f64 / asked.max(1.0);
    if share > FAILED_SHARE_MAX && !is_subject {
        doubts.push(Doubt::Failures { share });
    }
    let limit = match measures.asked_per_s {
        _ if local > 0 => Some(format!("this machine did not allow {local} connections")),
        Some(_) => figures.iter().find_map(|figure| late(measures, *figure)),
        None => (generator.busy_share > BUSY_SHARE_MAX)
            .then(|| format!("it was busy {} of the time", percent(generator.busy_share))),
    };
    doubts.extend(limit.map(Doubt::Generator));
    doubts.extend(
        measures
            .other_work
            .filter(|work| is_too_much(work, &measures.latency, figures))
            .map(Doubt::OtherWork),
    );
    if let Some(in_memory_share) = measures.in_memory_share.filter(|share| *share < IN_MEMORY_SHARE_MIN) {
        doubts.push(Doubt::NotInMemory { in_memory_share });
    }
    doubts.extend(measures.ended_early.clone().map(Doubt::EndedEarly));
    doubts
}

fn is_too_much(work: &OtherWork, latency: &Latency, figures: &[LatencyFigure]) -> bool {
    let shares = figures.iter().map(|figure| figure.other_work_share_max(latency));
    let share_max = shares.fold(OTHER_WORK_SHARE_MAX, f64::min);
    work.stolen_share > share_max || work.busy_share > share_max.max(OTHER_PROCESSES_SHARE_TOLD)
}

/// How late the generator was, in words, if that blurs the figure.
fn late(measures: &Measures, figure: LatencyFigure) -> Option<String> {
    let late_ms = figure.blur_ms(&measures.generator, &measures.latency)?;
    let name = if figure == LatencyFigure::Mean { "on average" } else { figure.name() };
    Some(format!("it sent requests late by {} ({name})", time(late_ms)))
}

/// The warnings about a phase: its [`doubts`], with the generator's advice where it has some. The generator's report on
/// itself is a warning even where it is no doubt, as when it was late once.
pub fn warnings(measures: &Measures) -> Vec<String> {
    let advice = measures.generator.limit.as_deref();
    let is_advised = |doubt: &Doubt| advice.is_some() && doubt.cause() == Cause::Generator;
    let doubts = doubts(measures).into_iter().filter(|doubt| !is_advised(doubt));
    doubts.map(|doubt| doubt.to_string()).chain(advice.map(|advice| format!("generator: {advice}"))).collect()
}

pub fn causes(measures: &Measures) -> BTreeSet<Cause> {
    doubts(measures).iter().map(Doubt::cause).collect()
}

/// The kinds of the [`doubts_about`] a figure of the latencies, or about another figure.
pub fn causes_about(measures: &Measures, figure: Option<LatencyFigure>) -> BTreeSet<Cause> {
    doubts_about(measures, figure.as_slice()).iter().map(Doubt::cause).collect()
}

/// How often each cause came up, of `rounds` rounds: "overloaded in 3, failures in 1 of 5 rounds"; none without causes.
pub fn summary<'a>(causes: impl IntoIterator<Item = &'a BTreeSet<Cause>>, rounds: usize) -> Option<String> {
    let mut counts = BTreeMap::new();
    for cause in causes.into_iter().flatten() {
        *counts.entry(*cause).or_insert(0) += 1;
    }
    let parts: Vec<String> =
        counts.iter().map(|(cause, count): (_, &u64)| format!("{} in {count}", cause.name())).collect();
    (!parts.is_empty()).then(|| format!("{} of {rounds} rounds", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::figures::CoreOf;
    use super::super::tests::answered;
    use super::super::{PhaseFacts, measures};
    use super::*;

    /// A thousand requests in a second, 10 ms each.
    fn phase(asked_per_s: Option<f64>) -> Measures {
        let records: Vec<_> = (0..1000).map(|number| answered(number * 990_000, 10_000_000, 1)).collect();
        measures(&records, &PhaseFacts { asked_per_s, duration_ns: 1_000_000_000, ..PhaseFacts::default() })
    }

    fn texts(measures: &Measures) -> Vec<String> {
        doubts(measures).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_sound_phase_has_no_doubts() {
        assert_eq!(doubts(&phase(Some(1000.0))), []);
        assert_eq!(doubts(&phase(Some(2000.0))), [], "chance brought fewer arrivals than the rate asks for");
        assert_eq!(doubts(&phase(None)), []);
    }

    #[test]
    fn only_an_open_loop_can_be_overloaded() {
        let slow = |asked_per_s, answered_per_s| Measures { answered_per_s, ..phase(asked_per_s) };
        assert_eq!(doubts(&slow(Some(1000.0), 970.0)), []);
        assert_eq!(doubts(&slow(Some(1000.0), 960.0)), [Doubt::Overloaded { achieved_share: 0.96 }]);
        assert_eq!(doubts(&slow(None, 500.0)), []);
    }

    #[test]
    fn failures_count_from_one_in_a_thousand() {
        let mut failing = phase(None);
        failing.counts.failed.insert("reset".to_owned(), 1);
        assert_eq!(doubts(&failing), []);
        failing.counts.failed.insert("status 503".to_owned(), 1);
        assert_eq!(texts(&failing), ["failures: 0.20 % of the requests"]);
        failing.counts.failed = [("local limit".to_owned(), 1)].into();
        assert_eq!(texts(&failing), ["generator: this machine did not allow 1 connections"]);
    }

    #[test]
    fn the_generator_is_judged_by_the_loop_it_runs() {
        let with = |asked_per_s, late_p99_ms, busy_share| {
            let mut measures = phase(asked_per_s);
            (measures.generator.late_p99_ms, measures.generator.busy_share) = (late_p99_ms, busy_share);
            causes(&measures).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(with(Some(1000.0), 1.1, 0.0), [Cause::Generator]);
        assert_eq!(with(Some(1000.0), 0.9, 1.0), [], "busy, but in time");
        assert_eq!(with(None, 5.0, 0.5), [], "late, but in a closed loop");
        assert_eq!(with(None, 0.0, 0.96), [Cause::Generator]);
    }

    #[test]
    fn warnings_give_the_generator_once_with_its_advice() {
        let mut late = phase(Some(1000.0));
        late.generator.late_p99_ms = 5.0;
        assert_eq!(warnings(&late), ["generator: it sent requests late by 5.00 ms (p99)"]);
        late.generator.limit = Some("late: use more threads".to_owned());
        assert_eq!(warnings(&late), ["generator: late: use more threads"]);
        late.generator.late_p99_ms = 0.0;
        assert_eq!((doubts(&late), warnings(&late).len()), (vec![], 1), "late once: no doubt, but a warning");
    }

    #[test]
    fn a_figure_is_in_doubt_for_its_own_lateness() {
        let mut late = phase(Some(1000.0));
        late.generator.late_p99_ms = 5.0;
        let about = |figure| causes_about(&late, figure).len();
        assert_eq!(about(Some(LatencyFigure::P99)), 1);
        assert_eq!((about(Some(LatencyFigure::P50)), about(None)), (0, 0), "neither the median nor a rate");
    }

    #[test]
    fn other_work_on_the_cores_is_a_doubt_about_the_requests_that_it_can_hold_up() {
        let about = |figure, busy_share, stolen_share| {
            let other_work = Some(OtherWork { core: CoreOf::Server, busy_share, stolen_share });
            !causes_about(&Measures { other_work, ..phase(None) }, figure).is_empty()
        };
        let [p50, p99] = [LatencyFigure::P50, LatencyFigure::P99].map(Some);
        assert!(!about(None, 0.05, 0.05) && !about(p50, 0.05, 0.05));
        assert!(about(None, 0.06, 0.0) && about(p50, 0.0, 0.06));
        assert!(!about(p99, 0.01, 0.005) && about(p99, 0.011, 0.0) && about(p99, 0.0, 0.006));
        assert!(about(Some(LatencyFigure::P999), 0.0, 0.002));
        assert!(!about(Some(LatencyFigure::Mean), 0.0, 0.05), "a mean of 10 ms");
        let other_work = Some(OtherWork { core: CoreOf::Server, busy_share: 0.2, stolen_share: 0.0 });
        assert_eq!(
            texts(&Measures { other_work, ..phase(None) }),
            [
                "other work: processes beside it had 20.0 % of the time of the server's core, other machines 0 %"
            ]
        );
    }

    #[test]
    fn cold_hot_files_and_an_early_end_are_doubts() {
        let cold = |share| doubts(&Measures { in_memory_share: share, ..phase(None) });
        assert_eq!((cold(None), cold(Some(1.0))), (vec![], vec![]));
        assert_eq!(cold(Some(0.5)), [Doubt::NotInMemory { in_memory_share: 0.5 }]);
        let early = Measures { ended_early: Some("a signal".to_owned()), ..phase(None) };
        assert_eq!(texts(&early), ["ended early: a signal"]);
    }

    #[test]
    fn a_summary_counts_rounds_by_cause() {
        let overloaded = BTreeSet::from([Cause::Overloaded]);
        let both = BTreeSet::from([Cause::Overloaded, Cause::Failures]);
        let text = summary([&overloaded, &both, &BTreeSet::new()], 5);
        assert_eq!(text.as_deref(), Some("overloaded in 2, failures in 1 of 5 rounds"));
        assert_eq!(summary([], 5), None);
    }
}
