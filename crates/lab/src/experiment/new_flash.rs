//! `new-flash`: the gain of each step away from blocking (blocking-induced-latency, section 5, Table 5 and Figs 5,
//! 16 and 19). Pure.

use super::data::{Data, Measure};
use super::finding::{Bound, Check, Finding};
use super::plan::{Ask, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, FD_PASS, NEW, NO_MMAP, OLD};
use flash_kit::sheet::{Axis, Division, Grid, Plot, Unit};

/// Infinite demand, and fractions of what it gives. The table of the paper is at the highest.
pub(super) const DEMAND: &str = "infinite demand";
const LEVELS: [f64; 4] = [0.2, 0.5, 0.8, 0.95];
const LEVELS_QUICK: [f64; 2] = [0.2, 0.95];
/// Clients without pause (blocking-induced-latency, section 2.4).
pub(super) const CLIENTS: u32 = 1024;
/// Requests on a connection (section 2.3).
pub(super) const PER_CONNECTION: u32 = 5;
/// 3 GB of files beside 1 GB of memory.
pub(super) const TIMES_MEMORY: f64 = 3.0;
/// A factor of the paper counts as found when at least this share of it is.
const SHARE_OF_FACTOR: f64 = 0.5;

pub(super) fn level_name(level: f64) -> String {
    format!("load {level:.2}")
}

/// Infinite demand, then levels.
pub(super) fn points(directories: u32, levels: &[f64], duration_s: (f64, f64)) -> Vec<Point> {
    let ask = Ask::Directories(directories);
    let point = |name: String, x, load, duration_s| Point {
        name,
        x,
        ask,
        load,
        requests_per_connection: PER_CONNECTION,
        duration_s,
    };
    let demand = point(DEMAND.to_owned(), f64::NAN, Load::Infinite(CLIENTS), duration_s.0);
    let level = |level: &f64| {
        point(level_name(*level), *level, Load::Fraction(*level, DEMAND.to_owned()), duration_s.1)
    };
    [demand].into_iter().chain(levels.iter().map(level)).collect()
}

fn levels(scale: &Scale) -> Vec<f64> {
    scale.pick(LEVELS.to_vec(), LEVELS_QUICK.to_vec())
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let directories = scale.directories(TIMES_MEMORY);
    // Under infinite demand the disk has an answer for each client to read before the rate is what it can keep up.
    let points = points(directories, &levels(scale), scale.pick((15.0, 20.0), (10.0, 7.0)));
    let warm_up_s = scale.pick(8.0, 4.0);
    Plan {
        variants: variants::steps(),
        sets: vec![Set::Specweb99 { directories }],
        scenes: vec![Scene { is_bounded: true, warm_up_s, ..Scene::of(0, points) }],
        rounds: ROUNDS,
        looks_inside: false,
    }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points: Vec<&Point> = plan.points().into_iter().filter(|point| point.x.is_finite()).collect();
    let (Some(low), Some(high)) = (points.first(), points.last()) else { return Vec::new() };
    let (low, high) = (low.name.as_str(), high.name.as_str());
    let at_high = |left, right, measure, bound| data.compare((left, high), (right, high), measure, bound);
    let factor = |from, to, measure, factor: f64| -> Check {
        at_high(from, to, measure, Bound::AtLeast(factor * SHARE_OF_FACTOR))
    };
    let growth = |variant, bound| data.compare((variant, high), (variant, low), Measure::P95, bound);
    let mean_over_p95 = {
        let both = data.sample(NEW, high, Measure::P95).zip(data.sample(NEW, high, Measure::Mean));
        both.map_or_else(
            || Check::missing(&data.why_missing(NEW, high)),
            |(p95, mean)| {
                let what = format!("{NEW}, 95th percentile over mean at {high}");
                Check::of(&what, &p95.over(&mean), Bound::AtMost(1.0))
            },
        )
    };
    let new = |id: &str, paper: &str, checks| {
        Finding::new(id, "blocking-induced-latency, 5.2, Table 5", paper, checks)
    };
    let capacity = data.compare((NEW, DEMAND), (OLD, DEMAND), Measure::Bandwidth, Bound::AtLeast(1.0));
    let inversion = at_high(NEW, OLD, Measure::Inversion, Bound::AtMost(0.6));
    vec![
        new("new-flash/capacity", "Flash's capacity increases, by 34 % there", vec![capacity]),
        new(
            "new-flash/median",
            "The median latency improves 40 times",
            vec![factor(OLD, NEW, Measure::P50, 40.0)],
        ),
        new(
            "new-flash/mean",
            "The mean latency improves 6 times",
            vec![factor(OLD, NEW, Measure::Mean, 6.0)],
        ),
        new(
            "new-flash/p90",
            "The 90th percentile improves 54 times",
            vec![factor(OLD, NEW, Measure::P90, 54.0)],
        ),
        new(
            "new-flash/fd-pass",
            "Passing descriptors alone improves the median 5.8 times and the mean 3.6 times",
            vec![factor(OLD, FD_PASS, Measure::P50, 5.8), factor(OLD, FD_PASS, Measure::Mean, 3.6)],
        ),
        new(
            "new-flash/no-mmap",
            "Without mmap, and so without knowing what is in memory, the mean gets worse again",
            vec![at_high(NO_MMAP, FD_PASS, Measure::Mean, Bound::AtLeast(1.0))],
        ),
        new(
            "new-flash/sendfile",
            "A sendfile that does not block lowers the mean 3 times",
            vec![factor(NO_MMAP, NEW, Measure::Mean, 3.0)],
        ),
        new(
            "new-flash/level",
            "The 95th percentile of New-Flash grows less than three times with load, that of old Flash far more",
            vec![growth(NEW, Bound::AtMost(3.0)), growth(OLD, Bound::AtLeast(3.0))],
        ),
        new("new-flash/tail", "New-Flash's 95th percentile is below its mean", vec![mean_over_p95]),
        new("new-flash/inversion", "Service inversion falls by over 40 %", vec![inversion]),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let points: Vec<&Point> = plan.points().into_iter().filter(|point| point.x.is_finite()).collect();
    let plot = |title: &str, measure| {
        let load = Axis::new("load, of each server's capacity", Unit::Number, Division::Values);
        plots::against(data, &points, measure, title, (load, plots::latency("latency")))
    };
    let mut plots = vec![
        plot("Median latency", Measure::P50),
        plot("Mean latency", Measure::Mean),
        plot("95th percentile", Measure::P95),
    ];
    let load = Axis::new("load, of each server's capacity", Unit::Number, Division::Values);
    let inversion = Axis::new("service inversion", Unit::Number, Division::Linear);
    plots.push(plots::against(data, &points, Measure::Inversion, "Service inversion", (load, inversion)));
    plots
}

/// Table 5.
pub(super) fn grid(data: Data<'_>, plan: &Plan) -> Grid {
    let points = plan.points();
    let high = points.last().map_or(DEMAND, |point| point.name.as_str());
    let title = format!("Capacities, and latencies at {high}");
    plots::table(
        data,
        &title,
        &[
            ("capacity, Mb/s", DEMAND, Measure::Bandwidth),
            ("capacity, answers/s", DEMAND, Measure::Rate),
            ("median, ms", high, Measure::P50),
            ("mean, ms", high, Measure::Mean),
            ("90th percentile, ms", high, Measure::P90),
        ],
    )
}
