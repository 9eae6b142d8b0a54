//! Jobs for helpers: joined, queued within a bound, dropped when nobody waits, given up at a
//! deadline.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::cache::{Version, VersionId};
use crate::limits::JOBS_QUEUED_MAX;
use crate::rules::SiteId;
use crate::slab::{Key, Slab};
use crate::steps::find_file::Finding;
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
#[derive(Clone, Debug)]
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
        file: Rc<F>,
        /// From which byte.
        offset: u64,
        /// How many bytes, at most [`LOAD_BYTES`](crate::limits::LOAD_BYTES).
        length_bytes: u64,
    },
    /// Read a part of a file and hand the bytes over.
    Read {
        /// The file.
        file: Rc<F>,
        /// From which byte.
        offset: u64,
        /// How many, at most [`HAND_OVER_BYTES_MAX`](crate::limits::HAND_OVER_BYTES_MAX).
        length_bytes: u64,
    },
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
    /// The helper died or was given up.
    Lost,
}

/// What makes two jobs the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JobKey {
    Find(SiteId, Box<[u8]>),
    List(SiteId, Box<[u8]>, bool),
    Load(VersionId, u64),
    Read(VersionId, u64, u64),
}

#[derive(Debug)]
pub(crate) struct Job<F> {
    pub(crate) key: JobKey,
    pub(crate) task: Task<F>,
    /// The version that a load or read belongs to.
    pub(crate) version: Option<Rc<Version>>,
    pub(crate) waiters: Vec<Key>,
    /// Worth doing though nobody waits: a freshness check.
    pub(crate) unasked: bool,
    pub(crate) running: bool,
    /// When it was queued, and then when it was started.
    pub(crate) since_ms: u64,
    pub(crate) deadline_ms: u64,
}

/// Whether a job may be queued when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Only while there is room.
    Bounded,
    /// Also then: for answers under way, each of which waits for one job at a time.
    UnderWay,
    /// Only while half the queue is empty: for what nobody waits for yet.
    Ahead,
}

/// The jobs of a worker.
#[derive(Debug)]
pub(crate) struct Jobs<F> {
    jobs: Slab<Job<F>>,
    by_key: HashMap<JobKey, JobId>,
    queue: VecDeque<JobId>,
    running: Vec<JobId>,
    /// Listings among the jobs.
    listings: usize,
    timeout_ms: u64,
}

impl<F> Jobs<F> {
    /// Jobs that have `timeout_ms` in the queue, and again at a helper.
    pub(crate) fn new(timeout_ms: u64) -> Self {
        Self {
            jobs: Slab::new(),
            by_key: HashMap::new(),
            queue: VecDeque::new(),
            running: Vec::new(),
            listings: 0,
            timeout_ms,
        }
    }

    /// Joins the job of this key or queues a new one. None when the queue is full.
    pub(crate) fn submit(
        &mut self,
        key: JobKey,
        waiter: Option<Key>,
        urgency: Urgency,
        now_ms: u64,
        version: Option<&Rc<Version>>,
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
        let room = match urgency {
            Urgency::Bounded => JOBS_QUEUED_MAX,
            Urgency::UnderWay => usize::MAX,
            Urgency::Ahead => JOBS_QUEUED_MAX / 2,
        };
        if self.queue.len() >= room {
            return None;
        }
        self.listings += usize::from(matches!(key, JobKey::List(..)));
        let id = JobId(self.jobs.insert(Job {
            key: key.clone(),
            task: task(),
            version: version.cloned(),
            waiters: waiter.into_iter().collect(),
            unasked: waiter.is_none(),
            running: false,
            since_ms: now_ms,
            deadline_ms: now_ms.saturating_add(self.timeout_ms),
        }));
        self.by_key.insert(key, id);
        self.queue.push_back(id);
        Some(id)
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

    /// The job to be started next.
    pub(crate) fn next_queued(&self) -> Option<(JobId, &Job<F>)> {
        let id = *self.queue.front()?;
        Some((id, self.jobs.get(id.0)?))
    }

    /// Listings queued and running.
    pub(crate) fn listings_len(&self) -> usize {
        self.listings
    }

    /// The job of [`Jobs::next_queued`] was started.
    pub(crate) fn started(&mut self, now_ms: u64) {
        let Some(id) = self.queue.pop_front() else { return };
        if let Some(job) = self.jobs.get_mut(id.0) {
            job.running = true;
            job.since_ms = now_ms;
            job.deadline_ms = now_ms.saturating_add(self.timeout_ms);
            self.running.push(id);
        }
    }

    /// Takes a job out, wherever it is.
    pub(crate) fn take(&mut self, id: JobId) -> Option<Job<F>> {
        let job = self.jobs.remove(id.0)?;
        self.by_key.remove(&job.key);
        self.listings -= usize::from(matches!(job.key, JobKey::List(..)));
        let list = if job.running { self.running.iter().position(|r| *r == id) } else { None };
        match list {
            Some(at) => drop(self.running.swap_remove(at)),
            None => self.queue.retain(|q| *q != id),
        }
        Some(job)
    }

    /// A job that has passed its deadline.
    pub(crate) fn overdue(&self, now_ms: u64) -> Option<JobId> {
        let due = |id: &&JobId| self.jobs.get(id.0).is_some_and(|job| job.deadline_ms <= now_ms);
        // The queue is in order of its deadlines: they are set on entering it.
        self.running.iter().find(due).or_else(|| self.queue.front().filter(due)).copied()
    }

    /// The earliest deadline, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let queued = self.queue.front();
        self.running
            .iter()
            .chain(queued)
            .filter_map(|id| self.jobs.get(id.0))
            .map(|job| job.deadline_ms)
            .min()
    }

    pub(crate) fn is_running(&self, id: JobId) -> bool {
        self.jobs.get(id.0).is_some_and(|job| job.running)
    }

    pub(crate) fn queued_len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn running_len(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
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
        let (mut jobs, [a, b]) = (Jobs::new(100), waiters());
        let first = submit(&mut jobs, b"/x", Some(a));
        assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
        assert_eq!(submit(&mut jobs, b"/x", Some(b)), first);
        assert_eq!(jobs.queued_len(), 1);
        assert_eq!(jobs.take(first.expect("queued")).expect("there").waiters, [a, b]);
    }

    #[test]
    fn a_queued_job_that_nobody_waits_for_is_dropped_and_a_running_one_is_not() {
        let (mut jobs, [a, b]) = (Jobs::new(100), waiters());
        let first = submit(&mut jobs, b"/x", Some(a)).expect("room");
        let second = submit(&mut jobs, b"/y", Some(b)).expect("room");
        jobs.started(200);
        jobs.leave(first, a);
        jobs.leave(second, b);
        assert!(jobs.is_running(first));
        assert_eq!((jobs.queued_len(), jobs.running_len()), (0, 1));
        assert!(jobs.take(second).is_none());
    }

    #[test]
    fn an_unasked_job_is_kept() {
        let (mut jobs, [a, _]) = (Jobs::new(100), waiters());
        let id = submit(&mut jobs, b"/x", None).expect("room");
        submit(&mut jobs, b"/x", Some(a));
        jobs.leave(id, a);
        assert_eq!(jobs.queued_len(), 1);
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut jobs = Jobs::new(100);
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
        let mut jobs = Jobs::new(100);
        let id = submit(&mut jobs, b"/x", None).expect("room");
        assert_eq!((jobs.next_ms(), jobs.overdue(99), jobs.overdue(100)), (Some(100), None, Some(id)));
        jobs.started(200);
        assert_eq!((jobs.next_ms(), jobs.overdue(299), jobs.overdue(300)), (Some(300), None, Some(id)));
    }
}
