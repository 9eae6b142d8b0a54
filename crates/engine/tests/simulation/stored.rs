//! The store in a run: a keeper with turns at random times, fills whose helpers can die after each step, and
//! troubles of store and keeper.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use flash_engine::{Finding, JobId, Outcome, Task};
use flash_keeper::HelperId;

use crate::machine::store::{ALL_ACTIONS, Done, Stage, StoreHost, WorkerStore};
use crate::machine::{FileHandle, Machine, StoreSize};
use crate::plan::STORE_BYTES;
use crate::rng::Rng;
use crate::run::{Event, Fate, Job, Run};
use crate::watcher::Watcher;

/// Separates the random numbers of the store from those of the run.
pub(crate) const STORE_DICE: u64 = 0x5704_e570_4e57_04e5;

/// The store of a run, if it has one.
pub(crate) struct Keeping {
    pub(crate) host: Option<Rc<RefCell<StoreHost>>>,
    rng: Rng,
    /// When the keeper has its next turn.
    due_ms: u64,
    /// Fills of helpers whose jobs were given up, by job.
    pub(crate) hung: BTreeMap<u64, HelperId>,
    size: Option<StoreSize>,
    /// None in half of the runs, in which nothing is watched.
    pub(crate) watcher: Option<Watcher>,
}

impl Keeping {
    pub(crate) fn new(seed: u64, size: Option<StoreSize>, machine: &mut Machine) -> Self {
        let host = size.map(|size| Rc::new(RefCell::new(StoreHost::new(size))));
        machine.store = host.as_ref().map(WorkerStore::new);
        machine.helpers.has_store = host.is_some();
        let watcher = Watcher::new(seed).filter(|_| host.is_some());
        if let (Some(host), Some(_)) = (&host, &watcher) {
            host.borrow_mut().names.has_watcher = true;
            // The directories of the simulation change untold.
            host.borrow_mut().names.reports_listings = false;
        }
        let rng = Rng::new(!seed ^ STORE_DICE);
        Self { host, rng, due_ms: u64::MAX, hung: BTreeMap::new(), size, watcher }
    }

    /// A number that depends on every event in the store.
    pub(crate) fn hash(&self) -> u64 {
        let tally = self.host.as_ref().map(|host| host.borrow().tally).unwrap_or_default();
        [tally.given, tally.refused, tally.evicted, tally.keepers]
            .into_iter()
            .fold(1, |hash: u64, number| hash.wrapping_mul(1_000_003).wrapping_add(number))
    }

    pub(crate) fn has_unheard(&self) -> bool {
        self.host.as_ref().is_some_and(|host| host.borrow().has_unheard())
    }
}

impl Run {
    /// Schedules a turn of the keeper if it needs one.
    pub(crate) fn wake_keeper(&mut self) {
        let now_ms = self.now_ms();
        let Some(host) = &self.store.host else { return };
        let (is_busy, next_ms) = (host.borrow().is_busy(), host.borrow().next_ms());
        let next_ms = next_ms.map(|ms| ms.max(now_ms + 1));
        let soon_ms = is_busy.then(|| now_ms + self.store.rng.pick(&[0, 0, 0, 1, 4]));
        let Some(at_ms) = next_ms.into_iter().chain(soon_ms).min().filter(|ms| *ms < self.store.due_ms)
        else {
            return;
        };
        self.store.due_ms = at_ms;
        self.after(at_ms - now_ms, Event::Keeper);
    }

    pub(crate) fn turn_keeper(&mut self) {
        let now_ms = self.now_ms();
        self.store.due_ms = u64::MAX;
        let Some(host) = &self.store.host else { return };
        let dies = !self.over && self.store.rng.chance(1);
        let actions_max = if dies { self.store.rng.below(4) as usize } else { ALL_ACTIONS };
        host.borrow_mut().names.is_heard = self.over || self.store.rng.chance(80);
        host.borrow_mut().heard_at_once = self.store.rng.pick(&[usize::MAX, usize::MAX, 1, 0]);
        host.borrow_mut().turn(now_ms, actions_max);
        self.check_watched();
        let is_dead = !host.borrow().has_keeper();
        if is_dead && dies {
            let in_ms = self.store.rng.pick(&[0, 5, 300]);
            self.after(in_ms, Event::NewKeeper);
        }
        self.wake_keeper();
    }

    pub(crate) fn replace_keeper(&mut self) {
        let Some(host) = &self.store.host else { return };
        let is_dead = !host.borrow().has_keeper();
        if is_dead {
            host.borrow_mut().replace_keeper();
            self.store.watcher.iter_mut().for_each(Watcher::begin_anew);
        }
        self.wake_keeper();
    }

    /// Something happens to the store.
    pub(crate) fn store_trouble(&mut self) {
        let Some(host) = self.store.host.clone().filter(|_| !self.over) else { return };
        let rng = &mut self.store.rng;
        let in_ms = rng.between(1, self.plan.trouble_ms * 4);
        match rng.below(12) {
            0 => {
                host.borrow_mut().lose_keeper();
                let in_ms = rng.pick(&[0, 3, 100, 1_000]);
                self.after(in_ms, Event::NewKeeper);
            }
            1 | 2 if !self.plan.ample => {
                let bytes_max = rng.pick(&STORE_BYTES);
                host.borrow_mut().set_bytes_max(bytes_max);
                // The next turn of the keeper can be much later.
                self.turn_keeper();
            }
            3 => {
                if let Some(store) = &mut self.machine.store {
                    store.keep_house();
                }
            }
            _ => {}
        }
        self.wake_keeper();
        self.after(in_ms, Event::StoreTrouble);
    }

    /// Ends the troubles of the store.
    pub(crate) fn mend_store(&mut self) {
        self.replace_keeper();
        if let (Some(host), Some(size)) = (&self.store.host, self.store.size) {
            host.borrow_mut().set_bytes_max(size.bytes_max);
        }
        self.turn_keeper();
    }

    /// The worker receives the keeper's messages, sooner or later.
    pub(crate) fn hear_keeper(&mut self) {
        let Some(store) = &mut self.machine.store else { return };
        if self.store.rng.chance(20) {
            return;
        }
        for slot in store.hear() {
            self.machine.trace.note("leaving", &[slot.into()]);
            self.engine.handle_leaving(slot.into());
        }
    }

    /// Called after each turn.
    pub(crate) fn release_blocks(&mut self) {
        if let Some(store) = &mut self.machine.store {
            store.release();
            self.wake_keeper();
        }
    }

    pub(crate) fn begin_fill(&mut self, file: &FileHandle, block: u64) -> Option<HelperId> {
        let wall_ns = self.machine.now.wall_ns;
        let helper = self.store.host.as_ref()?.borrow_mut().begin(file, block, wall_ns);
        self.wake_keeper();
        helper
    }

    /// A helper tells the keeper what it has found, unless it dies before.
    pub(crate) fn tell_all(&mut self, task: &Task<FileHandle>, outcome: &Outcome<FileHandle>) {
        let Some(host) = &self.store.host else { return };
        if self.store.rng.chance(90) {
            let Machine { files, now, .. } = &mut self.machine;
            let (sites, types, now) = (&self.sites, &self.types, *now);
            host.borrow_mut().names.tell(Done { task, outcome, files, sites, types, now });
        }
        if let Task::Find { site, path } = task
            && !self.over
            && self.store.watcher.as_mut().is_some_and(Watcher::overtakes)
        {
            self.overtake_finding(*site, path);
        }
        self.wake_keeper();
    }

    /// A helper continues its job. Returns false while the job waits for the store.
    pub(crate) fn go_on_filling(&mut self, job: &mut Job, task: &Task<FileHandle>) -> bool {
        let Some(host) = self.store.host.clone() else { return true };
        if let (Task::Find { .. }, None, Fate::Ends) = (task, job.fill, job.fate) {
            let outcome = job.outcome.take().unwrap_or_else(|| self.perform(task));
            if let Outcome::Found(Finding::File { plain, .. }) = &outcome
                && let Some(file) = &plain.file
                && self.store.rng.chance(60)
            {
                job.fill = self.begin_fill(file, 0);
            }
            job.outcome = Some(outcome);
            return job.fill.is_none();
        }
        let Some(helper) = job.fill else { return true };
        let stage = host.borrow().stage(helper);
        match (job.fate, stage) {
            (_, Stage::Over) => host.borrow_mut().end(helper),
            (Fate::Dies, _) => host.borrow_mut().helper_gone(helper),
            (Fate::Fails, Stage::Granted(_)) => host.borrow_mut().fail(helper),
            (Fate::Ends, Stage::Granted(_)) => host.borrow_mut().finish(helper),
            (_, Stage::Asked | Stage::Told) => {}
        }
        self.wake_keeper();
        let is_over = stage == Stage::Over || job.fate == Fate::Dies;
        if is_over {
            job.fill = None;
            if job.fate == Fate::Ends && matches!(task, Task::Fill { .. }) {
                self.tell_all(task, &Outcome::Loaded);
            }
            self.machine.trace.note("filled", &[u64::from(helper.0)]);
        }
        is_over
    }

    /// A helper that was given up during a fill has ended. It may have written until now.
    pub(crate) fn end_hung_fill(&mut self, id: JobId) {
        let Some(helper) = self.store.hung.remove(&id.to_u64()) else { return };
        let Some(host) = self.store.host.clone() else { return };
        if self.store.rng.chance(50) {
            host.borrow_mut().finish(helper);
        }
        host.borrow_mut().helper_gone(helper);
        self.wake_keeper();
    }
}
