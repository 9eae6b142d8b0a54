//! Bounds the work that a client causes without asking for anything: frames that move no data, and streams that it resets.
//! Called by [`h2`](super).
//!
//! A client has a budget of such frames, which time and answers fill up again. One that uses it up loses its connection. Frames
//! of a well-behaved client stay far below, whatever it downloads.

use flash_http::h2::{ErrorCode, Violation};

use crate::limits::{H2_FRAMES_MAX, H2_FRAMES_PER_ANSWER, H2_FRAMES_PER_S, H2_RESETS_MAX, H2_RESETS_PER_S};

const TOO_MANY_FRAMES: Violation =
    Violation::connection(ErrorCode::ENHANCE_YOUR_CALM, "Too many frames that ask for nothing");
const TOO_MANY_RESETS: Violation =
    Violation::connection(ErrorCode::ENHANCE_YOUR_CALM, "Too many streams were reset");

/// The rest of a client's budget.
#[derive(Debug)]
pub(super) struct FrameBudget {
    frames: u32,
    resets: u32,
    filled_ms: u64,
}

impl FrameBudget {
    pub(super) fn new(now_ms: u64) -> Self {
        Self { frames: H2_FRAMES_MAX, resets: H2_RESETS_MAX, filled_ms: now_ms }
    }

    /// Fills up the budget as time passes.
    pub(super) fn fill(&mut self, now_ms: u64) {
        let passed_s = (now_ms.saturating_sub(self.filled_ms) / 1_000).min(u64::from(H2_FRAMES_MAX)) as u32;
        if passed_s > 0 {
            self.filled_ms = now_ms;
            self.frames = (self.frames + passed_s.saturating_mul(H2_FRAMES_PER_S)).min(H2_FRAMES_MAX);
            self.resets = (self.resets + passed_s.saturating_mul(H2_RESETS_PER_S)).min(H2_RESETS_MAX);
        }
    }

    /// Notes a frame of an answer.
    #[inline]
    pub(super) fn answered(&mut self) {
        self.frames = (self.frames + H2_FRAMES_PER_ANSWER).min(H2_FRAMES_MAX);
    }

    /// Takes a frame that asks for nothing.
    pub(super) fn frame(&mut self) -> Result<(), Violation> {
        self.frames = self.frames.checked_sub(1).ok_or(TOO_MANY_FRAMES)?;
        Ok(())
    }

    /// Takes a stream that ends in an error.
    pub(super) fn reset(&mut self) -> Result<(), Violation> {
        self.resets = self.resets.checked_sub(1).ok_or(TOO_MANY_RESETS)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_used_up_and_filled_by_time_and_answers() {
        let mut frame_budget = FrameBudget::new(1_000);
        for _ in 0..H2_RESETS_MAX {
            assert_eq!(frame_budget.reset(), Ok(()));
        }
        assert_eq!(frame_budget.reset(), Err(TOO_MANY_RESETS));
        for _ in 0..H2_FRAMES_MAX {
            assert_eq!(frame_budget.frame(), Ok(()));
        }
        assert_eq!(frame_budget.frame(), Err(TOO_MANY_FRAMES));
        frame_budget.answered();
        assert_eq!(frame_budget.frame(), Ok(()));
        frame_budget.fill(2_500);
        for _ in 0..H2_RESETS_PER_S {
            assert_eq!(frame_budget.reset(), Ok(()));
        }
        assert_eq!(frame_budget.reset(), Err(TOO_MANY_RESETS));
        frame_budget.fill(u64::MAX);
        assert_eq!((frame_budget.frames, frame_budget.resets), (H2_FRAMES_MAX, H2_RESETS_MAX));
    }
}
