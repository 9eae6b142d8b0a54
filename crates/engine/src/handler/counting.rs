//! Counts requests for the rules that limit their rate. Called by the [gate](super::gate).

use super::error_page::TooSoon;
use crate::context::Core;
use crate::machine::{BucketKey, Machine};
use crate::rates::{Rate, Rates};
use crate::slab::{ClientNumber, SiteId};

/// A request that counts for rates.
pub(super) struct Counting {
    site: SiteId,
    client: ClientNumber,
    now_us: u64,
}

impl Counting {
    pub(super) fn of<F>(site: SiteId, client: ClientNumber, core: &Core<F>) -> Self {
        Self { site, client, now_us: core.clock.us() }
    }

    /// Counts the request for rules with rates.
    ///
    /// # Errors
    /// If one of them does not admit it. Then it counts for none.
    pub(super) fn count<M: Machine>(&self, machine: &mut M, rules: &[(usize, Rates)]) -> Result<(), TooSoon> {
        for (number, (rate, key)) in self.buckets(rules).enumerate() {
            if let Some(bucket) = machine.bucket(&key)
                && let Err(wait_us) = rate.take(bucket, self.now_us)
            {
                put_back(machine, self.buckets(rules).take(number));
                return Err(TooSoon { wait_us, is_of_client: key.client.is_some() });
            }
        }
        Ok(())
    }

    /// The rates of rules, with the buckets of this request.
    pub(super) fn buckets(&self, rules: &[(usize, Rates)]) -> impl Iterator<Item = (Rate, BucketKey)> {
        rules.iter().flat_map(|(rule, rates)| {
            let key = |rate: Rate, client| BucketKey {
                site: self.site.0,
                rule: *rule as u32,
                rate: rate.interval_us,
                burst: rate.burst,
                client,
            };
            rates.each(self.client.0).map(move |(rate, client)| (rate, key(rate, client)))
        })
    }
}

/// Puts the tokens of a request back into these buckets.
pub(super) fn put_back<M: Machine>(machine: &mut M, buckets: impl Iterator<Item = (Rate, BucketKey)>) {
    for (rate, key) in buckets {
        if let Some(bucket) = machine.bucket(&key) {
            rate.put_back(bucket);
        }
    }
}
