//! What a process gives up before it begins its work, so that the kernel, not care, keeps it from
//! what its role may not do.
//!
//! Called once by each role at its start, in this order: [`limits`], [`memory`],
//! [`privileges`], [`paths`] (Landlock), [`calls`] (seccomp). Nothing here can be undone by the process itself.
//!
//! The last three hold for the thread that calls them and for those that it starts afterwards. So threads
//! that are to have rights of their own are started after the privileges are given up, and each closes its
//! own paths and calls.

pub mod calls;
pub mod limits;
pub mod memory;
pub mod paths;
pub mod privileges;
mod violation;

pub use violation::EXIT_CODE as VIOLATION_EXIT_CODE;
