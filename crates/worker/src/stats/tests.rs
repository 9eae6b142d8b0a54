//! Tests of the figures between worker and supervisor.

use super::*;
use crate::control::STATS_BYTES_MAX;

/// Counters whose histograms use every bucket, with the largest counts.
fn full() -> Counters {
    let mut histogram = flash_engine::Histogram::default();
    (0..1 << 18).for_each(|number| histogram.add(number));
    histogram.add(u64::MAX - 1);
    for _ in 0..64 {
        histogram.merge(&histogram.clone());
    }
    assert_eq!(histogram.buckets().count(), flash_engine::BUCKETS);
    let mut engine = flash_engine::Counters {
        requests: u64::MAX,
        sends: histogram,
        dispatches: histogram,
        queue_lengths: histogram,
        ..flash_engine::Counters::default()
    };
    for job in &mut engine.jobs {
        job.started = u64::MAX;
    }
    let times = CallTimes {
        sum_ns: u64::MAX,
        max_ns: u64::MAX,
        stalls: u64::MAX,
        waited: u64::MAX,
        counts: [u64::MAX; BUCKETS],
    };
    // As many calls as exist, all with the longest name.
    let calls = (0..12).map(|n| (format!("close_connect_{n:02}"), times.clone()));
    Counters::of(&engine, HelperCounts { all: usize::MAX, busy: usize::MAX }, Calls(calls.collect()))
}

fn counted(requests: u64, open: u64, events: &[u64]) -> Counters {
    let mut counters = Counters { requests, ..Counters::default() };
    counters.connections.open = Gauge(open);
    events.iter().for_each(|number| counters.dispatches.0.add(*number));
    counters
}

fn from_json(json: &[u8]) -> Option<Counters> {
    serde_json::from_slice(json).ok()
}

#[test]
fn the_longest_report_fits_in_a_message_and_is_restored() {
    for counters in [full(), Counters::default(), counted(3, 2, &[1, 1, 300])] {
        let json = counters.to_json();
        assert!(json.len() <= STATS_BYTES_MAX, "{} bytes", json.len());
        assert_eq!(from_json(json.as_bytes()), Some(counters));
    }
    for wrong in [&b""[..], b"{", b"7", b"{\"requests\":-1}", b"\xff"] {
        assert_eq!(from_json(wrong), None);
    }
    // Fields that an older server does not report.
    assert_eq!(from_json(b"{\"requests\":5,\"new\":1}"), Some(counted(5, 0, &[])));
}

#[test]
fn a_histogram_has_its_figures_beside_its_buckets() {
    let json = serde_json::to_value(counted(0, 0, &[1, 1, 2, 40]).dispatches).expect("JSON");
    let expected = serde_json::json!({
        "sum": 44, "max": 40, "count": 4, "buckets": [[1, 1, 2], [2, 2, 1], [40, 40, 1]],
        "plain": { "mean": 11.0, "p50": 1, "p90": 40, "p99": 40, "p999": 40 },
        // (1 + 1 + 2 * 2 + 40.5 * 40.5) / 44.5, with 40.5 as the middle of the last bucket.
        "weighted": { "mean": 36.994, "p50": 40, "p90": 40, "p99": 40, "p999": 40 },
    });
    let mut json = json;
    // The bucket is two numbers wide.
    json["buckets"][2][1] = 40.into();
    assert_eq!(json, expected);
    let none = serde_json::to_value(Histogram::default()).expect("JSON");
    assert_eq!(none["plain"]["mean"], serde_json::Value::Null);
}
