//! SRPT under alternating load: the fluid limit. Theorem 1 of Appendix A, and beyond it for low load above 0. The
//! experiments call it.
//!
//! Let `load(x)` be the load of the sizes up to `x`. In the overload, sizes with `load(x) < 1` are served as if the larger
//! ones were not there: their response times do not grow with the period (`o(t)` in the paper), and are those of
//! [`super::steady`]. Larger ones get nothing, so their work grows. In the low load the backlog of the sizes up to `x` goes
//! before that of larger ones, and is gone after `(load(x) - 1) t / (1 - low load(x))`.
//!
//! The work of each size is thus a line with three bends: up in the overload, up by new arrivals while smaller sizes are
//! served, down to 0. By Little's law the mean delay of a size is the area below it, over the work that arrives in a cycle.
//! Without arrivals in the low load, and for a small share of the work, it is `t (load(x) - 1/2)`: Theorem 1.

use super::Cycle;
use super::sizes::{Atom, Sizes};
use super::steady::srpt_responses_s;
use flash_kit::Result;

/// The work of one size over a cycle. Times are from the beginning of the low load.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    service_s: f64,
    /// Work that the overload leaves, seconds of service.
    left_s: f64,
    /// The time at which smaller sizes are gone, and the work then.
    begins_s: f64,
    most_s: f64,
    /// The time at which this size is gone.
    ends_s: f64,
    /// The area below the line, over the work that arrives in a cycle.
    delay_s: f64,
}

/// The model of a workload.
#[derive(Clone, Debug)]
pub struct Srpt {
    sizes: Sizes,
    cycle: Cycle,
    backlogs: Vec<Backlog>,
    /// The number of requests of a steady low load.
    steady_number: f64,
    /// The mean response time of each size over a cycle, seconds.
    pub by_size: Vec<f64>,
}

impl Srpt {
    /// Computes the model.
    ///
    /// Errors: as [`Cycle::checked`].
    pub fn new(sizes: &Sizes, cycle: Cycle) -> Result<Self> {
        let cycle = cycle.checked()?;
        let rates = [cycle.high.load, cycle.low.load].map(|load| sizes.arrivals_per_s(load));
        let mut below = [0.0; 2];
        let mut backlogs = Vec::with_capacity(sizes.atoms().len());
        for atom in sizes.atoms() {
            let own = rates.map(|rate| rate * atom.share * atom.service_s);
            backlogs.push(backlog(atom, cycle, below, own));
            below = [below[0] + own[0], below[1] + own[1]];
        }
        let steady = super::steady::srpt_response_s(sizes, rates[1]);
        let (steady_number, by_size) = (rates[1] * steady, Vec::new());
        let mut srpt = Self { sizes: sizes.clone(), cycle, backlogs, steady_number, by_size };
        srpt.by_size = srpt.responses();
        Ok(srpt)
    }

    #[cfg(test)]
    pub fn delays_s(&self) -> Vec<f64> {
        self.backlogs.iter().map(|backlog| backlog.delay_s).collect()
    }

    fn responses(&self) -> Vec<f64> {
        let rate = |load| self.sizes.arrivals_per_s(load);
        let Cycle { high, low } = self.cycle;
        let in_high = srpt_responses_s(&self.sizes, rate(high.load));
        let in_low = srpt_responses_s(&self.sizes, rate(low.load));
        let high_share = self.cycle.high_share();
        let of_size = |number: usize| {
            // Just below the size at which the load is 1, the steady state takes longer to come about than the overload
            // lasts. No size waits longer than a larger one, and the smallest of those has half the overload.
            let most_s = high.duration_s / 2.0 + in_low[number];
            let high_s =
                if in_high[number].is_finite() { in_high[number].min(most_s) } else { in_low[number] };
            self.backlogs[number].delay_s + high_share * high_s + (1.0 - high_share) * in_low[number]
        };
        (0..self.sizes.atoms().len()).map(of_size).collect()
    }

    /// The mean response time over all sizes, seconds.
    pub fn mean_s(&self) -> f64 {
        self.sizes.mean_of(&self.by_size)
    }

    /// The number of requests at a time from the beginning of a cycle; never below that of a steady low load.
    pub fn number_at(&self, at_s: f64) -> f64 {
        let of_size = |backlog: &Backlog| backlog.work_at(at_s, self.cycle) / backlog.service_s;
        self.backlogs.iter().map(of_size).sum::<f64>().max(self.steady_number)
    }
}

/// The work of a size, whose loads are `own` and those of smaller ones `below`: in the overload and in the low load.
fn backlog(atom: &Atom, cycle: Cycle, below: [f64; 2], own: [f64; 2]) -> Backlog {
    let Cycle { high, low } = cycle;
    let grows = (below[0] + own[0] - 1.0).clamp(0.0, own[0]);
    let left_s = grows * high.duration_s;
    let begins_s = (below[0] - 1.0).max(0.0) * high.duration_s / (1.0 - below[1]);
    let most_s = left_s + own[1] * begins_s;
    let lasts_s = most_s / (1.0 - below[1] - own[1]);
    let area = left_s * high.duration_s / 2.0 + (left_s + most_s) / 2.0 * begins_s + most_s * lasts_s / 2.0;
    let arrives_s = own[0] * high.duration_s + own[1] * low.duration_s;
    Backlog {
        service_s: atom.service_s,
        left_s,
        begins_s,
        most_s,
        ends_s: begins_s + lasts_s,
        delay_s: area / arrives_s,
    }
}

impl Backlog {
    /// The work at a time from the beginning of the cycle, seconds of service.
    fn work_at(&self, at_s: f64, cycle: Cycle) -> f64 {
        let part =
            |at_s: f64, whole_s: f64| if whole_s > 0.0 { (at_s / whole_s).clamp(0.0, 1.0) } else { 1.0 };
        let low_s = at_s - cycle.high.duration_s;
        if low_s <= 0.0 {
            self.left_s * part(at_s, cycle.high.duration_s)
        } else if low_s < self.begins_s {
            self.left_s + (self.most_s - self.left_s) * part(low_s, self.begins_s)
        } else {
            self.most_s * (1.0 - part(low_s - self.begins_s, self.ends_s - self.begins_s))
        }
    }
}
