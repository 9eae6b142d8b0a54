//! The requests that a worker is answering, counted for the rules that bound them. A request that the
//! [gate](crate::handler) has let in counts as long as it has its [`Holds`], however it ends. They also name the bounds on its
//! [bandwidth](crate::bandwidth).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::bandwidth::Throttle;
use crate::slab::{ClientNumber, SiteId};

/// Groups without a request are forgotten once there are this many more groups than after the last time.
const SWEEP_AFTER: usize = 1_024;

/// How many requests a rule admits at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Concurrency {
    /// The bound for each client.
    pub of_client: Option<u32>,
    /// The bound for all clients together.
    pub of_all: Option<u32>,
}

impl Concurrency {
    pub(crate) fn is_bounded(self) -> bool {
        self.of_client.is_some() || self.of_all.is_some()
    }
}

/// The requests for which a rule of a site is: those of one client, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct RequestGroup {
    site: SiteId,
    rule: usize,
    client: Option<ClientNumber>,
}

/// The number of requests of each group.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    groups: HashMap<RequestGroup, Arc<AtomicU32>>,
    sweep_at: usize,
}

/// A request counted in a group.
#[derive(Debug)]
struct Hold(Arc<AtomicU32>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
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
        (site, rule): (SiteId, usize),
        bounds: Concurrency,
        client: ClientNumber,
        holds: &mut Holds,
    ) -> Result<(), Full> {
        let of_both = [(bounds.of_client, Some(client)), (bounds.of_all, None)];
        let mut new = Holds::default();
        for (most, client) in of_both {
            let Some(most) = most else { continue };
            let count = Arc::clone(self.groups.entry(RequestGroup { site, rule, client }).or_default());
            if count.load(Ordering::Relaxed) >= most {
                return Err(Full { is_of_client: client.is_some() });
            }
            count.fetch_add(1, Ordering::Relaxed);
            new.counted.push(Hold(count));
        }
        holds.extend(new);
        if self.groups.len() > self.sweep_at {
            self.groups.retain(|_, count| count.load(Ordering::Relaxed) > 0);
            self.sweep_at = self.groups.len() + SWEEP_AFTER;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: (SiteId, usize) = (SiteId(0), 0);

    #[test]
    fn requests_count_until_their_holds_are_dropped() {
        let bounds = Concurrency { of_client: Some(2), of_all: Some(3) };
        let mut in_flight = InFlight::default();
        let mut enter = |client| {
            let mut holds = Holds::default();
            in_flight.enter(RULE, bounds, ClientNumber(client), &mut holds).map(|()| holds)
        };
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
    }

    #[test]
    fn clients_without_requests_are_forgotten() {
        let bounds = Concurrency { of_client: Some(1), of_all: None };
        let mut in_flight = InFlight::default();
        let mut kept = Holds::default();
        in_flight.enter(RULE, bounds, ClientNumber(0), &mut kept).expect("room");
        for client in 1..100_000 {
            in_flight.enter(RULE, bounds, ClientNumber(client), &mut Holds::default()).expect("room");
        }
        assert!(in_flight.groups.len() <= 2 * SWEEP_AFTER);
        assert!(in_flight.enter(RULE, bounds, ClientNumber(0), &mut Holds::default()).is_err());
    }
}
