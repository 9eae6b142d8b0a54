//! `site-logs`: two logs of different locality (flash-1999, section 6.2, Fig 8). Pure.
//!
//! The logs of Rice University are not available, and the paper gives no numbers for them except that Owlnet's data
//! set is smaller, its locality higher and its average transfer smaller than those of CS. So two logs are made up:
//! Owlnet's files fit into the memory, those of CS do not.

use super::data::{Data, Measure};
use super::finding::{Bound, Finding};
use super::plan::{Ask, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::variants::{self, AMPED, MP, SPED};
use super::{plots, single_file};
use flash_kit::sheet::{Entry, Grid};
use flash_load::workload::access_log::made::MadeLog;

/// The made-up logs, by the papers' names.
const OWLNET: &str = "Owlnet";
const CS: &str = "CS";
/// "Roughly comparable" is within this factor.
const COMPARABLE: f64 = 0.5;

/// The made-up logs, scaled to the memory.
fn logs(memory_bytes: u64) -> [MadeLog; 2] {
    let log = |name: &str, times_memory: f64, median_bytes, alpha, requests_per_file| MadeLog {
        name: name.to_lowercase(),
        dataset_bytes: (memory_bytes as f64 * times_memory) as u64,
        median_bytes,
        alpha,
        requests_per_file,
    };
    [log(OWLNET, 0.5, 3_000.0, 1.0, 20), log(CS, 2.0, 6_000.0, 0.8, 5)]
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let (mut sets, mut scenes) = (Vec::new(), Vec::new());
    let mut scene = |set: Set, name: &str| {
        let number = sets.len();
        sets.push(set);
        let point = Point {
            name: name.to_owned(),
            x: number as f64,
            ask: Ask::Replay,
            load: Load::Infinite(single_file::CLIENTS),
            requests_per_connection: 1,
            duration_s: scale.pick(20.0, 5.0),
        };
        let warm_up_s = scale.pick(8.0, 3.0);
        scenes.push(Scene { is_bounded: true, warm_up_s, ..Scene::of(number, vec![point]) });
    };
    if scale.logs.is_empty() {
        for (log, name) in logs(scale.memory_bytes).into_iter().zip([OWLNET, CS]) {
            scene(Set::Made(log), name);
        }
    }
    for file in &scale.logs {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        scene(Set::Log(file.clone()), &name);
    }
    let variants = [variants::architectures(), variants::peers(scale)].concat();
    Plan { variants, sets, scenes, rounds: ROUNDS, looks_inside: false }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points: Vec<String> = plan.points().iter().map(|point| point.name.clone()).collect();
    let names: Vec<&str> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    let against_all = |name: &str, bound| {
        let others = names.iter().filter(|other| **other != name);
        others.flat_map(|other| data.compare_at(&points, name, other, Measure::Bandwidth, bound)).collect()
    };
    let mut findings = vec![Finding::new(
        "site-logs/amped-first",
        "flash-1999, 6.2, Fig 8",
        "Flash with its AMPED architecture achieves the highest throughput on both workloads",
        against_all(AMPED, Bound::AtLeast(1.0)),
    )];
    for name in names.iter().filter(|name| name.starts_with("apache")) {
        findings.push(Finding::new(
            "site-logs/apache-last",
            "flash-1999, 6.2, Fig 8",
            "Apache achieves the lowest performance",
            against_all(name, Bound::AtMost(1.0)),
        ));
    }
    // The paper's claims are about its own two logs.
    if points == [OWLNET, CS] {
        let what = "SPED over AMPED, on Owlnet against CS";
        let pair = |point| ((SPED, point), (AMPED, point));
        let at_cs = |left, right| ((left, CS), (right, CS));
        let (mp, sped) = at_cs(MP, SPED);
        findings.push(Finding::new(
            "site-logs/sped-on-owlnet",
            "flash-1999, 6.2",
            "SPED's relative performance is much better on Owlnet, which has better cache locality",
            vec![data.compare_ratios(what, pair(OWLNET), pair(CS), Measure::Bandwidth, Bound::AtLeast(1.0))],
        ));
        findings.push(Finding::new(
            "site-logs/mp-on-cs",
            "flash-1999, 6.2",
            "MP performs well on the more disk-intensive CS log: better than SPED",
            vec![data.compare(mp, sped, Measure::Bandwidth, Bound::AtLeast(1.0))],
        ));
        findings.push(Finding::new(
            "site-logs/comparable",
            "flash-1999, 6.2",
            "Bandwidths on the two logs are roughly comparable: Owlnet's transfers are smaller",
            vec![data.compare((AMPED, OWLNET), (AMPED, CS), Measure::Bandwidth, Bound::Alike(COMPARABLE))],
        ));
    }
    findings
}

/// Figure 8 has a bar for each server and log; here it is a table.
pub(super) fn grid(data: Data<'_>, plan: &Plan) -> Grid {
    let points = plan.points();
    let columns: Vec<(&str, &str, Measure)> =
        points.iter().map(|point| (point.name.as_str(), point.name.as_str(), Measure::Bandwidth)).collect();
    let mut grid = plots::table(data, "Bandwidth on each log, Mb/s", &columns);
    grid.rows.retain(|row| row.iter().any(|entry| !matches!(entry, Entry::None)));
    grid
}
