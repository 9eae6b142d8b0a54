//! The answers that wait because a rule bounds the [bandwidth](crate::bandwidth). Each worker has a queue for each throttle for which some
//! wait; the first takes its bytes as soon as the bucket that all workers share has them. An answer that leaves makes room for those
//! behind it. Called by the pace of an answer ([`exchange`](crate::exchange)) and by [`Engine`](crate::Engine).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::bandwidth::Throttle;
use crate::limits::THROTTLE_GRANTS_PER_TURN_MAX;
use crate::machine::{BucketKey, Buckets};
use crate::slab::ExchangeKey;

/// The queues of a worker.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    queues: HashMap<Throttle, Queue>,
    /// When the first of a queue may have its bytes, in milliseconds of the monotonic clock.
    due: BTreeSet<(u64, Throttle)>,
    places: u64,
}

/// The answers that wait at a throttle, the first one first.
#[derive(Debug)]
struct Queue {
    waiting: BTreeMap<QueuePlace, (ExchangeKey, u64)>,
    due_ms: u64,
}

/// The place of an answer in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueuePlace(u64);

impl Throttles {
    /// Takes bytes for an answer.
    ///
    /// # Errors
    /// It has to wait, at this place.
    pub(crate) fn take(
        &mut self,
        machine: &mut impl Buckets,
        throttle: Throttle,
        (exchange, bytes): (ExchangeKey, u64),
        now_us: u64,
    ) -> Result<(), QueuePlace> {
        let queue = match self.queues.entry(throttle) {
            std::collections::hash_map::Entry::Occupied(queue) => queue.into_mut(),
            std::collections::hash_map::Entry::Vacant(none) => {
                let Err(wait_us) = take(machine, &throttle, bytes, now_us) else { return Ok(()) };
                let due_ms = (now_us + wait_us).div_ceil(1_000);
                self.due.insert((due_ms, throttle));
                none.insert(Queue { waiting: BTreeMap::new(), due_ms })
            }
        };
        self.places += 1;
        let place = QueuePlace(self.places);
        queue.waiting.insert(place, (exchange, bytes));
        Err(place)
    }

    /// Whether an answer still waits. Otherwise it has its bytes.
    pub(crate) fn is_waiting(&self, throttle: &Throttle, place: QueuePlace) -> bool {
        self.queues.get(throttle).is_some_and(|queue| queue.waiting.contains_key(&place))
    }

    /// An answer waits no more. Returns whether it still waited.
    pub(crate) fn leave(&mut self, throttle: &Throttle, place: QueuePlace) -> bool {
        let Some(queue) = self.queues.get_mut(throttle) else { return false };
        let is_there = queue.waiting.remove(&place).is_some();
        if queue.waiting.is_empty() {
            self.due.remove(&(queue.due_ms, *throttle));
            self.queues.remove(throttle);
        }
        is_there
    }

    /// Gives bytes to answers that wait. Returns some that have theirs now.
    pub(crate) fn grant(&mut self, machine: &mut impl Buckets, now_us: u64) -> Vec<ExchangeKey> {
        let mut granted = Vec::new();
        while granted.len() < THROTTLE_GRANTS_PER_TURN_MAX
            && let Some((due_ms, throttle)) = self.due.first().copied()
            && due_ms * 1_000 <= now_us
            && let Some(queue) = self.queues.get_mut(&throttle)
            && let Some((place, (exchange, bytes))) =
                queue.waiting.first_key_value().map(|(at, all)| (*at, *all))
        {
            match take(machine, &throttle, bytes, now_us) {
                Ok(()) => {
                    granted.push(exchange);
                    self.leave(&throttle, place);
                }
                Err(wait_us) => {
                    queue.due_ms = (now_us + wait_us).div_ceil(1_000);
                    self.due.remove(&(due_ms, throttle));
                    self.due.insert((queue.due_ms, throttle));
                }
            }
        }
        granted
    }

    /// When an answer may have its bytes, in milliseconds of the monotonic clock.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }
}

/// Takes bytes from the bucket of a throttle.
fn take(machine: &mut impl Buckets, throttle: &Throttle, bytes: u64, now_us: u64) -> Result<(), u64> {
    machine.bucket(&key(throttle)).map_or(Ok(()), |bucket| throttle.take(bucket, bytes, now_us))
}

/// Puts bytes back into the bucket of a throttle.
pub(crate) fn put_back(machine: &mut impl Buckets, throttle: &Throttle, bytes: u64) {
    if let Some(bucket) = machine.bucket(&key(throttle)) {
        throttle.put_back(bucket, bytes);
    }
}

/// The bucket of a throttle.
fn key(throttle: &Throttle) -> BucketKey {
    BucketKey {
        site: throttle.site.0,
        rule: throttle.rule as u32,
        rate: throttle.bytes_per_s,
        burst: 0,
        client: throttle.client.map(|client| client.0),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::limits::THROTTLE_BURST_US;
    use crate::slab::{SiteId, Slab};

    /// 1 MB/s: a byte each microsecond.
    const THROTTLE: Throttle = Throttle { site: SiteId(0), rule: 3, client: None, bytes_per_s: 1_000_000 };
    const GRANT: u64 = 20_000;

    #[derive(Default)]
    struct OneBucket(AtomicU64);

    impl Buckets for OneBucket {
        fn bucket(&mut self, key: &BucketKey) -> Option<&AtomicU64> {
            assert_eq!((key.rule, key.burst), (3, 0));
            Some(&self.0)
        }

        fn announce_requests(&mut self, _: &BucketKey, _: u32) -> u32 {
            0
        }
    }

    #[test]
    fn answers_get_their_bytes_in_order_and_those_that_leave_make_room() {
        let (mut throttles, mut buckets, mut slab) =
            (Throttles::default(), OneBucket::default(), Slab::new());
        let keys: Vec<ExchangeKey> = (0..20).map(|_| ExchangeKey(slab.insert(()))).collect();
        let mut take =
            |throttles: &mut Throttles, key| throttles.take(&mut buckets, THROTTLE, (key, GRANT), 0).err();
        let places: Vec<_> = keys.iter().filter_map(|key| take(&mut throttles, *key)).collect();
        // The bytes of a quarter of a second are there at once.
        let at_once = (THROTTLE_BURST_US / GRANT) as usize;
        let waiting = &keys[at_once..];
        assert_eq!(places.len(), waiting.len());
        assert!(throttles.leave(&THROTTLE, places[0]) && throttles.is_waiting(&THROTTLE, places[1]));
        let mut granted = Vec::new();
        while let Some(next_ms) = throttles.next_ms() {
            granted.extend(throttles.grant(&mut buckets, next_ms * 1_000));
            assert!(next_ms < 1_000);
        }
        assert_eq!(granted, waiting[1..]);
        assert!(!throttles.is_waiting(&THROTTLE, places[1]) && !throttles.leave(&THROTTLE, places[1]));
        assert!(throttles.queues.is_empty() && throttles.due.is_empty());
    }
}
