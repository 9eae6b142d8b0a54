//! The figures that a run shows: its progress on standard error, and its results on standard output.
//!
//! A [`super::Driver`] has one set of options for both. The progress is the work of the thread that gathers records, so that
//! the generator's threads do not wait for a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use crate::report::Format;
use flash_kit::number::{self, figure};
use flash_load::generator::Keep;
use flash_load::measure::seconds::{SECOND_NS, Second, Seconds};
use flash_load::record::Record;

use super::out::PhaseFiles;

/// After the end of a second, its last records are awaited for this long.
const GRACE_NS: u64 = SECOND_NS / 4;

/// The options of a run's figures. Their comments are their help.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Results")]
pub struct Options {
    /// Report each second's rate, latency and failures on standard error: auto (if it is a terminal), always or never
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value = "auto",
        default_missing_value = "always",
        num_args = 0..=1,
        require_equals = true,
        hide_possible_values = true
    )]
    pub progress: When,

    /// Print the results as text, json, csv, hdr (percentiles of HdrHistogram) or prometheus
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", hide_possible_values = true)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    #[default]
    Auto,
    Always,
    Never,
}

/// Keeps the records of a phase, and reports its progress where that is wanted.
pub(super) struct Followed {
    files: PhaseFiles,
    progress: Option<Progress>,
}

struct Progress {
    seconds: Mutex<Seconds>,
    /// The phase: how long requests start.
    duration_ns: u64,
    /// The line is written over the one before.
    is_terminal: bool,
}

impl Followed {
    pub(super) fn new(files: PhaseFiles, when: When, duration_ns: u64) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let is_wanted = match when {
            When::Auto => is_terminal,
            When::Always => true,
            When::Never => false,
        };
        let progress = is_wanted.then(|| Progress { seconds: Mutex::default(), duration_ns, is_terminal });
        Self { files, progress }
    }

    /// Ends the progress.
    pub(super) fn into_files(self) -> PhaseFiles {
        self.files
    }
}

impl Keep for Followed {
    fn keep(&self, stream: usize, records: &[Record]) {
        self.files.keep(stream, records);
        if let Some(progress) = &self.progress {
            progress.seconds.lock().unwrap_or_else(PoisonError::into_inner).add(records);
        }
    }

    fn next_look_ns(&self, after_ns: u64) -> Option<u64> {
        self.progress
            .as_ref()
            .map(|_| (after_ns.saturating_sub(GRACE_NS) / SECOND_NS + 1) * SECOND_NS + GRACE_NS)
    }

    fn look(&self, now_ns: u64) {
        let Some(Progress { seconds, duration_ns, is_terminal }) = &self.progress else { return };
        let (number, second) = seconds.lock().unwrap_or_else(PoisonError::into_inner).end();
        let text = line(number + 1, &second, duration_ns.saturating_sub(now_ns));
        // Nobody needs to read it.
        let _ = match is_terminal {
            true => write!(io::stderr(), "\r{text}\x1b[K"),
            false => writeln!(io::stderr(), "{text}"),
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(second: u64, figures: &Second, left_ns: u64) -> String {
    let Second { answered, failed, p50_ms, p99_ms } = *figures;
    let time = |time_ms: Option<f64>| time_ms.map_or_else(|| number::NONE.to_owned(), number::time);
    let left = match left_ns.div_ceil(SECOND_NS) {
        0 => "waiting for answers".to_owned(),
        seconds => format!("{seconds} s left"),
    };
    format!(
        "  {second} s: {}/s, p50 {}, p99 {}, {} failed; {left}",
        figure(answered as f64),
        time(p50_ms),
        time(p99_ms),
        number::count(failed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_figures_of_a_second() {
        let second = Second { answered: 12_345, failed: 3, p50_ms: Some(0.162), p99_ms: Some(12.0) };
        let text = line(7, &second, 2 * SECOND_NS + 1);
        assert_eq!(text, "  7 s: 12,345/s, p50 0.162 ms, p99 12.0 ms, 3 failed; 3 s left");
        let text = line(8, &Second::default(), 0);
        assert_eq!(text, "  8 s: 0/s, p50 –, p99 –, 0 failed; waiting for answers");
    }

    #[test]
    fn looks_come_a_little_after_each_second() {
        let of = |when| Followed::new(PhaseFiles::default(), when, 5 * SECOND_NS);
        let followed = of(When::Always);
        let mut looks = vec![0];
        for _ in 0..3 {
            looks.extend(followed.next_look_ns(looks[looks.len() - 1]));
        }
        assert_eq!(looks, [0, 1_250_000_000, 2_250_000_000, 3_250_000_000]);
        assert_eq!(of(When::Never).next_look_ns(0), None);
    }
}
