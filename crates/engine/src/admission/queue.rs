//! How many new connections a turn of the worker's loop takes from an accept queue, and how many it refuses.
//!
//! The signal of overload is the time for which the queue has never been empty. As long as it is not empty the
//! loop never sleeps, so after that time the worker has been busy throughout, and connections have come at
//! least as fast as it could take them: a standing queue (the signal of CoDel, RFC 8289 section 3). A burst,
//! however long the queue that it makes, is no overload if the worker empties the queue in time. The signal is
//! free: accept(2) says that the queue is empty, and the loop reads its clock once a turn anyway. The length of
//! the queue would cost a system call for each batch, and says nothing about a wait without the rate.
//!
//! A refusal costs about half of what a small answer costs, so refusing all newcomers would use up the capacity
//! that it should protect. Refusals in a turn are few beside the other work of the turn; the queue of the
//! kernel is bounded, and the kernel drops SYNs beyond it at hardly any cost.

use crate::limits::{ACCEPTS_IN_OVERLOAD_MAX, ACCEPTS_PER_TURN_MAX, REFUSALS_PER_TURN_MAX};

/// The accept queue of one listener, as the worker's loop sees it.
///
/// Events: [`poll_batch`](AcceptQueue::poll_batch) when the listener is ready,
/// [`handle_batch`](AcceptQueue::handle_batch) after the batch, [`handle_turn_end`](AcceptQueue::handle_turn_end)
/// at the end of each turn of the loop.
#[derive(Clone, Debug)]
pub struct AcceptQueue {
    wait_ms_max: u64,
    state: QueueState,
    /// Whether the listener was ready in this turn.
    was_ready: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    /// All connections that had come were accepted.
    Empty,
    /// Since this time, some connection has always been waiting.
    Standing { since_ms: u64 },
}

/// How many connections to take from the queue in this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptBatch {
    /// Maximum number of connections to admit, those that have waited longest.
    pub admitted_max: usize,
    /// Maximum number of connections to refuse after that.
    pub refused_max: usize,
}

impl AcceptQueue {
    /// Makes a queue whose connections may wait this long, in milliseconds; 0 for no bound.
    #[must_use]
    pub fn new(wait_ms_max: u64) -> Self {
        Self { wait_ms_max, state: QueueState::Empty, was_ready: false }
    }

    /// Decides how many connections to take now that the listener is ready. `is_full` is whether the turn has
    /// as many events as the kernel returns at once, so that more of them are likely to wait.
    pub fn poll_batch(&mut self, now_ms: u64, is_full: bool) -> AcceptBatch {
        self.was_ready = true;
        let is_overloaded = match self.state {
            QueueState::Empty => false,
            QueueState::Standing { since_ms } => {
                self.wait_ms_max > 0 && now_ms.saturating_sub(since_ms) > self.wait_ms_max
            }
        };
        let refused_max = if is_overloaded { REFUSALS_PER_TURN_MAX } else { 0 };
        // Without a full turn of work the loop would be idle without newcomers.
        let is_short = is_overloaded && is_full;
        let admitted_max = if is_short { ACCEPTS_IN_OVERLOAD_MAX } else { ACCEPTS_PER_TURN_MAX };
        AcceptBatch { admitted_max, refused_max }
    }

    /// Takes note of a batch, and whether it has emptied the queue.
    pub fn handle_batch(&mut self, now_ms: u64, has_emptied: bool) {
        self.state = match self.state {
            _ if has_emptied => QueueState::Empty,
            QueueState::Empty => QueueState::Standing { since_ms: now_ms },
            standing @ QueueState::Standing { .. } => standing,
        };
    }

    /// Ends a turn. If the kernel reported every ready descriptor (`is_full` is false) and not the listener,
    /// the queue is empty.
    pub fn handle_turn_end(&mut self, is_full: bool) {
        if !std::mem::take(&mut self.was_ready) && !is_full {
            self.state = QueueState::Empty;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: AcceptBatch = AcceptBatch { admitted_max: ACCEPTS_PER_TURN_MAX, refused_max: 0 };
    const SHED: AcceptBatch = AcceptBatch { refused_max: REFUSALS_PER_TURN_MAX, ..CALM };

    #[test]
    fn only_a_standing_queue_is_shed_and_only_until_it_is_empty() {
        let mut queue = AcceptQueue::new(100);
        for now_ms in [1_000, 1_050, 1_100] {
            assert_eq!(queue.poll_batch(now_ms, false), CALM);
            queue.handle_batch(now_ms, false);
            queue.handle_turn_end(false);
        }
        assert_eq!(queue.poll_batch(1_101, false), SHED);
        let short = AcceptBatch { admitted_max: ACCEPTS_IN_OVERLOAD_MAX, ..SHED };
        assert_eq!(queue.poll_batch(1_101, true), short);
        queue.handle_batch(1_101, true);
        assert_eq!(queue.poll_batch(1_300, true), CALM);
    }

    #[test]
    fn a_listener_that_is_not_ready_has_an_empty_queue() {
        let mut queue = AcceptQueue::new(100);
        queue.poll_batch(1_000, true);
        queue.handle_batch(1_000, false);
        queue.handle_turn_end(true);
        // More descriptors may be ready than were reported.
        queue.handle_turn_end(true);
        assert_eq!(queue.clone().poll_batch(9_000, false), SHED);
        queue.handle_turn_end(false);
        assert_eq!(queue.poll_batch(9_000, false), CALM);
    }

    #[test]
    fn zero_is_no_bound() {
        let mut queue = AcceptQueue::new(0);
        queue.handle_batch(1, false);
        assert_eq!(queue.poll_batch(u64::MAX, true), CALM);
    }
}
