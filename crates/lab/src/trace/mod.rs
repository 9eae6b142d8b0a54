//! What blocks in a process: its system calls and context switches, recorded by the kernel's perf
//! events, and what they say of its event loops. `flash trace` and `flash doctor`.
//!
//! The idea is DeBox's: the performance of system calls as a first-class result, here without a kernel
//! patch. It watches any process, and knows nothing of how Flash is built.
//!
//! ```text
//! attach     which threads, and the kernel's events for them    decode     records as events
//! tap        requests and answers on the network, as events     segment    packets, decoded
//! recorder   takes events while it goes on                      analysis   what they mean: a `Trace`
//! roll_call  who is still there, and where they listen by now
//! world      descriptors, paths and names, from /proc           model      the `Trace` as data
//! table      what `flash trace` prints                          page       the page, with a `strip` of each loop
//! diagnosis  does a loop wait, in what, who pays: as data       verdict    the same in words, for `doctor`
//! ```

mod analysis;
mod attach;
mod calls;
mod decode;
pub mod diagnosis;
pub mod doctor;
mod event;
#[cfg(test)]
mod fixture;
pub mod model;
mod page;
mod reason;
mod recorder;
mod roll_call;
mod segment;
mod strip;
mod symbols;
mod table;
mod tap;
mod verdict;
mod words;
mod world;

use std::path::{Path, PathBuf};

use crate::drive::Ending as ExitEnding;
use crate::error::{Error, Result};
use model::{Ending, Trace};

pub use page::html;
pub use recorder::{BUFFER, RecordOptions, Subject, record};
pub use table::table;

/// What `flash trace` is asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to record, and how.
    pub record: RecordOptions,
    /// A file for all of it, as JSON.
    pub json: Option<PathBuf>,
    /// A file for the page.
    pub html: Option<PathBuf>,
}

/// Records, prints a table, writes the files.
///
/// Errors: those of [`record`]; run, for a file that can't be written.
pub fn run(options: &Options) -> Result<ExitEnding> {
    check_places(&[options.json.as_deref(), options.html.as_deref()])?;
    let trace = record(&options.record)?;
    let kept = options.json.as_ref().map_or(Ok(()), |path| write(path, &json(&trace)));
    let drawn = options.html.as_ref().map_or(Ok(()), |path| write(path, &html(&trace)));
    print(&table(&trace))?;
    kept.and(drawn)?;
    Ok(match trace.ending {
        Ending::Interrupted => ExitEnding::Interrupted,
        Ending::Duration | Ending::TargetEnded => ExitEnding::Done,
    })
}

/// A trace as the JSON file has it.
pub fn json(trace: &Trace) -> String {
    // Of plain data, so it cannot fail.
    let mut text = serde_json::to_string(trace).unwrap_or_default();
    text.push('\n');
    text
}

/// Nothing is worse than to trace first, and to find then that the result has no place. What stands there stays until
/// there is something new.
///
/// Errors: run, for a file that cannot be written; usage, for one that is asked for twice.
fn check_places(paths: &[Option<&Path>]) -> Result<()> {
    let mut places: Vec<PathBuf> = Vec::new();
    for path in paths.iter().flatten() {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|why| Error::file("write", path, &why))?;
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if places.contains(&place) && path.is_file() {
            return Err(Error::usage(format!("{} is named for two results", path.display())));
        }
        places.push(place);
    }
    Ok(())
}

/// In place: who asked for it may have it open, or it is a pipe.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|why| Error::file("write", path, &why))
}

/// A reader that has seen enough is no error.
fn print(text: &str) -> Result<()> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(why) if why.kind() != ErrorKind::BrokenPipe => {
            Err(Error::run(format!("cannot write to standard output: {why}")))
        }
        _ => Ok(()),
    }
}
