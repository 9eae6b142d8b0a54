//! System calls that may wait for as long as a disk, a child or a signal likes: for helpers, the supervisor,
//! the log writer and the lab. The crate `flash-worker` must not depend on this one, which the house rules
//! check (`tests/tidy`).
//!
//! [`sandbox`] has the kernel hold each role to its part.
//!
//! Errors are `std::io::Error` with the kernel's own code.

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
pub mod sandbox;
pub mod signal;
