//! The restart of a role that ended although it is needed.

use flash_prompt::clock;

use super::child::Ending;
use super::crew::{RESTART_PAUSE_MS, Role, STEADY_MS};

/// A role that ends earlier than this after its start may have the same reason to end again: the pauses get longer.
const CALM_MS: u64 = 60_000;
/// The longest pause.
const PAUSE_MS_MAX: u64 = 8_000;

/// Whether a gateway or a log writer that ends must be followed by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Its configuration serves.
    ToServe,
    /// Its workers finish their requests.
    ToDrain,
    /// There are no workers, or their configuration does not start.
    Not,
}

impl Need {
    /// Whether another one must follow one that has ended so. When it drains, success means that its work is done.
    pub(super) fn wants_another(self, end: Ending) -> bool {
        match self {
            Need::ToServe => true,
            Need::ToDrain => !end.is_success(),
            Need::Not => false,
        }
    }
}

/// When a role starts again. The first time it does at once, unless it lived only briefly; a role that ends again and again
/// starts after pauses that double, so that it takes no core from the workers.
#[derive(Debug, Default)]
pub(super) struct Restart {
    due_ms: Option<u64>,
    /// The next pause; 0 at first.
    pause_ms: u64,
}

impl Restart {
    /// Plans the restart of a role that has just ended.
    pub(super) fn plan(&mut self, ended: &Role) {
        let now_ms = clock::monotonic_ms();
        self.plan_after(now_ms.saturating_sub(ended.started_ms), now_ms);
    }

    fn plan_after(&mut self, lived_ms: u64, now_ms: u64) {
        if lived_ms >= CALM_MS {
            self.pause_ms = 0;
        } else if lived_ms < STEADY_MS {
            self.pause_ms = self.pause_ms.max(RESTART_PAUSE_MS);
        }
        self.due_ms = Some(now_ms + self.pause_ms);
        self.pause_ms = (2 * self.pause_ms).clamp(RESTART_PAUSE_MS, PAUSE_MS_MAX);
    }

    /// Plans another attempt, because the role could not be started.
    pub(super) fn plan_again(&mut self, now_ms: u64) {
        self.due_ms = Some(now_ms + RESTART_PAUSE_MS);
    }

    /// Whether the role must be started now. True once.
    pub(super) fn take_due(&mut self, now_ms: u64) -> bool {
        self.due_ms.take_if(|ms| *ms <= now_ms).is_some()
    }

    /// Starts it no more.
    pub(super) fn cancel(&mut self) {
        self.due_ms = None;
    }

    /// The time of the restart.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.due_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_that_ends_again_and_again_starts_later_and_later() {
        let mut restart = Restart::default();
        let mut pauses = |lives: &[u64]| -> Vec<u64> {
            let plan = |lived_ms: &u64| {
                restart.plan_after(*lived_ms, 100);
                assert!(!restart.take_due(restart.next_ms().expect("planned") - 1) || restart.pause_ms == 0);
                let due_ms = restart.next_ms().expect("planned");
                assert!(restart.take_due(due_ms) && !restart.take_due(due_ms));
                due_ms - 100
            };
            lives.iter().map(plan).collect()
        };
        assert_eq!(
            pauses(&[5_000, 5_000, 5_000, 5_000, 5_000, 5_000]),
            [0, 1_000, 2_000, 4_000, 8_000, 8_000]
        );
        assert_eq!(pauses(&[CALM_MS, 10]), [0, 1_000]);
        assert_eq!(pauses(&[CALM_MS]), [0]);
    }
}
