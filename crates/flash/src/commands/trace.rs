//! `flash trace`: which system calls of any process block, on what, and what waits behind them.

use std::path::PathBuf;
use std::process::ExitCode;

use flash_lab::trace::{self, BUFFER, Options, RecordOptions, Subject};
use flash_server::config::units::parse_size_bytes;

use super::drive_args::seconds;

const MORE: &str = "\
Traces the process and all that descends from it, each thread, by the kernel's perf events, and sees the begins of \
its requests and answers on the network. Needs root, or CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH; to see \
requests, CAP_NET_RAW. It slows down what it traces, some, and others by less: the kernel has every thread of the \
machine take a longer way into each call, and a filter looks at each of their packets. When it is killed, nothing \
stays behind.

A command after -- is traced until it ends; one that still runs when the time is over, or after Ctrl-C, is sent TERM, \
and never killed.

TIME is a number and a unit, such as 500ms or 10s; SIZE such as 8MiB. Exit codes: 0 done, 1 could not run, 2 bad \
usage, 130 interrupted (what was recorded is shown).";

/// How long a process is traced when nothing else is asked for, seconds.
const DURATION_S: f64 = 10.0;

#[derive(Debug, clap::Args)]
#[command(
    after_help = MORE,
    override_usage = "flash trace [OPTIONS] <PID>\n       flash trace [OPTIONS] -- <COMMAND>..."
)]
pub(crate) struct Trace {
    /// The process
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    pid: Option<u32>,

    /// How long [default: 10s, of a command until it ends]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    duration: Option<f64>,

    /// Room for what a core records until it is read; at most 256MiB for all cores together
    #[arg(long, value_name = "SIZE", value_parser = parse_size_bytes, default_value = BUFFER)]
    buffer: u64,

    /// Keep all of it in this file as JSON
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Write the page there, with a timeline of each event loop
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Start this command and trace it
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
            record: RecordOptions {
                subject,
                duration_s,
                buffer_bytes: self.buffer,
                command_line: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            },
            json: self.json,
            html: self.html,
        };
        crate::lab::finish_run(trace::run(&options))
    }
}
