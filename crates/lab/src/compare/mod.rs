//! `flash compare`: the same profile for several servers, in rounds.
//!
//! Rounds first find every server's capacity; as many rounds then run the levels, which are fractions of it.
//! `execute` gives the servers their turns.

mod ratios;

use std::str::FromStr;

use crate::drive::{Driver, Level, Options};
use crate::execute::{Executor, Start, WarmUp, check_rounds, check_servers, most_rounds};
use crate::profile::{LEVEL_S, LEVELS_TEXT, check_levels};
use crate::results::{Capacity, Subject};
use crate::testbed::{Peer, Testbed};
use flash_kit::{Ending, Error, Result};
use flash_load::measure::per;
use flash_load::measure::times::median;

/// The options of `flash compare`. Their comments are their help.
#[derive(Clone, Debug, clap::Args)]
// The command that they are flattened into has this name, too.
#[group(skip)]
pub struct Compare {
    // The servers; ratios are to the first.
    #[arg(skip)]
    pub servers: Vec<Peer>,

    // Where servers that are started get their files, core, memory and disk.
    #[arg(skip)]
    pub testbed: Testbed,

    /// Loads to measure, as fractions of the capacity
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', default_value = LEVELS_TEXT, help_heading = "Arrivals")]
    pub levels: Vec<f64>,

    /// Closed loop instead of levels: N clients, each of which waits for an answer before its next request
    #[arg(long, value_name = "N", conflicts_with_all = ["levels", "relative_to"], help_heading = "Arrivals")]
    pub clients: Option<u32>,

    /// Capacity that the levels refer to: each server's `own`, the `lowest` of all, or N requests per second
    #[arg(long, value_name = "CAPACITY", default_value = "own", help_heading = "Arrivals")]
    pub relative_to: RelativeTo,

    /// Number of times to measure each server
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Run")]
    pub rounds: u32,

    #[command(flatten)]
    pub options: Options,
}

/// The capacity that load levels are fractions of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RelativeTo {
    /// Each server's own, as in the papers.
    Own,
    /// The lowest of all: every server gets the same requests.
    Lowest,
    /// This many requests per second.
    Given(f64),
}

impl FromStr for RelativeTo {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "own" => Ok(Self::Own),
            "lowest" => Ok(Self::Lowest),
            _ => text
                .parse()
                .map(Self::Given)
                .map_err(|_| "write own, lowest or a number of requests a second"),
        }
    }
}

/// Compares the servers, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, when no server can be measured.
pub fn run(compare: &Compare) -> Result<Ending> {
    check(compare)?;
    let mut driver = Driver::new("compare", compare.options.clone())?;
    describe(&mut driver, compare);
    let Options { warm_up_s, ref users, .. } = compare.options;
    let warm_up = Level::infinite("warm-up", users.connections_max, warm_up_s);
    let start = Start { testbed: &compare.testbed, warm_up: WarmUp::Load(&warm_up), link: None };
    let mut executor = Executor::of_servers(driver, &compare.servers, &compare.testbed)?;
    find_capacities(&mut executor, compare, &start)?;
    run_levels(&mut executor, compare, &start)?;
    finish(executor)
}

/// Refuses options that make no sense.
fn check(compare: &Compare) -> Result<()> {
    check_levels(&compare.levels)?;
    check_servers(&compare.servers)?;
    check_rounds(compare.rounds)?;
    if let RelativeTo::Given(rate) = compare.relative_to
        && !(rate > 0.0 && rate.is_finite())
    {
        return Err(Error::usage(format!("a capacity of {rate}: it must be above 0")));
    }
    let most = compare.options.users.connections_max;
    if let Some(clients) = compare.clients.filter(|clients| *clients == 0 || *clients > most) {
        return Err(Error::usage(format!(
            "{clients} clients: 1 to {most} are possible, as many as --connections"
        )));
    }
    if compare.options.out.is_none() {
        return Err(Error::usage("a comparison is computed from its records: do without --discard"));
    }
    Ok(())
}

fn describe(driver: &mut Driver, compare: &Compare) {
    let relative_to = match compare.relative_to {
        RelativeTo::Own => "of each server's own capacity".to_owned(),
        RelativeTo::Lowest => "of the lowest capacity of all".to_owned(),
        RelativeTo::Given(rate) => format!("of {rate} requests/s"),
    };
    let run = &mut driver.run;
    run.arrivals = match compare.clients {
        Some(clients) => format!("closed loop: {clients} clients without pause"),
        None => format!("Poisson, at load levels that are fractions {relative_to}"),
    };
    run.settings.insert("rounds".to_owned(), compare.rounds.to_string());
    compare.testbed.describe(&mut |name, value| drop(run.settings.insert(name.to_owned(), value)));
}

/// Finds the capacity of each server, in as many rounds as the levels get.
fn find_capacities(executor: &mut Executor, compare: &Compare, start: &Start<'_>) -> Result<()> {
    if compare.clients.is_some() || matches!(compare.relative_to, RelativeTo::Given(_)) {
        return Ok(());
    }
    executor.rounds(compare.rounds..=compare.rounds, start, |executor, index, round, tested| {
        let Some(found) = executor.driver.capacity(&tested.served, Some(round), None)? else {
            return Ok(());
        };
        match &mut executor.subjects[index].capacity {
            Some(capacity) => add_round(capacity, &found),
            none => *none = Some(found),
        }
        Ok(())
    })
}

fn run_levels(executor: &mut Executor, compare: &Compare, start: &Start<'_>) -> Result<()> {
    let capacity = |subject: &Subject| Some(subject.capacity.as_ref()?.requests_per_s);
    let lowest = executor.subjects.iter().filter_map(capacity).reduce(f64::min);
    let duration_s = compare.options.duration_s.unwrap_or(LEVEL_S);
    let rounds = compare.rounds..=most_rounds(compare.rounds);
    if let Some(clients) = compare.clients {
        let closed = Level { keep: true, ..Level::infinite("closed loop", clients, duration_s) };
        return executor.rounds(rounds.clone(), start, |executor, index, round, tested| {
            executor.measure(index, tested, &Level { round: Some(round), ..closed.clone() })
        });
    }
    executor.rounds(rounds, start, |executor, index, round, tested| {
        let level_1_per_s = match compare.relative_to {
            RelativeTo::Own => capacity(&executor.subjects[index]),
            RelativeTo::Lowest => lowest,
            RelativeTo::Given(rate) => Some(rate),
        };
        let Some(level_1_per_s) = level_1_per_s.filter(|rate| *rate > 0.0) else {
            return Err(Error::run("it has no capacity to ask for a fraction of"));
        };
        for &fraction in &compare.levels {
            if executor.driver.is_interrupted() {
                break;
            }
            let level = Level { round: Some(round), ..Level::fraction(fraction, level_1_per_s, duration_s) };
            executor.measure(index, tested, &level)?;
            executor.driver.save(&executor.subjects);
        }
        Ok(())
    })
}

/// Pools the rounds and compares the servers.
fn finish(mut executor: Executor) -> Result<Ending> {
    eprintln!("pooling the rounds");
    executor.pool()?;
    let subjects = executor.subjects;
    let run = &mut executor.driver.run;
    run.ratios = ratios::ratios(&subjects);
    run.notes.extend(ratios::too_few_rounds(&subjects));
    run.subjects = subjects;
    executor.driver.finish()
}

/// The medians of the rounds so far.
fn add_round(capacity: &mut Capacity, found: &Capacity) {
    // A megabit rate is kept as that of the median: what one request brings, on average over the rounds.
    let asked: f64 = capacity.rounds_requests_per_s.iter().sum();
    let megabits_before = asked * per(capacity.megabits_per_s, capacity.requests_per_s);
    let megabits_each = per(megabits_before + found.megabits_per_s, asked + found.requests_per_s);
    capacity.rounds_requests_per_s.push(found.requests_per_s);
    capacity.doubts.extend(found.doubts.iter().cloned());
    capacity.requests_per_s = median(capacity.rounds_requests_per_s.clone());
    capacity.megabits_per_s = capacity.requests_per_s * megabits_each;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(requests_per_s: f64, megabits_per_s: f64) -> Capacity {
        let rounds_requests_per_s = vec![requests_per_s];
        Capacity { requests_per_s, megabits_per_s, rounds_requests_per_s, clients: 1, doubts: Vec::new() }
    }

    #[test]
    fn a_capacity_is_the_median_of_its_rounds() {
        // The first round went wrong.
        let mut all = capacity(0.0, 0.0);
        add_round(&mut all, &capacity(100.0, 10.0));
        assert_eq!((all.requests_per_s, all.megabits_per_s), (50.0, 5.0));
        add_round(&mut all, &capacity(300.0, 50.0));
        // 60 Mb/s for 400 requests/s: 0.15 for each of the median's 100.
        assert_eq!(all.rounds_requests_per_s, [0.0, 100.0, 300.0]);
        assert!(all.requests_per_s == 100.0 && (all.megabits_per_s - 15.0).abs() < 1e-9, "{all:?}");
    }
}
