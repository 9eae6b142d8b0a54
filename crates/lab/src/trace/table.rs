//! The table that `flash trace` prints.
//!
//! From a [`Trace`] alone.

use std::fmt::Write as _;

use super::model::Trace;

/// A trace as text.
pub fn table(trace: &Trace) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut text = format!(
        "{:>8} {:>5} {:20} {:>9} {:>7} {:>10} {:>10} {:>7} {:>10} {:>6}  waited for\n",
        "pid",
        "loop",
        "call",
        "count",
        "errors",
        "on cpu ms",
        "blocked ms",
        "blocked",
        "longest ms",
        "lost %"
    );
    for call in &trace.calls {
        let reasons: Vec<String> =
            call.reasons.iter().map(|r| format!("{} ({})", r.reason.words(), r.count)).collect();
        let _ = writeln!(
            text,
            "{:>8} {:>5} {:20} {:>9} {:>7} {:>10.3} {:>10.3} {:>7} {:>10.3} {:>6.2}  {}",
            call.pid,
            if call.in_loop { "yes" } else { "" },
            call.call,
            call.count,
            call.errors,
            ms(call.on_cpu_ns),
            ms(call.blocked_ns),
            call.blocked,
            ms(call.longest_ns),
            100.0 * call.loop_share,
            reasons.join(", ")
        );
    }
    let missing = &trace.missing;
    let _ = writeln!(text, "events lost: {}", missing.events_lost);
    if missing.events_lost > 0 {
        text.push_str("counts and times are too low; a larger --buffer loses fewer\n");
    }
    for note in &missing.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}
