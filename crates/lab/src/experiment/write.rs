//! Writes the results of an experiment: the page, its figures as JSON, and the findings on the terminal.
//!
//! [`super::run`] calls it at the end. The experiments' own functions compute the figures.

use serde_json::{Value, json};

use super::behind;
use super::data::Data;
use super::finding::{Finding, Verdict};
use super::plan::Plan;
use super::rounds::{Came, Missing};
use super::{Experiment, Options};
use crate::report::REPORT_FILE;
use crate::results::Run;
use crate::results::folder::write_whole;
use flash_kit::number::{figure, size};
use flash_kit::section::Table;
use flash_kit::sheet::{self, Sheet};
use flash_kit::text::{capital, shortened};
use flash_kit::{Error, Result};
use flash_load::measure::{Measures, validity};

/// The form of `report.json` of an experiment.
pub(super) const FORMAT: u32 = 1;
/// The server's own counters, beside `run.json`.
pub(super) const INSIDE_FILE: &str = "inside.json";
const FOOTER: &str =
    "Made by `flash experiment`. Verdicts are computed from 95 % intervals over the valid rounds.";
/// No more warnings of one kind are shown; the rest is counted.
const WARNINGS_MAX: usize = 12;

/// Writes all of it.
///
/// Errors: run, when a file cannot be written.
pub(super) fn write(experiment: &Experiment, plan: &Plan, options: &Options, came: &Came) -> Result<()> {
    let data = Data { run: &came.run, inside: &came.inside };
    let findings = experiment.findings(data, plan);
    let sheet = sheet(experiment, plan, options, came, &findings);
    let path = options.folder.join(REPORT_FILE);
    write_whole(&path, &sheet.html())?;
    let report = json!({
        "format": FORMAT,
        "experiment": experiment.name,
        "source": experiment.spec.source,
        "quick": options.quick,
        "memory_bytes": options.memory_bytes,
        "logs": options.logs,
        "is_interrupted": came.is_interrupted,
        "is_whole": !came.is_interrupted && came.missing.is_empty(),
        "started": came.run.started,
        "machine": came.run.machine,
        "settings": came.run.settings,
        "missing": came.missing,
        "warnings": sheet.warnings,
        "findings": findings,
        "tables": sheet.all_tables().map(Table::json).collect::<Vec<Value>>(),
    });
    write_whole(&path.with_extension("json"), &format!("{report:#}\n"))?;
    if !came.inside.is_empty() {
        let path = options.folder.join(INSIDE_FILE);
        let text = serde_json::to_string(&came.inside)
            .map_err(|why| Error::run(format!("cannot put {} into words: {why}", path.display())))?;
        write_whole(&path, &(text + "\n"))?;
    }
    print(&findings, &came.missing);
    println!("report: {}", path.display());
    Ok(())
}

fn print(findings: &[Finding], missing: &[Missing]) {
    for finding in findings {
        let Finding { id, source, paper, ours, .. } = finding;
        println!("{id}: {}\n    paper: {paper} ({source})\n    here:  {ours}", finding.text());
    }
    for Missing { what, why } in missing {
        println!("missing: {what}: {why}");
    }
}

fn sheet(
    experiment: &Experiment,
    plan: &Plan,
    options: &Options,
    came: &Came,
    findings: &[Finding],
) -> Sheet {
    let data = Data { run: &came.run, inside: &came.inside };
    let shown = |finding: &Finding| sheet::Finding {
        source: finding.source.clone(),
        paper: finding.paper.clone(),
        ours: finding.ours.clone(),
        verdict: finding.text(),
    };
    let day = came.run.started.get(..10).unwrap_or(&came.run.started);
    let quick = if options.quick { ", quick" } else { "" };
    let tables = experiment.table(data, plan).into_iter().filter(|table| !table.rows.is_empty());
    Sheet {
        title: capital(&experiment.spec.shows),
        subtitle: format!(
            "flash experiment {}{quick}, after {}, {day}",
            experiment.name, experiment.spec.source
        ),
        summary: summary(findings),
        warnings: warnings(came),
        findings: findings.iter().map(shown).collect(),
        plots: experiment.plots(data, plan).into_iter().filter(|plot| !plot.lines.is_empty()).collect(),
        tables: tables.collect(),
        facts: facts(plan, options, &came.run),
        footer: FOOTER.to_owned(),
    }
}

pub(super) fn summary(findings: &[Finding]) -> String {
    let part = |(verdict, one, many): (Verdict, &str, &str)| match findings
        .iter()
        .filter(|finding| finding.verdict == verdict)
        .count()
    {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let parts = [
        (Verdict::Holds, "holds", "hold"),
        (Verdict::DoesNotHold, "does not hold", "do not hold"),
        (Verdict::CannotBeTold, "cannot be told", "cannot be told"),
    ];
    match findings {
        [] => String::new(),
        [only] => format!("The paper's finding: {}.", only.verdict.text()),
        all => {
            let parts: Vec<String> = parts.into_iter().filter_map(part).collect();
            format!("{} findings of the papers: {}.", all.len(), parts.join(", "))
        }
    }
}

/// Reasons to doubt the figures, and missing parts.
fn warnings(came: &Came) -> Vec<String> {
    let mut warnings = Vec::new();
    if came.is_interrupted {
        warnings.push("A signal ended the experiment early: only the rounds before it are here.".to_owned());
    }
    warnings.extend(came.missing.iter().map(|Missing { what, why }| format!("Missing: {what}: {why}")));
    let rounds =
        came.run.subjects.iter().flat_map(|s| s.rounds.iter().map(move |round| (s.name.as_str(), round)));
    let name = |(server, round): (&str, &Measures)| {
        format!("{server} at {}, round {}", round.name, round.round.unwrap_or(1))
    };
    let doubts = rounds.flat_map(|round| {
        let doubts = validity::warnings(round.1).into_iter();
        doubts.map(move |doubt| format!("{}: {doubt}", name(round)))
    });
    warnings.extend(shortened(doubts.collect(), WARNINGS_MAX));
    warnings
}

fn facts(plan: &Plan, options: &Options, run: &Run) -> Vec<(String, String)> {
    let mut facts = vec![
        ("measured".to_owned(), run.started.clone()),
        ("machine".to_owned(), run.machine.text()),
        ("load average before".to_owned(), figure(run.machine.load_average)),
        ("program".to_owned(), format!("flash {}", run.machine.program)),
        ("rounds".to_owned(), format!("{}; figures are their medians", plan.rounds)),
    ];
    if plan.scenes.iter().any(|scene| scene.is_bounded) {
        let Options { memory_bytes, reads_per_s, .. } = options;
        let text = format!("{} of memory, {reads_per_s} disk reads/s", size(*memory_bytes as f64));
        facts.push(("limits of each server".to_owned(), text));
    }
    if let Some(cpu) = plan.scenes.iter().filter_map(|scene| scene.cpu).find(|cpu| !cpu.is_needed) {
        let text = format!("{} % of a core, so that the server is the limit, not the generator", cpu.percent);
        facts.push(("CPU of each server".to_owned(), text));
    }
    let mut lines: Vec<String> =
        plan.scenes.iter().filter_map(|scene| Some(behind::describe(&scene.line?))).collect();
    lines.dedup();
    if !lines.is_empty() {
        facts.push(("link of each server".to_owned(), lines.join("; ")));
    }
    for subject in &run.subjects {
        let text = [subject.command.as_deref(), subject.version.as_deref()];
        let text: Vec<&str> = text.into_iter().flatten().collect();
        if !text.is_empty() {
            facts.push((subject.name.clone(), text.join("; ")));
        }
    }
    facts.push(("command".to_owned(), run.command_line.join(" ")));
    facts
}
