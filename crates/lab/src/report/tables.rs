//! Tables from lists of columns, and charts of lines with the usual settings.
//!
//! The modules that make parts call it. Pure.

use flash_kit::chart::{Chart, Line};
use flash_kit::part::{Cell, Table};
use flash_kit::scale::Scale;

pub(super) type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> Cell);

pub(super) fn table<R>(title: &str, columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> Table {
    let row = |row: R| columns.iter().map(|(_, cell)| cell(&row)).collect();
    Table {
        title: title.to_owned(),
        columns: columns.iter().map(|(head, _)| (*head).to_owned()).collect(),
        rows: rows.into_iter().map(row).collect(),
    }
}

/// The same without columns that have no figure: they say nothing.
pub(super) fn filled<R>(title: &str, columns: &[Column<'_, R>], rows: impl IntoIterator<Item = R>) -> Table {
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

/// A chart of half the page, with marks and with names at the ends of lines; each axis with its title.
pub(super) fn chart(title: &str, x: (&str, Scale), y: (&str, Scale), lines: Vec<Line>) -> Chart {
    Chart {
        title: title.to_owned(),
        x_title: x.0.to_owned(),
        y_title: y.0.to_owned(),
        x: x.1,
        y: y.1,
        lines,
        has_marks: true,
        has_ends: true,
        reference: None,
        is_wide: false,
    }
}

pub(super) fn heights(lines: &[Line]) -> Vec<f64> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect()
}

/// How far right their points are.
pub(super) fn places(lines: &[Line]) -> Vec<f64> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect()
}
