//! `flash doctor`: watches a server for some seconds and says in words whether it waits in its event loop.
//!
//! The command line calls it. The words come from `verdict`, the figures from `diagnosis`; this only puts
//! the steps in a row.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::diagnosis::{self, Verdict};
use super::model::{Trace, VERSION};
use super::{RecordOptions, Subject, page, record, verdict};
use crate::error::{Error, Result};

/// A larger file was not written by `flash trace`: its lists are bounded.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// What `flash doctor` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the trace comes from.
    pub source: Source,
    /// Print the diagnosis as JSON, not as words.
    pub json: bool,
    /// Write the page there.
    pub html: Option<PathBuf>,
    /// Keep the trace there, as `flash trace --json` does.
    pub trace: Option<PathBuf>,
}

/// Where a trace comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It is recorded now.
    Record(RecordOptions),
    /// A file that `flash trace --json` wrote.
    File(PathBuf),
}

/// What is read first, since the rest may mean something else in another version.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

/// Watches, writes what is to be kept, and prints the verdict.
///
/// Errors: those of [`record`]; usage, for a file that is no trace; run, for one that can't be read or written.
pub fn run(options: &Options) -> Result<Verdict> {
    // Nothing is worse than to trace first, and to find then that the result has no place.
    for path in options.trace.iter().chain(&options.html) {
        super::write(path, "")?;
    }
    let trace = match &options.source {
        Source::Record(how) => {
            if let (Subject::Process(pid), Some(seconds)) = (&how.subject, how.duration_s) {
                eprintln!("watching process {pid} and what it started for {seconds} s; Ctrl-C ends it early");
            }
            record(how)?
        }
        Source::File(path) => read(path)?,
    };
    if let Some(path) = &options.trace {
        super::write(path, &super::json(&trace))?;
    }
    if let Some(path) = &options.html {
        super::write(path, &page::html(&trace))?;
    }
    let found = diagnosis::diagnose(&trace);
    if options.json {
        // Of plain data, so it cannot fail.
        super::print(&(serde_json::to_string_pretty(&found).unwrap_or_default() + "\n"))?;
    } else {
        super::print(&verdict::text(&trace, &found))?;
    }
    Ok(found.verdict)
}

/// Reads a trace that was kept.
///
/// Errors: usage, for what is no trace or of another version; run, for what cannot be read.
pub fn read(path: &Path) -> Result<Trace> {
    let file = File::open(path).map_err(|why| Error::file("open", path, &why))?;
    let mut bytes = Vec::new();
    file.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|why| Error::file("read", path, &why))?;
    if bytes.len() as u64 > TRACE_BYTES_MAX {
        return Err(Error::usage(format!(
            "{} is larger than {TRACE_BYTES_MAX} bytes: `flash trace --json` did not write it",
            path.display()
        )));
    }
    let other = |why: serde_json::Error| {
        Error::usage(format!("{} is no trace: {why}; `flash trace --json FILE` writes one", path.display()))
    };
    let head: Head = serde_json::from_slice(&bytes).map_err(other)?;
    if head.version != VERSION {
        return Err(Error::usage(format!(
            "{} has version {}, this program reads {VERSION}: use the program that traced it",
            path.display(),
            head.version
        )));
    }
    serde_json::from_slice(&bytes).map_err(other)
}
