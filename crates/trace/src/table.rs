//! The table that `flash trace` prints: system calls and where their time went, then the longest blocked calls and the
//! worst-affected requests.
//!
//! `flash trace` calls it. Pure.

use crate::display::{self, many, time};
use crate::model::{BlockedCall, CallTotal, Request, Thread, Trace};
use crate::{diagnosis, diagnosis_text};
use flash_kit::number::{NONE, count, percent};
use flash_kit::text::{columns, wrapped};

/// System calls that are shown of the event loops, and of the other threads; the JSON has all.
const CALLS_MAX: usize = 20;
const BLOCKED_MAX: usize = 15;
const REQUESTS_MAX: usize = 10;

pub(crate) fn table(trace: &Trace) -> String {
    let mut text = head(trace);
    for thread in trace.threads.iter().filter(|thread| thread.is_loop) {
        text += &wrapped(&of_loop(trace, thread));
    }
    for total in &trace.requests.totals {
        let who = match total.pid {
            0 => "no known event loop".to_owned(),
            pid => display::process(trace, pid),
        };
        text += &wrapped(&format!("{who}: {}", diagnosis_text::requests(total)));
    }
    for warning in display::warnings(trace) {
        text += &wrapped(&format!("warning: {warning}"));
    }
    for (in_loop, title) in [(true, "calls of event loops"), (false, "calls of other threads")] {
        text += &calls(trace, in_loop, title);
    }
    text + &blocked(trace) + &requests(trace)
}

fn head(trace: &Trace) -> String {
    let command = trace.processes.first().map(|first| display::shortened(&first.command)).unwrap_or_default();
    format!(
        "{}: {}, {}, watched for {}\n",
        if command.is_empty() { "kernel trace" } else { &command },
        display::several(trace.processes.len(), "process", "processes"),
        display::several(trace.threads.len(), "thread", "threads"),
        time(trace.duration_ns)
    )
}

fn of_loop(trace: &Trace, thread: &Thread) -> String {
    let whole_ns = thread.time.total_ns();
    let share = |part_ns: u64| percent(diagnosis::per(part_ns, whole_ns));
    format!(
        "event loop {}: {} {}, {} ready, at most {} at once; {} waiting for events, {} at work, {} without a core, {} \
         blocked",
        display::thread(trace, thread.tid),
        thread.wait_call.as_deref().unwrap_or("waits"),
        many(thread.waits, "time"),
        count(thread.ready),
        thread.ready_max,
        share(thread.time.waiting_ns),
        share(thread.time.on_core_ns()),
        share(thread.time.runnable_ns),
        share(thread.time.blocked_ns),
    )
}

fn calls(trace: &Trace, in_loop: bool, title: &str) -> String {
    let chosen = diagnosis::kinds(trace, in_loop);
    if chosen.is_empty() {
        return String::new();
    }
    let row = |call: &&CallTotal| {
        vec![
            display::process(trace, call.pid),
            call.call.to_string(),
            count(call.count),
            count(call.errors),
            time(call.on_cpu_ns),
            count(call.blocked),
            time(call.blocked_ns),
            time(call.longest_ns),
            if in_loop && !call.is_wait { percent(call.loop_share) } else { NONE.to_owned() },
            if call.blocked == 0 { String::new() } else { display::reasons(&call.reasons) },
        ]
    };
    let heads = [
        "process",
        "call",
        "count",
        "failed",
        "on CPU",
        "blocked",
        "for",
        "longest",
        "loop lost",
        "waited for",
    ];
    let rows: Vec<Vec<String>> = chosen.iter().take(CALLS_MAX).map(row).collect();
    let more = chosen.len().saturating_sub(CALLS_MAX);
    let more = if more > 0 {
        format!("{} more are in the JSON\n", many(more as u64, "system call"))
    } else {
        String::new()
    };
    format!("\n{title}\n{}{more}", columns(&heads, rows, &[0, 1, 9]))
}

fn blocked(trace: &Trace) -> String {
    let chosen = diagnosis::waits(trace);
    if chosen.is_empty() {
        return "\nno call blocked\n".to_owned();
    }
    let row = |call: &&BlockedCall| {
        let behind = |batch: &super::model::Batch| format!("{} + {}", batch.behind, batch.arrived);
        vec![
            time(call.start_ns),
            time(call.blocked_ns),
            if call.in_loop { "loop" } else { "other" }.to_owned(),
            display::thread(trace, call.tid),
            call.call.to_string(),
            call.reason.text().to_owned(),
            call.batch.as_ref().map_or_else(|| NONE.to_owned(), behind),
            display::on_what(call).unwrap_or_else(|| NONE.to_owned()),
        ]
    };
    let heads = ["at", "blocked", "where", "thread", "call", "waited for", "delayed", "file or socket"];
    let rows = chosen.iter().take(BLOCKED_MAX).map(row).collect();
    format!(
        "\nblocked calls, event loops and disk reads first, then the longest: {} of {} (delayed: ready connections in the same batch + ready meanwhile)\n{}",
        chosen.len().min(BLOCKED_MAX),
        count(chosen.len() as u64 + trace.missing.blocked_dropped),
        columns(&heads, rows, &[2, 3, 4, 5, 7])
    )
}

fn requests(trace: &Trace) -> String {
    let chosen = &trace.requests.costliest;
    if chosen.is_empty() {
        return String::new();
    }
    let row = |request: &Request| {
        vec![
            time(request.start_ns),
            time(request.waited_ns) + if request.is_answered { "" } else { " +" },
            time(request.held_up_ns),
            request.tid.map_or_else(|| NONE.to_owned(), |tid| display::thread(trace, tid)),
            display::request(&request.line),
            display::shortened(display::peer(&request.connection)),
        ]
    };
    let heads = ["at", "waited", "blocked for others", "thread", "request", "from"];
    format!(
        "\nworst-affected requests, {} of {} (waited: until the first byte of the answer; +: no answer yet)\n{}",
        chosen.len().min(REQUESTS_MAX),
        count(trace.requests.seen),
        columns(&heads, chosen.iter().take(REQUESTS_MAX).map(row).collect(), &[3, 4, 5])
    )
}
