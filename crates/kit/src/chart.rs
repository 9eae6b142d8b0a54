//! Line charts as SVG.
//!
//! The sections of the page call it. It computes no figure. The `plotters`
//! crate writes fixed colours, so a page drawn with it cannot be dark on a dark screen and light on
//! paper; here colours are classes of `style.css`. Pure.

use maud::{Markup, html};

use crate::scale::{Scale, Tick};
use crate::style::Style;

/// A chart's width in units of its own; half a page.
pub const WIDTH: f64 = 520.0;
/// The width of a chart that takes the whole page.
pub const WIDE: f64 = 1080.0;
/// A line is thinned to this many points, keeping the highest of those that fall together.
const POINTS_MAX: usize = 2000;
/// A line of many points gets this many marks.
const SPARSE_MARKS: usize = 5;
/// With more lines, or longer names, names at the ends of lines run into one another.
const ENDS_MAX: usize = 6;
const END_CHARS_MAX: usize = 18;
/// The width of a character and the height of a line of the largest type, that of narrow screens.
const CHAR_WIDTH: f64 = 8.6;
const LINE_HEIGHT: f64 = 16.5;

#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    pub style: Style,
    /// A point that has no number interrupts the line.
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    /// The caption above it.
    pub title: String,
    pub x_title: String,
    pub y_title: String,
    pub x: Scale,
    pub y: Scale,
    /// Styles repeat after 40 lines.
    pub lines: Vec<Line>,
    /// Each point gets a mark. Without it a few points do: for lines of many points.
    pub has_marks: bool,
    /// Names stand at the ends of lines where they fit, else in a legend.
    pub has_ends: bool,
    /// A value on the y axis to compare with, and its name.
    pub reference: Option<(f64, String)>,
    /// Over the whole width of the page.
    pub is_wide: bool,
}

/// Where the plot lies in its chart; all in units of the SVG's view box.
pub struct Frame {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Frame {
    /// The x coordinate of a place from 0 (left) to 1 (right).
    pub fn x(&self, place: f64) -> f64 {
        self.left + place * (self.width - self.left - self.right)
    }

    /// The y coordinate of a place from 0 (bottom) to 1 (top).
    pub fn y(&self, place: f64) -> f64 {
        self.height - self.bottom - place * (self.height - self.top - self.bottom)
    }

    pub fn y_axis(&self, scale: &Scale, title: &str) -> Markup {
        html! {
            @for (tick, place) in placed(scale) {
                line class=(grid_class(tick)) x1=(px(self.left)) x2=(px(self.x(1.0))) y1=(px(self.y(place))) y2=(px(self.y(place))) {}
                @if let Some(label) = &tick.label {
                    text class="tick" text-anchor="end" x=(px(self.left - 7.0)) y=(px(self.y(place) + 4.0)) { (label) }
                }
            }
            text class="axis" x="2" y="13" { (title) }
        }
    }

    /// The labels of the x axis for which there is room, each with its x coordinate. The highest one is kept, and
    /// ticks at equal distances keep equal distances.
    fn x_labels<'a>(&self, scale: &'a Scale) -> Vec<(&'a str, f64)> {
        let labels = placed(scale).into_iter().rev();
        let mut labels: Vec<(&str, f64)> =
            labels.filter_map(|(tick, place)| Some((tick.label.as_deref()?, self.x(place)))).collect();
        let longest = labels.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let apart = (longest + 1) as f64 * CHAR_WIDTH;
        let mut right = f64::INFINITY;
        labels.retain(|(_, x)| {
            let has_room = right - x >= apart;
            if has_room {
                right = *x;
            }
            has_room
        });
        labels
    }

    pub fn x_axis(&self, scale: &Scale, title: &str) -> Markup {
        let foot = self.y(0.0);
        html! {
            @for (tick, place) in placed(scale) {
                line class=(grid_class(tick)) x1=(px(self.x(place))) x2=(px(self.x(place))) y1=(px(self.top)) y2=(px(foot)) {}
            }
            @for (label, x) in self.x_labels(scale) {
                text class="tick" text-anchor="middle" x=(px(x)) y=(px(foot + 20.0)) { (label) }
            }
            text class="axis" text-anchor="end" x=(px(self.x(1.0))) y=(px(self.height - 4.0)) { (title) }
        }
    }
}

/// A coordinate; a tenth of a pixel is exact enough.
pub fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn grid_class(tick: &Tick) -> &'static str {
    if tick.label.is_some() { "grid" } else { "grid minor" }
}

fn placed(scale: &Scale) -> Vec<(&Tick, f64)> {
    scale.ticks.iter().filter_map(|tick| Some((tick, scale.place(tick.value)?))).collect()
}

pub fn legend<'a>(entries: impl IntoIterator<Item = (&'a str, &'a Style)>) -> Markup {
    html! {
        ul class="legend" {
            @for (label, style) in entries {
                li class=(style.class) {
                    svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true" {
                        line class="line" x1="1" x2="33" y1="6" y2="6" stroke-dasharray=(style.dash) {}
                        (style.mark(17.0, 6.0, ""))
                    }
                    span { (label) }
                }
            }
        }
    }
}

impl Chart {
    /// The figure, with its caption and legend.
    pub fn draw(&self) -> Markup {
        self.figure(!self.ends_fit() && self.lines.len() > 1)
    }

    fn figure(&self, has_legend: bool) -> Markup {
        html! {
            figure class=[self.is_wide.then_some("wide")] {
                figcaption { (self.title) }
                @if has_legend { (self.legend()) }
                // A narrow screen gets a drawing of its own: scaled down, the type of a wide one is too small.
                @if self.is_wide { (self.svg(WIDE, Some("broad"))) (self.svg(WIDTH, Some("narrow"))) }
                @else { (self.svg(WIDTH, None)) }
            }
        }
    }

    fn svg(&self, width: f64, class: Option<&str>) -> Markup {
        let ends = self.ends_fit();
        let longest = self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let right = if ends { 14.0 + longest as f64 * CHAR_WIDTH } else { 28.0 };
        let frame = Frame { width, height: 300.0, left: 58.0, right, top: 26.0, bottom: 42.0 };
        html! {
            svg class=[class] viewBox=(format!("0 0 {width} {}", frame.height)) role="img" aria-label=(self.description()) {
                (frame.y_axis(&self.y, &self.y_title))
                (frame.x_axis(&self.x, &self.x_title))
                @if let Some((value, what)) = &self.reference {
                    (self.reference_line(&frame, *value, what))
                }
                @for line in &self.lines { (self.line(&frame, line)) }
                @if ends { (self.ends(&frame)) }
            }
        }
    }

    fn legend(&self) -> Markup {
        legend(self.lines.iter().map(|line| (line.label.as_str(), &line.style)))
    }

    fn ends_fit(&self) -> bool {
        self.has_ends
            && (2..=ENDS_MAX).contains(&self.lines.len())
            && self.lines.iter().all(|line| line.label.chars().count() <= END_CHARS_MAX)
    }

    fn spot(&self, frame: &Frame, (x, y): (f64, f64)) -> Option<(f64, f64)> {
        Some((frame.x(self.x.place(x)?), frame.y(self.y.place(y)?)))
    }

    fn line(&self, frame: &Frame, line: &Line) -> Markup {
        let points = thinned(&line.points);
        let mut path = String::new();
        let mut is_begun = false;
        let mut last = None;
        for point in &points {
            let Some((x, y)) = self.spot(frame, *point) else {
                is_begun = false;
                continue;
            };
            path += &format!("{}{x:.1} {y:.1}", if is_begun { 'L' } else { 'M' });
            // A point by itself is a dot, by the round ends of lines.
            if !is_begun {
                path += &format!("L{x:.1} {y:.1}");
            }
            (is_begun, last) = (true, Some((x, y)));
        }
        if last.is_none() {
            return html! {};
        }
        html! {
            g class=(line.style.class) {
                path class="line" d=(path) stroke-dasharray=(line.style.dash) {
                    @if !self.has_marks { title { (line.label) } }
                }
                @for point in self.marked(line, &points) {
                    @if let Some((x, y)) = self.spot(frame, *point) {
                        (line.style.mark(x, y, &self.point_text(line, *point)))
                    }
                }
            }
        }
    }

    /// The points that get a mark: all, or a few, so that lines differ in grey as well.
    fn marked<'a>(&self, line: &Line, points: &'a [(f64, f64)]) -> Vec<&'a (f64, f64)> {
        let apart = if self.has_marks { 1 } else { points.len().div_ceil(SPARSE_MARKS).max(1) };
        // Lines of one course would have their marks on one another.
        let first = line.style.offset(apart);
        points.iter().skip(first).step_by(apart).collect()
    }

    /// The names at the right ends of the lines, moved apart where they would overlap.
    fn ends(&self, frame: &Frame) -> Markup {
        let mut ends: Vec<(f64, &Line)> = self
            .lines
            .iter()
            .filter_map(|line| {
                let spots = line.points.iter().rev().filter_map(|point| self.spot(frame, *point));
                Some((spots.map(|(_, y)| y).next()?, line))
            })
            .collect();
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut above = f64::NEG_INFINITY;
        for end in &mut ends {
            end.0 = end.0.max(above + LINE_HEIGHT);
            above = end.0;
        }
        let mut below = frame.height - frame.bottom + LINE_HEIGHT;
        for end in ends.iter_mut().rev() {
            end.0 = end.0.min(below - LINE_HEIGHT);
            below = end.0;
        }
        html! {
            @for (y, line) in &ends {
                g class=(line.style.class) {
                    text class="end" x=(px(frame.x(1.0) + 8.0)) y=(px(y + 4.0)) { (line.label) }
                }
            }
        }
    }

    fn reference_line(&self, frame: &Frame, value: f64, what: &str) -> Markup {
        let Some(y) = self.y.place(value).map(|place| frame.y(place)) else { return html! {} };
        html! {
            line class="reference" x1=(px(frame.left)) x2=(px(frame.x(1.0))) y1=(px(y)) y2=(px(y)) {}
            text class="note" x=(px(frame.left + 6.0)) y=(px(y + 14.0)) { (what) }
        }
    }

    fn point_text(&self, line: &Line, (x, y): (f64, f64)) -> String {
        format!("{}, {}: {}", line.label, self.x.unit.text(x), self.y.unit.text(y))
    }

    /// The chart for screen readers: where each line begins and ends.
    fn description(&self) -> String {
        let mut text = format!("Line chart. {}: {} by {}.", self.title, self.y_title, self.x_title);
        for line in &self.lines {
            let mut known = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
            let (first, last) = (known.next(), known.next_back());
            let ends = [first, last].into_iter().flatten();
            let ends: Vec<String> =
                ends.map(|(x, y)| format!("{} at {}", self.y.unit.text(*y), self.x.unit.text(*x))).collect();
            if !ends.is_empty() {
                text += &format!(" {}: {}.", line.label, ends.join(" to "));
            }
        }
        text
    }
}

/// A chart of half the page, with marks and with names at the ends of lines; each axis with its title.
pub fn chart(title: &str, x: (&str, Scale), y: (&str, Scale), lines: Vec<Line>) -> Chart {
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

pub fn heights(lines: &[Line]) -> Vec<f64> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| point.1)).collect()
}

/// How far right their points are.
pub fn places(lines: &[Line]) -> Vec<f64> {
    lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect()
}

/// Charts of the same lines: where they need a legend, one for all of them.
pub fn together(charts: &[Chart]) -> Vec<Markup> {
    let is_many = |chart: &&Chart| chart.lines.len() > 1 && !chart.ends_fit();
    let mut drawn: Vec<Markup> = charts.iter().find(is_many).map(Chart::legend).into_iter().collect();
    drawn.extend(charts.iter().map(|chart| chart.figure(false)));
    drawn
}

/// At most [`POINTS_MAX`] points: the highest of each few neighbours.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let few = points.len().div_ceil(POINTS_MAX).max(1);
    let highest = |some: &[(f64, f64)]| {
        let known = some.iter().filter(|point| !point.1.is_nan()).copied();
        known.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(some[0])
    };
    points.chunks(few).map(highest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Unit;

    fn chart(points: Vec<(f64, f64)>) -> Chart {
        let line = Line { label: "a".to_owned(), style: Style::of(0), points };
        Chart {
            title: "t".to_owned(),
            x_title: "load".to_owned(),
            y_title: "p99".to_owned(),
            x: Scale::decades(Unit::Number, 1.0, 100.0),
            y: Scale::decades(Unit::Milliseconds, 1.0, 100.0),
            lines: vec![line],
            has_marks: true,
            has_ends: true,
            reference: None,
            is_wide: false,
        }
    }

    #[test]
    fn points_lie_where_their_figures_say() {
        // The plot is 58..492 by 258..26; 10 is the middle of 1 to 100.
        let drawn = chart(vec![(1.0, 1.0), (10.0, 10.0)]).draw().into_string();
        assert!(drawn.contains("M58.0 258.0L58.0 258.0L275.0 142.0"), "{drawn}");
        assert!(drawn.contains("a: 1.00 ms at 1.00 to 10.0 ms at 10.0."), "{drawn}");
    }

    #[test]
    fn labels_of_the_x_axis_do_not_overlap() {
        let frame = Frame { width: WIDTH, height: 300.0, left: 58.0, right: 170.0, top: 26.0, bottom: 42.0 };
        let labels = |scale: &Scale| -> Vec<String> {
            frame.x_labels(scale).into_iter().map(|(label, _)| label.to_owned()).collect()
        };
        let scale = Scale::decades(Unit::Milliseconds, 0.01, 10_000.0);
        assert_eq!(labels(&scale), ["10 s", "100 ms", "1 ms", "10 µs"]);
        let scale = Scale::at(Unit::Number, &[1.0, 100_000.0, 100_100.0, 200_000.0]);
        assert_eq!(labels(&scale), ["200,000", "100,100", "1"]);
    }

    #[test]
    fn a_missing_figure_interrupts_the_line() {
        let drawn = chart(vec![(1.0, 1.0), (2.0, f64::NAN), (100.0, 0.0)]).draw().into_string();
        assert!(drawn.contains("M58.0 258.0L58.0 258.0M492.0 258.0L492.0 258.0"), "{drawn}");
        assert!(!drawn.contains("NaN"), "{drawn}");
    }

    #[test]
    fn thinning_keeps_the_highest() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|n| (f64::from(n), 1.0)).collect();
        points[77_777].1 = 9.0;
        let thin = thinned(&points);
        assert!(thin.len() <= POINTS_MAX && thin.contains(&(77_777.0, 9.0)));
    }
}
