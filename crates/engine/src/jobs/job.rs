//! A job: its identity, its task, its waiters, and its place in the queue.

use std::collections::BTreeSet;

use super::backlog::{Claim, Rank};
use crate::counters::JobKind;
use crate::machine::{FileId, FileRange, ListingForm, Task};
use crate::slab::SiteId;
use crate::slab::{ClientNumber, ExchangeKey, PasswordPair, SpooledKey, VersionId};

/// The identity of a job: requests for the same key are joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum JobKey {
    Find(SiteId, Box<[u8]>),
    List(SiteId, Box<[u8]>, ListingForm),
    Fill(SiteId, VersionId, u64),
    Warm(SiteId, Box<[u8]>, u64),
    Load(SiteId, VersionId, u64),
    Read(SiteId, VersionId, u64, u64),
    Close(SiteId, u64),
    /// Write a piece of a body to this slot.
    SpoolWrite(SiteId, SpooledKey, u32),
    /// Read the part of a body that begins here.
    SpoolRead(SiteId, SpooledKey, u64),
    /// Give room of the file for bodies back.
    SpoolGiveBack(SiteId),
    /// A user's path beneath this root: no user's job depends on a descriptor that another has sent.
    Touch(SiteId, u32, FileId, Box<[u8]>),
    /// A user's range of a file.
    Range(SiteId, u32, FileId, u64, u64),
    WarmFile(SiteId, Box<[u8]>, FileRange),
    Verify(SiteId, PasswordPair),
    /// The piece of this number of the answer of an exchange.
    Deflate(SiteId, ExchangeKey, u64),
}

impl JobKey {
    pub(crate) fn kind(&self) -> JobKind {
        match self {
            JobKey::Find(..) | JobKey::Touch(..) | JobKey::WarmFile(..) => JobKind::Find,
            JobKey::List(..) => JobKind::List,
            JobKey::Fill(..) | JobKey::Warm(..) => JobKind::Fill,
            JobKey::Load(..) | JobKey::Range(..) => JobKind::Load,
            JobKey::Read(..) => JobKind::Read,
            JobKey::Close(..) => JobKind::Close,
            JobKey::SpoolWrite(..) | JobKey::SpoolRead(..) | JobKey::SpoolGiveBack(..) => JobKind::Spool,
            JobKey::Verify(..) => JobKind::Verify,
            JobKey::Deflate(..) => JobKind::Deflate,
        }
    }

    pub(super) fn site(&self) -> SiteId {
        match self {
            JobKey::Find(site, ..)
            | JobKey::List(site, ..)
            | JobKey::Fill(site, ..)
            | JobKey::Warm(site, ..)
            | JobKey::Load(site, ..)
            | JobKey::Read(site, ..)
            | JobKey::Close(site, ..)
            | JobKey::SpoolWrite(site, ..)
            | JobKey::SpoolRead(site, ..)
            | JobKey::SpoolGiveBack(site)
            | JobKey::Touch(site, ..)
            | JobKey::Range(site, ..)
            | JobKey::WarmFile(site, ..)
            | JobKey::Verify(site, _)
            | JobKey::Deflate(site, ..) => *site,
        }
    }
}

/// A job to be submitted: its identity, the task for the helper, and its urgency.
#[derive(Debug)]
pub(crate) struct Wanted<F, S> {
    pub(crate) key: JobKey,
    pub(crate) task: Task<F>,
    pub(crate) urgency: Urgency,
    pub(crate) subject: Option<S>,
    /// Bytes that remain of the answer; 0 if unknown.
    pub(crate) remaining_bytes: u64,
}

impl<F, S> Wanted<F, S> {
    /// The job that brings a block of the file at a path into the store, for which no request waits.
    pub(crate) fn warm(site: SiteId, path: &[u8], block: u64) -> Self {
        Self {
            key: JobKey::Warm(site, path.into(), block),
            task: Task::Warm { site, path: path.into(), block },
            urgency: Urgency::Ahead,
            subject: None,
            remaining_bytes: 0,
        }
    }
}

/// An exchange that waits for a job, and its client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) exchange: ExchangeKey,
    pub(crate) client: ClientNumber,
}

/// A job that is queued or running.
#[derive(Debug)]
pub(crate) struct Job<F, S> {
    pub(crate) key: JobKey,
    pub(super) root: usize,
    /// The urgency with which it was queued first.
    pub(super) urgency: Urgency,
    pub(crate) task: Task<F>,
    pub(crate) subject: Option<S>,
    pub(crate) waiters: BTreeSet<ExchangeKey>,
    /// The client whose request created the job.
    pub(super) client: Option<ClientNumber>,
    pub(crate) state: JobState,
    /// When it was queued or, once running, when it was started.
    pub(crate) since_ms: u64,
    /// How long it had waited when it was started.
    pub(super) queued_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(super) claim: Claim,
    /// Its place in the queue, while it is queued.
    pub(super) place: Rank,
    /// Whether its request had not waited before, so that the job did not pass jobs that were queued already.
    pub(super) is_new: bool,
}

impl<F, S> Job<F, S> {
    /// How long it has waited for a helper, and how long a helper has worked on it, if it ends now.
    pub(crate) fn waits_ms(&self, now_ms: u64) -> (u64, u64) {
        let passed_ms = now_ms.saturating_sub(self.since_ms);
        match self.state {
            JobState::Running => (self.queued_ms, passed_ms),
            JobState::Queued | JobState::QueuedUnasked => (passed_ms, 0),
        }
    }
}

/// The progress of a job, and whether it needs a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Queued; dropped when no request waits for it.
    Queued,
    /// Queued, and done even if no request waits: a freshness check, a close or a warm-up.
    QueuedUnasked,
    /// A helper works on it.
    Running,
}

/// Whether a job can be queued when its root's share of the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Queued only while the root's share and the client's share have room.
    Bounded,
    /// Queued even without room. Used for answers under way, each of which waits for one job at a time.
    UnderWay,
    /// Queued only while the root's share of places for such jobs has room. Used for jobs that no request waits for yet.
    Ahead,
}

/// A job was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// The expected wait for a helper, if known.
    pub(crate) wait_ms: Option<u64>,
}

/// Time limits of jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// The deadline of a job, in the queue and again at a helper.
    pub(crate) job_ms: u64,
    /// The expected wait above which a request is refused; 0 means no limit.
    pub(crate) queue_ms: u64,
}
