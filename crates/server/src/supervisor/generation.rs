//! The processes of one configuration: its workers, their helpers, and its log writer.

use std::collections::HashMap;
use std::io;
use std::process::{Child, ExitStatus};

use flash_prompt::OwnedFd;
use flash_prompt::epoll::{Epoll, Watch};
use flash_prompt::{channel, clock};
use flash_waiting::{file, process};

use super::roots::Roots;
use super::sockets::Sockets;
use super::starter::Starter;
use crate::architecture;
use crate::config::{LogFormat, Settings};
use crate::role::STALE_ROOT;
use crate::sandbox::Role as Part;
use flash_worker::control::InForce;
use flash_worker::control::{CHANNEL_BYTES, Notice, Order, receive_notice, send_order};
use flash_worker::protocol::MESSAGE_BYTES_MAX;

/// A worker or log writer that ends sooner than this after its start is started again after a pause.
const STEADY_MS: u64 = 1_000;
/// That pause.
const RESTART_PAUSE_MS: u64 = 1_000;
/// How long the log writer may take for the last lines once its workers are gone.
const LAST_LINES_MS: u64 = 2_000;
/// Helper processes of a worker for each that may be at work: as many again may be ending, some of
/// them hung in the kernel.
const PROCESSES_PER_HELPER: usize = 2;

/// A process with a control channel.
#[derive(Debug)]
pub(super) struct Role {
    child: Child,
    pub(super) channel: OwnedFd,
    /// Its token in the supervisor's epoll.
    pub(super) number: u64,
    /// What holds it to its part, once it has begun.
    pub(super) ready: Option<InForce>,
    pub(super) started_ms: u64,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) role: Role,
    pub(super) place: usize,
    helpers: HashMap<u64, Child>,
}

/// Where a generation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not every worker has begun.
    Starting,
    /// It accepts connections.
    Serving,
    /// It finishes what is under way, until then.
    Draining { deadline_ms: u64 },
}

/// The processes of one configuration.
#[derive(Debug)]
pub(super) struct Generation {
    /// Counts the configurations, from 1.
    pub(super) number: u64,
    pub(super) settings: Settings,
    settings_file: OwnedFd,
    pub(super) roots: Roots,
    /// A helper has met a root that is gone, or lacked one.
    pub(super) root_is_stale: bool,
    pub(super) state: State,
    pub(super) workers: Vec<Worker>,
    /// Places whose worker is to be started, and when.
    restarts: Vec<(usize, u64)>,
    pub(super) log: Option<Role>,
    /// When the log writer is to be started again.
    log_restart_ms: Option<u64>,
    /// Helpers of workers that are gone, until they are.
    orphans: Vec<Child>,
    /// Every process was killed.
    killed: bool,
}

/// A worker that ended by itself.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) place: usize,
    pub(super) status: ExitStatus,
    /// What it had said and nobody had heard yet.
    pub(super) last_words: Vec<String>,
}

impl Role {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
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
        let settings_file = file::memory_file(settings.to_toml().as_bytes())?;
        let mut generation = Generation {
            number: 1,
            settings,
            settings_file,
            roots,
            root_is_stale: false,
            state: State::Starting,
            workers: Vec::new(),
            restarts: Vec::new(),
            log: None,
            log_restart_ms: None,
            orphans: Vec::new(),
            killed: false,
        };
        match generation.start_all(sockets, epoll, numbers) {
            Ok(()) => Ok((generation, news)),
            Err(e) => {
                generation
                    .workers
                    .drain(..)
                    .map(|worker| worker.role)
                    .chain(generation.log.take())
                    .for_each(|role| end(role.child));
                Err(e)
            }
        }
    }

    fn start_all(&mut self, sockets: &Sockets, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        if self.settings.log.format != LogFormat::Off {
            self.log = Some(self.start_role(Part::Log, epoll, numbers)?);
        }
        (0..architecture::processes(&self.settings))
            .try_for_each(|place| self.start_worker(place, sockets, epoll, numbers))
    }

    /// Starts a log writer or a worker. What is sent to a worker before it begins may be more than its channel holds,
    /// and it takes it in its time: so that waits, and the channel does not wait only after that.
    fn start_role(&self, part: Part, epoll: &Epoll, numbers: &mut u64) -> io::Result<Role> {
        let name = part.name();
        let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
        send_order(&ours, &Order::Settings(self.settings_file.try_clone()?))?;
        let child = process::start_role(name, theirs)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start a {name} process: {e}")))?;
        *numbers += 1;
        let number = *numbers;
        let given = match part {
            Part::Worker => if_there(self.roots.give(&ours)),
            Part::Log | Part::Helper => channel::set_nonblocking(&ours),
        };
        if let Err(e) = given.and_then(|()| epoll.add(&ours, number, Watch::Input)) {
            end(child);
            return Err(e);
        }
        Ok(Role { child, channel: ours, number, ready: None, started_ms: clock::monotonic_ms() })
    }

    fn start_worker(
        &mut self,
        place: usize,
        sockets: &Sockets,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        let mut listeners =
            sockets.of_worker(place, architecture::sockets(&self.settings))?.into_iter().map(Order::Listener);
        let role = self.start_role(Part::Worker, epoll, numbers)?;
        let told = listeners.try_for_each(|order| order_if_there(&role, &order));
        let told = told.and_then(|()| self.log.as_ref().map_or(Ok(()), |log| connect_log(log, &role)));
        let told = told.and_then(|()| order_if_there(&role, &Order::Begin));
        match told.and_then(|()| channel::set_nonblocking(&role.channel)) {
            Ok(()) => self.workers.push(Worker { role, place, helpers: HashMap::new() }),
            Err(e) => {
                end(role.child);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Whether every worker has begun, and the log writer, if there is one.
    pub(super) fn is_ready(&self) -> bool {
        let log = self.log.as_ref();
        self.workers.iter().all(|w| w.role.ready.is_some()) && log.is_none_or(|log| log.ready.is_some())
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

    pub(super) fn has_role(&self, number: u64) -> bool {
        self.workers.iter().map(|worker| &worker.role).chain(&self.log).any(|role| role.number == number)
    }

    pub(super) fn role_mut(&mut self, number: u64) -> Option<&mut Role> {
        let workers = self.workers.iter_mut().map(|worker| &mut worker.role);
        workers.chain(&mut self.log).find(|role| role.number == number)
    }

    pub(super) fn place_of(&self, number: u64) -> Option<usize> {
        self.workers.iter().find(|worker| worker.role.number == number).map(|worker| worker.place)
    }

    /// Starts a helper for a worker that wants one.
    pub(super) fn start_helper(
        &mut self,
        number: u64,
        numbers: &mut u64,
        starter: &Starter,
    ) -> io::Result<()> {
        let processes_max = self.settings.helpers_max * PROCESSES_PER_HELPER;
        let Some(worker) = self.workers.iter_mut().find(|w| w.role.number == number) else { return Ok(()) };
        let started = if worker.helpers.len() >= processes_max {
            Err(io::Error::other(format!(
                "there are {processes_max} already, some of them hung in the kernel"
            )))
        } else {
            start_helper_process(&self.settings_file, &self.roots, starter)
        };
        match started {
            Ok((child, channel)) => {
                *numbers += 1;
                worker.helpers.insert(*numbers, child);
                send_order(&worker.role.channel, &Order::Helper(*numbers, channel))
            }
            Err(e) => {
                send_order(&worker.role.channel, &Order::NoHelper)?;
                Err(io::Error::new(e.kind(), format!("cannot start a helper: {e}")))
            }
        }
    }

    /// Ends a helper that its worker has given up.
    pub(super) fn end_helper(&mut self, number: u64, helper: u64) {
        let worker = self.workers.iter().find(|worker| worker.role.number == number);
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
            let mut last_words = Vec::new();
            while let Ok(notice) = receive_notice(&worker.role.channel) {
                if let Notice::Report(text) = notice {
                    last_words.push(text);
                }
            }
            deaths.push(Death { place: worker.place, status, last_words });
            if self.state == State::Serving {
                self.restarts.push((worker.place, restart_ms(&worker.role)));
            }
        }
        deaths
    }

    /// Whether the log writer has ended although it is needed.
    pub(super) fn log_has_died(&mut self) -> bool {
        let Some(log) = self.log.as_mut() else { return false };
        if !has_ended(&mut log.child) {
            return false;
        }
        if self.state == State::Serving {
            self.log_restart_ms = Some(restart_ms(log));
        }
        self.log = None;
        true
    }

    /// Starts the log writer again when its time has come.
    pub(super) fn restart_log_when_due(
        &mut self,
        now_ms: u64,
        epoll: &Epoll,
        numbers: &mut u64,
    ) -> io::Result<()> {
        if self.log_restart_ms.is_none_or(|ms| ms > now_ms) {
            return Ok(());
        }
        self.log_restart_ms = None;
        let restarted = self.restart_log(epoll, numbers);
        if restarted.is_err() {
            self.log_restart_ms = Some(now_ms + RESTART_PAUSE_MS);
        }
        restarted
    }

    /// Starts the log writer again and connects every worker to it.
    fn restart_log(&mut self, epoll: &Epoll, numbers: &mut u64) -> io::Result<()> {
        let log = self.start_role(Part::Log, epoll, numbers)?;
        for worker in &self.workers {
            connect_log(&log, &worker.role)?;
        }
        self.log = Some(log);
        Ok(())
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
            State::Draining { deadline_ms } => Some(deadline_ms),
            _ => None,
        };
        self.restarts.iter().map(|(_, at_ms)| *at_ms).chain(self.log_restart_ms).chain(deadline).min()
    }

    /// Has the workers finish what is under way.
    pub(super) fn drain(&mut self, now_ms: u64) {
        self.state = State::Draining { deadline_ms: now_ms + self.settings.shutdown_timeout_ms };
        self.restarts.clear();
        self.log_restart_ms = None;
        for role in self.workers.iter().map(|worker| &worker.role).chain(&self.log) {
            if send_order(&role.channel, &Order::Drain).is_err() {
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
        self.state = State::Draining { deadline_ms: clock::monotonic_ms() + LAST_LINES_MS };
        if let Some(log) = self.log.as_ref().filter(|_| self.workers.is_empty()) {
            process::kill(&log.child);
        }
        for worker in &self.workers {
            process::kill(&worker.role.child);
            worker.helpers.values().for_each(process::kill);
        }
        self.orphans.iter().for_each(process::kill);
    }

    /// Whether no worker is left.
    pub(super) fn is_over(&self) -> bool {
        self.workers.is_empty() && self.restarts.is_empty()
    }

    /// Whether the log writer, too, has written its last line and ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_over() && self.log.is_none()
    }
}

fn start_helper_process(
    settings_file: &OwnedFd,
    roots: &Roots,
    starter: &Starter,
) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = channel::pair(2 * MESSAGE_BYTES_MAX)?;
    send_order(&ours, &Order::Settings(settings_file.try_clone()?))?;
    let child = starter.start(theirs)?;
    // A channel of many roots is emptied while it is filled, so the helper is there first.
    match if_there(roots.give(&ours).and_then(|()| send_order(&ours, &Order::Begin))) {
        Ok(()) => Ok((child, ours)),
        Err(e) => {
            end(child);
            Err(e)
        }
    }
}

/// Gives a worker and the log writer the two ends of a channel.
fn connect_log(log: &Role, worker: &Role) -> io::Result<()> {
    let (to_log, from_worker) = channel::pair(8 * flash_worker::BATCH_BYTES_MAX)?;
    order_if_there(log, &Order::Log(from_worker))?;
    order_if_there(worker, &Order::Log(to_log))
}

/// Gives an order to a role that may have died: it is replaced, and the order given again, once
/// it is reaped.
fn order_if_there(role: &Role, order: &Order) -> io::Result<()> {
    if_there(send_order(&role.channel, order))
}

/// Passes over that the other end is gone.
fn if_there(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
        other => other,
    }
}

/// When a process that has just ended is started again: after a pause if it did not live long.
fn restart_ms(role: &Role) -> u64 {
    let now_ms = clock::monotonic_ms();
    if now_ms >= role.started_ms + STEADY_MS { now_ms } else { now_ms + RESTART_PAUSE_MS }
}

/// Ends a process that could not be told what it needs.
fn end(mut child: Child) {
    process::kill(&child);
    // It is in no call yet that could hang.
    let _ = child.wait();
}

fn has_ended(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(Some(_)))
}
