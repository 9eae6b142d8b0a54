//! What the commands of the lab share.
//!
//! Called by `floor`, `fileset` and `interfere`. May not measure or print results.

use std::process::ExitCode;

/// Prints why a command of the lab failed, if it did, and gives its exit code.
pub(crate) fn finish(result: flash_lab::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
