//! The options of `flash experiment`. Their comments are their help.

use std::path::PathBuf;

use flash_units::{parse_duration_s, parse_memory_bytes};

use super::READS_PER_S;
use crate::drive::default_folder;
use crate::testbed::keep_apart;
use flash_kit::{Error, Result};

#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Experiment: single-file, site-logs, dataset-size, breakdown, clients, new-flash, flashpache, burstiness, cpu-speed,
    /// hot-cold, what-blocks, overload or cwnd; or `all`, `list`, or `judge` with folders
    #[arg(value_name = "NAME", default_value = "list")]
    pub name: String,

    /// For `judge`: result folders of experiments
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,

    /// Measure fewer and shorter points: a preview that takes minutes
    #[arg(long)]
    pub quick: bool,

    /// Print the plan and its duration, and measure nothing
    #[arg(long)]
    pub plan: bool,

    /// For `judge`: replace the findings in this document, or its table of findings and those in the documents beside it
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub into: Option<PathBuf>,

    /// For `all`: begin each experiment even while other programs use the cores
    #[arg(long)]
    pub no_wait: bool,

    /// Write the results to this folder [default: flash-experiment-NAME-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub out: Option<PathBuf>,

    // The folder of the results: `out`, or one that is named after the time.
    #[arg(skip)]
    pub(super) folder: PathBuf,

    /// Create file sets in this folder, or reuse those there [default: sets in --out]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    pub sets: Option<PathBuf>,

    /// Use this file set, made by `flash fileset specweb99`, instead of one in --sets
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    pub files: Option<PathBuf>,

    /// For `site-logs`: replay this access log instead of the two synthetic ones; repeat for several
    #[arg(long = "log", value_name = "FILE", value_hint = clap::ValueHint::FilePath, help_heading = "Workload")]
    pub logs: Vec<PathBuf>,

    // The older name of --log.
    #[arg(long, hide = true, value_parser = |_: &str| Err::<String, _>("it is named --log"))]
    pub trace: Option<String>,

    /// Seed of the random arrivals and file choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Servers to compare with Flash where the paper compares several; or none
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = super::PEERS,
        help_heading = "Run"
    )]
    pub peers: Vec<String>,

    /// Number of times to measure each server [default: 5; fewer give no verdict]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub rounds: Option<u32>,

    /// Length of each measurement [default: as planned]
    #[arg(long = "duration", value_name = "TIME", value_parser = parse_duration_s, help_heading = "Run")]
    pub duration_s: Option<f64>,

    /// Memory limit of a server, including its page cache, where files must not fit; file sets scale with it
    #[arg(long = "memory", value_name = "SIZE", value_parser = parse_memory_bytes, default_value = "512MB",
          help_heading = "Testbed")]
    pub memory_bytes: u64,

    /// Disk reads per second allowed to a server there
    #[arg(long = "reads", value_name = "N", default_value_t = READS_PER_S, help_heading = "Testbed")]
    pub reads_per_s: u32,

    /// Core of the servers [default: one that the load generator does not use]
    #[arg(long = "server-core", value_name = "N", help_heading = "Testbed")]
    pub core: Option<usize>,

    /// Cores for the load generator, such as 1 or 2,3 [default: all except that of the servers]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Testbed")]
    pub cores: Vec<usize>,
}

impl Options {
    /// The same with a folder for results, and with separate cores for the servers and the generator.
    ///
    /// Errors: usage, for options of `judge`.
    pub(super) fn settled(&self) -> Result<Self> {
        let mut options = self.clone();
        if !options.dirs.is_empty() || options.into.is_some() {
            return Err(Error::usage(
                "folders and --into are only for `flash experiment judge`; the results go to --out DIR",
            ));
        }
        keep_apart(&mut options.core, &mut options.cores);
        let named = || default_folder(&format!("experiment-{}", options.name));
        options.folder = options.out.clone().unwrap_or_else(named);
        options.peers.retain(|name| name != "none");
        Ok(options)
    }
}
