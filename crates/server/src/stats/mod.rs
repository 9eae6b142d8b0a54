//! Statistics of a running server: the counters of its workers, and the requests for them.
//!
//! A worker counts ([`Counters`]) and reports to its supervisor on request, over their control channel. The supervisor answers
//! clients of its control socket (`supervisor/control_socket.rs`) with an [`Answer`]; `flash stats` is such a client ([`fetch`],
//! [`table()`], [`fetch_stalls`], [`stalls_table`]). `docs/stats.md` explains every field. No request may depend on this module.

mod amounts;
mod answer;
mod client;
mod distributions;
mod metrics;
mod network;
mod picture;
mod socket_path;
mod stalls;
mod states;
mod table;
#[cfg(test)]
mod tests;
mod top;

pub use answer::{Answer, CertificateStats, ServerStats, StoreStats, VERSION, WorkerStats};
pub use client::{ANSWER_BYTES_MAX, StatsError, fetch, fetch_stalls, find_running, upgrade};
pub use flash_worker::stats::{Caches, CallTimes, Calls, Counters, STALL_NS, STALLS_MAX, Stall, Stalls};
pub use metrics::{MetricsFormat, metrics};
pub use network::{ListenerStats, NamespaceCounts, NetworkStats, Queue};
pub(crate) use network::{Listening, network};
pub use picture::{Course, picture};
pub(crate) use socket_path::own_socket;
pub use socket_path::socket_of;
pub use stalls::{ServerStalls, WorkerStalls, stalls_heading, stalls_table};
pub(crate) use states::sample;
pub use states::{StateCounts, States};
pub use table::{line, table};
pub use top::{TopError, top};

/// The line by which a client wants an upgrade. An [`Answer`] with `upgrade` or `error` follows when that is done.
pub const UPGRADE: &str = "upgrade";

/// The requests of a client to the workers, each on its own line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An [`Answer`] with `stats`: the counters of the workers.
    Stats,
    /// An [`Answer`] with `stalls`: the last calls that took long.
    Stalls,
}

impl Request {
    /// All requests.
    pub const ALL: [Request; 2] = [Request::Stats, Request::Stalls];

    /// The line, without its end.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Request::Stats => "stats",
            Request::Stalls => "stalls",
        }
    }
}
