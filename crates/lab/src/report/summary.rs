//! The head of the report: its title, its warnings, the table of the summary, the facts of the setup.
//!
//! The page and the JSON call it. It compares figures that the run has, and computes no others. Pure.

use super::levels::failed_share;
use super::view::{self, Shown, View, has_latency};
use crate::results::{Capacity, Run};
use flash_kit::number;
use flash_kit::section::{Cell, Column, Section, Table, filled};
use flash_kit::text::{capital, shortened};
use flash_load::measure::{Measures, validity};

/// No more warnings are shown; the rest is counted.
const WARNINGS_MAX: usize = 30;
/// A title names no more servers.
const NAMES_MAX: usize = 4;
/// The column of [`growth`].
const GROWTH: &str = "p99 growth";

/// "flash, nginx and apache".
pub(super) fn title(view: &View) -> String {
    let names = view.names();
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
    shortened(warnings, WARNINGS_MAX).iter().map(|text| number::plain(text)).collect()
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

pub(super) fn section(view: &View) -> Section {
    type Row<'a> = (String, Option<&'a Shown<'a>>, Option<&'a Measures>);
    let rows: Vec<Row<'_>> = match view.named().filter(|named| named.len() > 1) {
        Some(named) => named.into_iter().map(|one| (one.label, None, Some(one.measures))).collect(),
        None => view
            .subjects
            .iter()
            .map(|shown| (shown.label.clone(), Some(shown), view.at_level(shown)))
            .collect(),
    };
    let capacity = |(_, shown, _): &Row<'_>, of: fn(&Capacity) -> f64| {
        Cell::maybe(shown.and_then(|shown| shown.subject.capacity.as_ref()), |found| Cell::figure(of(found)))
    };
    let figure =
        |(.., measures): &Row<'_>, of: fn(&Measures) -> f64| Cell::maybe(*measures, |m| Cell::figure(of(m)));
    let columns: [Column<'_, &Row<'_>>; 11] = [
        ("subject", &|(label, ..)| Cell::text(label)),
        ("capacity, answers/s", &|row| capacity(row, |capacity| capacity.requests_per_s)),
        ("capacity, Mb/s", &|row| capacity(row, |capacity| capacity.megabits_per_s)),
        ("answered, answers/s", &|row| figure(row, |m| m.answered_per_s)),
        ("p50, ms", &|row| figure(row, |m| m.latency.p50_ms)),
        ("p99, ms", &|row| figure(row, |m| m.latency.p99_ms)),
        ("p99.9, ms", &|row| figure(row, |m| m.latency.p999_ms)),
        (GROWTH, &|(_, shown, _)| Cell::maybe(shown.and_then(growth), Cell::factor)),
        ("inversion, 0 to 1", &|(.., measures)| {
            Cell::maybe(measures.and_then(|m| m.inversion), Cell::figure)
        }),
        ("failed", &|(.., measures)| Cell::maybe(*measures, |m| Cell::share(failed_share(m)))),
        ("CPU per answer, µs", &|(.., measures)| {
            Cell::maybe(measures.and_then(|m| m.server), |usage| Cell::figure(usage.cpu_us_per_answer))
        }),
    ];
    let has_capacity = rows.iter().any(|row| row.1.is_some_and(|shown| shown.subject.capacity.is_some()));
    let title = match view.title_of(&view.picked()) {
        words if words.is_empty() && view.named().is_some() => "Level by level".to_owned(),
        _ if view.named().is_none() && has_capacity => {
            format!("Capacity, and all else {}", view.level_words())
        }
        words => capital(words.trim_start_matches("· ")),
    };
    let table = filled(&title, &columns, &rows);
    let has_growth = table.columns.iter().any(|column| column == GROWTH);
    let lead = "The p99 growth is the p99 at the highest load over the p99 at the lowest.";
    let section = view::section("summary", "Summary", if has_growth { lead } else { "" });
    Section { tables: vec![table, capacities(view)], ..section }
}

fn capacities(view: &View) -> Table {
    let rounds = |capacity: &Capacity| -> Vec<f64> {
        capacity.rounds_requests_per_s.iter().copied().filter(|rate| rate.is_finite()).collect()
    };
    let of = |shown| {
        let shown: &Shown = shown;
        let capacity = shown.subject.capacity.as_ref()?;
        (rounds(capacity).len() > 1 || !capacity.doubts.is_empty()).then_some((shown, capacity))
    };
    let columns: [Column<'_, (&Shown, &Capacity)>; 5] = [
        ("subject", &|(shown, _)| Cell::text(&shown.label)),
        ("clients", &|(_, capacity)| Cell::count(capacity.clients.into())),
        ("least, answers/s", &|(_, capacity)| {
            Cell::figure(rounds(capacity).into_iter().fold(f64::INFINITY, f64::min))
        }),
        ("most, answers/s", &|(_, capacity)| {
            Cell::figure(rounds(capacity).into_iter().fold(f64::NEG_INFINITY, f64::max))
        }),
        ("in doubt", &|(_, capacity)| match capacity.doubts.len() {
            0 => Cell::None,
            count => Cell::text(&format!("{count} of {} rounds", capacity.rounds_requests_per_s.len())),
        }),
    ];
    filled("Capacity, over the rounds", &columns, view.subjects.iter().filter_map(of))
}

pub(super) fn facts(run: &Run) -> Vec<(String, String)> {
    let load = number::figure(run.machine.load_average);
    let machine = format!("{}, load average before the run {load}", run.machine.text());
    let mut facts = vec![
        ("measured".to_owned(), format!("{}, by `flash {}`", run.started, run.command)),
        ("workload".to_owned(), run.workload.clone()),
        ("arrivals".to_owned(), run.arrivals.clone()),
        ("machine".to_owned(), machine),
    ];
    facts.extend(run.settings.iter().map(|(name, words)| (name.clone(), words.clone())));
    facts.push(("command".to_owned(), run.command_line.join(" ")));
    facts.retain(|(_, words)| !words.is_empty());
    facts.into_iter().map(|(name, words)| (number::plain(&name), number::plain(&words))).collect()
}

pub(super) fn subjects(view: &View) -> Table {
    let columns: [Column<'_, &Shown>; 5] = [
        ("subject", &|shown| Cell::text(&shown.label)),
        ("URL", &|shown| Cell::text(&shown.subject.url)),
        ("version", &|shown| Cell::maybe(shown.subject.version.as_deref(), Cell::text)),
        ("data set", &|shown| Cell::maybe(shown.subject.dataset_bytes, Cell::bytes)),
        ("started by", &|shown| Cell::maybe(shown.subject.command.as_deref(), Cell::text)),
    ];
    filled("Subjects", &columns, &view.subjects)
}
