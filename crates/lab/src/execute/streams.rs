//! The two streams of a phase: hot requests, and cold requests beside them.
//!
//! `interfere` and the experiment that compares architectures drive servers with them.

use std::ops::Range;

use super::choice::{ColdFiles, HotFiles, HotMix};
use crate::drive::{Driven, Driver, Served, Users, nanoseconds};
use flash_kit::Result;
use flash_load::generator::{Pace, Stream};
use flash_load::measure::{PhaseFacts, SeriesBounds};
use flash_load::workload::{PhaseRate, StreamId, poisson};

/// The random sequences of a phase, by their numbers.
const HOT_ARRIVALS: StreamId = StreamId { phase: 0, round: 0, stream: 0 };
const HOT_CHOICES: StreamId = StreamId { stream: 1, ..HOT_ARRIVALS };
const COLD_ARRIVALS: StreamId = StreamId { stream: 2, ..HOT_ARRIVALS };
const COLD_CHOICES: StreamId = StreamId { stream: 3, ..HOT_ARRIVALS };

/// The streams of a phase.
pub(crate) struct Streams {
    pub(crate) hot_mix: HotMix,
    /// The number of directories, from the first, that hold the hot files.
    pub(crate) hot_directories: u32,
    pub(crate) hot_rate_per_s: f64,
    /// The directories of the cold files; each file is requested once.
    pub(crate) cold_directories: Range<u32>,
    /// The seed of the order of the cold files.
    pub(crate) cold_order_seed: u64,
    /// The number of cold files that earlier phases with the same order requested.
    pub(crate) cold_taken: u32,
    /// None for hot requests alone.
    pub(crate) cold_rate_per_s: Option<f64>,
    pub(crate) duration_s: f64,
    /// The most connections of each stream.
    pub(crate) connections_max: u32,
    /// The share of the hot files' bytes that stays in memory, where it is known.
    pub(crate) in_memory_share: Option<f64>,
    /// Phases with one seed have the same hot requests at the same times.
    pub(crate) seed: u64,
}

impl Streams {
    /// Drives a server with both streams. Returns the results of the hot requests, then those of the cold requests.
    ///
    /// Errors: run, when the generator cannot run.
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
        let mut hot = HotFiles::new(HOT_CHOICES.seed(self.seed), self.hot_mix, self.hot_directories);
        let hot = poisson(HOT_ARRIVALS.seed(self.seed), rate(self.hot_rate_per_s), move || hot.next());
        let mut streams = vec![stream(hot)];
        let facts = |name: &str, rate_per_s, series| PhaseFacts {
            name: name.to_owned(),
            round,
            asked_per_s: Some(rate_per_s),
            series,
            duration_ns: nanoseconds(self.duration_s),
            ..PhaseFacts::default()
        };
        let hot = facts(hot_name, self.hot_rate_per_s, self.hot_mix.series());
        let mut parts = vec![PhaseFacts { in_memory_share: self.in_memory_share, ..hot }];
        if let Some(cold_rate_per_s) = self.cold_rate_per_s {
            let seed = COLD_ARRIVALS.seed(self.seed);
            let order = COLD_CHOICES.seed(self.cold_order_seed);
            let mut cold = ColdFiles::new(order, self.cold_directories.clone()).skip(self.cold_taken);
            streams.push(stream(poisson(seed, rate(cold_rate_per_s), move || cold.next())));
            parts.push(facts(cold_name, cold_rate_per_s, SeriesBounds::Quartiles));
        }
        driver.phase(served, vec![streams], self.duration_s, true, parts)
    }
}
