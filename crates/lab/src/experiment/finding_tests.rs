//! Verdicts on hand-made figures.

use super::*;
use crate::statistics::{Limit, Sample, Scale};

fn sample(values: &[f64]) -> Sample {
    Sample { rounds: (1..).zip(values.iter().copied()).collect(), ..Sample::default() }
}

fn verdict(values: &[f64], bound: Bound) -> Verdict {
    Check::of("x", &sample(values), bound).verdict
}

#[test]
fn the_whole_interval_decides() {
    use Bound::{Alike, AtLeast, AtMost};
    use Verdict::{CannotBeTold, DoesNotHold, Holds};
    let cases = [
        (vec![2.1, 2.2, 2.1, 2.3, 2.2], AtLeast(2.0), Holds),
        (vec![2.0, 2.1, 3.0, 2.0, 2.0], AtLeast(2.0), CannotBeTold),
        (vec![1.0, 1.1, 1.2, 1.1, 1.0], AtLeast(2.0), DoesNotHold),
        (vec![1.95, 1.96, 1.95, 1.96, 1.95], AtLeast(2.0), CannotBeTold),
        (vec![0.4, 0.45, 0.5, 0.4, 0.45], AtMost(0.5), Holds),
        (vec![0.6, 0.7, 0.8, 0.7, 0.7], AtMost(0.5), DoesNotHold),
        (vec![9.0, 9.0, 9.0, 9.0], AtLeast(2.0), CannotBeTold),
        (vec![0.95, 1.0, 1.05, 1.0, 0.98], Alike(0.85), Holds),
        (vec![0.5, 0.6, 0.7, 0.6, 0.6], Alike(0.85), DoesNotHold),
        (vec![1.3, 1.4, 1.5, 1.4, 1.4], Alike(0.85), DoesNotHold),
        (vec![1.1, 1.2, 1.3, 1.2, 1.1], Alike(0.85), CannotBeTold),
    ];
    for (values, bound, expected) in cases {
        assert_eq!(verdict(&values, bound), expected, "{values:?} {bound:?}");
    }
}

#[test]
fn alike_never_fails_with_rounds_on_opposite_sides() {
    // With 20 rounds far below, the whole interval is outside the bound.
    let mut values = vec![0.3; 20];
    assert_eq!(verdict(&values, Bound::Alike(0.85)), Verdict::DoesNotHold);
    values.push(1.5);
    assert_eq!(verdict(&values, Bound::Alike(0.85)), Verdict::CannotBeTold);
    assert_eq!(verdict(&[0.5, 2.0, 0.5, 2.0, 1.0], Bound::Alike(0.85)), Verdict::CannotBeTold);
}

#[test]
fn shares_are_compared_by_amounts() {
    let told = |values: &[f64], bound| {
        Check::of("x", &Sample { scale: Scale::Amount, ..sample(values) }, bound).verdict
    };
    assert_eq!(told(&[0.0, 0.1, 0.05, 0.06, 0.04], Bound::AtLeast(0.0)), Verdict::Holds);
    assert_eq!(told(&[0.1, -0.1, 0.1, -0.1, 0.0], Bound::AtLeast(0.0)), Verdict::CannotBeTold);
    assert_eq!(told(&[-0.005; 5], Bound::AtLeast(0.0)), Verdict::CannotBeTold, "too little to matter");
    assert_eq!(told(&[-0.1; 5], Bound::AtLeast(0.0)), Verdict::DoesNotHold);
}

#[test]
fn rounds_in_doubt_do_not_count_and_the_reason_is_given() {
    let mut a = sample(&[4.0; 6]);
    let b = sample(&[2.0; 6]);
    let put = |a: &Sample, b: &Sample| {
        Finding::new("x", "y", "z", vec![Check::of("a against b", &a.over(b), Bound::AtLeast(1.5))])
    };
    assert_eq!(put(&a, &b).text(), "holds");
    let overload = |sample: &mut Sample, round| {
        sample.rounds.remove(&round);
        sample.doubted.insert(round, BTreeSet::from([Cause::Overloaded]));
    };
    overload(&mut a, 1);
    let enough = put(&a, &b);
    assert_eq!(enough.verdict, Verdict::Holds, "five rounds are left");
    assert!(enough.ours.ends_with(", not counted: overloaded in 1 of 6 rounds"), "{}", enough.ours);
    overload(&mut a, 2);
    let few = put(&a, &b);
    assert_eq!(few.text(), "cannot be told: overloaded in 2 of 6 rounds");
    let all_failed = Sample {
        rounds: [].into(),
        doubted: (1..=6).map(|round| (round, BTreeSet::from([Cause::Failures]))).collect(),
        ..Sample::default()
    };
    assert_eq!(put(&a, &all_failed).text(), "cannot be told: overloaded in 2, failures in 6 of 6 rounds");
    assert_eq!(put(&sample(&[4.0; 3]), &b).text(), "cannot be told: 3 rounds where 5 are needed");
}

#[test]
fn the_times_of_an_overloaded_server_decide_one_way_only() {
    let known = |value: f64| sample(&[value; 5]);
    let overloaded = |value: f64| {
        let limits = (1..=5).map(|round| (round, Limit::Least)).collect();
        Sample { limits, ..known(value) }
    };
    let check = |a: &Sample, b: &Sample, bound| Check::of("a against b", &a.over(b), bound);
    let verdict = |a: &Sample, b: &Sample, bound| check(a, b, bound).verdict;
    let (quick, slow) = (known(1.0), overloaded(9.0));
    assert_eq!(verdict(&slow, &quick, Bound::AtLeast(2.0)), Verdict::Holds);
    assert_eq!(verdict(&slow, &quick, Bound::AtLeast(20.0)), Verdict::CannotBeTold);
    assert_eq!(verdict(&slow, &quick, Bound::AtMost(2.0)), Verdict::DoesNotHold);
    assert_eq!(verdict(&slow, &quick, Bound::AtMost(20.0)), Verdict::CannotBeTold);
    assert_eq!(verdict(&quick, &slow, Bound::AtMost(0.5)), Verdict::Holds);
    assert_eq!(verdict(&quick, &slow, Bound::AtLeast(0.5)), Verdict::DoesNotHold);
    assert_eq!(verdict(&quick, &slow, Bound::AtLeast(0.05)), Verdict::CannotBeTold);
    assert_eq!(verdict(&slow, &overloaded(1.0), Bound::AtLeast(2.0)), Verdict::CannotBeTold);
    let open = check(&slow, &quick, Bound::AtLeast(20.0));
    assert_eq!(open.why.as_deref(), Some("overloaded in 5 of 5 rounds"));
    assert_eq!(open.columns.interval, "at least 9.00");
    let decided = check(&quick, &slow, Bound::AtMost(0.5));
    assert_eq!(
        decided.text,
        "a against b: 0.111, 95 % interval at most 0.111 of 5 rounds, the bound is at most 0.500, overloaded in 5 of them"
    );
}

#[test]
fn ratios_are_of_the_same_round() {
    // A noisy machine halves both in round 2; round 3 has only one of them.
    let (a, mut b) =
        (sample(&[10.0, 5.0, 10.0, 10.0, 10.0, 10.0]), sample(&[20.0, 10.0, 1.0, 20.0, 20.0, 20.0]));
    b.rounds.remove(&3);
    let ratio = a.over(&b);
    assert_eq!(ratio.rounds.values().copied().collect::<Vec<_>>(), [0.5; 5]);
    let check = Check::of("a against b", &ratio, Bound::AtMost(0.6));
    assert_eq!(check.verdict, Verdict::Holds);
    assert_eq!(
        check.text,
        "a against b: 0.500, 95 % interval 0.500 to 0.500 of 5 rounds, the bound is at most 0.600"
    );
    let mean = Sample::mean_of(&[sample(&[1.0, 4.0]), sample(&[4.0, 4.0])]).unwrap();
    assert_eq!(mean.rounds.values().copied().collect::<Vec<_>>(), [2.0, 4.0]);
    assert!(a.over(&sample(&[0.0])).rounds.is_empty(), "a ratio to nothing is no figure");
    assert_eq!(sample(&[3.0, 9.0, 1.0, 7.0]).middle(), Some((1, 3.0)), "the lower one of two in the middle");
}

#[test]
fn one_check_that_fails_decides_and_missing_parts_are_named() {
    let of = |name: &str, value: f64| Check::of(name, &sample(&[value; 5]), Bound::AtLeast(1.0));
    let missing = || Check::missing("no such option");
    let put = |checks| Finding::new("x", "y", "z", checks);
    let all = put(vec![of("a", 3.0), of("b", 2.0), of("a", 3.0)]);
    assert_eq!(all.verdict, Verdict::Holds);
    let is_closest = all.ours.starts_with("b: 2.00") && all.ours.ends_with("(the closest of 3 comparisons)");
    assert!(is_closest, "{}", all.ours);
    let some = put(vec![of("a", 3.0), missing()]);
    assert_eq!(some.text(), "cannot be told: a part is missing");
    assert!(some.ours.contains("part missing: no such option"), "{}", some.ours);
    let not = put(vec![of("a", 3.0), missing(), of("c", 0.5), of("d", 0.2)]);
    assert_eq!(not.text(), "does not hold");
    assert!(not.ours.starts_with("d: 0.200") && not.ours.contains("as in 2 of 4"), "{}", not.ours);
    assert_eq!(put(Vec::new()).verdict, Verdict::CannotBeTold);
}
