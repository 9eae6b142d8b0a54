//! The page of a trace: one HTML file that needs nothing else, not even a script, with the timeline of each
//! event loop.
//!
//! `flash trace` and `flash doctor` call it. Styles are those of the lab's reports. Pure.

use std::cmp::Reverse;

use maud::{Markup, html};

use crate::diagnosis::{self, Diagnosis};
use crate::model::{BlockedCall, CallTotal, Request, TargetTotal, Thread, Timeline, Trace};
use crate::strip::{self, Window};
use crate::{display, verdict};
use flash_kit::number::{NONE, count, percent};
use flash_kit::page::Page;
use flash_kit::part::{Cell, Table, columns};

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
        summary: &verdict::headline(&found),
        footer: FOOTER,
        style: TIMELINE_STYLE,
        ..Page::default()
    };
    page.draw(&body).into_string()
}

fn findings(found: &Diagnosis) -> Markup {
    let sentences = verdict::sentences(found);
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
    let table = |in_loop: bool, title: &str| {
        let chosen = diagnosis::kinds(trace, in_loop);
        let row = |call: &&CallTotal| {
            vec![
                Cell::text(&display::process(trace, call.pid)),
                Cell::text(&call.call),
                Cell::count(call.count),
                Cell::count(call.errors),
                Cell::figure(call.on_cpu_ns as f64 / 1e6),
                Cell::count(call.blocked),
                Cell::figure(call.blocked_ns as f64 / 1e6),
                Cell::figure(call.longest_ns as f64 / 1e6),
                if in_loop && !call.is_wait { Cell::share(call.loop_share) } else { Cell::None },
                Cell::text(&if call.blocked == 0 { String::new() } else { display::reasons(&call.reasons) }),
            ]
        };
        let heads = [
            "process",
            "call",
            "count",
            "failed",
            "on CPU, ms",
            "blocked",
            "blocked, ms",
            "longest, ms",
            "loop lost",
            "waited for",
        ];
        Table {
            title: title.to_owned(),
            columns: columns(&heads),
            rows: chosen.iter().take(ROWS_MAX).map(row).collect(),
        }
    };
    html! {
        section id="calls" {
            h2 { "System calls" }
            div class="tables" {
                (table(true, "Event loops").draw())
                (table(false, "Other threads").draw())
            }
        }
    }
}

fn waits(trace: &Trace) -> Markup {
    let chosen = diagnosis::waits(trace);
    let row = |call: &&BlockedCall| {
        vec![
            Cell::figure(call.start_ns as f64 / 1e9),
            Cell::text(&display::thread(trace, call.tid)),
            Cell::text(if call.in_loop { "loop" } else { "other" }),
            Cell::text(&call.call),
            Cell::figure(call.blocked_ns as f64 / 1e6),
            Cell::maybe(call.size_bytes, Cell::bytes),
            Cell::text(call.reason.text()),
            Cell::maybe(call.batch.as_ref(), |batch| Cell::count(u64::from(batch.behind))),
            Cell::maybe(call.batch.as_ref(), |batch| Cell::count(u64::from(batch.arrived))),
            Cell::text(&display::on_what(call).unwrap_or_else(|| NONE.to_owned())),
            Cell::text(&display::stack(call)),
        ]
    };
    let heads = [
        "at, s",
        "thread",
        "in",
        "call",
        "blocked, ms",
        "size",
        "waited for",
        "ready behind it",
        "ready meanwhile",
        "file or socket",
        "kernel functions",
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
                (in_two(longest, &heads, chosen.iter().map(row)))
                (targets(trace).draw())
            }
        }
    }
}

/// The first rows in a table of their own, which is not folded.
fn in_two(title: String, heads: &[&str], rows: impl Iterator<Item = Vec<Cell>>) -> Markup {
    let mut first =
        Table { title, columns: columns(heads), rows: rows.take(OPEN_WAITS + ROWS_MAX).collect() };
    let next = first.rows.split_off(first.rows.len().min(OPEN_WAITS));
    let next = Table { title: "The next".to_owned(), columns: first.columns.clone(), rows: next };
    html! { (first.draw()) (next.draw()) }
}

fn targets(trace: &Trace) -> Table {
    let row = |total: &TargetTotal| {
        vec![
            Cell::text(&display::target(&total.target)),
            Cell::text(if total.in_loop { "loop" } else { "other" }),
            Cell::text(&total.call),
            Cell::count(total.blocked),
            Cell::figure(total.blocked_ns as f64 / 1e6),
            Cell::figure(total.longest_ns as f64 / 1e6),
            Cell::text(&display::reasons(&total.reasons)),
        ]
    };
    let mut chosen: Vec<&TargetTotal> = trace.targets.iter().collect();
    chosen.sort_by_key(|total| Reverse((total.in_loop, total.blocked_ns)));
    Table {
        title: "Files and sockets that calls blocked on".to_owned(),
        columns: columns(&[
            "file or socket",
            "in",
            "call",
            "calls",
            "blocked, ms",
            "longest, ms",
            "waited for",
        ]),
        rows: chosen.into_iter().take(ROWS_MAX).map(row).collect(),
    }
}

fn requests(trace: &Trace) -> Markup {
    let row = |request: &Request| {
        let behind = diagnosis::behind(trace, request);
        vec![
            Cell::figure(request.start_ns as f64 / 1e9),
            Cell::text(&display::request(&request.line)),
            Cell::text(&display::shortened(display::peer(&request.connection))),
            Cell::figure(request.waited_ns as f64 / 1e6),
            Cell::text(if request.is_answered { "yes" } else { "not yet" }),
            Cell::figure(request.held_up_ns as f64 / 1e6),
            Cell::maybe(request.tid, |tid| Cell::text(&display::thread(trace, tid))),
            Cell::count(behind.calls),
            Cell::text(&behind.longest),
            Cell::figure(behind.longest_ns as f64 / 1e6),
        ]
    };
    let heads = [
        "at, s",
        "request",
        "from",
        "waited, ms",
        "answered",
        "blocked for others, ms",
        "thread",
        "calls",
        "longest call",
        "longest, ms",
    ];
    let chosen = &trace.requests.costliest;
    let (open, all) = (chosen.len().min(OPEN_WAITS), count(trace.requests.seen));
    html! {
        @if !chosen.is_empty() {
            section id="requests" {
                h2 { "Affected requests" }
                p class="lead" {
                    "A request waits from its arrival on this machine until the first byte of its answer leaves. The list is \
                     sorted by how long calls for other connections blocked the event loop meanwhile."
                }
                div class="tables" {
                    (in_two(format!("The {open} worst-affected of {all}"), &heads, chosen.iter().map(row)))
                }
            }
        }
    }
}

fn measured(trace: &Trace) -> Markup {
    let processes = Table {
        title: "Processes".to_owned(),
        columns: columns(&["process", "threads", "event loops", "command"]),
        rows: trace
            .processes
            .iter()
            .take(ROWS_MAX)
            .map(|process| {
                let threads = || trace.threads.iter().filter(|thread| thread.pid == process.pid);
                vec![
                    Cell::text(&display::process(trace, process.pid)),
                    Cell::count(threads().count() as u64),
                    Cell::count(threads().filter(|thread| thread.is_loop).count() as u64),
                    Cell::text(&display::shortened(&process.command)),
                ]
            })
            .collect(),
    };
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
