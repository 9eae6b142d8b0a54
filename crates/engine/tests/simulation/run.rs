//! One run: an engine on its machine, the clients, the troubles of the disk and the clocks, all from one
//! seed; and the loop of a worker, with its events in random order.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flash_engine::limits::{
    ABANDONED_MS, BLOCKS_AHEAD, HEAD_ALIGN_BYTES, LOAD_BYTES, RATE_WINDOW_MS, TICK_MS,
};
use flash_engine::{Engine, JobId, Key, Outcome, Readiness, Rules, SiteId, SiteRules, Task};
use flash_http::types::TypeTable;
use flash_keeper::HelperId;

use crate::Tally;
use crate::bounded;
use crate::client::Peer;
use crate::disk::Disk;
use crate::machine::files::Residency;
use crate::machine::{FileHandle, Machine, START_MS};
use crate::oracle::{Facts, Seen};
use crate::plan::{self, Health, Plan};
use crate::properties::Limits;
use crate::rng::Rng;
use crate::rush::Rush;
use crate::sibling::Sibling;
use crate::stored::{Keeping, STORE_DICE};
use crate::visitors::{GUEST_PATH, GUEST_SITE};

/// Separates the random numbers of the queue from all others.
const QUEUE_SEED: u64 = 0x71_7565_7565;
/// The policy has random numbers of its own.
const POLICY_SEED: u64 = 0x5eed_0001_5eed_0001;
const RULE_SEED: u64 = 0x5275_6c65;
const BOUND_SEED: u64 = 0x426f_756e_6473;
const COMPRESSION_SEED: u64 = 0x466f_726d;

/// So has the choice of encrypted connections.
const SEAL_SEED: u64 = 0x5ea1_0001_5ea1_0001;

/// A run that takes more turns than this is considered endless.
const TURNS_MAX: u64 = 100_000;

/// An event that will happen at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A new client comes.
    Come,
    /// A client sends its next piece.
    Send(usize),
    /// A client reads, which makes room.
    Read(usize),
    /// A client leaves early.
    Leave(usize),
    /// A client that requests only files in memory sends a request.
    Hot(usize),
    /// A new client requests a target.
    Ask(usize),
    /// A job ends.
    Job(u64),
    /// A helper comes.
    Helper,
    /// A helper that was given up with this job ends.
    Gone(JobId),
    Trouble,
    Freeze,
    /// Many clients come at once.
    Crowd,
    /// The next of many clients that come one after the other.
    Rush(u64),
    /// Many clients come that never finish their heads.
    Hoard,
    Jump,
    Drain,
    /// The keeper has a turn.
    Keeper,
    /// Another keeper takes over.
    NewKeeper,
    /// Something happens to the store.
    StoreTrouble,
    /// The watcher has a turn.
    Watcher,
    /// The disk works again, or all clients leave.
    End,
}

/// An event that a turn passes to the engine.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "each value is made once and consumed at once")]
pub(crate) enum Call {
    Ready(Key, Readiness),
    Job(JobId, Outcome<FileHandle>),
    HelperReady,
    HelperGone(JobId),
    Drain,
}

/// The subject of a job, which is excused if the job fails.
#[derive(Debug)]
pub(crate) enum Subject {
    Path(SiteId, Arc<[u8]>),
    Inode(u64),
}

pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) subject: Subject,
    /// The outcome, if the helper has already done the job.
    pub(crate) outcome: Option<Outcome<FileHandle>>,
    /// The block that the helper is bringing into the store.
    pub(crate) fill: Option<HelperId>,
    pub(crate) fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Ends,
    Fails,
    Dies,
}

/// A run and everything that belongs to it.
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
    pub(crate) sites: Vec<SiteRules>,
    pub(crate) types: TypeTable,
    pub(crate) health: Health,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    pub(crate) events_made: u64,
    pub(crate) calls: Vec<Call>,
    pub(crate) jobs: BTreeMap<u64, Job>,
    /// The clients that request only files in memory, as indices of the peers.
    pub(crate) hot: Vec<Option<usize>>,
    pub(crate) hot_targets: Vec<usize>,
    /// The number of targets without those of the crowd.
    pub(crate) targets: usize,
    /// Targets that were answered completely from a file, and when last.
    pub(crate) warm: BTreeMap<usize, u64>,
    pub(crate) store: Keeping,
    /// The other worker, if there is a store to share.
    pub(crate) sibling: Option<Sibling>,
    pub(crate) frozen: bool,
    pub(crate) over: bool,
    /// All clients have left, and every entry is fresh, so only fills have a reason to start.
    pub(crate) deserted: bool,
    pub(crate) drained: bool,
    pub(crate) excuse_ms: u64,
    pub(crate) queue_since_ms: Option<u64>,
    /// Whether jobs have waited so long that those of absent clients are dropped.
    pub(crate) behind: bool,
    pub(crate) refused: u64,
    pub(crate) walls: Vec<(u64, i64)>,
    pub(crate) wall_min_ns: i128,
    pub(crate) helpers_away: usize,
    /// Jobs that were given up and whose helpers have not ended yet.
    pub(crate) hung: Vec<JobId>,
    /// How far the monotonic clock has jumped.
    pub(crate) jumped_ms: u64,
    pub(crate) jumped_at_ms: u64,
    seen: Seen,
    /// The client that requests a file beside a crowd, until its job is started.
    pub(crate) guest: Option<usize>,
    order: Order,
    pub(crate) rush: Rush,
    /// How far clients have come in each file (an index of [`Disk::named`]).
    reached: BTreeMap<usize, u64>,
    /// Decides which connections are encrypted.
    pub(crate) sealing: Rng,
    /// Parts of files that helpers began to load in this turn: inode and offset.
    loads: Vec<(u64, u64)>,
    /// The requests that had no answer as this turn began, and that a rule bounds.
    /// The bytes of files that each client got and that a rule bounds.
    pub(crate) bounded_bytes: BTreeMap<IpAddr, u64>,
}

/// The order in which the jobs of the sites are started.
#[derive(Debug, Default)]
struct Order {
    /// The site of the latest job that was started besides the guest's.
    latest: Option<SiteId>,
    /// Whether a helper worked for the guest's site at the end of the previous turn.
    is_served: bool,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::random(&mut rng);
        let queue_wait_ms = plan::queue(&mut Rng::new(seed ^ QUEUE_SEED), &mut plan);
        let mut sealing = Rng::new(seed ^ SEAL_SEED);
        plan.encrypted = plan::encrypted(&mut sealing, &plan);
        plan.store = plan::store(&mut Rng::new(seed ^ STORE_DICE), &plan);
        let mut rules = plan::rules(&mut rng, &plan);
        rules.queue_wait_ms = queue_wait_ms;
        rules.optimizations = plan::optimizations(&mut Rng::new(!seed));
        rules.policy = plan::policy(&mut Rng::new(seed ^ POLICY_SEED));
        plan.bounds = bounded::choose(&mut Rng::new(seed ^ BOUND_SEED), &plan);
        plan.rule = plan::path_rule(&mut Rng::new(seed ^ RULE_SEED), &rules);
        plan::give(&mut rules.sites, plan.rule, plan.bounds);
        plan::compression(&mut Rng::new(seed ^ COMPRESSION_SEED), &mut rules);
        // HTTP/2 does not use `send_file`.
        plan.streams &= !rules.optimizations.send_file;
        let mut machine = Machine::new(plan.helpers);
        machine.helpers.ended = usize::from(plan.helpers == 0);
        let store = Keeping::new(seed, plan.store, &mut machine);
        let mut disk = Disk::default();
        plan::fill(&mut disk, &mut machine, &mut rng, &rules, &plan);
        let (hot_targets, targets) = (hot_targets(&disk), disk.targets.len());
        let health = if rng.chance(20) { Health::GOOD } else { Health::random(&mut rng) };
        let now = machine.now;
        let mut run = Self {
            rng,
            sealing,
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
            targets,
            warm: BTreeMap::new(),
            sibling: store.host.as_ref().map(|host| Sibling::new(seed, host)),
            store,
            frozen: false,
            over: false,
            deserted: false,
            drained: false,
            excuse_ms: 0,
            queue_since_ms: None,
            behind: false,
            refused: 0,
            walls: vec![(u64::MAX, crate::ask::seconds(now.wall_ns))],
            wall_min_ns: now.wall_ns,
            helpers_away: 0,
            hung: Vec::new(),
            jumped_ms: 0,
            jumped_at_ms: 0,
            seen: Seen::default(),
            guest: None,
            order: Order::default(),
            rush: Rush::default(),
            reached: BTreeMap::new(),
            loads: Vec::new(),
            bounded_bytes: BTreeMap::new(),
            plan,
        };
        run.schedule();
        run
    }

    /// Schedules the events that are known from the start.
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
        self.after(1, Event::StoreTrouble);
        self.after(1, Event::Watcher);
        if self.plan.frozen {
            self.after(chaos_ms / 4, Event::Freeze);
        }
        if self.plan.crowd > 0 {
            self.after(chaos_ms / 2, Event::Crowd);
        }
        if self.plan.rush > 0 {
            self.after(chaos_ms / 3, Event::Rush(0));
        }
        if self.plan.hoard > 0 {
            self.after(chaos_ms / 2, Event::Hoard);
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
        self.machine.now.monotonic_ms()
    }

    pub(crate) fn after(&mut self, ms: u64, event: Event) {
        self.events_made += 1;
        self.events.insert((self.now_ms() + ms, self.events_made), event);
    }

    /// Runs until no event is left.
    pub(crate) fn run(mut self) -> Tally {
        let mut idle_turns = 0;
        loop {
            self.happen();
            let now_ms = self.now_ms();
            let edges = self.peers.iter().any(|peer| peer.client.wire().has_edge());
            let next_ms = self.engine.poll_next_ms();
            let is_asked = self.store.has_unheard() || (self.over && self.sibling.is_some());
            if edges || is_asked || !self.calls.is_empty() || next_ms.is_some_and(|ms| ms <= now_ms) {
                let before = self.machine.trace.hash();
                self.turn();
                // A single turn without an event is allowed, but many of them are an endless loop.
                idle_turns = if before == self.machine.trace.hash() { idle_turns + 1 } else { 0 };
                self.require(idle_turns < 100, "rest", || "endless turns in which nothing happens".into());
                self.require(self.turn < TURNS_MAX, "rest", || "the run does not come to rest".into());
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
            hash: self.machine.trace.hash() ^ self.store.hash(),
            turns: self.turn,
            answers: self.answers,
            promises: self.promises,
        };
        // Every open file belonged to the engine.
        let Self { engine, mut machine, calls, jobs, .. } = self;
        drop((engine, calls, jobs));
        machine.store = None;
        let open = machine.files.open.get();
        assert!(open == 0, "property: leaks: {open} files are open at the end");
        tally
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.machine.now.monotonic_ns += ms * 1_000_000;
        self.set_wall(self.machine.now.wall_ns + i128::from(ms) * 1_000_000);
    }

    pub(crate) fn set_wall(&mut self, wall_ns: i128) {
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

    /// Lets every event happen whose time has come.
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
                Event::Ask(target) => self.ask_for_file(target),
                Event::Job(number) => self.end_job(number),
                Event::Helper => {
                    self.machine.helpers.idle += 1;
                    self.calls.push(Call::HelperReady);
                }
                Event::Gone(id) => {
                    self.hung.retain(|other| *other != id);
                    self.end_hung_fill(id);
                    self.calls.push(Call::HelperGone(id));
                }
                Event::Trouble => self.trouble(),
                Event::Freeze => self.freeze(),
                Event::Crowd => self.crowd(),
                Event::Rush(number) => self.rush(number),
                Event::Hoard => self.hoard(),
                Event::Jump => self.jump(),
                Event::Drain => {
                    self.drained = true;
                    self.calls.push(Call::Drain);
                }
                Event::Keeper => self.turn_keeper(),
                Event::NewKeeper => self.replace_keeper(),
                Event::StoreTrouble => self.store_trouble(),
                Event::Watcher => self.turn_watcher(),
                Event::End => self.end(),
            }
        }
    }

    /// Runs one turn of the loop, with its events in random order.
    fn turn(&mut self) {
        self.turn += 1;
        let now = self.machine.now;
        self.machine.trace.note("turn", &[self.turn, now.monotonic_ms() - START_MS]);
        self.count_unanswered();
        self.make_promises();
        self.make_promises_of_streams();
        self.engine.handle_turn(now);
        self.hear_keeper();
        let mut calls = std::mem::take(&mut self.calls);
        for peer in &self.peers {
            let mut wire = peer.client.wire();
            if wire.has_edge() {
                calls.push(Call::Ready(peer.client.key, wire.take_edge()));
            } else if peer.closed && self.rng.chance(2) {
                // An event of the same batch can arrive after its connection was closed.
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
        self.release_blocks();
        self.turn_sibling();
        self.disk.note_meddling(&self.machine);
        self.note_excuses();
        self.read_all();
        self.check_promises();
        self.check_promises_of_streams();
        self.check_loads();
        self.check_rush();
        self.check_bounds();
        self.check_turn();
        if self.over && self.plan.leave_at_once {
            self.check_all_left();
        }
    }

    fn tell(&mut self, call: Call) {
        match call {
            Call::Ready(key, ready) => {
                let before = self.machine.calls;
                self.engine.handle_ready(&mut self.machine, key, ready);
                let now = self.machine.calls;
                let (sent, encrypted) =
                    (now.sent_bytes - before.sent_bytes, now.encrypted_bytes - before.encrypted_bytes);
                self.require(
                    sent <= Limits::TURN_BYTES && encrypted <= Limits::SEALED_BYTES,
                    "bytes per turn",
                    || format!("{sent} bytes, {encrypted} encrypted"),
                );
            }
            Call::Job(id, outcome) => {
                self.note_finished();
                self.engine.handle_job(&mut self.machine, id, outcome);
            }
            Call::HelperReady => self.engine.handle_helper_ready(&mut self.machine),
            Call::HelperGone(id) => self.engine.handle_helper_gone(&mut self.machine, id),
            Call::Drain => self.engine.handle_drain(&mut self.machine),
        }
    }

    /// Records the reasons for errors that concern all requests.
    fn note_excuses(&mut self) {
        let counters = self.engine.counters();
        let now_ms = self.now_ms();
        // Jobs that no helper took in time are given up without a call.
        let queued_ms = self.queue_since_ms.map_or(0, |since_ms| now_ms - since_ms);
        self.behind = queued_ms >= ABANDONED_MS;
        let starved = self.queue_since_ms.is_some() && queued_ms >= self.limits.job_ms;
        if starved || counters.jobs_refused() > self.refused {
            self.excuse_ms = now_ms;
        }
        let since_ms = self.queue_since_ms.unwrap_or(now_ms);
        self.queue_since_ms = (counters.jobs_queued > 0).then_some(since_ms);
        self.refused = counters.jobs_refused();
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            disk: &self.disk,
            now_ms: self.now_ms(),
            freshness_ms: self.limits.freshness_ms,
            old_ms: self.limits.freshness_ms + self.limits.stale_ms + 2 * self.limits.job_ms,
            head_ms: self.limits.head_ms,
            excuse_ms: self.excuse_ms,
            draining: self.drained,
            head_align_bytes: self.limits.head_align_bytes,
            rule: self.plan.rule,
            bounds: self.plan.bounds,
            walls: &self.walls,
            wall_min_ns: self.wall_min_ns,
            listing_bytes: self.machine.helpers.listing_bytes,
            listing_old_ms: self.limits.freshness_ms + 2 * self.limits.job_ms + self.jumped_ms,
            turn: self.turn,
            seen: self.limits.name_cache.then_some(&self.seen),
        }
    }

    /// Every client reads what it received and decides what to do next.
    fn read_all(&mut self) {
        let now_ms = self.now_ms();
        let mut peers = std::mem::take(&mut self.peers);
        for (number, peer) in peers.iter_mut().enumerate().filter(|(_, peer)| !peer.closed) {
            let front = peer.asks.front().filter(|ask| ask.is_simple()).and_then(|ask| ask.target);
            let (before, bytes_before) = (peer.answers, peer.received_bytes);
            peer.is_left = peer.ended && self.behind;
            let read = peer.read(&self.facts(), self.turn);
            self.require(read.is_ok(), "answers", || format!("client {number}: {}", read.unwrap_err()));
            self.reply(number, peer);
            let (answers, bytes) = (peer.answers - before, peer.received_bytes - bytes_before);
            self.answers += answers;
            if bytes > 0 {
                self.note_progress(peer);
                self.note_bytes(peer);
            }
            self.require(answers <= Limits::ANSWERS && bytes <= Limits::BYTES, "fairness", || {
                format!("client {number} got {answers} answers of {bytes} bytes in one turn")
            });
            if peer.hot && peer.answers > before && peer.status == 200 {
                self.warm.extend(front.map(|target| (target, now_ms)));
            }
            if peer.client.is_closed() {
                peer.closed = true;
                let verdict = self.judge_close(peer);
                self.require(verdict.is_ok(), "cut", || format!("client {number}: {}", verdict.unwrap_err()));
                let is_rude = peer.client.wire().was_closed_rudely() && !peer.evicted;
                self.require(!is_rude, "announced", || format!("client {number} was closed without notice"));
                continue;
            }
            let is_kept = peer.client.wire().is_kept_waiting();
            self.require(!is_kept, "records", || format!("client {number} waits for the rest of a record"));
            let patience_ms = self.patience_ms(peer);
            self.require(now_ms - peer.active_ms <= patience_ms, "timeouts", || {
                format!("client {number} is still connected after {} ms", now_ms - peer.active_ms)
            });
            let head_ms = self.overdue_head_ms(peer);
            self.require(head_ms.is_none(), "timeouts", || {
                format!("the head of client {number} is incomplete after {head_ms:?} ms")
            });
            let stuck_ms = self.note_stuck(peer);
            self.require(stuck_ms <= self.limits.stuck_ms, "least rate", || {
                format!("client {number} has read nothing for {stuck_ms} ms")
            });
            if !peer.hot {
                self.go_on(number, peer);
            }
        }
        self.peers = peers;
    }

    /// Decides when and how the jobs end that the machine took in this turn.
    fn start_jobs(&mut self) {
        for id in std::mem::take(&mut self.machine.helpers.abandoned) {
            let Some(job) = self.jobs.remove(&id.to_u64()) else { continue };
            self.excuse(&job.subject);
            if let Some(helper) = job.fill {
                self.store.hung.insert(id.to_u64(), helper);
            }
            if let (Some(outcome), true) = (job.outcome, self.rng.chance(50)) {
                // The helper's answer was under way when its job was given up.
                self.calls.push(Call::Job(id, outcome));
            }
        }
        // A helper that was given up can hang and end much later.
        for id in self.machine.helpers.take_gone() {
            let in_ms = if self.over { 1 } else { self.rng.pick(&[0, 1, 10, 3_000]) };
            self.hung.push(id);
            self.after(in_ms, Event::Gone(id));
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
            self.note_start(id, &task);
            let subject = match &task {
                Task::Find { site, path } | Task::List { site, path, .. } | Task::Warm { site, path, .. } => {
                    Subject::Path(*site, path.clone())
                }
                Task::Close { .. }
                | Task::Touch { .. }
                | Task::WarmFile { .. }
                | Task::Verify { .. }
                | Task::Deflate { .. }
                | Task::GiveBack { .. } => {
                    panic!("the simulation does not queue these jobs")
                }
                Task::Fill { file, .. }
                | Task::Load { file, .. }
                | Task::Read { file, .. }
                | Task::Write { file, .. } => Subject::Inode(file.stat().inode),
            };
            let health = self.health;
            let fate = match self.rng.below(100) {
                n if n < health.fails => Fate::Fails,
                n if n < health.fails + health.deaths => Fate::Dies,
                _ => Fate::Ends,
            };
            let Machine { helpers, files, .. } = &mut self.machine;
            let block = helpers.block_of(&task, files, &self.sites, &self.types);
            let fill = block.and_then(|(file, block)| self.begin_fill(&file, block));
            // A helper reads the state of the disk at the start or at the end of the job.
            let outcome = match &task {
                Task::Fill { .. } | Task::Warm { .. } => Some(Outcome::Loaded),
                _ => self.rng.chance(50).then(|| self.perform(&task)),
            };
            let stalls = self.frozen || self.rng.chance(health.stalls);
            let in_ms = self.rng.between(1, health.latency_max_ms);
            if let (Subject::Path(site, path), Some(Outcome::Found(_)), true) =
                (&subject, &outcome, self.rng.chance(3) && in_ms > 5 && !stalls)
            {
                self.overtake((*site, path), in_ms);
            }
            self.jobs.insert(id.to_u64(), Job { id, subject, outcome, fill, fate });
            if !stalls {
                self.after(in_ms, Event::Job(id.to_u64()));
            }
        }
    }

    /// Records the start of a job and checks its order.
    fn note_start(&mut self, id: JobId, task: &Task<FileHandle>) {
        match task {
            Task::Load { file, offset, .. } => self.loads.push((file.stat().inode, *offset)),
            Task::Fill { file, block, .. } => self.loads.push((file.stat().inode, block * LOAD_BYTES)),
            _ => {}
        }
        self.check_wanted(task);
        self.note_order(task);
        let Some(guest) = self.guest else { return };
        let site = self.engine.site_of(id);
        if let Task::Find { path, .. } = task
            && &**path == GUEST_PATH.as_bytes()
        {
            self.guest = None;
            return;
        }
        let peer = &self.peers[guest];
        let is_queued = peer.next_ask().and_then(|ask| ask.whole_turn).is_some_and(|turn| turn < self.turn);
        if peer.closed || peer.ended || peer.asks.is_empty() {
            self.guest = None;
            return;
        }
        if !is_queued || site == Some(SiteId(GUEST_SITE)) || self.order.is_served || !self.hung.is_empty() {
            self.order.latest = None;
            return;
        }
        let is_out_of_turn = self.order.latest.is_some() && self.order.latest == site;
        self.require(!is_out_of_turn, "turns of sites", || {
            format!("two jobs of {site:?} were started before one of another site")
        });
        self.order.latest = site;
    }

    /// Checks that no more of a file is loaded ahead than the bound allows.
    fn check_loads(&mut self) {
        let is_served = |(id, _): &(JobId, _)| self.engine.site_of(*id) == Some(SiteId(GUEST_SITE));
        self.order.is_served = self.guest.is_some() && self.machine.helpers.running.iter().any(is_served);
        for (inode, offset) in std::mem::take(&mut self.loads) {
            let Some(place) = self.disk.place_of(inode) else { continue };
            let reached = self.reached.get(&place).copied().unwrap_or(0);
            let most = reached.saturating_add((1 + BLOCKS_AHEAD) * LOAD_BYTES);
            self.require(offset < most, "bounds", || {
                format!("byte {offset} of a file is loaded although clients have only come to {reached}")
            });
        }
    }

    /// Records how far clients have come in the files of a target.
    pub(crate) fn note_reached(&mut self, target: usize, at: u64) {
        for place in self.disk.files_of(target) {
            let reached = self.reached.entry(place).or_default();
            *reached = at.max(*reached);
        }
    }

    fn note_progress(&mut self, peer: &mut Peer) {
        for target in std::mem::take(&mut peer.finished) {
            self.note_reached(target, u64::MAX);
        }
        for (target, at) in peer.places_in_files() {
            self.note_reached(target, at);
        }
    }

    /// How long a client has read nothing although there are bytes for it.
    fn note_stuck(&self, peer: &mut Peer) -> u64 {
        // A part of a record counts, although the client cannot decrypt it yet.
        let all = peer.client.wire().sent_bytes();
        let bytes = all - std::mem::replace(&mut peer.wire_bytes, all);
        let waits = peer.next_ask().is_some_and(|ask| ask.whole_turn.is_some());
        let is_stuck = bytes == 0 && waits && peer.client.wire().wants_room();
        let since_ms = peer.stuck_since_ms.unwrap_or(self.now_ms()).max(self.jumped_at_ms);
        peer.stuck_since_ms = is_stuck.then_some(since_ms);
        self.now_ms() - since_ms
    }

    pub(crate) fn perform(&mut self, task: &Task<FileHandle>) -> Outcome<FileHandle> {
        self.machine.helpers.listing_ms = self.now_ms();
        let outcome = self.machine.helpers.perform(task, &mut self.machine.files, &self.sites, &self.types);
        if let Outcome::Listed(file, ..) = &outcome
            && self.rng.chance(70)
        {
            // The listing is a memory file, whose residency is unknown.
            file.inode.borrow_mut().residency = Residency::Unknown;
        }
        self.tell_all(task, &outcome);
        outcome
    }

    /// Ends a job, unless it was given up before.
    fn end_job(&mut self, number: u64) {
        let Some(mut job) = self.jobs.remove(&number) else { return };
        let task = self.machine.helpers.task(job.id);
        let Some(task) = task else { return };
        if !self.go_on_filling(&mut job, &task) {
            self.after(1, Event::Job(number));
            self.jobs.insert(number, job);
            return;
        }
        let outcome = match job.fate {
            Fate::Ends => job.outcome.take().unwrap_or_else(|| self.perform(&task)),
            Fate::Fails => match self.rng.below(3) {
                0 => Outcome::Exhausted,
                // A buggy helper: the outcome does not match the task.
                1 if matches!(job.subject, Subject::Path(..)) => Outcome::Loaded,
                _ => Outcome::Failed(5),
            },
            Fate::Dies => Outcome::Lost,
        };
        let ended =
            matches!(outcome, Outcome::Found(_) | Outcome::Listed(..) | Outcome::Loaded | Outcome::Bytes(..));
        if !ended || job.fate != Fate::Ends {
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
}

/// Targets whose files never change and never leave memory.
fn hot_targets(disk: &Disk) -> Vec<usize> {
    let is_hot = |target: &usize| {
        let files = disk.files_of(*target);
        !files.is_empty() && files.iter().all(|place| disk.named[*place].hot)
    };
    (0..disk.targets.len()).filter(is_hot).collect()
}

impl Limits {
    /// The limits that follow from the rules.
    fn new(rules: &Rules) -> Self {
        Self {
            freshness_ms: rules.freshness_ms,
            stale_ms: rules.stale_ms,
            head_ms: rules.timeouts.head_ms,
            idle_ms: rules.timeouts.idle_ms,
            job_ms: rules.timeouts.job_ms,
            queue_wait_ms: rules.queue_wait_ms,
            connections_max: rules.admission.connections_max,
            open_files_max: rules.open_files_max,
            name_cache: rules.optimizations.name_cache,
            send_file: rules.optimizations.send_file,
            // At the end of one window, the connection may be waiting for the disk instead of its client.
            stuck_ms: if rules.least_rate_bytes_per_s > 0 {
                2 * (RATE_WINDOW_MS + rules.timeouts.job_ms + 2 * TICK_MS)
            } else {
                u64::MAX
            },
            head_align_bytes: if rules.optimizations.align_heads { HEAD_ALIGN_BYTES } else { 1 },
        }
    }
}
