//! An engine and its machine, and the loop that a worker runs.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use flash_engine::{
    Engine, JobId, Key, LogFormat, Optimizations, Outcome, Readiness, Rules, SiteRules, Timeouts,
};
use flash_http::EncodedSlash;
use flash_http::types::TypeTable;

use super::client::{Client, Wire, pair};
use super::files::FileHandle;
use super::response::Response;
use super::{Machine, START_MS};

/// Turns after which something that should have come to rest has not.
const TURNS_MAX: usize = 20_000;

pub(crate) const HEAD_MS: u64 = 10_000;
pub(crate) const IDLE_MS: u64 = 60_000;
pub(crate) const JOB_MS: u64 = 30_000;
pub(crate) const FRESHNESS_MS: u64 = 1_000;
pub(crate) const STALE_MS: u64 = 10_000;
pub(crate) const LEAST_RATE: u64 = 1024;

/// The settings most tests run with.
pub(crate) fn rules() -> Rules {
    Rules {
        sites: vec![SiteRules {
            root: "/".into(),
            hosts: vec![],
            index: vec!["index.html".into()],
            browse: true,
            precompressed: true,
            encoded_slash: EncodedSlash::Decode,
        }],
        types: TypeTable::new([]),
        etag_of_change: false,
        freshness_ms: FRESHNESS_MS,
        stale_ms: STALE_MS,
        cache_memory_bytes: 16 * 1024 * 1024,
        optimizations: Optimizations::default(),
        connections_max: 100_000,
        open_files_max: 1024,
        cache_parts: 1,
        helpers_max: 16,
        timeouts: Timeouts { head_ms: HEAD_MS, idle_ms: IDLE_MS, job_ms: JOB_MS },
        least_rate_bytes_per_s: LEAST_RATE,
        log_format: LogFormat::Off,
    }
}

/// How a turn hears of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Of each change, as by epoll.
    Edges,
    /// Of what is so and the engine does not know yet, as by poll.
    Levels,
    /// The same, but a half-close or a failure is input, as by select.
    LevelsOfTwoKinds,
}

/// An engine on its machine.
pub(crate) struct World {
    pub(crate) engine: Engine<Machine>,
    pub(crate) machine: Machine,
    sites: Vec<SiteRules>,
    types: TypeTable,
    wires: Vec<(flash_engine::Key, Rc<RefCell<Wire>>)>,
    /// Jobs finish by themselves, one turn after they were started.
    pub(crate) auto: bool,
    pub(crate) told: Told,
    clients: u64,
    /// Where all clients come from, if they come from one address.
    pub(crate) only_address: Option<std::net::IpAddr>,
    pub(crate) turns: u64,
}

/// What the next turn is told of a connection.
fn news(engine: &Engine<Machine>, told: Told, key: Key, wire: &Wire) -> Option<Readiness> {
    if told == Told::Edges {
        return wire.has_edge().then(|| wire.edge());
    }
    let (mut level, awaited) = (wire.level(), engine.awaited(key)?);
    if told == Told::LevelsOfTwoKinds {
        (level.hung_up, level.broken) = (false, false);
    }
    let news = Readiness {
        readable: level.readable && awaited.readable,
        writable: level.writable && awaited.writable,
        hung_up: level.hung_up && awaited.hung_up,
        broken: level.broken && awaited.broken,
    };
    (news != Readiness::default()).then_some(news)
}

impl World {
    /// With [`rules`], two helpers, and jobs that finish by themselves.
    pub(crate) fn new() -> Self {
        Self::with(rules())
    }

    pub(crate) fn with(rules: Rules) -> Self {
        let machine = Machine::new(2);
        let sites = rules.sites.clone();
        let types = rules.types.clone();
        let engine = Engine::new(rules, machine.now);
        Self {
            engine,
            machine,
            sites,
            types,
            wires: Vec::new(),
            auto: true,
            told: Told::Edges,
            turns: 0,
            clients: 0,
            only_address: None,
        }
    }

    /// The same, where jobs finish by hand.
    pub(crate) fn by_hand() -> Self {
        let mut world = Self::new();
        world.auto = false;
        world
    }

    pub(crate) fn try_connect(&mut self) -> Option<Client> {
        let (socket, wire) = pair(0, self.machine.sockets_open.up());
        let address = self.address();
        let key = self.engine.handle_accept(&mut self.machine, socket, address).ok()?;
        self.wires.push((key, Rc::clone(&wire)));
        Some(Client::new(key, wire))
    }

    /// The address of the next client: one of a few hundred, or the one that was set.
    fn address(&mut self) -> SocketAddr {
        self.clients += 1;
        let number = self.clients % 250;
        SocketAddr::new(self.only_address.unwrap_or([127, 0, 0, 1 + number as u8].into()), 9)
    }

    pub(crate) fn connect(&mut self) -> Client {
        self.try_connect().expect("room for a connection")
    }

    /// One turn of the loop, in the order of a worker's.
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        self.engine.handle_turn(self.machine.now);
        let finished: Vec<JobId> = if self.auto {
            self.machine.helpers.running.iter().map(|(id, _)| *id).collect()
        } else {
            Vec::new()
        };
        self.wires.retain(|(_, wire)| !wire.borrow().is_closed());
        for (key, wire) in &self.wires {
            let news = news(&self.engine, self.told, *key, &wire.borrow());
            if let Some(news) = news {
                wire.borrow_mut().take_edge();
                self.engine.handle_ready(&mut self.machine, *key, news);
            }
        }
        let come = std::mem::take(&mut self.machine.helpers.coming);
        if come > 0 {
            self.machine.helpers.idle += come;
            self.engine.handle_helper_ready(&mut self.machine);
        }
        for id in self.machine.helpers.take_gone() {
            self.engine.handle_helper_gone(&mut self.machine, id);
        }
        for id in finished {
            self.finish(id);
        }
        self.engine.handle_continued(&mut self.machine);
        self.engine.handle_timeouts(&mut self.machine);
    }

    /// Whether a worker would have another turn without time passing.
    pub(crate) fn is_busy(&self) -> bool {
        self.engine.poll_next_ms() == Some(0)
            || self.machine.helpers.coming > 0
            || self.machine.helpers.is_one_gone()
            || (self.auto && !self.machine.helpers.running.is_empty())
            || self
                .wires
                .iter()
                .any(|(key, wire)| news(&self.engine, self.told, *key, &wire.borrow()).is_some())
    }

    /// Turns until there is nothing more to be done now.
    pub(crate) fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.is_busy() {
                return;
            }
            self.turn();
        }
        panic!("does not come to rest");
    }

    /// Lets time pass, with a turn whenever the engine asked for one.
    pub(crate) fn advance(&mut self, ms: u64) {
        self.run();
        let end_ms = self.machine.now.monotonic_ms + ms;
        for _ in 0..TURNS_MAX {
            let next_ms = self.engine.poll_next_ms().unwrap_or(u64::MAX);
            let now_ms = self.machine.now.monotonic_ms;
            if next_ms > end_ms {
                return self.pass(end_ms - now_ms);
            }
            self.pass(next_ms.saturating_sub(now_ms));
            self.turn();
            self.run();
        }
        panic!("wakes up without end");
    }

    /// Moves the clocks, and nothing else.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.machine.now.monotonic_ms += ms;
        self.machine.now.wall_ns += i128::from(ms) * 1_000_000;
        self.engine.handle_turn(self.machine.now);
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.machine.now.monotonic_ms - START_MS
    }

    /// Does a running job's task, and keeps what came of it from the engine.
    pub(crate) fn perform(&mut self, id: JobId) -> Outcome<FileHandle> {
        let task = self.machine.helpers.finish(id);
        self.machine.helpers.perform(&task, &mut self.machine.files, &self.sites, &self.types)
    }

    /// Tells the engine what came of a job.
    pub(crate) fn deliver(&mut self, id: JobId, outcome: Outcome<FileHandle>) {
        self.engine.handle_job(&mut self.machine, id, outcome);
    }

    /// Does a running job's task and tells the engine.
    pub(crate) fn finish(&mut self, id: JobId) {
        if self.machine.helpers.running.iter().any(|(other, _)| *other == id) {
            let outcome = self.perform(id);
            self.deliver(id, outcome);
        }
    }

    /// The helper of a job dies; another takes its place.
    pub(crate) fn lose(&mut self, id: JobId) {
        drop(self.machine.helpers.finish(id));
        self.deliver(id, Outcome::Lost);
    }

    /// The one job that is running.
    pub(crate) fn job(&self) -> JobId {
        let running = &self.machine.helpers.running;
        assert_eq!(running.len(), 1, "one running job, not {running:?}");
        running[0].0
    }

    /// Finishes the one running job and goes on.
    pub(crate) fn finish_job(&mut self) {
        let id = self.job();
        self.finish(id);
        self.run();
    }

    /// A GET over a new connection, to its answer.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        let client = self.connect();
        client.get(path);
        self.run();
        let response = client.take_one();
        client.end();
        self.run();
        response
    }

    /// Sends a request over a new connection and gives what came back, and the client.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> (Client, Response) {
        let client = self.connect();
        client.send(request);
        self.run();
        let response = client.take_one();
        (client, response)
    }

    /// All clients leave; nothing may be left behind but what caches hold within their bounds.
    pub(crate) fn end(&mut self) {
        for (key, wire) in std::mem::take(&mut self.wires) {
            if !wire.borrow().is_closed() {
                let broken = Readiness { broken: true, ..Readiness::default() };
                self.engine.handle_ready(&mut self.machine, key, broken);
            }
        }
        self.auto = true;
        self.run();
        let counters = self.engine.counters();
        assert_eq!(counters.connections, 0);
        assert_eq!(counters.sends.sum(), self.machine.calls.sent_bytes, "bytes miscounted");
        assert!(counters.responses.iter().sum::<u64>() <= counters.requests, "answers to nothing");
        assert_eq!(self.machine.sockets_open.get(), 0, "sockets left open");
        assert_eq!((counters.jobs_queued, counters.jobs_running), (0, 0), "jobs left behind");
        assert_eq!(counters.panics, 0, "{:?}", self.machine.reports);
    }
}

impl World {
    /// [`World::get`] with jobs that finish by themselves.
    pub(crate) fn get_auto(&mut self, path: &str) -> Response {
        let auto = std::mem::replace(&mut self.auto, true);
        let response = self.get(path);
        self.auto = auto;
        response
    }
}
