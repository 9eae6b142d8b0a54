//! System calls that never wait for a disk, for a lock held across a disk access, or for another process.
//!
//! A worker's event loop uses only these calls: the crate `flash-worker` depends on this crate and not on
//! `flash-waiting`, so the compiler refuses all others. Only these two crates have unsafe code and system
//! calls.
//!
//! No call that can block may be added here. Code that both crates need takes the blocking call as a
//! parameter ([`file::look_up_by`], [`sendfile::send_behind_by`]), and only `flash-waiting` has such a call
//! to pass.
//!
//! Where to start reading: [`mod@file`] explains how files are read without blocking, and [`mechanism`] how
//! events are waited for.
//!
//! Errors are `std::io::Error` with the kernel's own code.

pub mod call;
pub mod channel;
pub mod clock;
pub mod counts;
pub mod epoll;
pub mod file;
mod levels;
pub mod mapped;
pub mod mapping;
pub mod mechanism;
pub mod names;
pub mod net;
pub mod numbers;
pub mod sendfile;
mod shared;
mod siphash;
#[cfg(test)]
#[path = "../../../../tests/skip.rs"]
mod skipping;
mod slots;
pub mod store_memory;
pub mod table;
pub mod timer;
pub mod uplink_users;
pub mod usage;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
