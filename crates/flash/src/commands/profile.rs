//! `flash profile`: latency against load.

use std::process::ExitCode;

use flash_lab::profile::{self, LEVELS, Profile as Options, Sweep};
use flash_lab::workload::Spec;

use super::drive_args::{DriveArgs, MORE};

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Profile {
    /// The server, such as http://127.0.0.1:8080
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// What is asked for: specweb99, uniform, zipf:ALPHA, single:PATH, or the files of trace:FILE in
    /// their order
    #[arg(long, value_name = "WHAT", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_values_t = LEVELS, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// The capacity in requests a second [default: found by infinite demand]
    #[arg(long, value_name = "N", help_heading = "Arrivals")]
    capacity: Option<f64>,

    /// Find the score as well: the most connections, up to MOST, that each read 400 kbit/s and all get 320
    #[arg(long, value_name = "MOST", num_args = 0..=1, require_equals = true, default_missing_value = "1000000",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000), help_heading = "Arrivals")]
    score: Option<u32>,

    /// A profile for each of several data set sizes, such as directories=100,300,600
    #[arg(long, value_name = "SIZES", help_heading = "Workload")]
    sweep: Option<Sweep>,

    /// The server's process, to measure what it uses
    #[arg(long, value_name = "PID", help_heading = "Run")]
    pid: Option<u32>,

    #[command(flatten)]
    drive: DriveArgs,
}

impl Profile {
    pub(crate) fn run(self) -> ExitCode {
        let options = Options {
            options: self.drive.options("profile", self.workload).with_endless_trace(),
            url: self.url,
            pid: self.pid,
            levels: self.levels,
            capacity_per_s: self.capacity,
            score: self.score,
            sweep: self.sweep,
        };
        crate::lab::finish_run(profile::run(&options))
    }
}
