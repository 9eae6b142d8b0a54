//! The course of time: what became of the requests that were meant to start in each step.
//!
//! [`crate::measure`] calls it. Pure. By the intended start, so a server that stalls for two
//! seconds shows it in the longest latency of the steps before and in all that fell into the stall.

use super::Round;
use super::times::{ms, percentile_ns};
use crate::measure::{Timeline, TimelinePoint};
use crate::record::{Outcome, Record};

/// Steps of a run of a minute or more, seconds: the shortest that makes no more points than [`POINTS_MAX`].
const STEPS_S: [u64; 12] = [1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, 3600, 7200];
/// Steps of a shorter run, milliseconds: the longest that makes no fewer points than [`POINTS_MIN`].
const SHORT_STEPS_MS: [u64; 9] = [500, 200, 100, 50, 20, 10, 5, 2, 1];
const SECOND_NS: u64 = 1_000_000_000;
const MS_NS: u64 = 1_000_000;
const POINTS_MIN: u64 = 60;
pub(super) const POINTS_MAX: u64 = 240;

/// The timeline of rounds that follow one another, each beginning with a step of its own.
pub(super) fn timeline(rounds: &[Round<'_>]) -> Timeline {
    let step_ns = step_ns(rounds.iter().map(|(_, facts)| facts.duration_ns).sum(), POINTS_MAX);
    let mut points = Vec::new();
    for (records, facts) in rounds {
        points.extend(round(records, facts.duration_ns, step_ns));
    }
    Timeline { step_s: step_ns as f64 / 1e9, points }
}

/// The step for a run of this length: one that makes at most `points_max` points, which is 240 or more, and at least
/// [`POINTS_MIN`] where it can.
pub(super) fn step_ns(duration_ns: u64, points_max: u64) -> u64 {
    if duration_ns >= POINTS_MIN * SECOND_NS {
        let mut steps_ns = STEPS_S.iter().map(|step_s| step_s * SECOND_NS);
        let longer = duration_ns.div_ceil(points_max);
        steps_ns.find(|step_ns| duration_ns <= step_ns * points_max).unwrap_or(longer)
    } else {
        let mut steps_ns = SHORT_STEPS_MS.iter().map(|step_ms| step_ms * MS_NS);
        steps_ns.find(|step_ns| duration_ns >= step_ns * POINTS_MIN).unwrap_or(MS_NS)
    }
}

/// The steps of a phase. It ends a little after its time: that is no step of its own.
pub(super) fn steps(duration_ns: u64, step_ns: u64) -> usize {
    duration_ns.saturating_sub(step_ns / 10).div_ceil(step_ns) as usize
}

/// The step of a request, of one or more. One that is meant to start after the end, if only by rounding, belongs to the
/// last.
pub(super) fn step_of(record: &Record, step_ns: u64, steps: usize) -> usize {
    ((record.intended_ns / step_ns) as usize).min(steps - 1)
}

fn round(records: &[Record], duration_ns: u64, step_ns: u64) -> Vec<TimelinePoint> {
    let steps = steps(duration_ns, step_ns);
    if steps == 0 && records.is_empty() {
        return Vec::new();
    }
    let steps = steps.max(1);
    let step_of = |record: &Record| step_of(record, step_ns, steps);
    let mut points = vec![TimelinePoint::default(); steps];
    let mut ends = vec![0usize; steps];
    for record in records {
        let step = step_of(record);
        points[step].asked += 1;
        points[step].answered += u64::from(record.outcome == Outcome::Answered);
        ends[step] += usize::from(record.counts());
    }
    // A counting sort by step: `ends` becomes where each step's latencies begin, then where they end.
    let mut total = 0;
    for end in &mut ends {
        total += std::mem::replace(end, total);
    }
    let mut latencies_ns = vec![0u64; total];
    for record in records.iter().filter(|record| record.counts()) {
        let end = &mut ends[step_of(record)];
        latencies_ns[*end] = record.latency_ns();
        *end += 1;
    }
    let mut begin = 0;
    for (point, end) in points.iter_mut().zip(ends) {
        let of_step = &mut latencies_ns[begin..end];
        of_step.sort_unstable();
        point.p50_ms = percentile_ns(of_step, 500).map(ms);
        point.p99_ms = percentile_ns(of_step, 990).map(ms);
        point.max_ms = of_step.last().copied().map(ms);
        begin = end;
    }
    points
}

#[cfg(test)]
mod tests {
    use super::super::PhaseFacts;
    use super::super::tests::answered;
    use super::*;

    const MS_NS: u64 = 1_000_000;

    #[test]
    fn steps_make_60_to_240_points() {
        for (duration_s, step_s) in [(60, 1.0), (240, 1.0), (241, 2.0), (1800, 10.0), (86_400, 600.0)] {
            assert_eq!(step_ns(duration_s * SECOND_NS, POINTS_MAX), (step_s * 1e9) as u64);
        }
        assert_eq!(step_ns(59 * SECOND_NS, POINTS_MAX), SECOND_NS / 2);
        assert_eq!(step_ns(25 * SECOND_NS, POINTS_MAX), SECOND_NS / 5);
        assert_eq!(step_ns(SECOND_NS, POINTS_MAX), 10 * MS_NS);
        assert_eq!(step_ns(0, POINTS_MAX), MS_NS);
        for duration_s in (1..100).chain((100..100_000).step_by(97)).chain([10_000_000]) {
            let points = (duration_s * SECOND_NS).div_ceil(step_ns(duration_s * SECOND_NS, POINTS_MAX));
            assert!((POINTS_MIN..=POINTS_MAX).contains(&points), "{duration_s} s: {points}");
        }
    }

    #[test]
    fn a_stall_of_two_seconds_is_seen_in_the_steps_that_it_touched() {
        // A request each 10 ms for 120 s; the server stalls from 60 s to 62 s.
        let stall = 60_000 * MS_NS..62_000 * MS_NS;
        let records: Vec<Record> = (0..12_000u64)
            .map(|i| {
                let at_ns = i * 10 * MS_NS;
                let waits_ns = if stall.contains(&at_ns) { stall.end - at_ns } else { 0 };
                answered(at_ns, waits_ns + MS_NS, 100)
            })
            .collect();
        let facts = PhaseFacts { duration_ns: 120 * SECOND_NS, ..PhaseFacts::default() };
        let line = timeline(&[(&records, &facts)]);
        assert_eq!((line.step_s, line.points.len()), (1.0, 120));
        for (second, point) in line.points.iter().enumerate() {
            assert_eq!((point.asked, point.answered), (100, 100));
            let expected = match second {
                // Latencies 2001, 1991, ..., 1011 ms: the 50th from below is 1501.
                60 => (Some(1501.0), Some(1991.0), Some(2001.0)),
                61 => (Some(501.0), Some(991.0), Some(1001.0)),
                _ => (Some(1.0), Some(1.0), Some(1.0)),
            };
            assert_eq!((point.p50_ms, point.p99_ms, point.max_ms), expected, "second {second}");
        }
    }

    #[test]
    fn rounds_follow_one_another_and_gaps_stay_empty() {
        let facts = PhaseFacts { duration_ns: 90 * SECOND_NS, ..PhaseFacts::default() };
        let (first, mut refused) = ([answered(0, 5 * MS_NS, 1)], answered(1_500 * MS_NS, MS_NS, 0));
        refused.outcome = Outcome::Refused;
        let second = [refused, answered(95 * SECOND_NS, 7 * MS_NS, 1)];
        let points = timeline(&[(&first, &facts), (&second, &facts)]).points;
        assert_eq!(points.len(), 180);
        assert_eq!((points[0].asked, points[0].max_ms), (1, Some(5.0)));
        assert_eq!((points[91].asked, points[91].answered, points[91].p50_ms), (1, 0, None));
        assert_eq!(points[179].max_ms, Some(7.0), "what begins after the end is in the last step");
        assert_eq!(points.iter().map(|p| p.asked).sum::<u64>(), 3);
        let nothing = PhaseFacts::default();
        assert!(timeline(&[(&[], &nothing)]).points.is_empty());
        assert_eq!(timeline(&[(&first, &nothing)]).points.len(), 1);
        let a_little_longer = PhaseFacts { duration_ns: 90 * SECOND_NS + MS_NS, ..PhaseFacts::default() };
        assert_eq!(timeline(&[(&first, &a_little_longer)]).points.len(), 90);
    }
}
