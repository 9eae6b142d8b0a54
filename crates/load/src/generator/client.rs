//! A client of a closed loop: its totals, and how long it waits after a request.
//!
//! A stream has one for each of its clients. Pure.

use super::ClientTotals;
use crate::record::{Outcome, Record};

/// How long a client waits after a failure, and at most after many in a row.
const BACKOFF_NS: u64 = 10_000_000;
const BACKOFF_DOUBLINGS_MAX: u32 = 7;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Client {
    pub(crate) totals: ClientTotals,
    failures_in_row: u32,
}

impl Client {
    /// Counts a request that ended; gives how long the client waits before its next one, who thinks for `think_ns`.
    pub(crate) fn finish(&mut self, record: &Record, think_ns: u64) -> u64 {
        self.totals.active_ns += record.latency_ns();
        if record.outcome == Outcome::Answered {
            self.totals.answered += 1;
            self.totals.body_bytes += record.body_bytes;
            self.failures_in_row = 0;
            return think_ns;
        }
        self.totals.failed += 1;
        let backoff_ns = BACKOFF_NS << self.failures_in_row;
        self.failures_in_row = BACKOFF_DOUBLINGS_MAX.min(self.failures_in_row + 1);
        think_ns.max(backoff_ns)
    }
}
