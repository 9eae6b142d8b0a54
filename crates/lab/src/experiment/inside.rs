//! The figures that a server reports about itself: the events of each dispatch and the time in system calls, by `flash stats`, and how
//! many of its processes were runnable (latency-and-connection-scheduling, sections 6.1 and 6.2).
//!
//! `burstiness` and `what-blocks` need them, because no client sees these figures. [`super::rounds`] fetches them before and after a measurement.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::testbed::Moment;
use flash_kit::{Error, Result};

/// How long `flash stats` may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it is asked again while a worker does not answer it: one that waits for the disk in each of 1,024 sends needs minutes.
const WORKER_PATIENCE: Duration = Duration::from_secs(300);
const WORKER_LOOK: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(10);
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

/// The names of the figures, by which findings look them up.
pub(super) const EVENTS_MEAN: &str = "events per dispatch, mean";
pub(super) const EVENTS_P50: &str = "events per dispatch, median";
pub(super) const EVENTS_P999: &str = "events per dispatch, 99.9th percentile";
pub(super) const EVENTS_MAX: &str = "events per dispatch, at most";
pub(super) const WEIGHTED_P50: &str = "events per dispatch, median of the events";
pub(super) const DISPATCHES: &str = "dispatches in a second";
pub(super) const IDLE_SHARE: &str = "share of moments with no runnable process";
pub(super) const RUNNABLE_SHARE: &str = "share of processes that are runnable, mean";
pub(super) const FIGURES: [&str; 8] =
    [EVENTS_MEAN, EVENTS_P50, EVENTS_P999, EVENTS_MAX, WEIGHTED_P50, DISPATCHES, IDLE_SHARE, RUNNABLE_SHARE];
/// The shares of the time that an event loop is in calls for files, with the names that these have in `flash stats`.
pub(super) const CALLS: [(&str, &[&str]); 3] = [
    ("share of time in look-ups", &["look_up", "stat"]),
    ("share of time in sends of files", &["send_file", "read"]),
    ("share of time in closes of files", &["close_file"]),
];

/// The figures of a server at a point in a round.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Inside {
    pub(super) variant: String,
    pub(super) point: String,
    pub(super) round: u32,
    pub(super) figures: BTreeMap<String, f64>,
    /// The number of dispatches by number of events; empty where it is unknown.
    pub(super) dispatches: Vec<Bucket>,
    pub(super) moments: Vec<Moment>,
}

/// The dispatches that had `from` to `to` events.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Bucket {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) count: u64,
}

/// The counters that `flash stats` reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reported {
    /// How many dispatches had how many events, by the least number of events of a bucket.
    dispatches: BTreeMap<u64, Bucket>,
    /// Nanoseconds in each kind of call that there was; none if the server does not count them.
    calls_ns: Option<BTreeMap<String, u64>>,
}

/// Asks a server, by `flash stats` of this program at its socket, until all of its workers answer.
///
/// Errors: run, when it or one of them does not answer.
pub(super) fn fetch(flash: &Path, control: &Path) -> Result<Reported> {
    let mut command = Command::new(flash);
    command.arg("stats").arg("--control").arg(control).arg("--json");
    let deadline = Instant::now() + WORKER_PATIENCE;
    let document = loop {
        let document: Value = serde_json::from_slice(&output(&mut command)?)
            .map_err(|why| Error::run(format!("`flash stats --json` gave no JSON: {why}")))?;
        if !has_silent_worker(&document) {
            break document;
        }
        if Instant::now() > deadline {
            let waited_s = WORKER_PATIENCE.as_secs();
            return Err(Error::run(format!(
                "a worker of the server did not answer `flash stats` for {waited_s} s"
            )));
        }
        thread::sleep(WORKER_LOOK);
    };
    Reported::read(&document).ok_or_else(|| {
        Error::run("`flash stats --json` tells nothing of dispatches: it is of another version")
    })
}

/// Whether the sum lacks a worker, because it did not answer in time.
fn has_silent_worker(document: &Value) -> bool {
    let workers = document.pointer("/stats/workers").and_then(Value::as_array);
    workers.is_some_and(|workers| workers.iter().any(|worker| worker["counters"].is_null()))
}

/// The output of a command that succeeded in time.
///
/// Errors: run, with its output, for a command that failed or took too long.
pub(super) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = format!("{command:?}");
    let failed = |why: &str| Error::run(format!("{name} failed: {why}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| failed(&why.to_string()))?;
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    fn read(from: &mut Option<impl Read>) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // A document that is cut short cannot be parsed.
            let _ = from.take(DOCUMENT_BYTES_MAX).read_to_end(&mut bytes);
        }
        bytes
    }
    let readers = (thread::spawn(move || read(&mut out)), thread::spawn(move || read(&mut err)));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(LOOK),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let said = readers.0.join().unwrap_or_default();
    let why = readers.1.join().unwrap_or_default();
    match status {
        Some(status) if status.success() => Ok(said),
        Some(status) => Err(failed(&format!("{status}: {}", String::from_utf8_lossy(&why).trim()))),
        None => Err(failed(&format!("it took more than {} s", PATIENCE.as_secs()))),
    }
}

impl Reported {
    /// Takes the histogram of dispatches and the times of calls out of a document.
    fn read(document: &Value) -> Option<Self> {
        let sum = document.get("stats").unwrap_or(document).get("sum")?;
        let dispatches = sum.get("dispatches")?;
        let buckets = dispatches.get("buckets")?.as_array()?;
        // The last bucket reaches beyond the most events of a dispatch.
        let most = dispatches.get("max").and_then(Value::as_u64).unwrap_or(u64::MAX);
        let bucket = |value: &Value| {
            let number = |at: usize| value.get(at)?.as_u64();
            let bucket = Bucket { from: number(0)?, to: number(1)?.min(most), count: number(2)? };
            Some((bucket.from, bucket))
        };
        let time = |(name, call): (&String, &Value)| Some((name.clone(), call.get("sum_ns")?.as_u64()?));
        let calls = sum.get("calls").and_then(Value::as_object);
        let calls_ns = calls.map(|calls| calls.iter().filter_map(time).collect());
        Some(Self { dispatches: buckets.iter().filter_map(bucket).collect(), calls_ns })
    }

    /// Seconds in some kinds of calls; none if the server does not count them.
    fn seconds_since(&self, before: &Self, names: &[&str]) -> Option<f64> {
        let of = |reported: &Self| {
            let calls_ns = reported.calls_ns.as_ref()?;
            Some(names.iter().filter_map(|name| calls_ns.get(*name)).sum::<u64>())
        };
        Some(of(self)?.saturating_sub(of(before)?) as f64 / 1e9)
    }

    fn dispatches_since(&self, before: &Self) -> Vec<Bucket> {
        let then = |from: &u64| before.dispatches.get(from).map_or(0, |bucket| bucket.count);
        let new = |(from, bucket): (&u64, &Bucket)| Bucket {
            count: bucket.count.saturating_sub(then(from)),
            ..*bucket
        };
        self.dispatches.iter().map(new).filter(|bucket| bucket.count > 0).collect()
    }
}

impl Bucket {
    /// Roughly, the number of events of each dispatch.
    fn events(&self) -> f64 {
        (self.from as f64 + self.to as f64) / 2.0
    }
}

/// The smallest number of events that this share of the weight does not exceed.
fn percentile(buckets: &[Bucket], share: f64, weight: impl Fn(&Bucket) -> f64) -> f64 {
    let all: f64 = buckets.iter().map(&weight).sum();
    let mut sum = 0.0;
    for bucket in buckets {
        sum += weight(bucket);
        if sum >= all * share {
            return bucket.to as f64;
        }
    }
    0.0
}

impl Inside {
    pub(super) fn of(
        reported: Option<(&Reported, &Reported)>,
        moments: Vec<Moment>,
        duration_s: f64,
    ) -> Self {
        let mut inside = Self { moments, ..Self::default() };
        let mut put = |name: &str, value: f64| {
            if value.is_finite() {
                inside.figures.insert(name.to_owned(), value);
            }
        };
        for (name, calls) in CALLS {
            let spent_s = reported.and_then(|(before, after)| after.seconds_since(before, calls));
            put(name, spent_s.unwrap_or(f64::NAN) / duration_s);
        }
        let buckets = reported.map(|(before, after)| after.dispatches_since(before)).unwrap_or_default();
        let count: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        if count > 0 {
            let plain = |bucket: &Bucket| bucket.count as f64;
            let weighted = |bucket: &Bucket| bucket.count as f64 * bucket.events();
            let events: f64 = buckets.iter().map(weighted).sum();
            put(EVENTS_MEAN, events / count as f64);
            put(EVENTS_P50, percentile(&buckets, 0.5, plain));
            put(EVENTS_P999, percentile(&buckets, 0.999, plain));
            put(EVENTS_MAX, percentile(&buckets, 1.0, plain));
            put(WEIGHTED_P50, percentile(&buckets, 0.5, weighted));
            put(DISPATCHES, count as f64 / duration_s);
        }
        let looked = inside.moments.iter().filter(|moment| moment.all > 0);
        let shares: Vec<f64> =
            looked.map(|moment| f64::from(moment.runnable) / f64::from(moment.all)).collect();
        if !shares.is_empty() {
            let idle = shares.iter().filter(|share| **share == 0.0).count();
            put(IDLE_SHARE, idle as f64 / shares.len() as f64);
            put(RUNNABLE_SHARE, shares.iter().sum::<f64>() / shares.len() as f64);
        }
        inside.dispatches = buckets;
        inside
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dispatches(buckets: &Value) -> Reported {
        Reported::read(&json!({ "version": 1, "stats": { "sum": { "dispatches": { "buckets": buckets } } } }))
            .unwrap()
    }

    #[test]
    fn a_worker_that_did_not_answer_is_missed() {
        let workers = |counters: Value| json!({ "stats": { "workers": [{ "counters": {} }, { "counters": counters }] } });
        assert!(has_silent_worker(&workers(Value::Null)));
        assert!(!has_silent_worker(&workers(json!({}))));
    }

    #[test]
    fn times_of_calls_are_shares_of_what_passed() {
        let reported = |look_up_ns: u64, stat_ns: u64| {
            let calls = json!({ "look_up": { "sum_ns": look_up_ns }, "stat": { "sum_ns": stat_ns }, "send": { "sum_ns": 7 } });
            let sum = json!({ "dispatches": { "buckets": [] }, "calls": calls });
            Reported::read(&json!({ "stats": { "sum": sum } })).unwrap()
        };
        let (before, after) = (reported(1_000_000_000, 5), reported(1_500_000_000, 500_000_005));
        let inside = Inside::of(Some((&before, &after)), Vec::new(), 4.0);
        assert_eq!(CALLS.map(|(name, _)| inside.figures[name]), [0.25, 0.0, 0.0]);
        let none = dispatches(&json!([]));
        assert!(Inside::of(Some((&none, &none)), Vec::new(), 4.0).figures.is_empty());
    }

    #[test]
    fn figures_are_of_what_came_between_two_answers() {
        let before = dispatches(&json!([[1, 1, 10], [4, 4, 5]]));
        let after = dispatches(&json!([[1, 1, 110], [4, 4, 5], [100, 103, 1]]));
        let moments = vec![Moment { runnable: 0, all: 4 }, Moment { runnable: 2, all: 4 }];
        let inside = Inside::of(Some((&before, &after)), moments, 2.0);
        let figure = |name: &str| inside.figures[name];
        assert_eq!(
            inside.dispatches,
            [Bucket { from: 1, to: 1, count: 100 }, Bucket { from: 100, to: 103, count: 1 }]
        );
        // 100 dispatches of one event and one of about 101.5.
        assert!((figure(EVENTS_MEAN) - 201.5 / 101.0).abs() < 1e-9);
        assert_eq!((figure(EVENTS_P50), figure(EVENTS_P999), figure(EVENTS_MAX)), (1.0, 103.0, 103.0));
        assert_eq!((figure(WEIGHTED_P50), figure(DISPATCHES)), (103.0, 50.5));
        assert_eq!((figure(IDLE_SHARE), figure(RUNNABLE_SHARE)), (0.5, 0.25));
    }

    #[test]
    fn no_bucket_goes_beyond_the_most_there_was() {
        let dispatches = json!({ "max": 256, "buckets": [[240, 255, 1], [256, 271, 2]] });
        let reported = Reported::read(&json!({ "stats": { "sum": { "dispatches": dispatches } } })).unwrap();
        let inside = Inside::of(Some((&Reported::default(), &reported)), Vec::new(), 1.0);
        assert_eq!(inside.figures[EVENTS_MAX], 256.0);
    }

    #[test]
    fn without_dispatches_there_are_no_figures() {
        let inside = Inside::of(None, Vec::new(), 1.0);
        assert!(inside.figures.is_empty() && inside.dispatches.is_empty());
        assert_eq!(Reported::read(&json!({ "stats": {} })), None);
        assert_eq!(dispatches(&json!([[1, 1], "x", [-1, 2, 3]])), Reported::default());
    }

    #[test]
    fn a_command_that_fails_says_why() {
        let failed =
            output(Command::new("/bin/sh").args(["-c", "echo no such option >&2; exit 2"])).unwrap_err();
        assert!(failed.to_string().contains("no such option"), "{failed}");
        assert_eq!(output(Command::new("/bin/echo").arg("x")).unwrap(), b"x\n");
        output(&mut Command::new("/not/there")).unwrap_err();
    }
}
