//! The engine of one worker and its whole public interface. It joins wires, exchanges and the shared state;
//! the decisions are made in the other modules. The worker's event loop and the tests call it.

use std::io;
use std::net::SocketAddr;

use crate::admission::WhyRefused;
use crate::caches::Version;
use crate::context::{Context, Core};
use crate::counters::Counters;
use crate::exchange::{Budget, Exchanges, Inputs, Serving, Turn, end_short_waits, finish_job};
use crate::jobs::{Job, JobKey, JobState, Urgency, Wanted};
use crate::limits::{ABANDONED_MS, OVERDUE_PER_TURN_MAX};
use crate::machine::{JobId, Machine, Moment, Outcome, RecordLayer, Task};
use crate::rules::{Rules, ServerId};
use crate::slab::Key;
use crate::slab::SiteId;
use crate::transport::Readiness;
use crate::upstream::{Links, NoLink};
use crate::wire::{Protocol, Wires};
use std::sync::Arc;

/// The engine of one worker.
///
/// - Events: [`handle_turn`](Engine::handle_turn) first in each turn, then
///   [`handle_accept`](Engine::handle_accept) or
///   [`handle_accept_encrypted`](Engine::handle_accept_encrypted), [`handle_ready`](Engine::handle_ready),
///   [`handle_job`](Engine::handle_job), [`handle_helper_ready`](Engine::handle_helper_ready),
///   [`handle_helper_gone`](Engine::handle_helper_gone), [`handle_deleted`](Engine::handle_deleted),
///   [`handle_leaving`](Engine::handle_leaving), [`handle_warm`](Engine::handle_warm),
///   [`handle_probed`](Engine::handle_probed),
///   [`handle_drain`](Engine::handle_drain), and at the end of the turn
///   [`handle_continued`](Engine::handle_continued) and [`handle_timeouts`](Engine::handle_timeouts).
/// - Counts of things that only the worker sees: [`count_dispatch`](Engine::count_dispatch),
///   [`count_refused`](Engine::count_refused).
/// - The next step: [`poll_next_ms`](Engine::poll_next_ms), [`is_continued`](Engine::is_continued),
///   [`is_drained`](Engine::is_drained).
/// - Getters: [`counters`](Engine::counters), [`connections_len`](Engine::connections_len), [`connection`](Engine::connection),
///   [`awaited`](Engine::awaited), [`site_of`](Engine::site_of),
///   [`jobs_under_way`](Engine::jobs_under_way).
///
/// No method blocks, and each does a bounded amount of work. A panic while a connection is served is reported
/// with its request line and costs only that connection.
#[derive(Debug)]
pub struct Engine<M: Machine> {
    core: Core<M::File>,
    exchanges: Exchanges<M::File>,
    links: Links<M::Socket>,
    wires: Wires<M::Socket>,
    inputs: Inputs,
    serving: Serving,
    head: Vec<u8>,
}

impl<M: Machine> Engine<M> {
    /// Makes an engine with empty caches and no connections.
    pub fn new(rules: Rules, now: Moment) -> Self {
        let wires = Wires::new(rules.admission.clone(), now.monotonic_ms());
        let links = Links::new(&rules.upstreams, rules.worker);
        Self {
            core: Core::new(rules, now),
            exchanges: Exchanges::new(),
            links,
            wires,
            inputs: Inputs::default(),
            serving: Serving::None,
            head: Vec::with_capacity(1024),
        }
    }

    /// Sets the file for request bodies that are held until they are complete. It has room for `slots` pieces of
    /// [`SPOOL_PIECE_BYTES_MAX`](crate::limits::SPOOL_PIECE_BYTES_MAX). Without it, longer bodies are passed on while they come.
    pub fn set_spool(&mut self, file: M::File, slots: u32) {
        let root = self.core.jobs.add_root();
        self.core.spool.set_file(file, root, slots);
    }

    /// Begins a turn of the event loop.
    #[inline]
    pub fn handle_turn(&mut self, now: Moment) {
        let before_ms = self.core.clock.ms();
        self.core.clock.set(now);
        let passed_ms = self.core.clock.ms().saturating_sub(before_ms);
        if passed_ms > 0 {
            let Core { jobs, egress, counters, .. } = &mut self.core;
            let numbers = [
                self.wires.len(),
                self.exchanges.len(),
                jobs.queued_len(),
                jobs.running_len(),
                egress.waiting(),
            ];
            counters.times.pass(passed_ms, numbers);
        }
        self.links.begin_turn();
    }

    /// Takes a new client and returns the key of its connection.
    ///
    /// # Errors
    /// Returns the socket when the limit of connections or the share of the client is reached and no such
    /// connection is idle. The caller must refuse the client and close the socket.
    pub fn handle_accept(
        &mut self,
        machine: &mut M,
        socket: M::Socket,
        peer: SocketAddr,
    ) -> Result<Key, (M::Socket, WhyRefused)> {
        let (mut turn, wires) = self.turn(machine);
        wires.accept(&mut turn, socket, peer, Protocol::H1)
    }

    /// Like [`Engine::handle_accept`], for an encrypted connection.
    ///
    /// # Errors
    /// As for [`Engine::handle_accept`], also if the client has too many unfinished handshakes.
    pub fn handle_accept_encrypted(
        &mut self,
        machine: &mut M,
        socket: M::Socket,
        peer: SocketAddr,
        layer: Box<dyn RecordLayer>,
    ) -> Result<Key, (M::Socket, WhyRefused)> {
        let (mut turn, wires) = self.turn(machine);
        wires.accept(&mut turn, socket, peer, Protocol::Tls(layer))
    }

    /// Counts a dispatch: the kernel returned this many events at once, at least one.
    #[inline]
    pub fn count_dispatch(&mut self, events: usize) {
        self.core.counters.dispatches.add(events as u64);
    }

    /// Counts a connection that was refused.
    pub fn count_refused(&mut self, why: WhyRefused) {
        self.core.counters.refused[why as usize] += 1;
    }

    /// Serves a connection whose socket is ready. Does nothing if it is already closed.
    #[inline]
    pub fn handle_ready(&mut self, machine: &mut M, key: Key, ready: Readiness) {
        let (mut turn, wires) = self.turn(machine);
        wires.ready(&mut turn, key, ready);
    }

    /// Takes the result of a job, or that it is lost.
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

    /// Handles a helper that is idle.
    pub fn handle_helper_ready(&mut self, machine: &mut M) {
        self.start_jobs(machine);
    }

    /// Handles the end of the helper of an abandoned job. Only now is its place in the share of
    /// its root free again, so a root whose disk hangs forever never holds more helpers than its share.
    pub fn handle_helper_gone(&mut self, machine: &mut M, id: JobId) {
        self.core.jobs.helper_gone(id);
        self.core.spool.helper_gone(id);
        self.start_jobs(machine);
    }

    /// Queues a job that closes a deleted file, which the machine has set aside under this number. A helper
    /// must do it, since closing can block. Returns false if the queue is full; the machine tries again
    /// later.
    pub fn handle_deleted(&mut self, machine: &mut M, site: SiteId, number: u64) -> bool {
        let wanted = Wanted {
            key: JobKey::Close(site, number),
            task: Task::Close { number },
            urgency: Urgency::Ahead,
            subject: None,
            remaining_bytes: 0,
        };
        let is_queued = self.core.jobs.submit(wanted, None, self.core.clock.ms()).is_ok();
        self.start_jobs(machine);
        is_queued
    }

    /// Queues a job that brings a block of a file that was hot into the store, although no request waits for
    /// it. Returns false if the queue is full.
    pub fn handle_warm(&mut self, machine: &mut M, site: SiteId, path: &[u8], block: u64) -> bool {
        let wanted = Wanted::warm(site, path, block);
        let is_queued = self.core.jobs.submit(wanted, None, self.core.clock.ms()).is_ok();
        self.start_jobs(machine);
        is_queued
    }

    /// Drops a block that is leaving the store, unless a transfer is still sending it.
    pub fn handle_leaving(&mut self, block: u64) {
        self.core.caches.contents.forget_block(block);
    }

    /// Takes a connection to a server that [`Gateway::connect`](crate::Gateway::connect) asked for.
    pub fn handle_connected(&mut self, machine: &mut M, link: Key, socket: M::Socket) {
        self.links.connected(machine, link, socket, self.core.clock.ms());
        self.wires.wake(&mut self.links, &self.exchanges);
    }

    /// Handles that a connection that [`Gateway::connect`](crate::Gateway::connect) asked for was not made.
    pub fn handle_not_connected(&mut self, machine: &mut M, link: Key, why: &io::Error) {
        let now_ms = self.core.clock.ms();
        let kind = NoLink::of(why);
        let report = match self.links.not_connected(machine, link, kind, now_ms) {
            Some(server) => {
                self.links.failure_report(server, &format!("cannot connect: {why}"), None, now_ms)
            }
            None if kind == NoLink::OwnFault => self.links.shortage(why, now_ms),
            None => None,
        };
        if let Some(report) = report {
            machine.report(&report);
        }
        self.wires.wake(&mut self.links, &self.exchanges);
    }

    /// Serves the connection to a server, whose socket is ready. Does nothing if it is already closed.
    pub fn handle_link_ready(&mut self, machine: &mut M, link: Key, ready: Readiness) {
        self.links.ready(machine, link, ready, self.core.clock.ms());
        self.wires.wake(&mut self.links, &self.exchanges);
    }

    /// Notes that the probes of a server have begun to fail, or to succeed ([`Gateway`](crate::Gateway)). A server that
    /// is down gets no requests, unless all servers of its upstream are down. Does nothing if there is no such server.
    pub fn handle_probed(&mut self, machine: &mut M, server: ServerId, is_up: bool) {
        self.links.probed(machine, server, is_up, self.core.clock.ms());
        self.wires.wake(&mut self.links, &self.exchanges);
    }

    /// The events that a connection to a server waits for. A level-triggered loop needs them; None if it is
    /// closed.
    pub fn awaited_of_link(&self, link: Key) -> Option<Readiness> {
        self.links.awaited(link)
    }

    /// Continues connections that had used up their turn, and those whose job is done.
    pub fn handle_continued(&mut self, machine: &mut M) {
        let (mut turn, wires) = self.turn(machine);
        wires.go_on(&mut turn);
        self.core.in_flight.announce_ends(machine);
        self.start_jobs(machine);
    }

    /// Handles deadlines that have passed.
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
        let wires = &mut self.wires;
        end_short_waits(&mut self.core, &mut self.exchanges, |opener| {
            wires.continue_later(opener.connection);
        });
        let (mut turn, wires) = self.turn(machine);
        wires.time_out(&mut turn);
        self.links.resume(machine, now_ms);
        self.links.close_idle(machine, now_ms);
        self.links.end_handshakes(machine, now_ms);
        self.wires.wake(&mut self.links, &self.exchanges);
        self.core.spool.give_back(&mut self.core.jobs, now_ms);
        self.start_jobs(machine);
        self.core.caches.files.sweep(now_ms);
        for key in self.core.throttles.grant(machine, self.core.clock.us()) {
            if let Some(exchange) = self.exchanges.get(key) {
                self.wires.continue_later(exchange.opener.connection);
            }
        }
        self.core.in_flight.announce_ends(machine);
        let egress = &mut self.core.egress;
        if !egress.is_off() {
            let others = machine.share_uplink(egress.is_in_use(now_ms));
            egress.share(others, now_ms);
        }
    }

    /// Begins to drain: closes idle connections at once, and every other connection after its next response,
    /// even if its first request is still to come.
    pub fn handle_drain(&mut self, machine: &mut M) {
        let (mut turn, wires) = self.turn(machine);
        wires.drain(&mut turn);
    }

    /// The number of open connections.
    pub fn connections_len(&self) -> usize {
        self.wires.len()
    }

    /// Whether the drain is complete: no connection is left.
    pub fn is_drained(&self) -> bool {
        self.wires.len() == 0
    }

    /// When the engine needs its next turn if no event comes, in milliseconds of the monotonic clock: 0 means
    /// at once, None means never.
    pub fn poll_next_ms(&self) -> Option<u64> {
        let Core { jobs, caches, egress, spool, throttles, .. } = &self.core;
        let next = [
            self.wires.next_ms(),
            self.links.next_ms(),
            jobs.next_ms(),
            caches.files.next_ms(),
            egress.next_ms(),
            spool.next_ms(),
            throttles.next_ms(),
        ];
        let next_ms = next.into_iter().flatten().min()?;
        // A deadline is still overdue, because one turn handles a bounded number of them.
        Some(if next_ms <= self.core.clock.ms() { 0 } else { next_ms })
    }

    /// Whether a connection has used up its turn and continues in the next one.
    pub fn is_continued(&self, key: Key) -> bool {
        self.wires.is_continued(key)
    }

    /// The socket of a connection.
    pub fn connection(&self, key: Key) -> Option<&M::Socket> {
        self.wires.socket(key)
    }

    /// The site that an unfinished job belongs to.
    pub fn site_of(&self, job: JobId) -> Option<SiteId> {
        self.core.jobs.site_of(job)
    }

    /// The events that a connection waits for. A level-triggered loop needs them; None if the connection is
    /// closed.
    pub fn awaited(&self, key: Key) -> Option<Readiness> {
        self.wires.awaited(key)
    }

    /// How many jobs are queued or running.
    pub fn jobs_under_way(&self) -> usize {
        self.core.jobs.queued_len() + self.core.jobs.running_len()
    }

    /// The counters, and the amounts that the engine holds now.
    pub fn counters(&self) -> Counters {
        let Core { jobs, caches, spool, counters, schedule, egress, .. } = &self.core;
        Counters {
            connections: self.wires.len(),
            clients: self.wires.clients_len(),
            exchanges: self.exchanges.len(),
            input_bytes: self.inputs.bytes() + spool.memory_bytes(),
            bodies: spool.bodies_len(),
            spool_slots: spool.slots_used(),
            names: caches.names.len(),
            contents: caches.contents.len(),
            files: caches.files.len(),
            jobs: jobs.counters,
            schedule: schedule.counters(),
            egress_waiting: egress.waiting(),
            egress_wait_ms: egress
                .waiting_since_ms()
                .map_or(0, |since_ms| self.core.clock.ms().saturating_sub(since_ms)),
            queue_lengths: jobs.lengths,
            jobs_queued: jobs.queued_len(),
            jobs_running: jobs.running_len(),
            jobs_given_up: jobs.given_up_len(),
            links: self.links.counters(),
            ..*counters
        }
    }

    fn turn<'t>(&'t mut self, machine: &'t mut M) -> (Turn<'t, M>, &'t mut Wires<M::Socket>) {
        let turn = Turn {
            context: Context { machine, core: &mut self.core },
            exchanges: &mut self.exchanges,
            links: &mut self.links,
            inputs: &mut self.inputs,
            budget: Budget::new(),
            draining: false,
            serving: &mut self.serving,
            head: &mut self.head,
        };
        (turn, &mut self.wires)
    }

    /// Starts queued jobs while there are idle helpers.
    fn start_jobs(&mut self, machine: &mut M) {
        while let Some((id, job)) = self.core.jobs.next_startable() {
            if self.is_abandoned(id, job) {
                self.drop_waiters(machine, id);
                continue;
            }
            if !machine.start_job(id, &job.task, self.core.jobs.startable_len()) {
                return;
            }
            self.core.jobs.started(id, self.core.clock.ms());
        }
    }

    /// Whether all clients that wait for a job seem to have gone away, while the queue is long.
    fn is_abandoned(&self, id: JobId, job: &Job<M::File, Arc<Version>>) -> bool {
        self.core.clock.ms() >= job.since_ms + ABANDONED_MS
            && job.state == JobState::Queued
            && !job.waiters.is_empty()
            && self.wires.have_all_left(&self.exchanges, id, &job.waiters)
    }

    /// Drops the exchanges that wait for a job, which drops the job.
    fn drop_waiters(&mut self, machine: &mut M, id: JobId) {
        for waiter in self.core.jobs.waiters(id) {
            let (mut turn, wires) = self.turn(machine);
            wires.drop_exchange(&mut turn, waiter);
        }
    }
}
