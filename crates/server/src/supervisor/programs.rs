//! The processes of a generation that answer requests of its routes (`app`, `cgi`).
//!
//! All processes of a program accept from one listening socket, so the kernel gives each connection to an idle one, whichever
//! worker made it. The socket outlives them: requests that arrive while another process starts wait. A process that fails soon
//! after its start starts again after a pause that doubles. While all of them pause, the program has no socket, so that its
//! requests fail at once.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::Arc;

use flash_engine::UpstreamId;
use flash_prompt::{channel, clock};
use flash_waiting::{local, process};

use super::child::Ending;
use super::crew::RESTART_PAUSE_MS;
use super::gateway::Gateway;
use super::outbox::Shared;
use crate::config::Settings;
use crate::program;
use flash_worker::control::{CHANNEL_BYTES, Order, send_order};

/// A process that fails earlier than this after its start is restarted after a pause.
const STEADY_MS: u64 = 5_000;
/// The same for a process that ends as it should, for example after some number of requests.
const SUCCESS_MS: u64 = 1_000;
/// The longest pause before a process starts again.
const PAUSE_MS_MAX: u64 = 30_000;
/// Time of the processes to end once no request is left. That of `cgi` needs 2 s for programs that ignore SIGTERM.
const END_MS: u64 = 3_000;

/// All programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    programs: Vec<Program>,
    end: End,
}

/// How far the end of all processes has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    /// They are needed.
    #[default]
    Later,
    /// They were asked to end, and are killed at this time.
    Asked { kill_ms: u64 },
    /// They were killed. At this time they are given up: the kernel holds them in a call that hangs.
    Killed { leave_ms: u64 },
}

/// The program of a route.
#[derive(Debug)]
struct Program {
    upstream: UpstreamId,
    /// None before the first start, and while all processes pause.
    socket: Option<Socket>,
    processes: Vec<Process>,
}

/// A process of a program.
#[derive(Debug)]
struct Process {
    /// For messages.
    name: String,
    child: Option<Child>,
    started_ms: u64,
    /// When it starts again, and the pause before that.
    restart_ms: Option<u64>,
    pause_ms: u64,
}

/// A listening socket, and its place for the gateway.
#[derive(Debug)]
struct Socket {
    listener: Shared,
    place: Shared,
}

impl Programs {
    /// Starts every process of the settings.
    ///
    /// Errors: a socket or a process cannot be made.
    pub(super) fn start(
        &mut self,
        settings: &Settings,
        settings_file: &Shared,
        gateway: &mut Gateway,
    ) -> io::Result<()> {
        for (upstream, route) in (0..).map(UpstreamId).zip(settings.routes()) {
            let Some(program) = &route.program else { continue };
            let names = (1..=program.processes).map(|number| program.process_name(number));
            let processes = names.map(Process::new).collect();
            self.programs.push(Program { upstream, socket: None, processes });
        }
        for program in &mut self.programs {
            for number in 0..program.processes.len() {
                program.start(number, settings_file, gateway)?;
            }
        }
        Ok(())
    }

    /// Tells another gateway where the processes listen.
    pub(super) fn introduce(&self, gateway: &mut Gateway) -> io::Result<()> {
        self.programs.iter().try_for_each(|program| program.introduce(gateway))
    }

    /// Starts processes again whose time has come. Returns messages for the operator.
    pub(super) fn go_on(
        &mut self,
        now_ms: u64,
        settings_file: &Shared,
        gateway: &mut Gateway,
    ) -> Vec<String> {
        let programs = self.programs.iter_mut();
        programs.flat_map(|program| program.go_on(now_ms, settings_file, gateway)).collect()
    }

    /// Reaps processes that have ended. Those that are `needed` start again. Returns messages for the operator.
    pub(super) fn reap(&mut self, needed: bool, now_ms: u64) -> Vec<String> {
        self.programs.iter_mut().flat_map(|program| program.reap(needed, now_ms)).collect()
    }

    /// Asks all processes to end, kills them when they have had time to, and later gives them up.
    pub(super) fn end(&mut self, now_ms: u64) {
        self.processes_mut().for_each(|process| process.restart_ms = None);
        match self.end {
            End::Later => {
                self.children().for_each(process::end_group);
                self.programs.iter().for_each(Program::wake);
                self.end = End::Asked { kill_ms: now_ms + END_MS };
            }
            End::Asked { kill_ms } if kill_ms <= now_ms => self.kill(now_ms),
            End::Killed { leave_ms } if leave_ms <= now_ms => {
                self.processes_mut().for_each(|process| process.child = None);
            }
            End::Asked { .. } | End::Killed { .. } => {}
        }
    }

    /// Whether processes that were asked to end still have time to.
    pub(super) fn have_time(&self) -> bool {
        matches!(self.end, End::Asked { .. }) && !self.is_over()
    }

    /// Kills every process.
    pub(super) fn kill(&mut self, now_ms: u64) {
        self.children().for_each(process::kill_group);
        if !matches!(self.end, End::Killed { .. }) {
            self.end = End::Killed { leave_ms: now_ms + END_MS };
        }
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        self.programs.iter().flat_map(|program| &program.processes)
    }

    fn processes_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.programs.iter_mut().flat_map(|program| &mut program.processes)
    }

    fn children(&self) -> impl Iterator<Item = &Child> {
        self.processes().filter_map(|process| process.child.as_ref())
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.children().map(Child::id)
    }

    /// Whether every process has ended.
    pub(super) fn is_over(&self) -> bool {
        self.children().next().is_none()
    }

    /// The next deadline.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let end_ms = match self.end {
            End::Asked { kill_ms: ms } | End::Killed { leave_ms: ms } if !self.is_over() => Some(ms),
            _ => None,
        };
        self.processes().filter_map(|process| process.restart_ms).chain(end_ms).min()
    }
}

impl Program {
    /// Starts the process of this number, from 0.
    fn start(&mut self, number: usize, settings_file: &Shared, gateway: &mut Gateway) -> io::Result<()> {
        let process = &mut self.processes[number];
        process.restart_ms = None;
        process.started_ms = clock::monotonic_ms();
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => Socket::new()
                .map_err(|e| io::Error::new(e.kind(), format!("cannot make a socket for it: {e}")))?,
        };
        let listener = Arc::clone(&self.socket.insert(socket).listener);
        let (ours, theirs) = channel::pair(CHANNEL_BYTES)?;
        for order in [Order::Settings(Arc::clone(settings_file)), Order::Program(self.upstream, listener)] {
            send_order(&ours, &order)?;
        }
        let child = process::start_role(program::ROLE, theirs)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot start it: {e}")))?;
        process.child = Some(child);
        self.introduce(gateway)
    }

    fn introduce(&self, gateway: &mut Gateway) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        gateway.give(Order::Program(self.upstream, Arc::clone(&socket.place)))
    }

    /// Starts processes again whose time has come. Returns messages for the operator.
    fn go_on(&mut self, now_ms: u64, settings_file: &Shared, gateway: &mut Gateway) -> Vec<String> {
        let mut news = Vec::new();
        for number in 0..self.processes.len() {
            if self.processes[number].restart_ms.is_none_or(|ms| ms > now_ms) {
                continue;
            }
            if let Err(e) = self.start(number, settings_file, gateway) {
                let process = &mut self.processes[number];
                // Otherwise only the gateway does not know it. The next gateway will.
                if process.child.is_none() {
                    process.wait_longer(now_ms);
                }
                news.push(format!("{}: {e}", process.name));
            }
        }
        self.close_if_all_pause(now_ms);
        news
    }

    /// Makes an empty connection for each process, so that accept(2) returns. After a signal that a process handles, many
    /// languages call it again, even if the process waited with poll(2) first and another one has taken the connection.
    fn wake(&self) {
        let Some(socket) = &self.socket else { return };
        for _ in self.processes.iter().filter(|process| process.child.is_some()) {
            // Without it, the process ends only when it is killed.
            let _ = local::connect_in_private(&socket.place);
        }
    }

    fn reap(&mut self, needed: bool, now_ms: u64) -> Vec<String> {
        let news = self.processes.iter_mut().filter_map(|process| process.reap(needed, now_ms)).collect();
        self.close_if_all_pause(now_ms);
        news
    }

    /// Closes the socket if no process runs or starts now: requests would wait for the end of a pause.
    fn close_if_all_pause(&mut self, now_ms: u64) {
        if self.processes.iter().all(|process| process.pauses(now_ms)) {
            self.socket = None;
        }
    }
}

impl Socket {
    fn new() -> io::Result<Self> {
        let (listener, place) = local::listen_in_private()?;
        Ok(Self { listener: Arc::new(listener), place: Arc::new(place) })
    }
}

impl Process {
    fn new(name: String) -> Self {
        Self { name, child: None, started_ms: 0, restart_ms: None, pause_ms: RESTART_PAUSE_MS }
    }

    fn pauses(&self, now_ms: u64) -> bool {
        self.child.is_none() && self.restart_ms.is_some_and(|ms| ms > now_ms)
    }

    fn reap(&mut self, needed: bool, now_ms: u64) -> Option<String> {
        let child = self.child.as_mut()?;
        let status = process::peek(child).ok()??;
        // Processes that it has left behind would go on accepting requests. Until it is reaped, no other group can have its
        // number.
        process::kill_rest_of_group(child);
        let _ = child.try_wait();
        self.child = None;
        if !needed {
            return None;
        }
        let steady_ms = if status.success() { SUCCESS_MS } else { STEADY_MS };
        if now_ms >= self.started_ms + steady_ms {
            (self.pause_ms, self.restart_ms) = (RESTART_PAUSE_MS, Some(now_ms));
            return (!status.success()).then(|| self.ended(status, "starting another"));
        }
        let again = format!("starting another in {} s", self.pause_ms / 1_000);
        self.wait_longer(now_ms);
        Some(self.ended(status, &again))
    }

    /// Starts it again after a pause.
    fn wait_longer(&mut self, now_ms: u64) {
        self.restart_ms = Some(now_ms + self.pause_ms);
        self.pause_ms = (2 * self.pause_ms).min(PAUSE_MS_MAX);
    }

    fn ended(&self, status: ExitStatus, then: &str) -> String {
        format!("{} ended ({}); {then}", self.name, Ending::from(status))
    }
}
