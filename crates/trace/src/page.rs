//! The page of a trace: one HTML file that needs nothing else, not even a script, with the timeline of each
//! event loop.
//!
//! `flash trace` and `flash doctor` call it. Styles are those of the lab's reports. Pure.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::diagnosis::{self, Behind, Diagnosis};
use crate::model::{Batch, BlockedCall, CallTotal, Process, Request, TargetTotal, Thread, Timeline, Trace};
use crate::strip::{self, Window};
use crate::{diagnosis_text, display};
use flash_kit::number::{NONE, count, percent};
use flash_kit::page::Page;
use flash_kit::section::{Cell, Column, Table, table};

/// The styles of the timelines; the other styles are those of all reports.
const TIMELINE_STYLE: &str = include_str!("page.css");
const FOOTER: &str = "Made by flash doctor or flash trace from the kernel's events. Blocked time is time off the core inside a \
                      system call, until the thread ran again.";
/// Event loops that are drawn, those that were blocked longest.
const LOOPS_MAX: usize = 16;
/// Rows of the tables; the JSON has more.
const ROWS_MAX: usize = 200;
/// Blocked calls and requests that are shown without unfolding a table.
const OPEN_WAITS: usize = 20;
/// Each picture after the first shows this part of the one before.
const CLOSER: u64 = 20;
/// A closer picture must show at least this much time.
const CLOSE_NS_MIN: u64 = 20_000_000;

pub(crate) fn html(trace: &Trace) -> String {
    let found = diagnosis::diagnose(trace);
    let title = title(trace);
    let body = html! {
        (timelines(trace, &found))
        (warnings(&found))
        (findings(&found))
        (calls(trace))
        (waits(trace))
        (requests(trace))
        (measured(trace))
    };
    let page = Page {
        title: &title,
        kind: " · blocked calls",
        subtitle: &subtitle(trace),
        summary: &diagnosis_text::headline(&found),
        footer: FOOTER,
        style: TIMELINE_STYLE,
        ..Page::default()
    };
    page.draw(&body).into_string()
}

fn findings(found: &Diagnosis) -> Markup {
    let sentences = diagnosis_text::sentences(found);
    html! {
        @if !sentences.is_empty() {
            section id="findings" {
                h2 { "Findings" }
                ul class="findings" { @for sentence in sentences { li { (sentence) } } }
            }
        }
    }
}

fn title(trace: &Trace) -> String {
    match trace.processes.first() {
        Some(first) => format!("{}, process {}", display::program(first), first.pid),
        None => "No process".to_owned(),
    }
}

fn subtitle(trace: &Trace) -> String {
    let lost = match trace.missing.events_lost {
        0 => "no event lost".to_owned(),
        lost => display::many(lost, "event") + " lost",
    };
    format!(
        "Watched for {}: {}, {}; {lost}",
        display::time(trace.duration_ns),
        display::several(trace.processes.len(), "process", "processes"),
        display::several(trace.threads.len(), "thread", "threads")
    )
}

fn warnings(found: &Diagnosis) -> Markup {
    html! {
        @if !found.warnings.is_empty() {
            aside class="warnings" role="note" {
                h2 { "Limits of these figures" }
                ul { @for warning in &found.warnings { li { (warning) } } }
            }
        }
    }
}

fn timelines(trace: &Trace, found: &Diagnosis) -> Markup {
    let is_judged = |pid: u32| found.loops.iter().any(|one| one.pid == pid && one.is_judged);
    let mut shown: Vec<(&Timeline, &Thread)> = trace
        .timelines
        .iter()
        .filter_map(|timeline| {
            Some((timeline, trace.threads.iter().find(|thread| thread.tid == timeline.tid)?))
        })
        .collect();
    shown.sort_by_key(|(_, thread)| Reverse((thread.time.blocked_ns, thread.ready)));
    let all = shown.len();
    shown.retain(|(timeline, _)| is_judged(timeline.pid));
    shown.truncate(LOOPS_MAX);
    let more = all - shown.len();
    html! {
        section id="timelines" {
            h2 { "Event loops over time" }
            @if shown.is_empty() {
                p class="lead" { "No thread here is an event loop that serves several connections at once." }
            } @else {
                @for (index, (timeline, thread)) in shown.iter().enumerate() {
                    (pictures(trace, timeline, thread))
                    @if index == 0 { (legend()) }
                }
                @if more > 0 { p class="note" { (more) " more, which blocked less, are in the JSON." } }
            }
        }
    }
}

fn legend() -> Markup {
    let entry = |class: &str, words: &str| {
        html! {
            li class=(class) {
                svg viewBox="0 0 14 12" width="14" height="12" aria-hidden="true" { rect class="state" x="0" y="0" width="14" height="12" {} }
                span { (words) }
            }
        }
    };
    html! {
        ul class="legend" {
            @for look in strip::LOOKS { (entry(look.class, look.legend)) }
            (entry("idle", "waiting for events"))
        }
        p class="lead" {
            "Height: share of time. While \u{201c}blocked\u{201d} colours fill a column, the event loop serves no request. Point \
             at a column to see the call."
        }
    }
}

/// The whole time of a loop, then closer and closer to where it was blocked longest.
fn pictures(trace: &Trace, timeline: &Timeline, thread: &Thread) -> Markup {
    let whole_ns = thread.time.total_ns();
    let share = |part_ns: u64| percent(diagnosis::per(part_ns, whole_ns));
    html! {
        h3 {
            (display::thread(trace, thread.tid)) ": " (share(thread.time.waiting_ns)) " waiting for events, "
            (share(thread.time.on_core_ns())) " at work, "
            (share(thread.time.runnable_ns)) " without a core, " (share(thread.time.blocked_ns)) " blocked"
        }
        div class="charts" {
            @for (window, caption) in windows(trace, timeline, thread) {
                (strip::draw(timeline, &trace.blocked, window, &caption))
            }
        }
    }
}

/// The stretches of time that are drawn for a loop, with their captions.
fn windows(trace: &Trace, timeline: &Timeline, thread: &Thread) -> Vec<(Window, String)> {
    let whole = Window { start_ns: 0, duration_ns: trace.duration_ns.max(1) };
    let mut windows = vec![(whole, format!("The whole {}", display::time(whole.duration_ns)))];
    let told_apart_ns = CLOSE_NS_MIN.max(timeline.resolution_ns.saturating_mul(CLOSER));
    let [close_ns, closest_ns] = [whole.duration_ns / CLOSER, whole.duration_ns / CLOSER / CLOSER];
    if close_ns < told_apart_ns {
        return windows;
    }
    let close = strip::worst(timeline, whole, close_ns);
    let what = if thread.time.blocked_ns > 0 { "it was blocked longest" } else { "it was busiest" };
    windows.push((close, format!("The {} in which {what}", display::time(close_ns))));
    if closest_ns >= told_apart_ns
        && let Some(closest) = strip::end_of_longest(timeline, &trace.blocked, close, closest_ns)
    {
        windows.push((
            closest,
            format!("The {} around the end of the longest call in it", display::time(closest_ns)),
        ));
    }
    windows
}

fn calls(trace: &Trace) -> Markup {
    let calls = |in_loop: bool, title: &str| {
        let lost = |call: &CallTotal| (in_loop && !call.is_wait).then_some(call.loop_share);
        let columns: [Column<'_, &CallTotal>; 10] = [
            ("process", &|call| Cell::text(&display::process(trace, call.pid))),
            ("call", &|call| Cell::text(&call.call)),
            ("count", &|call| Cell::count(call.count)),
            ("failed", &|call| Cell::count(call.errors)),
            ("on CPU, ms", &|call| ms(call.on_cpu_ns)),
            ("blocked", &|call| Cell::count(call.blocked)),
            ("blocked, ms", &|call| ms(call.blocked_ns)),
            ("longest, ms", &|call| ms(call.longest_ns)),
            ("loop lost", &|call| Cell::maybe(lost(call), Cell::share)),
            ("waited for", &|call| match call.blocked {
                0 => Cell::text(""),
                _ => Cell::text(&display::reasons(&call.reasons)),
            }),
        ];
        table(title, &columns, diagnosis::kinds(trace, in_loop).into_iter().take(ROWS_MAX))
    };
    html! {
        section id="calls" {
            h2 { "System calls" }
            div class="tables" {
                (calls(true, "Event loops").draw())
                (calls(false, "Other threads").draw())
            }
        }
    }
}

fn waits(trace: &Trace) -> Markup {
    let chosen = diagnosis::waits(trace);
    let batch = |call: &BlockedCall, of: fn(&Batch) -> u32| {
        Cell::maybe(call.batch.as_ref(), |batch| Cell::count(of(batch).into()))
    };
    let columns: [Column<'_, &BlockedCall>; 11] = [
        ("at, s", &|call| Cell::figure(call.start_ns as f64 / 1e9)),
        ("thread", &|call| Cell::text(&display::thread(trace, call.tid))),
        ("in", &|call| Cell::text(place(call.in_loop))),
        ("call", &|call| Cell::text(&call.call)),
        ("blocked, ms", &|call| ms(call.blocked_ns)),
        ("size", &|call| Cell::maybe(call.size_bytes, Cell::bytes)),
        ("waited for", &|call| Cell::text(call.reason.text())),
        ("ready behind it", &|call| batch(call, |batch| batch.behind)),
        ("ready meanwhile", &|call| batch(call, |batch| batch.arrived)),
        ("file or socket", &|call| Cell::text(&display::on_what(call).unwrap_or_else(|| NONE.to_owned()))),
        ("kernel functions", &|call| Cell::text(&display::stack(call))),
    ];
    let listed = chosen.len() as u64 + trace.missing.blocked_dropped;
    let longest = format!(
        "The longest {} of {}; event loops and disk reads first",
        chosen.len().min(OPEN_WAITS),
        count(listed)
    );
    html! {
        section id="waits" {
            h2 { "Blocked calls" }
            @if chosen.is_empty() { p class="lead" { "No call blocked, except to wait for events." } }
            div class="tables" {
                (in_two(&longest, &columns, chosen.iter().copied()))
                (targets(trace).draw())
            }
        }
    }
}

fn ms(time_ns: u64) -> Cell {
    Cell::figure(time_ns as f64 / 1e6)
}

fn place(in_loop: bool) -> &'static str {
    if in_loop { "loop" } else { "other" }
}

/// The first rows in a table of their own, which is not folded.
fn in_two<R>(title: &str, columns: &[Column<'_, R>], rows: impl Iterator<Item = R>) -> Markup {
    let mut rows = rows.take(OPEN_WAITS + ROWS_MAX);
    let first = table(title, columns, rows.by_ref().take(OPEN_WAITS));
    html! { (first.draw()) (table("The next", columns, rows).draw()) }
}

fn targets(trace: &Trace) -> Table {
    let columns: [Column<'_, &TargetTotal>; 7] = [
        ("file or socket", &|total| Cell::text(&display::target(&total.target))),
        ("in", &|total| Cell::text(place(total.in_loop))),
        ("call", &|total| Cell::text(&total.call)),
        ("calls", &|total| Cell::count(total.blocked)),
        ("blocked, ms", &|total| ms(total.blocked_ns)),
        ("longest, ms", &|total| ms(total.longest_ns)),
        ("waited for", &|total| Cell::text(&display::reasons(&total.reasons))),
    ];
    let mut chosen: Vec<&TargetTotal> = trace.targets.iter().collect();
    chosen.sort_by_key(|total| Reverse((total.in_loop, total.blocked_ns)));
    table("Files and sockets that calls blocked on", &columns, chosen.into_iter().take(ROWS_MAX))
}

fn requests(trace: &Trace) -> Markup {
    let columns: [Column<'_, (&Request, Behind)>; 10] = [
        ("at, s", &|(request, _)| Cell::figure(request.start_ns as f64 / 1e9)),
        ("request", &|(request, _)| Cell::text(&display::request(&request.line))),
        ("from", &|(request, _)| Cell::text(&display::shortened(display::peer(&request.connection)))),
        ("waited, ms", &|(request, _)| ms(request.waited_ns)),
        ("answered", &|(request, _)| Cell::text(if request.is_answered { "yes" } else { "not yet" })),
        ("blocked for others, ms", &|(request, _)| ms(request.held_up_ns)),
        ("thread", &|(request, _)| Cell::maybe(request.tid, |tid| Cell::text(&display::thread(trace, tid)))),
        ("calls", &|(_, behind)| Cell::count(behind.calls)),
        ("longest call", &|(_, behind)| Cell::text(&behind.longest)),
        ("longest, ms", &|(_, behind)| ms(behind.longest_ns)),
    ];
    let chosen = &trace.requests.costliest;
    let (open, all) = (chosen.len().min(OPEN_WAITS), count(trace.requests.seen));
    let rows = chosen.iter().map(|request| (request, diagnosis::behind(trace, request)));
    html! {
        @if !chosen.is_empty() {
            section id="requests" {
                h2 { "Affected requests" }
                p class="lead" {
                    "A request waits from its arrival on this machine until the first byte of its answer leaves. The list is \
                     sorted by how long calls for other connections blocked the event loop meanwhile."
                }
                div class="tables" {
                    (in_two(&format!("The {open} worst-affected of {all}"), &columns, rows))
                }
            }
        }
    }
}

fn measured(trace: &Trace) -> Markup {
    let threads = |process: &Process, is_counted: fn(&Thread) -> bool| {
        let own = trace.threads.iter().filter(|thread| thread.pid == process.pid && is_counted(thread));
        Cell::count(own.count() as u64)
    };
    let columns: [Column<'_, &Process>; 4] = [
        ("process", &|process| Cell::text(&display::process(trace, process.pid))),
        ("threads", &|process| threads(process, |_| true)),
        ("event loops", &|process| threads(process, |thread| thread.is_loop)),
        ("command", &|process| Cell::text(&display::shortened(&process.command))),
    ];
    let processes = table("Processes", &columns, trace.processes.iter().take(ROWS_MAX));
    html! {
        section id="measured" {
            h2 { "Kernel trace" }
            (processes.draw())
            dl {
                dt { "command" } dd { code { (display::shortened(&trace.command_line.join(" "))) } }
                dt { "kernel" } dd { (display::shortened(&trace.kernel)) }
                dt { "calls cut" } dd { (count(trace.missing.calls_cut)) " calls began before the kernel trace or ended after it; of these, only blocked ones count, for the time within it" }
            }
        }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
