//! The head of the report: its title, its warnings, the table of the summary, the facts of the setup.
//!
//! The page and the JSON call it. It compares figures that the run has, and computes no others. Pure.

use super::levels::failed_share;
use super::view::{Shown, View, has_latency};
use crate::results::Run;
use flash_kit::number;
use flash_kit::part::{Cell, Part, Table, columns};
use flash_load::measure::{Measures, validity};

/// No more warnings are shown; the rest is counted.
const WARNINGS_MAX: usize = 30;
/// A title names no more servers.
const NAMES_MAX: usize = 4;
/// The column of [`growth`].
const GROWTH: &str = "p99 growth";

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

/// Reasons to doubt the figures, one line each.
pub(super) fn warnings(view: &View) -> Vec<String> {
    let mut warnings = Vec::new();
    for shown in &view.subjects {
        if let Some(why) = &shown.subject.missing {
            warnings.push(format!("{}: parts are missing: {why}", shown.label));
        }
        let doubts = shown.subject.capacity.iter().flat_map(|capacity| &capacity.doubts);
        warnings.extend(doubts.map(|why| format!("{}: capacity in doubt: {why}", shown.label)));
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
    let doubts = validity::warnings(measures).into_iter();
    let mut warnings: Vec<String> = doubts.map(|doubt| format!("{whose}: {doubt}")).collect();
    if measures.records_lost > 0 {
        warnings
            .push(format!("{whose}: {} records are not in the file", number::count(measures.records_lost)));
    }
    warnings
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

/// The table of the summary.
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
        "answered, answers/s",
        "p50, ms",
        "p99, ms",
        "p99.9, ms",
        GROWTH,
        "inversion, 0 to 1",
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
    let has_growth = table.columns.iter().any(|column| column == GROWTH);
    let lead = "The p99 growth is the p99 at the highest load over the p99 at the lowest.";
    Part {
        id: "summary",
        title: "Summary".to_owned(),
        lead: if has_growth { lead.to_owned() } else { String::new() },
        tables: vec![table, capacities(view)],
        ..Part::default()
    }
}

/// How steady the capacities were.
fn capacities(view: &View) -> Table {
    let row = |shown: &Shown| {
        let capacity = shown.subject.capacity.as_ref()?;
        let rounds = capacity.rounds_requests_per_s.iter().copied().filter(|rate| rate.is_finite());
        let doubts = &capacity.doubts;
        if rounds.clone().count() < 2 && doubts.is_empty() {
            return None;
        }
        let ends = [rounds.clone().fold(f64::INFINITY, f64::min), rounds.fold(f64::NEG_INFINITY, f64::max)];
        let head = [Cell::text(&shown.label), Cell::count(capacity.clients.into())];
        let mark = match doubts.len() {
            0 => Cell::None,
            count => Cell::text(&format!("{count} of {} rounds", capacity.rounds_requests_per_s.len())),
        };
        Some(head.into_iter().chain(ends.map(Cell::figure)).chain([mark]).collect())
    };
    let columns = columns(&["subject", "clients", "least, answers/s", "most, answers/s", "in doubt"]);
    let rows = view.subjects.iter().filter_map(row).collect();
    let mut table = Table { title: "Capacity, over the rounds".to_owned(), columns, rows };
    drop_empty_columns(&mut table);
    table
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
pub(super) fn drop_empty_columns(table: &mut Table) {
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
