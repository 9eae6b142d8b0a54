//! The event loop of a worker: waits for events, passes them to the engine, and does the periodic work.

mod accept;
mod links;
mod own_jobs;

use std::io;

use flash_engine::{AcceptQueue, Engine, JobId, Key, Log, Moment, Outcome, Readiness, SiteId};
use flash_prompt::OwnedFd;
use flash_prompt::epoll::{Ready, Watch};
use flash_prompt::mechanism::{Awaited, Mechanism};
use flash_prompt::timer::Timer;
use flash_prompt::{clock, net};
use flash_tls::Acceptor;

use crate::calls::{self, Call, note_call};
use crate::comparisons::OwnJobs;
use crate::control::{InForce, LAST_QUESTION, Order};
use crate::handshakes::{Computed, HandshakeThread};
use crate::helpers::HelperEvent;
use crate::reach::Reach;
use crate::refusals::Refusals;
use crate::setup::{Accepts, Given, Plan};
use crate::site_file::{self, SiteFile};
use crate::stats::Counters;
use crate::system::LinuxSystem;

/// Maximum number of ready descriptors taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Blocks are loaded without a request only while fewer jobs than this are under way, so that misses have the
/// disk.
const WARM_UPS_MAX: usize = 2;
/// Period of the work that no event announces: idle helpers, log lines, reports.
const HOUSEKEEPING_MS: u64 = 100;
/// The kind of a ready descriptor, in the upper byte of its token.
pub mod kind {
    /// A client.
    pub const CONNECTION: u64 = 0;
    /// A listening socket.
    pub const LISTENER: u64 = 1;
    /// The channel to a helper.
    pub const HELPER: u64 = 2;
    /// The channel to the supervisor.
    pub const CONTROL: u64 = 3;
    /// The timer of the loop.
    pub const TIMER: u64 = 4;
    /// The descriptor by which the threads of an architecture wake each other.
    pub const WAKE_UP: u64 = 5;
    /// The channel to the keeper of the store.
    pub const KEEPER: u64 = 6;
    /// A listening socket of the warm endpoint.
    pub const ENDPOINT_LISTENER: u64 = 7;
    /// A connection of the warm endpoint.
    pub const ENDPOINT_CONNECTION: u64 = 8;
    /// The channel to the gateway.
    pub const GATEWAY: u64 = 9;
    /// A connection to the server of a route.
    pub const UPSTREAM: u64 = 10;
    /// The channel to the thread that computes handshakes.
    pub const HANDSHAKES: u64 = 11;
}

const KIND_SHIFT: u32 = 56;

/// The token of the descriptor of this kind and number.
#[must_use]
pub fn token(kind: u64, number: u64) -> u64 {
    kind << KIND_SHIFT | number
}

/// The kind and number of a token.
#[must_use]
pub fn parts(token: u64) -> (u64, u64) {
    (token >> KIND_SHIFT, token & ((1 << KIND_SHIFT) - 1))
}

/// A worker.
pub struct Worker {
    /// The engine, which makes all decisions.
    pub engine: Engine<LinuxSystem>,
    /// The sockets, files, helpers and logs.
    pub sys: LinuxSystem,
    /// The event mechanism that watches every descriptor.
    pub mechanism: Mechanism,
    timer: Timer,
    /// Those of encrypted connections are last.
    listeners: Vec<OwnedFd>,
    /// How many of them are not.
    plain_listeners: usize,
    /// Makes the record layers of encrypted connections.
    tls: Option<Acceptor>,
    handshakes: Option<HandshakeThread>,
    /// The accept queue of each listener.
    queues: Vec<AcceptQueue>,
    accepts: Accepts,
    /// Whether the listeners are watched.
    listening: bool,
    /// A spare descriptor, closed for a moment when no other descriptor is left.
    spare: Option<OwnedFd>,
    draining: bool,
    now_ms: u64,
    /// Whether this turn has as many events as are taken at once, so that others are likely to wait.
    is_full: bool,
    housekeeping_ms: u64,
    refusals: Refusals,
}

fn moment(now_ns: u64) -> Moment {
    Moment { monotonic_ns: now_ns, wall_ns: clock::wall_ns() }
}

fn from_engine(awaited: Readiness) -> Awaited {
    let Readiness { readable, writable, hung_up, .. } = awaited;
    Awaited { readable, writable, hung_up }
}

fn to_engine(ready: Ready) -> Readiness {
    let Ready { readable, writable, hung_up, broken, .. } = ready;
    Readiness { readable, writable, hung_up, broken }
}

/// The events that poll or select must watch for a token; None if its descriptor is closed.
fn awaited(engine: &Engine<LinuxSystem>, sys: &LinuxSystem, token: u64) -> Option<Awaited> {
    let (kind, number) = parts(token);
    match kind {
        kind::CONNECTION => engine.awaited(Key::from_u64(number)).map(from_engine),
        kind::UPSTREAM => engine.awaited_of_link(Key::from_u64(number)).map(from_engine),
        kind::HELPER => sys.helpers.has(number).then_some(Awaited::INPUT),
        kind::GATEWAY => sys.gateway.is_open(number).then_some(Awaited::INPUT),
        kind::KEEPER => sys.store.as_ref().filter(|store| store.is_open(number)).map(|_| Awaited::INPUT),
        _ => Some(Awaited::INPUT),
    }
}

impl Worker {
    /// Makes a worker that reaches files through `reach`, with helpers or with jobs of its own.
    ///
    /// # Errors
    ///
    /// Any error of making its event mechanism and timer, or of watching its descriptors.
    pub fn new(mut given: Given, plan: Plan, reach: Reach, own: Option<OwnJobs>) -> io::Result<Worker> {
        calls::know_roots(&plan.rules.sites);
        let mut mechanism = Mechanism::new(plan.mechanism, EVENTS_MAX)?;
        mechanism.add(&given.control, token(kind::CONTROL, 0), Watch::Input)?;
        let mut listeners = std::mem::take(&mut given.listeners);
        let plain_listeners = listeners.len();
        listeners.append(&mut given.tls_listeners);
        let tls = given.tls.take();
        let handshakes = given.handshakes.take().map(|(channel, queue)| HandshakeThread::new(channel, queue));
        if let Some(thread) = &handshakes {
            mechanism.add(thread, token(kind::HANDSHAKES, 0), Watch::Input)?;
        }
        for listener in &listeners {
            // The connections of a Unix socket have the kernel's own bound.
            if net::is_tcp(listener)? {
                net::cap_in_flight(listener, plan.cap)?;
                net::bound_unsent(listener, plan.unsent_bytes_max)?;
            }
        }
        let timer = Timer::new()?;
        mechanism.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
        let now = moment(clock::monotonic_ns());
        let sys = LinuxSystem::new(given, &plan, (reach, own), &mut mechanism)?;
        let mut worker = Worker {
            refusals: Refusals::new(plan.mechanism, plan.rules.server_field),
            engine: Engine::new(plan.rules, now),
            timer,
            spare: Some(sys.supervisor.channel.try_clone()?),
            sys,
            mechanism,
            queues: vec![AcceptQueue::new(plan.accept_wait_ms); listeners.len()],
            listeners,
            plain_listeners,
            tls,
            handshakes,
            accepts: plan.accepts,
            listening: false,
            draining: false,
            now_ms: now.monotonic_ms(),
            is_full: false,
            housekeeping_ms: now.monotonic_ms(),
        };
        worker.listen(true)?;
        Ok(worker)
    }

    /// Sets the file for request bodies, and how many slots it may have.
    pub fn set_spool(&mut self, file: OwnedFd, slots: u32) {
        self.engine.set_spool(file.into(), slots);
    }

    /// Runs until the supervisor has gone or, after an order to drain, until no connection is left.
    /// `end_turn` does the architecture's own work at the end of a turn.
    pub fn run(mut self, mut end_turn: impl FnMut(&mut Worker) -> io::Result<()>) -> io::Result<()> {
        let mut batch = Vec::with_capacity(EVENTS_MAX);
        loop {
            let timeout_ms = self.until_next()?;
            batch.clear();
            let (engine, sys) = (&self.engine, &self.sys);
            self.mechanism.wait(timeout_ms, |token| awaited(engine, sys, token), &mut batch)?;
            self.begin_turn(batch.len());
            self.dispatch(&batch)?;
            self.end_turn();
            end_turn(&mut self)?;
            if self.is_over() {
                return Ok(());
            }
        }
    }

    /// Reads the clock, once per turn and after each wait. `events` is the number of events to be handled.
    pub fn begin_turn(&mut self, events: usize) {
        let now_ns = clock::monotonic_ns();
        calls::begin_turn(now_ns, events);
        let now = moment(now_ns);
        self.now_ms = now.monotonic_ms();
        self.is_full = events >= EVENTS_MAX;
        self.engine.handle_turn(now);
    }

    /// Does the work at the end of a turn.
    pub fn end_turn(&mut self) {
        // Housekeeping comes before jobs are started, because it can allow helpers to be requested again.
        if self.now_ms >= self.housekeeping_ms {
            self.housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
            self.sys.keep_house(self.now_ms);
            if let Some(report) = self.refusals.report(self.now_ms, self.engine.connections_len()) {
                self.sys.report(&report);
            }
            // Repeats the request for files whose jobs were lost or found no room; it has no effect on
            // others.
            let set_aside = self.sys.closing.aside();
            self.close_deleted(set_aside);
        }
        self.close_returned();
        self.fail_links();
        self.help_with_handshakes();
        self.go_on();
        self.engine.handle_timeouts(&mut self.sys);
        self.warm();
        self.release_blocks();
        self.queues.iter_mut().for_each(|queue| queue.handle_turn_end(self.is_full));
    }

    /// Releases evicted blocks of the store that are no longer sent.
    #[inline]
    pub fn release_blocks(&mut self) {
        if let Some(store) = &mut self.sys.store {
            store.release();
        }
    }

    /// Loads blocks that were hot before the start into the store, a few at a time, and only while no request
    /// waits.
    fn warm(&mut self) {
        let Some(store) = self.sys.store.as_mut().filter(|store| store.is_warming()) else { return };
        if self.engine.jobs_under_way() >= WARM_UPS_MAX {
            return;
        }
        let Some(block) = store.next_warm() else { return };
        if !self.engine.handle_warm(&mut self.sys, block.0, &block.1, block.2)
            && let Some(store) = &mut self.sys.store
        {
            store.put_warm_back(block);
        }
    }

    /// Continues connections that used up their turn, and those whose job is done.
    pub fn go_on(&mut self) {
        self.engine.handle_continued(&mut self.sys);
    }

    /// Whether it was ordered to drain.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether it was ordered to drain and has finished. It then ends, and reports its counters a last time.
    pub fn is_over(&mut self) -> bool {
        let is_over = self.draining && self.engine.is_drained() && self.sys.has_finished(self.now_ms);
        if is_over {
            self.send_stats(LAST_QUESTION);
        }
        is_over
    }

    /// Sets the timer for the next deadline. Returns 0 if there is work to do at once.
    pub fn until_next(&mut self) -> io::Result<Option<u64>> {
        if self.sys.own.as_ref().is_some_and(OwnJobs::has_one) || self.sys.gateway.has_failed() {
            return Ok(Some(0));
        }
        let mut next_ms = self.engine.poll_next_ms();
        if self.sys.needs_housekeeping() {
            next_ms = Some(next_ms.unwrap_or(u64::MAX).min(self.housekeeping_ms));
        }
        if let Some(ms) = self.handshakes.as_ref().and_then(HandshakeThread::next_ms) {
            next_ms = Some(next_ms.unwrap_or(u64::MAX).min(ms));
        }
        match next_ms {
            Some(0) => return Ok(Some(0)),
            Some(ms) => self.timer.at_latest(ms)?,
            None => {}
        }
        Ok(None)
    }

    /// Makes the timer expire at once.
    pub fn wake_loop(&mut self) -> io::Result<()> {
        self.timer.at_latest(0)
    }

    /// Handles a batch of ready descriptors.
    pub fn dispatch(&mut self, batch: &[Ready]) -> io::Result<()> {
        self.count_dispatch(batch);
        for ready in batch {
            self.handle_event(*ready)?;
        }
        Ok(())
    }

    /// Counts the events of a dispatch.
    #[inline]
    pub fn count_dispatch(&mut self, batch: &[Ready]) {
        if !batch.is_empty() {
            self.engine.count_dispatch(batch.len());
        }
    }

    /// Handles one ready descriptor.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the supervisor has gone, and errors of its channel.
    #[inline]
    pub fn handle_event(&mut self, ready: Ready) -> io::Result<()> {
        let (kind, number) = parts(ready.token);
        match kind {
            kind::CONNECTION => {
                self.engine.handle_ready(&mut self.sys, Key::from_u64(number), to_engine(ready));
            }
            kind::UPSTREAM => {
                self.engine.handle_link_ready(&mut self.sys, Key::from_u64(number), to_engine(ready));
            }
            kind::LISTENER => self.accept(number as usize),
            kind::HELPER => self.receive_from_helper(number),
            kind::TIMER => self.timer.clear()?,
            kind::KEEPER => self.receive_from_keeper(),
            kind::GATEWAY => self.receive_from_gateway(),
            kind::HANDSHAKES => self.receive_handshakes()?,
            _ => self.receive_orders()?,
        }
        Ok(())
    }

    fn receive_from_helper(&mut self, number: u64) {
        // One message: a helper sends another one only after its next job.
        let event = self.sys.helpers.receive(number);
        note_call(Call::Message);
        match event {
            HelperEvent::Nothing => {}
            HelperEvent::Done(id, outcome) => self.finish(id, outcome),
            HelperEvent::Gone(job) => {
                if let Some(id) = job {
                    self.sys.report_loss();
                    self.engine.handle_job(&mut self.sys, id, Outcome::Lost);
                }
                self.engine.handle_helper_ready(&mut self.sys);
            }
            HelperEvent::AbandonedGone(id) => self.engine.handle_helper_gone(&mut self.sys, id),
        }
    }

    /// Computes a handshake if the thread does not come to it.
    fn help_with_handshakes(&mut self) {
        if let Some(key) = self.handshakes.as_mut().and_then(|thread| thread.help(self.now_ms)) {
            self.engine.handle_ready(&mut self.sys, key, Readiness::default());
        }
    }

    /// Continues the connections whose handshakes the thread has computed.
    fn receive_handshakes(&mut self) -> io::Result<()> {
        while let Some(thread) = &self.handshakes {
            match thread.receive() {
                Computed::Nothing => break,
                Computed::Connection(key) => {
                    self.engine.handle_ready(&mut self.sys, key, Readiness::default());
                }
                Computed::Ended => {
                    self.mechanism.remove(thread)?;
                    self.handshakes = None;
                    self.sys.report("the thread for TLS handshakes has ended; the event loop computes them");
                }
            }
        }
        Ok(())
    }

    /// Whether a thread computes handshakes.
    #[must_use]
    pub fn has_handshake_thread(&self) -> bool {
        self.handshakes.is_some()
    }

    /// Drops the blocks that the keeper evicts from the store.
    fn receive_from_keeper(&mut self) {
        let Some(store) = &mut self.sys.store else { return };
        for slot in store.receive() {
            self.engine.handle_leaving(slot.into());
        }
    }

    /// Queues jobs that close deleted files. If a site has no room for the job, it is queued again later.
    fn close_deleted(&mut self, set_aside: Vec<(SiteId, u64)>) {
        for (site, number) in set_aside {
            let _ = self.engine.handle_deleted(&mut self.sys, site, number);
        }
    }

    /// Closes unused files; deleted files are closed by jobs.
    pub fn close_returned(&mut self) {
        let set_aside = self.sys.closing.see_to_returned();
        self.close_deleted(set_aside);
    }

    fn finish(&mut self, id: JobId, mut outcome: Outcome<SiteFile>) {
        let site = self.engine.site_of(id).unwrap_or(SiteId(0));
        site_file::adopt(site, &mut outcome, self.sys.closing.returned());
        if let Outcome::Failed(number) = outcome {
            self.sys.report_failure(number);
        }
        self.engine.handle_job(&mut self.sys, id, outcome);
    }

    fn receive_orders(&mut self) -> io::Result<()> {
        loop {
            match self.sys.supervisor.receive() {
                Ok(Order::Helper(number, channel)) => {
                    if self.sys.helpers.add(&mut self.mechanism, token(kind::HELPER, number), number, channel)
                    {
                        self.engine.handle_helper_ready(&mut self.sys);
                    }
                }
                Ok(Order::NoHelper) => self.sys.helpers.not_started(),
                Ok(Order::Log(channel)) => self.sys.log.connect(channel),
                Ok(Order::Keeper(channel)) => {
                    if let Some(store) = &mut self.sys.store {
                        store.reconnect(&mut self.mechanism, |number| token(kind::KEEPER, number), channel);
                    }
                }
                Ok(Order::Gateway(channel)) => {
                    let token = |number| token(kind::GATEWAY, number);
                    self.sys.gateway.connect(&mut self.mechanism, token, channel);
                }
                Ok(Order::Filler(channel)) => {
                    if let Some(store) = &self.sys.store {
                        store.take_filler(channel);
                    }
                }
                // Its disk was late.
                Ok(Order::Spool(slots, file)) => self.set_spool(file, slots),
                Ok(Order::Drain) => self.drain(),
                Ok(Order::Stats(question)) => self.send_stats(question),
                Ok(Order::Ping) => self.sys.supervisor.send_pong(),
                Ok(Order::Stalls(question)) => self.sys.supervisor.send_stalls(question),
                Ok(other) => self.sys.supervisor.report_wrong_order(&other),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn send_stats(&self, question: u64) {
        let counters = Counters::of(&self.engine.counters(), self.sys.helpers.counts(), calls::counted());
        self.sys.supervisor.send_stats(question, &counters);
    }

    fn drain(&mut self) {
        // Closing this worker's copies is enough: the supervisor and other workers keep theirs.
        let _ = self.listen(false);
        self.listeners.clear();
        self.engine.handle_drain(&mut self.sys);
        self.draining = true;
    }

    /// Reports that the worker has begun, under the sandbox `in_force`.
    pub fn ready(&self, in_force: InForce) -> io::Result<()> {
        self.sys.supervisor.send_ready(in_force)
    }
}
