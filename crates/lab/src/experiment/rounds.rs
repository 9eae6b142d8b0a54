//! Carries a plan out: each variant gets its turn in each scene of each round, beginning with another one.
//!
//! [`super::run`] calls it. What can't be done is named and left out; the rest goes on. Servers run one at a
//! time: two that ran at once would share the page cache.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::Options;
use super::inside::{Control, Inside, output};
use super::plan::{Beside, Kind, Load, Plan, Point, Scene, Variant};
use super::sets::Ready;
use crate::compare::pool::{self, Phase};
use crate::drive::{self, Driven, Driver, Level, Served, Users, nanoseconds, target};
use crate::error::{Error, Result};
use crate::interfere::{HotFiles, HotMix, Streams};
use crate::measure::times::median;
use crate::results::{Measures, Run, Subject};
use crate::testbed::{self, Peer, Place, Running, States, ready_made};
use crate::workload::{Spec, Workload};

/// The last answers are waited for so long: a server in the middle of a disk's queue needs it.
const DRAIN_S: f64 = 15.0;
/// Every hot file once may take so long.
const WARM_UP_MAX_S: f64 = 30.0;
/// Connections at once in an open loop (blocking-induced-latency, section 2.4).
const CONNECTIONS: u32 = 1024;
/// How often the states of processes are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Where a server listens for `flash stats`, in its own folder.
const CONTROL: &str = "--control";
const CONTROL_SOCKET: &str = "control.sock";

/// A part that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) why: String,
}

/// What came of a plan.
pub(super) struct Came {
    pub(super) run: Run,
    pub(super) inside: Vec<Inside>,
    pub(super) missing: Vec<Missing>,
    pub(super) is_interrupted: bool,
}

/// A plan under way.
struct Rounds<'a> {
    plan: &'a Plan,
    options: &'a Options,
    driver: Driver,
    sets: Vec<Ready>,
    /// Of each scene, each point.
    workloads: Vec<Vec<(Spec, Workload)>>,
    /// What starts each variant; none for one that can't be.
    peers: Vec<Option<Peer>>,
    /// In the order of the variants.
    subjects: Vec<Subject>,
    phases: Vec<Vec<Phase>>,
    inside: Vec<Inside>,
    missing: Vec<Missing>,
    /// Variant and scene that are not tried any more.
    out: BTreeSet<(usize, usize)>,
    /// Scenes that this machine can't do.
    left_out: BTreeSet<usize>,
    /// What only keeps the generator from being the limit is done without.
    has_cpu: bool,
    flash: PathBuf,
    /// Variants of Flash are asked what they count.
    asks: bool,
}

/// A server in its turn.
struct Turn {
    served: Served,
    running: Running,
    control: Option<Control>,
}

/// Runs the plan on these sets.
///
/// Errors: usage, for a folder that holds a run; run, when no server can be measured.
pub(super) fn run(plan: &Plan, options: &Options, sets: Vec<Ready>) -> Result<Came> {
    let mut rounds = Rounds::new(plan, options, sets)?;
    rounds.find_what_is_missing()?;
    for round in 1..=plan.rounds {
        for scene in 0..plan.scenes.len() {
            rounds.scene(scene, round);
        }
    }
    rounds.finish()
}

/// The program that variants of Flash are.
///
/// Errors: run, when it is not found.
pub(super) fn flash_program() -> Result<PathBuf> {
    match std::env::var_os("FLASH") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().map_err(|why| Error::run(format!("cannot find this program: {why}"))),
    }
}

/// The options that a help text names.
fn options_of(help: &str) -> BTreeSet<&str> {
    help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("--"))
        .collect()
}

impl<'a> Rounds<'a> {
    fn new(plan: &'a Plan, options: &'a Options, sets: Vec<Ready>) -> Result<Self> {
        let mut workloads = Vec::new();
        for scene in &plan.scenes {
            let of_scene = scene.points.iter().map(|point| sets[scene.set].workload(point.ask));
            workloads.push(of_scene.collect::<Result<Vec<_>>>()?);
        }
        let first = plan.scenes.first().and_then(|scene| Some((scene.set, scene.points.first()?)));
        let (set, point) = first.ok_or_else(|| Error::usage("the experiment has no points"))?;
        let (workload, files) = sets[set].options(point.ask);
        let driver = Driver::new("experiment", drive_options(options, workload, files))?;
        Ok(Self {
            plan,
            options,
            driver,
            sets,
            workloads,
            peers: Vec::new(),
            subjects: plan.variants.iter().map(|variant| Subject::of(&variant.name, "")).collect(),
            phases: plan.variants.iter().map(|_| Vec::new()).collect(),
            inside: Vec::new(),
            missing: Vec::new(),
            out: BTreeSet::new(),
            left_out: BTreeSet::new(),
            has_cpu: true,
            flash: flash_program()?,
            asks: false,
        })
    }

    fn is_missing(&mut self, what: &str, why: &str) {
        eprintln!("warning: {what} is missing: {why}");
        self.missing.push(Missing { what: what.to_owned(), why: why.to_owned() });
    }

    /// Finds out, before hours of work, what this machine and this program can't do.
    fn find_what_is_missing(&mut self) -> Result<()> {
        if self.options.core.is_none() {
            self.is_missing(
                "a core for the server alone",
                "there is one core: what is measured is server and generator together",
            );
        }
        let plan = self.plan;
        for (number, scene) in plan.scenes.iter().enumerate() {
            let place = self.place(scene);
            let whole = place.check();
            let Err(why) = whole else { continue };
            let is_optional = !scene.is_bounded && scene.cpu.is_some_and(|cpu| !cpu.is_needed);
            if is_optional && self.has_cpu {
                self.has_cpu = false;
                self.is_missing(
                    "a bounded share of a core",
                    &format!("{why}; without it the generator may be the limit"),
                );
            } else if !is_optional {
                self.left_out.insert(number);
                let points: Vec<&str> = scene.points.iter().map(|point| point.name.as_str()).collect();
                self.is_missing(&points.join(", "), &why.to_string());
            }
        }
        let help = output(Command::new(&self.flash).args(["serve", "--help"]))?;
        let help = String::from_utf8_lossy(&help).into_owned();
        let known = options_of(&help);
        let can_tell =
            known.contains(CONTROL) && output(Command::new(&self.flash).args(["stats", "--help"])).is_ok();
        if plan.looks_inside && !can_tell {
            self.is_missing("events per dispatch", "this program has no `flash stats`");
        }
        self.asks = plan.looks_inside && can_tell;
        for (index, variant) in plan.variants.iter().enumerate() {
            let peer = peer_of(variant, &known, self.asks);
            let found = peer.and_then(|peer| peer.check().map(|()| peer));
            let peer = found.map_err(|why| {
                self.is_missing(&variant.name, &why.to_string());
                self.subjects[index].missing = Some(why.to_string());
            });
            self.peers.push(peer.ok());
        }
        if self.peers.iter().all(Option::is_none) || self.left_out.len() == plan.scenes.len() {
            let why = self.missing.last().map(|missing| missing.why.clone()).unwrap_or_default();
            return Err(Error::run(format!("nothing of the experiment can be run here: {why}")));
        }
        Ok(())
    }

    /// Where the servers of a scene run.
    fn place(&self, scene: &Scene) -> Place {
        let Options { memory_bytes, reads_per_s, core, .. } = *self.options;
        let cpu = scene.cpu.filter(|cpu| cpu.is_needed || self.has_cpu);
        Place {
            root: self.sets[scene.set].root.clone(),
            core,
            memory_bytes: scene.is_bounded.then_some(memory_bytes),
            reads_per_s: scene.is_bounded.then_some(reads_per_s),
            cpu_percent: cpu.map(|cpu| cpu.percent),
        }
    }

    /// Gives every variant its turn in a scene. One that fails is out of the scene, with the reason.
    fn scene(&mut self, number: usize, round: u32) {
        let (plan, count) = (self.plan, self.plan.variants.len());
        let scene = &plan.scenes[number];
        for place in 0..count {
            let index = (place + round as usize - 1) % count;
            let is_out = self.out.contains(&(index, number)) || self.left_out.contains(&number);
            if self.driver.is_interrupted() || is_out || self.peers[index].is_none() {
                continue;
            }
            let variant = &plan.variants[index];
            let taken = match scene.leaves_out(variant) {
                Some(why) => Err(Error::run(why)),
                None => self.turn(index, number, round),
            };
            if let Err(why) = taken
                && !self.driver.is_interrupted()
            {
                self.out.insert((index, number));
                let points: Vec<&str> = scene.points.iter().map(|point| point.name.as_str()).collect();
                self.is_missing(&format!("{} at {}", variant.name, points.join(", ")), &why.to_string());
            }
            self.driver.save(&self.subjects);
        }
    }

    fn turn(&mut self, index: usize, number: usize, round: u32) -> Result<()> {
        let turn = self.begin(index, number)?;
        turn.running.throttle(true)?;
        for at in 0..self.plan.scenes[number].points.len() {
            if self.driver.is_interrupted() {
                break;
            }
            if let Some(why) = turn.running.ended() {
                return Err(Error::run(why));
            }
            self.point(&turn, (index, number, at), round)?;
        }
        let killed = turn.running.killed_for_memory();
        if killed > 0 {
            let name = &self.plan.variants[index].name;
            self.driver
                .note(format!("{name}: the kernel ended {killed} of its processes for want of memory"));
        }
        turn.running.stop()
    }

    /// Starts a server and warms it up, with the disk at its full speed.
    fn begin(&mut self, index: usize, number: usize) -> Result<Turn> {
        let scene = &self.plan.scenes[number];
        let place = self.place(scene);
        if scene.is_bounded {
            testbed::drop_page_cache()?;
        }
        let variant = &self.plan.variants[index];
        let peer = self.peers[index].as_ref().ok_or_else(|| Error::run("it can't be started"))?;
        let running = peer.with_set("clients", &scene.clients.unwrap_or(1).to_string()).start(&place)?;
        let asked = self.asks && matches!(variant.kind, Kind::Flash(_));
        let control = running.folder().filter(|_| asked).map(|folder| Control(folder.join(CONTROL_SOCKET)));
        let subject = &mut self.subjects[index];
        running.url().clone_into(&mut subject.url);
        subject.version = running.version().map(str::to_owned);
        subject.command = running.command().map(str::to_owned);
        let target = target(self.driver.options(), running.url())?;
        let served = Served { name: variant.name.clone(), target, pid: running.pid() };
        if let Some((point, (spec, workload))) =
            scene.points.first().zip(self.workloads[number].first().cloned())
        {
            self.driver.turn_to(spec, workload);
            if let Load::Beside(Beside { hot_directories, .. }) = point.load {
                // What is hot is in memory, and nothing else is.
                let hot = HotFiles::all(HotMix::Small, hot_directories);
                self.driver.preflight_all(&served, hot, nanoseconds(WARM_UP_MAX_S))?;
                return Ok(Turn { served, running, control });
            }
            self.driver.preflight(&served)?;
            let (clients, users) = (clients_of(point), users(point));
            if scene.warm_up_s > 0.0 {
                let level =
                    Level { users: Some(users), ..Level::infinite("warm-up", clients, scene.warm_up_s) };
                self.driver.level(&served, &level)?;
            }
        }
        Ok(Turn { served, running, control })
    }

    /// One measurement.
    fn point(&mut self, turn: &Turn, (index, number, at): (usize, usize, usize), round: u32) -> Result<()> {
        let plan = self.plan;
        let point = &plan.scenes[number].points[at];
        let (spec, workload) = self.workloads[number][at].clone();
        self.driver.turn_to(spec, workload);
        let mut level = match &point.load {
            Load::Infinite(clients) => Level::infinite(&point.name, *clients, point.duration_s),
            Load::Beside(beside) => return self.beside(&turn.served, (index, point), round, beside),
            Load::Fraction(fraction, of) => {
                let capacity = self
                    .capacity(index, of)
                    .ok_or_else(|| Error::run(format!("{of} gave no capacity to ask for a fraction of")))?;
                Level { name: point.name.clone(), ..Level::fraction(*fraction, capacity, point.duration_s) }
            }
        };
        level.round = Some(round);
        level.users = Some(users(point));
        let before = turn.control.as_ref().map(|control| control.ask(&self.flash)).transpose()?;
        let states = match turn.running.pid() {
            Some(pid) if self.plan.looks_inside => Some(States::watch(pid, LOOK, &self.options.cores)?),
            _ => None,
        };
        let driven = self.driver.level(&turn.served, &level)?;
        if self.plan.looks_inside {
            let moments = states.map(States::finish).unwrap_or_default();
            let after = turn.control.as_ref().map(|control| control.ask(&self.flash)).transpose()?;
            let inside = Inside::of(before.as_ref().zip(after.as_ref()), moments, driven.measures.duration_s);
            let variant = self.plan.variants[index].name.clone();
            self.inside.push(Inside { variant, point: point.name.clone(), round, ..inside });
        }
        self.keep(index, driven);
        Ok(())
    }

    fn keep(&mut self, index: usize, driven: Driven) {
        if let Some(file) = driven.measures.records.as_deref().and_then(|name| self.driver.kept(name)) {
            self.phases[index].push(Phase { file, facts: driven.facts });
        }
        self.subjects[index].rounds.push(driven.measures);
    }

    /// One measurement of hot requests, and of cold ones beside them.
    fn beside(
        &mut self,
        served: &Served,
        (index, point): (usize, &Point),
        round: u32,
        beside: &Beside,
    ) -> Result<()> {
        eprintln!("{}, round {round}: {} for {} s", served.name, point.name, point.duration_s);
        let streams = Streams {
            hot_mix: HotMix::Small,
            hot_directories: beside.hot_directories,
            hot_rate_per_s: beside.hot_rate_per_s,
            cold_directories: beside.cold_directories.clone(),
            cold_rate_per_s: beside.cold_rate_per_s,
            duration_s: point.duration_s,
            connections_max: CONNECTIONS,
            seed: self.options.seed.wrapping_add(u64::from(round)),
        };
        let names = (point.name.as_str(), &*format!("{}, the cold ones", point.name));
        for driven in streams.drive(&mut self.driver, served, &users(point), names, Some(round))? {
            self.keep(index, driven);
        }
        Ok(())
    }

    /// What a variant answered at a point of infinite demand: the median of the rounds so far.
    fn capacity(&self, index: usize, of: &str) -> Option<f64> {
        let found = self.subjects[index].rounds.iter().filter(|round| round.name == of);
        let rates: Vec<f64> = found.map(|round| round.answered_per_s).collect();
        (!rates.is_empty()).then(|| median(rates)).filter(|rate| *rate > 0.0)
    }

    /// Puts the rounds together and keeps all.
    fn finish(mut self) -> Result<Came> {
        for (subject, phases) in self.subjects.iter_mut().zip(&self.phases) {
            pool::together(subject, phases)?;
            for point in self.plan.points() {
                let rounds = subject.rounds.iter().filter(|round| round.name == point.name);
                if matches!(point.load, Load::Infinite(_))
                    && let Some(middle) = middle_round(rounds.collect())
                {
                    subject.levels.push(Measures { round: None, ..middle.clone() });
                }
            }
        }
        if self.subjects.iter().all(|subject| subject.rounds.is_empty()) && !self.driver.is_interrupted() {
            let why = self.missing.last().map(|missing| missing.why.clone()).unwrap_or_default();
            return Err(Error::run(format!("no server could be measured; the last: {why}")));
        }
        if let Some((spec, workload)) = self.workloads.first().and_then(|scene| scene.first()).cloned() {
            // The list of paths is of the first set, the largest of those whose records are kept.
            self.driver.turn_to(spec, workload);
        }
        let run = self.driver.run_mut();
        run.subjects = self.subjects;
        let settings = self.plan.settings().into_iter().map(|(name, words)| (name.to_owned(), words));
        run.settings.extend(settings);
        // Each point has as many as its load says.
        run.settings.remove("connections at most");
        run.settings.insert("rounds".to_owned(), self.plan.rounds.to_string());
        let levels = "the pooled rounds of open loops, the middle round of infinite demand";
        run.settings.insert("levels".to_owned(), levels.to_owned());
        run.notes.extend(self.missing.iter().map(|Missing { what, why }| format!("missing: {what}: {why}")));
        let (run, is_interrupted) = self.driver.close()?;
        Ok(Came { run, inside: self.inside, missing: self.missing, is_interrupted })
    }
}

/// The round with the median rate.
fn middle_round(mut rounds: Vec<&Measures>) -> Option<&Measures> {
    rounds.sort_by(|a, b| a.answered_per_s.total_cmp(&b.answered_per_s));
    rounds.get(rounds.len().checked_sub(1)? / 2).copied()
}

/// What starts a variant.
///
/// Errors: run, for an option that this program lacks; usage, for a server that is not known.
fn peer_of(variant: &Variant, known: &BTreeSet<&str>, asks: bool) -> Result<Peer> {
    let ready = |name: &str| {
        ready_made(name).ok_or_else(|| {
            let names = testbed::ready_made_names().join(", ");
            Error::usage(format!("no server '{name}': there are {names}"))
        })
    };
    match &variant.kind {
        Kind::Peer(name) => ready(name),
        Kind::Flash(arguments) => {
            if let Some(option) = variant.options().iter().find(|option| !known.contains(**option)) {
                return Err(Error::run(format!("this `flash serve` has no {option}")));
            }
            let mut arguments = arguments.clone();
            if asks {
                arguments.extend([CONTROL.to_owned(), format!("{{folder}}/{CONTROL_SOCKET}")]);
            }
            // MP has its processes in place of workers, and refuses both.
            let is_mp = arguments.iter().any(|word| word == "mp");
            Ok(ready("flash")?.with_arguments(&variant.name, is_mp.then_some("--workers"), &arguments))
        }
    }
}

fn clients_of(point: &Point) -> u32 {
    match point.load {
        Load::Infinite(clients) => clients,
        Load::Fraction(..) | Load::Beside(_) => CONNECTIONS,
    }
}

fn users(point: &Point) -> Users {
    Users {
        connections_max: clients_of(point),
        requests_per_connection: Some(point.requests_per_connection),
        abort_after_s: None,
        retries_max: 0,
        read_bytes_per_s: None,
        verify: false,
    }
}

fn drive_options(options: &Options, workload: Spec, files: crate::workload::Options) -> drive::Options {
    drive::Options {
        workload,
        files,
        users: Users {
            connections_max: CONNECTIONS,
            requests_per_connection: None,
            abort_after_s: None,
            retries_max: 0,
            read_bytes_per_s: None,
            verify: false,
        },
        warm_up_s: 0.0,
        duration_s: None,
        drain_s: DRAIN_S,
        threads: 1,
        cores: options.cores.clone(),
        seed: options.seed,
        allow_remote: false,
        out: Some(options.out.clone()),
        require: Vec::new(),
        command_line: options.command_line.clone(),
    }
}
