//! The requests that all workers are answering, counted for the rules that bound them. A request that the
//! [gate](crate::handler) has let in counts as long as it has its [`Holds`], however it ends. They also name the bounds on its
//! [bandwidth](crate::bandwidth).
//!
//! A worker announces its own counts: before it admits a request, so that two workers never take the last place both, and at the end of a
//! turn in which requests have ended.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::bandwidth::Throttle;
use crate::bounds::Concurrency;
use crate::machine::{BucketKey, Buckets};
use crate::slab::{ClientNumber, SiteId};

/// Groups without a request are forgotten once there are this many more groups than after the last time.
const SWEEP_AFTER: usize = 1_024;

/// The requests for which a rule of a site is: those of one client, or all.
#[derive(Debug)]
struct RequestGroup {
    key: BucketKey,
    /// How many of them this worker is answering.
    count: AtomicU32,
    /// Whether it is among those with an end to announce.
    has_ended: AtomicBool,
}

/// The groups in which requests have ended.
type EndedGroups = Arc<Mutex<Vec<Arc<RequestGroup>>>>;

/// The groups of requests.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    groups: HashMap<BucketKey, Arc<RequestGroup>>,
    ended: EndedGroups,
    sweep_at: usize,
}

/// A request counted in a group.
#[derive(Debug)]
struct Hold {
    group: Arc<RequestGroup>,
    ended: EndedGroups,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.group.count.fetch_sub(1, Ordering::Relaxed);
        if !self.group.has_ended.swap(true, Ordering::Relaxed) {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.push(Arc::clone(&self.group));
        }
    }
}

/// The bounds that rules set for a request: the groups in which it is counted until this is dropped, and the throttles of its answer.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    counted: Vec<Hold>,
    throttles: Vec<Throttle>,
}

impl Holds {
    /// To be shared by the parts of an exchange; None if nothing is bounded.
    pub(crate) fn shared(self) -> Option<Arc<Self>> {
        (!self.counted.is_empty() || !self.throttles.is_empty()).then(|| Arc::new(self))
    }

    /// Takes over the groups of another part of the same request.
    pub(crate) fn extend(&mut self, others: Holds) {
        self.counted.extend(others.counted);
    }

    /// Adds throttles of the answer. Those of the client come first: while it waits at its own, it takes nothing from others.
    pub(crate) fn throttle(&mut self, throttles: impl Iterator<Item = Throttle>) {
        self.throttles.extend(throttles);
        self.throttles.sort_by_key(|throttle| throttle.client.is_none());
    }

    /// The throttles of the answer.
    #[inline]
    pub(crate) fn throttles(holds: Option<&Arc<Self>>) -> &[Throttle] {
        holds.map_or(&[], |holds| &holds.throttles)
    }
}

/// A group has as many requests as its rule admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    /// Whether it is that of the client, not that of all.
    pub(crate) is_of_client: bool,
}

impl InFlight {
    /// Counts a request of a client for a rule of a site.
    ///
    /// # Errors
    /// The rule does not admit it. Then it is not counted.
    pub(crate) fn enter(
        &mut self,
        machine: &mut impl Buckets,
        (site, rule): (SiteId, usize),
        (bounds, client): (Concurrency, ClientNumber),
        holds: &mut Holds,
    ) -> Result<(), Full> {
        let mut new = Holds::default();
        for (most, client) in bounds.each(client.0) {
            let key = BucketKey { site: site.0, rule: rule as u32, rate: 0, burst: most, client };
            let group = self.groups.entry(key).or_insert_with(|| {
                let (count, has_ended) = (AtomicU32::new(0), AtomicBool::new(false));
                Arc::new(RequestGroup { key, count, has_ended })
            });
            let count = group.count.fetch_add(1, Ordering::Relaxed) + 1;
            new.counted.push(Hold { group: Arc::clone(group), ended: Arc::clone(&self.ended) });
            if count > most || machine.announce_requests(&key, count).saturating_add(count) > most {
                drop(new);
                self.announce_ends(machine);
                return Err(Full { is_of_client: client.is_some() });
            }
        }
        holds.extend(new);
        if self.groups.len() > self.sweep_at {
            self.groups.retain(|_, group| Arc::strong_count(group) > 1);
            self.sweep_at = self.groups.len() + SWEEP_AFTER;
        }
        Ok(())
    }

    /// Announces the counts of groups in which requests have ended.
    #[inline]
    pub(crate) fn announce_ends(&mut self, machine: &mut impl Buckets) {
        if self.groups.is_empty() {
            return;
        }
        let ended = mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        for group in ended {
            group.has_ended.store(false, Ordering::Relaxed);
            machine.announce_requests(&group.key, group.count.load(Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    const RULE: (SiteId, usize) = (SiteId(0), 0);

    /// Other workers, who answer this many requests, and the announced counts.
    #[derive(Default)]
    struct Others {
        requests: u32,
        announced: HashMap<BucketKey, u32>,
    }

    impl Buckets for Others {
        fn bucket(&mut self, _: &BucketKey) -> Option<&AtomicU64> {
            None
        }

        fn announce_requests(&mut self, key: &BucketKey, count: u32) -> u32 {
            self.announced.insert(*key, count);
            self.requests
        }
    }

    fn enter(
        in_flight: &mut InFlight,
        others: &mut Others,
        bounds: Concurrency,
        client: u64,
    ) -> Result<Holds, Full> {
        let mut holds = Holds::default();
        in_flight.enter(others, RULE, (bounds, ClientNumber(client)), &mut holds).map(|()| holds)
    }

    #[test]
    fn requests_count_until_their_holds_are_dropped() {
        let bounds = Concurrency { of_client: Some(2), of_all: Some(3) };
        let (mut in_flight, mut others) = (InFlight::default(), Others::default());
        let mut enter = |client| enter(&mut in_flight, &mut others, bounds, client);
        let full = |is_of_client| Some(Full { is_of_client });
        let (first, second) = (enter(1).expect("one"), enter(1).expect("two"));
        assert_eq!(enter(1).err(), full(true));
        let third = enter(2).expect("of another client");
        assert_eq!(enter(3).err(), full(false));
        drop(first);
        // The request of the client that was refused for all does not count for the client.
        let fourth = enter(3).expect("room");
        drop((second, third, fourth));
        let all: Vec<_> = (0..3).map(|client| enter(client).expect("room")).collect();
        assert_eq!(all.len(), 3);
        drop(all);
        in_flight.announce_ends(&mut others);
        assert!(others.announced.values().all(|count| *count == 0), "{:?}", others.announced);
    }

    #[test]
    fn requests_of_other_workers_count_too() {
        let bounds = Concurrency { of_client: None, of_all: Some(5) };
        let (mut in_flight, mut others) = (InFlight::default(), Others { requests: 3, ..Others::default() });
        let mut enter = || enter(&mut in_flight, &mut others, bounds, 1);
        let both = [enter(), enter()];
        assert!(both.iter().all(Result::is_ok) && enter().is_err());
        assert_eq!(others.announced.into_values().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn clients_without_requests_are_forgotten() {
        let bounds = Concurrency { of_client: Some(1), of_all: None };
        let (mut in_flight, mut others) = (InFlight::default(), Others::default());
        let kept = enter(&mut in_flight, &mut others, bounds, 0).expect("room");
        for client in 1..100_000 {
            enter(&mut in_flight, &mut others, bounds, client).expect("room");
            in_flight.announce_ends(&mut others);
        }
        assert!(in_flight.groups.len() <= 2 * SWEEP_AFTER);
        assert!(enter(&mut in_flight, &mut others, bounds, 0).is_err());
        drop(kept);
    }
}
