//! Figures of overload of small phases, computed by hand.

use std::sync::Arc;

use super::*;
use crate::measure::tests::answered;
use crate::measure::{PhaseFacts, measures};
use crate::workload::catalogue::Listed;

const MS_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Files of these lengths, numbered in this order.
fn catalogue(lengths: &[Option<u64>]) -> Arc<Catalogue> {
    let listed = |&file_bytes| Listed { path: "/f".into(), file_bytes };
    Arc::new(Catalogue::listed(lengths.iter().map(listed).collect()))
}

/// A request for a file of the catalogue.
fn request(path_id: u32, at_ms: u64, latency_ms: u64, outcome: Outcome) -> Record {
    // The body of a request that was not completed is shorter than the file.
    Record { path_id, outcome, ..answered(at_ms * MS_NS, latency_ms * MS_NS, 7) }
}

fn facts(duration_s: u64, catalogue: &Arc<Catalogue>) -> PhaseFacts {
    PhaseFacts {
        duration_ns: duration_s * SECOND_NS,
        overload: Some(Arc::clone(catalogue)),
        ..PhaseFacts::default()
    }
}

#[test]
fn bytes_of_answers_under_way_at_the_end_were_received_too() {
    let files = catalogue(&[Some(10)]);
    let record = |first_ms: u64, last_ms: u64, body_bytes: u64| Record {
        first_byte_ns: first_ms * MS_NS,
        last_byte_ns: last_ms * MS_NS,
        body_bytes,
        ..request(0, 0, 1, Outcome::Answered)
    };
    // Whole; half before the end; after the end; at once; none ever came.
    let mut never = record(0, 500, 0);
    never.first_byte_ns = crate::record::NEVER_NS;
    let records =
        [record(0, 500, 100), record(0, 2000, 200), record(1500, 2000, 400), record(7, 7, 50), never];
    let found = measures(&records, &facts(1, &files)).overload.unwrap();
    assert!((found.received_megabits_per_s.unwrap() - 250.0 * 8.0 / 1e6).abs() < 1e-12);
}

#[test]
fn response_times_are_those_of_completed_requests() {
    let files = catalogue(&[Some(10)]);
    let records = [
        request(0, 0, 1000, Outcome::Answered),
        request(0, 0, 3000, Outcome::Answered),
        request(0, 2000, 5, Outcome::Refused),
        request(0, 2500, 10_000, Outcome::Aborted),
        request(0, 100, 20_000, Outcome::Unanswered),
        request(0, 200, 20, Outcome::Reset),
        request(0, 300, 20, Outcome::ClosedEarly),
        request(0, 400, 20, Outcome::Status),
        request(0, 500, 0, Outcome::LocalLimit),
    ];
    let found = measures(&records, &facts(3, &files)).overload.unwrap();
    let complete = found.complete.unwrap();
    assert_eq!((complete.mean_ms, complete.max_ms), (2000.0, 3000.0));
    assert_eq!(found.variance_s2, Some(1.0));
    assert_eq!(found.complete_in_time.unwrap().max_ms, 1000.0, "the last request starts at 2.5 s");
    let expected = Incomplete { aborted: 1, timed_out: 1, reset: 2, refused: 1, status: 1, other: 1 };
    assert_eq!((found.incomplete, found.incomplete.total()), (expected, 7));
    assert_eq!(found.largest.unwrap().incomplete, 7, "all have the one length");
    assert!(measures(&records, &PhaseFacts::default()).overload.is_none(), "only where they are asked for");
    let none = measures(&[], &facts(3, &files)).overload.unwrap();
    assert_eq!((none.complete, none.variance_s2, none.largest), (None, None, None));
    assert_eq!((none.by_size.len(), none.open.len()), (0, none.over_time.len()));
}

#[test]
fn bands_hold_requests_by_the_length_of_their_files() {
    // A thousand lengths, one request each; the longest ten are aborted, the next ten take 2 s.
    let lengths: Vec<_> = (1..=1000).map(Some).collect();
    let of = |id: u32| match id {
        990.. => request(id, 0, 9000, Outcome::Aborted),
        980.. => request(id, 0, 2000, Outcome::Answered),
        _ => request(id, 0, u64::from(id), Outcome::Answered),
    };
    let records: Vec<Record> = (0..1000).rev().map(of).collect();
    let found = measures(&records, &facts(1, &catalogue(&lengths))).overload.unwrap();
    let ends: Vec<u64> = found.by_size.iter().map(|band| (band.to_share * 1000.0).round() as u64).collect();
    assert_eq!(ends, BANDS_PER_MILLE);
    let first = found.by_size[0];
    assert_eq!((first.bytes_min, first.bytes_max, first.asked, first.from_share), (1, 100, 100, 0.0));
    assert_eq!(first.latency.unwrap().mean_ms, 49.5);
    let last = found.by_size[13];
    assert_eq!((last.bytes_min, last.asked, last.incomplete, last.latency), (1000, 1, 1, None));
    let largest = found.largest.unwrap();
    assert_eq!((largest.from_share, largest.bytes_min, largest.incomplete), (0.99, 991, 10));
}

#[test]
fn equal_lengths_stay_together() {
    // Of 200 requests, 3 are for the longest file, 100 for the next, 97 for the shortest.
    let files = catalogue(&[Some(10), Some(20), Some(30), None]);
    let times = |id, times| (0..times).map(move |_| request(id, 0, 1, Outcome::Answered));
    let records: Vec<Record> = times(2, 3).chain(times(0, 97)).chain(times(1, 100)).collect();
    let found = measures(&records, &facts(1, &files)).overload.unwrap();
    let bands: Vec<_> = found.by_size.iter().map(|b| (b.bytes_min, b.bytes_max, b.asked)).collect();
    assert_eq!(bands, [(10, 10, 97), (20, 20, 100), (30, 30, 3)]);
    assert_eq!(found.largest.unwrap().asked, 3, "1.5 % is nearer to 1 % than 51.5 %");
    // A file of unknown length has that of its answer, 7 bytes; without one it has no place.
    let unknown = [request(3, 0, 1, Outcome::Answered), request(3, 0, 1, Outcome::Aborted)];
    let found = measures(&unknown, &facts(1, &files)).overload.unwrap();
    assert_eq!((found.by_size.len(), found.by_size[0].bytes_max, found.by_size[0].asked), (1, 7, 1));
    // A record of another catalogue has no length here.
    let foreign = [request(77, 0, 1, Outcome::Aborted)];
    assert_eq!(measures(&foreign, &facts(1, &files)).overload.unwrap().by_size, []);
}

#[test]
fn rounds_are_laid_over_each_other() {
    let files = catalogue(&[Some(10)]);
    let open = |count: u32| OpenConnections { established: count, connecting: 1 };
    // 100 s, ten looks a second: in the first round 1, 2, 3 connections ... in the second always 9.
    let mut first = facts(100, &files);
    first.open = (1..=1100).map(open).collect();
    let mut second = facts(100, &files);
    second.open = vec![open(9); 1000];
    let records = [
        [request(0, 500, 10, Outcome::Answered), request(0, 99_900, 30, Outcome::Answered)],
        [request(0, 700, 30, Outcome::Answered), request(0, 99_950, 30, Outcome::Refused)],
    ];
    let rounds = [(&records[0][..], &first), (&records[1][..], &second)];
    let found = super::super::pooled(&rounds).overload.unwrap();
    assert_eq!((found.step_s, found.over_time.len(), found.open.len()), (1.0, 100, 100));
    let point = |asked, complete, mean_ms| TimePoint { asked, complete, mean_ms };
    assert_eq!(found.over_time[0], point(2, 2, Some(20.0)));
    assert_eq!(found.over_time[50], point(0, 0, None));
    assert_eq!(found.over_time[99], point(2, 1, Some(30.0)));
    // Looks 1 to 10 of the first round have 5.5 on average.
    assert_eq!(found.open[0], OpenPoint { established: (5.5 + 9.0) / 2.0, connecting: 1.0 });
    assert_eq!(found.open_max, 1101, "also in the drain");
    assert_eq!(found.open_mean, (500.5 + 9.0) / 2.0 + 1.0, "only while requests start");
}

#[test]
fn short_steps_have_the_look_before_them() {
    let files = catalogue(&[Some(10)]);
    let mut short = facts(2, &files);
    short.open = (0..20).map(|count| OpenConnections { established: count, connecting: 0 }).collect();
    let found = measures(&[], &short).overload.unwrap();
    assert_eq!(found.step_s, 0.02);
    let at = |step: usize| found.open[step].established;
    assert_eq!((at(0), at(4), at(5), at(99)), (0.0, 0.0, 1.0, 19.0));
}

#[test]
fn overload_is_the_subject_and_no_doubt() {
    let files = catalogue(&[Some(10)]);
    let records: Vec<Record> = (0..100).map(|at| request(0, at, 60_000, Outcome::Aborted)).collect();
    let asked = PhaseFacts { asked_per_s: Some(100.0), duration_ns: SECOND_NS, ..PhaseFacts::default() };
    let doubts = |facts: &PhaseFacts| crate::measure::validity::doubts(&measures(&records, facts)).len();
    assert_eq!(doubts(&asked), 2);
    assert_eq!(doubts(&PhaseFacts { overload: Some(files), ..asked }), 0);
}
