//! The generator's report on itself: how late it was, how busy, and whether it was the limit.
//!
//! [`crate::measure`] calls it. Pure.

use super::{LatencyFigure, Round, Times, records};
use crate::measure::{Counts, Generator, Latency};
use crate::record::Outcome;

/// Once late by so much: the machine did not let it run.
const LATE_MAX_MS: f64 = 10.0;
/// And then the longest latency is the generator's if that is more than this share of it.
const LATE_SHARE_OF_MAX: f64 = 0.5;
/// A closed loop busier than this asks as fast as the generator can, not as the server.
pub const BUSY_SHARE_MAX: f64 = 0.95;

/// The lateness of all rounds, and a judgement of it.
pub(super) fn judge(
    rounds: &[Round<'_>],
    counts: &Counts,
    latency: &Latency,
    times: &mut Times,
) -> Generator {
    let late = times
        .summary(records(rounds).map(|record| record.begun_ns.saturating_sub(record.intended_ns)))
        .unwrap_or_default();
    let facts = || rounds.iter().map(|(_, facts)| facts);
    let mut generator = Generator {
        threads: facts().map(|facts| facts.threads).max().unwrap_or(0),
        late_mean_ms: late.mean_ms,
        late_p50_ms: late.p50_ms,
        late_p90_ms: Some(late.p90_ms),
        late_p95_ms: Some(late.p95_ms),
        late_p99_ms: late.p99_ms,
        late_p999_ms: Some(late.p999_ms),
        late_max_ms: late.max_ms,
        busy_share: facts().map(|facts| facts.busy_share).fold(0.0, f64::max),
        limit: None,
    };
    let closed = facts().any(|facts| facts.asked_per_s.is_none());
    let local = counts.failed.get(Outcome::LocalLimit.name()).copied().unwrap_or(0);
    let mut reasons = Vec::new();
    let is_overload = facts().any(|facts| facts.overload.is_some());
    let shown: &[LatencyFigure] =
        if is_overload { &[LatencyFigure::Mean] } else { &[LatencyFigure::P50, LatencyFigure::P99] };
    let blurred = shown.iter().find_map(|figure| Some((*figure, figure.blur_ms(&generator, latency)?)));
    if let Some((figure, late_ms)) = blurred {
        reasons.push(format!(
            "it sent requests late by {late_ms:.3} ms ({name}), beside a latency of {:.3} ms ({name}): give it a core of its \
             own, more threads or a lower rate",
            figure.of(latency),
            name = figure.name()
        ));
    } else if late.max_ms > LATE_MAX_MS && late.max_ms > latency.max_ms * LATE_SHARE_OF_MAX {
        reasons.push(format!(
            "it was held up once for {:.1} ms, so the longest latency, {:.1} ms, is of its making: give it a \
             core of its own",
            late.max_ms, latency.max_ms
        ));
    }
    if closed && generator.busy_share > BUSY_SHARE_MAX {
        reasons.push(format!(
            "it was busy {:.1} % of the time, so the server may be able to do more: give it more threads or \
             faster cores",
            generator.busy_share * 100.0
        ));
    }
    if local > 0 {
        reasons.push(format!(
            "this machine did not allow {local} connections: raise its limit of descriptors (ulimit -n) or \
             its range of ports (net.ipv4.ip_local_port_range), or use fewer connections"
        ));
    }
    generator.limit = (!reasons.is_empty()).then(|| reasons.join("; "));
    generator
}

#[cfg(test)]
mod tests {
    use super::super::tests::answered;
    use super::super::{PhaseFacts, measures};
    use super::*;
    use crate::record::Record;

    const MS_NS: u64 = 1_000_000;

    /// A thousand requests that took `latency_ms`, `late` of them started `late_us` late.
    fn phase(latency_ms: u64, late: usize, late_us: u64) -> Vec<Record> {
        let mut records = vec![answered(0, latency_ms * MS_NS, 1); 1000];
        records[..late].iter_mut().for_each(|record| record.begun_ns = late_us * 1000);
        records
    }

    fn limit(records: &[Record], asked_per_s: Option<f64>, busy_share: f64) -> Option<String> {
        let facts = PhaseFacts { asked_per_s, busy_share, ..PhaseFacts::default() };
        measures(records, &facts).generator.limit
    }

    #[test]
    fn lateness_is_judged_beside_the_latency() {
        let open = |latency_ms, late, late_us| limit(&phase(latency_ms, late, late_us), Some(1.0), 1.0);
        assert_eq!(open(5, 0, 0), None);
        assert_eq!(open(5, 1000, 500), None, "a tenth");
        let text = open(5, 11, 501).unwrap();
        assert!(text.contains("late by 0.501 ms (p99), beside a latency of 5.000 ms (p99)"), "{text}");
        assert_eq!(open(5, 10, 501), None, "exactly one in a hundred is not above the percentile");
        assert!(open(5, 1000, 501).unwrap().contains("(p50)"));
        assert!(open(15, 1, 10_001).unwrap().contains("held up once for 10.0 ms"));
        assert_eq!(open(30, 1, 10_001), None);
    }

    #[test]
    fn a_busy_closed_loop_and_limits_of_the_machine_are_told() {
        let mut records = phase(5, 0, 0);
        assert_eq!(limit(&records, None, 0.95), None);
        assert!(limit(&records, None, 0.96).unwrap().contains("96.0 %"));
        assert_eq!(limit(&records, Some(1.0), 0.96), None, "in an open loop lateness tells it");
        records[7].outcome = Outcome::LocalLimit;
        assert!(limit(&records, Some(1.0), 0.1).unwrap().contains("did not allow 1 connections"));
    }
}
