//! `dataset-size`: bandwidth when the files no longer fit into memory (flash-1999, section 6.2, Figs 9
//! and 10). Pure.
//!
//! The papers cut a log to get data sets of different sizes; here SPECweb99's choice draws from as many of its
//! directories.

use super::data::{Data, Measure};
use super::finding::{Bound, CLEAR, Check, Finding, LARGE, MUCH_THE_SAME};
use super::plan::{Ask, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::variants::{self, AMPED, MP, MT, SPED};
use super::{plots, single_file};
use flash_kit::number::size;
use flash_kit::sheet::{Axis, Division, Plot, Unit};
use flash_load::files::layout::DIRECTORY_BYTES;

/// Sizes of data sets, in times of the memory. The papers' go from a tenth of it to a little more than all.
const TIMES: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0];
const TIMES_QUICK: [f64; 2] = [0.5, 3.0];

pub(super) fn plan(scale: &Scale) -> Plan {
    let times = scale.pick(TIMES.to_vec(), TIMES_QUICK.to_vec());
    let scene = |times: &f64| {
        let directories = scale.directories(*times);
        let bytes = u64::from(directories) * DIRECTORY_BYTES;
        let point = Point {
            name: size(bytes as f64),
            x: bytes as f64,
            ask: Ask::Directories(directories),
            load: Load::Infinite(single_file::CLIENTS),
            requests_per_connection: 1,
            duration_s: scale.pick(12.0, 5.0),
        };
        let warm_up_s = scale.pick(8.0, 4.0);
        Scene { is_bounded: true, warm_up_s, ..Scene::of(0, vec![point]) }
    };
    let most = times.last().map_or(1, |times| scale.directories(*times));
    let sets = vec![Set::Specweb99 { directories: most }];
    let variants = [variants::architectures(), variants::peers(scale)].concat();
    Plan { variants, sets, scenes: times.iter().map(scene).collect(), rounds: ROUNDS, looks_inside: false }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points = plan.points();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let (cached, disk_bound) = (first.name.as_str(), last.name.as_str());
    let at =
        |point, left, right, bound| data.compare((left, point), (right, point), Measure::Bandwidth, bound);
    let drop = |name: &str| {
        data.compare((name, disk_bound), (name, cached), Measure::Bandwidth, Bound::AtMost(LARGE))
    };
    let drops: Vec<Check> = plan.variants.iter().map(|variant| drop(&variant.name)).collect();
    let what = "what is left on the disk-bound set, SPED against AMPED";
    let pair = |name| ((name, disk_bound), (name, cached));
    let sped_falls =
        data.compare_ratios(what, pair(SPED), pair(AMPED), Measure::Bandwidth, Bound::AtMost(CLEAR));
    let source = "flash-1999, 6.2, Figs 9, 10";
    let new = |id: &str, paper: &str, checks| Finding::new(id, source, paper, checks);
    vec![
        new(
            "dataset-size/all-drop",
            "All servers drop significantly when the working set exceeds the memory",
            drops,
        ),
        new(
            "dataset-size/amped-cached",
            "AMPED is very competitive with SPED on cached workloads",
            vec![at(cached, AMPED, SPED, Bound::AtLeast(MUCH_THE_SAME))],
        ),
        new(
            "dataset-size/amped-disk",
            "AMPED exceeds or meets the MP servers on disk-bound workloads",
            vec![at(disk_bound, AMPED, MP, Bound::AtLeast(CLEAR))],
        ),
        new(
            "dataset-size/sped-disk",
            "SPED's bandwidth falls below AMPED's once the set exceeds the memory, and drastically",
            vec![at(disk_bound, SPED, AMPED, Bound::AtMost(LARGE)), sped_falls],
        ),
        new(
            "dataset-size/mp-cached",
            "MP falls significantly short on cached workloads, by its smaller caches",
            vec![at(cached, MP, AMPED, Bound::AtMost(CLEAR))],
        ),
        new(
            "dataset-size/mt",
            "MT is comparable to AMPED, both in memory and disk-bound",
            [cached, disk_bound].map(|point| at(point, MT, AMPED, Bound::Alike(MUCH_THE_SAME))).to_vec(),
        ),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let axis = || Axis::new("data set", Unit::Bytes, Division::Linear);
    vec![
        plots::against(data, &plan.points(), Measure::Bandwidth, "Bandwidth", (axis(), plots::bandwidth())),
        plots::against(
            data,
            &plan.points(),
            Measure::Rate,
            "Rate",
            (axis(), plots::rate("answers per second")),
        ),
    ]
}
