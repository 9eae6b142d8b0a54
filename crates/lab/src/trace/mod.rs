//! What blocks in a process: its system calls and context switches, recorded by the kernel's perf
//! events, and what they say of its event loops. `flash trace` and `flash doctor`.
//!
//! The idea is DeBox's: the performance of system calls as a first-class result, here without a kernel
//! patch. It watches any process, and knows nothing of how Flash is built.

pub mod diagnosis;
pub mod doctor;
pub mod model;
pub mod page;
mod strip;
pub mod table;
mod verdict;
mod words;

#[cfg(test)]
mod fixture;
