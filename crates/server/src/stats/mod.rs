//! What a running server tells of itself: what its workers have counted, and how it is asked.
//!
//! A worker counts ([`Counters`]) and tells its supervisor when asked, over their control channel.
//! The supervisor answers clients of its control socket (`supervisor/control_socket.rs`) with an
//! [`Answer`]; `flash stats` is such a client ([`ask`], [`table()`]). `docs/stats.md` has every field.
//! Nothing here may be relied on for serving a request.

mod answer;
mod client;
mod counters;
mod figures;
mod place;
mod states;
mod table;
#[cfg(test)]
mod tests;

pub use answer::{Answer, ServerStats, VERSION, WorkerStats};
pub use client::{ANSWER_BYTES_MAX, AskError, ask, find_running};
pub use counters::{Caches, Counters};
pub(crate) use place::own_socket;
pub use place::socket_of;
pub(crate) use states::sample;
pub use states::{StateCounts, States};
pub use table::{line, table};

/// The request for an [`Answer`] with `stats`, a line of its own.
pub const REQUEST: &str = "stats";
