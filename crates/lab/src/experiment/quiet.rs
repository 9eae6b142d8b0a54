//! Waits until other programs leave the cores alone: a busy machine gives figures that cannot be judged.
//!
//! [`super::all`] waits before each experiment.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use flash_kit::Stop;
use flash_kit::number::figure;

/// How long the cores are watched for one answer.
const WATCHED: Duration = Duration::from_secs(5);
/// How often a signal is looked for meanwhile.
const STEP: Duration = Duration::from_millis(200);
/// Other programs may use this much of one core: a tenth is what an idle desktop or a container's keeper uses.
const CORES_MAX: f64 = 0.1;

/// Ticks of all cores since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    /// With those that the host gave to other machines.
    busy: u64,
}

/// The first line of /proc/stat (proc(5)). Time of guests is in that of user.
fn ticks(stat: &str) -> Option<Ticks> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let fields: Vec<u64> = fields.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, iowait, ..] = fields.as_slice() else { return None };
    let all = fields.iter().sum();
    Some(Ticks { all, busy: all - idle - iowait })
}

/// How many cores were busy between two looks.
fn busy_cores(before: Ticks, after: Ticks, cores: f64) -> f64 {
    let [all, busy] =
        [(before.all, after.all), (before.busy, after.busy)].map(|(a, b)| b.saturating_sub(a) as f64);
    if all > 0.0 { cores * busy / all } else { 0.0 }
}

/// Watches the cores for a while; none if the system does not report them or a signal came.
fn watched(stop: &Stop) -> Option<f64> {
    let read = || ticks(&fs::read_to_string("/proc/stat").ok()?);
    let before = read()?;
    let end = Instant::now() + WATCHED;
    while Instant::now() < end {
        if stop.is_set() {
            return None;
        }
        thread::sleep(STEP);
    }
    let cores = crate::testbed::machine().cores;
    Some(busy_cores(before, read()?, f64::from(cores)))
}

/// Waits for a quiet time, at most for what is left of `patience`, which becomes less. Returns a warning if the machine is
/// still busy.
pub(super) fn wait(stop: &Stop, patience: &mut Duration) -> Option<String> {
    let began = Instant::now();
    let mut has_told = false;
    loop {
        let Some(busy) = watched(stop).filter(|cores| *cores > CORES_MAX) else {
            *patience = patience.saturating_sub(began.elapsed());
            return None;
        };
        let text = format!("other programs use {} cores", figure(busy));
        if began.elapsed() >= *patience {
            *patience = Duration::ZERO;
            return Some(text);
        }
        if !has_told {
            eprintln!(
                "warning: {text}: waiting for a quiet time, at most {} s (--no-wait)",
                patience.as_secs()
            );
            has_told = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_others_is_read() {
        let text = |user, idle, steal| format!("cpu  {user} 0 0 {idle} 5 0 0 {steal} 9 9\ncpu0 1 1\n");
        let [before, after] = [text(100, 800, 0), text(150, 940, 10)].map(|text| ticks(&text).unwrap());
        assert_eq!(before, Ticks { all: 905, busy: 100 });
        // 60 of 200 ticks of two cores.
        assert!((busy_cores(before, after, 2.0) - 0.6).abs() < 1e-9);
        assert_eq!(busy_cores(after, after, 2.0), 0.0);
        for wrong in ["", "cpu  1 2", "cpu  1 2 x 4 5 6 7 8", "intr 1"] {
            assert_eq!(ticks(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_signal_ends_the_wait() {
        let stop = Stop::default();
        stop.stop();
        let mut patience = Duration::from_secs(1000);
        assert_eq!(wait(&stop, &mut patience), None);
        assert!(patience > Duration::from_secs(900));
    }
}
