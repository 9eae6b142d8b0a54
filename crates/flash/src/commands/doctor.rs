//! `flash doctor`: says whether a running server waits in its event loop.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::trace::doctor::{self, Options, Source};
use flash_lab::trace::{BUFFER, RecordOptions, Subject};
use flash_server::config::units::parse_size_bytes;

use super::drive_args::seconds;

/// The exit code when there is no verdict: as when one could not be told.
const EXIT_UNKNOWN: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Any server, not only Flash. Needs root, or CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; to name requests, \
CAP_NET_RAW. How to read it: docs/what-blocks.md. Exit codes: 0 no wait, 1 it waits, 2 it could not be told. Ctrl-C ends \
it early, with the verdict of what was seen."
)]
pub(crate) struct Doctor {
    /// The first process of the server, or a file that `flash trace --json` wrote
    #[arg(value_name = "PID|FILE", value_parser = patient)]
    patient: Patient,

    /// How long it is watched
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "10s")]
    duration: f64,

    /// Room for what a core records until it is read; at most 256MiB for all cores together
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, default_value = BUFFER)]
    buffer: u64,

    /// Print the diagnosis as JSON
    #[arg(long)]
    json: bool,

    /// Write the page with the timeline of each event loop there
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Keep the trace there, as `flash trace --json` does
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

/// A number is a process, all else a file.
#[derive(Clone, Debug)]
enum Patient {
    Process(u32),
    File(PathBuf),
}

fn patient(text: &str) -> Result<Patient, String> {
    match text.parse() {
        Ok(0) => Err("there is no process 0".to_owned()),
        Ok(pid) => Ok(Patient::Process(pid)),
        Err(_) if text.is_empty() => Err("give the id of a process, or a file".to_owned()),
        Err(_) => Ok(Patient::File(PathBuf::from(text))),
    }
}

impl Doctor {
    pub(crate) fn run(self) -> ExitCode {
        let source = match self.patient {
            Patient::Process(pid) => Source::Record(RecordOptions {
                subject: Subject::Process(pid),
                duration_s: Some(self.duration),
                buffer_bytes: self.buffer,
                command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            }),
            Patient::File(path) => Source::File(path),
        };
        let options = Options { source, json: self.json, html: self.html, trace: self.trace };
        match doctor::run(&options) {
            Ok(verdict) => ExitCode::from(verdict.exit_code()),
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(EXIT_UNKNOWN)
            }
        }
    }
}
