//! Writing results to standard output.
//!
//! Called by the commands. May not be used for errors and warnings: those go to standard error.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Writes `text` and says with which code to exit. A reader that has seen enough (`flash man |
/// head`) is no error.
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
