//! The short table that the commands print.
//!
//! `load`, `profile` and `compare` call it through `report::table`. Pure.

use super::levels::failed_share;
use super::number::{self, NONE, figure};
use super::view::has_latency;
use crate::results::{Measures, Ratio, Run, Subject};

/// What a terminal shows of a line.
const COLUMNS_MAX: usize = 100;
/// Names are not cut to less.
const NAME_MIN: usize = 8;
/// No more lines of one kind below the table; the report has all.
const LINES_MAX: usize = 20;

const HEADS: [&str; 13] = [
    "level", "subject", "asked/s", "answ./s", "Mb/s", "mean ms", "p50", "p90", "p99", "p99.9", "max", "inv.",
    "failed",
];
/// Columns of names; the others are figures.
const NAMES: usize = 2;

/// The table of a run, and what must be known besides.
pub(super) fn table(run: &Run) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for subject in &run.subjects {
        rows.extend(subject.levels.iter().map(|measures| row(subject, measures)));
    }
    let mut text = if rows.is_empty() { String::new() } else { aligned(rows, run.subjects.len() > 1) };
    for lines in [capacities(run), faults(run), ratios(run), warnings(run)] {
        let more = lines.len().saturating_sub(LINES_MAX);
        for line in lines.into_iter().take(LINES_MAX) {
            text += &number::plain(&line);
            text.push('\n');
        }
        if more > 0 {
            text += &format!("{more} more of this kind\n");
        }
    }
    text
}

fn row(subject: &Subject, measures: &Measures) -> Vec<String> {
    let latency = &measures.latency;
    let times =
        [latency.mean_ms, latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.p999_ms, latency.max_ms];
    let time = |time_ms: f64| if has_latency(measures) { figure(time_ms) } else { NONE.to_owned() };
    let maybe = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), figure);
    let mut row = vec![
        number::plain(&measures.name),
        number::plain(&subject.name),
        maybe(measures.asked_per_s),
        figure(measures.answered_per_s),
        figure(measures.megabits_per_s),
    ];
    row.extend(times.map(time));
    row.extend([maybe(measures.inversion), number::percent(failed_share(measures)).replace(' ', "")]);
    row
}

/// Rows below their heads; figures to the right. The subject stands only where there are several.
fn aligned(mut rows: Vec<Vec<String>>, has_subjects: bool) -> String {
    rows.insert(0, HEADS.map(str::to_owned).to_vec());
    let chars = |text: &String| text.chars().count();
    let mut widths: Vec<usize> = (0..HEADS.len())
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(chars).max().unwrap_or(0))
        .collect();
    if !has_subjects {
        widths[1] = 0;
    }
    // Names give way, the longer one first.
    let spaces = widths.iter().filter(|width| **width > 0).count() - 1;
    let mut over = (widths.iter().sum::<usize>() + spaces).saturating_sub(COLUMNS_MAX);
    while over > 0 {
        let longer = if widths[1] >= widths[0] { 1 } else { 0 };
        if widths[longer] <= NAME_MIN {
            break;
        }
        widths[longer] -= 1;
        over -= 1;
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, (cell, &width)) in row.iter().zip(&widths).enumerate().filter(|(_, (_, width))| **width > 0)
        {
            if !line.is_empty() {
                line.push(' ');
            }
            let cell = cut(cell, width);
            line += &if at < NAMES { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

fn capacities(run: &Run) -> Vec<String> {
    let line = |subject: &Subject| {
        let capacity = subject.capacity.as_ref()?;
        let rates = (figure(capacity.requests_per_s), figure(capacity.megabits_per_s));
        Some(format!("{}: capacity {} requests/s, {} Mb/s", subject.name, rates.0, rates.1))
    };
    let score = |subject: &Subject| {
        subject
            .score
            .as_ref()
            .map(|score| format!("{}: score {} connections", subject.name, score.connections))
    };
    run.subjects.iter().flat_map(|subject| [line(subject), score(subject)]).flatten().collect()
}

fn faults(run: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    for (subject, measures) in each(run) {
        let kinds = measures.counts.failed.iter().filter(|(_, count)| **count > 0);
        let kinds: Vec<String> =
            kinds.map(|(kind, count)| format!("{} {kind}", number::count(*count))).collect();
        if !kinds.is_empty() {
            lines.push(format!("{} {}: failed: {}", subject.name, measures.name, kinds.join(", ")));
        }
    }
    lines
}

fn ratios(run: &Run) -> Vec<String> {
    let line = |ratio: &Ratio| {
        let level = ratio.level.as_deref().map(|level| format!(" at {level}")).unwrap_or_default();
        let interval = ratio
            .interval
            .map_or_else(String::new, |[low, high]| format!(" ({} to {}, 95 %)", figure(low), figure(high)));
        let times = figure(ratio.ratio);
        format!("{}{level}: {} / {} = {times}{interval}", ratio.measure, ratio.subject, ratio.base)
    };
    run.ratios.iter().map(line).collect()
}

/// Warnings and notes.
fn warnings(run: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    for subject in &run.subjects {
        lines.extend(
            subject.missing.iter().map(|why| format!("warning: {}: parts are missing: {why}", subject.name)),
        );
    }
    for (subject, measures) in each(run) {
        let whose = format!("warning: {} {}", subject.name, measures.name);
        let limit = measures.generator.limit.iter();
        lines.extend(
            limit.map(|limit| format!("{whose}: the generator was the limit, not the server: {limit}")),
        );
        lines.extend(measures.ended_early.iter().map(|why| format!("{whose}: ended early: {why}")));
        if measures.records_lost > 0 {
            lines.push(format!(
                "{whose}: {} records are not in the file",
                number::count(measures.records_lost)
            ));
        }
        let counts = &measures.counts;
        if counts.queued > 0 {
            let queued = number::count(counts.queued);
            lines.push(format!(
                "{} {}: {queued} arrivals found no free connection",
                subject.name, measures.name
            ));
        }
        if counts.late > 0 {
            let late = (number::count(counts.late), number::time(measures.generator.late_max_ms));
            let whose = format!("{} {}", subject.name, measures.name);
            lines.push(format!("{whose}: the generator sent {} late, by {} at most", late.0, late.1));
        }
    }
    lines.extend(run.notes.iter().map(|note| format!("note: {note}")));
    lines
}

fn each(run: &Run) -> impl Iterator<Item = (&Subject, &Measures)> {
    run.subjects.iter().flat_map(|subject| subject.levels.iter().map(move |measures| (subject, measures)))
}
