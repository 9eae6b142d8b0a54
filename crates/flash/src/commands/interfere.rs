//! `flash interfere`: the latency of hot requests, alone and beside cold ones.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::drive::default_folder;
use flash_lab::interfere::{self, HotMix, Options, Phases};
use flash_lab::measure::Threshold;

const MORE: &str = "\
The server serves a folder made by `flash fileset specweb99`. Hot files are those of the first
directories; see to it that they are in memory, and that the cold ones are not. Latency counts from
the intended start of a request, and arrivals never wait for replies. Give it a core of its own: it
does not sleep while it measures, and says when it, and not the server, was the limit.
Exit codes: 0 done, 1 could not run, 2 bad usage, 3 a --require does not hold, 130 interrupted
(what was measured is kept).";

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Phase {
    /// Hot requests only
    Alone,
    /// Hot and cold requests
    Cold,
    /// One, then the other, and their ratio
    Both,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mix {
    /// SPECweb99's shares: 102 bytes to 900 KB, 15 KB on average
    Specweb99,
    /// 102 bytes to 92 KB, each file as often as any other
    Small,
}

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(crate) struct Interfere {
    /// The server, such as http://127.0.0.1:8080
    #[arg(value_hint = clap::ValueHint::Url)]
    url: String,

    /// Hot files are those of the first N directories
    #[arg(long, value_name = "N", default_value_t = 20)]
    hot_dirs: u32,

    /// Directories of the cold files, from FIRST up to but not including END
    #[arg(long, value_name = "FIRST..END", default_value = "20..586", value_parser = range)]
    cold_dirs: Range<u32>,

    /// Which hot files are asked for
    #[arg(long, value_enum, default_value = "specweb99")]
    hot_mix: Mix,

    /// Hot requests per second
    #[arg(long, value_name = "N", default_value_t = 4000.0)]
    hot_rate: f64,

    /// Cold requests per second, each for a file not asked for before
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    cold_rate: f64,

    /// How long requests arrive in each phase
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    seconds: f64,

    /// How long to wait for the last answers after that
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    drain_seconds: f64,

    /// The most connections at once, for hot and for cold requests each
    #[arg(long, value_name = "N", default_value_t = 1024)]
    connections: u32,

    /// Which phases to run
    #[arg(long, value_enum, default_value = "both")]
    phase: Phase,

    /// Check every byte against the file set
    #[arg(long)]
    verify: bool,

    /// The seed that the file set was made with, for --verify
    #[arg(long, value_name = "N", default_value_t = 1)]
    fileset_seed: u64,

    /// The seed of arrivals and choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The server's process, to measure what it uses
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Cores that the generator may use, such as 1 or 2,3
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cores: Vec<usize>,

    /// Load a server that is not on this machine
    #[arg(long)]
    allow_remote: bool,

    /// The folder of the results; made when missing [default: flash-interfere-DATE-TIME, none with --json]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// Keep the main figures in this file as JSON
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// What the hot requests of each phase must keep, such as 'p99<5ms' or 'errors<0.1%'
    #[arg(long, value_name = "MEASURE<LIMIT")]
    require: Vec<Threshold>,
}

/// Reads `FIRST..END`.
fn range(text: &str) -> Result<Range<u32>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
    ends.ok_or_else(|| "write two whole numbers, as in 20..586".to_owned())
}

impl Interfere {
    pub(crate) fn run(self) -> ExitCode {
        let out = match (&self.out, &self.json) {
            (None, None) => Some(default_folder("interfere")),
            _ => self.out,
        };
        let options = Options {
            url: self.url,
            hot_directories: self.hot_dirs,
            cold_directories: self.cold_dirs,
            hot_mix: match self.hot_mix {
                Mix::Specweb99 => HotMix::Specweb99,
                Mix::Small => HotMix::Small,
            },
            hot_rate_per_s: self.hot_rate,
            cold_rate_per_s: self.cold_rate,
            phase_s: self.seconds,
            drain_s: self.drain_seconds,
            connections_max: self.connections,
            phases: match self.phase {
                Phase::Alone => Phases::Alone,
                Phase::Cold => Phases::Cold,
                Phase::Both => Phases::Both,
            },
            verify_seed: self.verify.then_some(self.fileset_seed),
            seed: self.seed,
            allow_remote: self.allow_remote,
            pid: self.pid,
            cores: self.cores,
            out,
            json: self.json,
            require: self.require,
            command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        };
        crate::lab::finish_run(interfere::run(&options))
    }
}
