//! Exhausted thread pools, and the cost of watching: two parts of a diagnosis.
//!
//! `diagnosis` calls it. Pure.

use serde::Serialize;

use crate::display;
use crate::model::{PoolTotal, Trace, per};

/// A pool is exhausted if all its threads waited, and requests did, for this share of the time,
const QUEUED_SHARE_MIN: f64 = 0.1;
/// and if this share of the requests waited for it. If it is less, the others need no thread of the pool: only requests
/// that need the disk wait, for the disk more than for threads.
const BEHIND_SHARE_MIN: f64 = 0.5;
/// If no request was seen, all threads must have waited for this share of the time.
const FULL_SHARE_MIN: f64 = 0.5;
/// A server that uses this part of a core, and is recorded by this many events per second, is slowed down much.
const BUSY_CORES_MIN: f64 = 0.5;
const BUSY_EVENTS_MIN: u64 = 20_000;

/// A pool of threads whose threads all waited for the disk at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct PoolFinding {
    /// The name and the id of its process, or of the process that started its processes.
    pub(crate) name: String,
    pub(crate) is_processes: bool,
    pub(crate) threads: usize,
    /// The share of the time in which all of them waited for the disk, 0 to 1.
    pub(crate) full_share: f64,
    /// The share of the time in which they did and more requests waited for their answers, 0 to 1.
    pub(crate) queued_share: f64,
    pub(crate) requests_behind: u64,
    pub(crate) requests: u64,
    /// It is the reason that requests wait.
    pub(crate) is_exhausted: bool,
    pub(crate) advice: String,
}

/// The pools that were full for some time.
pub(crate) fn find(trace: &Trace) -> Vec<PoolFinding> {
    let full = trace.pools.iter().filter(|pool| pool.full_ns > 0);
    full.map(|pool| finding(trace, pool)).collect()
}

fn finding(trace: &Trace, pool: &PoolTotal) -> PoolFinding {
    let requests = &trace.requests;
    let full_share = per(pool.full_ns, trace.duration_ns);
    let queued_share = per(pool.queued_ns, trace.duration_ns);
    let is_exhausted = if requests.seen == 0 {
        full_share >= FULL_SHARE_MIN
    } else {
        queued_share >= QUEUED_SHARE_MIN && per(requests.behind_pools, requests.seen) >= BEHIND_SHARE_MIN
    };
    PoolFinding {
        name: display::process(trace, pool.pid),
        is_processes: pool.is_processes,
        threads: pool.tids.len(),
        full_share,
        queued_share,
        requests_behind: requests.behind_pools,
        requests: requests.seen,
        is_exhausted,
        advice: advice(trace, pool).to_owned(),
    }
}

/// The setting that makes a pool larger.
fn advice(trace: &Trace, pool: &PoolTotal) -> &'static str {
    let process = trace.processes.iter().find(|process| process.pid == pool.pid);
    let program = process.map(display::program).unwrap_or_default();
    let is_libuv =
        trace.threads.iter().any(|thread| pool.tids.contains(&thread.tid) && thread.name == "libuv-worker");
    match program.as_str() {
        _ if is_libuv => "set UV_THREADPOOL_SIZE in its environment to more than 4, up to 1024",
        "node" | "nodejs" | "MainThread" => {
            "set UV_THREADPOOL_SIZE in its environment to more than 4, up to 1024"
        }
        "apache2" | "httpd" => "raise ThreadsPerChild and MaxRequestWorkers",
        "nginx" => "raise threads=N in `thread_pool default threads=N;`",
        "php-fpm" => "raise pm.max_children",
        _ if pool.is_processes => "give it more processes",
        _ => "give the pool more threads",
    }
}

/// The load that the kernel trace was to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Cost {
    /// Events per second: two for each system call, more if it blocks.
    pub(crate) events_per_s: u64,
    /// How many cores the traced threads used, in the mean.
    pub(crate) cores: f64,
    /// Recording the events cost it a share of its throughput that counts.
    pub(crate) is_high: bool,
}

impl Cost {
    pub(crate) fn of(trace: &Trace) -> Self {
        let on_core_ns = trace.threads.iter().map(|thread| thread.time.on_core_ns());
        let cores = per(on_core_ns.fold(0, u64::saturating_add), trace.duration_ns);
        let events_per_s = (per(trace.events, trace.duration_ns) * 1e9) as u64;
        Self { events_per_s, cores, is_high: cores >= BUSY_CORES_MIN && events_per_s >= BUSY_EVENTS_MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::{Verdict, diagnose};
    use crate::fixture::{MS, PID, POOL, helped_server};

    fn exhausted() -> Trace {
        let mut trace = helped_server();
        let tids = (POOL..POOL + 4).collect();
        trace.pools =
            vec![PoolTotal { pid: PID, tids, full_ns: 900 * MS, queued_ns: 710 * MS, is_processes: false }];
        (trace.requests.seen, trace.requests.behind_pools) = (100, 60);
        trace
    }

    #[test]
    fn a_pool_is_exhausted_if_requests_waited_while_all_its_threads_did() {
        let found = diagnose(&exhausted());
        assert_eq!((found.verdict, found.verdict.exit_code()), (Verdict::PoolExhausted, 1));
        let pool = &found.pools[0];
        assert_eq!((pool.threads, pool.queued_share, pool.name.as_str()), (4, 0.71, "nginx 71"));
        assert!(pool.advice.contains("thread_pool"), "{pool:?}");
    }

    #[test]
    fn a_full_pool_that_few_requests_need_is_not_blamed() {
        let mut trace = exhausted();
        trace.requests.behind_pools = 4;
        assert_eq!(diagnose(&trace).verdict, Verdict::NoWait);
        let mut trace = exhausted();
        trace.pools[0].queued_ns = 50 * MS;
        assert_eq!(diagnose(&trace).verdict, Verdict::NoWait);
        let mut trace = exhausted();
        (trace.requests.seen, trace.pools[0].queued_ns) = (0, 0);
        assert_eq!(
            diagnose(&trace).verdict,
            Verdict::PoolExhausted,
            "no request can be seen; the pool was full"
        );
    }

    #[test]
    fn the_pool_of_node_is_known_by_its_threads_or_its_command() {
        let mut trace = exhausted();
        trace.threads[1].name = "libuv-worker".to_owned();
        assert!(diagnose(&trace).pools[0].advice.contains("UV_THREADPOOL_SIZE"));
        trace.threads[1].name = "node".to_owned();
        trace.processes[0].command = "/usr/bin/node server.js".to_owned();
        assert!(diagnose(&trace).pools[0].advice.contains("UV_THREADPOOL_SIZE"));
    }
}
