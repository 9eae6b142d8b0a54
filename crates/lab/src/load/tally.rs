//! What came of the requests: counts, latencies, and failures by kind.
//!
//! A pool fills it, reports read it. Pure.

use std::collections::BTreeMap;
use std::fmt;

use hdrhistogram::Histogram;

/// Why a request got no proper answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The server did not take the connection.
    Refused,
    /// This machine's limits did not allow the connection.
    LocalLimit,
    /// The connection was reset.
    Reset,
    /// The connection ended before the answer did.
    ClosedEarly,
    /// What came was no HTTP response, or there was more than the response.
    Garbage,
    /// The response did not say how long it is.
    NoLength,
    /// The body's length is not the file's.
    WrongLength,
    /// A byte of the body is not the file's.
    WrongContent,
    /// A proper response with a status other than 200.
    Status(u16),
    /// No answer until the generator stopped waiting.
    Unanswered,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::LocalLimit => "local limit",
            Self::Reset => "reset",
            Self::ClosedEarly => "closed early",
            Self::Garbage => "garbage",
            Self::NoLength => "no length",
            Self::WrongLength => "wrong length",
            Self::WrongContent => "wrong content",
            Self::Status(status) => return write!(f, "status {status}"),
            Self::Unanswered => "unanswered",
        })
    }
}

/// The counts of one stream of requests in one phase.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Arrivals.
    pub(crate) asked: u64,
    /// Proper answers: status 200, right length, right content when that is checked.
    pub(crate) answered: u64,
    /// Of these, the ones that came while arrivals still did.
    pub(crate) answered_in_time: u64,
    /// Arrivals that found every connection in use and none left to open.
    pub(crate) queued: u64,
    /// Requests sent again because the server had closed the idle connection under them.
    pub(crate) retried: u64,
    /// The rest of the arrivals, by kind.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Nanoseconds from the intended start to the last byte, of proper answers; of unanswered
    /// requests, the time they had waited, which is less than they would have taken.
    pub(crate) latency_ns: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            asked: 0,
            answered: 0,
            answered_in_time: 0,
            queued: 0,
            retried: 0,
            faults: BTreeMap::new(),
            latency_ns: times_histogram(),
        }
    }

    /// Counts one failure.
    pub(crate) fn fail(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_insert(0) += 1;
    }

    /// Failures of every kind.
    pub(crate) fn failed(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// A histogram of times in nanoseconds: 100 ns to ten minutes, three digits.
pub(crate) fn times_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 600_000_000_000, 3).expect("these bounds make a histogram")
}
