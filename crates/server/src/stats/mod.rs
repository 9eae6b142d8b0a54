//! What a running server tells of itself: what its workers have counted, and how it is asked.
//!
//! A worker counts ([`Counters`]) and tells its supervisor when asked, over their control channel.
//! The supervisor answers clients of its control socket (`supervisor/control_socket.rs`) with an
//! [`Answer`]; `flash stats` is such a client ([`ask`], [`table()`], [`ask_stalls`], [`stalls_table`]).
//! `docs/stats.md` has every field.
//! Nothing here may be relied on for serving a request.

mod answer;
mod client;
mod place;
mod stalls;
mod states;
mod table;
#[cfg(test)]
mod tests;

pub use answer::{Answer, ServerStats, VERSION, WorkerStats};
pub use client::{ANSWER_BYTES_MAX, AskError, ask, ask_stalls, find_running};
pub use flash_worker::stats::{Caches, CallTimes, Calls, Counters, STALL_NS, STALLS_MAX, Stall, Stalls};
pub(crate) use place::own_socket;
pub use place::socket_of;
pub use stalls::{ServerStalls, WorkerStalls, stalls_heading, stalls_table};
pub(crate) use states::sample;
pub use states::{StateCounts, States};
pub use table::{line, table};

/// What a client may ask for, by a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// An [`Answer`] with `stats`: what the workers have counted.
    Stats,
    /// One with `stalls`: the last calls that took long.
    Stalls,
}

impl Request {
    /// All that there are.
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
