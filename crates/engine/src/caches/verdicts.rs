//! The verdicts of helpers about passwords, kept for a time, so that one request in many waits for a helper. Passwords themselves are
//! not kept: an entry is found by a hash with a secret key.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::{RIGHT_PASSWORD_MS, VERDICTS_MAX, WRONG_PASSWORD_MS};
use crate::secret::Secret;
use crate::slab::PasswordPair;

/// The verdicts. Wrong passwords never push out right ones.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    keys: [RandomState; 2],
    right: Recent,
    wrong: Recent,
}

impl Verdicts {
    /// The number of a pair, different for every pair.
    pub(crate) fn pair(&self, stored: &Secret, given: &[u8]) -> PasswordPair {
        let [high, low] = self.keys.each_ref().map(|key| u128::from(key.hash_one((stored.bytes(), given))));
        PasswordPair(high << 64 | low)
    }

    /// Whether the given password is right; None if a helper must find out.
    pub(crate) fn get(&self, pair: PasswordPair, now_ms: u64) -> Option<bool> {
        if self.right.has(pair, now_ms) {
            return Some(true);
        }
        self.wrong.has(pair, now_ms).then_some(false)
    }

    pub(crate) fn put(&mut self, pair: PasswordPair, is_right: bool, now_ms: u64) {
        let (recent, lasts_ms) = if is_right {
            (&mut self.right, RIGHT_PASSWORD_MS)
        } else {
            (&mut self.wrong, WRONG_PASSWORD_MS)
        };
        recent.put(pair, now_ms + lasts_ms);
    }
}

/// Pairs and the time until which they count; the oldest make room.
#[derive(Debug, Default)]
struct Recent {
    until_ms: HashMap<PasswordPair, u64>,
    in_order: VecDeque<PasswordPair>,
}

impl Recent {
    fn has(&self, pair: PasswordPair, now_ms: u64) -> bool {
        self.until_ms.get(&pair).is_some_and(|until_ms| now_ms < *until_ms)
    }

    fn put(&mut self, pair: PasswordPair, until_ms: u64) {
        if self.until_ms.insert(pair, until_ms).is_none() {
            self.in_order.push_back(pair);
        }
        if self.in_order.len() > VERDICTS_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.until_ms.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_counts_for_its_time_and_its_pair() {
        let mut verdicts = Verdicts::default();
        let secret = |text: &str| Secret::from(text.as_bytes().to_vec());
        let [right, wrong] =
            ["right", "wrong"].map(|given| verdicts.pair(&secret("stored"), given.as_bytes()));
        assert_ne!(right, verdicts.pair(&secret("other"), b"right"));
        verdicts.put(right, true, 1_000);
        verdicts.put(wrong, false, 1_000);
        assert_eq!([right, wrong].map(|pair| verdicts.get(pair, 1_000)), [Some(true), Some(false)]);
        assert_eq!(verdicts.get(wrong, 1_000 + WRONG_PASSWORD_MS), None);
        assert_eq!(verdicts.get(right, 999 + RIGHT_PASSWORD_MS), Some(true));
        assert_eq!(verdicts.get(right, 1_000 + RIGHT_PASSWORD_MS), None);
    }

    #[test]
    fn wrong_passwords_push_out_only_each_other() {
        let mut verdicts = Verdicts::default();
        let stored = Secret::from(b"stored".to_vec());
        let right = verdicts.pair(&stored, b"right");
        verdicts.put(right, true, 0);
        for number in 0..2 * VERDICTS_MAX {
            let wrong = verdicts.pair(&stored, &number.to_le_bytes());
            verdicts.put(wrong, false, 0);
        }
        assert_eq!(verdicts.get(right, 1), Some(true));
        assert_eq!(
            (verdicts.wrong.until_ms.len(), verdicts.wrong.in_order.len()),
            (VERDICTS_MAX, VERDICTS_MAX)
        );
    }
}
