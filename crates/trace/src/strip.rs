//! The timeline of an event loop as SVG: its states over time, and how many connections waited for it.
//!
//! The page calls it. A column of the picture is a stretch of time; the height of a colour is its share of that
//! stretch, so states shorter than a column are visible. The number of elements is bounded for any kernel trace: one
//! path for each colour, and a bounded number of tooltips. Pure.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::display::{self, time};
use crate::model::{BlockedCall, Reason, Segment, Shares, Timeline};
use flash_kit::chart::{WIDE, px};
use flash_kit::scale::round_up;

/// Columns of a picture, each about a pixel and a half wide.
const COLUMNS: usize = 660;
/// Blocked calls that have a tooltip, the longest of the window.
const DETAILS_MAX: usize = 400;
/// A blocked call of this width has its name above it, if no other name is there.
const NAMED_WIDTH_MIN: f64 = 5.0;
const CHAR_WIDTH: f64 = 7.2;
/// Ticks of the time axis, about.
const TICKS: f64 = 8.0;
/// Margins and heights, in units of the picture.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 22.0;
const STATES_HEIGHT: f64 = 92.0;
const BETWEEN: f64 = 24.0;
const HELD_HEIGHT: f64 = 40.0;
const FOOT: f64 = 36.0;

/// A state that has a colour of its own; its number is its place in [`LOOKS`].
#[derive(Clone, Copy, Debug)]
enum Shade {
    DiskRead,
    Metadata,
    Writing,
    Lock,
    Other,
    Runnable,
    Call,
    User,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Its class in `style.css`.
    pub(crate) class: &'static str,
    pub(crate) legend: &'static str,
}

/// From the foot of a column up; the rest of the column is time spent waiting for events.
pub(crate) const LOOKS: [Look; 8] = [
    Look { class: "k1", legend: "blocked: read from the disk" },
    Look { class: "k3", legend: "blocked: file system metadata" },
    Look { class: "k7", legend: "blocked: writeback or disk queue" },
    Look { class: "k4", legend: "blocked: lock" },
    Look { class: "k6", legend: "blocked: other" },
    Look { class: "s1", legend: "ready to run, no core free" },
    Look { class: "k5", legend: "running, in a system call" },
    Look { class: "k2", legend: "running, in the program" },
];

impl Shade {
    fn of(reason: Option<Reason>) -> Self {
        match reason {
            Some(Reason::DiskRead) => Self::DiskRead,
            Some(Reason::Metadata) => Self::Metadata,
            Some(Reason::Writeback | Reason::AccessTime | Reason::DiskQueue) => Self::Writing,
            Some(Reason::Lock | Reason::Futex) => Self::Lock,
            _ => Self::Other,
        }
    }
}

/// A stretch of the trace that a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) start_ns: u64,
    pub(crate) duration_ns: u64,
}

impl Window {
    fn end_ns(self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }

    /// A part of this length, moved so far that all of it is in this window.
    fn part(self, start_ns: u64, duration_ns: u64) -> Self {
        let latest_ns = self.end_ns().saturating_sub(duration_ns).max(self.start_ns);
        let start_ns = start_ns.clamp(self.start_ns, latest_ns);
        Self { start_ns, duration_ns: duration_ns.min(self.duration_ns) }
    }

    fn x(self, at_ns: u64) -> f64 {
        let from_start = at_ns.clamp(self.start_ns, self.end_ns()) - self.start_ns;
        LEFT + from_start as f64 / self.duration_ns.max(1) as f64 * (WIDE - LEFT - RIGHT)
    }

    fn touches(self, call: &BlockedCall) -> bool {
        call.start_ns < self.end_ns() && call.start_ns.saturating_add(call.duration_ns) > self.start_ns
    }
}

/// The stretch of this length in which the loop was blocked longest, or if it never was, was busiest.
pub(crate) fn worst(timeline: &Timeline, whole: Window, duration_ns: u64) -> Window {
    let cost = |of: fn(&Shares) -> u64| {
        let costs = |segment: &Segment| (segment.start_ns, of(&shares(segment)));
        timeline.segments.iter().map(costs).collect::<Vec<(u64, u64)>>()
    };
    let blocked = cost(|shares| shares.blocked_ns);
    let costs = if blocked.iter().any(|(_, ns)| *ns > 0) { blocked } else { cost(Shares::on_core_ns) };
    // A window that begins a little before a segment and takes in all that begin in it.
    let lead_ns = duration_ns / 20;
    let (mut first, mut sum, mut most, mut begin_ns) = (0, 0_u64, 0_u64, whole.start_ns);
    for (index, (start_ns, ns)) in costs.iter().enumerate() {
        sum = sum.saturating_add(*ns);
        while first < index && costs[first].0.saturating_add(duration_ns - lead_ns) <= *start_ns {
            sum = sum.saturating_sub(costs[first].1);
            first += 1;
        }
        if sum > most {
            (most, begin_ns) = (sum, costs[first].0);
        }
    }
    whole.part(begin_ns.saturating_sub(lead_ns), duration_ns)
}

/// The stretch of this length around the end of the longest blocked call in a window: the delayed connections are
/// served there.
pub(crate) fn end_of_longest(
    timeline: &Timeline,
    blocked: &[BlockedCall],
    window: Window,
    duration_ns: u64,
) -> Option<Window> {
    let mine = blocked.iter().filter(|call| call.tid == timeline.tid && window.touches(call));
    let ends = |call: &BlockedCall| call.start_ns.saturating_add(call.duration_ns);
    let longest = mine.filter(|call| ends(call) < window.end_ns()).max_by_key(|call| call.duration_ns)?;
    Some(window.part(ends(longest).saturating_sub(duration_ns / 5), duration_ns))
}

fn shares(segment: &Segment) -> Shares {
    segment.shares.unwrap_or_else(|| Shares::of(segment.state, segment.duration_ns))
}

/// A column: the share of each shade, and of time of which events are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Column {
    shades: [f64; LOOKS.len()],
    known: f64,
}

fn columns(timeline: &Timeline, window: Window) -> Vec<Column> {
    let mut columns = vec![Column::default(); COLUMNS];
    let width_ns = window.duration_ns.max(1) as f64 / COLUMNS as f64;
    for segment in &timeline.segments {
        let start = segment.start_ns as f64 - window.start_ns as f64;
        let end = start + segment.duration_ns as f64;
        if end <= 0.0 || start >= window.duration_ns as f64 || segment.duration_ns == 0 {
            continue;
        }
        let of = shares(segment);
        let whole = of.total_ns().max(1) as f64;
        let parts = [
            (Shade::of(segment.reason), of.blocked_ns),
            (Shade::Runnable, of.runnable_ns),
            (Shade::Call, of.call_ns),
            (Shade::User, of.user_ns),
        ];
        for index in touched(start, end, width_ns) {
            let column = &mut columns[index];
            let from = index as f64 * width_ns;
            let covered = (end.min(from + width_ns) - start.max(from)).max(0.0) / width_ns;
            column.known += covered;
            for (shade, ns) in parts {
                column.shades[shade as usize] += covered * ns as f64 / whole;
            }
        }
    }
    columns
}

/// The columns of this width that a stretch from `start` to `end` is in, in nanoseconds from the window's start.
fn touched(start: f64, end: f64, width_ns: f64) -> std::ops::Range<usize> {
    (start / width_ns).max(0.0) as usize..((end / width_ns).ceil().max(0.0) as usize).min(COLUMNS)
}

/// The path of one shade: a box for each run of columns in which it stands alike.
fn path(columns: &[Column], shade: usize) -> String {
    let step = (WIDE - LEFT - RIGHT) / COLUMNS as f64;
    let span = |column: &Column| {
        let below: f64 = column.shades[..shade].iter().sum();
        // Half a percent is finer than the picture.
        let round = |value: f64| (value.min(1.0) * 200.0).round() / 200.0;
        (round(below), round(below + column.shades[shade]))
    };
    let mut path = String::new();
    let mut first = 0;
    for alike in columns.chunk_by(|one, other| span(one) == span(other)) {
        let (low, high) = span(&alike[0]);
        if high > low {
            let foot = TOP + STATES_HEIGHT;
            let (x, y) = (LEFT + first as f64 * step, foot - high * STATES_HEIGHT);
            let (width, height) = (alike.len() as f64 * step, (high - low) * STATES_HEIGHT);
            let _ = write!(path, "M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z");
        }
        first += alike.len();
    }
    path
}

/// Boxes over stretches whose events were lost.
fn gaps(columns: &[Column], window: Window, is_whole: bool) -> Vec<(f64, f64)> {
    let step = (WIDE - LEFT - RIGHT) / COLUMNS as f64;
    let is_gap = |column: &Column| column.known < 0.5;
    let (mut gaps, mut first) = (Vec::new(), 0);
    for alike in columns.chunk_by(|one, other| is_gap(one) == is_gap(other)) {
        if is_gap(&alike[0]) && window.duration_ns > 0 && !is_whole {
            gaps.push((LEFT + first as f64 * step, alike.len() as f64 * step));
        }
        first += alike.len();
    }
    gaps
}

/// How many connections waited in each column: those of the same batch during the whole call, those that arrived
/// meanwhile as if they did so evenly.
fn held_up(calls: &[&BlockedCall], window: Window) -> Vec<f64> {
    let mut held = vec![0.0_f64; COLUMNS];
    let width_ns = window.duration_ns.max(1) as f64 / COLUMNS as f64;
    for call in calls {
        let Some(batch) = &call.batch else { continue };
        let start = call.start_ns as f64 - window.start_ns as f64;
        let duration = call.duration_ns.max(1) as f64;
        for index in touched(start, start + duration, width_ns) {
            let passed = (((index + 1) as f64 * width_ns - start) / duration).clamp(0.0, 1.0);
            held[index] = held[index].max(f64::from(batch.behind) + f64::from(batch.arrived) * passed);
        }
    }
    held
}

pub(crate) fn draw(timeline: &Timeline, blocked: &[BlockedCall], window: Window, title: &str) -> Markup {
    let mut calls: Vec<&BlockedCall> =
        blocked.iter().filter(|call| call.tid == timeline.tid && window.touches(call)).collect();
    calls.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
    let columns = columns(timeline, window);
    let held = held_up(&calls, window);
    let most = held.iter().copied().fold(0.0, f64::max);
    let foot = TOP + STATES_HEIGHT;
    let held_foot = if most > 0.0 { foot + BETWEEN + HELD_HEIGHT } else { foot };
    let height = held_foot + FOOT;
    html! {
        figure class="wide" {
            figcaption { (title) }
            svg viewBox=(format!("0 0 {WIDE} {height:.0}")) role="img" aria-label=(description(title, &calls)) {
                rect class="idle" x=(px(LEFT)) y=(px(TOP)) width=(px(WIDE - LEFT - RIGHT)) height=(px(STATES_HEIGHT)) {}
                (ticks(window, held_foot))
                @for (index, look) in LOOKS.iter().enumerate() {
                    @let path = path(&columns, index);
                    @if !path.is_empty() { g class=(look.class) { path class="state" d=(path) {} } }
                }
                @for (x, width) in gaps(&columns, window, timeline.segments.is_empty()) {
                    rect class="unknown" x=(px(x)) y=(px(TOP)) width=(px(width)) height=(px(STATES_HEIGHT)) { title { "unknown: events were lost, or the thread did not exist" } }
                }
                text class="tick" text-anchor="end" x=(px(LEFT - 7.0)) y=(px(TOP + 9.0)) { "100 %" }
                text class="tick" text-anchor="end" x=(px(LEFT - 7.0)) y=(px(foot)) { "0" }
                @if most > 0.0 { (held_picture(&held, most, held_foot)) }
                (names(&calls, window))
                @for call in calls.iter().take(DETAILS_MAX) { (details(call, window, held_foot)) }
            }
        }
    }
}

/// Lines of the time axis, and their labels.
fn ticks(window: Window, foot: f64) -> Markup {
    let step_ns = step_ns(window.duration_ns);
    let first_ns = window.start_ns.div_ceil(step_ns) * step_ns;
    let ticks = (0..).map(|n| first_ns + n * step_ns).take_while(|at_ns| *at_ns <= window.end_ns());
    html! {
        @for at_ns in ticks {
            @let x = px(window.x(at_ns));
            line class="grid" x1=(x) x2=(x) y1=(px(TOP)) y2=(px(foot)) {}
            text class="tick" text-anchor="middle" x=(x) y=(px(foot + 15.0)) { (tick_label(at_ns, step_ns)) }
        }
        text class="axis" text-anchor="end" x=(px(WIDE - RIGHT)) y=(px(foot + 30.0)) { "time since the start" }
    }
}

fn step_ns(duration_ns: u64) -> u64 {
    round_up((duration_ns as f64 / TICKS).max(1.0)) as u64
}

/// As exact as the steps are.
fn tick_label(at_ns: u64, step_ns: u64) -> String {
    let digits = (0..9).find(|digits| step_ns.is_multiple_of(10_u64.pow(9 - digits))).unwrap_or(9) as usize;
    format!("{:.digits$} s", at_ns as f64 / 1e9)
}

fn held_picture(held: &[f64], most: f64, foot: f64) -> Markup {
    let step = (WIDE - LEFT - RIGHT) / COLUMNS as f64;
    let mut path = format!("M{LEFT:.1} {foot:.1}");
    let mut before = 0.0;
    for (index, value) in held.iter().enumerate() {
        if (value - before).abs() > f64::EPSILON {
            let _ =
                write!(path, "H{:.1}V{:.1}", LEFT + index as f64 * step, foot - value / most * HELD_HEIGHT);
            before = *value;
        }
    }
    let _ = write!(path, "H{:.1}V{foot:.1}z", WIDE - RIGHT);
    html! {
        g class="k0" { path class="state held" d=(path) {} }
        line class="grid" x1=(px(LEFT)) x2=(px(WIDE - RIGHT)) y1=(px(foot)) y2=(px(foot)) {}
        text class="tick" text-anchor="end" x=(px(LEFT - 7.0)) y=(px(foot - HELD_HEIGHT + 9.0)) { (format!("{most:.0}")) }
        text class="tick" text-anchor="end" x=(px(LEFT - 7.0)) y=(px(foot)) { "0" }
        text class="axis" x=(px(LEFT)) y=(px(foot - HELD_HEIGHT - 5.0)) { "ready connections that wait for the blocked call" }
    }
}

/// The names of blocked calls above them, the longest first, where they do not run into one another.
fn names(calls: &[&BlockedCall], window: Window) -> Markup {
    let mut taken: Vec<(f64, f64)> = Vec::new();
    let mut names: Vec<(f64, String)> = Vec::new();
    for call in calls.iter().take(DETAILS_MAX) {
        let (from, to) = (window.x(call.start_ns), window.x(call.start_ns.saturating_add(call.duration_ns)));
        if to - from < NAMED_WIDTH_MIN {
            break;
        }
        let name = format!("{} {}", call.call, time(call.blocked_ns));
        let half = name.chars().count() as f64 * CHAR_WIDTH / 2.0;
        let middle = f64::midpoint(from, to).clamp(LEFT + half, (WIDE - RIGHT - half).max(LEFT + half));
        if taken.iter().all(|(low, high)| middle + half < *low || middle - half > *high) {
            taken.push((middle - half, middle + half));
            names.push((middle, name));
        }
    }
    html! {
        @for (x, name) in names {
            text class="row" text-anchor="middle" x=(px(x)) y=(px(TOP - 7.0)) { (name) }
        }
    }
}

fn details(call: &BlockedCall, window: Window, foot: f64) -> Markup {
    let (from, to) = (window.x(call.start_ns), window.x(call.start_ns.saturating_add(call.duration_ns)));
    html! {
        rect class="point" x=(px(from)) y=(px(TOP)) width=(px((to - from).max(1.5))) height=(px(foot - TOP)) {
            title { (call_text(call)) }
        }
    }
}

fn call_text(call: &BlockedCall) -> String {
    let mut text = format!(
        "{}: blocked for {} of {}, at {}, waiting for {}",
        display::call_on_what(call),
        time(call.blocked_ns),
        time(call.duration_ns),
        time(call.start_ns),
        call.reason.text()
    );
    if let Some(request) = display::own_request(call) {
        let _ = write!(text, "; for {request}");
    }
    if let Some(batch) = call.batch.as_ref().filter(|batch| batch.held_up() > 0) {
        let _ = write!(
            text,
            "; {} ready connections waited in the same batch, {} became ready meanwhile",
            batch.behind, batch.arrived
        );
    }
    text
}

fn description(title: &str, calls: &[&BlockedCall]) -> String {
    let longest = calls.first().map(|call| call_text(call));
    match longest {
        Some(longest) => format!("{title}. {} blocked calls; the longest: {longest}.", calls.len()),
        None => format!("{title}. No call blocked."),
    }
}

#[cfg(test)]
#[path = "strip_tests.rs"]
mod tests;
