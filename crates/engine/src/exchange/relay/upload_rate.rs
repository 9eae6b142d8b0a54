//! Whether a client sends a request body fast enough. Only the time in which Flash waits for the client counts: neither a
//! server that takes the body slowly nor a helper that writes it is the client's fault. Called by [`relay`](super).
//!
//! A body begins with a credit of time, which waiting uses up and data earns back at the lowest rate, up to the same
//! amount. So an interruption within a fast upload costs nothing, and what was sent long ago does not pay for a pause
//! now.

use crate::rules::BodyRules;

/// How fast a request body arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadRate {
    rules: BodyRules,
    /// Since when Flash waits for the client; None while it does not.
    since_ms: Option<u64>,
    /// How long it has waited before that.
    waited_ms: u64,
    /// The rest of the credit, in milliseconds times the lowest rate in bytes per second.
    credit: u64,
}

impl UploadRate {
    pub(crate) fn new(rules: BodyRules) -> Self {
        Self { rules, since_ms: None, waited_ms: 0, credit: credit_max(rules) }
    }

    /// Begins to wait for the client, unless Flash waits already.
    pub(crate) fn wait(&mut self, now_ms: u64) {
        self.since_ms.get_or_insert(now_ms);
    }

    /// Ends the wait, if there is one.
    pub(crate) fn pause(&mut self, now_ms: u64) {
        let Some(since_ms) = self.since_ms.take() else { return };
        let waited_ms = now_ms.saturating_sub(since_ms);
        self.waited_ms = self.waited_ms.saturating_add(waited_ms);
        self.credit = self.credit.saturating_sub(waited_ms.saturating_mul(self.rules.least_rate_bytes_per_s));
    }

    /// Takes data of the body.
    pub(crate) fn took(&mut self, data_bytes: usize) {
        let earned = (data_bytes as u64).saturating_mul(1_000);
        self.credit = self.credit.saturating_add(earned).min(credit_max(self.rules));
    }

    /// When the client is late if it sends nothing more; never while Flash does not wait for it.
    pub(crate) fn due_ms(&self) -> u64 {
        let Some(since_ms) = self.since_ms else { return u64::MAX };
        let BodyRules { least_rate_bytes_per_s: rate, total_ms, .. } = self.rules;
        let of_rate_ms = if rate > 0 { self.credit.div_ceil(rate) } else { u64::MAX };
        let of_total_ms = if total_ms > 0 { total_ms.saturating_sub(self.waited_ms) } else { u64::MAX };
        since_ms.saturating_add(of_rate_ms.min(of_total_ms))
    }

    /// Whether the client has sent too little, or for too long.
    pub(crate) fn is_late(&self) -> bool {
        let BodyRules { least_rate_bytes_per_s: rate, total_ms, .. } = self.rules;
        (rate > 0 && self.credit == 0) || (total_ms > 0 && self.waited_ms >= total_ms)
    }
}

fn credit_max(rules: BodyRules) -> u64 {
    rules.least_rate_bytes_per_s.saturating_mul(rules.grace_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 500;
    const GRACE_MS: u64 = 30_000;

    fn rate(total_ms: u64) -> UploadRate {
        UploadRate::new(BodyRules { least_rate_bytes_per_s: RATE, grace_ms: GRACE_MS, total_ms })
    }

    #[test]
    fn data_earns_time_up_to_the_grace() {
        let mut rate = rate(0);
        assert_eq!(rate.due_ms(), u64::MAX);
        rate.wait(1_000);
        assert_eq!(rate.due_ms(), 1_000 + GRACE_MS);
        rate.pause(11_000);
        rate.took(2 * RATE as usize);
        rate.wait(11_000);
        assert_eq!(rate.due_ms(), 11_000 + GRACE_MS - 8_000);
        rate.took(1 << 30);
        assert_eq!(rate.due_ms(), 11_000 + GRACE_MS);
        rate.pause(11_000 + GRACE_MS - 1);
        assert!(!rate.is_late());
        rate.wait(90_000);
        rate.pause(90_001);
        assert!(rate.is_late());
    }

    #[test]
    fn the_total_counts_waits_only() {
        let mut rate = rate(5_000);
        for begin_ms in [0, 100_000] {
            rate.wait(begin_ms);
            rate.wait(begin_ms + 100);
            rate.pause(begin_ms + 2_000);
            rate.took(1 << 20);
        }
        rate.wait(200_000);
        assert_eq!(rate.due_ms(), 201_000);
        rate.pause(201_000);
        assert!(rate.is_late());
    }

    #[test]
    fn without_rules_nothing_is_late() {
        let mut rate = UploadRate::new(BodyRules::default());
        rate.wait(0);
        assert_eq!(rate.due_ms(), u64::MAX);
        rate.pause(u64::MAX);
        assert!(!rate.is_late());
    }
}
