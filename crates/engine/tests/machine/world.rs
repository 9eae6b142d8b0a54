//! An engine and its machine, with the loop that a worker runs.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use flash_engine::limits::{SMALL_FILE_BYTES_MAX, SPOOL_IDLE_MS};
use flash_engine::{
    AdmissionRules, BodyRules, Engine, Finding, JobId, LogFormat, LogRules, Optimizations, Outcome,
    PathRules, Policy, ProxyRules, Readiness, Rules, SiteRules, Task, Timeouts, WhyRefused,
};
use flash_http::EncodedSlash;
use flash_http::response::ServerField;
use flash_http::types::TypeTable;

use super::client::{Client, Wire, pair};
use super::files::{FileHandle, Inode};
use super::records::ToyRecords;
use super::response::Response;
use super::store::{ALL_ACTIONS, Done, StoreHost, StoreSize, WorkerStore};
use super::{Machine, START_MS};

/// A run that takes more turns than this is considered endless.
const TURNS_MAX: usize = 20_000;

pub(crate) const HEAD_MS: u64 = 10_000;
pub(crate) const IDLE_MS: u64 = 60_000;
pub(crate) const JOB_MS: u64 = 30_000;
pub(crate) const FRESHNESS_MS: u64 = 1_000;
pub(crate) const STALE_MS: u64 = 10_000;
pub(crate) const LEAST_RATE: u64 = 1024;

/// The store of most tests, large enough for all their files.
pub(crate) const STORE: StoreSize =
    StoreSize { length_bytes: 256 << 20, slots_max: 1_000_000, bytes_max: 16 << 20 };

/// The settings of most tests.
pub(crate) fn rules() -> Rules {
    Rules {
        sites: vec![SiteRules {
            root: "/".into(),
            hosts: vec![],
            index: vec!["index.html".into()],
            browse: true,
            precompressed: true,
            compress: false,
            encoded_slash: EncodedSlash::Decode,
            hsts: None,
            https_redirect: None,
            paths: PathRules::default().into(),
            alias_of: None,
            routes: vec![],
        }],
        upstreams: vec![],
        worker: 0,
        types: TypeTable::new([]),
        etag_of_change: false,
        freshness_ms: FRESHNESS_MS,
        stale_ms: STALE_MS,
        queue_wait_ms: 5_000,
        has_store: true,
        server_field: ServerField::Sent,
        optimizations: Optimizations::default(),
        admission: at_most(100_000),
        proxies: ProxyRules::default(),
        open_files_max: 1024,
        names_bytes_max: flash_engine::limits::NAMES_BYTES,
        cache_parts: 1,
        helpers_max: 16,
        timeouts: Timeouts { head_ms: HEAD_MS, idle_ms: IDLE_MS, job_ms: JOB_MS },
        least_rate_bytes_per_s: LEAST_RATE,
        bodies: BodyRules::default(),
        spool_idle_ms: SPOOL_IDLE_MS,
        http2: true,
        policy: Policy::Fair,
        egress: None,
        log: LogRules::of(LogFormat::Off),
    }
}

/// This many connections, and no bound for a client.
pub(crate) fn at_most(connections_max: usize) -> AdmissionRules {
    AdmissionRules { connections_max, ..AdmissionRules::default() }
}

/// How a turn learns about connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Each change is reported once, as by epoll.
    Edges,
    /// Every condition that the engine does not know yet is reported, as by poll.
    Levels,
    /// The same, but a half-close or a failure is reported as input, as by select.
    LevelsOfTwoKinds,
}

/// An engine on its machine.
pub(crate) struct World {
    pub(crate) engine: Engine<Machine>,
    pub(crate) machine: Machine,
    sites: Vec<SiteRules>,
    types: TypeTable,
    wires: Vec<(flash_engine::Key, Rc<RefCell<Wire>>)>,
    /// The engine's connections to servers.
    links: Vec<(flash_engine::Key, Rc<RefCell<Wire>>)>,
    /// Jobs finish by themselves, one turn after their start.
    pub(crate) auto: bool,
    pub(crate) told: Told,
    clients: u64,
    /// Number of all sockets so far.
    sockets: u64,
    /// The address of all clients, if they share one.
    pub(crate) only_address: Option<std::net::IpAddr>,
    /// The next turns serve the connections to servers before those of clients.
    pub(crate) links_first: bool,
    /// The file for bodies.
    pub(crate) spool: Option<Rc<RefCell<Inode>>>,
    pub(crate) turns: u64,
}

/// The readiness of a connection that the next turn reports. `awaited` is what the engine awaits of it.
fn news(told: Told, wire: &Wire, awaited: impl FnOnce() -> Option<Readiness>) -> Option<Readiness> {
    if told == Told::Edges {
        return wire.has_edge().then(|| wire.edge());
    }
    let (mut level, awaited) = (wire.level(), awaited()?);
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

/// The form of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edge {
    Plain,
    Encrypted,
    /// The same, agreed on HTTP/2.
    EncryptedHttp2,
    /// The listener has TLS, and the client does not know.
    Mistaken,
}

impl World {
    /// Makes a world with [`rules`], two helpers, and jobs that finish by themselves.
    pub(crate) fn new() -> Self {
        Self::with(rules())
    }

    pub(crate) fn with(rules: Rules) -> Self {
        Self::with_store(rules, STORE)
    }

    /// Makes a world with a store of this size, if the rules have a store.
    pub(crate) fn with_store(rules: Rules, size: StoreSize) -> Self {
        let mut machine = Machine::new(2);
        if rules.has_store {
            machine.helpers.has_store = true;
            machine.store = Some(WorkerStore::new(&Rc::new(RefCell::new(StoreHost::new(size)))));
        }
        let sites = rules.sites.clone();
        let types = rules.types.clone();
        let engine = Engine::new(rules, machine.now);
        Self {
            engine,
            machine,
            sites,
            types,
            wires: Vec::new(),
            links: Vec::new(),
            auto: true,
            told: Told::Edges,
            turns: 0,
            clients: 0,
            sockets: 0,
            only_address: None,
            links_first: false,
            spool: None,
        }
    }

    /// Makes a world whose jobs the test finishes by hand.
    pub(crate) fn by_hand() -> Self {
        let mut world = Self::new();
        world.auto = false;
        world
    }

    pub(crate) fn try_connect(&mut self) -> Option<Client> {
        self.try_connect_or_why().ok()
    }

    pub(crate) fn try_connect_or_why(&mut self) -> Result<Client, WhyRefused> {
        self.connect_as(Edge::Plain)
    }

    /// A client of an encrypted connection. Its handshake has begun.
    pub(crate) fn connect_encrypted(&mut self) -> Client {
        self.connect_as(Edge::Encrypted).expect("room for a connection")
    }

    /// The same, or why there is no room.
    pub(crate) fn try_connect_encrypted(&mut self) -> Result<Client, WhyRefused> {
        self.connect_as(Edge::Encrypted)
    }

    /// A client of an encrypted connection that has agreed on HTTP/2.
    pub(crate) fn connect_encrypted_http2(&mut self) -> Client {
        self.connect_as(Edge::EncryptedHttp2).expect("room for a connection")
    }

    /// A client without TLS of a listener with it.
    pub(crate) fn connect_by_mistake(&mut self) -> Client {
        self.connect_as(Edge::Mistaken).expect("room for a connection")
    }

    /// A client of an encrypted connection whose proxy first sends this header.
    pub(crate) fn connect_encrypted_introduced(&mut self, header: &[u8]) -> Client {
        let client = self.connect_by_mistake();
        client.send(header);
        let (_, wire) = self.wires.last().expect("the new one");
        wire.borrow_mut().seal();
        client
    }

    fn connect_as(&mut self, edge: Edge) -> Result<Client, WhyRefused> {
        let (socket, wire) = pair(self.number(), self.machine.sockets_open.up());
        let address = self.address();
        let (engine, machine) = (&mut self.engine, &mut self.machine);
        let accepted = match edge {
            Edge::Plain => engine.handle_accept(machine, socket, address),
            Edge::Encrypted | Edge::Mistaken => {
                engine.handle_accept_encrypted(machine, socket, address, Box::<ToyRecords>::default())
            }
            Edge::EncryptedHttp2 => {
                engine.handle_accept_encrypted(machine, socket, address, Box::new(ToyRecords::of_http2()))
            }
        };
        let key = accepted.map_err(|(_, why)| why)?;
        self.wires.push((key, Rc::clone(&wire)));
        if matches!(edge, Edge::Encrypted | Edge::EncryptedHttp2) {
            wire.borrow_mut().seal();
        }
        Ok(Client::new(key, wire))
    }

    /// The gateway makes the connection that was asked for first. Returns the end of its server, which sends
    /// and receives as a client does.
    pub(crate) fn link(&mut self) -> Client {
        self.link_at(0)
    }

    /// The gateway makes the connection at this place of those that were asked for.
    pub(crate) fn link_at(&mut self, place: usize) -> Client {
        let is_encrypted = self.machine.encrypted.contains(&self.machine.asked[place].1);
        self.link_through(place, is_encrypted)
    }

    /// The same, with an application that speaks TLS or not, whatever the engine expects.
    pub(crate) fn link_through(&mut self, place: usize, is_encrypted: bool) -> Client {
        let (key, _) = self.machine.asked.remove(place);
        let (mut socket, wire) = pair(self.number(), self.machine.sockets_open.up());
        socket.is_link = true;
        if is_encrypted {
            wire.borrow_mut().seal_application();
        }
        self.engine.handle_connected(&mut self.machine, key, socket);
        self.links.push((key, Rc::clone(&wire)));
        Client::new(key, wire)
    }

    /// The gateway cannot make the connection that was asked for first.
    pub(crate) fn refuse_link(&mut self) {
        // ECONNREFUSED.
        self.refuse_link_at(0, &std::io::Error::from_raw_os_error(111));
    }

    /// The gateway cannot make the connection at this place of those that were asked for.
    pub(crate) fn refuse_link_at(&mut self, place: usize, why: &std::io::Error) {
        let (key, _) = self.machine.asked.remove(place);
        self.engine.handle_not_connected(&mut self.machine, key, why);
    }

    /// The number of the next socket in the trace.
    fn number(&mut self) -> u64 {
        self.sockets += 1;
        self.sockets
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

    /// Runs one turn of the loop, in the order of a worker.
    pub(crate) fn turn(&mut self) {
        self.turns += 1;
        self.engine.handle_turn(self.machine.now);
        self.hear_keeper();
        let finished: Vec<JobId> = if self.auto {
            self.machine.helpers.running.iter().map(|(id, _)| *id).collect()
        } else {
            Vec::new()
        };
        if self.links_first {
            self.serve_links();
        }
        self.serve_clients();
        if !self.links_first {
            self.serve_links();
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
        if let Some(store) = &mut self.machine.store {
            store.release();
        }
    }

    fn serve_clients(&mut self) {
        self.wires.retain(|(_, wire)| !wire.borrow().is_closed());
        for (key, wire) in &self.wires {
            let news = news(self.told, &wire.borrow(), || self.engine.awaited(*key));
            if let Some(news) = news {
                wire.borrow_mut().take_edge();
                self.engine.handle_ready(&mut self.machine, *key, news);
            }
        }
    }

    fn serve_links(&mut self) {
        self.links.retain(|(_, wire)| !wire.borrow().is_closed());
        for (key, wire) in &self.links {
            let news = news(self.told, &wire.borrow(), || self.engine.awaited_of_link(*key));
            if let Some(news) = news {
                wire.borrow_mut().take_edge();
                self.engine.handle_link_ready(&mut self.machine, *key, news);
            }
        }
    }

    /// Runs a turn of the keeper, then the worker drops the blocks that must leave.
    pub(crate) fn hear_keeper(&mut self) {
        let Some(store) = &mut self.machine.store else { return };
        store.host().borrow_mut().turn(self.machine.now.monotonic_ms(), ALL_ACTIONS);
        for slot in store.hear() {
            self.engine.handle_leaving(slot.into());
        }
        store.release();
        store.host().borrow_mut().turn(self.machine.now.monotonic_ms(), ALL_ACTIONS);
    }

    /// The store of a test that has one.
    pub(crate) fn store(&self) -> &Rc<RefCell<StoreHost>> {
        self.machine.store.as_ref().expect("a store").host()
    }

    /// Brings a block into the store, as a helper does that never waits. Returns false if that failed.
    fn fill(&mut self, file: &FileHandle, block: u64) -> bool {
        let Some(store) = &self.machine.store else { return false };
        let (host, now) = (Rc::clone(store.host()), self.machine.now);
        let Some(helper) = host.borrow_mut().begin(file, block, now.wall_ns) else { return false };
        // Another block may have to leave first.
        for _ in 0..2 {
            self.hear_keeper();
        }
        let mut host = host.borrow_mut();
        host.finish(helper);
        host.turn(now.monotonic_ms(), ALL_ACTIONS);
        host.helper_gone(helper);
        host.turn(now.monotonic_ms(), ALL_ACTIONS);
        host.has_block(&file.stat(), block)
    }

    /// Whether a worker would run another turn without time passing.
    pub(crate) fn is_busy(&self) -> bool {
        self.engine.poll_next_ms() == Some(0)
            || self.machine.helpers.coming > 0
            || self.machine.helpers.is_one_gone()
            || (self.auto && !self.machine.helpers.running.is_empty())
            || self
                .wires
                .iter()
                .any(|(key, wire)| news(self.told, &wire.borrow(), || self.engine.awaited(*key)).is_some())
            || self.links.iter().any(|(key, wire)| {
                news(self.told, &wire.borrow(), || self.engine.awaited_of_link(*key)).is_some()
            })
    }

    /// Runs turns until there is nothing left to do now.
    pub(crate) fn run(&mut self) {
        for _ in 0..TURNS_MAX {
            if !self.is_busy() {
                return;
            }
            self.turn();
        }
        panic!("the world does not come to rest");
    }

    /// Lets time pass, with a turn whenever the engine asked for one.
    pub(crate) fn advance(&mut self, ms: u64) {
        self.run();
        let end_ms = self.machine.now.monotonic_ms() + ms;
        for _ in 0..TURNS_MAX {
            let next_ms = self.engine.poll_next_ms().unwrap_or(u64::MAX);
            let now_ms = self.machine.now.monotonic_ms();
            if next_ms > end_ms {
                return self.pass(end_ms - now_ms);
            }
            self.pass(next_ms.saturating_sub(now_ms));
            self.turn();
            self.run();
        }
        panic!("the engine wakes up again and again");
    }

    /// Moves the clocks and does nothing else.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.machine.now.monotonic_ns += ms * 1_000_000;
        self.machine.now.wall_ns += i128::from(ms) * 1_000_000;
        self.engine.handle_turn(self.machine.now);
    }

    pub(crate) fn elapsed_ms(&self) -> u64 {
        self.machine.now.monotonic_ms() - START_MS
    }

    /// Does a running job's task, but withholds the result from the engine.
    pub(crate) fn perform(&mut self, id: JobId) -> Outcome<FileHandle> {
        self.machine.helpers.listing_ms = self.machine.now.monotonic_ms();
        let task = self.machine.helpers.finish(id);
        let Machine { helpers, files, .. } = &mut self.machine;
        let block = helpers.block_of(&task, files, &self.sites, &self.types);
        if let (Some((file, block)), None) = (block, self.machine.helpers.failure) {
            self.fill(&file, block);
            self.tell_all(&task, &Outcome::Loaded);
            return Outcome::Loaded;
        }
        let outcome = self.machine.helpers.perform(&task, &mut self.machine.files, &self.sites, &self.types);
        if let Outcome::Found(Finding::File { plain, .. }) = &outcome
            && let Some(file) = &plain.file
            && !self.machine.helpers.thrash
        {
            let is_small = plain.stat.size_bytes <= SMALL_FILE_BYTES_MAX;
            if !self.fill(file, 0) && is_small && self.machine.helpers.has_store {
                file.inode.borrow_mut().load(0, plain.stat.size_bytes);
            }
        }
        self.tell_all(&task, &outcome);
        outcome
    }

    /// Tells the keeper what a helper has found.
    fn tell_all(&mut self, task: &Task<FileHandle>, outcome: &Outcome<FileHandle>) {
        let Some(store) = &self.machine.store else { return };
        let (host, files) = (Rc::clone(store.host()), &mut self.machine.files);
        let (sites, types, now) = (&self.sites, &self.types, self.machine.now);
        host.borrow_mut().names.tell(Done { task, outcome, files, sites, types, now });
        host.borrow_mut().turn(now.monotonic_ms(), ALL_ACTIONS);
    }

    /// Passes the outcome of a job to the engine.
    pub(crate) fn deliver(&mut self, id: JobId, outcome: Outcome<FileHandle>) {
        self.engine.handle_job(&mut self.machine, id, outcome);
    }

    /// Does a running job's task and passes the result to the engine.
    pub(crate) fn finish(&mut self, id: JobId) {
        if self.machine.helpers.running.iter().any(|(other, _)| *other == id) {
            let outcome = self.perform(id);
            self.deliver(id, outcome);
        }
    }

    /// The helper of a job dies, and another takes its place.
    pub(crate) fn lose(&mut self, id: JobId) {
        drop(self.machine.helpers.finish(id));
        self.deliver(id, Outcome::Lost);
    }

    /// A helper that was given up writes after all.
    pub(crate) fn write_late(&mut self, task: &Task<FileHandle>) {
        drop(self.machine.helpers.perform(task, &mut self.machine.files, &self.sites, &self.types));
    }

    /// The helper of a job that was given up ends.
    pub(crate) fn helper_gone(&mut self, id: JobId) {
        self.engine.handle_helper_gone(&mut self.machine, id);
    }

    /// Gives the engine a file for request bodies, with this many slots.
    pub(crate) fn give_spool(&mut self, slots: u32) {
        let file = self.machine.files.anonymous(super::Content::Bytes(Vec::new()));
        self.spool = Some(Rc::clone(&file.inode));
        self.engine.set_spool(file, slots);
    }

    /// The one job that is running.
    pub(crate) fn job(&self) -> JobId {
        let running = &self.machine.helpers.running;
        assert_eq!(running.len(), 1, "there must be one running job, not {running:?}");
        running[0].0
    }

    /// Finishes the one running job and continues.
    pub(crate) fn finish_job(&mut self) {
        let id = self.job();
        self.finish(id);
        self.run();
    }

    /// Sends a GET over a new connection and runs until the answer is complete.
    pub(crate) fn get(&mut self, path: &str) -> Response {
        let client = self.connect();
        client.get(path);
        self.run();
        let response = client.take_one();
        client.end();
        self.run();
        response
    }

    /// Sends a request over a new connection. Returns the client and the answer.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> (Client, Response) {
        let client = self.connect();
        client.send(request);
        self.run();
        let response = client.take_one();
        (client, response)
    }

    /// All clients leave; only caches, within their bounds, can hold anything after that.
    pub(crate) fn end(&mut self) {
        for (key, wire) in std::mem::take(&mut self.wires) {
            if !wire.borrow().is_closed() {
                let broken = Readiness { broken: true, ..Readiness::default() };
                self.engine.handle_ready(&mut self.machine, key, broken);
            }
        }
        self.links.iter().for_each(|(key, wire)| Client::new(*key, Rc::clone(wire)).reset());
        self.auto = true;
        self.run();
        // A turn ends so, also one in which nothing is left to do.
        self.engine.handle_timeouts(&mut self.machine);
        let counters = self.engine.counters();
        assert_eq!(counters.connections, 0);
        assert!(self.machine.calls.agree_with(counters.sends.sum()), "bytes miscounted");
        assert!(
            counters.responses.iter().sum::<u64>() <= counters.requests,
            "there are more answers than requests"
        );
        assert_eq!(self.machine.sockets_open.get(), 0, "sockets left open");
        assert!(
            self.machine.answering.values().all(|count| *count == 0),
            "requests announced after their end"
        );
        assert_eq!(counters.links.links, self.machine.asked.len(), "links left behind");
        assert_eq!((counters.jobs_queued, counters.jobs_running), (0, 0), "jobs left behind");
        assert_eq!(counters.panics, 0, "{:?}", self.machine.reports);
        if self.machine.store.is_some() {
            self.hear_keeper();
            self.store().borrow().check_end();
        }
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
