//! What is asked for, and when: workloads, traces, arrivals.
//!
//! The commands make a [`Workload`] from their options; [`crate::load`] sends what its [`Demand`]s
//! say. Pure but for reading manifests, lists and traces before a run. Seeded: a seed repeats a run.

pub mod catalogue;
pub mod choice;
mod demand;
pub(crate) mod lines;
mod list;
mod open;
mod phases;
mod spec;
pub mod trace;

pub use catalogue::Catalogue;
pub use demand::Arrivals;
pub(crate) use demand::poisson;
pub(crate) use list::{escaped, manifest_head};
pub use open::{Options, Workload};
pub use phases::{PhasePlan, PhaseRate};
pub use spec::Spec;

/// One request: which file, and when it is meant to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its number in the catalogue.
    pub path_id: u32,
    /// Nanoseconds since the start of the phase.
    pub intended_ns: u64,
}

/// The row of requests of one stream on one thread.
///
/// An open loop calls `next_due_ns` and `take`; a closed loop only `next_path`.
pub trait Demand: Send {
    /// When the next request is meant to start, in nanoseconds since the start of the phase; none
    /// when no more will come.
    fn next_due_ns(&self) -> Option<u64>;

    /// Takes the request that `next_due_ns` spoke of.
    fn take(&mut self) -> Option<Ask>;

    /// The file of the next request, whenever it is; none when no more will come.
    fn next_path(&mut self) -> Option<u32>;
}
