//! The answer that a supervisor gives on its control socket.

use serde::{Deserialize, Serialize};

use super::{Counters, ServerStalls, States};

/// The version of the answer's form: it changes when a field is taken out or changes its meaning, not
/// when one is added.
pub const VERSION: u32 = 1;

/// One document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Of this form.
    pub version: u32,
    /// The answer to the request `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<ServerStats>,
    /// The answer to the request `stalls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalls: Option<ServerStalls>,
    /// Why there is no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a server tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerStats {
    /// The version of the program.
    pub program: String,
    /// The process of the supervisor.
    pub pid: u32,
    /// Since its start, in milliseconds.
    pub uptime_ms: u64,
    /// The settings in force that are single values.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Of all workers that answered, together.
    pub sum: Counters,
    /// What the processes were doing when this was asked for.
    pub states: States,
    /// Each worker, those of older generations first.
    pub workers: Vec<WorkerStats>,
}

/// What a worker tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Counts the configurations: 1 at the start, one more at each reload.
    pub generation: u64,
    /// Where that one stands: starting, serving or draining.
    pub state: String,
    /// Its number in its generation.
    pub place: usize,
    /// Its process.
    pub pid: u32,
    /// Since its start, in milliseconds.
    pub uptime_ms: u64,
    /// What it has counted since then; None when it did not answer in time.
    pub counters: Option<Counters>,
}

impl Answer {
    /// With what was counted.
    #[must_use]
    pub fn of(stats: ServerStats) -> Self {
        Self { stats: Some(stats), ..Self::empty() }
    }

    /// With the last stalls.
    #[must_use]
    pub fn of_stalls(stalls: ServerStalls) -> Self {
        Self { stalls: Some(stalls), ..Self::empty() }
    }

    pub(crate) fn refusal(why: impl Into<String>) -> Self {
        Self { error: Some(why.into()), ..Self::empty() }
    }

    fn empty() -> Self {
        Self { version: VERSION, stats: None, stalls: None, error: None }
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
    /// Puts together what the workers have told.
    pub(crate) fn sum_up(&mut self) {
        self.sum = Counters::default();
        for counters in self.workers.iter().filter_map(|worker| worker.counters.as_ref()) {
            self.sum.merge(counters);
        }
    }

    /// What has come since `before`, an earlier answer of the same server, and in how many seconds. Of a
    /// worker that was not there then, all of it.
    #[must_use]
    pub fn since(&self, before: &ServerStats) -> (ServerStats, f64) {
        let mut new = self.clone();
        for worker in &mut new.workers {
            let Some(now) = &worker.counters else { continue };
            // A process that has the number of one that is gone is a younger one.
            let is_same =
                |other: &&WorkerStats| other.pid == worker.pid && other.uptime_ms <= worker.uptime_ms;
            worker.counters = match before.workers.iter().find(is_same).map(|known| &known.counters) {
                None => Some(now.clone()),
                Some(Some(then)) => Some(now.after(then)),
                // What it had counted by then is not known.
                Some(None) => None,
            };
        }
        new.sum_up();
        // At least a millisecond: it is divided by.
        (new, self.uptime_ms.saturating_sub(before.uptime_ms).max(1) as f64 / 1000.0)
    }
}
