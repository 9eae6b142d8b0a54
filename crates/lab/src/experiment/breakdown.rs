//! `breakdown`: the worth of each of the three caches (flash-1999, section 6.3, Fig 11). Pure.

use super::data::{Data, Measure};
use super::finding::{Bound, Finding};
use super::plan::{Plan, ROUNDS, Scale, Scene, Set};
use super::variants::{self, caches_name};
use super::{plots, single_file};
use flash_kit::sheet::{Axis, Division, Plot, Unit};

const LENGTHS: [u64; 5] = [500, 1_000, 5_000, 10_000, 20_000];
const LENGTHS_QUICK: [u64; 2] = [1_000, 20_000];
/// "Drop in half", with a tenth to spare.
const HALF: f64 = 0.55;

pub(super) fn plan(scale: &Scale) -> Plan {
    let lengths = scale.pick(LENGTHS.to_vec(), LENGTHS_QUICK.to_vec());
    let points = single_file::points(&lengths, scale.pick(3.0, 1.0));
    let scene = Scene { cpu: Some(single_file::CPU), ..Scene::of(0, points) };
    let variants = variants::combinations();
    Plan {
        variants,
        sets: vec![Set::Lengths(lengths)],
        scenes: vec![scene],
        rounds: ROUNDS,
        looks_inside: false,
    }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points = plan.points();
    let (Some(small), Some(large)) = (points.first(), points.last()) else { return Vec::new() };
    let (small, large) = (small.name.as_str(), large.name.as_str());
    let [all, none] = [[true; 3], [false; 3]].map(caches_name);
    let [no_names, no_heads, no_contents] =
        [[false, true, true], [true, false, true], [true, true, false]].map(caches_name);
    let at_small = |left: &str, right: &str, most| {
        data.compare((left, small), (right, small), Measure::Rate, Bound::AtMost(most))
    };
    let what = "what is left without caches, small against large files";
    let pair = |point| ((none.as_str(), point), (all.as_str(), point));
    let shares = data.compare_ratios(what, pair(small), pair(large), Measure::Rate, Bound::AtMost(1.0));
    vec![
        Finding::new(
            "breakdown/half",
            "flash-1999, 6.3, Fig 11",
            "Without the optimizations the rate of small files would drop in half",
            vec![at_small(&none, &all, HALF)],
        ),
        Finding::new(
            "breakdown/each",
            "flash-1999, 6.3",
            "Each of the three caches has a significant impact",
            [&no_names, &no_heads, &no_contents].map(|without| at_small(without, &all, 1.0)).to_vec(),
        ),
        Finding::new(
            "breakdown/names",
            "flash-1999, 6.3",
            "The cache of path names gives the most",
            vec![at_small(&no_names, &no_heads, 1.0), at_small(&no_names, &no_contents, 1.0)],
        ),
        Finding::new(
            "breakdown/small",
            "flash-1999, 6.3",
            "The impact is strongest on small documents",
            vec![shares],
        ),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let length = Axis::new("file size", Unit::Bytes, Division::Log);
    let axes = (length, plots::rate("connections per second"));
    vec![plots::against(data, &plan.points(), Measure::Rate, "The eight combinations", axes)]
}
