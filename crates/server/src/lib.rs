//! Processes and dispatch: supervisor, workers, helpers, log writer, and their configuration.
//!
//! ```text
//! supervisor   binds sockets, reads the configuration, starts and restarts the others
//! ├─ worker    an event loop around an engine: one per core, or as the architecture has it; in AMPED, the
//! │            default, it never waits for a disk
//! ├─ helper    in AMPED a few per worker, on demand: blocking look-ups, reads and listings
//! └─ log       writes the access log
//! ```
//!
//! Roles are started by executing the program again as `flash role NAME`; each has a control
//! channel as its standard input.

use std::process::ExitCode;

mod architecture;
pub mod config;
mod convert;
mod helper;
mod log_writer;
mod role;
mod sandbox;
mod start;
pub mod stats;
mod supervisor;

/// Runs a server until it is told to stop. Everything that goes wrong is said on stderr.
#[must_use]
pub fn serve(sources: config::Sources) -> ExitCode {
    supervisor::serve(sources)
}

/// Runs one of the processes that a supervisor starts.
#[must_use]
pub fn run_role(name: &str) -> ExitCode {
    role::run(name)
}
