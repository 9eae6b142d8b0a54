//! Jobs for helpers: joined, queued within bounds, dropped when nobody waits, given up at a
//! deadline. Each root has its share of the queue and of the helpers; roots take turns.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::cache::{Version, VersionId};
use crate::counters::{JobCounters, JobKind};
use crate::find::Finding;
use crate::histogram::Histogram;
use crate::limits::JOBS_QUEUED_MAX;
use crate::rules::SiteId;
use crate::shares::Shares;
use crate::slab::{Key, Slab};
use crate::system::FileStat;

/// One job, as the worker and its helpers name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobId(pub(crate) Key);

impl JobId {
    /// The id as one number.
    pub fn to_u64(self) -> u64 {
        self.0.to_u64()
    }

    /// The id of a number that [`JobId::to_u64`] gave.
    pub fn from_u64(number: u64) -> Self {
        Self(Key::from_u64(number))
    }
}

/// What a helper is asked to do.
#[derive(Debug)]
pub enum Task<F> {
    /// Find what a path leads to (see [`find`](crate::find)) and bring the first block of it
    /// into memory.
    Find {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning with a slash.
        path: Box<[u8]>,
    },
    /// List a directory into a file in memory.
    List {
        /// The site.
        site: SiteId,
        /// The decoded path, beginning and ending with a slash.
        path: Box<[u8]>,
        /// As JSON, not HTML.
        json: bool,
    },
    /// Bring a part of a file into memory.
    Load {
        /// The file.
        file: Arc<F>,
        /// From which byte.
        offset: u64,
        /// How many bytes, at most [`LOAD_BYTES`](crate::limits::LOAD_BYTES).
        length_bytes: u64,
    },
    /// Read a part of a file and hand the bytes over.
    Read {
        /// The file.
        file: Arc<F>,
        /// From which byte.
        offset: u64,
        /// How many, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        length_bytes: u64,
    },
}

/// A file is shared, whatever it is.
impl<F> Clone for Task<F> {
    fn clone(&self) -> Self {
        match self {
            Task::Find { site, path } => Task::Find { site: *site, path: path.clone() },
            Task::List { site, path, json } => Task::List { site: *site, path: path.clone(), json: *json },
            Task::Load { file, offset, length_bytes } => {
                Task::Load { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
            Task::Read { file, offset, length_bytes } => {
                Task::Read { file: Arc::clone(file), offset: *offset, length_bytes: *length_bytes }
            }
        }
    }
}

/// What came of a job.
#[derive(Debug)]
pub enum Outcome<F> {
    /// Of [`Task::Find`].
    Found(Finding<F>),
    /// Of [`Task::List`]: the listing as a file.
    Listed(F, FileStat),
    /// Of [`Task::Load`].
    Loaded,
    /// Of [`Task::Read`]: the bytes, fewer than asked for when the file ended, and the state of
    /// the file after they were read.
    Bytes(Vec<u8>, FileStat),
    /// The file system failed, with this error number.
    Failed(i32),
    /// Descriptors or memory ran out.
    Exhausted,
    /// The helper died or was given up, or could not reach the file system.
    Lost,
}

/// What makes two jobs the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JobKey {
    Find(SiteId, Box<[u8]>),
    List(SiteId, Box<[u8]>, bool),
    Load(SiteId, VersionId, u64),
    Read(SiteId, VersionId, u64, u64),
}

impl JobKey {
    pub(crate) fn kind(&self) -> JobKind {
        match self {
            JobKey::Find(..) => JobKind::Find,
            JobKey::List(..) => JobKind::List,
            JobKey::Load(..) => JobKind::Load,
            JobKey::Read(..) => JobKind::Read,
        }
    }

    fn site(&self) -> SiteId {
        match self {
            JobKey::Find(site, ..)
            | JobKey::List(site, ..)
            | JobKey::Load(site, ..)
            | JobKey::Read(site, ..) => *site,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Job<F> {
    pub(crate) key: JobKey,
    root: usize,
    pub(crate) task: Task<F>,
    /// The version that a load or read belongs to.
    pub(crate) version: Option<Arc<Version>>,
    pub(crate) waiters: Vec<Key>,
    /// Worth doing though nobody waits: a freshness check.
    pub(crate) unasked: bool,
    pub(crate) running: bool,
    /// When it was queued, and then when it was started.
    pub(crate) since_ms: u64,
    pub(crate) deadline_ms: u64,
}

/// Whether a job may be queued when its root's share of the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only while there is room.
    Bounded,
    /// Also then: for answers under way, each of which waits for one job at a time.
    UnderWay,
    /// Only while half the share is empty: for what nobody waits for yet.
    Ahead,
}

/// The jobs of a worker.
#[derive(Debug)]
pub(crate) struct Jobs<F> {
    jobs: Slab<Job<F>>,
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
    timeout_ms: u64,
    /// What became of them, in the order of [`JobKind::ALL`].
    pub(crate) counters: [JobCounters; JobKind::ALL.len()],
    /// How many were queued whenever one was added, that one included.
    pub(crate) lengths: Histogram,
}

impl<F> Jobs<F> {
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
            timeout_ms,
            counters: Default::default(),
            lengths: Histogram::default(),
        }
    }

    /// Joins the job of this key or queues a new one. None when its root's share of the queue is
    /// full.
    pub(crate) fn submit(
        &mut self,
        key: JobKey,
        waiter: Option<Key>,
        urgency: Urgency,
        now_ms: u64,
        version: Option<&Arc<Version>>,
        task: impl FnOnce() -> Task<F>,
    ) -> Option<JobId> {
        if let Some(id) = self.by_key.get(&key).copied() {
            if let Some(job) = self.jobs.get_mut(id.0) {
                match waiter {
                    Some(waiter) if !job.waiters.contains(&waiter) => job.waiters.push(waiter),
                    Some(_) => {}
                    None => job.unasked = true,
                }
            }
            return Some(id);
        }
        let root = self.roots[usize::from(key.site().0)];
        let shares = &self.queue_shares;
        let has_room = match urgency {
            Urgency::Bounded => shares.has_room(root),
            Urgency::UnderWay => true,
            Urgency::Ahead => shares.has_room(root) && shares.held(root) < shares.most() / 2,
        };
        if !has_room {
            if urgency == Urgency::Bounded && waiter.is_some() {
                self.count(key.kind()).refused += 1;
            }
            return None;
        }
        self.listings += usize::from(matches!(key, JobKey::List(..)));
        let id = JobId(self.jobs.insert(Job {
            key: key.clone(),
            root,
            task: task(),
            version: version.cloned(),
            waiters: waiter.into_iter().collect(),
            unasked: waiter.is_none(),
            running: false,
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

    /// What became of jobs of this kind, to be counted on.
    pub(crate) fn count(&mut self, kind: JobKind) -> &mut JobCounters {
        &mut self.counters[kind as usize]
    }

    /// A connection no longer waits for a job. One in the queue that nobody waits for any
    /// more is dropped; a running one goes on, and its result is kept.
    pub(crate) fn leave(&mut self, id: JobId, waiter: Key) {
        let Some(job) = self.jobs.get_mut(id.0) else { return };
        job.waiters.retain(|w| *w != waiter);
        if job.waiters.is_empty() && !job.unasked && !job.running {
            self.take(id);
        }
    }

    /// A connection is gone in an unforeseen way: it waits for nothing any more.
    pub(crate) fn leave_all(&mut self, waiter: Key) {
        let all: Vec<JobId> = self.jobs.keys().map(JobId).collect();
        for id in all {
            self.leave(id, waiter);
        }
    }

    /// The job to be started next: the first of the first root that has room.
    pub(crate) fn next_startable(&self) -> Option<(JobId, &Job<F>)> {
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
        job.running = true;
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
    pub(crate) fn take(&mut self, id: JobId) -> Option<Job<F>> {
        let job = self.jobs.remove(id.0)?;
        self.by_key.remove(&job.key);
        self.listings -= usize::from(matches!(job.key, JobKey::List(..)));
        if job.running {
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
        self.jobs.get(id.0).is_some_and(|job| job.running)
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(path: &[u8]) -> Task<()> {
        Task::Find { site: SiteId(0), path: path.into() }
    }

    fn submit(jobs: &mut Jobs<()>, path: &[u8], waiter: Option<Key>) -> Option<JobId> {
        let key = JobKey::Find(SiteId(0), path.into());
        jobs.submit(key, waiter, Urgency::Bounded, 0, None, || find(path))
    }

    fn waiters() -> [Key; 2] {
        let mut slab = Slab::new();
        [slab.insert(()), slab.insert(())]
    }

    #[test]
    fn jobs_for_the_same_file_are_joined() {
        let (mut jobs, [a, b]) = (Jobs::new(100, 2, vec![0]), waiters());
        let first = submit(&mut jobs, b"/x", Some(a));
        assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
        assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
        assert_eq!(jobs.queued_len(), 1);
        assert_eq!(jobs.take(first.expect("queued")).expect("there").waiters, [a, b]);
    }

    #[test]
    fn a_queued_job_that_nobody_waits_for_is_dropped_and_a_running_one_is_not() {
        let (mut jobs, [a, b]) = (Jobs::new(100, 2, vec![0]), waiters());
        let first = submit(&mut jobs, b"/x", Some(a)).expect("room");
        let second = submit(&mut jobs, b"/y", Some(b)).expect("room");
        jobs.started(first, 200);
        jobs.leave(first, a);
        jobs.leave(second, b);
        assert!(jobs.is_running(first));
        assert_eq!((jobs.queued_len(), jobs.running_len()), (0, 1));
        assert!(jobs.take(second).is_none());
    }

    #[test]
    fn an_unasked_job_is_kept() {
        let (mut jobs, [a, _]) = (Jobs::new(100, 2, vec![0]), waiters());
        let id = submit(&mut jobs, b"/x", None).expect("room");
        submit(&mut jobs, b"/x", Some(a));
        jobs.leave(id, a);
        assert_eq!(jobs.queued_len(), 1);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut jobs = Jobs::new(100, 2, vec![0]);
        for n in 0..JOBS_QUEUED_MAX {
            assert!(submit(&mut jobs, n.to_string().as_bytes(), None).is_some());
        }
        assert!(submit(&mut jobs, b"one more", None).is_none());
        assert!(submit(&mut jobs, b"0", None).is_some(), "joining needs no room");
        let key = JobKey::Find(SiteId(0), (*b"under way").into());
        assert!(jobs.submit(key, None, Urgency::UnderWay, 0, None, || find(b"under way")).is_some());
    }

    #[test]
    fn deadlines_run_in_the_queue_and_again_at_the_helper() {
        let mut jobs = Jobs::new(100, 2, vec![0]);
        let id = submit(&mut jobs, b"/x", None).expect("room");
        assert_eq!((jobs.next_ms(), jobs.overdue(99), jobs.overdue(100)), (Some(100), None, Some(id)));
        jobs.started(id, 200);
        assert_eq!((jobs.next_ms(), jobs.overdue(299), jobs.overdue(300)), (Some(300), None, Some(id)));
    }

    #[test]
    fn jobs_over_their_roots_share_ask_for_no_helper() {
        let mut jobs = Jobs::new(100, 16, vec![0, 1]);
        let ask = |jobs: &mut Jobs<()>, site: u16, n: u64| {
            let key = JobKey::Load(SiteId(site), VersionId(n), 0);
            jobs.submit(key, None, Urgency::UnderWay, 0, None, || find(b"")).expect("under way")
        };
        for n in 0..500 {
            ask(&mut jobs, 0, n);
        }
        assert_eq!(jobs.startable_len(), 12);
        while let Some((id, _)) = jobs.next_startable() {
            jobs.started(id, 0);
        }
        assert_eq!((jobs.startable_len(), jobs.running_len()), (0, 12));
        ask(&mut jobs, 1, 500);
        assert_eq!(jobs.startable_len(), 1);
    }

    /// What may happen to jobs. Numbers are taken modulo what there is.
    #[derive(Clone, Debug)]
    enum Step {
        Submit { site: u16, path: u8, waiter: Option<usize> },
        Leave { job: usize, waiter: usize },
        LeaveAll { waiter: usize },
        Start,
        Take { job: usize },
        GiveUp { job: usize },
        Gone { job: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        let any = 0usize..1000;
        prop_oneof![
            8 => (0u16..4, 0u8..9, proptest::option::of(0usize..2))
                .prop_map(|(site, path, waiter)| Step::Submit { site, path, waiter }),
            4 => (any.clone(), 0usize..2).prop_map(|(job, waiter)| Step::Leave { job, waiter }),
            1 => (0usize..2).prop_map(|waiter| Step::LeaveAll { waiter }),
            6 => Just(Step::Start),
            3 => any.clone().prop_map(|job| Step::Take { job }),
            2 => any.clone().prop_map(|job| Step::GiveUp { job }),
            2 => any.prop_map(|job| Step::Gone { job }),
        ]
    }

    fn pick(ids: &[JobId], number: usize) -> Option<JobId> {
        ids.get(number.checked_rem(ids.len())?).copied()
    }

    /// The books agree with the jobs that there are.
    fn check(jobs: &Jobs<()>) {
        let of = |root: usize, running: bool| {
            jobs.jobs
                .keys()
                .filter_map(|key| jobs.jobs.get(key))
                .filter(move |job| job.root == root && job.running == running)
        };
        for root in 0..jobs.queues.len() {
            let given_up = jobs.given_up.iter().filter(|(_, r)| *r == root).count();
            assert_eq!(jobs.helper_shares.held(root), of(root, true).count() + given_up);
            assert_eq!(jobs.queue_shares.held(root), of(root, false).count());
            assert_eq!(jobs.queues[root].len(), of(root, false).count());
            let turns = jobs.turns.iter().filter(|turn| **turn == root).count();
            assert_eq!(turns, usize::from(!jobs.queues[root].is_empty()));
        }
    }

    proptest::proptest! {
        #[test]
        fn shares_are_neither_lost_nor_held_twice(
            steps in proptest::collection::vec(step(), 0..300),
            helpers_max in 1usize..8,
        ) {
            let waiters = waiters();
            let mut jobs: Jobs<()> = Jobs::new(100, helpers_max, vec![0, 1, 0, 2]);
            let mut running_max = 0;
            for step in steps {
                let all: Vec<JobId> = jobs.jobs.keys().map(JobId).collect();
                match step {
                    Step::Submit { site, path, waiter } => {
                        let key = JobKey::Find(SiteId(site), [path].into());
                        let waiter = waiter.map(|n| waiters[n]);
                        jobs.submit(key, waiter, Urgency::Bounded, 0, None, || find(&[path]));
                    }
                    Step::Leave { job, waiter } => {
                        pick(&all, job).into_iter().for_each(|id| jobs.leave(id, waiters[waiter]));
                    }
                    Step::LeaveAll { waiter } => jobs.leave_all(waiters[waiter]),
                    Step::Start => {
                        if let Some(id) = jobs.next_startable().map(|(id, _)| id) {
                            assert!(jobs.startable_len() > 0);
                            jobs.started(id, 0);
                        } else {
                            assert_eq!(jobs.startable_len(), 0);
                        }
                    }
                    Step::Take { job } => drop(pick(&all, job).and_then(|id| jobs.take(id))),
                    Step::GiveUp { job } => {
                        if let Some(id) = pick(&jobs.running.clone(), job) {
                            jobs.give_up(id);
                            jobs.take(id);
                        }
                    }
                    Step::Gone { job } => {
                        let given_up: Vec<JobId> = jobs.given_up.iter().map(|(id, _)| *id).collect();
                        pick(&given_up, job).into_iter().for_each(|id| jobs.helper_gone(id));
                    }
                }
                check(&jobs);
                running_max = running_max.max(jobs.running_len());
            }
            assert!(running_max <= helpers_max);
        }
    }
}
