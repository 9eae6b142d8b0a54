//! What an experiment leaves behind: the page, its figures as JSON, and the findings on the terminal.
//!
//! [`super::run`] calls it at the end. It computes nothing but what the experiments' functions do.

use serde_json::{Value, json};

use super::data::Data;
use super::finding::Finding;
use super::plan::Plan;
use super::rounds::{Came, Missing};
use super::{Experiment, Options};
use crate::error::{Error, Result};
use crate::report::REPORT_FILE;
use crate::report::number::size;
use crate::report::sheet::{self, Grid, Sheet};
use crate::results::folder::write_whole;
use crate::results::{Measures, Run};

/// The form of `report.json` of an experiment.
pub(super) const FORMAT: u32 = 1;
/// What the server counted by itself, beside `run.json`.
const INSIDE_FILE: &str = "inside.json";
/// No more warnings of one kind are shown; the rest is counted.
const WARNINGS_MAX: usize = 12;
/// From this share of failed requests on, figures tell less than half the story.
const FAILED_SHARE_WARNED: f64 = 0.01;

/// Writes all of it.
///
/// Errors: run, when a file cannot be written.
pub(super) fn write(experiment: &Experiment, plan: &Plan, options: &Options, came: &Came) -> Result<()> {
    let data = Data { run: &came.run, inside: &came.inside };
    let findings = (experiment.findings)(data, plan);
    let sheet = sheet(experiment, plan, options, came, &findings);
    let path = options.out.join(REPORT_FILE);
    write_whole(&path, &sheet.html())?;
    let report = json!({
        "format": FORMAT,
        "experiment": experiment.name,
        "source": experiment.source,
        "quick": options.quick,
        "is_whole": !came.is_interrupted && came.missing.is_empty(),
        "started": came.run.started,
        "machine": came.run.machine,
        "settings": came.run.settings,
        "missing": came.missing,
        "warnings": sheet.warnings,
        "findings": findings,
        "tables": sheet.all_grids().map(Grid::json).collect::<Vec<Value>>(),
    });
    write_whole(&path.with_extension("json"), &format!("{report:#}\n"))?;
    if !came.inside.is_empty() {
        let path = options.out.join(INSIDE_FILE);
        let text = serde_json::to_string(&came.inside)
            .map_err(|why| Error::run(format!("cannot put {} into words: {why}", path.display())))?;
        write_whole(&path, &(text + "\n"))?;
    }
    print(&findings, &came.missing);
    println!("report: {}", path.display());
    Ok(())
}

/// The findings on the terminal.
fn print(findings: &[Finding], missing: &[Missing]) {
    for Finding { id, source, paper, ours, verdict } in findings {
        println!("{:15} {id}\n    paper: {paper} ({source})\n    here:  {ours}", verdict.words());
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
        verdict: finding.verdict.words().to_owned(),
    };
    let day = came.run.started.get(..10).unwrap_or(&came.run.started);
    let quick = if options.quick { ", quick" } else { "" };
    let grids = experiment.grid.map(|grid| grid(data, plan)).into_iter().filter(|grid| !grid.rows.is_empty());
    let mut title = experiment.shows.to_owned();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Sheet {
        title,
        subtitle: format!("flash experiment {}{quick}, after {}, {day}", experiment.name, experiment.source),
        warnings: warnings(came),
        findings: findings.iter().map(shown).collect(),
        plots: (experiment.plots)(data, plan).into_iter().filter(|plot| !plot.lines.is_empty()).collect(),
        grids: grids.collect(),
        facts: facts(plan, options, &came.run),
    }
}

/// What must be known before any figure is believed.
fn warnings(came: &Came) -> Vec<String> {
    let mut warnings = Vec::new();
    if came.is_interrupted {
        warnings.push("A signal ended the experiment: what it had measured by then is here.".to_owned());
    }
    warnings.extend(came.missing.iter().map(|Missing { what, why }| format!("Missing: {what}: {why}")));
    let rounds =
        || came.run.subjects.iter().flat_map(|s| s.rounds.iter().map(move |round| (s.name.as_str(), round)));
    let name = |(server, round): (&str, &Measures)| {
        format!("{server} at {}, round {}", round.name, round.round.unwrap_or(1))
    };
    let limited = rounds().filter_map(|round| {
        let limit = round.1.generator.limit.as_ref()?;
        Some(format!("{}: the generator was the limit: {limit}", name(round)))
    });
    warnings.extend(some(limited));
    let failing = rounds().filter_map(|round| {
        let counts = &round.1.counts;
        let share = counts.failures() as f64 / counts.asked.max(1) as f64;
        (share > FAILED_SHARE_WARNED)
            .then(|| format!("{}: {:.1} % of the requests failed", name(round), share * 100.0))
    });
    warnings.extend(some(failing));
    warnings
}

/// The first few, and how many more there are.
fn some(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(WARNINGS_MAX);
    all.truncate(WARNINGS_MAX);
    if more > 0 {
        all.push(format!("{more} more of this kind"));
    }
    all
}

fn facts(plan: &Plan, options: &Options, run: &Run) -> Vec<(String, String)> {
    let machine = &run.machine;
    let mut facts = vec![
        ("measured".to_owned(), run.started.clone()),
        (
            "machine".to_owned(),
            format!(
                "{}, {} cores, {} memory, {}",
                machine.cpu,
                machine.cores,
                size(machine.memory_bytes as f64),
                machine.kernel
            ),
        ),
        ("rounds".to_owned(), format!("{}; figures are their medians", plan.rounds)),
    ];
    if plan.scenes.iter().any(|scene| scene.is_bounded) {
        let Options { memory_bytes, reads_per_s, .. } = options;
        let words =
            format!("{} of memory, {reads_per_s} reads of the disk a second", size(*memory_bytes as f64));
        facts.push(("each server has".to_owned(), words));
    }
    if let Some(cpu) = plan.scenes.iter().filter_map(|scene| scene.cpu).find(|cpu| !cpu.is_needed) {
        let words =
            format!("{} % of a core each, so that they are the limit, not the generator", cpu.percent);
        facts.push(("servers have".to_owned(), words));
    }
    for subject in &run.subjects {
        let words = [subject.command.as_deref(), subject.version.as_deref()];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        if !words.is_empty() {
            facts.push((subject.name.clone(), words.join("; ")));
        }
    }
    facts.push(("command".to_owned(), run.command_line.join(" ")));
    facts
}
