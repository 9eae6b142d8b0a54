//! The other parts: score, ratios, parts of the latency, failures, the server, the generator.
//!
//! The page calls it. All figures come from the run. Pure.

use super::levels::ranges;
use super::summary::drop_empty_columns;
use super::view::{Shown, View};
use crate::results::{Ratio, Score};
use flash_kit::bars::{ROWS_MAX, Row, Rows};
use flash_kit::chart::{Chart, Line};
use flash_kit::number;
use flash_kit::part::{Cell, Part, Table, columns};
use flash_kit::scale::{Scale, Unit};
use flash_kit::style::Style;
use flash_load::measure::{Kind, Latency, Measures};

/// The SPECweb99-style score.
pub(super) fn score(view: &View) -> Part {
    let mut part = Part {
        id: "score",
        title: "Score: connections served at their pace".to_owned(),
        lead: "The highest number of simultaneous connections, each paced by its client, at which every connection \
               still got the least bit rate."
            .to_owned(),
        ..Part::default()
    };
    let scored: Vec<(&Shown, &Score)> =
        view.subjects.iter().filter_map(|shown| Some((shown, shown.subject.score.as_ref()?))).collect();
    let Some((_, first)) = scored.first() else { return part };
    let line = |(index, (shown, score)): (usize, &(&Shown, &Score))| {
        let tries =
            score.tries.iter().map(|one| (f64::from(one.connections), one.slowest_bits_per_s / 1000.0));
        let mut points: Vec<(f64, f64)> = tries.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Line { label: shown.label.clone(), style: Style::of(index), points }
    };
    let lines: Vec<Line> =
        scored.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect();
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let least = first.least_bits_per_s as f64 / 1000.0;
    let chart = Chart {
        title: "The slowest connection".to_owned(),
        x_title: "simultaneous connections".to_owned(),
        y_title: "slowest connection, kbit/s".to_owned(),
        x: Scale::linear(Unit::Number, 0.0, points().map(|point| point.0)),
        y: Scale::linear(Unit::Number, 0.0, points().map(|point| point.1).chain([least])),
        has_marks: true,
        has_ends: true,
        reference: Some((least, format!("least: {} kbit/s", number::figure(least)))),
        is_wide: false,
        lines: lines.clone(),
    };
    if !lines.is_empty() {
        part.charts.push(chart.draw());
    }
    part.tables = vec![scores_table(&scored), tries_table(&scored)];
    part
}

fn scores_table(scored: &[(&Shown, &Score)]) -> Table {
    let row = |(shown, score): &(&Shown, &Score)| {
        vec![
            Cell::text(&shown.label),
            Cell::count(score.connections.into()),
            Cell::figure(score.pace_bits_per_s as f64 / 1000.0),
            Cell::figure(score.least_bits_per_s as f64 / 1000.0),
        ]
    };
    let columns = columns(&["subject", "score, connections", "pace, kbit/s", "least, kbit/s"]);
    Table { title: "Scores".to_owned(), columns, rows: scored.iter().map(row).collect() }
}

fn tries_table(scored: &[(&Shown, &Score)]) -> Table {
    let mut rows = Vec::new();
    for (shown, score) in scored {
        rows.extend(score.tries.iter().map(|one| {
            vec![
                Cell::text(&shown.label),
                Cell::count(one.connections.into()),
                Cell::count(one.conforming.into()),
                Cell::figure(one.slowest_bits_per_s / 1000.0),
                Cell::share(one.errors_share),
                Cell::text(if one.passed { "yes" } else { "no" }),
            ]
        }));
    }
    let columns =
        columns(&["subject", "connections", "connections at pace", "slowest, kbit/s", "failed", "passed"]);
    Table { title: "Steps of the search".to_owned(), columns, rows }
}

/// Ratios to the first subject.
pub(super) fn ratios(view: &View) -> Part {
    let mut part = Part {
        id: "ratios",
        title: "Compared with the first".to_owned(),
        lead:
            "Multiples of the first subject or phase of the run, with 95 % confidence intervals by bootstrap. Where \
               an interval holds 1, no difference can be told."
                .to_owned(),
        ..Part::default()
    };
    let ratios: Vec<&Ratio> = view.runs.iter().flat_map(|run| &run.ratios).collect();
    if ratios.is_empty() {
        return part;
    }
    let mut subjects: Vec<&str> = Vec::new();
    for ratio in &ratios {
        if !subjects.contains(&ratio.subject.as_str()) {
            subjects.push(&ratio.subject);
        }
    }
    // A server keeps the colour that it has in the other charts.
    let style = |ratio: &Ratio| {
        let shown = view.drawn().find(|shown| shown.subject.name == ratio.subject);
        let place = subjects.iter().position(|subject| *subject == ratio.subject).unwrap_or(0);
        shown.map_or_else(|| Style::of(place + 1), |shown| shown.style.clone())
    };
    let row = |ratio: &&Ratio| Row {
        label: ratio_words(ratio),
        style: style(ratio),
        range: ratio.interval,
        inner: None,
        marks: vec![(ratio.ratio, "ratio")],
    };
    let rows: Vec<Row> = ratios.iter().take(ROWS_MAX).map(row).collect();
    let ends = rows.iter().flat_map(|row| row.range.into_iter().flatten().chain([row.marks[0].0]));
    let chart = Rows {
        title: "Ratio to the first, with 95 % intervals".to_owned(),
        x_title: "times as much (log scale)".to_owned(),
        x: Scale::log(Unit::Times, ends.chain([1.0])),
        reference: Some(1.0),
        rows,
    };
    part.charts.push(chart.draw());
    part.tables.push(ratios_table(&ratios));
    part
}

fn ratio_words(ratio: &Ratio) -> String {
    let level = ratio.level.as_deref().map(|level| format!(" at {level}")).unwrap_or_default();
    number::plain(&format!("{}{level}: {} to {}", ratio.measure, ratio.subject, ratio.base))
}

fn ratios_table(ratios: &[&Ratio]) -> Table {
    let row = |ratio: &&Ratio| {
        vec![
            Cell::text(&ratio.measure),
            Cell::maybe(ratio.level.as_deref(), Cell::text),
            Cell::text(&ratio.subject),
            Cell::text(&ratio.base),
            Cell::factor(ratio.ratio),
            Cell::maybe(ratio.interval, |[low, _]| Cell::factor(low)),
            Cell::maybe(ratio.interval, |[_, high]| Cell::factor(high)),
            Cell::maybe(ratio.doubt.as_deref(), Cell::text),
        ]
    };
    let columns =
        columns(&["measure", "level", "subject", "base", "ratio", "95 % from", "95 % to", "cannot be told"]);
    let mut table = Table { title: "Ratios".to_owned(), columns, rows: ratios.iter().map(row).collect() };
    drop_empty_columns(&mut table);
    table
}

/// Static and dynamic requests.
pub(super) fn kinds(view: &View) -> Part {
    let row = |kind: &Kind| {
        let latency = kind.latency.as_ref();
        let time = |of: fn(&Latency) -> f64| Cell::maybe(latency, |latency| Cell::figure(of(latency)));
        vec![
            Cell::text(&kind.name),
            Cell::count(kind.asked),
            Cell::count(kind.answered),
            time(|latency| latency.mean_ms),
            time(|latency| latency.p50_ms),
            time(|latency| latency.p90_ms),
            time(|latency| latency.p99_ms),
            time(|latency| latency.max_ms),
        ]
    };
    let names = [
        "subject",
        "level",
        "requests",
        "asked, requests",
        "answered, requests",
        "mean, ms",
        "p50, ms",
        "p90, ms",
        "p99, ms",
        "max, ms",
    ];
    let rows = each_level(view, |measures| measures.kinds.iter().map(row).collect());
    Part {
        id: "kinds",
        title: "Static and dynamic requests".to_owned(),
        lead: "Dynamic requests are answered by an application, through the server.".to_owned(),
        charts: Vec::new(),
        tables: vec![Table {
            title: "Latency of static and dynamic requests".to_owned(),
            columns: columns(&names),
            rows,
        }],
    }
}

/// Connect, first byte, transfer.
pub(super) fn split(view: &View) -> Part {
    let picked = view.overlay();
    let mut entries = Vec::new();
    let mut rows = Vec::new();
    for one in &picked {
        let measures = one.measures;
        let parts: [(&'static str, Option<&Latency>); 3] = [
            ("connect", measures.connect.as_ref()),
            ("first byte", measures.first_byte.as_ref()),
            ("transfer", measures.transfer.as_ref()),
        ];
        for (name, latency) in parts.into_iter().filter_map(|(name, latency)| Some((name, latency?))) {
            entries.push((one, name, latency));
            let times = [
                latency.mean_ms,
                latency.p50_ms,
                latency.p90_ms,
                latency.p99_ms,
                latency.p999_ms,
                latency.max_ms,
            ];
            let head = [Cell::text(&one.label), Cell::text(name)];
            rows.push(head.into_iter().chain(times.map(Cell::figure)).collect());
        }
    }
    let title = format!("Parts of the latency {}", view.title_of(&picked));
    let columns =
        columns(&["subject", "part", "mean, ms", "p50, ms", "p90, ms", "p99, ms", "p99.9, ms", "max, ms"]);
    let chart = "Parts of requests: 5th percentile to longest; thick: median to 99th percentile";
    Part {
        id: "split",
        title: title.trim_end().to_owned(),
        lead:
            "Connect: until a new connection was open, for requests that opened one. First byte: from then, or from \
               getting an open connection. Transfer: from the first byte to the last."
                .to_owned(),
        charts: ranges(chart, entries.into_iter()).into_iter().collect(),
        tables: vec![Table { title: "Parts of requests".to_owned(), columns, rows }],
    }
}

/// A row for each level of each subject.
fn each_level(view: &View, of: impl Fn(&Measures) -> Vec<Vec<Cell>>) -> Vec<Vec<Cell>> {
    let mut rows = Vec::new();
    for shown in &view.subjects {
        for measures in &shown.subject.levels {
            for row in of(measures) {
                let head = [Cell::text(&shown.label), Cell::text(&measures.name)];
                rows.push(head.into_iter().chain(row).collect());
            }
        }
    }
    rows
}

/// Failures by kind, retries and connections.
pub(super) fn failures(view: &View) -> Part {
    let by_kind = |measures: &Measures| {
        let share = |count: u64| Cell::share(count as f64 / measures.counts.asked.max(1) as f64);
        let kinds = measures.counts.failed.iter().filter(|(_, count)| **count > 0);
        kinds.map(|(kind, count)| vec![Cell::text(kind), Cell::count(*count), share(*count)]).collect()
    };
    let counts = |measures: &Measures| {
        let counts = &measures.counts;
        let failures = counts.failed.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        let counts = [counts.asked, counts.answered, failures, counts.retried, counts.connections];
        vec![counts.map(Cell::count).into_iter().chain([Cell::figure(measures.drain_s)]).collect()]
    };
    let kinds = Table {
        title: "Failures by kind".to_owned(),
        columns: columns(&["subject", "level", "kind", "requests", "share of the requests"]),
        rows: each_level(view, by_kind),
    };
    let requests = Table {
        title: "Requests".to_owned(),
        columns: columns(&[
            "subject",
            "level",
            "asked, requests",
            "answered, requests",
            "failed, requests",
            "sent again, requests",
            "connections",
            "drain, s",
        ]),
        rows: each_level(view, counts),
    };
    let lead = if kinds.rows.is_empty() { "No request failed." } else { "" };
    Part {
        id: "failures",
        title: "Requests and failures".to_owned(),
        lead: lead.to_owned(),
        charts: Vec::new(),
        tables: vec![kinds, requests],
    }
}

/// CPU and memory of the servers.
pub(super) fn server(view: &View) -> Part {
    let usage = |measures: &Measures| {
        let row = |usage: &flash_load::measure::Usage| {
            let cpu = [Cell::figure(usage.cpu_s), Cell::figure(usage.cpu_us_per_answer)];
            cpu.into_iter().chain([Cell::bytes(usage.memory_max_bytes)]).collect()
        };
        measures.server.as_ref().map(row).into_iter().collect()
    };
    let table = Table {
        title: "CPU and memory of the servers".to_owned(),
        columns: columns(&["subject", "level", "CPU, s", "CPU per answer, µs", "highest memory"]),
        rows: each_level(view, usage),
    };
    Part {
        id: "server",
        title: "CPU and memory".to_owned(),
        lead: "CPU time of user and system, of the process and its children. Memory is resident and their own: no files."
            .to_owned(),
        charts: Vec::new(),
        tables: vec![table],
    }
}

/// How late and how busy the generator was.
pub(super) fn generator(view: &View) -> Part {
    let row = |measures: &Measures| {
        let generator = &measures.generator;
        let late = [generator.late_p99_ms, generator.late_max_ms].map(Cell::figure);
        let counts = [measures.counts.late, measures.counts.queued].map(Cell::count);
        let row = late.into_iter().chain(counts);
        let rest = [Cell::share(generator.busy_share), Cell::count(generator.threads.into())];
        vec![row.chain(rest).collect()]
    };
    let names = [
        "subject",
        "level",
        "lateness p99, ms",
        "lateness max, ms",
        "sent late, requests",
        "no free connection, requests",
        "busy",
        "threads",
    ];
    Part {
        id: "generator",
        title: "The generator".to_owned(),
        lead: "How late the generator took requests up, how many it sent more than 1 ms late, and how many found every \
               connection in use. Its lateness is part of all latencies here."
            .to_owned(),
        charts: Vec::new(),
        tables: vec![Table {
            title: "Lateness".to_owned(),
            columns: columns(&names),
            rows: each_level(view, row),
        }],
    }
}
