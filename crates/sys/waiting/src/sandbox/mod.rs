//! The rights that a process gives up before it begins its work, so that the kernel enforces the limits of
//! its role.
//!
//! Each role calls these once at its start, in this order: [`limits`], [`memory`], [`privileges`], [`paths`]
//! (Landlock), [`calls`] (seccomp). The process itself cannot undo any of them.
//!
//! The last three apply to the calling thread and to the threads that it starts afterwards. So threads that
//! need different rights are started after the privileges are given up, and each restricts its own paths and
//! calls.

pub mod calls;
pub mod limits;
pub mod memory;
pub mod paths;
pub mod privileges;
mod violation;

pub use violation::EXIT_CODE as VIOLATION_EXIT_CODE;
