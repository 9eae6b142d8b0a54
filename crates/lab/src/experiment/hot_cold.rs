//! `hot-cold`: Flash's promise, on the four architectures: does the disk delay requests whose answers are in memory?
//! (blocking-induced-latency, section 3.5 and Fig 8; `flash interfere` is the same test on any server.) Pure.
//!
//! Hot files are small and each is asked for several times a second, so they stay in memory; each cold one is asked
//! for once. A connection has one request, so that a process or thread for each is enough.

use super::data::{Data, Measure};
use super::finding::{Bound, Finding};
use super::plan::{Ask, Beside, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, AMPED, MP, MT, SPED};
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// Directories of hot files: 10 MB.
const HOT_DIRECTORIES: u32 = 20;
const HOT_PER_S: f64 = 2_000.0;
/// Cold requests in a second; their files take more than one read each.
const COLD_PER_S: [f64; 4] = [0.0, 20.0, 60.0, 120.0];
const COLD_PER_S_QUICK: [f64; 2] = [0.0, 60.0];
/// How large the set is, in times of the memory.
const TIMES_MEMORY: f64 = 3.0;
/// "Not delayed" allows this factor: less than the time of one read of the disk.
const FACTOR: f64 = 3.0;
/// "Delayed by the disk" is at least this factor.
const DELAYED: f64 = 10.0;

fn name(cold_per_s: f64) -> String {
    if cold_per_s > 0.0 { format!("{cold_per_s} cold requests/s") } else { "no cold requests".to_owned() }
}

fn rates(scale: &Scale) -> Vec<f64> {
    scale.pick(COLD_PER_S.to_vec(), COLD_PER_S_QUICK.to_vec())
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let directories = scale.directories(TIMES_MEMORY).max(HOT_DIRECTORIES + COLD_PER_S.len() as u32);
    let rates = rates(scale);
    // Each point has cold files of its own.
    let share = (directories - HOT_DIRECTORIES) / rates.len() as u32;
    let point = |(number, rate): (u32, &f64)| {
        let first = HOT_DIRECTORIES + number * share;
        let load = Beside {
            hot_directories: HOT_DIRECTORIES,
            hot_rate_per_s: HOT_PER_S,
            cold_directories: first..first + share,
            cold_rate_per_s: Some(*rate).filter(|rate| *rate > 0.0),
        };
        Point {
            name: name(*rate),
            x: *rate,
            ask: Ask::Directories(directories),
            load: Load::Beside(load),
            requests_per_connection: 1,
            duration_s: scale.pick(15.0, 6.0),
        }
    };
    let points = (0..).zip(&rates).map(point).collect();
    Plan {
        variants: [variants::architectures(), variants::peers(scale)].concat(),
        sets: vec![Set::Specweb99 { directories }],
        scenes: vec![Scene { is_bounded: true, warm_up_s: 1.0, ..Scene::of(0, points) }],
        rounds: ROUNDS,
        looks_inside: false,
    }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points: Vec<String> = plan.points().iter().map(|point| point.name.clone()).collect();
    let Some((alone, beside)) = points.split_first() else { return Vec::new() };
    let grows = |variant: &str, measure, bound| {
        beside.iter().map(|point| data.compare((variant, point), (variant, alone), measure, bound)).collect()
    };
    let last = beside.last().unwrap_or(alone).as_str();
    let below = [SPED, MP, MT]
        .map(|other| data.compare((AMPED, last), (other, last), Measure::P99, Bound::AtMost(1.0)));
    vec![
        Finding::new(
            "hot-cold/promise",
            "Flash's promise",
            "A request whose answer is in memory never waits for the disk: AMPED's p99 stays where it is",
            grows(AMPED, Measure::P99, Bound::AtMost(FACTOR)),
        ),
        Finding::new(
            "hot-cold/first",
            "Flash's promise",
            "Disk-bound, at equal memory, AMPED's hot p99 is below that of each other architecture",
            below.to_vec(),
        ),
        Finding::new(
            "hot-cold/sped",
            "blocking-induced-latency, 3.5",
            "A few requests for the disk delay most requests in memory, where one loop does both",
            vec![data.compare((SPED, last), (SPED, alone), Measure::P50, Bound::AtLeast(DELAYED))],
        ),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let plot = |title: &str, measure| {
        let cold = Axis::new("cold requests per second", Unit::Number, Division::Values);
        plots::against(
            data,
            &plan.points(),
            measure,
            title,
            (cold, plots::latency("latency of hot requests")),
        )
    };
    vec![plot("Median", Measure::P50), plot("99th percentile", Measure::P99)]
}
