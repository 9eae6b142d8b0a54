//! The password_results of helpers about passwords, kept for a time, so that one request in many waits for a helper. Passwords themselves are
//! not kept: an entry is found by a hash with a secret key.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use crate::limits::{PASSWORD_RESULTS_MAX, RIGHT_PASSWORD_MS, WRONG_PASSWORD_MS};
use crate::secret::Secret;
use crate::slab::PasswordPair;

/// The password_results. Wrong passwords never push out right ones.
#[derive(Debug, Default)]
pub(crate) struct PasswordResults {
    keys: [RandomState; 2],
    right: Recent,
    wrong: Recent,
}

impl PasswordResults {
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
        if self.in_order.len() > PASSWORD_RESULTS_MAX
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
        let mut password_results = PasswordResults::default();
        let secret = |text: &str| Secret::from(text.as_bytes().to_vec());
        let [right, wrong] =
            ["right", "wrong"].map(|given| password_results.pair(&secret("stored"), given.as_bytes()));
        assert_ne!(right, password_results.pair(&secret("other"), b"right"));
        password_results.put(right, true, 1_000);
        password_results.put(wrong, false, 1_000);
        assert_eq!([right, wrong].map(|pair| password_results.get(pair, 1_000)), [Some(true), Some(false)]);
        assert_eq!(password_results.get(wrong, 1_000 + WRONG_PASSWORD_MS), None);
        assert_eq!(password_results.get(right, 999 + RIGHT_PASSWORD_MS), Some(true));
        assert_eq!(password_results.get(right, 1_000 + RIGHT_PASSWORD_MS), None);
    }

    #[test]
    fn wrong_passwords_push_out_only_each_other() {
        let mut password_results = PasswordResults::default();
        let stored = Secret::from(b"stored".to_vec());
        let right = password_results.pair(&stored, b"right");
        password_results.put(right, true, 0);
        for number in 0..2 * PASSWORD_RESULTS_MAX {
            let wrong = password_results.pair(&stored, &number.to_le_bytes());
            password_results.put(wrong, false, 0);
        }
        assert_eq!(password_results.get(right, 1), Some(true));
        assert_eq!(
            (password_results.wrong.until_ms.len(), password_results.wrong.in_order.len()),
            (PASSWORD_RESULTS_MAX, PASSWORD_RESULTS_MAX)
        );
    }
}
