//! The steps of serving a request: connections, exchanges, caches and jobs.
//!
//! The engine is sans-I/O: it makes no system call, reads no clock and has no unsafe code. A
//! [`System`] does these for it. `flash-server` implements `System` on Linux; the engine's
//! tests implement it in memory.
//!
//! One [`Engine`] belongs to one worker and is single-threaded: where threads share one, each has it for
//! a turn at a time. The worker tells it what happened through `handle_*` methods and asks it what is next
//! through `poll_*` methods; see [`Engine`] for the list.

mod access_log;
mod answer;
mod cache;
mod completion;
mod connection;
mod counters;
mod engine;
mod exchange;
mod find;
mod histogram;
mod jobs;
pub mod limits;
mod rules;
mod shares;
mod slab;
mod steps;
mod system;
mod timers;

pub use access_log::LogFormat;
pub use counters::{Counters, JobCounters, JobKind};
pub use engine::{Engine, Readiness};
pub use find::{Finding, find};
pub use histogram::{BUCKETS, Bucket, Histogram};
pub use jobs::{JobId, Outcome, Task};
pub use rules::{Optimizations, Rules, SiteId, SiteRules, Timeouts};
pub use slab::Key;
pub use system::{FilePart, FileSent, FileStat, Kind, LookUpError, Moment, Opened, Resident, System, Want};
