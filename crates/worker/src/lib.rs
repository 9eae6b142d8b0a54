//! A worker: one event loop around one engine, and nothing that may wait for a disk or a peer.
//!
//! This crate depends on `flash-prompt` and not on `flash-waiting`, so the compiler refuses it every system
//! call that may wait, however many modules lie between; of the standard library's, a house-rules test refuses
//! the names (`tests/tidy`). `flash-server` starts a worker, which may wait: it takes the supervisor's orders,
//! starts helper threads and closes the sandbox. The architectures that wait in the loop, or do jobs in the
//! worker's process, hand in functions of their own ([`Reach`]) or have their jobs taken ([`OwnJobs`]).
//!
//! The messages that a worker exchanges with the supervisor ([`control`]) and with helpers ([`protocol`]) are
//! here, too, and so are the figures that it reports ([`stats`]).

pub mod amped;
mod calls;
mod complaint;
pub mod control;
pub mod convert;
mod helpers;
mod log;
mod own_jobs;
mod panics;
pub mod protocol;
mod reach;
mod setup;
mod site_file;
mod socket;
pub mod stats;
mod system;
mod worker;

pub use calls::{Call, lap, of_job, timed};
pub use log::BATCH_BYTES_MAX;
pub use own_jobs::{OwnJob, OwnJobs};
pub use panics::keep_panics_quiet;
pub use reach::{Reach, SendFile};
pub use setup::{Accepts, Given, HelperKind, HelperRules, Plan, Root, SendBy};
pub use site_file::SiteFile;
pub use socket::{Closed, Socket};
pub use system::LinuxSystem;
pub use worker::{Worker, kind, parts, token};
