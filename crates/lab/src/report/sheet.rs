//! The page of an experiment: what a paper found, whether it holds here, the plots and their numbers.
//!
//! `experiment` fills a [`Sheet`] with what it computed; this draws it like every report. Pure.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::chart::{self, Chart, Line};
use super::number;
use super::page::{OPEN_FOR_PRINT, STYLE};
use super::part::{Cell, Table};
use super::scale::Scale;
use super::style::Style;

pub use super::scale::Unit;

/// The whole page.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    /// What it shows.
    pub title: String,
    /// Where it comes from, and when it was run.
    pub subtitle: String,
    /// What must be known before any figure is believed, and what is missing.
    pub warnings: Vec<String>,
    /// What the papers found.
    pub findings: Vec<Finding>,
    /// Plots with their numbers.
    pub plots: Vec<Plot>,
    /// Tables without a plot.
    pub grids: Vec<Grid>,
    /// What was measured, on what, how: name and words.
    pub facts: Vec<(String, String)>,
}

/// What a paper found, and what was found here.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The text and its section.
    pub source: String,
    /// What it says.
    pub paper: String,
    /// What was measured here.
    pub ours: String,
    /// "holds", "does not hold", "cannot be told".
    pub verdict: String,
}

/// A line chart, and a table of its figures.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From the foot up.
    pub y: Axis,
    /// Name and points; in the order in which they get their colours.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
    /// Its figures; none where the points are too many for a table.
    pub grid: Option<Grid>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// With its unit.
    pub title: String,
    /// Of the figures on it.
    pub unit: Unit,
    /// How it is divided.
    pub division: Division,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Evenly, from 0.
    Linear,
    /// By powers of ten.
    Log,
    /// From 0 to 100 %.
    Share,
    /// With a tick at each of the values.
    Values,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// What it holds.
    pub title: String,
    /// With units.
    pub columns: Vec<String>,
    /// As long as the columns are many.
    pub rows: Vec<Vec<Entry>>,
}

/// What stands in a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// Words.
    Text(String),
    /// A figure.
    Figure(f64),
    /// A figure, and the least and the most of the rounds.
    Rounds(f64, f64, f64),
    /// There is no figure.
    None,
}

impl Axis {
    /// One with a title.
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

    /// The title, with what a reader of the chart must know.
    fn words(&self) -> String {
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
        Chart {
            title: self.title.clone(),
            x_title: self.x.words(),
            y_title: self.y.words(),
            x: self.x.scale(of(|point| point.0)),
            y: self.y.scale(of(|point| point.1)),
            lines: self.lines.iter().map(line).collect(),
            has_marks: most <= MARKED_MAX,
            has_ends: false,
            reference: None,
            is_wide: false,
        }
    }
}

/// A line of more points has no marks.
const MARKED_MAX: usize = 16;

impl Entry {
    fn cell(&self) -> Cell {
        match self {
            Self::Text(text) => Cell::text(text),
            Self::Figure(value) => Cell::figure(*value),
            Self::Rounds(value, low, high) if low < high => {
                let words = [value, low, high].map(|value| number::figure(*value));
                Cell::Number(*value, format!("{} ({}–{})", words[0], words[1], words[2]))
            }
            Self::Rounds(value, ..) => Cell::figure(*value),
            Self::None => Cell::None,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Figure(value) => json!(value),
            Self::Rounds(value, low, high) => json!({ "median": value, "least": low, "most": high }),
            Self::None => Value::Null,
        }
    }
}

impl Grid {
    fn table(&self) -> Table {
        let rows = self.rows.iter().map(|row| row.iter().map(Entry::cell).collect()).collect();
        Table { title: self.title.clone(), columns: self.columns.clone(), rows }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let rows: Vec<Vec<Value>> =
            self.rows.iter().map(|row| row.iter().map(Entry::json).collect()).collect();
        json!({ "title": self.title, "columns": self.columns, "rows": rows })
    }
}

impl Sheet {
    /// Every table.
    pub fn all_grids(&self) -> impl Iterator<Item = &Grid> {
        self.plots.iter().filter_map(|plot| plot.grid.as_ref()).chain(&self.grids)
    }

    /// The page: one HTML file that needs nothing else.
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        header { h1 { (self.title) } p class="sub" { (self.subtitle) } }
                        (self.warnings())
                        (self.findings())
                        (self.figures())
                        section id="measured" {
                            h2 { "What was measured" }
                            dl { @for (name, words) in &self.facts { dt { (number::plain(name)) } dd { (number::plain(words)) } } }
                        }
                        footer { "Made by `flash experiment`. Verdicts are computed: each round keeps the bound, none does, or it cannot be told." }
                    }
                    script { (PreEscaped(OPEN_FOR_PRINT)) }
                }
            }
        };
        page.into_string()
    }

    fn warnings(&self) -> Markup {
        html! {
            @if !self.warnings.is_empty() {
                aside class="warnings" role="note" {
                    h2 { "Before you believe the figures" }
                    ul { @for warning in &self.warnings { li { (number::plain(warning)) } } }
                }
            }
        }
    }

    fn findings(&self) -> Markup {
        html! {
            @if !self.findings.is_empty() {
                section id="findings" {
                    h2 { "What the paper found, and what holds here" }
                    div class="scroll" {
                        table class="verdicts" {
                            thead { tr { th scope="col" { "the paper" } th scope="col" { "here" } th scope="col" { "so it" } } }
                            tbody {
                                @for finding in &self.findings {
                                    tr {
                                        td { (finding.paper) " " span class="note" { "(" (finding.source) ")" } }
                                        td { (number::plain(&finding.ours)) }
                                        td class=(class_of(&finding.verdict)) { (finding.verdict) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn figures(&self) -> Markup {
        let mut names: Vec<String> = Vec::new();
        for (name, _) in self.plots.iter().flat_map(|plot| &plot.lines) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        let charts: Vec<Chart> = self.plots.iter().map(|plot| plot.chart(&names)).collect();
        // One legend serves all only where all have the same lines.
        let has_all = |chart: &Chart| chart.lines.len() == names.len();
        let drawn: Vec<Markup> = if charts.iter().all(has_all) {
            chart::together(&charts)
        } else {
            charts.iter().map(Chart::draw).collect()
        };
        html! {
            section id="figures" {
                h2 { "Figures" }
                div class="body" {
                    @if !charts.is_empty() {
                        div class="charts" { @for chart in drawn { (chart) } }
                    }
                    div class="tables" { @for grid in self.all_grids() { (grid.table().draw()) } }
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
