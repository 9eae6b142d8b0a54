//! `flash experiment`: the papers' experiments, run on this machine.
//!
//! Each experiment is a plan (which servers get which load), findings (statements of the paper, each with a predicate on
//! the measurements) and plots. This module holds the parts that they share: file sets, rounds, the page. All figures are
//! those that clients saw, except the figures that a server reports about itself through `inside`.

mod behind;
mod breakdown;
mod burstiness;
mod clients;
mod cpu_speed;
mod cwnd;
mod data;
mod dataset_size;
mod finding;
mod flashpache;
mod hot_cold;
mod inside;
mod judge;
mod new_flash;
mod overload;
mod plan;
mod plots;
mod rounds;
mod sets;
mod single_file;
mod site_logs;
mod variants;
mod write;

use std::path::PathBuf;

use data::Data;
use finding::Finding;
use flash_kit::Ending;
use flash_kit::sheet::{Grid, Plot};
use flash_kit::{Error, Result, number};
use plan::{Plan, Scale, minutes};

pub use judge::{Judge, judge};

/// The default memory of a server and the default disk reads per second: those of a small machine of today with a disk
/// like those of the papers.
pub const MEMORY_BYTES: u64 = 512_000_000;
/// See [`MEMORY_BYTES`].
pub const READS_PER_S: u32 = 150;
/// The default servers beside Flash.
pub const PEERS: [&str; 2] = ["nginx", "apache-event"];

/// The least memory of a server: no server starts with less.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The most rounds.
const ROUNDS_MAX: u32 = 100;
/// The most servers beside Flash, and logs.
const LIST_MAX: usize = 16;

/// Older names of an experiment and of a command, which kept results still use, and their present names.
const RENAMED: [(&str, &str); 2] = [("trace", "site-logs"), ("table", "judge")];

/// The arguments of `flash experiment NAME`.
#[derive(Clone, Debug)]
pub struct Options {
    /// The experiment's name; see [`list`].
    pub name: String,
    /// Fewer and shorter points.
    pub quick: bool,
    /// The folder of the results.
    pub out: PathBuf,
    /// An existing SPECweb99 set.
    pub files: Option<PathBuf>,
    /// The folder in which missing sets are made.
    pub sets: PathBuf,
    /// Real logs, for `site-logs`.
    pub logs: Vec<PathBuf>,
    /// Servers beside Flash, by the names of ready-made servers.
    pub peers: Vec<String>,
    /// The number of rounds; none for the plan's number.
    pub rounds: Option<u32>,
    /// The length of each measurement, seconds; none for the plan's length.
    pub duration_s: Option<f64>,
    /// A server's memory limit, page cache included, in scenes that bound it.
    pub memory_bytes: u64,
    /// The limit on disk reads per second in the same scenes.
    pub reads_per_s: u32,
    /// The core of the server; none on a machine with one core.
    pub core: Option<usize>,
    /// The cores of the generator; empty for all.
    pub cores: Vec<usize>,
    /// The seed of arrivals and choices.
    pub seed: u64,
    /// The command line, for the results.
    pub command_line: Vec<String>,
}

/// One of the experiments.
struct Experiment {
    name: &'static str,
    /// One line on what it shows.
    shows: &'static str,
    /// The text and its figures.
    source: &'static str,
    plan: fn(&Scale) -> Plan,
    findings: fn(Data<'_>, &Plan) -> Vec<Finding>,
    plots: fn(Data<'_>, &Plan) -> Vec<Plot>,
    grid: Option<fn(Data<'_>, &Plan) -> Grid>,
}

static EXPERIMENTS: [Experiment; 12] = [
    Experiment {
        name: "single-file",
        shows: "bandwidth and connection rate against file size, one file in memory",
        source: "flash-1999, Figs 6, 7",
        plan: single_file::plan,
        findings: single_file::findings,
        plots: single_file::plots,
        grid: None,
    },
    Experiment {
        name: "site-logs",
        shows: "bandwidth on two logs of different locality",
        source: "flash-1999, Fig 8",
        plan: site_logs::plan,
        findings: site_logs::findings,
        plots: |_, _| Vec::new(),
        grid: Some(site_logs::grid),
    },
    Experiment {
        name: "dataset-size",
        shows: "bandwidth when the files do not fit into memory any more",
        source: "flash-1999, Figs 9, 10",
        plan: dataset_size::plan,
        findings: dataset_size::findings,
        plots: dataset_size::plots,
        grid: None,
    },
    Experiment {
        name: "breakdown",
        shows: "what each of the three caches is worth",
        source: "flash-1999, Fig 11",
        plan: breakdown::plan,
        findings: breakdown::findings,
        plots: breakdown::plots,
        grid: None,
    },
    Experiment {
        name: "clients",
        shows: "throughput against the number of persistent connections",
        source: "flash-1999, Fig 12",
        plan: clients::plan,
        findings: clients::findings,
        plots: clients::plots,
        grid: None,
    },
    Experiment {
        name: "new-flash",
        shows: "latency and capacity, step by step from the first Flash to one that never blocks",
        source: "blocking-induced-latency, Table 5, Figs 5, 16, 19",
        plan: new_flash::plan,
        findings: new_flash::findings,
        plots: new_flash::plots,
        grid: Some(new_flash::grid),
    },
    Experiment {
        name: "flashpache",
        shows: "latency and capacity of Apache and nginx, as they are and with Flash's backend",
        source: "blocking-induced-latency, Table 5, Figs 17, 19",
        plan: flashpache::plan,
        findings: flashpache::findings,
        plots: flashpache::plots,
        grid: Some(flashpache::grid),
    },
    Experiment {
        name: "burstiness",
        shows: "events per dispatch, and how many processes can run",
        source: "latency-and-connection-scheduling, Figs 13 to 17",
        plan: burstiness::plan,
        findings: burstiness::findings,
        plots: burstiness::plots,
        grid: Some(burstiness::grid),
    },
    Experiment {
        name: "cpu-speed",
        shows: "capacity and latency with 10, 30 and 100 % of a core",
        source: "blocking-induced-latency, Table 6, Figs 22 to 24",
        plan: cpu_speed::plan,
        findings: cpu_speed::findings,
        plots: cpu_speed::plots,
        grid: Some(cpu_speed::grid),
    },
    Experiment {
        name: "hot-cold",
        shows: "latency of requests in memory, alone and beside requests for the disk",
        source: "Flash's promise; blocking-induced-latency, 3.5",
        plan: hot_cold::plan,
        findings: hot_cold::findings,
        plots: hot_cold::plots,
        grid: None,
    },
    Experiment {
        name: "overload",
        shows: "response times when the uplink is overloaded, equal shares against the shortest first",
        source: "overload-and-srpt, Tables 1, 2, Figs 5 to 10",
        plan: overload::plan,
        findings: overload::findings,
        plots: overload::plots,
        grid: Some(overload::grid),
    },
    Experiment {
        name: "cwnd",
        shows: "mean latency on a full link against the cap on one connection",
        source: "latency-and-connection-scheduling, Fig 18",
        plan: cwnd::plan,
        findings: cwnd::findings,
        plots: cwnd::plots,
        grid: None,
    },
];

/// The names of the experiments.
pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

fn find(name: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        Error::usage(match RENAMED.iter().find(|(old, _)| *old == name) {
            Some((_, new)) => format!("the experiment '{name}' is named '{new}'"),
            None => {
                format!("no experiment '{name}': there are {}, and `list` and `judge`", names().join(", "))
            }
        })
    })
}

/// The experiments with what they show and how long they take by their plans, as a text for a terminal.
///
/// Errors: as [`run`], for invalid peers, memory or other options.
pub fn list(options: &Options) -> Result<String> {
    check(options)?;
    let mut text = format!("{:13} {:>8} {:>8}  {}\n", "NAME", "FULL", "--quick", "SHOWS");
    let mut whole_s = [0.0, 0.0];
    for experiment in &EXPERIMENTS {
        let plans = [false, true].map(|quick| plan(experiment, &Options { quick, ..options.clone() }));
        let [full, quick] = plans.each_ref().map(Plan::run_s);
        (whole_s[0], whole_s[1]) = (whole_s[0] + full, whole_s[1] + quick);
        text += &format!(
            "{:13} {:>8} {:>8}  {}\n{:32} ({})\n",
            experiment.name,
            minutes(full),
            minutes(quick),
            experiment.shows,
            "",
            experiment.source
        );
    }
    text += &format!("{:13} {:>8} {:>8}\n", "all", minutes(whole_s[0]), minutes(whole_s[1]));
    text += "Times are without making file sets, once: see `flash experiment NAME --plan`.\n";
    Ok(text)
}

/// The plan of an experiment in words.
///
/// Errors: usage, for an unknown one.
pub fn describe_plan(options: &Options) -> Result<String> {
    check(options)?;
    let experiment = find(&options.name)?;
    let plan = plan(experiment, options);
    let variants: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    let points: Vec<&str> = plan.points().iter().map(|point| point.name.as_str()).collect();
    Ok(format!(
        "{}: {} ({})\nservers: {}\npoints: {}\nrounds: {}\ntakes: about {}, and {} once to make {:.1} GB of files\n",
        experiment.name,
        experiment.shows,
        experiment.source,
        variants.join(", "),
        points.join("; "),
        plan.rounds,
        minutes(plan.run_s()),
        minutes(plan.making_s()),
        plan.set_bytes() as f64 / 1e9
    ))
}

fn plan(experiment: &Experiment, options: &Options) -> Plan {
    let Options { quick, memory_bytes, ref peers, ref logs, rounds, duration_s, .. } = *options;
    let scale = Scale { quick, memory_bytes, peers: peers.clone(), logs: logs.clone() };
    (experiment.plan)(&scale).adjusted(rounds, duration_s)
}

/// Runs an experiment, prints its findings, writes its page and its results.
///
/// Errors: usage, for invalid options; run, when this machine can run no part of it.
pub fn run(options: &Options) -> Result<Ending> {
    check(options)?;
    let experiment = find(&options.name)?;
    if !options.logs.is_empty() && experiment.name != "log" {
        return Err(Error::usage("only the experiment `site-logs` replays logs"));
    }
    let plan = plan(experiment, options);
    for peer in &options.peers {
        if crate::testbed::ready_made(peer).is_none() {
            let names = crate::testbed::ready_made_names().join(", ");
            return Err(Error::usage(format!("no server '{peer}': there are {names}")));
        }
    }
    if options.out.join(crate::results::folder::RUN_FILE).exists() {
        return Err(Error::usage(format!(
            "{} holds the results of another run: choose another folder",
            options.out.display()
        )));
    }
    eprintln!("{}: about {}", experiment.name, minutes(plan.run_s()));
    let made = plan.sets.iter().map(|set| sets::ready(set, &options.sets, options.files.as_deref()));
    let made = made.collect::<Result<Vec<_>>>()?;
    let came = rounds::run(&plan, options, made)?;
    let is_interrupted = came.is_interrupted;
    write::write(experiment, &plan, options, &came)?;
    Ok(if is_interrupted { Ending::Interrupted } else { Ending::Done })
}

/// Rejects invalid options.
fn check(options: &Options) -> Result<()> {
    let usage = |text: String| Err(Error::usage(text));
    let Options { rounds, duration_s, memory_bytes, reads_per_s, .. } = *options;
    if let Some(rounds) = rounds.filter(|rounds| *rounds == 0 || *rounds > ROUNDS_MAX) {
        return usage(format!("{rounds} rounds: 1 to {ROUNDS_MAX} are possible"));
    }
    if let Some(duration_s) = duration_s.filter(|duration_s| !(*duration_s > 0.0 && *duration_s <= 86_400.0))
    {
        return usage(format!("the duration is {duration_s} s: it must be above 0 and at most a day"));
    }
    if memory_bytes < MEMORY_BYTES_MIN {
        return usage(format!(
            "{} of memory: a server needs at least {}",
            number::binary_size(memory_bytes),
            number::binary_size(MEMORY_BYTES_MIN)
        ));
    }
    if reads_per_s == 0 {
        return usage("0 reads a second would stop the disk: give at least 1".to_owned());
    }
    if options.peers.len() > LIST_MAX || options.logs.len() > LIST_MAX {
        return usage(format!("at most {LIST_MAX} peers and logs are possible"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "experiment_tests.rs"]
mod tests;
