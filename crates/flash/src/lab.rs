//! The ends of the lab's commands: what failed on standard error, and the exit code.
//!
//! Each of these commands calls it. It must not measure anything or print results.

use std::process::ExitCode;

use flash_kit::{Ending, Result};

/// Prints the error of a failed command, and returns its exit code; `code` is that of one that did not fail.
pub(crate) fn finish_code<T>(result: Result<T>, code: impl Fn(T) -> u8) -> ExitCode {
    let code = result.map(code).unwrap_or_else(|error| {
        eprintln!("error: {error}");
        error.exit_code()
    });
    ExitCode::from(code)
}

/// The same for commands without a verdict.
pub(crate) fn finish(result: Result<()>) -> ExitCode {
    finish_code(result, |()| 0)
}

/// The same for commands that drive servers.
pub(crate) fn finish_run(result: Result<Ending>) -> ExitCode {
    finish_code(result, Ending::exit_code)
}
