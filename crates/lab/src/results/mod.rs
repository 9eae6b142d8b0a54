//! The results of a run, as `run.json` keeps them and the report draws them.
//!
//! The commands make a [`Run`], [`crate::report`] draws one or several. Plain data: figures are
//! computed in [`flash_load::measure`] and nowhere else. Times are milliseconds, rates per second,
//! sizes bytes, Mb/s 10⁶ bits of bodies per second, shares 0 to 1.

pub mod folder;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use flash_kit::number::size;
use flash_load::measure::Measures;
use serde::{Deserialize, Serialize};

/// The form of `run.json`; a change that old readers would misread raises it.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Run {
    pub format: u32,
    /// "load", "profile", "compare" or "interfere".
    pub command: String,
    pub command_line: Vec<String>,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    pub workload: String,
    /// How requests arrived, in words.
    pub arrivals: String,
    /// Other settings in words, by name: connections, seed, testbed.
    pub settings: BTreeMap<String, String>,
    /// Each server on each data set.
    pub subjects: Vec<Subject>,
    /// Comparisons of subjects with the first of them.
    pub ratios: Vec<Ratio>,
    /// Facts that a reader needs before believing the figures.
    pub notes: Vec<String>,
}

/// The machine, without its name, and the program.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    /// The kernel's name and release.
    pub kernel: String,
    /// The load average over one minute before the run.
    pub load_average: f64,
    /// The version of the program that measured, with its commit.
    #[serde(default)]
    pub program: String,
}

static PROGRAM: OnceLock<&'static str> = OnceLock::new();

/// Names the version of this program, for the results. The program calls it once, when it starts.
pub fn set_program(version: &'static str) {
    let _ = PROGRAM.set(version);
}

pub(crate) fn program() -> String {
    PROGRAM.get().copied().unwrap_or_default().to_owned()
}

impl Machine {
    pub(crate) fn text(&self) -> String {
        let Self { cpu, cores, memory_bytes, kernel, .. } = self;
        let cpu = if cpu.is_empty() { String::new() } else { format!("{cpu}, ") };
        format!("{cpu}{cores} cores, {} memory, {kernel}", size(*memory_bytes as f64))
    }
}

/// One server on one data set.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Subject {
    pub name: String,
    pub url: String,
    /// The version that it prints, when the lab started it.
    pub version: Option<String>,
    /// How it was started, when the lab did.
    pub command: Option<String>,
    /// The size of the files that the workload draws from, when known.
    pub dataset_bytes: Option<u64>,
    /// The highest rate that it sustains, when that was found.
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
        Self { name: name.to_owned(), url: url.to_owned(), ..Self::default() }
    }
}

/// The highest rate of an open loop that a server sustains: answers keep up with arrivals, and the queue does not grow.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Capacity {
    /// Proper answers.
    pub requests_per_s: f64,
    /// Bits of their bodies.
    pub megabits_per_s: f64,
    pub rounds_requests_per_s: Vec<f64>,
    /// The most connections at once.
    pub clients: u32,
    /// Why it might not be the server's own, one for each round in doubt: requests of a deciding probe failed, or the
    /// generator was its limit.
    #[serde(default)]
    pub doubts: Vec<String>,
}

/// The most simultaneous connections at which all still got the least bit rate.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Score {
    pub connections: u32,
    pub pace_bits_per_s: u64,
    pub least_bits_per_s: u64,
    pub tries: Vec<ScoreTry>,
}

/// One step of the bisection.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ScoreTry {
    pub connections: u32,
    /// How many of them got the least bit rate.
    pub conforming: u32,
    pub slowest_bits_per_s: f64,
    /// Failed requests of all.
    pub errors_share: f64,
    /// Whether it was enough.
    pub passed: bool,
}

/// The measure of a [`Ratio`] of CPU time.
pub const CPU_PER_ANSWER: &str = "CPU per answer";

/// A comparison of a subject with the first one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Ratio {
    /// The measure: "p99", "mean", "capacity", [`CPU_PER_ANSWER`].
    pub measure: String,
    /// At which level; none for the capacity.
    pub level: Option<String>,
    pub subject: String,
    /// The name of the first.
    pub base: String,
    /// Subject over base.
    pub ratio: f64,
    /// The 95 % confidence interval; none when there was too little to draw from, or when there is a doubt.
    pub interval: Option<[f64; 2]>,
    /// Why the ratio says nothing about the servers, if it does not: "overloaded in 2 of 10 rounds".
    #[serde(default)]
    pub doubt: Option<String>,
}
