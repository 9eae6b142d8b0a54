//! How fast rules let answers be sent: a bucket of bytes that fills at the rate, which all workers share ([`rates`](crate::rates)). Called
//! by the [gate](crate::handler) and by [`throttles`](crate::throttles), where answers wait.

use std::sync::atomic::AtomicU64;

use crate::bounds::Bounds;
use crate::limits::{THROTTLE_BURST_US, THROTTLE_GRANT_BYTES, THROTTLE_GRANT_US};
use crate::rates;
use crate::slab::{ClientNumber, SiteId};

/// How fast a rule lets answers be sent, in bytes per second.
pub type Bandwidth = Bounds<u64>;

/// The rate at which the answers to one client are sent, or those to all, for which a rule of a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Throttle {
    pub(crate) site: SiteId,
    pub(crate) rule: usize,
    /// None for all clients.
    pub(crate) client: Option<ClientNumber>,
    pub(crate) bytes_per_s: u64,
}

impl Bandwidth {
    /// The throttles of the answers to a client for which a rule is.
    pub(crate) fn throttles(
        self,
        (site, rule): (SiteId, usize),
        client: ClientNumber,
    ) -> impl Iterator<Item = Throttle> {
        self.each(client).map(move |(bytes_per_s, client)| Throttle { site, rule, client, bytes_per_s })
    }
}

impl Throttle {
    /// The most bytes that an answer takes at once.
    pub(crate) fn grant_bytes(&self) -> u64 {
        let bytes = self.bytes_per_s.saturating_mul(THROTTLE_GRANT_US) / 1_000_000;
        bytes.clamp(*THROTTLE_GRANT_BYTES.start(), *THROTTLE_GRANT_BYTES.end())
    }

    /// Takes bytes out of the bucket, at most [`Throttle::grant_bytes`].
    ///
    /// # Errors
    /// The time until there are as many, in microseconds.
    pub(crate) fn take(&self, full_us: &AtomicU64, bytes: u64, now_us: u64) -> Result<(), u64> {
        rates::take(full_us, self.time_us(bytes), THROTTLE_BURST_US, now_us)
    }

    /// Puts bytes back that are not sent.
    pub(crate) fn put_back(&self, full_us: &AtomicU64, bytes: u64) {
        rates::put_back(full_us, self.time_us(bytes));
    }

    fn time_us(&self, bytes: u64) -> u64 {
        (bytes * 1_000_000).div_ceil(self.bytes_per_s.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 MB/s: a byte each microsecond.
    const THROTTLE: Throttle = Throttle { site: SiteId(0), rule: 0, client: None, bytes_per_s: 1_000_000 };
    const NOW_US: u64 = 7_000_000;

    #[test]
    fn bytes_beyond_a_burst_are_sent_at_the_rate() {
        let full_us = AtomicU64::new(0);
        let take = |bytes, now_us| THROTTLE.take(&full_us, bytes, now_us);
        assert_eq!(take(THROTTLE_BURST_US, NOW_US), Ok(()));
        assert_eq!(take(10_000, NOW_US), Err(10_000));
        assert_eq!(take(10_000, NOW_US + 10_000), Ok(()));
        THROTTLE.put_back(&full_us, 4_000);
        assert_eq!(take(4_000, NOW_US + 10_000), Ok(()));
        assert_eq!(take(1, NOW_US + 10_000), Err(1));
    }

    #[test]
    fn a_grant_takes_a_short_time_but_is_worth_a_send_and_is_never_free() {
        let grant = |bytes_per_s| Throttle { bytes_per_s, ..THROTTLE }.grant_bytes();
        assert_eq!((grant(1_000_000), grant(u64::MAX)), (20_000, *THROTTLE_GRANT_BYTES.end()));
        // The slowest rate has room for a grant, and the fastest counts a single byte.
        let slowest = Throttle { bytes_per_s: 8_000, ..THROTTLE };
        assert_eq!(slowest.take(&AtomicU64::new(0), slowest.grant_bytes(), NOW_US), Ok(()));
        let (fastest, full_us) = (Throttle { bytes_per_s: 12_500_000_000, ..THROTTLE }, AtomicU64::new(0));
        assert_eq!(fastest.take(&full_us, 1, NOW_US), Ok(()));
        assert!(full_us.into_inner() > NOW_US);
    }
}
