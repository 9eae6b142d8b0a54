//! `flash doctor`: reports whether a blocked event loop or an exhausted thread pool makes requests of a running server
//! wait.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_trace::doctor::{self, Options, Source};
use flash_trace::{BUFFER, RecordOptions, Subject};
use flash_units::{parse_duration_s, parse_memory_bytes};

/// The exit code if there is no verdict.
const EXIT_UNKNOWN: u8 = 2;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "Works with any server, not only Flash. It reports whether requests wait because an event loop is blocked by \
calls for other requests, or because all threads of a pool wait for the disk. Needs root, or CAP_PERFMON, CAP_SYS_PTRACE \
and CAP_DAC_READ_SEARCH; to name requests, CAP_NET_RAW. If tracefs is not mounted, flash mounts it for itself alone \
(CAP_SYS_ADMIN).\n\n\
Watching costs throughput: a third for nginx at full load, much less below it. Nothing remains when it ends.\n\n\
docs/what-blocks.md explains the output.\n\n\
TIME is a whole number with a unit: 500ms or 10s. SIZE is a whole number of bytes, or has a unit: 8MiB.\n\n\
Exit codes: 0 no request waits behind another one, 1 some do, 2 unknown. \
Ctrl-C ends it early, with the verdict so far."
)]
pub(crate) struct Doctor {
    /// Process ID of the server's first process, or a file written by `flash trace --json`
    #[arg(value_name = "PID|FILE", value_parser = patient)]
    patient: Patient,

    /// Watch the server for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s, default_value = "10s")]
    duration: f64,

    /// Size of the event buffer of each core; at most 256MiB for all cores
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, default_value = BUFFER)]
    buffer: u64,

    /// Print the diagnosis as JSON
    #[arg(long)]
    json: bool,

    /// Write a page with the timeline of each event loop to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Write the kernel trace to this file, as `flash trace --json` does
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

/// A number is a process ID, anything else a file.
#[derive(Clone, Debug)]
enum Patient {
    Process(u32),
    File(PathBuf),
}

fn patient(text: &str) -> Result<Patient, String> {
    match text.parse() {
        Ok(0) => Err("there is no process 0".to_owned()),
        Ok(pid) => Ok(Patient::Process(pid)),
        Err(_) if text.is_empty() => Err("give a process ID or a file".to_owned()),
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
