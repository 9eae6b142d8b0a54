//! The conditions on which the rules of a site have admitted a request. Requests with the same head are admitted without being
//! parsed while these hold ([`caches::RepeatedRequests`](crate::caches::RepeatedRequests)). Made and checked by the
//! [gate](crate::handler).

use crate::rates::Rates;
use crate::slab::PasswordPair;

/// Conditions besides the head of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    /// The numbers of the rules that admit some clients. This client is one of them.
    pub(crate) guards: Vec<usize>,
    /// The numbers of the rules that bound requests, with their rates. Each request counts.
    pub(crate) rates: Vec<(usize, Rates)>,
    /// The passwords in the head, which are right.
    pub(crate) passwords: Vec<PasswordPair>,
}

impl Conditions {
    /// Whether every request with the head is admitted.
    pub(crate) fn are_none(&self) -> bool {
        self.guards.is_empty() && self.rates.is_empty() && self.passwords.is_empty()
    }
}
