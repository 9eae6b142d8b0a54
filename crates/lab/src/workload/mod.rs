//! What is asked for, and when: workloads, traces, arrivals.
//!
//! The commands make a workload from their options; [`crate::load`] sends what it says. Pure but
//! for reading manifests, lists and traces before a run. Seeded: a seed repeats a run.

pub(crate) mod arrivals;
pub mod catalogue;

pub use catalogue::Catalogue;

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
