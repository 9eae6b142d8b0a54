//! Serves requests: connections, exchanges, handlers, caches and jobs. Every decision of a worker is made in
//! this crate.
//!
//! The engine is sans-I/O: it makes no system calls and reads no clock. A [`Machine`] does these things for it.
//! `flash-worker` implements `Machine` on Linux; the tests implement it in memory.
//!
//! Each worker has one [`Engine`], which is single-threaded; threads that share one take turns. The worker
//! passes events to `handle_*` methods and asks for the next step through `poll_*` methods; [`Engine`] lists
//! them.
//!
//! Where to start reading: `handler::answer` is the heart. It turns a request into a response, or into a job
//! that the request must wait for. `exchange` repeats that call after each wait, `wire::h1` moves the bytes,
//! and `jobs` decides which job a helper gets next.
//!
//! The modules; each knows only those below it (`tests/tidy` checks this):
//!
//! ```text
//! backend    `flash backend`: requests of other servers for names and ranges in memory
//! engine     the worker's interface: events in, next steps out
//! wire       bytes <-> requests and responses: connections, HTTP/1        (HTTP/2 would go here)
//! exchange   one request to one response
//! handler    files, listings, redirects, error pages
//! body       the bytes of a response, through one pull method             (streams would go here)
//! context    the state that all requests share: rules, clock, caches, jobs, counters
//! upstream   connections to the servers of upstreams, and the requests on them
//! transport  a socket and its readiness, and the record layer of an encrypted one
//! caches     names, versions, contents, heads, repeated requests, open files
//! jobs       work for helpers: joining, order, shares, deadlines
//! rates      how many requests rules admit
//! throttles  the answers that wait because a rule bounds the bandwidth
//! schedule   whose bytes go to the network first
//! admission  who gets a connection when there is not room for all
//! machine    the traits that the machine must implement
//! fastcgi    records of FastCGI, and its side of a web server: bytes <-> requests and responses
//! ```

mod access_log;
mod admission;
pub mod backend;
mod bandwidth;
mod body;
mod bounds;
mod caches;
mod conditions;
mod context;
mod counters;
mod engine;
mod exchange;
pub mod fastcgi;
mod handed_over;
mod handler;
mod head_changes;
mod histogram;
mod in_flight;
mod jobs;
pub mod limits;
mod log_template;
mod machine;
mod path_pattern;
mod path_rule;
mod path_rules;
mod rates;
mod report_limit;
mod requester;
mod router;
mod rules;
mod schedule;
mod secret;
mod shares;
mod slab;
mod spool;
mod throttles;
mod timing;
mod transport;
mod upstream;
mod users;
mod wire;

pub use admission::{AcceptBatch, AcceptQueue, AdmissionRules, Network, WhyRefused, WrongNetwork};
pub use bandwidth::Bandwidth;
pub use bounds::{Bounds, Concurrency};
pub use caches::find;
pub use counters::{Counters, JobCounters, JobKind, LinkCounters, Times, TlsCounters};
pub use engine::Engine;
pub use histogram::{BUCKETS, Bucket, Histogram};
pub use log_template::{LogForm, LogFormat, LogRules, LogTemplate};
pub use machine::{
    Bands, Block, BlockBytes, Blocks, BucketKey, Buckets, FileId, FileKind, FilePart, FileRange, FileSent,
    FileStat, Files, Finding, Gateway, Handshake, Helpers, JobId, ListingForm, ListingKey, ListingOrder, Log,
    LookUpError, Machine, Moment, NO_FORM, NameFacts, NameMark, NameOfFile, Net, Opened, Outcome,
    README_NAMES, ReceiveCall, RecordLayer, Resident, SendCall, SharedName, SharedNames, Task, TlsVersion,
    UplinkShare, Want, block_of_form, form_of_block,
};
pub use path_pattern::{PathPattern, PatternIndex};
pub use path_rule::{Access, AuthRule, ErrorPage, FieldChanges, PathRule, Redirect, Rewritten, Target};
pub use path_rules::PathRules;
pub use rates::{Rate, Rates};
pub use report_limit::ReportLimit;
pub use rules::{
    AliasOf, BodyRules, HttpsRedirect, Optimizations, ProxyRules, Route, RoutePaths, Rules, ServerId,
    ServerRules, SiteRules, Timeouts, UpstreamId, UpstreamProtocol, UpstreamRules,
};
pub use schedule::{BANDS, Band, BandCounters, CUTOFFS_MAX, Cutoffs, EgressRules, Policy, ScheduleCounters};
pub use secret::Secret;
pub use slab::{Key, SiteId};
pub use timing::{CacheResult, LATENCY_BOUNDS_NS, Latencies};
pub use transport::Readiness;
pub use users::Users;
