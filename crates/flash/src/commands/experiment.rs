//! `flash experiment`: the papers' experiments.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::drive::{Ending, default_folder};
use flash_lab::experiment::{self, MEMORY_BYTES, Options, PEERS, READS_PER_S, Table};
use flash_lab::{Error, Result};
use flash_server::config::units::parse_size_bytes;

use super::compare::keep_apart;
use super::drive_args::seconds;
use crate::output;

const MORE: &str = "\
`flash experiment list` says what there is and how long it takes; `flash experiment table DIR...` puts the findings
of several into one table. Each makes its file sets (--sets), gives every server its turn in rounds, and leaves a
page, report.json and run.json in --out. What the machine or this program can't do is named, and the rest runs.
Exit codes: 0 done, 1 could not run, 2 bad usage, 130 interrupted (what was measured is kept).";

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Experiment {
    /// single-file, trace, dataset-size, breakdown, clients, new-flash, burstiness, cpu-speed or hot-cold; `list`, or
    /// `table` with folders
    #[arg(value_name = "NAME", default_value = "list")]
    name: String,

    /// Folders that experiments left behind, for `table`
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    dirs: Vec<PathBuf>,

    /// Fewer points, shorter ones: what to expect, in minutes
    #[arg(long)]
    quick: bool,

    /// Say what would be done, and how long it would take
    #[arg(long)]
    plan: bool,

    /// For `table`: replace the rows in this document
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    into: Option<PathBuf>,

    /// The folder of the results; made when missing [default: flash-experiment-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// The folder of the file sets that are made, to be used again [default: sets in --out]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    sets: Option<PathBuf>,

    /// A set made by `flash fileset specweb99`, in place of one in --sets
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    files: Option<PathBuf>,

    /// For `trace`: a real log, in place of the two made-up ones; several are possible
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Workload")]
    trace: Vec<PathBuf>,

    /// The seed of arrivals and choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,

    /// Ready-made servers beside Flash, where the paper has others too; `none` for none
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values_t = PEERS.map(str::to_owned),
          help_heading = "Run")]
    peers: Vec<String>,

    /// How often each server gets its turn [default: 3; with fewer nothing can be told]
    #[arg(long, value_name = "N", help_heading = "Run")]
    rounds: Option<u32>,

    /// How long each measurement lasts [default: as planned]
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Run")]
    duration: Option<f64>,

    /// Memory of a server, page cache included, where files are not to fit; their sizes follow it
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, default_value_t = MEMORY_BYTES,
          help_heading = "Testbed")]
    memory: u64,

    /// Reads of the disk a second, there
    #[arg(long, value_name = "N", default_value_t = READS_PER_S, help_heading = "Testbed")]
    reads: u32,

    /// The core of the servers
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,

    /// Cores that the generator may use, such as 1 or 2,3
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Testbed")]
    cores: Vec<usize>,
}

impl Experiment {
    pub(crate) fn run(self) -> ExitCode {
        if self.name == "table" {
            return crate::lab::finish(experiment::table(&Table { folders: self.dirs, into: self.into }));
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
            Err(why) => crate::lab::finish_run(Err::<Ending, _>(why)),
        }
    }

    fn options(self) -> Result<Options> {
        if !self.dirs.is_empty() || self.into.is_some() {
            return Err(Error::usage("folders and --into are for `flash experiment table`: give --out DIR"));
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
            traces: self.trace,
            peers: self.peers.into_iter().filter(|name| name != "none").collect(),
            rounds: self.rounds,
            duration_s: self.duration,
            memory_bytes: self.memory,
            reads_per_s: self.reads,
            core,
            cores,
            seed: self.seed,
            command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        })
    }
}
