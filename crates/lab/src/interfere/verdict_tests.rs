//! Verdicts on made rounds.

use flash_load::measure::{PhaseFacts, measures};
use flash_load::record::{Outcome, Record};

use super::super::Beside;
use super::*;

const BOUNDS: Bounds = Bounds { p50_ratio_max: 1.1, p99_ratio_max: 1.5, p999_ratio_max: 2.0 };

/// A phase of 100 requests in a second, each answered after this many microseconds.
fn phase(latency_us: u64) -> Measures {
    let record = |number: u64| Record {
        intended_ns: number * 9_000_000,
        begun_ns: number * 9_000_000,
        connected_ns: number * 9_000_000,
        first_byte_ns: number * 9_000_000,
        last_byte_ns: number * 9_000_000 + latency_us * 1000,
        body_bytes: 1,
        path_id: 0,
        status: 200,
        outcome: Outcome::Answered,
        flags: 0,
        tries: 1,
        thread: 0,
    };
    let facts = PhaseFacts { duration_ns: 1_000_000_000, asked_per_s: Some(100.0), ..PhaseFacts::default() };
    measures(&(0..100).map(record).collect::<Vec<_>>(), &facts)
}

/// The verdict on rounds with these latencies, alone and with cold requests.
fn judged(rounds: &[(u64, u64)], spoil: fn(&mut [Measures; 3])) -> Judged {
    let cold = Beside::Cold { directories: 2..3, rate_per_s: 1.0, looks_up_names: false };
    judged_beside(&cold, rounds, spoil)
}

/// The same beside these requests.
fn judged_beside(other: &Beside, rounds: &[(u64, u64)], spoil: fn(&mut [Measures; 3])) -> Judged {
    let mut phases: Vec<[Measures; 3]> =
        rounds.iter().map(|(alone, beside)| [phase(*alone), phase(*beside), phase(9)]).collect();
    phases.iter_mut().take(1).for_each(spoil);
    let rounds: Vec<Round<'_>> =
        phases.iter().map(|[alone, beside, others]| Round { alone, beside, others }).collect();
    judge(&rounds, &BOUNDS, other.texts())
}

#[test]
fn equal_rounds_are_calm_and_blocked_ones_waited() {
    let calm = judged(&[(1000, 1010), (1000, 990), (1010, 1000), (1000, 1000), (1000, 1020)], |_| ());
    assert_eq!(calm.verdict, Verdict::Calm, "{}", calm.text);
    assert!(
        calm.text.starts_with("hot requests did not wait for the disk: p50 1.00 ms alone"),
        "{}",
        calm.text
    );
    let waited = judged(&[(1400, 2_259_000); 5], |_| ());
    assert_eq!(waited.verdict, Verdict::Waited);
    assert!(
        waited.text.contains("p99 1.40 ms alone, 2.26 s with cold requests (1,614 times"),
        "{}",
        waited.text
    );
    assert_eq!(waited.ratios[1].pair_ms, [1.4, 2259.0]);
}

#[test]
fn rounds_that_differ_too_much_allow_no_verdict() {
    let found = judged(&[(1000, 1000), (1000, 3000), (1000, 900), (1000, 800), (1000, 2500)], |_| ());
    assert_eq!(found.verdict, Verdict::CannotTell);
    assert!(found.text.contains("differ too much"), "{}", found.text);
}

#[test]
fn a_spoiled_round_does_not_count() {
    type Spoil = fn(&mut [Measures; 3]);
    let spoils: [(Spoil, &str); 5] = [
        (|phases| phases[0].answered_per_s = 90.0, "overloaded"),
        (|phases| _ = phases[1].counts.failed.insert("reset".to_owned(), 1), "1 reset"),
        (|phases| phases[2].counts.answered = 0, "no cold request was answered"),
        (|phases| phases[0].generator.busy_share = 0.96, "busy"),
        (|phases| phases[0].ended_early = Some("signal".to_owned()), "ended early"),
    ];
    for (spoil, word) in spoils {
        let found = judged(&[(1000, 1000); 5], spoil);
        assert_eq!(found.verdict, Verdict::CannotTell, "{word}");
        assert!(found.text.contains("4 of 5 rounds are good") && found.text.contains(word), "{}", found.text);
        let found = judged(&[(1000, 1000); 6], spoil);
        assert_eq!(found.verdict, Verdict::Calm, "{word}");
        assert!(found.text.contains("1 of 6 rounds left out (round 1:"), "{}", found.text);
    }
}

#[test]
fn all_requests_for_an_application_have_to_wait() {
    let waiting = Beside::Waiting { path: "/dynamic/sleep".to_owned(), requests: 500 };
    let judged = |spoil| judged_beside(&waiting, &[(1000, 1000); 5], spoil);
    let found = judged(|_| ());
    assert_eq!(found.verdict, Verdict::Calm);
    assert!(found.text.starts_with("hot requests did not wait for the application"), "{}", found.text);
    assert!(found.text.contains("1.00 ms with slow requests"), "{}", found.text);
    let found = judged(|phases| _ = phases[2].counts.failed.insert("status 503".to_owned(), 1));
    assert_eq!(found.verdict, Verdict::CannotTell);
    assert!(
        found.text.contains("of the slow requests failed: 1 status 503: take fewer --waiting"),
        "{}",
        found.text
    );
    // A request that still waits at the end of the run has waited.
    let found = judged(|phases| _ = phases[2].counts.failed.insert("unanswered".to_owned(), 50));
    assert_eq!(found.verdict, Verdict::Calm);
}

#[test]
fn cold_requests_that_fail_are_no_evidence() {
    let missing = |phases: &mut [Measures; 3]| {
        _ = phases[2].counts.failed.insert("status 404".to_owned(), 82);
    };
    let found = judged(&[(1000, 1000); 5], missing);
    assert_eq!(found.verdict, Verdict::CannotTell);
    let why =
        "82.0 % of the cold requests failed: 82 status 404: does it serve the directories of --cold-dirs?";
    assert!(found.text.contains(why), "{}", found.text);
    let shed = judged(&[(1000, 900_000); 5], |phases| {
        _ = phases[2].counts.failed.insert("status 503".to_owned(), 1);
    });
    assert_eq!(shed.verdict, Verdict::CannotTell);
    assert!(shed.text.contains("1 status 503: take a lower --cold-rate"), "{}", shed.text);
    // A request that still waits at the end of the run has waited.
    let waits = judged(&[(1000, 1000); 5], |phases| {
        _ = phases[2].counts.failed.insert("unanswered".to_owned(), 50);
    });
    assert_eq!(waits.verdict, Verdict::Calm);
}

#[test]
fn a_late_generator_spoils_the_percentile_that_it_was_late_at() {
    let found = judged(&[(1000, 1000); 5], |phases| phases[1].generator.late_p99_ms = 0.2);
    assert_eq!(found.verdict, Verdict::CannotTell);
    let words = "p99: 1 of 5 rounds do not count (generator: it sent requests late by 0.200 ms (p99)); they did not wait by \
                 their p50";
    assert!(found.text.contains(words), "{}", found.text);
    assert!(!found.ratios.iter().any(|ratio| ratio.figure == LatencyFigure::P99));
    let found = judged(&[(1000, 1000); 6], |phases| phases[1].generator.late_p99_ms = 0.2);
    assert_eq!(found.verdict, Verdict::Calm, "{}", found.text);
    let found = judged(&[(1000, 1000); 5], |phases| phases[1].generator.late_p50_ms = 0.2);
    assert!(found.text.contains("p50: 1 of 5 rounds do not count"), "{}", found.text);
    // Lateness that cannot have made the wait does not spoil it.
    let late: fn(&mut [Measures; 3]) = |phases| {
        let generator = &mut phases[1].generator;
        (generator.late_p50_ms, generator.late_p99_ms) = (100.0, 100.0);
        generator.late_p999_ms = Some(100.0);
    };
    assert_eq!(judged(&[(1000, 900_000); 5], late).verdict, Verdict::Waited);
    assert_eq!(judged(&[(1000, 100_000); 5], late).verdict, Verdict::CannotTell);
}

#[test]
fn a_hot_request_without_an_answer_has_waited() {
    // Although the percentiles are the same.
    let found = judged(&[(1000, 1000); 5], |phases| {
        phases[1].counts.failed.insert("unanswered".to_owned(), 1);
    });
    assert_eq!(found.verdict, Verdict::Waited);
    assert_eq!(found.text, "hot requests waited for the disk: 1 of 500 had no answer");
    let found = judged(&[(1000, 900_000); 5], |phases| {
        phases[1].counts.failed.insert("aborted".to_owned(), 50);
    });
    assert!(
        found.text.contains("(900 times") && found.text.ends_with(", 50 of 500 had no answer"),
        "{}",
        found.text
    );
    let alone = judged(&[(1000, 1000); 5], |phases| {
        phases[0].counts.failed.insert("unanswered".to_owned(), 1);
    });
    assert!(alone.text.contains("round 1: 1 hot requests alone had no answer"), "{}", alone.text);
}

#[test]
fn the_tail_accuses_but_calm_does_not_need_it() {
    let with_tail = |p999_ms: [f64; 5]| {
        let mut phases = [(); 5].map(|()| [phase(1000), phase(1000), phase(9)]);
        for (phases, p999_ms) in phases.iter_mut().zip(p999_ms) {
            phases[1].latency.p999_ms = p999_ms;
        }
        let rounds: Vec<Round<'_>> =
            phases.iter().map(|[alone, beside, others]| Round { alone, beside, others }).collect();
        let cold = Beside::Cold { directories: 2..3, rate_per_s: 1.0, looks_up_names: false };
        judge(&rounds, &BOUNDS, cold.texts())
    };
    let found = with_tail([5.0; 5]);
    assert!(found.verdict == Verdict::Waited && found.text.contains("p99.9 1.00 ms alone"), "{}", found.text);
    let found = with_tail([1.0, 9.0, 1.0, 9.0, 1.0]);
    assert!(found.verdict == Verdict::Calm && !found.text.contains("p99.9"), "{}", found.text);
}
