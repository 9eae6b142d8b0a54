//! Waits that end after a moment even if their job has not: the request can be answered without it. Where a wait was in
//! vain, no request waits like that again for a while, so that a slow disk delays few of them.

use std::collections::VecDeque;

use crate::limits::{SHORT_WAIT_MS, SHORT_WAITS_MAX, WAITED_IN_VAIN_MS};
use crate::machine::JobId;
use crate::slab::ExchangeKey;

/// The short waits of a worker.
#[derive(Debug, Default)]
pub(super) struct ShortWaits {
    /// When each ends, in this order. Some may have ended already, with their job.
    queue: VecDeque<(u64, JobId, ExchangeKey)>,
    /// For each root until when no request waits.
    paused_until_ms: Vec<u64>,
}

impl ShortWaits {
    /// Whether one more request may wait for this root.
    pub(super) fn has_room(&self, root: usize, now_ms: u64) -> bool {
        self.queue.len() < SHORT_WAITS_MAX
            && self.paused_until_ms.get(root).is_none_or(|until_ms| *until_ms <= now_ms)
    }

    pub(super) fn push(&mut self, id: JobId, exchange: ExchangeKey, now_ms: u64) {
        self.queue.push_back((now_ms + SHORT_WAIT_MS, id, exchange));
    }

    /// When the next one ends.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.queue.front().map(|(due_ms, ..)| *due_ms)
    }

    /// Removes the next one that is over.
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<(JobId, ExchangeKey)> {
        let (due_ms, id, exchange) = *self.queue.front()?;
        if due_ms > now_ms {
            return None;
        }
        self.queue.pop_front();
        Some((id, exchange))
    }

    /// Records that a wait for this root was in vain.
    pub(super) fn note_in_vain(&mut self, root: usize, now_ms: u64) {
        if self.paused_until_ms.len() <= root {
            self.paused_until_ms.resize(root + 1, 0);
        }
        self.paused_until_ms[root] = now_ms + WAITED_IN_VAIN_MS;
    }
}
