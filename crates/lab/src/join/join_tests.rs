//! Runs of generators whose records are known.

use std::time::{Duration, SystemTime};

use super::*;
use flash_load::record::Outcome;
use flash_load::record::file::Writer;
use tempfile::TempDir;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1000 * MS_NS;

fn record(intended_ns: u64, latency_ns: u64) -> Record {
    let last_byte_ns = intended_ns + latency_ns;
    Record {
        intended_ns,
        begun_ns: intended_ns,
        connected_ns: intended_ns,
        first_byte_ns: last_byte_ns,
        last_byte_ns,
        body_bytes: 1000,
        path_id: 0,
        status: 200,
        outcome: Outcome::Answered,
        flags: 0,
        tries: 1,
        thread: 0,
    }
}

/// A run of 10 s that began so long after an arbitrary moment, with these requests.
fn run_at(start_ms: u64, records: &[Record]) -> (TempDir, Run) {
    let folder = tempfile::tempdir().unwrap();
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + start_ms);
    Writer::create(&folder.path().join("all.rec"), started).append(records);
    let facts = PhaseFacts {
        name: "open loop".to_owned(),
        asked_per_s: Some(10.0),
        duration_ns: 10 * SECOND_NS,
        drain_ns: SECOND_NS,
        threads: 1,
        connections: 3,
        ..PhaseFacts::default()
    };
    let measures = measure::measures(records, &facts);
    let levels = vec![Measures { records: Some("all.rec".to_owned()), ..measures }];
    let subject = Subject { levels, ..Subject::of("http://h:1", "http://h:1") };
    let run = Run { command: "load".to_owned(), notes: Vec::new(), ..crate::report::run_of(vec![subject]) };
    (folder, run)
}

fn join(runs: &[&(TempDir, Run)]) -> Result<Run> {
    joined(&runs.iter().map(|(folder, run)| (folder.path(), run)).collect::<Vec<_>>())
}

#[test]
fn two_generators_are_one_with_all_records_and_the_sum_of_the_rates() {
    let slow: Vec<Record> = (0..100).map(|i| record(i * 100 * MS_NS, 50 * MS_NS)).collect();
    let mut fast: Vec<Record> = (0..300).map(|i| record(i * 30 * MS_NS, (i + 1) * 10_000)).collect();
    fast[7].first_byte_ns = NEVER_NS;
    let (one, two) = (run_at(0, &slow), run_at(200, &fast));
    let run = join(&[&one, &two]).unwrap();
    let [level] = &run.subjects[0].levels[..] else { panic!("{run:?}") };
    assert_eq!((level.counts.asked, level.counts.answered, level.counts.connections), (400, 400, 6));
    assert_eq!((level.answered_per_s, level.asked_per_s), (40.0, Some(20.0)));
    // Exact: the 200th of 300 from 10 µs to 3 ms and a hundred of 50 ms; the mean of two percentiles would be 26 ms.
    assert_eq!((level.latency.p50_ms, level.latency.p90_ms, level.latency.p5_ms), (2.0, 50.0, 0.2));
    assert_eq!((level.duration_s, level.drain_s, level.generator.threads), (10.2, 1.0, 2));
    assert_eq!(level.timeline.points.iter().map(|point| point.asked).sum::<u64>(), 400);
    assert_eq!((run.notes.len(), run.settings["generators"].as_str()), (0, "2"));
    // In the other order it is the same.
    let other = join(&[&two, &one]).unwrap();
    assert_eq!(other.subjects[0].levels[0].latency, level.latency);
    assert_eq!(other.subjects[0].levels[0].duration_s, level.duration_s);
}

#[test]
fn runs_that_do_not_belong_together_are_refused_with_the_reason() {
    let records = [record(0, MS_NS)];
    let one = run_at(0, &records);
    let refused = |run: &(TempDir, Run)| {
        let error = join(&[&one, run]).unwrap_err();
        error.to_string()
    };
    let text = refused(&run_at(12_000, &records));
    assert!(text.contains("began 2.0 s after") && text.contains("no sum"), "{text}");
    assert!(refused(&run_at(0, &records)).contains("are the same run"));
    let mut other = run_at(10, &records);
    other.1.subjects[0].levels[0].name = "phases".to_owned();
    assert!(refused(&other).contains("has other levels (phases) than"));
    let mut other = run_at(10, &records);
    other.1.command = "profile".to_owned();
    assert!(refused(&other).contains("only those of `flash load`"));
    let mut other = run_at(10, &records);
    other.1.subjects[0].levels[0].counts.asked = 5;
    assert!(refused(&other).contains("the records of 1 of its 5 requests"));
    let mut other = run_at(10, &records);
    other.1.subjects[0].levels[0].records = None;
    assert!(refused(&other).contains("has no records of open loop"));
    // A format that this program does not know.
    let other = run_at(10, &records);
    let file = other.0.path().join("all.rec");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[8] = 2;
    std::fs::write(&file, bytes).unwrap();
    assert!(refused(&other).contains("records of form 2"));
}

#[test]
fn a_short_time_together_is_noted() {
    let records = [record(0, MS_NS)];
    let (one, mut two) = (run_at(0, &records), run_at(4000, &records));
    two.1.subjects[0].url = "http://other:1".to_owned();
    let notes = join(&[&one, &two]).unwrap().notes;
    assert!(notes.iter().any(|note| note.contains("together for 6.0 of 10.0 s only")), "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("loaded http://other:1, not http://h:1")), "{notes:?}");
}
