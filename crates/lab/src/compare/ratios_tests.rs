//! Ratios of made rounds whose true ratio is known.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use flash_load::measure::{self, CoreOf, Latency, OtherWork, PhaseFacts, ServerUse};

use super::*;

/// A round of a level with enough requests for every percentile.
fn round(number: u32, latency: Latency) -> Measures {
    let facts = PhaseFacts { name: "0.80".to_owned(), round: Some(number), ..PhaseFacts::default() };
    let mut measures = Measures { latency, ..measure::measures(&[], &facts) };
    measures.counts.answered = 10_000;
    measures
}

fn subject(name: &str, rounds: Vec<Measures>) -> Subject {
    Subject { levels: rounds[..1].to_vec(), rounds, ..Subject::of(name, "") }
}

/// A server with these medians, and a p99 of ten times as much.
fn server(name: &str, p50_ms: &[f64]) -> Subject {
    let latency = |p50_ms: &f64| Latency { p50_ms: *p50_ms, p99_ms: p50_ms * 10.0, ..Latency::default() };
    subject(name, (1..).zip(p50_ms).map(|(number, p50_ms)| round(number, latency(p50_ms))).collect())
}

fn find<'r>(ratios: &'r [Ratio], measure: &str) -> &'r Ratio {
    ratios.iter().find(|ratio| ratio.measure == measure).unwrap()
}

/// Latencies of a round: exponential, of this mean.
fn percentiles(random: &mut Xoshiro256PlusPlus, mean_ms: f64) -> Latency {
    let mut all: Vec<f64> = (0..1000).map(|_| -(1.0 - random.random::<f64>()).ln() * mean_ms).collect();
    all.sort_unstable_by(f64::total_cmp);
    let mean_ms = all.iter().sum::<f64>() / all.len() as f64;
    Latency { mean_ms, p50_ms: all[499], p99_ms: all[989], ..Latency::default() }
}

#[test]
fn an_interval_covers_the_true_ratio_as_often_as_it_says() {
    let true_ratio = 1.5;
    let (trials, rounds) = (1000, ROUNDS_MIN as u32);
    let mut covered = [0; 3];
    let mut told_apart = 0;
    for trial in 0..trials {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(trial);
        let (mut base, mut other) = (Vec::new(), Vec::new());
        for number in 1..=rounds {
            // The machine disturbs both servers of a round by one factor, and each by one of its own.
            let both = 1.0 + 0.3 * random.random::<f64>();
            let mut own = |scale: f64| {
                let alone = 1.0 + 0.3 * random.random::<f64>();
                round(number, percentiles(&mut random, scale * both * alone))
            };
            base.push(own(1.0));
            other.push(own(true_ratio));
        }
        let ratios = ratios(&[subject("a", base), subject("b", other)]);
        for (covered, measure) in covered.iter_mut().zip(["mean", "p50", "p99"]) {
            let [low, high] = find(&ratios, measure).interval.unwrap();
            *covered += u32::from(low <= true_ratio && true_ratio <= high);
            told_apart += u32::from(low > 1.0);
        }
    }
    println!("{covered:?} of {trials} intervals of {rounds} rounds covered the ratio");
    assert!(covered.iter().all(|covered| *covered >= 920), "{covered:?}");
    // And they are no wider than they need to be: half as slow again is told from as slow.
    assert!(told_apart >= 2700, "{told_apart} of 3000");
}

#[test]
fn a_round_is_compared_with_its_own() {
    // Rounds differ more than servers.
    let base = server("nginx", &[50.0, 100.0, 50.0, 80.0, 60.0]);
    let ratios = ratios(&[base, server("flash", &[25.0, 50.0, 25.0, 40.0, 30.0])]);
    let names: Vec<_> = ratios.iter().map(|ratio| ratio.measure.as_str()).collect();
    assert_eq!(names, ["p50", "p99"], "figures of 0 have no ratio");
    for ratio in &ratios {
        let [low, high] = ratio.interval.unwrap();
        assert!((ratio.ratio - 0.5).abs() < 1e-9 && low > 0.499 && high < 0.501, "{ratio:?}");
        assert_eq!(
            (ratio.subject.as_str(), ratio.base.as_str(), ratio.level.as_deref()),
            ("flash", "nginx", Some("0.80"))
        );
    }
}

#[test]
fn a_round_in_doubt_is_left_out_and_five_must_be_left() {
    let base = server("a", &[1.0; 6]);
    let mut other = server("b", &[2.0, 2.0, 2.0, 2.0, 2.0, 9.0]);
    other.rounds[5].other_work = Some(OtherWork { core: CoreOf::Server, busy_share: 0.5, stolen_share: 0.0 });
    let servers = [base, other];
    let ratio = find(&ratios(&servers), "p50").clone();
    assert!(
        ratio.interval.is_some() && ratio.doubt.is_none() && (ratio.ratio - 2.0).abs() < 1e-9,
        "{ratio:?}"
    );
    let [base, mut other] = servers;
    other.rounds[0].other_work = other.rounds[5].other_work;
    let ratio = find(&ratios(&[base, other]), "p50").clone();
    assert_eq!((ratio.interval, ratio.doubt.as_deref()), (None, Some("other work in 2 of 6 rounds")));
}

#[test]
fn a_late_generator_spoils_the_percentile_that_it_was_late_at() {
    let base = server("a", &[1.0; 5]);
    let mut other = server("b", &[2.0; 5]);
    (other.rounds[0].asked_per_s, other.rounds[0].generator.late_p99_ms) = (Some(1.0), 5.0);
    let ratios = ratios(&[base, other]);
    assert!(find(&ratios, "p50").interval.is_some());
    assert_eq!(find(&ratios, "p99").doubt.as_deref(), Some("generator in 1 of 5 rounds"));
}

#[test]
fn few_rounds_or_few_requests_have_no_interval() {
    let [three, five] = [3, 5].map(|count| [server("a", &vec![1.0; count]), server("b", &vec![2.0; count])]);
    assert_eq!(find(&ratios(&three), "p50").interval, None);
    assert_eq!(too_few_rounds(&three).as_deref(), Some("no interval: 3 rounds where 5 are needed"));
    assert_eq!(too_few_rounds(&five), None);
    let [base, mut other] = five;
    other.rounds[2].counts.answered = 499;
    let ratios = ratios(&[base, other]);
    assert!(find(&ratios, "p50").interval.is_some() && find(&ratios, "p99").interval.is_none());
    let unknown = Subject { rounds: Vec::new(), ..server("c", &[1.0]) };
    assert!(super::ratios(&[server("a", &[1.0]), unknown]).is_empty());
}

#[test]
fn a_late_generator_does_not_change_cpu_time() {
    let with_cpu = |name: &str, cpu_us: f64| {
        let mut server = server(name, &[1.0; 5]);
        for round in &mut server.rounds {
            let used = ServerUse { cpu_ns: 1, memory_max_bytes: 0 };
            let facts = PhaseFacts { server: Some(used), ..PhaseFacts::default() };
            round.server = measure::measures(&[], &facts)
                .server
                .map(|used| measure::Usage { cpu_us_per_answer: cpu_us, ..used });
            round.generator.busy_share = 1.0;
        }
        server
    };
    let ratios = ratios(&[with_cpu("a", 50.0), with_cpu("b", 55.0)]);
    let ratio = find(&ratios, CPU_PER_ANSWER);
    assert!((ratio.ratio - 1.1).abs() < 1e-9 && ratio.interval.is_some(), "{ratio:?}");
    assert_eq!(find(&ratios, "p50").doubt.as_deref(), Some("generator in 5 of 5 rounds"));
}

#[test]
fn capacities_are_compared_round_by_round() {
    let with = |name: &str, rounds: [f64; 5]| Subject {
        capacity: Some(Capacity {
            requests_per_s: rounds[0],
            megabits_per_s: 0.0,
            rounds_requests_per_s: rounds.to_vec(),
            clients: 1,
            doubts: Vec::new(),
        }),
        ..Subject::of(name, "")
    };
    // A noisy machine halves both in round 2.
    let base = with("a", [100.0, 50.0, 100.0, 101.0, 99.0]);
    let mut other = with("b", [200.0, 100.0, 200.0, 202.0, 198.0]);
    let found = ratios(&[base.clone(), other.clone()]).remove(0);
    let [low, high] = found.interval.unwrap();
    assert!(found.ratio == 2.0 && (low - 2.0).abs() < 1e-9 && (high - 2.0).abs() < 1e-9, "{found:?}");
    other.capacity.as_mut().unwrap().doubts = vec!["round 2: generator".to_owned()];
    let found = ratios(&[base, other]).remove(0);
    let why = "capacity in doubt in 1 of 10 rounds";
    assert_eq!((found.interval, found.doubt.as_deref()), (None, Some(why)));
}
