//! The table that `flash trace` prints: each system call with where its time went, then the longest
//! waits.
//!
//! `flash trace` calls it. Pure.

use super::model::{BlockedCall, CallTotal, Request, Thread, Trace};
use super::words::{self, many, time};
use super::{diagnosis, verdict};
use crate::report::number::{NONE, count, percent};
use crate::report::terminal::{cut, wrapped};

/// So many kinds of calls are shown of the event loops, and of the other threads; the JSON has all.
const CALLS_MAX: usize = 20;
/// And so many blocked calls.
const BLOCKED_MAX: usize = 15;
/// And so many requests.
const REQUESTS_MAX: usize = 10;
/// No column is wider, characters.
const CELL_CHARS_MAX: usize = 64;

/// The table, with a line end; for a wide terminal.
pub fn table(trace: &Trace) -> String {
    let mut text = head(trace);
    for thread in trace.threads.iter().filter(|thread| thread.is_loop) {
        text += &wrapped(&of_loop(trace, thread));
    }
    for total in &trace.requests.totals {
        let who = match total.pid {
            0 => "no event loop that is known".to_owned(),
            pid => words::process(trace, pid),
        };
        text += &wrapped(&format!("{who}: {}", verdict::requests(total)));
    }
    for warning in words::warnings(trace) {
        text += &wrapped(&format!("warning: {warning}"));
    }
    for (in_loop, title) in [(true, "calls of event loops"), (false, "calls of other threads")] {
        text += &calls(trace, in_loop, title);
    }
    text + &blocked(trace) + &requests(trace)
}

fn head(trace: &Trace) -> String {
    let command = trace.processes.first().map(|first| words::shortened(&first.command)).unwrap_or_default();
    format!(
        "{}: {}, {}, watched for {}\n",
        if command.is_empty() { "what was traced" } else { &command },
        words::several(trace.processes.len(), "process", "processes"),
        words::several(trace.threads.len(), "thread", "threads"),
        time(trace.duration_ns)
    )
}

fn of_loop(trace: &Trace, thread: &Thread) -> String {
    let whole_ns = thread.time.total_ns();
    let share = |part_ns: u64| percent(diagnosis::per(part_ns, whole_ns));
    format!(
        "event loop {}: {} {}, {} ready, at most {} at once; {} waiting for events, {} at work, {} without a core, {} \
         blocked",
        words::thread(trace, thread.tid),
        thread.wait_call.as_deref().unwrap_or("waits"),
        many(thread.waits, "time"),
        count(thread.ready),
        thread.ready_max,
        share(thread.time.waiting_ns),
        share(thread.time.user_ns.saturating_add(thread.time.call_ns)),
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
            words::process(trace, call.pid),
            call.call.to_string(),
            count(call.count),
            count(call.errors),
            time(call.on_cpu_ns),
            count(call.blocked),
            time(call.blocked_ns),
            time(call.longest_ns),
            if in_loop && !call.is_wait { percent(call.loop_share) } else { NONE.to_owned() },
            if call.blocked == 0 { String::new() } else { words::reasons(&call.reasons) },
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
        format!("{} more are in the JSON\n", many(more as u64, "kind"))
    } else {
        String::new()
    };
    format!("\n{title}\n{}{more}", aligned(&heads, rows, &[0, 1, 9]))
}

fn blocked(trace: &Trace) -> String {
    let chosen = diagnosis::waits(trace);
    if chosen.is_empty() {
        return "\nno call waited\n".to_owned();
    }
    let row = |call: &&BlockedCall| {
        let behind = |batch: &super::model::Batch| format!("{} + {}", batch.behind, batch.arrived);
        vec![
            time(call.start_ns),
            time(call.blocked_ns),
            if call.in_loop { "loop" } else { "other" }.to_owned(),
            words::thread(trace, call.tid),
            call.call.to_string(),
            call.reason.words().to_owned(),
            call.batch.as_ref().map_or_else(|| NONE.to_owned(), behind),
            words::on_what(call).unwrap_or_else(|| NONE.to_owned()),
        ]
    };
    let heads = ["at", "blocked", "where", "thread", "call", "waited for", "held up", "what it was for"];
    let rows = chosen.iter().take(BLOCKED_MAX).map(row).collect();
    format!(
        "\nthe longest waits, those of event loops and for the disk first, {} of {} (held up: of the same batch + ready meanwhile)\n{}",
        chosen.len().min(BLOCKED_MAX),
        count(chosen.len() as u64 + trace.missing.blocked_dropped),
        aligned(&heads, rows, &[2, 3, 4, 5, 7])
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
            time(request.stood_still_ns),
            request.tid.map_or_else(|| NONE.to_owned(), |tid| words::thread(trace, tid)),
            words::request(&request.line),
            words::shortened(words::peer(&request.connection)),
        ]
    };
    let heads = ["at", "waited", "loop stood still", "thread", "request", "from"];
    format!(
        "\nthe requests that paid most, {} of {} (waited: until the first byte of the answer; +: there was none yet)\n{}",
        chosen.len().min(REQUESTS_MAX),
        count(trace.requests.seen),
        aligned(&heads, chosen.iter().take(REQUESTS_MAX).map(row).collect(), &[3, 4, 5])
    )
}

/// Rows below their heads; columns of words to the left, figures to the right.
fn aligned(heads: &[&str], rows: Vec<Vec<String>>, words: &[usize]) -> String {
    let heads = heads.iter().map(|head| (*head).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0).min(CELL_CHARS_MAX)
    };
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let cell = cut(cell, CELL_CHARS_MAX);
            line += "  ";
            line +=
                &if words.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
