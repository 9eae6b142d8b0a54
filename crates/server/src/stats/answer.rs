//! The answer of a supervisor on its control socket.

use flash_worker::stats::{Figures, Gauge, figures};
use serde::{Deserialize, Serialize};

use super::{Counters, NetworkStats, ServerStalls, States};

/// The version of the answer: it changes when a field is removed or changes its meaning, not when one is added.
pub const VERSION: u32 = 2;

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The version of its format.
    pub version: u32,
    /// The answer to the request `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<ServerStats>,
    /// The answer to the request `stalls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<ServerStalls>,
    /// The answer to the request `upgrade`: which version has taken over from which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<String>,
    /// The reason why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The statistics of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The version of the program.
    pub program: String,
    /// The process ID of the supervisor.
    pub pid: u32,
    /// Age in milliseconds.
    pub uptime_ms: u64,
    /// The settings in force that are single values.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// The sum over all workers that answered, and over those that have ended.
    pub sum: Counters,
    /// The part of `sum` that workers have counted that have ended.
    #[serde(default)]
    pub ended: Counters,
    /// The states of the processes at the time of the request.
    pub states: States,
    /// The listening sockets, their connections and the counts of TCP.
    #[serde(default)]
    pub network: NetworkStats,
    /// The certificates of the configuration in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateStats>,
    /// The store, if there is one and its keeper has reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStats>,
    /// Each worker, older generations first.
    pub workers: Vec<WorkerStats>,
}

figures! {
    /// The store of file blocks in memory. The counts are of all keepers since the server began.
    StoreStats(totals: &flash_keeper::Totals) {
        /// Its current maximum memory, in bytes.
        bytes_max: Gauge = Gauge(totals.bytes_max),
        /// Its memory in use, in bytes.
        held_bytes: Gauge = Gauge(totals.held_bytes),
        /// Bytes of evicted blocks that transfers still send.
        pinned_bytes: Gauge = Gauge(totals.pinned_bytes),
        /// Blocks in the store.
        blocks: Gauge = Gauge(totals.blocks),
        /// Blocks brought in.
        loads: u64 = totals.loads,
        /// Blocks that a helper wanted to bring in and that were present or being loaded.
        joined: u64 = totals.joined,
        /// Blocks that got no space.
        refused: u64 = totals.refused,
        /// Blocks evicted.
        evictions: u64 = totals.evictions,
        /// Names that all workers share, each form of a file counted.
        names: Gauge = Gauge(totals.names),
        /// Names that made room for others.
        names_evicted: u64 = totals.names_evicted,
        /// Directories watched for changes.
        directories_watched: Gauge = Gauge(totals.directories_watched),
        /// Maximum number of directories that this user can watch.
        directories_max: Gauge = Gauge(totals.directories_max),
        /// Sites whose files are watched, in whole or in part.
        sites_watched: Gauge = Gauge(totals.sites_watched),
        /// Sites that cannot be watched, because their file systems do not report every change.
        sites_unreported: Gauge = Gauge(totals.sites_unreported),
        /// Parts of sites whose names need no checks, because their changes are reported: up to 64 a site, each with some of the
        /// directories in its root and everything beneath them.
        subtrees_watched: Gauge = Gauge(totals.subtrees_watched),
        /// Parts of sites that cannot be watched, so that their names are checked.
        subtrees_unwatched: Gauge = Gauge(totals.subtrees_unwatched),
    }
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStats {
    /// Its file.
    pub file: String,
    /// The last second in which it is valid, since 1970.
    pub until_s: i64,
    /// The seconds until then; negative once it has expired.
    pub left_s: i64,
}

/// The statistics of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its configuration: 1 at startup, one more per reload.
    pub generation: u64,
    /// The state of that configuration: starting, serving or draining.
    pub state: String,
    /// Its number in its generation.
    pub place: usize,
    /// Its process ID.
    pub pid: u32,
    /// Age in milliseconds.
    pub uptime_ms: u64,
    /// Its counters; None if it did not answer in time.
    pub counters: Option<Counters>,
}

impl Answer {
    /// An answer with counters.
    #[must_use]
    pub fn of(stats: ServerStats) -> Self {
        Self { stats: Some(stats), ..Self::empty() }
    }

    /// An answer with the last stalls.
    #[must_use]
    pub fn of_stalls(stalls: ServerStalls) -> Self {
        Self { stalls: Some(stalls), ..Self::empty() }
    }

    pub(crate) fn of_upgrade(text: String) -> Self {
        Self { upgrade: Some(text), ..Self::empty() }
    }

    pub(crate) fn refusal(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::empty() }
    }

    fn empty() -> Self {
        Self { version: VERSION, stats: None, stalls: None, upgrade: None, error: None }
    }

    /// As one line of JSON.
    #[must_use]
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl ServerStats {
    pub(crate) fn sum_up(&mut self) {
        self.sum = self.ended.clone();
        for counters in self.workers.iter().filter_map(|worker| worker.counters.as_ref()) {
            self.sum.merge(counters);
        }
    }

    /// The changes since `before`, an earlier answer of the same server, and the seconds between them. For a new
    /// worker, all its counts.
    #[must_use]
    pub fn since(&self, before: &ServerStats) -> (ServerStats, f64) {
        let mut new = self.clone();
        for worker in &mut new.workers {
            let Some(now) = &worker.counters else { continue };
            // A reused process ID belongs to a younger process.
            let is_same =
                |other: &&WorkerStats| other.pid == worker.pid && other.uptime_ms <= worker.uptime_ms;
            worker.counters = match before.workers.iter().find(is_same).map(|known| &known.counters) {
                None => Some(now.clone()),
                Some(Some(then)) => Some(now.after(then)),
                // Its earlier counts are unknown.
                Some(None) => None,
            };
        }
        new.ended = self.ended.after(&before.ended);
        let is_here = |then: &&WorkerStats| {
            self.workers.iter().any(|now| now.pid == then.pid && now.uptime_ms >= then.uptime_ms)
        };
        for then in before.workers.iter().filter(|then| !is_here(then)) {
            // Its earlier counts are no news.
            new.ended = then.counters.iter().fold(new.ended, |ended, known| ended.after(known));
        }
        new.store = self.store.since(&before.store);
        new.network.namespace = self.network.namespace.since(&before.network.namespace);
        new.sum_up();
        // At least a millisecond: it is a divisor.
        (new, self.uptime_ms.saturating_sub(before.uptime_ms).max(1) as f64 / 1000.0)
    }
}
