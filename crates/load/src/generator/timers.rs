//! Timers: a user gives up or comes back, a slow reader continues, a client sends its next request.
//!
//! A generator owns one for all its pools. Entries are never taken back: whoever is told finds out
//! whether it still concerns it. Pure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// With fewer entries than this, dead ones are not worth a search.
const CROWD_MIN: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wake {
    /// A client asks for its next file; the token's lower half is its number.
    Client,
    /// A user who left an open loop's connections comes back; the token's lower half says nothing.
    User,
    /// The user of a request on a connection may have waited long enough.
    Abort,
    /// A slow reader may go on.
    Pace,
    /// The user of the request on this stream of a connection of HTTP/2 has waited long enough.
    Stream(u32),
}

/// An entry; the earlier comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timer {
    /// Nanoseconds since the start of the phase.
    pub(crate) due_ns: u64,
    /// Whom it concerns (see `Pool::token`).
    pub(crate) token: u64,
    pub(crate) wake: Wake,
}

#[derive(Debug)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    crowd: usize,
}

impl Timers {
    pub(crate) fn new() -> Self {
        Self { heap: BinaryHeap::new(), crowd: CROWD_MIN }
    }

    pub(crate) fn set(&mut self, timer: Timer) {
        self.heap.push(Reverse(timer));
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.heap.peek().map(|timer| timer.0.due_ns)
    }

    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Timer> {
        if self.next_due_ns()? > now_ns {
            return None;
        }
        self.heap.pop().map(|timer| timer.0)
    }

    /// Drops entries whose connection is gone, once there are enough of them to be worth a search. With it,
    /// there are at most twice as many entries as live ones, and [`CROWD_MIN`].
    pub(crate) fn tidy(&mut self, mut concerns: impl FnMut(&Timer) -> bool) {
        if self.heap.len() > self.crowd {
            self.heap.retain(|timer| concerns(&timer.0));
            self.crowd = CROWD_MIN.max(2 * self.heap.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer(due_ns: u64) -> Timer {
        Timer { due_ns, token: due_ns % 2, wake: Wake::Pace }
    }

    #[test]
    fn come_in_order_and_not_early() {
        let mut timers = Timers::new();
        [30, 10, 20].into_iter().for_each(|due_ns| timers.set(timer(due_ns)));
        assert_eq!(timers.next_due_ns(), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(25), Some(timer(10)));
        assert_eq!(timers.take_due(25), Some(timer(20)));
        assert_eq!(timers.take_due(25), None);
    }

    #[test]
    fn dead_ones_do_not_heap_up() {
        let mut timers = Timers::new();
        for due_ns in 0..10 * CROWD_MIN as u64 {
            timers.set(timer(due_ns));
            timers.tidy(|timer| timer.due_ns < 1000);
            assert!(timers.heap.len() <= CROWD_MIN + 1);
        }
        assert_eq!(timers.take_due(0), Some(timer(0)));
    }
}
