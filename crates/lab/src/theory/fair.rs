//! FAIR under alternating load: the fluid limit of processor sharing. Theorem 1 of Appendix A, and beyond it for low load
//! above 0. The experiments call it.
//!
//! **Overload** (A. Jean-Marie and P. Robert, *On the transient behavior of the processor sharing queue*, Queueing Systems
//! 17, 1994). With requests arriving at `rate`, the number of requests grows like `growth t`, where `growth` solves
//! `1 - E{exp(-growth X)} = growth / rate`. Each request gets the share `1 / (growth t)`, so one of size `x` that arrives at
//! `u` ends at `u exp(growth x)`. At the end of the overload the share of the requests that have more than `r` left is
//! `(rate / growth) E{1 - exp(-growth (X - r)); X > r}` (`1 - F_r` of the paper).
//!
//! **Low load.** Let the *clock* `v` be the service that each request has got since the overload ended, and `elapsed(v)`
//! the time that this took. While `n` requests share the link, `d elapsed = n dv`, and `n(v)` is the requests that the
//! overload left with more than `v`, and those that arrived since and have not got their size:
//! `n(v) = n(0) P(R > v) + rate E{elapsed(v) - elapsed(v - X)}`. This delay equation is solved step by step. Without
//! arrivals it is `elapsed(v) = n(0) times the integral of P(R > y) from 0 to v`, which is the paper's `(load - 1) t F_e(v)`.
//!
//! **Response time.** A request of size `x` that arrives in the overload ends before the end of it or has a known rest left,
//! so its mean delay is `t (1 - exp(-growth x)) / 2 + growth times the integral of elapsed(x - z) exp(-growth z) from 0 to
//! x`: Theorem 1 after an integration by parts. A request that arrives at the clock `w` of the low load waits for
//! `elapsed(w + x) - elapsed(w)`. Its own service, and that of the few requests that a low load always has, come on top.

use super::Cycle;
use super::sizes::Sizes;
use super::steady::{fair_number, fair_response_s};
use flash_kit::Result;

/// Each step of the clock is this share of it; the first ones, until they grow, of the smallest service time.
const STEP: f64 = 0.004;
/// The most steps: the clock is then far beyond any size.
const STEPS_MAX: usize = 20_000;
/// Fewer requests than this are no backlog any more.
const NUMBER_MIN: f64 = 0.01;
/// Halvings of an interval until floating point cannot be halved further.
const HALVINGS: u32 = 200;

/// The low load at a step of the clock.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The service that each request has got, seconds.
    clock_s: f64,
    /// The time since the overload ended, seconds.
    elapsed_s: f64,
    /// The number of requests just before.
    number: f64,
    /// The mean delay in the low load of a request that arrives in the overload and has this size, seconds.
    carried_s: f64,
}

/// The model of a workload.
#[derive(Clone, Debug)]
pub struct Fair {
    sizes: Sizes,
    cycle: Cycle,
    pub(super) growth_per_s: f64,
    steps: Vec<Step>,
    /// The mean response time of each size over a cycle, seconds.
    pub by_size: Vec<f64>,
}

impl Fair {
    /// Computes the model.
    ///
    /// Errors: as [`Cycle::checked`].
    pub fn new(sizes: &Sizes, cycle: Cycle) -> Result<Self> {
        let cycle = cycle.checked()?;
        let growth_per_s = growth_per_s(sizes, sizes.arrivals_per_s(cycle.high.load));
        let (steps, by_size) = (Vec::new(), Vec::new());
        let mut fair = Self { sizes: sizes.clone(), cycle, growth_per_s, steps, by_size };
        fair.drain();
        fair.by_size = fair.responses();
        Ok(fair)
    }

    /// The share of the requests at the end of the overload that have more than this left, seconds of service.
    pub fn left_share(&self, more_than_s: f64) -> f64 {
        let rate = self.sizes.arrivals_per_s(self.cycle.high.load);
        let larger = self.sizes.atoms().iter().rev().take_while(|atom| atom.service_s > more_than_s);
        let part = larger
            .map(|atom| -atom.share * (-self.growth_per_s * (atom.service_s - more_than_s)).exp_m1())
            .sum::<f64>();
        rate / self.growth_per_s * part
    }

    /// Solves the low load.
    fn drain(&mut self) {
        let Cycle { high, low } = self.cycle;
        let rate = self.sizes.arrivals_per_s(low.load);
        let at_end = self.growth_per_s * high.duration_s;
        let first_s = self.sizes.atoms()[0].service_s * STEP;
        let mut last = Step { clock_s: 0.0, elapsed_s: 0.0, number: at_end, carried_s: 0.0 };
        self.steps.push(last);
        while self.steps.len() < STEPS_MAX && last.number > NUMBER_MIN && last.elapsed_s < low.duration_s {
            let step_s = first_s.max(last.clock_s * STEP);
            let middle_s = last.clock_s + step_s / 2.0;
            let elapsed_s = last.elapsed_s + last.number * step_s / 2.0;
            let arrived = |service_s: f64| elapsed_s - self.elapsed_s(middle_s - service_s).min(elapsed_s);
            let arrived: f64 = if rate > 0.0 {
                self.sizes.atoms().iter().map(|atom| atom.share * arrived(atom.service_s)).sum()
            } else {
                0.0
            };
            let number = at_end * self.left_share(middle_s) + rate * arrived;
            last = self.next(last, step_s, number);
            self.steps.push(last);
        }
    }

    /// The step after one with this many requests.
    fn next(&self, last: Step, step_s: f64, number: f64) -> Step {
        // The integral of `elapsed`, which is linear within the step, against the density of the overload's clock.
        let decayed = -(-self.growth_per_s * step_s).exp_m1();
        let carried_s = last.carried_s * (1.0 - decayed)
            + last.elapsed_s * decayed
            + number * (step_s - decayed / self.growth_per_s);
        Step {
            clock_s: last.clock_s + step_s,
            elapsed_s: last.elapsed_s + number * step_s,
            number,
            carried_s,
        }
    }

    /// Some figure at a clock between steps; at the ends that of the end.
    fn at(&self, clock_s: f64, figure: impl Fn(&Step) -> f64) -> f64 {
        self.between(self.steps.partition_point(|step| step.clock_s <= clock_s), clock_s, figure)
    }

    fn between(&self, after: usize, clock_s: f64, figure: impl Fn(&Step) -> f64) -> f64 {
        match (after.checked_sub(1).and_then(|before| self.steps.get(before)), self.steps.get(after)) {
            (Some(a), Some(b)) => {
                let part = (clock_s - a.clock_s) / (b.clock_s - a.clock_s);
                figure(a) + part * (figure(b) - figure(a))
            }
            (Some(end), None) | (None, Some(end)) => figure(end),
            (None, None) => 0.0,
        }
    }

    /// The time that the low load takes to give each request this much service, seconds.
    pub fn elapsed_s(&self, clock_s: f64) -> f64 {
        self.at(clock_s, |step| step.elapsed_s)
    }

    /// The mean delay of requests of a service time that arrive in the overload, by the fluid limit, seconds: Theorem 1.
    pub fn delay_in_overload_s(&self, service_s: f64) -> f64 {
        let within_s = -self.cycle.high.duration_s * (-self.growth_per_s * service_s).exp_m1() / 2.0;
        within_s + self.carried_s(service_s)
    }

    fn carried_s(&self, service_s: f64) -> f64 {
        let last = self.steps[self.steps.len() - 1];
        if service_s <= last.clock_s {
            return self.at(service_s, |step| step.carried_s);
        }
        // Nobody waits longer than until the backlog has gone.
        let decayed = -(-self.growth_per_s * (service_s - last.clock_s)).exp_m1();
        last.carried_s * (1.0 - decayed) + last.elapsed_s * decayed
    }

    /// The mean delay of requests of a service time that arrive in the low load, by the fluid limit, seconds.
    pub fn delay_in_low_load_s(&self, service_s: f64) -> f64 {
        // The step after the clock at which a request that arrives at another step ends: it only moves forward.
        let mut after = 0;
        let mut waits_s = |from: &Step| {
            let ends_at_s = from.clock_s + service_s;
            while self.steps.get(after).is_some_and(|step| step.clock_s <= ends_at_s) {
                after += 1;
            }
            self.between(after, ends_at_s, |step| step.elapsed_s) - from.elapsed_s
        };
        let (mut sum, mut last) = (0.0, (0.0, 0.0));
        for step in &self.steps {
            let now = (step.elapsed_s, waits_s(step));
            sum += (now.0 - last.0) * (now.1 + last.1) / 2.0;
            last = now;
        }
        sum / self.cycle.low.duration_s
    }

    fn responses(&self) -> Vec<f64> {
        let high_share = self.cycle.high_share();
        let has_arrivals = self.cycle.low.load > 0.0;
        let of_size = |service_s: f64| {
            let high_s = self.delay_in_overload_s(service_s) + service_s;
            let low_s = if has_arrivals {
                self.delay_in_low_load_s(service_s) + fair_response_s(service_s, self.cycle.low.load)
            } else {
                0.0
            };
            high_share * high_s + (1.0 - high_share) * low_s
        };
        self.sizes.atoms().iter().map(|atom| of_size(atom.service_s)).collect()
    }

    /// The mean response time over all sizes, seconds.
    pub fn mean_s(&self) -> f64 {
        self.sizes.mean_of(&self.by_size)
    }

    /// The number of requests at a time from the beginning of a cycle; never below that of a steady low load.
    pub fn number_at(&self, at_s: f64) -> f64 {
        let Cycle { high, low } = self.cycle;
        let fluid = if at_s <= high.duration_s {
            self.growth_per_s * at_s.max(0.0)
        } else {
            let elapsed_s = at_s - high.duration_s;
            let after = self.steps.partition_point(|step| step.elapsed_s < elapsed_s);
            self.steps.get(after).map_or(0.0, |step| step.number)
        };
        fluid.max(fair_number(low.load))
    }
}

/// How many requests more there are after each second of overload: the solution above 0 of
/// `rate (1 - E{exp(-growth X)}) = growth`, by halving the interval from 0 to `rate`.
fn growth_per_s(sizes: &Sizes, rate_per_s: f64) -> f64 {
    let surplus = |growth: f64| {
        let served = |service_s: f64| -(-growth * service_s).exp_m1();
        rate_per_s * sizes.atoms().iter().map(|atom| atom.share * served(atom.service_s)).sum::<f64>()
            - growth
    };
    let (mut low, mut high) = (0.0, rate_per_s);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if surplus(middle) > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}
