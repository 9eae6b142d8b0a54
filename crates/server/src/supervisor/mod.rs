//! The supervisor: binds sockets, reads the configuration, starts and restarts the other
//! roles, hears signals. It does no request work, so it may wait.

mod control_socket;
mod crew;
mod generation;
mod logs;
mod messages;
mod outbox;
mod roots;
mod sockets;
mod start_line;
mod starter;

use std::io::{self, Write};
use std::process::ExitCode;

use flash_prompt::OwnedFd;
use flash_prompt::clock;
use flash_prompt::epoll::{Epoll, Watch};
use flash_waiting::process;
use flash_waiting::sandbox::{VIOLATION_EXIT_CODE, privileges};
use flash_waiting::signal::{self, Signal};

use crate::architecture;
use crate::config::{self, LogFormat, Settings, Sources};
use control_socket::{ControlSocket, Subject};
use crew::Death;
use flash_worker::control::{Notice, receive_notice};
use generation::{Generation, State};
use logs::Ended as LogEnd;
use messages::Messages;
use sockets::Sockets;
use starter::Starter;

const SIGNALS: u64 = 0;
/// Where memory runs out, the supervisor is to go last: without it there is no server. Less than the shifts of
/// the roles, which start from its own.
const OOM_SCORE_SHIFT: i32 = -200;
/// Old configurations that drain at once.
const DRAINING_MAX: usize = 4;

/// Runs a server until it is told to stop.
pub(crate) fn serve(sources: Sources) -> ExitCode {
    let settings = match sources.load() {
        Ok(settings) => settings,
        Err(error) => {
            error.print();
            return ExitCode::FAILURE;
        }
    };
    let (signals, messages) = match begin() {
        Ok(begun) => begun,
        Err(e) => {
            // Nobody may be reading any more.
            let _ = writeln!(io::stderr(), "flash: {e}");
            return ExitCode::FAILURE;
        }
    };
    let started = Supervisor::start(sources, settings, signals, &messages);
    let code = started.and_then(Supervisor::run).unwrap_or_else(|e| {
        messages.say(&e.to_string());
        ExitCode::FAILURE
    });
    messages.finish();
    code
}

/// Settles what all threads have from this one, then starts those that write messages.
fn begin() -> io::Result<(OwnedFd, Messages)> {
    // Where it cannot, what it was given open is left to whoever started it.
    let _ = process::keep_descriptors_to_itself();
    process::raise_descriptor_limit()?;
    // Where it may not, roles are still ended before it: they raise theirs.
    let _ = process::shift_oom_score(OOM_SCORE_SHIFT);
    privileges::narrow_supervisor()?;
    Ok((signal::watch()?, Messages::start()?))
}

struct Supervisor<'m> {
    messages: &'m Messages,
    sources: Sources,
    signals: OwnedFd,
    epoll: Epoll,
    starter: Starter,
    sockets: Sockets,
    /// Those of a generation that is starting.
    next_sockets: Option<Sockets>,
    /// In the order of their start: at most one serves.
    generations: Vec<Generation>,
    /// The last number given to a process.
    numbers: u64,
    /// Told to stop, by an interrupt from the keyboard or not.
    stopping: Option<bool>,
    control: ControlSocket,
    /// Where it was wanted at the start.
    control_wanted: config::ControlSocket,
    started_ms: u64,
    /// The number of the last one that was started.
    configurations: u64,
}

impl<'m> Supervisor<'m> {
    fn start(
        sources: Sources,
        settings: Settings,
        signals: OwnedFd,
        messages: &'m Messages,
    ) -> io::Result<Self> {
        if settings.run_as.as_ref().is_some_and(|run_as| run_as.uid != 0) && !privileges::may_end_others()? {
            messages.say("without CAP_KILL, processes of another user that hang cannot be ended");
        }
        let epoll = Epoll::new(64)?;
        epoll.add(&signals, SIGNALS, Watch::Input)?;
        let sockets = Sockets::bind(&settings.listen, architecture::sockets(&settings), &Sockets::default())?;
        let mut numbers = SIGNALS;
        // No thread makes files meanwhile: the umask, with which it is made, is the process's.
        let (control, warning) = ControlSocket::open(&settings.control, &epoll, &mut numbers)?;
        warning.iter().for_each(|text| messages.say(text));
        let (generation, news) = Generation::start(settings, &sockets, &epoll, &mut numbers)?;
        news.iter().for_each(|text| messages.say(text));
        Ok(Self {
            messages,
            sources,
            signals,
            epoll,
            starter: Starter::new()?,
            sockets,
            next_sockets: None,
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
            let next_ms = generations.chain(self.control.next_ms()).min();
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
            let subject = Subject { generations: &self.generations, started_ms: self.started_ms };
            self.control.settle(clock::monotonic_ms(), &self.epoll, &subject);
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::Stop { interrupt } => {
                if self.stopping == Some(true) && interrupt {
                    self.generations.iter_mut().for_each(Generation::kill);
                } else if self.stopping.is_none() {
                    let now_ms = clock::monotonic_ms();
                    self.generations.iter_mut().for_each(|generation| generation.stop(now_ms));
                    self.sockets = Sockets::default();
                    self.next_sockets = None;
                }
                self.stopping = Some(interrupt || self.stopping == Some(true));
            }
            Signal::Reload if self.stopping.is_none() => self.reload(),
            Signal::Reload => {}
            Signal::ReopenLogs => {
                for generation in &mut self.generations {
                    if let Err(e) = generation.logs.reopen() {
                        self.messages.say(&format!("cannot tell the log writer to open its file again: {e}"));
                    }
                }
            }
            // What has ended is seen to after every batch.
            Signal::Child => {}
        }
    }

    /// Reads the configuration again and starts its processes; the old ones go on until the
    /// new ones are ready, and for good if they never are.
    fn reload(&mut self) {
        if self.generations.iter().any(|generation| generation.state == State::Starting) {
            return self.messages.say("a new configuration is starting already; the signal was ignored");
        }
        let settings = match self.sources.load() {
            Ok(settings) => settings,
            Err(error) => {
                self.messages.show(error.text_for_stderr());
                return self.messages.say("the old configuration stays in force");
            }
        };
        if settings.control != self.control_wanted {
            self.messages
                .say("the control socket stays where it is: --control holds from the start to the end");
        }
        let started = Sockets::bind(&settings.listen, architecture::sockets(&settings), &self.sockets)
            .and_then(|sockets| {
                let (generation, news) =
                    Generation::start(settings, &sockets, &self.epoll, &mut self.numbers)?;
                news.iter().for_each(|text| self.messages.say(text));
                Ok((generation, sockets))
            });
        match started {
            Ok((mut generation, sockets)) => {
                self.configurations += 1;
                generation.number = self.configurations;
                self.generations.push(generation);
                self.next_sockets = Some(sockets);
            }
            Err(e) => self.messages.say(&format!("{e}; the old configuration stays in force")),
        }
    }

    /// Hears what a worker or a log writer has to say.
    fn hear(&mut self, number: u64) {
        let answer = self.generations.iter_mut().find_map(|g| g.roots.hear(number, &self.epoll));
        if let Some(text) = answer {
            return self.messages.say(&text);
        }
        let Some(generation) = self.generations.iter_mut().find(|g| g.has_role(number)) else { return };
        let who =
            generation.place_of(number).map_or("log writer".to_owned(), |place| format!("worker {place}"));
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
                    self.messages.say(&format!("{who}: {e}; the access log goes on in the old file"));
                }
            }
            Ok(Notice::EndHelper(helper)) => generation.end_helper(number, helper),
            Ok(Notice::Stats(question, json) | Notice::Stalls(question, json)) => {
                self.control.take(number, question, json);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            // It has ended, or is about to; that is seen to when it has.
            Err(_) => role.orders.unwatch(&self.epoll),
        }
    }

    /// Sees to every process that has ended or begun and every deadline that has passed. Gives
    /// an exit code when all is over.
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
                Err(e) => self.messages.say(&format!("a worker's lines do not reach the log writer: {e}")),
            }
            let generation = &mut self.generations[place];
            if let Err(e) = generation.restart_log_when_due(now_ms, &self.epoll, &mut self.numbers) {
                self.messages.say(&format!("the access log is off until the log writer can be started: {e}"));
            }
            if let Err(e) = generation.restart_workers(now_ms, &self.sockets, &self.epoll, &mut self.numbers)
            {
                self.messages.say(&e.to_string());
            }
            generation.go_on(now_ms, &self.epoll).iter().for_each(|text| self.messages.say(text));
            if generation.is_overdue(now_ms) {
                if !generation.killed {
                    self.messages.say(&format!(
                        "not all requests of configuration {} were finished in time; what was left is cut",
                        generation.number
                    ));
                }
                generation.kill();
            }
        }
        if let Some(code) = self.promote() {
            return Some(code);
        }
        // Helpers may be left, which were ended with their worker.
        self.generations.retain(|generation| !generation.is_gone());
        process::reap_strangers(|pid| self.generations.iter().any(|g| g.pids().any(|other| other == pid)));
        if !self.generations.is_empty() {
            return None;
        }
        Some(ExitCode::SUCCESS)
    }

    fn note_end_of_log(&mut self, place: usize, end: LogEnd) {
        let generation = &mut self.generations[place];
        if end == LogEnd::Next {
            return self.messages.say("the access log goes on in the old file");
        }
        match generation.state {
            State::Serving => self.messages.say("the log writer ended; it is started again"),
            State::Starting => generation.stop(clock::monotonic_ms()),
            State::Draining { .. } => {}
        }
    }

    fn note_death(&mut self, place: usize, death: &Death) {
        for text in &death.last_words {
            self.messages.say(&format!("worker {}: {text}", death.place));
        }
        let how = match death.status.code() {
            Some(VIOLATION_EXIT_CODE) => "ended by its sandbox".to_owned(),
            _ => death.status.to_string(),
        };
        let generation = &mut self.generations[place];
        match generation.state {
            State::Serving => {
                self.messages.say(&format!("worker {} ended ({how}); it is replaced", death.place));
            }
            State::Draining { .. } if death.status.success() || generation.killed => {}
            State::Draining { .. } => {
                self.messages.say(&format!("worker {} ended ({how}) before its requests", death.place));
            }
            State::Starting => {
                self.messages.say(&format!("worker {} did not start ({how})", death.place));
                generation.stop(clock::monotonic_ms());
            }
        }
    }

    /// Puts a generation that is ready in force and drains the one before it. Gives an exit
    /// code when the first one has failed.
    fn promote(&mut self) -> Option<ExitCode> {
        let serving = self.generations.iter().position(|g| g.state == State::Serving);
        let Some(new) = self.generations.iter().position(|g| g.state == State::Starting) else {
            if let (Some(_), Some(_)) = (serving, self.next_sockets.take()) {
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

    /// Ends the longest-draining generation when too many drain.
    fn bound_draining(&mut self) {
        if self.generations.iter().filter(|generation| generation.drains()).count() <= DRAINING_MAX {
            return;
        }
        // In the order of their start.
        if let Some(oldest) = self.generations.iter_mut().find(|generation| generation.drains()) {
            self.messages.say(&format!(
                "{DRAINING_MAX} newer configurations drain: what was left of the requests of configuration {} is cut",
                oldest.number
            ));
            oldest.kill();
        }
    }

    fn announce(&self, place: usize) {
        let generation = &self.generations[place];
        let settings = &generation.settings;
        for warning in settings.optimizations.warnings() {
            self.messages.say(&format!("warning: {warning}"));
        }
        let line =
            start_line::text(settings, &generation.roots, self.sockets.addresses(), generation.in_force());
        // Standard output belongs to the access log when there is no file for it.
        let to_stdout = settings.log.format == LogFormat::Off || settings.log.file.is_some();
        if to_stdout {
            self.messages.print(line);
        } else {
            self.messages.show(line);
        }
    }
}
