//! The options that `flash load`, `flash profile` and `flash compare` share.
//!
//! Each flattens [`DriveArgs`]. May not measure.

use std::path::PathBuf;

use flash_lab::drive::{Options, Users, default_folder};
use flash_lab::fileset::MANIFEST;
use flash_lab::measure::Threshold;
use flash_lab::workload::{self, Spec};
use flash_server::config::units::{parse_duration_ms, parse_size_bytes};

/// What every command that drives servers says at the end of its help.
pub(crate) const MORE: &str = "\
TIME is a number and a unit, such as 250ms, 10s or 2m; SIZE is a number of bytes or has a unit, such as
64KiB or 3GB. In an open loop latency counts from the intended start of a request, and arrivals never wait
for replies. Give the generator a core of its own; it says when it, and not the server, was the limit.
Exit codes: 0 done, 1 could not run, 2 bad usage, 3 a --require does not hold, 130 interrupted (what was
measured is kept).";

#[derive(Debug, clap::Args)]
pub(crate) struct DriveArgs {
    /// The folder of a set made by `flash fileset`: its manifest says what there is
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Workload")]
    files: Option<PathBuf>,

    /// Draw from the first N directories of the SPECweb99 set
    #[arg(long, value_name = "N", help_heading = "Workload")]
    directories: Option<u32>,

    /// A list of paths to draw from, one a line, with their lengths where known
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "files",
          help_heading = "Workload")]
    paths: Option<PathBuf>,

    /// Take as much of a trace as asks for files of so many bytes together
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, help_heading = "Workload")]
    data_set: Option<u64>,

    /// Begin a trace again when it ends
    #[arg(long, help_heading = "Workload")]
    trace_loop: bool,

    /// Compare every byte with the file set
    #[arg(long, help_heading = "Workload")]
    verify: bool,

    /// The seed of arrivals and choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    seed: u64,

    /// The most connections at once; so many clients make infinite demand
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Users")]
    connections: u32,

    /// Close a connection after N requests; 1 connects for each, `unlimited` keeps it [default: 5 for
    /// specweb99, else unlimited]
    #[arg(long, value_name = "N", value_parser = per_connection, help_heading = "Users")]
    requests_per_connection: Option<u32>,

    /// Users give up after this time
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Users")]
    abort_after: Option<f64>,

    /// Users who gave up try again so often
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Users")]
    retries: u8,

    /// Users read so many bytes a second at most
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, help_heading = "Users")]
    read_rate: Option<u64>,

    /// Ask so long without measuring, first
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "2s", help_heading = "Run")]
    warm_up: f64,

    /// How long requests are started
    #[arg(long, value_name = "TIME", value_parser = seconds, help_heading = "Run")]
    duration: Option<f64>,

    /// How long to wait for the last answers after that
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "30s", help_heading = "Run")]
    drain: f64,

    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Run")]
    threads: u32,

    /// Cores that the generator may use, such as 1 or 2,3
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Run")]
    cores: Vec<usize>,

    /// Load a server that is not on this machine
    #[arg(long, help_heading = "Run")]
    allow_remote: bool,

    /// The folder of the results; made when missing [default: flash-COMMAND-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Results")]
    out: Option<PathBuf>,

    /// Keep no results, only print the table
    #[arg(long, conflicts_with = "out", help_heading = "Results")]
    discard: bool,

    /// What each level must keep, such as 'p99<5ms' or 'errors<0.1%'
    #[arg(long, value_name = "MEASURE<LIMIT", help_heading = "Results")]
    require: Vec<Threshold>,
}

/// After how many requests a connection is closed.
fn per_connection(text: &str) -> Result<u32, String> {
    match text {
        "unlimited" => Ok(u32::MAX),
        _ => text.parse().map_err(|_| "write a whole number, or unlimited".to_owned()),
    }
}

/// Reads a time such as `10s`, in seconds.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    parse_duration_ms(text).map(|duration_ms| duration_ms as f64 / 1000.0)
}

impl DriveArgs {
    /// The options of the lab for `command`, with `workload`.
    pub(crate) fn options(self, command: &str, workload: Spec) -> Options {
        Options {
            files: workload::Options {
                directories: self.directories,
                manifest: self.files.map(|folder| folder.join(MANIFEST)),
                paths: self.paths,
                dataset_bytes: self.data_set,
                trace_loop: self.trace_loop,
                ..workload::Options::default()
            },
            workload,
            users: Users {
                connections_max: self.connections,
                requests_per_connection: self.requests_per_connection,
                abort_after_s: self.abort_after,
                retries_max: self.retries,
                read_bytes_per_s: self.read_rate,
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
            command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        }
    }
}
