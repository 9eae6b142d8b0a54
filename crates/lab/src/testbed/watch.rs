//! CPU time and memory of a server: of its processes, such as the server's and its backend's, and all that descends
//! from them.
//!
//! [`Running`](super::Running) makes a watch of what the lab started; for a server that the user
//! started it needs its process id. A watch's thread only reads /proc, and gives way to all others.

use std::time::Duration;

use flash_waiting::program;

use super::sampler::Sampler;
use flash_kit::processes::{self as tree, Process, Stat};
use flash_kit::{Error, Result};
use flash_load::measure::ServerUse;

/// How often memory is looked at.
const SAMPLE_MS: u64 = 500;
/// After this many samples the tree is looked up anew, which reads about every process of the machine.
const SAMPLES_PER_TREE: u32 = 10;

/// CPU time and memory of processes and all that descends from them, until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsageReading {
    /// CPU time, user and system, by the kernel's own count in nanoseconds for those that run, also
    /// of their ended threads; of ended children, by clock ticks (10 ms), once they were waited for.
    pub cpu_ns: u64,
    /// Resident memory without files (`RssAnon` and `RssShmem`). Memory that several processes share counts
    /// for each of them.
    pub memory_bytes: u64,
}

impl UsageReading {
    /// Reads those of these processes and their descendants; none when one of them is not there (any more).
    pub(super) fn of(pids: &[u32]) -> Option<Self> {
        Some(Self::of_tree(&living(pids).ok()?))
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

/// The trees of these processes, none of which descends from another; the first process that has ended otherwise.
fn living(pids: &[u32]) -> std::result::Result<Vec<Stat>, u32> {
    let (all, mut trees) = (Stat::all(), Vec::new());
    for pid in pids {
        let tree = tree::tree(&all, *pid);
        if tree.first().is_none_or(|root| root.is_zombie) {
            return Err(*pid);
        }
        trees.extend(tree);
    }
    Ok(trees)
}

/// Watches processes and what descends from them, from [`Watch::start`] to [`Watch::finish`].
#[derive(Debug)]
pub struct Watch {
    processes: Vec<Process>,
    before: UsageReading,
    /// Gives the most memory that it saw.
    sampler: Sampler<u64>,
}

impl Watch {
    /// Begins to watch these processes, none of which descends from another.
    ///
    /// Errors: usage, when one of them is not there; run, when no thread can be started.
    pub fn start(pids: &[u32]) -> Result<Self> {
        let tree = living(pids).map_err(|pid| {
            Error::usage(format!(
                "cannot watch process {pid}: there is none; give the id of the running server"
            ))
        })?;
        let roots = tree.iter().map(|stat| stat.process).filter(|process| pids.contains(&process.pid));
        let processes = roots.collect();
        let before = UsageReading::of_tree(&tree);
        let watched = pids.to_vec();
        let (mut tree, mut samples) = (tree, 0_u32);
        let look = move |most_bytes: &mut u64| {
            samples += 1;
            if samples % SAMPLES_PER_TREE == 0
                && let Ok(living) = living(&watched)
            {
                tree = living;
            }
            let bytes = tree.iter().map(|stat| tree::own_memory_bytes(stat.process.pid)).sum();
            *most_bytes = (*most_bytes).max(bytes);
        };
        let sampler = Sampler::start(Duration::from_millis(SAMPLE_MS), &[], 0, look)?;
        Ok(Self { processes, before, sampler })
    }

    /// The use since the start; none when one of the processes has ended meanwhile, which takes its count
    /// along.
    pub fn finish(mut self) -> Option<ServerUse> {
        let sampled_bytes = self.sampler.finish().unwrap_or(0);
        if !self.processes.iter().copied().all(tree::is_alive) {
            return None;
        }
        let pids: Vec<u32> = self.processes.iter().map(|process| process.pid).collect();
        let after = UsageReading::of(&pids)?;
        Some(ServerUse {
            cpu_ns: after.cpu_ns.saturating_sub(self.before.cpu_ns),
            memory_max_bytes: sampled_bytes.max(self.before.memory_bytes).max(after.memory_bytes),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.sampler.finish();
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
        let watch = Watch::start(&[child.id()]).unwrap();
        let before = UsageReading::of(&[child.id()]).unwrap();
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut counted_ns = 0;
        for _ in 0..2 {
            let stat = line(&mut child);
            let ticks = stat.split_ascii_whitespace().skip(13).take(2).map(|n| n.parse::<u64>().unwrap());
            counted_ns += ticks.sum::<u64>() * 1_000_000_000 / program::clock_ticks_per_s();
        }
        let after = UsageReading::of(&[child.id()]).unwrap();
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
        let watch = Watch::start(&[child.id()]).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(watch.finish().is_none());
        assert_eq!(UsageReading::of(&[child.id()]), None);
        assert_eq!(Watch::start(&[child.id()]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn two_processes_are_added_up_and_both_must_be_there() {
        let mut children = [shell("read end"), shell("read end")];
        let pids = children.each_ref().map(Child::id);
        let [one, other] = pids.map(|pid| UsageReading::of(&[pid]).unwrap());
        let both = UsageReading::of(&pids).unwrap();
        // Neither works meanwhile, but a shell that has just started may still do so.
        assert!(both.cpu_ns >= one.cpu_ns + other.cpu_ns);
        assert!(both.memory_bytes > one.memory_bytes.max(other.memory_bytes));
        let watch = Watch::start(&pids).unwrap();
        drop(children[1].stdin.take());
        children[1].wait().unwrap();
        assert_eq!(UsageReading::of(&pids), None);
        assert!(watch.finish().is_none());
        drop(children[0].stdin.take());
        children[0].wait().unwrap();
    }
}
