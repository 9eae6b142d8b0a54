//! Line charts as SVG.
//!
//! The parts of the page call it. It draws what it is given and computes no figure. The `plotters`
//! crate writes fixed colours, so a page drawn with it cannot be dark on a dark screen and light on
//! paper; here colours are classes of `style.css`. Pure.

use maud::{Markup, html};

use super::scale::{Scale, Tick};
use super::style::Style;

/// A chart's width in units of its own; half a page.
pub(super) const WIDTH: f64 = 520.0;
/// The width of a chart that takes the whole page.
pub(crate) const WIDE: f64 = 1080.0;
/// A line is thinned to so many points, keeping the highest of those that fall together.
const POINTS_MAX: usize = 2000;
/// With more lines, or longer names, names at the ends of lines run into one another.
const ENDS_MAX: usize = 6;
const END_CHARS_MAX: usize = 18;
/// About the width of a character and the height of a line of 11.5 px type.
const CHAR_WIDTH: f64 = 7.8;
const LINE_HEIGHT: f64 = 13.5;

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) label: String,
    pub(super) style: Style,
    /// A point that has no number interrupts the line.
    pub(super) points: Vec<(f64, f64)>,
}

/// A line chart.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// What it shows, above it.
    pub(super) title: String,
    pub(super) x_title: String,
    pub(super) y_title: String,
    pub(super) x: Scale,
    pub(super) y: Scale,
    pub(super) lines: Vec<Line>,
    /// Each point gets a mark: for few points.
    pub(super) has_marks: bool,
    /// Names stand at the ends of lines where they fit, else in a legend.
    pub(super) has_ends: bool,
    /// A value on the y axis to compare with, and what it is.
    pub(super) reference: Option<(f64, String)>,
    /// Over the whole width of the page.
    pub(super) is_wide: bool,
}

/// Where the plot lies in its chart.
pub(crate) struct Frame {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
}

impl Frame {
    pub(crate) fn x(&self, place: f64) -> f64 {
        self.left + place * (self.width - self.left - self.right)
    }

    pub(crate) fn y(&self, place: f64) -> f64 {
        self.height - self.bottom - place * (self.height - self.top - self.bottom)
    }

    /// Lines and labels of the y axis.
    pub(crate) fn y_axis(&self, scale: &Scale, title: &str) -> Markup {
        html! {
            @for (tick, place) in places(scale) {
                line class=(grid_class(tick)) x1=(px(self.left)) x2=(px(self.x(1.0))) y1=(px(self.y(place))) y2=(px(self.y(place))) {}
                @if let Some(label) = &tick.label {
                    text class="tick" text-anchor="end" x=(px(self.left - 7.0)) y=(px(self.y(place) + 4.0)) { (label) }
                }
            }
            text class="axis" x="2" y="13" { (title) }
        }
    }

    /// Lines and labels of the x axis.
    pub(crate) fn x_axis(&self, scale: &Scale, title: &str) -> Markup {
        let foot = self.y(0.0);
        html! {
            @for (tick, place) in places(scale) {
                line class=(grid_class(tick)) x1=(px(self.x(place))) x2=(px(self.x(place))) y1=(px(self.top)) y2=(px(foot)) {}
                @if let Some(label) = &tick.label {
                    text class="tick" text-anchor="middle" x=(px(self.x(place))) y=(px(foot + 17.0)) { (label) }
                }
            }
            text class="axis" text-anchor="end" x=(px(self.x(1.0))) y=(px(self.height - 4.0)) { (title) }
        }
    }
}

/// A coordinate; a tenth of a pixel is exact enough.
pub(crate) fn px(value: f64) -> String {
    format!("{value:.1}")
}

fn grid_class(tick: &Tick) -> &'static str {
    if tick.label.is_some() { "grid" } else { "grid minor" }
}

fn places(scale: &Scale) -> Vec<(&Tick, f64)> {
    scale.ticks.iter().filter_map(|tick| Some((tick, scale.place(tick.value)?))).collect()
}

/// A legend of lines.
pub(super) fn legend<'a>(entries: impl IntoIterator<Item = (&'a str, &'a Style)>, has_marks: bool) -> Markup {
    html! {
        ul class="legend" {
            @for (label, style) in entries {
                li class=(style.class) {
                    svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true" {
                        line class="line" x1="1" x2="33" y1="6" y2="6" stroke-dasharray=(style.dash) {}
                        @if has_marks { (style.mark(17.0, 6.0, "")) }
                    }
                    span { (label) }
                }
            }
        }
    }
}

impl Chart {
    /// The figure, with its caption and legend.
    pub(super) fn draw(&self) -> Markup {
        self.figure(!self.ends_fit() && self.lines.len() > 1)
    }

    fn figure(&self, has_legend: bool) -> Markup {
        let ends = self.ends_fit();
        let longest = self.lines.iter().map(|line| line.label.chars().count()).max().unwrap_or(0);
        let width = if self.is_wide { WIDE } else { WIDTH };
        let right = if ends { 14.0 + longest as f64 * CHAR_WIDTH } else { 28.0 };
        let frame = Frame { width, height: 300.0, left: 58.0, right, top: 26.0, bottom: 42.0 };
        html! {
            figure class=[self.is_wide.then_some("wide")] {
                figcaption { (self.title) }
                @if has_legend { (self.legend()) }
                svg viewBox=(format!("0 0 {width} {}", frame.height)) role="img" aria-label=(self.in_words()) {
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
    }

    fn legend(&self) -> Markup {
        legend(self.lines.iter().map(|line| (line.label.as_str(), &line.style)), self.has_marks)
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
                @if self.has_marks {
                    @for point in &points {
                        @if let Some((x, y)) = self.spot(frame, *point) {
                            (line.style.mark(x, y, &self.point_in_words(line, *point)))
                        }
                    }
                }
            }
        }
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

    fn point_in_words(&self, line: &Line, (x, y): (f64, f64)) -> String {
        format!("{}, {}: {}", line.label, self.x.unit.text(x), self.y.unit.text(y))
    }

    /// The chart for who can't see it: where each line begins and ends.
    fn in_words(&self) -> String {
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

/// Charts of the same lines: where they need a legend, one for all of them.
pub(super) fn together(charts: &[Chart]) -> Vec<Markup> {
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
    use crate::report::scale::Unit;

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
