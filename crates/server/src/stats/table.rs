//! The figures for people: a table of at most 100 columns, or a line for each sample.
//!
//! Called by `flash stats`. Text only; asks nobody.

use std::fmt::Write as _;

use super::stalls::time;
use super::{Counters, ServerStats, StateCounts, WorkerStats};
use flash_worker::stats::Histogram;

/// Workers shown, each on a line; more are only counted.
const WORKERS_SHOWN_MAX: usize = 64;
/// Calls shown: more than there are.
const CALLS_SHOWN_MAX: usize = 32;

/// All of it: the sums first, then each worker. With `seconds`, what `stats` has counted is what came in
/// so long, and is shown for each second.
#[must_use]
pub fn table(stats: &ServerStats, seconds: Option<f64>) -> String {
    let amounts = Amounts { seconds };
    let mut out = title(stats, seconds);
    requests(&mut out, &stats.sum, amounts);
    caches(&mut out, &stats.sum, amounts);
    distributions(&mut out, &stats.sum, amounts);
    calls(&mut out, &stats.sum, amounts);
    jobs(&mut out, stats, amounts);
    workers(&mut out, stats, amounts);
    out
}

/// One sample on a line, as for [`table`]; without `stats`, what its columns are.
#[must_use]
pub fn line(stats: Option<(&ServerStats, Option<f64>)>) -> String {
    let Some((stats, seconds)) = stats else {
        return format!(
            "{:>9} {:>11} {:>11} {:>6} {:>9} {:>10} {:>9} {:>6} {:>8} {:>8}\n",
            "up",
            "requests",
            "sent",
            "open",
            "contents",
            "events",
            "dispatch",
            "queue",
            "runnable",
            "blocked"
        );
    };
    let (sum, amounts) = (&stats.sum, Amounts { seconds });
    let [known, waiting] = [stats.states.workers, stats.states.helpers].map(|s| (s.runnable, s.blocked));
    format!(
        "{:>9} {:>11} {:>11} {:>6} {:>9} {:>10} {:>9} {:>6} {:>8} {:>8}\n",
        span(stats.uptime_ms),
        amounts.of(sum.requests),
        amounts.bytes(sum.bytes_sent()),
        grouped(sum.connections.open.0),
        share(sum.caches.contents.hits, sum.caches.contents.lookups),
        amounts.of(sum.dispatches.0.sum()),
        optional(sum.dispatches.0.mean()),
        grouped(sum.queue.now.0),
        known.0 + waiting.0,
        known.1 + waiting.1,
    )
}

/// How counts are shown: as they are, or for each second.
#[derive(Clone, Copy)]
struct Amounts {
    seconds: Option<f64>,
}

impl Amounts {
    fn of(self, count: u64) -> String {
        match self.seconds {
            None => grouped(count),
            Some(_) if count == 0 => "0".to_owned(),
            Some(seconds) => match count as f64 / seconds {
                rate if rate >= 99.95 => format!("{}/s", grouped(rate.round() as u64)),
                rate => format!("{rate:.1}/s"),
            },
        }
    }

    fn bytes(self, bytes: u64) -> String {
        match self.seconds {
            None => size(bytes as f64),
            Some(seconds) => format!("{}/s", size(bytes as f64 / seconds)),
        }
    }
}

fn title(stats: &ServerStats, seconds: Option<f64>) -> String {
    let mut out = format!("flash {}  process {}  up {}", stats.program, stats.pid, span(stats.uptime_ms));
    if let Some(architecture) = stats.settings.get("architecture").and_then(serde_json::Value::as_str) {
        let _ = write!(out, "  {architecture}");
    }
    let told = stats.workers.iter().filter(|worker| worker.counters.is_some()).count();
    let _ = match (stats.workers.len(), told) {
        (1, 1) => write!(out, "  1 worker"),
        (all, told) if all == told => write!(out, "  {all} workers"),
        (all, told) => write!(out, "  {told} of {all} workers have answered"),
    };
    let _ = match seconds {
        None => writeln!(out, "\ncounted since the start of each worker\n"),
        Some(seconds) => writeln!(out, "\nin the last {seconds:.1} s\n"),
    };
    out
}

fn requests(out: &mut String, sum: &Counters, amounts: Amounts) {
    let (answers, connections) = (&sum.responses, &sum.connections);
    let _ = writeln!(out, "requests     {:>12}", amounts.of(sum.requests));
    let _ = writeln!(
        out,
        "answers      {:>12} 2xx   {} 3xx   {} 4xx   {} 5xx   {} cut",
        amounts.of(answers.of_2xx),
        amounts.of(answers.of_3xx),
        amounts.of(answers.of_4xx),
        amounts.of(answers.of_5xx),
        amounts.of(answers.cut),
    );
    let _ = writeln!(out, "sent         {:>12}", amounts.bytes(sum.bytes_sent()));
    let _ = writeln!(
        out,
        "connections  {:>12} open   {} most   {} accepted   {} refused   {} evicted",
        grouped(connections.open.0),
        grouped(connections.most.0),
        amounts.of(connections.accepted),
        amounts.of(connections.refused),
        amounts.of(connections.evicted),
    );
}

fn caches(out: &mut String, sum: &Counters, amounts: Amounts) {
    let caches = &sum.caches;
    let _ = writeln!(out, "\ncache          look-ups         hits    share   holds");
    let rows = [
        ("heads", caches.known.lookups, caches.known.hits, String::new()),
        ("names", caches.names.lookups, caches.names.hits, grouped(caches.names.entries.0)),
        ("contents", caches.contents.lookups, caches.contents.hits, size(caches.contents.bytes.0 as f64)),
        ("files", caches.files.lookups, caches.files.hits, grouped(caches.files.entries.0)),
    ];
    for (name, lookups, hits, holds) in rows {
        let row = format!(
            "{name:<10} {:>12} {:>12} {:>8}   {holds}",
            amounts.of(lookups),
            amounts.of(hits),
            share(hits, lookups),
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
}

fn distributions(out: &mut String, sum: &Counters, amounts: Amounts) {
    let _ = writeln!(
        out,
        "\n{:<22} {:>12} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    let rows: [(&str, &Histogram); 3] = [
        ("events a dispatch", &sum.dispatches),
        ("bytes a send", &sum.sends),
        ("jobs queued, at each", &sum.queue.lengths),
    ];
    for (name, Histogram(counted)) in rows {
        let count = amounts.of(counted.count());
        let spread = (counted.mean(), counted.max());
        distribution(out, (name, &count), spread, |part| counted.percentile(part));
        if name.starts_with("events") {
            let spread = (counted.weighted_mean(), counted.max());
            let count = amounts.of(counted.sum());
            distribution(out, ("  as an event sees it", &count), spread, |part| {
                counted.weighted_percentile(part)
            });
        }
    }
}

fn distribution(
    out: &mut String,
    (name, count): (&str, &str),
    (mean, max): (Option<f64>, u64),
    percentile: impl Fn(f64) -> Option<u64>,
) {
    let _ = write!(out, "{name:<22} {count:>12} {:>10}", optional(mean));
    for part in [0.5, 0.9, 0.99, 0.999] {
        let _ = write!(out, " {:>8}", percentile(part).map_or("-".to_owned(), grouped));
    }
    let _ = writeln!(out, " {:>8}", if mean.is_some() { grouped(max) } else { "-".to_owned() });
}

fn calls(out: &mut String, sum: &Counters, amounts: Amounts) {
    let _ = writeln!(
        out,
        "\n{:<18} {:>12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11}",
        "call of the loop", "count", "mean", "p50", "p99", "max", "stalls", "waited"
    );
    for (name, times) in sum.calls.0.iter().take(CALLS_SHOWN_MAX) {
        let percentile = |part| times.percentile_ns(part).map_or("-".to_owned(), time);
        let _ = writeln!(
            out,
            "{:<18.18} {:>12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11}",
            name.escape_debug().to_string(),
            amounts.of(times.count()),
            times.mean_ns().map_or("-".to_owned(), time),
            percentile(0.5),
            percentile(0.99),
            time(times.max_ns),
            amounts.of(times.stalls),
            amounts.of(times.waited),
        );
    }
}

fn jobs(out: &mut String, stats: &ServerStats, amounts: Amounts) {
    let (jobs, sum) = (&stats.sum.jobs, &stats.sum);
    let _ = writeln!(out, "\njobs            started      refused         lost");
    let kinds = [
        ("find", &jobs.find),
        ("list", &jobs.list),
        ("load", &jobs.load),
        ("read", &jobs.read),
        ("close", &jobs.close),
    ];
    for (name, job) in kinds {
        let [started, refused, lost] = [job.started, job.refused, job.lost].map(|count| amounts.of(count));
        let _ = writeln!(out, "{name:<10} {started:>12} {refused:>12} {lost:>12}");
    }
    let _ = writeln!(
        out,
        "helpers    {} there, {} at work, {} given up; {} jobs wait; {} loads in vain",
        grouped(sum.helpers.now.0),
        grouped(sum.helpers.busy.0),
        grouped(sum.helpers.given_up.0),
        grouped(sum.queue.now.0),
        amounts.of(sum.loads_in_vain),
    );
    let threads = |counts: StateCounts| {
        let StateCounts { runnable, sleeping, blocked, other } = counts;
        let other = if other > 0 { format!(", {other} other") } else { String::new() };
        format!("{runnable} runnable, {sleeping} sleeping, {blocked} blocked{other}")
    };
    let _ = writeln!(out, "threads    of workers {}", threads(stats.states.workers));
    let _ = writeln!(out, "           of helpers {}", threads(stats.states.helpers));
    if sum.panics > 0 {
        let _ = writeln!(out, "panics     {}: bugs; standard error says which", sum.panics);
    }
}

fn workers(out: &mut String, stats: &ServerStats, amounts: Amounts) {
    let _ = writeln!(
        out,
        "\n{:>6} {:>8} {:>4} {:>9} {:>8} {:>12} {:>12} {:>6} {:>9} {:>9} {:>6}",
        "worker", "process", "gen", "state", "up", "requests", "sent", "open", "contents", "events", "queue"
    );
    for worker in stats.workers.iter().take(WORKERS_SHOWN_MAX) {
        let WorkerStats { generation, state, place, pid, uptime_ms, counters } = worker;
        let up = span(*uptime_ms);
        let _ = write!(out, "{place:>6} {pid:>8} {generation:>4} {state:>9} {up:>8}");
        let _ = match counters {
            None => writeln!(out, "   did not answer in time"),
            Some(counters) => writeln!(
                out,
                " {:>12} {:>12} {:>6} {:>9} {:>9} {:>6}",
                amounts.of(counters.requests),
                amounts.bytes(counters.bytes_sent()),
                grouped(counters.connections.open.0),
                share(counters.caches.contents.hits, counters.caches.contents.lookups),
                optional(counters.dispatches.0.mean()),
                grouped(counters.queue.now.0),
            ),
        };
    }
    if stats.workers.len() > WORKERS_SHOWN_MAX {
        let _ = writeln!(out, "and {} more", stats.workers.len() - WORKERS_SHOWN_MAX);
    }
}

/// `1,234,567`; `1.234e10` from ten billion on.
fn grouped(number: u64) -> String {
    if number >= 10_000_000_000 {
        return format!("{:.3e}", number as f64);
    }
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `12.3 MiB`.
fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024.0 {
        return format!("{bytes:.0} B");
    }
    let (mut value, mut unit) = (bytes / 1024.0, 0);
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `3d04h`, `4h05m`, `5m06s` or `7.8s`.
fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, _) => format!("{:.1}s", ms as f64 / 1000.0),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, ..) => format!("{days}d{hours:02}h"),
    }
}

fn share(part: u64, of: u64) -> String {
    if of == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 / of as f64 * 100.0) }
}

fn optional(number: Option<f64>) -> String {
    match number {
        None => "-".to_owned(),
        Some(number) if number >= 1000.0 => grouped(number.round() as u64),
        Some(number) => format!("{number:.2}"),
    }
}
