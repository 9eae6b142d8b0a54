//! What a server uses: CPU time and memory of a process and all that descends from it.
//!
//! [`Running`](super::Running) makes a watch of what the lab started; for a server that the user
//! started it needs its process id. A watch's thread only reads /proc, and gives way to all others.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flash_waiting::{process, program};

use super::tree::{self, Process, Stat};
use crate::error::{Error, Result};
use crate::measure::ServerUse;

/// How often memory is looked at.
const SAMPLE_MS: u64 = 500;
/// After so many samples the tree is looked up anew: that reads of every process of the machine.
const SAMPLES_PER_TREE: u32 = 10;

/// What a process and all that descends from it have used until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageReading {
    /// CPU time, user and system, by the kernel's own count in nanoseconds for those that run, also
    /// of their ended threads; of ended children, by clock ticks (10 ms), once they were waited for.
    pub cpu_ns: u64,
    /// Resident memory without files (`RssAnon` and `RssShmem`). What several processes share counts
    /// for each of them.
    pub memory_bytes: u64,
}

impl UsageReading {
    /// Of a process and what descends from it; none when there is no such process (any more).
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self::of_tree(&living(pid)?))
    }

    fn of_tree(tree: &[Stat]) -> Self {
        let tick_ns = 1_000_000_000 / program::clock_ticks_per_s().max(1);
        let cpu_ns = |stat: &Stat| {
            program::process_cpu_ns(stat.process.pid).unwrap_or(0) + stat.ended_children_ticks * tick_ns
        };
        Self {
            cpu_ns: tree.iter().map(cpu_ns).sum(),
            memory_bytes: tree.iter().map(|stat| tree::own_memory_bytes(stat.process.pid)).sum(),
        }
    }
}

/// The tree of a process; none when that has ended.
fn living(pid: u32) -> Option<Vec<Stat>> {
    let tree = tree::tree(&Stat::all(), pid);
    tree.first().is_some_and(|root| !root.is_zombie).then_some(tree)
}

/// Watches a process and what descends from it, from [`Watch::start`] to [`Watch::finish`].
#[derive(Debug)]
pub struct Watch {
    process: Process,
    before: UsageReading,
    /// Dropped, it ends the thread, which gives the most memory that it saw.
    over: Option<Sender<()>>,
    sampler: Option<JoinHandle<u64>>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// Errors: usage, when there is no such process; run, when no thread can be started.
    pub fn start(pid: u32) -> Result<Self> {
        let missing = || {
            Error::usage(format!(
                "cannot watch process {pid}: there is none; give the id of the running server"
            ))
        };
        let tree = living(pid).ok_or_else(missing)?;
        let process = tree.first().ok_or_else(missing)?.process;
        let before = UsageReading::of_tree(&tree);
        let (over, is_over) = mpsc::channel();
        let sample = move || {
            // Where that is not allowed it still does little.
            let _ = process::give_way();
            let (mut tree, mut most_bytes, mut samples) = (tree, 0, 0_u32);
            while is_over.recv_timeout(Duration::from_millis(SAMPLE_MS)) == Err(RecvTimeoutError::Timeout) {
                samples += 1;
                if samples % SAMPLES_PER_TREE == 0 {
                    tree = living(pid).unwrap_or(tree);
                }
                most_bytes = most_bytes.max(tree.iter().map(|s| tree::own_memory_bytes(s.process.pid)).sum());
            }
            most_bytes
        };
        let sampler = thread::Builder::new().name("watch".to_owned()).spawn(sample);
        let sampler = sampler
            .map_err(|why| Error::run(format!("cannot start a thread to watch process {pid}: {why}")))?;
        Ok(Self { process, before, over: Some(over), sampler: Some(sampler) })
    }

    /// What was used since the start; none when the process has ended meanwhile, which takes its count
    /// along.
    pub fn finish(mut self) -> Option<ServerUse> {
        let sampled_bytes = self.end();
        if !tree::is_alive(self.process) {
            return None;
        }
        let after = UsageReading::of(self.process.pid)?;
        Some(ServerUse {
            cpu_ns: after.cpu_ns.saturating_sub(self.before.cpu_ns),
            memory_max_bytes: sampled_bytes.max(self.before.memory_bytes).max(after.memory_bytes),
        })
    }

    fn end(&mut self) -> u64 {
        self.over = None;
        self.sampler.take().and_then(|sampler| sampler.join().ok()).unwrap_or(0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell, ended by `wait` or by closing its input.
    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Reads a line of a child.
    fn line(child: &mut Child) -> String {
        let (mut line, mut byte) = (String::new(), [0]);
        while !line.ends_with('\n') {
            child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
            line.push(char::from(byte[0]));
        }
        line
    }

    #[test]
    fn the_work_of_children_counts_ended_or_not() {
        // Each works, and says what the kernel counted for it alone; then one ends, one waits.
        let work =
            "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; read -r stat < /proc/$$/stat; echo \"$stat\"";
        let mut child = shell(&format!("echo; read go; sh -c '{work}'; sh -c '{work}; read end'; true"));
        line(&mut child);
        let watch = Watch::start(child.id()).unwrap();
        let before = UsageReading::of(child.id()).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut counted_ns = 0;
        for _ in 0..2 {
            let stat = line(&mut child);
            let ticks = stat.split_ascii_whitespace().skip(13).take(2).map(|n| n.parse::<u64>().unwrap());
            counted_ns += ticks.sum::<u64>() * 1_000_000_000 / program::clock_ticks_per_s();
        }
        let after = UsageReading::of(child.id()).unwrap();
        assert!(counted_ns > 0, "the work is enough for some ticks");
        assert!(after.cpu_ns - before.cpu_ns >= counted_ns, "{after:?} - {before:?} < {counted_ns}");
        let usage = watch.finish().unwrap();
        assert!(usage.cpu_ns >= counted_ns);
        assert!(usage.memory_max_bytes >= before.memory_bytes && before.memory_bytes > 4096);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_ended_has_no_figures() {
        let mut child = shell("read end");
        let watch = Watch::start(child.id()).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watch.finish().is_none());
        assert_eq!(UsageReading::of(child.id()), None);
        assert_eq!(Watch::start(child.id()).unwrap_err().exit_code(), 2);
    }
}
