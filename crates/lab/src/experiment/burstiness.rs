//! `burstiness`: how many events a server gets at once, and how many of its processes can run
//! (latency-and-connection-scheduling, sections 6.1 and 6.2, Figs 13 to 17). Pure.
//!
//! The figures are the server's own, and those of /proc: no client sees them.

use std::collections::BTreeMap;

use super::data::{Data, Measure};
use super::finding::{Bound, Finding};
use super::inside::{
    Bucket, DISPATCHES, EVENTS_MAX, EVENTS_MEAN, EVENTS_P50, EVENTS_P999, IDLE_SHARE, Inside, RUNNABLE_SHARE,
    WEIGHTED_P50,
};
use super::new_flash::{CLIENTS, DEMAND, TIMES_MEMORY, points};
use super::plan::{Plan, ROUNDS, Scale, Scene, Set};
use super::plots;
use super::variants::{self, NEW, OLD};
use crate::testbed::Moment;
use flash_kit::sheet::{Axis, Division, Grid, Plot, Unit};

/// Processes of MP: four times as many in the second, as in the paper, which has 256 and 1,024 in twice the memory.
const PROCESSES: [u32; 2] = [64, 256];
/// The figures of the paper: events per dispatch before and after, and how much more often the new server dispatches.
const EVENTS_FACTOR: f64 = 61.0 / 1.6;
const DISPATCHES_FACTOR: f64 = 400.0;
/// A factor of the paper counts as found when at least this share of it is.
const SHARE_OF_FACTOR: f64 = 0.5;
/// "Fewer than 10 events."
const FEW: f64 = 9.0;

fn mp(processes: u32) -> String {
    variants::mp(processes).name
}

pub(super) fn plan(scale: &Scale) -> Plan {
    let directories = scale.directories(TIMES_MEMORY);
    let points = points(directories, &[], scale.pick((30.0, 0.0), (6.0, 0.0)));
    let warm_up_s = scale.pick(8.0, 4.0);
    Plan {
        variants: [variants::steps(), PROCESSES.map(variants::mp).to_vec()].concat(),
        sets: vec![Set::Specweb99 { directories }],
        scenes: vec![Scene { is_bounded: true, warm_up_s, ..Scene::of(0, points) }],
        rounds: ROUNDS,
        looks_inside: true,
    }
}

pub(super) fn findings(data: Data<'_>, _: &Plan) -> Vec<Finding> {
    let (old, new) = ((OLD, DEMAND), (NEW, DEMAND));
    let factor = |left, right, name, factor: f64| {
        data.compare(left, right, Measure::Inside(name), Bound::AtLeast(factor * SHARE_OF_FACTOR))
    };
    let [few, many] = PROCESSES.map(mp);
    let [few, many] = [(few.as_str(), DEMAND), (many.as_str(), DEMAND)];
    let idle = Measure::Inside(IDLE_SHARE);
    let events = |id: &str, paper: &str, checks| {
        Finding::new(id, "latency-and-connection-scheduling, 6.1", paper, checks)
    };
    vec![
        events(
            "burstiness/events",
            "Events per dispatch fall from 61 to 1.6 on average",
            vec![factor(old, new, EVENTS_MEAN, EVENTS_FACTOR)],
        ),
        events(
            "burstiness/few",
            "99.9 % of New-Flash's dispatches return fewer than 10 events",
            vec![data.figure(new, Measure::Inside(EVENTS_P999), Bound::AtMost(FEW))],
        ),
        events(
            "burstiness/dispatches",
            "New-Flash dispatches almost four hundred times as often",
            vec![factor(new, old, DISPATCHES, DISPATCHES_FACTOR)],
        ),
        Finding::new(
            "burstiness/processes",
            "latency-and-connection-scheduling, 6.2",
            "With four times as many processes, more time passes in which all of them are blocked",
            vec![data.difference(many, few, idle, Bound::AtLeast(0.0))],
        ),
        Finding::new(
            "burstiness/idle",
            "latency-and-connection-scheduling, 6.2",
            "Under full load all processes are blocked for a good part of the time: 20 % and 40 %",
            [few, many].map(|cell| data.figure(cell, idle, Bound::AtLeast(0.1))).to_vec(),
        ),
    ]
}

/// Points of a distribution from weights of values.
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
        grid: None,
    };
    let axis = || Axis::new("events of a dispatch, at most", Unit::Number, Division::Log);
    let states = lines(data, PER_MILLE, |inside, weights| {
        for Moment { runnable, all } in inside.moments.iter().filter(|moment| moment.all > 1) {
            let share = f64::from(*runnable) / f64::from(*all);
            *weights.entry((share * PER_MILLE) as u64).or_insert(0.0) += 1.0;
        }
    });
    let states = states.into_iter().filter(|(name, _)| PROCESSES.map(mp).contains(name)).collect();
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

/// The figures behind the distributions.
pub(super) fn grid(data: Data<'_>, _: &Plan) -> Grid {
    let inside = |head, name| (head, DEMAND, Measure::Inside(name));
    let title = format!("{CLIENTS} clients without pause");
    plots::table(
        data,
        &title,
        &[
            inside("events per dispatch, mean", EVENTS_MEAN),
            inside("median", EVENTS_P50),
            inside("99.9th percentile", EVENTS_P999),
            inside("most", EVENTS_MAX),
            inside("median of events", WEIGHTED_P50),
            inside("dispatches/s", DISPATCHES),
            inside("moments with none runnable", IDLE_SHARE),
            inside("share runnable", RUNNABLE_SHARE),
            ("answers/s", DEMAND, Measure::Rate),
        ],
    )
}
