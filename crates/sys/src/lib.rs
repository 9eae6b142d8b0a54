//! The only crate of Flash with unsafe code or system calls.
//!
//! It is split by the one question that matters here:
//!
//! * [`prompt`] holds calls that never wait for a disk, a lock held across a disk access, or
//!   a peer. An AMPED worker may use these and nothing else.
//! * [`waiting`] holds calls that may wait for as long as a disk likes. Helpers, the
//!   supervisor and the log writer use them; a test of the house rules refuses the word in
//!   the worker's modules.
//!
//! [`sandbox`] has the kernel hold each role to its part.
//!
//! Errors are `std::io::Error` with the kernel's own code.

pub mod prompt;
pub mod sandbox;
pub mod waiting;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
