//! Measures of small phases, computed by hand.

use super::*;
use crate::record::NEVER_NS;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// A proper answer over a new connection: connected after a quarter of its time, its first byte
/// after half of it.
pub(super) fn answered(intended_ns: u64, latency_ns: u64, body_bytes: u64) -> Record {
    Record {
        intended_ns,
        begun_ns: intended_ns,
        connected_ns: intended_ns + latency_ns / 4,
        first_byte_ns: intended_ns + latency_ns / 2,
        last_byte_ns: intended_ns + latency_ns,
        body_bytes,
        path_id: 0,
        status: 200,
        outcome: Outcome::Answered,
        flags: 0,
        tries: 1,
        thread: 0,
    }
}

fn failed(intended_ns: u64, latency_ns: u64, outcome: Outcome, status: u16) -> Record {
    Record { outcome, status, ..answered(intended_ns, latency_ns, 0) }
}

fn facts() -> PhaseFacts {
    PhaseFacts {
        name: "0.80".to_owned(),
        load_level: Some(0.8),
        round: Some(2),
        asked_per_s: Some(3.0),
        duration_ns: 2 * SECOND_NS,
        drain_ns: 500 * MS_NS,
        threads: 1,
        busy_share: 0.25,
        handshakes: Vec::new(),
        connections: 5,
        retried: 1,
        ended_early: None,
        series: SeriesBounds::Quartiles,
        first_dynamic: None,
        server: Some(ServerUse { cpu_ns: 6 * MS_NS, memory_max_bytes: 4096 }),
        in_memory_share: None,
        other_work: None,
        open: Vec::new(),
        overload: None,
    }
}

#[test]
fn a_small_phase_is_what_one_computes_by_hand() {
    let mut reused = answered(100 * MS_NS, 8 * MS_NS, 2000);
    reused.flags = REUSED;
    let mut queued = answered(1900 * MS_NS, 200 * MS_NS, 3000);
    queued.flags = QUEUED;
    queued.begun_ns += 2 * MS_NS;
    let records = [
        answered(0, 4 * MS_NS, 1000),
        reused,
        queued,
        failed(200 * MS_NS, MS_NS, Outcome::Status, 404),
        failed(300 * MS_NS, MS_NS, Outcome::Status, 404),
        failed(400 * MS_NS, MS_NS, Outcome::Status, 503),
        failed(500 * MS_NS, MS_NS, Outcome::Refused, 0),
    ];
    let found = measures(&records, &facts());
    assert_eq!((found.name.as_str(), found.load_level, found.round), ("0.80", Some(0.8), Some(2)));
    assert_eq!((found.asked_per_s, found.duration_s, found.drain_s), (Some(3.0), 2.0, 0.5));
    let counts = &found.counts;
    assert_eq!((counts.asked, counts.answered, counts.failures()), (7, 3, 4));
    let kinds: Vec<_> = counts.failed.iter().map(|(kind, &count)| (kind.as_str(), count)).collect();
    assert_eq!(kinds, [("refused", 1), ("status 404", 2), ("status 503", 1)]);
    assert_eq!((counts.queued, counts.late, counts.retried, counts.connections), (1, 1, 1, 5));
    // The queued one came at 2.1 s: after the end.
    assert_eq!((found.answered_per_s, found.megabits_per_s), (1.0, 0.012));
    assert_eq!((found.latency.p50_ms, found.latency.max_ms), (8.0, 200.0));
    assert_eq!(found.latency.mean_ms, 212.0 / 3.0);
    let (connect, transfer) = (found.connect.unwrap(), found.transfer.unwrap());
    assert_eq!((connect.mean_ms, connect.max_ms), (1.0, 1.0), "the only one that opened at once");
    let first_byte = found.first_byte.unwrap();
    assert_eq!((first_byte.p5_ms, first_byte.p50_ms, first_byte.max_ms), (1.0, 2.0, 50.0));
    assert_eq!((transfer.p5_ms, transfer.p50_ms, transfer.max_ms), (2.0, 4.0, 100.0));
    assert_eq!(found.inversion, Some(0.0));
    assert_eq!(found.series.len(), 3);
    assert_eq!(found.deciles.len(), 10);
    assert_eq!(found.generator.late_max_ms, 2.0);
    let server = found.server.unwrap();
    assert_eq!((server.cpu_s, server.cpu_us_per_answer, server.memory_max_bytes), (0.006, 2000.0, 4096));
}

#[test]
fn what_waited_in_vain_counts_as_long_as_it_waited() {
    let mut hung = failed(0, 900 * MS_NS, Outcome::Unanswered, 0);
    hung.connected_ns = NEVER_NS;
    hung.first_byte_ns = NEVER_NS;
    let mut aborted = failed(0, 400 * MS_NS, Outcome::Aborted, 200);
    aborted.first_byte_ns = 300 * MS_NS;
    let found = measures(&[hung, aborted, answered(0, 4 * MS_NS, 1)], &facts());
    assert_eq!((found.latency.p5_ms, found.latency.p50_ms, found.latency.max_ms), (4.0, 400.0, 900.0));
    let (connect, first_byte) = (found.connect.unwrap(), found.first_byte.unwrap());
    assert_eq!((connect.p5_ms, connect.p50_ms, connect.max_ms), (1.0, 100.0, 900.0));
    assert_eq!((first_byte.p5_ms, first_byte.max_ms), (1.0, 200.0), "the hung one never came so far");
    assert_eq!(found.transfer.unwrap().max_ms, 100.0);
    assert_eq!(found.inversion, None, "one proper answer has no order");
}

#[test]
fn nothing_gives_no_figures_and_no_nonsense() {
    let refused = failed(0, MS_NS, Outcome::Refused, 0);
    for records in [&[][..], &[refused][..]] {
        let found = measures(records, &PhaseFacts { server: facts().server, ..PhaseFacts::default() });
        assert_eq!(found.latency, Latency::default());
        assert_eq!((found.answered_per_s, found.megabits_per_s), (0.0, 0.0));
        assert!(found.connect.is_none() && found.inversion.is_none() && found.cdf.is_empty());
        assert_eq!(found.server.unwrap().cpu_us_per_answer, 0.0);
        // JSON has no NaN: serde writes null, which no f64 is read from.
        let text = serde_json::to_string(&found).unwrap();
        serde_json::from_str::<Measures>(&text).unwrap();
    }
    assert_eq!(pooled(&[]).counts.asked, 0);
    assert_eq!(pooled(&[]).asked_per_s, None);
    // Times that make no sense, as from a broken file.
    let mut wild = answered(NEVER_NS - 5, 5, u64::MAX / 8);
    wild.begun_ns = 0;
    wild.last_byte_ns = 0;
    assert_eq!(measures(&[wild], &PhaseFacts::default()).latency.max_ms, 0.0);
}

#[test]
fn rounds_together_are_one_phase() {
    let first = [answered(0, 4 * MS_NS, 1000), answered(SECOND_NS, 6 * MS_NS, 900)];
    let second = [answered(0, 5 * MS_NS, 800), answered(3 * SECOND_NS, 7 * MS_NS, 700)];
    let (one, mut two) = (facts(), facts());
    two.round = Some(3);
    two.duration_ns = 4 * SECOND_NS;
    two.asked_per_s = Some(6.0);
    two.ended_early = Some("interrupted".to_owned());
    two.busy_share = 0.5;
    two.server = Some(ServerUse { cpu_ns: 2 * MS_NS, memory_max_bytes: 8192 });
    let found = pooled(&[(&first, &one), (&second, &two)]);
    assert_eq!((found.round, found.duration_s, found.asked_per_s), (None, 6.0, Some(5.0)));
    assert_eq!((found.counts.asked, found.counts.connections, found.counts.retried), (4, 10, 2));
    assert_eq!((found.latency.mean_ms, found.latency.p50_ms, found.latency.max_ms), (5.5, 5.0, 7.0));
    assert_eq!(found.answered_per_s, 4.0 / 6.0);
    // By latency 1000, 800, 900, 700; ideal 700, 800, 900, 1000: 3 + 0 + 0 + 3 over 8.
    assert_eq!(found.inversion, Some(6.0 / 8.0));
    assert_eq!(found.ended_early.as_deref(), Some("round 3: interrupted"));
    assert_eq!(found.generator.busy_share, 0.5);
    let server = found.server.unwrap();
    assert_eq!((server.cpu_s, server.memory_max_bytes), (0.008, 8192));
    two.server = None;
    two.asked_per_s = None;
    let found = pooled(&[(&first, &one), (&second, &two)]);
    assert!(found.server.is_none() && found.asked_per_s.is_none());
}

#[test]
fn a_stall_of_two_seconds_is_in_every_percentile_that_it_touched() {
    // 100 requests a second for 10 s; from 5 s to 7 s the server stalls, and answers then at once.
    let records: Vec<Record> = (0..1000u64)
        .map(|i| {
            let at_ns = i * 10 * MS_NS;
            let stalled = (5 * SECOND_NS..7 * SECOND_NS).contains(&at_ns);
            answered(at_ns, MS_NS + if stalled { 7 * SECOND_NS - at_ns } else { 0 }, 1)
        })
        .collect();
    let latency = measures(&records, &facts()).latency;
    // 800 of 1 ms, then 11, 21, ..., 2001 ms: the 900th of all is the 100th of these.
    assert_eq!((latency.p50_ms, latency.p90_ms, latency.p95_ms), (1.0, 1001.0, 1501.0));
    assert_eq!((latency.p99_ms, latency.p999_ms, latency.max_ms), (1901.0, 1991.0, 2001.0));
    assert_eq!(latency.mean_ms, (800.0 + 200.0 * 1006.0) / 1000.0);
}

#[test]
fn dynamic_requests_are_told_from_static_ones() {
    let dynamic = |record: Record| Record { path_id: 7, ..record };
    let records = [
        answered(0, 4 * MS_NS, 1000),
        dynamic(answered(0, 8 * MS_NS, 1000)),
        dynamic(answered(0, 8 * MS_NS, 1000)),
        dynamic(failed(0, MS_NS, Outcome::Status, 502)),
    ];
    assert!(measures(&records, &facts()).kinds.is_empty());
    let found = measures(&records, &PhaseFacts { first_dynamic: Some(7), ..facts() }).kinds;
    let kinds: Vec<_> = found.iter().map(|kind| (kind.name.as_str(), kind.asked, kind.answered)).collect();
    assert_eq!(kinds, [("static", 1, 1), ("dynamic", 3, 2)]);
    assert_eq!(found.iter().map(|kind| kind.latency.unwrap().p50_ms).collect::<Vec<_>>(), [4.0, 8.0]);
    let none = measures(&records[..1], &PhaseFacts { first_dynamic: Some(7), ..facts() }).kinds;
    assert_eq!((none[1].asked, none[1].latency), (0, None));
}

#[test]
fn handshakes_are_told_apart_by_their_kind() {
    let handshake = |took_ms, is_resumed| Handshake { took_ns: took_ms * MS_NS, is_resumed };
    let round = |handshakes| PhaseFacts { handshakes, ..PhaseFacts::default() };
    let facts = [round(vec![handshake(3, false), handshake(1, true)]), round(vec![handshake(5, false)])];
    let rounds: Vec<_> = facts.iter().map(|facts| (&[][..], facts)).collect();
    let found = pooled(&rounds).handshakes.unwrap();
    assert_eq!((found.full, found.resumed), (2, 1));
    assert_eq!((found.full_time.unwrap().mean_ms, found.resumed_time.unwrap().max_ms), (4.0, 1.0));
    assert_eq!(measures(&[], &PhaseFacts::default()).handshakes, None);
}
