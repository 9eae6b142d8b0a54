//! The supervisor: binds sockets, starts and restarts the other roles, and receives signals.
//!
//! It must not wait for a disk while it serves: with one disk that hangs it would answer no signal and replace no process.
//! `prepare.rs` may wait, and runs before it serves or in a child (`reader.rs`). Children make every other call on a file
//! system (`flash_waiting::errand`), and no child is waited for, except for 2 s each at the end of the server.

mod child;
mod control_socket;
mod crew;
mod gateway;
mod generation;
mod local_socket;
mod logs;
mod messages;
mod outbox;
mod prepare;
mod programs;
mod pulse;
pub(crate) mod reader;
mod reload;
mod restart;
mod roots;
mod settle;
mod sockets;
mod spool;
mod start_line;
mod starter;
mod store;
mod uplink;

use std::io::{self, Write};
use std::process::ExitCode;

use flash_prompt::OwnedFd;
use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::process;
use flash_waiting::sandbox::privileges;
use flash_waiting::signal::{self, Signal};
use flash_waiting::systemd;

use crate::config::{self, BackendOptions, ConfigError, LogFormat, Settings, Sources};
use crate::stats::Counters;
use control_socket::{ControlSocket, Subject};
use flash_worker::control::{Notice, receive_notice};
use generation::Generation;
use messages::Messages;
use prepare::prepare;
use reader::Reader;
use reload::Reload;
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
pub enum Program {
    /// `flash serve`.
    Serve(Sources),
    /// `flash backend`.
    Backend(BackendOptions),
}

impl Program {
    /// Makes the settings. It may be called any number of times.
    pub(crate) fn load(&self) -> Result<Settings, ConfigError> {
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
    reload: Reload,
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
    /// The counts of workers that have ended.
    ended: Counters,
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
        let prepared = prepare(settings, false)?;
        let (generation, news) = Generation::start(prepared, shared, &epoll, &mut numbers)?;
        news.iter().for_each(|text| messages.say(text));
        Ok(Self {
            messages,
            program,
            signals,
            epoll,
            starter: Starter::new()?,
            sockets,
            next_sockets: None,
            reload: Reload::default(),
            store,
            uplink,
            control,
            control_wanted: generation.settings.control.clone(),
            configurations: generation.number,
            started_ms: clock::monotonic_ms(),
            ended: Counters::default(),
            generations: vec![generation],
            numbers,
            stopping: None,
        })
    }

    fn run(mut self) -> io::Result<ExitCode> {
        loop {
            let generations = self.generations.iter().filter_map(Generation::next_ms);
            let store_ms = self.store.as_ref().and_then(|store| store.borrow().next_ms());
            let reader_ms = self.reload.reader.as_ref().map(Reader::deadline_ms);
            let next_ms = generations.chain(self.control.next_ms()).chain(store_ms).chain(reader_ms).min();
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
            let store = self.store.as_ref().and_then(|store| store.borrow().stats.clone());
            let subject = Subject {
                generations: &self.generations,
                started_ms: self.started_ms,
                ended: &self.ended,
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
                    self.stop_reloading();
                    let now_ms = clock::monotonic_ms();
                    self.generations.iter_mut().for_each(|generation| generation.stop(now_ms));
                    self.sockets = Sockets::default();
                    self.next_sockets = None;
                }
                self.stopping = Some(interrupt || self.stopping == Some(true));
            }
            Signal::Reload if self.stopping.is_none() => self.want_reload(),
            Signal::Reload => {}
            Signal::ReopenLogs => {
                for generation in &mut self.generations {
                    if let Err(e) = generation.reopen_log(&self.epoll, &mut self.numbers) {
                        self.messages.say(&format!(
                            "cannot start a log writer: {e}; the access log continues in the old file"
                        ));
                    }
                }
            }
            // Ended processes are reaped after every batch.
            Signal::Child => {}
        }
    }

    /// Handles a message of a worker, a gateway or a log writer.
    fn hear(&mut self, number: u64) {
        if self.reload.reader.as_ref().is_some_and(|reader| reader.is(number)) {
            return self.hear_reader();
        }
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
            Ok(Notice::Pong) => role.pulse.hear(clock::monotonic_ms()),
            Ok(Notice::Report(text)) => self.messages.say(&format!("{who}: {text}")),
            Ok(Notice::WantHelper) => {
                if let Err(e) = generation.start_helper(number, &mut self.numbers, &self.starter) {
                    self.messages.say(&format!("{who}: {e}"));
                }
            }
            Ok(Notice::EndHelper(helper)) => generation.end_helper(number, helper),
            Ok(Notice::Stats(question, json)) => {
                let mut workers = generation.workers.iter_mut();
                if let Some(worker) = workers.find(|worker| worker.role.number() == number) {
                    worker.counters = Some(json.clone());
                }
                self.control.take(number, question, json);
            }
            Ok(Notice::Stalls(question, json)) => self.control.take(number, question, json),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // It has ended, or is about to; reaping handles that.
            Err(_) => role.orders.unwatch(&self.epoll),
        }
    }

    fn announce(&self, place: usize) {
        let generation = &self.generations[place];
        let settings = &generation.settings;
        for warning in settings.warnings() {
            self.messages.say(&format!("warning: {warning}"));
        }
        let line = start_line::text(settings, generation.found(), &self.sockets, generation.in_force());
        // Without a log file, standard output belongs to the access log.
        let to_stdout = settings.log.format == LogFormat::Off || settings.log.file.is_some();
        if to_stdout {
            self.messages.print(line);
        } else {
            self.messages.show(line);
        }
        if generation.number > 1 {
            self.tell_reloaded(place);
        }
        self.end_reload();
    }
}
