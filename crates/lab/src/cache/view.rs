//! The results of a simulation as a table for the terminal, a page, and JSON.
//!
//! [`super::run`] calls it. Pure; it computes no figure.

use serde_json::{Value, json};

use super::Simulated;
use super::policies::Name;
use super::requests::BLOCK_BYTES;
use super::simulate::Outcome;
use flash_kit::number::{binary_size as memory, count, figure, percent, size};
use flash_kit::scale::Unit;
use flash_kit::section::{Cell, Table};
use flash_kit::sheet::{Axis, Division, Plot, Sheet};
use flash_kit::text::{columns, distinct, wrapped};

/// The form of the JSON; a change that old readers would misread raises it.
const FORMAT: u32 = 1;

const HEADS: [&str; 6] = [
    "memory",
    "policy",
    "hits, of\nall requests",
    "misses per\n1,000 requests",
    "disk reads per\n1,000 requests",
    "bytes missed,\nof all bytes",
];
/// Columns of words; the others are figures.
const WORDS: [usize; 1] = [1];

/// The table, the facts above it and the answer below it.
pub(super) fn table(simulated: &Simulated) -> String {
    let mut text = String::new();
    for (name, words) in facts(simulated) {
        text += &wrapped(&format!("{name}: {words}"));
    }
    let mut last = None;
    let rows = simulated.outcomes.iter().map(|outcome| {
        let is_new = last.replace(outcome.memory_bytes) != Some(outcome.memory_bytes);
        vec![
            if is_new { memory(outcome.memory_bytes) } else { String::new() },
            outcome.policy.word().to_owned(),
            percent(outcome.hit_share()),
            figure(outcome.misses_per_thousand()),
            figure(outcome.reads_per_thousand()),
            percent(outcome.missed_byte_share()),
        ]
    });
    text += &columns(&HEADS, rows.collect(), &WORDS);
    text + &wrapped(&simulated.answer.text())
}

fn facts(simulated: &Simulated) -> Vec<(&'static str, String)> {
    let Simulated { workload, requests, warm_up, files, set_bytes, .. } = simulated;
    let asked = format!(
        "{} for {} files of {} together; the first {} fill the memory and are not counted",
        count(*requests as u64),
        count(*files as u64),
        size(*set_bytes as f64),
        count(*warm_up as u64),
    );
    vec![("workload", workload.clone()), ("requests", asked)]
}

pub(super) fn sheet(simulated: &Simulated) -> Sheet {
    let figure_of = |title: &str, value: fn(&Outcome) -> f64| Plot {
        title: title.to_owned(),
        x: Axis::new("memory", Unit::Bytes, Division::Log),
        y: Axis::new(title, Unit::Number, Division::Log),
        lines: lines(simulated, value),
        table: Some(against_memory(title, simulated, value)),
    };
    let mut facts: Vec<_> =
        facts(simulated).into_iter().map(|(name, words)| (name.to_owned(), words)).collect();
    let block =
        format!("one read of the disk for each {} of a file that is not in memory", memory(BLOCK_BYTES));
    facts.push(("counted".to_owned(), block));
    facts.push(("command".to_owned(), flash_kit::command_line().join(" ")));
    Sheet {
        title: "How much memory does this site need?".to_owned(),
        subtitle: format!("{}, simulated", simulated.workload),
        summary: simulated.answer.text(),
        warnings: simulated.warnings.clone(),
        plots: vec![
            figure_of("disk reads for each 1,000 requests", Outcome::reads_per_thousand),
            figure_of("missed requests of each 1,000", Outcome::misses_per_thousand),
        ],
        facts,
        footer: "Made by `flash cache simulate`. The placement called static knows all requests beforehand."
            .to_owned(),
        ..Sheet::default()
    }
}

fn policies(simulated: &Simulated) -> Vec<Name> {
    distinct(simulated.outcomes.iter().map(|outcome| outcome.policy))
}

fn lines(simulated: &Simulated, value: fn(&Outcome) -> f64) -> Vec<(String, Vec<(f64, f64)>)> {
    let line = |policy: Name| {
        let outcomes = simulated.outcomes.iter().filter(|outcome| outcome.policy == policy);
        let points = outcomes.map(|outcome| (outcome.memory_bytes as f64, value(outcome))).collect();
        (policy.word().to_owned(), points)
    };
    policies(simulated).into_iter().map(line).collect()
}

fn against_memory(title: &str, simulated: &Simulated, value: fn(&Outcome) -> f64) -> Table {
    let names = policies(simulated);
    let mut columns = vec!["memory".to_owned()];
    columns.extend(names.iter().map(|name| name.word().to_owned()));
    let rows = simulated.outcomes.chunks(names.len()).map(|of_memory| {
        let mut row = vec![Cell::Text(memory(of_memory[0].memory_bytes))];
        row.extend(of_memory.iter().map(|outcome| Cell::figure(value(outcome))));
        row
    });
    Table { title: title.to_owned(), columns, rows: rows.collect() }
}

/// All figures, for programs; with a line end.
pub(super) fn json(simulated: &Simulated) -> String {
    let result = |outcome: &Outcome| {
        json!({
            "memory_bytes": outcome.memory_bytes,
            "policy": outcome.policy.word(),
            "requests": outcome.requests,
            "misses": outcome.misses,
            "disk_reads": outcome.reads,
            "asked_bytes": outcome.asked_bytes,
            "missed_bytes": outcome.missed_bytes,
            "misses_per_thousand": outcome.misses_per_thousand(),
            "disk_reads_per_thousand": outcome.reads_per_thousand(),
        })
    };
    let value = json!({
        "format": FORMAT,
        "workload": simulated.workload,
        "warnings": simulated.warnings,
        "requests": simulated.requests,
        "warm_up_requests": simulated.warm_up,
        "files": simulated.files,
        "set_bytes": simulated.set_bytes,
        "block_bytes": BLOCK_BYTES,
        "results": simulated.outcomes.iter().map(result).collect::<Vec<Value>>(),
        "answer": simulated.answer.text(),
    });
    format!("{value:#}\n")
}
