//! How many requests rules admit: a bucket of tokens that fills at a steady rate. A bucket is one number that all workers share, the
//! time at which it will be full again, as in the generic cell rate algorithm (ITU-T I.371, annex A). Called by the
//! [gate](crate::handler), and for bytes instead of requests by [`bandwidth`](crate::bandwidth).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bounds::Bounds;

/// How often a worker tries to take a token while others change the bucket. Then the request is admitted.
const TRIES_MAX: usize = 32;

/// How many requests are admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The time in which one more is admitted, in microseconds; at least 1.
    pub interval_us: u64,
    /// How many are admitted at once; at least 1.
    pub burst: u32,
}

/// The rates of a rule, at which requests are admitted.
pub type Rates = Bounds<Rate>;

impl Rate {
    /// Takes a token out of a bucket.
    ///
    /// # Errors
    /// The time until there is one, in microseconds.
    pub(crate) fn take(self, full_us: &AtomicU64, now_us: u64) -> Result<(), u64> {
        let whole_us = self.interval_us.saturating_mul(u64::from(self.burst));
        take(full_us, self.interval_us, whole_us, now_us)
    }

    /// Puts a token back that a request took which is not admitted for another reason.
    pub(crate) fn put_back(self, full_us: &AtomicU64) {
        put_back(full_us, self.interval_us);
    }
}

/// Takes as much as comes in `cost_us` out of a bucket that fills in `whole_us`.
///
/// # Errors
/// The time until there is as much, in microseconds.
pub(crate) fn take(full_us: &AtomicU64, cost_us: u64, whole_us: u64, now_us: u64) -> Result<(), u64> {
    let latest_us = now_us.saturating_add(whole_us);
    let mut before_us = full_us.load(Ordering::Relaxed);
    for _ in 0..TRIES_MAX {
        // A later time than that of an empty bucket is not one of this rate.
        let after_us = before_us.clamp(now_us, latest_us).saturating_add(cost_us);
        if after_us > latest_us {
            if before_us > latest_us {
                // Otherwise the bucket would never fill.
                let (ordering, changed) = (Ordering::Relaxed, Ordering::Relaxed);
                let _ = full_us.compare_exchange(before_us, latest_us, ordering, changed);
            }
            return Err(after_us - latest_us);
        }
        let (ordering, changed) = (Ordering::Relaxed, Ordering::Relaxed);
        match full_us.compare_exchange_weak(before_us, after_us, ordering, changed) {
            Ok(_) => break,
            Err(now) => before_us = now,
        }
    }
    Ok(())
}

/// Puts as much back as comes in `cost_us`.
pub(crate) fn put_back(full_us: &AtomicU64, cost_us: u64) {
    // The bucket can be a new one meanwhile, with nothing taken.
    let less = |full_us: u64| Some(full_us.saturating_sub(cost_us));
    let _ = full_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { interval_us: 100_000, burst: 3 };

    #[test]
    fn a_bucket_has_its_burst_and_fills_at_its_rate() {
        let bucket = AtomicU64::new(0);
        let taken = |now_us| RATE.take(&bucket, now_us);
        assert_eq!([0, 1, 2].map(|_| taken(5_000_000)), [Ok(()); 3]);
        assert_eq!(taken(5_000_000), Err(100_000));
        assert_eq!(taken(5_099_999), Err(1));
        assert_eq!(taken(5_100_000), Ok(()));
        assert_eq!(taken(5_100_000), Err(100_000), "a refused request costs no token");
        // After a long pause it is full, and not fuller.
        assert_eq!([0, 1, 2, 3].map(|_| taken(60_000_000).is_ok()), [true, true, true, false]);
    }

    #[test]
    fn a_token_that_was_put_back_can_be_taken_again() {
        let bucket = AtomicU64::new(0);
        assert_eq!([0, 1, 2].map(|_| RATE.take(&bucket, 5_000_000)), [Ok(()); 3]);
        RATE.put_back(&bucket);
        assert_eq!(RATE.take(&bucket, 5_000_000), Ok(()));
        assert_eq!(RATE.take(&bucket, 5_000_000), Err(100_000));
        // Another rate may have taken the bucket over.
        let other = AtomicU64::new(5);
        RATE.put_back(&other);
        assert_eq!([0, 1, 2, 3].map(|_| RATE.take(&other, 1_000).is_ok()), [true, true, true, false]);
    }

    #[test]
    fn a_number_that_is_no_time_of_the_rate_does_no_harm() {
        let bucket = AtomicU64::new(u64::MAX);
        assert_eq!(RATE.take(&bucket, 1_000), Err(100_000));
        assert_eq!(RATE.take(&bucket, 101_000), Ok(()), "it fills at its rate");
        bucket.store(900_000_000, Ordering::Relaxed);
        assert_eq!(RATE.take(&bucket, 1_000), Err(100_000), "no longer than until the next token");
        let endless = Rate { interval_us: u64::MAX, burst: u32::MAX };
        assert_eq!(endless.take(&AtomicU64::new(0), u64::MAX), Ok(()));
    }
}
