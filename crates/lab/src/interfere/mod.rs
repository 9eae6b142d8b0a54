//! `flash interfere`: whether requests for files in memory wait for other requests, which wait for the disk or for an
//! application.
//!
//! Each round asks a server for hot files (in memory) at a steady rate, first alone and then beside requests for cold
//! files (on the disk only), or beside requests that wait for a slow application. The verdict is on the ratios of the two
//! latencies, paired by round. The hot files are locked in memory while it runs, where this machine has them. Several servers
//! take turns.

mod beside;
mod verdict;

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::drive::{self, Driver, Users, nanoseconds};
use crate::execute::{
    Executor, HotFiles, ServerUnderTest, Start, Streams, WarmUp, check_rounds, check_servers, is_fresh,
    most_rounds,
};
use crate::results::{Ratio, Subject};
use crate::testbed::{Locked, Peer, Testbed};
use flash_kit::{Ending, Error, Result, number};
use flash_load::files::layout::{DIRECTORIES_MAX, FILES_PER_DIRECTORY, File};
use flash_load::generator::message;
use flash_load::measure::{Measures, Threshold};
use flash_load::workload::{self, Spec};

pub use crate::execute::{Beside, HotMix};
use beside::BesideTexts;
pub use verdict::Bounds;
use verdict::{Judged, Round, Verdict, judge};

const ALONE: &str = "hot alone";
/// The hot files may take this long before the measurement, seconds; longer with a longer drain.
const WARM_UP_S: f64 = 10.0;
/// The highest rates, requests per second.
const RATE_MAX_PER_S: f64 = 1e6;

/// The options of `flash interfere`. Their comments are their help.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    // The servers; each serves the file set at its root or below its URL's path.
    #[arg(skip)]
    pub servers: Vec<Peer>,

    // Where servers that are started run. Its root is where this machine has the file set.
    #[arg(skip)]
    pub testbed: Testbed,

    #[arg(skip = Beside::Waiting { path: String::new(), requests: 0 })]
    pub beside: Beside,

    /// Number of directories, from the first, that hold the hot files
    #[arg(long = "hot-dirs", value_name = "N", default_value_t = 20, help_heading = "Workload")]
    pub hot_directories: u32,

    /// Hot files to request: specweb99 (its mix, 102 bytes to 900 KB, mean 15 KB) or small (102 bytes to 92 KB, all
    /// equally often)
    #[arg(
        long,
        value_name = "MIX",
        value_enum,
        default_value = "specweb99",
        hide_possible_values = true,
        help_heading = "Workload"
    )]
    pub hot_mix: HotMix,

    /// Hot requests per second
    #[arg(long = "hot-rate", value_name = "N", default_value_t = 4000.0, help_heading = "Workload")]
    pub hot_rate_per_s: f64,

    /// Check every received byte against the file set
    #[arg(long, help_heading = "Workload")]
    pub verify: bool,

    /// Seed of the file set, for --verify
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub fileset_seed: u64,

    /// Seed of the random arrivals and file choices
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Workload")]
    pub seed: u64,

    /// Maximum open connections, for hot and for cold requests each
    #[arg(long = "connections", value_name = "N", default_value_t = 1024, help_heading = "Run")]
    pub connections_max: u32,

    /// Number of times to measure each server, alone and beside other requests; a verdict needs 5
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Run")]
    pub rounds: u32,

    /// Length of each phase, in seconds
    #[arg(long = "seconds", value_name = "N", default_value_t = 10.0, help_heading = "Run")]
    pub phase_s: f64,

    /// Then wait at most this many seconds for the last answers
    #[arg(long = "drain-seconds", value_name = "N", default_value_t = 30.0, help_heading = "Run")]
    pub drain_s: f64,

    /// Cores for the load generator, such as 1 or 2,3 [default: all except that of started servers]
    #[arg(long, value_name = "N", value_delimiter = ',', help_heading = "Run")]
    pub cores: Vec<usize>,

    /// Allow a server that is not on this machine
    #[arg(long, help_heading = "Run")]
    pub allow_remote: bool,

    #[command(flatten)]
    pub wire: drive::wire::Options,

    #[command(flatten)]
    pub bounds: Bounds,

    /// Exit with 3 if the hot requests exceed this limit, such as 'p99<5ms' or 'errors<0.1%'
    #[arg(long, value_name = "LIMIT", help_heading = "Verdict")]
    pub require: Vec<Threshold>,

    /// Write the results to this folder [default: flash-interfere-DATE-TIME]
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath, help_heading = "Results")]
    pub out: Option<PathBuf>,
}

/// Measures, prints a table and the verdict on each server, keeps the results.
///
/// Errors: usage, for options that make no sense; run, for a server that does not answer every hot file properly, for
/// one that answered none of the requests beside the hot ones, or results that cannot be written.
pub fn run(options: &Options) -> Result<Ending> {
    check(options)?;
    let driver = Driver::new("interfere", drive_options(options))?;
    let mut executor = Executor::of_servers(driver, &options.servers, &options.testbed)?;
    let hot = HotFiles::all(options.hot_mix, options.hot_directories);
    // Before the first server starts, so that no server's memory bound is charged for them.
    let locked = lock(options, &hot);
    describe(&mut executor, options, &locked);
    let patience_ns = nanoseconds(options.drain_s.max(WARM_UP_S));
    let start = Start {
        testbed: &options.testbed,
        warm_up: WarmUp::Files { path_ids: &hot, patience_ns },
        link: None,
    };
    let mut cold_taken = 0;
    executor.rounds(options.rounds..=rounds_max(options), &start, |executor, index, round, tested| {
        if let (Beside::Cold { directories, looks_up_names: true, .. }, Some(root)) =
            (&options.beside, &options.testbed.root)
        {
            look_up_names(directories.clone(), root)?;
        }
        let is_fresh = is_fresh(&options.servers[index], &options.testbed);
        let streams = Streams {
            hot_mix: options.hot_mix,
            hot_directories: options.hot_directories,
            hot_rate_per_s: options.hot_rate_per_s,
            beside: None,
            order_seed: options.seed,
            taken: if is_fresh { 0 } else { cold_taken },
            duration_s: options.phase_s,
            connections_max: options.connections_max,
            // A file that cannot be locked is an error of the lock.
            in_memory_share: locked.is_ok().then_some(1.0),
            seed: options.seed.wrapping_add(u64::from(round)),
        };
        let asked =
            measure(executor, index, Turn { tested, round, start: &start }, &streams, &options.beside)?;
        cold_taken += if is_fresh { 0 } else { asked };
        Ok(())
    })?;
    executor.pool()?;
    finish(executor, options, locked.is_ok())
}

/// Locks the hot files in memory. The reason in words where that cannot be.
fn lock(options: &Options, hot: &[u32]) -> std::result::Result<Locked, String> {
    let root = options.testbed.root.as_deref().ok_or("--files does not say where this machine has them")?;
    Locked::of(root, hot).map_err(|why| why.to_string())
}

/// Brings the names and attributes of the cold files into the kernel's caches. This process has none of the server's
/// bounds, so that is quick, and the memory is not the server's.
fn look_up_names(directories: Range<u32>, root: &Path) -> Result<()> {
    for directory in directories {
        let files = directory * FILES_PER_DIRECTORY..(directory + 1) * FILES_PER_DIRECTORY;
        for path_id in files {
            let path = root.join(File::from_path_id(path_id).path());
            std::fs::metadata(&path).map_err(|why| Error::file("look up", &path, &why))?;
        }
    }
    Ok(())
}

/// The turn of a server in a round.
#[derive(Clone, Copy)]
struct Turn<'a> {
    tested: &'a ServerUnderTest,
    round: u32,
    start: &'a Start<'a>,
}

/// The two phases of a server's turn, by its number. Returns the number of requests beside the hot ones.
fn measure(
    executor: &mut Executor,
    index: usize,
    turn: Turn<'_>,
    streams: &Streams<'_>,
    beside: &Beside,
) -> Result<u32> {
    let Turn { tested, round, start } = turn;
    let texts = beside.texts();
    let users = executor.driver.options.users.clone();
    let (server, rate, phase_s) = (&tested.served.name, streams.hot_rate_per_s, streams.duration_s);
    let mut asked = 0;
    let mut phases = [(ALONE.to_owned(), None), (texts.hot_phase(), Some(beside))];
    // So that it cannot be the order that makes the difference.
    if round % 2 == 0 {
        phases.reverse();
    }
    for (number, (name, beside)) in phases.into_iter().enumerate() {
        if executor.driver.is_interrupted() {
            break;
        }
        // Hot requests behind abandoned cold ones would count as alone.
        if number > 0 && beside.is_none() {
            executor.settle(tested, round, start)?;
        }
        eprintln!("{server}, round {round}: {name}: {rate} requests/s for {phase_s:.0} s");
        let streams = Streams { beside, ..*streams };
        let names = (name.as_str(), texts.others);
        for driven in streams.drive(&mut executor.driver, &tested.served, &users, names, Some(round))? {
            if driven.measures.name == texts.others {
                asked = driven.measures.counts.asked as u32;
            }
            executor.keep(index, driven);
        }
    }
    Ok(asked)
}

fn finish(mut executor: Executor, options: &Options, are_locked: bool) -> Result<Ending> {
    let mut said = Vec::new();
    let mut verdicts = BTreeSet::new();
    let mut untested = None;
    let texts = options.beside.texts();
    for index in 0..executor.subjects.len() {
        let subject = &executor.subjects[index];
        let judged = judge(&rounds_of(subject, texts), &options.bounds, texts);
        if no_answers(subject, texts.others) {
            untested = Some(subject.name.clone());
        }
        let mut text = format!("{}: {}", subject.name, judged.text);
        if !are_locked && judged.verdict == Verdict::Waited {
            text += "; the hot files were not locked in memory, so the server may have had to read them anew";
        }
        verdicts.insert(judged.verdict as u8);
        let ratios = ratios(subject, &judged, texts);
        let run = &mut executor.driver.run;
        run.ratios.extend(ratios);
        run.settings.insert(format!("verdict on {}", executor.subjects[index].name), judged.text);
        said.push(text);
    }
    let subjects = std::mem::take(&mut executor.subjects);
    executor.driver.run.subjects = subjects;
    let is_interrupted = executor.driver.is_interrupted();
    let ending = executor.driver.finish_with(|level| level.name != texts.others)?;
    said.iter().for_each(|text| println!("{text}"));
    if let (Some(name), false) = (untested, is_interrupted) {
        return Err(Error::run(format!(
            "{name} answered no {} request properly, so nothing was tested: {}",
            texts.others, texts.question
        )));
    }
    let has = |verdict: Verdict| verdicts.contains(&(verdict as u8));
    Ok(match ending {
        Ending::Done if has(Verdict::Waited) => Ending::RequirementFailed,
        Ending::Done if has(Verdict::CannotTell) => Ending::CannotTell,
        other => other,
    })
}

/// The rounds of a server that have all their phases.
fn rounds_of<'s>(subject: &'s Subject, texts: BesideTexts) -> Vec<Round<'s>> {
    let of = |name: &str, round: Option<u32>| {
        subject.rounds.iter().find(|phase| phase.name == name && phase.round == round)
    };
    let alone = subject.rounds.iter().filter(|phase| phase.name == ALONE);
    let whole = |alone: &'s Measures| {
        let (beside, others) = (of(&texts.hot_phase(), alone.round)?, of(texts.others, alone.round)?);
        Some(Round { alone, beside, others })
    };
    alone.filter_map(whole).collect()
}

/// Whether requests of this name were sent to a server, and none was answered properly.
fn no_answers(subject: &Subject, others: &str) -> bool {
    let sent = || subject.rounds.iter().filter(|phase| phase.name == others);
    let sum = |of: fn(&Measures) -> u64| sent().map(of).sum::<u64>();
    sum(|phase| phase.counts.asked) > 0 && sum(|phase| phase.counts.answered) == 0
}

fn ratios(subject: &Subject, judged: &Judged, texts: BesideTexts) -> Vec<Ratio> {
    let name = |phase: &str| format!("{}, {phase}", subject.name);
    let ratio = |paired: &verdict::Paired| Ratio {
        measure: paired.figure.name().to_owned(),
        level: None,
        subject: name(&texts.hot_phase()),
        base: name(ALONE),
        ratio: paired.ratio,
        interval: Some(paired.interval),
        doubt: None,
    };
    judged.ratios.iter().map(ratio).collect()
}

fn drive_options(options: &Options) -> drive::Options {
    let cold_end = match &options.beside {
        Beside::Cold { directories, .. } => directories.end,
        Beside::Waiting { .. } => 0,
    };
    drive::Options {
        workload: Spec::Specweb99,
        files: workload::Options {
            directories: Some(options.hot_directories.max(cold_end)),
            content_seed: options.verify.then_some(options.fileset_seed),
            ..workload::Options::default()
        },
        users: Users {
            connections_max: options.connections_max,
            requests_per_connection: Some(u32::MAX),
            verify: options.verify,
            ..Users::default()
        },
        message: message::Options::default(),
        wire: options.wire.clone(),
        warm_up_s: 0.0,
        duration_s: Some(options.phase_s),
        drain_s: options.drain_s,
        threads: 1,
        cores: options.cores.clone(),
        seed: options.seed,
        no_poll: false,
        allow_remote: options.allow_remote,
        out: Some(options.out.clone().unwrap_or_else(|| drive::default_folder("interfere"))),
        discard: false,
        shown: drive::shown::Options::default(),
        require: options.require.clone(),
    }
}

fn describe(executor: &mut Executor, options: &Options, locked: &std::result::Result<Locked, String>) {
    let (others, arrivals) = options.beside.describe();
    if let Err(why) = locked {
        executor.driver.note(format!("the hot files are not locked in memory: {why}"));
    }
    let run = &mut executor.driver.run;
    run.workload =
        format!("hot files: {} of {} directories; {others}", options.hot_mix.text(), options.hot_directories);
    run.arrivals = format!("Poisson: {} hot requests/s, alone and beside {arrivals}", options.hot_rate_per_s);
    let mut set = |name: &str, value: String| run.settings.insert(name.to_owned(), value);
    set("warm-up", "each hot file once".to_owned());
    set("connections at most", format!("{}, for hot and for cold requests each", options.connections_max));
    set("rounds", options.rounds.to_string());
    let Bounds { p50_ratio_max, p99_ratio_max, p999_ratio_max } = options.bounds;
    let bounds =
        format!("p50 {p50_ratio_max} times alone, p99 {p99_ratio_max} times, p99.9 {p999_ratio_max} times");
    set("bounds of the verdict", bounds);
    set(
        "hot files locked in memory",
        match locked {
            Ok(locked) => format!(
                "{} files of {} together",
                number::count(locked.files as u64),
                number::size(locked.bytes as f64)
            ),
            Err(why) => format!("no: {why}"),
        },
    );
    if let Beside::Cold { looks_up_names, .. } = options.beside {
        let names = if looks_up_names { "in memory" } else { "on the disk" };
        set("names of the cold files", names.to_owned());
    }
    options.testbed.describe(&mut |name, value| drop(set(name, value)));
}

fn usage(text: String) -> Result<()> {
    Err(Error::usage(text))
}

/// The directories of the SPECweb99 set in this folder: their number.
#[must_use]
pub fn directories_in(root: &Path) -> u32 {
    let is_there = |directory: &u32| {
        let first = File::from_path_id(directory * FILES_PER_DIRECTORY).path();
        root.join(first).is_file()
    };
    (0..DIRECTORIES_MAX).take_while(is_there).count() as u32
}

fn check(options: &Options) -> Result<()> {
    if options.hot_directories == 0 || options.hot_directories > DIRECTORIES_MAX {
        return usage(format!("directories are numbered below {DIRECTORIES_MAX}, and one must be hot"));
    }
    let rate = options.hot_rate_per_s;
    if !(rate > 0.0 && rate <= RATE_MAX_PER_S) {
        return usage(format!("the hot rate is {rate}: it must be above 0 and at most {RATE_MAX_PER_S}"));
    }
    let Bounds { p50_ratio_max, p99_ratio_max, p999_ratio_max } = options.bounds;
    if ![p50_ratio_max, p99_ratio_max, p999_ratio_max].iter().all(|bound| *bound >= 1.0) {
        return usage(format!(
            "bounds of {p50_ratio_max}, {p99_ratio_max} and {p999_ratio_max} times: each must be at least 1"
        ));
    }
    check_rounds(options.rounds)?;
    check_servers(&options.servers)?;
    if matches!(options.beside, Beside::Cold { looks_up_names: true, .. }) && options.testbed.root.is_none() {
        return usage(
            "names can be looked up only where this machine has the files: give --files DIR".to_owned(),
        );
    }
    check_files(options, options.rounds)
}

/// Refuses requests beside the hot ones for which there are too few files in this many rounds.
fn check_files(options: &Options, rounds: u32) -> Result<()> {
    // A server whose page cache is dropped before each turn can be asked for the same cold files again.
    let reused = options.servers.iter().filter(|peer| !is_fresh(peer, &options.testbed)).count();
    let phases = (reused as f64 * f64::from(rounds)).max(1.0);
    options.beside.check(options.hot_directories, options.phase_s, phases)
}

/// The most rounds: as many as asked for where there are no cold files for more.
fn rounds_max(options: &Options) -> u32 {
    let most = most_rounds(options.rounds);
    check_files(options, most).map_or(options.rounds, |()| most)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn cold(directories: Range<u32>, rate_per_s: f64) -> Beside {
        Beside::Cold { directories, rate_per_s, looks_up_names: false }
    }

    fn waiting(path: &str, requests: u32) -> Beside {
        Beside::Waiting { path: path.to_owned(), requests }
    }

    #[derive(clap::Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: Options,
    }

    fn options() -> Options {
        let given = ["interfere", "--hot-dirs=2", "--hot-rate=100", "--seconds=1", "--drain-seconds=1"];
        let servers = vec![Peer::elsewhere("server", "http://127.0.0.1:1", None)];
        Options { servers, beside: cold(2..20, 10.0), ..CommandLine::parse_from(given).options }
    }

    #[test]
    fn refuses_options_that_make_no_sense() {
        assert!(check(&options()).is_ok());
        assert!(check(&Options { beside: waiting("/dynamic/sleep?ms=1000", 500), ..options() }).is_ok());
        let bad = [
            Options { hot_directories: 0, ..options() },
            Options { beside: cold(1..20, 10.0), ..options() },
            Options { beside: cold(5..5, 10.0), ..options() },
            Options { beside: cold(5..DIRECTORIES_MAX + 1, 10.0), ..options() },
            Options { hot_rate_per_s: 0.0, ..options() },
            Options { beside: cold(2..20, f64::NAN), ..options() },
            Options { beside: cold(2..20, 648.0), ..options() },
            Options { rounds: 0, ..options() },
            Options { rounds: 60, ..options() },
            Options { servers: Vec::new(), ..options() },
            Options {
                beside: Beside::Cold { directories: 2..20, rate_per_s: 10.0, looks_up_names: true },
                ..options()
            },
            Options { beside: waiting("/dynamic/sleep", 0), ..options() },
            Options { beside: waiting("/dynamic/sleep", 1_000_000), ..options() },
            Options { beside: waiting("dynamic/sleep", 500), ..options() },
            Options {
                bounds: Bounds { p50_ratio_max: 0.9, p99_ratio_max: 1.5, p999_ratio_max: 2.0 },
                ..options()
            },
        ];
        for case in bad {
            assert_eq!(check(&case).unwrap_err().exit_code(), 2, "{case:?}");
        }
    }
}
