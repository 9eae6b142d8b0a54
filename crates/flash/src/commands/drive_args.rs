//! The options that `flash load`, `flash profile` and `flash compare` share.
//!
//! Each flattens [`DriveArgs`]. Must not measure anything.

use std::path::PathBuf;

use flash_kit::Result;
use flash_lab::drive::{Options, Users, default_folder};
use flash_load::fileset::MANIFEST;
use flash_load::measure::Threshold;
use flash_load::workload::{self, DYNAMIC_PREFIX, Dynamic, Spec};
use flash_units::{parse_duration_s, parse_memory_bytes, parse_size_bytes};

/// The end of the help of every command that drives servers.
pub(crate) const MORE: &str = "\
TIME is a whole number with a unit: 250ms, 10s or 2m. SIZE is a whole number of bytes, or has a unit: 64KiB or 3GB.

In an open loop, requests arrive at their planned times whether or not earlier ones were answered, and latency counts \
from the planned time. Give the load generator its own core; it warns when it was the limit, and not the server.

Exit codes: 0 done, 1 failed, 2 usage error, 3 a --require limit was exceeded, 130 interrupted (the results so far are \
kept).";

/// The default of `--levels`: the papers' load levels.
pub(crate) const LEVELS_TEXT: &str = "0.2,0.4,0.6,0.8,0.9,0.95";

/// Refuses an option that has another name today.
pub(super) fn renamed(today: &str) -> std::result::Result<String, String> {
    Err(format!("it is named {today}"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// Folder of a file set made by `flash fileset`
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    files: Option<PathBuf>,

    /// Use only the first N directories of the SPECweb99 set
    #[arg(long, value_name = "N", help_heading = "Workload")]
    directories: Option<u32>,

    /// File that lists the paths to request, one per line, each optionally with its length
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "files",
          help_heading = "Workload")]
    paths: Option<PathBuf>,

    /// Use only the start of a log, until its distinct files add up to SIZE
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, help_heading = "Workload")]
    data_set: Option<u64>,

    /// Repeat the log when it ends
    #[arg(long, help_heading = "Workload")]
    log_loop: bool,

    #[arg(long = "trace-loop", hide = true, num_args = 0..=1, default_missing_value = "",
          value_parser = |_: &str| renamed("--log-loop"))]
    _trace_loop: Option<String>,

    /// Share of the requests that an application answers, such as 30%: each for a file, below --dynamic-prefix
    #[arg(long, value_name = "SHARE", help_heading = "Workload")]
    dynamic: Option<String>,

    /// Path prefix of dynamic requests
    #[arg(long, value_name = "PREFIX", default_value = DYNAMIC_PREFIX, help_heading = "Workload")]
    dynamic_prefix: String,

    /// Check every received byte against the file set
    #[arg(long, help_heading = "Workload")]
    verify: bool,

    /// Seed of the random arrivals and file choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,

    /// Maximum open connections; also the number of clients of the burst that begins the search for the capacity
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Users")]
    connections: u32,

    /// Close a connection after N requests, or never if `unlimited` [default: 5 for specweb99, else unlimited]
    #[arg(long, value_name = "N", value_parser = per_connection, help_heading = "Users")]
    requests_per_connection: Option<u32>,

    /// Abort a request after this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, help_heading = "Users")]
    abort_after: Option<f64>,

    /// Retry an aborted request up to N times
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Users")]
    retries: u8,

    /// Read at most SIZE per second on each connection [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, help_heading = "Users")]
    read_rate: Option<u64>,

    /// Send load for this long before measuring
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, default_value = "2s", help_heading = "Run")]
    warm_up: f64,

    /// Send load for this long at each level [default: 30s; load: 10s, or the whole log]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, help_heading = "Run")]
    duration: Option<f64>,

    /// Then wait at most this long for the last answers
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, default_value = "30s", help_heading = "Run")]
    drain: f64,

    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    threads: u32,

    /// Cores for the load generator, such as 1 or 2,3 [default: all except that of a started server]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Run")]
    cores: Vec<usize>,

    /// Allow a server that is not on this machine
    #[arg(long, help_heading = "Run")]
    allow_remote: bool,

    /// Write the results to this folder [default: flash-COMMAND-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Results")]
    out: Option<PathBuf>,

    /// Print the table and write no results
    #[arg(long, conflicts_with = "out", help_heading = "Results")]
    discard: bool,

    /// Exit with 3 if a level exceeds this limit, such as 'p99<5ms' or 'errors<0.1%'
    #[arg(long, value_name = "LIMIT", help_heading = "Results")]
    require: Vec<Threshold>,
}

/// Reads the number of requests after which a connection is closed.
fn per_connection(text: &str) -> std::result::Result<u32, String> {
    match text {
        "unlimited" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "write a whole number, or unlimited".to_owned()),
    }
}

impl DriveArgs {
    /// The options of the lab for `command`, with `workload`.
    ///
    /// Errors: usage, for a dynamic share or prefix that makes no sense.
    pub(crate) fn options(self, command: &str, workload: Spec) -> Result<Options> {
        let dynamic = self.dynamic.map(|share| Dynamic::new(&share, &self.dynamic_prefix)).transpose()?;
        Ok(Options {
            files: workload::Options {
                directories: self.directories,
                manifest: self.files.map(|folder| folder.join(MANIFEST)),
                paths: self.paths,
                dataset_bytes: self.data_set,
                log_loop: self.log_loop,
                dynamic,
                ..workload::Options::default()
            },
            workload,
            users: Users {
                connections_max: self.connections,
                requests_per_connection: self.requests_per_connection,
                abort_after_s: self.abort_after,
                retries_max: self.retries,
                read_bytes_per_s: self.read_rate,
                sessions: None,
                verify: self.verify,
            },
            warm_up_s: self.warm_up,
            duration_s: self.duration,
            drain_s: self.drain,
            threads: self.threads,
            cores: self.cores,
            seed: self.seed,
            allow_remote: self.allow_remote,
            out: (!self.discard).then(|| self.out.unwrap_or_else(|| default_folder(command))),
            require: self.require,
            command_line: crate::lab::command_line(),
        })
    }
}
