//! Plots and tables of the measurements, those that do not count included: medians of the rounds, and the least and the most of them in
//! the tables.
//!
//! The experiments call it for their pages. Pure.

use super::claims;
use super::data::{Data, Measure};
use super::plan::{Plan, Point};
use super::spec::{ExperimentSpec, PlotSpec, TableSpec};
use crate::statistics::Sample;
use flash_kit::section::{Cell, Table};
use flash_kit::sheet::{Axis, Division, Plot, Unit};

pub(super) fn plots(spec: &ExperimentSpec, data: Data<'_>, plan: &Plan) -> Vec<Plot> {
    let plot = |plot: &PlotSpec| {
        let names = claims::points(plan, plot.points.as_deref().unwrap_or("*"));
        let is_its = |point: &&Point| {
            names.contains(&point.name.as_str()) && point.x <= plot.x_max.unwrap_or(f64::INFINITY)
        };
        let points: Vec<&Point> = plan.points().into_iter().filter(is_its).collect();
        let [title, unit, division] = &plot.x;
        let unit = if unit == "bytes" { Unit::Bytes } else { Unit::Number };
        let division = match division.as_str() {
            "log" => Division::Log,
            "values" => Division::Values,
            _ => Division::Linear,
        };
        let axes = (Axis::new(title, unit, division), axis(plot.measure, plot.y.as_deref()));
        against(data, &points, plot.measure, &plot.title, axes)
    };
    spec.plot.iter().map(plot).collect()
}

fn axis(measure: Measure, title: Option<&str>) -> Axis {
    let own = match measure.name {
        "bandwidth" => "bandwidth, Mb/s",
        "rate" => "answers per second",
        "inversion" => "service inversion",
        _ => return latency(title.unwrap_or("latency")),
    };
    Axis::new(title.unwrap_or(own), Unit::Number, Division::Linear)
}

pub(super) fn latency(title: &str) -> Axis {
    Axis::new(title, Unit::Milliseconds, Division::Log)
}

pub(super) fn of_spec(spec: &TableSpec, data: Data<'_>, plan: &Plan) -> Table {
    let columns = spec.columns.iter().flat_map(|column| {
        let points = claims::points(plan, &column.at).into_iter();
        points.map(|point| (column.head.replace("{point}", point), point, column.measure))
    });
    let columns: Vec<(String, &str, Measure)> = columns.collect();
    let last = claims::points(plan, "last").first().copied().unwrap_or_default();
    table(data, &spec.title.replace("{last}", last), &columns)
}

pub(super) fn cell(sample: Option<Sample>) -> Cell {
    Cell::maybe(sample, |sample| {
        let (low, high) = sample.ends();
        Cell::rounds(sample.median(), low, high)
    })
}

/// A measure of every server against the points' place on the axis.
pub(super) fn against(
    data: Data<'_>,
    points: &[&Point],
    measure: Measure,
    title: &str,
    axes: (Axis, Axis),
) -> Plot {
    let names = || data.run.subjects.iter().map(|subject| subject.name.as_str());
    let names: Vec<&str> = names()
        .filter(|name| points.iter().any(|p| data.measured(name, &p.name, measure).is_some()))
        .collect();
    let line = |name: &&str| {
        let spot = |point: &&Point| {
            (point.x, data.measured(name, &point.name, measure).map_or(f64::NAN, |s| s.median()))
        };
        ((*name).to_owned(), points.iter().map(spot).collect())
    };
    let row = |point: &&Point| {
        let figures = names.iter().map(|name| cell(data.measured(name, &point.name, measure)));
        [Cell::Text(point.name.clone())].into_iter().chain(figures).collect()
    };
    let columns =
        [axes.0.title.clone()].into_iter().chain(names.iter().map(|name| (*name).to_owned())).collect();
    let table = Table {
        title: format!("{title}: {}", axes.1.title),
        columns,
        rows: points.iter().map(row).collect(),
    };
    Plot {
        title: title.to_owned(),
        lines: names.iter().map(line).collect(),
        table: Some(table),
        x: axes.0,
        y: axes.1,
    }
}

pub(super) fn table(data: Data<'_>, title: &str, columns: &[(String, &str, Measure)]) -> Table {
    let row = |name: &String| {
        let figures = columns.iter().map(|(_, point, measure)| cell(data.measured(name, point, *measure)));
        [Cell::Text(name.clone())].into_iter().chain(figures).collect::<Vec<_>>()
    };
    let names = data.run.subjects.iter().map(|subject| &subject.name);
    let rows = names.map(row).filter(|row| row[1..].iter().any(|cell| *cell != Cell::None));
    let heads = columns.iter().map(|(head, ..)| head.clone());
    let rows = rows.collect();
    Table { title: title.to_owned(), columns: ["server".to_owned()].into_iter().chain(heads).collect(), rows }
}
