//! `flash trace`: reports which system calls of any process block, on what, and which connections wait behind them.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_trace::{BUFFER, Options, RecordOptions, Subject};
use flash_units::{parse_duration_s, parse_memory_bytes};

const MORE: &str = "\
Records the system calls of the process, its threads and all its descendants by the kernel's perf events, and sees \
their requests and answers on the network. Needs root, or CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; to see \
requests, CAP_NET_RAW. If tracefs is not mounted, flash mounts it for itself alone (CAP_SYS_ADMIN).

Recording costs throughput: a third for nginx at full load, much less below it. Other processes pay less: the kernel has \
every thread of the machine take a longer path into each call, and a filter looks at each packet. Nothing remains when \
it ends, even if it is killed.

A command after -- is recorded until it ends. If it still runs when the time is over, or after Ctrl-C, it receives \
SIGTERM, never SIGKILL.

TIME is a whole number with a unit: 500ms or 10s. SIZE is a whole number of bytes, or has a unit: 8MiB.

Exit codes: 0 done, 1 failed, 2 usage error, 130 interrupted (the events so far are shown).";

/// The default duration for a process, in seconds.
const DURATION_S: f64 = 10.0;

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = MORE,
    override_usage = "flash trace [OPTIONS] <PID>\n       flash trace [OPTIONS] -- <COMMAND>..."
)]
pub(crate) struct Trace {
    /// Process ID to trace
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pid: Option<u32>,

    /// Trace for this long [default: 10s; a command: until it ends]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_s)]
    duration: Option<f64>,

    /// Size of the event buffer of each core; at most 256MiB for all cores
    #[arg(long, value_name = "SIZE", value_parser = parse_memory_bytes, default_value = BUFFER)]
    buffer: u64,

    /// Write the whole trace to this file as JSON
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Write an HTML page with a timeline of each event loop to this file
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Command to start and trace
    #[arg(last = true, value_name = "COMMAND", value_hint = clap::ValueHint::CommandWithArguments)]
    command: Vec<String>,
}

impl Trace {
    pub(crate) fn run(self) -> ExitCode {
        let (subject, duration_s) = match self.pid {
            Some(pid) => (Subject::Process(pid), Some(self.duration.unwrap_or(DURATION_S))),
            None => (Subject::Command(self.command), self.duration),
        };
        let options = Options {
            record: RecordOptions { subject, duration_s, buffer_bytes: self.buffer },
            json: self.json,
            html: self.html,
        };
        crate::lab::finish_run(flash_trace::run(&options))
    }
}
