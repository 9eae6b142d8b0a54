//! Runs measurements: the only module that starts servers, warms them up, throttles them, drives them and stops
//! them.
//!
//! `compare`, `interfere` and the experiments say which server gets which load, and judge the results. In each round
//! every server gets its turn, and each round begins with another server, so that a noisy machine affects all of them alike.
//! Servers that the lab starts run one at a time: two that ran at once would share the page cache.

mod choice;
mod pool;
mod streams;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::drive::{Driven, Driver, Level, Served, target};
use crate::link::Link;
use crate::results::Subject;
use crate::statistics::ROUNDS_MIN;
use crate::testbed::{self, Peer, Running, Testbed};
use flash_kit::{Error, Result};
use flash_load::measure::validity::{self, Cause};
use flash_load::target::Target;

pub(crate) use choice::HotFiles;
pub use choice::HotMix;
use pool::Phase;
pub use streams::Beside;
pub(crate) use streams::Streams;

/// The most servers, and the most rounds.
const SERVERS_MAX: usize = 32;
const ROUNDS_MAX: u32 = 100;
/// Rounds that the machine has spoiled are replaced until there are this many times as many as asked for.
const REPLACED_TIMES_MAX: u32 = 3;

/// The servers of a run, and the results so far. A server is identified by its index.
pub(crate) struct Executor {
    pub(crate) driver: Driver,
    /// How each server is started; none for a server that cannot be started here.
    pub(crate) peers: Vec<Option<Peer>>,
    /// In the order of the servers.
    pub(crate) subjects: Vec<Subject>,
    /// The phases of each server whose records are kept.
    phases: Vec<Vec<Phase>>,
}

/// Where a server runs, and how it is warmed up.
pub(crate) struct Start<'a> {
    pub(crate) testbed: &'a Testbed,
    pub(crate) warm_up: WarmUp<'a>,
    pub(crate) link: Option<Arc<Link>>,
}

/// The requests to a server before it is measured, with the disk at its full speed.
#[derive(Clone, Copy)]
pub(crate) enum WarmUp<'a> {
    /// This load, without measuring it; nothing where it lasts 0 s.
    Load(&'a Level),
    /// Each of these files once. All of them must be answered properly.
    Files {
        path_ids: &'a [u32],
        /// How long all of them may take.
        patience_ns: u64,
    },
}

/// A server that is measured now. Dropped, a server that the lab started is stopped.
pub(crate) struct ServerUnderTest {
    pub(crate) served: Served,
    pub(crate) running: Running,
}

impl Executor {
    pub(crate) fn new(driver: Driver, peers: Vec<Option<Peer>>, subjects: Vec<Subject>) -> Self {
        let phases = subjects.iter().map(|_| Vec::new()).collect();
        Self { driver, peers, subjects, phases }
    }

    /// An executor for servers that all run in one testbed and must all be available.
    ///
    /// Errors: usage, for an invalid URL or root; run, for a program that is not installed, or bounds that
    /// this machine does not allow.
    pub(crate) fn of_servers(driver: Driver, servers: &[Peer], testbed: &Testbed) -> Result<Self> {
        if servers.iter().any(|peer| peer.url().is_none()) {
            testbed.check()?;
        }
        let dataset_bytes = driver.workload.catalogue().dataset_bytes();
        let subject = |peer: &Peer| {
            if let Some(url) = peer.url() {
                target(&driver.options, url)?;
            }
            peer.check()?;
            Ok(Subject { dataset_bytes, ..Subject::of(&peer.name, peer.url().unwrap_or_default()) })
        };
        let subjects = servers.iter().map(subject).collect::<Result<_>>()?;
        Ok(Self::new(driver, servers.iter().cloned().map(Some).collect(), subjects))
    }

    /// The servers in the order of their turns in a round, counted from 1.
    pub(crate) fn order(&self, round: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.subjects.len();
        (0..count).map(move |index| (index + round as usize - 1) % count)
    }

    /// Gives every server its turn in every round. A server that fails is out of the rest of the run, with the reason;
    /// the others go on. Beyond the first number of `rounds` further ones replace those that the machine has spoiled, up to the
    /// last number, such as [`most_rounds`].
    ///
    /// Errors: run, when no server is left.
    pub(crate) fn rounds(
        &mut self,
        rounds: RangeInclusive<u32>,
        start: &Start<'_>,
        mut measure: impl FnMut(&mut Self, usize, u32, &ServerUnderTest) -> Result<()>,
    ) -> Result<()> {
        let asked = *rounds.start();
        for round in 1..=*rounds.end() {
            if round > asked && !lacks_rounds(&self.subjects, asked, |_| true) {
                break;
            }
            for index in self.order(round) {
                let is_out = self.subjects[index].missing.is_some() || self.driver.is_interrupted();
                let (false, Some(peer)) = (is_out, self.peers[index].clone()) else { continue };
                let taken = self.begin(index, &peer, start).and_then(|tested| {
                    measure(self, index, round, &tested)?;
                    self.end(tested)
                });
                if let Err(why) = taken {
                    let why = format!("round {round}: {why}");
                    eprintln!("warning: {} is out: {why}", self.subjects[index].name);
                    self.subjects[index].missing = Some(why);
                }
                self.driver.save(&self.subjects);
            }
        }
        if self.subjects.iter().all(|subject| subject.missing.is_some()) {
            let first = self.subjects.first().and_then(|subject| subject.missing.clone()).unwrap_or_default();
            return Err(Error::run(format!("no server could be measured; the first: {first}")));
        }
        Ok(())
    }

    /// Begins a server's turn: starts it if the lab is to start it, warms it up, and throttles it.
    ///
    /// Errors: run, for a server that cannot be started or does not answer properly.
    pub(crate) fn begin(&mut self, index: usize, peer: &Peer, start: &Start<'_>) -> Result<ServerUnderTest> {
        if is_fresh(peer, start.testbed) {
            testbed::drop_page_cache()?;
        }
        let running = match &start.link {
            Some(link) => peer.start_behind(start.testbed, &link.server)?,
            None => peer.start(start.testbed)?,
        };
        let subject = &mut self.subjects[index];
        subject.url.clone_from(&running.url);
        subject.version.clone_from(&running.version);
        subject.command.clone_from(&running.command);
        let target = match &start.link {
            // Its address is of this machine, and yet not of its loopback device.
            Some(_) => Target::parse(&running.url, true)?,
            None => target(&self.driver.options, &running.url)?,
        };
        let link = start.link.clone();
        let core = start.testbed.core.filter(|_| peer.url().is_none());
        let served = Served { name: subject.name.clone(), target, pids: running.pids(), core, link };
        self.warm_up(&served, start.warm_up)?;
        let tested = ServerUnderTest { served, running };
        self.throttle(&tested)?;
        Ok(tested)
    }

    /// Holds a server to its reads/s, once it reads nothing from its disk, and to its share of a core. That it reads on is a note.
    fn throttle(&mut self, tested: &ServerUnderTest) -> Result<()> {
        if !tested.running.comes_to_rest() {
            self.driver.note(format!(
                "{}: still read from the disk when it was held to its reads/s: these reads are among them",
                tested.served.name
            ));
        }
        tested.running.throttle(true)
    }

    fn warm_up(&mut self, served: &Served, warm_up: WarmUp<'_>) -> Result<()> {
        match warm_up {
            WarmUp::Files { path_ids, patience_ns } => {
                self.driver.preflight_all(served, path_ids.to_vec(), patience_ns)?;
            }
            WarmUp::Load(level) => {
                self.driver.preflight(served)?;
                if level.duration_s > 0.0 && !self.driver.is_interrupted() {
                    self.driver.level(served, level)?;
                }
            }
        }
        Ok(())
    }

    /// Lets a server end what it still does for requests that nobody waits for any more: it is not throttled until it has
    /// answered the warm-up again. That it has not is a note.
    ///
    /// Errors: run, when it cannot be throttled or let go.
    pub(crate) fn settle(&mut self, tested: &ServerUnderTest, round: u32, start: &Start<'_>) -> Result<()> {
        tested.running.throttle(false)?;
        if let Err(why) = self.warm_up(&tested.served, start.warm_up) {
            self.driver
                .note(format!("{}, round {round}: busy with earlier requests: {why}", tested.served.name));
        }
        self.throttle(tested)
    }

    /// Ends a server's turn: stops it if the lab started it.
    ///
    /// Errors: run, for a server that exited by itself, or cannot be stopped.
    pub(crate) fn end(&mut self, tested: ServerUnderTest) -> Result<()> {
        let ServerUnderTest { served, running } = tested;
        if let Some(why) = running.ended() {
            return Err(Error::run(why));
        }
        let killed = running.killed_for_memory();
        if killed > 0 {
            let name = &served.name;
            self.driver
                .note(format!("{name}: the kernel killed {killed} of its processes: too little memory"));
        }
        running.stop()
    }

    /// Drives a server at a level, and keeps the results.
    ///
    /// Errors: run, for a server that has exited, or when the load generator cannot work.
    pub(crate) fn measure(&mut self, index: usize, tested: &ServerUnderTest, level: &Level) -> Result<()> {
        if let Some(why) = tested.running.ended() {
            return Err(Error::run(why));
        }
        let driven = self.driver.level(&tested.served, level)?;
        self.keep(index, driven);
        Ok(())
    }

    /// Adds the results of a phase to those of its server.
    pub(crate) fn keep(&mut self, index: usize, driven: Driven) {
        if let Some(file) = driven.measures.records.as_deref().and_then(|name| self.driver.kept(name)) {
            let is_spoiled = validity::causes(&driven.measures).into_iter().any(Cause::is_of_machine);
            self.phases[index].push(Phase { file, facts: driven.facts, is_spoiled });
        }
        self.subjects[index].rounds.push(driven.measures);
    }

    /// Pools the rounds of each level of each server.
    ///
    /// Errors: run, when records cannot be read back or are too many.
    pub(crate) fn pool(&mut self) -> Result<()> {
        self.subjects
            .iter_mut()
            .zip(&self.phases)
            .try_for_each(|(subject, phases)| pool::together(subject, phases))
    }
}

/// Whether the machine has spoiled rounds of a subject's level, of these names, so that fewer are left than asked for.
pub(crate) fn lacks_rounds(subjects: &[Subject], rounds: u32, is_asked: impl Fn(&str) -> bool) -> bool {
    subjects.iter().filter(|subject| subject.missing.is_none()).any(|subject| {
        let mut counts: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
        for round in subject.rounds.iter().filter(|round| is_asked(&round.name)) {
            let is_sound = !validity::causes(round).into_iter().any(Cause::is_of_machine);
            let [all, sound] = counts.entry(&round.name).or_default();
            (*all, *sound) = (*all + 1, *sound + u32::from(is_sound));
        }
        // With fewer than asked for it was out of some for another reason.
        counts.values().any(|[all, sound]| *all >= rounds && *sound < rounds)
    })
}

/// Whether the page cache is dropped before this server starts in this testbed.
pub(crate) fn is_fresh(peer: &Peer, testbed: &Testbed) -> bool {
    peer.url().is_none() && (testbed.memory_bytes.is_some() || testbed.reads_per_s.is_some())
}

pub(crate) fn check_rounds(rounds: u32) -> Result<()> {
    match rounds {
        1..=ROUNDS_MAX => Ok(()),
        _ => Err(Error::usage(format!("{rounds} rounds: 1 to {ROUNDS_MAX} are possible"))),
    }
}

/// The most rounds where this many are asked for. Too few for an interval are not worth replacing.
pub(crate) fn most_rounds(asked: u32) -> u32 {
    if asked as usize >= ROUNDS_MIN { asked * REPLACED_TIMES_MAX } else { asked }
}

pub(crate) fn check_servers(servers: &[Peer]) -> Result<()> {
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use flash_load::measure::{CoreOf, Measures, OtherWork, PhaseFacts, measures};

    use super::*;

    fn subject(spoiled: &[bool]) -> Subject {
        let round = |(number, is_spoiled): (u32, &bool)| {
            let facts = PhaseFacts { name: "0.80".to_owned(), round: Some(number), ..PhaseFacts::default() };
            let busy_share = if *is_spoiled { 0.5 } else { 0.0 };
            let other_work = OtherWork { core: CoreOf::Server, busy_share, stolen_share: 0.0 };
            Measures { other_work: Some(other_work), ..measures(&[], &facts) }
        };
        Subject { rounds: (1..).zip(spoiled).map(round).collect(), ..Subject::of("a", "") }
    }

    #[test]
    fn spoiled_rounds_are_replaced() {
        let lacks = |spoiled: &[bool]| lacks_rounds(&[subject(spoiled)], 2, |_| true);
        assert!(!lacks(&[false, false]));
        assert!(lacks(&[false, true]) && lacks(&[true, false, true]));
        assert!(!lacks(&[false, true, false]));
        assert!(!lacks(&[true]), "a server that was out of the second round");
        assert!(!lacks_rounds(&[subject(&[true, true])], 2, |name| name == "1.00"));
    }
}
