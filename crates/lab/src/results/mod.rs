//! What a run found, as it is kept in `run.json` and drawn by the report.
//!
//! The commands make a [`Run`], [`crate::report`] draws one or several. Plain data: figures are
//! computed in [`crate::measure`] and nowhere else. Times are milliseconds, rates per second,
//! sizes bytes, Mb/s 10⁶ bits of bodies per second, shares 0 to 1.

pub mod folder;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The form of `run.json`; a change that old readers would misread raises it.
pub const FORMAT: u32 = 1;

/// One run of a command.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// "load", "profile", "compare" or "interfere".
    pub command: String,
    /// The whole command line.
    pub command_line: Vec<String>,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// The workload in words.
    pub workload: String,
    /// How requests arrived, in words.
    pub arrivals: String,
    /// Other settings in words, by name: connections, seed, testbed.
    pub settings: BTreeMap<String, String>,
    /// What was measured: each server on each data set.
    pub subjects: Vec<Subject>,
    /// Comparisons of subjects with the first of them.
    pub ratios: Vec<Ratio>,
    /// What else must be known to believe the figures.
    pub notes: Vec<String>,
}

/// The machine, without its name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Cores.
    pub cores: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The load average over one minute before the run.
    pub load_average: f64,
}

/// One server on one data set.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Subject {
    /// Its name in tables and legends.
    pub name: String,
    /// Where it was.
    pub url: String,
    /// What it says of its version, when the lab started it.
    pub version: Option<String>,
    /// How it was started, when the lab did.
    pub command: Option<String>,
    /// The size of the files that the workload draws from, when known.
    pub dataset_bytes: Option<u64>,
    /// What it answers under infinite demand, when that was found.
    pub capacity: Option<Capacity>,
    /// Each level or phase, all rounds together.
    pub levels: Vec<Measures>,
    /// Each level in each round, where there were several.
    pub rounds: Vec<Measures>,
    /// The SPECweb99-style score, when asked for.
    pub score: Option<Score>,
    /// Why parts are missing, if they are.
    pub missing: Option<String>,
}

impl Subject {
    /// A subject of which nothing is known yet.
    pub fn of(name: &str, url: &str) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            version: None,
            command: None,
            dataset_bytes: None,
            capacity: None,
            levels: Vec::new(),
            rounds: Vec::new(),
            score: None,
            missing: None,
        }
    }
}

/// What a server answers under infinite demand.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Capacity {
    /// Proper answers.
    pub requests_per_s: f64,
    /// Bits of their bodies.
    pub megabits_per_s: f64,
    /// The same in each round.
    pub rounds_requests_per_s: Vec<f64>,
    /// Clients that asked without pause.
    pub clients: u32,
}

/// The most simultaneous connections at which all still got the least bit rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Score {
    /// The score.
    pub connections: u32,
    /// The pace that each client kept, bits/s.
    pub pace_bits_per_s: u64,
    /// What each had to get, bits/s.
    pub least_bits_per_s: u64,
    /// What was tried on the way.
    pub tries: Vec<ScoreTry>,
}

/// One step of the bisection.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ScoreTry {
    /// Connections at once.
    pub connections: u32,
    /// How many of them got the least bit rate.
    pub conforming: u32,
    /// The bit rate of the slowest.
    pub slowest_bits_per_s: f64,
    /// Failed requests of all.
    pub errors_share: f64,
    /// Whether it was enough.
    pub passed: bool,
}

/// The measures of one level of load on one subject.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measures {
    /// "0.80", "closed", "hot alone".
    pub name: String,
    /// The fraction of the capacity that was asked for.
    pub load_level: Option<f64>,
    /// From 1; none for all rounds together.
    pub round: Option<u32>,
    /// Requests per second that were asked for, in an open loop.
    pub asked_per_s: Option<f64>,
    /// How long requests were started.
    pub duration_s: f64,
    /// How long the last answers then took.
    pub drain_s: f64,
    /// Counts of requests.
    pub counts: Counts,
    /// Proper answers while requests were started.
    pub answered_per_s: f64,
    /// Bits of their bodies.
    pub megabits_per_s: f64,
    /// From the intended start to the last byte.
    pub latency: Latency,
    /// From being taken up to having a new connection; of requests that opened one.
    pub connect: Option<Latency>,
    /// From having a connection to the first byte.
    pub first_byte: Option<Latency>,
    /// From the first byte to the last.
    pub transfer: Option<Latency>,
    /// Service inversion, 0 to 1; of two answers or more.
    pub inversion: Option<f64>,
    /// The distribution of latency, in growing order.
    pub cdf: Vec<CdfPoint>,
    /// The size series, smallest first.
    pub series: Vec<SizeSeries>,
    /// The ten tenths of the answers by latency, fastest first.
    pub deciles: Vec<Decile>,
    /// The course of time.
    pub timeline: Timeline,
    /// What the generator says of itself.
    pub generator: Generator,
    /// What the server used meanwhile, when its process is known.
    pub server: Option<Usage>,
    /// The file of records, relative to `run.json`.
    pub records: Option<String>,
    /// Records that are not in the file, and why.
    pub records_lost: u64,
    /// Why it ended before its time, if it did.
    pub ended_early: Option<String>,
}

/// Counts of requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Counts {
    /// Requests started.
    pub asked: u64,
    /// Proper answers.
    pub answered: u64,
    /// The rest, by the name of their outcome; statuses as "status 404".
    pub failed: BTreeMap<String, u64>,
    /// Arrivals that found every connection in use and none left to open.
    pub queued: u64,
    /// Arrivals that the generator itself sent late by more than a millisecond.
    pub late: u64,
    /// Requests sent again, after an abort or on a connection that the server had closed.
    pub retried: u64,
    /// Connections opened.
    pub connections: u64,
}

impl Counts {
    /// Requests that got no proper answer.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

/// A summary of times; milliseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean_ms: f64,
    /// The percentiles: the smallest time that at least so many of 100 do not exceed.
    pub p5_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// See `p5_ms`.
    pub p90_ms: f64,
    /// See `p5_ms`.
    pub p95_ms: f64,
    /// See `p5_ms`.
    pub p99_ms: f64,
    /// See `p5_ms`.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

/// A point of a distribution.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct CdfPoint {
    /// At most this long ...
    pub latency_ms: f64,
    /// ... took this share.
    pub share: f64,
}

/// A series of response sizes (blocking-induced-latency, Table 3).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SizeSeries {
    /// The smallest that was answered.
    pub bytes_min: u64,
    /// The largest.
    pub bytes_max: u64,
    /// Its share of the answers.
    pub share: f64,
}

/// A tenth of the answers by latency.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Decile {
    /// The longest latency in it.
    pub latency_max_ms: f64,
    /// The share of each size series in it, in the order of [`Measures::series`].
    pub shares: Vec<f64>,
}

/// The course of time, by the intended start.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Timeline {
    /// The length of a step.
    pub step_s: f64,
    /// Step by step.
    pub points: Vec<TimelinePoint>,
}

/// One step of a timeline: the requests that were meant to start in it.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TimelinePoint {
    /// Requests started.
    pub asked: u64,
    /// Proper answers to them.
    pub answered: u64,
    /// Their median latency; none without one.
    pub p50_ms: Option<f64>,
    /// Their 99th percentile.
    pub p99_ms: Option<f64>,
    /// Their longest.
    pub max_ms: Option<f64>,
}

/// What the generator says of itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Generator {
    /// Its threads.
    pub threads: u32,
    /// By how much it took requests up later than intended, 99th percentile.
    pub late_p99_ms: f64,
    /// At most.
    pub late_max_ms: f64,
    /// The share of the time in which its busiest thread had something to do.
    pub busy_share: f64,
    /// Why the figures are of the generator rather than of the server, if they are.
    pub limit: Option<String>,
}

/// What a process and its children used in a phase.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu_s: f64,
    /// CPU time for each proper answer, microseconds.
    pub cpu_us_per_answer: f64,
    /// The most memory of its own at a sample: resident, without files (`RssAnon` and `RssShmem`).
    pub memory_max_bytes: u64,
}

/// A comparison of a subject with the first one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Ratio {
    /// What was compared: "p99", "mean", "capacity".
    pub measure: String,
    /// At which level; none for the capacity.
    pub level: Option<String>,
    /// The subject's name.
    pub subject: String,
    /// The name of the first.
    pub base: String,
    /// Subject over base.
    pub ratio: f64,
    /// The 95 % confidence interval by bootstrap; none when there was too little to draw from.
    pub interval: Option<[f64; 2]>,
}
