//! The capacities that the loads of a plan are fractions of: the highest rates of an open loop that servers sustain, searched
//! for after a point of infinite demand.
//!
//! [`super::rounds`] fills it in each round. The answers to infinite demand alone are no capacity: its clients wait for the
//! server, however long its queue is. Pure.

use std::collections::BTreeMap;

use super::plan::Variant;
use flash_kit::{Error, Result};
use flash_load::measure::times::median;

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
