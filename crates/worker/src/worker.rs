//! The loop of a worker.

use std::io;
use std::net::SocketAddr;

use flash_engine::{Engine, JobId, Key, Log, Moment, Outcome, Readiness, SiteId, Task};
use flash_prompt::epoll::{Epoll, Ready, Watch};
use flash_prompt::mechanism::{Awaited, Mechanism, MechanismKind};
use flash_prompt::timer::Timer;
use flash_prompt::{AsFd, BorrowedFd, OwnedFd};
use flash_prompt::{channel, clock, net};

use crate::calls::{self, Call, lap};
use crate::complaint::Complaint;
use crate::control::{InForce, Notice, Order, receive_order, send_notice};
use crate::helpers::{self, Helpers};
use crate::log::LogBuffer;
use crate::own_jobs::{OwnJob, OwnJobs};
use crate::reach::{Reach, Sending};
use crate::setup::{Accepts, Given, Plan, Root};
use crate::site_file::{self, SiteFile};
use crate::socket::Socket;
use crate::stats::Counters;
use crate::system::{LinuxSystem, Parts};

/// Ready descriptors taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 32;
/// How often what needs no event is seen to: idle helpers, log lines, counts to be reported.
const HOUSEKEEPING_MS: u64 = 100;
/// What a ready descriptor belongs to, in the upper byte of its token.
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
    /// Of an architecture's own.
    pub const BELL: u64 = 5;
}

const KIND_SHIFT: u32 = 56;

/// The token of the descriptor of this kind and number.
#[must_use]
pub fn token(kind: u64, number: u64) -> u64 {
    kind << KIND_SHIFT | number
}

/// The kind and the number of a token.
#[must_use]
pub fn parts(token: u64) -> (u64, u64) {
    (token >> KIND_SHIFT, token & ((1 << KIND_SHIFT) - 1))
}

/// What a client is told that comes when the worker is at a limit.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: flash\r\nContent-Length: 0\r\n\
    Retry-After: 2\r\nConnection: close\r\n\r\n";

/// A worker, from its start on.
pub struct Worker {
    /// All that is decided is decided there.
    pub engine: Engine<LinuxSystem>,
    /// Sockets, files, helpers and logs.
    pub sys: LinuxSystem,
    /// Where everything is watched.
    pub mechanism: Mechanism,
    timer: Timer,
    control: OwnedFd,
    listeners: Vec<OwnedFd>,
    accepts: Accepts,
    /// Whether the listeners are watched.
    listening: bool,
    /// Kept for a moment when no other descriptor is left.
    spare: Option<OwnedFd>,
    draining: bool,
    now_ms: u64,
    housekeeping_ms: u64,
    refusals: Complaint,
    refused: u64,
    /// What the operator is told to do about refused clients.
    refusal_advice: &'static str,
}

fn moment(now_ns: u64) -> Moment {
    Moment { monotonic_ms: now_ns / 1_000_000, wall_ns: clock::wall_ns() }
}

/// What poll or select is to tell of a token; None for one whose descriptor is closed.
fn awaited(engine: &Engine<LinuxSystem>, sys: &LinuxSystem, token: u64) -> Option<Awaited> {
    let (kind, number) = parts(token);
    match kind {
        kind::CONNECTION => {
            let Readiness { readable, writable, hung_up, .. } = engine.awaited(Key::from_u64(number))?;
            Some(Awaited { readable, writable, hung_up })
        }
        kind::HELPER => sys.helpers.has(number).then_some(Awaited::INPUT),
        _ => Some(Awaited::INPUT),
    }
}

/// What to do about clients that had to be refused.
fn refusal_advice(mechanism: MechanismKind) -> &'static str {
    match mechanism {
        MechanismKind::Select => "select has room for no more: take --event-mechanism epoll",
        _ => "raise --connections or the descriptor limit (ulimit -n)",
    }
}

impl Worker {
    /// A worker that reaches files as `reach` says, with helpers or, if they are given, jobs of its own.
    ///
    /// # Errors
    ///
    /// Those of making its event mechanism and timer, and of watching what it was given.
    pub fn new(given: Given, plan: Plan, reach: Reach, own: Option<OwnJobs>) -> io::Result<Worker> {
        calls::know_roots(&plan.rules.sites);
        let Given { control, roots, listeners, log: log_writer, helpers: threads } = given;
        let mut mechanism = Mechanism::new(plan.mechanism, EVENTS_MAX)?;
        channel::set_nonblocking(&control)?;
        mechanism.add(&control, token(kind::CONTROL, 0), Watch::Input)?;
        let timer = Timer::new()?;
        mechanism.add(&timer, token(kind::TIMER, 0), Watch::Input)?;
        let now = moment(clock::monotonic_ns());
        let mut helpers = Helpers::new(plan.helpers, control.try_clone()?);
        for (number, channel) in (0..).zip(threads) {
            if !helpers.add(&mut mechanism, token(kind::HELPER, number), number, channel) {
                return Err(io::Error::other("a helper thread cannot be watched"));
            }
        }
        let mut log = LogBuffer::new();
        if let Some(channel) = log_writer {
            log.connect(channel);
        }
        // Under the others look-ups may wait for somebody else: they are jobs.
        let looks_up = |root: Root| (reach.under_all_roots || root.is_local).then_some(root.folder);
        let sys = LinuxSystem::new(Parts {
            roots: roots.into_iter().map(|root| root.and_then(looks_up)).collect(),
            reach,
            sending: Sending::new(plan.send, &reach),
            helpers,
            own,
            log,
            supervisor: control.try_clone()?,
        });
        let mut worker = Worker {
            engine: Engine::new(plan.rules, now),
            sys,
            mechanism,
            timer,
            spare: Some(control.try_clone()?),
            control,
            listeners,
            accepts: plan.accepts,
            listening: false,
            draining: false,
            now_ms: now.monotonic_ms,
            housekeeping_ms: now.monotonic_ms,
            refusals: Complaint::default(),
            refused: 0,
            refusal_advice: refusal_advice(plan.mechanism),
        };
        worker.listen(true)?;
        Ok(worker)
    }

    /// The timer of its loop, the one descriptor that it reads from by read(2).
    #[must_use]
    pub fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Runs until the supervisor is gone, or, after it said so, until nothing is under way. `end_turn` does
    /// what the architecture has to do besides.
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

    /// Reads the clock, once a turn and after each wait. So many `events` are to be heard.
    pub fn begin_turn(&mut self, events: usize) {
        let now_ns = clock::monotonic_ns();
        calls::begin_turn(now_ns, events);
        let now = moment(now_ns);
        self.now_ms = now.monotonic_ms;
        self.engine.handle_turn(now);
    }

    /// Does what follows the events of a turn.
    pub fn end_turn(&mut self) {
        // Before jobs are started: housekeeping may let them ask for helpers again.
        if self.now_ms >= self.housekeeping_ms {
            self.housekeeping_ms = self.now_ms + HOUSEKEEPING_MS;
            self.sys.keep_house(self.now_ms);
            self.complain(self.now_ms);
            // Those whose jobs were lost, or had no room; for others this changes nothing.
            let set_aside = self.sys.closing.aside();
            self.close_deleted(set_aside);
        }
        self.close_returned();
        self.go_on();
        self.engine.handle_timeouts(&mut self.sys);
    }

    /// Gives connections that used up their turn, or whose job is done, another one.
    pub fn go_on(&mut self) {
        self.engine.handle_continued(&mut self.sys);
    }

    /// Whether it was told to finish.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether it was told to finish, and has.
    pub fn is_over(&mut self) -> bool {
        self.draining && self.engine.is_drained() && self.sys.has_finished(self.now_ms)
    }

    /// Sets the timer for what comes next; gives 0 when there is work at once.
    pub fn until_next(&mut self) -> io::Result<Option<u64>> {
        if self.sys.own.as_ref().is_some_and(OwnJobs::has_one) {
            return Ok(Some(0));
        }
        let mut next_ms = self.engine.poll_next_ms();
        if self.sys.needs_housekeeping() {
            next_ms = Some(next_ms.unwrap_or(u64::MAX).min(self.housekeeping_ms));
        }
        match next_ms {
            Some(0) => return Ok(Some(0)),
            Some(ms) => self.timer.at_latest(ms)?,
            None => {}
        }
        Ok(None)
    }

    /// Has the timer run down at once.
    pub fn wake_loop(&mut self) -> io::Result<()> {
        self.timer.at_latest(0)
    }

    /// Has everybody hear what the kernel gave at once.
    pub fn dispatch(&mut self, batch: &[Ready]) -> io::Result<()> {
        self.count_dispatch(batch);
        for ready in batch {
            self.hear(*ready)?;
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

    /// Acts on one ready descriptor.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` when the supervisor is gone, and those of its channel.
    #[inline]
    pub fn hear(&mut self, ready: Ready) -> io::Result<()> {
        let (kind, number) = parts(ready.token);
        match kind {
            kind::CONNECTION => {
                let readiness = Readiness {
                    readable: ready.readable,
                    writable: ready.writable,
                    hung_up: ready.hung_up,
                    broken: ready.broken,
                };
                self.engine.handle_ready(&mut self.sys, Key::from_u64(number), readiness);
            }
            kind::LISTENER => self.accept(number as usize),
            kind::HELPER => self.hear_helper(number),
            kind::TIMER => self.timer.clear(),
            _ => self.hear_supervisor()?,
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let Some(fd) = self.listeners.get(listener) else { return };
            if self.accepts == Accepts::OneAtATime && !self.engine.is_drained() {
                return;
            }
            let accepted = net::accept(fd);
            lap(Call::Accept);
            match accepted {
                Ok((socket, peer)) => drop(self.welcome(Socket::own(socket), peer, None)),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => {
                        let listeners = std::mem::take(&mut self.listeners);
                        self.accept_at_limit(&listeners[listener]);
                        self.listeners = listeners;
                        return;
                    }
                },
            }
        }
    }

    /// Takes a connection in and has it watched, by `elsewhere` if that is given; None if it was refused.
    pub fn welcome(&mut self, socket: Socket, peer: SocketAddr, elsewhere: Option<&Epoll>) -> Option<Key> {
        match self.engine.handle_accept(&mut self.sys, socket, peer) {
            Ok(key) => {
                let socket = self.engine.connection(key)?;
                let token = token(kind::CONNECTION, key.to_u64());
                let watched = match elsewhere {
                    Some(epoll) => epoll.add(socket, token, Watch::Connection),
                    None => self.mechanism.add(socket, token, Watch::Connection),
                };
                lap(Call::Watch);
                if watched.is_ok() {
                    return Some(key);
                }
                // Memory for the watch ran out; nothing was received or sent yet.
                self.cut(key);
                self.engine.count_refused();
                self.refused += 1;
            }
            Err(socket) => self.refuse(&socket),
        }
        None
    }

    /// Closes a connection that cannot go on.
    pub fn cut(&mut self, key: Key) {
        let broken = Readiness { broken: true, ..Readiness::default() };
        self.engine.handle_ready(&mut self.sys, key, broken);
    }

    /// Watches the listeners, or leaves them to others.
    pub fn listen(&mut self, on: bool) -> io::Result<()> {
        if self.listening != on {
            for (number, listener) in self.listeners.iter().enumerate() {
                if on {
                    let watch = if self.accepts == Accepts::All { Watch::Input } else { Watch::Shared };
                    self.mechanism.add(listener, token(kind::LISTENER, number as u64), watch)?;
                } else {
                    self.mechanism.remove(listener)?;
                }
            }
            self.listening = on;
        }
        Ok(())
    }

    /// Without a descriptor nothing can be accepted, and the listener would be ready for ever:
    /// the spare one is lent to refuse one client at a time.
    pub fn accept_at_limit(&mut self, listener: impl AsFd) {
        self.spare = None;
        let accepted = net::accept(listener);
        lap(Call::Accept);
        if let Ok((socket, _)) = accepted {
            self.refuse(&socket);
        }
        self.spare = self.control.try_clone().ok();
    }

    fn refuse(&mut self, socket: impl AsFd) {
        // Closing with unread input would reset the connection, and the answer with it.
        let _ = net::recv(&socket, &mut [0; 4096]);
        // A client that is gone already need not be told.
        let _ = net::send(&socket, REFUSAL);
        let _ = net::end_sending(&socket);
        lap(Call::Send);
        self.engine.count_refused();
        self.refused += 1;
    }

    /// Tells the operator of refused clients, once a minute.
    fn complain(&mut self, now_ms: u64) {
        if self.refused == 0 || !self.refusals.is_due(now_ms) {
            return;
        }
        let counters = self.engine.counters();
        self.sys.report(&format!(
            "refused {} connections with {} open: a limit of connections or descriptors is reached; \
             {}",
            self.refused, counters.connections, self.refusal_advice
        ));
        self.refused = 0;
    }

    fn hear_helper(&mut self, number: u64) {
        loop {
            let heard = self.sys.helpers.receive(number);
            lap(Call::Message);
            match heard {
                helpers::Heard::Nothing => return,
                helpers::Heard::Done(id, outcome) => self.finish(id, outcome),
                helpers::Heard::Gone(job) => {
                    if let Some(id) = job {
                        self.sys.complain_of_loss();
                        self.engine.handle_job(&mut self.sys, id, Outcome::Lost);
                    }
                    return self.engine.handle_helper_ready(&mut self.sys);
                }
                helpers::Heard::AbandonedGone(id) => {
                    return self.engine.handle_helper_gone(&mut self.sys, id);
                }
            }
        }
    }

    /// Has helpers close deleted files. A file whose site has no room for the job is asked about again later.
    fn close_deleted(&mut self, set_aside: Vec<(SiteId, u64)>) {
        for (site, number) in set_aside {
            let _ = self.engine.handle_deleted(&mut self.sys, site, number);
        }
    }

    /// Closes the files that nobody needs any more; deleted ones by jobs.
    pub fn close_returned(&mut self) {
        let set_aside = self.sys.closing.see_to_returned();
        self.close_deleted(set_aside);
    }

    /// The job of the worker's own that was started, if one was.
    pub fn take_job(&mut self) -> Option<OwnJob> {
        match self.sys.own.as_mut()?.take()? {
            (id, Task::Close { number }) => {
                let file = self.sys.closing.take(number);
                if file.is_none() {
                    self.finish_own(id, Outcome::Lost);
                }
                file.map(|file| OwnJob::Close(id, file))
            }
            (id, task) => Some(OwnJob::Task(id, task)),
        }
    }

    /// What came of a job of the worker's own.
    pub fn finish_own(&mut self, id: JobId, outcome: Outcome<SiteFile>) {
        if self.sys.own.as_mut().is_some_and(|own| own.was_given_up(id)) {
            return self.engine.handle_helper_gone(&mut self.sys, id);
        }
        self.finish(id, outcome);
    }

    fn finish(&mut self, id: JobId, mut outcome: Outcome<SiteFile>) {
        let site = self.engine.site_of(id).unwrap_or(SiteId(0));
        site_file::adopt(site, &mut outcome, self.sys.closing.returned());
        if let Outcome::Failed(number) = outcome {
            self.sys.complain_of_failure(number);
        }
        self.engine.handle_job(&mut self.sys, id, outcome);
    }

    fn hear_supervisor(&mut self) -> io::Result<()> {
        loop {
            let order = receive_order(&self.control);
            lap(Call::Message);
            match order {
                Ok(Order::Helper(number, channel)) => {
                    if self.sys.helpers.add(&mut self.mechanism, token(kind::HELPER, number), number, channel)
                    {
                        self.engine.handle_helper_ready(&mut self.sys);
                    }
                }
                Ok(Order::NoHelper) => self.sys.helpers.not_started(),
                Ok(Order::Log(channel)) => self.sys.log.connect(channel),
                Ok(Order::Drain) => self.drain(),
                Ok(Order::Stats(question)) => self.tell_stats(question),
                Ok(Order::Stalls(question)) => {
                    self.tell(&Notice::Stalls(question, calls::stalls().to_json()));
                }
                Ok(other) => {
                    self.sys.report(&format!("a bug: the supervisor ordered {other:?} of a running worker"));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    fn tell_stats(&self, question: u64) {
        let counters = Counters::of(&self.engine.counters(), self.sys.helpers.counts(), calls::counted());
        self.tell(&Notice::Stats(question, counters.to_json()));
    }

    /// Answers a question. A supervisor that has no room for it now will not wait for it, either.
    fn tell(&self, answer: &Notice) {
        let _ = send_notice(&self.control, answer);
        lap(Call::Message);
    }

    fn drain(&mut self) {
        // Closing our copies is enough: the supervisor and other workers keep theirs.
        let _ = self.listen(false);
        self.listeners.clear();
        self.engine.handle_drain(&mut self.sys);
        self.draining = true;
    }

    /// Tells the supervisor that it has begun, held to its part by `in_force`.
    pub fn ready(&self, in_force: InForce) -> io::Result<()> {
        send_notice(&self.control, &Notice::Ready(in_force))
    }
}
