//! The hot and cold test of DESIGN.md: `flash interfere`.
//!
//! It asks a server for hot files (in its memory) at a steady rate, alone and then beside
//! requests for cold files (on its disk only), and compares the latency of the hot ones. It
//! measures what a client sees; that hot files are in memory and cold ones are not is the business
//! of `bench/interfere.py`, which calls it.

mod choice;
mod json;
mod streams;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use crate::drive::{self, Driven, Driver, Ending, Served, Users, nanoseconds, target};
use crate::error::{Error, Result};
use crate::fileset::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY};
use crate::measure::bootstrap::{self, Blocks, Sample};
use crate::measure::{SeriesBounds, Threshold};
use crate::results::{Measures, Ratio, Run, Subject};
use crate::workload::{self, Spec};

pub(crate) use choice::HotFiles;
pub(crate) use streams::Streams;

/// The level of cold requests; the others are of hot ones.
const COLD: &str = "cold";
/// The hot files may take so long before the measurement, seconds; longer with a longer drain.
const WARM_UP_S: f64 = 10.0;
/// The highest rates, requests per second.
const RATE_MAX_PER_S: f64 = 1e6;

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

impl HotMix {
    fn name(self) -> &'static str {
        match self {
            Self::Specweb99 => "specweb99",
            Self::Small => "small",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Specweb99 => "SPECweb99's shares",
            Self::Small => "the small files, equally often,",
        }
    }

    fn series(self) -> SeriesBounds {
        match self {
            Self::Specweb99 => SeriesBounds::Specweb99,
            Self::Small => SeriesBounds::Quartiles,
        }
    }
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
    pub connections_max: u32,
    /// Which phases to run.
    pub phases: Phases,
    /// The seed of the file set, to check every byte; costs the generator some speed.
    pub verify_seed: Option<u64>,
    /// The seed of arrivals and choices.
    pub seed: u64,
    /// The server may be another machine.
    pub allow_remote: bool,
    /// The server's process, to measure what it uses.
    pub pid: Option<u32>,
    /// The cores that the generator may use; all when empty.
    pub cores: Vec<usize>,
    /// The folder of the results; none keeps nothing.
    pub out: Option<PathBuf>,
    /// A file for the few figures that `bench/` reads, as JSON.
    pub json: Option<PathBuf>,
    /// What the hot levels must keep.
    pub require: Vec<Threshold>,
    /// The command line, for the results.
    pub command_line: Vec<String>,
}

/// Measures, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, for a server that does not answer every hot file
/// properly, or results that can't be written.
pub fn run(options: &Options) -> Result<Ending> {
    check(options)?;
    let drive_options = drive_options(options);
    let target = target(&drive_options, &options.url)?;
    let served = Served { name: "server".to_owned(), target, pid: options.pid };
    let mut driver = Driver::new("interfere", drive_options)?;
    describe(driver.run_mut(), options);
    let hot = HotFiles::all(options.hot_mix, options.hot_directories);
    driver.preflight_all(&served, hot, nanoseconds(options.drain_s.max(WARM_UP_S)))?;

    let dataset_bytes = driver.workload().catalogue().dataset_bytes();
    let mut subject = Subject { dataset_bytes, ..Subject::of(&options.url, &options.url) };
    let mut phases: Vec<Measured> = Vec::new();
    for (with_cold, other) in [(false, Phases::Cold), (true, Phases::Alone)] {
        if options.phases == other || driver.is_interrupted() {
            continue;
        }
        let measured = phase(&mut driver, options, &served, with_cold)?;
        subject.levels.extend(measured.levels().cloned());
        driver.save(std::slice::from_ref(&subject));
        phases.push(measured);
    }
    driver.run_mut().subjects.push(subject);
    if let [alone, beside] = &phases[..] {
        driver.run_mut().ratios = ratios(alone, beside, options.seed);
    }
    // In place: who asked for it may have it open, or it is a pipe.
    let figures = format!("{:#}\n", json::json(options, &phases));
    let write =
        |path: &PathBuf| std::fs::write(path, figures).map_err(|why| Error::file("write", path, &why));
    let kept = options.json.as_ref().map_or(Ok(()), write);
    let ending = driver.finish_with(|level| level.name != COLD)?;
    kept.map(|()| ending)
}

/// The options that all commands have.
fn drive_options(options: &Options) -> drive::Options {
    let cold = if options.phases == Phases::Alone { 0 } else { options.cold_directories.end };
    drive::Options {
        workload: Spec::Specweb99,
        files: workload::Options {
            directories: Some(options.hot_directories.max(cold)),
            content_seed: options.verify_seed,
            ..workload::Options::default()
        },
        users: Users {
            connections_max: options.connections_max,
            requests_per_connection: Some(u32::MAX),
            abort_after_s: None,
            retries_max: 0,
            read_bytes_per_s: None,
            verify: options.verify_seed.is_some(),
        },
        warm_up_s: 0.0,
        duration_s: Some(options.phase_s),
        drain_s: options.drain_s,
        threads: 1,
        cores: options.cores.clone(),
        seed: options.seed,
        allow_remote: options.allow_remote,
        out: options.out.clone(),
        require: options.require.clone(),
        command_line: options.command_line.clone(),
    }
}

/// Says in the head of the results what is special here.
fn describe(run: &mut Run, options: &Options) {
    let Range { start, end } = options.cold_directories;
    run.workload =
        format!("hot files: {} of {} directories", options.hot_mix.words(), options.hot_directories);
    run.arrivals = format!("Poisson: {} hot requests/s", options.hot_rate_per_s);
    if options.phases != Phases::Alone {
        run.workload += &format!("; cold files: each of directories {start} to {} once", end - 1);
        run.arrivals += &format!(", {} cold requests/s", options.cold_rate_per_s);
    }
    let mut set = |name: &str, value: String| run.settings.insert(name.to_owned(), value);
    set("warm-up", "each hot file once".to_owned());
    set("connections at most", format!("{}, for hot and for cold requests each", options.connections_max));
}

/// Refuses options that make no sense.
fn check(options: &Options) -> Result<()> {
    let Range { start, end } = options.cold_directories;
    let usage = |text: String| Err(Error::usage(text));
    if options.hot_directories == 0 || options.hot_directories > DIRECTORIES_MAX || end > DIRECTORIES_MAX {
        return usage(format!("directories are numbered below {DIRECTORIES_MAX}, and one must be hot"));
    }
    for (name, rate) in [("hot", options.hot_rate_per_s), ("cold", options.cold_rate_per_s)] {
        if !(rate > 0.0 && rate <= RATE_MAX_PER_S) {
            return usage(format!(
                "the {name} rate is {rate}: it must be above 0 and at most {RATE_MAX_PER_S}"
            ));
        }
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

/// What one phase gave.
struct Measured {
    hot: Measures,
    cold: Option<Measures>,
    /// The latencies of the hot requests.
    blocks: Blocks,
}

impl Measured {
    fn levels(&self) -> impl Iterator<Item = &Measures> {
        [&self.hot].into_iter().chain(&self.cold)
    }
}

fn phase(driver: &mut Driver, options: &Options, served: &Served, with_cold: bool) -> Result<Measured> {
    let name = if with_cold { "hot with cold" } else { "hot alone" };
    eprintln!("{name}: {} requests/s for {:.0} s", options.hot_rate_per_s, options.phase_s);
    let streams = Streams {
        hot_mix: options.hot_mix,
        hot_directories: options.hot_directories,
        hot_rate_per_s: options.hot_rate_per_s,
        cold_directories: options.cold_directories.clone(),
        cold_rate_per_s: with_cold.then_some(options.cold_rate_per_s),
        duration_s: options.phase_s,
        connections_max: options.connections_max,
        seed: options.seed,
    };
    let users = driver.options().users.clone();
    let mut driven = streams.drive(driver, served, &users, (name, COLD), None)?;
    let Driven { measures, records, .. } = driven.remove(0);
    Ok(Measured {
        hot: measures,
        cold: driven.pop().map(|cold| cold.measures),
        blocks: Blocks::new(&records),
    })
}

/// The hot latencies beside cold load over those alone.
fn ratios(alone: &Measured, beside: &Measured, seed: u64) -> Vec<Ratio> {
    // One level of two subjects, for that is what can be compared.
    let subject = |measured: &Measured| Subject {
        levels: vec![Measures { name: String::new(), ..measured.hot.clone() }],
        ..Subject::of(&measured.hot.name, "")
    };
    let rounds = |measured: &Measured| BTreeMap::from([(String::new(), vec![measured.blocks.clone()])]);
    let (subjects, rounds) = ([alone, beside].map(subject), [alone, beside].map(rounds));
    let [base, other] = [0, 1].map(|at| Sample { subject: &subjects[at], rounds: &rounds[at] });
    let mut ratios = bootstrap::ratios(&[base, other], seed);
    ratios.iter_mut().for_each(|ratio| ratio.level = None);
    ratios
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
            pid: None,
            cores: Vec::new(),
            out: None,
            json: None,
            require: Vec::new(),
            command_line: Vec::new(),
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
            Options { cold_rate_per_s: 648.0, ..options() },
        ];
        for case in bad {
            assert_eq!(check(&case).unwrap_err().exit_code(), 2, "{case:?}");
        }
        assert!(check(&Options { cold_directories: 0..0, phases: Phases::Alone, ..options() }).is_ok());
    }
}
