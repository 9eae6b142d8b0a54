//! The sections that compare levels of load: the latency profile, inversion, data set sizes.
//!
//! The page calls it. All figures come from the run. Pure.

use maud::Markup;

use super::view::{Level, Picked, Shown, View, has_latency, line, section};
use crate::results::Capacity;
use flash_kit::bars::{self, Row, Rows};
use flash_kit::chart::{Chart, Line, chart, heights, places, together};
use flash_kit::scale::{Scale, Unit};
use flash_kit::section::{Cell, Column, Section, Table, columns, table};
use flash_kit::style::Style;
use flash_kit::text::distinct;
use flash_load::measure::{Latency, Measures};

type Measure = (&'static str, fn(&Latency) -> f64);

/// The first is the plot above all others; the others follow below the summary.
const MEASURES: [Measure; 5] = [
    ("99th percentile", |latency| latency.p99_ms),
    ("median", |latency| latency.p50_ms),
    ("mean", |latency| latency.mean_ms),
    ("95th percentile", |latency| latency.p95_ms),
    ("5th percentile", |latency| latency.p5_ms),
];
/// Those of a sweep.
const SWEPT: [Measure; 3] = [MEASURES[0], MEASURES[1], MEASURES[2]];
/// The y axis of latencies; its ticks have the units.
const LATENCY: &str = "latency (log scale)";

/// Latency against load; of named levels, their ranges.
pub(super) fn profile(view: &View) -> Section {
    let loads = load_levels(view);
    let mut profile = section("profile", "Latency", "");
    if loads.len() > 1 {
        let load_1 = if is_of_own_capacity(view) {
            "Load 1 is each server's own capacity."
        } else {
            "Load 1 is not each server's own capacity: see the arrivals in the setup."
        };
        let lead = format!("{load_1} A line that stays low and level is good.");
        profile = section("profile", "Latency against load", &lead);
        profile.charts = if view.drawn().count() == 1 {
            alone(view, &loads).iter().chain(&against_rate(view)).map(Chart::draw).collect()
        } else {
            let charts: Vec<Chart> =
                overlaid(view, &loads, &MEASURES[..1]).into_iter().chain(against_rate(view)).collect();
            together(&charts)
        };
    }
    if loads.len() < 2
        || view.drawn().any(|shown| shown.subject.levels.iter().any(|m| m.load_level.is_none()))
    {
        profile.charts.extend(named_ranges(view));
    }
    profile
}

/// The other percentiles against load, and the figures of every level.
pub(super) fn levels(view: &View) -> Section {
    let loads = load_levels(view);
    let has_charts = loads.len() > 1 && view.drawn().count() > 1;
    Section {
        charts: if has_charts { together(&overlaid(view, &loads, &MEASURES[1..])) } else { Vec::new() },
        tables: vec![levels_table(view), rounds_table(view)],
        ..section("levels", "Latency at each level", "")
    }
}

fn load_levels(view: &View) -> Vec<f64> {
    let levels = view.drawn().flat_map(|shown| &shown.subject.levels);
    let mut loads: Vec<f64> =
        levels.filter_map(|measures| measures.load_level).filter(|load| load.is_finite()).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    loads
}

/// The points of a subject: something of each level against something else.
fn points(
    shown: &Shown,
    x: impl Fn(&Measures) -> Option<f64>,
    y: impl Fn(&Measures) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let known = shown.subject.levels.iter().filter(|measures| has_latency(measures));
    let mut points: Vec<(f64, f64)> =
        known.filter_map(|measures| Some((x(measures)?, y(measures).unwrap_or(f64::NAN)))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

fn lines<'a>(view: &'a View, of: impl Fn(&Shown) -> Vec<(f64, f64)> + 'a) -> Vec<Line> {
    let lines = view.drawn().map(|shown| line(&shown.label, &shown.style, of(shown)));
    lines.filter(|line| !line.points.is_empty()).collect()
}

/// Whether every load level that is drawn is a fraction of the capacity that was found of its server.
pub(super) fn is_of_own_capacity(view: &View) -> bool {
    /// Rounding makes a difference of at most this share.
    const OFF_MAX: f64 = 1e-6;
    view.drawn().all(|shown| {
        let capacity = shown.subject.capacity.as_ref().map_or(0.0, |found| found.requests_per_s);
        let mut asked = shown.subject.levels.iter().filter_map(|m| Some((m.load_level?, m.asked_per_s?)));
        asked.all(|(level, rate)| (level * capacity / rate - 1.0).abs() < OFF_MAX)
    })
}

fn load_chart(view: &View, title: &str, loads: &[f64], y: (&str, Scale), lines: Vec<Line>) -> Chart {
    let x_title = if is_of_own_capacity(view) { "load, fraction of the server's capacity" } else { "load" };
    chart(title, (x_title, Scale::at(Unit::Number, loads)), y, lines)
}

/// A chart for each measure, so that servers are compared. They share an axis: heights compare too.
fn overlaid(view: &View, loads: &[f64], measures: &[Measure]) -> Vec<Chart> {
    let of = |(_, measure): &Measure| {
        lines(view, |shown| points(shown, |m| m.load_level, |m| Some(measure(&m.latency))))
    };
    let all: Vec<f64> = measures.iter().flat_map(|measure| heights(&of(measure))).collect();
    let y = Scale::log(Unit::Milliseconds, all);
    let chart = |measure: &Measure| {
        load_chart(view, &format!("Latency, {}", measure.0), loads, (LATENCY, y.clone()), of(measure))
    };
    measures.iter().map(chart).collect()
}

/// All measures of the only subject in one chart (blocking-induced-latency, figures 4 and 5).
fn alone(view: &View, loads: &[f64]) -> Option<Chart> {
    let shown = view.drawn().next()?;
    let names = ["p99", "p50", "mean", "p95", "p5"];
    let of_measure = |(index, (name, measure)): (usize, (&str, &Measure))| {
        line(name, &Style::of(index), points(shown, |m| m.load_level, |m| Some(measure.1(&m.latency))))
    };
    let lines: Vec<Line> = names.into_iter().zip(&MEASURES).enumerate().map(of_measure).collect();
    let y = Scale::log(Unit::Milliseconds, heights(&lines));
    Some(load_chart(view, &format!("{}: latency", shown.label), loads, (LATENCY, y), lines))
}

/// Latency against the rate of answers, which a relative load hides.
fn against_rate(view: &View) -> Option<Chart> {
    let rate = |m: &Measures| m.load_level.and(Some(m.answered_per_s)).filter(|rate| rate.is_finite());
    let lines = lines(view, |shown| points(shown, rate, |m| Some(m.latency.p99_ms)));
    let x = Scale::linear(Unit::Number, 0.0, places(&lines));
    let y = Scale::log(Unit::Milliseconds, heights(&lines));
    let title = "Latency, 99th percentile, against answers/s";
    (!lines.is_empty()).then(|| chart(title, ("answers/s", x), (LATENCY, y), lines))
}

/// The range of latency of levels that have a name rather than a load.
fn named_ranges(view: &View) -> Option<Markup> {
    let has_loads = load_levels(view).len() > 1;
    let mut picked: Vec<Picked> = Vec::new();
    for shown in view.drawn() {
        let levels =
            shown.subject.levels.iter().filter(|m| has_latency(m) && !(has_loads && m.load_level.is_some()));
        let is_alone = view.drawn().count() == 1;
        let label = |m: &Measures| match flash_kit::number::plain(&m.name) {
            name if is_alone => name,
            name => format!("{} {name}", shown.label),
        };
        picked.extend(levels.map(|m| Picked { label: label(m), style: shown.style.clone(), measures: m }));
    }
    ranges(
        "Latency: 5th percentile to longest; thick: median to 99th percentile",
        picked.iter().map(|p| (p, "", &p.measures.latency)),
    )
}

/// A chart of ranges of latency; none without a row.
pub(super) fn ranges<'a, 'b: 'a>(
    title: &str,
    entries: impl Iterator<Item = (&'a Picked<'b>, &'static str, &'a Latency)>,
) -> Option<Markup> {
    let row = |(picked, what, latency): (&Picked, &str, &Latency)| Row {
        label: if what.is_empty() { picked.label.clone() } else { format!("{}, {what}", picked.label) },
        style: picked.style.clone(),
        range: Some([latency.p5_ms, latency.max_ms]),
        inner: Some([latency.p50_ms, latency.p99_ms]),
        marks: vec![
            (latency.p50_ms, "median"),
            (latency.p99_ms, "99th percentile"),
            (latency.max_ms, "longest"),
        ],
    };
    let rows: Vec<Row> = entries.take(bars::ROWS_MAX).map(row).collect();
    let ends = rows.iter().flat_map(|row| row.range.into_iter().flatten());
    let x = Scale::log(Unit::Milliseconds, ends);
    let chart = Rows { title: title.to_owned(), x_title: LATENCY.to_owned(), x, rows, reference: None };
    (!chart.rows.is_empty()).then(|| chart.draw())
}

/// Each level of each subject, subjects of one level beside one another.
fn levels_table(view: &View) -> Table {
    let names = distinct(view.levels_of_all().map(|(_, level)| level.name.as_str()));
    let at = |name| view.levels_of_all().filter(move |(_, level)| level.name == name);
    measures_table("Each level", names.into_iter().flat_map(at))
}

fn rounds_table(view: &View) -> Table {
    let rounds = view.subjects.iter().flat_map(|shown| shown.subject.rounds.iter().map(move |m| (shown, m)));
    measures_table("Each round", rounds)
}

fn measures_table<'a>(title: &str, rows: impl Iterator<Item = Level<'a>>) -> Table {
    fn time((_, measures): &Level<'_>, of: fn(&Latency) -> f64) -> Cell {
        Cell::maybe(has_latency(measures).then_some(&measures.latency), |latency| Cell::figure(of(latency)))
    }
    let columns: [Column<'_, Level<'a>>; 16] = [
        ("level", &|(_, m)| Cell::text(&m.name)),
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("round", &|(_, m)| Cell::maybe(m.round, |round| Cell::count(round.into()))),
        ("asked, requests/s", &|(_, m)| Cell::maybe(m.asked_per_s, Cell::figure)),
        ("answered, answers/s", &|(_, m)| Cell::figure(m.answered_per_s)),
        ("Mb/s", &|(_, m)| Cell::figure(m.megabits_per_s)),
        ("mean, ms", &|row| time(row, |latency| latency.mean_ms)),
        ("p5, ms", &|row| time(row, |latency| latency.p5_ms)),
        ("p50, ms", &|row| time(row, |latency| latency.p50_ms)),
        ("p90, ms", &|row| time(row, |latency| latency.p90_ms)),
        ("p95, ms", &|row| time(row, |latency| latency.p95_ms)),
        ("p99, ms", &|row| time(row, |latency| latency.p99_ms)),
        ("p99.9, ms", &|row| time(row, |latency| latency.p999_ms)),
        ("max, ms", &|row| time(row, |latency| latency.max_ms)),
        ("inversion", &|(_, m)| Cell::maybe(m.inversion, Cell::figure)),
        ("failed", &|(_, m)| Cell::share(failed_share(m))),
    ];
    let has_rounds = |column: &&Column<'_, Level<'a>>| column.0 != "round" || title == "Each round";
    table(title, &columns.iter().filter(has_rounds).copied().collect::<Vec<_>>(), rows)
}

pub(super) fn failed_count(measures: &Measures) -> u64 {
    measures.counts.failed.values().fold(0_u64, |sum, count| sum.saturating_add(*count))
}

/// Failed requests of all that were asked; none of none.
pub(super) fn failed_share(measures: &Measures) -> f64 {
    let failures = failed_count(measures);
    failures as f64 / measures.counts.asked.max(failures).max(1) as f64
}

/// Service inversion against load (blocking-induced-latency, table 4 and figure 19).
pub(super) fn inversion(view: &View) -> Section {
    let loads = load_levels(view);
    let lines = lines(view, |shown| points(shown, |m| m.load_level, |m| m.inversion));
    let has_figures = lines.iter().any(|line| line.points.iter().any(|point| point.1.is_finite()));
    let lead = "The distance of the answers' order by latency from their order by size: 0 if every smaller answer \
                came sooner, 1 if none did. If it rises with load, small answers wait for more than their own size.";
    let mut section = section("inversion", "Service inversion", lead);
    if loads.len() > 1 && has_figures {
        let y = Scale::linear(Unit::Number, 0.0, heights(&lines));
        let title = "Service inversion against load";
        section.charts.push(load_chart(view, title, &loads, ("inversion, 0 to 1", y), lines).draw());
        section.tables.push(inversion_table(view, &loads));
    }
    section
}

fn inversion_table(view: &View, loads: &[f64]) -> Table {
    let shown: Vec<&Shown> = view.drawn().collect();
    let row = |load: &f64| {
        let at = |shown: &&Shown| {
            let level = shown.subject.levels.iter().find(|measures| measures.load_level == Some(*load));
            Cell::maybe(level.and_then(|measures| measures.inversion), Cell::figure)
        };
        [Cell::Number(*load, format!("{load:.2}"))].into_iter().chain(shown.iter().map(at)).collect()
    };
    let mut columns = columns(&["load"]);
    columns.extend(shown.iter().map(|shown| shown.label.clone()));
    Table { title: "Inversion at each load".to_owned(), columns, rows: loads.iter().map(row).collect() }
}

/// Latency and capacity against the size of the data set.
pub(super) fn sweep(view: &View) -> Section {
    let mut section = section("sweep", "Latency and capacity against data set size", "");
    if !view.is_sweep() {
        return section;
    }
    section.lead =
        format!("Latencies {}. A curve bends where the files no longer fit into memory.", view.level_words());
    let names = view.names();
    let lines = |of: &dyn Fn(&Shown) -> Option<f64>| -> Vec<Line> {
        let of_server = |(index, name): (usize, &&str)| {
            let same = view.subjects.iter().filter(|shown| shown.name == **name);
            let mut points: Vec<(f64, f64)> =
                same.filter_map(|shown| Some((shown.subject.dataset_bytes? as f64, of(shown)?))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            line(name, &Style::of(index), points)
        };
        names.iter().enumerate().map(of_server).filter(|line| !line.points.is_empty()).collect()
    };
    let of_latency = |measure: &Measure| {
        let measure = measure.1;
        lines(&move |shown| view.at_level(shown).map(|m| measure(&m.latency)))
    };
    let all: Vec<f64> = SWEPT.iter().flat_map(|measure| heights(&of_latency(measure))).collect();
    for measure in &SWEPT {
        let y = Scale::log(Unit::Milliseconds, all.iter().copied());
        section.charts.extend(size_chart(
            &format!("Latency, {}", measure.0),
            LATENCY,
            y,
            of_latency(measure),
        ));
    }
    let capacity = lines(&|shown| shown.subject.capacity.as_ref().map(|capacity| capacity.requests_per_s));
    let y = Scale::linear(Unit::Number, 0.0, heights(&capacity));
    section.charts.extend(size_chart("Capacity", "answers/s", y, capacity));
    section.tables.push(sweep_table(view));
    section
}

fn size_chart(title: &str, y_title: &str, y: Scale, lines: Vec<Line>) -> Option<Markup> {
    let x = Scale::linear(Unit::Bytes, 0.0, places(&lines));
    (!lines.is_empty()).then(|| chart(title, ("size of the data set", x), (y_title, y), lines).draw())
}

fn sweep_table(view: &View) -> Table {
    let time = |shown: &Shown, of: fn(&Latency) -> f64| {
        Cell::maybe(view.at_level(shown), |measures| Cell::figure(of(&measures.latency)))
    };
    let capacity = |shown: &Shown, of: fn(&Capacity) -> f64| {
        Cell::maybe(shown.subject.capacity.as_ref(), |capacity| Cell::figure(of(capacity)))
    };
    let columns: [Column<'_, &Shown>; 7] = [
        ("server", &|shown| Cell::text(&shown.name)),
        ("data set", &|shown| Cell::maybe(shown.subject.dataset_bytes, Cell::bytes)),
        ("mean, ms", &|shown| time(shown, |latency| latency.mean_ms)),
        ("p50, ms", &|shown| time(shown, |latency| latency.p50_ms)),
        ("p99, ms", &|shown| time(shown, |latency| latency.p99_ms)),
        ("capacity, answers/s", &|shown| capacity(shown, |found| found.requests_per_s)),
        ("capacity, Mb/s", &|shown| capacity(shown, |found| found.megabits_per_s)),
    ];
    table("By data set size", &columns, &view.subjects)
}
