//! The theory of overload: response times and backlogs of a link that is shared by requests, computed and not measured.
//!
//! The model is the one of B. Schroeder and M. Harchol-Balter, *Web servers under overload: How scheduling can help*,
//! Appendix A: the uplink is an M/G/1 queue. Requests arrive as a Poisson process, the service time of a request is its
//! size over the rate of the link, and the link works under one of two policies. FAIR gives all requests equal shares
//! (processor sharing). SRPT serves the request with the least service left, and a new request preempts.
//!
//! | module | figures |
//! |---|---|
//! | [`sizes`] | the distribution of service times, and the load of a rate of arrivals |
//! | [`steady`] | response times below a load of 1 that does not change (M/G/1) |
//! | [`fair`], [`srpt`] | response times by size and the backlog over time when overload and low load alternate |
//!
//! The formulas for alternating load are fluid limits: they hold for periods that are long against the service time of a
//! request, and leave out delays that do not grow with the period. The paper prints them for an OFF period without
//! arrivals (Theorem 1); here low load can be above 0, as in the paper's workloads W1 to W9. The module's tests compare
//! the formulas with closed forms and with a simulation of the model, job by job.
//!
//! The model has no TCP, no round-trip time, no loss and no server: measurements are above it, by what these cost.
//!
//! The experiment `overload` plots its figures beside measurements. Pure: it reads no clock and does no I/O.

pub mod fair;
#[cfg(test)]
#[path = "simulation_tests.rs"]
mod simulation;
pub mod sizes;
pub mod srpt;
pub mod steady;

use flash_kit::{Error, Result};

/// A time during which the load does not change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub duration_s: f64,
    /// Service time that arrives per second: 1 is all that the link can do.
    pub load: f64,
}

/// Overload and then low load, over and over (Table 1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cycle {
    /// The overload, with a load above 1.
    pub high: Period,
    /// The low load, below 1; 0 is the ON/OFF model of Appendix A.
    pub low: Period,
}

impl Cycle {
    /// Refuses a cycle that the model has no figures for.
    ///
    /// Errors: usage, for durations and loads that are not finite or not positive, overload of at most 1, low load of 1
    /// or more, and a low period too short to serve what the overload has left.
    pub fn checked(self) -> Result<Self> {
        let Self { high, low } = self;
        let is_finite =
            [high.duration_s, high.load, low.duration_s, low.load].iter().all(|value| value.is_finite());
        if !is_finite || high.duration_s <= 0.0 || low.duration_s <= 0.0 {
            return Err(Error::usage("a cycle of load needs finite loads and periods of more than 0 s"));
        }
        if high.load <= 1.0 || !(0.0..1.0).contains(&low.load) {
            return Err(Error::usage(format!(
                "loads of {} and {}: the overload must be above 1, and the low load from 0 to below 1",
                high.load, low.load
            )));
        }
        let drain_s = self.drain_s();
        if drain_s > low.duration_s {
            return Err(Error::usage(format!(
                "the backlog of the overload takes {drain_s:.1} s of low load, and that lasts {} s: choose a longer \
                 low period or lower loads",
                low.duration_s
            )));
        }
        Ok(self)
    }

    /// How long the low load takes to serve the backlog, seconds: the same under every policy that never idles.
    pub fn drain_s(self) -> f64 {
        (self.high.load - 1.0) * self.high.duration_s / (1.0 - self.low.load)
    }

    /// The share of all requests that arrive in the overload.
    pub fn high_share(self) -> f64 {
        let Self { high, low } = self;
        let work_s = |period: Period| period.load * period.duration_s;
        work_s(high) / (work_s(high) + work_s(low))
    }
}

#[cfg(test)]
mod theory_tests;
