//! The processes of one configuration, and how they start, drain and end together.

mod ends;
mod handover;
mod helpers;
mod logs;
mod programs;

use std::io;
use std::sync::Arc;

use flash_prompt::clock;
use flash_waiting::sandbox::privileges;
use flash_waiting::{fanotify, file};
use flash_worker::control::{InForce, Notice, Order};

use crate::certificates::Expiry;
use crate::config::architecture;
use crate::config::{CacheMemory, Settings};
use crate::supervisor::life::{Duty, Pings, State, not_started};
use crate::supervisor::outbox::{self, Outbox, Shared};
use crate::supervisor::prepare::Prepared;
use crate::supervisor::process::Process;
use crate::supervisor::processes::Processes;
use crate::supervisor::roots::Roots;
use crate::supervisor::shared_files::Shares;
use crate::supervisor::sockets::Sockets;
use crate::supervisor::spool::Spool;
use crate::supervisor::store::Store;
use crate::supervisor::{Event, Resources};
pub(super) use handover::LeftGeneration;
use helpers::LostHelpers;
use programs::Programs;

/// Room for pending messages between the gateway and a worker, in bytes.
const GATEWAY_LINK_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(super) struct Generation {
    /// The number of the configuration, from 1.
    pub(super) number: u64,
    pub(super) settings: Settings,
    /// The settings for the processes, and those for workers, who alone have the rules for paths.
    pub(super) settings_file: Shared,
    worker_settings_file: Shared,
    /// Empty once it drains.
    pub(super) sockets: Sockets,
    pub(super) roots: Roots,
    /// See [`Prepared::residency`].
    pub(super) residency: Result<(), String>,
    /// None without addresses for TLS.
    certificates: Option<Shared>,
    pub(super) expiries: Vec<Expiry>,
    /// None without servers over TLS.
    trust: Option<Shared>,
    /// Whether its workers use the store.
    has_store: bool,
    pub(super) watch_by: WatchBy,
    shares: Shares,
    spool: Spool,
    pub(super) state: State,
    /// The end of its time to drain, if that has one.
    deadline_ms: Option<u64>,
    pub(super) processes: Processes,
    programs: Programs,
    lost_helpers: LostHelpers,
    /// Whether the log file must be opened once more: it may have been renamed since the next log writer opened it.
    reopens_log_again: bool,
    /// The program of its processes; None if it is this one.
    program: Option<Shared>,
}

/// The call by which a watcher learns of changes.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchBy {
    Inotify,
    Fanotify,
}

impl WatchBy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inotify => "inotify",
            Self::Fanotify => "fanotify",
        }
    }
}

/// The file by which a process gets its settings.
fn file_of(settings: &Settings) -> io::Result<Shared> {
    Ok(Arc::new(file::memory_file(settings.to_toml().as_bytes())?))
}

impl Generation {
    /// Starts the processes of a configuration. Returns messages for the operator about the roots and the store.
    pub(super) fn start(
        prepared: Prepared,
        sockets: Sockets,
        resources: &mut Resources,
    ) -> io::Result<(Generation, Vec<String>)> {
        let Prepared { mut settings, roots, residency, certificates, trust, hot_list, .. } = prepared;
        let (roots, mut messages) = Roots::of(&settings, roots, &mut resources.poller)?;
        let mut settings_file = file_of(&settings.without_rules())?;
        if settings.cache_memory.bytes_max() > 0 && resources.store.is_none() {
            let begun_with = (hot_list, std::mem::take(&mut resources.kept));
            match Store::start(&settings, &settings_file, begun_with, &mut resources.poller) {
                Ok(store) => {
                    let text = "systemd has kept the store: its contents are those from before the restart";
                    messages.extend(store.is_kept().then(|| text.to_owned()));
                    resources.store = Some(store);
                }
                Err(e) => {
                    messages.push(format!(
                        "serves without the store: {e}; set cache_memory = 0 to turn the store off"
                    ));
                    settings.cache_memory = CacheMemory::Fixed { bytes: 0, asked_bytes: 0 };
                    settings_file = file_of(&settings.without_rules())?;
                }
            }
        }
        let (certificates, expiries) =
            certificates.map_or((None, Vec::new()), |own| (Some(Arc::new(own.file)), own.expiries));
        let shares = resources.files.share(&settings)?;
        let mut generation = Generation {
            number: 1,
            settings_file,
            worker_settings_file: file_of(&settings)?,
            sockets,
            roots,
            residency,
            certificates,
            expiries,
            trust: trust.map(Arc::new),
            watch_by: WatchBy::Inotify,
            has_store: settings.cache_memory.bytes_max() > 0,
            shares,
            spool: Spool::of(&settings),
            settings,
            state: State::Starting,
            deadline_ms: None,
            processes: Processes::default(),
            programs: Programs::default(),
            lost_helpers: LostHelpers::default(),
            reopens_log_again: false,
            program: None,
        };
        // If one cannot start, the others are dropped and so killed.
        for duty in generation.duties() {
            match generation.start_process(duty, resources) {
                // The server does without it, for example if descriptors are few.
                Err(e) if matches!(duty, Duty::Watcher) => {
                    generation.processes.start_later(duty, clock::monotonic_ms());
                    messages.push(not_started(duty, &e));
                }
                started => started?,
            }
        }
        Ok((generation, messages))
    }

    /// The processes that it needs, in the order of their start.
    fn duties(&self) -> Vec<Duty> {
        let mut duties = Vec::new();
        if !self.settings.logs().is_empty() {
            duties.push(Duty::Log);
        }
        if self.settings.routes().next().is_some() {
            duties.push(Duty::Gateway);
        }
        duties.extend(Programs::duties(&self.settings));
        duties.extend((0..architecture::processes(&self.settings)).map(Duty::Worker));
        if self.has_watcher() {
            duties.push(Duty::Watcher);
        }
        duties
    }

    /// Whether a watcher belongs to it. Without a freshness every name is checked, whatever a watcher says.
    pub(super) fn has_watcher(&self) -> bool {
        self.has_store && self.settings.watch && self.settings.freshness_ms > 0
    }

    fn start_process(&mut self, duty: Duty, resources: &mut Resources) -> io::Result<()> {
        match duty {
            Duty::Worker(place) => self.start_worker(place, resources),
            Duty::Gateway => self.start_gateway(resources),
            Duty::Watcher => self.start_watcher(resources),
            Duty::Program(route, number) => self.start_program(route, number, resources),
            Duty::Log | Duty::NextLog => self.start_log(duty, resources),
            // Others start them.
            Duty::Keeper | Duty::OldLog | Duty::Helper(_) => Ok(()),
        }
    }

    /// Starts a worker. Its orders are sent as it reads them; the supervisor does not wait.
    fn start_worker(&mut self, place: usize, resources: &mut Resources) -> io::Result<()> {
        let listeners = self.sockets.of_worker(false, place, architecture::sockets(&self.settings))?;
        let mut worker =
            Process::start(Duty::Worker(place), &self.worker_settings_file, &mut resources.poller)?;
        if architecture::never_waits(&self.settings) {
            worker.pings = Pings::Always;
        }
        self.roots.give(&mut worker.orders)?;
        for listener in listeners {
            worker.orders.give_at_start(Order::Listener(Arc::new(listener)))?;
        }
        if let Some(certificates) = &self.certificates {
            let listeners = self.sockets.of_worker(true, place, architecture::sockets(&self.settings))?;
            resources.tickets.give(&mut worker.orders, certificates, listeners)?;
        }
        if let Some(trust) = &self.trust {
            worker.orders.give_at_start(Order::Trust(Arc::clone(trust)))?;
        }
        if let Some(log) = self.processes.of_mut(Duty::Log) {
            log.link_log(&mut worker)?;
        }
        if let Some(gateway) = self.processes.of_mut(Duty::Gateway) {
            link_gateway(gateway, &mut worker)?;
        }
        if let Some(store) = resources.store.as_mut().filter(|_| self.has_store) {
            store.give_worker(&mut worker.orders, architecture::fills_at_once(&self.settings))?;
        }
        self.shares.give(place, &mut resources.files, &mut worker.orders)?;
        worker.orders.give_at_start(Order::Place(place as u64))?;
        self.spool.begin(&mut worker, clock::monotonic_ms())?;
        self.processes.insert(worker, &resources.poller)
    }

    /// Starts the gateway, and connects it with the workers and the programs.
    fn start_gateway(&mut self, resources: &mut Resources) -> io::Result<()> {
        let mut gateway = Process::start(Duty::Gateway, &self.settings_file, &mut resources.poller)?;
        if let Some(trust) = &self.trust {
            gateway.orders.give_at_start(Order::Trust(Arc::clone(trust)))?;
        }
        for worker in self.processes.workers_mut() {
            link_gateway(&mut gateway, worker)?;
        }
        self.programs.give(&mut gateway.orders)?;
        self.drain_if_late(&mut gateway);
        self.processes.insert(gateway, &resources.poller)
    }

    /// Starts the watcher, and connects it with the keeper.
    fn start_watcher(&mut self, resources: &mut Resources) -> io::Result<()> {
        let Some(store) = resources.store.as_mut() else { return Ok(()) };
        let mut watcher = Process::start(Duty::Watcher, &self.settings_file, &mut resources.poller)?;
        self.roots.give(&mut watcher.orders)?;
        // Without the right, or where one of the roots does not suit, the watcher uses inotify.
        self.watch_by = match privileges::with_reserve(|| fanotify::queue(self.roots.reporting())) {
            Ok(queue) => {
                watcher.orders.give_at_start(Order::Fanotify(Arc::new(queue)))?;
                WatchBy::Fanotify
            }
            Err(_) => WatchBy::Inotify,
        };
        store.give_watcher(&mut watcher.orders)?;
        watcher.orders.give_at_start(Order::Begin)?;
        self.drain_if_late(&mut watcher);
        self.processes.insert(watcher, &resources.poller)
    }

    /// The watcher, for another keeper.
    pub(super) fn watcher_mut(&mut self) -> Option<&mut Outbox> {
        self.processes.of_mut(Duty::Watcher).map(|watcher| &mut watcher.orders)
    }

    /// Makes a new process drain if this configuration drains.
    fn drain_if_late(&self, process: &mut Process) {
        if self.state == State::Draining {
            process.drain(None);
        }
    }

    /// Handles the event of `token`; false if it does not belong to this configuration.
    pub(super) fn handle(&mut self, token: u64, resources: &mut Resources) -> bool {
        if let Some(text) = self.roots.handle(token, &resources.poller) {
            resources.report(text);
            return true;
        }
        let Some(process) = self.processes.get_mut(token) else { return false };
        let is_worker = matches!(process.duty, Duty::Worker(_));
        match process.receive(&resources.poller) {
            Some(Notice::Report(text)) => resources.report(format!("{}: {text}", process.name)),
            Some(Notice::WantHelper) if is_worker => self.start_helper(token, resources),
            Some(Notice::WantRotation) if self.state == State::Serving => self.reopen_log(resources),
            Some(Notice::EndHelper(helper)) => self.end_helper(token, helper),
            Some(Notice::Stats(question, json) | Notice::Stalls(question, json)) => {
                resources.events.push(Event::Report { worker: token, question, json });
            }
            _ => {}
        }
        if let Some(ended) = self.processes.take_ended(token) {
            self.handle_end(ended, resources);
        }
        true
    }

    pub(super) fn advance(&mut self, now_ms: u64, resources: &mut Resources) {
        if self.state == State::Serving {
            self.roots.check_when_due(now_ms, &mut resources.poller);
        }
        self.advance_logs(resources);
        if self.is_over() {
            self.end_programs(now_ms);
        }
        for duty in self.processes.take_due(now_ms) {
            if let Err(e) = self.start_process(duty, resources) {
                self.processes.start_later(duty, now_ms);
                resources.report(not_started(duty, &e));
            }
        }
        self.close_idle_sockets();
        let spool = self.spool.advance(now_ms, &mut self.processes, &mut resources.poller);
        resources.events.extend(spool.map(Event::Message));
        self.introduce_helpers(resources);
        for kill in self.processes.advance(now_ms, &resources.poller) {
            self.report_kill(&kill, resources);
        }
        for ended in self.processes.take_abandoned() {
            self.handle_end(ended, resources);
        }
        resources.events.extend(self.lost_helpers.report(now_ms).map(Event::Message));
        if self.drained_ms().is_some_and(|ms| ms <= now_ms) {
            resources.report(format!("{}: they did not finish in time", self.loss()));
            self.kill(now_ms);
        }
    }

    /// The end of its time to drain. Programs have their own time, until they are killed.
    fn drained_ms(&self) -> Option<u64> {
        let is_left = |process: &Process| match process.duty {
            Duty::Helper(_) => false,
            Duty::Program(..) => process.state == State::Killed,
            _ => true,
        };
        let drains = self.state == State::Draining && self.processes.iter().any(is_left);
        self.deadline_ms.filter(|_| drains)
    }

    /// The next time at which there is something to do, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let check_ms = (self.state == State::Serving).then(|| self.roots.next_ms());
        let all = [self.processes.next_ms(), self.spool.next_ms(), check_ms, self.drained_ms()];
        all.into_iter().flatten().min()
    }

    /// Whether every worker, and the gateway and the log writer if there are any, are ready.
    pub(super) fn is_ready(&self) -> bool {
        let mut needed = self.processes.iter().filter(|process| !matches!(process.duty, Duty::Helper(_)));
        needed.all(|process| process.is_ready)
    }

    /// The sandbox of the workers, once they are ready.
    pub(super) fn in_force(&self) -> Option<InForce> {
        self.processes.workers().next().and_then(|worker| worker.in_force)
    }

    /// The outboxes of the workers that use the store, and the number of blocks that each fills at once.
    pub(super) fn store_users(&mut self) -> impl Iterator<Item = (&mut Outbox, usize)> {
        let fillers = architecture::fills_at_once(&self.settings);
        let has_store = self.has_store;
        let workers = self.processes.workers_mut().filter(move |_| has_store);
        workers.map(move |worker| (&mut worker.orders, fillers))
    }

    /// The tokens of the processes that fill the store.
    pub(super) fn fillers(&self) -> impl Iterator<Item = u64> {
        let workers = if architecture::fills_at_once(&self.settings) > 0 { usize::MAX } else { 0 };
        self.processes.helpers().chain(self.processes.workers().take(workers)).map(Process::token)
    }

    /// Drains the workers for a stop.
    pub(super) fn stop(&mut self, now_ms: u64) {
        self.drain(Some(now_ms + self.settings.shutdown_timeout_ms));
    }

    /// Drains the workers for the next configuration.
    pub(super) fn give_way(&mut self, now_ms: u64) {
        std::mem::take(&mut self.sockets).give_way();
        let limit_ms = Some(self.settings.reload_timeout_ms).filter(|ms| *ms > 0);
        self.drain(limit_ms.map(|ms| now_ms + ms));
    }

    fn drain(&mut self, deadline_ms: Option<u64>) {
        self.sockets = Sockets::default();
        if self.state == State::Killed {
            return;
        }
        (self.state, self.deadline_ms) = (State::Draining, deadline_ms);
        // Programs still answer the requests that the workers finish.
        self.processes.cancel_restarts(|duty| !matches!(duty, Duty::Program(..)));
        self.drop_next_log();
        for process in self.processes.iter_mut() {
            if !matches!(process.duty, Duty::Program(..) | Duty::Helper(_)) {
                process.drain(None);
            }
        }
    }

    /// Kills its processes: programs and log writers have a last grace time.
    pub(super) fn kill(&mut self, now_ms: u64) {
        self.state = State::Killed;
        self.processes.cancel_restarts(|_| true);
        self.drop_next_log();
        self.end_programs(now_ms);
        for process in self.processes.iter_mut() {
            match process.duty.rules().grace_ms {
                0 => process.kill(),
                _ if matches!(process.duty, Duty::Program(..)) => {}
                grace_ms => process.drain(Some(now_ms + grace_ms)),
            }
        }
    }

    /// The same, without grace for programs.
    pub(super) fn kill_at_once(&mut self, now_ms: u64) {
        self.kill(now_ms);
        let programs = self.processes.iter_mut().filter(|process| matches!(process.duty, Duty::Program(..)));
        programs.for_each(Process::kill);
    }

    /// The effect of [`kill`](Self::kill), in words for the operator.
    pub(super) fn loss(&self) -> String {
        let loss =
            if self.is_over() { "killed the remaining processes" } else { "cut the remaining requests" };
        format!("{loss} of configuration {}", self.number)
    }

    /// Whether no worker is left.
    pub(super) fn is_over(&self) -> bool {
        !self.processes.has_workers()
    }

    /// Whether the other processes have also ended. Helpers may be left, which were killed with their workers. One that was
    /// adopted keeps its sockets for the configuration that follows.
    pub(super) fn is_gone(&self) -> bool {
        self.state != State::Adopted
            && self.is_over()
            && self.processes.iter().all(|process| matches!(process.duty, Duty::Helper(_)))
    }
}

fn link_gateway(gateway: &mut Process, worker: &mut Process) -> io::Result<()> {
    outbox::link(&mut gateway.orders, &mut worker.orders, Order::Gateway, GATEWAY_LINK_BYTES)
}
