//! The supervisor: binds sockets, starts and restarts the other roles, and receives signals.
//!
//! It must not wait for a disk while it serves: with one disk that hangs it would answer no signal and replace no process.
//! `prepare.rs` may wait, and runs before it serves or in a child (`reader.rs`). Children make every other call on a file
//! system (`flash_waiting::child_call`), and no child is waited for, except for 2 s each at the end of the server.

mod control_socket;
mod estate;
mod generation;
mod handover;
mod hot_list_files;
mod life;
mod local_socket;
mod messages;
mod outbox;
mod poller;
mod prepare;
mod process;
mod processes;
mod pulse;
pub(crate) mod reader;
mod reload;
mod roots;
mod settle;
mod shared_files;
mod sockets;
mod spool;
mod start_line;
mod store;
mod tls;
mod upgrade;
mod watchdog;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use flash_prompt::clock;
use flash_waiting::process::{keep_descriptors_to_itself, raise_descriptor_limit, shift_oom_score};
use flash_waiting::sandbox::privileges;
use flash_waiting::signal::{self, Signal, Signals};
use flash_waiting::systemd::{self, KeptFile};

use crate::config::{self, BackendOptions, ConfigError, LogOutput, Settings, Sources};
use crate::stats::Counters;
use control_socket::{ControlSocket, Subject};
use generation::Generation;
use handover::Left;
use messages::Messages;
use poller::{Poller, Watched};
use prepare::prepare;
use reload::Reload;
use shared_files::SharedFiles;
use sockets::Sockets;
use store::Store;
use tls::{CertificateWatch, TicketSecret};
use upgrade::Upgrade;
use watchdog::Watchdog;

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

pub(crate) fn serve(program: Program) -> ExitCode {
    // First, as long as no other descriptor was opened.
    let left = Left::take().and_then(|left| left.map(|left| Ok((left, begin()?))).transpose());
    match left {
        Ok(None) => serve_first(program),
        Ok(Some((left, (signals, messages)))) => {
            run(messages, |messages| Supervisor::adopt(program, left, signals, messages))
        }
        Err(e) => fail(&e),
    }
}

/// Runs until a signal stops the server, or another program takes over.
fn run(
    messages: Messages,
    start: impl for<'m> FnOnce(&'m Messages) -> io::Result<Supervisor<'m>>,
) -> ExitCode {
    let code = start(&messages).and_then(Supervisor::run).unwrap_or_else(|e| {
        messages.report(&e.to_string());
        ExitCode::FAILURE
    });
    messages.finish();
    code
}

fn fail(error: &io::Error) -> ExitCode {
    // The reader of standard error may be gone.
    let _ = writeln!(io::stderr(), "flash: {error}");
    ExitCode::FAILURE
}

fn serve_first(program: Program) -> ExitCode {
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
        Err(e) => return fail(&e),
    };
    // If this fails, roles are still killed first: they raise their own value.
    let _ = shift_oom_score(OOM_SCORE_SHIFT);
    run(messages, |messages| Supervisor::start(program, (settings, local), signals, messages))
}

/// Sets everything that threads inherit, then starts those that write messages.
fn begin() -> io::Result<(Signals, Messages)> {
    // If this fails, inherited descriptors stay as they were.
    let _ = keep_descriptors_to_itself();
    raise_descriptor_limit()?;
    privileges::narrow_supervisor()?;
    Ok((signal::watch()?, Messages::start()?))
}

/// The parts of the supervisor that its configurations share.
struct Resources {
    poller: Poller,
    /// Created for the first configuration that wants it.
    store: Option<Store>,
    files: SharedFiles,
    /// The supervisor acts on these after each event, and at the end of a turn.
    events: Vec<Event>,
    /// The secret of all configurations, so that sessions outlive them.
    tickets: TicketSecret,
    /// The files of a store that systemd has kept.
    kept: Vec<KeptFile>,
}

impl Resources {
    fn report(&mut self, text: impl Into<String>) {
        self.events.push(Event::Message(text.into()));
    }
}

/// The consequence of an event for the supervisor.
#[derive(Debug)]
enum Event {
    Message(String),
    /// A worker answers a question for statistics, as JSON.
    Report {
        worker: u64,
        question: u64,
        json: String,
    },
    /// A worker has ended, with its last statistics as JSON.
    WorkerEnded(String),
    /// The configuration cannot start, for this reason.
    Failed(String),
    /// A process of an earlier program has ended, which this one cannot start again.
    Missed,
}

struct Supervisor<'m> {
    messages: &'m Messages,
    program: Program,
    /// The path that it was executed from.
    path: PathBuf,
    signals: Watched<Signals>,
    resources: Resources,
    reload: Reload,
    upgrade: Upgrade,
    watchdog: Option<Watchdog>,
    /// In the order of their start: at most one serves.
    generations: Vec<Generation>,
    /// Whether a stop was requested, and whether by an interrupt.
    stopping: Option<bool>,
    control: ControlSocket,
    /// The control socket and the addresses of `admin` wanted at startup.
    control_wanted: (config::ControlSocket, Vec<SocketAddr>),
    started_ms: u64,
    /// The counts of workers that have ended.
    ended: Counters,
    certificates: CertificateWatch,
    /// The number of the last configuration started.
    configurations: u64,
}

impl<'m> Supervisor<'m> {
    fn start(
        program: Program,
        (settings, mut local): (Settings, Sockets),
        signals: Signals,
        messages: &'m Messages,
    ) -> io::Result<Self> {
        if settings.run_as.as_ref().is_some_and(|run_as| run_as.uid != 0) && !privileges::may_end_others()? {
            messages.report("without CAP_KILL, Flash cannot kill a worker or helper that hangs; start it with this capability");
        }
        let mut poller = Poller::new(0)?;
        let signals = poller.watch(signals)?;
        let sockets = Sockets::of(&settings, &local, local_socket::bind_new(&settings, &[])?)?;
        sockets.pace(&settings)?;
        let (control, warning) = ControlSocket::open(&settings.control, &settings.admin, &mut poller)?;
        warning.iter().for_each(|text| messages.report(text));
        control.admin_addresses().for_each(|address| messages.report(&format!("admin on http://{address}/")));
        let prepared = prepare(settings, false)?;
        let mut resources = Resources {
            poller,
            store: None,
            files: SharedFiles::default(),
            events: Vec::new(),
            tickets: TicketSecret::default(),
            kept: std::mem::take(&mut local.kept),
        };
        let (generation, warnings) = Generation::start(prepared, sockets, &mut resources)?;
        warnings.iter().for_each(|text| messages.report(text));
        Ok(Self {
            messages,
            program,
            path: std::env::current_exe()?,
            signals,
            resources,
            reload: Reload::default(),
            upgrade: Upgrade::default(),
            watchdog: Watchdog::of_systemd(),
            control,
            control_wanted: (generation.settings.control.clone(), generation.settings.admin.clone()),
            configurations: generation.number,
            started_ms: clock::monotonic_ms(),
            ended: Counters::default(),
            certificates: CertificateWatch::default(),
            generations: vec![generation],
            stopping: None,
        })
    }

    fn run(mut self) -> io::Result<ExitCode> {
        loop {
            let timeout_ms = self.next_ms().map(|ms| ms.saturating_sub(clock::monotonic_ms()));
            for token in self.resources.poller.events(timeout_ms)? {
                self.handle(token);
            }
            if let Some(code) = self.settle() {
                return Ok(code);
            }
            let subject = Subject {
                generations: &self.generations,
                started_ms: self.started_ms,
                ended: &self.ended,
                store: self.resources.store.as_ref().and_then(|store| store.stats.clone()),
            };
            self.control.settle(clock::monotonic_ms(), &self.resources.poller, &subject);
        }
    }

    fn next_ms(&self) -> Option<u64> {
        let store_ms = self.resources.store.as_ref().and_then(|store| store.processes.next_ms());
        let reader_ms = self.reload.reader.as_ref().map(|reader| reader.deadline_ms);
        let generations = self.generations.iter().filter_map(Generation::next_ms);
        let certificates_ms = self.certificates.next_ms();
        generations
            .chain(self.control.next_ms())
            .chain(store_ms)
            .chain(reader_ms)
            .chain(self.upgrade.next_ms())
            .chain(self.watchdog.as_ref().map(|watchdog| watchdog.next_ms))
            .chain(certificates_ms)
            .min()
    }

    /// Handles the event of `token`: a signal, a client, or a message or the end of a child.
    fn handle(&mut self, token: u64) {
        let Resources { poller, store, events, .. } = &mut self.resources;
        if token == self.signals.token {
            while let Some(signal) = self.signals.item.take() {
                self.on_signal(signal);
            }
        } else if self.reload.reader.as_ref().is_some_and(|reader| reader.is(token)) {
            self.handle_reader();
        } else if self.upgrade.is(token) {
            self.handle_candidate();
        } else if self.certificates.is(token) {
            self.look_at_certificates();
        } else if !self.control.handle(token, clock::monotonic_ms(), poller) {
            let fillers = self.generations.iter().flat_map(Generation::fillers);
            if !store.as_mut().is_some_and(|store| store.handle(token, fillers, poller, events)) {
                let mut generations = self.generations.iter_mut();
                generations.find_map(|g| g.handle(token, &mut self.resources).then_some(()));
            }
            self.apply();
        }
    }

    /// Acts on the consequences of events.
    fn apply(&mut self) {
        for event in std::mem::take(&mut self.resources.events) {
            match event {
                Event::Message(text) => self.messages.report(&text),
                Event::Report { worker, question, json } => self.control.take(worker, question, json),
                Event::WorkerEnded(json) => {
                    let counters = serde_json::from_str::<Counters>(&json).ok();
                    counters.iter().for_each(|counters| self.ended.merge(&counters.ended()));
                }
                Event::Failed(why) if self.is_serving() => self.keep_old_configuration(&why),
                Event::Failed(_) => {}
                Event::Missed if self.stopping.is_none() => self.want_reload(),
                Event::Missed => {}
            }
        }
    }

    fn is_serving(&self) -> bool {
        self.in_force().is_some()
    }

    /// The configuration that answers new requests.
    fn in_force(&self) -> Option<&Generation> {
        self.generations.iter().find(|generation| generation.state.is_in_force())
    }

    fn on_signal(&mut self, signal: Signal) {
        let now_ms = clock::monotonic_ms();
        match signal {
            Signal::Stop { interrupt } => {
                if self.stopping == Some(true) && interrupt {
                    self.generations.iter_mut().for_each(|generation| generation.kill_at_once(now_ms));
                } else if self.stopping.is_none() {
                    systemd::notify(systemd::State::Stopping);
                    self.reload = Reload::default();
                    self.cancel_upgrade();
                    self.generations.iter_mut().for_each(|generation| generation.stop(now_ms));
                    self.resources.store.iter_mut().for_each(Store::stop);
                }
                self.stopping = Some(interrupt || self.stopping == Some(true));
            }
            Signal::Reload if self.stopping.is_none() => self.want_reload(),
            Signal::Reload => {}
            Signal::Upgrade => self.want_upgrade(None),
            Signal::ReopenLogs => {
                for generation in &mut self.generations {
                    generation.reopen_log(&mut self.resources);
                }
                self.apply();
            }
            // The descriptors of processes report their ends; orphans are reaped after every batch.
            Signal::Child => {}
        }
    }

    fn announce(&mut self, place: usize) {
        let generation = &self.generations[place];
        let settings = &generation.settings;
        for warning in settings.warnings() {
            self.messages.report(&format!("warning: {warning}"));
        }
        let line = start_line::text(generation);
        systemd::describe(&line);
        // Standard output may belong to the access log.
        if !settings.logs().contains(&&LogOutput::Stdout) {
            self.messages.print(line);
        } else {
            self.messages.show(line);
        }
        if generation.number > 1 {
            self.report_reload(place);
        }
        self.end_upgrade();
        self.end_reload();
    }
}
