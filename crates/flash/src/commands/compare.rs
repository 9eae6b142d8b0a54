//! `flash compare`: the same profile for several servers.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::compare::{self, Compare as Options, Entry, RelativeTo};
use flash_lab::profile::LEVELS;
use flash_lab::testbed::{self, Bounds};
use flash_lab::workload::Spec;
use flash_lab::{Error, Result};
use flash_server::config::units::parse_size_bytes;

use super::drive_args::{DriveArgs, MORE};

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Compare {
    /// NAME=URL of a server that runs, or the name of one to start: from --servers, else one of flash,
    /// nginx, nginx-aio, apache-event, apache-prefork, lighttpd, h2o, caddy [default: all of --servers]
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,

    /// A file that says how servers are started
    #[arg(long = "servers", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// What is asked for: specweb99, uniform, zipf:ALPHA or single:PATH
    #[arg(long, value_name = "WHAT", default_value = "specweb99", help_heading = "Workload")]
    workload: Spec,

    /// Fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_values_t = LEVELS, help_heading = "Arrivals")]
    levels: Vec<f64>,

    /// Of which: each server's `own`, the `lowest` of all, or so many requests a second
    #[arg(long, value_name = "CAPACITY", value_parser = relative_to, default_value = "own", help_heading = "Arrivals")]
    relative_to: RelativeTo,

    /// How often each server gets its turn
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = "Run")]
    rounds: u32,

    /// Servers that are started get so much memory, page cache included
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, help_heading = "Testbed")]
    memory: Option<u64>,

    /// Servers that are started get so many reads of the disk a second
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    reads: Option<u32>,

    /// Servers that are started get this core
    #[arg(long, value_name = "N", help_heading = "Testbed")]
    server_core: Option<usize>,

    #[command(flatten)]
    drive: DriveArgs,
}

fn relative_to(text: &str) -> std::result::Result<RelativeTo, String> {
    match text {
        "own" => Ok(RelativeTo::Own),
        "lowest" => Ok(RelativeTo::Lowest),
        _ => text.parse().map(RelativeTo::Given).map_err(|_| "write own, lowest or a number of requests a second".to_owned()),
    }
}
