//! One run: an engine on its machine, the clients, the disk's troubles and the clocks, all from one
//! seed; and the loop of a worker, with its events in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use flash_engine::limits::ABANDONED_MS;
use flash_engine::{Engine, JobId, Key, Outcome, Readiness, Rules, SiteId, SiteRules, Task};
use flash_http::types::TypeTable;

use crate::Tally;
use crate::ask::Ask;
use crate::client::{Peer, Promise};
use crate::disk::{Disk, Lead};
use crate::machine::client::pair;
use crate::machine::files::Residency;
use crate::machine::{Client, FileHandle, Machine, START_MS, START_WALL_NS};
use crate::oracle::Facts;
use crate::plan::{self, Health, Plan};
use crate::properties::Limits;
use crate::rng::Rng;

/// Turns after which a run that should have come to rest has not.
const TURNS_MAX: u64 = 100_000;

/// What is to happen at some time.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A new client.
    Come,
    /// A client sends its next piece.
    Send(usize),
    /// A client makes room.
    Read(usize),
    /// A client goes away before its time.
    Leave(usize),
    /// A client that asks for what is in memory does so.
    Hot(usize),
    /// A job ends.
    Job(u64),
    /// A helper comes.
    Helper,
    Trouble,
    Freeze,
    Jump,
    Drain,
    /// Everything works again, or everybody leaves.
    End,
}

/// What a turn tells the engine.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each is made once and taken apart at once")]
enum Call {
    Ready(Key, Readiness),
    Job(JobId, Outcome<FileHandle>),
    HelperReady,
    Drain,
}

/// Whom a job is for, in case it comes to nothing.
#[derive(Debug)]
enum Subject {
    Path(SiteId, Box<[u8]>),
    Inode(u64),
}

struct Job {
    id: JobId,
    subject: Subject,
    /// What it came to, if the helper has done it already.
    outcome: Option<Outcome<FileHandle>>,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Ends,
    Fails,
    Dies,
}

/// A run and all that belongs to it.
pub(crate) struct Run {
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) engine: Engine<Machine>,
    pub(crate) machine: Machine,
    pub(crate) disk: Disk,
    pub(crate) peers: Vec<Peer>,
    pub(crate) limits: Limits,
    pub(crate) turn: u64,
    /// Answers that had to come at once, and did.
    pub(crate) promises: u64,
    pub(crate) answers: u64,
    sites: Vec<SiteRules>,
    types: TypeTable,
    health: Health,
    events: BTreeMap<(u64, u64), Event>,
    events_made: u64,
    calls: Vec<Call>,
    jobs: BTreeMap<u64, Job>,
    /// The clients in memory, by their place among the peers.
    hot: Vec<Option<usize>>,
    hot_targets: Vec<usize>,
    /// Targets that were answered from a small file in full.
    warm: BTreeSet<usize>,
    pub(crate) frozen: bool,
    pub(crate) over: bool,
    pub(crate) drained: bool,
    pub(crate) excuse_ms: u64,
    queue_since_ms: Option<u64>,
    /// Jobs have waited so long that those whose clients have hung up are dropped.
    pub(crate) behind: bool,
    refused: u64,
    walls: Vec<(u64, i64)>,
    wall_min_ns: i128,
    helpers_away: usize,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let plan = Plan::random(&mut rng);
        let rules = plan::rules(&mut rng, &plan);
        let mut machine = Machine::new(plan.helpers);
        machine.helpers.ended = usize::from(plan.helpers == 0);
        let mut disk = Disk::default();
        plan::fill(&mut disk, &mut machine, &mut rng, &rules);
        let hot_targets = hot_targets(&disk);
        let health = if rng.chance(20) { Health::GOOD } else { Health::random(&mut rng) };
        let now = machine.now;
        let mut run = Self {
            rng,
            limits: Limits::new(&rules),
            sites: rules.sites.clone(),
            types: rules.types.clone(),
            engine: Engine::new(rules, now),
            machine,
            disk,
            peers: Vec::new(),
            turn: 0,
            promises: 0,
            answers: 0,
            health,
            events: BTreeMap::new(),
            events_made: 0,
            calls: Vec::new(),
            jobs: BTreeMap::new(),
            hot: vec![None; plan.hot_clients as usize],
            hot_targets,
            warm: BTreeSet::new(),
            frozen: false,
            over: false,
            drained: false,
            excuse_ms: 0,
            queue_since_ms: None,
            behind: false,
            refused: 0,
            walls: vec![(u64::MAX, crate::ask::seconds(now.wall_ns))],
            wall_min_ns: now.wall_ns,
            helpers_away: 0,
            plan,
        };
        run.schedule();
        run
    }

    /// The events that are known from the start.
    fn schedule(&mut self) {
        let chaos_ms = self.plan.chaos_ms;
        for _ in 0..self.plan.clients {
            let in_ms = self.rng.below(chaos_ms);
            self.after(in_ms, Event::Come);
        }
        for slot in 0..self.hot.len() {
            self.after(0, Event::Hot(slot));
        }
        self.after(1, Event::Trouble);
        if self.plan.frozen {
            self.after(chaos_ms / 4, Event::Freeze);
        }
        if self.plan.jumps {
            let in_ms = self.rng.below(chaos_ms);
            self.after(in_ms, Event::Jump);
        }
        if self.plan.drains {
            let in_ms = self.rng.below(chaos_ms);
            self.after(in_ms, Event::Drain);
        }
        self.after(chaos_ms, Event::End);
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.machine.now.monotonic_ms
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.events_made += 1;
        self.events.insert((self.now_ms() + ms, self.events_made), event);
    }

    /// Runs to its end: until nothing is to happen any more.
    pub(crate) fn run(mut self) -> Tally {
        let mut idle_turns = 0;
        loop {
            self.happen();
            let now_ms = self.now_ms();
            let edges = self.peers.iter().any(|peer| peer.client.wire().has_edge());
            let next_ms = self.engine.poll_next_ms();
            if edges || !self.calls.is_empty() || next_ms.is_some_and(|ms| ms <= now_ms) {
                let before = self.machine.trace.hash();
                self.turn();
                // A turn for nothing may happen; many of them are a loop.
                idle_turns = if before == self.machine.trace.hash() { idle_turns + 1 } else { 0 };
                self.require(idle_turns < 100, "rest", || {
                    "turns without end in which nothing happens".into()
                });
                self.require(self.turn < TURNS_MAX, "rest", || "does not come to rest".into());
                if self.rng.chance(30) {
                    self.pass(1);
                }
                continue;
            }
            let event_ms = self.events.keys().next().map(|(ms, _)| *ms);
            let Some(then_ms) = [event_ms, next_ms].into_iter().flatten().min() else { break };
            self.pass(then_ms.saturating_sub(now_ms));
        }
        self.check_end();
        let tally = Tally {
            hash: self.machine.trace.hash(),
            turns: self.turn,
            answers: self.answers,
            promises: self.promises,
        };
        // Whatever the engine had open was its own.
        let Self { engine, machine, calls, jobs, .. } = self;
        drop((engine, calls, jobs));
        let open = machine.files.open.get();
        assert!(open == 0, "property: leaks: {open} files are open after all is over");
        tally
    }

    fn pass(&mut self, ms: u64) {
        self.machine.now.monotonic_ms += ms;
        self.set_wall(self.machine.now.wall_ns + i128::from(ms) * 1_000_000);
    }

    fn set_wall(&mut self, wall_ns: i128) {
        let now_ms = self.now_ms();
        let (old, new) = (crate::ask::seconds(self.machine.now.wall_ns), crate::ask::seconds(wall_ns));
        self.machine.now.wall_ns = wall_ns;
        self.wall_min_ns = self.wall_min_ns.min(wall_ns);
        if old != new {
            if let Some(last) = self.walls.last_mut() {
                last.0 = now_ms;
            }
            self.walls.push((u64::MAX, new));
        }
    }

    /// Lets everything happen whose time has come.
    fn happen(&mut self) {
        while let Some((ms, number)) =
            self.events.keys().next().copied().filter(|(ms, _)| *ms <= self.now_ms())
        {
            let Some(event) = self.events.remove(&(ms, number)) else { return };
            self.machine.trace.note("event", &[ms - START_MS, number]);
            if self.machine.trace.print {
                println!("    {event:?}");
            }
            match event {
                Event::Come => self.come(),
                Event::Send(peer) => self.send(peer),
                Event::Read(peer) => self.make_room(peer),
                Event::Leave(peer) => self.leave(peer),
                Event::Hot(slot) => self.ask_hot(slot),
                Event::Job(number) => self.end_job(number),
                Event::Helper => {
                    self.machine.helpers.idle += 1;
                    self.calls.push(Call::HelperReady);
                }
                Event::Trouble => self.trouble(),
                Event::Freeze => self.freeze(),
                Event::Jump => self.jump(),
                Event::Drain => {
                    self.drained = true;
                    self.calls.push(Call::Drain);
                }
                Event::End => self.end(),
            }
        }
    }

    /// One turn of the loop, its events in any order.
    fn turn(&mut self) {
        self.turn += 1;
        let now = self.machine.now;
        self.machine.trace.note("turn", &[self.turn, now.monotonic_ms - START_MS]);
        self.make_promises();
        self.engine.handle_turn(now);
        let mut calls = std::mem::take(&mut self.calls);
        for peer in &self.peers {
            let mut wire = peer.client.wire();
            if wire.has_edge() {
                calls.push(Call::Ready(peer.client.key, wire.take_edge()));
            } else if peer.closed && self.rng.chance(2) {
                // An event of the same batch that was taken before the connection was closed.
                let any = Readiness { readable: true, writable: true, hung_up: true, broken: true };
                calls.push(Call::Ready(peer.client.key, any));
            }
        }
        self.rng.shuffle(&mut calls);
        for call in calls {
            self.tell(call);
        }
        self.engine.handle_continued(&mut self.machine);
        self.engine.handle_timeouts(&mut self.machine);
        self.start_jobs();
        self.disk.note_meddling(&self.machine);
        self.note_excuses();
        self.read_all();
        self.check_promises();
        self.check_turn();
        if self.over && self.plan.walk_out {
            self.check_walk_out();
        }
    }

    fn tell(&mut self, call: Call) {
        match call {
            Call::Ready(key, ready) => {
                let before = self.machine.calls.sent_bytes;
                self.engine.handle_ready(&mut self.machine, key, ready);
                let sent = self.machine.calls.sent_bytes - before;
                self.require(sent <= Limits::TURN_BYTES, "bytes per turn", || format!("{sent} bytes"));
            }
            Call::Job(id, outcome) => self.engine.handle_job(&mut self.machine, id, outcome),
            Call::HelperReady => self.engine.handle_helper_ready(&mut self.machine),
            Call::Drain => self.engine.handle_drain(&mut self.machine),
        }
    }

    /// Errors that concern all have their reasons here.
    fn note_excuses(&mut self) {
        let counters = self.engine.counters();
        let now_ms = self.now_ms();
        // Jobs that nobody took within their time are given up without a call.
        let queued_ms = self.queue_since_ms.map_or(0, |since_ms| now_ms - since_ms);
        self.behind = queued_ms >= ABANDONED_MS;
        let starved = self.queue_since_ms.is_some() && queued_ms >= self.limits.job_ms;
        if starved || counters.jobs_refused > self.refused {
            self.excuse_ms = now_ms;
        }
        let since_ms = self.queue_since_ms.unwrap_or(now_ms);
        self.queue_since_ms = (counters.jobs_queued > 0).then_some(since_ms);
        self.refused = counters.jobs_refused;
    }

    pub(crate) fn calls_len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            disk: &self.disk,
            now_ms: self.now_ms(),
            freshness_ms: self.limits.freshness_ms,
            head_ms: self.limits.head_ms,
            excuse_ms: self.excuse_ms,
            draining: self.drained,
            walls: &self.walls,
            wall_min_ns: self.wall_min_ns,
            listing_bytes: self.machine.helpers.listing_bytes,
        }
    }

    /// Every client reads what has come and decides what to do next.
    fn read_all(&mut self) {
        let now_ms = self.now_ms();
        let mut peers = std::mem::take(&mut self.peers);
        for (number, peer) in peers.iter_mut().enumerate().filter(|(_, peer)| !peer.closed) {
            let front = peer.asks.front().filter(|ask| ask.is_simple()).and_then(|ask| ask.target);
            let (before, bytes_before) = (peer.answers, peer.received_bytes);
            let read = peer.read(&self.facts(), self.turn);
            self.require(read.is_ok(), "answers", || format!("client {number}: {}", read.unwrap_err()));
            let (answers, bytes) = (peer.answers - before, peer.received_bytes - bytes_before);
            self.answers += answers;
            self.require(answers <= Limits::ANSWERS && bytes <= Limits::BYTES, "fairness", || {
                format!("client {number} was sent {answers} answers of {bytes} bytes in one turn")
            });
            if peer.hot && peer.answers > before && peer.status == 200 {
                self.warm.extend(front);
            }
            if peer.client.is_closed() {
                peer.closed = true;
                let verdict = self.judge_close(peer);
                self.require(verdict.is_ok(), "cut", || format!("client {number}: {}", verdict.unwrap_err()));
                continue;
            }
            let patience_ms = self.patience_ms(peer);
            self.require(now_ms - peer.active_ms <= patience_ms, "timeouts", || {
                format!("client {number} is still there after {} ms", now_ms - peer.active_ms)
            });
            if !peer.hot {
                self.go_on(number, peer);
            }
        }
        self.peers = peers;
    }

    /// A client that was answered asks for more, or goes.
    fn go_on(&mut self, number: usize, peer: &mut Peer) {
        if peer.last_heard || peer.ended || peer.reset || !peer.unsent.is_empty() {
            return;
        }
        if peer.more > 0 && (peer.asks.is_empty() || !peer.serial) {
            let count = if peer.serial { 1 } else { self.rng.between(1, peer.more) };
            for _ in 0..count {
                peer.push(self.any_ask());
            }
            peer.more -= count;
            let think_ms = if self.over { 0 } else { self.rng.pick(&[0, 0, 1, 30, 700]) };
            self.after(think_ms, Event::Send(number));
        } else if peer.is_idle() && self.over {
            // Others stay until the server has had enough of them.
            match self.rng.below(3) {
                0 => peer.client.end(),
                1 => peer.client.reset(),
                _ => {}
            }
            peer.ended = true;
        }
    }

    fn any_ask(&mut self) -> Ask {
        if self.rng.chance(4) {
            return Ask::malformed(&mut self.rng);
        }
        let target = match self.hot_targets.len() {
            hot if hot > 0 && self.rng.chance(35) => self.hot_targets[self.rng.place(hot)],
            _ => self.rng.place(self.disk.targets.len()),
        };
        Ask::random(&mut self.rng, &self.disk, target, !self.plan.default_site)
    }

    fn connect(&mut self, hot: bool) -> Option<usize> {
        let number = self.peers.len();
        let (socket, wire) = pair(number as u64, self.machine.sockets_open.up());
        self.engine.handle_turn(self.machine.now);
        let open = self.engine.counters().connections;
        let taken = self.engine.handle_accept(socket, SocketAddr::from(([127, 0, 0, 1], 9))).ok();
        self.require(taken.is_some() == (open < self.limits.connections_max), "connections", || {
            format!("{open} connections open, one more taken: {}", taken.is_some())
        });
        let client = Client::new(taken?, wire);
        self.peers.push(Peer::new(client, hot, self.now_ms()));
        Some(number)
    }

    fn come(&mut self) {
        if self.drained || self.over {
            return;
        }
        let Some(number) = self.connect(false) else { return self.after(50, Event::Come) };
        let rng = &mut self.rng;
        let peer = &mut self.peers[number];
        peer.more = rng.between(1, 8);
        peer.serial = rng.chance(50);
        (peer.piece_bytes, peer.gap_ms) = match rng.below(10) {
            0 => (1, rng.between(0, 5)),
            1 | 2 => (rng.between(5, 100), rng.between(0, 60)),
            _ => (u64::MAX, 0),
        };
        if rng.chance(30) {
            let room = rng.pick(&[0, 1, 500, 20_000, 150_000]);
            peer.room = Some(room);
            peer.slow = true;
            peer.client.set_room(room as usize);
            peer.client.wire().room_event_bytes = rng.pick(&[1, 1, 4_000]);
            self.after(1, Event::Read(number));
        }
        let (leaves, in_ms) = (self.rng.chance(20), self.rng.below(self.plan.chaos_ms));
        if leaves {
            self.after(in_ms, Event::Leave(number));
        }
        let count = if self.peers[number].serial { 1 } else { self.rng.between(1, self.peers[number].more) };
        for _ in 0..count {
            let ask = self.any_ask();
            self.peers[number].push(ask);
        }
        self.peers[number].more -= count;
        let in_ms = self.rng.pick(&[0, 0, 20, 400]);
        self.after(in_ms, Event::Send(number));
    }

    fn send(&mut self, number: usize) {
        let (now_ms, turn, over) = (self.now_ms(), self.turn + 1, self.over);
        let peer = &mut self.peers[number];
        if peer.closed || peer.ended || peer.reset || peer.unsent.is_empty() {
            return;
        }
        peer.send(now_ms, turn);
        if !peer.unsent.is_empty() {
            let gap_ms = if over { 0 } else { peer.gap_ms };
            self.after(gap_ms, Event::Send(number));
        }
    }

    fn make_room(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        let (Some(room), false) = (peer.room, peer.closed) else { return };
        peer.client.add_room(room as usize);
        let in_ms = self.rng.pick(&[1, 10, 200]);
        if room > 0 {
            self.after(in_ms, Event::Read(number));
        }
    }

    fn leave(&mut self, number: usize) {
        let peer = &mut self.peers[number];
        if peer.closed {
            return;
        }
        if self.rng.chance(50) {
            peer.client.reset();
            peer.reset = true;
        } else {
            // It may still read.
            peer.client.end();
            peer.ended = true;
        }
    }

    /// The machine has taken jobs in the turn: when and how they end.
    fn start_jobs(&mut self) {
        for id in std::mem::take(&mut self.machine.helpers.abandoned) {
            let Some(job) = self.jobs.remove(&id.to_u64()) else { continue };
            self.excuse(&job.subject);
            if let (Some(outcome), true) = (job.outcome, self.rng.chance(50)) {
                // The helper's answer was under way when its job was given up.
                self.calls.push(Call::Job(id, outcome));
            }
        }
        let coming = std::mem::take(&mut self.machine.helpers.coming);
        for _ in 0..coming {
            let in_ms = if self.over { 1 } else { self.rng.pick(&[0, 1, 10, 500]) };
            self.after(in_ms, Event::Helper);
        }
        let running: Vec<JobId> = self.machine.helpers.running.iter().map(|(id, _)| *id).collect();
        for id in running {
            if self.jobs.contains_key(&id.to_u64()) {
                continue;
            }
            let Some(task) = self.machine.helpers.task(id) else { continue };
            let subject = match &task {
                Task::Find { site, path } | Task::List { site, path, .. } => {
                    Subject::Path(*site, path.clone())
                }
                Task::Load { file, .. } | Task::Read { file, .. } => Subject::Inode(file.stat().inode),
            };
            let health = self.health;
            let fate = match self.rng.below(100) {
                n if n < health.fails => Fate::Fails,
                n if n < health.fails + health.deaths => Fate::Dies,
                _ => Fate::Ends,
            };
            // Looks at the disk at its start or at its end.
            let outcome = self.rng.chance(50).then(|| self.perform(&task));
            let stalls = self.frozen || self.rng.chance(health.stalls);
            let in_ms = self.rng.between(1, health.latency_max_ms);
            self.jobs.insert(id.to_u64(), Job { id, subject, outcome, fate });
            if !stalls {
                self.after(in_ms, Event::Job(id.to_u64()));
            }
        }
    }

    fn perform(&mut self, task: &Task<FileHandle>) -> Outcome<FileHandle> {
        let outcome = self.machine.helpers.perform(task, &mut self.machine.files, &self.sites, &self.types);
        if let Outcome::Listed(file, _) = &outcome
            && self.rng.chance(70)
        {
            // As of a memory file.
            file.inode.borrow_mut().residency = Residency::Unknown;
        }
        outcome
    }

    /// A job ends, unless it was given up before.
    fn end_job(&mut self, number: u64) {
        let Some(mut job) = self.jobs.remove(&number) else { return };
        let task = self.machine.helpers.task(job.id);
        let Some(task) = task else { return };
        let outcome = match job.fate {
            Fate::Ends => job.outcome.take().unwrap_or_else(|| self.perform(&task)),
            Fate::Fails => self.rng.pick(&[Some(5), None]).map_or(Outcome::Exhausted, Outcome::Failed),
            Fate::Dies => Outcome::Lost,
        };
        if !matches!(outcome, Outcome::Found(_) | Outcome::Listed(..) | Outcome::Loaded | Outcome::Bytes(..))
        {
            self.excuse(&job.subject);
        }
        if let (Subject::Inode(inode), true) = (&job.subject, self.rng.chance(self.health.thrash)) {
            self.disk.thrash(&mut self.machine, *inode);
        }
        if job.fate == Fate::Dies {
            self.machine.helpers.die(job.id);
        } else {
            drop(self.machine.helpers.finish(job.id));
        }
        self.calls.push(Call::Job(job.id, outcome));
    }

    fn excuse(&mut self, subject: &Subject) {
        let now_ms = self.now_ms();
        match subject {
            Subject::Path(site, path) => self.disk.excuse_path(*site, path, now_ms),
            Subject::Inode(inode) => self.disk.excuse_inode(*inode, now_ms),
        }
    }

    /// Something happens to the disk.
    fn trouble(&mut self) {
        if self.over {
            return;
        }
        let in_ms = self.rng.between(1, self.plan.trouble_ms * 2);
        self.after(in_ms, Event::Trouble);
        // Trouble comes most often where somebody waits.
        let place = if self.rng.chance(50) { self.asked_for() } else { None };
        let (rng, machine, disk) = (&mut self.rng, &mut self.machine, &mut self.disk);
        let place = place.unwrap_or_else(|| rng.place(disk.named.len()));
        if disk.named[place].hot {
            return;
        }
        let there = disk.now(place).file.is_some();
        let may_go = disk.targets.iter().any(|target| matches!(target.lead, Lead::File { plain, .. } if plain == place && !target.path.ends_with('/')));
        match rng.below(20) {
            0..3 if there || may_go => {
                let old = disk.now(place).file.as_ref().map(|(stat, _)| stat.size_bytes);
                let size_bytes = old.filter(|_| rng.chance(40)).unwrap_or_else(|| Disk::size(rng));
                disk.replace(machine, rng, place, size_bytes);
            }
            3..6 => disk.write(machine, rng, place),
            6 if there && may_go => disk.remove(machine, place),
            7..11 => disk.evict(machine, rng, place),
            11 | 12 => disk.forget_name(machine, place),
            13 => {
                let fails = rng.chance(50);
                disk.set_failing(machine, place, fails);
            }
            14 if there => {
                let path = disk.named[place].path.clone();
                machine.files.inode(&path).residency =
                    if rng.chance(50) { Residency::Unknown } else { Residency::All };
            }
            15 => {
                machine.files.names_thrash = rng.chance(30);
                if machine.files.names_thrash {
                    disk.named.iter_mut().for_each(|named| named.strict = false);
                }
            }
            16 => self.health = Health::random(rng),
            17 => {
                // No helper for a while.
                self.helpers_away += std::mem::take(&mut machine.helpers.idle);
            }
            18 => self.bring_helpers_back(),
            _ => {}
        }
    }

    /// A file that a client waits for.
    fn asked_for(&mut self) -> Option<usize> {
        let asked = self.peers.iter().filter(|peer| !peer.closed && !peer.hot).filter_map(Peer::next_ask);
        let places: Vec<usize> =
            asked.filter_map(|ask| ask.target).flat_map(|target| self.disk.files_of(target)).collect();
        (!places.is_empty()).then(|| self.rng.pick(&places))
    }

    fn bring_helpers_back(&mut self) {
        for _ in 0..std::mem::take(&mut self.helpers_away) {
            self.after(0, Event::Helper);
        }
    }

    /// All that is not in the engine's caches leaves memory, and the disk answers nothing any more.
    fn freeze(&mut self) {
        self.frozen = true;
        self.peers.iter_mut().for_each(|peer| peer.in_memory = None);
        for place in 0..self.disk.named.len() {
            self.disk.forget_name(&mut self.machine, place);
            if self.disk.now(place).file.is_some() {
                let path = self.disk.named[place].path.clone();
                self.machine.files.inode(&path).evict();
            }
        }
    }

    /// The clocks jump: after a suspend, or because somebody set them.
    fn jump(&mut self) {
        let rng = &mut self.rng;
        let (ms, set_ms) = match rng.below(4) {
            0 => (rng.between(1, 10 * 60_000), 0),
            1 => (8 * 3_600_000, 0),
            2 => (0, rng.between(1, 3 * 86_400_000) as i128),
            _ => (0, -(rng.between(1, 3 * 86_400_000) as i128)),
        };
        self.pass(ms);
        self.set_wall(self.machine.now.wall_ns + set_ms * 1_000_000);
        self.excuse_ms = self.now_ms();
    }

    /// The troubles are over.
    fn end(&mut self) {
        self.over = true;
        if self.plan.walk_out {
            for number in 0..self.peers.len() {
                let peer = &mut self.peers[number];
                if !peer.closed {
                    peer.client.reset();
                    peer.reset = true;
                }
            }
            return;
        }
        self.frozen = false;
        self.health = Health::GOOD;
        self.machine.files.names_thrash = false;
        self.disk.settle(&mut self.machine);
        for place in 0..self.disk.named.len() {
            if self.disk.named[place].failing {
                self.disk.set_failing(&mut self.machine, place, false);
            }
        }
        self.bring_helpers_back();
        for number in 0..self.peers.len() {
            let peer = &mut self.peers[number];
            peer.room = None;
            peer.client.set_room(usize::MAX);
            peer.piece_bytes = u64::MAX;
            if peer.is_idle() && !peer.closed && !peer.ended && self.rng.chance(50) {
                peer.client.end();
                peer.ended = true;
            }
        }
    }

    /// A client that asks for what is in memory does so, if it has been answered.
    fn ask_hot(&mut self, slot: usize) {
        if self.over {
            return;
        }
        let gap_ms = self.rng.pick(&[1, 3, 17, 90, 400]).max(self.plan.chaos_ms / 40);
        self.after(gap_ms, Event::Hot(slot));
        let open = self.hot[slot].filter(|peer| {
            let peer = &self.peers[*peer];
            !peer.closed && !peer.last_heard
        });
        if open.is_none() && self.drained {
            return;
        }
        let Some(number) = open.or_else(|| self.connect(true)) else { return };
        self.hot[slot] = Some(number);
        if !self.peers[number].asks.is_empty() {
            return;
        }
        let warm = self.rng.chance(80) && !self.hot_targets.is_empty();
        let target =
            if warm { self.rng.pick(&self.hot_targets) } else { self.rng.place(self.disk.targets.len()) };
        let mut ask = Ask::simple(&self.disk, target);
        if !self.frozen && self.rng.chance(40) {
            ask = Ask::random(&mut self.rng, &self.disk, target, false);
        }
        let peer = &mut self.peers[number];
        peer.push(ask);
        peer.send(self.machine.now.monotonic_ms, self.turn + 1);
    }

    /// Which requests that have just arrived must be answered in this turn.
    fn make_promises(&mut self) {
        for number in self.hot.iter().flatten().copied().collect::<Vec<usize>>() {
            let peer = &self.peers[number];
            let Some(ask) = peer.asks.front().filter(|ask| ask.whole_turn == Some(self.turn)) else {
                continue;
            };
            let bytes = self.disk.in_memory(&self.machine, ask).or_else(|| self.in_cache(ask));
            let promise = bytes.map(|bytes| Promise { turn: self.turn + Limits::turns(bytes) });
            self.peers[number].in_memory = promise.filter(|_| !peer.closed && !peer.reset);
        }
    }

    /// Whether the answer is in the content cache: it was there, and nothing ever leaves it.
    fn in_cache(&self, ask: &Ask) -> Option<u64> {
        let target = ask.target.filter(|target| self.plan.ample && self.warm.contains(target))?;
        let Lead::File { plain, .. } = self.disk.targets[target].lead else { return None };
        let stat = self.disk.now(plain).file.as_ref()?.0;
        // One changed shortly before it was seen is not trusted to be the same.
        let old = stat.changed_ns + 1_000_000_000 < START_WALL_NS;
        let size_bytes = stat.size_bytes;
        (old && self.disk.named[plain].hot && ask.is_simple() && size_bytes <= Limits::CACHED_BYTES)
            .then_some(size_bytes)
    }

    fn check_promises(&mut self) {
        for number in self.hot.iter().flatten().copied().collect::<Vec<usize>>() {
            let peer = &mut self.peers[number];
            let Some(promise) = peer.in_memory else { continue };
            if peer.asks.is_empty() {
                peer.in_memory = None;
                self.promises += 1;
                continue;
            }
            let broken = promise.turn <= self.turn;
            let ask = peer.asks.front().map(|ask| ask.bytes.escape_ascii().to_string());
            self.require(!broken, "the promise", || {
                format!("client {number} was not answered at once, though all was in memory ({promise:?}): {ask:?}")
            });
        }
    }
}

/// Targets of which nothing ever changes or leaves memory.
fn hot_targets(disk: &Disk) -> Vec<usize> {
    let is_hot = |target: &usize| {
        let files = disk.files_of(*target);
        !files.is_empty() && files.iter().all(|place| disk.named[*place].hot)
    };
    (0..disk.targets.len()).filter(is_hot).collect()
}

impl Limits {
    /// What rules say that properties are about.
    fn new(rules: &Rules) -> Self {
        Self {
            freshness_ms: rules.freshness_ms,
            head_ms: rules.timeouts.head_ms,
            idle_ms: rules.timeouts.idle_ms,
            job_ms: rules.timeouts.job_ms,
            connections_max: rules.connections_max,
            open_files_max: rules.open_files_max,
            cache_memory_bytes: rules.cache_memory_bytes,
        }
    }
}
