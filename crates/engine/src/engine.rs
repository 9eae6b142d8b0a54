//! The engine of one worker: what it is told, and what it is asked. It joins wires, exchanges and the core, and decides
//! nothing itself.

use std::net::SocketAddr;

use crate::counters::Counters;
use crate::desk::Core;
use crate::exchange::{Exchanges, finish_job};
use crate::jobs::{Job, JobKey, JobState, Urgency, Wanted};
use crate::limits::{ABANDONED_MS, OVERDUE_PER_TURN_MAX};
use crate::machine::{JobId, Machine, Moment, Outcome, Task};
use crate::rules::{Rules, SiteId};
use crate::slab::Key;
use crate::store::Version;
use crate::wire::{Around, Protocol, Readiness, Wires};
use std::sync::Arc;

/// The engine of one worker.
///
/// * Told what happened: [`handle_turn`](Engine::handle_turn) first in each turn, then
///   [`handle_accept`](Engine::handle_accept), [`handle_ready`](Engine::handle_ready),
///   [`handle_job`](Engine::handle_job), [`handle_helper_ready`](Engine::handle_helper_ready),
///   [`handle_helper_gone`](Engine::handle_helper_gone), [`handle_deleted`](Engine::handle_deleted),
///   [`handle_drain`](Engine::handle_drain), and last
///   [`handle_continued`](Engine::handle_continued) and
///   [`handle_timeouts`](Engine::handle_timeouts). What it cannot see itself, it is told to count:
///   [`count_dispatch`](Engine::count_dispatch), [`count_refused`](Engine::count_refused).
/// * Asked what is next: [`poll_next_ms`](Engine::poll_next_ms),
///   [`is_continued`](Engine::is_continued), [`is_drained`](Engine::is_drained).
/// * Getters: [`counters`](Engine::counters), [`connection`](Engine::connection),
///   [`awaited`](Engine::awaited), [`site_of`](Engine::site_of).
///
/// No method waits; each does a bounded amount of work. A panic in a connection's turn is reported with its request line
/// and costs that connection only.
#[derive(Debug)]
pub struct Engine<M: Machine> {
    core: Core<M::File>,
    exchanges: Exchanges<M::File>,
    wires: Wires<M::Socket>,
}

impl<M: Machine> Engine<M> {
    /// An engine that knows nothing yet.
    pub fn new(rules: Rules, now: Moment) -> Self {
        Self { core: Core::new(rules, now), exchanges: Exchanges::new(), wires: Wires::new(now.monotonic_ms) }
    }

    /// A turn of the loop begins.
    pub fn handle_turn(&mut self, now: Moment) {
        self.core.clock.set(now);
    }

    /// A client has connected. Gives the connection's key, or the socket back when there are as many connections as
    /// allowed and none of them is idle.
    ///
    /// # Errors
    /// The socket, to be told so and closed.
    pub fn handle_accept(
        &mut self,
        machine: &mut M,
        socket: M::Socket,
        peer: SocketAddr,
    ) -> Result<Key, M::Socket> {
        let (around, wires) = self.around(machine);
        wires.accept(around, socket, peer, Protocol::H1)
    }

    /// The same for a client that speaks the tests' protocol of streams.
    ///
    /// # Errors
    /// The socket, to be told so and closed.
    #[cfg(feature = "test-wire")]
    pub fn handle_accept_streams(
        &mut self,
        machine: &mut M,
        socket: M::Socket,
        peer: SocketAddr,
    ) -> Result<Key, M::Socket> {
        let (around, wires) = self.around(machine);
        wires.accept(around, socket, peer, Protocol::Streams)
    }

    /// The kernel gave this many events at once, at least one.
    #[inline]
    pub fn count_dispatch(&mut self, events: usize) {
        self.core.counters.dispatches.add(events as u64);
    }

    /// A client was refused at a limit.
    pub fn count_refused(&mut self) {
        self.core.counters.refused += 1;
    }

    /// A connection's socket is ready; one that is closed already is passed over.
    #[inline]
    pub fn handle_ready(&mut self, machine: &mut M, key: Key, ready: Readiness) {
        let (mut around, wires) = self.around(machine);
        wires.ready(&mut around, key, ready);
    }

    /// A job is done, or lost.
    pub fn handle_job(&mut self, machine: &mut M, id: JobId, outcome: Outcome<M::File>) {
        self.finish(id, outcome);
        self.start_jobs(machine);
    }

    fn finish(&mut self, id: JobId, outcome: Outcome<M::File>) {
        let wires = &mut self.wires;
        finish_job(&mut self.core, &mut self.exchanges, id, outcome, |opener| {
            wires.continue_later(opener.connection);
        });
    }

    /// A helper has become idle.
    pub fn handle_helper_ready(&mut self, machine: &mut M) {
        self.start_jobs(machine);
    }

    /// The helper of a job that was given up is gone: only now is its place in its root's share free again, so a root
    /// whose disk hangs for good holds no more helpers than its share.
    pub fn handle_helper_gone(&mut self, machine: &mut M, id: JobId) {
        self.core.jobs.helper_gone(id);
        self.start_jobs(machine);
    }

    /// A deleted file of a site that the engine had open was set aside by the machine under this number: a helper has to
    /// close it. False when there is no room for the job; the machine asks again later.
    pub fn handle_deleted(&mut self, machine: &mut M, site: SiteId, number: u64) -> bool {
        let wanted = Wanted {
            key: JobKey::Close(site, number),
            task: Task::Close { number },
            urgency: Urgency::Ahead,
            subject: None,
        };
        let is_queued = self.core.jobs.submit(wanted, None, self.core.clock.ms()).is_some();
        self.start_jobs(machine);
        is_queued
    }

    /// Goes on with connections that used up their turn, or whose job is done.
    pub fn handle_continued(&mut self, machine: &mut M) {
        let (mut around, wires) = self.around(machine);
        wires.go_on(&mut around);
        self.start_jobs(machine);
    }

    /// Acts on deadlines that have passed.
    pub fn handle_timeouts(&mut self, machine: &mut M) {
        let now_ms = self.core.clock.ms();
        for _ in 0..OVERDUE_PER_TURN_MAX {
            let Some(id) = self.core.jobs.overdue(now_ms) else { break };
            if self.core.jobs.is_running(id) {
                machine.abandon_job(id);
                self.core.jobs.give_up(id);
            }
            self.finish(id, Outcome::Lost);
        }
        let (mut around, wires) = self.around(machine);
        wires.time_out(&mut around);
        self.start_jobs(machine);
        self.core.store.files.sweep(now_ms);
    }

    /// Finishes what is under way and takes nothing new: idle connections are closed, the others after their response,
    /// also those whose first request is still to come.
    pub fn handle_drain(&mut self, machine: &mut M) {
        let (mut around, wires) = self.around(machine);
        wires.drain(&mut around);
    }

    /// Whether nothing is under way any more.
    pub fn is_drained(&self) -> bool {
        self.wires.len() == 0
    }

    /// When the engine wants its next turn without any event, in milliseconds of the monotonic clock: 0 for at once, None
    /// for never.
    pub fn poll_next_ms(&self) -> Option<u64> {
        let next = [self.wires.next_ms(), self.core.jobs.next_ms(), self.core.store.files.next_ms()];
        let next_ms = next.into_iter().flatten().min()?;
        // More was due in this turn than one turn does.
        Some(if next_ms <= self.core.clock.ms() { 0 } else { next_ms })
    }

    /// Whether a connection has used up its turn and goes on in the next one.
    pub fn is_continued(&self, key: Key) -> bool {
        self.wires.is_continued(key)
    }

    /// The socket of a connection.
    pub fn connection(&self, key: Key) -> Option<&M::Socket> {
        self.wires.socket(key)
    }

    /// The site that a job under way is for.
    pub fn site_of(&self, job: JobId) -> Option<SiteId> {
        self.core.jobs.site_of(job)
    }

    /// The events of a connection that the engine does not know of yet, for a loop that hears of levels, not of edges.
    /// None for a connection that is closed.
    pub fn awaited(&self, key: Key) -> Option<Readiness> {
        self.wires.awaited(key)
    }

    /// The engine's counts, and the amounts it holds now.
    pub fn counters(&self) -> Counters {
        let Core { jobs, store, counters, .. } = &self.core;
        Counters {
            connections: self.wires.len(),
            exchanges: self.exchanges.len(),
            input_bytes: self.wires.input_bytes(),
            names: store.names.len(),
            content_bytes: store.contents.memory_bytes(),
            files: store.files.len(),
            jobs: jobs.counters,
            queue_lengths: jobs.lengths,
            jobs_queued: jobs.queued_len(),
            jobs_running: jobs.running_len(),
            jobs_given_up: jobs.given_up_len(),
            ..*counters
        }
    }

    fn around<'t>(&'t mut self, machine: &'t mut M) -> (Around<'t, M>, &'t mut Wires<M::Socket>) {
        let around = Around { machine, core: &mut self.core, exchanges: &mut self.exchanges };
        (around, &mut self.wires)
    }

    /// Hands queued jobs to helpers while there are idle ones.
    fn start_jobs(&mut self, machine: &mut M) {
        while let Some((id, job)) = self.core.jobs.next_startable() {
            if self.is_abandoned(id, job) {
                self.close_waiters(machine, id);
                continue;
            }
            if !machine.start_job(id, &job.task, self.core.jobs.startable_len()) {
                return;
            }
            self.core.jobs.started(id, self.core.clock.ms());
        }
    }

    /// Whether all clients that wait for a job seem to have gone away while the disk is behind.
    fn is_abandoned(&self, id: JobId, job: &Job<M::File, Arc<Version>>) -> bool {
        self.core.clock.ms() >= job.since_ms + ABANDONED_MS
            && job.state == JobState::Queued
            && !job.waiters.is_empty()
            && self.wires.have_all_left(&self.exchanges, id, &job.waiters)
    }

    /// Closes the connections that wait for a job, which is thereby dropped.
    fn close_waiters(&mut self, machine: &mut M, id: JobId) {
        let waiters = self.core.jobs.waiters(id);
        for waiter in waiters {
            let opener = self.exchanges.get(waiter).map(|exchange| exchange.opener);
            if let Some(opener) = opener {
                let (mut around, wires) = self.around(machine);
                wires.close(&mut around, opener.connection);
            }
        }
    }
}
