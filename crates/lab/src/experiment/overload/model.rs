//! The theory of a point: overload-and-srpt, Appendix A, for the sizes and periods of the experiment. Pure.

use crate::experiment::behind;
use crate::experiment::plan::{Line, Load, Plan, Point, Set};
use crate::theory::fair::Fair;
use crate::theory::sizes::{Atom, Sizes};
use crate::theory::srpt::Srpt;
use crate::theory::{Cycle, Period};

/// The share of the requests that are "the largest".
const LARGEST_SHARE: f64 = 0.01;

/// FAIR and SRPT at a point of the baseline.
pub(super) struct Model {
    sizes: Sizes,
    cycle: Cycle,
    pub(super) fair: Fair,
    pub(super) srpt: Srpt,
}

impl Model {
    /// The model of a point; none for one without periods of overload and low load.
    pub(super) fn of(plan: &Plan, point: &Point) -> Option<Self> {
        let is_of = |at: &Point| at.name == point.name;
        let scene = plan.scenes.iter().find(|scene| scene.points.iter().any(is_of))?;
        let line = scene.line?;
        let Set::Pareto { set_bytes, trace } = plan.sets[scene.set] else { return None };
        let Load::Phases(phases) = &point.load else { return None };
        let loads = behind::loads(phases, point.duration_s).ok()?;
        let [high, low] = loads.as_slice() else { return None };
        let period = |rate: &flash_load::workload::PhaseRate| Period {
            duration_s: rate.duration_ns as f64 / 1e9,
            load: rate.rate_per_s,
        };
        let cycle = Cycle { high: period(high), low: period(low) };
        let lengths = trace.lengths();
        let count = (set_bytes as f64 / lengths.mean_bytes()).round() as u32;
        let sizes = sizes(&line, &lengths.lengths_bytes(count))?;
        let (fair, srpt) = (Fair::new(&sizes, cycle).ok()?, Srpt::new(&sizes, cycle).ok()?);
        Some(Self { sizes, cycle, fair, srpt })
    }

    pub(super) fn cycle_s(&self) -> f64 {
        self.cycle.high.duration_s + self.cycle.low.duration_s
    }

    pub(super) fn largest_s(&self, by_size: &[f64]) -> f64 {
        let (mut left, mut sum) = (LARGEST_SHARE, 0.0);
        for (atom, response_s) in self.sizes.atoms().iter().zip(by_size).rev() {
            let share = atom.share.min(left);
            sum += share * response_s;
            left -= share;
        }
        sum / (LARGEST_SHARE - left)
    }

    /// The response time against the share of the requests that are no larger.
    pub(super) fn by_share(&self, by_size: &[f64]) -> Vec<(f64, f64)> {
        let mut share = 0.0;
        let place = |(atom, response_s): (&Atom, &f64)| {
            share += atom.share;
            (share, *response_s)
        };
        self.sizes.atoms().iter().zip(by_size).map(place).collect()
    }
}

/// The bytes that the line carries for each file of the set, on a connection of its own.
fn sizes(line: &Line, lengths_bytes: &[u64]) -> Option<Sizes> {
    let link = behind::capacity(line);
    let carried = |bytes: &u64| (link.response_bytes(*bytes, 1), 1.0);
    let sizes: Vec<(f64, f64)> = lengths_bytes.iter().map(carried).collect();
    Sizes::new(&sizes, line.rate_bits_per_s as f64 / 8.0).ok()
}
