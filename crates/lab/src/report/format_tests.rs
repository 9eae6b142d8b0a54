//! The formats for programs, of runs whose figures are known.

use super::*;
use crate::results::Subject;
use flash_load::measure::{PhaseFacts, measures};
use flash_load::record::Record;

const MS_NS: u64 = 1_000_000;

/// A hundred answers of 1 to 100 ms, one request that was aborted after 2 s, one that was refused.
fn run() -> Run {
    let record = |latency_ns: u64, outcome: Outcome| Record {
        intended_ns: 0,
        begun_ns: 0,
        connected_ns: 0,
        first_byte_ns: latency_ns,
        last_byte_ns: latency_ns,
        body_bytes: 1000,
        path_id: 0,
        status: 200,
        outcome,
        flags: 0,
        tries: 1,
        thread: 0,
    };
    let mut records: Vec<Record> = (1..=100).map(|i| record(i * MS_NS, Outcome::Answered)).collect();
    records.push(record(2000 * MS_NS, Outcome::Aborted));
    records.push(record(MS_NS, Outcome::Refused));
    let facts = PhaseFacts {
        name: "open, \"loop\"".to_owned(),
        asked_per_s: Some(51.0),
        duration_ns: 2000 * MS_NS,
        connections: 7,
        ..PhaseFacts::default()
    };
    let levels = vec![measures(&records, &facts)];
    super::super::tests::run_of(vec![Subject { levels, ..Subject::of("http://h:1", "http://h:1") }])
}

#[test]
fn a_line_of_csv_has_a_cell_for_each_column() {
    let text = text(&run(), Format::Csv).unwrap();
    let [head, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
    let rest = line.strip_prefix("http://h:1,\"open, \"\"loop\"\"\",,51,50,").unwrap();
    assert_eq!(rest, "0.4,2,102,100,2,0,7,69.8019801980198,6,51,91,96,100,2000,2000");
    assert_eq!(head.split(',').count(), 5 + rest.split(',').count());
    let mut nothing = run();
    nothing.subjects[0].levels = vec![measures(&[], &PhaseFacts::default())];
    let text = super::text(&nothing, Format::Csv).unwrap();
    assert!(text.ends_with(",0,0,0,0,0,,,,,,,,\n"), "no latency is not a latency of 0: {text}");
}

#[test]
fn percentiles_are_those_of_hdr_histogram() {
    let text = text(&run(), Format::Hdr).unwrap();
    assert!(text.starts_with("       Value     Percentile TotalCount 1/(1-Percentile)\n\n"), "{text}");
    let rows: Vec<Vec<f64>> = (text.lines().skip(2).filter(|line| !line.starts_with('#')))
        .map(|line| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
        .collect();
    for row in &rows[..rows.len() - 1] {
        let [value, share, total, inverse] = row[..] else { panic!("{row:?}") };
        // Latencies of 1 to 100 ms: the nth is n ms long.
        assert!(value == total && (share - total / 101.0).abs() < 1e-9, "{row:?}");
        assert!((inverse - 1.0 / (1.0 - share)).abs() < 0.01, "{row:?}");
    }
    assert_eq!(rows[rows.len() - 1], [2000.0, 1.0, 101.0]);
    assert!(text.ends_with("#[Total count    =          101]\n"), "{text}");
}

#[test]
fn prometheus_has_base_units_and_cumulative_buckets() {
    let text = text(&run(), Format::Prometheus).unwrap();
    let place = "subject=\"http://h:1\",level=\"open, \\\"loop\\\"\"";
    for (name, value) in [
        ("latency_seconds_bucket{PLACE,le=\"0.0005\"}", "0"),
        ("latency_seconds_bucket{PLACE,le=\"0.001\"}", "1"),
        ("latency_seconds_bucket{PLACE,le=\"0.02\"}", "20"),
        ("latency_seconds_bucket{PLACE,le=\"1\"}", "100"),
        ("latency_seconds_bucket{PLACE,le=\"2\"}", "101"),
        ("latency_seconds_bucket{PLACE,le=\"+Inf\"}", "101"),
        ("latency_seconds_sum{PLACE}", "7.05"),
        ("latency_seconds_count{PLACE}", "101"),
        ("requests_total{PLACE,outcome=\"answered\"}", "100"),
        ("requests_total{PLACE,outcome=\"refused\"}", "1"),
        ("connections_total{PLACE}", "7"),
        ("duration_seconds{PLACE}", "2"),
        ("answers_per_second{PLACE}", "50"),
        ("body_bytes_per_second{PLACE}", "50000"),
    ] {
        let line = format!("flash_load_{} {value}", name.replace("PLACE", place));
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    let families = text.lines().filter(|line| line.starts_with("# TYPE")).count();
    assert_eq!((families, text.lines().filter(|line| line.starts_with("# HELP")).count()), (7, 7));
}

#[test]
fn json_is_what_a_folder_of_results_has() {
    let run = run();
    let text = text(&run, Format::Json).unwrap();
    let back: Run = serde_json::from_str(&text).unwrap();
    assert_eq!(back.subjects[0].levels[0].counts.answered, 100);
    assert!(text.ends_with("}\n"));
    assert_eq!(super::text(&run, Format::Text).unwrap(), table(&run));
}
