//! A worker: one event loop around one engine. Nothing in it blocks on a disk or on another process.
//!
//! Where to start reading: [`Worker`] (`worker.rs`) is the event loop, [`LinuxSystem`] (`system.rs`) is the
//! engine's `Machine` on Linux, and [`amped`] joins them in the default architecture.
//!
//! This crate depends on `flash-prompt` and not on `flash-waiting`. So the compiler keeps every system call
//! that could block out of it, however many modules lie between; a house-rules test (`tests/tidy`) keeps out
//! the blocking names of the standard library. `flash-server` starts a worker, and that start can block: it
//! takes the supervisor's orders, starts helper threads and applies the sandbox. Architectures that block in
//! the loop pass functions of their own ([`Reach`]), and those that do jobs in the worker's process take them
//! out of [`OwnJobs`].
//!
//! This crate also has the messages that a worker exchanges with the supervisor ([`control`]), with helpers
//! ([`protocol`]), with the keeper of the store ([`store_protocol`]) and with the gateway ([`gateway_protocol`]),
//! all in one encoding ([`codec`]), and the figures that it reports ([`stats`]).

pub mod amped;
pub mod backend;
mod calls;
pub mod codec;
mod comparisons;
pub mod control;
pub mod convert;
mod gateway;
pub mod gateway_protocol;
mod handshakes;
mod helpers;
mod log;
pub mod names;
mod panics;
mod priority;
pub mod protocol;
mod reach;
mod refusals;
mod setup;
mod site_file;
mod socket;
pub mod stats;
mod store;
pub mod store_protocol;
mod supervisor;
mod system;
mod worker;

/// A problem is reported to the operator at most once in this time.
const REPORT_MS: u64 = 60_000;

pub use calls::{Call, note_call, of_job, timed};
pub use comparisons::{OwnJob, OwnJobs, SendFile};
pub use log::{BATCH_BYTES_MAX, lines_of_log};
pub use panics::keep_panics_quiet;
pub use priority::{CODE_POINTS, Marks, PRIORITIES};
pub use reach::Reach;
pub use setup::{Accepts, Fills, Given, GivenStore, HelperKind, HelperRules, Plan, Root, SendBy, Shares};
pub use site_file::SiteFile;
pub use socket::{Closed, Socket};
pub use system::LinuxSystem;
pub use worker::{Worker, kind, parts, token};
