//! The hot and cold test of DESIGN.md: `flash interfere`.
//!
//! It asks a server for hot files (in its memory) at a steady rate, alone and then beside
//! requests for cold files (on its disk only), and compares the latency of the hot ones. It
//! measures what a client sees; that hot files are in memory and cold ones are not is the business
//! of `bench/interfere.py`, which calls it.

mod choice;
mod report;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::fileset::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY};
use crate::load::{self, Pace, Phase, Ran, Setup, Stop, Stream};
use crate::record::Outcome;
use crate::target::Target;
use crate::workload::arrivals::Arrivals;
use crate::workload::{Ask, Catalogue, Demand};

use choice::{ColdFiles, HotFiles};
use report::{PhaseReport, Report, Tally};

/// Connections that ask for the hot files before the measurement.
const WARM_UP_CONNECTIONS: usize = 8;
/// What is added to a seed for another row of random numbers.
const CHOICE_SEED: u64 = 0x5eed_0001;
const COLD_SEED: u64 = 0x5eed_0002;

/// Which phases to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phases {
    /// Hot requests only.
    Alone,
    /// Hot and cold requests.
    Cold,
    /// One, then the other, and their ratio.
    Both,
}

/// Which files of the hot directories are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotMix {
    /// SPECweb99's shares: classes 35, 50, 14 and 1 %; 15 KB on average. One request in a hundred
    /// is for 100 to 900 KB, so the p99 lies where these begin.
    Specweb99,
    /// The files of classes 0 to 2 (102 bytes to 92 KB), each as often as any other.
    Small,
}

/// What `flash interfere` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server; the file set is at its root or below the URL's path.
    pub url: String,
    /// The hot directories are the first so many.
    pub hot_directories: u32,
    /// The directories that cold files are taken from.
    pub cold_directories: Range<u32>,
    /// Which of the hot files are asked for.
    pub hot_mix: HotMix,
    /// Hot requests per second.
    pub hot_rate_per_s: f64,
    /// Cold requests per second.
    pub cold_rate_per_s: f64,
    /// How long arrivals come in each phase, seconds.
    pub phase_s: f64,
    /// How long to wait for answers after that, seconds.
    pub drain_s: f64,
    /// The most connections at once, for hot and for cold requests each.
    pub connections_max: usize,
    /// Which phases to run.
    pub phases: Phases,
    /// The seed of the file set, to check every byte; costs the generator some speed.
    pub verify_seed: Option<u64>,
    /// The seed of arrivals and choices.
    pub seed: u64,
    /// The server may be another machine.
    pub allow_remote: bool,
    /// Where to keep the result as JSON.
    pub json: Option<PathBuf>,
}

/// Measures, and prints a table.
///
/// Errors: usage, for options that make no sense; run, for a server that does not answer.
pub fn run(options: &Options) -> Result<()> {
    let target = Target::parse(&options.url, options.allow_remote)?;
    check(options)?;
    let directories = options.hot_directories.max(options.cold_directories.end);
    let server = Server {
        target,
        catalogue: Arc::new(Catalogue::specweb99(directories, options.verify_seed)),
        verify: options.verify_seed.is_some(),
    };
    warm_up(options, &server)?;

    let mut phases = Vec::new();
    if options.phases != Phases::Cold {
        phases.push(phase(options, &server, None)?);
    }
    if options.phases != Phases::Alone {
        phases.push(phase(options, &server, Some(cold_files(options)))?);
    }
    let report = Report::new(options, phases);
    print!("{report}");
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|why| Error::run(format!("cannot write: {why}")))?;
        std::fs::write(path, text + "\n").map_err(|why| Error::file("write", path, &why))?;
    }
    Ok(())
}

/// Refuses options that make no sense.
fn check(options: &Options) -> Result<()> {
    let Range { start, end } = options.cold_directories;
    let usage = |text: String| Err(Error::usage(text));
    if options.hot_directories == 0 || options.hot_directories > DIRECTORIES_MAX || end > DIRECTORIES_MAX {
        return usage(format!("directories are numbered below {DIRECTORIES_MAX}, and one must be hot"));
    }
    for (name, value) in [
        ("hot rate", options.hot_rate_per_s),
        ("cold rate", options.cold_rate_per_s),
        ("length of a phase", options.phase_s),
    ] {
        if !(value > 0.0 && value <= 1e6) {
            return usage(format!("the {name} is {value}: it must be above 0 and at most 1000000"));
        }
    }
    if !(options.drain_s >= 0.0 && options.drain_s <= 600.0) {
        return usage(format!("the wait for the last answers is {} s: it must be 0 to 600", options.drain_s));
    }
    if options.connections_max == 0 {
        return usage("no connections: give at least 1".to_owned());
    }
    if options.phases == Phases::Alone {
        return Ok(());
    }
    if start < options.hot_directories || start >= end {
        return usage(format!(
            "cold directories {start}..{end}: they must begin at {} or above, after the hot ones, and not be empty",
            options.hot_directories
        ));
    }
    // A Poisson count is below its mean plus six deviations in all but one of 10^9 runs.
    let mean = options.cold_rate_per_s * options.phase_s;
    let (needed, files) =
        (mean + 6.0 * mean.sqrt() + 10.0, f64::from(end - start) * f64::from(FILES_PER_DIRECTORY));
    if needed > files {
        return usage(format!(
            "{needed:.0} cold files may be asked for, each once, but the cold directories have {files:.0}: \
             take more directories, a lower rate or a shorter phase"
        ));
    }
    Ok(())
}

fn cold_files(options: &Options) -> ColdFiles {
    ColdFiles::new(options.seed ^ COLD_SEED, options.cold_directories.clone())
}

/// What is driven.
struct Server {
    target: Target,
    catalogue: Arc<Catalogue>,
    verify: bool,
}

impl Server {
    /// A stream of arrivals, each for the file that `choose` gives.
    fn stream(
        &self,
        connections_max: usize,
        arrivals: Arrivals,
        choose: impl FnMut() -> u32 + Send + 'static,
    ) -> Stream {
        let setup = Setup {
            target: self.target.clone(),
            catalogue: Arc::clone(&self.catalogue),
            verify: self.verify,
            connections_max,
            requests_per_connection: None,
            abort_after_ns: None,
            retries_max: 0,
            read_bytes_per_s: None,
        };
        Stream { setup, demand: Box::new(Row::new(arrivals, choose)), pace: Pace::Open }
    }
}

/// Arrivals and a choice of files.
struct Row<F> {
    arrivals: Arrivals,
    next_ns: Option<u64>,
    choose: F,
}

impl<F: FnMut() -> u32 + Send> Row<F> {
    fn new(mut arrivals: Arrivals, choose: F) -> Self {
        Self { next_ns: arrivals.take(u64::MAX), arrivals, choose }
    }
}

impl<F: FnMut() -> u32 + Send> Demand for Row<F> {
    fn next_due_ns(&self) -> Option<u64> {
        self.next_ns
    }

    fn take(&mut self) -> Option<Ask> {
        let intended_ns = self.next_ns?;
        self.next_ns = self.arrivals.take(u64::MAX);
        Some(Ask { path_id: (self.choose)(), intended_ns })
    }

    fn next_path(&mut self) -> Option<u32> {
        self.take().map(|ask| ask.path_id)
    }
}

/// Asks for each hot file once, unmeasured, so that what a server caches is cached.
fn warm_up(options: &Options, server: &Server) -> Result<()> {
    let mut next = HotFiles::all(options.hot_mix, options.hot_directories).into_iter();
    let count = next.len();
    let at_once = Arrivals::AtOnce { left: count as u64 };
    let stream = server.stream(WARM_UP_CONNECTIONS, at_once, move || next.next().unwrap_or(0));
    let phase = Phase { duration_ns: 1, drain_max_ns: seconds_ns(options.drain_s.max(10.0)) };
    let ran = load::run(vec![vec![stream]], &phase, &Stop::new(), None)?;
    let tally = Tally::new(&ran, 0);
    if tally.answered == count as u64 {
        return Ok(());
    }
    let faults: Vec<String> = tally.faults.iter().map(|(fault, n)| format!("{fault}: {n}")).collect();
    let first = ran.streams[0].records.iter().find(|record| record.outcome != Outcome::Answered);
    let advice = match first.map(|record| (record.outcome, record.status)) {
        Some((Outcome::Refused, _)) => "is the server running?",
        Some((Outcome::Status, 404)) => "does it serve the folder of `flash fileset`?",
        Some((Outcome::WrongContent, _)) => "was the file set made with that seed?",
        _ => "every hot file must be answered properly before a measurement",
    };
    Err(Error::run(format!(
        "{} answered {} of {count} hot files ({}); {advice}",
        options.url,
        tally.answered,
        faults.join(", ")
    )))
}

fn phase(options: &Options, server: &Server, cold: Option<ColdFiles>) -> Result<PhaseReport> {
    let phase = Phase { duration_ns: seconds_ns(options.phase_s), drain_max_ns: seconds_ns(options.drain_s) };
    // Both phases have the same hot arrivals and choices: only the cold ones differ.
    let mut hot = HotFiles::new(options.seed ^ CHOICE_SEED, options.hot_mix, options.hot_directories);
    let arrivals = |seed, rate_per_s| Arrivals::poisson(seed, rate_per_s, phase.duration_ns);
    let mut streams = vec![server.stream(
        options.connections_max,
        arrivals(options.seed, options.hot_rate_per_s),
        move || hot.next(),
    )];
    if let Some(mut cold) = cold {
        let arrivals = arrivals(options.seed ^ COLD_SEED, options.cold_rate_per_s);
        streams.push(server.stream(options.connections_max, arrivals, move || cold.next()));
    }
    let ran: Ran = load::run(vec![streams], &phase, &Stop::new(), None)?;
    Ok(PhaseReport::new(options.phase_s, &ran))
}

fn seconds_ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options {
            url: "http://127.0.0.1:1".to_owned(),
            hot_directories: 2,
            cold_directories: 2..20,
            hot_mix: HotMix::Specweb99,
            hot_rate_per_s: 100.0,
            cold_rate_per_s: 10.0,
            phase_s: 1.0,
            drain_s: 1.0,
            connections_max: 8,
            phases: Phases::Both,
            verify_seed: None,
            seed: 1,
            allow_remote: false,
            json: None,
        }
    }

    #[test]
    fn refuses_options_that_make_no_sense() {
        assert!(check(&options()).is_ok());
        let bad = [
            Options { hot_directories: 0, ..options() },
            Options { cold_directories: 1..20, ..options() },
            Options { cold_directories: 5..5, ..options() },
            Options { cold_directories: 5..DIRECTORIES_MAX + 1, ..options() },
            Options { hot_rate_per_s: 0.0, ..options() },
            Options { cold_rate_per_s: f64::NAN, ..options() },
            Options { drain_s: -1.0, ..options() },
            Options { connections_max: 0, ..options() },
            Options { cold_rate_per_s: 648.0, ..options() },
        ];
        for case in bad {
            assert_eq!(check(&case).unwrap_err().exit_code(), 2, "{case:?}");
        }
        assert!(check(&Options { cold_directories: 0..0, phases: Phases::Alone, ..options() }).is_ok());
    }

    #[test]
    fn a_server_that_is_not_there_is_said_to_be() {
        let text = run(&options()).unwrap_err().to_string();
        assert!(text.contains("refused: 72") && text.contains("is the server running?"), "{text}");
    }
}
