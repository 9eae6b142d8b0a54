//! The head of the report: what was measured, what to beware of, what was found.
//!
//! The page and the JSON call it. It compares figures that the run has, and computes no others. Pure.

use super::levels::failed_share;
use super::number;
use super::part::{Cell, Part, Table, columns};
use super::view::{Picked, Shown, View, has_latency};
use crate::results::{Measures, Run};

/// No more warnings are shown; the rest is counted.
const WARNINGS_MAX: usize = 30;
/// A title names no more servers.
const NAMES_MAX: usize = 4;
/// A sentence compares no more; the table has all.
const SENTENCE_MAX: usize = 5;
/// From this share of failed requests on, latencies tell less than half the story.
const FAILED_SHARE_WARNED: f64 = 0.01;

/// "flash, nginx and apache".
pub(super) fn title(view: &View) -> String {
    let mut names: Vec<&str> = Vec::new();
    for shown in &view.subjects {
        if !names.contains(&shown.name.as_str()) {
            names.push(&shown.name);
        }
    }
    if names.len() > NAMES_MAX {
        return format!("{} and {} others", names[..NAMES_MAX - 1].join(", "), names.len() + 1 - NAMES_MAX);
    }
    match names.split_last() {
        None => "Nothing was measured".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// What must be known before any figure is believed.
pub(super) fn warnings(view: &View) -> Vec<String> {
    let mut warnings = Vec::new();
    for shown in &view.subjects {
        if let Some(why) = &shown.subject.missing {
            warnings.push(format!("{}: parts are missing: {why}", shown.label));
        }
        for measures in &shown.subject.levels {
            let whose = format!("{} {}", shown.label, view.at_name(measures));
            warnings.extend(warnings_of(&whose, measures));
        }
    }
    let more = warnings.len().saturating_sub(WARNINGS_MAX);
    warnings.truncate(WARNINGS_MAX);
    if more > 0 {
        warnings.push(format!("{more} more of this kind"));
    }
    warnings.iter().map(|text| number::plain(text)).collect()
}

fn warnings_of(whose: &str, measures: &Measures) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(limit) = &measures.generator.limit {
        warnings.push(format!("{whose}: the generator was the limit, not the server: {limit}"));
    }
    if let Some(why) = &measures.ended_early {
        warnings.push(format!("{whose}: ended early: {why}"));
    }
    if measures.records_lost > 0 {
        warnings
            .push(format!("{whose}: {} records are not in the file", number::count(measures.records_lost)));
    }
    let failed = failed_share(measures);
    if failed >= FAILED_SHARE_WARNED {
        warnings.push(format!("{whose}: {} of the requests failed", number::percent(failed)));
    }
    warnings
}

/// What the figures say, in sentences.
pub(super) fn findings(view: &View) -> Vec<String> {
    let mut found = view.picked();
    // Servers from the best on; named levels in the order of the run.
    if view.named().is_none() {
        found.sort_by(|a, b| a.measures.latency.p99_ms.total_cmp(&b.measures.latency.p99_ms));
    }
    let mut findings = Vec::new();
    if let [first, others @ ..] = &found[..]
        && !others.is_empty()
    {
        let first_ms = first.measures.latency.p99_ms;
        let other = |picked: &Picked| {
            let p99_ms = picked.measures.latency.p99_ms;
            let times = Some(p99_ms / first_ms).filter(|times| times.is_finite());
            let times = times.map(|times| format!(", {}×", number::figure(times))).unwrap_or_default();
            format!("{} ({}{times})", number::time(p99_ms), picked.label)
        };
        let mut words = vec![format!("{} ({})", number::time(first_ms), first.label)];
        words.extend(some_of(others).map(other));
        let level = match view.title_of(&found) {
            words if words.is_empty() => String::new(),
            words => format!("{}: ", capital(&words)),
        };
        findings
            .push(format!("{level}99 of 100 requests were answered within {}.", listed(&words, found.len())));
    }
    let mut growths: Vec<(f64, &Shown)> =
        view.drawn().filter_map(|shown| Some((growth(shown)?, shown))).collect();
    growths.sort_by(|a, b| a.0.total_cmp(&b.0));
    if !growths.is_empty() {
        let one =
            |(factor, shown): &(f64, &Shown)| format!("{}× on {}", number::figure(*factor), shown.label);
        let words: Vec<String> = some_of(&growths).map(one).collect();
        let words = listed(&words, growths.len());
        findings.push(format!("From its lowest to its highest load the 99th percentile grows {words}."));
    }
    findings
}

/// The first few, and the last.
fn some_of<T>(all: &[T]) -> impl Iterator<Item = &T> {
    let few = if all.len() > SENTENCE_MAX { SENTENCE_MAX - 1 } else { all.len() };
    all[..few].iter().chain(all[few..].last())
}

/// Words as a list; where some of `count` were left out, that is said.
fn listed(words: &[String], count: usize) -> String {
    match words.split_last() {
        Some((last, others)) if words.len() < count => format!("{} … {last}", others.join(", ")),
        _ => words.join(", "),
    }
}

/// The 99th percentile at the highest load over that at the lowest.
fn growth(shown: &Shown) -> Option<f64> {
    let (low, high) = load_ends(shown)?;
    let factor = high.latency.p99_ms / low.latency.p99_ms;
    factor.is_finite().then_some(factor)
}

fn load_ends<'a>(shown: &Shown<'a>) -> Option<(&'a Measures, &'a Measures)> {
    let loaded =
        shown.subject.levels.iter().filter(|m| has_latency(m) && m.load_level.is_some_and(f64::is_finite));
    let load = |m: &&Measures| m.load_level.unwrap_or_default();
    let low = loaded.clone().min_by(|a, b| load(a).total_cmp(&load(b)))?;
    let high = loaded.max_by(|a, b| load(a).total_cmp(&load(b)))?;
    (low.load_level < high.load_level).then_some((low, high))
}

fn capital(text: &str) -> String {
    let mut chars = text.trim_start_matches("· ").chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The table of findings.
pub(super) fn part(view: &View) -> Part {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    if let Some(named) = view.named().filter(|named| named.len() > 1) {
        rows.extend(named.iter().map(|picked| row(&picked.label, None, Some(picked.measures))));
    } else {
        rows.extend(view.subjects.iter().map(|shown| row(&shown.label, Some(shown), view.at_level(shown))));
    }
    let names = [
        "subject",
        "capacity, answers/s",
        "capacity, Mb/s",
        "answered/s",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        "p99 grows by",
        "inversion",
        "failed",
        "CPU per answer, µs",
    ];
    let has_capacity = rows.iter().any(|row| row.get(1) != Some(&Cell::None));
    let title = match view.title_of(&view.picked()) {
        words if words.is_empty() && view.named().is_some() => "Level by level".to_owned(),
        _ if view.named().is_none() && has_capacity => {
            format!("Capacity, and all else {}", view.level_words())
        }
        words => capital(&words),
    };
    let mut table = Table { title, columns: columns(&names), rows };
    drop_empty_columns(&mut table);
    Part {
        id: "summary",
        title: "Summary".to_owned(),
        tables: vec![table, capacities(view)],
        ..Part::default()
    }
}

/// How steady the capacities were.
fn capacities(view: &View) -> Table {
    let row = |shown: &Shown| {
        let capacity = shown.subject.capacity.as_ref()?;
        let rounds = capacity.rounds_requests_per_s.iter().copied().filter(|rate| rate.is_finite());
        if rounds.clone().count() < 2 {
            return None;
        }
        let ends = [rounds.clone().fold(f64::INFINITY, f64::min), rounds.fold(f64::NEG_INFINITY, f64::max)];
        let head = [Cell::text(&shown.label), Cell::count(capacity.clients.into())];
        Some(head.into_iter().chain(ends.map(Cell::figure)).collect())
    };
    let columns = columns(&["subject", "clients", "least, answers/s", "most, answers/s"]);
    let rows = view.subjects.iter().filter_map(row).collect();
    Table { title: "Capacity, over the rounds".to_owned(), columns, rows }
}

fn row(label: &str, shown: Option<&Shown>, measures: Option<&Measures>) -> Vec<Cell> {
    let capacity = shown.and_then(|shown| shown.subject.capacity.as_ref());
    vec![
        Cell::text(label),
        Cell::maybe(capacity, |capacity| Cell::figure(capacity.requests_per_s)),
        Cell::maybe(capacity, |capacity| Cell::figure(capacity.megabits_per_s)),
        Cell::maybe(measures, |m| Cell::figure(m.answered_per_s)),
        Cell::maybe(measures, |m| Cell::figure(m.latency.p50_ms)),
        Cell::maybe(measures, |m| Cell::figure(m.latency.p99_ms)),
        Cell::maybe(measures, |m| Cell::figure(m.latency.p999_ms)),
        Cell::maybe(shown.and_then(growth), Cell::factor),
        Cell::maybe(measures.and_then(|m| m.inversion), Cell::figure),
        Cell::maybe(measures, |m| Cell::share(failed_share(m))),
        Cell::maybe(measures.and_then(|m| m.server), |usage| Cell::figure(usage.cpu_us_per_answer)),
    ]
}

/// Columns without a figure say nothing.
fn drop_empty_columns(table: &mut Table) {
    let is_kept: Vec<bool> = (0..table.columns.len())
        .map(|at| table.rows.iter().any(|row| row.get(at) != Some(&Cell::None)))
        .collect();
    let mut kept = is_kept.iter();
    table.columns.retain(|_| *kept.next().unwrap_or(&true));
    for row in &mut table.rows {
        let mut kept = is_kept.iter();
        row.retain(|_| *kept.next().unwrap_or(&true));
    }
}

/// Settings of a run, as name and words.
pub(super) fn facts(run: &Run) -> Vec<(String, String)> {
    let machine = &run.machine;
    let mut words: Vec<String> = Vec::new();
    if !machine.cpu.is_empty() {
        words.push(machine.cpu.clone());
    }
    words.push(format!("{} cores", machine.cores));
    words.push(format!("{} memory", number::size(machine.memory_bytes as f64)));
    words.push(machine.kernel.clone());
    words.push(format!("load average before the run {}", number::figure(machine.load_average)));
    let mut facts = vec![
        ("measured".to_owned(), format!("{}, by `flash {}`", run.started, run.command)),
        ("workload".to_owned(), run.workload.clone()),
        ("arrivals".to_owned(), run.arrivals.clone()),
        ("machine".to_owned(), words.join(", ")),
    ];
    facts.extend(run.settings.iter().map(|(name, words)| (name.clone(), words.clone())));
    facts.push(("command".to_owned(), run.command_line.join(" ")));
    facts.retain(|(_, words)| !words.is_empty());
    facts.into_iter().map(|(name, words)| (number::plain(&name), number::plain(&words))).collect()
}

/// Who the subjects are.
pub(super) fn subjects(view: &View) -> Table {
    let row = |shown: &Shown| {
        let subject = shown.subject;
        vec![
            Cell::text(&shown.label),
            Cell::text(&subject.url),
            Cell::maybe(subject.version.as_deref(), Cell::text),
            Cell::maybe(subject.dataset_bytes, Cell::bytes),
            Cell::maybe(subject.command.as_deref(), Cell::text),
        ]
    };
    let columns = columns(&["subject", "URL", "version", "data set", "started by"]);
    let mut table =
        Table { title: "Subjects".to_owned(), columns, rows: view.subjects.iter().map(row).collect() };
    drop_empty_columns(&mut table);
    table
}
