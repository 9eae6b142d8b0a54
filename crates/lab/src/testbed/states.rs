//! How many processes of a server could run at a moment: the burstiness of servers that have many
//! (latency-and-connection-scheduling, section 6.2).
//!
//! `experiment` takes it. Its thread only reads /proc, and gives way to all others.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sampler::Sampler;
use flash_kit::Result;
use flash_kit::processes::{self as tree, Stat};

/// The most moments of one watch: more than an hour of them.
const MOMENTS_MAX: usize = 20_000;

/// One look at a server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Threads of its processes that ran or waited for a core.
    pub runnable: u32,
    pub all: u32,
}

impl Moment {
    /// Counts the threads of all that descends from a process. The process itself counts only when it is alone: it is a
    /// supervisor otherwise, and serves nobody.
    fn of(pid: u32) -> Self {
        let all = tree::tree(&Stat::all(), pid);
        let serving = if all.len() > 1 { &all[1..] } else { &all[..] };
        let mut moment = Self { runnable: 0, all: 0 };
        for stat in serving {
            let tasks =
                fs::read_dir(format!("/proc/{}/task", stat.process.pid)).into_iter().flatten().flatten();
            for task in tasks {
                // One that ended meanwhile is none.
                let Some(state) = Stat::of_file(stat.process.pid, &task.path().join("stat")) else {
                    continue;
                };
                moment.all += 1;
                moment.runnable += u32::from(state.is_runnable);
            }
        }
        moment
    }
}

/// Looks at a server time and again, from [`States::watch`] to [`States::finish`].
#[derive(Debug)]
pub struct States(Sampler<Vec<Moment>>);

impl States {
    /// Begins to look at this interval, on these cores; on any when there are none.
    ///
    /// Errors: run, when no thread can be started.
    pub fn watch(pid: u32, every: Duration, cores: &[usize]) -> Result<Self> {
        let look = move |moments: &mut Vec<Moment>| {
            if moments.len() < MOMENTS_MAX {
                moments.push(Moment::of(pid));
            }
        };
        Sampler::start(every, cores, Vec::new(), look).map(Self)
    }

    pub fn finish(mut self) -> Vec<Moment> {
        self.0.finish().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::thread;

    use super::*;

    #[test]
    fn who_sleeps_is_not_runnable_and_a_supervisor_does_not_count() {
        let script =
            "sh -c 'while :; do :; done' & busy=$!; sleep 60 & wait=$!; read end; kill $busy $wait; wait";
        let mut child = Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
        let seen = Moment { runnable: 1, all: 2 };
        // Until the children are there, and the sampler got its turn beside the busy one.
        let is_seen = (0..200).any(|_| {
            let states = States::watch(child.id(), Duration::from_millis(5), &[]).unwrap();
            thread::sleep(Duration::from_millis(100));
            states.finish().contains(&seen)
        });
        let last = Moment::of(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_seen, "{last:?}");
    }
}
