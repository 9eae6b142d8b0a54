//! One level of load on one server, from its options to its measures.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use flash_waiting::program;

use crate::link::Link;
use crate::results::{FORMAT, Machine, Run};
use crate::testbed::{CoreWatch, Watch};
use flash_kit::{Error, Result, number};
use flash_load::generator::message::without_secrets;
use flash_load::generator::{self, Pace, Phase, Priority, Setup, Stream, StreamRan, Waiting};
use flash_load::measure::Measures;
use flash_load::measure::{self, PhaseFacts, SeriesBounds};
use flash_load::record::Record;
use flash_load::target::Target;
use flash_load::workload::{Arrivals, PhaseRate, Sessions, Spec, StreamId, Workload};

use super::out::{PhaseFiles, now};
use super::shown::Followed;
use super::{Driver, Options, Users};

/// A server under load.
#[derive(Debug)]
pub struct Served {
    pub name: String,
    pub target: Target,
    /// Its processes, whose descendants are its own too; empty where they are not known.
    pub pids: Vec<u32>,
    /// The core that it has to itself, where that is known.
    pub core: Option<usize>,
    /// The link that it is behind; the load then comes from the other side of it.
    pub link: Option<Arc<Link>>,
}

/// The load of one phase.
#[derive(Clone, Debug)]
pub struct Level {
    pub name: String,
    /// The fraction of the capacity.
    pub load_level: Option<f64>,
    /// From 1; none where there is only one.
    pub round: Option<u32>,
    pub arrivals: Arrivals,
    /// Closed loop: the number of clients, and how long they think, seconds.
    pub clients: Option<(u32, f64)>,
    pub asked_per_s: Option<f64>,
    /// For how long requests are started, at most, seconds.
    pub duration_s: f64,
    pub users: Option<Users>,
    pub keep: bool,
    /// Whether the figures of overload are wanted: [`Measures::overload`]. Then overload and failures are no doubt about the
    /// results.
    pub overload: bool,
}

impl Served {
    /// A server that runs already.
    ///
    /// Errors: as [`Target::parse`]; usage, when there is no such process.
    pub fn running(name: &str, options: &Options, url: &str, pid: Option<u32>) -> Result<Self> {
        let target = super::target(options, url)?;
        if let Some(pid) = pid {
            Watch::start(&[pid])?;
        }
        Ok(Self { name: name.to_owned(), target, pids: pid.into_iter().collect(), core: None, link: None })
    }

    /// Does work that talks to it: on the clients' side of its link, if it is behind one.
    pub(super) fn reach<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.link {
            Some(link) => link.client.run(work)?,
            None => work(),
        }
    }

    fn link_cpu_ns(&self) -> u64 {
        self.link.as_ref().map_or(0, |link| link.cpu_ns())
    }
}

impl Level {
    /// An open loop; its arrivals are still to be set.
    pub fn open(name: &str, duration_s: f64) -> Self {
        Self {
            name: name.to_owned(),
            load_level: None,
            round: None,
            arrivals: Arrivals::Closed,
            clients: None,
            asked_per_s: None,
            duration_s,
            users: None,
            keep: true,
            overload: false,
        }
    }

    /// A schedule of rates, as [`flash_load::workload::PhasePlan::rates`] gives them for the capacity of a server or of a
    /// [`flash_load::workload::Link`], whose figures of overload are wanted. Requests arrive by Poisson, those of a log in
    /// its own gaps.
    pub fn phases(name: &str, phases: Vec<PhaseRate>, workload: &Workload) -> Self {
        let duration_s = phases.iter().map(|phase| phase.duration_ns).sum::<u64>() as f64 / 1e9;
        let asked: f64 = phases.iter().map(|p| p.rate_per_s * p.duration_ns as f64 / 1e9).sum();
        let is_log = workload.log_duration_s().is_some();
        let arrivals = if is_log { Arrivals::LogPhases { phases } } else { Arrivals::Poisson { phases } };
        let asked_per_s = Some(asked / duration_s);
        Self { arrivals, asked_per_s, overload: true, ..Self::open(name, duration_s) }
    }

    /// Infinite demand by this many clients; its records are not kept.
    pub fn infinite(name: &str, clients: u32, duration_s: f64) -> Self {
        Self { clients: Some((clients, 0.0)), keep: false, ..Self::open(name, duration_s) }
    }

    /// A fraction of a capacity in requests per second, by Poisson arrivals.
    pub fn fraction(fraction: f64, level_1_per_s: f64, duration_s: f64) -> Self {
        let rate_per_s = fraction * level_1_per_s;
        let phases = vec![PhaseRate { duration_ns: nanoseconds(duration_s), rate_per_s }];
        Self {
            load_level: Some(fraction),
            arrivals: Arrivals::Poisson { phases },
            asked_per_s: Some(rate_per_s),
            ..Self::open(&level_name(fraction), duration_s)
        }
    }
}

/// The results of one phase, or of one stream of it.
#[derive(Debug)]
pub struct Driven {
    /// The figures computed from it.
    pub measures: Measures,
    pub facts: PhaseFacts,
    pub clients: Vec<generator::ClientTotals>,
    pub records: Vec<Record>,
}

impl Driver {
    /// The number of a level in the run: the same for each server and round, and another one for each name and number of
    /// clients. A level with the requests of another would ask for files that the other has just brought into memory.
    fn phase_number(&mut self, level: &Level) -> u32 {
        let phase = (level.name.clone(), level.clients.map_or(0, |(clients, _)| clients));
        let known = self.phases.iter().position(|known| *known == phase);
        known.unwrap_or_else(|| {
            self.phases.push(phase);
            self.phases.len() - 1
        }) as u32
    }

    /// Drives a server at a level and measures it.
    ///
    /// Errors: run, when the generator can't work; usage, for users with sessions of a log.
    pub fn level(&mut self, served: &Served, level: &Level) -> Result<Driven> {
        say(served, level);
        let phase = self.phase_number(level);
        let users = level.users.as_ref().unwrap_or(&self.options.users);
        let streams = self.streams(served, level, users, phase)?;
        let facts = PhaseFacts {
            name: level.name.clone(),
            load_level: level.load_level,
            round: level.round,
            asked_per_s: level.asked_per_s,
            // How long it is meant to last.
            duration_ns: self.scheduled_ns(level),
            series: self.series(),
            first_dynamic: self.workload.catalogue().first_dynamic(),
            overload: level.overload.then(|| Arc::clone(self.workload.catalogue())),
            ..PhaseFacts::default()
        };
        let mut driven = self.phase(served, streams, level.duration_s, level.keep, vec![facts])?;
        Ok(driven.remove(0))
    }

    /// Drives a server with the streams of each thread (see [`generator::run`]) for `duration_s`, and measures
    /// them one by one. Each has one of `facts`, with its planned duration or 0; the load fills in the rest. The first
    /// also gets the server's CPU time and memory.
    ///
    /// Errors: run, when the generator can't work.
    pub(crate) fn phase(
        &mut self,
        served: &Served,
        streams: Vec<Vec<Stream>>,
        duration_s: f64,
        keep: bool,
        facts: Vec<PhaseFacts>,
    ) -> Result<Vec<Driven>> {
        let phase = self.generator_phase(served, duration_s);
        let mut files = PhaseFiles::default();
        if let Some(out) = self.out.as_mut().filter(|_| keep) {
            for PhaseFacts { name, round, .. } in &facts {
                let round = round.map_or(String::new(), |round| format!("-round{round}"));
                files.0.push(out.begin(&format!("{}-{name}{round}", served.name)));
            }
        }
        let is_known = !served.pids.is_empty();
        let watch = is_known.then(|| Watch::start(&served.pids)).transpose().unwrap_or_else(|why| {
            // It was there at the beginning: its end must not lose the results.
            self.note(format!("{}: what the server used is not known: {why}", served.name));
            None
        });
        let is_open = streams.iter().flatten().all(|stream| stream.pace == Pace::Open);
        let followed = Followed::new(files, self.options.shown.progress, phase.duration_ns);
        let cores = CoreWatch::start(served.core, &self.options.cores);
        let link_before_ns = served.link_cpu_ns();
        let ran = served
            .reach(|| self.on_its_cores(|| generator::run(streams, &phase, &self.stop, Some(&followed))))?;
        if is_open {
            self.describe_priority(phase.priority, ran.priority);
        }
        let files = followed.into_files();
        let mut server = watch.and_then(Watch::finish);
        let link_ns = served.link_cpu_ns().saturating_sub(link_before_ns);
        let other_work = cores.finish(server.map(|server| server.cpu_ns), link_ns);
        if let (Some(why), Some(first)) = (ran.local_limit, facts.first()) {
            let name = &first.name;
            self.note(format!("{}, {name}: {why}", served.name));
        }
        let mut files = files.0.into_iter();
        let mut driven = Vec::new();
        for (mut facts, stream) in facts.into_iter().zip(ran.streams) {
            let StreamRan { records, connections, handshakes, retried, clients, open } = stream;
            // Arrivals of an open loop last to the end of the phase, also when none came in its last part.
            let scheduled_ns = if ran.ended_early.is_none() { facts.duration_ns } else { 0 };
            facts.duration_ns = ran.duration_ns.max(scheduled_ns);
            facts.drain_ns = (ran.duration_ns + ran.drain_ns).saturating_sub(facts.duration_ns);
            facts.threads = ran.threads;
            facts.busy_share = ran.busy_share;
            facts.connections = connections;
            facts.handshakes = handshakes;
            facts.retried = retried;
            facts.open = open;
            facts.ended_early = ran.ended_early.clone();
            facts.server = server.take();
            facts.other_work = other_work;
            let mut measures = measure::measures(&records, &facts);
            let mut lost = Vec::new();
            if let Some((out, file)) = self.out.as_mut().zip(files.next()) {
                lost = out.end(file, &records, &facts, &mut measures);
            }
            for note in lost {
                self.note(format!("{}, {}: {note}", served.name, facts.name));
            }
            driven.push(Driven { measures, facts, clients, records });
        }
        Ok(driven)
    }

    fn generator_phase(&self, served: &Served, duration_s: f64) -> Phase {
        Phase {
            duration_ns: nanoseconds(duration_s),
            drain_max_ns: nanoseconds(self.options.drain_s),
            priority: self.priority(served),
            waiting: if self.options.no_poll { Waiting::Sleeping } else { Waiting::Polling },
        }
    }

    /// Real time where the generator has cores to itself: it would keep a server or a link from running.
    fn priority(&self, served: &Served) -> Priority {
        let cores = &self.options.cores;
        let is_alone = !cores.is_empty() && served.core.is_none_or(|core| !cores.contains(&core));
        if is_alone && served.link.is_none() { Priority::RealTime } else { Priority::Ordinary }
    }

    /// Adds the priority of the first open loop to the settings.
    fn describe_priority(&mut self, wished: Priority, got: Priority) {
        const NAME: &str = "priority of the generator";
        let text = match (wished, got) {
            (_, Priority::RealTime) => "real-time (SCHED_FIFO)",
            (Priority::Ordinary, _) => "ordinary: it has no cores of its own (--cores)",
            (Priority::RealTime, _) => "ordinary: a real-time priority needs CAP_SYS_NICE",
        };
        self.run.settings.entry(NAME.to_owned()).or_insert_with(|| text.to_owned());
    }

    /// Does the work of the generator on a thread that keeps, with all it starts, to the generator's
    /// cores: servers that are started must not inherit that.
    pub(super) fn on_its_cores<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let cores = &self.options.cores;
        let pinned = || {
            if !cores.is_empty() {
                program::pin_thread(cores).map_err(|why| {
                    Error::usage(format!(
                        "cannot keep to the cores {cores:?}: {why}; give cores that this process may use"
                    ))
                })?;
            }
            work()
        };
        let ended = thread::scope(|scope| scope.spawn(pinned).join());
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// How long the arrivals of an open loop last; 0 for a closed one, which ends with its demand.
    fn scheduled_ns(&self, level: &Level) -> u64 {
        let whole_ns = nanoseconds(level.duration_s);
        match level.arrivals {
            _ if level.clients.is_some() => 0,
            Arrivals::Log { speed } if !self.options.files.log_loop => {
                let log_s = self.workload.log_duration_s().unwrap_or(0.0) / speed;
                whole_ns.min(nanoseconds(log_s))
            }
            _ => whole_ns,
        }
    }

    fn series(&self) -> SeriesBounds {
        if self.options.workload == Spec::Specweb99 {
            SeriesBounds::Specweb99
        } else {
            SeriesBounds::Quartiles
        }
    }

    /// The streams of a level: one a thread.
    ///
    /// Errors: usage, for users with sessions whose arrivals have no rates.
    fn streams(&self, served: &Served, level: &Level, users: &Users, phase: u32) -> Result<Vec<Vec<Stream>>> {
        let threads = self.options.threads;
        let round = level.round.unwrap_or(0);
        let seed = StreamId { phase, round, stream: 0 }.seed(self.options.seed);
        let demands = match users.sessions {
            // The clients of a closed loop, as in a warm-up, come back in any case.
            Some(sessions) if level.clients.is_none() => {
                self.workload.partly_open(&level.arrivals, sessions, seed, threads)?
            }
            _ => self.workload.demands(&level.arrivals, seed, threads),
        };
        let share = |whole: u32, thread: u32| whole / threads + u32::from(thread < whole % threads);
        let stream = |(thread, demand)| {
            let pace = match level.clients {
                None => Pace::Open,
                Some((clients, think_s)) => {
                    Pace::Closed { clients: share(clients, thread), think_ns: nanoseconds(think_s) }
                }
            };
            let setup = self.setup(served, users, share(users.connections_max, thread));
            vec![Stream { setup, demand, pace }]
        };
        Ok((0..).zip(demands).map(stream).collect())
    }

    /// Requests of these users to a server, over at most this many connections.
    pub(crate) fn setup(&self, served: &Served, users: &Users, connections_max: u32) -> Setup {
        Setup {
            target: served.target.clone(),
            protocol: self.wire.protocol,
            tls: self.wire.tls(&served.target),
            catalogue: Arc::clone(self.workload.catalogue()),
            message: Arc::clone(&self.message),
            verify: users.verify,
            connections_max: connections_max as usize,
            requests_per_connection: users.requests_per_connection,
            abort_after_ns: users.abort_after_s.map(nanoseconds),
            retries_max: users.retries_max,
            read_bytes_per_s: users.read_bytes_per_s,
        }
    }

    /// Sends the requests of a level without measuring, to fill the server's caches.
    pub fn warm_up(&mut self, served: &Served, like: &Level) -> Result<()> {
        let duration_s = self.options.warm_up_s;
        if duration_s > 0.0 && !self.is_interrupted() {
            let level = Level { name: "warm-up".to_owned(), duration_s, keep: false, ..like.clone() };
            self.level(served, &level)?;
        }
        Ok(())
    }

    /// The same warm-up under infinite demand.
    pub fn warm_up_fast(&mut self, served: &Served) -> Result<()> {
        let clients = self.options.users.connections_max;
        self.warm_up(served, &Level::infinite("warm-up", clients, self.options.warm_up_s))
    }
}

/// The name of a fraction of the capacity: two decimals, or as many as it needs.
pub(crate) fn level_name(fraction: f64) -> String {
    let short = format!("{fraction:.2}");
    if short.parse() == Ok(fraction) { short } else { fraction.to_string() }
}

/// Reports on standard error which level begins.
fn say(served: &Served, level: &Level) {
    let round = level.round.map_or(String::new(), |round| format!(", round {round}"));
    let how = match (level.clients, level.asked_per_s) {
        (Some((clients, _)), _) => format!("{clients} clients"),
        (None, Some(rate)) if rate < 10.0 => format!("{rate:.2} requests/s"),
        (None, Some(rate)) => format!("{rate:.0} requests/s"),
        (None, None) => "arrivals".to_owned(),
    };
    eprintln!("{}{round}: {}: {how} for {} s", served.name, level.name, level.duration_s);
}

pub(super) fn describe(command: &str, options: &Options, workload: &Workload, machine: Machine) -> Run {
    let users = &options.users;
    let mut settings = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(settings.insert(name.to_owned(), value));
    set("connections at most", users.connections_max.to_string());
    let per_connection = match users.requests_per_connection {
        None | Some(u32::MAX) => "unlimited".to_owned(),
        Some(count) => count.to_string(),
    };
    set("requests per connection", per_connection);
    if let Some(after_s) = users.abort_after_s {
        set("users abort", format!("after {after_s} s, and retry up to {} times", users.retries_max));
    }
    if let Some(Sessions { requests_mean, think_mean_s }) = users.sessions {
        set(
            "users come back",
            format!("for {requests_mean} requests on average, {think_mean_s} s after an answer"),
        );
    }
    if let Some(rate) = users.read_bytes_per_s {
        set("users read", format!("at most {}/s", number::size(rate as f64)));
    }
    options.wire.describe(&mut set);
    set("seed", options.seed.to_string());
    set("threads of the generator", options.threads.to_string());
    set("warm-up", format!("{} s", options.warm_up_s));
    set("contents verified", if users.verify { "yes" } else { "no" }.to_owned());
    Run {
        format: FORMAT,
        command: command.to_owned(),
        command_line: without_secrets(flash_kit::command_line()),
        started: now(),
        machine,
        workload: workload.describe(),
        arrivals: String::new(),
        settings,
        subjects: Vec::new(),
        ratios: Vec::new(),
        notes: workload.warnings().to_vec(),
    }
}

pub(crate) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
