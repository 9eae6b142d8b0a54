//! The queue of jobs for helpers. Requests for the same job are joined; a queued job is dropped when no
//! request waits for it and given up at its deadline. Each root has its share of the queue and of the
//! helpers, roots take turns, and no client can fill the queue alone. Each root's queue is ordered by
//! remaining answer size with ageing ([`backlog`]). A request whose expected wait is too long is refused at
//! once ([`service_rate`]).
//!
//! Exchanges submit jobs and receive the results. This module knows exchanges by their keys and clients by
//! their numbers. `S` is the subject of a job: it is returned with the result and not interpreted.

mod backlog;
mod job;
mod service_rate;
mod shares;
mod short_waits;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::counters::{JobCounters, JobKind};
use crate::histogram::Histogram;
use crate::limits::{JOBS_AHEAD_MAX, JOBS_PER_CLIENT_MAX, JOBS_QUEUED_MAX, SHORT_WAIT_MS};
use crate::machine::JobId;
use crate::slab::SiteId;
use crate::slab::{ClientNumber, ExchangeKey, Key, Slab};
use backlog::{Backlog, Claim, Rank};
pub(crate) use job::{Job, JobKey, JobState, NoRoom, Patience, Urgency, Waiter, Wanted};
use shares::Shares;
use short_waits::ShortWaits;

/// The jobs of a worker.
#[derive(Debug)]
pub(crate) struct Jobs<F, S> {
    jobs: Slab<Job<F, S>>,
    by_key: HashMap<JobKey, JobId>,
    /// The root of each site.
    roots: Vec<usize>,
    /// The queued jobs of each root.
    queues: Vec<Backlog>,
    /// The deadlines of all queued jobs.
    deadlines: BTreeSet<(u64, Key)>,
    queue_shares: Shares,
    /// Places of the jobs that were queued ahead of any request's need.
    ahead_shares: Shares,
    /// Roots with queued jobs, in the order of their turns.
    turns: VecDeque<usize>,
    running: Vec<JobId>,
    /// Running jobs that were given up, with their roots, until their helpers have ended.
    given_up: Vec<(JobId, usize)>,
    /// Helpers that work for each root, including those given up that have not ended yet.
    helper_shares: Shares,
    helpers_max: usize,
    /// Listings among the jobs.
    listings: usize,
    /// Number of jobs created by each client's requests.
    of_clients: HashMap<ClientNumber, usize>,
    patience: Patience,
    short_waits: ShortWaits,
    /// Counters, in the order of [`JobKind::ALL`].
    pub(crate) counters: [JobCounters; JobKind::ALL.len()],
    /// The queue length whenever a job was added, including that job.
    pub(crate) lengths: Histogram,
}

impl<F, S> Jobs<F, S> {
    /// Makes a queue for at most `helpers_max` helpers. `roots` has the root number of each site, starting at
    /// 0.
    pub(crate) fn new(patience: Patience, helpers_max: usize, roots: Vec<usize>) -> Self {
        let roots_len = roots.iter().max().map_or(1, |last| last + 1);
        Self {
            jobs: Slab::new(),
            by_key: HashMap::new(),
            roots,
            queues: vec![Backlog::default(); roots_len],
            deadlines: BTreeSet::new(),
            queue_shares: Shares::new(JOBS_QUEUED_MAX, roots_len),
            ahead_shares: Shares::new(JOBS_AHEAD_MAX, roots_len),
            turns: VecDeque::new(),
            running: Vec::new(),
            given_up: Vec::new(),
            helper_shares: Shares::new(helpers_max, roots_len),
            helpers_max,
            listings: 0,
            of_clients: HashMap::new(),
            patience,
            short_waits: ShortWaits::default(),
            counters: Default::default(),
            lengths: Histogram::default(),
        }
    }

    /// Adds a root, as a site of its own. Returns its number.
    pub(crate) fn add_root(&mut self) -> SiteId {
        let root = self.queues.len();
        self.queues.push(Backlog::default());
        self.queue_shares.grow();
        self.ahead_shares.grow();
        self.helper_shares.grow();
        self.roots.push(root);
        SiteId((self.roots.len() - 1) as u16)
    }

    /// Whether requests for this key would be joined.
    pub(crate) fn has(&self, key: &JobKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// Joins the job with this key, or queues a new one. A job submitted without a waiter is done all the
    /// same.
    ///
    /// # Errors
    /// The share of its root or of its client is full, or the expected wait is too long.
    pub(crate) fn submit(
        &mut self,
        wanted: Wanted<F, S>,
        waiter: Option<Waiter>,
        now_ms: u64,
    ) -> Result<JobId, NoRoom> {
        self.submit_since(wanted, waiter, now_ms, now_ms)
    }

    /// Like [`Jobs::submit`], for a request that has waited for jobs since `came_ms` and keeps its place in
    /// the queue.
    ///
    /// # Errors
    /// As for [`Jobs::submit`].
    pub(crate) fn submit_since(
        &mut self,
        wanted: Wanted<F, S>,
        waiter: Option<Waiter>,
        came_ms: u64,
        now_ms: u64,
    ) -> Result<JobId, NoRoom> {
        let Wanted { key, task, urgency, subject, remaining_bytes } = wanted;
        let is_awaited = waiter.is_some() && urgency != Urgency::Ahead;
        let claim = Claim { came_ms, remaining_bytes, is_awaited };
        if let Some(id) = self.by_key.get(&key).copied() {
            self.join(id, waiter, claim);
            return Ok(id);
        }
        let root = self.roots[usize::from(key.site().0)];
        self.check_room((root, key.kind()), (urgency, claim), waiter, now_ms)?;
        self.listings += usize::from(matches!(key, JobKey::List(..)));
        if let Some(Waiter { client, .. }) = waiter {
            *self.of_clients.entry(client).or_default() += 1;
        }
        let deadline_ms = now_ms.saturating_add(self.patience.job_ms);
        let id = JobId(self.jobs.insert(Job {
            key: key.clone(),
            root,
            urgency,
            task,
            subject,
            waiters: waiter.iter().map(|waiter| waiter.exchange).collect(),
            client: waiter.map(|waiter| waiter.client),
            state: if waiter.is_some() { JobState::Queued } else { JobState::QueuedUnasked },
            since_ms: now_ms,
            queued_ms: 0,
            deadline_ms,
            claim,
            place: Rank::default(),
            is_new: came_ms >= now_ms,
        }));
        self.by_key.insert(key, id);
        self.enqueue(id, root, claim, now_ms);
        self.deadlines.insert((deadline_ms, id.0));
        self.lengths.add((self.jobs.len() - self.running.len()) as u64);
        Ok(id)
    }

    /// Adds a job to its root's queue.
    fn enqueue(&mut self, id: JobId, root: usize, claim: Claim, now_ms: u64) {
        if self.queues[root].is_empty() {
            self.turns.push_back(root);
        }
        let place = self.queues[root].insert(id, claim, now_ms);
        if let Some(job) = self.jobs.get_mut(id.0) {
            job.place = place;
            let urgency = job.urgency;
            self.shares_of(urgency).take(root);
        }
    }

    fn join(&mut self, id: JobId, waiter: Option<Waiter>, claim: Claim) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        match waiter {
            Some(waiter) => drop(job.waiters.insert(waiter.exchange)),
            None if job.state == JobState::Queued => job.state = JobState::QueuedUnasked,
            None => {}
        }
        if job.state != JobState::Running {
            job.claim = job.claim.joined(claim);
            job.place = self.queues[job.root].advance(job.place, job.claim);
        }
    }

    /// Decides whether a new job can be queued, and counts a refusal.
    fn check_room(
        &mut self,
        (root, kind): (usize, JobKind),
        (urgency, claim): (Urgency, Claim),
        waiter: Option<Waiter>,
        now_ms: u64,
    ) -> Result<(), NoRoom> {
        let has_room = self.has_room(root, urgency, waiter);
        let is_request = urgency == Urgency::Bounded && waiter.is_some();
        if has_room && !is_request {
            return Ok(());
        }
        let queue = &self.queues[root];
        let wait_ms =
            queue.service_rate.wait_ms(queue.ahead_of(claim), self.helper_shares.held(root), now_ms);
        if has_room && !self.is_too_long(wait_ms) {
            return Ok(());
        }
        if is_request {
            let counters = self.count(kind);
            *(if has_room { &mut counters.refused_wait } else { &mut counters.refused }) += 1;
        }
        Err(NoRoom { wait_ms })
    }

    fn is_too_long(&self, wait_ms: Option<u64>) -> bool {
        self.patience.queue_ms > 0 && wait_ms.is_some_and(|wait_ms| wait_ms > self.patience.queue_ms)
    }

    fn has_room(&self, root: usize, urgency: Urgency, waiter: Option<Waiter>) -> bool {
        let of_client =
            || waiter.and_then(|waiter| self.of_clients.get(&waiter.client)).copied().unwrap_or(0);
        match urgency {
            Urgency::Bounded => self.queue_shares.has_room(root) && of_client() < JOBS_PER_CLIENT_MAX,
            Urgency::UnderWay => true,
            Urgency::Ahead => self.ahead_shares.has_room(root) && of_client() < JOBS_PER_CLIENT_MAX / 2,
        }
    }

    /// The shares in which a queued job has its place.
    fn shares_of(&mut self, urgency: Urgency) -> &mut Shares {
        match urgency {
            Urgency::Bounded | Urgency::UnderWay => &mut self.queue_shares,
            Urgency::Ahead => &mut self.ahead_shares,
        }
    }

    pub(crate) fn count(&mut self, kind: JobKind) -> &mut JobCounters {
        &mut self.counters[kind as usize]
    }

    /// Removes an exchange from the waiters of a job. A queued job without waiters is dropped; a running job
    /// continues, and its result is stored.
    pub(crate) fn leave(&mut self, id: JobId, exchange: ExchangeKey) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        job.waiters.remove(&exchange);
        if job.waiters.is_empty() && job.state == JobState::Queued {
            self.take(id);
        }
    }

    /// Removes an exchange that was lost in a panic from all jobs.
    pub(crate) fn leave_all(&mut self, exchange: ExchangeKey) {
        let all: Vec<JobId> = self.jobs.keys().map(JobId).collect();
        for id in all {
            self.leave(id, exchange);
        }
    }

    /// Whether a request should wait a moment for a job of this site: nothing is queued for its root, no helper has been
    /// at work on it for longer than that, and no such wait was in vain lately.
    pub(crate) fn is_prompt(&self, site: SiteId, now_ms: u64) -> bool {
        let root = self.roots[usize::from(site.0)];
        let is_slow = |id: &JobId| {
            self.jobs.get(id.0).is_some_and(|job| job.root == root && job.since_ms + SHORT_WAIT_MS < now_ms)
        };
        self.queues[root].is_empty()
            && !self.running.iter().any(is_slow)
            && !self.given_up.iter().any(|(_, other)| *other == root)
            && self.short_waits.has_room(root, now_ms)
    }

    /// Makes the wait of an exchange for a job a short one.
    pub(crate) fn wait_shortly(&mut self, id: JobId, exchange: ExchangeKey, now_ms: u64) {
        self.short_waits.push(id, exchange, now_ms);
    }

    /// An exchange whose short wait was in vain. It no longer waits for the job.
    pub(crate) fn end_short_wait(&mut self, now_ms: u64) -> Option<ExchangeKey> {
        while let Some((id, exchange)) = self.short_waits.pop_due(now_ms) {
            if let Some(job) = self.jobs.get(id.0).filter(|job| job.waiters.contains(&exchange)) {
                self.short_waits.note_in_vain(job.root, now_ms);
                self.leave(id, exchange);
                return Some(exchange);
            }
        }
        None
    }

    /// The exchanges that wait for a job.
    pub(crate) fn waiters(&self, id: JobId) -> Vec<ExchangeKey> {
        self.jobs.get(id.0).map(|job| job.waiters.iter().copied().collect()).unwrap_or_default()
    }

    /// The job that starts next: the first job of the first root that has room.
    pub(crate) fn next_startable(&self) -> Option<(JobId, &Job<F, S>)> {
        // With more roots than reserved places, the shares together can have room for more jobs than there
        // are helpers.
        if self.running.len() >= self.helpers_max {
            return None;
        }
        let root = *self.turns.iter().find(|root| self.helper_shares.has_room(**root))?;
        let id = self.queues[root].first()?;
        Some((id, self.jobs.get(id.0)?))
    }

    /// How many queued jobs could start now if there were helpers for all.
    pub(crate) fn startable_len(&self) -> usize {
        let queued = self.turns.iter().map(|root| (*root, self.queues[*root].len()));
        self.helper_shares.room(queued).min(self.helpers_max.saturating_sub(self.running.len()))
    }

    /// Listings that are queued or running.
    pub(crate) fn listings_len(&self) -> usize {
        self.listings
    }

    /// Marks a queued job as started.
    pub(crate) fn started(&mut self, id: JobId, now_ms: u64) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        self.deadlines.remove(&(job.deadline_ms, id.0));
        job.state = JobState::Running;
        job.queued_ms = now_ms.saturating_sub(job.since_ms);
        job.since_ms = now_ms;
        job.deadline_ms = now_ms.saturating_add(self.patience.job_ms);
        let (root, kind, urgency, place) = (job.root, job.key.kind(), job.urgency, job.place);
        self.count(kind).started += 1;
        self.running.push(id);
        self.helper_shares.take(root);
        self.unqueue(root, urgency, place);
        // This root has had its turn.
        if let Some(at) = self.turns.iter().position(|r| *r == root) {
            self.turns.remove(at);
            self.turns.push_back(root);
        }
    }

    /// Gives a running job up, before [`Jobs::finish`] removes it. Its helper counts until it has ended.
    pub(crate) fn give_up(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id.0) else { return };
        self.given_up.push((id, job.root));
        self.helper_shares.take(job.root);
    }

    /// Frees the place of a helper whose job was given up, because it has ended.
    pub(crate) fn helper_gone(&mut self, id: JobId) {
        if let Some(at) = self.given_up.iter().position(|(given_up, _)| *given_up == id) {
            let (_, root) = self.given_up.swap_remove(at);
            self.helper_shares.give_back(root);
        }
    }

    fn unqueue(&mut self, root: usize, urgency: Urgency, place: Rank) {
        self.queues[root].remove(place);
        self.shares_of(urgency).give_back(root);
        if self.queues[root].is_empty() {
            self.turns.retain(|r| *r != root);
        }
    }

    /// Removes a job that has a result, or that can no longer get one.
    pub(crate) fn finish(&mut self, id: JobId, now_ms: u64) -> Option<Job<F, S>> {
        let is_given_up = self.is_given_up(id);
        if let Some(job) = self.jobs.get(id.0)
            && job.state == JobState::Running
            && !is_given_up
        {
            let (took_ms, helpers) = (now_ms.saturating_sub(job.since_ms), self.helper_shares.held(job.root));
            self.queues[job.root].service_rate.note_finished(took_ms, helpers, job.is_new, now_ms);
        }
        self.take(id)
    }

    /// Removes a job in any state.
    fn take(&mut self, id: JobId) -> Option<Job<F, S>> {
        let job = self.jobs.remove(id.0)?;
        self.by_key.remove(&job.key);
        self.listings -= usize::from(matches!(job.key, JobKey::List(..)));
        if let Some(client) = job.client
            && let Entry::Occupied(mut entry) = self.of_clients.entry(client)
        {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        if job.state == JobState::Running {
            self.running.retain(|r| *r != id);
            self.helper_shares.give_back(job.root);
        } else {
            self.deadlines.remove(&(job.deadline_ms, id.0));
            self.unqueue(job.root, job.urgency, job.place);
        }
        Some(job)
    }

    /// A job that has passed its deadline.
    pub(crate) fn overdue(&self, now_ms: u64) -> Option<JobId> {
        let due = |id: &JobId| self.jobs.get(id.0).is_some_and(|job| job.deadline_ms <= now_ms);
        self.running.iter().copied().chain(self.first_due()).find(due)
    }

    /// The earliest deadline of a job or end of a short wait, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.running
            .iter()
            .copied()
            .chain(self.first_due())
            .filter_map(|id| self.jobs.get(id.0))
            .map(|job| job.deadline_ms)
            .chain(self.short_waits.next_ms())
            .min()
    }

    /// The queued job with the earliest deadline.
    fn first_due(&self) -> Option<JobId> {
        self.deadlines.first().map(|(_, key)| JobId(*key))
    }

    pub(crate) fn kind_of(&self, id: JobId) -> Option<JobKind> {
        self.jobs.get(id.0).map(|job| job.key.kind())
    }

    /// The site that a job belongs to.
    pub(crate) fn site_of(&self, id: JobId) -> Option<SiteId> {
        self.jobs.get(id.0).map(|job| job.key.site())
    }

    pub(crate) fn is_running(&self, id: JobId) -> bool {
        self.jobs.get(id.0).is_some_and(|job| job.state == JobState::Running)
    }

    /// Whether a job was given up and its helper has not ended yet.
    pub(crate) fn is_given_up(&self, id: JobId) -> bool {
        self.given_up.iter().any(|(given_up, _)| *given_up == id)
    }

    pub(crate) fn queued_len(&self) -> usize {
        self.turns.iter().map(|root| self.queues[*root].len()).sum()
    }

    pub(crate) fn running_len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn given_up_len(&self) -> usize {
        self.given_up.len()
    }
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
