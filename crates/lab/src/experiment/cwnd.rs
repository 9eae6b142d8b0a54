//! The plots of `cwnd`: a measure against the cap on what one connection has in flight (latency-and-connection-scheduling, Fig 18).
//! Pure.

use super::data::{Data, Measure};
use super::plan::{Plan, Point, Variant};
use super::plots;
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// The place of no cap on the axis: twice the most.
const NO_CAP_BYTES: f64 = 1_048_576.0;
/// The points, and what they are called in the table.
const COLUMNS: [(&str, &str); 4] = [
    ("one request", "one request per connection"),
    ("persistent", "persistent connections"),
    ("one request, own device", "one request, own device"),
    ("persistent, own device", "persistent, own device"),
];

/// The cap of a variant; none for the one without.
fn cap_bytes(variant: &Variant) -> Option<f64> {
    let at = variant.flash.iter().position(|word| word == "--cwnd-cap")?;
    variant.flash.get(at + 1)?.parse().ok()
}

/// Fig 18: a line for each kind of connection; no cap stands where the next larger one would.
pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let line = |point: &&Point, measure| {
        let spot = |variant: &Variant| {
            let cap = cap_bytes(variant).unwrap_or(NO_CAP_BYTES);
            Some((cap, data.measured(&variant.name, &point.name, measure)?.median()))
        };
        let mut spots: Vec<(f64, f64)> = plan.variants.iter().filter_map(spot).collect();
        spots.sort_by(|a, b| a.0.total_cmp(&b.0));
        (point.name.clone(), spots)
    };
    let plot = |title: &str, measure| Plot {
        title: title.to_owned(),
        x: Axis::new("cap of a connection; the largest is none", Unit::Bytes, Division::Log),
        y: plots::latency("response time"),
        lines: plan.points().iter().map(|point| line(point, measure)).collect(),
        table: Some(plots::table(
            data,
            title,
            &COLUMNS.map(|(head, point)| (head.to_owned(), point, measure)),
        )),
    };
    vec![plot("Mean response time", Measure::RESPONSE), plot("Largest 1 % of the requests", Measure::LARGEST)]
}
