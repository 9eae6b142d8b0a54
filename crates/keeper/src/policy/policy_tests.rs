//! Tests of the whole policy: worked out by hand, and against a simple model.

use super::*;

fn spread(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn blocks_with_the_fewest_uses_per_byte_go_first() {
    let mut policy = Policy::new();
    for (slot, bytes) in [(0, 100), (1, 1_000), (2, 10), (3, 500)] {
        policy.insert(slot, spread(u64::from(slot)), bytes);
    }
    policy.touch(1, 30);
    assert_eq!(policy.len(), 4);
    // Uses per byte of slots 3, 0, 1 and 2: 1 / 500, 1 / 100, 31 / 1,000, 1 / 10.
    let order: Vec<_> = std::iter::from_fn(|| policy.take_victim()).collect();
    assert_eq!(order, [3, 0, 1, 2]);
    assert!(policy.is_empty());
}

#[test]
fn values_are_uses_per_byte() {
    let mut policy = Policy::new();
    policy.insert(5, spread(5), 4096);
    assert!((policy.value(5) * 4096.0 - 1.0).abs() < 0.01);
    policy.touch(5, 3);
    policy.touch(5, 4);
    assert!((policy.value(5) * 4096.0 - 8.0).abs() < 0.02, "{}", policy.value(5) * 4096.0);
    policy.insert(6, spread(6), 0);
    assert!(policy.value(6) > 0.9, "an empty file has a value too");
    assert_eq!((policy.value(4), policy.value(7)), (0.0, 0.0));
}

#[test]
fn blocks_whose_reads_take_long_are_worth_more() {
    let fill = |policy: &mut Policy| {
        for (slot, bytes, uses) in [(0, 524_288, 9), (1, 4_096, 1), (2, 65_536, 1), (3, 262_144, 6)] {
            policy.insert(slot, spread(u64::from(slot)), bytes);
            policy.touch(slot, uses - 1);
        }
    };
    let order = |policy: &mut Policy| std::iter::from_fn(|| policy.take_victim()).collect::<Vec<_>>();
    let mut policy = Policy::new();
    fill(&mut policy);
    assert_eq!(order(&mut policy), [2, 0, 3, 1]);
    // A read of 64 KiB takes twice as long as a short one, and one of 512 KiB nine times.
    let slow = ReadTime { read_us: 100.0, mib_us: 1_600.0 };
    for is_known_before in [true, false] {
        let mut policy = Policy::new();
        if is_known_before {
            policy.value_by(slow);
        }
        fill(&mut policy);
        policy.value_by(slow);
        let uses_per_byte = 9.0 * 9.0 / 524_288.0;
        assert!((policy.value(0) / uses_per_byte - 1.0).abs() < 0.01, "{}", policy.value(0));
        assert_eq!(order(&mut policy), [2, 3, 0, 1]);
        policy.insert(5, spread(0), 524_288);
        assert!(
            (policy.value(5) * 524_288.0 / 9.0 - 10.0).abs() < 1.0,
            "uses are remembered without their cost"
        );
    }
}

#[test]
fn the_time_of_reads_is_learned() {
    let mut policy = Policy::new();
    policy.insert(0, spread(0), 4_096);
    policy.insert(1, spread(1), 524_288);
    policy.touch(1, 63);
    let ratio = |policy: &Policy| policy.value(1) / policy.value(0);
    let before = ratio(&policy);
    for number in 0..2_000_u64 {
        let bytes = 4_096 << (number % 8);
        policy.note_read(bytes, 100 + (bytes / 1_024) as u32);
    }
    let ReadTime { read_us, mib_us } = policy.read_time();
    assert!((80.0..120.0).contains(&read_us) && (850.0..1_200.0).contains(&mib_us), "{read_us} {mib_us}");
    let costs = (100.0 + 512.0) / (100.0 + 4.0);
    assert!((ratio(&policy) / before / costs - 1.0).abs() < 0.25, "{}", ratio(&policy) / before);
}

#[test]
fn empty_slots_are_ignored() {
    let mut policy = Policy::new();
    policy.touch(3, 9);
    policy.remove(3);
    assert_eq!((policy.take_victim(), policy.len()), (None, 0));
    policy.insert(3, spread(3), 10);
    policy.touch(3, 0);
    policy.insert(3, spread(4), 10);
    assert_eq!(policy.len(), 1);
    policy.remove(3);
    policy.remove(3);
    policy.touch(3, 1);
    assert_eq!((policy.take_victim(), policy.len()), (None, 0));
}

#[test]
fn a_block_that_comes_back_is_remembered() {
    let mut policy = Policy::new();
    policy.insert(0, spread(0), 1_000);
    policy.touch(0, 19);
    assert_eq!(policy.take_victim(), Some(0));
    policy.insert(9, spread(0), 1_000);
    policy.insert(1, spread(1), 1_000);
    assert!((policy.value(9) * 1_000.0 - 21.0).abs() < 2.0, "{}", policy.value(9) * 1_000.0);
    assert_eq!(policy.take_victim(), Some(1));
}

#[test]
fn uses_lose_half_their_weight_in_a_half_life() {
    let half_life = (HALF_LIFE_USES_PER_BLOCK * BLOCKS_MIN as f64) as u32;
    let mut policy = Policy::new();
    policy.insert(0, spread(0), 1);
    policy.insert(1, spread(1), 1);
    policy.touch(0, 63);
    let before = policy.value(0);
    policy.touch(1, 3 * half_life);
    assert!((policy.value(0) / before - 0.125).abs() < 0.001);
    // Far beyond one period, in a single step.
    policy.touch(1, 100 * half_life);
    assert!(policy.value(0) < 1e-28 && policy.value(1) > 0.0);
    policy.insert(2, spread(2), 1_000);
    assert_eq!(policy.take_victim(), Some(0), "old uses lose their weight");
}

/// The order matches a model without logarithms, lazy heap and periods.
#[test]
fn victims_match_a_simple_model() {
    let (mut policy, mut plain) = (Policy::new(), Vec::<(u32, f64, f64)>::new());
    let (mut random, mut weight) = (7_u64, 1.0);
    let mut read_time = ReadTime::default();
    let cost = |time: ReadTime, bytes: f64| f64::from(time.cost_log2(bytes as f32)).exp2();
    let growth = (1.0 / (HALF_LIFE_USES_PER_BLOCK * BLOCKS_MIN as f64)).exp2();
    for step in 0..160_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (slot, dice) = ((random >> 33) as u32 % 200, random >> 60);
        let place = plain.iter().position(|(other, ..)| *other == slot);
        if step % 10_000 == 9_999 {
            read_time = ReadTime { read_us: 100.0, mib_us: (random >> 52) as f64 };
            policy.value_by(read_time);
        }
        match (dice, place) {
            (0, _) => {
                let Some(victim) = policy.take_victim() else { continue };
                let value = |(_, uses, bytes): &(u32, f64, f64)| uses * cost(read_time, *bytes) / bytes;
                let least = plain.iter().map(value).min_by(f64::total_cmp).unwrap();
                let at = plain.iter().position(|(other, ..)| *other == victim).unwrap();
                assert!(value(&plain[at]) <= least * 1.005, "step {step}");
                plain.swap_remove(at);
            }
            (_, Some(place)) => {
                policy.touch(slot, 1);
                plain[place].1 += weight;
                weight *= growth;
            }
            (_, None) => {
                let bytes = 1 + (random >> 40) % 10_000;
                policy.insert(slot, spread(step), bytes);
                // More than one use if the sketch confuses the key with another.
                let uses = policy.value(slot) * bytes as f64 / cost(read_time, bytes as f64);
                plain.push((slot, weight * uses, bytes as f64));
                weight *= growth;
            }
        }
        assert_eq!(policy.len(), plain.len());
    }
}
