//! Whether the event loop of a role still turns: it must answer a ping in time, or it is replaced.

use super::outbox::Outbox;
use flash_worker::control::Order;

/// The time between an answer and the next ping.
const INTERVAL_MS: u64 = 3_000;
/// Maximum time for an answer. On a busy machine a role may wait for a core, but not so long.
pub(super) const SILENCE_MS: u64 = 10_000;

/// The pings of a role: at most one is unanswered.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    state: State,
    looked_ms: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    New,
    /// The next ping is due then.
    Answered {
        next_ms: u64,
    },
    Asked {
        deadline_ms: u64,
    },
    /// It is killed already.
    GivenUp,
}

impl Pulse {
    pub(super) fn note_answer(&mut self, now_ms: u64) {
        if matches!(self.state, State::Asked { .. }) {
            self.state = State::Answered { next_ms: now_ms + INTERVAL_MS };
        }
    }

    /// Sends a ping that is due. True once, if the role has been silent for too long.
    pub(super) fn is_silent(&mut self, now_ms: u64, orders: &mut Outbox) -> bool {
        let was_away = now_ms > self.looked_ms + 2 * INTERVAL_MS;
        self.looked_ms = now_ms;
        match self.state {
            State::New => self.state = State::Answered { next_ms: now_ms + INTERVAL_MS },
            // If the supervisor itself was stopped, the role may have been stopped with it.
            State::Asked { .. } if was_away => {
                self.state = State::Asked { deadline_ms: now_ms + SILENCE_MS };
            }
            State::Asked { deadline_ms } if deadline_ms <= now_ms => {
                self.state = State::GivenUp;
                return true;
            }
            State::Answered { next_ms } if next_ms <= now_ms => {
                // A role that does not read its orders does not get this one either, and does not answer.
                let _ = orders.give(Order::Ping);
                self.state = State::Asked { deadline_ms: now_ms + SILENCE_MS };
            }
            _ => {}
        }
        false
    }

    pub(super) fn next_ms(&self) -> Option<u64> {
        match self.state {
            State::New | State::GivenUp => None,
            State::Answered { next_ms } => Some(next_ms),
            State::Asked { deadline_ms } => Some(deadline_ms.min(self.looked_ms + INTERVAL_MS)),
        }
    }
}

#[cfg(test)]
mod tests {
    use flash_prompt::channel;
    use flash_worker::control::{CHANNEL_BYTES, receive_order};

    use super::*;

    #[test]
    fn a_silent_role_is_given_up_once_and_one_that_answers_never() {
        let (ours, theirs) = channel::pair(CHANNEL_BYTES).expect("a pair");
        channel::set_nonblocking(&theirs).expect("set");
        let mut orders = Outbox::new(ours, 7).expect("an outbox");
        let mut pulse = Pulse::default();
        let mut now_ms = 1_000;
        assert!(!pulse.is_silent(now_ms, &mut orders));
        for _ in 0..5 {
            assert!(receive_order(&theirs).is_err(), "not yet due");
            now_ms = pulse.next_ms().expect("a ping");
            assert!(!pulse.is_silent(now_ms, &mut orders));
            assert!(matches!(receive_order(&theirs), Ok(Order::Ping)));
            pulse.note_answer(now_ms + 1);
        }
        now_ms = pulse.next_ms().expect("a ping");
        assert!(!pulse.is_silent(now_ms, &mut orders));
        now_ms += 10 * SILENCE_MS;
        assert!(!pulse.is_silent(now_ms, &mut orders), "the supervisor was away too");
        let deadline_ms = now_ms + SILENCE_MS;
        while now_ms < deadline_ms {
            assert!(!pulse.is_silent(now_ms, &mut orders));
            now_ms = pulse.next_ms().expect("a look");
        }
        assert!(pulse.is_silent(deadline_ms, &mut orders));
        assert!(!pulse.is_silent(deadline_ms + 1, &mut orders) && pulse.next_ms().is_none());
    }
}
