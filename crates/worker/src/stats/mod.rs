//! A worker's figures as they are reported: in its messages to the supervisor, and in the supervisor's
//! answers to clients (`docs/stats.md`). Serving requests must not depend on anything here.

mod backend;
mod calls;
mod counters;
mod figures;
mod latencies;
mod stalls;
#[cfg(test)]
mod tests;

pub use backend::{Backend, Busy, Client};
pub use calls::{BUCKETS, CallTimes, Calls, STALL_NS, bucket_of};
pub use counters::{
    Bands, Caches, Connections, Counters, Egress, HelperCounts, Helpers, Known, Names, Queue, RefusedBy,
    Responses, Schedule, Upstreams,
};
pub use figures::{Cutoffs, Figures, Gauge, Histogram, Shared, figures};
pub use latencies::Latency;
pub use stalls::{STALLS_MAX, Stall, Stalls, kept_path};
