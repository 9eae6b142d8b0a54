//! Carries the plan of an experiment out: in each round each variant gets its turn in each scene.
//!
//! [`super::run`] calls it; [`crate::execute`] runs the servers. Parts that cannot be run here are named and left out;
//! the rest goes on.

mod points;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use super::Options;
use super::behind;
use super::capacities::Capacities;
use super::inside::{Inside, output};
use super::plan::{Beside, Load, Plan, Point, Scene, Variant};
use super::sets::{Ready, Sets};
use crate::drive::{self, Driver, Level, Users, nanoseconds};
use crate::execute::{Executor, HotFiles, HotMix, Start, WarmUp, lacks_rounds, most_rounds};
use crate::results::{Run, Subject};
use crate::testbed::{self, Locked, Peer, Testbed, ready_made};
use flash_kit::{Error, Result};
use flash_load::generator::message;
use flash_load::measure::Measures;
use flash_load::workload::{Spec, Workload};

/// How long to wait for the last answers: a server with a long disk queue needs it.
const DRAIN_S: f64 = 15.0;
/// Every hot file once may take so long.
const WARM_UP_MAX_S: f64 = 30.0;
/// Connections at once in an open loop (blocking-induced-latency, section 2.4).
const CONNECTIONS: u32 = 1024;
/// The same under overload: more than there ever are, because every user opens a connection, whatever the server does.
const CONNECTIONS_OF_OVERLOAD: u32 = 16_384;
/// Clients of a warm-up over a link: enough to fill it.
const WARM_UP_CLIENTS: u32 = 32;

/// Where a server listens for `flash stats`, in its own folder.
const CONTROL: &str = "--control";
const CONTROL_SOCKET: &str = "control.sock";

/// A part that could not be run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Missing {
    pub(super) what: String,
    pub(super) why: String,
}

/// The results of a plan.
pub(super) struct Came {
    pub(super) run: Run,
    pub(super) inside: Vec<Inside>,
    pub(super) missing: Vec<Missing>,
    pub(super) is_interrupted: bool,
}

/// The turn of a variant in a scene.
#[derive(Clone, Copy)]
struct At {
    variant: usize,
    scene: usize,
    round: u32,
}

/// A plan under way.
struct Rounds<'a> {
    plan: &'a Plan,
    options: &'a Options,
    executor: Executor,
    sets: Vec<Ready>,
    workloads: Vec<Vec<(Spec, Workload)>>,
    inside: Vec<Inside>,
    missing: Vec<Missing>,
    capacities: Capacities,
    /// Variant and scene that are not tried any more.
    out: BTreeSet<(usize, usize)>,
    /// Scenes that this machine can't do.
    left_out: BTreeSet<usize>,
    /// Bounds that only keep the generator from being the limit are left out where this is false.
    has_cpu: bool,
    flash: PathBuf,
    /// Whether variants of Flash are asked for their counters.
    asks: bool,
}

/// Runs the plan on these sets.
///
/// Errors: usage, for a folder that holds a run; run, when no server can be measured.
pub(super) fn run(plan: &Plan, options: &Options, sets: Sets) -> Result<Came> {
    let Sets { ready, disk } = sets;
    let mut rounds = Rounds::new(plan, options, ready)?;
    if let Err(why) = &disk {
        rounds
            .is_missing("a disk whose reads take their time", &format!("{why}; only their rate is limited"));
    }
    rounds.find_what_is_missing()?;
    for round in 1..=most_rounds(plan.rounds) {
        for scene in 0..plan.scenes.len() {
            if round <= plan.rounds || rounds.lacks_rounds(scene) {
                rounds.scene(scene, round);
            }
        }
    }
    rounds.finish()
}

fn options_of(help: &str) -> BTreeSet<&str> {
    help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
        .filter(|word| word.starts_with("--"))
        .collect()
}

impl<'a> Rounds<'a> {
    fn new(plan: &'a Plan, options: &'a Options, sets: Vec<Ready>) -> Result<Self> {
        let mut workloads = Vec::new();
        for scene in &plan.scenes {
            let of_scene = scene.points.iter().map(|point| sets[scene.set].workload(point.files));
            workloads.push(of_scene.collect::<Result<Vec<_>>>()?);
        }
        let first = plan.scenes.first().and_then(|scene| Some((scene.set, scene.points.first()?)));
        let (set, point) = first.ok_or_else(|| Error::usage("the experiment has no points"))?;
        let (workload, files) = sets[set].options(point.files);
        let driver = Driver::new("experiment", drive_options(options, workload, files))?;
        let subjects = plan.variants.iter().map(|variant| Subject::of(&variant.name, "")).collect();
        Ok(Self {
            plan,
            options,
            executor: Executor::new(driver, Vec::new(), subjects),
            sets,
            workloads,
            inside: Vec::new(),
            missing: Vec::new(),
            capacities: Capacities::default(),
            out: BTreeSet::new(),
            left_out: BTreeSet::new(),
            has_cpu: true,
            flash: testbed::flash_program()?,
            asks: false,
        })
    }

    fn is_missing(&mut self, what: &str, why: &str) {
        eprintln!("warning: {what} is missing: {why}");
        self.missing.push(Missing { what: what.to_owned(), why: why.to_owned() });
    }

    /// Finds, before hours of work, the parts that this machine and this program cannot run.
    fn find_what_is_missing(&mut self) -> Result<()> {
        if self.options.core.is_none() {
            self.is_missing(
                "a core for the server alone",
                "there is one core: what is measured is server and generator together",
            );
        }
        let plan = self.plan;
        for (number, scene) in plan.scenes.iter().enumerate() {
            let testbed = self.testbed(scene);
            let whole = testbed.check().and_then(|()| behind::check(scene, &self.flash));
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
                self.is_missing(&scene.names(), &why.to_string());
            }
        }
        let help = output(Command::new(&self.flash).args(["serve", "--help"]))?;
        let help = String::from_utf8_lossy(&help).into_owned();
        let known = options_of(&help);
        let can_tell =
            known.contains(CONTROL) && output(Command::new(&self.flash).args(["stats", "--help"])).is_ok();
        if plan.looks_inside && !can_tell {
            self.is_missing("the server's own counters", "this program has no `flash stats`");
        }
        self.asks = plan.looks_inside && can_tell;
        for (index, variant) in plan.variants.iter().enumerate() {
            let peer = peer_of(variant, &known, self.asks);
            let found = peer.and_then(|peer| peer.check().map(|()| peer));
            let peer = found.map_err(|why| {
                self.is_missing(&variant.name, &why.to_string());
                self.executor.subjects[index].missing = Some(why.to_string());
            });
            self.executor.peers.push(peer.ok());
        }
        if self.executor.peers.iter().all(Option::is_none) || self.left_out.len() == plan.scenes.len() {
            let why = self.missing.last().map(|missing| missing.why.clone()).unwrap_or_default();
            return Err(Error::run(format!("nothing of the experiment can be run here: {why}")));
        }
        Ok(())
    }

    fn testbed(&self, scene: &Scene) -> Testbed {
        let Options { memory_bytes, reads_per_s, core, .. } = *self.options;
        let cpu = scene.cpu.filter(|cpu| cpu.is_needed || self.has_cpu);
        Testbed {
            root: Some(self.sets[scene.set].root.clone()),
            core,
            memory_bytes: scene.is_bounded.then_some(memory_bytes),
            reads_per_s: scene.is_bounded.then_some(reads_per_s),
            cpu_percent: cpu.map(|cpu| cpu.percent),
            ..Testbed::default()
        }
    }

    /// Whether the machine has spoiled rounds of a scene that further ones are to replace.
    fn lacks_rounds(&self, scene: usize) -> bool {
        let points = &self.plan.scenes[scene].points;
        let is_asked = |name: &str| points.iter().any(|point| point.name == name);
        !self.executor.driver.is_interrupted()
            && lacks_rounds(&self.executor.subjects, self.plan.rounds, is_asked)
    }

    /// Gives every variant its turn in a scene. One that fails is out of the scene, with the reason.
    fn scene(&mut self, number: usize, round: u32) {
        let scene = &self.plan.scenes[number];
        if self.left_out.contains(&number) {
            return;
        }
        for index in self.executor.order(round) {
            let variant = &self.plan.variants[index];
            let is_out = self.out.contains(&(index, number)) || !scene.is_for(variant);
            if self.executor.driver.is_interrupted() || is_out {
                continue;
            }
            let Some(peer) = self.executor.peers[index].clone() else { continue };
            let taken = match scene.leaves_out(variant) {
                Some(why) => Err(Error::run(why)),
                None => self.run_variant(&peer, At { variant: index, scene: number, round }),
            };
            if let Err(why) = taken
                && !self.executor.driver.is_interrupted()
            {
                self.out.insert((index, number));
                self.is_missing(&format!("{} at {}", variant.name, scene.names()), &why.to_string());
            }
            self.executor.driver.save(&self.executor.subjects);
        }
    }

    fn run_variant(&mut self, peer: &Peer, at: At) -> Result<()> {
        let scene = &self.plan.scenes[at.scene];
        let Some(((spec, workload), first)) =
            self.workloads[at.scene].first().cloned().zip(scene.points.first())
        else {
            return Ok(());
        };
        self.executor.driver.turn_to(spec, workload);
        let testbed = self.testbed(scene);
        let peer = peer.with_set("clients", &scene.clients.unwrap_or(1).to_string());
        let count = if scene.line.is_some() { WARM_UP_CLIENTS } else { clients_of(first) };
        let users = Users { abort_after_s: None, retries_max: 0, ..users(first) };
        let level = Level { users: Some(users), ..Level::infinite("warm-up", count, scene.warm_up_s) };
        let hot: Vec<u32>;
        let _locked;
        let warm_up = if let Load::Beside(Beside { hot_directories, .. }) = first.load {
            // The hot files are in memory and stay there, and no others are at first.
            hot = HotFiles::all(HotMix::Small, hot_directories);
            _locked = Locked::of(&self.sets[scene.set].root, &hot)?;
            WarmUp::Files { path_ids: &hot, patience_ns: nanoseconds(WARM_UP_MAX_S) }
        } else {
            WarmUp::Load(&level)
        };
        let variant = &self.plan.variants[at.variant];
        let wanted = behind::Wanted {
            flash: self.flash.clone(),
            core: testbed.core,
            has_bands: variant.has_bands,
            seed: self.seed(at),
        };
        let link = behind::link(scene, &wanted)?;
        let tested = self.executor.begin(at.variant, &peer, &Start { testbed: &testbed, warm_up, link })?;
        let asks = self.asks && variant.peer.is_none();
        let folder = tested.running.folder().filter(|_| asks);
        let control = folder.map(|folder| folder.join(CONTROL_SOCKET));
        for number in 0..scene.points.len() {
            if self.executor.driver.is_interrupted() {
                break;
            }
            self.point(&tested, control.as_deref(), at, number)?;
        }
        if let Some(why) = tested.served.link.as_deref().map(behind::doubt).transpose()?.flatten() {
            self.executor.driver.note(format!("{}, round {}: {why}", tested.served.name, at.round));
        }
        self.executor.end(tested)
    }

    /// The seed of a round: the same for each variant.
    fn seed(&self, at: At) -> u64 {
        self.options.seed.wrapping_add(u64::from(at.round))
    }

    /// Pools the rounds and keeps the results.
    fn finish(mut self) -> Result<Came> {
        self.executor.pool()?;
        for subject in &mut self.executor.subjects {
            for point in self.plan.points() {
                let rounds = subject.rounds.iter().filter(|round| round.name == point.name);
                if matches!(point.load, Load::Infinite(_))
                    && let Some(middle) = middle_round(rounds.collect())
                {
                    subject.levels.push(Measures { round: None, ..middle.clone() });
                }
            }
        }
        if self.executor.subjects.iter().all(|subject| subject.rounds.is_empty())
            && !self.executor.driver.is_interrupted()
        {
            let why = self.missing.last().map(|missing| missing.why.clone()).unwrap_or_default();
            return Err(Error::run(format!("no server could be measured; the last: {why}")));
        }
        if let Some((spec, workload)) = self.workloads.first().and_then(|scene| scene.first()).cloned() {
            // The list of paths is of the first set, the largest of those whose records are kept.
            self.executor.driver.turn_to(spec, workload);
        }
        let subjects = std::mem::take(&mut self.executor.subjects);
        let run = &mut self.executor.driver.run;
        run.subjects = subjects;
        let settings = self.plan.settings().into_iter().map(|(name, words)| (name.to_owned(), words));
        run.settings.extend(settings);
        // Each point has as many as its load says.
        run.settings.remove("connections at most");
        run.settings.insert("rounds".to_owned(), self.plan.rounds.to_string());
        let levels = "the pooled rounds of open loops, the middle round of infinite demand";
        run.settings.insert("levels".to_owned(), levels.to_owned());
        run.notes.extend(self.missing.iter().map(|Missing { what, why }| format!("missing: {what}: {why}")));
        let (run, is_interrupted) = self.executor.driver.close()?;
        Ok(Came { run, inside: self.inside, missing: self.missing, is_interrupted })
    }
}

fn middle_round(mut rounds: Vec<&Measures>) -> Option<&Measures> {
    rounds.sort_by(|a, b| a.answered_per_s.total_cmp(&b.answered_per_s));
    rounds.get(rounds.len().checked_sub(1)? / 2).copied()
}

/// The server that a variant is.
///
/// Errors: run, for an option that this program lacks; usage, for a server that is not known.
fn peer_of(variant: &Variant, known: &BTreeSet<&str>, asks: bool) -> Result<Peer> {
    let ready = |name: &str| {
        ready_made(name).ok_or_else(|| {
            let names = testbed::ready_made_names().join(", ");
            Error::usage(format!("no server '{name}': there are {names}"))
        })
    };
    if let Some(name) = &variant.peer {
        return ready(name);
    }
    let mut arguments = variant.flash.clone();
    let is_unknown = |word: &&String| word.starts_with("--") && !known.contains(word.as_str());
    if let Some(option) = arguments.iter().find(is_unknown) {
        return Err(Error::run(format!("this `flash serve` has no {option}")));
    }
    if asks {
        arguments.extend([CONTROL.to_owned(), format!("{{folder}}/{CONTROL_SOCKET}")]);
    }
    // MP has its processes in place of workers, and refuses both.
    let is_mp = arguments.iter().any(|word| word == "mp");
    Ok(ready("flash")?.with_arguments(&variant.name, is_mp.then_some("--workers"), &arguments))
}

fn clients_of(point: &Point) -> u32 {
    match point.load {
        Load::Infinite(clients) => clients,
        Load::Fraction(..) | Load::Beside(_) => CONNECTIONS,
        Load::Phases(_) => CONNECTIONS_OF_OVERLOAD,
    }
}

fn users(point: &Point) -> Users {
    let abort = match &point.load {
        Load::Phases(phases) => phases.abort,
        _ => None,
    };
    Users {
        connections_max: clients_of(point),
        requests_per_connection: Some(point.requests_per_connection),
        abort_after_s: abort.map(|(after_s, _)| after_s),
        retries_max: abort.map_or(0, |(_, retries)| retries),
        ..Users::default()
    }
}

fn drive_options(options: &Options, workload: Spec, files: flash_load::workload::Options) -> drive::Options {
    drive::Options {
        workload,
        files,
        users: Users { connections_max: CONNECTIONS, ..Users::default() },
        message: message::Options::default(),
        wire: drive::wire::Options::default(),
        warm_up_s: 0.0,
        duration_s: None,
        drain_s: DRAIN_S,
        threads: 1,
        cores: options.cores.clone(),
        seed: options.seed,
        no_poll: false,
        allow_remote: false,
        out: Some(options.folder.clone()),
        discard: false,
        shown: drive::shown::Options::default(),
        require: Vec::new(),
    }
}
