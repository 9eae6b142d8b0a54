//! `clients`: throughput against the number of persistent connections (flash-1999, section 6.4, Fig 12). Pure.
//!
//! MP and MT have a process or thread for each connection, as many as there are clients.

use super::data::{Data, Measure};
use super::finding::{Bound, CLEAR, Check, Finding, LARGE};
use super::plan::{Ask, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, AMPED, MP, MT, SPED};
use crate::report::sheet::{Axis, Division, Plot, Unit};

/// The paper goes to 500 clients; machines of today carry more.
const CLIENTS: [u32; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];
const CLIENTS_QUICK: [u32; 4] = [1, 20, 200, 2_000];
/// From here on the paper's event-driven servers stay level.
const MANY: u32 = 200;
/// The data set in times of the memory: 90 MB of 128 MB.
const TIMES_MEMORY: f64 = 0.7;
/// What counts as a rise.
const RISE: f64 = 1.1;
/// What counts as staying level.
const LEVEL: f64 = 0.8;

fn name(clients: u32) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let directories = scale.directories(TIMES_MEMORY);
    let scene = |clients: &u32| {
        let point = Point {
            name: name(*clients),
            x: f64::from(*clients),
            ask: Ask::Directories(directories),
            load: Load::Infinite(*clients),
            requests_per_connection: u32::MAX,
            duration_s: scale.pick(6.0, 2.0),
        };
        let warm_up_s = scale.pick(3.0, 1.5);
        let clients = Some(*clients);
        Scene { is_bounded: true, warm_up_s, clients, ..Scene::of(0, vec![point]) }
    };
    Plan {
        variants: variants::architectures_for_clients(),
        sets: vec![Set::Specweb99 { directories }],
        scenes: scale.pick(CLIENTS.to_vec(), CLIENTS_QUICK.to_vec()).iter().map(scene).collect(),
        rounds: ROUNDS,
        looks_inside: false,
    }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let points = plan.points();
    let has =
        |variant: &str, point: &&&Point| data.sample(variant, &point.name, Measure::Bandwidth).is_some();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return Vec::new() };
    let many = name(MANY);
    // The most clients that were run: with more, a process or thread for each is too much.
    let most = |variant: &str| {
        points
            .iter()
            .rev()
            .find(|point| has(variant, point))
            .map_or(last.name.as_str(), |point| point.name.as_str())
    };
    let compare = |variant: &str, left: &str, right: &str, bound| {
        data.compare((variant, left), (variant, right), Measure::Bandwidth, bound)
    };
    let rise = |variant: &str| compare(variant, &many, &first.name, Bound::AtLeast(RISE));
    let level = |variant: &str| compare(variant, most(variant), &many, Bound::AtLeast(LEVEL));
    let decline = |variant: &str, bound| -> Check {
        let middle = points.iter().filter(|point| has(variant, point));
        let value = |point: &&Point| {
            data.sample(variant, &point.name, Measure::Bandwidth).map_or(0.0, |sample| sample.median())
        };
        let best = middle.max_by(|a, b| value(a).total_cmp(&value(b)));
        let best = best.map_or(first.name.as_str(), |point| point.name.as_str());
        if best == most(variant) {
            return compare(variant, best, &first.name, Bound::AtMost(1.0));
        }
        compare(variant, most(variant), best, bound)
    };
    let new = |id: &str, paper: &str, checks| Finding::new(id, "flash-1999, 6.4, Fig 12", paper, checks);
    vec![
        new(
            "clients/rise",
            "SPED, AMPED and MT first rise with the number of connections",
            [SPED, AMPED, MT].map(rise).to_vec(),
        ),
        new(
            "clients/level",
            "Beyond 200 connections SPED and AMPED stay level",
            [SPED, AMPED].map(level).to_vec(),
        ),
        new(
            "clients/mt",
            "MT declines gradually, by switches and space for each thread",
            vec![decline(MT, Bound::AtMost(CLEAR))],
        ),
        new(
            "clients/mp",
            "MP declines significantly, by its many caches and the cost of each process",
            vec![decline(MP, Bound::AtMost(LARGE))],
        ),
    ]
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let axis = || Axis::new("persistent connections", Unit::Number, Division::Log);
    let points = plan.points();
    vec![
        plots::against(data, &points, Measure::Bandwidth, "Bandwidth", (axis(), plots::bandwidth())),
        plots::against(data, &points, Measure::P50, "Median latency", (axis(), plots::latency("latency"))),
    ]
}
