//! `clients`: throughput against the number of persistent connections (flash-1999, section 6.4, Fig 12). Pure.
//!
//! MP and MT have a process or thread for each connection, as many as there are clients.

use super::data::{Data, Measure};
use super::finding::{Bound, CLEAR, Finding, LARGE};
use super::plan::{Ask, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, AMPED, MP, MT, SPED};
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// The paper goes to 500 clients; machines of today carry more.
const CLIENTS: [u32; 12] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000];
const CLIENTS_QUICK: [u32; 4] = [1, 20, 200, 1_000];
/// From here on the paper's event-driven servers stay level, and MP and MT decline. A decline is measured from this point:
/// the best of several points would be the luckiest one.
const MANY: u32 = 200;
/// The most clients that MP and MT can have a process or thread for, of the points above.
const MOST: u32 = 1_000;
/// The data set in times of the memory: 90 MB of 128 MB.
const TIMES_MEMORY: f64 = 0.7;
/// A rise is at least this factor.
const RISE: f64 = 1.1;
/// To stay level is to keep at least this share.
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

pub(super) fn findings(data: Data<'_>, _: &Plan) -> Vec<Finding> {
    let compare = |variant: &str, left: u32, right: u32, bound| {
        let (left, right) = (name(left), name(right));
        data.compare((variant, &left), (variant, &right), Measure::Bandwidth, bound)
    };
    let rise = |variant: &str| compare(variant, MANY, 1, Bound::AtLeast(RISE));
    let level = |variant: &str| compare(variant, MOST, MANY, Bound::AtLeast(LEVEL));
    let decline = |variant: &str, bound| compare(variant, MOST, MANY, bound);
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
