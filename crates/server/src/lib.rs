//! Processes and dispatch: supervisor, workers, helpers, keeper, gateway, log writer, and their configuration.
//!
//! ```text
//! supervisor   binds sockets, reads the configuration, starts and restarts the others
//! ├─ worker    an event loop around an engine: one per core, or as the architecture says; in AMPED, the
//! │            default, it never waits for a disk
//! ├─ helper    in AMPED a few per worker, on demand: blocking look-ups, reads and listings; fills the store
//! ├─ keeper    one for all: which blocks of files are in the store, and where; none without a store
//! ├─ gateway   connects to the servers of routes, for the workers; none without routes
//! └─ log       writes the access log
//! ```
//!
//! The supervisor starts a role by executing the program again as `flash role NAME`, with a control channel as its standard
//! input.

use std::path::PathBuf;
use std::process::ExitCode;

pub use supervisor::Program;
pub use supervisor::reader::ROLE as READER_ROLE;

mod architecture;
mod backend;
mod certificates;
pub mod config;
mod control;
mod convert;
#[cfg(test)]
#[expect(dead_code, reason = "some of it is for the code of documents")]
#[path = "../../../tests/documented.rs"]
mod documented;
mod gateway;
mod handshakes;
mod helper;
#[cfg(not(feature = "fuzzing"))]
mod hot_list;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod hot_list;
mod keeper;
mod log_writer;
mod names;
mod passwords;
mod program;
pub mod qdisc;
mod role;
mod rotation;
mod sandbox;
mod start;
pub mod stats;
mod supervisor;
mod threads;
mod trust;
mod watcher;

/// Runs a server until a signal stops it. It reports all errors on standard error.
#[must_use]
pub fn serve(sources: config::Sources) -> ExitCode {
    supervisor::serve(Program::Serve(sources))
}

/// Runs a backend for other servers until a signal stops it (docs/backend-protocol.md). It reports all errors on
/// standard error.
#[must_use]
pub fn run_backend(options: config::BackendOptions) -> ExitCode {
    supervisor::serve(Program::Backend(options))
}

/// Runs the process that reads the configuration on HUP ([`READER_ROLE`]). `program` makes the program from the command
/// line, for a server that was started in this directory; its errors are on standard error already.
#[must_use]
pub fn read_configuration(program: impl FnOnce(PathBuf) -> Result<Program, ExitCode>) -> ExitCode {
    supervisor::reader::run(program)
}

/// Reads the certificates of these settings, and those of the issuers that they trust, as a server does at its start. Returns
/// warnings about them.
///
/// # Errors
/// Why a server would not start with them.
pub fn check_certificates(settings: &config::Settings) -> Result<Vec<String>, String> {
    trust::read(settings)?;
    let read = certificates::read(settings)?;
    let expiries = read.iter().flat_map(|(_, expiries)| expiries);
    Ok(expiries.filter_map(certificates::Expiry::warning).collect())
}

/// Runs one of the other processes that a supervisor starts.
#[must_use]
pub fn run_role(name: &str) -> ExitCode {
    role::run(name)
}
