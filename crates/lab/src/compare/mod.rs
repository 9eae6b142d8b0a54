//! `flash compare`: the same profile for several servers, in rounds.
//!
//! Each round gives every server its turn, beginning with another one, so that a noisy machine hurts
//! all alike. Servers that the lab starts run one at a time, each in a testbed of its own: two that
//! ran at once would share the page cache. First every server's capacity is found, in as many rounds;
//! then the levels are run.

pub(crate) mod pool;

use crate::drive::{Driver, Ending, Level, Options, Served, target};
use crate::error::{Error, Result};
use crate::measure::bootstrap::{self, Sample};
use crate::measure::per;
use crate::measure::times::median;
use crate::profile::{LEVEL_S, check_levels};
use crate::results::{Capacity, Subject};
use crate::testbed::{self, Peer, Place, Running};

use pool::Phase;

/// The most servers.
const SERVERS_MAX: usize = 32;
/// The most rounds.
const ROUNDS_MAX: u32 = 100;

/// What `flash compare` is asked for.
#[derive(Clone, Debug)]
pub struct Compare {
    /// What all commands are asked for.
    pub options: Options,
    /// The servers; ratios are to the first.
    pub servers: Vec<Peer>,
    /// Where servers that are started get their files, core, memory and disk.
    pub place: Place,
    /// Fractions of a capacity.
    pub levels: Vec<f64>,
    /// Of which.
    pub relative_to: RelativeTo,
    /// How often each server gets its turn.
    pub rounds: u32,
}

/// The capacity that load levels are fractions of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RelativeTo {
    /// Each server's own, as in the papers.
    Own,
    /// The lowest of all: every server gets the same requests.
    Lowest,
    /// So many requests per second.
    Given(f64),
}

/// Compares the servers, prints a table, keeps the results.
///
/// Errors: usage, for options that make no sense; run, when no server can be measured.
pub fn run(compare: Compare) -> Result<Ending> {
    check(&compare)?;
    let mut driver = Driver::new("compare", compare.options.clone())?;
    describe(&mut driver, &compare);
    let mut contest = Contest { subjects: enlist(&driver, &compare)?, phases: Vec::new(), compare, driver };
    contest.phases.resize_with(contest.subjects.len(), Vec::new);
    contest.find_capacities()?;
    contest.run_levels()?;
    contest.finish()
}

/// Refuses options that make no sense.
fn check(compare: &Compare) -> Result<()> {
    check_levels(&compare.levels)?;
    let servers = &compare.servers;
    if servers.is_empty() || servers.len() > SERVERS_MAX {
        return Err(Error::usage(format!("{} servers: 1 to {SERVERS_MAX} can be compared", servers.len())));
    }
    for (index, peer) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| other.name == peer.name) {
            return Err(Error::usage(format!(
                "two servers are named '{}': give each its own name",
                peer.name
            )));
        }
    }
    if compare.rounds == 0 || compare.rounds > ROUNDS_MAX {
        return Err(Error::usage(format!("{} rounds: 1 to {ROUNDS_MAX} are possible", compare.rounds)));
    }
    if let RelativeTo::Given(rate) = compare.relative_to
        && !(rate > 0.0 && rate.is_finite())
    {
        return Err(Error::usage(format!("a capacity of {rate}: it must be above 0")));
    }
    if compare.options.out.is_none() {
        return Err(Error::usage("a comparison is put together from its records: they can not be discarded"));
    }
    Ok(())
}

fn describe(driver: &mut Driver, compare: &Compare) {
    let relative_to = match compare.relative_to {
        RelativeTo::Own => "of each server's own capacity".to_owned(),
        RelativeTo::Lowest => "of the lowest capacity of all".to_owned(),
        RelativeTo::Given(rate) => format!("of {rate} requests/s"),
    };
    let run = driver.run_mut();
    run.arrivals = format!("Poisson, at load levels that are fractions {relative_to}");
    run.settings.insert("rounds".to_owned(), compare.rounds.to_string());
    if compare.rounds == 1 {
        run.notes.push("one round: intervals say nothing of how rounds differ".to_owned());
    }
    let Place { core, memory_bytes, reads_per_s, .. } = compare.place;
    let mut set = |name: &str, value: Option<String>| {
        value.and_then(|value| run.settings.insert(name.to_owned(), value));
    };
    set("server's core", core.map(|core| core.to_string()));
    set("server's memory", memory_bytes.map(|bytes| format!("{bytes} bytes, page cache included")));
    set("server's disk", reads_per_s.map(|reads| format!("{reads} reads/s, after the warm-up")));
}

/// A comparison under way.
struct Contest {
    compare: Compare,
    driver: Driver,
    /// In the order of the servers.
    subjects: Vec<Subject>,
    /// What was run of each of them at the levels.
    phases: Vec<Vec<Phase>>,
}

/// A server in its turn: what the lab started ends with it.
struct Turn {
    served: Served,
    /// Dropped, it is stopped.
    running: Running,
}

/// A subject for each server.
fn enlist(driver: &Driver, compare: &Compare) -> Result<Vec<Subject>> {
    let dataset_bytes = driver.workload().catalogue().dataset_bytes();
    if compare.servers.iter().any(|peer| peer.url().is_none()) {
        compare.place.check()?;
    }
    let subject = |peer: &Peer| {
        if let Some(url) = peer.url() {
            target(&compare.options, url)?;
        }
        peer.check()?;
        Ok(Subject { dataset_bytes, ..Subject::of(&peer.name, peer.url().unwrap_or_default()) })
    };
    compare.servers.iter().map(subject).collect()
}

impl Contest {
    fn find_capacities(&mut self) -> Result<()> {
        if let RelativeTo::Given(_) = self.compare.relative_to {
            return Ok(());
        }
        self.in_rounds(|contest, index, round, turn| {
            let Some(found) = contest.driver.capacity(&turn.served, Some(round))? else {
                return Ok(());
            };
            match &mut contest.subjects[index].capacity {
                Some(capacity) => add_round(capacity, &found),
                none => *none = Some(found),
            }
            Ok(())
        })
    }

    fn run_levels(&mut self) -> Result<()> {
        let lowest =
            self.subjects.iter().filter_map(|s| Some(s.capacity.as_ref()?.requests_per_s)).reduce(f64::min);
        let duration_s = self.compare.options.duration_s.unwrap_or(LEVEL_S);
        self.in_rounds(|contest, index, round, turn| {
            let own = contest.subjects[index].capacity.as_ref().map(|c| c.requests_per_s);
            let level_1_per_s = match contest.compare.relative_to {
                RelativeTo::Own => own,
                RelativeTo::Lowest => lowest,
                RelativeTo::Given(rate) => Some(rate),
            };
            let Some(level_1_per_s) = level_1_per_s.filter(|rate| *rate > 0.0) else {
                return Err(Error::run("it answered nothing properly under infinite demand"));
            };
            for fraction in contest.compare.levels.clone() {
                if contest.driver.is_interrupted() {
                    break;
                }
                if let Some(why) = turn.running.ended() {
                    return Err(Error::run(why));
                }
                let level =
                    Level { round: Some(round), ..Level::fraction(fraction, level_1_per_s, duration_s) };
                let driven = contest.driver.level(&turn.served, &level)?;
                if let Some(file) =
                    driven.measures.records.as_deref().and_then(|name| contest.driver.kept(name))
                {
                    contest.phases[index].push(Phase { file, facts: driven.facts });
                }
                contest.subjects[index].rounds.push(driven.measures);
                contest.driver.save(&contest.subjects);
            }
            Ok(())
        })
    }

    /// Gives every server its turn in every round. One that fails is out of the contest, with the
    /// reason; the others go on.
    fn in_rounds(&mut self, turn: impl Fn(&mut Self, usize, u32, &Turn) -> Result<()>) -> Result<()> {
        let count = self.compare.servers.len();
        for round in 1..=self.compare.rounds {
            for place in 0..count {
                let index = (place + round as usize - 1) % count;
                if self.subjects[index].missing.is_some() || self.driver.is_interrupted() {
                    continue;
                }
                let taken = self.begin(index).and_then(|begun| {
                    turn(self, index, round, &begun)?;
                    self.end(begun)
                });
                if let Err(why) = taken {
                    let why = format!("round {round}: {why}");
                    eprintln!("warning: {} is out: {why}", self.subjects[index].name);
                    self.subjects[index].missing = Some(why);
                }
            }
        }
        if self.subjects.iter().all(|subject| subject.missing.is_some()) {
            let why = self.subjects[0].missing.clone().unwrap_or_default();
            return Err(Error::run(format!("no server could be measured; the first: {why}")));
        }
        Ok(())
    }

    /// Starts a server if that is to be done, and warms it up: with the disk at its full speed, unless
    /// it was running already.
    fn begin(&mut self, index: usize) -> Result<Turn> {
        let peer = &self.compare.servers[index];
        let place = &self.compare.place;
        if peer.url().is_none() && (place.memory_bytes.is_some() || place.reads_per_s.is_some()) {
            testbed::drop_page_cache()?;
        }
        let running = peer.start(place)?;
        let subject = &mut self.subjects[index];
        running.url().clone_into(&mut subject.url);
        subject.version = running.version().map(str::to_owned);
        subject.command = running.command().map(str::to_owned);
        let target = target(&self.compare.options, running.url())?;
        let served = Served { name: peer.name.clone(), target, pid: running.pid() };
        self.driver.preflight(&served)?;
        self.driver.warm_up_fast(&served)?;
        running.throttle(true)?;
        Ok(Turn { served, running })
    }

    /// Ends a turn; says what the server suffered in it.
    fn end(&mut self, turn: Turn) -> Result<()> {
        let Turn { served, running } = turn;
        if let Some(why) = running.ended() {
            return Err(Error::run(why));
        }
        let killed = running.killed_for_memory();
        if killed > 0 {
            let note =
                format!("{}: the kernel ended {killed} of its processes for want of memory", served.name);
            self.driver.note(note);
        }
        running.stop()
    }

    /// Puts the rounds together.
    fn finish(mut self) -> Result<Ending> {
        eprintln!("putting the rounds together");
        let mut blocks = Vec::new();
        for (subject, phases) in self.subjects.iter_mut().zip(&self.phases) {
            blocks.push(pool::together(subject, phases)?);
        }
        let samples: Vec<Sample<'_>> =
            self.subjects.iter().zip(&blocks).map(|(subject, rounds)| Sample { subject, rounds }).collect();
        let ratios = bootstrap::ratios(&samples, self.compare.options.seed);
        let run = self.driver.run_mut();
        run.subjects = self.subjects;
        run.ratios = ratios;
        self.driver.finish()
    }
}

/// The medians of the rounds so far.
fn add_round(capacity: &mut Capacity, found: &Capacity) {
    // A megabit rate is kept as that of the median: what one request brings, on average over the rounds.
    let asked: f64 = capacity.rounds_requests_per_s.iter().sum();
    let megabits_before = asked * per(capacity.megabits_per_s, capacity.requests_per_s);
    let megabits_each = per(megabits_before + found.megabits_per_s, asked + found.requests_per_s);
    capacity.rounds_requests_per_s.push(found.requests_per_s);
    capacity.requests_per_s = median(capacity.rounds_requests_per_s.clone());
    capacity.megabits_per_s = capacity.requests_per_s * megabits_each;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(requests_per_s: f64, megabits_per_s: f64) -> Capacity {
        let rounds_requests_per_s = vec![requests_per_s];
        Capacity { requests_per_s, megabits_per_s, rounds_requests_per_s, clients: 1 }
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
