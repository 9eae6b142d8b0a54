//! The work of others on the cores of a measurement: by the kernel's counts of each core (/proc/stat, proc_stat(5)), without
//! the time of the server and of this process, which sends the load. A link is a thread of this process and runs on the server's
//! core.
//!
//! A [`Driver`](crate::drive::Driver) watches the cores of each phase. Pressure (/proc/pressure) would not do: the server's own
//! processes wait for each other too.

use std::fs;
use std::time::Instant;

use flash_load::measure::{CoreOf, OtherWork};
use flash_waiting::program;

/// The time that a core has spent so far, clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// By processes, in user and in kernel mode, without interrupts.
    busy: u64,
    stolen: u64,
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
            before: spent(&stat()),
            own_before_ns: own_cpu_ns(),
        }
    }

    /// Where others had more time since the start, beside a server and a link that used this much CPU time; none without a core
    /// that is known.
    pub(crate) fn finish(self, server_cpu_ns: Option<u64>, link_cpu_ns: u64) -> Option<OtherWork> {
        let elapsed_ns = self.started.elapsed().as_nanos() as f64;
        let after = spent(&stat());
        let generator_ns = own_cpu_ns().saturating_sub(self.own_before_ns + link_cpu_ns);
        let of = |core: CoreOf, cores: &[usize], known_ns: u64| {
            other_work(core, cores, [&self.before, &after], known_ns as f64, elapsed_ns)
        };
        let server = self.server.zip(server_cpu_ns);
        let of_server = server.and_then(|(core, cpu_ns)| of(CoreOf::Server, &[core], cpu_ns + link_cpu_ns));
        let of_generator = of(CoreOf::Generator, &self.generator, generator_ns);
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
    let tick_ns = 1e9 / program::clock_ticks_per_s().max(1) as f64;
    let (mut busy, mut stolen) = (0, 0);
    for core in cores {
        let (before, after) = (before.get(*core)?, after.get(*core)?);
        busy += after.busy.saturating_sub(before.busy);
        stolen += after.stolen.saturating_sub(before.stolen);
    }
    let all_ns = elapsed_ns * cores.len() as f64;
    let share = |ns: f64| (ns / all_ns).clamp(0.0, 1.0);
    (all_ns > 0.0).then(|| OtherWork {
        core,
        busy_share: share(busy as f64 * tick_ns - known_ns),
        stolen_share: share(stolen as f64 * tick_ns),
    })
}

fn stat() -> String {
    fs::read_to_string("/proc/stat").unwrap_or_default()
}

/// The time of each core by its number; none where the text has none.
fn spent(stat: &str) -> Vec<Spent> {
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
        all[number] = Spent { busy: user + nice + system, stolen };
    }
    all
}

fn own_cpu_ns() -> u64 {
    program::process_cpu_ns(std::process::id()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_work_is_that_of_neither() {
        let stat = |busy: u64, stolen: u64| {
            spent(&format!(
                "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 1 1 0 0 0 0 0 0 0\ncpu1 {busy} 2 3 700 5 6 7 {stolen} 0 0\nintr 5\n"
            ))
        };
        let tick_ns = 1e9 / program::clock_ticks_per_s() as f64;
        let between = |after: &[Spent], known_ticks: f64| {
            other_work(CoreOf::Server, &[1], [&stat(10, 1), after], known_ticks * tick_ns, 100.0 * tick_ns)
        };
        let found = between(&stat(70, 11), 50.0).unwrap();
        assert!(
            (found.busy_share - 0.1).abs() < 1e-9 && (found.stolen_share - 0.1).abs() < 1e-9,
            "{found:?}"
        );
        assert_eq!(between(&stat(50, 1), 50.0).unwrap().busy_share, 0.0, "ticks are coarse");
        assert_eq!(between(&[], 0.0), None);
        assert_eq!(other_work(CoreOf::Server, &[], [&[], &[]], 0.0, 1.0), None);
    }

    #[test]
    fn a_watch_of_shared_cores_knows_nothing() {
        assert_eq!(CoreWatch::start(Some(0), &[0]).finish(Some(0), 0), None);
        assert_eq!(CoreWatch::start(None, &[]).finish(None, 0), None);
        assert!(CoreWatch::start(Some(0), &[]).finish(Some(0), 0).is_some());
    }
}
