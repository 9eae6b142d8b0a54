//! A sample of a server's threads: how many are runnable, how many sleep, and how many are blocked, mostly on the disk
//! (proc(5), `/proc/PID/stat`).
//!
//! The supervisor takes it on request, before it asks its workers, because their answers would show in it. None of these files
//! waits for a disk.

use std::fs;

use serde::{Deserialize, Serialize};

const THREADS_MAX: usize = 4096;

/// Threads by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateCounts {
    /// They run, or wait for a core (state R).
    pub runnable: u64,
    /// They wait for an event: a client, a job (states S and I).
    pub sleeping: u64,
    /// They wait in the kernel and cannot be interrupted, mostly for a disk (state D).
    pub blocked: u64,
    /// They are stopped or are ending.
    pub other: u64,
}

/// The threads of workers and of helpers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct States {
    /// Threads of workers.
    pub workers: StateCounts,
    /// Threads of helper processes.
    pub helpers: StateCounts,
}

impl StateCounts {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> u64 {
        self.runnable + self.sleeping + self.blocked + self.other
    }

    fn count(&mut self, state: u8) {
        *match state {
            b'R' => &mut self.runnable,
            b'S' | b'I' => &mut self.sleeping,
            b'D' => &mut self.blocked,
            _ => &mut self.other,
        } += 1;
    }
}

/// Samples every thread of these processes. Threads that are gone are not counted.
pub(crate) fn sample(pids: impl Iterator<Item = u32>) -> StateCounts {
    let mut counts = StateCounts::default();
    let folders = pids.filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let threads = folders.flatten().filter_map(Result::ok).take(THREADS_MAX);
    for thread in threads {
        if let Some(state) = fs::read(thread.path().join("stat")).ok().as_deref().and_then(state) {
            counts.count(state);
        }
    }
    counts
}

/// The state in a line of `stat`, which follows the name and its last parenthesis.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_follows_the_name_whatever_that_is() {
        assert_eq!(state(b"12 (flash) R 1 2"), Some(b'R'));
        assert_eq!(state(b"12 (a) S (b) D 1"), Some(b'D'));
        assert_eq!(state(b"12 (cut)"), None);
        assert_eq!(state(b""), None);
    }

    #[test]
    fn this_process_runs_and_one_that_is_not_there_does_not() {
        let counts = sample([std::process::id()].into_iter());
        assert!(counts.runnable >= 1, "{counts:?}");
        assert_eq!(counts.all(), counts.runnable + counts.sleeping + counts.blocked + counts.other);
        // The kernel assigns only smaller IDs (proc(5), pid_max).
        assert_eq!(sample([1 << 22].into_iter()), StateCounts::default());
    }
}
