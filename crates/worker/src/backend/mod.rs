//! The event loop of `flash backend`: accepts other servers, passes their messages to the engine's
//! [`Backend`], gives its jobs to helpers, and sends its replies. Nothing in it waits for a disk or for
//! another process.
//!
//! Called by the server at the start of a worker. Every descriptor that a client sends is handed to
//! [`Closes`] in the end: closing a file can wait, for a disk if it was deleted, and without end if its file
//! system hangs.

mod clients;
mod endpoint;
mod roots;
mod session;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flash_engine::backend::protocol::MESSAGE_BYTES_MAX;
use flash_engine::backend::{Backend, BackendRules, ClientFile};
use flash_engine::{FileId, JobId, Key, Outcome, ReportLimit, SiteId};
use flash_prompt::channel;
use flash_prompt::epoll::{Ready, Watch};
use flash_prompt::mechanism::{Mechanism, MechanismKind};
use flash_prompt::timer::Timer;
use flash_prompt::{OwnedFd, clock, file};

use crate::REPORT_MS;
use crate::calls::{self, Call, note_call};
use crate::control::{InForce, Order};
use crate::convert;
use crate::helpers::{HelperEvent, Helpers};
use crate::setup::HelperRules;
use crate::site_file::{Returned, SiteFile};
use crate::supervisor::Supervisor;
use crate::worker::{kind, parts, token};
use endpoint::Endpoint;
pub use endpoint::{EndpointGiven, EndpointListener, EndpointProtocol};
pub use roots::WarmRoot;
use session::Session;

/// Maximum number of ready descriptors taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Maximum number of connections accepted in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 32;
/// Maximum number of messages received from one connection in one turn.
const MESSAGES_PER_TURN_MAX: usize = 32;
/// Period of the work that no event announces: idle helpers and reports.
const HOUSEKEEPING_MS: u64 = 100;

/// Closes files where that delays no client. A file system that hangs has a thread of its own for this.
pub trait Closes: Debug {
    /// Closes a file of this share ([`Backend::share_of`]).
    fn close(&self, share: SiteId, file: OwnedFd);

    /// The number of files of this share that are not closed yet.
    fn backlog(&self, share: SiteId) -> usize;
}

/// Everything that the loop gets at its start.
#[derive(Debug)]
pub struct BackendGiven {
    /// The channel to the supervisor.
    pub control: OwnedFd,
    /// The socket to accept from.
    pub listener: OwnedFd,
    /// The warm endpoint, if there is one.
    pub endpoint: Option<EndpointGiven>,
    /// The rules of the engine.
    pub rules: BackendRules,
    /// Helpers.
    pub helpers: HelperRules,
    /// The users that can connect, in addition to root and the user of this process.
    pub users: Vec<u32>,
    /// Closes files.
    pub closer: Box<dyn Closes>,
    /// The number of names looked up at the start, which a thread of the server counts.
    pub names: Arc<AtomicU64>,
}

/// The loop.
pub struct BackendLoop {
    backend: Backend<SiteFile>,
    sessions: HashMap<Key, Session>,
    /// Connections with messages that were left for the next turn.
    unread: VecDeque<Key>,
    helpers: Helpers,
    mechanism: Mechanism,
    timer: Timer,
    supervisor: Supervisor,
    listener: Option<OwnedFd>,
    endpoint: Option<Endpoint>,
    users: Vec<u32>,
    /// Files that are no longer used.
    returned: Returned,
    closer: Box<dyn Closes>,
    names: Arc<AtomicU64>,
    /// A spare descriptor, closed for a moment when no other descriptor is left.
    spare: Option<OwnedFd>,
    buffer: Vec<u8>,
    draining: bool,
    now_ms: u64,
    housekeeping_ms: u64,
    losses: ReportLimit,
    refusals: ReportLimit,
}

impl BackendLoop {
    /// Makes a loop.
    ///
    /// # Errors
    ///
    /// Any error of making its epoll and timer, or of watching its descriptors.
    pub fn new(given: BackendGiven) -> io::Result<Self> {
        let BackendGiven { control, listener, endpoint, rules, helpers, users, closer, names } = given;
        let mut mechanism = Mechanism::new(MechanismKind::Epoll, EVENTS_MAX)?;
        let supervisor = Supervisor::new(control.try_clone()?)?;
        mechanism.add(&control, token(kind::CONTROL, 0), Watch::Input)?;
        let timer = Timer::new()?;
        mechanism.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
        channel::set_nonblocking(&listener)?;
        mechanism.add(&listener, token(kind::LISTENER, 0), Watch::Input)?;
        let now_ms = clock::monotonic_ms();
        let mut backend = Backend::new(rules);
        let returned = Returned::default();
        let endpoint = match endpoint {
            Some(given) => Some(open_endpoint((given, returned.clone()), &mut backend, &mut mechanism)?),
            None => None,
        };
        Ok(Self {
            backend,
            endpoint,
            sessions: HashMap::new(),
            unread: VecDeque::new(),
            helpers: Helpers::new(helpers, control),
            mechanism,
            timer,
            spare: Some(supervisor.channel.try_clone()?),
            supervisor,
            listener: Some(listener),
            users,
            returned,
            closer,
            names,
            buffer: vec![0; MESSAGE_BYTES_MAX],
            draining: false,
            now_ms,
            housekeeping_ms: now_ms,
            losses: ReportLimit::default(),
            refusals: ReportLimit::default(),
        })
    }

    /// Reports that the loop has begun, under the sandbox `in_force`.
    pub fn ready(&self, in_force: InForce) -> io::Result<()> {
        self.supervisor.send_ready(in_force)
    }

    /// Runs until the supervisor has gone or, after an order to drain, until no connection is left.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the supervisor has gone, and errors of its channel and of epoll.
    pub fn run(mut self) -> io::Result<()> {
        let mut batch = Vec::with_capacity(EVENTS_MAX);
        loop {
            let timeout_ms = self.until_next()?;
            batch.clear();
            self.mechanism.wait(timeout_ms, |_| None, &mut batch)?;
            let now_ns = clock::monotonic_ns();
            calls::begin_turn(now_ns, batch.len());
            self.now_ms = now_ns / 1_000_000;
            self.backend.handle_turn(self.now_ms);
            if let Some(endpoint) = &mut self.endpoint {
                endpoint.handle_turn(self.now_ms);
            }
            for ready in &batch {
                self.handle_event(*ready)?;
            }
            for _ in 0..self.unread.len() {
                if let Some(client) = self.unread.pop_front() {
                    self.receive(client);
                }
            }
            if let Some(endpoint) = &mut self.endpoint {
                endpoint.continue_unread(&mut self.backend);
            }
            self.end_turn();
            if self.draining
                && self.sessions.is_empty()
                && self.endpoint.as_ref().is_none_or(Endpoint::is_empty)
            {
                return Ok(());
            }
        }
    }

    /// Sets the timer for the next deadline. Returns 0 if there is work to do at once.
    fn until_next(&mut self) -> io::Result<Option<u64>> {
        if !self.unread.is_empty() || self.endpoint.as_ref().is_some_and(Endpoint::has_more) {
            return Ok(Some(0));
        }
        let housekeeping = (self.helpers.needs_housekeeping() || self.supervisor.has_reports())
            .then_some(self.housekeeping_ms);
        match self.backend.poll_next_ms().into_iter().chain(housekeeping).min() {
            Some(0) => return Ok(Some(0)),
            Some(ms) => self.timer.at_latest(ms)?,
            None => {}
        }
        Ok(None)
    }

    fn end_turn(&mut self) {
        if self.now_ms >= self.housekeeping_ms {
            self.housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
            self.helpers.keep_house(self.now_ms);
            if let Some(endpoint) = &mut self.endpoint {
                endpoint.keep_house(self.now_ms, &mut self.backend);
            }
            self.supervisor.send_reports();
        }
        let helpers = &mut self.helpers;
        self.backend.handle_timeouts(|job| helpers.abandon(job));
        self.start_jobs();
        self.send_replies();
        if self.endpoint.is_some() {
            // An answered connection can have its next question ready.
            self.start_jobs();
        }
        while let Some(client) = self.backend.poll_ended() {
            self.end(client);
        }
        for (file, share) in self.returned.take_shares() {
            self.closer.close(share, file);
        }
    }

    fn start_jobs(&mut self) {
        let helpers = &mut self.helpers;
        self.backend.start_jobs(|id, task, startable| {
            let started = helpers.start(id, task, startable, None);
            note_call(Call::Message);
            started
        });
    }

    fn handle_event(&mut self, ready: Ready) -> io::Result<()> {
        let (kind, number) = parts(ready.token);
        match kind {
            kind::CONNECTION => self.handle_client(Key::from_u64(number), ready),
            kind::LISTENER => self.accept(),
            kind::ENDPOINT_LISTENER => {
                if let Some(endpoint) = &mut self.endpoint {
                    endpoint.accept(number, &self.users, (&mut self.mechanism, self.now_ms));
                }
            }
            kind::ENDPOINT_CONNECTION => {
                if let Some(endpoint) = &mut self.endpoint {
                    endpoint.handle_event(number, ready, &mut self.backend);
                }
            }
            kind::HELPER => self.receive_from_helper(number),
            kind::TIMER => self.timer.clear()?,
            _ => self.receive_orders()?,
        }
        Ok(())
    }

    fn receive_from_helper(&mut self, number: u64) {
        loop {
            let event = self.helpers.receive(number);
            note_call(Call::Message);
            match event {
                HelperEvent::Nothing => return,
                HelperEvent::Done(job, outcome) => self.finish(job, &outcome),
                HelperEvent::Gone(job) => {
                    if let Some(job) = job {
                        self.finish(job, &Outcome::Lost);
                        if self.losses.is_due(self.now_ms, REPORT_MS) {
                            let text = "a helper ended before its job was done; its requests failed";
                            self.supervisor.report(text);
                        }
                    }
                    return;
                }
                HelperEvent::AbandonedGone(job) => return self.backend.handle_helper_gone(job),
            }
        }
    }

    fn finish(&mut self, job: JobId, outcome: &Outcome<SiteFile>) {
        self.backend.handle_job(job, outcome);
    }

    fn receive_orders(&mut self) -> io::Result<()> {
        loop {
            match self.supervisor.receive() {
                Ok(Order::Helper(number, channel)) => {
                    // If it cannot be watched, it ends, and the next job asks for another.
                    self.helpers.add(&mut self.mechanism, token(kind::HELPER, number), number, channel);
                }
                Ok(Order::NoHelper) => self.helpers.not_started(),
                Ok(Order::Drain) => self.drain(),
                Ok(Order::Stats(question)) => self.send_stats(question),
                Ok(Order::Stalls(question)) => self.supervisor.send_stalls(question),
                Ok(other) => self.supervisor.report_wrong_order(&other),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn send_stats(&self, question: u64) {
        let looked_up = self.names.load(Ordering::Relaxed);
        let (backend, helpers) = (self.backend.counters(), self.helpers.counts());
        let counters = crate::stats::Counters::of_backend(&backend, looked_up, helpers, calls::counted());
        self.supervisor.send_stats(question, &counters);
    }

    /// Stops accepting and receiving. Each connection ends when its requests so far are answered; its client
    /// then connects to the next worker, or serves without the backend.
    fn drain(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = self.mechanism.remove(&listener);
        }
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.drain(&mut self.mechanism, &mut self.backend);
        }
        self.draining = true;
        self.unread.clear();
        let idle: Vec<Key> =
            self.sessions.keys().copied().filter(|client| self.backend.is_idle(*client)).collect();
        for client in idle {
            self.end(client);
        }
    }
}

/// Makes the endpoint a client of the engine.
fn open_endpoint(
    (given, returned): (EndpointGiven, Returned),
    backend: &mut Backend<SiteFile>,
    mechanism: &mut Mechanism,
) -> io::Result<Endpoint> {
    let EndpointGiven { listeners, roots, own_root } = given;
    let file::Identity { device, inode, mount, kind } = file::identity(&own_root)?;
    let id = FileId { device, inode, mount };
    let root = ClientFile { file: SiteFile::from(own_root), id, kind: convert::kind(kind) };
    let missing = || io::Error::other("the endpoint found no place among the clients");
    let client = backend.handle_endpoint(0, root).ok_or_else(missing)?;
    // The greeting.
    while backend.poll_reply().is_some() {}
    Endpoint::new(client, listeners, (roots, returned), mechanism)
}
