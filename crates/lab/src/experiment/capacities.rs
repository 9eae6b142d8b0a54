//! The capacities that the loads of a plan are fractions of: the highest rates of an open loop that servers sustain, searched
//! for after a point of infinite demand.
//!
//! [`super::rounds`] fills it in each round. The answers to infinite demand alone are no capacity: its clients wait for the
//! server, however long its queue is. But no search may find more than they get once they wait for the disk. Pure.

use std::collections::BTreeMap;

use super::plan::Variant;
use flash_kit::{Error, Result};
use flash_load::measure::times::median;
use flash_load::measure::{Measures, Timeline};

/// The rate of the second half of a closed loop: at first none of its clients waits for the disk.
pub(super) fn settled_per_s(measures: &Measures) -> f64 {
    let Timeline { step_s, points } = &measures.timeline;
    let half = &points[points.len() / 2..];
    let answered: u64 = half.iter().map(|point| point.answered).sum();
    answered as f64 / (half.len() as f64 * step_s)
}

/// The rates of each round, requests per second, by the names of variant and point.
#[derive(Default)]
pub(super) struct Capacities(BTreeMap<(String, String), Vec<f64>>);

impl Capacities {
    pub(super) fn add(&mut self, variant: &Variant, point: &str, per_s: f64) {
        self.0.entry((variant.name.clone(), point.to_owned())).or_default().push(per_s);
    }

    /// The median of the rounds so far, of the variant or of that whose load it gets.
    ///
    /// Errors: run, for a server that sustained no rate.
    pub(super) fn of(&self, variant: &Variant, point: &str) -> Result<f64> {
        let name = variant.load_of.as_ref().unwrap_or(&variant.name);
        let rates = self.0.get(&(name.clone(), point.to_owned())).cloned().unwrap_or_default();
        (!rates.is_empty()).then(|| median(rates)).filter(|rate| *rate > 0.0).ok_or_else(|| {
            Error::run(format!(
                "{name} sustained no rate after {point}, so there is none to ask for a fraction of"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use flash_load::measure::{PhaseFacts, TimelinePoint, measures};

    use super::*;

    #[test]
    fn the_first_half_of_a_closed_loop_is_no_capacity() {
        let point = |answered| TimelinePoint { answered, ..TimelinePoint::default() };
        let timeline = Timeline { step_s: 0.5, points: [900, 900, 100, 300].map(point).into() };
        assert_eq!(settled_per_s(&Measures { timeline, ..measures(&[], &PhaseFacts::default()) }), 400.0);
    }
}
