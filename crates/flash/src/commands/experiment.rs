//! `flash experiment`: repeats the experiments of the papers.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_kit::{Error, Result};
use flash_lab::drive::default_folder;
use flash_lab::experiment::{self, Judge, Options, READS_PER_S};
use flash_units::{parse_duration_s, parse_memory_bytes};

use super::server_args::keep_apart;
use crate::output;

const MORE: &str = "\
`flash experiment list` lists the experiments and how long each takes. `flash experiment judge DIR...` computes the \
findings again from the measurements that earlier runs kept. An experiment creates its file sets in --sets, measures every server in each \
round, and writes report.html, report.json and run.json to --out. It names the parts that this machine cannot run, and \
runs the others.

TIME is a whole number with a unit: 250ms, 10s or 2m. SIZE is a whole number of bytes, or has a unit: 64KiB or 3GB.

Exit codes: 0 done, 1 failed, 2 usage error, 130 interrupted (the results so far are kept).";

#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Experiment {
    /// Experiment: single-file, site-logs, dataset-size, breakdown, clients, new-flash, flashpache, burstiness, cpu-speed,
    /// hot-cold, overload or cwnd; or `list`, or `judge` with folders
    #[arg(value_name = "NAME", default_value = "list")]
    name: String,

    /// For `judge`: result folders of experiments
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Measure fewer and shorter points: a preview that takes minutes
    #[arg(long)]
    quick: bool,

    /// Print the plan and its duration, and measure nothing
    #[arg(long)]
    plan: bool,

    /// For `judge`: replace the findings in this document
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    into: Option<PathBuf>,

    /// Write the results to this folder [default: flash-experiment-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// Create file sets in this folder, or reuse those there [default: sets in --out]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    sets: Option<PathBuf>,

    /// Use this file set, made by `flash fileset specweb99`, instead of one in --sets
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    files: Option<PathBuf>,

    /// For `site-logs`: replay this access log instead of the two synthetic ones; repeat for several
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Workload")]
    log: Vec<PathBuf>,

    #[arg(long = "trace", hide = true, value_parser = |_: &str| super::drive_args::renamed("--log"))]
    _trace: Option<String>,

    /// Seed of the random arrivals and file choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,

    /// Servers to compare with Flash where the paper compares several; or none
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "nginx,apache-event",
        help_heading = "Run"
    )]
    peers: Vec<String>,

    /// Number of times to measure each server [default: 5; fewer give no verdict]
    #[arg(long, value_name = "N", help_heading = "Run")]
    rounds: Option<u32>,

    /// Length of each measurement [default: as planned]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, help_heading = "Run")]
    duration: Option<f64>,

    /// Memory limit of a server, including its page cache, where files must not fit; file sets scale with it
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, default_value = "512MB",
          help_heading = "Testbed")]
    memory: u64,

    /// Disk reads per second allowed to a server there
    #[arg(long, value_name = "N", default_value_t = READS_PER_S, help_heading = "Testbed")]
    reads: u32,

    /// Core of the servers [default: one that the load generator does not use]
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,

    /// Cores for the load generator, such as 1 or 2,3 [default: all except that of the servers]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Testbed")]
    cores: Vec<usize>,
}

impl Experiment {
    pub(crate) fn run(self) -> ExitCode {
        if self.name == "judge" {
            return crate::lab::finish(experiment::judge(&Judge { folders: self.dirs, into: self.into }));
        }
        let (is_list, is_plan) = (self.name == "list", self.plan);
        let text = match self.options() {
            Ok(options) if is_list => experiment::list(&options),
            Ok(options) if is_plan => experiment::describe_plan(&options),
            Ok(options) => return crate::lab::finish_run(experiment::run(&options)),
            Err(why) => Err(why),
        };
        match text {
            Ok(text) => output::print(text.into_bytes()),
            Err(why) => crate::lab::finish(Err(why)),
        }
    }

    fn options(self) -> Result<Options> {
        if !self.dirs.is_empty() || self.into.is_some() {
            return Err(Error::usage(
                "folders and --into are only for `flash experiment judge`; the results go to --out DIR",
            ));
        }
        let (mut core, mut cores) = (self.server_core, self.cores);
        keep_apart(&mut core, &mut cores);
        let out = self.out.unwrap_or_else(|| default_folder(&format!("experiment-{}", self.name)));
        Ok(Options {
            name: self.name,
            quick: self.quick,
            sets: self.sets.unwrap_or_else(|| out.join("sets")),
            out,
            files: self.files,
            logs: self.log,
            peers: self.peers.into_iter().filter(|name| name != "none").collect(),
            rounds: self.rounds,
            duration_s: self.duration,
            memory_bytes: self.memory,
            reads_per_s: self.reads,
            core,
            cores,
            seed: self.seed,
            command_line: crate::lab::command_line(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use flash_lab::experiment::MEMORY_BYTES;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        experiment: Experiment,
    }

    #[test]
    fn the_defaults_are_those_of_the_lab() {
        let given = Cli::parse_from(["experiment"]).experiment;
        assert_eq!(given.memory, MEMORY_BYTES);
    }
}
