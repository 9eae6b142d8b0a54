//! The short table that the commands print.
//!
//! `load`, `profile` and `compare` call it through `report::table`. Pure.

use flash_kit::text::{columns, wrapped};

use super::levels::failed_share;
use super::summary;
use super::view::{Shown, View, has_latency};
use crate::results::{CPU_PER_ANSWER, Ratio, Run};
use flash_kit::number::{self, NONE, figure};
use flash_load::measure::{Kind, Latency, Measures};

/// No more lines of one kind below the table; the report has all.
const LINES_MAX: usize = 20;

const HEADS: [&str; 13] = [
    "level",
    "subject",
    "asked\nper s",
    "answered\nper s",
    "rate\nMb/s",
    "mean\nms",
    "p50\nms",
    "p90\nms",
    "p99\nms",
    "p99.9\nms",
    "max\nms",
    "inversion\n0 to 1",
    "failed\n%",
];
/// The place of the subject; it is left out where there is only one.
const SUBJECT: usize = 1;

pub(super) fn table(run: &Run) -> String {
    let view = View::new(std::slice::from_ref(run));
    let rows: Vec<Vec<String>> =
        view.levels_of_all().map(|(shown, measures)| row(&shown.label, measures)).collect();
    let mut text = if rows.is_empty() { String::new() } else { aligned(rows, run.subjects.len() > 1) };
    let warnings =
        summary::warnings(&view).into_iter().map(|warning| format!("warning: {warning}")).collect();
    let notes = run.notes.iter().map(|note| format!("note: {note}")).collect();
    let (kinds, of_overload) = (kinds(&view), overload(&view));
    let groups = [
        capacities(&view),
        faults(&view),
        handshakes(&view),
        kinds,
        of_overload,
        ratios(run),
        warnings,
        generator(&view),
        notes,
    ];
    for lines in groups {
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
    row.extend([
        maybe(measures.inversion),
        number::percent(failed_share(measures)).trim_end_matches(" %").to_owned(),
    ]);
    row
}

fn aligned(mut rows: Vec<Vec<String>>, has_subjects: bool) -> String {
    let mut heads = HEADS.to_vec();
    if has_subjects {
        return columns(&heads, rows, &[0, SUBJECT]);
    }
    heads.remove(SUBJECT);
    rows.iter_mut().for_each(|row| drop(row.remove(SUBJECT)));
    columns(&heads, rows, &[0])
}

fn capacities(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for shown in &view.subjects {
        if let Some(capacity) = &shown.subject.capacity {
            let rates = (figure(capacity.requests_per_s), figure(capacity.megabits_per_s));
            // The warnings give the reasons.
            let mark = if capacity.doubts.is_empty() { "" } else { " (in doubt)" };
            lines.push(format!("{}: capacity {} answers/s, {} Mb/s{mark}", shown.label, rates.0, rates.1));
        }
        if let Some(score) = &shown.subject.score {
            lines.push(format!("{}: score {} connections", shown.label, score.connections));
        }
    }
    lines
}

fn faults(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for (shown, measures) in view.levels_of_all() {
        let kinds = measures.counts.failed.iter().filter(|(_, count)| **count > 0);
        let kinds: Vec<String> =
            kinds.map(|(kind, count)| format!("{} {kind}", number::count(*count))).collect();
        if !kinds.is_empty() {
            lines.push(format!("{} {}: failed: {}", shown.label, view.at_name(measures), kinds.join(", ")));
        }
    }
    lines
}

/// The TLS handshakes, where there were any, and the time that they took.
fn handshakes(view: &View) -> Vec<String> {
    let words = |count: u64, name: &str, latency: Option<Latency>| {
        let latency = latency?;
        let times = (number::time(latency.p50_ms), number::time(latency.p99_ms));
        Some(format!("{} {name}, p50 {}, p99 {}", number::count(count), times.0, times.1))
    };
    let line = |(shown, measures): (&Shown<'_>, &Measures)| {
        let found = measures.handshakes?;
        let kinds =
            [words(found.full, "full", found.full_time), words(found.resumed, "resumed", found.resumed_time)];
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        Some(format!("{} {}: TLS handshakes: {}", shown.label, view.at_name(measures), kinds.join("; ")))
    };
    view.levels_of_all().filter_map(line).collect()
}

/// The latencies of static and of dynamic requests, where there are both.
fn kinds(view: &View) -> Vec<String> {
    let words = |kind: &Kind| {
        let times = match kind.latency {
            Some(latency) => {
                format!(", p50 {}, p99 {}", number::time(latency.p50_ms), number::time(latency.p99_ms))
            }
            None => String::new(),
        };
        let counts = (number::count(kind.answered), number::count(kind.asked));
        format!("{} {} of {} answered{times}", kind.name, counts.0, counts.1)
    };
    let with_kinds = view.levels_of_all().filter(|(_, measures)| !measures.kinds.is_empty());
    with_kinds
        .map(|(shown, measures)| {
            let kinds: Vec<String> = measures.kinds.iter().map(words).collect();
            format!("{} {}: {}", shown.label, view.at_name(measures), kinds.join("; "))
        })
        .collect()
}

/// Response times and connections of levels whose figures of overload are there.
fn overload(view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for (shown, measures) in view.levels_of_all() {
        let Some(overload) = &measures.overload else { continue };
        let mean = |latency: Option<Latency>| match latency {
            Some(latency) => number::time(latency.mean_ms),
            None => NONE.to_owned(),
        };
        let place = format!("{} {}", shown.label, view.at_name(measures));
        let mut times = format!("mean response time {}", mean(overload.complete));
        if let Some(largest) = &overload.largest {
            times += &format!(
                "; of the largest {} ({} bytes and more) {}",
                number::percent(1.0 - largest.from_share),
                number::count(largest.bytes_min),
                mean(largest.latency)
            );
        }
        times +=
            &format!("; of requests completed while requests arrived {}", mean(overload.complete_in_time));
        lines.push(format!("{place}: {times}"));
        let incomplete = overload.incomplete.total();
        lines.push(format!(
            "{place}: {} of {} requests incomplete; {} retries; open connections: {} on average, {} at most",
            number::count(incomplete),
            number::count(measures.counts.asked),
            number::count(measures.counts.retried),
            figure(overload.open_mean),
            number::count(overload.open_max)
        ));
    }
    lines
}

/// Capacity, and the median, the p99 and the CPU time at the last level; the report has all ratios.
fn ratios(run: &Run) -> Vec<String> {
    let last = run.ratios.iter().rev().find_map(|ratio| ratio.level.as_deref());
    let asked_for = |ratio: &&Ratio| {
        ratio.level.is_none()
            || ratio.level.as_deref() == last
                && matches!(ratio.measure.as_str(), "p50" | "p99" | CPU_PER_ANSWER)
    };
    let line = |ratio: &Ratio| {
        let level = ratio.level.as_deref().map(|level| format!(" at {level}")).unwrap_or_default();
        let interval = ratio.interval.map_or_else(String::new, |[low, high]| {
            format!(" (95 % interval {} to {})", figure(low), figure(high))
        });
        let times = figure(ratio.ratio);
        let doubt = ratio.doubt.as_deref().map(|why| format!(" (cannot be told: {why})")).unwrap_or_default();
        format!(
            "{}{level}: {} / {} = {times} times{interval}{doubt}",
            ratio.measure, ratio.subject, ratio.base
        )
    };
    run.ratios.iter().filter(asked_for).map(line).collect()
}

/// Late and queued requests over all levels.
fn generator(view: &View) -> Vec<String> {
    let sum = |of: fn(&Measures) -> u64| {
        view.levels_of_all().fold(0_u64, |sum, (_, measures)| sum.saturating_add(of(measures)))
    };
    let (late, queued) = (sum(|m| m.counts.late), sum(|m| m.counts.queued));
    let most_ms =
        view.levels_of_all().map(|(_, measures)| measures.generator.late_max_ms).fold(0.0, f64::max);
    let mut lines = Vec::new();
    if late > 0 {
        let late = number::count(late);
        lines.push(format!(
            "the generator sent {late} requests more than 1 ms late, by {} at most",
            number::time(most_ms)
        ));
    }
    if queued > 0 {
        lines.push(format!("{} requests found no free connection", number::count(queued)));
    }
    lines
}
