//! Verdicts on hand-made figures.

use super::super::data::Sample;
use super::*;

fn sample(values: &[f64]) -> Sample {
    Sample { rounds: (1..).zip(values.iter().copied()).collect(), ..Sample::default() }
}

fn verdict(values: &[f64], bound: Bound) -> Verdict {
    Check::of("x", &sample(values), bound).verdict
}

#[test]
fn what_every_round_keeps_holds_and_what_none_keeps_does_not() {
    use Bound::{Alike, AtLeast, AtMost};
    use Verdict::{CannotBeTold, DoesNotHold, Holds};
    let cases = [
        (vec![2.0, 2.1, 3.0], AtLeast(2.0), Holds),
        (vec![2.0, 2.1, 1.9], AtLeast(2.0), CannotBeTold),
        (vec![1.0, 1.1, 1.9], AtLeast(2.0), DoesNotHold),
        (vec![0.4, 0.5, 0.5], AtMost(0.5), Holds),
        (vec![0.6, 0.7, 0.8], AtMost(0.5), DoesNotHold),
        (vec![0.9, 1.0, 1.1], Alike(0.85), Holds),
        (vec![0.5, 0.6, 0.7], Alike(0.85), DoesNotHold),
        (vec![1.2, 1.3, 1.4], Alike(0.85), DoesNotHold),
        (vec![1.1, 1.2, 1.3], Alike(0.85), CannotBeTold),
        (vec![9.0, 9.0], AtLeast(2.0), CannotBeTold),
    ];
    for (values, bound, expected) in cases {
        assert_eq!(verdict(&values, bound), expected, "{values:?} {bound:?}");
    }
}

#[test]
fn a_limit_of_the_generator_spoils_only_what_it_could_change() {
    let limited = |values: &[f64]| Sample { may_be_higher: true, ..sample(values) };
    let told = |sample: &Sample, bound| Check::of("x", sample, bound).verdict;
    let (fast, slow) = (limited(&[10.0, 10.0, 10.0]), sample(&[4.0, 4.0, 4.0]));
    // It may be faster still, so it is faster; but by how much at most nobody knows.
    assert_eq!(told(&fast.over(&slow), Bound::AtLeast(2.0)), Verdict::Holds);
    assert_eq!(told(&fast.over(&slow), Bound::AtLeast(3.0)), Verdict::CannotBeTold);
    assert_eq!(told(&fast.over(&slow), Bound::AtMost(3.0)), Verdict::CannotBeTold);
    assert_eq!(told(&slow.over(&fast), Bound::AtMost(0.5)), Verdict::Holds);
    assert_eq!(told(&slow.over(&fast), Bound::AtLeast(0.3)), Verdict::CannotBeTold);
    assert_eq!(told(&fast.over(&fast), Bound::Alike(0.85)), Verdict::CannotBeTold);
}

#[test]
fn a_late_generator_makes_latencies_longer_than_they_are() {
    let longer = |values: &[f64]| Sample { may_be_lower: true, ..sample(values) };
    let told = |sample: &Sample, bound| Check::of("x", sample, bound).verdict;
    let (late, exact) = (longer(&[4.0; 3]), sample(&[10.0; 3]));
    assert_eq!(told(&late.over(&exact), Bound::AtMost(0.5)), Verdict::Holds, "it may be even less");
    assert_eq!(told(&exact.over(&late), Bound::AtMost(2.0)), Verdict::DoesNotHold);
    assert_eq!(told(&exact.over(&late), Bound::AtMost(3.0)), Verdict::CannotBeTold);
}

#[test]
fn ratios_are_of_the_same_round() {
    // A noisy machine halves both in round 2; the third has only one of them.
    let (a, mut b) = (sample(&[10.0, 5.0, 10.0, 10.0]), sample(&[20.0, 10.0, 1.0, 20.0]));
    b.rounds.remove(&3);
    let ratio = a.over(&b);
    assert_eq!(ratio.rounds.values().copied().collect::<Vec<_>>(), [0.5, 0.5, 0.5]);
    let check = Check::of("a against b", &ratio, Bound::AtMost(0.6));
    assert_eq!(check.verdict, Verdict::Holds);
    assert_eq!(check.words, "a against b: 0.500 (0.500 to 0.500), the bound is at most 0.600");
    let mean = Sample::mean_of(&[sample(&[1.0, 4.0]), sample(&[4.0, 4.0])]).unwrap();
    assert_eq!(mean.rounds.values().copied().collect::<Vec<_>>(), [2.0, 4.0]);
    assert!(a.over(&sample(&[0.0])).rounds.is_empty(), "nothing is infinitely much");
}

#[test]
fn one_check_that_fails_decides_and_what_is_missing_is_named() {
    let holds = || Check::of("a", &sample(&[3.0; 3]), Bound::AtLeast(1.0));
    let closer = || Check::of("b", &sample(&[2.0; 3]), Bound::AtLeast(1.0));
    let fails = || Check::of("c", &sample(&[0.5; 3]), Bound::AtLeast(1.0));
    let worse = || Check::of("d", &sample(&[0.2; 3]), Bound::AtLeast(1.0));
    let missing = || Check::missing("no such option");
    let put = |checks| Finding::new("x", "y", "z", checks);
    let all = put(vec![holds(), closer(), holds()]);
    assert_eq!(all.verdict, Verdict::Holds);
    assert!(
        all.ours.starts_with("b: 2.00") && all.ours.ends_with("the closest of 3 comparisons"),
        "{}",
        all.ours
    );
    let some = put(vec![holds(), missing()]);
    assert_eq!(some.verdict, Verdict::CannotBeTold);
    assert!(some.ours.contains("part missing: no such option"), "{}", some.ours);
    let not = put(vec![holds(), missing(), fails(), worse()]);
    assert_eq!(not.verdict, Verdict::DoesNotHold);
    assert!(not.ours.starts_with("d: 0.200") && not.ours.contains("so 2 of 4"), "{}", not.ours);
    assert_eq!(put(Vec::new()).verdict, Verdict::CannotBeTold);
}
