//! `flash profile`: measures latency at increasing load.

use std::process::ExitCode;

use flash_kit::Result;
use flash_lab::profile::{self, Profile as Options, Sweep};
use flash_load::workload::Spec;

use super::drive_args::{DriveArgs, LEVELS_TEXT, MORE};

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Profile {
    /// Server to load, such as http://127.0.0.1:8080
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// Files to request: specweb99, uniform, zipf:ALPHA, single:PATH, or log:FILE in the order of the log
    #[arg(long, value_name = "WORKLOAD", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Loads to measure, as fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_value = LEVELS_TEXT, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Capacity in requests per second [default: measured]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    capacity: Option<f64>,

    /// Also find the most connections, up to MOST, that all receive 320 kbit/s when each reads at most 400 kbit/s
    #[arg(long, value_name = "MOST", num_args = 0..=1, require_equals = true, default_missing_value = "1000000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Arrivals")]
    score: Option<u32>,

    /// Run one profile for each data set size, such as directories=100,300,600
    #[arg(long, value_name = "SIZES", help_heading = "Workload")]
    sweep: Option<Sweep>,

    /// Process ID of the server, to measure its CPU time and memory
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    drive: DriveArgs,
}

impl Profile {
    pub(crate) fn run(self) -> ExitCode {
        crate::lab::finish_run(self.options().and_then(|options| profile::run(&options)))
    }

    fn options(self) -> Result<Options> {
        Ok(Options {
            options: self.drive.options("profile", self.workload)?.with_endless_log(),
            url: self.url,
            pid: self.pid,
            levels: self.levels,
            capacity_per_s: self.capacity,
            score: self.score,
            sweep: self.sweep,
        })
    }
}
