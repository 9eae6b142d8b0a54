//! Bounds that a rule sets: for the requests of each client, and for those of all clients together.

/// The bounds of a rule; None is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds<T> {
    /// The bound for each client.
    pub of_client: Option<T>,
    /// The bound for all clients together.
    pub of_all: Option<T>,
}

/// How many requests a rule admits at once; `in_flight` counts them.
pub type Concurrency = Bounds<u32>;

impl<T> Default for Bounds<T> {
    fn default() -> Self {
        Self { of_client: None, of_all: None }
    }
}

impl<T> Bounds<T> {
    pub(crate) fn are_there(&self) -> bool {
        self.of_client.is_some() || self.of_all.is_some()
    }

    /// Each bound that holds for a request of this client, with the client whose requests it counts; None for all clients.
    pub(crate) fn each<C>(self, client: C) -> impl Iterator<Item = (T, Option<C>)> {
        let both = [(self.of_client, Some(client)), (self.of_all, None)];
        both.into_iter().filter_map(|(bound, client)| Some((bound?, client)))
    }
}
