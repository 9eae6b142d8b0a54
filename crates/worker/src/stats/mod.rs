//! The figures of a worker in the form that they have outside: in its messages to the supervisor, and in the
//! supervisor's answers to clients (`docs/stats.md`). Nothing here may be relied on for serving a request.

mod calls;
mod counters;
mod figures;
mod stalls;
#[cfg(test)]
mod tests;

pub use calls::{BUCKETS, CallTimes, Calls, STALL_NS, bucket_of};
pub use counters::{
    Caches, Connections, Contents, Counters, Helpers, Job, Jobs, Known, Names, Queue, Responses,
};
pub use figures::{Gauge, Histogram};
pub use stalls::{STALLS_MAX, Stall, Stalls, kept_path};
