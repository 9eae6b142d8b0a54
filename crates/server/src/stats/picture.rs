//! The picture of a running server for a terminal: rates with their course, latencies, the store and the workers.
//!
//! Called by `flash top`. It only formats text.

use std::collections::VecDeque;

use super::amounts::{Amounts, grouped, share, size, span};
use super::stalls::time;
use super::{Counters, ServerStats};

/// Heights of a course.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const NAME_COLUMNS: usize = 16;
const VALUE_COLUMNS: usize = 12;
/// Columns of a row before its course.
const COURSE_AT: usize = NAME_COLUMNS + VALUE_COLUMNS + 2;

/// The samples whose course is shown: two minutes of one each second.
const SAMPLES_MAX: usize = 120;

/// The course of a server: the rates of each row, and all changes between the last two samples.
#[derive(Debug, Default)]
pub struct Course {
    rates: VecDeque<[f64; ROWS.len()]>,
    last: Option<Change>,
}

/// The changes of a server in a short time.
#[derive(Debug)]
struct Change {
    new: ServerStats,
    seconds: f64,
}

impl Course {
    /// Adds the changes since `before`. Another server begins another course.
    pub fn add(&mut self, now: &ServerStats, before: &ServerStats) {
        if now.pid != before.pid || now.uptime_ms < before.uptime_ms {
            *self = Self::default();
            return;
        }
        let (new, seconds) = now.since(before);
        if self.rates.len() == SAMPLES_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back(std::array::from_fn(|row| ROWS[row].1(&new) as f64 / seconds.max(1e-3)));
        self.last = Some(Change { new, seconds });
    }
}

/// A row with a course: its name, and the count whose rate it shows.
type Row = (&'static str, fn(&ServerStats) -> u64, fn(Amounts, u64) -> String);

const ROWS: &[Row] = &[
    ("requests", |s| s.sum.requests, Amounts::of),
    ("sent", |s| s.sum.bytes_sent(), Amounts::bytes),
    ("misses", |s| misses(&s.sum), Amounts::of),
    ("jobs of helpers", |s| s.sum.jobs.values().map(|jobs| jobs.started).sum(), Amounts::of),
    ("evictions", |s| s.store.as_ref().map_or(0, |store| store.evictions), Amounts::of),
    ("stalls", |s| s.sum.calls.0.values().map(|times| times.stalls).sum(), Amounts::of),
    ("refused", |s| refused(&s.sum), Amounts::of),
    ("errors (5xx)", |s| s.sum.responses.of_5xx, Amounts::of),
];

fn misses(sum: &Counters) -> u64 {
    sum.latencies.get("miss").map_or(0, |latency| latency.count())
}

fn refused(sum: &Counters) -> u64 {
    sum.connections.refused + sum.jobs.values().map(|jobs| jobs.refused + jobs.refused_wait).sum::<u64>()
}

/// The lines of the picture, for a terminal with these columns and rows.
#[must_use]
pub fn picture(now: &ServerStats, course: &Course, (columns, rows): (usize, usize)) -> Vec<String> {
    let workers = now.workers.len();
    let mut lines = vec![
        format!(
            "flash {}  process {}  up {}  {workers} worker{}   q ends",
            now.program,
            now.pid,
            span(now.uptime_ms),
            if workers == 1 { "" } else { "s" }
        ),
        String::new(),
    ];
    let Some(last) = &course.last else {
        lines.push("the first second ...".to_owned());
        return lines;
    };
    let amounts = Amounts { seconds: Some(last.seconds) };
    for (row, (name, count, show)) in ROWS.iter().enumerate() {
        let rates: Vec<f64> = course.rates.iter().map(|rates| rates[row]).collect();
        let bars = bars(&rates, columns.saturating_sub(COURSE_AT));
        let value = show(amounts, count(&last.new));
        lines.push(format!("{name:<NAME_COLUMNS$}{value:>VALUE_COLUMNS$}  {bars}"));
    }
    lines.push(String::new());
    lines.extend(latencies(&last.new.sum, amounts));
    lines.push(String::new());
    lines.extend(amounts_now(now, last));
    lines.push(String::new());
    lines.extend(workers_lines(last, amounts));
    lines.truncate(rows);
    lines.iter().map(|line| line.chars().take(columns).collect()).collect()
}

/// The last of these numbers as bars, as many as there is room for. The highest has the largest bar, 0 the smallest.
fn bars(numbers: &[f64], columns: usize) -> String {
    let shown = &numbers[numbers.len().saturating_sub(columns)..];
    let most = shown.iter().copied().fold(0.0, f64::max);
    let bar = |number: &f64| match number / most {
        part if part > 0.0 => BARS[((part * 7.0).ceil() as usize).min(7)],
        _ => BARS[0],
    };
    shown.iter().map(bar).collect()
}

fn latencies(sum: &Counters, amounts: Amounts) -> Vec<String> {
    let heading =
        format!("{:<16}{:>12}{:>12}{:>12}{:>12}", "first byte after", "rate", "p50", "p99", "p99.9");
    let row = |(result, latency): (&String, &flash_worker::stats::Latency)| {
        let percentile = |part| match latency.percentile_ns(part) {
            _ if latency.count() == 0 => "-".to_owned(),
            Some(ns) => format!("<= {}", time(ns)),
            None => "> 10 s".to_owned(),
        };
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(percentile);
        format!("{result:<16}{:>12}{p50:>12}{p99:>12}{p999:>12}", amounts.of(latency.count()))
    };
    [heading].into_iter().chain(sum.latencies.iter().map(row)).collect()
}

fn amounts_now(now: &ServerStats, last: &Change) -> Vec<String> {
    let (sum, new) = (&now.sum, &last.new.sum);
    let hits = new.caches.contents.hits + new.caches.blocks.hits;
    let lookups = new.caches.contents.lookups + new.caches.blocks.lookups;
    let mut lines = vec![
        format!("connections  {} open", grouped(sum.connections.open.0)),
        format!(
            "helpers      {} of {} busy, {} jobs wait, {} given up",
            sum.helpers.busy.0, sum.helpers.now.0, sum.queue.now.0, sum.helpers.given_up.0
        ),
    ];
    if let Some(store) = &now.store {
        lines.push(format!(
            "store        {} of {} in {} blocks, {} names, {} of look-ups in it",
            size(store.held_bytes.0 as f64),
            size(store.bytes_max.0 as f64),
            grouped(store.blocks.0),
            grouped(store.names.0),
            share(hits, lookups)
        ));
    }
    if sum.upstreams.connections.0 > 0 || sum.upstreams.connects > 0 {
        lines.push(format!(
            "upstreams    {} connections, {} requests wait, {} servers down",
            sum.upstreams.connections.0, sum.upstreams.waiting.0, sum.upstreams.probed_down.0
        ));
    }
    lines
}

fn workers_lines(last: &Change, amounts: Amounts) -> Vec<String> {
    let heading = format!(
        "{:>8} {:<9}{:>12}{:>12}{:>8}{:>10}",
        "worker", "state", "requests", "sent", "open", "stalls"
    );
    let row = |worker: &super::WorkerStats| match &worker.counters {
        None => format!("{:>8} {:<9} does not answer", worker.pid, worker.state),
        Some(counters) => format!(
            "{:>8} {:<9}{:>12}{:>12}{:>8}{:>10}",
            worker.pid,
            worker.state,
            amounts.of(counters.requests),
            amounts.bytes(counters.bytes_sent()),
            grouped(counters.connections.open.0),
            amounts.of(counters.calls.0.values().map(|times| times.stalls).sum())
        ),
    };
    [heading].into_iter().chain(last.new.workers.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use flash_engine::{CacheResult, Latencies};
    use flash_worker::stats::{Calls, HelperCounts};

    use super::super::WorkerStats;
    use super::*;

    fn server(uptime_ms: u64, requests: u64) -> ServerStats {
        let mut engine = flash_engine::Counters { requests, connections: 12, ..Default::default() };
        let mut hits = Latencies::default();
        hits.counts[0] = requests;
        engine.latencies[CacheResult::Hit as usize] = hits;
        let counters = Counters::of(&engine, HelperCounts { all: 3, busy: 1 }, Calls::default());
        let counters = Some(counters);
        let worker =
            WorkerStats { generation: 1, state: "serving".into(), place: 0, pid: 11, uptime_ms, counters };
        let mut stats = ServerStats {
            program: "1.2.3".into(),
            pid: 7,
            uptime_ms,
            workers: vec![worker],
            ..Default::default()
        };
        stats.sum_up();
        stats
    }

    #[test]
    fn the_picture_has_rates_latencies_and_workers() {
        let states: Vec<ServerStats> =
            [0, 100, 300, 350].iter().zip(1..).map(|(requests, at)| server(at * 1_000, *requests)).collect();
        let mut course = Course::default();
        states.windows(2).for_each(|pair| course.add(&pair[1], &pair[0]));
        let lines = picture(&states[3], &course, (80, 40));
        let row = |name: &str| {
            lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{lines:#?}"))
        };
        assert!(lines[0].starts_with("flash 1.2.3  process 7"), "{lines:#?}");
        assert_eq!(row("requests").split_whitespace().collect::<Vec<_>>(), ["requests", "50.0/s", "▅█▃"]);
        assert!(row("hit").contains("50.0/s") && row("hit").contains("<= 50.0 us"), "{}", row("hit"));
        assert!(row("connections").contains("12 open"));
        assert!(row("helpers").contains("1 of 3 busy"));
        assert!(lines.iter().any(|line| line.contains("      11 serving")), "{lines:#?}");
        let small = picture(&states[3], &course, (20, 5));
        assert!(small.len() == 5 && small.iter().all(|line| line.chars().count() <= 20), "{small:#?}");
        // Another server, or the same after a restart.
        course.add(&states[0], &states[3]);
        assert_eq!(picture(&states[0], &course, (80, 24)).len(), 3);
    }

    #[test]
    fn bars_show_the_last_numbers() {
        assert_eq!(bars(&[9.0, 0.0, 1.0, 4.0, 8.0], 4), "▁▂▅█");
        assert_eq!(bars(&[0.0, 0.0], 9), "▁▁");
        assert_eq!(bars(&[], 9), "");
    }
}
