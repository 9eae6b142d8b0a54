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
    let growth = (1.0 / (HALF_LIFE_USES_PER_BLOCK * BLOCKS_MIN as f64)).exp2();
    for step in 0..160_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (slot, dice) = ((random >> 33) as u32 % 200, random >> 60);
        let place = plain.iter().position(|(other, ..)| *other == slot);
        match (dice, place) {
            (0, _) => {
                let Some(victim) = policy.take_victim() else { continue };
                let value = |(_, uses, bytes): &(u32, f64, f64)| uses / bytes;
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
                let uses = policy.value(slot) * bytes as f64;
                plain.push((slot, weight * uses, bytes as f64));
                weight *= growth;
            }
        }
        assert_eq!(policy.len(), plain.len());
    }
}
