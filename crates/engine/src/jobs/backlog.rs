//! The queued jobs of one root, in the order in which they start: smallest remaining answer first, with
//! ageing.
//!
//! A job's place is the time when its request came, plus a penalty that grows with the remaining bytes of the
//! answer. The penalty is bounded: only jobs whose requests came within it can pass the job, so no job
//! starves. Called by [`jobs`](crate::jobs).

use std::collections::VecDeque;

use super::service_rate::ServiceRate;
use crate::limits::{LOAD_BYTES, QUEUE_PENALTY_MS_MAX, QUEUE_UNASKED_MS};
use crate::machine::JobId;

/// The facts that decide a job's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    /// When the request came that needs the job.
    pub(super) came_ms: u64,
    /// Bytes that remain of the answer.
    pub(super) remaining_bytes: u64,
    /// Whether a request waits for the job.
    pub(super) is_awaited: bool,
}

impl Claim {
    /// The claim of a job that two requests need: the better value of each field.
    pub(super) fn joined(self, other: Self) -> Self {
        Self {
            came_ms: self.came_ms.min(other.came_ms),
            remaining_bytes: self.remaining_bytes.min(other.remaining_bytes),
            is_awaited: self.is_awaited || other.is_awaited,
        }
    }

    /// The time that orders the job, in microseconds. `job_us` is the mean time of a job.
    fn at_us(self, job_us: u64) -> u64 {
        // The first block has no penalty, so small files and look-ups (whose size is unknown) keep the order
        // of their requests.
        let more_blocks = self.remaining_bytes.saturating_sub(1) / LOAD_BYTES;
        let penalty_us = more_blocks.saturating_mul(job_us).min(QUEUE_PENALTY_MS_MAX * 1_000);
        let unasked_us = if self.is_awaited { 0 } else { QUEUE_UNASKED_MS * 1_000 };
        self.came_ms.saturating_mul(1_000).saturating_add(penalty_us + unasked_us)
    }
}

/// A place in the order; unique to a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    at_us: u64,
    /// The number of the job, which orders jobs with equal times.
    number: u64,
}

/// The queued jobs of a root, and the rate at which its helpers finish jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Backlog {
    /// Sorted by rank. Most jobs enter near the end and leave at the front.
    queue: VecDeque<(Rank, JobId)>,
    pub(super) service_rate: ServiceRate,
    numbers: u64,
}

impl Backlog {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The job that starts next.
    pub(super) fn first(&self) -> Option<JobId> {
        self.queue.front().map(|(_, id)| *id)
    }

    /// How many queued jobs would start before a job with this claim.
    pub(super) fn ahead_of(&self, claim: Claim) -> usize {
        self.index_of(Rank { at_us: claim.at_us(self.service_rate.job_us()), number: u64::MAX })
    }

    /// Queues a job and returns its place, which is needed to find it again.
    pub(super) fn insert(&mut self, id: JobId, claim: Claim, now_ms: u64) -> Rank {
        if self.queue.is_empty() {
            self.service_rate.begin_wait(now_ms);
        }
        self.numbers += 1;
        let place = Rank { at_us: claim.at_us(self.service_rate.job_us()), number: self.numbers };
        self.queue.insert(self.index_of(place), (place, id));
        place
    }

    /// Moves a queued job forward if its claim has improved. Returns its place.
    pub(super) fn advance(&mut self, old: Rank, claim: Claim) -> Rank {
        let at_us = claim.at_us(self.service_rate.job_us()).min(old.at_us);
        let place = Rank { at_us, number: old.number };
        let index = self.index_of(old);
        if place != old
            && self.queue.get(index).is_some_and(|(other, _)| *other == old)
            && let Some((_, id)) = self.queue.remove(index)
        {
            self.queue.insert(self.index_of(place), (place, id));
        }
        place
    }

    /// Removes the job at a place.
    pub(super) fn remove(&mut self, place: Rank) {
        let index = self.index_of(place);
        if self.queue.get(index).is_some_and(|(other, _)| *other == place) {
            self.queue.remove(index);
        }
        if self.queue.is_empty() {
            self.service_rate.end_wait();
        }
    }

    /// The places of all queued jobs, in order.
    #[cfg(test)]
    pub(super) fn places(&self) -> impl Iterator<Item = Rank> {
        self.queue.iter().map(|(place, _)| *place)
    }

    fn index_of(&self, place: Rank) -> usize {
        self.queue.partition_point(|(other, _)| *other < place)
    }
}
