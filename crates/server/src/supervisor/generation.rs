//! The processes of one configuration: its workers, their helpers, its gateway and its log writer.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use flash_prompt::clock;
use flash_prompt::epoll::Epoll;
use flash_waiting::file;

use super::child::{LostHelpers, Subprocess};
use super::crew::{Death, HelperNeeds, RESTART_PAUSE_MS, Role, Worker, connect_log};
use super::gateway::Gateway;
use super::logs::{Ended as LogEnd, Logs};
use super::outbox::{Outbox, Shared};
use super::prepare::Prepared;
use super::programs::Programs;
use super::restart::Need;
use super::roots::Roots;
use super::sockets::Sockets;
use super::spool::Spool;
use super::starter::Starter;
use super::store::{SharedStore, Store};
use super::uplink::{Uplink, UplinkPlaces};
use crate::config::architecture;
use crate::config::{CacheMemory, LogFormat, Settings};
use crate::role::STALE_ROOT;
use crate::sandbox::Role as Part;
use flash_worker::control::InForce;
use flash_worker::control::Order;

/// Maximum time of the log writer for the last lines after its workers are gone.
const LAST_LINES_MS: u64 = 2_000;
/// Helper processes of a worker per busy helper: the same number may be ending, some of them hung in the kernel.
const PROCESSES_PER_HELPER: usize = 2;

/// The state of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not every worker is ready.
    Starting,
    /// It accepts connections.
    Serving,
    /// It finishes open requests, until the deadline if there is one.
    Draining { deadline_ms: Option<u64> },
}

/// The processes of one configuration.
#[derive(Debug)]
pub(super) struct Generation {
    /// The number of the configuration, from 1.
    pub(super) number: u64,
    pub(super) settings: Settings,
    settings_file: Shared,
    pub(super) roots: Roots,
    /// See [`Prepared::residency`].
    residency: Result<(), String>,
    /// None if its settings want none.
    store: Option<SharedStore>,
    /// None if the uplink has no known rate.
    uplink: Option<UplinkPlaces>,
    spool: Spool,
    /// Whether a helper found a root gone or missing.
    pub(super) root_is_stale: bool,
    pub(super) state: State,
    pub(super) workers: Vec<Worker>,
    /// Places whose worker must be started, and the times.
    restarts: Vec<(usize, u64)>,
    pub(super) logs: Logs,
    pub(super) gateway: Gateway,
    programs: Programs,
    /// Helpers whose workers are gone, until they end too.
    orphans: Vec<Subprocess>,
    lost_helpers: LostHelpers,
    /// Whether every process was killed: then their ends are not reported.
    pub(super) killed: bool,
}

impl State {
    /// The word for it.
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Serving => "serving",
            State::Draining { .. } => "draining",
        }
    }
}

impl Generation {
    /// Starts the processes of a configuration. Returns messages for the operator about the roots. `store` and `uplink`
    /// are those of an earlier generation, if there is one.
    pub(super) fn start(
        prepared: Prepared,
        (sockets, store, uplink): (&Sockets, &mut Option<SharedStore>, &mut Option<Uplink>),
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<(Generation, Vec<String>)> {
        let Prepared { mut settings, roots, residency, hot_list } = prepared;
        let (roots, mut news) = Roots::of(&settings, roots, epoll, numbers)?;
        let mut settings_file = Arc::new(file::memory_file(settings.to_toml().as_bytes())?);
        if settings.cache_memory.bytes_max() > 0 && store.is_none() {
            match Store::begin(&settings, &settings_file, hot_list, epoll, numbers) {
                Ok(new) => *store = Some(Rc::new(RefCell::new(new))),
                Err(e) => {
                    news.push(format!(
                        "serves without the store: {e}; set cache_memory = 0 to turn the store off"
                    ));
                    settings.cache_memory = CacheMemory::Fixed { bytes: 0, asked_bytes: 0 };
                    settings_file = Arc::new(file::memory_file(settings.to_toml().as_bytes())?);
                }
            }
        }
        let store = store.clone().filter(|_| settings.cache_memory.bytes_max() > 0);
        let has_uplink = settings.schedule.egress_bits_per_s > 0;
        if has_uplink && uplink.is_none() {
            *uplink = Some(Uplink::new()?);
        }
        let uplink = uplink.as_mut().filter(|_| has_uplink).map(Uplink::places).transpose()?;
        let spool = Spool::of(&settings);
        let mut generation = Generation {
            number: 1,
            settings,
            settings_file,
            roots,
            residency,
            store,
            uplink,
            spool,
            root_is_stale: false,
            state: State::Starting,
            workers: Vec::new(),
            restarts: Vec::new(),
            logs: Logs::default(),
            gateway: Gateway::default(),
            programs: Programs::default(),
            orphans: Vec::new(),
            lost_helpers: LostHelpers::default(),
            killed: false,
        };
        match generation.start_all(sockets, epoll, numbers) {
            Ok(()) => Ok((generation, news)),
            Err(e) => {
                generation.workers.drain(..).for_each(|worker| worker.role.child.kill());
                generation.logs.end();
                generation.gateway.end();
                generation.programs.kill(clock::monotonic_ms());
                Err(e)
            }
        }
    }

    fn start_all(&mut self, sockets: &Sockets, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        if self.settings.log.format != LogFormat::Off {
            self.logs.start(&self.settings_file, epoll, numbers)?;
        }
        if self.settings.routes().next().is_some() {
            self.gateway.start(&self.settings_file, epoll, numbers)?;
        }
        self.programs.start(&self.settings, &self.settings_file, &mut self.gateway)?;
        (0..architecture::processes(&self.settings))
            .try_for_each(|place| self.start_worker(place, sockets, epoll, numbers))
    }

    /// Starts a worker. Its orders are sent as it reads them; the supervisor does not wait.
    fn start_worker(
        &mut self,
        place: usize,
        sockets: &Sockets,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        let listeners = sockets.of_worker(place, architecture::sockets(&self.settings))?;
        *numbers += 1;
        let mut role = Role::start(Part::Worker, &self.settings_file, *numbers)?;
        let log = self.logs.current.as_mut();
        let mut told = self.roots.give(&mut role.orders);
        let mut listeners = listeners.into_iter().map(|listener| Order::Listener(Arc::new(listener)));
        told = told.and_then(|()| listeners.try_for_each(|order| role.orders.give_at_start(order)));
        told = told.and_then(|()| log.map_or(Ok(()), |log| connect_log(log, &mut role)));
        told = told.and_then(|()| self.gateway.connect(&mut role));
        if let Some(store) = &self.store {
            let fillers = architecture::fills_at_once(&self.settings);
            told = told.and_then(|()| store.borrow_mut().give_worker(&mut role.orders, fillers));
        }
        if let Some(uplink) = &self.uplink {
            told = told.and_then(|()| uplink.give(place, &mut role.orders));
        }
        told = told.and_then(|()| role.orders.give_at_start(Order::Place(place as u64)));
        told = told.and_then(|()| self.spool.begin(&mut role, clock::monotonic_ms()));
        match told.and_then(|()| role.orders.watch(epoll)) {
            Ok(()) => self.workers.push(Worker::new(role, place)),
            Err(e) => {
                role.child.kill();
                return Err(e);
            }
        }
        Ok(())
    }

    /// Whether every worker, and the gateway and the log writer if there are any, are ready.
    pub(super) fn is_ready(&self) -> bool {
        self.workers.iter().all(|w| w.role.ready.is_some()) && self.gateway.is_ready() && self.logs.is_ready()
    }

    /// Its roots, and whether the kernel reports which parts of their files are in memory.
    pub(super) fn found(&self) -> (&Roots, &Result<(), String>) {
        (&self.roots, &self.residency)
    }

    /// The sandbox of the workers, once they are ready.
    pub(super) fn in_force(&self) -> Option<InForce> {
        self.workers.first().and_then(|worker| worker.role.ready)
    }

    /// The outboxes of the workers that use the store, and the number of blocks that each fills at once.
    pub(super) fn knowing_store(&mut self) -> impl Iterator<Item = (&mut Outbox, usize)> {
        let workers = if self.store.is_some() { self.workers.as_mut_slice() } else { &mut [] };
        let fillers = architecture::fills_at_once(&self.settings);
        workers.iter_mut().map(move |worker| (&mut worker.role.orders, fillers))
    }

    /// The processes that fill the store.
    pub(super) fn filler_pids(&self) -> impl Iterator<Item = u32> {
        let workers = if architecture::fills_at_once(&self.settings) > 0 { usize::MAX } else { 0 };
        self.helper_pids().chain(self.worker_pids().take(workers))
    }

    /// Resizes the store to its settings, when it takes effect.
    pub(super) fn size_store(&self, store: &SharedStore) {
        store.borrow_mut().resize(&self.settings, &self.settings_file);
    }

    /// The processes of the workers.
    pub(super) fn worker_pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.role.pid())
    }

    /// The processes of the helpers, including those whose workers are gone.
    pub(super) fn helper_pids(&self) -> impl Iterator<Item = u32> {
        let helpers = self.workers.iter().flat_map(|worker| worker.helpers.values());
        helpers.chain(&self.orphans).map(Subprocess::id)
    }

    /// All processes that it waits for.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let others = self.gateway.role.iter().chain(self.logs.roles()).map(Role::pid);
        let others = others.chain(self.roots.pids()).chain(self.programs.pids()).chain(self.spool.pid());
        self.worker_pids().chain(self.helper_pids()).chain(others)
    }

    pub(super) fn has_role(&self, number: u64) -> bool {
        let workers = self.workers.iter().map(|worker| &worker.role);
        workers.chain(&self.gateway.role).chain(self.logs.roles()).any(|role| role.number() == number)
    }

    pub(super) fn role_mut(&mut self, number: u64) -> Option<&mut Role> {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.role);
        let others = self.gateway.role.iter_mut().chain(self.logs.roles_mut());
        workers.chain(others).find(|role| role.number() == number)
    }

    /// The name of the role with this number, for messages.
    pub(super) fn name_of(&self, number: u64) -> String {
        let worker = self.workers.iter().find(|worker| worker.role.number() == number);
        let is_gateway = self.gateway.role.as_ref().is_some_and(|role| role.number() == number);
        worker.map_or_else(
            || if is_gateway { "the gateway" } else { "log writer" }.to_owned(),
            |worker| format!("worker {}", worker.place),
        )
    }

    /// Starts a helper for a worker that wants one.
    pub(super) fn start_helper(
        &mut self,
        number: u64,
        numbers: &mut u64,
        starter: &Starter,
    ) -> io::Result<()> {
        let processes_max = self.settings.helpers_max * PROCESSES_PER_HELPER;
        let Some(worker) = self.workers.iter_mut().find(|w| w.role.number() == number) else { return Ok(()) };
        *numbers += 1;
        let started = if worker.helpers.len() >= processes_max {
            Err(io::Error::other(format!(
                "{processes_max} helper processes exist already, and some of them hang in the kernel"
            )))
        } else {
            let what = HelperNeeds {
                settings_file: &self.settings_file,
                roots: &self.roots,
                store: self.store.as_ref(),
            };
            worker.start_helper(*numbers, what, starter)
        };
        started.map_err(|e| {
            // A worker that does not receive this does not receive helpers either.
            let _ = worker.role.orders.give(Order::NoHelper);
            io::Error::new(e.kind(), format!("cannot start a helper: {e}"))
        })
    }

    /// Continues sending orders, and kills processes that are not ready in time. Returns messages for the operator.
    pub(super) fn go_on(&mut self, now_ms: u64, epoll: &Epoll, numbers: &mut u64) -> Vec<String> {
        let mut news = Vec::from_iter(self.spool.go_on(now_ms, &mut self.workers, (epoll, numbers)));
        for worker in &mut self.workers {
            news.extend(
                worker
                    .go_on(now_ms, epoll)
                    .into_iter()
                    .map(|text| format!("worker {}: {text}", worker.place)),
            );
        }
        news.extend(self.lost_helpers.report(now_ms));
        if let Some(why) = self.gateway.role.as_mut().and_then(|role| role.give_up_silent(now_ms)) {
            news.push(format!("killing the gateway: {why}"));
        }
        let workers = self.workers.iter_mut();
        let workers = workers.map(|worker| (format!("worker {}", worker.place), &mut worker.role));
        let gateway = self.gateway.role.iter_mut().map(|role| ("the gateway".to_owned(), role));
        let logs = self.logs.roles_mut().map(|log| ("the log writer".to_owned(), log));
        for (who, role) in workers.chain(gateway).chain(logs) {
            if let Err(e) = role.orders.go_on().and_then(|()| role.orders.watch(epoll)) {
                news.push(format!("killing {who}: cannot send it orders: {e}"));
                role.child.kill();
            }
            if role.give_up_late(now_ms) {
                news.push(format!("killing {who}: it was not ready in time"));
            }
        }
        news
    }

    /// Kills a helper that its worker has given up.
    pub(super) fn end_helper(&mut self, number: u64, helper: u64) {
        let worker = self.workers.iter().find(|worker| worker.role.number() == number);
        if let Some(child) = worker.and_then(|worker| worker.helpers.get(&helper)) {
            child.kill();
        }
    }

    /// Reaps every process that has ended, and returns the workers among them.
    pub(super) fn reap(&mut self) -> Vec<Death> {
        self.orphans.retain_mut(|child| child.ending().is_none());
        let mut deaths = Vec::new();
        let mut place = 0;
        while let Some(worker) = self.workers.get_mut(place) {
            worker.helpers.retain(|_, child| {
                let Some(end) = child.ending() else { return true };
                self.root_is_stale |= end.code() == Some(STALE_ROOT.into());
                self.lost_helpers.note(end);
                false
            });
            let Some(end) = worker.role.child.ending() else {
                place += 1;
                continue;
            };
            let worker = self.workers.swap_remove(place);
            self.uplink.iter().for_each(|uplink| uplink.clear(worker.place));
            for helper in worker.helpers.into_values() {
                helper.kill();
                self.orphans.push(helper);
            }
            let (last_words, counters) = worker.role.last_words();
            let counters = counters.or(worker.counters);
            deaths.push(Death { place: worker.place, end, last_words, counters });
            if self.state == State::Serving {
                self.restarts.push((worker.place, worker.role.restart_ms()));
            }
        }
        deaths
    }

    /// Whether it needs a gateway and a log writer.
    pub(super) fn need(&self) -> Need {
        match self.state {
            State::Serving => Need::ToServe,
            State::Draining { .. } if !self.killed && !self.workers.is_empty() => Need::ToDrain,
            State::Starting | State::Draining { .. } => Need::Not,
        }
    }

    /// Reaps log writers, and switches to a new one that is ready.
    pub(super) fn reap_logs(&mut self) -> io::Result<Option<LogEnd>> {
        self.logs.take_over(&mut self.workers)?;
        Ok(self.logs.reap(self.need()))
    }

    /// Opens the access log again, if it is a file and there still are lines to write.
    pub(super) fn reopen_log(&mut self, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        if self.settings.log.file.is_none() || self.killed || self.is_over() {
            return Ok(());
        }
        self.logs.reopen(&self.settings_file, epoll, numbers)
    }

    /// Restarts the log writer when its time has come.
    pub(super) fn restart_log_when_due(
        &mut self,
        now_ms: u64,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        let when = (now_ms, self.need());
        self.logs.restart_when_due(when, &mut self.workers, &self.settings_file, (epoll, numbers))
    }

    /// Restarts the gateway when its time has come.
    pub(super) fn restart_gateway_when_due(
        &mut self,
        now_ms: u64,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        let when = (now_ms, self.need());
        let known = (&mut self.workers[..], &self.programs);
        self.gateway.restart_when_due(when, known, &self.settings_file, (epoll, numbers))
    }

    /// Handles the programs of routes: those that have ended start again while requests can come, and all end when none is
    /// left. Returns messages for the operator.
    pub(super) fn settle_programs(&mut self, now_ms: u64) -> Vec<String> {
        let is_needed = !self.killed && !self.is_over();
        let mut news = self.programs.reap(is_needed, now_ms);
        if is_needed {
            news.extend(self.programs.go_on(now_ms, &self.settings_file, &mut self.gateway));
        } else {
            self.programs.end(now_ms);
        }
        news
    }

    /// Restarts workers whose time has come.
    pub(super) fn restart_workers(
        &mut self,
        now_ms: u64,
        sockets: &Sockets,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        let (due, later): (Vec<_>, Vec<_>) = self.restarts.iter().partition(|(_, at_ms)| *at_ms <= now_ms);
        self.restarts = later;
        let mut result = Ok(());
        for (place, _) in due {
            if let Err(e) = self.start_worker(place, sockets, epoll, numbers) {
                self.restarts.push((place, now_ms + RESTART_PAUSE_MS));
                result = Err(e);
            }
        }
        result
    }

    /// The next deadline of this generation, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let deadline = match self.state {
            State::Draining { deadline_ms } => deadline_ms,
            State::Starting | State::Serving => None,
        };
        let restarts = self.restarts.iter().map(|(_, at_ms)| *at_ms);
        let check = (self.state == State::Serving).then(|| self.roots.next_ms());
        restarts
            .chain(self.logs.next_ms())
            .chain(self.gateway.next_ms())
            .chain(self.programs.next_ms())
            .chain(self.spool.next_ms())
            .chain(check)
            .chain(self.workers.iter().filter_map(Worker::next_ms))
            .chain(deadline)
            .min()
    }

    /// Drains the workers for a stop.
    pub(super) fn stop(&mut self, now_ms: u64) {
        self.drain(Some(now_ms + self.settings.shutdown_timeout_ms));
    }

    /// Drains the workers for the next configuration.
    pub(super) fn give_way(&mut self, now_ms: u64) {
        let limit_ms = Some(self.settings.reload_timeout_ms).filter(|ms| *ms > 0);
        self.drain(limit_ms.map(|ms| now_ms + ms));
    }

    fn drain(&mut self, deadline_ms: Option<u64>) {
        // A killed generation has its own deadline.
        if !self.killed {
            self.state = State::Draining { deadline_ms };
        }
        self.restarts.clear();
        self.logs.drain();
        self.gateway.drain();
        self.workers.iter_mut().for_each(|worker| worker.role.drain());
    }

    /// Kills every process at once, also programs that have time to end.
    pub(super) fn kill_all(&mut self) {
        self.kill();
        self.programs.kill(clock::monotonic_ms());
    }

    /// Kills every process, except that programs still have their time to end, and the log writer ends after its workers.
    /// Workers that survive have helper threads that hang in the kernel: the second call abandons them.
    pub(super) fn kill(&mut self) {
        let now_ms = clock::monotonic_ms();
        if std::mem::replace(&mut self.killed, true) {
            self.workers.clear();
        }
        self.state = State::Draining { deadline_ms: Some(now_ms + LAST_LINES_MS) };
        if self.workers.is_empty() {
            self.logs.kill();
        }
        self.gateway.kill();
        self.programs.end(now_ms);
        for worker in &self.workers {
            worker.role.child.kill();
            worker.helpers.values().for_each(Subprocess::kill);
        }
        self.orphans.iter().for_each(Subprocess::kill);
    }

    /// Whether it finishes open requests and may continue.
    pub(super) fn drains(&self) -> bool {
        !self.killed && matches!(self.state, State::Draining { .. })
    }

    /// Whether its time to drain is over. Its programs have their own time.
    pub(super) fn is_overdue(&self, now_ms: u64) -> bool {
        let is_late = matches!(self.state, State::Draining { deadline_ms: Some(ms) } if ms <= now_ms);
        is_late && !self.programs.have_time() && !self.is_gone()
    }

    /// The effect of [`kill`](Self::kill), in words for the operator.
    pub(super) fn loss(&self) -> String {
        let loss =
            if self.is_over() { "killed the remaining processes" } else { "cut the remaining requests" };
        format!("{loss} of configuration {}", self.number)
    }

    /// Whether no worker is left.
    pub(super) fn is_over(&self) -> bool {
        self.workers.is_empty() && self.restarts.is_empty()
    }

    /// Whether the gateway and the programs have also ended, and the log writer has written its last line and ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_over() && self.gateway.role.is_none() && self.programs.is_over() && self.logs.is_empty()
    }
}
