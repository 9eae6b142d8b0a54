//! `flashpache`: Apache and nginx as they are, and with names and files warmed by Flash's backend
//! (blocking-induced-latency, 5.1 and 5.2, Table 5, Figs 17 and 19). Pure.
//!
//! The paper modified Apache only; its statements on Flashpache are asked of nginx too. Unlike there, a server and its
//! gated form get the same load: fractions of the capacity of the one without the gate.

use super::data::{Data, Measure};
use super::finding::{Bound, Check, Finding};
use super::new_flash::{self, DEMAND, TIMES_MEMORY};
use super::plan::{Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, GATED};
use flash_kit::sheet::{Axis, Division, Grid, Plot, Unit};

const LEVELS: [f64; 4] = [0.2, 0.5, 0.8, 0.95];
const LEVELS_QUICK: [f64; 1] = [0.8];
/// Clients without pause. Fewer than the paper's 1,024: each of them comes to wait for the disk before the rate is what
/// the disk allows, which takes 1,024 clients longer than a measurement.
const CLIENTS: u32 = 64;
/// A factor of the paper counts as found when at least this share of it is.
const SHARE_OF_FACTOR: f64 = 0.5;
const SOURCE: &str = "blocking-induced-latency, 5.2, Table 5";

pub(super) fn plan(scale: &Scale) -> Plan {
    let directories = scale.directories(TIMES_MEMORY);
    let levels = scale.pick(LEVELS.to_vec(), LEVELS_QUICK.to_vec());
    let mut points = new_flash::points(directories, &levels, scale.pick((15.0, 20.0), (7.0, 6.0)));
    for point in &mut points {
        if matches!(point.load, Load::Infinite(_)) {
            point.load = Load::Infinite(CLIENTS);
        }
    }
    let warm_up_s = scale.pick(20.0, 8.0);
    Plan {
        variants: variants::gated(),
        sets: vec![Set::Specweb99 { directories }],
        scenes: vec![Scene { is_bounded: true, warm_up_s, ..Scene::of(0, points) }],
        rounds: ROUNDS,
        looks_inside: false,
    }
}

/// The points with a level.
fn levels(plan: &Plan) -> Vec<&Point> {
    plan.points().into_iter().filter(|point| point.x.is_finite()).collect()
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let levels = levels(plan);
    let (Some(low), Some(high)) = (levels.first(), levels.last()) else { return Vec::new() };
    let (low, high) = (low.name.as_str(), high.name.as_str());
    let of_pair = |(server, stock, gated): &(&str, &str, &str)| {
        let at = |point, left, right, measure, bound| -> Check {
            data.compare((left, point), (right, point), measure, bound)
        };
        let factor = |measure, factor: f64| {
            at(high, *stock, *gated, measure, Bound::AtLeast(factor * SHARE_OF_FACTOR))
        };
        let new = |id: &str, source: &str, paper: &str, check| {
            Finding::new(&format!("flashpache/{server}-{id}"), source, paper, vec![check])
        };
        let capacity = at(DEMAND, *gated, *stock, Measure::Bandwidth, Bound::AtLeast(1.0));
        let growth = data.compare((gated, high), (gated, low), Measure::P95, Bound::AtMost(3.0));
        let inversion = at(high, *gated, *stock, Measure::Inversion, Bound::AtMost(0.6));
        let mut findings = vec![
            new("capacity", SOURCE, "The capacity increases, by 13 % there", capacity),
            new("median", SOURCE, "The median latency improves 6 times", factor(Measure::P50, 6.0)),
            new("mean", SOURCE, "The mean latency improves 15 times", factor(Measure::Mean, 15.0)),
            new("p90", SOURCE, "The 90th percentile improves 72 times", factor(Measure::P90, 72.0)),
            new(
                "inversion",
                "blocking-induced-latency, 5.3, Fig 19",
                "Service inversion is almost halved under high load",
                inversion,
            ),
        ];
        if low != high {
            findings.push(new(
                "level",
                "blocking-induced-latency, 5.2, Fig 17",
                "The 95th percentile of Flashpache grows less than three times with load",
                growth,
            ));
        }
        findings
    };
    GATED.iter().flat_map(of_pair).collect()
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let points = levels(plan);
    let load = || Axis::new("load, of the capacity without the gate", Unit::Number, Division::Values);
    let plot = |title: &str, measure| {
        plots::against(data, &points, measure, title, (load(), plots::latency("latency")))
    };
    let mut plots = vec![
        plot("Median latency", Measure::P50),
        plot("Mean latency", Measure::Mean),
        plot("90th percentile", Measure::P90),
        plot("95th percentile", Measure::P95),
    ];
    let inversion = Axis::new("service inversion", Unit::Number, Division::Linear);
    plots.push(plots::against(data, &points, Measure::Inversion, "Service inversion", (load(), inversion)));
    plots
}

/// Table 5.
pub(super) fn grid(data: Data<'_>, plan: &Plan) -> Grid {
    let levels = levels(plan);
    let high = levels.last().map_or(DEMAND, |point| point.name.as_str());
    let title = format!("Capacities, and latencies at {high} of the capacity without the gate");
    plots::table(
        data,
        &title,
        &[
            ("capacity, Mb/s", DEMAND, Measure::Bandwidth),
            ("capacity, answers/s", DEMAND, Measure::Rate),
            ("answers/s", high, Measure::Rate),
            ("median, ms", high, Measure::P50),
            ("mean, ms", high, Measure::Mean),
            ("90th percentile, ms", high, Measure::P90),
            ("inversion", high, Measure::Inversion),
        ],
    )
}
