//! How many requests a rule admits at once. [`in_flight`](crate::in_flight) counts them.

/// The bounds of a rule.
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
