//! Charts of rows and bars as SVG: ranges of latency, ratios with intervals, composition by decile.
//!
//! The sections of the page call it. It computes no figure. Pure.

use maud::{Markup, html};

use crate::chart::{Frame, WIDE, WIDTH, px};
use crate::scale::{Scale, Unit};
use crate::style::Style;
use crate::text::cut;

/// More rows make an unreadable picture; the table has them all.
pub const ROWS_MAX: usize = 40;
/// Labels of rows are cut to this. The width is that of print, whose type is larger.
const ROW_CHARS_MAX: usize = 44;
const CHAR_WIDTH: f64 = 7.2;
const ROW_HEIGHT: f64 = 26.0;
/// The height of a row with its name above it.
const NARROW_ROW_HEIGHT: f64 = 40.0;

/// One row: a range with marks on it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, at the left.
    pub label: String,
    pub style: Style,
    /// The thin line.
    pub range: Option<[f64; 2]>,
    /// The thick one.
    pub inner: Option<[f64; 2]>,
    pub marks: Vec<(f64, &'static str)>,
}

#[derive(Clone, Debug)]
pub struct Rows {
    /// The caption above it.
    pub title: String,
    pub x_title: String,
    pub x: Scale,
    /// From top to bottom.
    pub rows: Vec<Row>,
    /// A value to compare with.
    pub reference: Option<f64>,
}

impl Rows {
    pub fn draw(&self) -> Markup {
        html! {
            figure class="wide" {
                figcaption { (self.title) }
                (self.svg(true))
                (self.svg(false))
            }
        }
    }

    fn shown(&self) -> &[Row] {
        &self.rows[..self.rows.len().min(ROWS_MAX)]
    }

    /// For wide screens and paper, with names at the left of the rows, or for narrow screens, with names above them.
    fn svg(&self, is_broad: bool) -> Markup {
        let longest = self.shown().iter().map(|row| label(row).chars().count()).max().unwrap_or(0);
        let (class, width, row_height, middle) = match is_broad {
            true => ("broad", WIDE, ROW_HEIGHT, 0.5),
            false => ("narrow", WIDTH, NARROW_ROW_HEIGHT, 0.7),
        };
        let (left, right) = if is_broad { (20.0 + longest as f64 * CHAR_WIDTH, 26.0) } else { (24.0, 24.0) };
        let height = 50.0 + row_height * self.shown().len() as f64;
        let frame = Frame { width, height, left, right, top: 6.0, bottom: 44.0 };
        let (anchor, name_x, down) =
            if is_broad { (Some("end"), left - 10.0, 4.0) } else { (None, left, -12.0) };
        let rows = self.shown().iter().enumerate();
        let rows = rows.map(|(index, row)| (row, frame.top + row_height * (index as f64 + middle)));
        html! {
            svg class=(class) viewBox=(format!("0 0 {} {}", frame.width, frame.height)) role="img" aria-label=(self.description()) {
                (frame.x_axis(&self.x, &self.x_title))
                @if let Some(x) = self.reference.and_then(|value| self.x.place(value)).map(|place| frame.x(place)) {
                    line class="reference" x1=(px(x)) x2=(px(x)) y1=(px(frame.top)) y2=(px(frame.y(0.0))) {}
                }
                @for (row, y) in rows {
                    text class="row" text-anchor=[anchor] x=(px(name_x)) y=(px(y + down)) { (label(row)) }
                    (self.row(&frame, row, y))
                }
            }
        }
    }

    fn row(&self, frame: &Frame, row: &Row, y: f64) -> Markup {
        let x = |value: f64| Some(frame.x(self.x.place(value)?));
        let span = |range: Option<[f64; 2]>| range.and_then(|[low, high]| Some((x(low)?, x(high)?)));
        html! {
            g class=(row.style.class) {
                @if let Some((low, high)) = span(row.range) {
                    line class="thin" x1=(px(low)) x2=(px(high)) y1=(px(y)) y2=(px(y)) {}
                    @for end in [low, high] {
                        line class="thin" x1=(px(end)) x2=(px(end)) y1=(px(y - 5.0)) y2=(px(y + 5.0)) {}
                    }
                }
                @if let Some((low, high)) = span(row.inner) {
                    line class="thick" x1=(px(low)) x2=(px(high)) y1=(px(y)) y2=(px(y)) {}
                }
                @for (value, name) in &row.marks {
                    @if let Some(x) = x(*value) {
                        (row.style.mark(x, y, &format!("{}, {name}: {}", row.label, self.x.unit.text(*value))))
                    }
                }
            }
        }
    }

    fn description(&self) -> String {
        let mut text = format!("Chart of ranges. {}.", self.title);
        for row in self.rows.iter().take(ROWS_MAX) {
            let marks = row.marks.iter().map(|(value, name)| format!("{name} {}", self.x.unit.text(*value)));
            text += &format!(" {}: {}.", row.label, marks.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

fn label(row: &Row) -> String {
    cut(&row.label, ROW_CHARS_MAX)
}

/// Stacked bars of shares, and one more bar, set apart, for all.
#[derive(Clone, Debug)]
pub struct Stack {
    /// The caption above it.
    pub title: String,
    /// The meaning of the bars.
    pub x_title: String,
    /// The names of the stacked parts, lowest first.
    pub series: Vec<String>,
    /// Name and shares of each bar.
    pub bars: Vec<(String, Vec<f64>)>,
    /// The shares of the last bar, that of all.
    pub whole: Vec<f64>,
}

impl Stack {
    pub fn draw(&self) -> Markup {
        let frame = Frame { width: WIDTH, height: 300.0, left: 58.0, right: 8.0, top: 26.0, bottom: 42.0 };
        // Half a bar separates the last one, that of all, from the others.
        let slots = self.bars.len() as f64 + 1.5;
        let step = (frame.x(1.0) - frame.left) / slots;
        let all = ("all".to_owned(), self.whole.clone());
        let bars = self.bars.iter().chain([&all]).enumerate();
        let x = |index: usize| {
            let gap = if index == self.bars.len() { 0.5 } else { 0.0 };
            frame.left + step * (index as f64 + gap)
        };
        html! {
            figure {
                figcaption { (self.title) }
                svg viewBox=(format!("0 0 {} {}", frame.width, frame.height)) role="img" aria-label=(self.description()) {
                    (frame.y_axis(&Scale::share(), "share of the answers in the tenth"))
                    @for (index, (name, shares)) in bars {
                        @for (part, (low, high)) in stacked(shares).into_iter().enumerate() {
                            rect class=(self.class(part)) x=(px(x(index) + step * 0.08)) width=(px(step * 0.84))
                                y=(px(frame.y(high))) height=(px(frame.y(low) - frame.y(high))) {
                                title { (self.part_text(name, part, shares)) }
                            }
                        }
                        text class="tick" text-anchor="middle" x=(px(x(index) + step * 0.5)) y=(px(frame.y(0.0) + 17.0)) { (name) }
                    }
                    text class="axis" text-anchor="end" x=(px(frame.x(1.0))) y=(px(frame.height - 4.0)) { (self.x_title) }
                }
            }
        }
    }

    pub fn legend(&self) -> Markup {
        html! {
            ul class="legend" {
                @for (part, name) in self.series.iter().enumerate() {
                    li {
                        svg viewBox="0 0 14 12" width="14" height="12" aria-hidden="true" {
                            rect class=(self.class(part)) x="1" y="0" width="12" height="12" {}
                        }
                        span { (name) }
                    }
                }
            }
        }
    }

    fn class(&self, part: usize) -> String {
        format!("bar {}", Style::size_class(part, self.series.len()))
    }

    fn part_text(&self, bar: &str, part: usize, shares: &[f64]) -> String {
        let name = self.series.get(part).map_or("", String::as_str);
        let share = shares.get(part).copied().unwrap_or(f64::NAN);
        format!("{bar}: {} of {name}", Unit::Share.text(share))
    }

    fn description(&self) -> String {
        let mut text = format!("Stacked bars. {}.", self.title);
        let ends = [self.bars.first(), self.bars.last()];
        for (name, shares) in ends.into_iter().flatten() {
            let parts = (0..shares.len()).map(|part| self.part_text(name, part, shares));
            text += &format!(" {}.", parts.collect::<Vec<_>>().join(", "));
        }
        text
    }
}

/// The ends of each share, stacked from 0 to at most 1.
fn stacked(shares: &[f64]) -> Vec<(f64, f64)> {
    let mut sum: f64 = 0.0;
    let place = |share: &f64| {
        let low = sum;
        sum = (sum + if share.is_finite() { share.max(0.0) } else { 0.0 }).min(1.0);
        (low, sum)
    };
    shares.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_stacked() {
        assert_eq!(stacked(&[0.25, 0.5, 0.25]), [(0.0, 0.25), (0.25, 0.75), (0.75, 1.0)]);
        assert_eq!(stacked(&[f64::NAN, -1.0, 2.0, 1.0]), [(0.0, 0.0), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]);
    }
}
