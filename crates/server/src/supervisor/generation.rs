//! The processes of one configuration: its workers, their helpers, and its log writer.

use std::io;
use std::process::Child;
use std::sync::Arc;

use flash_prompt::clock;
use flash_prompt::epoll::Epoll;
use flash_waiting::{file, process};

use super::crew::{Death, RESTART_PAUSE_MS, Role, Worker, connect_log, end, has_ended};
use super::logs::{Ended as LogEnd, Logs};
use super::outbox::Shared;
use super::roots::Roots;
use super::sockets::Sockets;
use super::starter::Starter;
use crate::architecture;
use crate::config::{LogFormat, Settings};
use crate::role::STALE_ROOT;
use crate::sandbox::Role as Part;
use flash_worker::control::InForce;
use flash_worker::control::Order;

/// How long the log writer may take for the last lines once its workers are gone.
const LAST_LINES_MS: u64 = 2_000;
/// Helper processes of a worker for each that may be at work: as many again may be ending, some of
/// them hung in the kernel.
const PROCESSES_PER_HELPER: usize = 2;

/// Where a generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not every worker has begun.
    Starting,
    /// It accepts connections.
    Serving,
    /// It finishes what is under way, until then if there is a limit.
    Draining { deadline_ms: Option<u64> },
}

/// The processes of one configuration.
#[derive(Debug)]
pub(super) struct Generation {
    /// Counts the configurations, from 1.
    pub(super) number: u64,
    pub(super) settings: Settings,
    settings_file: Shared,
    pub(super) roots: Roots,
    /// A helper has met a root that is gone, or lacked one.
    pub(super) root_is_stale: bool,
    pub(super) state: State,
    pub(super) workers: Vec<Worker>,
    /// Places whose worker is to be started, and when.
    restarts: Vec<(usize, u64)>,
    pub(super) logs: Logs,
    /// Helpers of workers that are gone, until they are.
    orphans: Vec<Child>,
    /// Every process was killed: their ends are no news.
    pub(super) killed: bool,
}

impl State {
    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Serving => "serving",
            State::Draining { .. } => "draining",
        }
    }
}

impl Generation {
    /// Starts the processes of `settings`. Gives what the operator should know of the roots.
    pub(super) fn start(
        settings: Settings,
        sockets: &Sockets,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<(Generation, Vec<String>)> {
        let (roots, news) = Roots::open(&settings.sites, epoll, numbers)?;
        let settings_file = Arc::new(file::memory_file(settings.to_toml().as_bytes())?);
        let mut generation = Generation {
            number: 1,
            settings,
            settings_file,
            roots,
            root_is_stale: false,
            state: State::Starting,
            workers: Vec::new(),
            restarts: Vec::new(),
            logs: Logs::default(),
            orphans: Vec::new(),
            killed: false,
        };
        match generation.start_all(sockets, epoll, numbers) {
            Ok(()) => Ok((generation, news)),
            Err(e) => {
                generation.workers.drain(..).for_each(|worker| end(worker.role.child));
                generation.logs.end();
                Err(e)
            }
        }
    }

    fn start_all(&mut self, sockets: &Sockets, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        if self.settings.log.format != LogFormat::Off {
            self.logs.start(&self.settings_file, epoll, numbers)?;
        }
        (0..architecture::processes(&self.settings))
            .try_for_each(|place| self.start_worker(place, sockets, epoll, numbers))
    }

    /// Starts a worker. It is told what it needs as it takes it: nobody waits for that.
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
        told = told.and_then(|()| role.orders.give_at_start(Order::Begin));
        match told.and_then(|()| role.orders.watch(epoll)) {
            Ok(()) => self.workers.push(Worker::new(role, place)),
            Err(e) => {
                end(role.child);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Whether every worker has begun, and the log writer, if there is one.
    pub(super) fn is_ready(&self) -> bool {
        self.workers.iter().all(|w| w.role.ready.is_some()) && self.logs.is_ready()
    }

    /// What holds the workers to their part, once they have begun.
    pub(super) fn in_force(&self) -> Option<InForce> {
        self.workers.first().and_then(|worker| worker.role.ready)
    }

    /// The processes of the workers.
    pub(super) fn worker_pids(&self) -> impl Iterator<Item = u32> {
        self.workers.iter().map(|worker| worker.role.pid())
    }

    /// The processes of the helpers, also of those whose workers are gone.
    pub(super) fn helper_pids(&self) -> impl Iterator<Item = u32> {
        let helpers = self.workers.iter().flat_map(|worker| worker.helpers.values());
        helpers.chain(&self.orphans).map(Child::id)
    }

    /// All processes that it waits for.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        let log = self.logs.roles().map(Role::pid);
        self.worker_pids().chain(self.helper_pids()).chain(log).chain(self.roots.pids())
    }

    pub(super) fn has_role(&self, number: u64) -> bool {
        self.workers
            .iter()
            .map(|worker| &worker.role)
            .chain(self.logs.roles())
            .any(|role| role.number() == number)
    }

    pub(super) fn role_mut(&mut self, number: u64) -> Option<&mut Role> {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.role);
        workers.chain(self.logs.roles_mut()).find(|role| role.number() == number)
    }

    pub(super) fn place_of(&self, number: u64) -> Option<usize> {
        self.workers.iter().find(|worker| worker.role.number() == number).map(|worker| worker.place)
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
                "there are {processes_max} already, some of them hung in the kernel"
            )))
        } else {
            worker.start_helper(*numbers, &self.settings_file, &self.roots, starter)
        };
        started.map_err(|e| {
            // One that does not hear it does not hear of helpers, either.
            let _ = worker.role.orders.give(Order::NoHelper);
            io::Error::new(e.kind(), format!("cannot start a helper: {e}"))
        })
    }

    /// Goes on with orders that wait for room, and gives up processes that do not begin. Gives what the
    /// operator should know.
    pub(super) fn go_on(&mut self, now_ms: u64, epoll: &Epoll) -> Vec<String> {
        let mut news = Vec::new();
        for worker in &mut self.workers {
            news.extend(
                worker
                    .go_on(now_ms, epoll)
                    .into_iter()
                    .map(|text| format!("worker {}: {text}", worker.place)),
            );
        }
        let workers = self.workers.iter_mut().map(|worker| (Some(worker.place), &mut worker.role));
        for (place, role) in workers.chain(self.logs.roles_mut().map(|log| (None, log))) {
            let who = place.map_or("the log writer".to_owned(), |place| format!("worker {place}"));
            if let Err(e) = role.orders.go_on().and_then(|()| role.orders.watch(epoll)) {
                news.push(format!("{who} cannot be given its orders, and is ended: {e}"));
                process::kill(&role.child);
            }
            if role.give_up_late(now_ms) {
                news.push(format!("{who} did not begin in time, and is ended"));
            }
        }
        news
    }

    /// Ends a helper that its worker has given up.
    pub(super) fn end_helper(&mut self, number: u64, helper: u64) {
        let worker = self.workers.iter().find(|worker| worker.role.number() == number);
        if let Some(child) = worker.and_then(|worker| worker.helpers.get(&helper)) {
            process::kill(child);
        }
    }

    /// Takes note of every process that has ended, and gives the workers among them.
    pub(super) fn reap(&mut self) -> Vec<Death> {
        self.orphans.retain_mut(|child| !has_ended(child));
        let mut deaths = Vec::new();
        let mut place = 0;
        while let Some(worker) = self.workers.get_mut(place) {
            worker.helpers.retain(|_, child| {
                let Ok(Some(status)) = child.try_wait() else { return true };
                self.root_is_stale |= status.code() == Some(STALE_ROOT.into());
                false
            });
            let Ok(Some(status)) = worker.role.child.try_wait() else {
                place += 1;
                continue;
            };
            let worker = self.workers.swap_remove(place);
            for helper in worker.helpers.into_values() {
                process::kill(&helper);
                self.orphans.push(helper);
            }
            deaths.push(Death { place: worker.place, status, last_words: worker.role.last_words() });
            if self.state == State::Serving {
                self.restarts.push((worker.place, worker.role.restart_ms()));
            }
        }
        deaths
    }

    /// Takes note of log writers that have ended, and of one that has begun to take another's place.
    pub(super) fn reap_logs(&mut self) -> io::Result<Option<LogEnd>> {
        self.logs.take_over(&mut self.workers)?;
        Ok(self.logs.reap(self.state == State::Serving))
    }

    /// Starts a log writer that opens its file anew, since the one at work cannot.
    pub(super) fn replace_log(&mut self, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        if self.state != State::Serving {
            return Err(io::Error::other("its configuration is not in force"));
        }
        self.logs.start_next(&self.settings_file, epoll, numbers)
    }

    /// Starts the log writer again when its time has come.
    pub(super) fn restart_log_when_due(
        &mut self,
        now_ms: u64,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        self.logs.restart_when_due(now_ms, &mut self.workers, &self.settings_file, (epoll, numbers))
    }

    /// Starts workers whose time has come again.
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

    /// When this generation wants attention, in milliseconds of the monotonic clock.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let deadline = match self.state {
            State::Draining { deadline_ms } => deadline_ms,
            State::Starting | State::Serving => None,
        };
        let restarts = self.restarts.iter().map(|(_, at_ms)| *at_ms);
        let check = (self.state == State::Serving).then(|| self.roots.next_ms());
        restarts
            .chain(self.logs.next_ms())
            .chain(check)
            .chain(self.workers.iter().filter_map(Worker::next_ms))
            .chain(deadline)
            .min()
    }

    /// Has the workers finish what is under way, at a stop.
    pub(super) fn stop(&mut self, now_ms: u64) {
        self.drain(Some(now_ms + self.settings.shutdown_timeout_ms));
    }

    /// Has the workers finish what is under way for the next configuration.
    pub(super) fn give_way(&mut self, now_ms: u64) {
        let limit_ms = Some(self.settings.reload_timeout_ms).filter(|ms| *ms > 0);
        self.drain(limit_ms.map(|ms| now_ms + ms));
    }

    fn drain(&mut self, deadline_ms: Option<u64>) {
        // One that was killed has its own.
        if !self.killed {
            self.state = State::Draining { deadline_ms };
        }
        self.restarts.clear();
        self.logs.drain();
        for role in self.workers.iter_mut().map(|worker| &mut worker.role) {
            if role.orders.give(Order::Drain).is_err() {
                process::kill(&role.child);
            }
        }
    }

    /// Ends every process at once; the log writer only when it has outlived its workers. Workers that a kill
    /// does not end have helper threads that hang in the kernel: the second time they are left to it.
    pub(super) fn kill(&mut self) {
        if std::mem::replace(&mut self.killed, true) {
            self.workers.clear();
        }
        self.state = State::Draining { deadline_ms: Some(clock::monotonic_ms() + LAST_LINES_MS) };
        if self.workers.is_empty() {
            self.logs.kill();
        }
        for worker in &self.workers {
            process::kill(&worker.role.child);
            worker.helpers.values().for_each(process::kill);
        }
        self.orphans.iter().for_each(process::kill);
    }

    /// Whether it finishes what is under way, and may go on with it.
    pub(super) fn drains(&self) -> bool {
        !self.killed && matches!(self.state, State::Draining { .. })
    }

    /// Whether its time to drain is over.
    pub(super) fn is_overdue(&self, now_ms: u64) -> bool {
        matches!(self.state, State::Draining { deadline_ms: Some(ms) } if ms <= now_ms) && !self.is_gone()
    }

    /// Whether no worker is left.
    pub(super) fn is_over(&self) -> bool {
        self.workers.is_empty() && self.restarts.is_empty()
    }

    /// Whether the log writer, too, has written its last line and ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_over() && self.logs.is_empty()
    }
}
