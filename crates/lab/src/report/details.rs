//! The other sections: score, ratios, parts of the latency, failures, the server, the generator.
//!
//! The page calls it. All figures come from the run. Pure.

use super::levels::{failed_count, ranges};
use super::view::{Level, Picked, Shown, View, line, section};
use crate::results::{Ratio, Score, ScoreTry};
use flash_kit::bars::{ROWS_MAX, Row, Rows};
use flash_kit::chart::{Chart, Line, chart, heights, places};
use flash_kit::number;
use flash_kit::scale::{Scale, Unit};
use flash_kit::section::{Cell, Column, Section, Table, filled, table};
use flash_kit::style::Style;
use flash_kit::text::distinct;
use flash_load::measure::{Kind, Latency, Usage};

pub(super) fn score(view: &View) -> Section {
    let lead = "The highest number of simultaneous connections, each paced by its client, at which every connection \
                still got the least bit rate.";
    let mut section = section("score", "Score: connections served at their pace", lead);
    let scored: Vec<(&Shown, &Score)> =
        view.subjects.iter().filter_map(|shown| Some((shown, shown.subject.score.as_ref()?))).collect();
    let Some((_, first)) = scored.first() else { return section };
    let of_score = |(index, (shown, score)): (usize, &(&Shown, &Score))| {
        let tries =
            score.tries.iter().map(|one| (f64::from(one.connections), one.slowest_bits_per_s / 1000.0));
        let mut points: Vec<(f64, f64)> = tries.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        line(&shown.label, &Style::of(index), points)
    };
    let lines: Vec<Line> =
        scored.iter().enumerate().map(of_score).filter(|line| !line.points.is_empty()).collect();
    let least = first.least_bits_per_s as f64 / 1000.0;
    let x = Scale::linear(Unit::Number, 0.0, places(&lines));
    let y = Scale::linear(Unit::Number, 0.0, heights(&lines).into_iter().chain([least]));
    if !lines.is_empty() {
        let axes = (("simultaneous connections", x), ("slowest connection, kbit/s", y));
        let chart = chart("The slowest connection", axes.0, axes.1, lines);
        let reference = Some((least, format!("least: {} kbit/s", number::figure(least))));
        section.charts.push(Chart { reference, ..chart }.draw());
    }
    section.tables = vec![scores_table(&scored), tries_table(&scored)];
    section
}

fn scores_table(scored: &[(&Shown, &Score)]) -> Table {
    let columns: [Column<'_, &(&Shown, &Score)>; 4] = [
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("score, connections", &|(_, score)| Cell::count(score.connections.into())),
        ("pace, kbit/s", &|(_, score)| Cell::figure(score.pace_bits_per_s as f64 / 1000.0)),
        ("least, kbit/s", &|(_, score)| Cell::figure(score.least_bits_per_s as f64 / 1000.0)),
    ];
    table("Scores", &columns, scored)
}

fn tries_table(scored: &[(&Shown, &Score)]) -> Table {
    let columns: [Column<'_, (&Shown, &ScoreTry)>; 6] = [
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("connections", &|(_, one)| Cell::count(one.connections.into())),
        ("connections at pace", &|(_, one)| Cell::count(one.conforming.into())),
        ("slowest, kbit/s", &|(_, one)| Cell::figure(one.slowest_bits_per_s / 1000.0)),
        ("failed", &|(_, one)| Cell::share(one.errors_share)),
        ("passed", &|(_, one)| Cell::text(if one.passed { "yes" } else { "no" })),
    ];
    let tries = scored.iter().flat_map(|(shown, score)| score.tries.iter().map(move |one| (*shown, one)));
    table("Steps of the search", &columns, tries)
}

pub(super) fn ratios(view: &View) -> Section {
    let lead = "Multiples of the first subject or phase of the run, with 95 % confidence intervals over the rounds. Where \
                an interval holds 1, no difference can be told.";
    let mut section = section("ratios", "Compared with the first", lead);
    let ratios: Vec<&Ratio> = view.runs.iter().flat_map(|run| &run.ratios).collect();
    if ratios.is_empty() {
        return section;
    }
    let subjects = distinct(ratios.iter().map(|ratio| ratio.subject.as_str()));
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
    section.charts.push(chart.draw());
    section.tables.push(ratios_table(&ratios));
    section
}

fn ratio_words(ratio: &Ratio) -> String {
    let level = ratio.level.as_deref().map(|level| format!(" at {level}")).unwrap_or_default();
    number::plain(&format!("{}{level}: {} to {}", ratio.measure, ratio.subject, ratio.base))
}

fn ratios_table(ratios: &[&Ratio]) -> Table {
    let columns: [Column<'_, &&Ratio>; 8] = [
        ("measure", &|ratio| Cell::text(&ratio.measure)),
        ("level", &|ratio| Cell::maybe(ratio.level.as_deref(), Cell::text)),
        ("subject", &|ratio| Cell::text(&ratio.subject)),
        ("base", &|ratio| Cell::text(&ratio.base)),
        ("ratio", &|ratio| Cell::factor(ratio.ratio)),
        ("95 % from", &|ratio| Cell::maybe(ratio.interval, |[low, _]| Cell::factor(low))),
        ("95 % to", &|ratio| Cell::maybe(ratio.interval, |[_, high]| Cell::factor(high))),
        ("cannot be told", &|ratio| Cell::maybe(ratio.doubt.as_deref(), Cell::text)),
    ];
    filled("Ratios", &columns, ratios)
}

pub(super) fn kinds(view: &View) -> Section {
    let time = |kind: &Kind, of: fn(&Latency) -> f64| {
        Cell::maybe(kind.latency.as_ref(), |latency| Cell::figure(of(latency)))
    };
    let columns: [Column<'_, (Level<'_>, &Kind)>; 10] = [
        ("subject", &|((shown, _), _)| Cell::text(&shown.label)),
        ("level", &|((_, m), _)| Cell::text(&m.name)),
        ("requests", &|(_, kind)| Cell::text(&kind.name)),
        ("asked, requests", &|(_, kind)| Cell::count(kind.asked)),
        ("answered, requests", &|(_, kind)| Cell::count(kind.answered)),
        ("mean, ms", &|(_, kind)| time(kind, |latency| latency.mean_ms)),
        ("p50, ms", &|(_, kind)| time(kind, |latency| latency.p50_ms)),
        ("p90, ms", &|(_, kind)| time(kind, |latency| latency.p90_ms)),
        ("p99, ms", &|(_, kind)| time(kind, |latency| latency.p99_ms)),
        ("max, ms", &|(_, kind)| time(kind, |latency| latency.max_ms)),
    ];
    let rows = view.levels_of_all().flat_map(|level| level.1.kinds.iter().map(move |kind| (level, kind)));
    let lead = "Dynamic requests are answered by an application, through the server.";
    let tables = vec![table("Latency of static and dynamic requests", &columns, rows)];
    Section { tables, ..section("kinds", "Static and dynamic requests", lead) }
}

/// Connect, first byte, transfer.
pub(super) fn split(view: &View) -> Section {
    let picked = view.overlay();
    let parts = |one| {
        let one: &Picked = one;
        let handshakes = one.measures.handshakes.as_ref();
        let parts = [
            ("connect", one.measures.connect.as_ref()),
            ("full TLS handshake", handshakes.and_then(|found| found.full_time.as_ref())),
            ("resumed TLS handshake", handshakes.and_then(|found| found.resumed_time.as_ref())),
            ("first byte", one.measures.first_byte.as_ref()),
            ("transfer", one.measures.transfer.as_ref()),
        ];
        parts.into_iter().filter_map(|(name, latency)| Some((one, name, latency?))).collect::<Vec<_>>()
    };
    let entries: Vec<(&Picked, &'static str, &Latency)> = picked.iter().flat_map(parts).collect();
    let columns: [Column<'_, &(&Picked, &'static str, &Latency)>; 8] = [
        ("subject", &|(one, ..)| Cell::text(&one.label)),
        ("part", &|(_, name, _)| Cell::text(name)),
        ("mean, ms", &|(.., latency)| Cell::figure(latency.mean_ms)),
        ("p50, ms", &|(.., latency)| Cell::figure(latency.p50_ms)),
        ("p90, ms", &|(.., latency)| Cell::figure(latency.p90_ms)),
        ("p99, ms", &|(.., latency)| Cell::figure(latency.p99_ms)),
        ("p99.9, ms", &|(.., latency)| Cell::figure(latency.p999_ms)),
        ("max, ms", &|(.., latency)| Cell::figure(latency.max_ms)),
    ];
    let table = table("Parts of requests", &columns, &entries);
    let title = format!("Parts of the latency {}", view.title_of(&picked));
    let chart = "Parts of requests: 5th percentile to longest; thick: median to 99th percentile";
    let lead = "Connect: until a new connection was open, for requests that opened one; a TLS handshake is part of it. First byte: from then, or from \
                getting an open connection. Transfer: from the first byte to the last.";
    let charts = ranges(chart, entries.into_iter()).into_iter().collect();
    Section { charts, tables: vec![table], ..section("split", title.trim_end(), lead) }
}

pub(super) fn failures(view: &View) -> Section {
    let failed = |level| {
        let level: Level<'_> = level;
        let kinds = level.1.counts.failed.iter().filter(|(_, count)| **count > 0);
        kinds.map(|(kind, count)| (level, kind.as_str(), *count)).collect::<Vec<_>>()
    };
    let columns: [Column<'_, (Level<'_>, &str, u64)>; 5] = [
        ("subject", &|((shown, _), ..)| Cell::text(&shown.label)),
        ("level", &|((_, m), ..)| Cell::text(&m.name)),
        ("kind", &|(_, kind, _)| Cell::text(kind)),
        ("requests", &|(.., count)| Cell::count(*count)),
        ("share of the requests", &|((_, m), _, count)| {
            Cell::share(*count as f64 / m.counts.asked.max(1) as f64)
        }),
    ];
    let kinds = table("Failures by kind", &columns, view.levels_of_all().flat_map(failed));
    let columns: [Column<'_, Level<'_>>; 8] = [
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("level", &|(_, m)| Cell::text(&m.name)),
        ("asked, requests", &|(_, m)| Cell::count(m.counts.asked)),
        ("answered, requests", &|(_, m)| Cell::count(m.counts.answered)),
        ("failed, requests", &|(_, m)| Cell::count(failed_count(m))),
        ("sent again, requests", &|(_, m)| Cell::count(m.counts.retried)),
        ("connections", &|(_, m)| Cell::count(m.counts.connections)),
        ("drain, s", &|(_, m)| Cell::figure(m.drain_s)),
    ];
    let lead = if kinds.rows.is_empty() { "No request failed." } else { "" };
    let tables = vec![kinds, table("Requests", &columns, view.levels_of_all())];
    Section { tables, ..section("failures", "Requests and failures", lead) }
}

pub(super) fn server(view: &View) -> Section {
    let columns: [Column<'_, (Level<'_>, Usage)>; 5] = [
        ("subject", &|((shown, _), _)| Cell::text(&shown.label)),
        ("level", &|((_, m), _)| Cell::text(&m.name)),
        ("CPU, s", &|(_, usage)| Cell::figure(usage.cpu_s)),
        ("CPU per answer, µs", &|(_, usage)| Cell::figure(usage.cpu_us_per_answer)),
        ("highest memory", &|(_, usage)| Cell::bytes(usage.memory_max_bytes)),
    ];
    let rows = view.levels_of_all().filter_map(|level| Some((level, level.1.server?)));
    let lead = "CPU time of user and system, of the process and its children. Memory is resident and their own: no files.";
    let tables = vec![table("CPU and memory of the servers", &columns, rows)];
    Section { tables, ..section("server", "CPU and memory", lead) }
}

pub(super) fn generator(view: &View) -> Section {
    let columns: [Column<'_, Level<'_>>; 8] = [
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("level", &|(_, m)| Cell::text(&m.name)),
        ("lateness p99, ms", &|(_, m)| Cell::figure(m.generator.late_p99_ms)),
        ("lateness max, ms", &|(_, m)| Cell::figure(m.generator.late_max_ms)),
        ("sent late, requests", &|(_, m)| Cell::count(m.counts.late)),
        ("no free connection, requests", &|(_, m)| Cell::count(m.counts.queued)),
        ("busy", &|(_, m)| Cell::share(m.generator.busy_share)),
        ("threads", &|(_, m)| Cell::count(m.generator.threads.into())),
    ];
    let lead = "How late the generator took requests up, how many it sent more than 1 ms late, and how many found every \
                connection in use. Its lateness is part of all latencies here.";
    let tables = vec![table("Lateness", &columns, view.levels_of_all())];
    Section { tables, ..section("generator", "The generator", lead) }
}
