//! The page of an experiment or a simulation: the plots, the paper's findings and whether they hold here, tables.
//!
//! `experiment` and `cache` fill a [`Sheet`] with their figures; this draws it like every report. Pure.

use maud::{Markup, html};

use crate::chart::{Chart, Line, chart, together};
use crate::number;
use crate::page::Page;
use crate::scale::Scale;
use crate::section::Table;
use crate::style::Style;

pub use crate::scale::Unit;

/// The whole page.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub title: String,
    /// The command, the paper and the day.
    pub subtitle: String,
    /// The result in one sentence.
    pub summary: String,
    /// Reasons to doubt the figures, and missing parts; each fits one line.
    pub warnings: Vec<String>,
    pub findings: Vec<Finding>,
    pub plots: Vec<Plot>,
    /// Tables without a plot.
    pub tables: Vec<Table>,
    /// The setup: servers, machine, settings; name and text.
    pub facts: Vec<(String, String)>,
    /// The command that made the page, and how to read its figures.
    pub footer: String,
}

/// A finding of a paper, and the figures here.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The text and its section.
    pub source: String,
    /// Its claim.
    pub paper: String,
    /// The figures here.
    pub ours: String,
    /// "holds", "does not hold", "cannot be told".
    pub verdict: String,
}

/// A line chart, and a table of its figures.
#[derive(Clone, Debug)]
pub struct Plot {
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From the foot up.
    pub y: Axis,
    /// Name and points; in the order in which they get their colours.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Its figures; none where the points are too many for a table.
    pub table: Option<Table>,
}

#[derive(Clone, Debug)]
pub struct Axis {
    /// With its unit.
    pub title: String,
    pub unit: Unit,
    pub division: Division,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten.
    Log,
    /// From 0 to 100 %.
    Share,
    Values,
}

impl Axis {
    pub fn new(title: &str, unit: Unit, division: Division) -> Self {
        Self { title: title.to_owned(), unit, division }
    }

    fn scale(&self, values: Vec<f64>) -> Scale {
        match self.division {
            Division::Linear => Scale::linear(self.unit, 0.0, values),
            Division::Log => Scale::log(self.unit, values),
            Division::Share => Scale::share(),
            Division::Values => Scale::at(self.unit, &values),
        }
    }

    /// The title, and whether the axis is logarithmic.
    fn label(&self) -> String {
        let log = if self.division == Division::Log { ", log scale" } else { "" };
        format!("{}{log}", self.title)
    }
}

impl Plot {
    fn chart(&self, names: &[String]) -> Chart {
        let of = |at: fn(&(f64, f64)) -> f64| {
            self.lines.iter().flat_map(|(_, points)| points.iter().map(at)).collect()
        };
        let line = |(label, points): &(String, Vec<(f64, f64)>)| {
            // A server looks alike in all plots.
            let place = names.iter().position(|name| name == label).unwrap_or(0);
            Line { label: label.clone(), style: Style::of(place), points: points.clone() }
        };
        let most = self.lines.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
        let x = (&*self.x.label(), self.x.scale(of(|point| point.0)));
        let y = (&*self.y.label(), self.y.scale(of(|point| point.1)));
        let lines = self.lines.iter().map(line).collect();
        Chart { has_marks: most <= MARKED_MAX, has_ends: false, ..chart(&self.title, x, y, lines) }
    }
}

/// A line of more points has no marks.
const MARKED_MAX: usize = 16;

impl Sheet {
    pub fn all_tables(&self) -> impl Iterator<Item = &Table> {
        self.plots.iter().filter_map(|plot| plot.table.as_ref()).chain(&self.tables)
    }

    /// The page: one HTML file that needs nothing else.
    pub fn html(&self) -> String {
        let body = html! {
            (self.figures())
            (self.findings())
            (self.tables())
            section id="setup" {
                h2 { "Setup" }
                dl { @for (name, text) in &self.facts { dt { (number::plain(name)) } dd { (number::plain(text)) } } }
            }
        };
        let page = Page {
            title: &self.title,
            subtitle: &self.subtitle,
            summary: &self.summary,
            warnings: &self.warnings,
            footer: &self.footer,
            ..Page::default()
        };
        page.draw(&body).into_string()
    }

    fn figures(&self) -> Markup {
        let mut names: Vec<String> = Vec::new();
        for (name, _) in self.plots.iter().flat_map(|plot| &plot.lines) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let mut charts: Vec<Chart> = self.plots.iter().map(|plot| plot.chart(&names)).collect();
        if let [only] = &mut charts[..] {
            only.is_wide = true;
        }
        // One legend serves all only where all have the same lines.
        let has_all = |chart: &Chart| chart.lines.len() == names.len();
        let drawn: Vec<Markup> = if charts.iter().all(has_all) {
            together(&charts)
        } else {
            charts.iter().map(Chart::draw).collect()
        };
        html! {
            @if !charts.is_empty() {
                section id="figures" {
                    h2 { "Plots" }
                    div class="body" { div class="charts" { @for chart in drawn { (chart) } } }
                }
            }
        }
    }

    fn findings(&self) -> Markup {
        html! {
            @if !self.findings.is_empty() {
                section id="findings" {
                    h2 { "Findings of the papers" }
                    div class="scroll" {
                        table class="verdicts" {
                            thead { tr { th scope="col" { "verdict" } th scope="col" { "the paper" } th scope="col" { "here" } } }
                            tbody {
                                @for finding in &self.findings {
                                    tr {
                                        td class=(class_of(&finding.verdict)) { (finding.verdict) }
                                        td { (number::plain(&finding.paper)) " " span class="note" { "(" (number::plain(&finding.source)) ")" } }
                                        td { (number::plain(&finding.ours)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn tables(&self) -> Markup {
        html! {
            @if self.all_tables().next().is_some() {
                section id="tables" {
                    h2 { "Tables" }
                    div class="tables" { @for table in self.all_tables() { (table.draw()) } }
                }
            }
        }
    }
}

/// The class of a verdict in `style.css`.
fn class_of(verdict: &str) -> &'static str {
    match verdict {
        "holds" => "verdict yes",
        "does not hold" => "verdict no",
        _ => "verdict",
    }
}
