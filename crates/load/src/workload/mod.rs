//! Workloads: which files are requested, and when.
//!
//! The commands make a [`Workload`] from their options; [`crate::generator`] sends the requests of its [`Demand`]s. Pure,
//! except that manifests, lists and access logs are read before a run. Seeded: a seed repeats a run.

pub mod access_log;
pub mod catalogue;
pub mod choice;
mod demand;
mod dynamic;
pub(crate) mod lines;
mod link;
mod list;
pub(crate) mod method;
mod open;
mod phases;
mod seed;
mod sessions;
mod spec;

pub use catalogue::Catalogue;
pub use demand::Arrivals;
pub use demand::poisson;
pub use dynamic::check_prefix;
pub use link::Link;
pub(crate) use list::escaped;
pub use list::manifest_head;
pub use open::{Options, Workload};
pub use phases::{PhasePlan, PhaseRate};
pub use seed::StreamId;
pub use sessions::Sessions;
pub use spec::Spec;

/// One request: which file, and when it is meant to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its number in the catalogue.
    pub path_id: u32,
    /// Nanoseconds since the start of the phase.
    pub intended_ns: u64,
}

/// The request sequence of one stream on one thread.
///
/// An open loop calls `next_due_ns` and `take`; a closed loop only `next_path`. If users come back after an
/// answer, as in [`Sessions`], `next_due_ns` and `take` give the first request, `returns_ns` and `next_path` the others.
pub trait Demand: Send {
    /// When the next request is meant to start, in nanoseconds since the start of the phase; none
    /// when no more will come.
    fn next_due_ns(&self) -> Option<u64>;

    /// Takes the request whose time `next_due_ns` gave.
    fn take(&mut self) -> Option<Arrival>;

    /// The file of the next request, whenever it is; none when no more will come.
    fn next_path(&mut self) -> Option<u32>;

    /// Whether users may come back after an answer: a phase lasts until they have left.
    fn has_returning_users(&self) -> bool {
        false
    }

    /// When a user who was answered at `answered_ns` makes the next request, in nanoseconds since the start of the phase;
    /// none when the user leaves, as all users of an open loop do.
    fn returns_ns(&mut self, _answered_ns: u64) -> Option<u64> {
        None
    }
}
