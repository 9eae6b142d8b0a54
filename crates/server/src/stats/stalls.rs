//! The last stalls of a server's workers: the document, and its table for users.

use std::fmt::Write as _;

use flash_http::date::iso_date;
use flash_worker::stats::{STALLS_MAX, Stalls};
use serde::{Deserialize, Serialize};

/// The stalls of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStalls {
    /// The process ID of the supervisor.
    pub pid: u32,
    /// The shortest stall, in nanoseconds.
    pub stall_ns: u64,
    /// Each worker, older generations first.
    pub workers: Vec<WorkerStalls>,
}

/// The stalls of a worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStalls {
    /// Its configuration: 1 at startup, one more per reload.
    pub generation: u64,
    /// Its number in its generation.
    pub place: usize,
    /// Its process ID.
    pub pid: u32,
    /// Age in milliseconds.
    pub uptime_ms: u64,
    /// None if it did not answer in time.
    pub stalls: Option<Stalls>,
}

impl ServerStalls {
    /// Whether all workers answered without a stall.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.workers.iter().all(|worker| worker.stalls.as_ref().is_some_and(|stalls| stalls.count == 0))
    }

    /// The stalls that are not in `before`, an earlier answer of the same server.
    #[must_use]
    pub fn since(&self, before: &ServerStalls) -> ServerStalls {
        let mut new = self.clone();
        for worker in &mut new.workers {
            let Some(now) = &mut worker.stalls else { continue };
            // A reused process ID belongs to a younger process.
            let is_same =
                |other: &&WorkerStalls| other.pid == worker.pid && other.uptime_ms <= worker.uptime_ms;
            let known = before.workers.iter().find(is_same).and_then(|other| other.stalls.as_ref());
            let then = known.map_or(0, |stalls| stalls.count);
            now.count = now.count.saturating_sub(then);
            now.last.retain(|stall| stall.number > then);
        }
        new
    }
}

/// The headings of [`stalls_table`].
#[must_use]
pub fn stalls_heading() -> String {
    format!(
        "{:<23} {:>6} {:>8} {:<16} {:>11} {:>8} {}\n",
        "began (UTC)", "worker", "process", "call", "took", "switches", "file"
    )
}

/// The stalls of all workers, oldest first, at most the last [`STALLS_MAX`]; then the workers that did not answer,
/// and the number of stalls not shown.
#[must_use]
pub fn stalls_table(stalls: &ServerStalls) -> String {
    let mut out = String::new();
    let told = stalls.workers.iter().filter_map(|worker| Some((worker, worker.stalls.as_ref()?)));
    let mut rows: Vec<_> =
        told.clone().flat_map(|(worker, stalls)| stalls.last.iter().map(move |s| (worker, s))).collect();
    rows.sort_by_key(|(_, stall)| stall.began_unix_ms);
    let shown = &rows[rows.len().saturating_sub(STALLS_MAX)..];
    let count: u64 = told.map(|(_, stalls)| stalls.count).fold(0, u64::saturating_add);
    let unseen = count.saturating_sub(shown.len() as u64);
    if unseen > 0 {
        let _ = writeln!(out, "... {unseen} earlier stalls are not shown");
    }
    for (worker, stall) in shown {
        let switches = stall.switches.map_or("?".to_owned(), |switches| switches.to_string());
        let row = format!(
            "{} {:>6} {:>8} {:<16} {:>11} {switches:>8} {}",
            date(stall.began_unix_ms),
            worker.place,
            worker.pid,
            stall.call.escape_debug().to_string(),
            time(stall.took_ns),
            stall.path.as_deref().unwrap_or_default().escape_debug(),
        );
        let _ = writeln!(out, "{}", row.trim_end());
    }
    for worker in stalls.workers.iter().filter(|worker| worker.stalls.is_none()) {
        let _ = writeln!(out, "worker {} (process {}) did not answer in time", worker.place, worker.pid);
    }
    out
}

/// `2026-11-21 12:30:01.250`.
fn date(unix_ms: u64) -> String {
    let iso = iso_date(i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX));
    let text = String::from_utf8_lossy(&iso).replace('T', " ");
    format!("{}.{:03}", text.trim_end_matches('Z'), unix_ms % 1000)
}

/// `850 ns`, `1.20 us`, `12.3 ms` or `1.50 s`.
pub(super) fn time(ns: u64) -> String {
    const UNITS: [&str; 3] = ["us", "ms", "s"];
    if ns < 1000 {
        return format!("{ns} ns");
    }
    let (mut value, mut unit) = (ns as f64 / 1000.0, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match value {
        value if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        value if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        value => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use flash_worker::stats::Stall;

    use super::*;

    fn stall(number: u64, path: Option<&str>) -> Stall {
        Stall {
            number,
            call: "read".into(),
            path: path.map(str::to_owned),
            began_unix_ms: 1_800_000_000_007 + number,
            took_ns: 12_345_678,
            switches: Some(2),
        }
    }

    fn worker(pid: u32, uptime_ms: u64, count: u64, last: Vec<Stall>) -> WorkerStalls {
        WorkerStalls { pid, uptime_ms, stalls: Some(Stalls { count, last }), ..WorkerStalls::default() }
    }

    fn server(workers: Vec<WorkerStalls>) -> ServerStalls {
        ServerStalls { workers, ..ServerStalls::default() }
    }

    #[test]
    fn the_table_is_in_order_of_time_and_nothing_in_a_path_reaches_the_terminal() {
        let evil = "/srv/\u{1b}[2J\r\n\u{202e}\u{9b}x";
        let stalls = server(vec![
            worker(7, 10, 2, vec![stall(3, None), stall(5, Some(evil))]),
            worker(8, 10, 1, vec![stall(4, Some("/srv/file"))]),
            WorkerStalls { pid: 9, stalls: None, ..WorkerStalls::default() },
        ]);
        assert_eq!(
            stalls_table(&stalls).lines().collect::<Vec<_>>(),
            [
                "2027-01-15 08:00:00.010      0        7 read                 12.3 ms        2",
                "2027-01-15 08:00:00.011      0        8 read                 12.3 ms        2 /srv/file",
                "2027-01-15 08:00:00.012      0        7 read                 12.3 ms        2 \
                 /srv/\\u{1b}[2J\\r\\n\\u{202e}\\u{9b}x",
                "worker 0 (process 9) did not answer in time",
            ]
        );
    }

    #[test]
    fn the_last_stalls_are_shown_and_the_others_counted() {
        let last = |from: u64| (from..from + 100).map(|number| stall(number, None)).collect();
        let stalls = server(vec![worker(7, 10, 150, last(51)), worker(8, 10, 100, last(1))]);
        let text = stalls_table(&stalls);
        assert_eq!(text.lines().count(), 1 + STALLS_MAX);
        assert!(text.starts_with("... 150 earlier stalls are not shown\n"), "{text}");
    }

    #[test]
    fn new_stalls_are_found_by_process_and_number() {
        let before =
            server(vec![worker(7, 900, 1, vec![stall(1, None)]), worker(8, 900, 9, vec![stall(9, None)])]);
        let now = server(vec![
            worker(7, 1900, 3, vec![stall(1, None), stall(2, None), stall(3, None)]),
            // A new process with a reused ID.
            worker(8, 100, 1, vec![stall(1, None)]),
        ]);
        let new = now.since(&before);
        let numbers = |worker: &WorkerStalls| {
            let stalls = worker.stalls.clone().expect("told");
            (stalls.count, stalls.last.iter().map(|stall| stall.number).collect::<Vec<_>>())
        };
        assert_eq!(new.workers.iter().map(numbers).collect::<Vec<_>>(), [(2, vec![2, 3]), (1, vec![1])]);
        assert!(stalls_table(&now.since(&now)).is_empty());
    }

    #[test]
    fn times_are_short() {
        assert_eq!(date(1_800_000_000_250), "2027-01-15 08:00:00.250");
        assert!(date(u64::MAX).ends_with(".615"), "no server sends such a date");
        let texts = [0, 999, 1_000, 12_340, 999_499, 999_500, 1_500_000_000, 7_200_000_000_000].map(time);
        assert_eq!(texts, ["0 ns", "999 ns", "1.00 us", "12.3 us", "999 us", "1.00 ms", "1.50 s", "7200 s"]);
    }
}
