//! System calls that never wait for a disk, for a lock held across a disk access, or for a peer.
//!
//! A worker's loop is made of these: the crate `flash-worker` depends on this crate and not on
//! `flash-waiting`, so the compiler refuses it every other call. Unsafe code and system calls are in
//! these two crates only.
//!
//! Nothing may be added here that can wait. Code that both crates need takes the call that waits as a
//! parameter ([`file::look_up_by`], [`sendfile::send_behind_by`]), and only `flash-waiting` has such a
//! call to pass.
//!
//! Errors are `std::io::Error` with the kernel's own code.

pub mod channel;
pub mod clock;
pub mod epoll;
pub mod file;
mod levels;
pub mod mapping;
pub mod mechanism;
pub mod net;
pub mod sendfile;
pub mod timer;
pub mod usage;

pub use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
