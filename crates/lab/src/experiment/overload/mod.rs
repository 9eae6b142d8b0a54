//! `overload`: response times when the load of the uplink alternates between overload and low load, with the link shared
//! equally (FAIR) and with the shortest responses first (SRPT): overload-and-srpt, section 4, Tables 1 and 2, Figs 6 to 9.
//! Pure.
//!
//! The paper's link has 10 Mbit/s and its periods last 2 to 50 s. Here the link is `speed` times faster, and periods, round
//! trips and the patience of users are as many times shorter. Each response then waits for as many others as in the paper, and
//! a run takes less time. The timers of TCP stay as they are, which makes losses dearer than there.

mod findings;
mod model;
mod shown;

use super::behind;
use super::plan::{Ask, Bottleneck, Line, Load, Phases, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::variants::{self, EGRESS, FAIR, SRPT};
use flash_load::fileset::PARETO_BYTES;
use flash_load::workload::PhasePlan;

pub(super) use findings::findings;
pub(super) use shown::{plots, setups as grid};

/// The paper's link (section 3.2).
const RATE_BITS_PER_S: f64 = 10e6;
/// How many times faster everything is.
const SPEED: f64 = 4.0;
const SPEED_QUICK: f64 = 5.0;
/// The workload of Table 2.
const W1: &str = "W1";
/// The other workloads of Table 1.
const OTHERS: [&str; 8] = ["W2", "W3", "W4", "W5", "W6", "W7", "W8", "W9"];
/// The length of packets (Table 2).
const PACKET_BYTES: u32 = 1500;
const PACKET_BYTES_SHORT: u32 = 536;

/// A row of Table 2, and the factor by which SRPT is better than FAIR there: the least that the paper names.
struct Setup {
    /// The paper's letter and the factor that it adds to the baseline.
    name: &'static str,
    round_trip_ms: f64,
    loss: f64,
    requests_per_connection: u32,
    has_syn_cookies: bool,
    abort: Option<(f64, u8)>,
    packet_bytes: u32,
    factor: f64,
}

const BASELINE: Setup = Setup {
    name: W1,
    round_trip_ms: 0.0,
    loss: 0.0,
    requests_per_connection: 1,
    has_syn_cookies: false,
    abort: None,
    packet_bytes: PACKET_BYTES,
    factor: 4.0,
};

/// Table 2 without A, which is the baseline, and F, the initial retransmission timeout, for which Linux has no setting.
const SETUPS: [Setup; 8] = [
    Setup { name: "B: WAN delay", round_trip_ms: 100.0, factor: 2.5, ..BASELINE },
    Setup { name: "C: loss of 5 %", loss: 0.05, factor: 2.0, ..BASELINE },
    Setup { name: "D: WAN delay and loss", round_trip_ms: 100.0, loss: 0.05, factor: 2.0, ..BASELINE },
    Setup { name: "E: 5 requests per connection", requests_per_connection: 5, factor: 3.0, ..BASELINE },
    Setup { name: "G: SYN cookies", has_syn_cookies: true, ..BASELINE },
    Setup { name: "H: user aborts", abort: Some((10.0, 3)), factor: 8.0, ..BASELINE },
    Setup { name: "I: short packets", packet_bytes: PACKET_BYTES_SHORT, factor: 6.0, ..BASELINE },
    REALISTIC,
];

/// All of it together.
const REALISTIC: Setup = Setup {
    name: "J: realistic",
    round_trip_ms: 100.0,
    loss: 0.05,
    requests_per_connection: 5,
    abort: Some((7.0, 3)),
    factor: 1.5,
    ..BASELINE
};

impl Setup {
    fn scene(&self, workloads: &[&str], speed: f64) -> Scene {
        let line = Line {
            rate_bits_per_s: (RATE_BITS_PER_S * speed) as u64,
            round_trip_ms: self.round_trip_ms / speed,
            loss: self.loss,
            packet_bytes: self.packet_bytes,
            has_syn_cookies: self.has_syn_cookies,
            bottleneck: Bottleneck::Device,
        };
        let point = |workload: &&str| {
            let is_baseline = self.name == BASELINE.name;
            Point {
                name: if is_baseline { (*workload).to_owned() } else { self.name.to_owned() },
                // Where the baseline stands on the axis of the workloads.
                x: workload.trim_start_matches('W').parse().unwrap_or(0.0),
                ask: Ask::Pareto,
                load: Load::Phases(Phases {
                    periods: (*workload).to_owned(),
                    abort: self.abort.map(|(after_s, retries)| (after_s / speed, retries)),
                }),
                requests_per_connection: self.requests_per_connection,
                duration_s: periods_s(workload) / speed,
            }
        };
        let points = workloads.iter().map(point).collect();
        Scene { line: Some(line), warm_up_s: 1.0, ..Scene::of(0, points) }
    }
}

/// How long the periods of a workload are in the paper.
fn periods_s(workload: &str) -> f64 {
    let plan: Option<PhasePlan> = workload.parse().ok();
    plan.map_or(0.0, |plan| plan.duration_s())
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let speed = scale.pick(SPEED, SPEED_QUICK);
    let only = |names: &[&str], scene: Scene| Scene {
        only: names.iter().map(|name| (*name).to_owned()).collect(),
        ..scene
    };
    let mut scenes = vec![BASELINE.scene(&[W1], speed), only(&[FAIR, SRPT], BASELINE.scene(&OTHERS, speed))];
    for setup in SETUPS {
        let is_realistic = setup.name == REALISTIC.name;
        if is_realistic || !scale.quick {
            let names: &[&str] = if is_realistic { &[FAIR, SRPT, EGRESS] } else { &[FAIR, SRPT] };
            scenes.push(only(names, setup.scene(&[W1], speed)));
        }
    }
    Plan {
        variants: [variants::schedules((RATE_BITS_PER_S * speed) as u64), variants::peers(scale)].concat(),
        sets: vec![Set::Pareto { set_bytes: PARETO_BYTES }],
        scenes,
        rounds: ROUNDS,
        looks_inside: false,
    }
}

/// The points of the baseline: the workloads that were planned.
fn workloads(plan: &Plan) -> Vec<&Point> {
    let of_baseline = |point: &&Point| point.name == W1 || OTHERS.contains(&point.name.as_str());
    plan.points().into_iter().filter(of_baseline).collect()
}

/// The setups that were planned, without the baseline.
fn planned(plan: &Plan) -> Vec<Setup> {
    let is_planned = |setup: &Setup| plan.points().iter().any(|point| point.name == setup.name);
    SETUPS.into_iter().filter(is_planned).collect()
}
