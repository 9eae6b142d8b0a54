//! The steps of serving a request: wires, exchanges, handlers, the store and jobs.
//!
//! The engine is sans-I/O: it makes no system call, reads no clock and has no unsafe code. A [`Machine`] does these for it.
//! `flash-worker` implements `Machine` on Linux; the engine's tests implement it in memory.
//!
//! One [`Engine`] belongs to one worker and is single-threaded: where threads share one, each has it for a turn at a time.
//! The worker tells it what happened through `handle_*` methods and asks it what is next through `poll_*` methods; see
//! [`Engine`] for the list.
//!
//! The modules, each knowing only those below it (a house-rules test holds them to it):
//!
//! ```text
//! engine     what the worker tells and asks
//! wire       bytes <-> requests and responses: connections, HTTP/1        (TLS, HTTP/2 enter here)
//! exchange   one request to one response
//! handler    files, listings, redirects, error pages                      (FastCGI, proxying enter here)
//! body       the bytes of a response, by one pull                         (streams enter here)
//! desk       what serving a request takes: machine, rules, clock, store, jobs, counters
//! store      names, versions, contents, heads, known requests, open files
//! jobs       work for helpers: joined, queued, shared out, given up       (the order of the disk queue enters here)
//! machine    what the engine requires of the machine
//! ```

mod access_log;
mod body;
mod counters;
mod desk;
mod engine;
mod exchange;
mod handed_over;
mod handler;
mod histogram;
mod jobs;
pub mod limits;
mod machine;
mod rules;
mod slab;
mod store;
mod wire;

pub use access_log::LogFormat;
pub use counters::{Counters, JobCounters, JobKind};
pub use engine::Engine;
pub use histogram::{BUCKETS, Bucket, Histogram};
pub use machine::{
    FileKind, FilePart, FileSent, FileStat, Files, Finding, Helpers, JobId, Log, LookUpError, Machine,
    Moment, Net, Opened, Outcome, Resident, Task, Want,
};
pub use rules::{Optimizations, Rules, SiteId, SiteRules, Timeouts};
pub use slab::Key;
pub use store::find;
pub use wire::Readiness;
