//! The figures of each second of a phase while it goes on.
//!
//! The progress of a run asks for them second by second. Pure. Answers belong to the second in which they ended, in contrast
//! to the [`super::Timeline`] of results. Percentiles are within 1 %: a histogram costs little where exact ones would sort
//! a hundred thousand times a second.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::times::ms;
use crate::record::{Outcome, Record};

pub const SECOND_NS: u64 = 1_000_000_000;
/// The longest latency that is told apart: an hour.
const LATENCY_MAX_NS: u64 = 3_600 * SECOND_NS;
/// Decimal digits of percentiles.
const DIGITS: u8 = 2;

/// One second of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    pub answered: u64,
    /// Requests that ended without a proper answer.
    pub failed: u64,
    /// Latency, as in [`super::Measures::latency`]; none where none counts.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// The seconds that are not over yet.
#[derive(Debug, Default)]
pub struct Seconds {
    open: BTreeMap<u64, Tally>,
    /// Seconds that are over: records that come too late belong to the next.
    over: u64,
}

#[derive(Debug)]
struct Tally {
    answered: u64,
    failed: u64,
    latency: Option<Histogram<u64>>,
}

impl Seconds {
    pub fn add(&mut self, records: &[Record]) {
        for record in records {
            let second = (record.last_byte_ns / SECOND_NS).max(self.over);
            let tally = self.open.entry(second).or_insert_with(|| Tally {
                answered: 0,
                failed: 0,
                latency: Histogram::new_with_bounds(1000, LATENCY_MAX_NS, DIGITS).ok(),
            });
            if record.outcome == Outcome::Answered {
                tally.answered += 1;
            } else {
                tally.failed += 1;
            }
            if let Some(latency) = tally.latency.as_mut().filter(|_| record.counts()) {
                latency.saturating_record(record.latency_ns());
            }
        }
    }

    /// Ends the first second that is not over; gives its number, from 0, and its figures.
    pub fn end(&mut self) -> (u64, Second) {
        let number = self.over;
        self.over += 1;
        let Some(tally) = self.open.remove(&number) else { return (number, Second::default()) };
        let percentile = |quantile| {
            let latency = tally.latency.as_ref().filter(|latency| !latency.is_empty())?;
            Some(ms(latency.value_at_quantile(quantile)))
        };
        let (p50_ms, p99_ms) = (percentile(0.5), percentile(0.99));
        (number, Second { answered: tally.answered, failed: tally.failed, p50_ms, p99_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::answered;
    use super::*;

    const MS_NS: u64 = 1_000_000;

    #[test]
    fn answers_belong_to_the_second_in_which_they_ended() {
        let mut seconds = Seconds::default();
        // A hundred of 1 to 100 ms that end in the first second, and one that ends in the third.
        let records: Vec<Record> = (1..=100).map(|i| answered(500 * MS_NS, i * MS_NS, 1)).collect();
        seconds.add(&records[50..]);
        let mut failed = answered(0, 10 * MS_NS, 0);
        failed.outcome = Outcome::Status;
        seconds.add(&[failed, answered(0, 2500 * MS_NS, 1)]);
        seconds.add(&records[..50]);
        let (number, first) = seconds.end();
        assert_eq!((number, first.answered, first.failed), (0, 100, 1));
        let near = |found: Option<f64>, exact: f64| (found.unwrap() / exact - 1.0).abs() <= 0.01;
        assert!(near(first.p50_ms, 50.0) && near(first.p99_ms, 99.0), "{first:?}");
        // Late: its second is over.
        seconds.add(&[answered(0, 5 * MS_NS, 1)]);
        assert_eq!(seconds.end().1.answered, 1);
        let (number, third) = seconds.end();
        assert!(number == 2 && third.answered == 1 && near(third.p50_ms, 2500.0), "{third:?}");
        assert_eq!(seconds.end(), (3, Second::default()));
    }
}
