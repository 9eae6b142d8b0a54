//! The supervisor: binds sockets, reads the configuration, starts and restarts the other roles, and receives signals. It does no
//! request work, so it may wait.

mod control_socket;
mod crew;
mod gateway;
mod generation;
mod local_socket;
mod logs;
mod messages;
mod outbox;
mod programs;
mod roots;
mod sockets;
mod start_line;
mod starter;
mod store;
mod uplink;

use std::io::{self, Write};
use std::process::{ExitCode, ExitStatus};

use flash_prompt::OwnedFd;
use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::process;
use flash_waiting::sandbox::{VIOLATION_EXIT_CODE, privileges};
use flash_waiting::signal::{self, Signal};
use flash_waiting::systemd;

use crate::config::{self, BackendOptions, ConfigError, LogFormat, Settings, Sources};
use control_socket::{ControlSocket, Subject};
use crew::Death;
use flash_worker::control::{Notice, receive_notice};
use generation::{Generation, State};
use logs::Ended as LogEnd;
use messages::Messages;
use sockets::Sockets;
use starter::Starter;
use store::SharedStore;
use uplink::Uplink;

const SIGNALS: u64 = 0;
/// When memory runs out, the supervisor is killed last: without it there is no server. Smaller than the shifts of the
/// roles, which start from its value.
const OOM_SCORE_SHIFT: i32 = -200;
/// Maximum old configurations that drain at once.
const DRAINING_MAX: usize = 4;

/// The program that a supervisor runs, with the inputs of its settings.
#[derive(Debug)]
pub(crate) enum Program {
    /// `flash serve`.
    Serve(Sources),
    /// `flash backend`.
    Backend(BackendOptions),
}

impl Program {
    /// Makes the settings. It may be called any number of times.
    fn load(&self) -> Result<Settings, ConfigError> {
        match self {
            Program::Serve(sources) => sources.load(),
            Program::Backend(options) => options.load(),
        }
    }
}

/// Runs a server until a signal stops it.
pub(crate) fn serve(program: Program) -> ExitCode {
    let settings = match program.load() {
        Ok(settings) => settings,
        Err(error) => {
            error.print();
            return ExitCode::FAILURE;
        }
    };
    let begun = Sockets::local(&settings).and_then(|sockets| Ok((sockets, begin()?)));
    let (local, (signals, messages)) = match begun {
        Ok(begun) => begun,
        Err(e) => {
            // The reader of standard error may be gone.
            let _ = writeln!(io::stderr(), "flash: {e}");
            return ExitCode::FAILURE;
        }
    };
    let started = Supervisor::start(program, (settings, local), signals, &messages);
    let code = started.and_then(Supervisor::run).unwrap_or_else(|e| {
        messages.say(&e.to_string());
        ExitCode::FAILURE
    });
    messages.finish();
    code
}

/// Sets everything that threads inherit, then starts those that write messages.
fn begin() -> io::Result<(OwnedFd, Messages)> {
    // If this fails, inherited descriptors stay as they were.
    let _ = process::keep_descriptors_to_itself();
    process::raise_descriptor_limit()?;
    // If this fails, roles are still killed first: they raise their own value.
    let _ = process::shift_oom_score(OOM_SCORE_SHIFT);
    privileges::narrow_supervisor()?;
    Ok((signal::watch()?, Messages::start()?))
}

struct Supervisor<'m> {
    messages: &'m Messages,
    program: Program,
    signals: OwnedFd,
    epoll: Epoll,
    starter: Starter,
    sockets: Sockets,
    /// The sockets of a generation that is starting.
    next_sockets: Option<Sockets>,
    /// Shared by the generations; created for the first one that wants it.
    store: Option<SharedStore>,
    /// Likewise.
    uplink: Option<Uplink>,
    /// In the order of their start: at most one serves.
    generations: Vec<Generation>,
    /// The last number given to a process.
    numbers: u64,
    /// Whether a stop was requested, and whether by an interrupt.
    stopping: Option<bool>,
    control: ControlSocket,
    /// The control socket wanted at startup.
    control_wanted: config::ControlSocket,
    started_ms: u64,
    /// The number of the last configuration started.
    configurations: u64,
}

impl<'m> Supervisor<'m> {
    fn start(
        program: Program,
        (settings, local): (Settings, Sockets),
        signals: OwnedFd,
        messages: &'m Messages,
    ) -> io::Result<Self> {
        if settings.run_as.as_ref().is_some_and(|run_as| run_as.uid != 0) && !privileges::may_end_others()? {
            messages.say("without CAP_KILL, Flash cannot kill a worker or helper that hangs; start it with this capability");
        }
        let epoll = Epoll::new(64)?;
        epoll.add(&signals, SIGNALS, Watch::Input)?;
        let sockets = Sockets::of(&settings, &local)?;
        let mut numbers = SIGNALS;
        let (control, warning) = ControlSocket::open(&settings.control, &epoll, &mut numbers)?;
        warning.iter().for_each(|text| messages.say(text));
        let (mut store, mut uplink) = (None, None);
        let shared = (&sockets, &mut store, &mut uplink);
        let (generation, news) = Generation::start(settings, shared, &epoll, &mut numbers)?;
        news.iter().for_each(|text| messages.say(text));
        Ok(Self {
            messages,
            program,
            signals,
            epoll,
            starter: Starter::new()?,
            sockets,
            next_sockets: None,
            store,
            uplink,
            control,
            control_wanted: generation.settings.control.clone(),
            configurations: generation.number,
            started_ms: clock::monotonic_ms(),
            generations: vec![generation],
            numbers,
            stopping: None,
        })
    }

    fn run(mut self) -> io::Result<ExitCode> {
        loop {
            let generations = self.generations.iter().filter_map(Generation::next_ms);
            let store_ms = self.store.as_ref().and_then(|store| store.borrow().next_ms());
            let next_ms = generations.chain(self.control.next_ms()).chain(store_ms).min();
            let timeout_ms = next_ms.map(|ms| ms.saturating_sub(clock::monotonic_ms()));
            let ready: Vec<u64> = self.epoll.wait(timeout_ms)?.map(|ready| ready.token).collect();
            for token in ready {
                if token == SIGNALS {
                    while let Some(signal) = signal::take(&self.signals) {
                        self.on_signal(signal);
                    }
                } else if !self.control.hear(token, clock::monotonic_ms(), &self.epoll, &mut self.numbers) {
                    self.hear(token);
                }
            }
            if let Some(code) = self.settle() {
                return Ok(code);
            }
            let store = self.store.as_ref().and_then(|store| store.borrow().stats);
            let subject = Subject {
                generations: &self.generations,
                started_ms: self.started_ms,
                store,
                sockets: &self.sockets,
            };
            self.control.settle(clock::monotonic_ms(), &self.epoll, &subject);
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Stop { interrupt } => {
                if self.stopping == Some(true) && interrupt {
                    self.generations.iter_mut().for_each(Generation::kill_all);
                } else if self.stopping.is_none() {
                    systemd::notify(systemd::State::Stopping);
                    let now_ms = clock::monotonic_ms();
                    self.generations.iter_mut().for_each(|generation| generation.stop(now_ms));
                    self.sockets = Sockets::default();
                    self.next_sockets = None;
                }
                self.stopping = Some(interrupt || self.stopping == Some(true));
            }
            Signal::Reload if self.stopping.is_none() => {
                systemd::notify(systemd::State::Reloading);
                if !self.reload() {
                    systemd::notify(systemd::State::Ready);
                }
            }
            Signal::Reload => {}
            Signal::ReopenLogs => {
                for generation in &mut self.generations {
                    if let Err(e) = generation.logs.reopen() {
                        self.messages.say(&format!(
                            "cannot reopen the access log: cannot send the order to the log writer: {e}"
                        ));
                    }
                }
            }
            // Ended processes are reaped after every batch.
            Signal::Child => {}
        }
    }

    /// Reloads the configuration and starts its processes; the old ones continue until the new ones are ready, and
    /// for good if they never are. False if none were started.
    fn reload(&mut self) -> bool {
        if self.generations.iter().any(|generation| generation.state == State::Starting) {
            self.messages.say("ignored HUP: another reload is still in progress");
            // The other reload reports its end.
            return true;
        }
        let settings = match self.program.load() {
            Ok(settings) => settings,
            Err(error) => {
                self.messages.show(error.text_for_stderr());
                self.messages.say("the old configuration stays in force");
                return false;
            }
        };
        if settings.control != self.control_wanted {
            self.messages.say("the control socket stays where it is: a reload cannot change --control");
        }
        let started = Sockets::of(&settings, &self.sockets).and_then(|sockets| {
            let shared = (&sockets, &mut self.store, &mut self.uplink);
            let (generation, news) = Generation::start(settings, shared, &self.epoll, &mut self.numbers)?;
            news.iter().for_each(|text| self.messages.say(text));
            Ok((generation, sockets))
        });
        match started {
            Ok((mut generation, sockets)) => {
                self.configurations += 1;
                generation.number = self.configurations;
                self.generations.push(generation);
                self.next_sockets = Some(sockets);
                true
            }
            Err(e) => {
                self.messages.say(&format!("{e}; the old configuration stays in force"));
                false
            }
        }
    }

    /// Handles a message of a worker, a gateway or a log writer.
    fn hear(&mut self, number: u64) {
        let answer = self.generations.iter_mut().find_map(|g| g.roots.hear(number, &self.epoll));
        if let Some(text) = answer {
            return self.messages.say(&text);
        }
        if let Some(store) = self.store.as_ref().filter(|store| store.borrow().is_keeper(number)) {
            let news = store.borrow_mut().hear(&self.epoll);
            return news.iter().for_each(|text| self.messages.say(text));
        }
        let Some(generation) = self.generations.iter_mut().find(|g| g.has_role(number)) else { return };
        let who = generation.name_of(number);
        let Some(role) = generation.role_mut(number) else { return };
        match receive_notice(role.orders.channel()) {
            Ok(Notice::Ready(in_force)) => role.ready = Some(in_force),
            Ok(Notice::Report(text)) => self.messages.say(&format!("{who}: {text}")),
            Ok(Notice::WantHelper) => {
                if let Err(e) = generation.start_helper(number, &mut self.numbers, &self.starter) {
                    self.messages.say(&format!("{who}: {e}"));
                }
            }
            Ok(Notice::WantSuccessor) => {
                if let Err(e) = generation.replace_log(&self.epoll, &mut self.numbers) {
                    self.messages.say(&format!("{who}: {e}; the access log continues in the old file"));
                }
            }
            Ok(Notice::EndHelper(helper)) => generation.end_helper(number, helper),
            Ok(Notice::Stats(question, json) | Notice::Stalls(question, json)) => {
                self.control.take(number, question, json);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // It has ended, or is about to; reaping handles that.
            Err(_) => role.orders.unwatch(&self.epoll),
        }
    }

    /// Handles every process that has ended or become ready and every deadline that has passed. Returns an exit code
    /// when the server is done.
    fn settle(&mut self) -> Option<ExitCode> {
        let now_ms = clock::monotonic_ms();
        for place in 0..self.generations.len() {
            let generation = &mut self.generations[place];
            for death in generation.reap() {
                self.note_death(place, &death);
            }
            let generation = &mut self.generations[place];
            if std::mem::take(&mut generation.root_is_stale) {
                generation.roots.renew(now_ms, &self.epoll, &mut self.numbers);
            }
            if generation.state == State::Serving {
                generation.roots.check_when_due(now_ms, &self.epoll, &mut self.numbers);
            }
            match generation.reap_logs() {
                Ok(None) => {}
                Ok(Some(end)) => self.note_end_of_log(place, end),
                Err(e) => self
                    .messages
                    .say(&format!("cannot connect a worker to the log writer: {e}; its log lines are lost")),
            }
            self.settle_gateway(place, now_ms);
            let generation = &mut self.generations[place];
            generation.settle_programs(now_ms).iter().for_each(|text| self.messages.say(text));
            let generation = &mut self.generations[place];
            if let Err(e) = generation.restart_log_when_due(now_ms, &self.epoll, &mut self.numbers) {
                self.messages
                    .say(&format!("cannot start the log writer: {e}; log lines are lost until it starts"));
            }
            if let Err(e) = generation.restart_workers(now_ms, &self.sockets, &self.epoll, &mut self.numbers)
            {
                self.messages.say(&e.to_string());
            }
            generation.go_on(now_ms, &self.epoll).iter().for_each(|text| self.messages.say(text));
            if generation.is_overdue(now_ms) {
                if !generation.killed {
                    let loss = generation.loss();
                    self.messages.say(&format!("{loss}: they did not finish in time"));
                }
                generation.kill();
            }
        }
        self.settle_store(now_ms);
        if let Some(code) = self.promote() {
            return Some(code);
        }
        // Helpers may be left, which were killed with their worker.
        self.generations.retain(|generation| !generation.is_gone());
        let keeper = self.store.as_ref().and_then(|store| store.borrow().pid());
        process::reap_strangers(|pid| {
            keeper == Some(pid) || self.generations.iter().any(|g| g.pids().any(|other| other == pid))
        });
        let has_saved = |store: &SharedStore| store.borrow_mut().has_saved(now_ms);
        if !self.generations.is_empty() || !self.store.as_ref().is_none_or(has_saved) {
            return None;
        }
        Some(ExitCode::SUCCESS)
    }

    /// Handles the keeper of the store.
    fn settle_store(&mut self, now_ms: u64) {
        let Some(shared) = &self.store else { return };
        let mut store = shared.borrow_mut();
        let fillers = self.generations.iter().flat_map(Generation::filler_pids);
        let status = store.reap(fillers);
        if let Some(status) = status.filter(|_| self.stopping.is_none()) {
            self.messages.say(&format!(
                "the store's keeper ended ({status}); starting another; the store keeps its contents"
            ));
        }
        if self.stopping.is_some() {
            store.stop();
        }
        if store.is_due(now_ms) {
            let workers = self.generations.iter_mut().flat_map(Generation::knowing_store);
            if let Err(e) = store.start(workers, &self.epoll, &mut self.numbers) {
                self.messages.say(&format!(
                    "cannot start the store's keeper: {e}; nothing is added to the store until it starts"
                ));
                store.start_later(now_ms);
            }
        }
        store.note_gone(|pid| self.generations.iter().flat_map(Generation::filler_pids).any(|p| p == pid));
        store.go_on(now_ms, &self.epoll).iter().for_each(|text| self.messages.say(text));
    }

    fn note_end_of_log(&mut self, place: usize, end: LogEnd) {
        let generation = &mut self.generations[place];
        if end == LogEnd::Next {
            return self.messages.say("the access log continues in the old file");
        }
        match generation.state {
            State::Serving => self.messages.say("the log writer ended; starting another"),
            State::Starting => generation.stop(clock::monotonic_ms()),
            State::Draining { .. } => {}
        }
    }

    /// Handles the gateway of a generation.
    fn settle_gateway(&mut self, place: usize, now_ms: u64) {
        let generation = &mut self.generations[place];
        if let Some(status) = generation.gateway.reap(generation.state == State::Serving) {
            let how = how_it_ended(status);
            match generation.state {
                State::Serving => self.messages.say(&format!("the gateway ended ({how}); starting another")),
                State::Starting => {
                    self.messages.say(&format!("the gateway did not start ({how})"));
                    generation.stop(now_ms);
                }
                State::Draining { .. } if status.success() || generation.killed => {}
                State::Draining { .. } => {
                    self.messages.say(&format!("the gateway ended ({how}) before its workers"));
                }
            }
        }
        if let Err(e) = generation.restart_gateway_when_due(now_ms, &self.epoll, &mut self.numbers) {
            self.messages
                .say(&format!("cannot start the gateway: {e}; requests of routes fail until it starts"));
        }
    }

    fn note_death(&mut self, place: usize, death: &Death) {
        for text in &death.last_words {
            self.messages.say(&format!("worker {}: {text}", death.place));
        }
        let how = how_it_ended(death.status);
        let generation = &mut self.generations[place];
        match generation.state {
            State::Serving => {
                self.messages.say(&format!("worker {} ended ({how}); starting another", death.place));
            }
            State::Draining { .. } if death.status.success() || generation.killed => {}
            State::Draining { .. } => {
                self.messages
                    .say(&format!("worker {} ended ({how}) before it finished its requests", death.place));
            }
            State::Starting => {
                self.messages.say(&format!("worker {} did not start ({how})", death.place));
                generation.stop(clock::monotonic_ms());
            }
        }
    }

    /// Puts a ready generation in force and drains the previous one. Returns an exit code if the first one has
    /// failed.
    fn promote(&mut self) -> Option<ExitCode> {
        let serving = self.generations.iter().position(|g| g.state == State::Serving);
        let Some(new) = self.generations.iter().position(|g| g.state == State::Starting) else {
            if let (Some(_), Some(_)) = (serving, self.next_sockets.take()) {
                systemd::notify(systemd::State::Ready);
                self.messages.say("the old configuration stays in force");
            }
            if serving.is_none()
                && self.stopping.is_none()
                && self.generations.iter().all(Generation::is_over)
            {
                return Some(ExitCode::FAILURE);
            }
            return None;
        };
        if !self.generations[new].is_ready() {
            return None;
        }
        self.generations[new].state = State::Serving;
        if let Some(store) = &self.store {
            self.generations[new].size_store(store);
        }
        if let Some(old) = serving {
            self.generations[old].give_way(clock::monotonic_ms());
            self.bound_draining();
        }
        if let Some(sockets) = self.next_sockets.take() {
            self.sockets = sockets;
        }
        self.announce(new);
        None
    }

    /// Kills the longest-draining generation when too many drain.
    fn bound_draining(&mut self) {
        if self.generations.iter().filter(|generation| generation.drains()).count() <= DRAINING_MAX {
            return;
        }
        // In the order of their start.
        if let Some(oldest) = self.generations.iter_mut().find(|generation| generation.drains()) {
            let loss = oldest.loss();
            self.messages.say(&format!("{loss}: {DRAINING_MAX} newer ones are draining"));
            oldest.kill();
        }
    }

    fn announce(&self, place: usize) {
        let generation = &self.generations[place];
        let settings = &generation.settings;
        for warning in settings.warnings() {
            self.messages.say(&format!("warning: {warning}"));
        }
        let line = start_line::text(settings, &generation.roots, &self.sockets, generation.in_force());
        // Without a log file, standard output belongs to the access log.
        let to_stdout = settings.log.format == LogFormat::Off || settings.log.file.is_some();
        if to_stdout {
            self.messages.print(line);
        } else {
            self.messages.show(line);
        }
        systemd::notify(systemd::State::Ready);
    }
}

/// How a process ended, for messages.
fn how_it_ended(status: ExitStatus) -> String {
    match status.code() {
        Some(VIOLATION_EXIT_CODE) => "killed by its sandbox".to_owned(),
        _ => status.to_string(),
    }
}
