//! Another worker on the same store and the same disk, with an engine of its own. Its clients request files,
//! some of them read slowly, and their answers are judged like all others. The worker can be killed at any
//! time, whatever it is sending.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use flash_engine::{Engine, JobId, Outcome, Timeouts};
use flash_keeper::HelperId;

use crate::ask::Ask;
use crate::bounded::Bounds;
use crate::client::Peer;
use crate::machine::client::pair;
use crate::machine::store::{Done, Stage, StoreHost, WorkerStore};
use crate::machine::{Client, Count, FileHandle, Machine};
use crate::oracle::Facts;
use crate::plan;
use crate::rng::Rng;
use crate::run::Run;

/// Separates its random numbers from those of the run.
const SIBLING_DICE: u64 = 0x51b1_1265_1b11_2651;
const CLIENTS_MAX: usize = 4;

/// The other worker.
pub(crate) struct Sibling {
    rng: Rng,
    host: Rc<RefCell<StoreHost>>,
    /// The seed of its rules.
    seed: u64,
    /// The engine comes before its machine, because its transfers must be dropped first.
    worker: Option<(Engine<Machine>, Machine)>,
    peers: Vec<Peer>,
    /// The fills of its helpers, by job.
    fills: Vec<(JobId, HelperId)>,
    answers: u64,
    /// The files that it has open.
    open: Count,
}

impl Sibling {
    pub(crate) fn new(seed: u64, host: &Rc<RefCell<StoreHost>>) -> Self {
        let rng = Rng::new(seed ^ SIBLING_DICE);
        Self {
            rng,
            host: Rc::clone(host),
            seed,
            worker: None,
            peers: Vec::new(),
            fills: Vec::new(),
            answers: 0,
            open: Count::default(),
        }
    }

    /// Whether there is something to do without waiting.
    pub(crate) fn is_busy(&self) -> bool {
        let edges = self.peers.iter().any(|peer| peer.client.wire().has_edge());
        let runs = |(engine, machine): &(Engine<Machine>, Machine)| {
            !machine.helpers.running.is_empty() || engine.poll_next_ms() == Some(0)
        };
        edges || self.worker.as_ref().is_some_and(runs)
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.worker = None;
        self.peers.clear();
        assert_eq!(self.open.get(), 0, "property: leaks: the other worker left files open");
        for (_, helper) in self.fills.drain(..) {
            self.host.borrow_mut().helper_gone(helper);
        }
    }

    fn start(&mut self, run: &Run) {
        let mut rules = plan::rules(&mut Rng::new(self.seed), &run.plan);
        // It has the settings of the first worker that the oracle uses.
        let limits = &run.limits;
        rules.sites.clone_from(&run.sites);
        // The bounds are checked for one worker.
        plan::give(&mut rules.sites, run.plan.rule, Bounds::default());
        rules.etag_of_change = run.disk.etag_of_change;
        (rules.freshness_ms, rules.stale_ms) = (limits.freshness_ms, limits.stale_ms);
        rules.timeouts = Timeouts { head_ms: limits.head_ms, idle_ms: limits.idle_ms, job_ms: limits.job_ms };
        rules.admission.connections_max = 100;
        let mut own = Machine::new(2);
        own.now = run.machine.now;
        own.trace.print = run.machine.trace.print;
        own.store = Some(WorkerStore::new(&self.host));
        own.helpers.has_store = true;
        self.worker = Some((Engine::new(rules, own.now), own));
    }

    fn come(&mut self, run: &Run) {
        let Some((engine, machine)) = &mut self.worker else { return };
        let target = self.rng.place(run.targets);
        let ask = if self.rng.chance(50) {
            Ask::simple(&run.disk, target)
        } else {
            Ask::random(&mut self.rng, &run.disk, target, false)
        };
        let (socket, wire) = pair(1_000, machine.sockets_open.up());
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let Ok(key) = engine.handle_accept(machine, socket, address) else { return };
        let mut peer = Peer::new((Client::new(key, wire), address.ip()), false, run.now_ms());
        if self.rng.chance(40) {
            peer.room = Some(self.rng.pick(&[500, 20_000, 150_000]));
            peer.client.set_room(0);
        }
        peer.push(ask);
        peer.send(run.now_ms(), run.turn);
        self.peers.push(peer);
    }

    /// Runs one turn of its loop, with the shared disk.
    fn turn(&mut self, run: &mut Run) {
        if self.worker.is_none() {
            self.start(run);
        }
        if !run.over && self.peers.len() < CLIENTS_MAX && self.rng.chance(30) {
            self.come(run);
        }
        let Some((mut engine, mut machine)) = self.worker.take() else { return };
        std::mem::swap(&mut machine.files, &mut run.machine.files);
        std::mem::swap(&mut machine.files.open, &mut self.open);
        machine.now = run.machine.now;
        machine.trace.note("the other worker's turn", &[]);
        engine.handle_turn(machine.now);
        if self.rng.chance(70) {
            let slots = machine.store.as_mut().map(WorkerStore::hear).unwrap_or_default();
            slots.into_iter().for_each(|slot| engine.handle_leaving(slot.into()));
        }
        for peer in &mut self.peers {
            if let Some(room) = peer.room
                && (run.over || self.rng.chance(20))
            {
                peer.client.add_room(room as usize);
            }
            let edge = peer.client.wire().take_edge();
            if edge != flash_engine::Readiness::default() {
                engine.handle_ready(&mut machine, peer.client.key, edge);
            }
        }
        let running: Vec<JobId> = machine.helpers.running.iter().map(|(id, _)| *id).collect();
        for id in running {
            if let Some(outcome) = self.work(run, &mut machine, id) {
                engine.handle_job(&mut machine, id, outcome);
            }
        }
        machine.helpers.abandoned.clear();
        for id in machine.helpers.take_gone() {
            self.fills.retain(|(job, helper)| {
                let is_its = *job == id;
                if is_its {
                    self.host.borrow_mut().helper_gone(*helper);
                }
                !is_its
            });
            engine.handle_helper_gone(&mut machine, id);
        }
        if std::mem::take(&mut machine.helpers.coming) > 0 {
            machine.helpers.idle += 1;
            engine.handle_helper_ready(&mut machine);
        }
        engine.handle_continued(&mut machine);
        engine.handle_timeouts(&mut machine);
        if let Some(store) = &mut machine.store {
            store.release();
            if self.rng.chance(5) {
                store.keep_house();
            }
        }
        std::mem::swap(&mut machine.files.open, &mut self.open);
        std::mem::swap(&mut machine.files, &mut run.machine.files);
        assert_eq!(engine.counters().panics, 0, "property: no panic: {:?}", machine.reports);
        self.worker = Some((engine, machine));
        self.judge(run);
    }

    /// A helper does its job, or a part of it.
    fn work(&mut self, run: &Run, machine: &mut Machine, id: JobId) -> Option<Outcome<FileHandle>> {
        if self.rng.chance(40) && !run.over {
            return None;
        }
        let task = machine.helpers.task(id)?;
        let Machine { helpers, files, .. } = &mut *machine;
        if let Some((file, block)) = helpers.block_of(&task, files, &run.sites, &run.types) {
            let at = self.fills.iter().position(|(job, _)| *job == id);
            let Some(at) = at else {
                let begun = self.host.borrow_mut().begin(&file, block, machine.now.wall_ns);
                match begun {
                    Some(helper) => self.fills.push((id, helper)),
                    None => {
                        drop(machine.helpers.finish(id));
                        return Some(Outcome::Loaded);
                    }
                }
                return None;
            };
            let (_, helper) = self.fills[at];
            let stage = self.host.borrow().stage(helper);
            if !run.over && self.rng.chance(5) {
                // The helper dies, in any stage of its fill.
                self.host.borrow_mut().helper_gone(helper);
                self.fills.swap_remove(at);
                machine.helpers.die(id);
                return Some(Outcome::Lost);
            }
            match stage {
                Stage::Asked | Stage::Told => return None,
                Stage::Granted(_) => {
                    self.host.borrow_mut().finish(helper);
                    return None;
                }
                Stage::Over => self.host.borrow_mut().end(helper),
            }
            self.fills.swap_remove(at);
            drop(machine.helpers.finish(id));
            return Some(Outcome::Loaded);
        }
        let task = machine.helpers.finish(id);
        machine.helpers.listing_ms = run.now_ms();
        machine.helpers.listing_bytes = run.machine.helpers.listing_bytes;
        let Machine { helpers, files, .. } = machine;
        let outcome = helpers.perform(&task, files, &run.sites, &run.types);
        if self.rng.chance(90) {
            let (sites, types, now) = (&run.sites, &run.types, machine.now);
            let done = Done { task: &task, outcome: &outcome, files, sites, types, now };
            self.host.borrow_mut().names.tell(done);
        }
        Some(outcome)
    }

    /// Judges the answers to its clients. Errors and closed connections need no excuse here; the first worker
    /// covers them.
    fn judge(&mut self, run: &Run) {
        let facts = Facts { excuse_ms: u64::MAX, seen: None, head_align_bytes: 1, ..run.facts() };
        for peer in &mut self.peers {
            let before = peer.answers;
            if let Err(why) = peer.read(&facts, run.turn) {
                let ask = peer.next_ask().map(|ask| ask.bytes.escape_ascii().to_string());
                panic!("property: answers: a client of the other worker: {why}, to {ask:?}");
            }
            self.answers += peer.answers - before;
            if peer.asks.is_empty() && !peer.client.is_closed() && !peer.ended {
                peer.client.end();
                peer.ended = true;
            }
        }
        self.peers.retain(|peer| !peer.client.is_closed());
    }
}

impl Run {
    /// The other worker has a turn, or is killed.
    pub(crate) fn turn_sibling(&mut self) {
        let Some(mut sibling) = self.sibling.take() else { return };
        if !self.over && sibling.rng.chance(1) {
            sibling.kill();
        } else if self.over || sibling.rng.chance(60) {
            sibling.turn(self);
        }
        if self.over && !sibling.is_busy() && sibling.rng.chance(30) {
            // Its clients leave, and it ends.
            sibling.kill();
        } else {
            self.sibling = Some(sibling);
        }
        self.wake_keeper();
    }
}
