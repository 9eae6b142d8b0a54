//! Intervals on made latencies whose true ratio is known.

use super::super::tests::answered;
use super::super::{PhaseFacts, measures};
use super::*;
use crate::results::Capacity;

const SECOND_NS: u64 = 1_000_000_000;

/// A round of `seconds`, so many requests in each: exponential times of mean `scale_ms`, and in
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
            // What the machine does to both in this round.
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
    let rounds = |records: &[Record]| level(records.chunks(4000).map(Blocks::new).collect());
    let first = subject("flash", &records, Some(vec![100.0, 110.0, 90.0]));
    let second = subject("nginx", &slower, Some(vec![50.0, 55.0, 45.0]));
    let (first_rounds, second_rounds) = (rounds(&records), rounds(&slower));
    let samples = [
        Sample { subject: &first, rounds: &first_rounds },
        Sample { subject: &second, rounds: &second_rounds },
    ];
    let found = ratios(&samples, 1);
    let names: Vec<_> = found.iter().map(|r| (r.measure.as_str(), r.level.as_deref())).collect();
    let at = Some("0.80");
    assert_eq!(
        names,
        [("capacity", None), ("mean", at), ("p50", at), ("p90", at), ("p95", at), ("p99", at), ("p99.9", at)]
    );
    assert!(found.iter().all(|r| (r.subject.as_str(), r.base.as_str()) == ("nginx", "flash")));
    // Rounds are drawn together, and each is half as fast as its fellow.
    assert_eq!((found[0].ratio, found[0].interval), (0.5, Some([0.5, 0.5])));
    for ratio in &found[1..] {
        let [low, high] = ratio.interval.unwrap();
        assert!((ratio.ratio - 2.0).abs() < 1e-9 && low < 2.0 && 2.0 < high && high - low < 1.0, "{ratio:?}");
    }
    let again = ratios(&samples, 1);
    assert!(found.iter().zip(&again).all(|(a, b)| a.interval == b.interval), "seeded");
}

#[test]
fn the_interval_of_a_capacity_is_of_what_the_capacity_is() {
    // One round in five went wrong for one of two like servers: the medians are 100 and 100. The mean of
    // the one, 82, says otherwise.
    let base = subject("a", &[], Some(vec![100.0; 5]));
    let other = subject("b", &[], Some(vec![10.0, 100.0, 100.0, 100.0, 100.0]));
    let nothing = BTreeMap::new();
    let samples = [Sample { subject: &base, rounds: &nothing }, Sample { subject: &other, rounds: &nothing }];
    let found = ratios(&samples, 1);
    // Three of five draws are of that round in 6 % of all cases: the interval reaches down, and has the ratio.
    assert_eq!((found[0].ratio, found[0].interval), (1.0, Some([0.1, 1.0])));
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
    let samples = [Sample { subject: &none, rounds: &nothing }, Sample { subject: &two, rounds: &nothing }];
    let found = ratios(&samples, 1);
    assert_eq!(found.len(), 1, "latencies of nothing have no ratio");
    assert_eq!((found[0].ratio, found[0].interval), (2.0, None));
    assert!(ratios(&[], 1).is_empty() && ratios(&samples[..1], 1).is_empty());
}
