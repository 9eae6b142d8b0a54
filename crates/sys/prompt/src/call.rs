//! The result of a system call that no crate wraps.

use std::io;

/// The error of a call that has answered with a negative number.
///
/// Errors: the error number of the calling thread.
pub fn check(answer: impl Into<i64>) -> io::Result<i64> {
    match answer.into() {
        answer @ 0.. => Ok(answer),
        _ => Err(io::Error::last_os_error()),
    }
}
