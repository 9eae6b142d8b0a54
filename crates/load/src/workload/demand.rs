//! The request sequences that the load's threads send: when, and for which file.
//!
//! [`super::Workload::demands`] makes them. Pure and seeded; time is given, never read.

use std::sync::Arc;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};

use super::access_log::Replay;
use super::choice::Choice;
use super::phases::PhaseRate;
use super::seed::StreamId;
use super::{Arrival, Demand};

/// How requests arrive. Each phase of a schedule begins where the one before it ends; after the last
/// no more come.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// In a closed loop: only [`Demand::next_path`] is used.
    Closed,
    /// Independent of each other, with exponential gaps.
    Poisson {
        /// The rates of all threads together.
        phases: Vec<PhaseRate>,
    },
    /// In equal gaps, the first at the beginning of the phase.
    Fixed {
        /// The rates of all threads together.
        phases: Vec<PhaseRate>,
    },
    /// At the times that the log has; endless when the log is looped. Only for logs: other
    /// workloads then ask for nothing.
    Log {
        /// How many times faster than the log, more than 0.
        speed: f64,
    },
    /// At the times that the log has, but in each phase so much faster or slower that the log's mean rate becomes the
    /// phase's: the log keeps its bursts (overload-and-srpt, section 3.3.2). Only for logs.
    LogPhases {
        /// The rates of all threads together.
        phases: Vec<PhaseRate>,
    },
}

impl Arrivals {
    /// The same arrivals at 1 / `times` of the rates; none where they have no rates of their own.
    pub(super) fn thinned(&self, times: f64) -> Option<Self> {
        let thin = |phases: &[PhaseRate]| {
            let phase = |phase: &PhaseRate| PhaseRate { rate_per_s: phase.rate_per_s / times, ..*phase };
            phases.iter().map(phase).collect()
        };
        match self {
            Self::Poisson { phases } => Some(Self::Poisson { phases: thin(phases) }),
            Self::Fixed { phases } => Some(Self::Fixed { phases: thin(phases) }),
            Self::Closed | Self::Log { .. } | Self::LogPhases { .. } => None,
        }
    }

    fn has_log_times(&self) -> bool {
        matches!(self, Self::Log { .. } | Self::LogPhases { .. })
    }
}

/// The sequences of a thread, by their numbers in a [`StreamId`] whose phase is the thread.
const GAPS: u32 = 0;
const CHOICES: u32 = 1;
/// The returns of users: see [`super::Sessions`].
pub(super) const RETURNS: u32 = 2;
const DYNAMIC: u32 = 3;

/// Where the files of a workload come from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Drawn(Choice),
    Log { replay: Arc<Replay>, is_loop: bool },
}

/// The dynamic requests of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chance {
    /// Their share of all requests, 0 to 1.
    pub(super) share: f64,
    /// The number of the one for file 0.
    pub(super) first: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OneThread {
    /// From 0.
    pub(super) number: u32,
    pub(super) of: u32,
}

/// The request sequence of a thread. Poisson sequences are independent of each other; fixed ones and
/// logs deal the requests out in turn. A looped log that is not replayed by its own times begins
/// anywhere: levels that all began alike would find in memory what the one before asked for.
pub(super) fn stream(
    source: &Source,
    arrivals: &Arrivals,
    seed: u64,
    OneThread { number: thread, of: threads }: OneThread,
) -> Stream {
    let first = match source {
        Source::Log { replay, is_loop: true } if !arrivals.has_log_times() => {
            Xoshiro256PlusPlus::seed_from_u64(seed).random_range(0..replay.len().max(1))
        }
        _ => 0,
    };
    let random = |sequence| {
        let id = StreamId { phase: thread, round: 0, stream: sequence };
        Xoshiro256PlusPlus::seed_from_u64(id.seed(seed))
    };
    let files = match source {
        Source::Drawn(choice) => {
            Files::Drawn { choice: choice.clone().of_thread(thread, threads), random: random(CHOICES) }
        }
        Source::Log { replay, is_loop } => Files::Log(Row {
            replay: Arc::clone(replay),
            is_loop: *is_loop,
            next: first + u64::from(thread),
            step: u64::from(threads),
        }),
    };
    let gaps = |phases: &[PhaseRate], gaps| Starts::Phased(Phased::new(phases, gaps, threads));
    let starts = match arrivals {
        Arrivals::Closed => Starts::Closed,
        Arrivals::Poisson { phases } => gaps(phases, Gaps::Exponential { random: random(GAPS) }),
        Arrivals::Fixed { phases } => gaps(phases, Gaps::Equal { first: thread, taken: 0 }),
        Arrivals::Log { speed } => Starts::Log { speed: *speed },
        Arrivals::LogPhases { phases } => Starts::LogPhased(Stretch::all(phases, source)),
    };
    Stream { files, dynamic: None, starts }
}

pub(super) struct Stream {
    files: Files,
    dynamic: Option<(Chance, Xoshiro256PlusPlus)>,
    starts: Starts,
}

impl Stream {
    /// The same requests of thread `thread`, of which some are dynamic: for the same files at the same times.
    pub(super) fn with_dynamic(self, chance: Chance, seed: u64, thread: u32) -> Self {
        let id = StreamId { phase: thread, round: 0, stream: DYNAMIC };
        Self { dynamic: Some((chance, Xoshiro256PlusPlus::seed_from_u64(id.seed(seed)))), ..self }
    }
}

enum Files {
    Drawn {
        choice: Choice,
        random: Xoshiro256PlusPlus,
    },
    Log(Row),
    /// Each by a call.
    Chosen(Box<dyn FnMut() -> u32 + Send>),
}

#[derive(Debug)]
enum Starts {
    Closed,
    Phased(Phased),
    Log {
        speed: f64,
    },
    /// The time of a log, stretched in each phase so that the log's mean rate becomes the phase's.
    LogPhased(Vec<Stretch>),
}

impl Demand for Stream {
    fn next_due_ns(&self) -> Option<u64> {
        match (&self.starts, &self.files) {
            (Starts::Phased(phased), Files::Log(row)) => row.index().and(phased.due_ns),
            (Starts::Phased(phased), _) => phased.due_ns,
            (Starts::Log { speed }, Files::Log(row)) => {
                Some((row.at_ns()? as f64 / speed) as u64).filter(|_| *speed > 0.0)
            }
            (Starts::LogPhased(stretches), Files::Log(row)) => Stretch::at_ns(stretches, row.at_ns()?),
            (Starts::Log { .. } | Starts::LogPhased(_) | Starts::Closed, _) => None,
        }
    }

    fn take(&mut self) -> Option<Arrival> {
        let intended_ns = self.next_due_ns()?;
        let path_id = self.next_path()?;
        if let Starts::Phased(phased) = &mut self.starts {
            phased.go_on();
        }
        Some(Arrival { path_id, intended_ns })
    }

    fn next_path(&mut self) -> Option<u32> {
        let path_id = match &mut self.files {
            Files::Drawn { choice, random } => choice.draw(random),
            Files::Log(row) => row.take()?,
            Files::Chosen(choose) => choose(),
        };
        let is_dynamic = |(chance, random): &mut (Chance, Xoshiro256PlusPlus)| {
            random.random_bool(chance.share).then_some(chance.first)
        };
        Some(path_id + self.dynamic.as_mut().and_then(is_dynamic).unwrap_or(0))
    }
}

/// Poisson arrivals at a rate for a while, each for the file that `choose` gives.
pub fn poisson(seed: u64, rate: PhaseRate, choose: impl FnMut() -> u32 + Send + 'static) -> Box<dyn Demand> {
    let seed = StreamId { phase: 0, round: 0, stream: GAPS }.seed(seed);
    let gaps = Gaps::Exponential { random: Xoshiro256PlusPlus::seed_from_u64(seed) };
    let starts = Starts::Phased(Phased::new(&[rate], gaps, 1));
    Box::new(Stream { files: Files::Chosen(Box::new(choose)), dynamic: None, starts })
}

/// Every nth request of a log.
#[derive(Debug)]
struct Row {
    replay: Arc<Replay>,
    is_loop: bool,
    /// Counted through all rounds of the log.
    next: u64,
    step: u64,
}

impl Row {
    /// The round of the log that the next request is in, and its index there.
    fn index(&self) -> Option<(u64, u64)> {
        let length = self.replay.len();
        let round = self.next.checked_div(length)?;
        (round == 0 || self.is_loop).then(|| (round, self.next % length))
    }

    fn at_ns(&self) -> Option<u64> {
        let (round, index) = self.index()?;
        Some(round.saturating_mul(self.replay.duration_ns()).saturating_add(self.replay.at_ns(index)?))
    }

    fn take(&mut self) -> Option<u32> {
        let (_, index) = self.index()?;
        self.next = self.next.saturating_add(self.step);
        self.replay.path_id(index)
    }
}

/// A phase of some rate, and the part of the log that falls into it.
#[derive(Debug)]
struct Stretch {
    /// When it begins: in the phases, and in the log.
    start_ns: u64,
    log_start_ns: f64,
    /// How much of the log's time passes in a nanosecond; more than 0.
    speed: f64,
    log_end_ns: f64,
}

impl Stretch {
    fn all(phases: &[PhaseRate], source: &Source) -> Vec<Self> {
        let mean_per_s = match source {
            Source::Log { replay, .. } => replay.mean_rate_per_s(),
            Source::Drawn(_) => 0.0,
        };
        let (mut start_ns, mut log_start_ns) = (0_u64, 0.0);
        let mut stretches = Vec::new();
        for phase in phases {
            let speed = phase.rate_per_s / mean_per_s;
            let log_end_ns = log_start_ns + phase.duration_ns as f64 * speed;
            if speed > 0.0 && log_end_ns.is_finite() {
                stretches.push(Self { start_ns, log_start_ns, speed, log_end_ns });
                log_start_ns = log_end_ns;
            }
            start_ns = start_ns.saturating_add(phase.duration_ns);
        }
        stretches
    }

    /// When a time of the log comes; none after the last phase.
    fn at_ns(stretches: &[Self], log_ns: u64) -> Option<u64> {
        let log_ns = log_ns as f64;
        let stretch = stretches.get(stretches.partition_point(|s| s.log_end_ns <= log_ns))?;
        let offset_ns = (log_ns - stretch.log_start_ns) / stretch.speed;
        Some(stretch.start_ns.saturating_add(offset_ns as u64))
    }
}

/// Starts at the rates of a schedule.
#[derive(Debug)]
struct Phased {
    phases: Vec<PhaseRate>,
    threads: u32,
    gaps: Gaps,
    phase: usize,
    phase_start_ns: u64,
    /// The time of the next start, since the beginning of its phase.
    offset_ns: f64,
    /// The next start; none after the last.
    due_ns: Option<u64>,
}

#[derive(Debug)]
enum Gaps {
    /// This thread's rate is its part of the whole.
    Exponential { random: Xoshiro256PlusPlus },
    /// This thread takes every nth start of the whole, beginning with `first`; of this phase
    /// it has taken this many.
    Equal { first: u32, taken: u64 },
}

impl Phased {
    fn new(phases: &[PhaseRate], gaps: Gaps, threads: u32) -> Self {
        let phases = phases.to_vec();
        let mut phased =
            Self { phases, threads, gaps, phase: 0, phase_start_ns: 0, offset_ns: 0.0, due_ns: None };
        phased.begin_phase();
        phased.find();
        phased
    }

    /// Moves to the start after the one that is due.
    fn go_on(&mut self) {
        self.offset_ns = self.next_offset_ns();
        self.find();
    }

    /// Moves on to the phase in which the next start is. An exponential gap that ends after its phase
    /// is drawn anew from the end of the phase: it has no memory.
    fn find(&mut self) {
        while let Some(phase) = self.phases.get(self.phase) {
            if self.offset_ns < phase.duration_ns as f64 {
                self.due_ns = Some(self.phase_start_ns.saturating_add(self.offset_ns as u64));
                return;
            }
            self.phase_start_ns = self.phase_start_ns.saturating_add(phase.duration_ns);
            self.phase += 1;
            self.begin_phase();
        }
        self.due_ns = None;
    }

    fn begin_phase(&mut self) {
        self.offset_ns = 0.0;
        if let Gaps::Equal { taken, .. } = &mut self.gaps {
            *taken = 0;
        }
        self.offset_ns = self.next_offset_ns();
    }

    fn next_offset_ns(&mut self) -> f64 {
        let rate_per_s = self.phases.get(self.phase).map_or(0.0, |phase| phase.rate_per_s);
        if !(rate_per_s > 0.0 && rate_per_s.is_finite()) {
            return f64::INFINITY;
        }
        let gap_ns = 1e9 / rate_per_s;
        match &mut self.gaps {
            Gaps::Exponential { random } => {
                let draw: f64 = Exp1.sample(random);
                self.offset_ns + draw * gap_ns * f64::from(self.threads)
            }
            Gaps::Equal { first, taken } => {
                let index = u64::from(*first) + *taken * u64::from(self.threads);
                *taken += 1;
                index as f64 * gap_ns
            }
        }
    }
}

#[cfg(test)]
#[path = "demand_tests.rs"]
mod tests;
