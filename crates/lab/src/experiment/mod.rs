//! `flash experiment`: the papers' experiments, run on this machine.
//!
//! The experiments are data (`crates/lab/experiments`, read by `spec`): which servers get which load, statements of the papers with checks
//! on the measurements, plots and tables. `rounds` measures and `write` makes the page of any of them. Modules of their own have only
//! the plots that no specification describes. All figures are those that clients saw, except the figures that a server reports about itself through
//! `inside`.

mod all;
mod behind;
mod burstiness;
mod capacities;
mod claims;
mod cwnd;
mod data;
mod finding;
mod inside;
mod judge;
mod options;
mod overload;
mod plan;
mod planned;
mod plots;
mod quiet;
mod rounds;
mod sets;
mod spec;
mod table;
mod write;

use std::sync::LazyLock;

use data::Data;
use finding::Finding;
use flash_kit::Ending;
use flash_kit::section::Table;
use flash_kit::sheet::Plot;
use flash_kit::{Error, Result, number};
use plan::{Plan, Scale, minutes};
use sets::Sets;
use spec::ExperimentSpec;

use crate::results::Run;

pub use all::{all, describe_all};
pub use judge::judge;
pub use options::Options;

/// The default memory of a server and the default disk reads per second: those of a small machine of today with a disk
/// like those of the papers.
pub const MEMORY_BYTES: u64 = 512_000_000;
pub const READS_PER_S: u32 = 150;

/// The default servers beside Flash.
const PEERS: &str = "nginx,apache-event";
/// The least memory of a server: no server starts with less.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// The most servers beside Flash, and logs.
const LIST_MAX: usize = 16;

/// The experiment that replays logs.
const REPLAYS: &str = "site-logs";

/// Older names of an experiment and of a command, which kept results still use, and their present names.
const RENAMED: [(&str, &str); 2] = [("trace", "site-logs"), ("table", "judge")];

struct Experiment {
    name: &'static str,
    spec: ExperimentSpec,
    /// Plots and a table that the specification does not describe.
    plots: Option<fn(Data<'_>, &Plan) -> Vec<Plot>>,
    table: Option<fn(Data<'_>, &Plan) -> Table>,
}

static EXPERIMENTS: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let of = |name: &'static str, text: &str| Experiment {
        name,
        spec: spec::read(name, text),
        plots: None,
        table: None,
    };
    vec![
        of("single-file", include_str!("../../experiments/single-file.toml")),
        of("site-logs", include_str!("../../experiments/site-logs.toml")),
        of("dataset-size", include_str!("../../experiments/dataset-size.toml")),
        of("breakdown", include_str!("../../experiments/breakdown.toml")),
        of("clients", include_str!("../../experiments/clients.toml")),
        of("new-flash", include_str!("../../experiments/new-flash.toml")),
        of("flashpache", include_str!("../../experiments/flashpache.toml")),
        Experiment {
            plots: Some(burstiness::plots),
            ..of("burstiness", include_str!("../../experiments/burstiness.toml"))
        },
        of("cpu-speed", include_str!("../../experiments/cpu-speed.toml")),
        of("hot-cold", include_str!("../../experiments/hot-cold.toml")),
        of("what-blocks", include_str!("../../experiments/what-blocks.toml")),
        Experiment {
            plots: Some(overload::plots),
            table: Some(overload::setups),
            ..of("overload", include_str!("../../experiments/overload.toml"))
        },
        Experiment { plots: Some(cwnd::plots), ..of("cwnd", include_str!("../../experiments/cwnd.toml")) },
    ]
});

impl Experiment {
    fn plan(&self, scale: &Scale) -> Plan {
        planned::plan(&self.spec, scale)
    }

    fn findings(&self, data: Data<'_>, plan: &Plan) -> Vec<Finding> {
        claims::findings(self.name, &self.spec, data, plan)
    }

    fn plots(&self, data: Data<'_>, plan: &Plan) -> Vec<Plot> {
        self.plots.map_or_else(|| plots::plots(&self.spec, data, plan), |plots| plots(data, plan))
    }

    fn table(&self, data: Data<'_>, plan: &Plan) -> Option<Table> {
        let of_spec = self.spec.table.as_ref().map(|table| plots::of_spec(table, data, plan));
        of_spec.or_else(|| self.table.map(|table| table(data, plan)))
    }
}

pub fn names() -> Vec<&'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect()
}

fn find(name: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        Error::usage(match RENAMED.iter().find(|(old, _)| *old == name) {
            Some((_, new)) => format!("the experiment '{name}' is named '{new}'"),
            None => {
                format!(
                    "no experiment '{name}': there are {}, and `all`, `list` and `judge`",
                    names().join(", ")
                )
            }
        })
    })
}

/// The findings of all experiments, of which nothing was measured.
fn claims_of_all() -> Vec<Finding> {
    let peers = PEERS.split(',').map(str::to_owned).collect();
    let scale = Scale { quick: false, memory_bytes: MEMORY_BYTES, peers, logs: Vec::new() };
    let data = Data { run: &Run::default(), inside: &[] };
    let of_one = |experiment: &Experiment| experiment.findings(data, &experiment.plan(&scale));
    EXPERIMENTS.iter().flat_map(of_one).collect()
}

/// The experiments with what they show and how long they take by their plans, as a text for a terminal.
///
/// Errors: as [`run`], for invalid peers, memory or other options.
pub fn list(options: &Options) -> Result<String> {
    let options = &options.settled()?;
    check(options)?;
    let mut text = format!("{:13} {:>8} {:>8}  {}\n", "NAME", "FULL", "--quick", "SHOWS");
    let mut whole_s = [0.0, 0.0];
    for experiment in EXPERIMENTS.iter() {
        let plans = [false, true].map(|quick| plan(experiment, &Options { quick, ..options.clone() }));
        let [full, quick] = plans.each_ref().map(Plan::run_s);
        (whole_s[0], whole_s[1]) = (whole_s[0] + full, whole_s[1] + quick);
        text += &format!(
            "{:13} {:>8} {:>8}  {}\n{:32} ({})\n",
            experiment.name,
            minutes(full),
            minutes(quick),
            experiment.spec.shows,
            "",
            experiment.spec.source
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
    let options = &options.settled()?;
    check(options)?;
    let experiment = find(&options.name)?;
    let plan = plan(experiment, options);
    let variants: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    let points: Vec<&str> = plan.points().iter().map(|point| point.name.as_str()).collect();
    Ok(format!(
        "{}: {} ({})\nservers: {}\npoints: {}\nrounds: {}\ntakes: about {}, and {} once to make {:.1} GB of files\n",
        experiment.name,
        experiment.spec.shows,
        experiment.spec.source,
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
    experiment.plan(&scale).adjusted(rounds, duration_s)
}

/// Runs an experiment, prints its findings, writes its page and its results.
///
/// Errors: usage, for invalid options; run, when this machine can run no part of it.
pub fn run(options: &Options) -> Result<Ending> {
    let options = &options.settled()?;
    check(options)?;
    let experiment = find(&options.name)?;
    if !options.logs.is_empty() && experiment.name != REPLAYS {
        return Err(Error::usage(format!("only the experiment `{REPLAYS}` replays logs")));
    }
    let plan = plan(experiment, options);
    for peer in &options.peers {
        if crate::testbed::ready_made(peer).is_none() {
            let names = crate::testbed::ready_made_names().join(", ");
            return Err(Error::usage(format!("no server '{peer}': there are {names}")));
        }
    }
    if options.folder.join(crate::results::folder::RUN_FILE).exists() {
        return Err(Error::usage(format!(
            "{} holds the results of another run: choose another folder",
            options.folder.display()
        )));
    }
    eprintln!("{}: about {}", experiment.name, minutes(plan.run_s()));
    let came = rounds::run(&plan, options, Sets::of(&plan, options)?)?;
    let is_interrupted = came.is_interrupted;
    write::write(experiment, &plan, options, &came)?;
    Ok(if is_interrupted { Ending::Interrupted } else { Ending::Done })
}

fn check(options: &Options) -> Result<()> {
    let usage = |text: String| Err(Error::usage(text));
    let Options { rounds, duration_s, memory_bytes, reads_per_s, .. } = *options;
    rounds.map_or(Ok(()), crate::execute::check_rounds)?;
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
