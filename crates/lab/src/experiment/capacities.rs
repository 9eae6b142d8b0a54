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

/// The capacities by the names of variant and point.
#[derive(Default)]
pub(super) struct Capacities(BTreeMap<(String, String), Rates>);

/// Requests per second.
#[derive(Default)]
struct Rates {
    /// Those that the searches of the rounds have found.
    found: Vec<f64>,
    /// That to which they were lowered, because the server did not keep up with a fraction of them.
    most: Option<f64>,
}

impl Capacities {
    fn rates_of(&mut self, variant: &Variant, point: &str) -> &mut Rates {
        self.0.entry((variant.name.clone(), point.to_owned())).or_default()
    }

    pub(super) fn add(&mut self, variant: &Variant, point: &str, per_s: f64) {
        self.rates_of(variant, point).found.push(per_s);
    }

    /// From now on no more than this: the search of a few seconds does not see a queue that takes longer to grow.
    pub(super) fn lower(&mut self, variant: &Variant, point: &str, per_s: f64) {
        let rates = self.rates_of(variant, point);
        rates.most = Some(rates.most.map_or(per_s, |most| most.min(per_s)));
    }

    /// The median of the rounds so far, and no more than it was lowered to.
    ///
    /// Errors: run, for a server that sustained no rate.
    pub(super) fn of(&self, variant: &Variant, point: &str) -> Result<f64> {
        let Variant { name, .. } = variant;
        let rates = self.0.get(&(name.clone(), point.to_owned())).filter(|rates| !rates.found.is_empty());
        let rate = rates.map(|rates| median(rates.found.clone()).min(rates.most.unwrap_or(f64::INFINITY)));
        rate.filter(|rate| *rate > 0.0).ok_or_else(|| {
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
    fn the_capacity_of_a_server_that_did_not_keep_up_stays_lowered() {
        let variant = Variant { name: "a".to_owned(), ..Variant::default() };
        let mut capacities = Capacities::default();
        assert!(capacities.of(&variant, "infinite").is_err());
        for per_s in [900.0, 1000.0, 1100.0] {
            capacities.add(&variant, "infinite", per_s);
        }
        assert_eq!(capacities.of(&variant, "infinite").ok(), Some(1000.0));
        for (per_s, least) in [(800.0, 800.0), (850.0, 800.0), (1200.0, 800.0)] {
            capacities.lower(&variant, "infinite", per_s);
            assert_eq!(capacities.of(&variant, "infinite").ok(), Some(least));
        }
    }

    #[test]
    fn the_first_half_of_a_closed_loop_is_no_capacity() {
        let point = |answered| TimelinePoint { answered, ..TimelinePoint::default() };
        let timeline = Timeline { step_s: 0.5, points: [900, 900, 100, 300].map(point).into() };
        assert_eq!(settled_per_s(&Measures { timeline, ..measures(&[], &PhaseFacts::default()) }), 400.0);
    }
}
