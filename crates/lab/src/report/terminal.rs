//! The short table that the commands print.
//!
//! `load`, `profile` and `compare` call it through `report::table`. Pure.

use super::levels::failed_share;
use super::number::{self, NONE, figure};
use super::summary;
use super::view::{Shown, View, has_latency};
use crate::results::{Measures, Ratio, Run};

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
    let view = View::new(std::slice::from_ref(run));
    let rows: Vec<Vec<String>> = each(&view).map(|(shown, measures)| row(&shown.label, measures)).collect();
    let mut text = if rows.is_empty() { String::new() } else { aligned(rows, run.subjects.len() > 1) };
    let warnings =
        summary::warnings(&view).into_iter().map(|warning| format!("warning: {warning}")).collect();
    let notes = run.notes.iter().map(|note| format!("note: {note}")).collect();
    for lines in [capacities(&view), faults(&view), ratios(run), warnings, generator(&view), notes] {
        let more = lines.len().saturating_sub(LINES_MAX);
        for line in lines.into_iter().take(LINES_MAX) {
            text += &wrapped(&number::plain(&line));
        }
        if more > 0 {
            text += &format!("{more} more of this kind\n");
        }
    }
    text
}

fn row(label: &str, measures: &Measures) -> Vec<String> {
    let latency = &measures.latency;
    let times =
        [latency.mean_ms, latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.p999_ms, latency.max_ms];
    let time = |time_ms: f64| if has_latency(measures) { figure(time_ms) } else { NONE.to_owned() };
    let maybe = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), figure);
    let mut row = vec![
        number::plain(&measures.name),
        label.to_owned(),
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

pub(crate) fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    text.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect()
}

/// Broken between words where it is longer than a line, the rest set in.
pub(crate) fn wrapped(line: &str) -> String {
    let (mut text, mut chars) = (String::new(), 0);
    for word in line.split(' ') {
        let more = word.chars().count();
        if chars > 0 && chars + 1 + more > COLUMNS_MAX {
            text += "\n  ";
            chars = 2;
        } else if chars > 0 {
            text.push(' ');
            chars += 1;
        }
        text += word;
        chars += more;
    }
    text + "\n"
}

fn capacities(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for shown in &view.subjects {
        if let Some(capacity) = &shown.subject.capacity {
            let rates = (figure(capacity.requests_per_s), figure(capacity.megabits_per_s));
            lines.push(format!("{}: capacity {} answers/s, {} Mb/s", shown.label, rates.0, rates.1));
        }
        if let Some(score) = &shown.subject.score {
            lines.push(format!("{}: score {} connections", shown.label, score.connections));
        }
    }
    lines
}

fn faults(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for (shown, measures) in each(view) {
        let kinds = measures.counts.failed.iter().filter(|(_, count)| **count > 0);
        let kinds: Vec<String> =
            kinds.map(|(kind, count)| format!("{} {kind}", number::count(*count))).collect();
        if !kinds.is_empty() {
            lines.push(format!("{} {}: failed: {}", shown.label, view.at_name(measures), kinds.join(", ")));
        }
    }
    lines
}

/// The ratios that most ask for, at the last level; the report has all.
fn ratios(run: &Run) -> Vec<String> {
    let last = run.ratios.iter().rev().find_map(|ratio| ratio.level.as_deref());
    let asked_for = |ratio: &&Ratio| {
        ratio.level.is_none()
            || ratio.level.as_deref() == last && matches!(ratio.measure.as_str(), "p50" | "p99")
    };
    let line = |ratio: &Ratio| {
        let level = ratio.level.as_deref().map(|level| format!(" at {level}")).unwrap_or_default();
        let interval = ratio
            .interval
            .map_or_else(String::new, |[low, high]| format!(" ({} to {}, 95 %)", figure(low), figure(high)));
        let times = figure(ratio.ratio);
        format!("{}{level}: {} / {} = {times}{interval}", ratio.measure, ratio.subject, ratio.base)
    };
    run.ratios.iter().filter(asked_for).map(line).collect()
}

/// What the generator did to the figures, over all levels.
fn generator(view: &View) -> Vec<String> {
    let sum = |of: fn(&Measures) -> u64| {
        each(view).fold(0_u64, |sum, (_, measures)| sum.saturating_add(of(measures)))
    };
    let (late, queued) = (sum(|m| m.counts.late), sum(|m| m.counts.queued));
    let most_ms = each(view).map(|(_, measures)| measures.generator.late_max_ms).fold(0.0, f64::max);
    let mut lines = Vec::new();
    if late > 0 {
        let late = number::count(late);
        lines.push(format!(
            "the generator sent {late} late by more than 1 ms, by {} at most",
            number::time(most_ms)
        ));
    }
    if queued > 0 {
        lines.push(format!("{} arrivals found no free connection", number::count(queued)));
    }
    lines
}

/// Each level of each subject.
fn each<'a>(view: &'a View) -> impl Iterator<Item = (&'a Shown<'a>, &'a Measures)> {
    let levels = |shown: &'a Shown<'a>| shown.subject.levels.iter().map(move |measures| (shown, measures));
    view.subjects.iter().flat_map(levels)
}
