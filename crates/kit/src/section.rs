//! A section of a report: its text, its charts, its tables. The page shows sections to people, `report.json` has the same
//! tables for programs.
//!
//! `report`, `sheet` and the page of `flash trace` build sections and tables. Pure.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::number;

/// A table with more rows is folded on a screen; on paper it is open.
const OPEN_ROWS_MAX: usize = 24;
/// No table shows more rows; the number of the others is below it, and the JSON has them.
const ROWS_MAX: usize = 1200;

#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its name in links and in JSON.
    pub id: &'static str,
    pub title: String,
    /// One or two sentences on how to read it.
    pub lead: String,
    pub charts: Vec<Markup>,
    /// The numbers of the charts.
    pub tables: Vec<Table>,
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The contents in a few words.
    pub title: String,
    /// With units.
    pub columns: Vec<String>,
    /// Each as long as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

pub fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A column: its head, and its cell of a row.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> Cell);

pub fn table<R>(title: &str, columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> Table {
    let row = |row: R| columns.iter().map(|(_, cell)| cell(&row)).collect();
    Table {
        title: title.to_owned(),
        columns: columns.iter().map(|(head, _)| (*head).to_owned()).collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}

/// The same without columns that have no figure: they say nothing.
pub fn filled<R>(title: &str, columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> Table {
    let mut table = table(title, columns, rows);
    let is_kept: Vec<bool> = (0..table.columns.len())
        .map(|at| table.rows.iter().any(|row| row.get(at) != Some(&Cell::None)))
        .collect();
    let mut kept = is_kept.iter();
    table.columns.retain(|_| *kept.next().unwrap_or(&true));
    for row in &mut table.rows {
        let mut kept = is_kept.iter();
        row.retain(|_| *kept.next().unwrap_or(&true));
    }
    table
}

/// A head that can be broken, except between a number and its unit.
fn glued(column: &str) -> String {
    ["B", "kB", "MB", "GB", "TB"]
        .iter()
        .fold(column.to_owned(), |text, unit| text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}")))
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(String),
    Number(f64, String),
    /// The median, the least and the most of the rounds, and their text.
    Rounds([f64; 3], String),
    None,
}

impl Cell {
    /// Words, with control characters replaced.
    pub fn text(text: &str) -> Self {
        Self::Text(number::plain(text))
    }

    /// Milliseconds, rates and the like.
    pub fn figure(value: f64) -> Self {
        Self::of(value, number::figure)
    }

    /// A share from 0 to 1, as a percentage.
    pub fn share(value: f64) -> Self {
        Self::of(value, number::percent)
    }

    pub fn count(value: u64) -> Self {
        Self::Number(value as f64, number::count(value))
    }

    pub fn bytes(value: u64) -> Self {
        Self::Number(value as f64, number::size(value as f64))
    }

    pub fn factor(value: f64) -> Self {
        Self::of(value, |value| format!("{}×", number::figure(value)))
    }

    pub fn maybe<T>(value: Option<T>, cell: impl Fn(T) -> Self) -> Self {
        value.map_or(Self::None, cell)
    }

    pub fn rounds(median: f64, least: f64, most: f64) -> Self {
        let [text, low, high] = [median, least, most].map(number::figure);
        let text = if least < most { format!("{text} ({low}–{high})") } else { text };
        Self::Rounds([median, least, most], text)
    }

    fn of(value: f64, write: impl Fn(f64) -> String) -> Self {
        if value.is_finite() { Self::Number(value, write(value)) } else { Self::None }
    }

    pub fn shown(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(_, text) | Self::Rounds(_, text) => text,
            Self::None => number::NONE,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number(value, _) => json!(value),
            Self::Rounds([median, least, most], _) => {
                json!({ "median": median, "least": least, "most": most })
            }
            Self::None => Value::Null,
        }
    }
}

impl Section {
    /// Whether it has no chart and no row.
    pub fn is_empty(&self) -> bool {
        self.charts.is_empty() && self.tables.iter().all(|table| table.rows.is_empty())
    }

    pub fn draw(&self) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @if !self.lead.is_empty() { p class="lead" { (self.lead) } }
                div class="body" {
                    @if !self.charts.is_empty() {
                        div class="charts" { @for chart in &self.charts { (chart) } }
                    }
                    div class="tables" { @for table in &self.tables { (table.draw()) } }
                }
            }
        }
    }

    pub fn json(&self) -> Value {
        let tables: Vec<Value> =
            self.tables.iter().filter(|table| !table.rows.is_empty()).map(Table::json).collect();
        json!({ "id": self.id, "title": self.title, "tables": tables })
    }
}

impl Table {
    /// The table, folded when it is long; nothing without rows.
    pub fn draw(&self) -> Markup {
        let is_open = self.rows.len() <= OPEN_ROWS_MAX;
        html! {
            @if self.rows.is_empty() {}
            @else if is_open {
                div {
                    p class="table-title" { (self.title) }
                    (self.body())
                }
            } @else {
                details {
                    summary { (self.title) " (" (self.rows.len()) " rows)" }
                    (self.body())
                }
            }
        }
    }

    fn body(&self) -> Markup {
        let left_out = self.rows.len().saturating_sub(ROWS_MAX);
        html! {
            div class="scroll" {
                table {
                    thead { tr { @for (index, column) in self.columns.iter().enumerate() {
                        th scope="col" class=[self.is_number(index).then_some("n")] { (glued(column)) }
                    } } }
                    tbody { @for row in self.rows.iter().take(ROWS_MAX) {
                        tr { @for (index, cell) in row.iter().enumerate() {
                            td class=[self.is_number(index).then_some("n")] { (cell.shown()) }
                        } }
                    } }
                }
            }
            @if left_out > 0 { p class="note" { (left_out) " more rows are in the JSON." } }
        }
    }

    /// Whether a column has only numbers; these are aligned right.
    fn is_number(&self, column: usize) -> bool {
        self.rows.iter().all(|row| !matches!(row.get(column), Some(Cell::Text(_))))
    }

    pub fn json(&self) -> Value {
        let rows: Vec<Vec<Value>> =
            self.rows.iter().map(|row| row.iter().map(Cell::json).collect()).collect();
        json!({ "title": self.title, "columns": self.columns, "rows": rows })
    }
}
