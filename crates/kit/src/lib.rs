//! The common parts of the lab's crates: errors and endings of commands, numbers in text, tables, charts,
//! pages, signals, and processes as /proc shows them. `flash-load`, `flash-trace` and `flash-lab` depend on it; it
//! depends on none of them.

#![allow(missing_docs, reason = "only this workspace uses it: a comment stands where a name does not say it")]

pub mod bars;
pub mod chart;
pub mod ending;
pub mod error;
pub mod interrupt;
pub mod number;
pub mod page;
pub mod processes;
pub mod scale;
pub mod section;
pub mod sheet;
pub mod style;
pub mod text;

pub use ending::Ending;
pub use error::{Error, Result};
pub use interrupt::Stop;

/// The command line of this process, for the results.
pub fn command_line() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}
