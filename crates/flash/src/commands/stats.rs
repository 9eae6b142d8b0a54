//! `flash stats`: prints the counters of a running server, and its last stalls.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use flash_server::stats::{self, Answer, ServerStalls, ServerStats, StatsError};
use flash_units::parse_duration_ms;

use super::running::Running;

/// The shortest interval between two samples.
const WATCH_LEAST_MS: u64 = 10;

/// Clears a terminal from its first line.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "docs/stats.md explains each figure. TIME is a whole number with a unit: 500ms or 5s.\n\n\
Exit codes: 0 done, 1 failed, 2 usage error, or several servers run and none was named."
)]
pub(crate) struct Stats {
    #[command(flatten)]
    server: Running,

    /// Show the last calls that blocked an event loop for 1 ms or more
    #[arg(long)]
    stalls: bool,

    /// Print JSON on one line
    #[arg(long)]
    json: bool,

    /// Print the changes every TIME; without TIME, every second
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1s",
          value_parser = watch_ms)]
    watch: Option<u64>,
}

fn watch_ms(text: &str) -> Result<u64, String> {
    match parse_duration_ms(text)? {
        ms if ms >= WATCH_LEAST_MS => Ok(ms),
        _ => Err(format!("must be at least {WATCH_LEAST_MS}ms")),
    }
}

impl Stats {
    pub(crate) fn run(self) -> ExitCode {
        let socket = match self.server.socket("stats") {
            Ok(socket) => socket,
            Err(code) => return code,
        };
        let shown = if self.stalls { self.show_stalls(&socket) } else { self.show(&socket) };
        match shown {
            Ok(()) => ExitCode::SUCCESS,
            Err(Ended::Stats(error)) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
            // The reader has closed its end.
            Err(Ended::Write(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(Ended::Write(error)) => {
                eprintln!("error: cannot write to standard output: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn show(&self, socket: &Path) -> Result<(), Ended> {
        let redraws = io::stdout().is_terminal();
        let mut before: Option<ServerStats> = None;
        loop {
            let now = stats::fetch(socket)?;
            let text = match (self.json, self.watch) {
                (true, _) => json(&Answer::of(now.clone())),
                (false, None) => stats::table(&now, None),
                (false, Some(_)) => sample(&now, before.as_ref(), redraws),
            };
            print(&text)?;
            before = Some(now);
            if !self.wait() {
                return Ok(());
            }
        }
    }

    fn show_stalls(&self, socket: &Path) -> Result<(), Ended> {
        let mut before: Option<ServerStalls> = None;
        loop {
            let now = stats::fetch_stalls(socket)?;
            print(&match &before {
                _ if self.json => json(&Answer::of_stalls(now.clone())),
                None if now.is_calm() && self.watch.is_none() => {
                    "no event loop call has taken 1 ms or more\n".to_owned()
                }
                None => stats::stalls_heading() + &stats::stalls_table(&now),
                Some(before) => stats::stalls_table(&now.since(before)),
            })?;
            before = Some(now);
            if !self.wait() {
                return Ok(());
            }
        }
    }

    /// Waits until the next sample is due; false when there is none.
    fn wait(&self) -> bool {
        self.watch.inspect(|ms| std::thread::sleep(Duration::from_millis(*ms))).is_some()
    }
}

fn json(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.to_line()).into_owned()
}

fn print(text: &str) -> Result<(), Ended> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Ended::Write)
}

/// One of several samples: the first shows all counts, the next ones the changes.
fn sample(now: &ServerStats, before: Option<&ServerStats>, redraws: bool) -> String {
    let since = before.map(|before| now.since(before));
    let (shown, seconds) = match &since {
        Some((new, seconds)) => (new, Some(*seconds)),
        None => (now, None),
    };
    match (redraws, seconds) {
        (true, _) => format!("{CLEAR}{}", stats::table(shown, seconds)),
        // Counts before the first sample have no rate.
        (false, None) => stats::line(None),
        (false, Some(_)) => stats::line(Some((shown, seconds))),
    }
}

/// The reason why the command ends.
enum Ended {
    Stats(StatsError),
    Write(io::Error),
}

impl From<StatsError> for Ended {
    fn from(error: StatsError) -> Self {
        Ended::Stats(error)
    }
}
