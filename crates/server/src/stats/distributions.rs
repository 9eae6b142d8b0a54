//! Distributions in the table of counters: of latencies, of the event loop's calls, and of numbers. Called by [`table`](super::table).

use std::fmt::Write as _;

use flash_worker::stats::Histogram;

use super::Counters;
use super::amounts::{Amounts, grouped, optional};
use super::stalls::time;

/// Maximum calls shown, which is more than exist.
const CALLS_SHOWN_MAX: usize = 32;

pub(super) fn distribution_heading(out: &mut String) {
    let _ = writeln!(
        out,
        "\n{:<22} {:>12} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
}

pub(super) fn distributions(out: &mut String, sum: &Counters, amounts: Amounts) {
    distribution_heading(out);
    histogram(out, "events per dispatch", &sum.dispatches, amounts);
    let Histogram(events) = &sum.dispatches;
    let (count, spread) = (amounts.of(events.sum()), (events.weighted_mean(), events.max()));
    distribution(out, ("  weighted by event", &count), spread, |part| events.weighted_percentile(part));
    histogram(out, "bytes per send", &sum.sends, amounts);
    histogram(out, "queue length at a job", &sum.queue.lengths, amounts);
}

/// The times to the first bytes of answers. Percentiles are bounds of buckets.
pub(super) fn latencies(out: &mut String, sum: &Counters, amounts: Amounts) {
    if sum.latencies.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{:<18} {:>12} {:>9} {:>9} {:>9} {:>9}",
        "first byte after", "count", "mean", "p50", "p99", "p99.9"
    );
    for (result, latency) in &sum.latencies {
        let percentile = |part| latency.percentile_ns(part).map_or(">10 s".to_owned(), time);
        let _ = writeln!(
            out,
            "{result:<18} {:>12} {:>9} {:>9} {:>9} {:>9}",
            amounts.of(latency.count()),
            latency.mean_ns().map_or("-".to_owned(), time),
            percentile(0.5),
            percentile(0.99),
            percentile(0.999)
        );
    }
}

pub(super) fn histogram(out: &mut String, name: &str, Histogram(counted): &Histogram, amounts: Amounts) {
    let (count, spread) = (amounts.of(counted.count()), (counted.mean(), counted.max()));
    distribution(out, (name, &count), spread, |part| counted.percentile(part));
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

pub(super) fn calls(out: &mut String, sum: &Counters, amounts: Amounts) {
    let _ = writeln!(
        out,
        "\n{:<18} {:>12} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11}",
        "event loop call", "count", "mean", "p50", "p99", "max", "stalls", "waited"
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
