//! Writing results to standard output.
//!
//! The commands call it. It must not be used for errors and warnings, which go to standard error.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Writes `text` and returns the exit code. A reader that closes its end early (`flash man | head`) is not an error.
pub(crate) fn print(text: impl AsRef<[u8]>) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
    }
}
