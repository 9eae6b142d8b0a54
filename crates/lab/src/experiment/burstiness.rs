//! The plots of `burstiness`: how many events a server gets at once, and how many of its processes can run
//! (latency-and-connection-scheduling, Figs 13 to 17). Pure.

use std::collections::BTreeMap;

use super::data::Data;
use super::inside::{Bucket, Inside};
use super::plan::Plan;
use crate::testbed::Moment;
use flash_kit::sheet::{Axis, Division, Plot, Unit};

/// The servers with many processes.
const PROCESSES: [&str; 2] = ["MP 64", "MP 256"];

fn distribution(weights: &BTreeMap<u64, f64>, unit: f64) -> Vec<(f64, f64)> {
    let all: f64 = weights.values().sum();
    let mut sum = 0.0;
    let mut points = Vec::new();
    for (value, weight) in weights {
        sum += weight;
        points.push((*value as f64 / unit, sum / all));
    }
    points
}

/// For each variant, the weights over all of its rounds.
fn lines(
    data: Data<'_>,
    unit: f64,
    of: impl Fn(&Inside, &mut BTreeMap<u64, f64>),
) -> Vec<(String, Vec<(f64, f64)>)> {
    let line = |name: &String| {
        let mut weights = BTreeMap::new();
        data.inside
            .iter()
            .filter(|inside| inside.variant == *name)
            .for_each(|inside| of(inside, &mut weights));
        (name.clone(), distribution(&weights, unit))
    };
    let names = data.run.subjects.iter().map(|subject| &subject.name);
    names.map(line).filter(|(_, points)| !points.is_empty()).collect()
}

pub(super) fn plots(data: Data<'_>, _: &Plan) -> Vec<Plot> {
    /// Shares of processes are counted in thousandths.
    const PER_MILLE: f64 = 1000.0;
    let events = |of: fn(&Bucket) -> f64| {
        lines(data, 1.0, move |inside, weights| {
            inside
                .dispatches
                .iter()
                .for_each(|bucket| *weights.entry(bucket.to).or_insert(0.0) += of(bucket));
        })
    };
    let plot = |title: &str, x: Axis, lines| Plot {
        title: title.to_owned(),
        x,
        y: Axis::new("share", Unit::Share, Division::Share),
        lines,
        table: None,
    };
    let axis = || Axis::new("events of a dispatch, at most", Unit::Number, Division::Log);
    let states = lines(data, PER_MILLE, |inside, weights| {
        for Moment { runnable, all } in inside.moments.iter().filter(|moment| moment.all > 1) {
            let share = f64::from(*runnable) / f64::from(*all);
            *weights.entry((share * PER_MILLE) as u64).or_insert(0.0) += 1.0;
        }
    });
    let states = states.into_iter().filter(|(name, _)| PROCESSES.contains(&name.as_str())).collect();
    vec![
        plot("Dispatches with so many events", axis(), events(|bucket| bucket.count as f64)),
        plot(
            "Events in dispatches of so many",
            axis(),
            events(|bucket| bucket.count as f64 * bucket.to as f64),
        ),
        plot(
            "Moments with so many runnable processes",
            Axis::new("share of the processes, at most", Unit::Share, Division::Share),
            states,
        ),
    ]
}
