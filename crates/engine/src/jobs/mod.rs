//! Jobs for helpers: joined, queued within bounds, dropped when nobody waits, given up at a deadline. Each root has
//! its share of the queue and of the helpers, roots take turns, and no client fills the queue alone.
//!
//! The exchanges submit jobs and are told what became of them; jobs know exchanges by their keys and clients by their
//! numbers. `S` is the subject of a job, which belongs to its result: it is carried along and not looked at.

mod shares;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::counters::{JobCounters, JobKind};
use crate::histogram::Histogram;
use crate::limits::{JOBS_PER_CLIENT_MAX, JOBS_QUEUED_MAX};
use crate::machine::{JobId, Task};
use crate::rules::SiteId;
use crate::slab::{ClientNumber, ExchangeKey, Slab, VersionId};
use shares::Shares;

/// The identity of a job: requests for the same one are joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JobKey {
    Find(SiteId, Box<[u8]>),
    List(SiteId, Box<[u8]>, bool),
    Load(SiteId, VersionId, u64),
    Read(SiteId, VersionId, u64, u64),
    Close(SiteId, u64),
}

impl JobKey {
    pub(crate) fn kind(&self) -> JobKind {
        match self {
            JobKey::Find(..) => JobKind::Find,
            JobKey::List(..) => JobKind::List,
            JobKey::Load(..) => JobKind::Load,
            JobKey::Read(..) => JobKind::Read,
            JobKey::Close(..) => JobKind::Close,
        }
    }

    fn site(&self) -> SiteId {
        match self {
            JobKey::Find(site, ..)
            | JobKey::List(site, ..)
            | JobKey::Load(site, ..)
            | JobKey::Read(site, ..)
            | JobKey::Close(site, ..) => *site,
        }
    }
}

/// A job that is wanted: what makes it the same as another, what a helper is asked, and how urgent it is.
#[derive(Debug)]
pub(crate) struct Wanted<F, S> {
    pub(crate) key: JobKey,
    pub(crate) task: Task<F>,
    pub(crate) urgency: Urgency,
    pub(crate) subject: Option<S>,
}

/// An exchange that waits for a job, and the client on whose behalf it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) exchange: ExchangeKey,
    pub(crate) client: ClientNumber,
}

#[derive(Debug)]
pub(crate) struct Job<F, S> {
    pub(crate) key: JobKey,
    root: usize,
    pub(crate) task: Task<F>,
    pub(crate) subject: Option<S>,
    pub(crate) waiters: BTreeSet<ExchangeKey>,
    /// The client whose request made it.
    client: Option<ClientNumber>,
    pub(crate) state: JobState,
    /// When it was queued, and then when it was started.
    pub(crate) since_ms: u64,
    pub(crate) deadline_ms: u64,
}

/// How far a job is, and whether anybody has to wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Queued, and dropped when nobody waits for it.
    Queued,
    /// Queued, and worth doing when nobody waits: a freshness check, or a close.
    QueuedUnasked,
    /// A helper does it.
    Running,
}

/// Whether a job may be queued when its root's share of the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only while there is room, and while the client has not filled its share.
    Bounded,
    /// Even without room: for answers under way, each of which waits for one job at a time.
    UnderWay,
    /// Only while half the share is empty: for what nobody waits for yet.
    Ahead,
}

/// The jobs of a worker.
#[derive(Debug)]
pub(crate) struct Jobs<F, S> {
    jobs: Slab<Job<F, S>>,
    by_key: HashMap<JobKey, JobId>,
    /// The root of each site.
    roots: Vec<usize>,
    /// The queued jobs of each root, in their order.
    queues: Vec<VecDeque<JobId>>,
    queue_shares: Shares,
    /// Roots with queued jobs, in the order of their turns.
    turns: VecDeque<usize>,
    running: Vec<JobId>,
    /// Running jobs that were given up, and their roots, until their helpers are gone.
    given_up: Vec<(JobId, usize)>,
    /// Helpers that work for each root, or were given up and are not gone.
    helper_shares: Shares,
    helpers_max: usize,
    /// Listings among the jobs.
    listings: usize,
    /// Jobs that each client's requests have made.
    of_clients: HashMap<ClientNumber, usize>,
    timeout_ms: u64,
    /// Their results, counted in the order of [`JobKind::ALL`].
    pub(crate) counters: [JobCounters; JobKind::ALL.len()],
    /// How many were queued whenever one was added, that one included.
    pub(crate) lengths: Histogram,
}

impl<F, S> Jobs<F, S> {
    /// Jobs that have `timeout_ms` in the queue, and again at one of `helpers_max` helpers.
    /// `roots` has the root of each site, by numbers from 0.
    pub(crate) fn new(timeout_ms: u64, helpers_max: usize, roots: Vec<usize>) -> Self {
        let roots_len = roots.iter().max().map_or(1, |last| last + 1);
        Self {
            jobs: Slab::new(),
            by_key: HashMap::new(),
            roots,
            queues: vec![VecDeque::new(); roots_len],
            queue_shares: Shares::new(JOBS_QUEUED_MAX, roots_len),
            turns: VecDeque::new(),
            running: Vec::new(),
            given_up: Vec::new(),
            helper_shares: Shares::new(helpers_max, roots_len),
            helpers_max,
            listings: 0,
            of_clients: HashMap::new(),
            timeout_ms,
            counters: Default::default(),
            lengths: Histogram::default(),
        }
    }

    /// Joins the job of this key or queues a new one. None when its root's share of the queue, or its client's, is
    /// full. Without a waiter it is worth doing all the same.
    pub(crate) fn submit(
        &mut self,
        wanted: Wanted<F, S>,
        waiter: Option<Waiter>,
        now_ms: u64,
    ) -> Option<JobId> {
        let Wanted { key, task, urgency, subject } = wanted;
        if let Some(id) = self.by_key.get(&key).copied() {
            self.join(id, waiter);
            return Some(id);
        }
        let root = self.roots[usize::from(key.site().0)];
        if !self.has_room(root, urgency, waiter) {
            if urgency == Urgency::Bounded && waiter.is_some() {
                self.count(key.kind()).refused += 1;
            }
            return None;
        }
        self.listings += usize::from(matches!(key, JobKey::List(..)));
        if let Some(Waiter { client, .. }) = waiter {
            *self.of_clients.entry(client).or_default() += 1;
        }
        let id = JobId(self.jobs.insert(Job {
            key: key.clone(),
            root,
            task,
            subject,
            waiters: waiter.iter().map(|waiter| waiter.exchange).collect(),
            client: waiter.map(|waiter| waiter.client),
            state: if waiter.is_some() { JobState::Queued } else { JobState::QueuedUnasked },
            since_ms: now_ms,
            deadline_ms: now_ms.saturating_add(self.timeout_ms),
        }));
        self.by_key.insert(key, id);
        if self.queues[root].is_empty() {
            self.turns.push_back(root);
        }
        self.queues[root].push_back(id);
        self.queue_shares.take(root);
        self.lengths.add((self.jobs.len() - self.running.len()) as u64);
        Some(id)
    }

    fn join(&mut self, id: JobId, waiter: Option<Waiter>) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        match waiter {
            Some(waiter) => drop(job.waiters.insert(waiter.exchange)),
            None if job.state == JobState::Queued => job.state = JobState::QueuedUnasked,
            None => {}
        }
    }

    fn has_room(&self, root: usize, urgency: Urgency, waiter: Option<Waiter>) -> bool {
        let shares = &self.queue_shares;
        let of_client =
            || waiter.and_then(|waiter| self.of_clients.get(&waiter.client)).copied().unwrap_or(0);
        match urgency {
            Urgency::Bounded => shares.has_room(root) && of_client() < JOBS_PER_CLIENT_MAX,
            Urgency::UnderWay => true,
            Urgency::Ahead => {
                shares.has_room(root)
                    && shares.held(root) < shares.most() / 2
                    && of_client() < JOBS_PER_CLIENT_MAX / 2
            }
        }
    }

    /// The counters of jobs of this kind.
    pub(crate) fn count(&mut self, kind: JobKind) -> &mut JobCounters {
        &mut self.counters[kind as usize]
    }

    /// An exchange no longer waits for a job. A queued job that nobody waits for any more is dropped; a running one
    /// goes on, and its result is kept.
    pub(crate) fn leave(&mut self, id: JobId, exchange: ExchangeKey) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        job.waiters.remove(&exchange);
        if job.waiters.is_empty() && job.state == JobState::Queued {
            self.take(id);
        }
    }

    /// An exchange is gone because of a panic: it waits for nothing any more.
    pub(crate) fn leave_all(&mut self, exchange: ExchangeKey) {
        let all: Vec<JobId> = self.jobs.keys().map(JobId).collect();
        for id in all {
            self.leave(id, exchange);
        }
    }

    /// The exchanges that wait for a job.
    pub(crate) fn waiters(&self, id: JobId) -> Vec<ExchangeKey> {
        self.jobs.get(id.0).map(|job| job.waiters.iter().copied().collect()).unwrap_or_default()
    }

    /// The job to be started next: the first of the first root that has room.
    pub(crate) fn next_startable(&self) -> Option<(JobId, &Job<F, S>)> {
        // With more roots than reserves there may be room for more than all helpers.
        if self.running.len() >= self.helpers_max {
            return None;
        }
        let root = *self.turns.iter().find(|root| self.helper_shares.has_room(**root))?;
        let id = *self.queues[root].front()?;
        Some((id, self.jobs.get(id.0)?))
    }

    /// How many queued jobs could run now, had they helpers.
    pub(crate) fn startable_len(&self) -> usize {
        let queued = self.turns.iter().map(|root| (*root, self.queues[*root].len()));
        self.helper_shares.room(queued).min(self.helpers_max.saturating_sub(self.running.len()))
    }

    /// Listings queued and running.
    pub(crate) fn listings_len(&self) -> usize {
        self.listings
    }

    /// A queued job was started.
    pub(crate) fn started(&mut self, id: JobId, now_ms: u64) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        job.state = JobState::Running;
        job.since_ms = now_ms;
        job.deadline_ms = now_ms.saturating_add(self.timeout_ms);
        let (root, kind) = (job.root, job.key.kind());
        self.count(kind).started += 1;
        self.running.push(id);
        self.helper_shares.take(root);
        self.unqueue(root, id);
        // It was this root's turn.
        if let Some(at) = self.turns.iter().position(|r| *r == root) {
            self.turns.remove(at);
            self.turns.push_back(root);
        }
    }

    /// A running job is given up, before it is taken out: its helper counts until it is gone.
    pub(crate) fn give_up(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id.0) else { return };
        self.given_up.push((id, job.root));
        self.helper_shares.take(job.root);
    }

    /// The helper of a job that was given up is gone.
    pub(crate) fn helper_gone(&mut self, id: JobId) {
        if let Some(at) = self.given_up.iter().position(|(given_up, _)| *given_up == id) {
            let (_, root) = self.given_up.swap_remove(at);
            self.helper_shares.give_back(root);
        }
    }

    fn unqueue(&mut self, root: usize, id: JobId) {
        let queue = &mut self.queues[root];
        if queue.front() == Some(&id) {
            queue.pop_front();
        } else {
            queue.retain(|q| *q != id);
        }
        self.queue_shares.give_back(root);
        if queue.is_empty() {
            self.turns.retain(|r| *r != root);
        }
    }

    /// Takes a job out, wherever it is.
    pub(crate) fn take(&mut self, id: JobId) -> Option<Job<F, S>> {
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
            self.unqueue(job.root, id);
        }
        Some(job)
    }

    /// A job that has passed its deadline.
    pub(crate) fn overdue(&self, now_ms: u64) -> Option<JobId> {
        let due = |id: &&JobId| self.jobs.get(id.0).is_some_and(|job| job.deadline_ms <= now_ms);
        self.running.iter().chain(self.first_queued()).find(due).copied()
    }

    /// The earliest deadline, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.running
            .iter()
            .chain(self.first_queued())
            .filter_map(|id| self.jobs.get(id.0))
            .map(|job| job.deadline_ms)
            .min()
    }

    /// The first of each queue, which are in order of their deadlines: those are set on entering.
    fn first_queued(&self) -> impl Iterator<Item = &JobId> {
        self.turns.iter().filter_map(|root| self.queues[*root].front())
    }

    /// The site that a job is for.
    pub(crate) fn site_of(&self, id: JobId) -> Option<SiteId> {
        self.jobs.get(id.0).map(|job| job.key.site())
    }

    pub(crate) fn is_running(&self, id: JobId) -> bool {
        self.jobs.get(id.0).is_some_and(|job| job.state == JobState::Running)
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
