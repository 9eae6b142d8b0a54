//! How long a generator's thread polls instead of sleeping.
//!
//! Its loop asks before each wait. Pure.

use super::{Priority, Waiting};

/// It polls when an arrival is nearer than this, or when something happened so lately.
const POLL_NS: u64 = 1_000_000;
/// The same with a real-time priority: such a thread wakes in time.
const POLL_REAL_TIME_NS: u64 = 100_000;
/// A thread with a real-time priority sleeps for a tenth of each such span: Linux stops one that has run for 95 % of a second, for
/// the rest of it (sched(7), real-time throttling). The lab's disk and link count to the same 95 %.
const SPAN_NS: u64 = 100_000_000;
const SLEEPS_ONE_IN: u64 = 10;

#[derive(Debug)]
pub(crate) struct Polling {
    longest_ns: u64,
    priority: Priority,
    span_began_ns: u64,
    slept_ns: u64,
}

impl Polling {
    pub(crate) fn new(waiting: Waiting, priority: Priority) -> Self {
        let longest_ns = match (waiting, priority) {
            (Waiting::Sleeping, _) => 0,
            (Waiting::Polling, Priority::RealTime) => POLL_REAL_TIME_NS,
            (Waiting::Polling, Priority::Ordinary) => POLL_NS,
        };
        Self { longest_ns, priority, span_began_ns: 0, slept_ns: 0 }
    }

    /// How long it may poll at `now_ns`: not at all while it owes sleep.
    pub(crate) fn longest_ns(&mut self, now_ns: u64) -> u64 {
        if self.priority == Priority::Ordinary {
            return self.longest_ns;
        }
        if now_ns - self.span_began_ns >= SPAN_NS {
            (self.span_began_ns, self.slept_ns) = (now_ns, 0);
        }
        let owed_ns = (now_ns - self.span_began_ns) / SLEEPS_ONE_IN;
        if self.slept_ns < owed_ns { 0 } else { self.longest_ns }
    }

    /// Counts a sleep, without the time that the calls for it run.
    pub(crate) fn slept(&mut self, ns: u64) {
        self.slept_ns += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_real_time_thread_that_never_slept_must_and_then_polls_again() {
        let mut polling = Polling::new(Waiting::Polling, Priority::RealTime);
        assert_eq!(polling.longest_ns(0), POLL_REAL_TIME_NS, "nothing is owed yet");
        assert_eq!(polling.longest_ns(50 * MS), 0);
        polling.slept(4 * MS);
        assert_eq!(polling.longest_ns(50 * MS), 0, "5 ms are owed");
        polling.slept(2 * MS);
        assert_eq!(polling.longest_ns(51 * MS), POLL_REAL_TIME_NS);
        assert_eq!(polling.longest_ns(99 * MS), 0);
    }

    /// Else a generator would poll on for as long as it slept before its load rose.
    #[test]
    fn a_long_sleep_pays_only_for_its_own_span() {
        let mut polling = Polling::new(Waiting::Polling, Priority::RealTime);
        polling.slept(90 * MS);
        assert_eq!(polling.longest_ns(100 * MS), POLL_REAL_TIME_NS);
        assert_eq!(polling.longest_ns(120 * MS), 0);
    }

    #[test]
    fn others_owe_nothing() {
        let mut ordinary = Polling::new(Waiting::Polling, Priority::Ordinary);
        assert_eq!(ordinary.longest_ns(SPAN_NS / 2), POLL_NS);
        let mut sleeping = Polling::new(Waiting::Sleeping, Priority::RealTime);
        assert_eq!(sleeping.longest_ns(0), 0);
    }
}
