//! The plots and the table of `overload`: response times with the link shared equally (FAIR) and with the shortest responses first (SRPT)
//! (overload-and-srpt, section 4), and the theory beside them. Pure.

mod model;

use super::data::{Data, Measure};
use super::plan::{Plan, Point};
use super::plots;
use flash_kit::section::{Cell, Column, Table, table};
use flash_kit::sheet::{Axis, Division, Plot, Unit};
use flash_load::measure::Overload;
use model::Model;

const FAIR: &str = "Flash FAIR";
const SRPT: &str = "Flash SRPT";
/// The workload of Table 2, and the setup of all its factors together.
const W1: &str = "W1";
const REALISTIC: &str = "J: realistic";
const PERSISTENT: &str = "persistent overload";
const THEORY: [&str; 2] = ["FAIR, theory", "SRPT, theory"];
/// Points of a line of theory over time.
const MOMENTS: u32 = 200;

pub(super) fn plots(data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let points: Vec<&Point> = plan.points().into_iter().filter(|point| is_workload(point)).collect();
    let models: Vec<Option<Model>> = points.iter().map(|point| Model::of(plan, point)).collect();
    let by_workload = |title: &str, measure, theory: &dyn Fn(&Model) -> [f64; 2]| {
        let axis = Axis::new("workload, W1 to W9", Unit::Number, Division::Values);
        let mut plot = plots::against(data, &points, measure, title, (axis, plots::latency("response time")));
        for (number, name) in THEORY.iter().enumerate() {
            let spot = |(point, model): (&&Point, &Option<Model>)| {
                Some((point.x, theory(model.as_ref()?)[number] * 1000.0))
            };
            plot.lines.push(((*name).to_owned(), points.iter().zip(&models).filter_map(spot).collect()));
        }
        plot
    };
    let mean = |model: &Model| [model.fair.mean_s(), model.srpt.mean_s()];
    let largest =
        |model: &Model| [&model.fair.by_size, &model.srpt.by_size].map(|by_size| model.largest_s(by_size));
    let mut plots = vec![
        by_workload("Mean response time", Measure::RESPONSE, &mean),
        by_workload("Largest 1 % of the requests", Measure::LARGEST, &largest),
    ];
    let first = points.iter().position(|point| point.name == W1);
    let model = first.and_then(|number| models[number].as_ref());
    plots.extend([
        over_time(data, W1),
        connections(data, W1, model),
        by_size(data, W1, model),
        over_time(data, REALISTIC),
        by_size(data, REALISTIC, None),
        connections(data, PERSISTENT, None),
        over_time(data, PERSISTENT),
    ]);
    plots
}

fn is_workload(point: &Point) -> bool {
    point.name.starts_with('W')
}

/// A line for each server with the figures of overload at a point, all rounds together.
fn lines(
    data: Data<'_>,
    point: &str,
    figures: impl Fn(&Overload) -> Vec<(f64, f64)>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let line = |subject: &crate::results::Subject| {
        let level = subject.levels.iter().find(|level| level.name == point)?;
        Some((subject.name.clone(), figures(level.overload.as_ref()?)))
    };
    data.run.subjects.iter().filter_map(line).collect()
}

/// A plot without a table of its own: its points are many.
fn plot(title: &str, axes: (Axis, Axis), lines: Vec<(String, Vec<(f64, f64)>)>) -> Plot {
    Plot { title: title.to_owned(), x: axes.0, y: axes.1, lines, table: None }
}

fn seconds() -> Axis {
    Axis::new("seconds from the beginning of the overload", Unit::Number, Division::Linear)
}

/// Figs 5 (right), 6 and 8.
fn over_time(data: Data<'_>, point: &str) -> Plot {
    let figures = |overload: &Overload| {
        let spot = |(step, at): (usize, &flash_load::measure::TimePoint)| {
            Some(((step as f64 + 0.5) * overload.step_s, at.mean_ms?))
        };
        overload.over_time.iter().enumerate().filter_map(spot).collect()
    };
    let axes = (seconds(), plots::latency("mean response time of the requests that began then"));
    plot(&format!("Response time over time, {point}"), axes, lines(data, point, figures))
}

/// Figs 5 (left) and 10 (left).
fn connections(data: Data<'_>, point: &str, model: Option<&Model>) -> Plot {
    let figures = |overload: &Overload| {
        let spot = |(step, at): (usize, &flash_load::measure::OpenPoint)| {
            ((step as f64 + 0.5) * overload.step_s, at.established + at.connecting)
        };
        overload.open.iter().enumerate().map(spot).collect()
    };
    let mut all = lines(data, point, figures);
    if let Some(model) = model {
        let moment = |number: u32| model.cycle_s() * f64::from(number) / f64::from(MOMENTS);
        let of = |at: &dyn Fn(f64) -> f64| (0..=MOMENTS).map(|n| (moment(n), at(moment(n)))).collect();
        all.push((THEORY[0].to_owned(), of(&|at_s| model.fair.number_at(at_s))));
        all.push((THEORY[1].to_owned(), of(&|at_s| model.srpt.number_at(at_s))));
    }
    let axis = Axis::new("connections of the clients", Unit::Number, Division::Linear);
    plot(&format!("Connections over time, {point}"), (seconds(), axis), all)
}

/// Figs 7 and 10 (right).
fn by_size(data: Data<'_>, point: &str, model: Option<&Model>) -> Plot {
    let figures = |overload: &Overload| {
        let spot = |band: &flash_load::measure::SizeBand| {
            Some(((band.from_share + band.to_share) / 2.0, band.latency?.mean_ms))
        };
        overload.by_size.iter().filter_map(spot).collect()
    };
    let mut all = lines(data, point, figures);
    if let Some(model) = model {
        let in_ms = |line: Vec<(f64, f64)>| line.into_iter().map(|(x, s)| (x, s * 1000.0)).collect();
        all.push((THEORY[0].to_owned(), in_ms(model.by_share(&model.fair.by_size))));
        all.push((THEORY[1].to_owned(), in_ms(model.by_share(&model.srpt.by_size))));
    }
    let axis = Axis::new("requests, the smallest first", Unit::Number, Division::Share);
    plot(&format!("Response time by size, {point}"), (axis, plots::latency("mean response time")), all)
}

/// Table 2 with its results: Figs 6 and 8.
pub(super) fn setups(data: Data<'_>, plan: &Plan) -> Table {
    let is_setup = |point: &&Point| point.name == W1 || !is_workload(point) && point.name != PERSISTENT;
    let points = plan.points();
    let of = |variant, name: &str, measure| data.measured(variant, name, measure);
    let gain = |name: &str| {
        let both = of(FAIR, name, Measure::RESPONSE).zip(of(SRPT, name, Measure::RESPONSE));
        both.map(|(fair, srpt)| fair.over(&srpt))
    };
    let columns: [Column<'_, &str>; 10] = [
        ("setup", &|name| Cell::text(if *name == W1 { "A: baseline" } else { name })),
        ("FAIR, mean ms", &|name| plots::cell(of(FAIR, name, Measure::RESPONSE))),
        ("SRPT, mean ms", &|name| plots::cell(of(SRPT, name, Measure::RESPONSE))),
        ("FAIR over SRPT", &|name| plots::cell(gain(name))),
        ("FAIR, largest 1 %, ms", &|name| plots::cell(of(FAIR, name, Measure::LARGEST))),
        ("SRPT, largest 1 %, ms", &|name| plots::cell(of(SRPT, name, Measure::LARGEST))),
        ("FAIR, incomplete", &|name| plots::cell(of(FAIR, name, Measure::INCOMPLETE))),
        ("SRPT, incomplete", &|name| plots::cell(of(SRPT, name, Measure::INCOMPLETE))),
        ("FAIR, most connections", &|name| plots::cell(of(FAIR, name, Measure::OPEN_MAX))),
        ("SRPT, most connections", &|name| plots::cell(of(SRPT, name, Measure::OPEN_MAX))),
    ];
    let names = points.into_iter().filter(is_setup).map(|point| point.name.as_str());
    table("The setups of Table 2 on W1, and the trace of NASA", &columns, names)
}
