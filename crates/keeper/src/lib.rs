//! The store of file contents: which blocks it holds, where they lie in its memory file, and which block is
//! evicted next.
//!
//! Where to start reading: [`Keeper`] (`keeper.rs`) is the heart. It decides who loads a block, when a block
//! is evicted, and when its memory can be reused. [`policy`] chooses the victim, and [`space`] allocates the
//! memory file.
//!
//! The crate is pure: no system calls, no clock, no threads. The server's keeper process runs a [`Keeper`];
//! the lab runs the [`policy`] on recorded requests; the engine's simulation runs both.
#![forbid(unsafe_code)]

mod action;
mod keeper;
mod names;
pub mod policy;
pub mod space;
mod watching;

pub use action::{Action, Answer, Entry, Extent, HelperId, Totals, WorkerId};
pub use keeper::{Keeper, SLOT_BYTES};
pub use names::{NameClass, NameSlot, NameSlots};
pub use watching::{Finding, WatchAction, WatcherId, Watching};
