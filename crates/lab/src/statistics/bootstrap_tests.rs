//! Intervals on made latencies whose true ratio is known.

use flash_load::measure::{PhaseFacts, measures};
use flash_load::record::Outcome;

use super::*;
use crate::results::Capacity;

const SECOND_NS: u64 = 1_000_000_000;

/// A proper answer.
fn answered(intended_ns: u64, latency_ns: u64, body_bytes: u64) -> Record {
    Record {
        intended_ns,
        begun_ns: intended_ns,
        connected_ns: intended_ns,
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

/// A round of `seconds`, with `per_s` requests in each: exponential times of mean `scale_ms`, and in
/// each second all of them longer or shorter together by up to `spread`.
fn round(
    random: &mut Xoshiro256PlusPlus,
    seconds: u64,
    per_s: u64,
    scale_ms: f64,
    spread: f64,
) -> Vec<Record> {
    let mut records = Vec::new();
    for second in 0..seconds {
        let factor = 1.0 + spread * (2.0 * random.random::<f64>() - 1.0);
        for i in 0..per_s {
            let exponential = -(1.0 - random.random::<f64>()).ln();
            let latency_ns = (exponential * scale_ms * factor * 1e6) as u64;
            records.push(answered(second * SECOND_NS + i * SECOND_NS / per_s, latency_ns, 100));
        }
    }
    records
}

fn subject(name: &str, records: &[Record], capacity: Option<Vec<f64>>) -> Subject {
    let facts = PhaseFacts { name: "0.80".to_owned(), ..PhaseFacts::default() };
    Subject {
        name: name.to_owned(),
        url: String::new(),
        version: None,
        command: None,
        dataset_bytes: None,
        capacity: capacity.map(|rounds| Capacity {
            requests_per_s: times::median(rounds.clone()),
            megabits_per_s: 0.0,
            rounds_requests_per_s: rounds,
            clients: 1,
            doubts: Vec::new(),
        }),
        levels: vec![measures(records, &facts)],
        rounds: Vec::new(),
        score: None,
        missing: None,
    }
}

fn level(rounds: Vec<Blocks>) -> BTreeMap<String, Vec<Blocks>> {
    BTreeMap::from([("0.80".to_owned(), rounds)])
}

#[test]
fn buckets_hold_what_they_say() {
    for ns in (0..5000).chain((12..42).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << (bits - 1)])) {
        let value = value_ns(usize::from(bucket(ns)), 0.5);
        assert!((value - ns as f64).abs() <= ns as f64 / 256.0, "{ns}: {value}");
        assert!(bucket(ns + 1) == bucket(ns) || bucket(ns + 1) == bucket(ns) + 1, "{ns}: no gaps");
    }
    assert_eq!((bucket(0), bucket(127), bucket(128), bucket(255), bucket(256)), (0, 127, 128, 255, 256));
    assert_eq!(usize::from(bucket(u64::MAX)), BUCKETS - 1);
}

#[test]
fn blocks_are_seconds_or_longer() {
    let at = |seconds: u64| answered(seconds * SECOND_NS, 5_000_000, 1);
    let blocks = Blocks::new(&[at(0), at(0), at(2)]).0;
    assert_eq!(blocks.iter().map(|b| b.total).collect::<Vec<_>>(), [2, 0, 1]);
    assert_eq!(blocks[0].counts, [(bucket(5_000_000), 2)]);
    assert_eq!(Blocks::new(&(0..=3600).map(at).collect::<Vec<_>>()).0.len(), 120);
    assert!(Blocks::new(&[]).0.iter().all(|block| block.total == 0));
}

#[test]
fn an_interval_covers_the_true_ratio_as_often_as_it_says() {
    let true_ratio = 1.5;
    let mut covered = [0; MEASURES.len()];
    let mut told_apart = 0;
    let trials = 100;
    for trial in 0..trials {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1000 + trial);
        let (mut base, mut other) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            // The machine's effect on both servers in this round.
            let noise = 1.0 + 0.3 * random.random::<f64>();
            base.push(Blocks::new(&round(&mut random, 10, 100, noise, 0.3)));
            other.push(Blocks::new(&round(&mut random, 10, 100, noise * true_ratio, 0.3)));
        }
        for (covered, interval) in covered.iter_mut().zip(intervals(&base, &other, 200, trial)) {
            let [low, high] = interval.unwrap_or([f64::NAN; 2]);
            *covered += u32::from(low <= true_ratio && true_ratio <= high);
            told_apart += u32::from(low > 1.0);
        }
    }
    println!("of {trials} intervals so many covered the ratio: {covered:?}");
    // 3,000 requests: too few for a p99.9.
    assert!(covered[..5].iter().all(|&covered| covered >= 88) && covered[5] == 0, "{covered:?}");
    // And they are no wider than they need to be: half as slow again is told from as slow.
    assert!(told_apart >= 450, "{told_apart} of 500");
}

#[test]
fn ratios_are_of_exact_figures_and_have_intervals_around_them() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let records = round(&mut random, 60, 200, 2.0, 0.1);
    let slower: Vec<Record> =
        records.iter().map(|r| answered(r.intended_ns, r.latency_ns() * 2, 100)).collect();
    let rounds = |records: &[Record]| level(records.chunks(2400).map(Blocks::new).collect());
    let first = subject("flash", &records, Some(vec![100.0; 5]));
    let second = subject("nginx", &slower, Some(vec![50.0; 5]));
    let (first_rounds, second_rounds) = (rounds(&records), rounds(&slower));
    let samples = [
        Pooled { subject: &first, rounds: &first_rounds },
        Pooled { subject: &second, rounds: &second_rounds },
    ];
    let found = ratios(&samples, 1);
    let names: Vec<_> = found.iter().map(|r| (r.measure.as_str(), r.level.as_deref())).collect();
    let at = Some("0.80");
    assert_eq!(
        names,
        [("capacity", None), ("mean", at), ("p50", at), ("p90", at), ("p95", at), ("p99", at), ("p99.9", at)]
    );
    assert!(found.iter().all(|r| (r.subject.as_str(), r.base.as_str()) == ("nginx", "flash")));
    // Each round is half as fast as the same round of the other.
    let [low, high] = found[0].interval.unwrap();
    assert!(found[0].ratio == 0.5 && (low - 0.5).abs() < 1e-9 && (high - 0.5).abs() < 1e-9, "{:?}", found[0]);
    for ratio in &found[1..] {
        let [low, high] = ratio.interval.unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9 && low < 2.0 && 2.0 < high && high - low < 1.0, "{ratio:?}");
    }
    let again = ratios(&samples, 1);
    assert!(found.iter().zip(&again).all(|(a, b)| a.interval == b.interval), "seeded");
}

#[test]
fn capacities_are_compared_round_by_round() {
    // A noisy machine halves both in round 2.
    let base = subject("a", &[], Some(vec![100.0, 50.0, 100.0, 101.0, 99.0]));
    let other = subject("b", &[], Some(vec![200.0, 100.0, 200.0, 202.0, 198.0]));
    let nothing = BTreeMap::new();
    let samples = [Pooled { subject: &base, rounds: &nothing }, Pooled { subject: &other, rounds: &nothing }];
    let found = ratios(&samples, 1);
    let [low, high] = found[0].interval.unwrap();
    assert!(found[0].ratio == 2.0 && (low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn a_capacity_in_doubt_has_a_ratio_in_doubt() {
    let (base, mut other) = (subject("a", &[], Some(vec![1.0; 5])), subject("b", &[], Some(vec![2.0; 5])));
    other.capacity.as_mut().unwrap().doubts = vec!["round 2: generator".to_owned()];
    let nothing = BTreeMap::new();
    let samples = [Pooled { subject: &base, rounds: &nothing }, Pooled { subject: &other, rounds: &nothing }];
    let found = ratios(&samples, 1).remove(0);
    let why = "capacity in doubt in 1 of 10 rounds";
    assert_eq!((found.interval, found.doubt.as_deref()), (None, Some(why)));
}

#[test]
fn fewer_than_five_rounds_give_no_interval_and_one_line_says_so() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
    let records = round(&mut random, 30, 200, 1.0, 0.5);
    let server = subject("a", &records, None);
    let with = |count: usize| level(vec![Blocks::new(&records); count]);
    let of = |first: usize, second: usize| {
        let (first, second) = (with(first), with(second));
        let samples = [&first, &second].map(|rounds| Pooled { subject: &server, rounds });
        (ratios(&samples, 1).iter().any(|ratio| ratio.interval.is_some()), too_few_rounds(&samples))
    };
    assert_eq!(of(5, 5), (true, None));
    assert_eq!(of(3, 3), (false, Some("no interval: 3 rounds where 5 are needed".to_owned())));
    assert_eq!(of(1, 1).1.as_deref(), Some("no interval: 1 round where 5 are needed"));
    assert!(!of(5, 4).0 && of(5, 4).1.unwrap().starts_with("no interval for some ratios: 4 rounds"));
}

#[test]
fn a_level_with_rounds_in_doubt_has_no_interval_but_the_reason() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
    let records = round(&mut random, 30, 200, 1.0, 0.5);
    let rounds: BTreeMap<_, _> = [("0.80".to_owned(), vec![Blocks::new(&records); 5])].into();
    let (base, mut other) = (subject("a", &records, None), subject("b", &records, None));
    let of = |base: &Subject, other: &Subject| {
        let samples = [Pooled { subject: base, rounds: &rounds }, Pooled { subject: other, rounds: &rounds }];
        ratios(&samples, 1).remove(0)
    };
    let sound = of(&base, &other);
    assert!(sound.interval.is_some() && sound.doubt.is_none(), "{sound:?}");
    let mut slow = other.levels[0].clone();
    (slow.asked_per_s, slow.answered_per_s) = (Some(200.0), 100.0);
    other.rounds = vec![slow, other.levels[0].clone()];
    let doubted = of(&base, &other);
    assert_eq!((doubted.interval, doubted.doubt.as_deref()), (None, Some("overloaded in 1 of 3 rounds")));
}

#[test]
fn identical_data_has_one_inside() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(8);
    let rounds: Vec<_> = (0..3).map(|_| Blocks::new(&round(&mut random, 30, 200, 1.0, 0.5))).collect();
    for interval in intervals(&rounds, &rounds, 300, 3) {
        let [low, high] = interval.unwrap();
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
    }
}

#[test]
fn too_little_data_gives_no_interval() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
    let short = vec![Blocks::new(&round(&mut random, 9, 100, 1.0, 0.0))];
    let long = vec![Blocks::new(&round(&mut random, 20, 100, 1.0, 0.0))];
    assert_eq!(intervals(&short, &long, 100, 1), [None; 6]);
    assert_eq!(intervals(&[], &long, 100, 1), [None; 6]);
    // 2,000 requests: 20 are beyond the p99, 2 beyond the p99.9.
    let found = intervals(&long, &long, 100, 1);
    assert!(found[..5].iter().all(Option::is_some) && found[5].is_none(), "{found:?}");

    let (none, two) = (subject("a", &[], Some(vec![5.0, 6.0])), subject("b", &[], Some(vec![10.0, 12.0])));
    let nothing = BTreeMap::new();
    let samples = [Pooled { subject: &none, rounds: &nothing }, Pooled { subject: &two, rounds: &nothing }];
    let found = ratios(&samples, 1);
    assert_eq!(found.len(), 1, "latencies of nothing have no ratio");
    assert_eq!((found[0].ratio, found[0].interval), (2.0, None));
    assert!(ratios(&[], 1).is_empty() && ratios(&samples[..1], 1).is_empty());
}
