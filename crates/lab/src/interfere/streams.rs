//! Hot requests and cold ones beside them: two streams of one phase.
//!
//! `interfere` drives a server with them, and the experiment that compares architectures.

use std::ops::Range;

use super::HotMix;
use super::choice::{ColdFiles, HotFiles};
use crate::drive::{Driven, Driver, Served, Users, nanoseconds};
use crate::error::Result;
use crate::load::{Pace, Stream};
use crate::measure::{PhaseFacts, SeriesBounds};
use crate::workload::{PhaseRate, poisson};

/// What is added to a seed for another row of random numbers.
const CHOICE_SEED: u64 = 0x5eed_0001;
const COLD_SEED: u64 = 0x5eed_0002;

/// The streams of a phase.
pub(crate) struct Streams {
    pub(crate) hot_mix: HotMix,
    /// Hot files are those of the first so many directories.
    pub(crate) hot_directories: u32,
    pub(crate) hot_rate_per_s: f64,
    /// Cold files are of these, each once.
    pub(crate) cold_directories: Range<u32>,
    /// None for hot requests alone.
    pub(crate) cold_rate_per_s: Option<f64>,
    pub(crate) duration_s: f64,
    /// Of each stream.
    pub(crate) connections_max: u32,
    /// Phases of one seed have the same hot arrivals and choices: only the cold ones differ.
    pub(crate) seed: u64,
}

impl Streams {
    /// Drives a server with them; gives what came of the hot ones, named first, and then of the cold ones.
    ///
    /// Errors: run, when the generator can't work.
    pub(crate) fn drive(
        &self,
        driver: &mut Driver,
        served: &Served,
        users: &Users,
        (hot_name, cold_name): (&str, &str),
        round: Option<u32>,
    ) -> Result<Vec<Driven>> {
        let setup = driver.setup(served, users, self.connections_max);
        let stream = |demand| Stream { setup: setup.clone(), demand, pace: Pace::Open };
        let rate = |rate_per_s| PhaseRate { duration_ns: nanoseconds(self.duration_s), rate_per_s };
        let mut hot = HotFiles::new(self.seed ^ CHOICE_SEED, self.hot_mix, self.hot_directories);
        let hot = poisson(self.seed, rate(self.hot_rate_per_s), move || hot.next());
        let mut streams = vec![stream(hot)];
        let facts = |name: &str, rate_per_s, series| PhaseFacts {
            name: name.to_owned(),
            round,
            asked_per_s: Some(rate_per_s),
            series,
            duration_ns: nanoseconds(self.duration_s),
            ..PhaseFacts::default()
        };
        let mut parts = vec![facts(hot_name, self.hot_rate_per_s, self.hot_mix.series())];
        if let Some(cold_rate_per_s) = self.cold_rate_per_s {
            let seed = self.seed ^ COLD_SEED;
            let mut cold = ColdFiles::new(seed, self.cold_directories.clone());
            streams.push(stream(poisson(seed, rate(cold_rate_per_s), move || cold.next())));
            parts.push(facts(cold_name, cold_rate_per_s, SeriesBounds::Quartiles));
        }
        driver.phase(served, vec![streams], self.duration_s, true, parts)
    }
}
