//! A worker: one epoll loop around one engine, on one core.
//!
//! Nothing in this folder may wait for a disk or a peer: a house-rules test refuses whatever
//! could. Only [`run`]'s start waits, for orders.

mod complaint;
mod helpers;
mod log;
mod site_file;
mod start;
mod system;

use std::io;
use std::net::SocketAddr;

use flash_engine::{Engine, JobId, Key, Moment, Outcome, Readiness, System};
use flash_sys::prompt::epoll::{Epoll, Ready, Watch};
use flash_sys::prompt::timer::Timer;
use flash_sys::prompt::{clock, net};
use flash_sys::{AsFd, OwnedFd};

use complaint::Complaint;
pub(crate) use log::BATCH_BYTES_MAX;
pub(crate) use site_file::SiteFile;
pub(crate) use start::run;
use system::LinuxSystem;

use crate::control::{Notice, Order, receive_order};
use crate::sandbox::InForce;
use crate::stats::Counters;

/// Ready descriptors taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Connections accepted from one listener in one turn.
const ACCEPTS_PER_TURN_MAX: usize = 32;
/// How often what needs no event is seen to: idle helpers, log lines, counts to be reported.
const HOUSEKEEPING_MS: u64 = 100;
/// What a ready descriptor belongs to, in the upper byte of its token.
mod kind {
    pub(super) const CONNECTION: u64 = 0;
    pub(super) const LISTENER: u64 = 1;
    pub(super) const HELPER: u64 = 2;
    pub(super) const CONTROL: u64 = 3;
    pub(super) const TIMER: u64 = 4;
}

const KIND_SHIFT: u32 = 56;

fn token(kind: u64, number: u64) -> u64 {
    kind << KIND_SHIFT | number
}

/// What a client is told that comes when the worker is at a limit.
const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nServer: flash\r\nContent-Length: 0\r\n\
    Retry-After: 2\r\nConnection: close\r\n\r\n";

struct Worker {
    engine: Engine<LinuxSystem>,
    sys: LinuxSystem,
    epoll: Epoll,
    timer: Timer,
    control: OwnedFd,
    listeners: Vec<OwnedFd>,
    /// Kept for a moment when no other descriptor is to be had.
    spare: Option<OwnedFd>,
    draining: bool,
    housekeeping_ms: u64,
    refusals: Complaint,
    refused: u64,
}

fn moment() -> Moment {
    Moment { monotonic_ms: clock::monotonic_ms(), wall_ns: clock::wall_ns() }
}

impl Worker {
    /// Runs until the supervisor is gone, or, after it said so, until nothing is under way.
    fn run(mut self) -> io::Result<()> {
        let mut batch = Vec::with_capacity(EVENTS_MAX);
        loop {
            let timeout_ms = self.until_next()?;
            batch.clear();
            batch.extend(self.epoll.wait(timeout_ms)?);
            let now = moment();
            self.engine.handle_turn(now);
            if !batch.is_empty() {
                self.engine.count_dispatch(batch.len());
            }
            for ready in &batch {
                self.dispatch(*ready)?;
            }
            // Before jobs are started: housekeeping may let them ask for helpers again.
            if now.monotonic_ms >= self.housekeeping_ms {
                self.housekeeping_ms = now.monotonic_ms + HOUSEKEEPING_MS;
                self.sys.keep_house(now.monotonic_ms);
                self.complain(now.monotonic_ms);
            }
            self.engine.handle_continued(&mut self.sys);
            self.engine.handle_timeouts(&mut self.sys);
            self.sys.helpers.close_deleted();
            if self.draining && self.engine.is_drained() && self.sys.has_finished(now.monotonic_ms) {
                return Ok(());
            }
        }
    }

    /// Sets the timer for what comes next; gives 0 when there is work at once.
    fn until_next(&mut self) -> io::Result<Option<u64>> {
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

    #[inline]
    fn dispatch(&mut self, ready: Ready) -> io::Result<()> {
        let number = ready.token & ((1 << KIND_SHIFT) - 1);
        match ready.token >> KIND_SHIFT {
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
            match net::accept(fd) {
                Ok((socket, peer)) => self.welcome(socket, peer),
                Err(e) => match e.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                    _ => return self.accept_at_limit(listener),
                },
            }
        }
    }

    fn welcome(&mut self, socket: OwnedFd, peer: SocketAddr) {
        match self.engine.handle_accept(socket, peer) {
            Ok(key) => {
                let watched = self.engine.connection(key).map(|socket| {
                    self.epoll.add(socket, token(kind::CONNECTION, key.to_u64()), Watch::Connection)
                });
                if !matches!(watched, Some(Ok(()))) {
                    // Memory for the watch ran out; nothing was received or sent yet.
                    let broken = Readiness { broken: true, ..Readiness::default() };
                    self.engine.handle_ready(&mut self.sys, key, broken);
                    self.engine.count_refused();
                    self.refused += 1;
                }
            }
            Err(socket) => self.refuse(&socket),
        }
    }

    /// Without a descriptor nothing can be accepted, and the listener would be ready for ever:
    /// the spare one is lent to refuse one client at a time.
    fn accept_at_limit(&mut self, listener: usize) {
        self.spare = None;
        if let Some(Ok((socket, _))) = self.listeners.get(listener).map(net::accept) {
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
             raise --connections or the descriptor limit (ulimit -n)",
            self.refused, counters.connections
        ));
        self.refused = 0;
    }

    fn hear_helper(&mut self, number: u64) {
        loop {
            match self.sys.helpers.receive(number) {
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

    fn finish(&mut self, id: JobId, outcome: Outcome<SiteFile>) {
        if let Outcome::Failed(number) = outcome {
            self.sys.complain_of_failure(number);
        }
        self.engine.handle_job(&mut self.sys, id, outcome);
    }

    fn hear_supervisor(&mut self) -> io::Result<()> {
        loop {
            match receive_order(&self.control) {
                Ok(Order::Helper(number, channel)) => {
                    if self.sys.helpers.add(&self.epoll, token(kind::HELPER, number), number, channel) {
                        self.engine.handle_helper_ready(&mut self.sys);
                    }
                }
                Ok(Order::NoHelper) => self.sys.helpers.not_started(),
                Ok(Order::Log(channel)) => self.sys.log.connect(channel),
                Ok(Order::Drain) => self.drain(),
                Ok(Order::Stats(question)) => self.tell_stats(question),
                Ok(other) => {
                    self.sys.report(&format!("a bug: the supervisor ordered {other:?} of a running worker"));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// What it has counted. A supervisor that has no room for it now will not wait for it, either.
    fn tell_stats(&self, question: u64) {
        let counters = Counters::of(&self.engine.counters(), self.sys.helpers.counts());
        let _ = crate::control::send_notice(&self.control, &Notice::Stats(question, counters.to_json()));
    }

    fn drain(&mut self) {
        // Closing our copies is enough: the supervisor and other workers keep theirs.
        for listener in self.listeners.drain(..) {
            let _ = self.epoll.remove(&listener);
        }
        self.engine.handle_drain(&mut self.sys);
        self.draining = true;
    }

    fn ready(&self, in_force: InForce) -> io::Result<()> {
        crate::control::send_notice(&self.control, &Notice::Ready(in_force))
    }
}
