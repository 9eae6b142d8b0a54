//! How the commands of the lab end.
//!
//! Called by each of them. May not measure or print results.

use std::process::ExitCode;

use flash_lab::drive::Ending;

/// Prints why a command of the lab failed, if it did, and gives its exit code.
pub(crate) fn finish(result: flash_lab::Result<()>) -> ExitCode {
    finish_run(result.map(|()| Ending::Done))
}

/// The same for commands that drive servers.
pub(crate) fn finish_run(result: flash_lab::Result<Ending>) -> ExitCode {
    match result {
        Ok(ending) => ExitCode::from(ending.exit_code()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
