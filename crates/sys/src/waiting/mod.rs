//! Calls that may wait for as long as a disk, a child or a signal likes. Not for a worker.

pub mod account;
pub mod file;
pub mod held;
pub mod local;
pub mod memory;
pub mod packets;
pub mod perf;
pub mod process;
pub mod program;
pub mod root;
pub mod signal;
