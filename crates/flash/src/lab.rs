//! Exit codes of the lab's commands.
//!
//! Each of these commands calls it. It must not measure anything or print results.

use std::process::ExitCode;

use flash_kit::Ending;

/// Prints the error of a failed lab command, and returns its exit code.
pub(crate) fn finish(result: flash_kit::Result<()>) -> ExitCode {
    finish_run(result.map(|()| Ending::Done))
}

/// The same for commands that drive servers.
pub(crate) fn finish_run(result: flash_kit::Result<Ending>) -> ExitCode {
    match result {
        Ok(ending) => ExitCode::from(ending.exit_code()),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
