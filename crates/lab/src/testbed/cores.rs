//! The work of others on the cores of a measurement: by the kernel's counts of each core, without the time of the server and of
//! this process, which sends the load. They are exact with cgroups v1 (`cpuacct.usage_percpu`, cgroup-v1/cpuacct.rst); elsewhere
//! the kernel counts what runs at a tick (/proc/stat, proc_stat(5)), which errs by a few hundredths for a server with a part of
//! a core, as its turns end at ticks.
//!
//! A [`Driver`](crate::drive::Driver) watches the cores of each phase. Pressure (/proc/pressure) would not do: the server's own
//! processes wait for each other too.

use std::fs;
use std::time::Instant;

use flash_load::measure::{CoreOf, OtherWork};
use flash_waiting::program;

/// The time of each core so far that the root group of cgroups v1 has used, ns.
const USAGE: &str = "/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu";

/// The time that a core has spent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// By processes, in user and in kernel mode, without interrupts between them.
    busy_ns: u64,
    stolen_ns: u64,
}

/// Watches cores from [`CoreWatch::start`] to [`CoreWatch::finish`].
#[derive(Debug)]
pub(crate) struct CoreWatch {
    server: Option<usize>,
    generator: Vec<usize>,
    started: Instant,
    before: Vec<Spent>,
    own_before_ns: u64,
}

impl CoreWatch {
    /// Begins to watch the core of a server, if it has one to itself, and those of the generator; nothing where they share cores.
    pub(crate) fn start(server: Option<usize>, generator: &[usize]) -> Self {
        let is_apart = server.is_none_or(|core| !generator.contains(&core));
        Self {
            server: server.filter(|_| is_apart),
            generator: if is_apart { generator.to_vec() } else { Vec::new() },
            started: Instant::now(),
            before: spent_now(),
            own_before_ns: own_cpu_ns(),
        }
    }

    /// Where others had more time since the start, beside a server that used this much CPU time; none without a core that
    /// is known.
    pub(crate) fn finish(self, server_cpu_ns: Option<u64>) -> Option<OtherWork> {
        let elapsed_ns = self.started.elapsed().as_nanos() as f64;
        let after = spent_now();
        let own_ns = own_cpu_ns().saturating_sub(self.own_before_ns);
        let of = |core: CoreOf, cores: &[usize], known_ns: u64| {
            other_work(core, cores, [&self.before, &after], known_ns as f64, elapsed_ns)
        };
        let server = self.server.zip(server_cpu_ns);
        let of_server = server.and_then(|(core, cpu_ns)| of(CoreOf::Server, &[core], cpu_ns));
        let of_generator = of(CoreOf::Generator, &self.generator, own_ns);
        of_server.into_iter().chain(of_generator).reduce(OtherWork::worse)
    }
}

fn other_work(
    core: CoreOf,
    cores: &[usize],
    [before, after]: [&[Spent]; 2],
    known_ns: f64,
    elapsed_ns: f64,
) -> Option<OtherWork> {
    let (mut busy_ns, mut stolen_ns) = (0, 0);
    for core in cores {
        let (before, after) = (before.get(*core)?, after.get(*core)?);
        busy_ns += after.busy_ns.saturating_sub(before.busy_ns);
        stolen_ns += after.stolen_ns.saturating_sub(before.stolen_ns);
    }
    let all_ns = elapsed_ns * cores.len() as f64;
    let share = |ns: f64| (ns / all_ns).clamp(0.0, 1.0);
    (all_ns > 0.0).then(|| OtherWork {
        core,
        busy_share: share(busy_ns as f64 - known_ns),
        stolen_share: share(stolen_ns as f64),
    })
}

fn spent_now() -> Vec<Spent> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    spent(&read("/proc/stat"), &read(USAGE))
}

/// The time of each core by its number, from the text of /proc/stat and, if there is one, that of [`USAGE`]; none where the first
/// has none.
fn spent(stat: &str, usage: &str) -> Vec<Spent> {
    let tick_ns = 1_000_000_000 / program::clock_ticks_per_s().max(1) as u64;
    let usage: Vec<Option<u64>> = usage.split_ascii_whitespace().map(|ns| ns.parse().ok()).collect();
    let mut all = Vec::new();
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse::<usize>().ok());
        let (Some(number), times) =
            (number, words.map(|word| word.parse().unwrap_or(0)).collect::<Vec<u64>>())
        else {
            continue;
        };
        // user, nice, system, idle, iowait, irq, softirq, steal
        let &[user, nice, system, _, _, _, _, stolen, ..] = &times[..] else { continue };
        if all.len() <= number {
            all.resize(number + 1, Spent::default());
        }
        let exact_ns = usage.get(number).copied().flatten();
        let busy_ns = exact_ns.unwrap_or((user + nice + system) * tick_ns);
        all[number] = Spent { busy_ns, stolen_ns: stolen * tick_ns };
    }
    all
}

fn own_cpu_ns() -> u64 {
    program::process_cpu_ns(std::process::id()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts of core 1, in ticks and exact.
    fn counts(busy: u64, stolen: u64, usage: &str) -> Vec<Spent> {
        let stat = format!(
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 0 0 0 0 0 0 0\ncpu1 {busy} 2 3 700 5 6 7 {stolen} 0 0\nintr 5\n"
        );
        spent(&stat, usage)
    }

    #[test]
    fn other_work_is_that_of_neither() {
        let tick_ns = 1e9 / program::clock_ticks_per_s() as f64;
        let between = |after: &[Spent], known_ticks: f64| {
            let before = counts(10, 1, "");
            other_work(CoreOf::Server, &[1], [&before, after], known_ticks * tick_ns, 100.0 * tick_ns)
        };
        let found = between(&counts(70, 11, ""), 50.0).unwrap();
        assert!(
            (found.busy_share - 0.1).abs() < 1e-9 && (found.stolen_share - 0.1).abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(between(&counts(50, 1, ""), 50.0).unwrap().busy_share, 0.0, "ticks are coarse");
        assert_eq!(between(&[], 0.0), None);
        assert_eq!(other_work(CoreOf::Server, &[], [&[], &[]], 0.0, 1.0), None);
    }

    #[test]
    fn exact_counts_go_before_ticks() {
        let (before, after) = (counts(10, 0, "5 1000 "), counts(99, 0, "7 1600 "));
        let found = other_work(CoreOf::Server, &[1], [&before, &after], 500.0, 1000.0).unwrap();
        assert!((found.busy_share - 0.1).abs() < 1e-9, "{found:?}");
        assert_eq!(counts(10, 0, "5")[1], counts(10, 0, "nonsense x")[1], "none for this core");
    }

    #[test]
    fn a_watch_of_shared_cores_knows_nothing() {
        assert_eq!(CoreWatch::start(Some(0), &[0]).finish(Some(0)), None);
        assert_eq!(CoreWatch::start(None, &[]).finish(None), None);
        assert!(CoreWatch::start(Some(0), &[]).finish(Some(0)).is_some());
    }
}
