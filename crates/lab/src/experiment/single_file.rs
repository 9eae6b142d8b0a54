//! `single-file`: one file in memory, over and over (flash-1999, section 6.1, Figs 6 and 7). Pure.

use super::data::{Data, Measure};
use super::finding::{Bound, CLEAR, Finding, MUCH_THE_SAME};
use super::plan::{Ask, Cpu, Load, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, AMPED, MP, MT, SPED};
use flash_kit::number::size;
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// Lengths of files: the papers' plots go to 200 kB.
const LENGTHS: [u64; 9] = [500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 150_000, 200_000];
const LENGTHS_QUICK: [u64; 3] = [1_000, 10_000, 100_000];
/// The length of which the four architectures are compared more closely.
const COMPARED: u64 = 10_000;
/// "Small" is at most this, in bytes.
const SMALL: f64 = 20_000.0;
/// Clients without pause: two machines with 32 each.
pub(super) const CLIENTS: u32 = 64;
/// The server's share of its core, where that can be bounded: less than the generator needs for it, so that the
/// server is the limit.
pub(super) const CPU: Cpu = Cpu { percent: 50, is_needed: false };

/// A point for each length; a connection for each request, as in 1999.
pub(super) fn points(lengths: &[u64], duration_s: f64) -> Vec<Point> {
    let point = |(number, length): (usize, &u64)| Point {
        name: size(*length as f64),
        x: *length as f64,
        ask: Ask::File(number),
        load: Load::Infinite(CLIENTS),
        requests_per_connection: 1,
        duration_s,
    };
    lengths.iter().enumerate().map(point).collect()
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let lengths = scale.pick(LENGTHS.to_vec(), LENGTHS_QUICK.to_vec());
    let scene = Scene { cpu: Some(CPU), ..Scene::of(0, points(&lengths, scale.pick(5.0, 1.5))) };
    let variants = [variants::architectures(), variants::peers(scale)].concat();
    Plan {
        variants,
        sets: vec![Set::Lengths(lengths)],
        scenes: vec![scene],
        rounds: ROUNDS,
        looks_inside: false,
    }
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let all: Vec<String> = plan.points().iter().map(|point| point.name.clone()).collect();
    let others = [SPED, MP, MT];
    let alike = |point: &[String]| {
        let one =
            |name: &&str| data.compare_at(point, name, AMPED, Measure::Rate, Bound::Alike(MUCH_THE_SAME));
        others.iter().flat_map(one).collect()
    };
    let mean = |left: &str, right: &str, bound| data.compare_over(&all, left, right, Measure::Rate, bound);
    let mut findings = vec![
        Finding::new(
            "single-file/alike",
            "flash-1999, 6.1",
            "The architecture has little impact on a trivial, cached workload",
            alike(&all),
        ),
        Finding::new(
            "single-file/alike-10k",
            "Flash's own bound",
            "At 10 kB the four are within 15 % of each other",
            alike(&[size(COMPARED as f64)]),
        ),
        Finding::new(
            "single-file/sped-first",
            "flash-1999, 6.1",
            "SPED slightly outperforms AMPED, which tests whether files are in memory",
            vec![mean(SPED, AMPED, Bound::AtLeast(1.0))],
        ),
        Finding::new(
            "single-file/mt-mp-lag",
            "flash-1999, 6.1",
            "MT and MP lag slightly, by context switches and the like",
            vec![mean(MT, AMPED, Bound::AtMost(1.0)), mean(MP, AMPED, Bound::AtMost(1.0))],
        ),
    ];
    for peer in plan.variants.iter().filter(|variant| variant.name.starts_with("apache")) {
        findings.push(Finding::new(
            "single-file/apache",
            "flash-1999, 6.1",
            "Apache is significantly slower, over the entire range of file sizes",
            data.compare_at(&all, &peer.name, AMPED, Measure::Rate, Bound::AtMost(CLEAR)),
        ));
    }
    for peer in plan.variants.iter().filter(|variant| variant.name.starts_with("nginx")) {
        findings.push(Finding::new(
            "single-file/event-driven-peer",
            "flash-1999, 6.1",
            "Flash compares favourably with the fastest event-driven server of its time (Zeus; here nginx)",
            vec![mean(AMPED, &peer.name, Bound::AtLeast(1.0))],
        ));
    }
    findings
}

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let length = || Axis::new("file size", Unit::Bytes, Division::Log);
    let points = plan.points();
    let small: Vec<&Point> = points.iter().copied().filter(|point| point.x <= SMALL).collect();
    vec![
        plots::against(data, &points, Measure::Bandwidth, "Bandwidth", (length(), plots::bandwidth())),
        plots::against(
            data,
            &small,
            Measure::Rate,
            "Small files",
            (length(), plots::rate("connections per second")),
        ),
    ]
}
