//! `cwnd`: the mean latency against the cap on what one connection has in flight, on a link that is nearly full
//! (latency-and-connection-scheduling, section 6.3, Fig 18). Pure.
//!
//! There the load is 0.90 of the server's capacity, whose bottleneck is the network. Here it is 0.90 of a link, whose
//! bottleneck is a router or the server's own device: in the queue of its own device Linux keeps only a few packets of each
//! connection (TCP small queues), and the paper's system kept a whole window.

use super::data::{Data, Measure};
use super::finding::{Bound, Finding};
use super::plan::{Ask, Bottleneck, Line, Load, Phases, Plan, Point, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, NO_CAP};
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// The caps, in bytes: from the least that Flash can keep to the most.
pub(super) const CAPS: [u64; 6] = [12_288, 16_384, 32_768, 65_536, 131_072, 524_288];
const CAPS_QUICK: [u64; 3] = [12_288, 32_768, 131_072];
/// The directories of the SPECweb99 set: 10 MB, which fit into memory.
const DIRECTORIES: u32 = 20;
const RATE_BITS_PER_S: u64 = 50_000_000;
/// The round trip of the paper's local network.
const ROUND_TRIP_MS: f64 = 0.5;
const LEVEL: &str = "60s@0.9";
/// The points: connections of one request, and those that stay.
const ONE: &str = "one request per connection";
const KEPT: &str = "persistent connections";
/// The same with the bottleneck at the server's own device.
const ONE_DEVICE: &str = "one request, own device";
const KEPT_DEVICE: &str = "persistent, own device";
/// Mean latencies no further apart than this are alike.
const ALIKE: f64 = 0.8;
/// Clients of the paper keep a connection for this many requests, about, as SPECweb99 does.
const REQUESTS: u32 = 10;
/// 33 ms become 10 ms; half of that factor counts.
const FACTOR: f64 = 33.0 / 10.0 / 2.0;
const SOURCE: &str = "latency-and-connection-scheduling, 6.3, Fig 18";

fn caps(scale: &Scale) -> Vec<u64> {
    scale.pick(CAPS.to_vec(), CAPS_QUICK.to_vec())
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let point = |(name, requests_per_connection): (&str, u32)| Point {
        name: name.to_owned(),
        x: f64::from(requests_per_connection),
        ask: Ask::Directories(DIRECTORIES),
        load: Load::Phases(Phases { periods: LEVEL.to_owned(), abort: None }),
        requests_per_connection,
        duration_s: scale.pick(30.0, 12.0),
    };
    let scene = |(bottleneck, one, kept): (Bottleneck, &str, &str)| {
        let line = Line {
            rate_bits_per_s: RATE_BITS_PER_S,
            round_trip_ms: ROUND_TRIP_MS,
            loss: 0.0,
            packet_bytes: 1500,
            has_syn_cookies: false,
            bottleneck,
        };
        let points = [(one, 1), (kept, REQUESTS)].map(point).to_vec();
        Scene { line: Some(line), ..Scene::of(0, points) }
    };
    Plan {
        variants: variants::caps(&caps(scale)),
        sets: vec![Set::Specweb99 { directories: DIRECTORIES }],
        scenes: [(Bottleneck::Router, ONE, KEPT), (Bottleneck::Device, ONE_DEVICE, KEPT_DEVICE)]
            .map(scene)
            .to_vec(),
        rounds: ROUNDS,
        looks_inside: false,
    }
}

/// The cap of a variant; none for the one without.
fn cap_of(name: &str) -> Option<u64> {
    CAPS.into_iter().find(|cap| variants::cap_name(*cap) == name)
}

pub(super) fn findings(data: Data<'_>, plan: &Plan) -> Vec<Finding> {
    let capped: Vec<(&str, u64)> =
        plan.variants.iter().filter_map(|v| Some((v.name.as_str(), cap_of(&v.name)?))).collect();
    let (Some((smallest, _)), Some((largest, _))) = (capped.first(), capped.last()) else {
        return Vec::new();
    };
    // About the mean size of a response, 14 KB: the smallest caps.
    let gain =
        |point| data.compare((NO_CAP, point), (smallest, point), Measure::Response, Bound::AtLeast(FACTOR));
    vec![
        Finding::new(
            "cwnd/gain",
            SOURCE,
            "A cap of about the mean size of a response lowers the mean latency, there from 33 to 10 ms",
            vec![gain(ONE), gain(KEPT)],
        ),
        Finding::new(
            "cwnd/larger",
            SOURCE,
            "Larger caps penalize small responses and increase the mean latency",
            [ONE, KEPT]
                .map(|point| {
                    data.compare((largest, point), (smallest, point), Measure::Response, Bound::AtLeast(1.0))
                })
                .to_vec(),
        ),
        Finding::new(
            "cwnd/persistent",
            SOURCE,
            "Without a cap, connections of one request have a lower mean latency than persistent ones",
            vec![data.compare((NO_CAP, KEPT), (NO_CAP, ONE), Measure::Response, Bound::AtLeast(1.0))],
        ),
        Finding::new(
            "cwnd/device",
            "Flash's own expectation",
            "Where packets wait at the server's own device, a cap changes little: TCP small queues do the same",
            [ONE_DEVICE, KEPT_DEVICE]
                .map(|point| {
                    data.compare((NO_CAP, point), (smallest, point), Measure::Response, Bound::Alike(ALIKE))
                })
                .to_vec(),
        ),
        Finding::new(
            "cwnd/throughput",
            "Flash's own bound",
            "The smallest cap does not lower the throughput of a link with a short round trip",
            [ONE, KEPT]
                .map(|point| {
                    data.compare((smallest, point), (NO_CAP, point), Measure::Bandwidth, Bound::AtLeast(0.95))
                })
                .to_vec(),
        ),
    ]
}

/// Fig 18: a line for each kind of connection; no cap stands where the next larger one would.
pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let line = |title: &str, point: &&Point, measure| {
        let spot = |variant: &super::plan::Variant| {
            let cap = cap_of(&variant.name).unwrap_or(2 * CAPS[CAPS.len() - 1]);
            Some((cap as f64, data.measured(&variant.name, &point.name, measure)?.median()))
        };
        let mut spots: Vec<(f64, f64)> = plan.variants.iter().filter_map(spot).collect();
        spots.sort_by(|a, b| a.0.total_cmp(&b.0));
        (format!("{}{title}", point.name), spots)
    };
    let plot = |title: &str, measure| Plot {
        title: title.to_owned(),
        x: Axis::new("cap of a connection; the largest is none", Unit::Bytes, Division::Log),
        y: plots::latency("response time"),
        lines: plan.points().iter().map(|point| line("", point, measure)).collect(),
        grid: Some(plots::table(
            data,
            title,
            &[
                ("one request", ONE, measure),
                ("persistent", KEPT, measure),
                (ONE_DEVICE, ONE_DEVICE, measure),
                (KEPT_DEVICE, KEPT_DEVICE, measure),
            ],
        )),
    };
    vec![plot("Mean response time", Measure::Response), plot("Largest 1 % of the requests", Measure::Largest)]
}
