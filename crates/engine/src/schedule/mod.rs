//! The order in which connections' bytes go to the network. With SRPT (shortest remaining processing time first), the socket of a
//! response has the priority of the band of the bytes that the response has left; a queueing discipline of
//! the kernel sends urgent bands first (overload-and-srpt, section 2).
//!
//! [`Egress`] needs no kernel: it sends only as fast as the uplink and decides itself which answer is next.
//!
//! The wires ask [`Schedule`] for the band before they send. It makes no system calls, and sees neither
//! sockets nor files.

mod bands;
mod egress;
mod sizes;

pub use bands::{BANDS, Band, CUTOFFS_MAX, Cutoffs};
pub use egress::EgressRules;
pub(crate) use egress::{Egress, Ticket};
use serde::{Deserialize, Serialize};
use sizes::Sizes;

use crate::limits::{CUTOFFS_LEARNED_FROM_MIN, CUTOFFS_RENEWED_AFTER};

/// The policy, from the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The kernel shares the link among all connections.
    #[default]
    Fair,
    /// Responses with few bytes left go first.
    Srpt {
        /// Cutoffs that the operator has fixed; None to learn them from the answers.
        fixed: Option<Cutoffs>,
    },
}

/// The policy at work.
#[derive(Debug)]
pub(crate) struct Schedule {
    policy: Policy,
    cutoffs: Cutoffs,
    sizes: Sizes,
    /// Answers counted until the cutoffs are computed again.
    until_renewal: u32,
    counters: ScheduleCounters,
}

/// The counters of a schedule since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleCounters {
    /// The cutoffs in use; None if the schedule is fair.
    pub cutoffs: Option<Cutoffs>,
    /// The bands, most urgent first. All 0 if the schedule is fair.
    pub bands: [BandCounters; BANDS],
    /// How often a socket got another band.
    pub changes: u64,
}

/// The work of one band.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BandCounters {
    /// Answers that began in this band.
    pub answers: u64,
    /// Bytes sent while the socket was in this band.
    pub bytes: u64,
}

impl Schedule {
    pub(crate) fn new(policy: Policy) -> Self {
        let fixed = match policy {
            Policy::Srpt { fixed } => fixed,
            Policy::Fair => None,
        };
        Self {
            policy,
            cutoffs: fixed.unwrap_or(Cutoffs::OF_THE_PAPER),
            sizes: Sizes::new(),
            until_renewal: CUTOFFS_LEARNED_FROM_MIN,
            counters: ScheduleCounters::default(),
        }
    }

    /// Whether the kernel alone decides. Then no answer needs a band.
    #[inline]
    pub(crate) fn is_fair(&self) -> bool {
        matches!(self.policy, Policy::Fair)
    }

    /// Counts an answer whose first bytes were sent, with the length of its body, and learns from it.
    pub(crate) fn note_answer(&mut self, body_bytes: u64) {
        if self.is_fair() {
            return;
        }
        self.counters.bands[self.cutoffs.band(body_bytes).number()].answers += 1;
        if self.policy != (Policy::Srpt { fixed: None }) {
            return;
        }
        self.sizes.add(body_bytes);
        self.until_renewal -= 1;
        if self.until_renewal == 0 {
            self.until_renewal = CUTOFFS_RENEWED_AFTER;
            self.cutoffs = self.sizes.cutoffs().unwrap_or(self.cutoffs);
            self.sizes.age();
        }
    }

    /// The band of a response with this many bytes left.
    pub(crate) fn band(&self, left_bytes: u64) -> Band {
        self.cutoffs.band(left_bytes)
    }

    /// Counts a socket that got another band.
    pub(crate) fn count_change(&mut self) {
        self.counters.changes += 1;
    }

    /// Counts bytes sent by a socket in this band.
    pub(crate) fn count_sent(&mut self, band: Band, bytes: usize) {
        if !self.is_fair() {
            self.counters.bands[band.number()].bytes += bytes as u64;
        }
    }

    pub(crate) fn counters(&self) -> ScheduleCounters {
        ScheduleCounters { cutoffs: (!self.is_fair()).then_some(self.cutoffs), ..self.counters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutoffs_are_learned_after_enough_answers_and_follow_the_traffic() {
        let mut schedule = Schedule::new(Policy::Srpt { fixed: None });
        for _ in 1..CUTOFFS_LEARNED_FROM_MIN {
            schedule.note_answer(100_000);
        }
        assert_eq!(schedule.counters().cutoffs, Some(Cutoffs::OF_THE_PAPER));
        assert_eq!(schedule.band(100_000).number(), 4);
        schedule.note_answer(100_000);
        assert_eq!(schedule.band(100_000), Band::FIRST, "the usual answer is a small one here");
        for _ in 0..20 * CUTOFFS_RENEWED_AFTER {
            schedule.note_answer(3_000);
        }
        assert_eq!(schedule.band(3_000), Band::FIRST);
        assert!(schedule.band(100_000) > Band::FIRST, "the traffic has changed");
    }

    #[test]
    fn fixed_cutoffs_stay() {
        let fixed = Cutoffs::new(&[7, 70]);
        let mut schedule = Schedule::new(Policy::Srpt { fixed });
        for _ in 0..2 * CUTOFFS_LEARNED_FROM_MIN {
            schedule.note_answer(1_000_000);
        }
        assert_eq!(schedule.counters().cutoffs, fixed);
        assert_eq!(schedule.counters().bands[2].answers, u64::from(2 * CUTOFFS_LEARNED_FROM_MIN));
    }
}
