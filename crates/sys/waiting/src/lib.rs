//! System calls that can block for any time on a disk, a child process or a signal. For helpers, the
//! supervisor, the keeper, the log writer and the lab. The crate `flash-worker` must not depend on this
//! crate, which the house rules check (`tests/tidy`).
//!
//! Where to start reading: [`mod@file`] has the reads and look-ups of helpers, and [`sandbox`] the restrictions
//! that the kernel enforces on each role.
//!
//! Errors are `std::io::Error` with the kernel's own code.

pub mod account;
pub mod changes;
pub mod child_call;
pub mod directory;
pub mod fanotify;
pub mod file;
pub mod guarded;
pub mod happening;
pub mod initial_timeout;
pub mod inotify;
pub mod listening;
pub mod local;
pub mod locked;
pub mod memory;
pub mod names;
pub mod network;
pub mod packets;
pub mod past_cache;
pub mod perf;
pub mod pressure;
pub mod process;
pub mod program;
pub mod root;
pub mod sandbox;
pub mod signal;
#[cfg(test)]
#[path = "../../../../tests/skip.rs"]
mod skipping;
pub mod store_file;
pub mod subprocess;
pub mod successor;
pub mod suspended;
pub mod systemd;
pub mod terminal;
pub mod warm;
pub mod watched;
