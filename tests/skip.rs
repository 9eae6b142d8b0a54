//! How a test says that this machine cannot make it. Every crate whose tests can skip includes this file.
//!
//! `.ci/tally` reads the line, counts the test as skipped, and refuses a reason that `.ci/skips` does not list. A test
//! that calls it must return at once; a reason that starts with "in part: " is for a test that goes on without one of
//! its checks.

use std::io::Write as _;

/// Prints `skipped: PROGRAM::TEST: REASON`.
pub(crate) fn skip(why: &str) {
    // Not the path of the file, which is the same for variants of a suite.
    let program = std::path::PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let program = program.file_name().unwrap_or_default().to_string_lossy();
    // Cargo appends a hash.
    let program = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread without a name");
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    // Written at once and not by `eprintln!`, whose output libtest drops when a test passes.
    let _ = std::io::stderr().write_all(format!("skipped: {program}::{test}: {why}\n").as_bytes());
}
