//! The two streams of a phase: hot requests, and other requests beside them.
//!
//! `interfere` and the experiment that compares architectures drive servers with them.

use std::ops::Range;
use std::sync::Arc;

use super::choice::{ColdFiles, HotFiles, HotMix};
use crate::drive::{Driven, Driver, Served, Users, nanoseconds};
use flash_kit::Result;
use flash_load::generator::{Pace, Setup, Stream};
use flash_load::measure::{PhaseFacts, SeriesBounds};
use flash_load::workload::{self, Arrivals, PhaseRate, Spec, StreamId, Workload, poisson};

/// The random sequences of a phase, by their numbers.
const HOT_ARRIVALS: StreamId = StreamId { phase: 0, round: 0, stream: 0 };
const HOT_CHOICES: StreamId = StreamId { stream: 1, ..HOT_ARRIVALS };
const COLD_ARRIVALS: StreamId = StreamId { stream: 2, ..HOT_ARRIVALS };
const COLD_CHOICES: StreamId = StreamId { stream: 3, ..HOT_ARRIVALS };

pub(crate) struct Streams<'a> {
    pub(crate) hot_mix: HotMix,
    /// The number of directories, from the first, that hold the hot files.
    pub(crate) hot_directories: u32,
    pub(crate) hot_rate_per_s: f64,
    /// None for hot requests alone.
    pub(crate) beside: Option<&'a Beside>,
    /// The order of the cold files, and how many of them earlier phases with the same order requested.
    pub(crate) order_seed: u64,
    pub(crate) taken: u32,
    pub(crate) duration_s: f64,
    pub(crate) connections_max: u32,
    pub(crate) in_memory_share: Option<f64>,
    /// Phases with one seed have the same hot requests at the same times.
    pub(crate) seed: u64,
}

/// The requests beside the hot ones.
#[derive(Clone, Debug)]
pub enum Beside {
    /// Poisson arrivals for cold files, each of which is requested once.
    Cold {
        directories: Range<u32>,
        rate_per_s: f64,
        /// Whether the names of the files are looked up before each server's turn. Otherwise a file's first request reads its
        /// name and attributes from the disk too: 30 and more reads on ext4, which reads ahead inodes.
        looks_up_names: bool,
    },
    /// Clients that request a path of an application again and again, and wait for its answer most of the time.
    Waiting {
        path: String,
        /// How many wait at once.
        requests: u32,
    },
}

impl Streams<'_> {
    /// Drives a server with both streams. Returns the results of the hot requests, then those of the others.
    ///
    /// Errors: run, when the generator cannot run.
    pub(crate) fn drive(
        &self,
        driver: &mut Driver,
        served: &Served,
        users: &Users,
        (hot_name, beside_name): (&str, &str),
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
            asked_per_s: rate_per_s,
            series,
            duration_ns: nanoseconds(self.duration_s),
            ..PhaseFacts::default()
        };
        let hot = facts(hot_name, Some(self.hot_rate_per_s), self.hot_mix.series());
        let mut parts = vec![PhaseFacts { in_memory_share: self.in_memory_share, ..hot }];
        match self.beside {
            Some(Beside::Cold { directories, rate_per_s, .. }) => {
                let seed = COLD_ARRIVALS.seed(self.seed);
                let order = COLD_CHOICES.seed(self.order_seed);
                let mut cold = ColdFiles::new(order, directories.clone());
                cold.taken = self.taken;
                streams.push(stream(poisson(seed, rate(*rate_per_s), move || cold.next())));
                parts.push(facts(beside_name, Some(*rate_per_s), SeriesBounds::Quartiles));
            }
            Some(Beside::Waiting { path, requests }) => {
                let workload =
                    Workload::open(&Spec::Single { path: path.clone() }, &workload::Options::default())?;
                let demand = workload.demands(&Arrivals::Closed, self.seed, 1).remove(0);
                let setup =
                    Setup { catalogue: Arc::clone(workload.catalogue()), verify: false, ..setup.clone() };
                let pace = Pace::Closed { clients: *requests, think_ns: 0 };
                streams.push(Stream { setup, demand, pace });
                parts.push(facts(beside_name, None, SeriesBounds::Quartiles));
            }
            None => {}
        }
        driver.phase(served, vec![streams], self.duration_s, true, parts)
    }
}
