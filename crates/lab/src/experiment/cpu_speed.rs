//! `cpu-speed`: does a faster processor make latency shorter? (blocking-induced-latency, section 5.4, Table 6 and Figs
//! 22 to 24). Pure.
//!
//! The paper has three generations of processors; here one gets 10, 30 or 100 % of a core.

use super::data::{Data, Measure};
use super::finding::{Bound, Check, Finding};
use super::new_flash::{CLIENTS, PER_CONNECTION, TIMES_MEMORY};
use super::plan::{Ask, Cpu, Load, Plan, Point, ROUNDS, Scale, Scene, Set, Variant};
use super::plots;
use super::variants::{self, NEW, OLD};
use flash_kit::sheet::{Axis, Division, Grid, Plot, Unit};

const PERCENT: [u32; 3] = [10, 30, 100];
const PERCENT_QUICK: [u32; 2] = [10, 100];
/// Data sets in times of the memory: 0.5 and 3 GB of 1 GB.
const SETS: [(&str, f64); 2] = [("disk-bound", TIMES_MEMORY), ("in memory", 0.5)];
/// The load at which latencies are compared.
const LOAD: f64 = 0.9;
/// "Scales well": at least half of the factor by which the processor is faster.
const SHARE_OF_FACTOR: f64 = 0.5;
/// "Only minor improvement."
const MINOR: f64 = 2.0;

fn name(set: &str, percent: u32, is_demand: bool) -> String {
    let load = if is_demand { "infinite demand".to_owned() } else { format!("load {LOAD:.2}") };
    format!("{set}, {percent} % CPU, {load}")
}

fn percent(scale: &Scale) -> Vec<u32> {
    scale.pick(PERCENT.to_vec(), PERCENT_QUICK.to_vec())
}

fn scene(scale: &Scale, (set, times): (&str, f64), percent: u32) -> Scene {
    let ask = Ask::Directories(scale.directories(times));
    let point = |is_demand: bool, duration_s| Point {
        name: name(set, percent, is_demand),
        x: f64::from(percent),
        ask,
        load: if is_demand {
            Load::Infinite(CLIENTS)
        } else {
            Load::Fraction(LOAD, name(set, percent, true))
        },
        requests_per_connection: PER_CONNECTION,
        duration_s,
    };
    let points = vec![point(true, scale.pick(12.0, 5.0)), point(false, scale.pick(12.0, 4.0))];
    let cpu = (percent < 100).then_some(Cpu { percent, is_needed: true });
    Scene { is_bounded: true, cpu, warm_up_s: scale.pick(5.0, 2.0), ..Scene::of(0, points) }
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let scenes = SETS
        .iter()
        .flat_map(|set| percent(scale).into_iter().map(move |percent| scene(scale, *set, percent)));
    let apache = variants::peers(scale).into_iter().filter(is_apache).collect();
    Plan {
        variants: [variants::step(OLD), variants::step(NEW), apache].concat(),
        sets: vec![Set::Specweb99 { directories: scale.directories(TIMES_MEMORY) }],
        scenes: scenes.collect(),
        rounds: ROUNDS,
        looks_inside: false,
    }
}

fn is_apache(variant: &Variant) -> bool {
    variant.name.starts_with("apache")
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points = plan.points();
    let ends = points.iter().map(|point| point.x as u32);
    let (Some(slow), Some(fast)) = (ends.clone().min(), ends.max()) else { return Vec::new() };
    let [(disk, _), (memory, _)] = SETS;
    let factor = f64::from(fast) / f64::from(slow);
    let old_ones: Vec<&str> = plan
        .variants
        .iter()
        .filter(|variant| variant.name != NEW)
        .map(|variant| variant.name.as_str())
        .collect();
    let scaling = |variant: &str, set, bound| {
        let [left, right] = [fast, slow].map(|percent| name(set, percent, true));
        data.compare((variant, &left), (variant, &right), Measure::Bandwidth, bound)
    };
    let latency = |variant: &str, set, bound| {
        let [left, right] = [slow, fast].map(|percent| name(set, percent, false));
        data.compare((variant, &left), (variant, &right), Measure::Mean, bound)
    };
    let [slow_level, fast_level] = [slow, fast].map(|percent| name(disk, percent, false));
    let pair = |variant| ((variant, slow_level.as_str()), (variant, fast_level.as_str()));
    let what = "mean latency, slow over fast, New-Flash against old Flash";
    let gain = data.compare_ratios(what, pair(NEW), pair(OLD), Measure::Mean, Bound::AtLeast(1.0));
    let higher: Vec<Check> = PERCENT
        .iter()
        .filter(|percent| points.iter().any(|point| point.x == f64::from(**percent)))
        .map(|percent| {
            let point = name(disk, *percent, true);
            data.compare((NEW, &point), (OLD, &point), Measure::Bandwidth, Bound::AtLeast(1.0))
        })
        .collect();
    let memory_level = name(memory, fast, false);
    let below = |variant: &&str| {
        data.compare((variant, &memory_level), (variant, &fast_level), Measure::Mean, Bound::AtMost(0.5))
    };
    let new = |id: &str, paper: &str, checks| {
        Finding::new(id, "blocking-induced-latency, 5.4, Table 6, Figs 22 to 24", paper, checks)
    };
    let well = Bound::AtLeast(factor * SHARE_OF_FACTOR);
    let minor = Bound::AtMost(MINOR);
    vec![
        new(
            "cpu-speed/in-memory",
            "In memory, capacity scales well with the processor's speed",
            old_ones.iter().map(|variant| scaling(variant, memory, well)).collect(),
        ),
        new(
            "cpu-speed/minor",
            "Disk-bound, the old servers' latencies show only minor improvement with a faster processor",
            old_ones.iter().map(|variant| latency(variant, disk, minor)).collect(),
        ),
        new(
            "cpu-speed/below",
            "At the same relative load latencies in memory are much lower than disk-bound ones",
            old_ones.iter().map(below).collect(),
        ),
        new(
            "cpu-speed/gain",
            "A faster processor shortens the new server's latency, and more than the old one's",
            vec![latency(NEW, disk, Bound::AtLeast(1.0)), gain],
        ),
        new("cpu-speed/capacity", "The new server's disk-bound capacity is higher at every speed", higher),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let mut plots = Vec::new();
    for (set, _) in SETS {
        let of = |is_demand: bool| -> Vec<&Point> {
            let is_its = |point: &&Point| {
                point.name.starts_with(set) && matches!(point.load, Load::Infinite(_)) == is_demand
            };
            plan.points().into_iter().filter(is_its).collect()
        };
        let axis = || Axis::new("share of a core, percent", Unit::Number, Division::Log);
        let capacity = format!("Capacity, {set}");
        plots.push(plots::against(
            data,
            &of(true),
            Measure::Bandwidth,
            &capacity,
            (axis(), plots::bandwidth()),
        ));
        let mean = format!("Mean latency at load {LOAD}, {set}");
        plots.push(plots::against(
            data,
            &of(false),
            Measure::Mean,
            &mean,
            (axis(), plots::latency("latency")),
        ));
    }
    plots
}

/// Table 6.
pub(super) fn grid(data: Data<'_>, plan: &Plan) -> Grid {
    let points = plan.points();
    let demand = points.iter().filter(|point| matches!(point.load, Load::Infinite(_)));
    let columns: Vec<(&str, &str, Measure)> =
        demand.map(|point| (point.name.as_str(), point.name.as_str(), Measure::Bandwidth)).collect();
    plots::table(data, "Capacities, Mb/s", &columns)
}
