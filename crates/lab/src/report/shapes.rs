//! The sections that show a whole distribution: CDFs, composition of deciles, timelines.
//!
//! The page calls it. All figures come from the run. Pure.

use super::view::{Picked, View, line, section};
use flash_kit::bars::Stack;
use flash_kit::chart::{Chart, Line, chart, heights, places, together};
use flash_kit::number;
use flash_kit::scale::{Scale, Unit};
use flash_kit::section::{Cell, Column, Section, Table, columns, table};
use flash_kit::style::Style;
use flash_load::measure::{CdfPoint, SizeSeries, TimelinePoint};

/// The tail is drawn down to one answer in ten thousand.
const TAIL_SHARE_MIN: f64 = 1e-4;
/// Shares in the table of the CDF.
const SHARES: [(f64, &str); 11] = [
    (0.01, "1 %"),
    (0.05, "5 %"),
    (0.10, "10 %"),
    (0.25, "25 %"),
    (0.50, "50 %"),
    (0.75, "75 %"),
    (0.90, "90 %"),
    (0.95, "95 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
];

pub(super) fn cdf(view: &View) -> Section {
    let picked: Vec<Picked> =
        view.overlay().into_iter().filter(|picked| !picked.measures.cdf.is_empty()).collect();
    let title = format!("Distribution of latency {}", view.title_of(&picked));
    let lead = "First the share of the answers within a latency, then the share beyond it, down to one answer in ten \
                thousand. A line further to the left is better.";
    let mut section = section("cdf", title.trim_end(), lead);
    if picked.is_empty() {
        return Section::default();
    }
    let lines = |of: fn(&[CdfPoint]) -> Vec<(f64, f64)>| -> Vec<Line> {
        picked.iter().map(|p| line(&p.label, &p.style, of(&p.measures.cdf))).collect()
    };
    let latencies = picked.iter().flat_map(|picked| picked.measures.cdf.iter().map(|point| point.latency_ms));
    let x = Scale::log(Unit::Milliseconds, latencies);
    let distribution = |title: &str, y_title: &str, y: Scale, lines: Vec<Line>| Chart {
        has_marks: false,
        has_ends: false,
        ..chart(title, ("latency (log scale)", x.clone()), (y_title, y), lines)
    };
    let tail = Scale::decades(Unit::Share, TAIL_SHARE_MIN, 1.0);
    let charts = [
        distribution("Latency up to", "share of the answers", Scale::share(), lines(body)),
        distribution(
            "Latency beyond: the tail",
            "share of the answers (log scale)",
            tail,
            lines(tail_points),
        ),
    ];
    section.charts = together(&charts);
    section.tables.push(cdf_table(&picked));
    section
}

fn body(cdf: &[CdfPoint]) -> Vec<(f64, f64)> {
    cdf.iter().map(|point| (point.latency_ms, point.share)).collect()
}

/// The share beyond each latency, until it leaves the chart.
fn tail_points(cdf: &[CdfPoint]) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for point in cdf {
        let beyond = 1.0 - point.share;
        points.push((point.latency_ms, beyond));
        if beyond <= TAIL_SHARE_MIN {
            break;
        }
    }
    points
}

fn cdf_table(picked: &[Picked]) -> Table {
    let row = |(share, name): &(f64, &str)| {
        // Shares are sums: their last bits can be off.
        let at =
            |picked: &Picked| picked.measures.cdf.iter().find(|point| point.share >= share - 1e-9).copied();
        let cells =
            picked.iter().map(|picked| Cell::maybe(at(picked), |point| Cell::figure(point.latency_ms)));
        [Cell::text(name)].into_iter().chain(cells).collect()
    };
    let mut columns = columns(&["share of the answers"]);
    columns.extend(picked.iter().map(|picked| format!("{}, ms", picked.label)));
    Table {
        title: "Latency of each share of the answers, at most".to_owned(),
        columns,
        rows: SHARES.iter().map(row).collect(),
    }
}

/// The sizes of the fastest and the slowest answers (blocking-induced-latency, figures 10, 11, 18).
pub(super) fn deciles(view: &View) -> Section {
    let has_deciles =
        |picked: &Picked| !picked.measures.deciles.is_empty() && !picked.measures.series.is_empty();
    let picked: Vec<Picked> = view.picked().into_iter().filter(has_deciles).collect();
    let Some(first) = picked.first() else { return Section::default() };
    let title = format!("Sizes of fast and slow answers {}", view.title_of(&picked));
    let lead = "The answers in tenths, from the fastest to the slowest, and their sizes. Where latency follows size, \
                small answers fill the left and large ones the right. Where every bar looks like \"all\", small answers \
                waited as long as large ones.";
    let mut section = section("deciles", title.trim_end(), lead);
    let stacks: Vec<Stack> = picked.iter().map(stack).collect();
    // Series that differ from subject to subject need a legend each.
    let is_shared = picked.iter().all(|other| bounds(other) == bounds(first));
    if is_shared {
        section.charts.extend(stacks.first().map(Stack::legend));
    }
    for stack in &stacks {
        if !is_shared {
            section.charts.push(stack.legend());
        }
        section.charts.push(stack.draw());
    }
    section.tables = picked.iter().map(deciles_table).collect();
    section
}

fn bounds(picked: &Picked) -> Vec<(u64, u64)> {
    picked.measures.series.iter().map(|series| (series.bytes_min, series.bytes_max)).collect()
}

fn series_name(series: &SizeSeries) -> String {
    format!("{}–{}", number::size(series.bytes_min as f64), number::size(series.bytes_max as f64))
}

fn stack(picked: &Picked) -> Stack {
    let measures = picked.measures;
    let bars = measures.deciles.iter().enumerate();
    Stack {
        title: picked.label.clone(),
        x_title: "tenth of the answers, fastest to slowest".to_owned(),
        series: measures.series.iter().map(series_name).collect(),
        bars: bars.map(|(index, decile)| ((index + 1).to_string(), decile.shares.clone())).collect(),
        whole: measures.series.iter().map(|series| series.share).collect(),
    }
}

fn deciles_table(picked: &Picked) -> Table {
    let measures = picked.measures;
    let row = |name: String, latency_max_ms: Option<f64>, shares: Vec<f64>| {
        let of_series = |series| Cell::maybe(shares.get(series).copied(), Cell::share);
        let head = [Cell::Text(name), Cell::maybe(latency_max_ms, Cell::figure)];
        head.into_iter().chain((0..measures.series.len()).map(of_series)).collect()
    };
    let deciles = measures.deciles.iter().enumerate();
    let mut rows: Vec<Vec<Cell>> = deciles
        .map(|(index, decile)| {
            row((index + 1).to_string(), Some(decile.latency_max_ms), decile.shares.clone())
        })
        .collect();
    rows.push(row("all".to_owned(), None, measures.series.iter().map(|series| series.share).collect()));
    let mut columns = columns(&["tenth", "latency at most, ms"]);
    columns.extend(measures.series.iter().map(series_name));
    Table { title: format!("{}: sizes in each tenth", picked.label), columns, rows }
}

/// Latency and rates over time.
pub(super) fn timeline(view: &View) -> Section {
    let has_course = |p: &Picked| p.measures.timeline.points.len() > 1 && p.measures.timeline.step_s > 0.0;
    let picked: Vec<Picked> = view.overlay().into_iter().filter(has_course).collect();
    let title = format!("Timeline {}", view.title_of(&picked));
    if picked.is_empty() {
        return Section::default();
    }
    let lead = "Each request counts at its intended start, even if the server was stalled then.";
    let mut section = section("timeline", title.trim_end(), lead);
    let times: [(&str, PointMeasure); 3] =
        [("median", |p, _| p.p50_ms), ("99th percentile", |p, _| p.p99_ms), ("longest", |p, _| p.max_ms)];
    let rates: [(&str, PointMeasure); 2] = [
        ("asked", |p, step_s| Some(p.asked as f64 / step_s)),
        ("answered", |p, step_s| Some(p.answered as f64 / step_s)),
    ];
    if let [only] = &picked[..] {
        let lines = |measures: &[(&str, PointMeasure)]| {
            let measures = measures.iter().enumerate();
            let of_measure =
                |(index, (name, of)): (usize, &(&str, _))| line(name, &Style::of(index), course(only, *of));
            measures.map(of_measure).collect::<Vec<_>>()
        };
        section.charts.push(course_chart("Latency", true, true, lines(&times)).draw());
        section.charts.push(course_chart("Requests", false, true, lines(&rates)).draw());
    } else {
        let lines = |of: PointMeasure| {
            picked.iter().map(|p| line(&p.label, &p.style, course(p, of))).collect::<Vec<_>>()
        };
        let mut charts: Vec<Chart> = Vec::new();
        for (name, of) in times {
            charts.push(course_chart(&format!("Latency, {name}"), true, false, lines(of)));
        }
        let title = "Answers, by the intended start of their requests";
        charts.push(course_chart(title, false, false, lines(rates[1].1)));
        section.charts = together(&charts);
    }
    section.tables = picked.iter().map(timeline_table).collect();
    section
}

/// A figure of a step; the second argument is its length, seconds.
type PointMeasure = fn(&TimelinePoint, f64) -> Option<f64>;

fn course(picked: &Picked, of: PointMeasure) -> Vec<(f64, f64)> {
    let timeline = &picked.measures.timeline;
    let point = |(index, point): (usize, &TimelinePoint)| {
        (index as f64 * timeline.step_s, of(point, timeline.step_s).unwrap_or(f64::NAN))
    };
    timeline.points.iter().enumerate().map(point).collect()
}

fn course_chart(title: &str, is_latency: bool, is_wide: bool, lines: Vec<Line>) -> Chart {
    let x = Scale::linear(Unit::Seconds, 0.0, places(&lines));
    let y = match is_latency {
        true => ("latency (log scale)", Scale::log(Unit::Milliseconds, heights(&lines))),
        false => ("requests/s", Scale::linear(Unit::Number, 0.0, heights(&lines))),
    };
    Chart {
        has_marks: false,
        has_ends: false,
        is_wide,
        ..chart(title, ("time since the start", x), y, lines)
    }
}

fn timeline_table(picked: &Picked) -> Table {
    let step_s = picked.measures.timeline.step_s;
    let columns: [Column<'_, (usize, &TimelinePoint)>; 6] = [
        ("from, s", &|(index, _)| Cell::figure(*index as f64 * step_s)),
        ("asked, requests", &|(_, point)| Cell::count(point.asked)),
        ("answered, requests", &|(_, point)| Cell::count(point.answered)),
        ("p50, ms", &|(_, point)| Cell::maybe(point.p50_ms, Cell::figure)),
        ("p99, ms", &|(_, point)| Cell::maybe(point.p99_ms, Cell::figure)),
        ("max, ms", &|(_, point)| Cell::maybe(point.max_ms, Cell::figure)),
    ];
    let title = format!("{}: steps of {} s", picked.label, number::figure(step_s));
    table(&title, &columns, picked.measures.timeline.points.iter().enumerate())
}
